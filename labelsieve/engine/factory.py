"""Checks a user's factory of networks before training."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from labelsieve.engine.bundle import NOTHING_TRAINABLE
from labelsieve.engine.rng import preserve_rng
from labelsieve.errors import InputError

PROBED = 2  # samples: some networks cannot read a single one


def check_factory(
    factory: Callable[..., Any], shape: tuple[int, ...], classes: int, *, name: str = "the network"
) -> None:
    """Raise InputError unless `factory()` is a trainable network that maps such samples to one output per class."""
    with preserve_rng():
        network = build(factory, name)
        found = _probe(network, shape, name)
    if not isinstance(found, Tensor):
        raise InputError(f"{name} returns a {type(found).__name__}: it must return one tensor with one row per sample")
    if found.ndim < 2 or len(found) != PROBED:
        raise InputError(
            f"{name} returns shape {list(found.shape)} for {PROBED} samples: "
            "it must have one row per sample and one column per class"
        )
    if (outputs := math.prod(found.shape[1:])) != classes:
        raise InputError(f"{name} has {outputs:,} outputs per sample, but the data have {classes:,} classes")
    if not any(parameter.requires_grad for parameter in network.parameters()):
        raise InputError(f"{name} {NOTHING_TRAINABLE}")


def materialize(factory: Callable[..., nn.Module], shape: tuple[int, ...]) -> Callable[..., nn.Module]:
    """Return a factory whose lazy layers (nn.LazyLinear) have their sizes."""
    return partial(_build, factory, shape)


def _build(factory: Callable[..., nn.Module], shape: tuple[int, ...], **options: Any) -> nn.Module:
    network = factory(**options)
    if any(is_lazy(tensor) for tensor in (*network.parameters(), *network.buffers())):
        _probe(network, shape, "the network")
    return network


def build(factory: Callable[..., Any], name: str) -> nn.Module:
    """Call the factory, and raise InputError if it needs arguments or does not return a network."""
    # The signature of a partial with too many arguments cannot be read, that of its function can.
    inner, given = (factory.func, factory.args) if isinstance(factory, partial) else (factory, ())
    named = factory.keywords if isinstance(factory, partial) else {}
    try:
        call: inspect.Signature | None = inspect.signature(inner)
    except (TypeError, ValueError):  # some callables have no signature
        call = None
    try:
        if call is not None:
            call.bind(*given, **named)
    except TypeError as problem:
        how = "with only the number of classes" if given else "without arguments"
        what = " ".join(str(problem).split())
        raise InputError(f"{name} must return a network when it is called {how}: {what}") from None
    network = factory()
    if isinstance(network, nn.Module):
        return network
    raise InputError(f"{name} must return a torch module, not a {type(network).__name__}")


def _probe(network: nn.Module, shape: tuple[int, ...], name: str) -> Any:
    """The output of the network for zeros, computed on a GPU if the CPU cannot."""
    problem: Exception | None = None
    here = torch.get_default_device()  # the CPU, or the meta device
    for device in (here, *([torch.device("cuda")] if torch.cuda.is_available() else [])):
        try:
            with torch.no_grad():
                return network.to(device).eval()(torch.zeros(PROBED, *shape, device=device))
        except Exception as error:  # a user's network can raise anything
            problem = problem or error
    reason = " ".join(str(problem).split())[:200]
    kind = f"{type(problem).__name__}: " if not isinstance(problem, RuntimeError | ValueError) else ""
    raise InputError(f"{name} cannot read samples of shape {list(shape)}: {kind}{reason}") from problem
