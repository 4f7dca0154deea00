"""What a run takes: time, memory and disk space, from a short trial of its models on this machine.

selection    networks: passes x epochs x samples are trained and scored (see `selection_passes`)
             classifiers: pairs of trainings of growing size, as in `selection/incv.py`
training     networks: networks x epochs x samples; a classifier: one training on all samples
memory       the peak of this process, which read the samples and tried the models, plus the state of a selection
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch

from labelsieve.data.embedding_cache import EmbeddedX, encode_batches
from labelsieve.data.pictures import EncodedPictures, PictureFiles
from labelsieve.data.read_pictures import DEVICE_SHARE, Placement, place_pictures
from labelsieve.data.resources import peak_memory, usable_cores
from labelsieve.data.stage import StagedPictures
from labelsieve.data.text import TextFeatures
from labelsieve.engine import OutOfTime, Plan, Schedule, Store, train
from labelsieve.engine.bundle import Bundle, Factory, initial_state
from labelsieve.engine.device import choose_device
from labelsieve.engine.evaluate import probabilities
from labelsieve.engine.method import Method
from labelsieve.engine.picture_stores import free_memory, picture_store
from labelsieve.execute.build_trainer import TrainerOptions, build_trainer
from labelsieve.models.choose import ModelChoice, ModelKind, SampleInfo, named_classifier
from labelsieve.models.embed import load_encoder
from labelsieve.progress import SILENT, Progress
from labelsieve.selection.settings import INCVSettings, networks_at_once, selection_passes
from labelsieve.types import Job, LabelledData, evenly_spaced
from labelsieve.workflow.model_file import SampleReader, network_for
from labelsieve.workflow.select import choose_model
from labelsieve.workflow.settings import CLASSIFIER, PlanRequest, RunSettings
from labelsieve.workflow.train import TrainingSizes, choose_classifier, rehearsal_plan

# Host memory per sample without its id: the peak of a selection in benchmarks/growth.md.
HOST_BYTES = 420
SELECTION_BATCH_SIZE = 128  # of the networks that select
TIMED_SAMPLES = (500, 2_000)  # numbers of samples on which a pair of classifiers is trained
EMBEDDED_PICTURES = 256  # of a plan: a few seconds on a CPU
MIN_TRIAL_BATCH = 32  # samples per network in a trial: smaller batches are slower per sample (benchmarks/plans.md)
MAX_GROWTH = 2.0  # exponent of the time of a classifier: none of labelsieve grows faster than with the square
# INCV stops when an iteration adds few samples: two to four iterations are usual (benchmarks/plans.md).
USUAL_ITERATIONS = 3
REPORT_SECONDS = 1.0  # to write the report (benchmarks/plans.md)


@dataclass(frozen=True)
class Workload:
    """The trainings of a run."""

    samples: int
    selection_passes: int = 4  # over all samples, per epoch of the selection; 0 if a classifier selects
    selection_epochs: int = 50
    training_epochs: int = 200
    networks: int = 2  # of the robust method
    gpus: int = 1
    selecting: int = 2  # networks of the selection that train at once: both halves of every split


@dataclass(frozen=True)
class Measured:
    """Speed and memory of one device, measured on some of the samples."""

    trained: float  # samples per second, over the networks that train at once
    scored: float  # samples per second
    read: float | None  # pictures decoded per second by all cores; None if nothing is decoded
    sample_bytes: float  # of a sample on the device
    parameters: int  # of one network
    working_bytes: int  # peak of a training step without the samples; 0 if unknown (CPU)
    host_bytes: float = HOST_BYTES  # of a sample in main memory, without its pixels
    samples: int = 0  # that were trained on
    staged: bool = False  # the pictures are decoded on disk

    @property
    def from_disk(self) -> bool:
        """Whether pictures stay on disk: if the device cannot hold them they are streamed."""
        return self.staged or self.read is not None


def estimate(workload: Workload, measured: Measured, *, free: int, selecting: Measured | None = None) -> dict[str, Any]:
    """Return seconds per stage, bytes per place, and the slowest stage.

    `free` is the memory that the device has left. `selecting` was measured with another network, if that one selects.
    """
    n, gpus = workload.samples, workload.gpus
    selecting = selecting or measured
    passes = workload.selection_passes * workload.selection_epochs * n
    seconds = {
        "decode once": n / measured.read if measured.read else 0.0,
        "selection, training": passes / selecting.trained / gpus,
        "selection, scoring": passes / selecting.scored / gpus,
        "robust training": workload.networks * workload.training_epochs * n / measured.trained / gpus,
    }
    pixels = round(n * measured.sample_bytes)
    networks = max(2, workload.networks)
    # If the peak of a step was not measured: weights, gradients and two moments of each network.
    parameters = max(measured.parameters, selecting.parameters)
    working = max(measured.working_bytes, selecting.working_bytes) or 4 * 4 * parameters * networks
    streams = measured.from_disk and (pixels > DEVICE_SHARE * free or pixels + working > free)
    epochs = workload.selection_passes * workload.selection_epochs + workload.training_epochs
    # Two checkpoints of weights and two moments; those of the selection are removed after each round.
    at_once = max(
        measured.parameters * networks, selecting.parameters * workload.selecting * (workload.selection_passes > 0)
    )
    return {
        "seconds": seconds,
        **total(seconds),
        "seconds_without_cache": n * epochs / measured.read if measured.read and streams else None,
        "device_bytes": working + (0 if streams else pixels),
        "data": "streams" if streams else "on the device",
        "host_bytes": round(n * measured.host_bytes) + (0 if measured.from_disk else pixels),
        "disk_bytes": {"staged pictures": pixels if measured.from_disk else 0, "checkpoints": 2 * 4 * 3 * at_once},
    }


def total(seconds: dict[str, float]) -> dict[str, Any]:
    """Return the sum and the slowest stage."""
    return {"total_seconds": sum(seconds.values()), "bottleneck": max(seconds, key=lambda name: seconds[name])}


def embed_some(data: LabelledData, model: str, device: str) -> tuple[LabelledData, float]:
    """Embed some of the samples; return them, and the number that are embedded per second."""
    encoder = load_encoder(model, data.kind, lambda: str(choose_device(device)))
    some = take_evenly(data, EMBEDDED_PICTURES if data.kind == "pictures" else TIMED_SAMPLES[-1])
    next(encode_batches(encoder, take_evenly(data, 1)))  # the first batch is slower
    began = time.perf_counter()
    rows = np.concatenate(list(encode_batches(encoder, some)))
    embedded = replace(some, embedding=EmbeddedX(rows, encoder.model))
    return embedded.features(), len(some) / (time.perf_counter() - began)


def plan_run(
    data: LabelledData, settings: RunSettings, request: PlanRequest, *, before: Mapping[str, float] | None = None,
    progress: Progress = SILENT,
) -> dict[str, Any]:  # fmt: skip
    """Try the models that a run would use, and estimate what the run takes.

    `before` are the seconds of the stages before the selection. "selection_seconds" is None if the selection could not
    be measured.
    """
    n = request.samples or len(data)
    choice = choose_model(settings, data, progress, samples=n)
    incv = settings.incv_settings()
    usual = replace(incv, n_iterations=min(incv.n_iterations, USUAL_ITERATIONS))
    trial = ClassifierTrial.of(data, choice) if choice.kind is ModelKind.CLASSIFIER else None
    selection = None if trial is None else trial.selection_seconds(n, usual)
    if choice.kind is ModelKind.STORED:
        selection = 0.0
    if settings.method == CLASSIFIER:
        found = _plan_classifier(data, choice, n, trial)
    else:
        found = _plan_network(data, settings, request, choice, selection_passes(usual))
    seconds = dict(found["seconds"])
    if choice.kind is ModelKind.NETWORK:  # the fast network is not measured
        selection = seconds["selection, training"] + seconds["selection, scoring"]
    else:
        seconds = {name: value for name, value in seconds.items() if not name.startswith("selection")}
        seconds = ({} if selection is None else {"selection": selection}) | seconds
    seconds = dict(before or {}) | seconds | {"report": REPORT_SECONDS}
    per_sample = found["measured"]["host_bytes"] + (n > len(data)) * found["measured"]["sample_bytes"]
    found["host_bytes"] = peak_memory() + round(n * per_sample)
    return found | total(seconds) | {
        "seconds": seconds, "selector": choice.name, "selection_seconds": selection, "samples": n,
    }  # fmt: skip


def _plan_classifier(data: LabelledData, choice: ModelChoice, n: int, trial: ClassifierTrial | None) -> dict[str, Any]:
    """Plan the training of a classifier: one training on all samples."""
    name = choose_classifier(data, choice.name)
    if trial is None or name != choice.name:
        other = ModelChoice(name, ModelKind.CLASSIFIER, build_classifier=partial(named_classifier, name, n))
        trial = ClassifierTrial.of(data, other)
    sample_bytes = float(np.asarray(data.x[:100]).nbytes / min(100, len(data)))
    place = _picture_placement(data, n, torch.device("cpu"))
    staged = round(n * sample_bytes) if place == Placement.STAGED else 0
    measured = Measured(0.0, 0.0, None, sample_bytes, 0, 0, HOST_BYTES + data.ids.dtype.itemsize, trial.samples)
    return {
        "source": data.name, "model": name, "shape": list(np.shape(data.x)[1:]), "pictures": place,
        "device": f"cpu, {usable_cores()} cores", "measured": asdict(measured), "measured_selecting": None,
        "seconds": {"training": trial.seconds(n)}, "seconds_without_cache": None, "device_bytes": 0,
        "data": "in memory", "disk_bytes": {"staged pictures": staged, "checkpoints": 0},
        "wanted": asdict(Workload(n, 0, 1, 1, 1)),
    }  # fmt: skip


def _plan_network(
    data: LabelledData, settings: RunSettings, request: PlanRequest, choice: ModelChoice, passes: int
) -> dict[str, Any]:
    """Measure and plan the robust training of a network, and the selection if a network selects."""
    device = choose_device(settings.device)
    n, selects = request.samples or len(data), choice.kind is ModelKind.NETWORK
    rows = _as_numbers(data)
    reader = SampleReader(rows.kind, SampleInfo.of(rows).shape)
    sizes = TrainingSizes.choose(
        settings, n, pictures=data.kind == "pictures", device_type=device.type, paper=settings.protocol == "paper"
    )
    wanted = sizes.network(settings.network, reader.info)
    network, factory = network_for(wanted, reader, len(data.classes), device.type)
    method = settings.create_method(sizes.method_settings(network.name))
    rehearsed = rehearsal_plan(data.y, method, len(data.classes))
    noisy = replace(rehearsed, noise_ratio=1.0, suspicion=np.ones(len(data)))
    workload = Workload(
        n, passes if selects else 0, choice.epochs(settings.epochs),
        method.epochs(rehearsed, sizes.epochs), method.networks, request.gpus,
        networks_at_once(settings.incv_settings()),
    )  # fmt: skip
    most = max(sizes.batch_size, SELECTION_BATCH_SIZE)
    some = take_evenly(rows, 4 * most if device.type == "cpu" else 16 * most)
    store, read, sample_bytes = _small_store(some, device)
    seconds = request.seconds / 2 if selects else request.seconds
    if (count := trial_samples(factory, store, seconds)) < len(store):
        some = take_evenly(some, count)
        store, _, _ = _small_store(some, device)
    timed = None if ":" in settings.method else method  # the user's own method may look at the samples
    found = selecting = measure(some, factory, store, timed, batch_size=sizes.batch_size, seconds=seconds)
    if selects:
        assert choice.factory is not None
        selecting = measure(some, choice.factory, store, batch_size=SELECTION_BATCH_SIZE, seconds=seconds)
    names = [len(name) + 57 for name in rows.x.names[:1000]] if isinstance(rows.x, PictureFiles) else [0]
    found = replace(
        found, read=read, sample_bytes=sample_bytes, staged=isinstance(rows.x, StagedPictures),
        host_bytes=HOST_BYTES + float(rows.ids.dtype.itemsize + np.mean(names)),
    )  # fmt: skip
    card = torch.cuda.get_device_name(device) if device.type == "cuda" else f"{device.type}, {usable_cores()} cores"
    return {
        "source": rows.name,
        "model": network.name,
        "shape": list(store.shape),
        "device": card,
        "measured": asdict(found),
        "measured_selecting": asdict(selecting) if selects else None,
        "pictures": _picture_placement(rows, n, device),
        "wanted": asdict(workload),
        "most_training_epochs": method.epochs(noisy, sizes.epochs),
    } | estimate(workload, found, selecting=selecting, free=free_memory(device))


@dataclass(frozen=True)
class ClassifierTrial:
    """The time of a pair of trainings of a classifier, measured for one or two numbers of samples."""

    samples: int
    pair: float  # seconds of two trainings on `samples` samples each
    growth: float  # seconds grow with this power of the samples; 1 if it could not be measured
    features: float  # seconds per sample to compute what the classifier reads

    @classmethod
    def of(cls, data: LabelledData, choice: ModelChoice) -> ClassifierTrial:
        """Train on two small parts of the samples, as a selection does."""
        found: list[tuple[int, float]] = []
        for count in TIMED_SAMPLES:
            some = take_evenly(data, 2 * count)
            if found and len(some) // 2 <= found[-1][0]:
                break
            began = time.perf_counter()
            trainer = build_trainer(choice, some, TrainerOptions())
            features = (time.perf_counter() - began) / len(some)
            order = np.random.default_rng(0).permutation(len(some))
            halves = np.sort(order[: len(some) // 2]), np.sort(order[len(some) // 2 :])
            jobs = [Job(f"trial {i}", some.y, halves[i], halves[1 - i], seed=i) for i in range(2)]
            began = time.perf_counter()
            trainer.train_and_score(jobs)
            found.append((len(some) // 2, time.perf_counter() - began))
        growth = 1.0
        if len(found) > 1:
            growth = float(np.log(found[1][1] / found[0][1]) / np.log(found[1][0] / found[0][0]))
        samples, pair = found[-1]
        return cls(samples, pair, float(np.clip(growth, 1.0, MAX_GROWTH)), features)

    def pair_seconds(self, samples: float) -> float:
        """Return the seconds of a pair of trainings on `samples` samples each."""
        return float(self.pair * (samples / self.samples) ** self.growth)

    def seconds(self, samples: float) -> float:
        """Return the seconds of one training, with the features of its samples."""
        return self.pair_seconds(samples) / 2 + self.features * samples

    def selection_seconds(self, n: int, settings: INCVSettings) -> float:
        """Return the seconds of a selection of n samples."""
        later = settings.n_iterations - 1
        pairs = self.pair_seconds(n / 2) + later * self.pair_seconds(n)
        if settings.protocol == "auto":  # the noise estimate
            pairs += self.pair_seconds(n / 2) + 2 * self.pair_seconds(n / 4)
        return settings.repeats * pairs + self.features * n


def _picture_placement(data: LabelledData, samples: int, device: torch.device) -> str | None:
    """Return where a run in the current folder keeps its pictures (`Placement`), None for other samples."""
    if data.kind != "pictures":
        return None
    memory = free_memory(device) if device.type == "cuda" else None
    return place_pictures(data.x, Path.cwd(), samples=samples, device_memory=memory).value


def measure(
    data: LabelledData,
    factory: Factory,
    store: Store,
    method: Method | None = None,
    *,
    batch_size: int = 128,
    seconds: float = 10.0,
) -> Measured:
    """Train with a method, or two networks at once as a selection does, and score, for about `seconds`."""
    from labelsieve.methods.standard import Standard

    device, count, classes = store.device, len(store), len(data.classes)
    chosen, schedule = np.arange(count), Schedule(100_000, ((0, 1e-4),))
    networks = 1
    if method is None:
        plans = [Plan(f"half {i}", data.y, chosen[i::2], seed=i) for i in range(2)]
    else:
        plans, networks = [rehearsal_plan(data.y, method, classes)], method.networks
        method.check(plans[0], schedule.epochs)
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device) if device.type == "cuda" else 0
    marks: list[tuple[int, float]] = []

    def mark(state: dict[str, Any]) -> None:
        marks.append((state["epoch"], time.perf_counter()))

    def enough() -> bool:
        return len(marks) >= 3 and marks[-1][1] - marks[0][1] >= seconds

    with suppress(OutOfTime):
        train(
            store, factory, method or Standard(), plans, schedule=schedule,
            batch_size=max(1, min(batch_size, len(plans[0].train))), progress=mark, stop=enough, classes=classes,
        )  # fmt: skip
    # The fastest epoch: the first one warms up, and others may wait for other programs.
    trained = networks * max(count * (now[0] - last[0]) / (now[1] - last[1]) for last, now in pairwise(marks))
    peak = torch.cuda.max_memory_allocated(device) - before if device.type == "cuda" else 0
    bundle = Bundle(factory, [initial_state(factory, 0)], schedule, device)
    rounds = []
    for _ in range(2):
        began = time.perf_counter()
        probabilities(bundle, store, chosen, 0).cpu()
        rounds.append(time.perf_counter() - began)
    parameters = sum(p.numel() for p in bundle.module.parameters())
    return Measured(trained, count / min(rounds), None, _sample_bytes(store), parameters, peak, samples=count)


def trial_samples(factory: Factory, store: Store, seconds: float) -> int:
    """Return the number of samples with which one epoch takes about a quarter of the time."""
    least = min(2 * MIN_TRIAL_BATCH, len(store))
    return int(np.clip(seconds / 4 / _seconds_per_sample(factory, store), least, len(store)))


def _seconds_per_sample(factory: Factory, store: Store) -> float:
    """Return a first rough measurement: two samples forward and backward."""
    network = factory().to(store.device)
    index = torch.arange(2, device=store.device)[None] % len(store)
    taken = []
    for _ in range(2):
        began = time.perf_counter()
        x = store.batch(index, torch.full_like(index, store.plain)).float()
        torch.autograd.backward(network(x).square().mean())
        if store.device.type == "cuda":
            torch.cuda.synchronize()
        taken.append(time.perf_counter() - began)
    return min(taken) / 2


def _sample_bytes(store: Store) -> float:
    return store.nbytes / max(1, len(store)) if store.nbytes else float(np.prod(store.shape))


def take_evenly(data: LabelledData, count: int) -> LabelledData:
    """Return up to `count` samples, evenly spread."""
    return replace(data.take(evenly_spaced(len(data), count)), groups=None, duplicates=None)


def _small_store(data: LabelledData, device: torch.device) -> tuple[Store, float | None, float]:
    """Return a store, the pictures that all cores decode per second (None: no decoding), and bytes per sample."""
    if isinstance(data.x, EncodedPictures):
        count = min(32, len(data.x))
        began = time.perf_counter()
        for i in range(count):
            data.x.picture(i)
        read = count / (time.perf_counter() - began) * usable_cores()
        store = picture_store(data.x, device, workers=0, hold=True)
        return store, read, _sample_bytes(store)
    if isinstance(data.x, StagedPictures):
        staged = picture_store(data.x, device, workers=0)
        return staged, None, data.x.nbytes / max(1, len(data.x))
    from labelsieve.execute.network_trainer import stage

    held = stage(data.x, device)
    return held, None, _sample_bytes(held)


def _as_numbers(data: LabelledData) -> LabelledData:
    """Return texts as the rows that a network reads, as many as a measurement needs."""
    if data.kind != "text":
        return data
    some = take_evenly(data, TIMED_SAMPLES[-1])
    return replace(some, x=TextFeatures.learn(some.x).rows(some.x), kind="table")
