"""One training step of a lockstep, and its captured form.

On CUDA a step is captured once for each batch width and replayed: a small network's step is a thousand small kernels,
and launching them costs more than running them. A step reads its place in the epoch from tensors, so replays need no
word from the host.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from labelsieve.engine.bundle import NOTHING_LEARNS, Bundle
from labelsieve.engine.method import Batch, Method, State
from labelsieve.engine.parallel import ALONE
from labelsieve.engine.rng import Draws
from labelsieve.engine.store import Store
from labelsieve.errors import InputError


@dataclass
class Group:
    """Neighbouring trainings of one method in a stack; elsewhere one training."""

    method: Method
    trainings: slice
    networks: slice
    state: State


class Clock:
    """Where each training stands, on the device, and the epoch's batches it reads."""

    def __init__(self, trainings: int, device: torch.device) -> None:
        self.position = torch.zeros(trainings, dtype=torch.int64, device=device)  # step within the epoch
        self.epoch = torch.zeros(trainings, device=device)
        self.order = torch.full((trainings, 1, 1), -1, dtype=torch.int64, device=device)  # [t, steps, width]
        self.code = torch.zeros((trainings, 1, 1), dtype=torch.int16, device=device)

    def make_room(self, steps: int, width: int) -> bool:
        """Grow the order's tensors; True where they moved (a captured step must be captured again)."""
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


class Stepper:
    """Takes steps: gather, forward, loss, backward, update."""

    def __init__(
        self, store: Store, labels: Tensor, label_row: Tensor, bundles: Sequence[Bundle], groups: Sequence[Group],
        clock: Clock, *, together: bool, capture: bool,
    ) -> None:  # fmt: skip
        self.store, self.labels, self.label_row = store, labels, label_row
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
        self.draws = Draws(device)
        self._graphs: dict[int, torch.cuda.CUDAGraph] = {}
        self._pool: Any = None
        self._graphs_draw = False

    def run(self, steps: int, width: int, seeds: NDArray[np.int64] | None = None) -> None:
        """`steps` steps of all networks, on batches of at most `width` samples.

        `seeds` [steps, networks] of what the networks draw; a stack draws by the first. Without, they draw on.
        """
        if not self.capture:
            for step in range(steps):
                self._step(width, None if seeds is None else seeds[step].tolist())
            return
        if width not in self._graphs:
            self._graphs[width] = self._captured(width)
        for step in range(steps):
            if self._graphs_draw and seeds is not None:  # a graph begins where its generator stands
                self.draws.begin(int(seeds[step, 0]))
            self._graphs[width].replay()

    def forget_graphs(self) -> None:
        self._graphs.clear()
        self._pool = None  # the memory goes with the last graph that used it

    def _step(self, width: int, seeds: Sequence[int] | None = None) -> None:
        clock = self.clock
        place = clock.position.clamp_max(clock.order.shape[1] - 1)
        index = clock.order[self.rows, place, :width]
        code = clock.code[self.rows, place, :width].long()
        valid = index >= 0
        safe = index.clamp_min(0)
        given = self.labels[self.label_row[:, None], safe] * valid
        own = [self.world.mine(columns[self.training_of]) for columns in (safe, code, valid)]
        if self.together:
            self._begin_draws(seeds, rank=self.world.rank)
            logits = self._stacked(*own)
            self._begin_losses(seeds)
            self._learn(self.groups, self.bundles, logits, index, given, valid)
        else:  # one training after the other: only one's activations are alive
            for group in self.groups:
                bundles = self.bundles[group.networks]
                mine = None if seeds is None else seeds[group.networks]
                logits = self._separately(bundles, mine, *(columns[group.networks] for columns in own))
                self._begin_losses(mine)
                self._learn([group], bundles, logits, index, given, valid)
        clock.position += 1

    def _begin_draws(self, seeds: Sequence[int] | None, i: int = 0, *, rank: int = 0) -> None:
        if seeds is not None:
            self.draws.begin(seeds[i] + rank)

    def _begin_losses(self, seeds: Sequence[int] | None) -> None:
        """Of its share of a batch each process draws its own, for the loss of the whole all must draw the same."""
        if self.world.size > 1:
            self._begin_draws(seeds)

    def _stacked(self, index: Tensor, code: Tensor, valid: Tensor) -> Tensor:
        """All networks at once, padding and all."""
        bundle = self.bundles[0]
        self.valid_count.copy_(valid.sum(1))
        bundle.set_valid(self.valid_count)
        return bundle.forward(self.store.batch(index, code))

    def _separately(
        self, bundles: Sequence[Bundle], seeds: Sequence[int] | None, index: Tensor, code: Tensor, valid: Tensor
    ) -> Tensor:
        """Each network by itself, on its real samples alone."""
        pieces = []
        for i, bundle in enumerate(bundles):
            real = int(valid[i].sum())
            if self.world.size > 1:  # others may have samples where this process has none: one that does not count
                bundle.set_valid(torch.tensor([real], device=valid.device))
                real = max(real, 1)
            self._begin_draws(seeds, i, rank=self.world.rank)
            x = self.store.batch(index[i : i + 1, :real], code[i : i + 1, :real])
            logits = bundle.forward(x)
            pieces.append(torch.nn.functional.pad(logits, (0, 0, 0, index.shape[1] - real)))
        return torch.cat(pieces)

    def _learn(
        self, groups: Sequence[Group], bundles: Sequence[Bundle], logits: Tensor, index: Tensor, given: Tensor,
        valid: Tensor,
    ) -> None:  # fmt: skip
        """Losses, counts and one optimizer step of neighbouring groups, whose networks the bundles hold."""
        networks = slice(groups[0].networks.start, groups[-1].networks.stop)
        training_of = self.training_of[networks]
        if not logits.requires_grad:
            raise InputError(f"the network {NOTHING_LEARNS}")
        logits = self.world.whole(logits, index.shape[1])
        losses = torch.cat([self._group_loss(group, logits, networks.start, index, given, valid) for group in groups])
        with torch.no_grad():
            self.loss_sum[networks] += losses.detach()
            real = valid[training_of]
            hit = (logits.detach().argmax(2) == given[training_of]) & real
            self.correct[networks] += hit.sum(1)
            self.seen[networks] += real.sum(1)
        # the networks' losses share nothing, so the gradient of their sum is each one's own
        parameters = [p for bundle in bundles for p in bundle.parameters]
        gradients = list(torch.autograd.grad(losses.sum(), parameters, allow_unused=True))
        for bundle in bundles:
            bundle.update(gradients[: len(bundle.parameters)])
            del gradients[: len(bundle.parameters)]

    def _group_loss(
        self, group: Group, logits: Tensor, first: int, index: Tensor, given: Tensor, valid: Tensor
    ) -> Tensor:
        """The group's losses, a network each; `logits` begin at network `first`."""
        mine = logits[group.networks.start - first : group.networks.stop - first]
        t = group.trainings.stop - group.trainings.start
        batch = Batch(
            index[group.trainings], given[group.trainings], valid[group.trainings],
            self.clock.epoch[group.trainings], group.state,
        )  # fmt: skip
        return group.method.loss(mine.view(t, -1, *mine.shape[1:]), batch).reshape(-1)

    def _captured(self, width: int) -> torch.cuda.CUDAGraph:
        """Warm up (which trains, so what it changed is put back), then capture."""
        changing = self.tensors()
        before = {name: tensor.clone() for name, tensor in changing.items()}
        undrawn = self.draws.states()
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                self._step(width)
        torch.cuda.current_stream().wait_stream(side)
        # a network that draws nothing is replayed as ever
        self._graphs_draw |= not all(map(torch.equal, undrawn, self.draws.states()))
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool):
            self._step(width)
        self._pool = graph.pool()
        with torch.no_grad():
            for name, tensor in changing.items():
                tensor.copy_(before[name])
        return graph

    def tensors(self) -> dict[str, Tensor]:
        """Everything a step changes: put back after one was captured."""
        found = {
            "position": self.clock.position, "epoch": self.clock.epoch,
            "loss_sum": self.loss_sum, "correct": self.correct, "seen": self.seen,
        }  # fmt: skip
        for b, bundle in enumerate(self.bundles):
            found |= {f"bundle{b}.{name}": tensor for name, tensor in bundle.tensors().items()}
        for g, group in enumerate(self.groups):
            found |= {f"method{g}.{name}": tensor for name, tensor in group.state.items()}
        return found
