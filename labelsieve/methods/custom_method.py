"""Build a method from its settings, and check a user's own method before anything is trained with it.

Settings as text are NAME=VALUE, as `--set` and records have them.
"""

from __future__ import annotations

import inspect
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, get_args

import numpy as np
import torch

from labelsieve.checks import is_number
from labelsieve.engine.method import (
    NO_GRADIENT,
    Batch,
    Method,
    Needs,
    Plan,
    State,
    as_batches,
    checked_state,
    silenced,
    warn_user,
)
from labelsieve.errors import InputError

PYTHON_CONSTANTS = {"None": None, "True": True, "False": False}  # accepted in addition to JSON's null, true and false


def read_setting(text: str, *, form: str = "NAME=VALUE, e.g. estimate_epochs=50") -> tuple[str, Any]:
    """Parse `estimate_epochs=50`; an error message recommends `form`."""
    name, _, value = text.partition("=")
    name, value = name.strip(), value.strip()
    if not name or not value:
        raise InputError(f"cannot read --set {text!r}: write {form}")
    return name, read_value(value)


def read_value(text: str) -> Any:
    """Parse a JSON or Python literal; anything else is a string."""
    if text in PYTHON_CONSTANTS:
        return PYTHON_CONSTANTS[text]
    try:
        return json.loads(text, parse_constant=_finite, parse_float=_finite)
    except (ValueError, RecursionError):
        return text


def _finite(text: str) -> float:
    """Refuse NaN and infinity, which JSON records cannot store."""
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is not finite")
    return number


def read_settings(texts: Sequence[str]) -> dict[str, Any]:
    """Parse all `--set` options, sorted by name so that their order does not matter."""
    settings: dict[str, Any] = {}
    for name, value in map(read_setting, texts):
        if name in settings:
            raise InputError(f"--set {name} is given twice; give it once")
        settings[name] = value
    return dict(sorted(settings.items()))


def format_settings(settings: Mapping[str, Any]) -> str:
    """Return text such as `estimate_epochs=50 percentile=90`, which `read_settings` reads."""
    return " ".join(f"{name}={_format_value(value)}" for name, value in settings.items())


def _format_value(value: Any) -> str:
    needs_no_quotes = isinstance(value, str) and read_value(value) == value
    return str(value) if needs_no_quotes else json.dumps(value)


# Positional and keyword arguments with which the engine calls each hook.
HOOKS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "settings": ((), ()),
    "needs": ((), ()),
    "views": ((), ()),
    "check": (("plan", "epochs"), ()),
    "epochs": (("plan", "schedule_epochs"), ()),
    "batches": (("plan", "epoch", "batch_size", "rng"), ()),
    "state": (("plan",), ("samples", "classes", "epochs")),
    "before_epoch": (("view",), ()),
    "loss": (("logits", "batch"), ()),
}
SAMPLES, CLASSES, EPOCHS = 128, 10, 200  # of the trial run: the paper's batch size, classes and epochs
FAILED = object()  # not None, which a hook returns if it has no return statement


def instantiate(kind: type[Method], name: str, settings: Mapping[str, Any]) -> Method:
    """Create a method from its class. Raises InputError if it does not accept the settings."""
    known = inspect.signature(kind).parameters
    if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in known.values()):
        unknown = [setting for setting in settings if setting not in known]
        if unknown:
            raise InputError(f"method {name} has no setting {', '.join(unknown)}; {_known_settings(kind)}")
    for setting, value in settings.items():
        default = known[setting].default if setting in known else None
        if is_number(default) and isinstance(value, str | list | dict):
            # "auto" and other alternatives are strings by default, so a number as default means that one is needed.
            given = format_settings({setting: value})
            raise InputError(f"method {name}: {given} must be a number, such as {default}")
    try:
        return kind(**settings)
    except InputError:
        raise
    except (TypeError, ValueError) as error:
        given = format_settings(settings) or "its defaults"
        raise InputError(f"method {name} cannot be created with {given}: {error}; {_known_settings(kind)}") from error


def _known_settings(kind: type[Method]) -> str:
    return f"its settings: {', '.join(inspect.signature(kind).parameters) or 'none'}"


def check_class(found: Any, name: str) -> None:
    """Raise InputError unless `found` is a Method, or a class of methods, with a loss."""
    kind = found if isinstance(found, type) else type(found)
    if not issubclass(kind, Method):
        raise InputError(
            f"{name} is not a method: derive its class from labelsieve.engine.method.Method and define loss()"
        )
    if kind.loss is Method.loss:
        raise InputError(f"method {name} has no loss: define loss(self, logits, batch), which returns [t, k]")


def check_method(method: Method, name: str) -> None:
    """Check the signatures and return values of a user's method. Warn if its own code fails in a trial run."""
    for hook in HOOKS:
        _check_signature(method, name, hook)
    networks, settings, needs = method.networks, method.settings(), method.needs()
    if type(networks) is not int or networks < 1:
        raise InputError(f"method {name}: networks is {networks!r}: it must be a whole number of at least 1")
    if needs not in get_args(Needs):
        raise InputError(f"method {name}: needs() is {needs!r}: return one of {', '.join(get_args(Needs))}")
    try:
        is_json = isinstance(settings, dict) and bool(json.dumps(settings))
    except (TypeError, ValueError):
        is_json = False
    if not is_json:
        raise InputError(
            f"method {name}: settings() must return a dict of numbers, strings and lists, because it is stored in "
            "run.json"
        )
    with silenced():  # warnings about the trial run do not apply to the training
        failures = _try_hooks(method, name)
    if failures:
        warn_user(f"method {name} failed in a trial run and may fail in the training: {'; '.join(failures)}")


def _check_signature(method: Method, name: str, hook: str) -> None:
    positional, keywords = HOOKS[hook]
    function = getattr(method, hook)
    try:
        if not callable(function):
            raise TypeError(f"it is {type(function).__name__}")
        inspect.signature(function).bind(*positional, **dict.fromkeys(keywords))
    except TypeError as error:
        wanted = ", ".join(["self", *positional, *["*"][: len(keywords)], *keywords])
        raise InputError(f"method {name}: {hook}() cannot be called ({error}): write {hook}({wanted})") from error


def _try_hooks(method: Method, name: str) -> list[str]:
    """Run one epoch with one batch and check what the hooks return.

    An exception of the user's own code may have a good reason: the method may need more than the trial run has. Such
    exceptions are returned as text, and the training will raise them again.
    """
    index = np.arange(SAMPLES)
    plan = Plan("trial run", index % CLASSES, index, seed=0, candidates=index[:0], noise_ratio=0.0)
    failures: list[str] = []

    def attempt(hook: str, *positional: Any, **keywords: Any) -> Any:
        try:
            return getattr(method, hook)(*positional, **keywords)
        except (InputError, LookupError):  # it refuses this plan, or knows other samples
            return FAILED
        except Exception as error:
            failures.append(" ".join(f"{hook}() raised {type(error).__name__}: {error}".split()))
            return FAILED

    epochs = attempt("epochs", plan, EPOCHS)
    attempt("check", plan, EPOCHS)  # may prepare what the other hooks need
    state = attempt("state", plan, samples=SAMPLES, classes=CLASSES, epochs=epochs)
    batches = attempt("batches", plan, 0, SAMPLES, np.random.default_rng(0))
    if batches is not FAILED:
        as_batches(batches, name)  # the training, which has the samples, checks the indices
    if state is not FAILED:
        losses = attempt("loss", *_trial_batch(method, plan, checked_state(state, name)))
        if losses is not FAILED:
            _check_losses(losses, method.networks, name)
    return failures


def _trial_batch(method: Method, plan: Plan, state: State) -> tuple[torch.Tensor, Batch]:
    """Return outputs and a batch of one training that contains all samples."""
    rows = {key: tensor[None].clone() for key, tensor in state.items()}
    labels, index = (torch.from_numpy(codes)[None] for codes in (plan.labels, plan.train))
    logits, views = torch.zeros(1, method.networks, SAMPLES, CLASSES, requires_grad=True), method.views()
    batch = Batch(
        index, labels, torch.ones_like(labels).bool(), torch.zeros(1), rows,
        teacher=None if views.teacher_decay is None else logits.detach(),
        partner=index if views.mixup else None, weight=torch.ones(1) if views.mixup else None,
    )  # fmt: skip
    return logits, batch


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
