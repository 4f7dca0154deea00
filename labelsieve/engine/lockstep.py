"""The training loop, for one or more networks in lockstep.

Trainings may differ in data, labels, seeds, epoch length and method. They share the architecture, the schedule and the
step. All randomness (order, augmentation, initial weights, and the numbers that networks draw: rng.py) is a function of
a training's seed and epoch. So a checkpoint needs no random states, and a resumed run takes exactly the same steps.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from labelsieve.engine import evaluate, parallel, rng
from labelsieve.engine.bundle import Bundle, Factory, NetworkState, initial_state, materialize
from labelsieve.engine.method import (
    Method,
    Plan,
    State,
    Views,
    checked_batches,
    checked_state,
    class_name,
    repeat_batches,
    silenced,
)
from labelsieve.engine.schedule import Schedule
from labelsieve.engine.step import Clock, Group, Labels, Stepper, draw_views
from labelsieve.engine.training import (
    Diverged,
    OutOfTime,
    Training,
    View,
    fingerprint,
    newest_checkpoint,
    progress_state,
    save_checkpoint,
    with_prefix,
)
from labelsieve.errors import InputError
from labelsieve.types import IntArray, Scores, Store

WIDTH_STEP = 16  # batch widths are rounded up to a multiple of this, so that few graphs are captured
ONE_SAMPLE = "the network has batch norm, which learns nothing from a single sample"
COMPACT_BELOW = 0.75  # a stack is rebuilt without its finished networks if fewer than this share still train


@dataclass(frozen=True)
class Options:
    """How networks are trained, apart from the schedule.

    Parameters
    ----------
    batch_size
        Samples per step and network.
    classes
        Number of classes. Default: the largest label plus one.
    together
        Stack the networks in one module. `train` decides if it is None: on a GPU, if the factory allows it.
    capture
        Capture steps in CUDA graphs.
    watch
        A store whose predicted classes are recorded every `watch_every` epochs.
    checkpoint
        A folder for checkpoints. A stopped training continues from there.
    checkpoint_seconds
        Least time between two checkpoints; 0 writes one after every epoch.
    stop
        Called after every epoch; training stops if it returns True.
    progress
        Called after every epoch with the state of the trainings.
    """

    batch_size: int = 128
    classes: int | None = None
    together: bool | None = True
    capture: bool = True
    watch: Store | None = None
    watch_every: int = 1
    checkpoint: Path | None = None
    checkpoint_seconds: float = 0.0
    stop: Callable[[], bool] | None = None
    progress: Callable[[dict[str, Any]], None] | None = None


class Lockstep:
    """Several trainings, with their networks and the loop that trains them.

    `running` are the places of the trainings that are not finished; a row is a place in `running`.
    """

    def __init__(
        self,
        store: Store,
        factory: Factory,
        work: Sequence[tuple[Method, Plan]],
        schedule: Schedule,
        options: Options,
    ) -> None:
        self.store, self.schedule, self.options = store, schedule, options
        self.factory = materialize(factory, store.shape)
        self.classes = options.classes or int(max(int(plan.labels.max()) for _, plan in work)) + 1
        self.trainings = [Training(plan, method, method.epochs(plan, schedule.epochs)) for method, plan in work]
        for training in self.trainings:
            with silenced():
                training.method.check(training.plan, schedule.epochs)
            if len(training.plan.labels) != len(store):
                raise InputError(
                    f"{training.plan.name}: {len(training.plan.labels)} labels for {len(store)} samples;"
                    " give one label per sample"
                )
        self.views = self.trainings[0].method.views() if self.trainings else Views()
        if any(training.method.views() != self.views for training in self.trainings):
            raise InputError("methods with different views cannot train in one lockstep; train them one by one")
        self.views.check(pictures=store.scale is not None)
        self.saved = -1
        self._score_cache: dict[int, Scores] = {}  # scores that were computed together with those of another row
        self.world = parallel.current()
        self.world.check_agreement(store, self.fingerprint())
        if self.world.size > 1 and self.views.mixup:
            raise InputError("mixup needs all samples of a batch in one process: train with one process")
        if not self._restore():
            self._assemble(
                list(range(len(self.trainings))),
                [
                    initial_state(self.factory, t.network_seed(k))
                    for t in self.trainings
                    for k in range(t.method.networks)
                ],
            )

    # -- putting networks together

    def _assemble(
        self, running: list[int], states: Sequence[NetworkState], teachers: Sequence[NetworkState] = ()
    ) -> None:
        """Build bundles, groups and clock of the running trainings. New teachers begin as their networks."""
        device = self.store.device
        self.running = running
        active = [self.trainings[i] for i in running]
        self.together = bool(self.options.together) and len(states) > 0
        cut = [list(states)] if self.together else [[state] for state in states]
        decay = self.views.teacher_decay
        self.bundles = [Bundle(self.factory, piece, self.schedule, device, self.world, decay) for piece in cut]
        for i, bundle in enumerate(self.bundles):
            if teachers and bundle.teacher is not None:
                bundle.teacher.load(teachers if self.together else teachers[i : i + 1])
        self.networks_of: list[range] = []
        self.groups: list[Group] = []
        network = 0
        for t, training in enumerate(active):
            k = training.method.networks
            state = training.method.state(
                training.plan, samples=len(self.store), classes=self.classes, epochs=training.epochs
            )
            state = checked_state(state, class_name(training.method))
            state = {name: tensor.to(device)[None].clone() for name, tensor in state.items()}
            if self.together and self.groups and self.groups[-1].method is training.method:
                last = self.groups[-1]
                last.state = {name: torch.cat([last.state[name], state[name]]) for name in state}
                last.trainings = slice(last.trainings.start, t + 1)
                last.networks = slice(last.networks.start, network + k)
            else:
                self.groups.append(Group(training.method, slice(t, t + 1), slice(network, network + k), state))
            self.networks_of.append(range(network, network + k))
            network += k
        # A captured step can neither read pictures from the host nor exchange tensors with other processes.
        capture = self.options.capture and self.together and device.type == "cuda"
        capture = capture and self.world.size == 1 and not self.store.streams
        self.stepper = Stepper(
            self.store, self._labels(active), self.bundles, self.groups, Clock(len(active), device), self.views,
            together=self.together, capture=capture,
        )  # fmt: skip

    def _labels(self, active: Sequence[Training]) -> Labels:
        """Each different label array once."""
        unique: dict[int, int] = {}
        rows: list[IntArray] = []
        for training in active:
            if unique.setdefault(id(training.plan.labels), len(rows)) == len(rows):
                rows.append(training.plan.labels)
        device = self.store.device
        of_training = [unique[id(training.plan.labels)] for training in active]
        stacked = torch.as_tensor(np.stack(rows).astype(np.int64), device=device)
        return Labels(stacked, torch.tensor(of_training, device=device))

    def locate(self, network: int) -> tuple[Bundle, int]:
        """The bundle that holds a network, and its place in it."""
        return (self.bundles[0], network) if self.together else (self.bundles[network], 0)

    def _compact(self) -> None:
        """Rebuild without the finished trainings, whose networks only cost time."""
        keep = [row for row, i in enumerate(self.running) if not self.trainings[i].done]
        old = {name: tensor.detach().clone() for name, tensor in self._network_rows(keep).items()}
        method_rows = self._method_rows()
        states, teachers = ([s for row in keep for s in self._states_of(row, teacher=it)] for it in (False, True))
        self.stepper.forget_graphs()
        self._assemble([self.running[row] for row in keep], states, teachers)
        self._continue(old, [method_rows[row] for row in keep])

    def _continue(self, network_rows: dict[str, Tensor], method_rows: Sequence[State]) -> None:
        """Load optimizer and method states, and the batches of epochs that had begun."""
        for network in range(len(network_rows["count"])):
            bundle, i = self.locate(network)
            for name, tensor in (("first", bundle.first), ("second", bundle.second)):
                if tensor is not None:
                    tensor[bundle.owner == i] = network_rows[name][network].to(tensor.device)
            bundle.count[i] = network_rows["count"][network]
            for name, tensor in self._sums().items():
                tensor[network] = network_rows[name][network]
        for row, i in enumerate(self.running):
            for name, tensor in self._state_of(row).items():
                tensor.copy_(method_rows[row][name])
            if self.trainings[i].began:
                self._lay_out(row)

    # Optimizer states, sums and method states as rows, one per network or training, whether stacked or not.

    def _sums(self) -> dict[str, Tensor]:
        return {"loss_sum": self.stepper.loss_sum, "correct": self.stepper.correct, "seen": self.stepper.seen}

    def _network_rows(self, keep: Sequence[int] | None = None) -> dict[str, Tensor]:
        rows = range(len(self.running)) if keep is None else keep
        found: dict[str, list[Tensor]] = {}
        for network in (network for row in rows for network in self.networks_of[row]):
            bundle, i = self.locate(network)
            for name, tensor in (("first", bundle.first), ("second", bundle.second)):
                if tensor is not None:
                    found.setdefault(name, []).append(tensor[bundle.owner == i])
            found.setdefault("count", []).append(bundle.count[i])
            for name, tensor in self._sums().items():
                found.setdefault(name, []).append(tensor[network])
        return {name: torch.stack(pieces) for name, pieces in found.items()}

    def _method_rows(self) -> list[State]:
        rows = range(len(self.running))
        return [{name: tensor.clone() for name, tensor in self._state_of(row).items()} for row in rows]

    def _states_of(self, row: int, *, teacher: bool) -> list[NetworkState]:
        """The states of the networks of a training, or of their teachers if it has some."""
        holders = [(bundle.teacher if teacher else None) or bundle for bundle in self.bundles]
        networks = self.networks_of[row]
        if not self.together:
            return [holders[network].states()[0] for network in networks]
        every = holders[0].states()
        return [every[network] for network in networks]

    # -- epochs

    def _state_of(self, row: int) -> State:
        """The state of the method of a training: views, so that changes are kept."""
        group = next(g for g in self.groups if g.trainings.start <= row < g.trainings.stop)
        return {name: tensor[row - group.trainings.start] for name, tensor in group.state.items()}

    def _begin_epoch(self, row: int) -> None:
        training = self.trainings[self.running[row]]
        training.seed_generators(self.stepper.generators, rng.BEFORE)
        networks = [self.locate(network) for network in self.networks_of[row]]
        training.method.before_epoch(
            View(training, networks, self.store, self.factory, self.classes, self._state_of(row))
        )
        epoch = training.epoch - training.restarted_at
        if self.schedule.fresh_state and self.schedule.drops_at(epoch):
            for network in self.networks_of[row]:
                bundle, i = self.locate(network)
                bundle.forget(i)
        training.step, training.began = 0, True
        self._lay_out(row)

    def _lay_out(self, row: int) -> None:
        """Put the batches and the learning rate of the epoch on the device, and set the clock."""
        training = self.trainings[self.running[row]]
        clock = self.stepper.clock
        generator = np.random.default_rng([training.plan.seed, training.epoch, rng.ORDER])
        plan, size = training.plan, self.options.batch_size
        order = repeat_batches(
            lambda: checked_batches(
                training.method.batches(plan, training.epoch, size, generator),
                len(self.store),
                class_name(training.method),
            ),
            -(-plan.epoch_samples // size),
        )
        if self.bundles[0].has_norm and len(order) > 1 and ((order >= 0).sum(axis=1) <= 1).all():
            if self.options.batch_size == 1:
                raise InputError(f"batch size 1: {ONE_SAMPLE}; choose at least 2")
            raise InputError(f"{training.plan.name}: every batch contains one sample: {ONE_SAMPLE}; use more samples")
        code = generator.integers(self.store.codes, size=order.shape, dtype=np.int16)
        steps, width = order.shape
        training.steps_per_epoch = steps
        training.seeds = rng.seeds(training.plan.seed, training.epoch, rng.STEPS, steps, training.method.networks)
        used = int(np.flatnonzero(np.any(order >= 0, axis=0)).max()) + 1
        training.width = -(-used // WIDTH_STEP) * WIDTH_STEP
        drawn = self.views.strong or self.views.mixup > 0 or self.views.hidden > 0
        if clock.make_room(steps, max(width, training.width), views=drawn):
            self.stepper.forget_graphs()
        clock.order[row].fill_(-1)
        clock.order[row, :steps, :width].copy_(torch.as_tensor(order), non_blocking=True)
        clock.code[row, :steps, :width].copy_(torch.as_tensor(code), non_blocking=True)
        if drawn:
            stream = np.random.default_rng([training.plan.seed, training.epoch, rng.VIEWS])
            mixup = self.views.mixup_at(training.epoch - training.restarted_at, self.schedule.epochs)
            numbers, partner, weight = (torch.as_tensor(a) for a in draw_views(order, mixup, stream))
            clock.numbers[row, :steps, :width].copy_(numbers, non_blocking=True)
            clock.partner[row, :steps, :width].copy_(partner, non_blocking=True)
            clock.weight[row, :steps].copy_(weight, non_blocking=True)
        clock.position[row] = training.step
        clock.epoch[row] = float(training.epoch)
        for network in self.networks_of[row]:
            bundle, i = self.locate(network)
            bundle.rate[i] = self._rate(training)

    def _rate(self, training: Training) -> float:
        return self.schedule.learning_rate(training.epoch - training.restarted_at)

    def _end_epochs(self, rows: Sequence[int], started: float) -> None:
        """Record the results of the trainings whose epoch ended."""
        loss_sum, correct, seen = (tensor.cpu().numpy() for tensor in self._sums().values())
        seconds = time.monotonic() - started  # reading the sums has waited for all queued steps
        watched = self._watch(rows)
        for row in rows:
            training = self.trainings[self.running[row]]
            networks = list(self.networks_of[row])
            loss = loss_sum[networks] / max(training.steps_per_epoch, 1)
            if not np.isfinite(loss).all():
                kept = " (the checkpoint before it is kept)" if self.options.checkpoint is not None else ""
                raise Diverged(
                    f"{training.plan.name}: the loss became {loss.max()} in epoch {training.epoch + 1}; "
                    f"try a smaller learning rate{kept}"
                )
            line: dict[str, Any] = {
                "training": training.plan.name,
                "epoch": training.epoch + 1,
                "loss": [round(float(value), 6) for value in loss],
                "accuracy_given": [round(float(a), 6) for a in correct[networks] / np.maximum(seen[networks], 1)],
                "learning_rate": self._rate(training),
                "seconds": round(seconds, 3),
            }
            if row in watched:
                training.watched.append(watched[row])
            self._score(row, line)
            training.history.append(line)
            training.epoch, training.step, training.began = training.epoch + 1, 0, False
            if training.done:
                states = self._states_of(row, teacher=True)
                training.states = [{k: v.cpu() for k, v in state.items()} for state in states]
        for row in rows:
            for network in self.networks_of[row]:
                for tensor in self._sums().values():
                    tensor[network] = 0

    def _watch(self, rows: Sequence[int]) -> dict[int, NDArray[np.uint16]]:
        """The predicted classes of the watched samples, by the networks whose epoch ended."""
        store, every = self.options.watch, self.options.watch_every
        trainings = {row: self.trainings[self.running[row]] for row in rows}
        due = [row for row, t in trainings.items() if t.epoch % every == 0 or t.epoch + 1 == t.epochs]
        if store is None or not due:
            return {}
        if self.together:
            trainings[due[0]].seed_generators(self.stepper.generators, rng.AFTER)
            networks = [network for row in due for network in self.networks_of[row]]
            found = iter(evaluate.predicted_classes(self.bundles[0], store, networks))
            return {row: np.stack([next(found) for _ in self.networks_of[row]]) for row in due}
        seen: dict[int, NDArray[np.uint16]] = {}
        for row in due:
            trainings[row].seed_generators(self.stepper.generators, rng.AFTER)
            each = [evaluate.predicted_classes(self.bundles[n], store, [0]) for n in self.networks_of[row]]
            seen[row] = np.concatenate(each)
        return seen

    def _score(self, row: int, line: dict[str, Any]) -> None:
        """Score the held-out samples after the last epoch, or after every epoch if the best one is wanted."""
        training = self.trainings[self.running[row]]
        plan = training.plan
        if plan.score is None or not (plan.keep_best or training.epoch + 1 == training.epochs):
            return
        if len(plan.score) == 0:
            nothing = np.empty(0, dtype=np.float32)
            training.scores = Scores(nothing.astype(np.int64), nothing, nothing, nothing)
            return
        training.seed_generators(self.stepper.generators, rng.AFTER)
        found = self._score_cache.pop(row, None) or self._score_rows(row)
        line["agreement"] = round(training.keep_scores(found), 6)

    def _score_rows(self, row: int) -> Scores:
        """Score the held-out samples of a training; a stack scores all trainings that are due at the same time."""
        wanted = {row: self.trainings[self.running[row]].plan}
        if self.together:
            for other, i in enumerate(self.running):
                training = self.trainings[i]
                ending = training.began and training.step == training.steps_per_epoch
                due = training.plan.keep_best or training.epoch + 1 == training.epochs
                if ending and due and training.plan.score is not None and len(training.plan.score):
                    wanted[other] = training.plan
        bundle, _ = self.locate(self.networks_of[row][0])
        networks = [self.locate(self.networks_of[other][0])[1] for other in wanted]
        pairs = [(plan.score, plan.labels[plan.score]) for plan in wanted.values() if plan.score is not None]
        cache = dict(zip(wanted, evaluate.held_out_scores(bundle, self.store, networks, pairs), strict=True))
        result = cache.pop(row)
        self._score_cache = cache
        return result

    # -- the loop

    def run(self) -> list[Training]:
        options = self.options
        began = saved = time.monotonic()
        images = 0
        while any(not training.done for training in self.trainings):
            active = [row for row, i in enumerate(self.running) if not self.trainings[i].done]
            few = len(active) <= COMPACT_BELOW * len(self.running)
            if len(active) < len(self.running) and (few or not self.together):
                self._compact()
                continue
            for row in active:
                if not self.trainings[self.running[row]].began:
                    self._begin_epoch(row)
            trainings = [self.trainings[self.running[row]] for row in active]
            steps = min(t.steps_per_epoch - t.step for t in trainings)
            width = min(max(t.width for t in trainings), self.stepper.clock.order.shape[2])
            seeds = [t.seeds[t.step : t.step + steps] for t in trainings if t.seeds is not None]
            started = time.monotonic()
            self._announce(steps, width)
            with self._clear_errors():
                self.stepper.run(steps, width, np.concatenate(seeds, axis=1))
            self._announce(0, width)  # nothing until the next epoch: the store can free its buffers
            for training in trainings:
                training.step += steps
                images += steps * min(training.width, options.batch_size) * training.method.networks
            ended = [row for row, t in zip(active, trainings, strict=True) if t.step == t.steps_per_epoch]
            self._end_epochs(ended, started)
            now = time.monotonic()
            if options.progress is not None:
                options.progress(progress_state(self.trainings, images / max(now - began, 1e-9), now - began))
            finished = all(training.done for training in self.trainings)
            stopped = self.world.any(options.stop is not None and options.stop())
            if options.checkpoint is not None and (finished or stopped or now - saved >= options.checkpoint_seconds):
                self.save(options.checkpoint)
                saved = time.monotonic()
            if stopped and not finished:
                raise OutOfTime("stopped before the training ended; run the same command again to continue")
        return self.trainings

    @contextmanager
    def _clear_errors(self) -> Iterator[None]:
        """Turn torch's error about batch norm into a message that says what to change."""
        try:
            yield
        except ValueError as error:
            if "more than 1 value per channel" not in str(error):  # torch has no exception class for this
                raise
            raise InputError(
                f"a batch contains one sample: {ONE_SAMPLE}; use more samples or another network"
            ) from error

    def _announce(self, steps: int, width: int) -> None:
        """Tell a streaming store the next batches, so that it can read ahead."""
        if not self.store.streams:
            return
        clock, rows = self.stepper.clock, self.stepper.training_of.cpu()
        position = clock.position.cpu()[rows]
        order, code = clock.order[:, :, :width].cpu(), clock.code[:, :, :width].cpu()

        def coming(batches: Tensor) -> Iterator[NDArray[np.int64]]:
            for step in range(steps):
                place = (position + step).clamp_max(batches.shape[1] - 1)
                yield self.world.local_columns(batches[rows, place]).numpy().astype(np.int64)

        self.store.expect(coming(order), coming(code))

    # -- checkpoints

    def fingerprint(self) -> str:
        """A hash of what decides the training. The caller compares the samples and the network."""
        shape = [self.classes, *self.store.shape, self.store.codes]
        return fingerprint(self.trainings, self.schedule.settings(), self.options.batch_size, shape)

    def save(self, folder: Path) -> None:
        if self.world.rank:
            return  # all processes have the same state: the first one writes it
        tensors: dict[str, Tensor] = {f"rows.{name}": tensor for name, tensor in self._network_rows().items()}
        method_rows = self._method_rows()
        for row, i in enumerate(self.running):
            for kind in ("network", "teacher") if self.views.teacher_decay is not None else ("network",):
                for k, state in enumerate(self._states_of(row, teacher=kind == "teacher")):
                    tensors |= {f"{i}.{kind}{k}.{name}": tensor for name, tensor in state.items()}
            tensors |= {f"{i}.method.{name}": tensor for name, tensor in method_rows[row].items()}
        for i, training in enumerate(self.trainings):
            tensors |= {f"{i}.{name}": tensor for name, tensor in training.findings().items()}
        described = [training.description() for training in self.trainings]
        self.saved += 1
        meta = {"fingerprint": self.fingerprint(), "running": self.running, "trainings": described}
        save_checkpoint(folder, self.saved, tensors, meta)

    def _restore(self) -> bool:
        """Continue from the newest readable checkpoint. Return False if there is none."""
        folder = self.options.checkpoint
        if folder is None:
            return False
        found = self.world.broadcast(newest_checkpoint(folder) if self.world.rank == 0 else None)
        if found is None:
            return False
        self.saved, tensors, meta = found
        if meta["fingerprint"] != self.fingerprint():
            raise InputError(
                f"{folder} contains a training with other settings, data or labels; "
                "choose another output, or remove it to start again"
            )
        for i, (training, was) in enumerate(zip(self.trainings, meta["trainings"], strict=True)):
            training.restore(was, with_prefix(tensors, f"{i}."))
        running = meta["running"]
        networks = [(i, k) for i in running for k in range(self.trainings[i].method.networks)]
        states, teachers = (
            [with_prefix(tensors, f"{i}.{kind}{k}.") for i, k in networks] for kind in ("network", "teacher")
        )
        self._assemble(running, states, teachers)
        self._continue(with_prefix(tensors, "rows."), [with_prefix(tensors, f"{i}.method.") for i in running])
        return True
