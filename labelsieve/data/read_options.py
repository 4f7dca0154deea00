"""Options for reading a source, from the command line, from Python or from the settings of a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

from labelsieve.csv_files import csv_line, parse_names
from labelsieve.errors import InputError
from labelsieve.progress import Note, NoteKind, Progress

if TYPE_CHECKING:
    from labelsieve.data.columns import Encoding
    from labelsieve.data.decode import ShorterSide
    from labelsieve.data.labels import LabelFile
    from labelsieve.data.pictures import Size


@dataclass(frozen=True)
class ReadOptions:
    """How `load_source` reads a source.

    Parameters
    ----------
    labels
        Labels from a file. They replace the labels of the source, or change some of them.
    label_column, text_column, id_column
        Names of columns. By default the samples of a table are found by a rule (see `features.py`).
    ignore_columns
        Columns that are not features.
    group_column
        Samples with the same value in this column stay on one side of every split. It is not a feature.
    header
        Names of the columns of a table whose file has no header.
    split
        Splits to read, separated by commas, or "all". Default: see `choose_splits`.
    labelled
        If false, the samples are read for prediction: labels are optional, and no sample is skipped without need.
    allow_one_class
        Labels of a single class are accepted, because they are only compared with predictions.
    root
        The folder that relative paths in a table start from. Default: the folder of the table.
    size
        Side of the decoded images in pixels. A `ShorterSide` keeps their aspect ratio.
    cache_dir
        Decoded images are stored in this folder and reused.
    embeds_pictures
        Whether a model embeds pictures; called only if the source has some. They are decoded on demand, in a larger
        size.
    encoding
        How the columns of an earlier table were read. This table is read in the same way.
    note_spelling
        Add a note if class names look like different spellings of one class.
    """

    labels: LabelFile | None = None
    label_column: str = "label"
    text_column: str | None = None
    id_column: str = "id"
    ignore_columns: tuple[str, ...] = ()
    group_column: str | None = None
    split: str | None = None
    header: tuple[str, ...] = ()
    labelled: bool = True
    allow_one_class: bool = False
    root: Path | None = None
    size: Size | ShorterSide = None
    cache_dir: Path | None = None
    embeds_pictures: Callable[[], bool] = lambda: False
    encoding: Encoding | None = None
    note_spelling: bool = True

    @property
    def needs_labels(self) -> bool:
        """Whether the source must have labels: not for prediction, and not if a file has the labels of all samples."""
        return self.labelled and (self.labels is None or self.labels.partial)

    @property
    def for_learning(self) -> bool:
        """Whether a model learns from the samples. Others are only predicted, and can be a single row."""
        return self.labelled and not self.allow_one_class

    def for_pictures(self) -> ReadOptions:
        """The options that pictures are read with."""
        from labelsieve.data.embedding_cache import embedded_size

        return replace(self, size=embedded_size(self.size), cache_dir=None) if self.embeds_pictures() else self

    @classmethod
    def of_run(cls, settings: Mapping[str, Any], **more: Any) -> ReadOptions:
        """The options that a run was started with, from its settings in `run.json`, and `more` options."""
        text, root, ignored = (settings.get(name) for name in ("text_column", "root", "ignore_columns"))
        embedded = bool(settings.get("embed"))
        options: dict[str, Any] = {
            "label_column": str(settings.get("label_column") or "label"),
            "text_column": str(text) if text else None,
            "id_column": str(settings.get("id_column") or "id"),
            "ignore_columns": tuple(map(str, ignored)) if isinstance(ignored, list) else (),
            "group_column": settings.get("group_column"),
            "split": settings.get("split"),
            "header": tuple(map(str, settings.get("header") or ())),
            "root": Path(root) if root else None,
            "size": settings.get("size"),
            "embeds_pictures": lambda: embedded,
        }
        return cls(**options | more)

    def words(self) -> list[str]:
        """The options of the command line that differ from the defaults, as they are typed."""
        words = []
        for name in COMMAND_OPTIONS:
            if (value := getattr(self, name)) and value != getattr(DEFAULTS, name):
                words += [option(name), csv_line(value) if isinstance(value, tuple) else str(value)]
        return words


COMMAND_OPTIONS = (
    "label_column", "text_column", "id_column", "ignore_columns", "group_column", "header", "split", "root",
)  # fmt: skip
DEFAULTS = ReadOptions()


def option(name: str) -> str:
    """Return the command line's spelling of an option: `label_column` becomes `--label-column`."""
    return f"--{name.replace('_', '-')}"


def parse_source(spec: str, scheme: str, known: Sequence[str]) -> tuple[str, dict[str, str]]:
    """Split `SCHEME:WHERE?name=value&name=value`; the names must be `known`. A plus sign is not a space here."""
    where, _, query = spec.removeprefix(f"{scheme}:").partition("?")
    options = dict(parse_qsl(query.replace("+", "%2B"), keep_blank_values=True))
    unknown = ", ".join(repr(name) for name in options if name not in known)
    if unknown or not where:
        problem = f"{unknown} is not an option of this source" if unknown else "no folder given"
        form = f"{scheme}:{'NAME_OR_DIR' if scheme == 'hf' else 'DIR'}"
        more = f", with {', '.join(known)} after a ? if needed" if known else ""
        flags = "; splits, sizes and columns are set with --split, --size and --label-column" if unknown else ""
        raise InputError(f"{spec}: {problem}; write {form}{more}{flags}")
    return where, options


SPLIT_NAMES = frozenset(("train", "val", "validation", "valid", "dev", "test"))
SPLIT_COLUMN = "split"
ALL_SPLITS = "all"
OTHER_SPLIT = "in another split"


def are_splits(names: Sequence[Any]) -> bool:
    """Whether all names are names of splits."""
    return bool(names) and all(str(name).strip().casefold() in SPLIT_NAMES for name in names)


def choose_splits(present: Sequence[str], options: ReadOptions, where: str, progress: Progress) -> list[str]:
    """Return the splits to read.

    By default these are the test splits to score a model, all splits to predict, else all but the test splits.
    """
    test = [name for name in present if name.strip().casefold() == "test"]
    others = [name for name in present if name not in test]
    if options.split is not None:
        wanted = parse_names(options.split, "--split")
        unknown = [name for name in wanted if name not in present and name != ALL_SPLITS]
        if unknown:
            raise InputError(f"--split {', '.join(unknown)}: {where} has the splits {', '.join(present)}")
        used = list(present) if ALL_SPLITS in wanted else [name for name in present if name in wanted]
    elif not options.labelled:
        used = list(present)
    else:
        used = (test if options.allow_one_class else others) or list(present)
    if unused := ", ".join(name for name in present if name not in used):
        progress.note(Note.of(NoteKind.SPLITS, used=", ".join(used), unused=unused))
    return used


def check_no_split(options: ReadOptions, where: str) -> None:
    """Raise InputError if --split is given for a source without splits."""
    if options.split is not None:
        raise InputError(
            f"--split {options.split}: {where} has no splits, which are folders such as train and test with class "
            f"folders in them, or a column {SPLIT_COLUMN!r}"
        )
