"""What a run of these samples would take, with the selector and the network that it would really use."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from labelsieve.selection.defaults import CLASSIFIERS, EDGES, named_classifier
from labelsieve.types import Job, LabelledData
from labelsieve.workflow.build_trainer import FAST, STORED
from labelsieve.workflow.choose_model import factory_of, from_name, resolve_network, rows, shape
from labelsieve.workflow.plan import Wanted, in_all, plan, some_of
from labelsieve.workflow.train import usual_epochs

MOST_TRIED = 2_000  # samples that a classifier is timed on


@dataclass(frozen=True)
class Asked:
    """The run, where it differs from the usual one."""

    selector: str  # resolved
    network: str = "auto"  # of the robust training
    rounds: int = 5  # of the selection: iterations, and one to measure the noise
    repeats: int = 1
    epochs: int = 50
    train_epochs: int | None = None
    batch_size: int | None = None
    method: str = "incv-coteaching"  # of the robust training
    method_settings: Mapping[str, Any] = field(default_factory=dict)  # as --set told them
    samples: int | None = None  # instead of the source's own number
    gpus: int = 1
    crop: int = 227
    seconds: float = 3.0  # to measure


def plan_run(data: LabelledData, asked: Asked, *, device: str) -> dict[str, Any]:
    """What `plan.plan` answers, and "selection_seconds": None where they were not measured."""
    from labelsieve.engine.device import choose_device
    from labelsieve.methods.defaults import auto_batch_size
    from labelsieve.methods.settings_text import made as made_method

    chosen = choose_device(device)
    n = asked.samples or len(data)
    read = in_numbers(data)
    network = resolve_network(
        asked.network, shape(read, crop=asked.crop), len(data.classes), chosen.type, option="--network"
    )
    batch_size = asked.batch_size or auto_batch_size(n)
    made: Any = named_classifier(asked.selector, n) if asked.selector in CLASSIFIERS else None
    if ":" in asked.selector:
        made, _ = from_name(asked.selector, len(data.classes))
    by_network = made is None and asked.selector not in (FAST, STORED)
    method = made_method(asked.method, asked.method_settings)
    # A method may run its schedule more than once.
    usual = usual_epochs(n, batch_size, chosen.type, pictures=data.kind == "pictures")
    train_epochs = method.epochs(asked.train_epochs or usual)
    wanted = Wanted(
        n, asked.rounds * asked.repeats if by_network else 0, asked.epochs, train_epochs, method.networks, asked.gpus,
        2 * asked.repeats,
    )  # fmt: skip
    found = plan(
        read, wanted, model=network, selector=asked.selector if by_network else None, make=factory_of, device=chosen,
        batch_size=batch_size, crop=asked.crop, seconds=asked.seconds,
    )  # fmt: skip
    if by_network:
        taken: float | None = found["seconds"]["selection, training"] + found["seconds"]["selection, scoring"]
    else:
        one = seconds_of(data, made, n, asked.selector) if made is not None else None
        one = 0.0 if asked.selector == STORED else one
        taken = None if one is None else 2 * asked.rounds * asked.repeats * one
        trained = {name: value for name, value in found["seconds"].items() if not name.startswith("selection")}
        found["seconds"] = ({} if taken is None else {"selection": taken}) | trained
        found |= in_all(found["seconds"])
    return found | {"selector": asked.selector, "selection_seconds": taken}


def in_numbers(data: LabelledData) -> LabelledData:
    """Texts as the rows of numbers that a network reads: as many as a measurement needs."""
    if data.kind != "text":
        return data
    from labelsieve.data.text import TextFeatures

    some = some_of(data, MOST_TRIED)
    return replace(some, x=TextFeatures.learn(some.x).rows(some.x), kind="table")


def seconds_of(data: LabelledData, made: Any, samples: int, name: str) -> float | None:
    """One training of a classifier on half of `samples`, asked about the others; None where nobody can tell."""
    from labelsieve.execute.sklearn_trainer import SklearnTrainer

    some = some_of(data, MOST_TRIED)
    if samples > len(some) and name not in CLASSIFIERS:
        return None  # how its time grows with the samples is its own secret
    order = np.random.default_rng(0).permutation(len(some))
    half = len(some) // 2
    job = Job("trial", some.y, np.sort(order[:half]), np.sort(order[half:]), seed=0)
    trainer = SklearnTrainer(rows(some, name), made, len(data.classes))
    began = time.perf_counter()
    trainer.train_and_score([job])
    # a kernel machine compares all samples with each other, and so do neighbours
    growth = 2 if name in ("svm", EDGES, "nearest", "neighbours") else 1
    return float((time.perf_counter() - began) * max(1.0, samples / len(some)) ** growth)


def not_measured(found: dict[str, Any]) -> str:
    """What the time in all leaves out, in words; nothing where it is whole."""
    return "" if found["selection_seconds"] is not None else f", without the selection with {found['selector']}"
