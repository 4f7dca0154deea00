"""One training step of several networks, and its captured form.

On CUDA a step is captured once per batch width and replayed: a step of a small network consists of a thousand small
kernels, and launching them takes longer than running them. A step reads its place in the epoch from tensors, so that a
replay needs nothing from the host.

A step reads a batch (`_next_batch`), computes the outputs of all networks and teachers (`_forward`), asks the methods
for their losses, and updates the weights (`_update`). Teachers are in bundle.py, strong views and mixtures at the end
of this file, and a memory per sample is part of the state of a method.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from labelsieve.engine.bundle import NOTHING_TRAINABLE, Bundle
from labelsieve.engine.method import NO_GRADIENT, Batch, Method, State, Views, class_name
from labelsieve.engine.parallel import ALONE
from labelsieve.engine.rng import Generators
from labelsieve.errors import InputError
from labelsieve.types import IntArray, Store


@dataclass
class Group:
    """Neighbouring trainings of one method in a stack, or a single training."""

    method: Method
    trainings: slice
    networks: slice
    state: State


class Clock:
    """The position of each training, and the batches of its epoch, on the device."""

    def __init__(self, trainings: int, device: torch.device) -> None:
        self.position = torch.zeros(trainings, dtype=torch.int64, device=device)  # step within the epoch
        self.epoch = torch.zeros(trainings, device=device)
        self.order = torch.full((trainings, 1, 1), -1, dtype=torch.int64, device=device)  # [t, steps, width]
        self.code = torch.zeros((trainings, 1, 1), dtype=torch.int16, device=device)
        # What `draw_views` returns, if a method has views.
        self.numbers = torch.zeros((trainings, 1, 1, DRAWS), device=device)
        self.partner = torch.zeros((trainings, 1, 1), dtype=torch.int32, device=device)
        self.weight = torch.ones((trainings, 1), device=device)

    def make_room(self, steps: int, width: int, *, views: bool = False) -> bool:
        """Grow the tensors if necessary. Return True if they moved, so that a step must be captured again."""
        t, had_steps, had_width = self.order.shape
        if steps <= had_steps and width <= had_width:
            return False
        shape = (t, max(steps, had_steps), max(width, had_width))
        self.order = _grown(self.order, shape, -1)
        self.code = _grown(self.code, shape)
        if views:
            self.numbers = _grown(self.numbers, (*shape, DRAWS))
            self.partner = _grown(self.partner, shape)
            self.weight = _grown(self.weight, shape[:2])
        return True


def _grown(tensor: Tensor, shape: tuple[int, ...], fill: int = 0) -> Tensor:
    """A larger tensor with the same beginning."""
    found = torch.full(shape, fill, dtype=tensor.dtype, device=tensor.device)
    found[tuple(slice(0, size) for size in tensor.shape)] = tensor
    return found


@dataclass(frozen=True)
class Labels:
    """The given labels of all samples: `rows` [different label sets, samples], and the row of each training."""

    rows: Tensor
    of_training: Tensor


@dataclass(frozen=True)
class StepBatch:
    """The samples of one step: per training, and this process' share of them per network."""

    index: Tensor  # [t, B], -1 for padding
    given: Tensor  # [t, B]
    valid: Tensor  # [t, B]
    own_index: Tensor  # [n, b]
    own_code: Tensor
    own_valid: Tensor
    numbers: Tensor | None = None  # [n, b, DRAWS], of strong views
    partner: Tensor | None = None  # [t, B], of mixtures
    weight: Tensor | None = None  # [t]


class Stepper:
    """Takes training steps with all networks."""

    def __init__(
        self, store: Store, labels: Labels, bundles: Sequence[Bundle], groups: Sequence[Group], clock: Clock,
        views: Views, *, together: bool, capture: bool,
    ) -> None:  # fmt: skip
        self.store, self.labels, self.views = store, labels, views
        self.bundles, self.groups, self.clock = bundles, groups, clock
        self.together, self.capture = together, capture
        self.world = bundles[0].world if bundles else ALONE
        n = sum(bundle.n for bundle in bundles)
        device = store.device
        self.rows = torch.arange(len(clock.position), device=device)
        self.training_of, self.place_of = torch.empty((2, n), dtype=torch.int64, device=device)
        self.hides = None  # the frequencies of hidden values
        if views.hidden and store.centre is not None:
            self.hides = hiding_frequencies(len(store.centre)).to(device)
        for group in groups:
            count = group.trainings.stop - group.trainings.start
            own = torch.arange(group.trainings.start, group.trainings.stop, device=device)
            size = (group.networks.stop - group.networks.start) // count
            self.training_of[group.networks] = own.repeat_interleave(size)
            self.place_of[group.networks] = torch.arange(size, device=device).repeat(count)
        self.loss_sum = torch.zeros(n, device=device)
        self.correct = torch.zeros(n, device=device)
        self.seen = torch.zeros(n, device=device)
        self.valid_count = torch.zeros(n, dtype=torch.int32, device=device)
        self.generators = Generators(device)
        self._graphs: dict[int, torch.cuda.CUDAGraph] = {}
        self._pool: Any = None
        self._graphs_draw = False

    def run(self, steps: int, width: int, seeds: NDArray[np.int64] | None = None) -> None:
        """Take `steps` steps with all networks, on batches of at most `width` samples.

        `seeds` [steps, networks] seed the random numbers that the networks draw; a stack uses the first of a row.
        """
        if not self.capture:
            for step in range(steps):
                self._step(width, None if seeds is None else seeds[step].tolist())
            return
        if width not in self._graphs:
            self._graphs[width] = self._captured(width)
        for step in range(steps):
            if self._graphs_draw and seeds is not None:  # a graph starts at the state of its generator
                self.generators.seed(int(seeds[step, 0]))
            self._graphs[width].replay()

    def forget_graphs(self) -> None:
        self._graphs.clear()
        self._pool = None  # the memory is freed with the last graph that used it

    def _step(self, width: int, seeds: Sequence[int] | None = None) -> None:
        batch = self._next_batch(width)
        # Networks that are not stacked train one training after the other, so that only one has activations in memory.
        parts = [self.groups] if self.together else [[group] for group in self.groups]
        for groups in parts:
            networks = slice(groups[0].networks.start, groups[-1].networks.stop)
            bundles = self.bundles if self.together else self.bundles[networks]
            own_seeds = seeds if seeds is None or self.together else seeds[networks]
            logits, teacher = self._forward(bundles, networks, batch, own_seeds)
            losses = []
            for group in groups:
                own = slice(group.networks.start - networks.start, group.networks.stop - networks.start)
                t = group.trainings
                shape = (t.stop - t.start, -1, *logits.shape[1:])
                seen = Batch(
                    batch.index[t], batch.given[t], batch.valid[t], self.clock.epoch[t], group.state,
                    teacher=None if teacher is None else teacher[own].view(shape),
                    partner=None if batch.partner is None else batch.partner[t],
                    weight=None if batch.weight is None else batch.weight[t],
                )  # fmt: skip
                loss = group.method.loss(logits[own].view(shape), seen)
                if not loss.requires_grad:
                    raise InputError(f"method {class_name(group.method)}: {NO_GRADIENT}")
                losses.append(loss.reshape(-1))
            self._update(bundles, networks, batch, logits if teacher is None else teacher, torch.cat(losses))
        self.clock.position += 1

    def _next_batch(self, width: int) -> StepBatch:
        clock = self.clock
        place = clock.position.clamp_max(clock.order.shape[1] - 1)
        index = clock.order[self.rows, place, :width]
        code = clock.code[self.rows, place, :width].long()
        valid = index >= 0
        safe = index.clamp_min(0)
        given = self.labels.rows[self.labels.of_training[:, None], safe] * valid
        own = [self.world.local_columns(columns[self.training_of]) for columns in (safe, code, valid)]
        found = StepBatch(index, given, valid, *own)
        if self.views.strong or self.hides is not None:
            numbers = clock.numbers[self.rows, place, :width][self.training_of]
            found = replace(found, numbers=self.world.local_columns(numbers))
        if self.views.mixup:
            # Padding is its own partner: batches can be wider than the drawn places, because widths are rounded up.
            own_place = torch.arange(index.shape[1], device=index.device)
            partner = torch.where(valid, clock.partner[self.rows, place, :width].long(), own_place)
            found = replace(found, partner=partner, weight=clock.weight[self.rows, place])
        return found

    def _forward(
        self, bundles: Sequence[Bundle], networks: slice, batch: StepBatch, seeds: Sequence[int] | None
    ) -> tuple[Tensor, Tensor | None]:
        """The logits [n, B, classes] of these networks, and of their teachers, for the whole batch."""
        if self.together:
            self.valid_count.copy_(batch.own_valid.sum(1))
            bundles[0].set_valid(self.valid_count)
            self._seed(seeds, rank=self.world.rank)
            found = self._outputs(bundles[0], networks, batch.own_index.shape[1], batch)
        else:  # each network reads only its real samples
            width, pieces = batch.own_index.shape[1], []
            for i, bundle in enumerate(bundles, networks.start):
                real = int(batch.own_valid[i].sum())
                if self.world.size > 1:  # a process without samples reads one that does not count
                    bundle.set_valid(torch.tensor([real], device=batch.own_valid.device))
                    real = max(real, 1)
                self._seed(seeds, i - networks.start, rank=self.world.rank)
                outputs = self._outputs(bundle, slice(i, i + 1), real, batch)
                pieces.append([torch.nn.functional.pad(logits, (0, 0, 0, width - real)) for logits in outputs])
            found = [torch.cat(logits) for logits in zip(*pieces, strict=True)]
        if not found[0].requires_grad:
            raise InputError(f"the network {NOTHING_TRAINABLE}")
        if self.world.size > 1:  # processes draw different numbers for their shares, but the same ones for the loss
            self._seed(seeds)
        whole = [self.world.gather_columns(logits, batch.index.shape[1]) for logits in found]
        return whole[0], whole[1] if len(whole) > 1 else None

    def _outputs(self, bundle: Bundle, networks: slice, width: int, batch: StepBatch) -> list[Tensor]:
        """The logits of the first `width` samples by the networks of a bundle, and by their teachers if it has some."""
        plain = x = self.store.batch(batch.own_index[networks, :width], batch.own_code[networks, :width])
        if batch.numbers is not None and self.views.strong:
            x = strong_view(x, batch.numbers[networks, :width], self.store)
        if batch.numbers is not None and self.hides is not None and self.store.centre is not None:
            numbers = hiding_numbers(batch.numbers[networks, :width], self.place_of[networks])
            x = torch.where(
                hidden_values(numbers, self.hides, self.views.hidden), self.store.centre.repeat(len(numbers)), x
            )
        if batch.partner is not None and batch.weight is not None:
            training = self.training_of[networks]
            x = mix(x, batch.partner[training, :width], batch.weight[training])
        logits = bundle.forward(x.to(plain.dtype))
        if bundle.teacher is None:
            return [logits]
        with torch.set_grad_enabled(x.is_cuda):  # the fused ResNet takes a forward pass without gradients for scoring
            return [logits, bundle.teacher.forward(plain).detach()]

    def _seed(self, seeds: Sequence[int] | None, i: int = 0, *, rank: int = 0) -> None:
        if seeds is not None:
            self.generators.seed(seeds[i] + rank)

    def _update(
        self, bundles: Sequence[Bundle], networks: slice, batch: StepBatch, logits: Tensor, losses: Tensor
    ) -> None:
        """Count losses and correct predictions, and take one optimizer step."""
        training_of = self.training_of[networks]
        with torch.no_grad():
            self.loss_sum[networks] += losses.detach()
            real = batch.valid[training_of]
            hit = (logits.detach().argmax(2) == batch.given[training_of]) & real
            self.correct[networks] += hit.sum(1)
            self.seen[networks] += real.sum(1)
        # The losses of different networks share no parameter, so the gradient of the sum is the gradient of each.
        parameters = [p for bundle in bundles for p in bundle.parameters]
        gradients = list(torch.autograd.grad(losses.sum(), parameters, allow_unused=True))
        for bundle in bundles:
            bundle.update(gradients[: len(bundle.parameters)])
            del gradients[: len(bundle.parameters)]

    def _captured(self, width: int) -> torch.cuda.CUDAGraph:
        """Capture a step. The warm-up steps before it train, so all tensors that they change are restored."""
        changing = self.tensors()
        before = {name: tensor.clone() for name, tensor in changing.items()}
        states = self.generators.states()
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                self._step(width)
        torch.cuda.current_stream().wait_stream(side)
        # A network that draws no random numbers needs no seeds.
        self._graphs_draw |= not all(map(torch.equal, states, self.generators.states()))
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool):
            self._step(width)
        self._pool = graph.pool()
        with torch.no_grad():
            for name, tensor in changing.items():
                tensor.copy_(before[name])
        return graph

    def tensors(self) -> dict[str, Tensor]:
        """All tensors that a step changes."""
        found = {
            "position": self.clock.position, "epoch": self.clock.epoch,
            "loss_sum": self.loss_sum, "correct": self.correct, "seen": self.seen,
        }  # fmt: skip
        for b, bundle in enumerate(self.bundles):
            found |= {f"bundle{b}.{name}": tensor for name, tensor in bundle.tensors().items()}
        for g, group in enumerate(self.groups):
            found |= {f"method{g}.{name}": tensor for name, tensor in group.state.items()}
        return found


# -- strong views and mixtures of a batch, computed on the device from numbers that are drawn once per epoch
#
# The numbers of an epoch are a function of the training's seed and the epoch, as the order of its samples is. So a step
# draws nothing: it can be captured, it resumes with the same views, and stacked networks see the views that each would
# see alone. A strong view starts from the shifted and mirrored picture that the store returns. It is, in this order: an
# affine map, colour (brightness, contrast, saturation), solarise, posterise, cutout. Rows of numbers have hidden values
# instead.

DRAWS = 13  # numbers per picture or row
HIDING_DRAWS = 3  # of these numbers that hide values from one network; another network of the training uses others
HIGHEST_FREQUENCY = 1000.0  # far more than 1 turn, and a float32 keeps 4 digits of the fraction
# Magnitudes are those of RandAugment (Cubuk et al. 2020), which chooses among the same operations.
# Two of the eleven operations on average, as there: with four to five (0.5) 50 epochs on people's CIFAR-10 labels end
# 1.8 points lower (docs/reproduction.md).
OFTEN, SELDOM = 0.2, 0.08  # probability of the affine and colour operations, and of solarise and posterise
ROTATION, SHEAR, SHIFT, ZOOM = math.radians(30), 0.3, 0.25, 0.2  # largest values; a shift of 2 is a whole picture
COLOUR = 0.6  # largest change of brightness, contrast and saturation
LEAST_BITS, MOST_BITS = 3, 7  # that posterise keeps
CUTOUT = 0.5  # side of the square that is covered, as a share of the picture's: 16 of 32 pixels


def draw_views(
    order: IntArray, mixup: float, rng: np.random.Generator
) -> tuple[NDArray[np.float32], NDArray[np.int32], NDArray[np.float32]]:
    """Draw the views of batches [steps, B]: numbers [steps, B, DRAWS], partners [steps, B] and weights [steps].

    The partner of a real sample is a real one. Without mixup every sample is its own partner.
    """
    numbers = rng.random((*order.shape, DRAWS), dtype=np.float32)
    if not mixup:
        places = np.tile(np.arange(order.shape[1], dtype=np.int32), (len(order), 1))
        return numbers, places, np.ones(len(order), dtype=np.float32)
    weight = rng.beta(mixup, mixup, len(order)).astype(np.float32)
    partner = np.argsort(np.where(order >= 0, rng.random(order.shape), 2.0), axis=1)  # padding stays at the end
    return numbers, partner.astype(np.int32), np.maximum(weight, 1 - weight)


def strong_view(x: Tensor, numbers: Tensor, store: Store) -> Tensor:
    """Return strong views of pictures x [B, n*channels, H, W] by numbers [n, B, DRAWS] in 0..1, as float32."""
    assert store.scale is not None and store.offset is not None
    n, b = numbers.shape[:2]
    h, w = x.shape[2:]
    apart = x.permute(0, 2, 3, 1).reshape(b, h, w, n, -1).permute(0, 3, 4, 1, 2)
    pictures = apart.reshape(b * n, -1, h, w).float()
    u = numbers.transpose(0, 1).reshape(b * n, DRAWS, 1, 1, 1).unbind(1)
    rows = torch.linspace(-1 + 1 / h, 1 - 1 / h, h, device=x.device)[:, None]
    columns = torch.linspace(-1 + 1 / w, 1 - 1 / w, w, device=x.device)
    grid = _affine_grid([_signed(value)[:, 0] for value in u[:6]], rows, columns)
    pictures = F.grid_sample(pictures, grid, align_corners=False)  # outside is 0, the mean colour
    std, mean = (
        1 / (255 * store.scale[:, None, None]),
        -store.offset[:, None, None] / (255 * store.scale[:, None, None]),
    )
    pixels = _colours(pictures * std + mean, u[6:11])
    covered = ((rows + 1 - 2 * u[11]).abs() < CUTOUT) & ((columns + 1 - 2 * u[12]).abs() < CUTOUT)
    pictures = ((pixels - mean) / std).masked_fill(covered, 0.0)
    return pictures.view(b, n, -1, h, w).permute(0, 3, 4, 1, 2).reshape(b, h, w, -1).permute(0, 3, 1, 2)


def _signed(u: Tensor) -> Tensor:
    """A magnitude from -1 to 1; 0 for most of the cases in which the operation is not applied."""
    return torch.where(u < OFTEN, 2 * u / OFTEN - 1, 0.0)


def _affine_grid(magnitudes: list[Tensor], rows: Tensor, columns: Tensor) -> Tensor:
    """The places [N, H, W, 2] that an affine map reads; the magnitudes are [N, 1, 1]."""
    turn, shear_x, shear_y, shift_x, shift_y, zoom = magnitudes
    cos, sin = torch.cos(turn * ROTATION), torch.sin(turn * ROTATION)
    scale = 1 + ZOOM * zoom
    x = columns + SHEAR * shear_x * rows
    y = rows + SHEAR * shear_y * columns
    return torch.stack(
        [(cos * x - sin * y) * scale + SHIFT * shift_x, (sin * x + cos * y) * scale + SHIFT * shift_y], 3
    )


def _colours(pixels: Tensor, u: tuple[Tensor, ...]) -> Tensor:
    """Change brightness, contrast and saturation, solarise and posterise pixels of 0..1, [N, channels, H, W]."""
    brightness, contrast, saturation = (1 + COLOUR * _signed(value) for value in u[:3])
    pixels = pixels * brightness
    mean = pixels.mean((1, 2, 3), keepdim=True)
    pixels = mean + (pixels - mean) * contrast
    grey = pixels.mean(1, keepdim=True)
    pixels = (grey + (pixels - grey) * saturation).clamp(0, 1)
    pixels = torch.where((u[3] < SELDOM) & (pixels > u[3] / SELDOM), 1 - pixels, pixels)
    levels = torch.exp2(torch.floor(LEAST_BITS + (MOST_BITS + 1 - LEAST_BITS) * (u[4] / SELDOM)))
    return torch.where(u[4] < SELDOM, torch.floor(pixels * levels) / levels, pixels)


def hiding_frequencies(columns: int) -> Tensor:
    """Fixed random frequencies [HIDING_DRAWS, columns] for `hidden_values`."""
    return torch.rand(HIDING_DRAWS, columns, generator=torch.Generator().manual_seed(0)) * HIGHEST_FREQUENCY


def hiding_numbers(numbers: Tensor, place: Tensor) -> Tensor:
    """The numbers [n, B, HIDING_DRAWS] of numbers [n, B, DRAWS] that hide values from networks at these places [n]."""
    place = place % (DRAWS // HIDING_DRAWS)  # a fifth network does not see the values that the first does not see
    column = HIDING_DRAWS * place[:, None, None] + torch.arange(HIDING_DRAWS, device=place.device)
    return numbers.gather(2, column.expand(-1, numbers.shape[1], -1))


def hidden_values(numbers: Tensor, frequencies: Tensor, share: float) -> Tensor:
    """Which values of rows [B, n*d] are hidden, by numbers [n, B, HIDING_DRAWS] in 0..1: about `share` of each row.

    The fractional part of a sum of high frequencies is as good as random, and two columns are nearly independent. Sums
    are taken term by term, so that a row has the same hidden values in any stack.
    """
    phase = numbers[:, :, :1] * frequencies[0]
    for i in range(1, HIDING_DRAWS):
        phase = phase + numbers[:, :, i : i + 1] * frequencies[i]
    return (phase.frac() < share).transpose(0, 1).flatten(1)


def mix(x: Tensor, partner: Tensor, weight: Tensor) -> Tensor:
    """Mix samples x [B, n*d, ...] with those at the places partner [n, B]; weight [n] is that of the sample itself."""
    n = len(partner)
    apart = x.view(len(x), n, -1, *x.shape[2:])
    other = apart[partner.T, torch.arange(n, device=x.device)]
    share = weight.view(1, n, *[1] * (x.ndim - 1))
    both = (share * apart + (1 - share) * other).flatten(1, 2)
    return both.contiguous(memory_format=torch.channels_last) if both.ndim == 4 else both
