"""Runs selections: hands each request for trainings to a trainer and the scores back."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import TypeVar

from labelsieve.types import Job, Scores, Trainer

Result = TypeVar("Result")
Steps = Generator[list[Job], list[Scores], Result]


def drive(steps: Steps[Result], trainer: Trainer) -> Result:
    """Run one selection to its end."""
    return drive_together([steps], trainer)[0]


def drive_together(generators: Sequence[Steps[Result]], trainer: Trainer) -> list[Result]:
    """Run many selections side by side: what they ask for at the same time is one request to the trainer."""
    results: dict[int, Result] = {}
    wanted: dict[int, list[Job]] = {}

    def advance(which: int, scores: list[Scores] | None) -> None:
        steps = generators[which]
        try:
            wanted[which] = next(steps) if scores is None else steps.send(scores)
        except StopIteration as end:
            results[which] = end.value

    for which in range(len(generators)):
        advance(which, None)
    while wanted:
        asked, wanted = wanted, {}
        answers = trainer.train_and_score([job for jobs in asked.values() for job in jobs])
        start = 0
        for which, jobs in asked.items():
            advance(which, answers[start : start + len(jobs)])
            start += len(jobs)
    return [results[which] for which in range(len(generators))]
