"""WebVision 1.0 in its own layout (Li et al. 2017), and the validation set of ILSVRC12 for the same classes.

    DIR/info/synsets.txt                  one class per line, "n01440764 tench, Tinca tinca": line i is class i
    DIR/info/train_filelist_google.txt    "google/q0001/abc.jpg 0": a picture under DIR and its class
    DIR/info/val_filelist.txt             "val000001.jpg 0": a picture under DIR/val_images_256
    ILSVRC/val/n01440764/*.JPEG           one folder per synset; or all pictures in one folder with one of these lists:
    ILSVRC/LOC_val_solution.csv           "ILSVRC2012_val_00000001,n01751748 111 108 370 297 ..."
    ILSVRC/imagenet_2012_validation_synset_labels.txt   one synset per line, in the order of the file names

The paper trains on the first 50 classes of the Google subset (65,944 pictures) and tests on both validation sets (2,500
pictures each); a class has the same code in all three.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from labelsieve.csv_files import read_records
from labelsieve.data.decode import FILE_NOT_FOUND, SIDE, ShorterSide
from labelsieve.data.pictures import CROP, PictureFiles
from labelsieve.data.read_options import DEFAULTS, ReadOptions, parse_source
from labelsieve.data.read_pictures import read_pictures
from labelsieve.errors import InputError
from labelsieve.files import read_bytes, safe_path
from labelsieve.progress import SILENT, Progress
from labelsieve.types import LabelledData, Skipped

CLASSES = 50  # the paper uses the first 50 classes
SUBSETS = ("google", "flickr", "all")
OPTIONS = ("classes", "subset")  # of a source
VALIDATION_FOLDERS = ("val_images_256", "val_images", "val_images_resized")
LAYOUT = (
    "WebVision 1.0 has info/synsets.txt, info/train_filelist_google.txt, info/val_filelist.txt and the picture folders"
)


class Synset(NamedTuple):
    wnid: str
    name: str


def load(spec: str, reading: ReadOptions = DEFAULTS, *, progress: Progress = SILENT) -> LabelledData:
    """Read the training set `DIR?classes=50&subset=google`; everything after ? is optional.

    The size in `reading` is the shorter side; as a pair it is the window that a network reads.
    """
    reading = reading.for_pictures()
    source, options = parse_source(spec, "webvision", OPTIONS)
    size = reading.size
    side = min(size) if isinstance(size, tuple) else size
    if side is None or (isinstance(size, tuple) and side >= CROP):
        side = SIDE  # the largest window is cut from larger pictures
    data = listed_training(
        source,
        classes=_whole(options.get("classes", str(CLASSES)), "classes"),
        subset=options.get("subset", "google"),
        side=side,
    )
    return read_pictures(data, size=data.x.resize, staging=reading.cache_dir, progress=progress)


def files(spec: str) -> list[Path]:
    """Return the files that `load` reads: the lists, and the pictures in them."""
    folder, options = parse_source(spec, "webvision", OPTIONS)
    root = Path(folder)
    lists = _training_lists(root, options.get("subset", "google"))
    every = synsets(root)
    classes = min(_whole(options.get("classes", str(CLASSES)), "classes"), len(every))
    pictures = [root / name for path in lists for name, _ in _filelist(path, len(every), classes)]
    return [root / "info" / "synsets.txt", *lists, *pictures]


def _training_lists(root: Path, subset: str) -> list[Path]:
    if subset not in SUBSETS:
        raise InputError(f"subset {subset!r}: WebVision has {', '.join(SUBSETS)}")
    parts = ("google", "flickr") if subset == "all" else (subset,)
    return [root / "info" / f"train_filelist_{part}.txt" for part in parts]


def training(folder: str | Path, *, side: int = SIDE, progress: Progress = SILENT) -> LabelledData:
    """Read the training set of the paper; its pictures stay encoded files."""
    data = listed_training(folder, side=side)
    return read_pictures(data, size=data.x.resize, progress=progress)


def listed_training(
    folder: str | Path, *, classes: int = CLASSES, subset: str = "google", side: int = SIDE
) -> LabelledData:
    """Return the training pictures that exist; whether they can be read is not checked."""
    root = Path(folder)
    every = synsets(root)
    names = every[:classes]
    listed = [line for path in _training_lists(root, subset) for line in _filelist(path, len(every), len(names))]
    return _labelled("webvision", root, listed, names, side)


def validation(folder: str | Path, *, side: int = SIDE, progress: Progress = SILENT) -> LabelledData:
    """Read WebVision's validation set, which people labelled."""
    root = Path(folder)
    every = synsets(root)
    listed = _filelist(root / "info" / "val_filelist.txt", len(every), min(CLASSES, len(every)))
    inside = next((name for name in VALIDATION_FOLDERS if (root / name).is_dir()), None)
    if inside is None:
        raise InputError(f"{root}: no folder val_images_256 with the validation pictures; unpack it there")
    data = _labelled("webvision-val", root / inside, listed, every[:CLASSES], side)
    return read_pictures(data, size=data.x.resize, progress=progress)


def ilsvrc_validation(
    folder: str | Path, *, webvision: str | Path, side: int = SIDE, progress: Progress = SILENT
) -> LabelledData:
    """Read the validation pictures of ILSVRC12 that belong to WebVision's classes, found by their synsets."""
    root = Path(folder)
    if not root.is_dir():
        raise InputError(f"{root}: no such folder; give the one with ILSVRC12's validation pictures")
    names = synsets(Path(webvision))[:CLASSES]
    code = {synset.wnid: i for i, synset in enumerate(names)}
    pictures = root / "val" if (root / "val").is_dir() else root
    if any((pictures / wnid).is_dir() for wnid in code):
        found = [(f"{wnid}/{name}", i) for wnid, i in code.items() for name in _picture_names(pictures / wnid)]
    else:
        found = [(name, code[wnid]) for name, wnid in _flat_labels(root, pictures) if wnid in code]
    if not found:
        raise InputError(f"{pictures}: no pictures of the synsets {names[0].wnid} to {names[-1].wnid}")
    data = _labelled("ilsvrc12-val", pictures, found, names, side)
    return read_pictures(data, size=data.x.resize, progress=progress)


def synsets(root: Path) -> list[Synset]:
    """Return all classes in the order of their codes."""
    if not root.is_dir():
        raise InputError(f"{root}: no such folder; {LAYOUT}")
    lines = _lines(root / "info" / "synsets.txt")
    if not lines:
        raise InputError(f"{root / 'info' / 'synsets.txt'}: empty; one class per line is expected")
    found = []
    for number, line in enumerate(lines, 1):
        wnid, _, name = line.partition(" ")
        if not (wnid.startswith("n") and wnid[1:].isdigit()):
            raise InputError(
                f"{root / 'info' / 'synsets.txt'}:{number}: {line[:40]!r} must begin with a synset such as n01440764"
            )
        found.append(Synset(wnid, name.strip() or wnid))
    return found


def class_names(names: Sequence[Synset]) -> tuple[str, ...]:
    """Return the names of classes, with the synset if two share a name (crane, the bird and the machine)."""
    times = Counter(synset.name for synset in names)
    return tuple(s.name if times[s.name] == 1 else f"{s.name} ({s.wnid})" for s in names)


# -- files ---------------------------------------------------------------------------------------------------------


def _whole(text: str, what: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise InputError(f"{what}={text}: must be a whole number of at least 1")
    return int(text)


def _lines(path: Path) -> list[str]:
    try:
        return read_bytes(path).decode("utf-8", "replace").splitlines()
    except OSError as problem:
        raise InputError(f"{path}: {problem.strerror or problem}; {LAYOUT}") from problem


def _filelist(path: Path, known: int, classes: int) -> list[tuple[str, int]]:
    """Return names and codes of the pictures in the first `classes` classes."""
    found = []
    for number, line in enumerate(_lines(path), 1):
        if not line.strip():
            continue
        name, _, label = line.rpartition(" ")
        if not name or not label.strip().isdecimal():
            raise InputError(f"{path}:{number}: {line[:60]!r} is not 'picture class', such as 'google/q0001/a.jpg 0'")
        code = int(label)
        if code >= known:
            raise InputError(f"{path}:{number}: class {code}, but info/synsets.txt names {known}, 0 to {known - 1}")
        if code < classes:
            found.append((name.strip(), code))
    if not found:
        raise InputError(f"{path}: no pictures of the first {classes} classes")
    return found


def _labelled(
    name: str, root: Path, listed: Sequence[tuple[str, int]], names: Sequence[Synset], side: int
) -> LabelledData:
    """Return the listed pictures that exist; missing ones and links are skipped."""
    root = root.absolute()  # processes with another working directory read them too

    @cache  # a list names millions of files in a few folders
    def is_inside(folder: str) -> bool:
        return safe_path(root, folder) is not None

    def problem(file: str) -> str | None:
        path = root / file
        try:
            if not is_inside(str(path.parent)) or path.is_symlink():
                return "a link, or outside the data set's folder"
            return None if path.is_file() else FILE_NOT_FOUND
        except OSError as error:  # a name that is too long, a folder without permission
            return error.strerror or str(error)

    problems = [problem(file) for file, _ in listed]
    exist = [line for line, text in zip(listed, problems, strict=True) if text is None]
    skipped = tuple(Skipped(file, text) for (file, _), text in zip(listed, problems, strict=True) if text is not None)
    if not exist:
        raise InputError(f"{root / skipped[0].id}: none of the {len(listed)} listed pictures exists; {LAYOUT}")
    files = [file for file, _ in exist]
    return LabelledData(
        PictureFiles(root, files, ShorterSide(side)), np.array([code for _, code in exist], dtype=np.int64),
        class_names(names), np.array(files, dtype=np.str_), "pictures", name=name, skipped=skipped,
    )  # fmt: skip


def _picture_names(folder: Path) -> list[str]:
    """Return the pictures of a folder, sorted by name."""
    if not folder.is_dir():
        return []
    return sorted(
        n for n in (entry.name for entry in folder.iterdir()) if n.lower().endswith((".jpeg", ".jpg", ".png"))
    )


def _flat_labels(root: Path, pictures: Path) -> list[tuple[str, str]]:
    """Return (picture, synset) of pictures that are all in one folder."""
    names = _picture_names(pictures)
    table = next((p / "LOC_val_solution.csv" for p in (root, pictures) if (p / "LOC_val_solution.csv").exists()), None)
    if table is not None:
        rows = read_records(table)
        if not rows or not {"ImageId", "PredictionString"} <= rows[0].keys():
            raise InputError(f"{table}: the columns ImageId and PredictionString are expected")
        wnid = {row["ImageId"]: row["PredictionString"].split()[0] for row in rows if row["PredictionString"]}
        return [(name, wnid[Path(name).stem]) for name in names if Path(name).stem in wnid]
    listed = root / "imagenet_2012_validation_synset_labels.txt"
    if listed.exists():
        labels = _lines(listed)
        if len(labels) != len(names):
            raise InputError(f"{listed}: {len(labels)} labels for {len(names)} pictures in {pictures}")
        return list(zip(names, labels, strict=True))
    raise InputError(
        f"{pictures}: neither synset folders such as n01440764 nor LOC_val_solution.csv nor "
        "imagenet_2012_validation_synset_labels.txt; ILSVRC12's validation set comes in one of these forms"
    )
