"""Pretrained models for pictures and texts: a name becomes an encoder.

A name is a folder, a Hugging Face name whose files are on this machine, or package.module:function, a function from a
list of samples to an array. A folder is read without running code: weights come from safetensors, and a model that
brings its own code is refused. Nothing is downloaded except by `fetch_model`.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import math
import os
import re
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np

from labelsieve.checks import import_object
from labelsieve.data.embedding_cache import EmbeddingModel, Encoder, Rows
from labelsieve.errors import InputError, class_and_line, hub_unreachable
from labelsieve.files import check_entries, check_free, content_folders, open_file, read_text, regular_file
from labelsieve.types import Kind

AUTO, NO_EMBEDDING = "auto", "none"
# Small models with permissive licences (both Apache-2.0); the one for texts reads 50 languages.
DEFAULT_MODELS: dict[str, str] = {  # of --embed auto
    "pictures": "facebook/dinov2-small",
    "text": "sentence-transformers/paraphrase-multilingual-MiniLM-L12-v2",
}
HUB_NAME = re.compile(r"[\w-][\w.-]*(/[\w-][\w.-]*)?")
PICKLES = (".bin", ".pt", ".pth", ".pkl", ".ckpt")
OTHER_SETTINGS = ("training_args.bin", "optimizer.pt", "scheduler.pt", "rng_state.pth", "scaler.pt")  # never weights
DESCRIPTIONS = (".json", ".txt", ".model", ".safetensors")  # files that decide what a model computes
# Modules of sentence-transformers whose sizes are all in a config.json, which is checked.
MODULES = ("Transformer", "CLIPModel", "Pooling", "Normalize", "Dense", "LayerNorm", "Dropout", "StaticEmbedding")
CHANGED_SIZES = ("config_args", "config_kwargs")  # they replace values of config.json
MANY_LAYERS = 10**9  # more than weights have; sums of larger numbers can overflow
# Numbers in a network per byte of its weights; numbers without weights are random. Networks in half precision without
# the decoder, which is not used (sentence-t5), have 1.1.
MOST_NUMBERS_PER_BYTE = 4
TEXTS_AT_ONCE, STATIC_TEXTS_AT_ONCE, PICTURES_AT_ONCE = 128, 4096, 64
INSTALL = "pip install 'labelsieve[embed]'"


class FunctionEncoder(Encoder):
    """The user's own function; its revision is a hash of the file that defines it."""

    def __init__(self, name: str, function: Callable[[list[Any]], Any]) -> None:
        self.function = function
        try:
            file = inspect.getfile(inspect.unwrap(function))
        except TypeError:  # an object that is called, or a function of a compiled module
            file = ""
        self.model = EmbeddingModel(name, _digest([Path(file)]) if Path(file).is_file() else "")

    def encode(self, samples: Sequence[Any]) -> Rows:
        return _as_rows(self.function(list(samples)))


class FolderEncoder(Encoder):
    """A model in a folder. It is loaded when the first samples are encoded: embeddings on disk need no model."""

    def __init__(self, folder: Path, model: EmbeddingModel, device: Callable[[], str], where: str) -> None:
        self.folder, self.model, self.device, self.where = folder, model, device, where

    @abstractmethod
    def load(self, device: str) -> Any:
        """Return the network."""

    @abstractmethod
    def compute(self, samples: list[Any]) -> Any:
        """Return one row per sample."""

    def encode(self, samples: Sequence[Any]) -> Rows:
        self.prepare()
        with _one_line(f"{self.where} cannot read these samples"):
            return _as_rows(self.compute(list(samples)))

    def prepare(self) -> None:
        self.network  # noqa: B018 - loads it

    @cached_property
    def network(self) -> Any:
        device = self.device()
        with _loading(self.where):
            return self.load(device)


class StaticEncoder(FolderEncoder):
    """A model2vec model: the mean of one vector per token."""

    batch_size = STATIC_TEXTS_AT_ONCE

    def load(self, device: str) -> Any:
        from model2vec import StaticModel

        return StaticModel.from_pretrained(self.folder)

    def compute(self, samples: list[Any]) -> Any:
        return self.network.encode(samples, use_multiprocessing=False)


class SentenceEncoder(FolderEncoder):
    """A sentence-transformers model, or a transformer whose tokens are averaged."""

    batch_size = TEXTS_AT_ONCE

    def load(self, device: str) -> Any:
        from sentence_transformers import SentenceTransformer

        check_numbers(self.folder, self.where)
        return SentenceTransformer(
            str(self.folder), device=device, trust_remote_code=False, local_files_only=True,
            model_kwargs={"use_safetensors": True},
        )  # fmt: skip

    def compute(self, samples: list[Any]) -> Any:
        return self.network.encode(samples, batch_size=self.batch_size, show_progress_bar=False)


@runtime_checkable
class PicturesAndTexts(Protocol):
    """A model with one half for pictures and one for texts, such as CLIP."""

    def get_image_features(self, **inputs: Any) -> Any:
        """Return the output of the half for pictures."""


class PictureEncoder(FolderEncoder):
    """A vision transformer or another network for pictures, such as DINOv2, SigLIP or the picture half of CLIP."""

    batch_size = PICTURES_AT_ONCE

    def load(self, device: str) -> Any:
        from transformers import AutoImageProcessor, AutoModel

        check_numbers(self.folder, self.where)
        options: dict[str, Any] = {"trust_remote_code": False, "local_files_only": True}
        network = AutoModel.from_pretrained(self.folder, use_safetensors=True, **options).eval()
        return AutoImageProcessor.from_pretrained(self.folder, backend="pil", **options), network.to(device)

    def compute(self, samples: list[Any]) -> Any:
        import torch

        processor, network = self.network
        inputs = processor(images=samples, return_tensors="pt").to(network.device)
        with torch.inference_mode():
            if isinstance(network, PicturesAndTexts):
                found = network.get_image_features(**inputs)
                found = found if isinstance(found, torch.Tensor) else found.pooler_output
            else:
                output = network(**inputs)
                pooled = output.get("pooler_output")
                found = output.last_hidden_state[:, 0] if pooled is None else pooled
        return found.flatten(1).float().cpu()


def load_encoder(
    name: Any, kind: Kind, device: Callable[[], str] = lambda: "cpu", *, option: str = "--embed"
) -> Encoder:
    """Return the encoder of a name, or of the user's own function; `kind` is that of the samples.

    `device` returns the device of the network. It is called when the network is loaded, because it imports torch.
    """
    if kind == "table":
        raise InputError(
            f"{option} supports only pictures and texts, but these samples have numeric features; remove {option}"
        )
    if not isinstance(name, str) and callable(name):
        return FunctionEncoder(f"{name.__module__}:{name.__qualname__}", name)
    if _is_function(name):
        return FunctionEncoder(name, import_object(name, what=option))
    folder = find_model(name, option=option)
    weights = check_model(folder, f"{option} {name}")
    model = EmbeddingModel(name, _digest(sorted(f for f in folder.rglob("*") if f.suffix in DESCRIPTIONS)))
    pictures = (folder / "preprocessor_config.json").is_file()
    if pictures != (kind == "pictures"):
        reads, samples = ("pictures", "texts") if pictures else ("texts", "pictures")
        raise InputError(f"{option} {name} reads {reads}, but these samples are {samples}")
    encoder = PictureEncoder if pictures else StaticEncoder if "embeddings" in weights else SentenceEncoder
    return encoder(folder, model, device, f"{option} {name}")


def is_local(name: str) -> bool:
    """Whether the files of a model are on this machine."""
    try:
        find_model(name)
    except InputError:
        return False
    return True


def find_model(name: str, *, option: str = "--embed") -> Path:
    """Return the folder of a model; a Hugging Face name must have been fetched before."""
    if name and Path(name).is_dir():
        return Path(name)
    if not HUB_NAME.fullmatch(name) or Path(name).exists():
        raise InputError(
            f"{option} {name!r} is neither a folder nor a Hugging Face name such as {DEFAULT_MODELS['text']}"
        )
    try:
        from huggingface_hub import snapshot_download
    except ImportError:
        raise InputError(f"{option} {name} is not a folder; for Hugging Face names: {INSTALL}") from None
    try:
        return Path(snapshot_download(name, local_files_only=True))
    except Exception:  # the hub raises errors of many types for names that are wrong or missing
        raise InputError(
            f"{option} {name} is neither a folder nor a model on this machine; download it with "
            f"`labelsieve data fetch model {name}`"
        ) from None


def fetch_model(name: str, to: Path | None = None) -> Path:
    """Download a model, without files that contain code; `to` is a folder instead of the Hugging Face cache."""
    try:
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError, RepositoryNotFoundError
    except ImportError:
        raise InputError(f"fetching models needs more packages: {INSTALL}") from None
    if to is not None and not (to / ".cache" / "huggingface").is_dir():  # a download that was stopped continues
        check_free(to, "--to")
    patterns = [f"*{suffix}" for suffix in DESCRIPTIONS]
    try:
        folder = Path(snapshot_download(name, allow_patterns=patterns, local_dir=to))
    except LocalEntryNotFoundError:
        raise hub_unreachable(name, "model", "--embed FOLDER") from None
    except (HFValidationError, RepositoryNotFoundError):
        raise InputError(f"{name} cannot be downloaded: Hugging Face has no such model, or requires a login") from None
    except Exception as problem:
        raise InputError(f"{name} cannot be downloaded ({class_and_line(problem)})") from None
    check_model(folder, name)
    return folder


def check_model(folder: Path, where: str) -> list[str]:
    """Return the names of the weights. Raise InputError for code, pickles, special files and damaged weights."""
    from safetensors import SafetensorError, safe_open

    files = [path for path in check_entries(folder, where, content_folders(folder), DESCRIPTIONS) if not path.is_dir()]
    for file in (file for file in files if file.suffix == ".json"):
        content = _description(file, where)
        if _names_code(content):
            raise InputError(
                f"{where} needs its own code ({file.name}), which labelsieve does not run; use another model"
            )
        if (other := _unsupported(content)) is not None:
            raise InputError(
                f"{where}: {file.name} has {other[:100]!r}, which labelsieve does not support; use another model"
            )
    safe = [file for file in files if file.suffix == ".safetensors"]
    for file in files:
        if (
            file.suffix in PICKLES
            and file.name not in OTHER_SETTINGS
            and not any(s.parent == file.parent for s in safe)
        ):
            raise InputError(
                f"{where}: {file.name} is a pickle, which can run code; save the model as safetensors, as "
                "save_pretrained of transformers does"
            )
    if not safe:
        raise InputError(f"{where} has no weights (*.safetensors); download the model again")
    names: list[str] = []
    for file in safe:
        try:
            with safe_open(regular_file(file), framework="np") as tensors:
                names += tensors.keys()
        except (SafetensorError, OSError) as problem:
            raise InputError(f"{where}: {file.name} is damaged ({problem}); download it again") from None
    for file in (file for file in files if file.name == "config.json"):
        if _layers(json.loads(read_text(file))) > len(names):  # a library would build all of them
            raise InputError(f"{where}: {file.name} has more layers than the weights; download it again")
    return names


def check_numbers(folder: Path, where: str) -> None:
    """Raise InputError if the networks in a folder have many more numbers than their weights: they would be random."""
    import torch
    from transformers import AutoConfig, AutoModel

    limit = MOST_NUMBERS_PER_BYTE * sum(file.stat().st_size for file in folder.rglob("*.safetensors"))
    for file in folder.rglob("config.json"):
        content = json.loads(read_text(file))
        sizes = [value for value in content.values() if isinstance(value, int)]
        numbers = math.prod(sorted(sizes)[-2:])  # of a dense layer
        if "model_type" in content:
            config = AutoConfig.from_pretrained(file.parent, trust_remote_code=False, local_files_only=True)
            with torch.device("meta"):
                network = AutoModel.from_config(config, trust_remote_code=False)
            numbers = sum(tensor.numel() for tensor in (*network.parameters(), *network.buffers()))
        if numbers > limit:
            raise InputError(f"{where}: {file.name} describes {numbers:,} numbers, many more than the weights have")


def _layers(config: Any) -> float:
    """Return the largest number of layers in a description and in the descriptions inside it."""
    if not isinstance(config, dict):
        return 0
    numbers = (value for key, value in config.items() if any(word in key for word in ("layer", "depth", "repeat")))
    inner = (value for key, value in config.items() if key.endswith("config"))  # label2id has names of classes
    return max([0, *map(_total, numbers), *map(_layers, inner)])


def _total(value: Any) -> float:
    """Return a number, or the sum of a list: `depths` has one number per stage."""
    values = value if isinstance(value, list) else [value]
    return sum(max(0, min(number, MANY_LAYERS)) for number in values if isinstance(number, int | float))


def _is_function(name: str) -> bool:
    module, colon, _ = name.partition(":")
    return bool(colon) and len(module) > 1 and not Path(name).is_dir()  # C:\models is a folder


def _description(file: Path, where: str) -> Any:
    try:
        return json.loads(read_text(file))
    except (OSError, ValueError, RecursionError) as problem:
        raise InputError(f"{where}: {file.name} is damaged ({problem}); download it again") from None


def _names_code(content: Any) -> bool:
    """Whether a description asks for code that is not part of a library."""
    if isinstance(content, dict):
        return bool(content.get("auto_map"))
    return any(not type.startswith("sentence_transformers.") for type in _module_types(content))


def _unsupported(content: Any) -> str | None:
    """Return the first part of a description that makes a network of a size that is not checked."""
    if isinstance(content, dict):
        return next((key for key in CHANGED_SIZES if content.get(key)), None)
    return next((type for type in _module_types(content) if type.rpartition(".")[2] not in MODULES), None)


def _module_types(content: Any) -> list[str]:
    """Return the types of the modules in modules.json, the only description that is a list."""
    entries = content if isinstance(content, list) else []
    return [str(entry["type"]) for entry in entries if isinstance(entry, dict) and "type" in entry]


def _digest(files: Sequence[Path]) -> str:
    """Hash names and contents of files."""
    digest = hashlib.sha256()
    for path in files:
        with open_file(path) as file:
            digest.update(os.fsencode(path.name) + hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()[:16]


def _as_rows(values: Any) -> Rows:
    return np.asarray(values, dtype=np.float32)


@contextmanager
def _loading(where: str) -> Iterator[None]:
    """Turn every failure to load a model into one line."""
    import logging

    try:
        import transformers

        transformers.logging.set_verbosity_error()
        transformers.logging.disable_progress_bar()
    except ImportError:
        raise InputError(f"{where}: models need more packages: {INSTALL}") from None
    logging.getLogger("sentence_transformers").setLevel(logging.ERROR)
    with _one_line(f"{where} cannot be loaded"):
        try:
            yield
        except ImportError as problem:
            raise InputError(f"{where}: {problem}; {INSTALL}") from None


@contextmanager
def _one_line(failed: str) -> Iterator[None]:
    """Turn every failure of a library into one line. A panic of the tokenizers is not an Exception."""
    try:
        yield
    except (InputError, KeyboardInterrupt, SystemExit, MemoryError):
        raise
    except BaseException as problem:
        raise InputError(f"{failed} ({class_and_line(problem)})") from None
