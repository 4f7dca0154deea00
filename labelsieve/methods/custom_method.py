"""A method of the user's own: found by package.module:Name, made, and checked before anything is trained with it."""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from labelsieve.engine.method import (
    NO_GRADIENT,
    Batch,
    Method,
    Plan,
    State,
    as_batches,
    checked_state,
    silenced,
    tell,
)
from labelsieve.errors import InputError

CALLS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {  # how the engine calls a method, by position and by name
    "settings": ((), ()),
    "needs": ((), ()),
    "check": (("plan", "epochs"), ()),
    "epochs": (("schedule_epochs",), ()),
    "batches": (("plan", "epoch", "batch_size", "rng"), ()),
    "state": (("plan",), ("samples", "classes", "epochs")),
    "before_epoch": (("view",), ()),
    "loss": (("logits", "batch"), ()),
}
SAMPLES, CLASSES, EPOCHS = 128, 10, 200  # of the rehearsal: a batch and the epochs of the paper
FAILED = object()  # None is what a method returns that forgot to


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
    for hook in CALLS:
        _check_call(method, name, hook)
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
    with silenced():  # what it tells of a rehearsal is true of nothing else
        failed = _rehearse(method, name)
    if failed:
        tell(f"method {name} failed in a rehearsal and may fail in the training: {'; '.join(failed)}")


def _check_call(method: Method, name: str, hook: str) -> None:
    """Whether it takes what the engine gives: a keyword left out is told here."""
    positional, keywords = CALLS[hook]
    given = getattr(method, hook)
    try:
        if not callable(given):
            raise TypeError(f"it is {type(given).__name__}")
        inspect.signature(given).bind(*positional, **dict.fromkeys(keywords))
    except TypeError as error:
        wanted = ", ".join(["self", *positional, *["*"][: len(keywords)], *keywords])
        raise InputError(f"method {name}: {hook}() cannot be called ({error}): write {hook}({wanted})") from error


def _rehearse(method: Method, name: str) -> list[str]:
    """One epoch of one batch: what the method returns is checked here, not by a broken step.

    What its own code raises is no proof of a mistake: it may want more than a rehearsal has. It is returned, for a
    person to read; the training raises it again, as it is.
    """
    index = np.arange(SAMPLES)
    plan = Plan("rehearsal", index % CLASSES, index, seed=0, candidates=index[:0], noise_ratio=0.0)
    failed: list[str] = []

    def attempt(hook: str, *positional: Any, **keywords: Any) -> Any:
        try:
            return getattr(method, hook)(*positional, **keywords)
        except (InputError, LookupError):  # it refuses this plan, or knows other samples than these
            return FAILED
        except Exception as error:
            failed.append(" ".join(f"{hook}() raised {type(error).__name__}: {error}".split()))
            return FAILED

    epochs = attempt("epochs", EPOCHS)
    attempt("check", plan, epochs)  # may prepare what the others need
    state = attempt("state", plan, samples=SAMPLES, classes=CLASSES, epochs=epochs)
    order = attempt("batches", plan, 0, SAMPLES, np.random.default_rng(0))
    if order is not FAILED:
        as_batches(order, name)  # which samples these are is for the training to check, which has them
    if state is not FAILED:
        losses = attempt("loss", *_batch(method, plan, checked_state(state, name)))
        if losses is not FAILED:
            _check_losses(losses, method.networks, name)
    return failed


def _batch(method: Method, plan: Plan, state: State) -> tuple[torch.Tensor, Batch]:
    """Outputs and batch of one training, all samples in it."""
    rows = {key: tensor[None].clone() for key, tensor in state.items()}
    labels, index = (torch.from_numpy(codes)[None] for codes in (plan.labels, plan.train))
    batch = Batch(index, labels, torch.ones_like(labels).bool(), torch.zeros(1), rows)
    return torch.zeros(1, method.networks, SAMPLES, CLASSES, requires_grad=True), batch


def _check_losses(losses: Any, networks: int, name: str) -> None:
    if not isinstance(losses, torch.Tensor):
        raise InputError(f"method {name}: loss() returned {type(losses).__name__}: return a tensor, [t, k]")
    if losses.shape != (1, networks):
        raise InputError(
            f"method {name}: loss() returned the shape {list(losses.shape)} for one training of {networks} networks: "
            f"return [t, k], here [1, {networks}]"
        )
    if not losses.requires_grad:
        raise InputError(f"method {name}: {NO_GRADIENT}")
