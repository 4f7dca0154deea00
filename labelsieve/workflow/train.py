"""The training stage of a run: a robust method on the engine, from the selection to model.safetensors."""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from cyclopts import Parameter

from labelsieve import stopping
from labelsieve.cli.common import counted, percent
from labelsieve.errors import FailedError, InputError, Problems
from labelsieve.types import IntArray, LabelledData
from labelsieve.workflow import model_file as modelfile

if TYPE_CHECKING:
    from labelsieve.engine import Plan, Schedule, Store
    from labelsieve.engine.method import Method, Needs
    from labelsieve.progress import Progress
    from labelsieve.runfolder import RunFolder

METHODS = ("incv-coteaching", "coteaching", "decoupling", "f-correction", "mentornet", "d2l", "standard")
AUGMENT = ("auto", "mirror", "shift", "none")  # as engine.augment has them, without torch
PAPER_BATCH = 128


@Parameter(name="*")
@dataclass(frozen=True)
class TrainOptions:
    """Options of the robust training."""

    method: Annotated[str, Parameter(name=["--method"])] = "incv-coteaching"
    """incv-coteaching, coteaching, decoupling, f-correction, mentornet, d2l, standard or package.module:Name."""

    changed: Annotated[tuple[str, ...], Parameter(name="--set", negative="", show_default=False)] = ()
    """A setting of the method, NAME=VALUE, e.g. estimate_epochs=50 of f-correction; give --set again for another."""

    network: str = "auto"
    """mlp, small-cnn, resnet20 to resnet110, preact-resnet18, inception-resnet-v2, package.module:Name, or auto."""

    train_epochs: int | None = None
    """Epochs of the robust training; default: 200 on a GPU, 20 to 60 by the number of samples on a CPU."""

    batch_size: int | None = None
    """Samples a step; default: 128, less for small data."""

    augment: str = "auto"
    """What the training does to pictures: mirror (and shift them), shift, none, or auto: mirror, unless it harms."""

    def check(self, problems: Problems) -> None:
        from labelsieve.workflow.choose_model import check_name

        names = f"{', '.join(METHODS)}, or package.module:Name"
        known = self.method in METHODS or ":" in self.method
        problems.check(known, f"--method {self.method!r} is not known: choose one of {names}")
        if known and (self.changed or ":" in self.method):  # else without torch, which the methods themselves need
            problems.attempt(self.made)
        problems.attempt(check_name, self.network, option="--network", others=())
        problems.check(self.augment in AUGMENT, f"--augment {self.augment!r} is not known: choose {', '.join(AUGMENT)}")
        if self.train_epochs is not None:
            problems.check(self.train_epochs >= 1, f"--train-epochs {self.train_epochs}: at least 1 is needed")
        if self.batch_size is not None:
            problems.check(self.batch_size >= 2, f"--batch-size {self.batch_size}: at least 2 are needed")

    def settings(self) -> dict[str, Any]:
        """The method's own, as --set told them."""
        from labelsieve.methods.settings_text import read_settings

        return read_settings(self.changed)

    def made(self, usual: Mapping[str, Any] | None = None) -> Method:
        """The method; what --set told wins over `usual`."""
        from labelsieve.methods.settings_text import made

        return made(self.method, {**(usual or {}), **self.settings()})

    def told(self) -> str:
        """The method for a line of words: f-correction (estimate_epochs=50)."""
        from labelsieve.methods.settings_text import written

        return f"{self.method} ({written(self.settings())})" if self.changed else self.method

    def sizes(self, data: LabelledData, device: str, *, paper: bool) -> tuple[int, int]:
        """Samples a step and epochs, given or usual."""
        from labelsieve.methods.defaults import auto_batch_size

        batch_size = self.batch_size or (paper_batch_size if paper else auto_batch_size)(len(data))
        usual = usual_epochs(len(data), batch_size, device, pictures=data.kind == "pictures")
        return batch_size, self.train_epochs or usual


def usual_epochs(samples: int, batch_size: int, device: str, *, pictures: bool) -> int:
    """Where none are asked for: the paper's on a GPU; elsewhere what a person waits for."""
    from labelsieve.methods.defaults import auto_epochs

    return 200 if device == "cuda" else auto_epochs(samples, batch_size, pictures=pictures)


def paper_batch_size(samples: int) -> int:
    """128, as in table 1; of fewer samples, all of them."""
    return max(2, min(PAPER_BATCH, samples))


def paper_settings(run: RunFolder, method: str, epochs: int, told: Mapping[str, Any]) -> dict[str, Any]:
    """Where a method's settings with --protocol paper differ from its own: E_0 by the authors' rule.

    Table 1's cells have the rule of the sets' sizes, which gives the same E_0 in all its four columns.
    """
    from labelsieve.methods.incv_coteaching import authors_warmup
    from labelsieve.selection.settings import ASYMMETRIC

    if method != "incv-coteaching" or not (run / "labels.csv").is_file():
        return {}
    ratio = float(run.read_summary()["noise_ratio"] or 0.0)
    pattern = "pair" if told.get("pattern") in ASYMMETRIC else "symmetric"  # not told is symmetric, as for selecting
    return {"warmup": authors_warmup(epochs, pattern=pattern, noise_ratio=ratio)}


def schedule_for(epochs: int, *, paper: bool) -> Schedule:
    """The paper's, which is made for 200 epochs, or a larger rate that drops once."""
    from labelsieve.engine import Schedule
    from labelsieve.methods.defaults import one_drop

    return Schedule.paper_200(epochs) if paper else one_drop(epochs)


def plan_for(run: RunFolder, data: LabelledData, method: str, seed: int, *, needs: Needs) -> Plan:
    """What to train on: the selected and the candidates for a method that needs them, everything for the others."""
    from labelsieve.engine import Plan
    from labelsieve.methods.defaults import WORST_RATIO

    everything = np.arange(len(data))
    if not (run / "labels.csv").is_file():
        if needs != "nothing":
            raise InputError(
                f"{run.path} has no selection, which --method {method} needs: run `labelsieve select` first"
            )
        return Plan(method, data.y, everything, seed)
    summary = run.read_summary()
    if needs != "selection":
        return Plan(
            method, data.y, everything, seed, noise_ratio=min(WORST_RATIO, float(summary["noise_ratio"] or 0.0))
        )
    chosen, candidates = _sets(run, data)
    eps = min(WORST_RATIO, max(0.0, 1 - float(summary["label_precision"] or 0.0)))
    return Plan(method, data.y, chosen, seed, candidates=candidates, noise_ratio=eps)


def _sets(run: RunFolder, data: LabelledData) -> tuple[IntArray, IntArray]:
    """S and C of algorithm 3, as labels.csv has them."""
    from labelsieve.methods.defaults import training_sets

    rows = list(run.read_labels())
    if [row.id for row in rows] != data.ids.tolist():
        raise InputError(f"{run.path}/labels.csv is of other samples than its source holds now: select again")
    verdict = np.array([row.verdict for row in rows])
    return training_sets(verdict == "selected", verdict == "candidate", data.y)


def told_samples(run: RunFolder, data: LabelledData, plan: Plan) -> str:
    """How many samples it trains on, and why they are more than were selected."""
    told = counted(len(plan.train), "sample")
    if plan.candidates is None:
        return told
    verdict = np.array([row.verdict for row in run.read_labels()])
    back = plan.train[verdict[plan.train] != "selected"]
    if not len(back):
        return told
    names = ", ".join(repr(str(data.classes[code])) for code in np.unique(data.y[back]))
    return (
        f"{told} ({len(plan.train) - len(back):,} selected, and all {len(back):,} labelled {names}: none of them was "
        "selected, and the class would be lost)"
    )


def check_training(
    run: RunFolder, data: LabelledData, options: TrainOptions, device: str, *, paper: bool = False
) -> None:
    """What would stop the training, told before the hours of a selection."""
    from labelsieve.engine.device import choose_device
    from labelsieve.workflow import choose_model as models
    from labelsieve.workflow.choose_model import factory_of, resolve_network
    from labelsieve.workflow.sample_reader import Reading

    check_augment_for(data, options.augment)
    chosen = choose_device(device)
    if run.state("train") == "done":
        return
    method = checked_method(data, options, chosen.type, paper=paper)
    # What texts become is long to learn, and the network that `auto` takes for them is small.
    if data.kind == "text" and options.network == "auto":
        return
    shape = Reading.learn(data).shape if data.kind == "text" else models.shape(data)
    network = resolve_network(options.network, shape, len(data.classes), chosen.type, option="--network")
    factory = factory_of(network, shape, len(data.classes))
    check_disk(run.path, factory, networks=method.networks)


def checked_method(data: LabelledData, options: TrainOptions, device: str, *, paper: bool) -> Method:
    """The method, which is asked whether it can be trained so, as if every sample were selected.

    Not one of the user's own, which may look at the samples: it is asked when those are known.
    """
    from labelsieve.engine import Plan

    method, everything = options.made(), np.arange(len(data))
    if ":" not in options.method:
        plan = Plan("rehearsal", data.y, everything, seed=0, candidates=everything[:0], noise_ratio=0.0)
        method.check(plan, options.sizes(data, device, paper=paper)[1])
    return method


def run_training(
    run: RunFolder, data: LabelledData, options: TrainOptions, *, seed: int, device: str, progress: Progress
) -> str:
    """Train, from where it was stopped, and write model.safetensors; "new", "resumed" or "done"."""
    from labelsieve.engine import train
    from labelsieve.engine.device import choose_device
    from labelsieve.methods.settings_text import written
    from labelsieve.workflow.choose_model import factory_of, resolve_network
    from labelsieve.workflow.sample_reader import Reading
    from labelsieve.workflow.time_hints import training_hint

    check_augment_for(data, options.augment)
    chosen = choose_device(device)
    reading = Reading.learn(data)
    network = resolve_network(options.network, reading.shape, len(data.classes), chosen.type, option="--network")
    factory = factory_of(network, reading.shape, len(data.classes))
    told = run.record().get("stages", {}).get("select", {}).get("settings", {})
    paper = told.get("protocol") == "paper"
    batch_size, epochs = options.sizes(data, chosen.type, paper=paper)
    schedule = schedule_for(epochs, paper=data.kind == "pictures" and (paper or chosen.type == "cuda"))
    method = options.made(paper_settings(run, options.method, epochs, told) if paper else None)
    plan = plan_for(run, data, options.method, seed, needs=method.needs())
    method.check(plan, schedule.epochs)
    augment = augment_of(run, data, options.augment, progress)
    asked = {
        "train_method": options.method, "network": network, "train_epochs": epochs, "batch_size": batch_size,
        "train_seed": seed, "schedule": schedule.settings(), "method_settings": method.settings(),
        "noise_ratio": plan.noise_ratio, "train_device": chosen.type,
        "augment": augment,
    }  # fmt: skip
    if options.changed:  # so that a refusal names them alone, and those that a method leaves out of its own settings()
        asked["set"] = written(options.settings())
    begun = run.start("train", settings=asked)
    if begun == "done":
        return begun
    check_disk(run.path, factory, networks=method.networks)
    progress.note(
        f"{'going on with' if begun == 'resumed' else 'training'} {options.told()}, {network}, {epochs} epochs of "
        f"{told_samples(run, data, plan)} on {chosen}"
    )
    began = time.monotonic()
    store = reading.store(data, chosen, augment=augment != "none")
    if augment == "shift":
        store.disable_mirroring()
    run.rewind_history(lambda entry: entry.get("stage") != "train")
    total = method.epochs(schedule.epochs)

    def hint(seconds: float) -> str | None:
        side = min(reading.shape[1:]) if data.kind == "pictures" else None
        # Who goes on has done part of it already: another --out would begin anew.
        return training_hint(seconds, total, side=side) if chosen.type == "cpu" and begun != "resumed" else None

    with stopping.safe_points():
        try:
            with progress.epochs("training", total, hint=hint) as tell:
                (result,) = train(
                    store, factory, method, [plan], schedule=schedule, batch_size=batch_size,
                    checkpoint=run.checkpoints / "train", checkpoint_seconds=2.0, stop=stopping.requested,
                    progress=tell, classes=len(data.classes),
                )  # fmt: skip
        except Exception as problem:
            if stopping.requested():
                raise stopping.reason() from None
            run.fail("train", str(problem))
            raise
        for entry in result.history:
            run.append_history({"stage": "train", **entry})
        modelfile.save(
            run / "model.safetensors",
            modelfile.Model(network, data.classes, reading, result.states, options.method),
        )
        run.finish("train", seconds=round(time.monotonic() - began, 3))
        if data.kind == "pictures" and (told_weak := weakness(run, data, store, factory, result.states, augment)):
            progress.note(told_weak)
        if stopping.requested():  # in the last epoch: what follows the training is not begun
            raise stopping.reason()
    return begun


def check_augment_for(data: LabelledData, augment: str) -> None:
    if augment != "auto" and data.kind != "pictures":
        what = "texts" if data.kind == "text" else "rows of a table"
        raise InputError(f"--augment {augment} is for pictures, these samples are {what}: leave it out")


def augment_of(run: RunFolder, data: LabelledData, asked: str, progress: Progress) -> str:
    """mirror, shift or none. `auto` is what the training was begun with, or what the selected pictures say."""
    from labelsieve.engine.augment import mirror_test

    if data.kind != "pictures":
        return "none"
    if asked != "auto":
        return asked
    stages = run.record().get("stages", {})
    if "augment" in (begun := stages.get("train", {}).get("settings", {})):
        return str(begun["augment"])
    if stages.get("select", {}).get("settings", {}).get("protocol") == "paper":
        return "mirror"
    found = mirror_test(data.x, data.y, trusted(run, data)[0])
    if not found.harms:
        return "mirror"
    progress.note(
        "pictures are shifted but not mirrored in training: a picture's nearest neighbour has its label in "
        f"{percent(found.plain)}, a mirrored one's in {percent(found.mirrored)}; --augment mirror mirrors them too"
    )
    return "shift"


def trusted(run: RunFolder, data: LabelledData) -> tuple[IntArray, float | None]:
    """The samples whose labels were selected, and how many of them are expected to be right; else all of them."""
    if not (run / "labels.csv").is_file():
        return np.arange(len(data)), None
    return _sets(run, data)[0], run.read_summary()["label_precision"] or None


def weakness(
    run: RunFolder, data: LabelledData, store: Store, factory: Any, states: Sequence[Any], augment: str
) -> str | None:
    """What to say where the network gives far fewer of the labels it was trained on than it should."""
    from labelsieve.engine.agreement import agreement, has_learnt, what_may_help

    among, precision = trusted(run, data)
    share = agreement(store, factory, states, data.y, among)
    if has_learnt(share, data.y[among], precision=precision):
        return None
    expected = "" if precision is None else f", {percent(precision)} were expected to be right"
    which = "the labels" if precision is None else "the selected labels"
    ways = what_may_help(augment, epochs="--train-epochs", network="--network")
    return f"the network learnt little: it agrees with {percent(share)} of {which}{expected}; {ways}"


def check_disk(folder: Path, factory: Any, *, networks: int) -> None:
    """Two checkpoints with optimizer state, one being written, and the model: on the output's own volume."""
    from labelsieve.cli.plan import size

    parameters = sum(parameter.numel() for parameter in factory().parameters())
    needed = networks * parameters * 4 * (3 * 4 + 1)
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise FailedError(
            f"{folder} needs {size(needed)} for checkpoints, {size(free)} are free: make room there or give "
            "another --out"
        )
