"""Networks that select, with a word on how long it takes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from labelsieve.execute.lockstep import EngineTrainer
from labelsieve.progress import Progress, in_words
from labelsieve.types import Job, Scores

PATIENCE = 5 * 60.0  # seconds a person waits gladly
SMALL = 32  # pixels: a quarter of the time of 64


def selection_hint(seconds: float, epochs: int, *, side: int | None, trainings: int = 5) -> str | None:
    """What to say when an epoch takes so many seconds; nothing where the whole is done soon.

    `trainings` are INCV's at its defaults: one for each of four iterations and one for the noise estimate.
    """
    each = seconds * epochs
    if each * trainings < PATIENCE:
        return None
    smaller = [f"--size {SMALL} (the pictures have {side} pixels now)"] if side is not None and side > SMALL else []
    ways = [*smaller, f"--epochs {max(1, epochs // 3)}", "--iterations 2", "another --model"]
    return (
        f"a training like this takes about {in_words(each)}, a selection has up to {trainings} of them; quicker: "
        f"{', '.join(ways[:-1])} or {ways[-1]}, with another --out. Ctrl-C stops and loses nothing"
    )


def training_hint(seconds: float, epochs: int, *, pictures: bool) -> str | None:
    """The same for the robust training."""
    if seconds * epochs < PATIENCE:
        return None
    smaller = "a smaller --size or " if pictures else ""
    return (
        f"this training takes about {in_words(seconds * epochs)}; quicker: --train-epochs {max(1, epochs // 3)}, "
        f"{smaller}another --network, with another --out. Ctrl-C stops and loses nothing"
    )


class ToldTrainer(EngineTrainer):
    """Every training is a stage of the progress; the first one also tells how to be quicker."""

    def __init__(self, *data: Any, told: Progress, side: int | None, **options: Any) -> None:
        super().__init__(*data, **options)
        self.told, self.side = told, side
        # On a GPU the first epoch compiles, and who has one knows what a training takes.
        self.hinted = self.store.device.type != "cpu"

    def train_and_score(self, jobs: Sequence[Job]) -> list[Scores]:
        total = self.method.epochs(self.schedule.epochs)
        name = f"training {len(jobs)} networks" if len(jobs) > 1 else "training a network"
        with self.told.epochs(name, total, hint=self._hint) as tell:
            self.options["progress"] = tell
            return super().train_and_score(jobs)

    def _hint(self, seconds: float) -> str | None:
        said = None if self.hinted else selection_hint(seconds, self.schedule.epochs, side=self.side)
        self.hinted = True
        return said
