"""A method of the user's own: found by package.module:Name, made, and checked before anything is trained with it."""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from labelsieve.engine.method import Batch, Method, Plan
from labelsieve.errors import InputError


def made(found: Any, name: str, settings: Mapping[str, Any]) -> Method:
    """The method itself, of a class and its settings or of an instance; `name` is what messages call it."""
    kind = found if isinstance(found, type) else type(found)
    if not issubclass(kind, Method):
        raise InputError(
            f"method {name} is no method: derive its class from labelsieve.engine.method.Method, and give it a loss"
        )
    if kind.loss is Method.loss:
        raise InputError(f"method {name} has no loss: write loss(self, logits, batch), which returns [t, k]")
    if isinstance(found, Method) and settings:
        raise InputError(f"method_settings: the method {name} is made already: give its class, or make it with these")
    method = found if isinstance(found, Method) else instance(kind, name, settings)
    _check(method, name)
    return method


def instance(kind: type[Method], name: str, settings: Mapping[str, Any]) -> Method:
    """A method of a class; an InputError names the settings it has."""
    try:
        return kind(**settings)
    except TypeError as error:
        known = ", ".join(inspect.signature(kind).parameters) or "none"
        raise InputError(
            f"method {name!r} got a setting it does not have or cannot take ({error}); its settings: {known}"
        ) from error


def _check(method: Method, name: str) -> None:
    networks, settings, needs = method.networks, method.settings(), method.needs()
    if type(networks) is not int or networks < 1:
        raise InputError(f"method {name}: networks is {networks!r}: give a whole number of at least 1")
    if needs not in ("nothing", "ratio", "selection"):
        raise InputError(f"method {name}: needs() is {needs!r}: return 'nothing', 'ratio' or 'selection'")
    try:
        plain = isinstance(settings, dict) and bool(json.dumps(settings))
    except (TypeError, ValueError):
        plain = False
    if not plain:
        raise InputError(f"method {name}: settings() must return a dict of numbers, texts and lists, for the record")
    shape = _shape_of_loss(method)
    if shape not in (None, (1, networks)):
        raise InputError(
            f"method {name}: loss() returned the shape {list(shape or ())} for one training of {networks} networks: "
            f"return [t, k], here [1, {networks}]"
        )


def _shape_of_loss(method: Method) -> tuple[int, ...] | None:
    """Of one small batch: a mean over too much or too little is told here, not by a broken step.

    None where the method wants more than a rehearsal has: what is wrong then shows in the training itself.
    """
    samples, classes = 4, 3
    index = np.arange(samples)
    plan = Plan("rehearsal", index % classes, index, seed=0, candidates=index[:0], noise_ratio=0.0)
    try:
        state = method.state(plan, samples=samples, classes=classes, epochs=1)
        rows = {key: tensor[None].clone() for key, tensor in state.items()}
        labels = torch.from_numpy(plan.labels)[None]
        batch = Batch(torch.from_numpy(index)[None], labels, torch.ones_like(labels).bool(), torch.zeros(1), rows)
        return tuple(method.loss(torch.zeros(1, method.networks, samples, classes, requires_grad=True), batch).shape)
    except Exception:
        return None
