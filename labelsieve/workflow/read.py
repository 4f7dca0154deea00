"""How SOURCE is read: the options that every command with one has, and what of them a run remembers."""

from __future__ import annotations

import csv
import os
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from cyclopts import Parameter

from labelsieve.errors import InputError

if TYPE_CHECKING:
    from labelsieve.progress import Progress
    from labelsieve.types import LabelledData

Options = TypeVar("Options", bound="SourceOptions")


@Parameter(name="*")
@dataclass(frozen=True)
class SourceOptions:
    """Options of the commands that read a SOURCE; what is not given is as usual, or as in a run."""

    root: Path | None = None
    """Where the relative paths in a CSV begin, where that is not beside it."""

    label_column: str | None = None
    """Name of the column with the labels, where it is not called label."""

    text_column: str | None = None
    """Name of the column with the texts, where it is not called text; the other columns are left out."""

    id_column: str | None = None
    """Name of the column with the samples' ids, where it is not called id."""

    ignore_columns: str | None = None
    """Names of columns that are no features, with commas between them; one with a comma in it stands in quotes."""

    group_column: str | None = None
    """Name of a column whose equal values mark samples that belong together (a patient, a film); it is no feature."""

    @property
    def ignored(self) -> list[str]:
        """The names in `ignore_columns`, each once, in an order that does not hang on how they were given."""
        try:
            cells = next(csv.reader([self.ignore_columns or ""], skipinitialspace=True), [])
        except csv.Error as problem:
            raise InputError(f"--ignore-columns {self.ignore_columns!r}: {problem}") from None
        return sorted({name.strip() for name in cells} - {""})

    def words(self) -> list[str]:
        """The options that were given, as one writes them."""
        given = ((f"--{field.name.replace('_', '-')}", getattr(self, field.name)) for field in fields(self))
        return [word for name, value in given if value is not None for word in (name, str(value))]

    def as_in(self: Options, settings: Mapping[str, Any]) -> Options:
        """What was not given as a run's settings have it. What its features are its model knows."""
        found: dict[str, Any] = {}
        for name in ("root", "label_column", "text_column", "id_column"):
            kept = settings.get(name)
            if getattr(self, name) is None and isinstance(kept, str) and kept:
                found[name] = Path(kept) if name == "root" else kept
        return replace(self, **found)

    def read(self, source: str, *, progress: Progress | None = None, **more: Any) -> LabelledData:
        """`load_source` with these options and `more` of `ReadOptions`; notes say which columns are features."""
        from labelsieve.data.read_options import ReadOptions
        from labelsieve.data.source import load_source

        ignored = self.ignored
        if ignored and not _has_columns(source):
            raise InputError(f"--ignore-columns is for tables, {source} has no columns: leave it out")
        options = ReadOptions(
            root=self.root, label_column=self.label_column or "label", text_column=self.text_column,
            id_column=self.id_column or "id", ignore_columns=tuple(ignored), group_column=self.group_column, **more,
        )  # fmt: skip
        data = load_source(source, options, progress=progress)
        if ignored and data.kind == "pictures":
            raise InputError(f"--ignore-columns is for features, the samples of {data.name} are pictures: leave it out")
        if options.encoding is None and progress is not None and (features := about_features(data)):
            progress.note(features, passing=True)
        return data


def _has_columns(source: str) -> bool:
    from labelsieve.data.source import TABLES, is_path

    return Path(source).suffix.lower() in TABLES if is_path(source) else source.startswith("hf:")


def about_features(data: LabelledData) -> str:
    """Which columns of a table the features are; nothing where it has none, or texts."""
    from labelsieve.data.columns import some

    encoding = getattr(data.x, "encoding", None)
    if encoding is None or encoding.text is not None:
        return ""
    return f"{data.name}: the features are {some([column.name for column in encoding.columns])}"


def check_size(data: LabelledData, size: int | None) -> None:
    """Raise InputError where --size did nothing: samples that are no pictures, or pictures that lie in an array."""
    if size is None:
        return
    if data.kind != "pictures":
        what = "texts" if data.kind == "text" else "rows of a table"
        raise InputError(f"--size {size} is for pictures, the samples of {data.name} are {what}: leave it out")
    if isinstance(data.x, np.ndarray) and data.x.shape[1:3] != (size, size):
        sides = " x ".join(map(str, data.x.shape[1:3]))
        raise InputError(
            f"--size {size} is for pictures in files, those of {data.name} lie in an array of {sides} pixels: "
            "leave it out, or resize the array"
        )


def absolute_source(source: str) -> str:
    """A file or folder by its whole path, also behind cifar10: and the like: later commands find it from anywhere."""
    from labelsieve.data.source import BUILT_IN, is_path

    if is_path(source):
        return absolute(source) if Path(source).exists() else source
    if source in BUILT_IN:
        return source
    scheme, _, rest = source.partition(":")
    folder, mark, query = rest.partition("?")
    return f"{scheme}:{absolute(folder)}{mark}{query}" if folder and Path(folder).exists() else source


def absolute(path: str | Path) -> str:
    """Links stay what they are, unlike with Path.resolve."""
    return os.path.abspath(path)  # noqa: PTH100
