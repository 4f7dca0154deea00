"""The settings of a run. The fields are the options of the command line and of `labelsieve.run`.

The docstrings of the classes are the help of the options.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from labelsieve.csv_files import parse_names
from labelsieve.data.read_options import COMMAND_OPTIONS, ReadOptions, option
from labelsieve.errors import InputError, Problems
from labelsieve.execute.build_trainer import LOSSES, device_type
from labelsieve.execute.ray_cluster import is_ray
from labelsieve.models.choose import NETWORKS, ModelChoice, SampleInfo, SelectorRequest, check_name, choose_selector
from labelsieve.models.embed import AUTO, NO_EMBEDDING
from labelsieve.models.stored_classifier import STORABLE
from labelsieve.selection.settings import PATTERNS, INCVSettings, ncv_settings
from labelsieve.types import AUGMENT

if TYPE_CHECKING:
    from labelsieve.engine.method import Method
    from labelsieve.types import LabelledData

Settings = TypeVar("Settings", bound="SourceSettings")
Training = TypeVar("Training", bound="TrainSettings")

SELECTIONS = ("incv", "ncv")
CLASSIFIER = "classifier"  # the method that trains the selector's own kind of classifier instead of a network
NETWORK_METHODS = (
    "incv-coteaching", "incv-posterior", "coteaching", "decoupling", "f-correction", "mentornet", "d2l", "standard",
)  # fmt: skip
METHODS = ("auto", CLASSIFIER, *NETWORK_METHODS)
DEFAULT_METHOD = "incv-coteaching"  # of networks
# Of many small pictures on a GPU: more accurate than DEFAULT_METHOD at every noise of docs/reproduction.md.
SMALL_PICTURES_METHOD = "incv-posterior"
# Options that have no effect on a selection from stored predictions.
TRAINER_OPTIONS = ("model", "embed", "epochs", "loss", "repeats", "remove_ratio", "executor", "protocol", "iterations")
NETWORK_OPTIONS = ("network", "train_epochs", "batch_size", "set", "augment")
DEVICES = ("auto", "cpu", "cuda", "mps")
MIN_PICTURE_SIDE = 8  # pixels; the smallest pictures that the small network reads


@dataclass(frozen=True)
class SourceSettings:
    """How a source is read.

    Parameters
    ----------
    root
        Base folder for relative paths in a table. Default: the folder of the table.
    label_column
        Column with the labels. Default: label.
    text_column
        Column with the texts. Other columns are not used as features. Default: text, if this column exists.
    id_column
        Column with the ids of the samples. Default: id, if this column exists; otherwise the row numbers.
    ignore_columns
        Columns to exclude from the features, separated by commas. Put a name that contains a comma in quotes.
    group_column
        Column with group ids, such as patient ids. Samples with the same group id are always in the same half when the
        data are split at random.
    header
        Column names, separated by commas, for a file without a header row.
    split
        Splits to read, separated by commas, or all. A split is a folder named train, val, validation, valid, dev or
        test, the rows with one of these values in the column split, or a split of CIFAR or a Hugging Face dataset.
        Default: all splits except test; for CIFAR and Hugging Face datasets: train.
    """

    root: Path | None = None
    label_column: str | None = None
    text_column: str | None = None
    id_column: str | None = None
    ignore_columns: str | None = None
    group_column: str | None = None
    header: str | None = None
    split: str | None = None

    @property
    def ignored(self) -> list[str]:
        """The names in `ignore_columns`, sorted, each one once."""
        return sorted(set(parse_names(self.ignore_columns or "", "--ignore-columns")))

    @property
    def header_names(self) -> list[str]:
        """The names in `header`."""
        return parse_names(self.header or "", "--header")

    def read_options(self, **more: Any) -> ReadOptions:
        """How the source is read, with `more` options."""
        options = {name: getattr(self, name) for name in COMMAND_OPTIONS}
        return ReadOptions.of_run(options | {"ignore_columns": self.ignored, "header": self.header_names}, **more)

    def as_in_run(self: Settings, recorded: Mapping[str, Any]) -> Settings:
        """Take the options that are not set from the settings of a run. The model of the run knows its features."""
        found: dict[str, Any] = {}
        for name in ("root", "label_column", "text_column", "id_column"):
            value = recorded.get(name)
            if getattr(self, name) is None and isinstance(value, str) and value:
                found[name] = Path(value) if name == "root" else value
        return replace(self, **found)


@dataclass(frozen=True)
class SelectSettings(SourceSettings):
    """How labels are selected.

    Parameters
    ----------
    selection
        Selection algorithm: incv (iterative noisy cross-validation) or ncv (noisy cross-validation: one iteration, no
        samples are removed).
    iterations
        Maximum number of iterations of INCV.
    epochs
        Number of epochs for each network that is trained for the selection. If you set it, the default model for
        pictures is a network. Default: 50; 10 for the model fast.
    model
        Model used for the selection. Classifiers: boosting, forest (random forest), logistic, nearest (one neighbour),
        neighbours (ten), svm, tfidf (texts), trees (extra trees), edges (pictures, fast without a GPU). Networks: fast
        (small pictures, on a GPU), mlp, small-cnn, resnet20, resnet32, resnet44, resnet56, resnet110,
        resnet110-preactivation, preact-resnet18, inception-resnet-v2. Custom model: package.module:Name. auto chooses a
        model based on the samples and the device.
    embed
        Pretrained model that computes embeddings of pictures or texts. The embeddings are the features for selection
        and training. One of: a folder, a Hugging Face name (see `labelsieve data fetch model`),
        package.module:function, auto (for texts and photos, the default model if it was downloaded) or none.
    loss
        Loss of the networks used for the selection: ce (cross-entropy) or gce (generalised cross-entropy).
    repeats
        Number of random splits per iteration. The predictions of all splits are averaged. The training time is
        proportional to this number.
    predictions
        File with out-of-sample predicted probabilities. No model is trained for the selection. Formats: .npy, .npz
        (array pred_probs), or .csv or .parquet with one column per class and optionally an id column.
    remove_ratio
        Maximum number of removed samples per selected sample: a number, or auto (no limit; with --protocol paper: the
        rule of the paper's authors). Removed samples are not used to train the models of later iterations.
    labels
        CSV file with the columns id, label and optionally true. Its labels replace those of the source; true
        labels are only used to measure the result.
    executor
        Where the models for the selection are trained: local, ray (this machine or $RAY_ADDRESS) or ray://HEAD:PORT.
    device
        Device for training and running networks: auto, cpu, cuda or mps.
    protocol
        How settings are chosen: auto (based on the estimated noise) or paper (as in the code of the paper's authors).
    pattern
        Noise pattern for --protocol paper: symmetric (wrong labels are spread evenly over all other classes), pair (all
        wrong labels of a class are the same other class) or auto (symmetric). It has no effect with --protocol auto,
        which estimates the noise.
    size
        Resize pictures to squares with this side length in pixels. Default: depends on the source. With --size,
        --embed auto computes no embeddings. With --embed NAME, --size is the length of the shorter side of the pictures
        that are passed to the embedding model; default: 256.
    workers
        Number of processes for scikit-learn classifiers. Default: one process, with a thread per core.
    seed
        Random seed. The same seed gives the same result on the same hardware.
    """

    selection_option: ClassVar[str] = "--selection"  # `select` calls it --method

    selection: str = "incv"
    iterations: int = 4
    epochs: int | None = None
    model: str = "auto"
    embed: str = "auto"
    loss: str = "ce"
    repeats: int = 1
    predictions: Path | None = None
    remove_ratio: str = "auto"
    labels: Path | None = None
    executor: str = "local"
    device: str = "auto"
    protocol: str = "auto"
    pattern: str = "auto"
    size: int | None = None
    workers: int | None = None
    seed: int = 0

    def check(self, problems: Problems) -> None:
        """Collect everything that is wrong with the options before the source is read."""
        for name in ("iterations", "epochs", "repeats", "workers"):
            check_at_least(problems, name, getattr(self, name), 1)
        chosen = f"{self.selection_option} {self.selection!r}"
        problems.check(self.selection in SELECTIONS, f"unknown {chosen}; choose one of {', '.join(SELECTIONS)}")
        for name, value, known in (
            ("loss", self.loss, LOSSES),
            ("pattern", self.pattern, PATTERNS),
            ("protocol", self.protocol, ("auto", "paper")),
        ):
            check_known(problems, name, value, known)
        check_device(problems, self.device, here=self.executor == "local")
        check_seed(problems, self.seed)
        known_executor = self.executor == "local" or is_ray(self.executor)
        problems.check(known_executor, f"unknown --executor {self.executor!r}; choose local, ray or ray://HEAD:PORT")
        problems.attempt(check_name, self.model, option="--model")
        problems.check(
            _is_ratio(self.remove_ratio), f"--remove-ratio must be auto or a number >= 0, got {self.remove_ratio!r}"
        )
        check_at_least(problems, "size", self.size, MIN_PICTURE_SIDE)
        problems.check(self.root is None or self.root.is_dir(), f"--root {self.root} is not a folder")
        if self.protocol == "paper":
            problems.check(self.group_column is None, "--group-column: --protocol paper has no groups; leave it out")
            problems.check(self.repeats == 1, "--repeats: --protocol paper has one split per iteration; leave it out")
        if self.predictions is not None:
            given = [option(name) for name in TRAINER_OPTIONS if getattr(self, name) != getattr(SelectSettings, name)]
            problems.check(not given, f"--predictions: nothing is trained or removed; leave out {', '.join(given)}")

    def incv_settings(self) -> INCVSettings:
        """Return the settings of the algorithm."""
        settings = INCVSettings(
            n_iterations=self.iterations,
            remove_ratio="auto" if self.remove_ratio == "auto" else float(self.remove_ratio),
            pattern=self.pattern,
            repeats=self.repeats,
            protocol=self.protocol,  # type: ignore[arg-type]
        )
        return settings if self.selection == "incv" else ncv_settings(settings)

    @property
    def embed_name(self) -> str | None:
        """The model of --embed, a folder with its absolute path; None for "none" and if predictions are given."""
        if self.embed == NO_EMBEDDING or self.predictions is not None:
            return None
        return absolute(self.embed) if self.embed != AUTO and Path(self.embed).is_dir() else self.embed

    def recorded(self) -> dict[str, Any]:
        """Return the entries of run.json that are known before the source is read."""
        named: dict[str, Any] = {} if self.model == "auto" or self.predictions is not None else {"model": self.model}
        if self.embed != AUTO:
            named["embed"] = self.embed_name
        paths = {"labels": self.labels, "root": self.root, "predictions": self.predictions}
        return named | {
            "method": self.selection if self.predictions is None else "ncv", "iterations": self.iterations,
            "seed": self.seed, "repeats": self.repeats, "remove_ratio": self.remove_ratio, "protocol": self.protocol,
            "pattern": self.pattern, "size": self.size, "label_column": self.label_column or "label",
            "id_column": self.id_column or "id",
            "ignore_columns": self.ignored or None,
            "group_column": self.group_column, "split": self.split, "header": self.header_names or None,
            **{name: None if path is None else absolute(path) for name, path in paths.items()},
        }  # fmt: skip

    def recorded_with(self, choice: ModelChoice, data: LabelledData) -> dict[str, Any]:
        """Return the entries of run.json that a resumed selection must have in common with this one."""
        from labelsieve.data.columns import encoding_of

        encoding = encoding_of(data.x)
        text = encoding.text if encoding is not None else None
        model = None if data.embedding is None else data.embedding.model
        return self.recorded() | {
            "embed": None if model is None else model.name,
            "embed_revision": None if model is None else model.revision,
            "model": choice.name,
            "epochs": choice.epochs(self.epochs) if choice.is_network else None,
            "loss": self.loss if choice.is_network else None,
            "text_column": self.text_column or text,
        }


@dataclass(frozen=True)
class TrainSettings:
    """How the model of a run is trained.

    Parameters
    ----------
    method
        Training method. classifier: the type of classifier that was used for the selection, trained on the samples
        whose labels are more likely right than wrong; a random forest and edges on all samples, with weights. For
        networks: incv-coteaching, incv-posterior, coteaching, decoupling, f-correction, mentornet, d2l, standard or
        package.module:Name. auto: classifier for texts, tables, embeddings and, without a GPU, up to 5,000 pictures of
        at least 16 pixels, unless --network, --train-epochs, --batch-size, --augment or --set is set or the selection
        used --protocol paper; incv-posterior for 5,000 or more pictures of 24 to 64 pixels on a GPU, unless --set is
        set or the selection used --protocol paper; otherwise incv-coteaching.
    set
        Setting of the method as NAME=VALUE, such as estimate_epochs=50 for f-correction. Repeat --set to change
        several settings.
    network
        Network to train: mlp, small-cnn, resnet20, resnet32, resnet44, resnet56, resnet110, resnet110-preactivation,
        preact-resnet18, inception-resnet-v2, package.module:Name, or auto (chosen based on the samples, the device and
        the method).
    train_epochs
        Number of epochs of the network that is trained after the selection. Default: 200 on a GPU; 20 to 60 on a CPU,
        depending on the number of samples. incv-posterior trains a second network for as many epochs if many of the
        selected labels are wrong.
    batch_size
        Number of samples per batch. Default: 128 (256 for incv-posterior with pictures on a GPU); smaller for small
        data sets.
    augment
        Data augmentation for pictures: mirror (random mirroring and shifts), shift (random shifts), none, or auto
        (mirror, unless mirroring changes the class of pictures).
    device
        Device for training and running networks: auto, cpu, cuda or mps.
    seed
        Random seed. The same seed gives the same result on the same hardware.
    """

    method: str = "auto"
    set: tuple[str, ...] = ()
    network: str = "auto"
    train_epochs: int | None = None
    batch_size: int | None = None
    augment: str = "auto"
    device: str = "auto"
    seed: int = 0

    def check(self, problems: Problems) -> None:
        """Collect everything that is wrong with the options before the samples are read."""
        own = ":" in self.method
        known = self.method in METHODS or own
        names = f"{', '.join(METHODS)}, or package.module:Name"
        problems.check(known, f"unknown --method {self.method!r}; choose one of {names}")
        if known and (self.set or own):  # only then are the methods imported, which need torch
            problems.attempt(self.create_method)
        given = self.network_options()
        problems.check(
            self.method != CLASSIFIER or not given, f"{', '.join(given)} is for networks; omit --method {CLASSIFIER}"
        )
        problems.attempt(check_name, self.network, option="--network", known=NETWORKS)
        check_known(problems, "augment", self.augment, AUGMENT)
        check_at_least(problems, "train_epochs", self.train_epochs, 1)
        check_at_least(problems, "batch_size", self.batch_size, 2)
        check_device(problems, self.device)
        check_seed(problems, self.seed)

    def network_options(self) -> list[str]:
        """Return the options that are set and that only networks have."""
        return [option(name) for name in NETWORK_OPTIONS if getattr(self, name) != getattr(TrainSettings, name)]

    def for_samples(
        self: Training, data: LabelledData, record: Mapping[str, Any], *, paper: bool = False,
        samples: int | None = None,
    ) -> Training:  # fmt: skip
        """Replace the method auto: by that of `record`, the run.json of a run that was started, or by the samples.

        `samples` replaces the number of samples for a plan.
        """
        if self.method != "auto":
            return self
        before = record.get("stages", {}).get("train", {}).get("settings", {}).get("train_method")
        return replace(self, method=before or self._automatic_method(data.features(), paper, samples or len(data)))

    def _automatic_method(self, data: LabelledData, paper: bool, samples: int) -> str:
        """Return the classifier if one would select by default, and no option is for networks; else a method."""
        info = replace(SampleInfo.of(data), count=samples)
        if not paper and not self.network_options():
            request = SelectorRequest(device_type=device_type(self.device, info))
            if choose_selector(info, len(data.classes), request).name in STORABLE[data.kind]:
                return CLASSIFIER
        if paper or self.set or not info.many_small_pictures:  # --set alone is for DEFAULT_METHOD
            return DEFAULT_METHOD
        from labelsieve.engine.device import choose_device
        from labelsieve.methods.incv_posterior import MOST_MEMORY, memory_bytes

        fits = memory_bytes(samples, len(data.classes), networks=1) <= MOST_MEMORY
        return SMALL_PICTURES_METHOD if fits and choose_device(self.device).type == "cuda" else DEFAULT_METHOD

    def method_settings(self) -> dict[str, Any]:
        """Return the settings of the method that --set names."""
        from labelsieve.methods.custom_method import read_settings

        return read_settings(self.set)

    def create_method(self, defaults: Mapping[str, Any] | None = None) -> Method:
        """Return the method; --set overrides `defaults`."""
        from labelsieve.methods import create

        method = DEFAULT_METHOD if self.method == "auto" else self.method
        return create(method, **{**(defaults or {}), **self.method_settings()})

    def method_text(self) -> str:
        """Return the method with its settings for a message."""
        return f"{self.method} ({' '.join(self.set)})" if self.set else self.method


@dataclass(frozen=True)
class RunSettings(TrainSettings, SelectSettings):
    """The settings of all stages of a run."""

    def check(self, problems: Problems) -> None:
        SelectSettings.check(self, problems)
        TrainSettings.check(self, problems)

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> RunSettings:
        """Build the settings from keyword arguments of `labelsieve.run`."""
        known = {field.name for field in fields(cls)}
        unknown = [name for name in options if name not in known]
        if unknown:
            raise InputError(
                f"run() has no option {', '.join(map(repr, unknown))}; choose from {', '.join(sorted(known))}"
            )
        values = dict(options)
        for name in ("root", "predictions", "labels"):
            if values.get(name) is not None:
                values[name] = Path(values[name])
        if isinstance(chosen := values.get("set"), Mapping):
            values["set"] = tuple(f"{name}={value}" for name, value in chosen.items())
        if not isinstance(names := values.get("ignore_columns") or "", str):
            values["ignore_columns"] = ",".join(f'"{name}"' for name in names)
        if "remove_ratio" in values:
            values["remove_ratio"] = str(values["remove_ratio"])
        return cls(**values)


@dataclass(frozen=True)
class PlanRequest:
    """What is planned besides the settings of a run.

    Parameters
    ----------
    gpus
        Number of devices like this one that share the work.
    samples
        Number of samples to plan for. Default: that of the source.
    seconds
        Duration of the measurement in seconds.
    """

    gpus: int = 1
    samples: int | None = None
    seconds: float = 5.0

    def check(self, problems: Problems) -> None:
        """Collect what is wrong with the options."""
        for name in ("gpus", "samples"):
            check_at_least(problems, name, getattr(self, name), 1)
        problems.check(self.seconds > 0, f"--seconds must be above 0, got {self.seconds}")


def check_at_least(problems: Problems, name: str, value: float | None, least: int) -> None:
    """Add a problem if an option is below its minimum; None is the default of the option."""
    problems.check(value is None or value >= least, f"{option(name)} must be at least {least}, got {value}")


def check_known(problems: Problems, name: str, value: str, known: tuple[str, ...]) -> None:
    """Add a problem if the value of an option is not known."""
    problems.check(value in known, f"unknown {option(name)} {value!r}; choose one of {', '.join(known)}")


def check_device(problems: Problems, device: str, *, here: bool = True) -> None:
    """Add a problem if no device has this name, or if it is used on this machine (`here`), which does not have it."""
    kind = device.split(":")[0]
    problems.check(kind in DEVICES, f"unknown --device {device!r}; choose one of {', '.join(DEVICES)}")
    if here and kind in DEVICES and device not in ("auto", "cpu"):
        from labelsieve.engine.device import choose_device  # imports torch

        problems.attempt(choose_device, device)


def check_seed(problems: Problems, seed: int) -> None:
    problems.check(0 <= seed < 2**32, f"--seed must be an integer from 0 to 2^32 - 1, got {seed}")


def absolute(path: str | Path) -> str:
    """Return an absolute path; unlike Path.resolve it keeps links."""
    return os.path.abspath(path)  # noqa: PTH100


def _is_ratio(text: str) -> bool:
    if text == "auto":
        return True
    try:
        return 0 <= float(text) < float("inf")
    except ValueError:
        return False
