"""Convolution, batch norm and relu, several times one after the other, as one function with its own gradient.

What branches.py does inside its blocks, for the layers around them: weight gradients are made beside the way back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from labelsieve.models import kernels
from labelsieve.models.kernels import groups
from labelsieve.models.kernels import side_stream as aside
from labelsieve.models.kernels.branches import LAST, Layer, layer_of, norm_gradient
from labelsieve.models.kernels.pointwise import input_gradient
from labelsieve.models.kernels.single_network_norm import normalise, room
from labelsieve.models.kernels.switches import switched_on


class _Units(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, units: Sequence[Any], *_: Tensor) -> Tensor:
        weights = groups.ordered([unit.conv.weight for unit in units], x.dtype)
        ctx.tape = []
        for unit, weight in zip(units, weights, strict=True):
            seen, weight = (kernels.aligned(t).contiguous(memory_format=LAST) for t in (x, weight))
            made = layer_of(unit, seen, weight)
            ctx.tape.append((made, x.shape[1]))
            x = normalise(made.y, made.table, room(made.y, made.y.shape[1]))
        return x

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Any, ...]:
        g: Tensor | None = grads[0].contiguous(memory_format=LAST)
        beside = aside.Aside(grads[0].device)
        dweights: list[Tensor] = []
        norms: list[tuple[Tensor, Tensor]] = []
        while ctx.tape:
            layer: Layer
            layer, inputs = ctx.tape.pop()
            assert g is not None
            dy, (job, *others) = norm_gradient(layer, [g])
            dweights += beside.run([job])
            norms.append((others[0], others[1]))
            g = None
            if ctx.tape or ctx.needs_input_grad[0]:
                g = input_gradient(dy, layer.x, layer.weight, layer.padding, layer.stride)[:, :inputs]
            dweights[-1] = dweights[-1][:, :inputs]
        beside.join()
        pairs = zip(reversed(groups.as_parameters(dweights)), reversed(norms), strict=True)
        return g, None, *(t for dweight, norm in pairs for t in (dweight, *norm))


def supported(units: Sequence[Any]) -> bool:
    """Where gradients are wanted and statistics are this batch's and this process' own."""
    own = all(unit.norm.training and unit.norm.relu and unit.norm.across is None for unit in units)
    return kernels.fused() and switched_on("ASIDE") and torch.is_grad_enabled() and own and len(units) > 0


def units_in_turn(units: Sequence[Any], x: Tensor) -> Tensor:
    """x through all of them, which are inception_resnet_v2.Unit."""
    parameters = [t for unit in units for t in (unit.conv.weight, unit.norm.weight, unit.norm.bias)]
    result: Tensor = _Units.apply(x, list(units), *parameters)  # type: ignore[no-untyped-call]
    return result
