"""Networks that select, with a word on how long it takes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from labelsieve.execute.lockstep import EngineTrainer
from labelsieve.progress import Progress, in_words
from labelsieve.selection.settings import INCVSettings
from labelsieve.types import Job, Scores

PATIENCE = 5 * 60.0  # seconds a person waits gladly
SMALL = 32  # pixels: a quarter of the time of 64
FEWEST_EPOCHS = 5  # fewer are not advised: they teach a network too little
FEWEST_ITERATIONS = 2  # the first finds many of the right labels, the second most of the others


def rounds(settings: INCVSettings) -> int:
    """How often a selection trains at most: in each iteration, and where it measures the noise once more."""
    return settings.n_iterations + (settings.protocol == "auto")


def selection_hint(seconds: float, epochs: int, *, side: int | None, settings: INCVSettings) -> str | None:
    """What to say when an epoch takes so many seconds; nothing where the whole is done soon."""
    each, trainings = seconds * epochs, rounds(settings)
    if each * trainings < PATIENCE:
        return None
    ways = [f"--size {SMALL} (the pictures have {side} pixels now)"] if side is not None and side > SMALL else []
    ways += [f"--epochs {epochs // 3}"] if epochs // 3 >= FEWEST_EPOCHS else []
    ways += [f"--iterations {FEWEST_ITERATIONS}"] if settings.n_iterations > FEWEST_ITERATIONS else []
    return f"a training like this takes about {in_words(each)}, a selection has up to {trainings} of them; " + _quicker(
        [*ways, "another --model" if side is None else "--model edges"]
    )


def training_hint(seconds: float, epochs: int, *, side: int | None) -> str | None:
    """The same for the robust training."""
    if seconds * epochs < PATIENCE:
        return None
    ways = [f"--train-epochs {epochs // 3}"] if epochs // 3 >= FEWEST_EPOCHS else []
    ways += ["a smaller --size"] if side is not None and side > SMALL else []
    return f"this training takes about {in_words(seconds * epochs)}; " + _quicker([*ways, "another --network"])


def _quicker(ways: Sequence[str]) -> str:
    told = f"{', '.join(ways[:-1])} or {ways[-1]}" if len(ways) > 1 else ways[0]
    return f"quicker, but less exact: {told}, with another --out. Ctrl-C stops and loses nothing"


class ToldTrainer(EngineTrainer):
    """Every training is a stage of the progress; the first one also tells how to be quicker."""

    def __init__(self, *data: Any, told: Progress, side: int | None, **options: Any) -> None:
        super().__init__(*data, **options)
        self.told, self.side = told, side
        self.settings = INCVSettings()
        # On a GPU the first epoch compiles, and who has one knows what a training takes.
        self.hinted = self.store.device.type != "cpu"

    def describe_selection(self, settings: INCVSettings) -> None:
        self.settings = settings

    def train_and_score(self, jobs: Sequence[Job]) -> list[Scores]:
        total = self.method.epochs(self.schedule.epochs)
        name = f"training {len(jobs)} networks" if len(jobs) > 1 else "training a network"
        with self.told.epochs(name, total, hint=self._hint) as tell:
            self.options["progress"] = tell
            return super().train_and_score(jobs)

    def _hint(self, seconds: float) -> str | None:
        if self.hinted:
            return None
        self.hinted = True
        return selection_hint(seconds, self.schedule.epochs, side=self.side, settings=self.settings)
