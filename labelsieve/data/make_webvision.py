"""A small folder in WebVision 1.0's layout, with generated pictures and planted wrong labels.

    DIR/info/..., DIR/google/q0001/..., DIR/val_images_256/...      as `webvision.py` reads them
    DIR/ilsvrc12/val/n01440764/ILSVRC2012_val_00000001.JPEG         a validation set like ILSVRC12's
    DIR/planted_truth.csv                                           id, label, true: for metrics and tests alone

The pictures of WebVision are not freely available; with these the whole of the paper's table 2 can be run. A class is a
shape in a colour; place, size, angle, background, light, noise and the picture's own shape vary.
"""

from __future__ import annotations

import colorsys
import math
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from labelsieve.csv_files import write_csv
from labelsieve.data.decode import Pixels
from labelsieve.errors import Problems
from labelsieve.files import check_free

# The first fifty of ILSVRC12, which are those of WebVision.
SYNSETS = (Path(__file__).parent / "synsets.txt").read_text(encoding="utf-8").splitlines()

# Number of tips of a star, and the share of its radius to which it goes back between two tips.
SHAPES = ((32, 1.0), (3, 0.5), (4, 0.2), (2, 0.35), (4, 0.7), (5, 0.45), (3, 0.15), (8, 0.5), (5, 0.8), (16, 0.7))


@dataclass(frozen=True)
class GeneratedFolder:
    """What the folder contains. The fields are the options of the command.

    Parameters
    ----------
    classes
        Number of classes.
    train
        Training pictures per class.
    validation
        Validation pictures per class.
    wrong
        Proportion of wrong training labels.
    side
        Shorter side of the pictures in pixels.
    corrupt
        Number of training files that are truncated.
    """

    classes: int = 10
    train: int = 40
    validation: int = 10
    wrong: float = 0.2
    side: int = 256
    corrupt: int = 0


def make(to: str | Path, *, seed: int = 0, **options: Any) -> dict[str, Any]:
    """Write the folder and return its numbers; `options` are the fields of `GeneratedFolder`."""
    folder = Path(to)
    classes, train, validation, wrong, side, corrupt = astuple(GeneratedFolder(**options))
    problems = Problems()
    problems.check(2 <= classes <= len(SYNSETS), f"classes {classes}: 2 to {len(SYNSETS)} are possible")
    problems.check(train >= 1, f"train {train}: at least one picture per class")
    problems.check(validation >= 1, f"validation {validation}: at least one picture per class")
    problems.check(side >= 16, f"side {side}: at least 16 pixels")
    most = max(0, classes * train)
    problems.check(0 <= corrupt <= most, f"corrupt {corrupt}: must be between 0 and the number of training pictures")
    problems.check(0 <= wrong < 1, f"wrong {wrong}: must be between 0 and 1")
    problems.stop_if_any()
    check_free(folder, "--to")
    rng = np.random.default_rng(seed)
    names = SYNSETS[:classes]
    true = rng.permutation(np.repeat(np.arange(classes), train))
    given = true.copy()
    planted = rng.choice(len(true), size=round(wrong * len(true)), replace=False)
    given[planted] = (true[planted] + rng.integers(1, classes, size=len(planted))) % classes

    (folder / "info").mkdir(parents=True)
    (folder / "info" / "synsets.txt").write_text("\n".join(names) + "\n")
    files = []
    for number, (label, shown) in enumerate(zip(given.tolist(), true.tolist(), strict=True)):
        # a wrong label in WebVision is a picture that the search for another concept returned
        name = f"google/q{label + 1:04d}/drawn{number:06d}.jpg"
        _save(draw(shown, rng, side=side), folder / name)
        files.append(name)
    _write_list(folder / "info" / "train_filelist_google.txt", files, given.tolist())
    for name in rng.choice(files, size=corrupt, replace=False).tolist():
        data = (folder / name).read_bytes()
        (folder / name).write_bytes(data[: len(data) // 3])

    codes = rng.permutation(np.repeat(np.arange(classes), validation)).tolist()
    shown_names = [f"val{number:06d}.jpg" for number in range(1, len(codes) + 1)]
    for name, code in zip(shown_names, codes, strict=True):
        _save(draw(code, rng, side=side), folder / "val_images_256" / name)
    _write_list(folder / "info" / "val_filelist.txt", shown_names, codes)
    for number, code in enumerate(rng.permutation(codes).tolist(), 1):
        inside = folder / "ilsvrc12" / "val" / names[code].split()[0]
        _save(draw(code, rng, side=side), inside / f"ILSVRC2012_val_{number:08d}.JPEG")

    concepts = [name.partition(" ")[2] for name in names]
    rows = zip(files, given.tolist(), true.tolist(), strict=True)
    planted_truth = ((name, concepts[label], concepts[shown]) for name, label, shown in rows)
    write_csv(folder / "planted_truth.csv", ("id", "label", "true"), planted_truth)
    return {
        "folder": str(folder),
        "classes": classes,
        "train": len(true),
        "validation": len(codes),
        "ilsvrc": len(codes),
        "wrong_labels": len(planted),
        "corrupt_files": corrupt,
        "seed": seed,
    }


def draw(code: int, rng: np.random.Generator, *, side: int) -> Pixels:
    """Generate a picture of class `code` with this shorter side."""
    from PIL import Image, ImageDraw

    longer = round(side * rng.uniform(1.0, 1.6))
    width, height = (longer, side) if rng.random() < 0.7 else (side, longer)
    hue = (code * 0.381966 + rng.normal(0, 0.012)) % 1  # golden angle: fifty hues differ
    light = rng.uniform(0.65, 1.0)
    colour = _rgb(hue, rng.uniform(0.65, 1.0), light)
    ground = _rgb(rng.random(), rng.uniform(0.0, 0.25), rng.uniform(0.1, 0.9))
    picture = Image.new("RGB", (width, height), ground)
    pen = ImageDraw.Draw(picture)
    for _ in range(int(rng.integers(2, 6))):  # clutter without meaning
        x, y = rng.uniform(0, width), rng.uniform(0, height)
        r = rng.uniform(0.03, 0.12) * side
        pen.ellipse((x - r, y - r, x + r, y + r), fill=_rgb(rng.random(), rng.uniform(0, 0.3), rng.uniform(0.1, 0.9)))
    radius = rng.uniform(0.26, 0.4) * side
    x, y = (rng.uniform(1.1 * radius, length - 1.1 * radius) for length in (width, height))
    pen.polygon(_outline((x, y), radius, rng.uniform(0, 2 * math.pi), SHAPES[code % len(SHAPES)]), fill=colour)
    shade = np.linspace(rng.uniform(0.8, 1.2), rng.uniform(0.8, 1.2), num=width)[None, :, None]
    noise = rng.normal(0, rng.uniform(2, 14), size=(height, width, 1))
    drawn: Pixels = np.clip(np.asarray(picture) * shade + noise, 0, 255).astype(np.uint8)
    return drawn


def _outline(centre: tuple[float, float], radius: float, angle: float, shape: tuple[int, float]) -> Any:
    """Return the corners of a star, a polygon or a disc."""
    tips, inner = shape
    reach = [radius * (inner if i % 2 else 1) for i in range(2 * tips)]
    turn = [angle + math.pi * i / tips for i in range(2 * tips)]
    return [(centre[0] + r * math.cos(t), centre[1] + r * math.sin(t)) for r, t in zip(reach, turn, strict=True)]


def _rgb(hue: float, saturation: float, value: float) -> tuple[int, int, int]:
    red, green, blue = colorsys.hsv_to_rgb(hue, saturation, value)
    return round(255 * red), round(255 * green), round(255 * blue)


def _save(picture: Pixels, path: Path) -> None:
    from PIL import Image

    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(picture).save(path, format="JPEG", quality=90)


def _write_list(path: Path, files: list[str], codes: list[int]) -> None:
    path.write_text("".join(f"{name} {code}\n" for name, code in zip(files, codes, strict=True)))
