"""Train cells in lockstep and write their records: sections 5.1 and 5.3, tables 1 and 2."""

from __future__ import annotations

import functools
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from labelsieve import metrics, stopping
from labelsieve.engine import Plan, Schedule, Store, Trained, train
from labelsieve.engine.bundle import Bundle, Factory, NetworkState
from labelsieve.engine.device import choose_device
from labelsieve.engine.evaluate import mean_probabilities, mean_scores, outputs
from labelsieve.engine.method import Method
from labelsieve.errors import InputError
from labelsieve.experiments import evaluate, records
from labelsieve.experiments.cells import FINISH, THEORY_KINDS, WITHOUT_DECAY, Cell, selections_for
from labelsieve.experiments.datasets import ExperimentData, PictureArrays, WebVisionFiles
from labelsieve.experiments.paper import AUTOMATIC, CONVENTIONS, SMOKE_SETTINGS, SMOKE_WEIGHT_DECAY, WEBVISION_WARMUP
from labelsieve.files import read_text, write_text
from labelsieve.methods import METHODS, create
from labelsieve.models.choose import create_network
from labelsieve.progress import SILENT, Progress
from labelsieve.selection.finalize import judge_again
from labelsieve.types import CANDIDATE, SELECTED, IntArray, Selection

Arrays = dict[str, NDArray[Any]]
Results = dict[str, Any]
CHECKPOINT_SECONDS = 120.0  # training time that a kill can cost
RANKS = 5  # table 2 has the top-1 and the top-5 accuracy
JUDGED_ARRAYS = ("suspicion", "probability", "confidence")  # of a selection, for the judgement after the training


@dataclass
class ExperimentContext:
    """Everything the cells of a run share: the data on the device, the folder of the results, the deadline."""

    data: ExperimentData
    results: Path
    commit: str
    device: str = "auto"
    deadline: float | None = None
    progress: Progress = SILENT
    checkpoint_seconds: float = CHECKPOINT_SECONDS  # minimum time between two checkpoints; 0 stores every epoch
    source: str = field(default_factory=records.source_digest)

    def __post_init__(self) -> None:
        self.device = str(choose_device(self.device))

    @functools.cached_property
    def store(self) -> Store:
        return self.data.open_store(self.device, self.progress)

    @functools.cached_property
    def test_store(self) -> Store | None:
        return self.data.test_store(self.store)

    @functools.cached_property
    def validation_stores(self) -> dict[str, Store]:
        return self.data.validation_stores(self.device, self.progress)

    @functools.cached_property
    def data_digest(self) -> str:
        return self.data.digest()

    @property
    def work(self) -> Path:
        """Folder of unfinished cells."""
        return self.results / ".work"

    def must_stop(self) -> bool:
        """Whether the deadline has passed or the user asked to stop. Started cells are stored and continue later."""
        return stopping.requested() or (self.deadline is not None and time.monotonic() > self.deadline)


class Stopwatch:
    """Seconds spent on a lockstep, including those of earlier, stopped runs, which are stored in its folder."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "seconds"
        self.seconds = float(read_text(self.path)) if self.path.is_file() else 0.0

    def __enter__(self) -> Stopwatch:
        self.start = time.monotonic()
        return self

    def __exit__(self, *exception: object) -> None:
        self.seconds += time.monotonic() - self.start
        write_text(self.path, f"{self.seconds:.3f}")


def build_method(cell: Cell) -> Method:
    settings: dict[str, Any] = {}
    if cell.kind == "webvision" and cell.method == "incv-coteaching":
        settings["warmup"] = max(1, round(WEBVISION_WARMUP * cell.epochs))
    if cell.kind == FINISH and (recipe := METHODS[cell.method].recipe) is not None:
        settings |= recipe.settings_for(cell.network)
    if cell.scale == "smoke":
        settings |= SMOKE_SETTINGS.get(cell.method, {})
    name = "incv-coteaching" if cell.method == AUTOMATIC else cell.method
    return create(name, **(settings | dict(cell.settings)))


def build_schedule(cell: Cell) -> Schedule:
    if cell.kind == "webvision":
        return Schedule.webvision_120(cell.epochs)
    if (recipe := METHODS[cell.method].recipe if cell.kind == FINISH else None) is not None:
        return recipe.schedule(cell.epochs, cell.batch_size)
    schedule = Schedule.paper_200(cell.epochs)
    if cell.scale == "smoke" and cell.kind in THEORY_KINDS:
        schedule = replace(schedule, weight_decay=SMOKE_WEIGHT_DECAY)
    if cell.kind == WITHOUT_DECAY:  # as the released code trains ResNet-110, which also keeps Adam's state
        return replace(schedule, weight_decay=0.0, fresh_state=False)
    return schedule


def build_plan(cell: Cell, context: ExperimentContext) -> Plan:
    """Return the samples and labels that a cell trains on."""
    given = context.data.given(cell)
    everything = np.arange(len(given))
    if cell.kind in THEORY_KINDS:
        assert isinstance(context.data, PictureArrays)
        train_half, held_out = context.data.halves(cell)
        return Plan(cell.id, given, train_half, cell.seed, score=held_out)
    if cell.starts_from_selection:
        return _plan_from_selection(cell, context, given)
    # Co-teaching's paper assumes a known noise ratio; the other methods do not use it.
    known_ratio = cell.noise.ratio if cell.method == "coteaching" else None
    return Plan(cell.id, given, everything, cell.seed, noise_ratio=known_ratio)


def selection_record(cell: Cell, context: ExperimentContext) -> records.Record:
    """Return the record of the selection that a training starts from."""
    sources = [source.id for source in selections_for(cell)]
    loaded = (records.load(context.results, id) for id in sources)
    record = next((record for record in loaded if record is not None), None)
    if record is None:
        raise InputError(f"{cell.id} starts from {sources[0]}, which is not finished: run it first")
    return record


def _plan_from_selection(cell: Cell, context: ExperimentContext, given: IntArray) -> Plan:
    record = selection_record(cell, context)
    if record["hashes"]["train_labels"] != records.digest(given):
        raise InputError(f"{record['id']} used other labels than {cell.id}: remove its record and run it again")
    if cell.method == "coteaching":
        # The true ratio of WebVision is unknown, so co-teaching uses INCV's estimate from iteration 1.
        estimate = record["results"]["noise_ratio_estimate"]
        return Plan(cell.id, given, np.arange(len(given)), cell.seed, noise_ratio=estimate)
    arrays = records.load_arrays(context.results, record)
    verdict = verdict_after(arrays["verdict"], arrays["iteration"], cell.iterations)
    finish = cell.kind == FINISH
    return Plan(
        cell.id,
        given,
        np.flatnonzero(verdict == SELECTED),
        cell.seed,
        candidates=np.flatnonzero(verdict == CANDIDATE),
        noise_ratio=1 - record["results"]["expected_precision"],
        transition=np.array(record["results"]["transition_matrix"]) if finish else None,
        suspicion=arrays["suspicion"].astype(np.float64) if finish else None,
    )


def verdict_after(verdict: NDArray[Any], iteration: NDArray[Any], k: int) -> NDArray[Any]:
    """Return the verdicts after iteration k: samples decided later are still candidates."""
    return np.where((iteration > 0) & (iteration <= k), verdict, CANDIDATE)


def train_cells(cells: list[Cell], context: ExperimentContext, folder: Path) -> None:
    """Train the cells of one lockstep and write a record for each.

    Raises OutOfTime with a checkpoint in `folder`.
    """
    first, data = cells[0], context.data
    by_settings: dict[Any, Method] = {}
    methods = [by_settings.setdefault((cell.method, cell.settings), build_method(cell)) for cell in cells]
    schedule, factory = build_schedule(first), create_network(first.network, context.store.shape, data.classes)
    plans = [build_plan(cell, context) for cell in cells]
    title = f"{len(cells)} cells, first {first.id}"
    epochs = max(method.epochs(plan, first.epochs) for method, plan in zip(methods, plans, strict=True))
    with Stopwatch(folder) as watch, context.progress.epochs(title, epochs) as on_epoch:
        trained = train(
            context.store,
            factory,
            methods,
            plans,
            schedule=schedule,
            batch_size=first.batch_size,
            watch=context.test_store,
            watch_every=first.epochs if first.kind in THEORY_KINDS else 1,  # figure 3 needs the last epoch alone
            checkpoint=folder / "engine",
            checkpoint_seconds=context.checkpoint_seconds,
            stop=context.must_stop,
            progress=on_epoch,
            classes=data.classes,
        )
    pictures_seen = np.array(
        [_pictures_seen(p, m, schedule, first.batch_size) for p, m in zip(plans, methods, strict=True)]
    )
    shares = pictures_seen / pictures_seen.sum()  # a cell's share of the lockstep's time
    lockstep = {"cells": len(cells), "networks": sum(m.networks for m in methods), "seconds": watch.seconds}
    for cell, method, result, share in zip(cells, methods, trained, shares, strict=True):
        plan = result.plan
        arrays, results = _evaluate(cell, context, result, schedule)
        if cell.kind == FINISH:
            arrays |= _judge(cell, context, result, method.judges_labels(plan), results)
        record = {
            "method": {
                "name": cell.method,
                "settings": method.settings(),
                "networks": method.networks,
                "noise_ratio_told": plan.noise_ratio,
                "trained_on": len(plan.train),
                "candidates": None if plan.candidates is None else len(plan.candidates),
            },
            "schedule": schedule.settings(),
            "seconds": float(share) * watch.seconds,
            "lockstep": lockstep,
            "results": results,
        }
        save_record(cell, context, plan.labels, arrays, record)


def _pictures_seen(plan: Plan, method: Method, schedule: Schedule, batch_size: int) -> int:
    """Return about how many pictures a training reads, by its last epoch."""
    epochs = method.epochs(plan, schedule.epochs)
    last = method.batches(plan, epochs - 1, batch_size, np.random.default_rng(0))
    return method.networks * epochs * max(1, int(np.count_nonzero(last >= 0)))


def _evaluate(cell: Cell, context: ExperimentContext, result: Trained, schedule: Schedule) -> tuple[Arrays, Results]:
    data = context.data
    results: Results = {
        "train_accuracy_given": float(np.mean(result.history[-1]["accuracy_given"])),
        "epochs_trained": len(result.history),
    }
    by_epoch = {
        "loss": [float(np.mean(line["loss"])) for line in result.history],
        "accuracy_given_by_epoch": [float(np.mean(line["accuracy_given"])) for line in result.history],
    }
    if isinstance(data, WebVisionFiles):
        factory = create_network(cell.network, context.store.shape, data.classes)
        ranked = ranked_classes(factory, result.states, schedule, context.validation_stores)
        results |= evaluate.webvision_results(data, ranked) | by_epoch
        return {f"predicted_{name}": classes for name, classes in ranked.items()}, results
    assert isinstance(data, PictureArrays)
    watched = result.watched.astype(np.uint8)
    arrays: Arrays = {"predicted_test": watched[-1]}
    results["watched_sha256"] = records.digest(watched)
    if cell.kind == FINISH:
        results["predict_accuracy"] = _predict_accuracy(cell, data, context.store, result)
    if cell.kind not in THEORY_KINDS:
        shown = len(watched) if cell.kind == FINISH else schedule.epochs  # every round; not f-correction's first stage
        return arrays, results | evaluate.accuracy_results(data, watched, shown) | by_epoch
    assert result.scores is not None and result.plan.score is not None
    predicted = result.scores.predicted
    arrays["predicted_held_out"] = predicted.astype(np.uint8)
    results |= evaluate.theory_results(data, cell, result.plan.labels, result.plan.score, predicted)
    return arrays, results | evaluate.confusion_results(data, cell, watched[-1, 0])


def _predict_accuracy(cell: Cell, data: PictureArrays, training: Store, result: Trained) -> float:
    """The test accuracy of the mean prediction of all networks and views, as `labelsieve predict` computes it."""
    factory, store = create_network(cell.network, training.shape, data.classes), data.prediction_store(training)
    chunks = mean_probabilities(store, factory, result.states, np.arange(len(store)))
    return evaluate.prediction_accuracy(data, np.concatenate([p.argmax(axis=1) for _, p in chunks]))


def _judge(cell: Cell, context: ExperimentContext, result: Trained, judges_labels: bool, results: Results) -> Arrays:
    """Add the judgements of the labels before and after the training; only before if the networks do not judge them.

    Return the arrays that repeat the judgement (`result_figures.repeat_judgement`).
    """
    record, labels = selection_record(cell, context), result.plan.labels
    results["before"] = {key: record["results"][key] for key in ("auroc", "calibration_error", "noise_ratio")}
    if not judges_labels or context.data.true is None:
        return {}
    factory = create_network(cell.network, context.store.shape, context.data.classes)
    scores = mean_scores(context.store, factory, result.states, labels, np.arange(len(labels)))
    stored = records.load_arrays(context.results, record)
    suspicion, probability, confidence = (stored[name].astype(np.float64) for name in JUDGED_ARRAYS)
    first = record["results"]
    before = Selection(
        stored["verdict"], stored["iteration"], stored["predicted"].astype(np.int64), probability, confidence,
        -np.log(probability), suspicion, first["noise_ratio"], np.array(first["transition_matrix"]),
        first["expected_precision"], first["expected_recall"], tuple(first["history"]),
    )  # fmt: skip
    judged, wrong = judge_again(scores, labels, context.data.classes, before), labels != context.data.true
    results["after"] = evaluate.judgement_results(wrong, judged.suspicion) | {"noise_ratio": judged.noise_ratio}
    results["selection"] = {"id": record["id"], "arrays": record["hashes"]["arrays"]}
    # The loss, not the probability: half precision keeps both p and 1 - p of p = exp(-loss).
    return {"label_loss": scores.loss.astype(np.float16), "label_wrong": wrong}


def ranked_classes(
    factory: Factory, states: Sequence[NetworkState], schedule: Schedule, stores: dict[str, Store]
) -> dict[str, NDArray[np.uint8]]:
    """Return the most probable classes of every sample of each store, best first: [networks, samples, ranks]."""
    ranked: dict[str, list[NDArray[np.uint8]]] = {name: [] for name in stores}
    for state in states:
        bundle = Bundle(factory, [state], schedule, next(iter(stores.values())).device)
        for name, store in stores.items():
            index = torch.arange(len(store), device=store.device)[None]
            best = [logits[0].topk(min(RANKS, logits.shape[2])).indices for _, logits in outputs(bundle, store, index)]
            ranked[name].append(torch.cat(best).cpu().numpy().astype(np.uint8))
    return {name: np.stack(by_network) for name, by_network in ranked.items()}


def save_record(
    cell: Cell, context: ExperimentContext, given: IntArray, arrays: Arrays, outcome: dict[str, Any]
) -> None:
    """Write the record of a finished cell: `outcome` and everything a reader needs to repeat the cell."""
    true = context.data.true
    record: records.Record = {
        "schema": records.SCHEMA,
        "id": cell.id,
        "kind": cell.kind,
        "cell": cell.describe(),
        "noise": {
            "convention": CONVENTIONS[cell.noise.pattern],
            "pattern": cell.noise.pattern,
            "ratio": cell.noise.ratio,
            "measured_ratio": None if true is None else metrics.noise_ratio(given, true),
            "classes": context.data.classes,
        },
        "versions": records.versions(),
        "environment": records.environment(),
        "device": records.device_name(context.device),
        "commit": context.commit,
        "source": context.source,
        "hashes": {"data": context.data_digest, "train_labels": records.digest(given), **records.array_hashes(arrays)},
        **outcome,
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    context.progress.note(f"finished {cell.id}: {evaluate.headline(outcome['results'])}")
    records.save(context.results, record, arrays)
