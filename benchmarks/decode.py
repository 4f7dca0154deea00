"""Pictures per second of decoding, staging and streaming, compared with a plain DataLoader loop.

    python benchmarks/decode.py [--pictures 1500] [--pixels 683] [--workers N] [--rounds 3] [--write FILE.md]

The pictures are drawn (`labelsieve data make-webvision`) with a shorter side of `--pixels` and saved as JPEG (683:
photos of 1024 x 683; 256: WebVision's reduced download). All rows except decode and stage produce float32 batches of
128 random 227 x 227 crops, mirrored at random and normalised, on the CPU. Takes about five minutes on two cores.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from labelsieve.data.decode import decode
from labelsieve.data.make_webvision import make
from labelsieve.data.pictures import CODES, PictureFiles
from labelsieve.data.resources import usable_cores
from labelsieve.data.stage import stage
from labelsieve.data.webvision import training
from labelsieve.engine.picture_stores import CropStream
from labelsieve.engine.store import MEAN, STD, DevicePictures

BATCH, CROP, SIDE = 128, 227, 256


class PlainDataset(torch.utils.data.Dataset[Tensor]):
    """The usual dataset: open, convert, resize, crop, mirror and normalise one picture per call."""

    def __init__(self, pictures: PictureFiles) -> None:
        self.pictures = pictures

    def __len__(self) -> int:
        return len(self.pictures)

    def __getitem__(self, i: int) -> Tensor:
        from PIL import Image

        with Image.open(self.pictures.path(i)) as opened:
            picture = opened.convert("RGB")
        scale = SIDE / min(picture.size)
        picture = picture.resize(
            (round(picture.width * scale), round(picture.height * scale)), Image.Resampling.BILINEAR
        )
        left, top = (int(torch.randint(length - CROP + 1, ())) for length in picture.size)
        x = torch.from_numpy(np.array(picture.crop((left, top, left + CROP, top + CROP)))).permute(2, 0, 1)
        x = x.float().div_(255)
        if torch.rand(()) < 0.5:
            x = x.flip(2)
        return (x - torch.as_tensor(MEAN, dtype=x.dtype)[:, None, None]) / torch.as_tensor(STD, dtype=x.dtype)[
            :, None, None
        ]


def order(samples: int, seed: int) -> tuple[list[np.ndarray], list[np.ndarray]]:
    rng = np.random.default_rng(seed)
    index = [part[None] for part in np.array_split(rng.permutation(samples), -(-samples // BATCH))]
    return index, [rng.integers(CODES, size=part.shape) for part in index]


def consume(work: Callable[[], Iterable[Any]]) -> float:
    """Seconds."""
    began = time.perf_counter()
    for _ in work():
        pass
    return time.perf_counter() - began


def measure(pictures: PictureFiles, workers: int, folder: Path, rounds: int) -> dict[str, float]:
    """Pictures a second, the best of `rounds`; rows take turns, so that a busy moment hits all of them."""
    n = len(pictures)
    for i in range(n):  # every file in the page cache before the first row
        Path(pictures.path(i)).read_bytes()
    some = range(min(n, 300))
    loader = torch.utils.data.DataLoader(
        PlainDataset(pictures), batch_size=BATCH, shuffle=True, num_workers=workers, persistent_workers=workers > 0
    )
    stages = iter(range(1_000))
    staged = stage(pictures, folder / "stage", workers=workers)
    held = DevicePictures(staged, crop=CROP)

    def decoding() -> Iterator[Any]:
        return (decode(Path(pictures.path(i)).read_bytes(), pictures.resize) for i in some)

    def staging() -> list[Any]:
        return [stage(pictures, folder / f"stage-{next(stages)}", workers=workers)]

    def from_device() -> Iterator[Tensor]:
        for index, code in zip(*order(n, 1), strict=True):
            yield held.batch(torch.as_tensor(index), torch.as_tensor(code))

    def streamed(store: CropStream) -> Iterator[Tensor]:
        index, code = order(n, 1)
        store.expect(index, code)
        yield from (store.batch(i, c) for i, c in zip(index, code, strict=True))

    with (
        CropStream(pictures, crop=CROP, workers=workers) as files,
        CropStream(staged, crop=CROP, workers=workers) as shards,
    ):
        rows: dict[str, tuple[Callable[[], Iterable[Any]], int]] = {
            "plain DataLoader": (loader.__iter__, n),
            "decode alone, one process": (decoding, len(some)),
            "stream from files": (lambda: streamed(files), n),
            "stage: decode and write to files (shards), once": (staging, n),
            "stream from these files": (lambda: streamed(shards), n),
            "held on the device (here: the CPU)": (from_device, n),
        }
        consume(loader.__iter__)  # workers start
        consume(lambda: streamed(files))
        taken: dict[str, list[float]] = {name: [] for name in rows}
        for _ in range(rounds):
            for name, (work, _count) in rows.items():
                taken[name].append(consume(work))
    return {name: count / min(taken[name]) for name, (_, count) in rows.items()}


def table(found: dict[str, float], settings: dict[str, Any]) -> str:
    base = found["plain DataLoader"]
    rows = [f"| {name} | {value:,.0f} | {value / base:.1f} |" for name, value in found.items()]
    return "\n".join(
        [
            "# Decoding, staging, streaming",
            "",
            f"`{settings['command']}`, {settings['date']}: {settings['machine']}, {settings['cores']} cores,",
            f"{settings['workers']} workers, best of {settings['rounds']} rounds, load {settings['load']:.1f},",
            f"torch {torch.__version__},",
            f"{settings['pictures']} generated JPEGs with a shorter side of {settings['pixels']} pixels.",
            "",
            "| loop | pictures/s | relative to the plain loop |",
            "|---|---|---|",
            *rows,
            "",
            "All rows except decode and stage produce float32 batches of 128 random 227 x 227 crops, mirrored at",
            "random and normalised, on the CPU. On a GPU the last step runs on the GPU.",
            "",
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pictures", type=int, default=1500)
    parser.add_argument("--pixels", type=int, default=683)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--workers", type=int, default=usable_cores())
    parser.add_argument("--write", type=Path, help="output file")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else float("nan")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        each = -(-options.pictures // 10)
        make(folder / "made", classes=10, train=each, validation=1, side=options.pixels)
        pictures = training(folder / "made", side=SIDE).x
        found = measure(pictures, options.workers, folder, options.rounds)
    settings = {
        "command": f"python benchmarks/decode.py --pictures {options.pictures} --pixels {options.pixels} "
        f"--workers {options.workers} --rounds {options.rounds}",
        "date": date.today().isoformat(),
        "machine": f"{platform.system()} {platform.machine()}",
        "cores": usable_cores(),
        "load": load,
        "workers": options.workers,
        "rounds": options.rounds,
        "pictures": len(pictures),
        "pixels": options.pixels,
    }
    text = table(found, settings)
    if options.write:
        options.write.write_text(text)
    print(json.dumps({"settings": settings, "pictures_per_second": found}) if options.json else text)


if __name__ == "__main__":
    main()
