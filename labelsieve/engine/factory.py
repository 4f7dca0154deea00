"""A user's factory of networks, tried once before anything is trained with it."""

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

TRIED = 2  # samples: one alone is what some networks cannot read


def check_factory(
    factory: Callable[..., Any], shape: tuple[int, ...], classes: int, *, name: str = "the network"
) -> None:
    """Raise InputError where `factory()` is no network that maps samples of this shape to one number a class, or none
    that can learn to."""
    with preserve_rng():
        network = made(factory, name)
        found = _tried(network, shape, name)
    if not isinstance(found, Tensor):
        raise InputError(f"{name} gives a {type(found).__name__} a batch: one tensor, of one row a sample, is needed")
    if found.ndim < 2 or len(found) != TRIED:
        raise InputError(
            f"{name} gives {list(found.shape)} for {TRIED} samples: one row a sample, one column a class is needed"
        )
    if (outputs := math.prod(found.shape[1:])) != classes:
        raise InputError(f"{name} gives {outputs:,} outputs a sample, the data have {classes:,} classes")
    if not any(parameter.requires_grad for parameter in network.parameters()):
        raise InputError(f"{name} {NOTHING_TRAINABLE}")


def materialize(factory: Callable[..., nn.Module], shape: tuple[int, ...]) -> Callable[..., nn.Module]:
    """A factory whose networks know all their sizes: lazy layers (nn.LazyLinear) learn them from a look at zeros."""
    return partial(_build, factory, shape)


def _build(factory: Callable[..., nn.Module], shape: tuple[int, ...], **options: Any) -> nn.Module:
    network = factory(**options)
    if any(is_lazy(tensor) for tensor in (*network.parameters(), *network.buffers())):
        _tried(network, shape, "the network")
    return network


def made(factory: Callable[..., Any], name: str) -> nn.Module:
    """What the factory makes, if it is a network. What goes wrong inside it is the user's own to see."""
    # A partial that was given too much cannot tell how it is called; what it wraps can.
    inner, given = (factory.func, factory.args) if isinstance(factory, partial) else (factory, ())
    named = factory.keywords if isinstance(factory, partial) else {}
    try:
        call: inspect.Signature | None = inspect.signature(inner)
    except (TypeError, ValueError):  # not everything that can be called does
        call = None
    try:
        if call is not None:
            call.bind(*given, **named)
    except TypeError as problem:
        told = "with the number of classes alone" if given else "without arguments"
        what = " ".join(str(problem).split())
        raise InputError(f"{name} must make a network when it is called {told}: {what}") from None
    network = factory()
    if isinstance(network, nn.Module):
        return network
    raise InputError(f"{name} must return a torch module, not a {type(network).__name__}")


def _tried(network: nn.Module, shape: tuple[int, ...], name: str) -> Any:
    """The network's answer to black pictures, or zeros; on a GPU where it cannot do without."""
    problem: Exception | None = None
    here = torch.get_default_device()  # the CPU; or where networks are laid out without memory
    for device in (here, *([torch.device("cuda")] if torch.cuda.is_available() else [])):
        try:
            with torch.no_grad():
                return network.to(device).eval()(torch.zeros(TRIED, *shape, device=device))
        except Exception as one:  # whatever a user's code may raise
            problem = problem or one
    told = " ".join(str(problem).split())[:200]
    kind = f"{type(problem).__name__}: " if not isinstance(problem, RuntimeError | ValueError) else ""
    raise InputError(f"{name} cannot read samples of shape {list(shape)}: {kind}{told}") from problem
