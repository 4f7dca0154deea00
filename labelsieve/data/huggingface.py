"""Hugging Face datasets, by name or from a folder: `hf:NAME_OR_DIR?config=NAME`."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Lock
from typing import Any, BinaryIO

import numpy as np

from labelsieve.data.columns import Origin, did_you_mean
from labelsieve.data.decode import Resize
from labelsieve.data.features import read_features
from labelsieve.data.labels import leave_out_unusable, read_labels, unique_ids, unlabelled
from labelsieve.data.pictures import PAPER_SIZE, EncodedPictures, stamp
from labelsieve.data.read_options import DEFAULTS, ReadOptions, check_no_split, choose_splits, parse_source
from labelsieve.data.read_pictures import read_with_options
from labelsieve.data.table import NOT_FEATURES
from labelsieve.data.table_file import in_any_case
from labelsieve.errors import InputError, MissingColumnError, first_line, hub_unreachable
from labelsieve.files import check_entries, content_folders, open_file, read_text
from labelsieve.progress import Progress
from labelsieve.types import IntArray, LabelledData

OPTIONS = ("config",)
ANSWER_SECONDS = 10.0  # for the description of a data set: a hub that can be reached answers within a second
# Files that can name other files: those of a saved data set are in its folder and in those of its splits.
CARDS, SAVED = ("README.md", ".huggingface.yaml"), ("state.json", "dataset_dict.json")
FILE_KEYS = ("data_files", "data_dir", "_data_files", "splits")
# Archives and compressed files, which pandas unpacks by their names.
PACKED = (".zip", ".gz", ".bz2", ".xz", ".zst", ".lz4", ".7z", ".rar", ".tar", ".tgz")
REPLACING = Lock()  # of functions of `datasets`


def load(spec: str, reading: ReadOptions, progress: Progress) -> LabelledData:
    """Read the labels (of `label` or the only ClassLabel column) and an Image column, texts or feature columns."""
    id_column = reading.id_column
    where, options = parse_source(spec, "hf", OPTIONS)
    rows = _open(where, options, reading, progress)
    if len(rows) == 0:
        raise InputError(f"{spec} contains no samples")
    origin = Origin(spec, progress.note)
    y, classes, label = _labels(rows, reading, origin)
    if id_column != "id" and id_column not in rows.column_names:
        columns = ", ".join(rows.column_names)
        raise MissingColumnError(f"{spec} has no column {id_column!r}: its columns are {columns}", (id_column,))
    features = [name for name in rows.column_names if name not in (label, id_column, *NOT_FEATURES)]
    kinds = {name: type(rows.features[name]).__name__ for name in features}
    ids = unique_ids(rows[id_column] if id_column in rows.column_names else range(len(rows)), where=spec)
    name = Path(where).name
    pictures = [feature for feature, kind in kinds.items() if kind == "Image"]
    if pictures and reading.text_column is None:
        data = LabelledData(DatasetPictures.of(rows, pictures[0], Path(where)), y, classes, ids, "pictures", name=name)
        data = read_with_options(data, reading, progress)
        kept = data.ids  # without those of unreadable pictures
        origin = replace(origin, place=lambda row: f"id {kept[row]}")
    else:
        plain = [feature for feature, kind in kinds.items() if kind == "Value"]
        if not plain:
            raise InputError(f"{spec} has no pictures, no column text and no feature columns besides {label!r}")
        x, kind = read_features(rows.with_format("arrow").select_columns(plain)[:], reading, origin)
        data = LabelledData(x=x, y=y, classes=classes, ids=ids, kind=kind, name=name)
    return leave_out_unusable(data, origin, labels=reading.needs_labels, texts=reading.labelled)


def _open(where: str, options: dict[str, str], reading: ReadOptions, progress: Progress) -> Any:
    # Loading data must not report to anyone.
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    try:
        import datasets
    except ImportError:
        raise InputError("hf: sources need the extra: pip install 'labelsieve[hf]'") from None

    folder = Path(where)
    check_folder(folder, f"hf:{where}")
    saved = folder.is_dir() and any((folder / name).exists() for name in SAVED)
    try:
        if saved:
            loaded = datasets.load_from_disk(where)
        else:
            remote = nullcontext() if datasets.config.HF_HUB_OFFLINE else _offline_if_unreachable(where)
            with _without_unpacking() if folder.is_dir() else remote:
                loaded = datasets.load_dataset(where, options.get("config"))
    except ConnectionError:
        raise hub_unreachable(f"hf:{where}", "data set", "hf:FOLDER") from None
    except Exception as error:  # no such name, a damaged file
        raise InputError(f"cannot load hf:{where}: {first_line(error)}") from None
    if not isinstance(loaded, datasets.DatasetDict):
        check_no_split(reading, f"hf:{where}")
        return loaded
    split = reading.split or ("train" if "train" in loaded else next(iter(loaded)))
    used = choose_splits(list(loaded), replace(reading, split=split), f"hf:{where}", progress)
    return datasets.concatenate_datasets([loaded[name] for name in used])


@contextmanager
def _offline_if_unreachable(name: str) -> Iterator[None]:
    """Read a data set from the cache of `datasets` if the hub does not answer.

    `datasets` would do the same, but try for half a minute and log every attempt.
    """
    import datasets
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    try:
        HfApi().dataset_info(name, timeout=ANSWER_SECONDS)
    except (HfHubHTTPError, HFValidationError):  # there is an answer, or the name is wrong: `datasets` describes it
        pass
    except Exception:  # errors of the HTTP library, whose name depends on the version
        datasets.config.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        datasets.config.HF_HUB_OFFLINE = False


def check_folder(folder: Path, where: str) -> None:
    """Raise InputError if the folder of a data set has special files, archives, or references to other folders.

    References are links and the file names in README.md and state.json.
    """
    paths = check_entries(folder, where, _homes(folder))
    for path in paths:
        if path.is_file() and path.name.lower().endswith(PACKED):
            raise InputError(f"{where}: {path.name} is packed: unpack it, or move it out of the folder")
    cards = [folder / name for name in CARDS if (folder / name).is_file()]
    for path in (*cards, *(path for path in paths if path.name in SAVED)):
        if (named := _outside(_description(path, where))) is not None:
            raise InputError(f"{where}: {path.name} names {named[:200]!r}, which is not below the folder")


@contextmanager
def _without_unpacking() -> Iterator[None]:
    """Read files as they are: `datasets` would unpack archives, whatever their names are, without a limit."""
    from datasets import DownloadManager
    from datasets.utils import file_utils

    def refuse(self: Any, path: str) -> Any:
        raise InputError(f"{Path(path).name} is an archive: unpack it, or move it out of the folder")

    with REPLACING:  # another thread would restore too early, or restore what this one replaced
        extract, archive, find_format = (
            DownloadManager.extract, DownloadManager.iter_archive, file_utils._get_extraction_protocol
        )  # fmt: skip
        DownloadManager.extract = lambda self, path_or_paths: path_or_paths
        DownloadManager.iter_archive = refuse  # tar archives, also with a name such as t.tar.x
        file_utils._get_extraction_protocol = lambda *_, **__: None  # CSV files are unpacked while they are read
        try:
            yield
        finally:
            DownloadManager.extract, DownloadManager.iter_archive = extract, archive
            file_utils._get_extraction_protocol = find_format


def _homes(folder: Path) -> tuple[Path, ...]:
    """Return the folders whose files a data set may read: archives are unpacked in the cache."""
    import datasets

    return *content_folders(folder), Path(datasets.config.HF_CACHE_HOME)


def _description(path: Path, where: str) -> Any:
    """Return the content of a description as `datasets` reads it; README.md starts with a block of YAML."""
    import yaml  # type: ignore[import-untyped]
    from huggingface_hub.repocard import REGEX_YAML_BLOCK

    try:
        text = read_text(path).removeprefix("\ufeff")
        if path.suffix == ".json":
            return json.loads(text)
        if path.suffix == ".md":
            block = REGEX_YAML_BLOCK.search(text)
            text = block[2] if block else ""
        return yaml.safe_load(text)
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as problem:
        reason = " ".join(str(problem).split())[:200]
        raise InputError(f"{where}: {path.name} is damaged ({reason})") from None


def _outside(description: Any) -> str | None:
    """Return a file name in a description that leads outside the folder."""
    waiting, seen = [(description, False)], set()  # YAML can repeat a value without end
    while waiting:
        content, is_file = waiting.pop()
        if isinstance(content, str) and content and is_file:
            steps = content.replace("\\", "/").split("/")
            if ":" in content or ".." in steps or steps[0] in ("", "~"):
                return content
        elif isinstance(content, dict | list) and (id(content), is_file) not in seen:
            seen.add((id(content), is_file))
            entries = content.items() if isinstance(content, dict) else ((None, value) for value in content)
            waiting += [(value, is_file or key in FILE_KEYS) for key, value in entries]
    return None


def _labels(rows: Any, reading: ReadOptions, origin: Origin) -> tuple[IntArray, tuple[Any, ...], str | None]:
    """Return codes, -1 for a missing label, the classes, and the column of the labels."""
    names = rows.column_names
    typed = [name for name in names if type(rows.features[name]).__name__ == "ClassLabel"]
    label = in_any_case(reading.label_column, names)
    if label == DEFAULTS.label_column and label not in names and len(typed) == 1:
        label = typed[0]
    if label not in names:
        if reading.needs_labels:
            columns = ", ".join(names)
            message = (
                f"{origin.where} has no column {label!r}{did_you_mean(label, names)}: choose one of {columns} with "
                "--label-column"
            )
            raise MissingColumnError(message, (label,))
        return *unlabelled(len(rows)), None
    values = rows.with_format(None)[label][:]
    if label in typed:
        values = [None if value is None or value < 0 else value for value in values]
    found = read_labels(values, replace(origin, where=f"{origin.where}: {label}"), required=reading.needs_labels)
    if label in typed and found.classes:  # a class that has no samples keeps its code
        codes = np.array([-1 if value is None else value for value in values], dtype=np.int64)
        return codes, tuple(rows.features[label].names), label
    return found.codes, found.classes, label


@dataclass(frozen=True)
class DatasetPictures(EncodedPictures):
    """The Image column of a data set. Threads decode it: its rows may be in memory."""

    rows: Any
    column: str
    folder: Path
    fingerprint: str
    index: IntArray
    resize: Resize = PAPER_SIZE
    unreadable: dict[int, str] = field(default_factory=dict, compare=False)

    @classmethod
    def of(cls, rows: Any, column: str, folder: Path) -> DatasetPictures:
        import datasets

        encoded = rows.cast_column(column, datasets.Image(decode=False))
        return cls(encoded, column, folder, rows._fingerprint, np.arange(len(rows)))

    def __len__(self) -> int:
        return len(self.index)

    def subset(self, index: IntArray) -> DatasetPictures:
        return replace(self, index=self.index[index], unreadable=self._subset_unreadable(index))

    def resized(self, resize: Resize) -> DatasetPictures:
        return replace(self, resize=resize, unreadable={})

    def describe(self, i: int) -> str:
        return f"row {self.index[i]}"

    def open(self, i: int) -> BinaryIO:
        cell = self.rows[int(self.index[i])][self.column]
        if cell is None:
            raise InputError("there is no picture in this row")
        if cell.get("bytes"):
            return io.BytesIO(cell["bytes"])
        # A row may name any file: only those of the data set are opened.
        file = Path(os.path.realpath(str(cell["path"])))
        if any(file.is_relative_to(home.resolve()) for home in _homes(self.folder)):
            return open_file(file)
        raise InputError("a path that leads outside the folder of the data set")

    def version(self) -> str:
        """Return the fingerprint of the rows and the times of the files, which may change without it."""
        return f"{self.fingerprint} {[stamp(file) for file in _files(self.folder)]}"


def files(spec: str) -> list[Path]:
    """Return the files that are read; none if the data set is given by its name."""
    return _files(Path(spec.removeprefix("hf:").partition("?")[0]))


def _files(folder: Path) -> list[Path]:
    """Return the files of a data set without the cached results that programs write there."""
    if not folder.is_dir():
        return []
    return sorted(path for path in folder.rglob("*") if path.is_file() and not path.name.startswith((".", "cache-")))
