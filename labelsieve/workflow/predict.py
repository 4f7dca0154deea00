"""Predict new samples with the network of a run."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from labelsieve.csv_files import read_arrow
from labelsieve.data.columns import Encoding
from labelsieve.data.embedding_cache import embedded_size
from labelsieve.errors import InputError, MissingColumnError
from labelsieve.execute.embed_samples import with_embedding
from labelsieve.frames import installed_frame
from labelsieve.progress import Note, NoteKind, Progress
from labelsieve.runfolder import RunFolder
from labelsieve.types import FloatArray, LabelledData
from labelsieve.workflow.read import read_samples
from labelsieve.workflow.settings import SourceSettings

if TYPE_CHECKING:
    from labelsieve.workflow.model_file import Model


@dataclass(frozen=True)
class Accuracy:
    """How far predictions agree with labels, some of which may be of classes that the model does not know."""

    accuracy: float
    accuracy_known: float | None  # over the labels of known classes; None if there are none
    unknown_labels: dict[str, int]  # classes that the model does not know, the most frequent first
    spelled_otherwise: dict[str, str]  # those of them that differ from a known class in case or punctuation only


@dataclass(frozen=True)
class Predictions:
    """The predictions of a model for the samples of a source."""

    data: LabelledData = field(repr=False)
    classes: tuple[str, ...]
    probabilities: FloatArray = field(repr=False)  # [n, classes]
    accuracy: Accuracy | None = None  # if the source has labels to compare with
    notes: tuple[Any, ...] = ()

    @property
    def predicted(self) -> list[str]:
        """The most likely class of each sample."""
        return [self.classes[code] for code in self.probabilities.argmax(axis=1)]

    def rows(self, *, all_classes: bool = False) -> list[list[str]]:
        """Return the table that `labelsieve predict` writes, with its header."""
        rows = [["id", "predicted", "probability", *(self.classes if all_classes else ())]]
        for id, name, row in zip(self.data.ids.tolist(), self.predicted, self.probabilities, strict=True):
            rows.append([id, name, f"{row.max():.6g}", *(f"{p:.6g}" for p in row if all_classes)])
        return rows


@dataclass(frozen=True)
class PredictionInput:
    """The model of a run, and the samples of a source that were read for it."""

    run: Path
    model: Model
    data: LabelledData
    score: bool
    embed: str | None

    def predict(self, progress: Progress, device: str = "auto") -> Predictions:
        """Predict the samples, and compare the predictions with their labels if the input has a score."""
        model, data, embedded = self.model, self.data, self.model.reader.embedded
        with tempfile.TemporaryDirectory(prefix="labelsieve-") as scratch:
            features = data
            if embedded is not None:
                name = self.embed or embedded.name
                found = with_embedding(data, name, Path(scratch), device, progress, share=False)
                if found.embedding.model.revision != embedded.revision:
                    raise InputError(f"--embed {name} changed since the network of {self.run} was trained; train again")
                features = found.features()
            probabilities = model.probabilities(features, device=device)
        classes = tuple(map(str, model.classes))
        predictions = Predictions(data, classes, probabilities, notes=data.notes)
        if not self.score:
            return predictions
        labels = [str(data.classes[code]) for code in data.y.tolist()]
        return replace(predictions, accuracy=compare(labels, predictions.predicted, classes))


def predict_source(
    run: Path, source: str, settings: SourceSettings, *, progress: Progress, score: bool = False,
    embed: str | None = None,
) -> Predictions:  # fmt: skip
    """Predict the samples of a source; the parameters are those of `read_to_predict`."""
    return read_to_predict(run, source, settings, progress=progress, score=score, embed=embed).predict(progress)


def read_to_predict(
    run: Path, source: str, settings: SourceSettings, *, progress: Progress, network: str | None = None,
    score: bool = False, embed: str | None = None,
) -> PredictionInput:  # fmt: skip
    """Load the model of a run, and read the samples of a source for it.

    `score` compares the predictions with the labels of the source. `embed` is the pretrained model, if it is elsewhere
    than in the run or if it is a function, which is only imported if it is named here.
    """
    from labelsieve.workflow import model_file

    folder = RunFolder.existing(run)
    model = model_file.load(folder / "model.safetensors", network=network)
    embedded = model.reader.embedded
    if embedded is None and embed is not None:
        raise InputError(f"--embed {embed}: the network of {run} does not read embeddings; omit it")
    if embedded is not None and embed is None and ":" in embedded.name:
        raise InputError(f"{run} needs the code of {embedded.name!r}; if you trust it, give --embed {embedded.name}")
    data = _read_as_in_run(source, settings, folder.record().get("settings", {}), model, progress, score)
    return PredictionInput(run, model, data, score, embed)


def _read_as_in_run(
    source: str, settings: SourceSettings, recorded: dict[str, Any], model: Model, progress: Progress, score: bool
) -> LabelledData:
    """Read a source as the run read its own. If the run's column of ids is missing, a note says so."""
    reader = model.reader
    size: Any = reader.shape[1:] if reader.kind == "pictures" else None
    if reader.embedded is not None and reader.embedded.kind == "pictures":
        size = embedded_size(reader.embedded.side)
    options: dict[str, Any] = {
        "labelled": score,
        "allow_one_class": score,
        "size": size,
        "encoding": _with_text_column(reader.encoding, settings.text_column),
        "progress": progress,
    }
    wanted = settings.as_in_run(recorded)
    try:
        return read_samples(source, wanted, **options)
    except MissingColumnError as problem:
        if settings.id_column is not None or wanted.id_column not in problem.columns:
            raise
    data = read_samples(source, replace(wanted, id_column=None), **options)
    note = Note.of(NoteKind.IDS_CHANGED, source=source, column=wanted.id_column, first=str(data.ids[0]))
    progress.note(note)
    return replace(data, notes=(*data.notes, str(note)))


def _with_text_column(encoding: Encoding | None, text_column: str | None) -> Encoding | None:
    """Return how the run read its columns, with another name for the column of texts if one is given."""
    if encoding is None or encoding.text is None or text_column is None:
        return encoding
    columns = (replace(column, name=text_column) if column.form == "text" else column for column in encoding.columns)
    return replace(encoding, columns=tuple(columns))


def compare(labels: Sequence[str], predicted: Sequence[str], classes: Sequence[str]) -> Accuracy:
    """Compare predictions with labels; labels of unknown classes count as wrong."""
    from labelsieve import metrics
    from labelsieve.data.label_notes import fold_name

    known = [(label, guess) for label, guess in zip(labels, predicted, strict=True) if label in set(classes)]
    unknown = dict(Counter(label for label in labels if label not in set(classes)).most_common())
    alike = {fold_name(name): name for name in classes}
    return Accuracy(
        metrics.accuracy(labels, predicted),
        metrics.accuracy(*zip(*known, strict=True)) if known else None,
        unknown,
        {name: alike[fold_name(name)] for name in unknown if fold_name(name) in alike},
    )


def read_frame(path: Path) -> Any:
    """Read labels.csv as a pandas data frame, a polars data frame or an arrow table, whichever is installed."""
    import pyarrow as pa

    text = ("id", "label", "predicted", "verdict", "suggested")
    types = dict.fromkeys(text, pa.string()) | dict.fromkeys(("probability", "loss", "suspicion"), pa.float64())
    table = read_arrow(path, types=types | {"iteration": pa.int64()})
    return installed_frame(table)
