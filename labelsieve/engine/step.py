"""One training step of several networks, and its captured form.

On CUDA a step is captured once per batch width and replayed: a step of a small network consists of a thousand small
kernels, and launching them takes longer than running them. A step reads its place in the epoch from tensors, so that a
replay needs nothing from the host.

A step reads a batch (`_next_batch`), computes the outputs of all networks (`_forward`), asks the methods for their
losses, and updates the weights (`_update`). Another view of the same samples belongs in `_forward`, a copy of a network
in bundle.py, and a memory per sample in the state of a method.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from labelsieve.engine.bundle import NOTHING_TRAINABLE, Bundle
from labelsieve.engine.method import Batch, Method, State
from labelsieve.engine.parallel import ALONE
from labelsieve.engine.rng import Generators
from labelsieve.errors import InputError
from labelsieve.types import Store


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

    def make_room(self, steps: int, width: int) -> bool:
        """Grow the tensors if necessary. Return True if they moved, so that a step must be captured again."""
        t, had_steps, had_width = self.order.shape
        if steps <= had_steps and width <= had_width:
            return False
        shape = (t, max(steps, had_steps), max(width, had_width))
        order = torch.full(shape, -1, dtype=torch.int64, device=self.order.device)
        code = torch.zeros(shape, dtype=torch.int16, device=self.order.device)
        order[:, :had_steps, :had_width] = self.order
        code[:, :had_steps, :had_width] = self.code
        self.order, self.code = order, code
        return True


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


class Stepper:
    """Takes training steps with all networks."""

    def __init__(
        self, store: Store, labels: Labels, bundles: Sequence[Bundle], groups: Sequence[Group], clock: Clock, *,
        together: bool, capture: bool,
    ) -> None:  # fmt: skip
        self.store, self.labels = store, labels
        self.bundles, self.groups, self.clock = bundles, groups, clock
        self.together, self.capture = together, capture
        self.world = bundles[0].world if bundles else ALONE
        n = sum(bundle.n for bundle in bundles)
        device = store.device
        self.rows = torch.arange(len(clock.position), device=device)
        self.training_of = torch.empty(n, dtype=torch.int64, device=device)
        for group in groups:
            count = group.trainings.stop - group.trainings.start
            own = torch.arange(group.trainings.start, group.trainings.stop, device=device)
            self.training_of[group.networks] = own.repeat_interleave(
                (group.networks.stop - group.networks.start) // count
            )
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
            logits = self._forward(bundles, networks, batch, own_seeds)
            losses = []
            for group in groups:
                mine = logits[group.networks.start - networks.start : group.networks.stop - networks.start]
                t = group.trainings
                seen = Batch(batch.index[t], batch.given[t], batch.valid[t], self.clock.epoch[t], group.state)
                losses.append(group.method.loss(mine.view(t.stop - t.start, -1, *mine.shape[1:]), seen).reshape(-1))
            self._update(bundles, networks, batch, logits, torch.cat(losses))
        self.clock.position += 1

    def _next_batch(self, width: int) -> StepBatch:
        clock = self.clock
        place = clock.position.clamp_max(clock.order.shape[1] - 1)
        index = clock.order[self.rows, place, :width]
        code = clock.code[self.rows, place, :width].long()
        valid = index >= 0
        safe = index.clamp_min(0)
        given = self.labels.rows[self.labels.of_training[:, None], safe] * valid
        own = [self.world.mine(columns[self.training_of]) for columns in (safe, code, valid)]
        return StepBatch(index, given, valid, *own)

    def _forward(
        self, bundles: Sequence[Bundle], networks: slice, batch: StepBatch, seeds: Sequence[int] | None
    ) -> Tensor:
        """The logits [n, B, classes] of these networks for the whole batch."""
        if self.together:
            self.valid_count.copy_(batch.own_valid.sum(1))
            bundles[0].set_valid(self.valid_count)
            self._seed(seeds, rank=self.world.rank)
            logits = bundles[0].forward(self.store.batch(batch.own_index, batch.own_code))
        else:
            logits = self._forward_one_by_one(bundles, networks, batch, seeds)
        if not logits.requires_grad:
            raise InputError(f"the network {NOTHING_TRAINABLE}")
        if self.world.size > 1:  # processes draw different numbers for their shares, but the same ones for the loss
            self._seed(seeds)
        return self.world.whole(logits, batch.index.shape[1])

    def _forward_one_by_one(
        self, bundles: Sequence[Bundle], networks: slice, batch: StepBatch, seeds: Sequence[int] | None
    ) -> Tensor:
        """Each network reads only its real samples."""
        index, code, valid = (t[networks] for t in (batch.own_index, batch.own_code, batch.own_valid))
        pieces = []
        for i, bundle in enumerate(bundles):
            real = int(valid[i].sum())
            if self.world.size > 1:  # a process without samples reads one that does not count
                bundle.set_valid(torch.tensor([real], device=valid.device))
                real = max(real, 1)
            self._seed(seeds, i, rank=self.world.rank)
            x = self.store.batch(index[i : i + 1, :real], code[i : i + 1, :real])
            pieces.append(torch.nn.functional.pad(bundle.forward(x), (0, 0, 0, index.shape[1] - real)))
        return torch.cat(pieces)

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
