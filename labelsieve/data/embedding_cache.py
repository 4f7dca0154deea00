"""Embeddings: rows of numbers that a pretrained model computes from pictures or texts, kept on disk.

    RUN/staged/embeddings-KEY.npy     one float32 row per sample, in input order
    RUN/staged/embeddings-KEY.npz     near duplicates and outliers among them (`similar.py`)

The key is a hash of the samples, the model and its revision. Rows are appended batch by batch, so the length of the
file says how many are done: a killed process loses the batch in flight. The file is memory-mapped, never loaded.
"""

from __future__ import annotations

import hashlib
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from labelsieve.data.decode import ShorterSide
from labelsieve.data.pictures import EncodedPictures, PictureFiles, PictureSequence, decoded
from labelsieve.errors import InputError
from labelsieve.files import link_on_way, open_to_append, regular_file, share_file, sync_folder
from labelsieve.progress import Progress, counted
from labelsieve.types import IntArray, LabelledData, Samples

Rows = NDArray[np.float32]
EMBEDDED_SIDE = 256  # shorter side of the pictures that a model gets; most models read 224 pixels or fewer
PREFIX = "embeddings-"
ROWS_AT_ONCE = 65_536  # rows that are hashed or checked in one piece


@dataclass(frozen=True)
class EmbeddingModel:
    """What identifies an embedding: the name of the model as the user gave it, and a hash of its content."""

    name: str
    revision: str


class Encoder(ABC):
    """A pretrained model that turns samples into rows of numbers."""

    model: EmbeddingModel
    batch_size: int = 64

    def prepare(self) -> None:  # noqa: B027
        """Load the network, if there is one."""

    @abstractmethod
    def encode(self, samples: Sequence[Any]) -> Rows:
        """Return one row per sample; samples are PIL pictures or strings."""


class EmbeddedX(Samples):
    """Rows of an embedding that stay on disk: `subset` copies nothing, `x[rows]` and numpy read what they need."""

    ndim = 2
    dtype = np.dtype(np.float32)

    def __init__(self, rows: Rows, model: EmbeddingModel, index: IntArray | None = None) -> None:
        self.rows, self.model, self.index = rows, model, index

    def __len__(self) -> int:
        return len(self.rows) if self.index is None else len(self.index)

    @property
    def shape(self) -> tuple[int, int]:
        return len(self), self.rows.shape[1]

    @property
    def nbytes(self) -> int:
        return 4 * len(self) * int(self.rows.shape[1])

    def subset(self, index: IntArray) -> EmbeddedX:
        return EmbeddedX(
            self.rows, self.model, np.arange(len(self))[index] if self.index is None else self.index[index]
        )

    def __getitem__(self, i: int | slice | IntArray) -> Rows:
        return np.asarray(self.rows[i if self.index is None else self.index[i]])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return self[:].astype(dtype or np.float32, copy=bool(copy))


def embedded_size(size: Any) -> ShorterSide:
    """Return the size of pictures that are read to be embedded; `size` is the value of --size."""
    return ShorterSide(size if isinstance(size, int) else EMBEDDED_SIDE)


def cache_path(folder: Path, data: LabelledData, model: EmbeddingModel) -> Path:
    """Return the file of the embeddings of these samples by this model."""
    digest = hashlib.sha256(f"1 {model.name} {model.revision} {len(data)} {data.kind}".encode())
    for id in data.ids.tolist():
        digest.update(f"{id}\n".encode())
    x = data.x
    if isinstance(x, PictureSequence):
        digest.update(f"{x.resize} {x.version() if isinstance(x, EncodedPictures) else ''}".encode())
        digest.update(x.stamps().tobytes() if isinstance(x, PictureFiles) else b"")
    elif data.kind == "text":
        for text in x:
            digest.update(f"{text}\0".encode("utf-8", "surrogatepass"))
    else:
        for start in range(0, len(x), ROWS_AT_ONCE):
            digest.update(np.ascontiguousarray(x[start : start + ROWS_AT_ONCE]).tobytes())
    return folder / f"{PREFIX}{digest.hexdigest()[:16]}.npy"


def load_embeddings(path: Path, data: LabelledData, model: EmbeddingModel) -> EmbeddedX | None:
    """Map the embeddings of the samples; None if they are missing or incomplete."""
    rows = _map_rows(path, len(data))
    return None if rows is None else EmbeddedX(rows, model)


def find_embeddings(folder: Path, count: int) -> Rows | None:
    """Map the embeddings of the `count` samples of a run without reading the samples; None if there are none."""
    found = (_map_rows(path, count) for path in sorted(folder.glob(f"{PREFIX}*.npy")))
    return next((rows for rows in found if rows is not None), None)


def _map_rows(path: Path, count: int) -> Rows | None:
    """Map a file of a run folder, which may come from another person: a link or a damaged file is not read."""
    if path.is_symlink():
        return None
    try:
        rows = np.load(regular_file(path), mmap_mode="r", allow_pickle=False)
    except Exception:  # a damaged header can raise nearly any exception
        return None
    if rows.ndim != 2 or rows.dtype != np.float32 or len(rows) != count or not rows.size:
        return None
    blocks = (rows[start : start + ROWS_AT_ONCE] for start in range(0, count, ROWS_AT_ONCE))
    return rows if all(np.isfinite(block).all() for block in blocks) else None


def embed_to_disk(folder: Path, data: LabelledData, encoder: Encoder, progress: Progress, *, share: bool) -> EmbeddedX:
    """Return the embeddings of the samples; rows that are on disk are not computed again.

    With `share` the file of a run beside this one is used too: it is linked, or copied if links are not supported.
    """
    path, model = cache_path(folder, data, encoder.model), encoder.model
    found = load_embeddings(path, data, model)
    if found is None and share and not path.exists():
        runs = folder.absolute().parent.parent
        others = (other for other in runs.glob(f"*/{folder.name}/{path.name}") if link_on_way(runs, other) is None)
        complete = next((other for other in others if load_embeddings(other, data, model) is not None), None)
        if complete is not None:
            share_file(complete, path)
            found = load_embeddings(path, data, model)
    if found is None:
        _append_rows(path, data, encoder, progress)
        found = load_embeddings(path, data, model)
    if found is None:  # the rows that the file had were damaged
        path.unlink()
        _append_rows(path, data, encoder, progress)
        found = load_embeddings(path, data, model)
        assert found is not None
    return found


def _append_rows(path: Path, data: LabelledData, encoder: Encoder, progress: Progress) -> None:
    """Compute the rows that the file does not have yet, and append them batch by batch."""
    encoder.prepare()  # a model that cannot be loaded leaves no file
    unit = "pictures" if data.kind == "pictures" else "texts"
    with (
        open_to_append(path) as file,
        progress.stage(f"embedding with {encoder.model.name}", len(data), unit=unit) as stage,
    ):
        done, columns = _keep_complete_rows(file, len(data))
        stage.resume(done)
        for rows in encode_batches(encoder, data, start=done):
            if not done:
                columns = rows.shape[1]
                header = {"descr": "<f4", "fortran_order": False, "shape": (len(data), columns)}
                np.lib.format.write_array_header_1_0(file, header)
            elif rows.shape[1] != columns:
                raise InputError(
                    f"embedding model {encoder.model.name}: it returned rows of {columns} and of {rows.shape[1]} "
                    "numbers; all rows must have the same length"
                )
            file.write(rows.tobytes())
            file.flush()
            os.fsync(file.fileno())
            done += len(rows)
            stage.advance(len(rows))
    sync_folder(path.parent)


def encode_batches(encoder: Encoder, data: LabelledData, *, start: int = 0) -> Iterator[Rows]:
    """Encode the samples from `start` on, batch by batch; pictures are decoded while the model computes."""
    samples = _as_samples(data, start)
    while batch := list(islice(samples, encoder.batch_size)):
        rows = np.ascontiguousarray(encoder.encode(batch), dtype=np.float32)
        if rows.ndim != 2 or len(rows) != len(batch):
            shape = list(rows.shape)
            raise InputError(
                f"embedding model {encoder.model.name}: {counted(len(batch), 'sample')} gave an array of shape "
                f"{shape}; the model must return one row of numbers per sample"
            )
        if not np.isfinite(rows).all():
            raise InputError(
                f"embedding model {encoder.model.name}: the embeddings are NaN or infinite; use another model"
            )
        yield rows
    if isinstance(data.x, PictureSequence):
        data.x.warn_unreadable(data.x.unreadable)


def _as_samples(data: LabelledData, start: int) -> Iterator[Any]:
    """Yield PIL pictures or strings."""
    if data.kind == "text":
        yield from map(str, data.x[start:])
        return
    from PIL import Image

    x = data.x
    if isinstance(x, EncodedPictures):
        remaining = x.subset(np.arange(start, len(x)))
        for pixels in decoded(remaining):
            yield Image.fromarray(pixels)
        x.unreadable.update({start + i: reason for i, reason in remaining.unreadable.items()})
        return
    for i in range(start, len(x)):
        pixels = np.asarray(x[i])
        yield Image.fromarray(pixels[:, :, 0] if pixels.shape[2] == 1 else pixels).convert("RGB")


def _keep_complete_rows(file: BinaryIO, count: int) -> tuple[int, int]:
    """Return the number of complete rows in a file and their length; cut the rest off and go to the end."""
    done, columns, end = 0, 0, 0
    with suppress(Exception):  # no header yet, or a damaged one, which can raise nearly any exception
        np.lib.format.read_magic(file)
        shape, _, dtype = np.lib.format.read_array_header_1_0(file)
        if len(shape) == 2 and shape[0] == count and shape[1] > 0 and dtype == np.float32:
            columns, begin = int(shape[1]), file.tell()
            done = (os.fstat(file.fileno()).st_size - begin) // (4 * columns)
            end = begin + 4 * columns * done if done else 0
    file.truncate(end)
    file.seek(end)
    return done, columns
