"""The training stage of a run: train a network with a robust method, or a classifier, and write model.safetensors."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from labelsieve import stopping
from labelsieve.data.columns import encoding_of
from labelsieve.data.text import single_words
from labelsieve.errors import InputError
from labelsieve.execute.sklearn_trainer import Refit, TrainingSet
from labelsieve.models.choose import CLASSIFIERS, TEXT, SampleInfo, SelectorRequest, best_classifier, choose_selector
from labelsieve.models.stored_classifier import STORABLE, to_arrays
from labelsieve.progress import Note, NoteKind, counted
from labelsieve.types import SELECTED, IntArray, LabelledData, Selection
from labelsieve.workflow import model_file
from labelsieve.workflow.model_file import EmbeddedSamples, Model, SampleReader, network_for
from labelsieve.workflow.select import check_disk, training_hint
from labelsieve.workflow.selection_files import judge_labels, read_selection, read_transition
from labelsieve.workflow.settings import CLASSIFIER, RunSettings, TrainSettings

if TYPE_CHECKING:
    import torch

    from labelsieve.engine import Plan, Schedule
    from labelsieve.engine.method import Method, Recipe
    from labelsieve.progress import Progress
    from labelsieve.runfolder import RunFolder

PAPER_BATCH_SIZE, PAPER_EPOCHS = 128, 200  # table 1 of the paper


@dataclass(frozen=True)
class TrainingSizes:
    """Batch size and epochs of the robust training, and whether they follow the paper or the method's recipe."""

    batch_size: int
    epochs: int
    paper_schedule: bool
    recipe: Recipe | None = None

    @classmethod
    def choose(
        cls, settings: TrainSettings, samples: int, *, pictures: bool, device_type: str, paper: bool
    ) -> TrainingSizes:
        """Take what the user set; else the sizes of the paper on a GPU, and sizes for a short training on a CPU.

        A method with a `recipe` uses it for pictures on a GPU.
        """
        from labelsieve.engine.method import Method
        from labelsieve.engine.schedule import auto_batch_size, auto_epochs
        from labelsieve.methods import METHODS

        full_length = pictures and (paper or device_type == "cuda")
        recipe = METHODS.get(settings.method, Method).recipe if pictures and device_type == "cuda" else None
        paper_batch = max(2, min(recipe.batch_size if recipe else PAPER_BATCH_SIZE, samples))
        batch_size = settings.batch_size or (paper_batch if paper or recipe else auto_batch_size(samples))
        paper_epochs = recipe.epochs if recipe else PAPER_EPOCHS
        automatic = paper_epochs if device_type == "cuda" else auto_epochs(samples, batch_size, pictures=pictures)
        return cls(batch_size, settings.train_epochs or automatic, full_length, recipe)

    def network(self, wanted: str, samples: SampleInfo) -> str:
        """Return the network that the recipe names for small pictures, unless the user chose one."""
        if self.recipe is None or wanted != "auto" or not samples.small_pictures:
            return wanted
        return self.recipe.network

    def method_settings(self, network: str) -> dict[str, Any]:
        """Return the settings of the recipe for a network, which --set overrides."""
        return self.recipe.settings_for(network) if self.recipe is not None else {}

    def schedule(self) -> Schedule:
        """Return the learning rates: the method's or the paper's, or a larger one that drops once."""
        from labelsieve.engine import Schedule
        from labelsieve.engine.schedule import one_drop

        if self.recipe is not None:
            return self.recipe.schedule(self.epochs, self.batch_size)
        return Schedule.paper_200(self.epochs) if self.paper_schedule else one_drop(self.epochs)


def train_model(run: RunFolder, data: LabelledData, settings: TrainSettings, progress: Progress) -> str:
    """Train the network or the classifier of a run, and write it; return "new", "resumed" or "done"."""
    if settings.method == CLASSIFIER:
        return train_classifier(run, data, settings, progress)
    return train_network(run, data, settings, progress)


def train_network(run: RunFolder, data: LabelledData, settings: TrainSettings, progress: Progress) -> str:
    """Train or resume the robust network of a run, and write it; return "new", "resumed" or "done"."""
    from labelsieve.engine import Plan, train
    from labelsieve.engine.device import choose_device
    from labelsieve.engine.evaluate import agreement, has_learnt, mean_scores
    from labelsieve.methods.custom_method import format_settings

    reader = SampleReader.learn(data)
    data = data.features()
    check_augment(data, settings.augment)
    device = choose_device(settings.device)
    selected_with = run.stage_settings("select")
    paper = selected_with.get("protocol") == "paper"
    pictures = data.kind == "pictures"
    sizes = TrainingSizes.choose(settings, len(data), pictures=pictures, device_type=device.type, paper=paper)
    network = sizes.network(settings.network, reader.info)
    choice, factory = network_for(network, reader, len(data.classes), device.type)
    schedule = sizes.schedule()
    selection = read_selection(run, data)
    defaults = paper_warmup(selection, settings, sizes.epochs, selected_with) if paper else {}
    method = settings.create_method(sizes.method_settings(choice.name) | defaults)
    plan = Plan(settings.method, data.y, np.arange(len(data)), settings.seed)
    if selection is not None:
        if method.needs() == "transition":
            selection = replace(selection, transition_matrix=read_transition(run, len(data.classes)))
        plan = with_selection(plan, selection, method)
    elif method.needs() != "nothing":
        raise InputError(
            f"{run.path} has no selection, which --method {settings.method} needs; run `labelsieve select` first"
        )
    method.check(plan, schedule.epochs)
    trusted, precision = trusted_samples(selection, data)
    augment = choose_augment(run, data, settings.augment, trusted, progress)
    recorded = {
        "train_method": settings.method, "network": choice.name, "train_epochs": sizes.epochs,
        "batch_size": sizes.batch_size, "train_seed": settings.seed, "schedule": schedule.settings(),
        "method_settings": method.settings(), "noise_ratio": plan.noise_ratio, "train_device": device.type,
        "augment": augment,
    }  # fmt: skip
    if settings.set:  # a method may leave some of them out of its own settings
        recorded["set"] = format_settings(settings.method_settings())
    begun = run.start("train", settings=recorded)
    if begun == "done":
        return begun
    check_disk(run.path, factory, networks=method.networks)
    total = method.epochs(plan, schedule.epochs)
    times = total // sizes.epochs if total % sizes.epochs == 0 else 1
    kind = NoteKind.TRAINING_RESUMED if begun == "resumed" else NoteKind.TRAINING_STARTED
    progress.note(
        Note.of(
            kind, network=choice.name, method=settings.method_text(),
            epochs=f"{times} x {sizes.epochs}" if times > 1 else total,
            samples=describe_training_set(selection, data, plan), device=device,
        )
    )  # fmt: skip
    began = time.monotonic()
    store = reader.store(data, device, augment=augment)
    run.rewind_history(lambda entry: entry.get("stage") != "train")
    hint = partial(training_hint, epochs=total) if device.type == "cpu" and begun != "resumed" else None
    with run.work("train", began):
        with progress.epochs("training", total, hint=hint) as on_epoch:
            (result,) = train(
                store, factory, method, [plan], schedule=schedule, batch_size=sizes.batch_size,
                checkpoint=run.checkpoints / "train", checkpoint_seconds=2.0, stop=stopping.requested,
                progress=on_epoch, classes=len(data.classes),
            )  # fmt: skip
        for entry in result.history:
            run.append_history({"stage": "train", **entry})
        model = Model(choice.name, data.classes, reader, result.states, settings.method, "none" if paper else augment)
        model_file.save(run / "model.safetensors", model)
        judged = selection if method.judges_labels(plan) else None
        if pictures or judged is not None:
            share = agreement(store, factory, result.states, data.y, trusted)
            if not has_learnt(share, data.y[trusted], precision=precision):
                progress.note(weak_network_note(share, precision, augment))
            elif judged is not None:
                scores = mean_scores(store, factory, result.states, data.y, np.arange(len(data)))
                judge_labels(run, data, judged, scores)
    return begun


def check_training(run: RunFolder, data: LabelledData, settings: RunSettings) -> None:
    """Raise what would stop the training, before the selection takes hours."""
    data = data.features()
    check_augment(data, settings.augment)
    if run.state("train") == "done":
        return
    from labelsieve.engine.device import choose_device  # imports torch

    device = choose_device(settings.device)
    paper = settings.protocol == "paper"
    checked = check_method(data, settings, device, paper=paper)
    if checked is None:
        return
    method, sizes = checked
    if data.kind == "text" and settings.network == "auto":  # learning the features of texts takes long
        return
    reader = SampleReader.learn(data) if data.kind == "text" else SampleReader(data.kind, SampleInfo.of(data).shape)
    network = sizes.network(settings.network, reader.info)
    _, factory = network_for(network, reader, len(data.classes), device.type)
    check_disk(run.path, factory, networks=method.networks)


def check_method(
    data: LabelledData, settings: TrainSettings, device: torch.device, *, paper: bool
) -> tuple[Method, TrainingSizes] | None:
    """Return the method, which checked its settings as if every sample were selected, and sizes; None: a classifier.

    The user's own method may look at the samples, so it is checked when they are selected.
    """
    if settings.method == CLASSIFIER:
        return None
    pictures = data.kind == "pictures"
    sizes = TrainingSizes.choose(settings, len(data), pictures=pictures, device_type=device.type, paper=paper)
    method = settings.create_method(sizes.method_settings(settings.network))
    method.views().check(pictures=pictures)
    if ":" not in settings.method:
        method.check(rehearsal_plan(data.y, method, len(data.classes)), sizes.epochs)
    return method, sizes


def rehearsal_plan(labels: IntArray, method: Method, classes: int) -> Plan:
    """Return a plan as if every sample were selected, to check or time a method before there is a selection."""
    from labelsieve.engine import Plan

    everything = np.arange(len(labels))
    plan = Plan("rehearsal", labels, everything, seed=0, candidates=everything[:0], noise_ratio=0.0)
    return replace(plan, transition=np.eye(classes)) if method.needs() == "transition" else plan


def paper_warmup(
    selection: Selection | None, settings: TrainSettings, epochs: int, selected_with: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the warm-up of incv-coteaching with --protocol paper, by the rule of the authors' code.

    Table 1 uses the rule by the sizes of the sets, which gives the same warm-up in all its columns.
    """
    from labelsieve.methods.incv_coteaching import authors_warmup
    from labelsieve.selection.settings import ASYMMETRIC

    if settings.method != "incv-coteaching" or selection is None:
        return {}
    pattern = "pair" if selected_with.get("pattern") in ASYMMETRIC else "symmetric"
    return {"warmup": authors_warmup(epochs, pattern=pattern, noise_ratio=selection.noise_ratio)}


def with_selection(plan: Plan, selection: Selection, method: Method) -> Plan:
    """Return the plan with what the method needs of a selection: its sets S and C, noise ratio, transition matrix."""
    from labelsieve.methods.coteaching import WORST_RATIO
    from labelsieve.methods.incv_coteaching import training_sets

    needs = method.needs()
    if needs not in ("selection", "transition"):
        return replace(plan, noise_ratio=min(WORST_RATIO, selection.noise_ratio))
    chosen, candidates = training_sets(selection.selected, selection.candidate, plan.labels)
    ratio = min(WORST_RATIO, max(0.0, 1 - selection.expected_precision))
    plan = replace(plan, train=chosen, candidates=candidates, noise_ratio=ratio)
    if needs != "transition":
        return plan
    # Suspicions are ranks, not probabilities, if nothing is known about the noise.
    suspicion = selection.suspicion if selection.noise is not None and selection.noise.known else None
    return replace(plan, transition=selection.transition_matrix, suspicion=suspicion)


def describe_training_set(selection: Selection | None, data: LabelledData, plan: Plan) -> str:
    """Say which samples are trained on, and which classes are used although none of their samples was selected."""
    if selection is None or plan.candidates is None:
        return counted(len(plan.train), "sample")
    added = plan.train[selection.verdict[plan.train] != SELECTED]
    samples = (
        f"starting with {counted(len(plan.train) - len(added), 'selected sample')}"  # candidates or all samples follow
    )
    if not len(added):
        return samples
    names = ", ".join(repr(str(data.classes[code])) for code in np.unique(data.y[added]))
    return f"{samples} and {counted(len(added), 'sample')} of classes without any: {names}"


def check_augment(data: LabelledData, augment: str) -> None:
    """Raise InputError for an augmentation of samples that are not pictures."""
    if augment != "auto" and data.kind != "pictures":
        what = "texts" if data.kind == "text" else "rows of a table"
        raise InputError(f"--augment {augment} is for pictures, but these samples are {what}; omit it")


def choose_augment(run: RunFolder, data: LabelledData, wanted: str, trusted: IntArray, progress: Progress) -> str:
    """Return mirror, shift or none. A resumed training keeps its augmentation; else the trusted pictures decide."""
    from labelsieve.engine.augment import mirror_test

    if data.kind != "pictures":
        return "none"
    if wanted != "auto":
        return wanted
    if "augment" in (begun := run.stage_settings("train")):
        return str(begun["augment"])
    if run.stage_settings("select").get("protocol") == "paper":
        return "mirror"
    found = mirror_test(data.x, data.y, trusted)
    if not found.harms:
        return "mirror"
    progress.note(Note.of(NoteKind.TRAINING_NOT_MIRRORED, plain=100 * found.plain, mirrored=100 * found.mirrored))
    return "shift"


def trusted_samples(selection: Selection | None, data: LabelledData) -> tuple[IntArray, float | None]:
    """Return the selected samples and their expected precision; all samples if there is no selection."""
    from labelsieve.methods.incv_coteaching import training_sets

    if selection is None:
        return np.arange(len(data)), None
    return training_sets(selection.selected, selection.candidate, data.y)[0], selection.expected_precision or None


def weak_network_note(share: float, precision: float | None, augment: str) -> Note:
    """Return the note on a network that agrees with far fewer of its training labels than expected."""
    from labelsieve.engine.evaluate import what_may_help

    which = (
        "the labels" if precision is None else f"the selected labels ({100 * precision:.1f} % are expected to be right)"
    )
    remedy = what_may_help(augment, epochs="--train-epochs", network="--network")
    return Note.of(NoteKind.WEAK_NETWORK, agreement=100 * share, which=which, remedy=remedy)


# -- texts, tables and few pictures: the kind of classifier that selected, trained on trusted labels. On banking77 it
# reaches 90.2 % on the test file (benchmarks/text-speed.md). Few pictures: benchmarks/final-pictures.md.


def train_classifier(run: RunFolder, data: LabelledData, settings: TrainSettings, progress: Progress) -> str:
    """Train and write the classifier of a run; return "new", "resumed" or "done"."""
    selector = str(run.stage_settings("select").get("model"))
    name = choose_classifier(data, selector)
    recorded = {"train_method": CLASSIFIER, "network": name, "train_seed": settings.seed}
    begun = run.start("train", settings=recorded)
    if begun == "done":
        return begun
    began = time.monotonic()
    selection = read_selection(run, data)
    if selection is None:
        raise InputError(f"{run.path} has no selection; run `labelsieve select` first")
    replaced = selector != name and (selector in CLASSIFIERS or ":" in selector)
    model = f"{name} instead of {selector}" if replaced else name
    features = data.features()
    info = SampleInfo.of(features)
    with run.work("train", began):
        choice = choose_selector(info, len(data.classes), SelectorRequest(name))
        classifier, edges = choice.classifier, choice.learn_edges(features)
        if name == TEXT:  # pairs of words help to find wrong labels, not to predict (banking77, no stored page)
            classifier.set_params(tfidfvectorizer__analyzer=single_words)
        samples = TrainingSet.choose(classifier, data.y, selection)
        progress.note(Note.of(NoteKind.CLASSIFIER_STARTED, model=model, samples=str(samples)))
        refit = Refit.train(classifier, choice.rows(features, edges), data.y, samples, settings.seed)
        arrays = to_arrays(refit.model, edges)
        shape = arrays["idf"].shape if features.kind == "text" else info.shape
        encoding = encoding_of(data.x)
        if features.kind == "table" and encoding is not None and encoding.features is not None:  # texts beside numbers
            arrays |= {"idf": encoding.features.idf, "components": encoding.features.components}
        reader = SampleReader(features.kind, shape, arrays, encoding, EmbeddedSamples.of(data))
        model_file.save(run / "model.safetensors", Model(name, data.classes, reader, (), CLASSIFIER))
    return begun


def choose_classifier(data: LabelledData, selector: str) -> str:
    """Return the classifier that selected, or the automatic one if another model or a file did."""
    data = data.features()
    return selector if selector in STORABLE[data.kind] else best_classifier(SampleInfo.of(data))
