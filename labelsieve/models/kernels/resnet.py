"""The features of n stacked ResNets (He et al. 2016a, 2016b) as one function with its own gradient, with few kernels.

Activations are [n, images, height, width, channels]: the pixels of a network are contiguous. The backward pass
passes gradients behind the relu from layer to layer, with the sums that the next batch norm needs:

    forward    conv (+ sums)  ->  coefficients  ->  scale, shift, shortcut, relu
    backward   coefficients  ->  gradient of the normalisation  ->  conv (+ shortcut, relu, sums), weight gradient

In the pre-activation form too the output of a convolution is summed and normalised next (at the end of a block by the
first norm of the next one), but the shortcut is added before: in the convolution, and in the gradient of the norm.

One kernel packs all weights, one adds up all weight gradients. Scoring is the forward pass with the running statistics.
`LABELSIEVE_FUSED=0` switches it off.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import torch
import triton
from torch import Tensor, nn

from labelsieve.models.kernels import fused_device
from labelsieve.models.kernels.blocks import fused_conv_block, power_of_two, weight_block

LAST = torch.channels_last
TILE = 4096  # elements per program of the elementwise kernels
PACKED, SUMMED = 1024, 512  # elements per program of the kernels that serve all layers
SUM_COLUMNS = 8  # channels per program of the kernels that add up partial sums
TOGETHER = 8  # networks times layers per launch of the weight gradients: a few networks alone do not fill a device
FORWARD_SUMS, RELU_OF_NORM, RELU_OF_SUM = 1, 2, 3  # modes of conv_network


@dataclass(frozen=True)
class Layer:
    """A convolution with its batch normalisation: `height`, `width` of its input."""

    cin: int
    cout: int
    height: int
    width: int
    stride: int
    norm: Any  # layers.BatchNorm: running statistics, eps, momentum, valid

    @property
    def shape(self) -> tuple[int, ...]:
        return self.cin, self.cout, self.height, self.width, self.stride

    @property
    def out(self) -> tuple[int, int]:
        return self.height // self.stride, self.width // self.stride


def conv_norm_pairs(module: Any) -> list[tuple[Any, Any]]:
    """Every convolution with the batch norm after it; blocks end at even places."""
    blocks = list(module.blocks)
    convs = [module.stem] + [conv for block in blocks for conv in (block.conv1, block.conv2)]
    norms = [norm for block in blocks for norm in (block.norm1, block.norm2)]
    norms = [*norms, module.last_norm] if module.stem_norm is None else [module.stem_norm, *norms]
    return list(zip(convs, norms, strict=True))


class Plan:
    """The layers of a module for pictures of one size, and the tables that one-launch kernels read."""

    def __init__(self, module: nn.Module, height: int, width: int) -> None:
        pairs = conv_norm_pairs(module)
        self.preactivation = module.stem_norm is None
        self.n: int = module.n  # type: ignore[assignment]
        self.layers: list[Layer] = []
        self.parameters: list[Tensor] = []
        for conv, norm in pairs:
            cout, cin, stride = len(conv.weight) // self.n, conv.weight.shape[1], conv.stride
            layer = Layer(cin, cout, height, width, stride, norm)
            height, width = layer.out
            self.layers.append(layer)
            self.parameters += [conv.weight, norm.weight, norm.bias]
        sizes = [p.numel() for p in self.parameters]
        self.offsets = [sum(sizes[:i]) for i in range(len(sizes) + 1)]
        self.packed_at = [
            9 * self.n * sum(one.cin * one.cout for one in self.layers[:i]) for i in range(len(pairs) + 1)
        ]
        self.chunks = self._chunks()
        self._tables: dict[tuple[int, ...], tuple[Tensor, list[tuple[int, int, int]]]] = {}

    def _chunks(self) -> list[tuple[int, int]]:
        """For each layer the first layer of its launch of weight gradients, and the number of layers in it."""
        found: list[tuple[int, int]] = []
        for _, group in itertools.groupby(self.layers, lambda layer: layer.shape):
            count = len(list(group))
            pieces = triton.cdiv(count, max(1, TOGETHER // self.n))
            sizes = [count // pieces + (k < count % pieces) for k in range(pieces)]
            for size in sizes:
                found += [(len(found), size)] * size
        return found

    def splits(self, i: int, batch: int) -> tuple[int, int]:
        """Programs along the pixels of a weight gradient, and the blocks of pixels each takes."""
        layer = self.layers[i]
        block = weight_block(layer.cin, layer.cout, layer.height)
        cp, outs = max(4, power_of_two(layer.cin)), max(16, power_of_two(layer.cout))
        tiles = triton.cdiv(3 * cp, block.left) * triton.cdiv(3 * outs, block.right)
        steps = triton.cdiv(batch * layer.height * layer.width, block.pixels)
        each = triton.cdiv(steps, max(1, min(steps, block.programs // (self.n * tiles * self.chunks[i][1]))))
        return triton.cdiv(steps, each), each

    def table(self, parameters: tuple[Tensor, ...], batch: int) -> tuple[Tensor, list[tuple[int, int, int]]]:
        """One row per convolution for the device, and (place of the partial sums, splits, blocks each) for the host."""
        weights = parameters[::3]
        key = (batch, *(w.data_ptr() for w in weights))
        if key not in self._tables:
            rows, plan, at = [], [], 0
            for i, (layer, w) in enumerate(zip(self.layers, weights, strict=True)):
                splits, each = self.splits(i, batch)
                source = (w.data_ptr() - weights[0].data_ptr()) // w.element_size()
                rows.append(
                    [source, self.packed_at[i], layer.cin, layer.cout, w.numel(), self.offsets[3 * i], at, splits]
                )
                plan.append((at, splits, each))
                at += splits * w.numel()
            plan.append((at, 0, 0))
            self._tables[key] = torch.tensor(rows, dtype=torch.int64).to(weights[0].device), plan
        return self._tables[key]


def supported(module: nn.Module, x: Tensor) -> bool:
    """Whether `features` supports this: a training step of one process, or scoring, with a supported picture size."""
    height, width = x.shape[2:]
    norms = [norm for _, norm in conv_norm_pairs(module)]
    return bool(
        module.training == torch.is_grad_enabled()
        and not x.requires_grad
        and width == power_of_two(width)
        and width <= 128
        and width % 4 == height % 4 == 0
        and x.shape[1] // module.n <= 64  # type: ignore[operator]
        and all(conv.weight.is_contiguous() for conv, _ in conv_norm_pairs(module))  # pack_weights reads addresses
        and (not module.training or all(norm.across is None for norm in norms))
    )


_plans: WeakKeyDictionary[nn.Module, dict[tuple[int, int], Plan]] = WeakKeyDictionary()


def features(module: nn.Module, x: Tensor) -> Tensor:
    """[images, n * channels] in float32: the mean over the last activations' pixels."""
    sizes = _plans.setdefault(module, {})
    size = (x.shape[2], x.shape[3])
    if size not in sizes:
        sizes[size] = Plan(module, *size)
    plan = sizes[size]
    if not torch.is_grad_enabled():
        run = _Pass(plan, x, training=False)
        return run.pooled(run.forward(x, []))
    return _Features.apply(x, plan, *plan.parameters)  # type: ignore[no-untyped-call,no-any-return]


class _Pass:
    """One forward or backward pass: sizes, options and the launches that both need."""

    def __init__(self, plan: Plan, x: Tensor, *, training: bool = True) -> None:
        self.plan, self.n, self.batch = plan, plan.n, len(x)
        self.packed = torch.empty(plan.packed_at[-1], dtype=x.dtype, device=x.device)
        self.device, self.dtype, self.training = x.device, x.dtype, training
        self.valid = plan.layers[0].norm.valid if training else None
        self.pdl = launch_options(x.device)

    def forward(self, x: Tensor, kept: list[tuple[Tensor, Tensor, Tensor]]) -> Tensor:
        """The last activations. In training `kept` gets the input and output of each convolution and the coefficients
        of its norm; the inputs of equal layers are contiguous."""
        plan, x = self.plan, x.contiguous(memory_format=LAST)
        table, _ = plan.table(tuple(plan.parameters), len(x))
        largest = max(w.numel() for w in plan.parameters[::3])
        grid = (triton.cdiv(largest, PACKED), len(plan.layers))
        fused_device.pack_weights[grid](plan.parameters[0], self.packed, table, BLOCK=PACKED, num_warps=4, **self.pdl)
        z, room = x, x
        shortcut: Tensor | None = None
        for i in range(len(plan.layers)):
            read, ends = z, i % 2 == 0  # the stem, or a block
            y, part = self.convolve(i, read, FORWARD_SUMS, skip=shortcut if ends and plan.preactivation else None)
            if i + 1 == len(plan.layers) or not self.training:
                z = torch.empty_like(y)
            else:
                first, layers = plan.chunks[i + 1]
                room = self.several(i + 1, layers) if i + 1 == first else room
                z = room[i + 1 - first]
            coefficients = self.normalise(i, y, part, z, shortcut if ends and not plan.preactivation else None)
            if self.training:
                kept.append((read, y, coefficients))
            if ends:
                shortcut = y if plan.preactivation else z
        return z

    def pooled(self, z: Tensor) -> Tensor:
        means = torch.mean(z.flatten(2, 3), dim=2, dtype=torch.float32)  # [n, images, channels]
        return means.transpose(0, 1).reshape(self.batch, -1)

    def limit(self, other: Tensor) -> Tensor:
        return other if self.valid is None else self.valid

    def empty(self, height: int, width: int, channels: int) -> Tensor:
        return torch.empty((self.n, self.batch, height, width, channels), dtype=self.dtype, device=self.device)

    def convolve(
        self, i: int, x: Tensor, mode: int, *, gate: Tensor | None = None, before: Tensor | None = None,
        coefficients: Tensor | None = None, skip: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        """The convolution of layer i, or the gradient of its input, with the sums of the mode."""
        layer, n = self.plan.layers[i], self.n
        back = mode != FORWARD_SUMS
        cin, cout = (layer.cout, layer.cin) if back else (layer.cin, layer.cout)
        s_in, s_out = (layer.stride, 1) if back else (1, layer.stride)
        height, width = layer.height, layer.width
        y = self.empty(height // s_out, width // s_out, cout)
        block = fused_conv_block(cin, cout, height, width, n, self.batch)
        outs = max(16, power_of_two(cout))
        image_blocks, segments = triton.cdiv(self.batch, block.pixels // width), triton.cdiv(height, block.rows)
        parts = image_blocks * segments
        part = torch.empty((2, parts, n * cout), dtype=torch.float32, device=self.device)
        stem = i == 0 and not back  # pictures come as [images, height, width, n * channels]
        fused_device.conv_network[(n * (outs // block.columns), image_blocks, segments)](
            x,
            self.packed[self.plan.packed_at[i] :],
            y,
            part,
            self.limit(y),
            y if skip is None else skip,
            y if gate is None else gate,
            y if before is None else before,
            y if coefficients is None else coefficients,
            self.batch,
            parts,
            n,
            cin if stem else x[0].numel(),
            H=height,
            W=width,
            CIN=cin,
            COUT=cout,
            CP=max(4, power_of_two(cin)),
            NP=outs,
            XP=n * cin if stem else cin,
            BN=block.columns,
            M=block.pixels,
            ROWS=block.rows,
            PIECES=3 if cin >= 16 else 1,
            FLIP=back,
            S_IN=s_in,
            S_OUT=s_out,
            MODE=mode,
            SKIP=0 if skip is None else 1 + (skip.shape[-1] != cout),
            SC=1 if skip is None else skip.shape[-1],
            VALID=self.valid is not None,
            num_warps=block.warps,
            num_stages=block.stages,
            **self.pdl,
        )
        return y, part

    def tile(self, layer: Layer) -> tuple[int, tuple[int, int], int]:
        """Pixels of a network's normalised activations, grid and pixels a program."""
        pixels = self.batch * layer.out[0] * layer.out[1]
        rows = TILE // layer.cout
        return pixels, (triton.cdiv(pixels, rows), self.n), rows

    def several(self, i: int, layers: int, like: Tensor | None = None) -> Tensor:
        """An empty tensor for the inputs of `layers` layers shaped like layer i, or for their gradients (`like`)."""
        layer = self.plan.layers[i]
        shape = (self.n, self.batch, layer.height, layer.width, layer.cin) if like is None else like.shape
        return torch.empty((layers, *shape), dtype=self.dtype, device=self.device)

    def small(self, layer: Layer, parts: int) -> dict[str, Any]:
        """Arguments of the kernels that add up partial sums."""
        rows = min(1024, max(16, power_of_two(parts)))
        sizes = {"HW": layer.out[0] * layer.out[1], "C": layer.cout, "BR": rows, "BC": SUM_COLUMNS, "num_warps": 8}
        return sizes | {"VALID": self.valid is not None} | self.pdl

    def shape(self, layer: Layer, skip: Tensor | None) -> dict[str, Any]:
        """Arguments of the elementwise kernels."""
        height, width = layer.out
        channels = 1 if skip is None else skip.shape[-1]
        how = 0 if skip is None else 1 + (channels != layer.cout)
        sizes = {"H": height, "W": width, "C": layer.cout, "SC": channels, "SKIP": how}
        return sizes | {"VALID": self.valid is not None} | self.pdl

    def normalise(self, i: int, y: Tensor, part: Tensor, z: Tensor, skip: Tensor | None = None) -> Tensor:
        """Fill z; the coefficients: mean, 1 / deviation, scale, shift; outside training of the running statistics."""
        layer, n = self.plan.layers[i], self.n
        norm, channels = layer.norm, n * layer.cout
        if self.training:
            coefficients = torch.empty((4, channels), dtype=torch.float32, device=self.device)
            fused_device.forward_coefficients[(triton.cdiv(channels, SUM_COLUMNS),)](
                part, norm.weight, norm.bias, norm.running_mean, norm.running_var, coefficients, self.limit(y),
                part.shape[1], self.batch, channels, norm.momentum, norm.eps, **self.small(layer, part.shape[1]),
            )  # fmt: skip
        else:
            inverse = torch.rsqrt(norm.running_var + norm.eps)
            scale = norm.weight * inverse
            shift = norm.bias - norm.running_mean * scale
            coefficients = torch.stack([norm.running_mean, inverse, scale, shift])
        pixels, grid, rows = self.tile(layer)
        fused_device.normalise_network[grid](
            y, y if skip is None else skip, z, coefficients, self.limit(y), pixels, n, BP=rows, num_warps=8,
            **self.shape(layer, skip),
        )  # fmt: skip
        return coefficients

    def norm_gradient(
        self, i: int, g: Tensor, y: Tensor, coefficients: Tensor, part: Tensor, grads: list[Tensor], dy: Tensor,
        skip: Tensor | None = None,
    ) -> Tensor:  # fmt: skip
        """dy, the gradient of layer i's output y, from g behind the relu (and a shortcut's); gamma's, beta's too."""
        layer, n = self.plan.layers[i], self.n
        channels = n * layer.cout
        slopes = torch.empty((2, channels), dtype=torch.float32, device=self.device)
        fused_device.backward_coefficients[(triton.cdiv(channels, SUM_COLUMNS),)](
            part, coefficients, slopes, grads[3 * i + 1], grads[3 * i + 2], self.limit(y),
            part.shape[1], self.batch, channels, **self.small(layer, part.shape[1]),
        )  # fmt: skip
        pixels, grid, rows = self.tile(layer)
        fused_device.input_gradient_network[grid](
            g, y, y if skip is None else skip, dy, coefficients, slopes, self.limit(y), pixels, n, BP=rows,
            num_warps=8, **self.shape(layer, skip),
        )  # fmt: skip
        return dy

    def weight_gradient(self, i: int, x: Tensor, g: Tensor, sums: Tensor, plan: list[tuple[int, int, int]]) -> None:
        """Partial sums of layer i and those after it in its chunk, at their place in `sums`."""
        layer, n, layers = self.plan.layers[i], self.n, self.plan.chunks[i][1]
        at, splits, each = plan[i]
        block = weight_block(layer.cin, layer.cout, layer.height)
        cp, outs = max(4, power_of_two(layer.cin)), max(16, power_of_two(layer.cout))
        tiles = triton.cdiv(3 * cp, block.left) * triton.cdiv(3 * outs, block.right)
        fused_device.weight_grad_network[(n * tiles, splits, layers)](
            x, g, sums[at:], self.batch, n, layer.cin if i == 0 else x[0].numel(), x.numel(), each, H=layer.height,
            W=layer.width, CIN=layer.cin, COUT=layer.cout, CP=cp, NP=outs, XP=n * layer.cin if i == 0 else layer.cin,
            BA=block.left, BB=block.right, M=block.pixels, S=layer.stride, num_warps=block.warps,
            num_stages=block.stages, **self.pdl,
        )  # fmt: skip


def launch_options(device: torch.device) -> dict[str, Any]:
    """Programmatic dependent launch (from Hopper on): the start of a kernel overlaps the end of the one before."""
    can = device.type == "cuda" and torch.cuda.get_device_capability(device)[0] >= 9
    return {"PDL": True, "launch_pdl": True} if can else {"PDL": False}


class _Features(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, plan: Plan, *parameters: Tensor) -> Tensor:
        run = _Pass(plan, x)
        kept: list[tuple[Tensor, Tensor, Tensor]] = []
        z = run.forward(x, kept)
        ctx.run, ctx.kept, ctx.last, ctx.parameters = run, kept, z, parameters
        return run.pooled(z)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple[Tensor | None, ...]:
        run, kept, gate = ctx.run, ctx.kept, ctx.last
        plan, n = run.plan, run.n
        table, where = plan.table(ctx.parameters, run.batch)
        flat = torch.empty(plan.offsets[-1], dtype=torch.float32, device=run.device)
        grads = [
            flat[a:b].view(p.shape) for a, b, p in zip(plan.offsets, plan.offsets[1:], ctx.parameters, strict=False)
        ]
        sums = torch.empty(where[-1][0], dtype=torch.float32, device=run.device)
        last = len(plan.layers) - 1
        pixels, grid, rows = run.tile(plan.layers[last])
        g = torch.empty_like(gate)
        part = torch.empty((2, grid[0], n * plan.layers[last].cout), dtype=torch.float32, device=run.device)
        height, width = plan.layers[last].out
        fused_device.pool_gradient[grid](
            gradients[0].contiguous(), gate, kept[last][1], g, part, kept[last][2], run.limit(gate), pixels, grid[0], n,
            HW=height * width, C=plan.layers[last].cout, BP=rows, VALID=run.valid is not None, num_warps=8, **run.pdl,
        )  # fmt: skip
        shortcut: Tensor | None = None
        room = g
        for i in range(last, -1, -1):
            read, y, coefficients = kept.pop()
            first, layers = plan.chunks[i]
            if i == first + layers - 1:
                room = run.several(i, layers, y)
            ends = i % 2 == 0  # a block, or the stem
            around = shortcut if plan.preactivation and ends else None
            if ends and not plan.preactivation:
                shortcut = g
            g = run.norm_gradient(i, g, y, coefficients, part, grads, room[i - first], around)
            if ends and plan.preactivation:
                shortcut = g
            if i == first:  # the inputs of a chunk are contiguous
                run.weight_gradient(i, read, g, sums, where)
            if i == 0:
                break
            _, before, coefficients = kept[-1]
            if ends or plan.preactivation:
                g, part = run.convolve(i, g, RELU_OF_NORM, before=before, coefficients=coefficients)
            else:
                g, part = run.convolve(
                    i, g, RELU_OF_SUM, gate=read, before=before, coefficients=coefficients, skip=shortcut
                )
        largest = max(w.numel() for w in ctx.parameters[::3])
        fused_device.sum_weight_grads[(triton.cdiv(largest, SUMMED), len(plan.layers))](
            sums, flat, table, SPLITS=4, BLOCK=SUMMED, num_warps=4, **run.pdl
        )
        return None, None, *grads
