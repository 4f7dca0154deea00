"""The one training loop, for 1..n networks in lockstep.

Trainings may differ in data, labels, seeds, length of their epochs and method; each has its own clock. What they share
is the architecture, the schedule and the step. All randomness (order, augmentation, initial weights) is a function of a
training's seed and epoch (what networks draw by themselves too: draws.py), so a checkpoint needs no random states and a
resumed run takes the very steps it would have.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from labelsieve.engine import checkpoint as checkpoints
from labelsieve.engine import evaluate, parallel
from labelsieve.engine import rng as draws
from labelsieve.engine.bundle import Bundle, Factory, NetworkState, initial_state
from labelsieve.engine.factory import settled
from labelsieve.engine.method import (
    NO_GRADIENT,
    Method,
    Plan,
    State,
    called,
    checked_batches,
    checked_state,
    unheard,
)
from labelsieve.engine.schedule import Schedule
from labelsieve.engine.step import Clock, Group, Stepper
from labelsieve.engine.store import Store
from labelsieve.engine.training import Diverged, OutOfTime, Training, below, fingerprint, standing
from labelsieve.engine.view import View
from labelsieve.errors import InputError
from labelsieve.types import IntArray, Scores

WIDTH_STEP = 16  # batch widths are rounded up to this, so that few graphs are captured
ONE_ALONE = "the network has batch norm, which learns nothing from one sample alone"
COMPACT_BELOW = 0.75  # a stack with fewer networks still running is rebuilt without the finished ones


@dataclass
class Options:
    batch_size: int = 128
    together: bool = True  # networks stacked in one module
    capture: bool = True  # steps captured in CUDA graphs
    watch_every: int = 1


class Lockstep:
    def __init__(
        self,
        store: Store,
        factory: Factory,
        work: Sequence[tuple[Method, Plan]],
        schedule: Schedule,
        options: Options,
        *,
        watch: Store | None = None,
        checkpoint: Path | None = None,
        classes: int | None = None,
    ) -> None:
        self.store, self.schedule, self.options = store, schedule, options
        self.factory = settled(factory, store.shape)
        self.watch, self.checkpoint_folder = watch, checkpoint
        self.classes = classes or int(max(int(plan.labels.max()) for _, plan in work)) + 1
        self.trainings = [Training(plan, method, method.epochs(schedule.epochs)) for method, plan in work]
        for training in self.trainings:
            with unheard():
                training.method.check(training.plan, training.epochs)
            if len(training.plan.labels) != len(store):
                raise InputError(
                    f"{training.plan.name}: {len(training.plan.labels)} labels for {len(store)} samples; give one each"
                )
        self.saved = -1
        self._score_cache: dict[int, Scores] = {}  # of rows whose epoch ended with one that was scored
        self.world = parallel.current()
        self.world.check_agreement(store, self.fingerprint())
        restored = self._restore()
        if not restored:
            self._assemble(
                list(range(len(self.trainings))),
                [
                    initial_state(self.factory, self._seed(t, k))
                    for t in self.trainings
                    for k in range(t.method.networks)
                ],
            )

    # -- putting networks together

    def _seed(self, training: Training, network: int) -> int:
        return training.plan.seed * 1000 + network

    def _assemble(self, running: list[int], states: Sequence[NetworkState]) -> None:
        """Bundles, groups and clock for the trainings that run."""
        device = self.store.device
        self.running = running
        active = [self.trainings[i] for i in running]
        self.together = self.options.together and len(states) > 0
        cut = [list(states)] if self.together else [[state] for state in states]
        self.bundles = [Bundle(self.factory, piece, self.schedule, device, self.world) for piece in cut]
        groups: list[Group] = []
        network = 0
        for t, training in enumerate(active):
            k = training.method.networks
            state = training.method.state(
                training.plan, samples=len(self.store), classes=self.classes, epochs=training.epochs
            )
            state = checked_state(state, called(training.method))
            state = {name: tensor.to(device)[None].clone() for name, tensor in state.items()}
            if self.together and groups and groups[-1].method is training.method:
                last = groups[-1]
                last.state = {name: torch.cat([last.state[name], state[name]]) for name in state}
                last.trainings = slice(last.trainings.start, t + 1)
                last.networks = slice(last.networks.start, network + k)
            else:
                groups.append(Group(training.method, slice(t, t + 1), slice(network, network + k), state))
            network += k
        self.groups = groups
        unique: dict[int, int] = {}
        rows: list[IntArray] = []
        label_row = []
        for training in active:
            key = id(training.plan.labels)
            if key not in unique:
                unique[key] = len(rows)
                rows.append(training.plan.labels)
            label_row.append(unique[key])
        labels = torch.as_tensor(np.stack(rows).astype(np.int64), device=device)
        clock = Clock(len(active), device)
        self.stepper = Stepper(
            self.store, labels, torch.tensor(label_row, device=device), self.bundles, groups, clock,
            together=self.together,
            capture=self._can_capture(),
        )  # fmt: skip
        self.networks_of: list[range] = []
        first = 0
        for training in active:
            self.networks_of.append(range(first, first + training.method.networks))
            first += training.method.networks

    def _can_capture(self) -> bool:
        """A captured step cannot ask the host for pictures, nor other processes for their share."""
        alone = self.world.size == 1 and not self.store.streams
        return self.options.capture and self.together and alone and self.store.device.type == "cuda"

    def _locate(self, network: int) -> tuple[Bundle, int]:
        return (self.bundles[0], network) if self.together else (self.bundles[network], 0)

    def _compact(self) -> None:
        """Leave the finished trainings behind: their networks only cost time."""
        keep = [row for row, i in enumerate(self.running) if not self.trainings[i].done]
        old = {name: tensor.detach().clone() for name, tensor in self._network_rows(keep).items()}
        method_rows = self._method_rows()
        states = [state for row in keep for state in self._states_of(row)]
        self.stepper.forget_graphs()
        self._assemble([self.running[row] for row in keep], states)
        self._load_network_rows(old)
        self._load_method_rows([method_rows[row] for row in keep])
        for row, i in enumerate(self.running):
            if self.trainings[i].began:
                self._lay_out(row)

    # Optimizer state, counters and method state as rows, one a network or training, whatever the bundles look like.

    def _network_rows(self, keep: Sequence[int] | None = None) -> dict[str, Tensor]:
        rows = range(len(self.running)) if keep is None else keep
        chosen = [network for row in rows for network in self.networks_of[row]]
        found: dict[str, list[Tensor]] = {}
        for network in chosen:
            bundle, i = self._locate(network)
            for name, tensor in (("first", bundle.first), ("second", bundle.second)):
                if tensor is not None:
                    found.setdefault(name, []).append(tensor[bundle.owner == i])
            found.setdefault("count", []).append(bundle.count[i])
            for name in ("loss_sum", "correct", "seen"):
                found.setdefault(name, []).append(getattr(self.stepper, name)[network])
        return {name: torch.stack(pieces) for name, pieces in found.items()}

    def _load_network_rows(self, rows: dict[str, Tensor]) -> None:
        for network in range(len(rows["count"])):
            bundle, i = self._locate(network)
            for name, tensor in (("first", bundle.first), ("second", bundle.second)):
                if tensor is not None:
                    tensor[bundle.owner == i] = rows[name][network].to(tensor.device)
            bundle.count[i] = rows["count"][network]
            for name in ("loss_sum", "correct", "seen"):
                getattr(self.stepper, name)[network] = rows[name][network]

    def _method_rows(self) -> list[State]:
        return [
            {name: tensor[row - group.trainings.start].clone() for name, tensor in group.state.items()}
            for group in self.groups
            for row in range(group.trainings.start, group.trainings.stop)
        ]

    def _load_method_rows(self, rows: Sequence[State]) -> None:
        for group in self.groups:
            for row in range(group.trainings.start, group.trainings.stop):
                for name, tensor in group.state.items():
                    tensor[row - group.trainings.start].copy_(rows[row][name])

    def _states_of(self, row: int) -> list[NetworkState]:
        networks = self.networks_of[row]
        if not self.together:
            return [self.bundles[network].states()[0] for network in networks]
        every = self.bundles[0].states()
        return [every[network] for network in networks]

    # -- epochs

    def _begin_epoch(self, row: int) -> None:
        training = self.trainings[self.running[row]]
        training.begin_draws(self.stepper.draws, draws.BEFORE)
        training.method.before_epoch(View(self, row))
        epoch = training.epoch - training.restarted_at
        if self.schedule.fresh_state and self.schedule.drops_at(epoch):
            for network in self.networks_of[row]:
                bundle, i = self._locate(network)
                bundle.forget(i)
        training.step, training.began = 0, True
        self._lay_out(row)

    def _lay_out(self, row: int) -> None:
        """The epoch's batches and learning rate onto the device, and the clock to the training's place in it."""
        training = self.trainings[self.running[row]]
        clock = self.stepper.clock
        rng = np.random.default_rng([training.plan.seed, training.epoch, 1])
        order = training.method.batches(training.plan, training.epoch, self.options.batch_size, rng)
        order = checked_batches(order, len(self.store), called(training.method))
        if self.bundles[0].has_norm and len(order) > 1 and ((order >= 0).sum(axis=1) <= 1).all():
            raise InputError(f"batch size 1: {ONE_ALONE}; choose at least 2")
        code = rng.integers(self.store.codes, size=order.shape, dtype=np.int16)
        steps, width = order.shape
        training.steps_per_epoch = steps
        training.seeds = draws.seeds(training.plan.seed, training.epoch, draws.STEPS, steps, training.method.networks)
        used = int(np.flatnonzero(np.any(order >= 0, axis=0)).max()) + 1
        training.width = -(-used // WIDTH_STEP) * WIDTH_STEP
        if clock.make_room(steps, max(width, training.width)):
            self.stepper.forget_graphs()
        clock.order[row].fill_(-1)
        clock.order[row, :steps, :width].copy_(torch.as_tensor(order), non_blocking=True)
        clock.code[row, :steps, :width].copy_(torch.as_tensor(code), non_blocking=True)
        clock.position[row] = training.step
        clock.epoch[row] = float(training.epoch)
        for network in self.networks_of[row]:
            bundle, i = self._locate(network)
            bundle.rate[i] = self._rate(training)

    def _rate(self, training: Training) -> float:
        return self.schedule.learning_rate(training.epoch - training.restarted_at)

    def _end_epochs(self, rows: Sequence[int], started: float) -> None:
        """Findings of the trainings whose epoch ended."""
        sums = [tensor.cpu().numpy() for tensor in (self.stepper.loss_sum, self.stepper.correct, self.stepper.seen)]
        seconds = time.monotonic() - started  # now that the sums are here, the steps have been taken, not only queued
        watched = self._watch(rows)
        for row in rows:
            training = self.trainings[self.running[row]]
            networks = list(self.networks_of[row])
            loss = sums[0][networks] / max(training.steps_per_epoch, 1)
            if not np.isfinite(loss).all():
                kept = " (the checkpoint before it is kept)" if self.checkpoint_folder is not None else ""
                raise Diverged(
                    f"{training.plan.name}: the loss became {loss.max()} in epoch {training.epoch + 1}; "
                    f"try a smaller learning rate{kept}"
                )
            line: dict[str, Any] = {
                "training": training.plan.name,
                "epoch": training.epoch + 1,
                "loss": [round(float(value), 6) for value in loss],
                "accuracy_given": [round(float(a), 6) for a in sums[1][networks] / np.maximum(sums[2][networks], 1)],
                "learning_rate": self._rate(training),
                "seconds": round(seconds, 3),
            }
            if row in watched:
                training.watched.append(watched[row])
            self._score(row, last=training.epoch + 1 == training.epochs, line=line)
            training.history.append(line)
            training.epoch, training.step, training.began = training.epoch + 1, 0, False
            if training.done:
                training.states = [{k: v.cpu() for k, v in state.items()} for state in self._states_of(row)]
        for row in rows:
            for network in self.networks_of[row]:
                for tensor in (self.stepper.loss_sum, self.stepper.correct, self.stepper.seen):
                    tensor[network] = 0

    def _watch(self, rows: Sequence[int]) -> dict[int, NDArray[np.uint16]]:
        """Classes of the watched samples by every network whose epoch ended."""
        if self.watch is None:
            return {}
        due = [
            row
            for row in rows
            if (t := self.trainings[self.running[row]]).epoch % self.options.watch_every == 0 or t.epoch + 1 == t.epochs
        ]
        if not due:
            return {}
        if self.together:
            self.trainings[self.running[due[0]]].begin_draws(self.stepper.draws, draws.AFTER)
            networks = [network for row in due for network in self.networks_of[row]]
            found = iter(evaluate.predicted_classes(self.bundles[0], self.watch, networks))
            return {row: np.stack([next(found) for _ in self.networks_of[row]]) for row in due}
        seen: dict[int, NDArray[np.uint16]] = {}
        for row in due:
            self.trainings[self.running[row]].begin_draws(self.stepper.draws, draws.AFTER)
            each = [evaluate.predicted_classes(self.bundles[n], self.watch, [0]) for n in self.networks_of[row]]
            seen[row] = np.concatenate(each)
        return seen

    def _score(self, row: int, *, last: bool, line: dict[str, Any]) -> None:
        training = self.trainings[self.running[row]]
        plan = training.plan
        if plan.score is None or not (plan.keep_best or last):
            return
        if len(plan.score) == 0:
            nothing = np.empty(0, dtype=np.float32)
            training.scores = Scores(nothing.astype(np.int64), nothing, nothing, nothing)
            return
        training.begin_draws(self.stepper.draws, draws.AFTER)
        found = self._score_cache.pop(row, None) or self._score_rows(row)
        agreement = float((found.predicted == plan.labels[plan.score]).mean())
        line["agreement"] = round(agreement, 6)
        if not plan.keep_best or agreement > training.best:
            training.best, training.scores = agreement, found

    def _score_rows(self, row: int) -> Scores:
        """Scores of this training's held-out samples; a stack scores all trainings whose epoch ends with it at once."""
        wanted = {row: self.trainings[self.running[row]].plan}
        if self.together:
            for other, i in enumerate(self.running):
                training = self.trainings[i]
                ending = training.began and training.step == training.steps_per_epoch
                due = training.plan.keep_best or training.epoch + 1 == training.epochs
                if ending and due and training.plan.score is not None and len(training.plan.score):
                    wanted[other] = training.plan
        bundle, _ = self._locate(self.networks_of[row][0])
        networks = [self._locate(self.networks_of[other][0])[1] for other in wanted]
        pairs = [(plan.score, plan.labels[plan.score]) for plan in wanted.values() if plan.score is not None]
        cache = dict(zip(wanted, evaluate.held_out_scores(bundle, self.store, networks, pairs), strict=True))
        result = cache.pop(row)
        self._score_cache = cache
        return result

    # -- the loop

    def run(
        self,
        *,
        stop: Callable[[], bool] | None = None,
        progress: Callable[[dict[str, Any]], None] | None = None,
        checkpoint_seconds: float = 0.0,
    ) -> list[Training]:
        began = saved = time.monotonic()
        images = 0
        while any(not training.done for training in self.trainings):
            active = [row for row, i in enumerate(self.running) if not self.trainings[i].done]
            if len(active) < len(self.running) and (
                not self.together or len(active) <= COMPACT_BELOW * len(self.running)
            ):
                self._compact()
                continue
            for row in active:
                if not self.trainings[self.running[row]].began:
                    self._begin_epoch(row)
            trainings = [self.trainings[self.running[row]] for row in active]
            steps = min(t.steps_per_epoch - t.step for t in trainings)
            width = min(max(t.width for t in trainings), self.stepper.clock.order.shape[2])
            started = time.monotonic()
            self._announce(steps, width)
            self._take_steps(trainings, steps, width)
            # nothing more until the next epoch is laid out: the store lets go of what it holds
            self._announce(0, width)
            for training in trainings:
                training.step += steps
                images += steps * min(training.width, self.options.batch_size) * training.method.networks
            ended = [row for row, t in zip(active, trainings, strict=True) if t.step == t.steps_per_epoch]
            self._end_epochs(ended, started)
            now = time.monotonic()
            if progress is not None:
                progress(standing(self.trainings, images / max(now - began, 1e-9), now - began))
            finished = all(training.done for training in self.trainings)
            out = self.world.any(stop is not None and stop())
            if self.checkpoint_folder is not None and (finished or out or now - saved >= checkpoint_seconds):
                self.save()
                saved = time.monotonic()
            if out and not finished:
                raise OutOfTime("stopped before the training ended; run the same command again to go on")
        return self.trainings

    def _take_steps(self, active: Sequence[Training], steps: int, width: int) -> None:
        seeds = [t.seeds[t.step : t.step + steps] for t in active if t.seeds is not None]
        try:
            self.stepper.run(steps, width, np.concatenate(seeds, axis=1))
        except (RuntimeError, ValueError) as error:
            if "more than 1 value per channel" in str(error):  # what torch's batch norm says
                raise InputError(f"a batch holds one sample: {ONE_ALONE}; train on more, or another network") from error
            if "does not require grad" not in str(error):
                raise
            names = ", ".join(dict.fromkeys(called(group.method) for group in self.groups))
            raise InputError(f"method {names}: {NO_GRADIENT}") from error

    def _announce(self, steps: int, width: int) -> None:
        """A store that streams is told the batches to come, so that they are read ahead."""
        if not self.store.streams:
            return
        clock, rows = self.stepper.clock, self.stepper.training_of.cpu()
        position = clock.position.cpu()[rows]
        order, code = clock.order[:, :, :width].cpu(), clock.code[:, :, :width].cpu()

        def coming(batches: Tensor) -> Iterator[NDArray[np.int64]]:
            for step in range(steps):
                place = (position + step).clamp_max(batches.shape[1] - 1)
                yield self.world.mine(batches[rows, place]).numpy().astype(np.int64)

        self.store.expect(coming(order), coming(code))

    # -- checkpoints

    def fingerprint(self) -> str:
        """Of what decides the training: where it differs, a checkpoint is another training's.

        What the samples hold and which network it is are the caller's to compare: a run does so with its own record.
        """
        shape = [self.classes, *self.store.shape, self.store.codes]
        return fingerprint(self.trainings, self.schedule.settings(), self.options.batch_size, shape)

    def save(self) -> None:
        assert self.checkpoint_folder is not None
        if self.world.rank:
            return  # all processes hold the same: the first one writes
        tensors: dict[str, Tensor] = {f"rows.{name}": tensor for name, tensor in self._network_rows().items()}
        method_rows = self._method_rows()
        for row, i in enumerate(self.running):
            for k, state in enumerate(self._states_of(row)):
                tensors |= {f"{i}.network{k}.{name}": tensor for name, tensor in state.items()}
            tensors |= {f"{i}.method.{name}": tensor for name, tensor in method_rows[row].items()}
        for i, training in enumerate(self.trainings):
            tensors |= {f"{i}.{name}": tensor for name, tensor in training.findings().items()}
        described = [training.description() for training in self.trainings]
        self.saved += 1
        meta = {"fingerprint": self.fingerprint(), "running": self.running, "trainings": described}
        checkpoints.save(self.checkpoint_folder, self.saved, tensors, meta)

    def _restore(self) -> bool:
        """Go on from the newest sound checkpoint; False where there is none."""
        if self.checkpoint_folder is None:
            return False
        found = checkpoints.load_newest(self.checkpoint_folder) if self.world.rank == 0 else None
        found = self.world.first_ones(found)
        if found is None:
            return False
        self.saved, tensors, meta = found
        if meta["fingerprint"] != self.fingerprint():
            raise InputError(
                f"{self.checkpoint_folder} holds a training with other settings, data or labels; "
                "choose another output, or remove it to start again"
            )
        for i, (training, was) in enumerate(zip(self.trainings, meta["trainings"], strict=True)):
            training.restore(was, below(tensors, f"{i}."))
        running = meta["running"]
        states = [below(tensors, f"{i}.network{k}.") for i in running for k in range(self.trainings[i].method.networks)]
        self._assemble(running, states)
        self._load_network_rows(below(tensors, "rows."))
        self._load_method_rows([below(tensors, f"{i}.method.") for i in running])
        for row, i in enumerate(running):
            if self.trainings[i].began:
                self._lay_out(row)
        return True
