"""Many small tensors in few kernels: the weights of a chain of blocks, and their gradients, by shape.

A kernel of a captured step costs some microseconds however little it does, and a chain of twenty blocks has eighty
weights to be rounded, scaled and put in order each step. Switched off (switches.py), every tensor is its own group.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from labelsieve.models.kernels.switches import switched_on


def of_one_shape(tensors: Sequence[Tensor]) -> list[list[int]]:
    """The places of tensors that have shape and precision in common."""
    if not switched_on("GROUPS"):
        return [[i] for i in range(len(tensors))]
    found: dict[tuple[torch.Size, torch.dtype], list[int]] = {}
    for i, tensor in enumerate(tensors):
        found.setdefault((tensor.shape, tensor.dtype), []).append(i)
    return list(found.values())


def scaled(tensors: Sequence[Tensor], by: Sequence[float]) -> Sequence[Tensor]:
    if switched_on("GROUPS"):
        made: Sequence[Tensor] = torch._foreach_mul(list(tensors), list(by))
        return made
    return [tensor * factor for tensor, factor in zip(tensors, by, strict=True)]


def ordered(weights: Sequence[Tensor], dtype: torch.dtype) -> list[Tensor]:
    """Copies of weights [out, in, height, width] in this precision, channels last in memory."""
    groups, rooms = of_one_shape(weights), []
    pieces: list[Tensor] = []
    for same in groups:
        outputs, *rest = weights[same[0]].shape
        rooms.append(weights[0].new_empty((len(same) * outputs, *rest), dtype=dtype))
        pieces += rooms[-1].chunk(len(same))
    sources = [weights[i] for same in groups for i in same]
    if switched_on("GROUPS"):
        torch._foreach_copy_([piece.view(-1) for piece in pieces], [source.reshape(-1) for source in sources])
    else:
        for piece, source in zip(pieces, sources, strict=True):
            piece.copy_(source)
    made: dict[int, Tensor] = {}
    for same, room in zip(groups, rooms, strict=True):
        outputs, inputs, height, width = room.shape
        last = room.view(outputs, inputs, height * width).transpose(1, 2).contiguous()  # no copy of a 1 x 1 window
        last = last.view(outputs, height, width, inputs).permute(0, 3, 1, 2)
        made |= zip(same, last.chunk(len(same)), strict=True)
    return [made[i] for i in range(len(weights))]


def as_parameters(gradients: Sequence[Tensor]) -> list[Tensor]:
    """The same in single precision and in the order of parameters, as an optimizer wants them."""
    result = list(gradients)
    wrong = [i for i, g in enumerate(result) if g.dtype != torch.float32 or not g.is_contiguous()]
    for same in of_one_shape([result[i] for i in wrong]):
        places = [wrong[i] for i in same]
        whole = result[places[0]] if len(places) == 1 else torch.cat([result[i] for i in places])
        whole = whole.to(torch.float32, memory_format=torch.contiguous_format)
        for place, piece in zip(places, whole.chunk(len(places)), strict=True):
            result[place] = piece
    return result
