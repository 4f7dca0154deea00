"""Embed the samples of a run, or samples in memory, with a pretrained model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelsieve.data.duplicates import groups_of, kept_together
from labelsieve.data.embedding_cache import (
    EmbeddingModel,
    cache_path,
    embed_to_disk,
    encode_batches,
    load_embeddings,
)
from labelsieve.data.pictures import EncodedPictures
from labelsieve.data.read_pictures import LARGEST_SIDE, measure, picture_shape
from labelsieve.data.similar import find_similar, join_groups, stored_similar
from labelsieve.errors import InputError
from labelsieve.frames import is_frame
from labelsieve.models.embed import AUTO, DEFAULT_MODELS, is_local, load_encoder
from labelsieve.progress import SILENT, Note, NoteKind, Progress
from labelsieve.types import Kind, LabelledData, evenly_spaced

SAMPLED_SIZES = 100  # pictures whose size decides whether they are photos


def with_embedding(
    data: LabelledData, name: str, folder: Path, device: str, progress: Progress, *, share: bool = True
) -> LabelledData:
    """Return the data with its embeddings, which are kept in `folder`."""
    encoder = load_encoder(name, data.kind, partial(_device, device))
    return replace(data, embedding=embed_to_disk(folder, data, encoder, progress, share=share))


def embed_data(
    data: LabelledData, name: str, folder: Path, device: str, progress: Progress, *, share: bool = True,
    own_groups: bool = False,
) -> LabelledData:  # fmt: skip
    """Return the data with its embeddings, which are kept in `folder`, near duplicates and outliers.

    With `own_groups` the groups of the data are the user's and stay; else near duplicates become groups.
    """
    data = with_embedding(data, name, folder, device, progress, share=share)
    data = with_similar(data, cache_path(folder, data, data.embedding.model))
    for note in about_similar(data):
        progress.note(note)
    return data if own_groups else replace(data, groups=kept_together(data))


def with_similar(data: LabelledData, stored: Path | None = None) -> LabelledData:
    """Return embedded data with its outliers, and with near duplicates beside the equal samples.

    `stored` is the file of the embeddings; what is found is kept beside it.
    """
    rows = np.arange(len(data))
    if stored is None:
        found = find_similar(data.embedding, data.kind)
    else:
        found = stored_similar(stored.with_suffix(".npz"), data.embedding, data.kind)
    if data.duplicates is None or np.array_equal(data.duplicates, rows):  # the import of scipy takes a second
        return replace(data, duplicates=found.group, outlier=found.outlier)
    pairs = [np.stack([rows, codes], axis=1) for codes in (found.group, data.duplicates)]
    return replace(data, duplicates=join_groups(len(data), np.concatenate(pairs)), outlier=found.outlier)


def about_similar(data: LabelledData) -> list[Note]:
    """Return notes on near duplicates and outliers."""
    groups = groups_of(data)
    conflicts = sum(len(set(data.y[group].tolist())) > 1 for group in groups)
    notes = []
    if groups:
        count = sum(map(len, groups))
        notes.append(Note.of(NoteKind.NEAR_DUPLICATES, count=count, groups=len(groups), conflicts=conflicts))
    if data.outlier is not None and data.outlier.any():
        notes.append(Note.of(NoteKind.OUTLIERS, count=int(data.outlier.sum())))
    return notes


def read_embedding(
    data: LabelledData, model: EmbeddingModel, folder: Path, *, own_groups: bool = False
) -> LabelledData:
    """Return the data of a run with the embeddings that the run computed; no model is loaded."""
    path = cache_path(folder, data, model)
    found = load_embeddings(path, data, model)
    if found is None:
        raise InputError(
            f"{folder} has no embeddings of these samples by {model.name}; run `labelsieve select` again with the "
            "same options"
        )
    data = with_similar(replace(data, embedding=found), path)
    return data if own_groups else replace(data, groups=kept_together(data))


def automatic_model(data: LabelledData, progress: Progress) -> str | None:
    """Return the default model if the samples are texts or photos and its files are on this machine."""
    if data.kind == "table" or (data.kind == "pictures" and not _are_photos(data.x)):
        return None
    name = DEFAULT_MODELS[data.kind]
    if is_local(name):
        return name
    install = "" if find_spec("sentence_transformers") else "pip install 'labelsieve[embed]', then "
    progress.note(Note.of(NoteKind.NO_EMBEDDING_MODEL, install=install, name=name), passing=True)
    return None


def _are_photos(x: Any) -> bool:
    """Whether pictures are larger than those that small networks read."""
    if isinstance(x, EncodedPictures) and x.size is None:
        some = x.subset(evenly_spaced(len(x), SAMPLED_SIZES))
        sizes, _ = measure(some, SILENT)
        return bool(np.median(sizes.max(axis=1)) > LARGEST_SIDE)
    shape = picture_shape(x)
    return shape is None or max(shape[:2]) >= LARGEST_SIDE  # larger ones were shrunk to this


def embed(samples: Any, model: Any, *, device: str = "auto") -> NDArray[np.float32]:
    """Compute embeddings of pictures or texts with a pretrained model.

    Parameters
    ----------
    samples : list of str, list of PIL pictures, or uint8 array of shape (n, height, width, channels)
        Texts or pictures.
    model : str or callable
        A folder with a model, a Hugging Face name that is on this machine (`labelsieve data fetch model NAME`),
        "auto", "package.module:function", or a function from a list of samples to an array.
    device : str, default="auto"
        Device of the model: "auto", "cpu", "cuda", "cuda:1" or "mps".

    Returns
    -------
    ndarray of float32, shape (n_samples, n_features)
        One row per sample.

    Examples
    --------
    >>> import labelsieve
    >>> labelsieve.embed(["a", "abc"], lambda texts: [[len(text)] for text in texts])
    array([[1.],
           [3.]], dtype=float32)
    """
    listed = _listed(samples)
    kind = kind_of(listed)
    name = DEFAULT_MODELS[kind] if isinstance(model, str) and model == AUTO else model
    encoder = load_encoder(name, kind, partial(_device, device), option="model")
    data = LabelledData(listed, np.zeros(len(listed), dtype=np.int64), (), np.empty(0, dtype=str), kind)
    rows = list(encode_batches(encoder, data))
    return np.concatenate(rows) if rows else np.zeros((0, 0), dtype=np.float32)


def _listed(samples: Any) -> Any:
    """Return texts as a list, and pictures as a list or an array of arrays. Raise InputError for anything else."""
    from PIL import Image

    if isinstance(samples, np.ndarray) and samples.ndim in (3, 4) and samples.dtype == np.uint8:
        return samples[..., None] if samples.ndim == 3 else samples
    given = f"got {type(samples).__name__}"
    if isinstance(samples, Iterable) and not isinstance(samples, str | bytes | Mapping) and not is_frame(samples):
        listed = list(np.atleast_1d(samples) if isinstance(samples, np.ndarray) else samples)
        if all(isinstance(sample, str) for sample in listed):
            return listed
        if all(isinstance(sample, Image.Image) for sample in listed):
            return [np.asarray(picture.convert("RGB")) for picture in listed]
        types = sorted({type(sample).__name__ for sample in listed})
        given += f" of {' and '.join(types)}"
    raise InputError(
        f"embeddings need a list of texts, a list of PIL pictures, or pictures as uint8 [n, height, width, channels]; "
        f"{given}"
    )


def kind_of(samples: Any) -> Kind:
    """Return the kind of samples that can be embedded."""
    return "text" if isinstance(next(iter(samples), None), str) else "pictures"


def _device(device: str) -> str:
    from labelsieve.engine.device import choose_device

    return str(choose_device(device))
