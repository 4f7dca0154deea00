"""The training stage for texts and tables: train the kind of classifier that selected on trusted labels.

On banking77 it reaches 90.2 % on the test file (benchmarks/text-speed.md); small tables were not measured.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np

from labelsieve import stopping
from labelsieve.data.columns import encoding_of
from labelsieve.data.text import single_words
from labelsieve.errors import InputError
from labelsieve.models.choose import TEXT, SampleInfo, SelectorRequest, choose_selector
from labelsieve.models.stored_classifier import STORABLE, to_arrays
from labelsieve.progress import Note, NoteKind
from labelsieve.selection.refit import Refit, trusted_samples
from labelsieve.types import FloatArray, LabelledData
from labelsieve.workflow import model_file
from labelsieve.workflow.model_file import EmbeddedSamples, Model, SampleReader
from labelsieve.workflow.settings import CLASSIFIER, TrainSettings

if TYPE_CHECKING:
    from labelsieve.progress import Progress
    from labelsieve.runfolder import RunFolder


def train_classifier(run: RunFolder, data: LabelledData, settings: TrainSettings, progress: Progress) -> str:
    """Train and write the classifier of a run; return "new", "resumed" or "done"."""
    stages = run.record().get("stages", {})
    name = choose_classifier(data, str(stages.get("select", {}).get("settings", {}).get("model")))
    recorded = {"train_method": CLASSIFIER, "network": name, "train_seed": settings.seed}
    begun = run.start("train", settings=recorded)
    if begun == "done":
        return begun
    began = time.monotonic()
    suspicion = read_suspicion(run, data)
    used = len(trusted_samples(suspicion, data.y))
    progress.note(Note.of(NoteKind.CLASSIFIER_STARTED, model=name, samples=used))
    features = data.features()
    x = np.asarray(features.x)
    with stopping.safe_points():
        request = SelectorRequest(name)
        classifier = choose_selector(SampleInfo.of(features), len(data.classes), request).classifier
        if name == TEXT:  # pairs of words help to find wrong labels, not to predict (banking77, no stored page)
            classifier.set_params(tfidfvectorizer__analyzer=single_words)
        refit = Refit.train(classifier, x, data.y, suspicion, settings.seed)
        arrays = to_arrays(name, refit.model)
        shape = arrays["idf"].shape if features.kind == "text" else x.shape[1:]
        encoding = encoding_of(data.x)
        if features.kind == "table" and encoding is not None and encoding.features is not None:  # texts beside numbers
            arrays |= {"idf": encoding.features.idf, "components": encoding.features.components}
        reader = SampleReader(features.kind, shape, arrays, encoding, EmbeddedSamples.of(data))
        model_file.save(run / "model.safetensors", Model(name, data.classes, reader, (), CLASSIFIER))
        run.finish("train", seconds=round(time.monotonic() - began, 3))
        if stopping.requested():
            raise stopping.reason()
    return begun


def choose_classifier(data: LabelledData, selector: str) -> str:
    """Return the classifier that selected, or the automatic one if another model or a file did."""
    data = data.features()
    if data.kind == "pictures":
        raise InputError("--method classifier is for texts and tables, but these samples are pictures; omit it")
    if selector in STORABLE:
        return selector
    return choose_selector(SampleInfo.of(data), len(data.classes), SelectorRequest("auto")).name


def read_suspicion(run: RunFolder, data: LabelledData) -> FloatArray:
    """Return the suspicion of each label of the run."""
    if not (run / "labels.csv").is_file():
        raise InputError(f"{run.path} has no selection; run `labelsieve select` first")
    columns = run.columns()
    if columns.ids.to_pylist() != data.ids.tolist():
        raise InputError(f"{run.path}/labels.csv has other samples than the source has now; select again")
    return columns.suspicion
