"""A folder of class folders, ROOT/class/any/depth/picture.jpg, or of splits, ROOT/train/class/any/depth/picture.jpg."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from labelsieve.data.labels import NO_CLASS, about_left_out, unique_ids
from labelsieve.data.pictures import EXTENSIONS, PictureFiles
from labelsieve.data.read_options import OTHER_SPLIT, ReadOptions, are_splits, check_no_split, choose_splits
from labelsieve.data.read_pictures import read_with_options
from labelsieve.errors import InputError
from labelsieve.progress import Progress
from labelsieve.types import LabelledData, Skipped

# Formats of cameras and programs that PIL alone does not read.
UNSUPPORTED_FORMATS = frozenset(
    (".heic", ".heif", ".avif", ".jxl", ".psd", ".svg", ".dng", ".cr2", ".cr3", ".nef", ".arw")
)
UNSUPPORTED = "unsupported format: save it as JPEG or PNG"
NOT_UTF8 = "its name is not valid UTF-8: rename it"
FOLDER_NOT_UTF8 = "a folder whose name is not valid UTF-8: rename it"
NOT_PICTURE = "not a picture file"
LINK = "symbolic link"
NOT_REGULAR = "not a regular file"


@dataclass
class Listing:
    """The files of a folder. Ids are paths relative to it."""

    classes: dict[str, str] = field(default_factory=dict)  # of the pictures in class folders
    flat: list[str] = field(default_factory=list)  # other pictures, of unlabelled data
    skipped: list[Skipped] = field(default_factory=list)
    apart: list[Skipped] = field(default_factory=list)  # pictures in no class folder, and those of other splits


def load(root: Path, options: ReadOptions, progress: Progress) -> LabelledData:
    """Read a folder whose subfolders are the classes. Unlabelled data may also be in ROOT itself."""
    folders = _folders(root)
    splits: list[str] | None = None
    if has_splits(root, folders):
        splits = choose_splits(folders, options, str(root), progress)
        folders = [name for split in splits for name in _folders(root / split)]
    else:
        check_no_split(options, str(root))
    if not folders and options.needs_labels:
        raise InputError(
            f"no labelled samples found in {root}; the folder must contain one subfolder per class with its pictures"
        )
    listing = _list(root, splits, options.needs_labels, progress)
    for above in [root] if splits is None else [root / split for split in splits]:
        for name in _hidden_with_pictures(above):
            progress.note(f"the folder {name!r} has pictures but is hidden, and is left out")
    classes = sorted(set(listing.classes.values()))
    for name in sorted(set(folders).difference(classes)):
        progress.note(f"class folder {name!r} contains no pictures and is left out")
    links = [skip for skip in listing.skipped if skip.reason == LINK]
    for reason, some in ((NO_CLASS, [skip for skip in listing.apart if skip.reason == NO_CLASS]), (LINK, links)):
        if some:
            progress.note(about_left_out(reason, [skip.id for skip in some]))
    files = [*listing.classes, *listing.flat]
    if not files:
        why = f" ({listing.skipped[0].id}: {listing.skipped[0].reason})" if listing.skipped else ""
        place = "its class folders contain" if options.needs_labels else "it contains"
        raise InputError(f"no samples found in {root}; {place} no pictures{why}")
    code = {name: at for at, name in enumerate(classes)}
    y = np.array([code[name] for name in listing.classes.values()] + [-1] * len(listing.flat), dtype=np.int64)
    data = LabelledData(
        PictureFiles(root.absolute(), files), y, tuple(classes), unique_ids(files, where=str(root)), "pictures",
        name=root.resolve().name, skipped=tuple(skip for skip in listing.skipped if skip.reason != LINK),
    )  # fmt: skip
    data = read_with_options(data, options, progress)
    return replace(data, skipped=(*data.skipped, *links, *listing.apart))


def _list(root: Path, splits: Sequence[str] | None, labelled: bool, progress: Progress) -> Listing:
    """List the files of these splits; `splits` is None if the class folders are in `root` itself."""
    listing, above = Listing(), int(splits is not None)  # number of folders above the class folders
    with progress.stage(f"listing {root.resolve().name}", unit="files") as stage:
        for id, problem in _walk(root):
            parts = id.split("/")
            depth = len(parts) - 1 - above  # of class folders
            if splits is not None and depth >= 0 and parts[0] not in splits:
                listing.apart += [Skipped(id, OTHER_SPLIT)] if problem is None else []
                continue
            if depth < labelled:  # in no class folder
                is_picture = Path(id).suffix.lower() in EXTENSIONS | UNSUPPORTED_FORMATS
                if is_picture and depth == 0:
                    listing.apart.append(Skipped(id, NO_CLASS))
                if is_picture or problem not in (LINK, FOLDER_NOT_UTF8):
                    continue  # such as a licence
            stage.advance()
            if problem is not None:
                listing.skipped.append(Skipped(id, problem))
            elif depth > 0:
                listing.classes[id] = parts[above]
            else:
                listing.flat.append(id)
    listing.skipped.sort(key=lambda skip: skip.reason == NOT_PICTURE)  # notes name the first: a licence says least
    return listing


def has_splits(root: Path, folders: Sequence[str] | None = None) -> bool:
    """Whether the first-level folders are splits: they have names of splits, and folders in them."""
    names = _folders(root) if folders is None else folders
    return are_splits(names) and all(any(map(_is_folder, _visible(root / name))) for name in names)


def list_pictures(root: Path, *, loose: bool = False) -> set[str]:
    """Return the ids of the pictures that `load` finds, with `loose` also of those outside all class folders."""
    return {id for id, problem in _walk(root) if problem is None and (loose or "/" in id)}


def _folders(folder: Path) -> list[str]:
    return sorted(entry.name for entry in _visible(folder) if _is_folder(entry) and is_utf8(entry.name))


def _hidden_with_pictures(folder: Path) -> list[str]:
    with os.scandir(folder) as entries:
        hidden = sorted(entry.name for entry in entries if entry.name.startswith(".") and _is_folder(entry))
    return [name for name in hidden if any(problem is None for _, problem in _walk(folder / name))]


def _visible(folder: Path) -> list[os.DirEntry[str]]:
    """The entries of a folder that are not hidden, without run folders and folders of them."""
    with os.scandir(folder) as entries:
        found = [entry for entry in entries if not entry.name.startswith(".")]
    return [entry for entry in found if not (_is_folder(entry) and (_is_run(entry.path) or _has_only_runs(entry.path)))]


def _is_run(folder: str) -> bool:
    return os.path.isfile(os.path.join(folder, "run.json"))  # noqa: PTH113, PTH118 - called for every folder


def _has_only_runs(folder: str) -> bool:
    found = False
    with os.scandir(folder) as entries:
        for entry in entries:
            found = _is_folder(entry) and _is_run(entry.path)
            if not found:  # the first file of a large class folder decides
                break
    return found


def _is_folder(entry: os.DirEntry[str]) -> bool:
    return entry.is_dir(follow_symlinks=False)


def is_utf8(name: str) -> bool:
    """File systems allow any bytes in a name, an id does not."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _walk(root: Path, folder: str = "") -> Iterator[tuple[str, str | None]]:
    """Yield all files relative to `root`, sorted, each with the reason why it is not a picture, None if it is one."""
    for entry in sorted(_visible(root / folder), key=lambda entry: entry.name):
        id = f"{folder}/{entry.name}" if folder else entry.name
        suffix = os.path.splitext(entry.name)[1].lower()  # noqa: PTH122 - a Path per file takes several times as long
        if not is_utf8(entry.name):
            yield id.encode("utf-8", "backslashreplace").decode(), FOLDER_NOT_UTF8 if _is_folder(entry) else NOT_UTF8
        elif entry.is_symlink():
            yield id, LINK
        elif _is_folder(entry):
            yield from _walk(root, id)
        elif not entry.is_file():
            yield id, NOT_REGULAR
        elif suffix in EXTENSIONS:
            yield id, None
        else:
            yield id, UNSUPPORTED if suffix in UNSUPPORTED_FORMATS else NOT_PICTURE
