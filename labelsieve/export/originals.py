"""The files of a source, exported or not, dropped or skipped. An export never writes over them or into them."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from labelsieve.data.source import TABLES, is_path
from labelsieve.errors import InputError
from labelsieve.report.source_table import SourceTable, find_source
from labelsieve.runfolder import RunFolder


@dataclass(frozen=True)
class Originals:
    """Resolved paths of a source."""

    folders: tuple[Path, ...]  # everything in them belongs to the source
    files: frozenset[str]
    run: Path

    @classmethod
    def of(cls, run: RunFolder) -> Originals:
        record = run.record()
        settings, data = record.get("settings") or {}, record.get("data") or {}
        source = str(data.get("source") or "")
        path = find_source(run, source)
        folders: list[Path] = []
        files: list[str] = [str(settings["labels"])] if settings.get("labels") else []
        if path is not None and path.is_dir():
            folders.append(path)
        elif path is not None:
            files += [str(path), *(_listed(path, settings) if data.get("kind") == "pictures" else ())]
        elif source and not is_path(source):
            folder = source.partition(":")[2].partition("?")[0]  # empty for embedded data
            folders += [Path(folder)] if folder and Path(folder).is_dir() else []
        return cls(tuple(folder.resolve() for folder in folders), frozenset(_resolved(files)), run.path.resolve())

    def check(self, target: Path) -> None:
        """Raise InputError if `target` is an original, or a folder that has some in it or is one of theirs."""
        place = target.resolve()
        inside = any(place.is_relative_to(folder) or folder.is_relative_to(place) for folder in self.folders)
        prefix = f"{place}{os.sep}"
        if inside or str(place) in self.files or any(file.startswith(prefix) for file in self.files):
            raise InputError(f"{target} belongs to the source, which is never changed: give another --to")
        if self.run.is_relative_to(place) or (place.parent == self.run and os.path.lexists(place)):
            raise InputError(f"{target} belongs to the run: give another --to")


def _listed(path: Path, settings: dict[str, object]) -> list[str]:
    """The files that a table of pictures names, whether or not the run used them."""
    if path.suffix.lower() not in TABLES:
        return []
    try:
        table = SourceTable.read(path, settings)
    except InputError:  # then no pictures can be exported either
        return []
    if "path" not in table.names:
        return []
    names = table.table.column("path").to_pylist()
    return [os.path.join(table.root, str(name)) for name in names if name is not None]  # noqa: PTH118


def _resolved(files: Iterable[str]) -> Iterable[str]:
    """Real paths. The folders of many files are resolved once; links also count under their own name."""
    folders: dict[str, str] = {}
    for file in files:
        folder, name = os.path.split(file)
        if folder not in folders:
            folders[folder] = os.path.realpath(folder)
        place = os.path.normpath(os.path.join(folders[folder], name))  # noqa: PTH118
        yield place
        if os.path.islink(place):  # noqa: PTH114
            yield os.path.realpath(place)
