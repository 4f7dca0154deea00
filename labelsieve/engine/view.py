"""What a method sees of its training between epochs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

from labelsieve.engine import evaluate
from labelsieve.engine.bundle import initial_state
from labelsieve.types import IntArray

if TYPE_CHECKING:
    from labelsieve.engine.lockstep import Lockstep


class View:
    """An engine.method.TrainingView."""

    def __init__(self, lockstep: Lockstep, row: int) -> None:
        self._lockstep, self._row = lockstep, row
        self._training = lockstep.trainings[lockstep.running[row]]
        self.plan, self.epoch, self.epochs = self._training.plan, self._training.epoch, self._training.epochs
        self.classes = lockstep.classes
        group = next(g for g in lockstep.groups if g.trainings.start <= row < g.trainings.stop)
        self.state = {name: tensor[row - group.trainings.start] for name, tensor in group.state.items()}

    def predict(self, indices: IntArray, *, network: int = 0) -> Tensor:
        bundle, i = self._lockstep._locate(self._lockstep.networks_of[self._row][network])
        return evaluate.probabilities(bundle, self._lockstep.store, indices, i)

    def features(self, indices: IntArray, *, network: int = 0) -> Tensor:
        bundle, i = self._lockstep._locate(self._lockstep.networks_of[self._row][network])
        return evaluate.features(bundle, self._lockstep.store, indices, i)

    def restart(self) -> None:
        lockstep, training = self._lockstep, self._training
        training.restarted_at = training.epoch
        for k, network in enumerate(lockstep.networks_of[self._row]):
            bundle, i = lockstep._locate(network)
            bundle.load_network(i, initial_state(lockstep.factory, lockstep._seed(training, k) + 500))
