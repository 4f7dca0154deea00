"""Cells in, records out: the trainings of sections 5.1 and 5.3 (tables 1 and 2), many in lockstep."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray

from labelsieve import metrics, stopping
from labelsieve.engine import PictureStore, Plan, Schedule, Store, Trained, stage_pictures, train
from labelsieve.engine.bundle import Bundle, Factory, NetworkState
from labelsieve.engine.device import choose_device
from labelsieve.engine.evaluate import outputs
from labelsieve.engine.method import Method
from labelsieve.errors import InputError
from labelsieve.experiments import evaluate, records
from labelsieve.experiments.bench import Bench
from labelsieve.experiments.cells import THEORY, Cell, from_selection, sources_of
from labelsieve.experiments.settings import (
    CONVENTIONS,
    SMOKE_SETTINGS,
    SMOKE_WEIGHT_DECAY,
    TOLD_NOTHING,
    WITHOUT_DECAY,
    scale_of,
    webvision_settings,
)
from labelsieve.experiments.webvision_bench import WebVisionBench
from labelsieve.files import write_text
from labelsieve.methods import create
from labelsieve.models.inception_resnet_v2 import InceptionResNetV2
from labelsieve.models.resnet_cifar import ResNetCifar
from labelsieve.models.small import SmallCNN
from labelsieve.progress import Progress
from labelsieve.types import CANDIDATE, SELECTED, IntArray

Say = Callable[[str], None]
CHECKPOINT_SECONDS = 120.0


@dataclass
class Room:
    """What all cells of a run share: data on the device, the results' folder, the clock."""

    bench: Bench | WebVisionBench
    results: Path
    commit: str
    device: str = "auto"
    lockstep: int = 16
    deadline: float | None = None
    say: Say = print
    progress: Progress | None = None  # of reading pictures; trainings say where they are by `say`
    checkpoint_seconds: float = CHECKPOINT_SECONDS  # at least so long between two; 0 stores every epoch
    source: str = field(default_factory=records.source_digest)

    def __post_init__(self) -> None:
        self.device = str(choose_device(self.device))

    @functools.cached_property
    def store(self) -> Store:
        if isinstance(self.bench, WebVisionBench):
            return cast("Store", self.bench.open_store(self.device, self.progress))
        return cast("Store", self.bench.open_store(self.device))

    @property
    def capture(self) -> bool:
        """Pictures that come from the host batch by batch cannot be part of a captured step."""
        return not self.store.streams

    @functools.cached_property
    def test_store(self) -> Store | None:
        """What is watched in every epoch; WebVision's validation sets are looked at once, at the end."""
        if isinstance(self.bench, WebVisionBench):
            return None
        like = cast("PictureStore", self.store)
        return cast("Store", stage_pictures(self.bench.test_pictures, self.device, augment=False, like=like))

    @functools.cached_property
    def validation_stores(self) -> dict[str, Store]:
        """WebVision's and ILSVRC12's."""
        if not isinstance(self.bench, WebVisionBench):
            return {}
        opened = {name: self.bench.open_validation(name, self.device, self.progress) for name in self.bench.sets}
        return {name: cast("Store", store) for name, store in opened.items()}

    @property
    def work(self) -> Path:
        """Where unfinished cells wait."""
        return self.results / ".work"

    def out_of_time(self) -> bool:
        """Or somebody wants it to stop, which is the same: what is begun is stored, and goes on next time."""
        return stopping.requested() or (self.deadline is not None and time.monotonic() > self.deadline)

    def teller(self, what: str) -> Callable[[dict[str, Any]], None]:
        """Says where a training is, now and then."""
        told = time.monotonic()

        def tell(at: dict[str, Any]) -> None:
            nonlocal told
            if time.monotonic() - told >= 15:
                told = time.monotonic()
                rate, elapsed = at["images_per_second"], at["elapsed"]
                self.say(f"{what}: epoch {at['epoch']}/{at['epochs']}, {rate:,.0f} pictures/s, {elapsed:.0f} s")

        return tell


def factory_of(network: str, classes: int) -> Factory:
    """`resnet32`, `resnet110-preactivation`, `inception-resnet-v2`, or `small` for trials."""
    if network == "inception-resnet-v2":
        return functools.partial(InceptionResNetV2, classes)
    if network == "small":
        return functools.partial(SmallCNN, classes, widths=(16, 32))
    depth, _, kind = network.removeprefix("resnet").partition("-")
    if not (network.startswith("resnet") and depth.isdigit() and kind in ("", "preactivation")):
        raise InputError(f"unknown network {network!r}: write resnet32 or resnet110-preactivation")
    return functools.partial(ResNetCifar, classes, depth=int(depth), preactivation=kind == "preactivation")


def method_of(cell: Cell) -> Method:
    usual = webvision_settings(cell.method, cell.epochs) if cell.kind == "webvision" else {}
    if cell.scale == "smoke":
        usual |= SMOKE_SETTINGS.get(cell.method, {})
    name = "incv-coteaching" if cell.method == TOLD_NOTHING else cell.method
    return create(name, **(usual | dict(cell.settings)))


def schedule_of(cell: Cell) -> Schedule:
    if cell.kind == "webvision":
        return Schedule.webvision_120(cell.epochs)
    schedule = Schedule.paper_200(cell.epochs)
    if cell.scale == "smoke" and cell.kind in THEORY:
        schedule = replace(schedule, weight_decay=SMOKE_WEIGHT_DECAY)
    if cell.kind == WITHOUT_DECAY:  # as the released code trains ResNet-110: Adam's state is kept, too
        return replace(schedule, weight_decay=0.0, fresh_state=False)
    return schedule


def plan_of(cell: Cell, room: Room) -> Plan:
    """What a cell trains on."""
    given = room.bench.given(cell)
    everything = np.arange(len(given))
    if cell.kind in THEORY:
        assert isinstance(room.bench, Bench)
        train_half, held_out = room.bench.halves(cell)
        return Plan(cell.id, given, train_half, cell.seed, score=held_out)
    if from_selection(cell.kind, cell.method):
        return _plan_from_selection(cell, room, given)
    # Co-teaching's paper takes the noise ratio as known; the other methods do not look at it.
    known = cell.noise.ratio if cell.method == "coteaching" else None
    return Plan(cell.id, given, everything, cell.seed, noise_ratio=known)


def _plan_from_selection(cell: Cell, room: Room, given: IntArray) -> Plan:
    sources = [source.id for source in sources_of(cell, scale_of(cell.kind, cell.scale))]
    record = next((found for id in sources if (found := records.load(room.results, id)) is not None), None)
    if record is None:
        raise InputError(f"{cell.id} starts from {sources[0]}, which is not finished: run that first")
    if record["hashes"]["train_labels"] != records.digest(given):
        raise InputError(f"{record['id']} selected among other labels than {cell.id} trains on: remove its record")
    arrays = records.load_arrays(room.results, record)
    if cell.method == "coteaching":
        # The ratio of all labels: what INCV made of iteration 1's agreement, for want of anyone who knows better.
        estimate = record["results"]["noise_ratio_estimate"]
        return Plan(cell.id, given, np.arange(len(given)), cell.seed, noise_ratio=estimate)
    verdict = verdict_after(arrays["verdict"], arrays["iteration"], cell.iterations)
    return Plan(
        cell.id,
        given,
        np.flatnonzero(verdict == SELECTED),
        cell.seed,
        candidates=np.flatnonzero(verdict == CANDIDATE),
        noise_ratio=1 - record["results"]["expected_precision"],
    )


def verdict_after(verdict: NDArray[Any], iteration: NDArray[Any], k: int) -> NDArray[Any]:
    """The verdicts as they stood after iteration k: what fell later is still candidate."""
    return np.where((iteration > 0) & (iteration <= k), verdict, CANDIDATE)


def train_cells(cells: list[Cell], room: Room, folder: Path) -> None:
    """One lockstep; writes a record a cell. Raises OutOfTime with a checkpoint in `folder`."""
    first = cells[0]
    methods: dict[Any, Method] = {}
    chosen = [methods.setdefault((cell.method, cell.settings), method_of(cell)) for cell in cells]
    schedule, factory = schedule_of(first), factory_of(first.network, room.bench.classes)
    plans = [plan_of(cell, room) for cell in cells]
    began, spent = time.monotonic(), seconds_spent(folder)
    try:
        trained = train(
            room.store,
            factory,
            chosen,
            plans,
            schedule=schedule,
            batch_size=first.batch_size,
            watch=room.test_store,
            watch_every=first.epochs if first.kind in THEORY else 1,  # figure 3 needs the last epoch alone
            checkpoint=folder / "engine",
            checkpoint_seconds=room.checkpoint_seconds,
            stop=room.out_of_time,
            progress=room.teller(f"{len(cells)} cells from {first.id} on"),
            capture=room.capture,
            classes=room.bench.classes,
        )
    finally:
        seconds = spent + time.monotonic() - began
        write_seconds(folder, seconds)
    work = np.array([_work(plan, method, schedule) for plan, method in zip(plans, chosen, strict=True)])
    networks = sum(method.networks for method in chosen)
    for cell, method, result, share in zip(cells, chosen, trained, work / work.sum(), strict=True):
        arrays, results = _evaluated(cell, room, result, schedule)
        record = new_record(
            cell,
            room,
            given=result.plan.labels,
            arrays=arrays,
            results=results,
            schedule=schedule.settings(),
            method={
                "name": cell.method,
                "settings": method.settings(),
                "networks": method.networks,
                "noise_ratio_told": result.plan.noise_ratio,
                "trained_on": len(result.plan.train),
                "candidates": None if result.plan.candidates is None else len(result.plan.candidates),
            },
            seconds=float(share) * seconds,
            lockstep={"cells": len(cells), "networks": networks, "seconds": seconds},
        )
        room.say(f"finished {cell.id}: {headline(results)}")
        records.save(room.results, record, arrays)


def _evaluated(
    cell: Cell, room: Room, result: Trained, schedule: Schedule
) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    bench = room.bench
    results: dict[str, Any] = {
        "train_accuracy_given": float(np.mean(result.history[-1]["accuracy_given"])),
        "epochs_trained": len(result.history),
    }
    if isinstance(bench, WebVisionBench):
        factory = factory_of(cell.network, bench.classes)
        ranked = ranked_classes(factory, result.states, schedule, room.validation_stores)
        results |= evaluate.webvision_results(bench, ranked) | _by_epoch(result)
        return {f"predicted_{name}": found for name, found in ranked.items()}, results
    watched = result.watched.astype(np.uint8)
    arrays: dict[str, NDArray[Any]] = {"predicted_test": watched[-1]}
    results["watched_sha256"] = records.digest(watched)
    if cell.kind in THEORY:
        assert result.scores is not None and result.plan.score is not None
        predicted = result.scores.predicted
        arrays["predicted_held_out"] = predicted.astype(np.uint8)
        results |= evaluate.theory_results(bench, cell, result.plan.labels, result.plan.score, predicted)
        results |= evaluate.confusion_results(bench, cell, watched[-1, 0])
    else:
        results |= evaluate.accuracy_results(bench, watched, schedule.epochs) | _by_epoch(result)
    return arrays, results


def _by_epoch(result: Trained) -> dict[str, Any]:
    return {
        "loss": [float(np.mean(line["loss"])) for line in result.history],
        "accuracy_given_by_epoch": [float(np.mean(line["accuracy_given"])) for line in result.history],
    }


def ranked_classes(
    factory: Factory, states: list[NetworkState], schedule: Schedule, stores: dict[str, Store], *, ranks: int = 5
) -> dict[str, NDArray[np.uint8]]:
    """The likeliest classes of every sample of each store, best first: [networks, samples, ranks]."""
    found: dict[str, list[NDArray[np.uint8]]] = {name: [] for name in stores}
    for state in states:
        bundle = Bundle(factory, [state], schedule, next(iter(stores.values())).device)
        for name, store in stores.items():
            index = torch.arange(len(store), device=store.device)[None]
            best = [logits[0].topk(min(ranks, logits.shape[2])).indices for _, logits in outputs(bundle, store, index)]
            found[name].append(torch.cat(best).cpu().numpy().astype(np.uint8))
    return {name: np.stack(by_network) for name, by_network in found.items()}


def new_record(
    cell: Cell,
    room: Room,
    *,
    given: IntArray,
    arrays: dict[str, NDArray[Any]],
    results: dict[str, Any],
    schedule: dict[str, Any],
    method: dict[str, Any],
    seconds: float,
    lockstep: dict[str, Any],
) -> records.Record:
    """Everything a reader needs to repeat the cell, and to trust that it ran."""
    return {
        "schema": records.SCHEMA,
        "id": cell.id,
        "kind": cell.kind,
        "cell": cell.describe(),
        "noise": {
            "convention": CONVENTIONS[cell.noise.pattern],
            "pattern": cell.noise.pattern,
            "ratio": cell.noise.ratio,
            "measured_ratio": None if room.bench.true is None else metrics.noise_ratio(given, room.bench.true),
            "classes": room.bench.classes,
        },
        "method": method,
        "schedule": schedule,
        "versions": records.versions(),
        "environment": records.environment(),
        "device": records.device_name(room.device),
        "commit": room.commit,
        "source": room.source,
        "seconds": seconds,
        "lockstep": lockstep,
        "hashes": {
            "data": room.bench.digest,
            "train_labels": records.digest(given),
            **records.array_hashes(arrays),
        },
        "results": results,
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def headline(results: dict[str, Any]) -> str:
    if "by_iteration" in results:
        last = results["by_iteration"][-1]
        if np.isnan(last["label_precision"]):
            return f"{last['selected']:,} labels selected"
        return f"LP {last['label_precision']:.3f}, LR {last['label_recall']:.3f}"
    if "label_precision" in results:
        return ", ".join(f"{k} {results[k]:.3f}" for k in ("test_accuracy", "label_precision", "label_recall"))
    if "imagenet" in results:
        sets = ("webvision", "imagenet")
        return ", ".join(f"{s} {100 * results[s]['top1']:.2f} % ({100 * results[s]['top5']:.2f} %)" for s in sets)
    return f"test accuracy {100 * results['test_accuracy']:.2f} %"


def _work(plan: Plan, method: Method, schedule: Schedule) -> float:
    """How much of a lockstep's time a cell is charged: pictures shown to its networks."""
    return method.networks * method.epochs(schedule.epochs) * max(1, len(plan.train))


def seconds_spent(folder: Path) -> float:
    """Seconds that stopped runs of this lockstep already took."""
    path = folder / "seconds"
    return float(path.read_text()) if path.is_file() else 0.0


def write_seconds(folder: Path, seconds: float) -> None:
    write_text(folder / "seconds", f"{seconds:.3f}")
