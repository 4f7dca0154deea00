"""Turn a model name, a user's own model or `None` into a model. No other module does this.

`choose_selector` chooses the model that selects labels, `choose_network` the network of the robust training. The
command line, the scikit-learn estimators and the experiments call them, so they all make the same choices. A
`ModelChoice` describes the model; `execute.build_trainer` makes a trainer of it.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

import numpy as np

from labelsieve.checks import import_object
from labelsieve.data.columns import TableX
from labelsieve.data.edges import EdgeFeatures
from labelsieve.data.embedding_cache import EmbeddedX
from labelsieve.errors import InputError
from labelsieve.types import LabelledData

if TYPE_CHECKING:
    from torch import nn

    Factory = Callable[..., nn.Module]

CLASSIFIERS = ("boosting", "edges", "forest", "logistic", "nearest", "neighbours", "svm", "tfidf", "trees")
PICTURE_NETWORKS = (
    "small-cnn", "resnet20", "resnet32", "resnet44", "resnet56", "resnet110", "resnet110-preactivation",
    "preact-resnet18", "inception-resnet-v2",
)  # fmt: skip
NETWORKS = (*PICTURE_NETWORKS, "mlp")
EDGES, FAST, STORED, TEXT = "edges", "fast", "predictions", "tfidf"
SELECTORS = (FAST, *CLASSIFIERS, *NETWORKS)

# A table with more columns than this usually holds features of a network: benchmarks/table-classifiers.md.
WIDE_TABLE_COLUMNS = 100
# The training time of a kernel machine grows with the square of the samples; above this it takes more than seconds.
KERNEL_SAMPLES = 5_000
# An approximation of the kernel with this many components takes time in proportion to the samples, and is as accurate:
# benchmarks/edges-classifiers.md.
KERNEL_COMPONENTS = 500
# Larger leaves for more samples bound the memory of a forest: benchmarks/growth.md.
SAMPLES_PER_LEAF_SAMPLE = 20_000
# Oriented gradients need this many pixels per side: benchmarks/few-pictures.md.
EDGES_MIN_SIDE = 16
# The fast network selects better than a ResNet-32 on pictures of these sizes, given enough steps in ten epochs:
# benchmarks/fast-selector.md.
FAST_SIDES, FAST_MIN_SAMPLES = (24, 64), 5_000
SMALL_PICTURE_SIDE = 64  # pixels; on a CPU larger networks than small-cnn take hours on such pictures
INCEPTION_MIN_SIDE = 75  # pixels; below this a pooling layer has no input left
PAPER_EPOCHS, FAST_EPOCHS = 50, 10  # of a training of the selection


@runtime_checkable
class Classifier(Protocol):
    """An object that learns labels; `predict_proba`, `decision_function` or `predict` gives its predictions."""

    def fit(self, X: Any, y: Any) -> Any:
        """Train on samples and labels."""


@runtime_checkable
class Copyable(Protocol):
    """What `sklearn.base.clone` needs."""

    def get_params(self, deep: bool = True) -> Any:
        """Return the parameters by name."""


class ModelKind(Enum):
    """How a model is trained."""

    CLASSIFIER = "a scikit-learn classifier"
    NETWORK = "a network"
    FAST = "the fast network"
    STORED = "stored predictions"


@dataclass(frozen=True)
class SampleInfo:
    """The properties of the samples that decide which model reads them."""

    kind: Literal["pictures", "table", "text", "arrays"]
    count: int
    shape: tuple[int, ...] = ()  # of one sample as a network reads it, channels first; empty for texts
    columns: int | None = None  # of a table, before categories become several numbers
    in_memory: bool = True
    sparse: bool = False
    embedded: bool = False  # the rows are embeddings of a pretrained model
    numbers: int | None = None  # columns of the rows before those of texts, if a table has both

    @property
    def small_pictures(self) -> bool:
        """Whether these are pictures like those of CIFAR-10, with which FAST and incv-posterior were measured."""
        if self.kind != "pictures":
            return False
        return FAST_SIDES[0] <= min(self.shape[1:]) and max(self.shape[1:]) <= FAST_SIDES[1]

    @property
    def many_small_pictures(self) -> bool:
        return self.small_pictures and self.count >= FAST_MIN_SAMPLES

    @classmethod
    def of(cls, data: LabelledData) -> SampleInfo:
        """Describe samples that a source holds."""
        if data.kind == "text":
            return cls("text", len(data))
        if data.kind == "table":
            embedded, numbers = isinstance(data.x, EmbeddedX), numbers_of(data.x)
            shape = (data.x.shape[1],)
            return cls("table", len(data), shape, columns_of(data.x), embedded=embedded, numbers=numbers)
        from labelsieve.data.pictures import CROP
        from labelsieve.data.read_pictures import picture_shape

        common = picture_shape(data.x)
        if common is not None:
            height, width, channels = common
            return cls("pictures", len(data), (channels, height, width))
        side = min(CROP, int(data.x.side))
        return cls("pictures", len(data), (3, side, side), in_memory=False)

    @property
    def described(self) -> str:
        """The kind of samples for a message."""
        names = {"text": "texts", "table": "rows of a table", "pictures": "pictures"}
        return names.get(self.kind, f"arrays of shape {list(self.shape)}")


@dataclass(frozen=True)
class ModelChoice:
    """A model that was chosen. It builds an unfitted classifier or a network when that is needed."""

    name: str
    kind: ModelKind
    build_classifier: Callable[[], Any] | None = None  # imports scikit-learn, which a finished run does not need
    factory: Factory | None = None

    @cached_property
    def classifier(self) -> Any:
        """The unfitted classifier; None for other models."""
        return None if self.build_classifier is None else self.build_classifier()

    @property
    def is_network(self) -> bool:
        return self.kind in (ModelKind.NETWORK, ModelKind.FAST)

    def epochs(self, wanted: int | None) -> int:
        """Return the number of epochs of each training."""
        return wanted or (FAST_EPOCHS if self.kind is ModelKind.FAST else PAPER_EPOCHS)

    def learn_edges(self, data: LabelledData) -> EdgeFeatures | None:
        """Learn the features of the training samples of `edges`; None for other models."""
        return EdgeFeatures.learn(data.x) if self.name == EDGES else None

    def rows(self, data: LabelledData, edges: EdgeFeatures | None) -> Any:
        """Return what the classifier reads: `edges` or pixels of pictures, other samples unchanged."""
        x = data.x
        if data.kind != "pictures":
            return np.asarray(x) if isinstance(x, TableX) else x
        return edges.rows(x) if edges is not None else np.asarray(x, dtype=np.float32).reshape(len(x), -1) / 255


@dataclass(frozen=True)
class SelectorRequest:
    """What the user asked of the model that selects; `option` is the name of the parameter in messages."""

    model: Any = None
    device_type: str = "cpu"
    loss: str = "ce"
    epochs: int | None = None
    protocol: str = "auto"
    option: str = "--model"


def columns_of(x: Any) -> int | None:
    """Count the columns of a table as its owner does; None for texts, pictures and other arrays."""
    if isinstance(x, TableX):
        return len(x.encoding.columns)
    shape: tuple[int, ...] = np.shape(x) if not isinstance(x, list) else ()
    return int(shape[1]) if len(shape) == 2 else None


def numbers_of(x: Any) -> int | None:
    """Count the columns of numbers before those of texts; None if a table has no texts."""
    return x.encoding.number_width if isinstance(x, TableX) and x.encoding.texts else None


def check_name(name: str, *, option: str, known: tuple[str, ...] = SELECTORS) -> None:
    """Raise InputError if no model has this name; whether it reads the samples is checked when they are known."""
    if name != "auto" and name not in known and ":" not in name:
        raise InputError(f"unknown {option} {name!r}; choose one of auto, {', '.join(known)}, or package.module:Name")


def choose_selector(samples: SampleInfo, classes: int, request: SelectorRequest) -> ModelChoice:
    """Choose the model that selects labels."""
    model, option = request.model, request.option
    if model is None or (isinstance(model, str) and model == "auto"):
        model = _automatic_selector(samples, request)
    if _is_own(model):
        choice = _own_model(model, samples, classes, option)
    else:
        check_name(model, option=option)
        _check_reads(model, samples, option)
        if model == FAST:
            choice = ModelChoice(FAST, ModelKind.FAST)
        elif model in CLASSIFIERS:
            build = partial(
                named_classifier, model, samples.count, sparse=samples.sparse, numbers=samples.numbers,
                embedded=samples.embedded,
            )  # fmt: skip
            choice = ModelChoice(model, ModelKind.CLASSIFIER, build)
        else:
            factory = create_network(model, samples.shape, classes, option=option)
            choice = ModelChoice(model, ModelKind.NETWORK, factory=factory)
    if request.loss != "ce" and not choice.is_network:
        raise InputError(f"loss {request.loss} is for networks, but {choice.name} is a classifier; omit it")
    return choice


def choose_network(
    model: Any, samples: SampleInfo, classes: int, *, device_type: str, option: str = "--network"
) -> ModelChoice:
    """Choose the network of the robust training."""
    if _is_own(model):
        return _own_model(model, samples, classes, option, networks_only=True)
    if samples.kind == "arrays":
        raise InputError(own_network_needed(samples, option))
    if model is None or model == "auto":
        model = best_network(samples.shape, device_type)
    check_name(model, option=option, known=NETWORKS)
    return ModelChoice(model, ModelKind.NETWORK, factory=create_network(model, samples.shape, classes, option=option))


def best_network(shape: tuple[int, ...], device_type: str = "cuda") -> str:
    """Name a network for samples of this shape, (features,) or (channels, height, width)."""
    if len(shape) != 3:
        return "mlp"
    side = min(shape[1:])
    if side < FAST_SIDES[0] or (device_type == "cpu" and side <= SMALL_PICTURE_SIDE):
        return "small-cnn"
    if side <= SMALL_PICTURE_SIDE:
        return "resnet32"
    return "inception-resnet-v2" if side >= INCEPTION_MIN_SIDE else "preact-resnet18"


def create_network(name: str, shape: tuple[int, ...], classes: int, *, option: str = "--model") -> Factory:
    """Return the factory of a named network. It is called without arguments, or with n=... for a stack of networks."""
    if name == "mlp":
        if len(shape) != 1:
            raise InputError(
                f"{option}: mlp reads rows of numbers, not pictures of {shape[1]} x {shape[2]} pixels; choose another"
            )
        from labelsieve.models.small import MLP

        return partial(MLP, classes, inputs=shape[0])
    network = _picture_network(name, option)
    if len(shape) != 3:
        raise InputError(f"{option}: {name} reads pictures, not rows of {shape[0]} numbers; choose mlp")
    if name == "inception-resnet-v2" and min(shape[1:]) < INCEPTION_MIN_SIDE:
        raise InputError(
            f"{option}: {name} needs pictures of at least {INCEPTION_MIN_SIDE} pixels per side, "
            f"these have {min(shape[1:])}; choose another network"
        )
    return partial(network, classes, channels=shape[0])


def _picture_network(name: str, option: str) -> Factory:
    from labelsieve.models.inception_resnet_v2 import InceptionResNetV2
    from labelsieve.models.resnet_cifar import PreActResNet, ResNetCifar
    from labelsieve.models.small import SmallCNN

    fixed: dict[str, Factory] = {
        "small-cnn": SmallCNN,
        "small": partial(SmallCNN, widths=(16, 32)),  # of the experiments at smoke scale
        "preact-resnet18": PreActResNet,
        "inception-resnet-v2": InceptionResNetV2,
    }
    if name in fixed:
        return fixed[name]
    if (found := re.fullmatch(r"resnet(\d+)(-preactivation)?", name)) and (int(found[1]) - 2) % 6 == 0:
        return partial(ResNetCifar, depth=int(found[1]), preactivation=found[2] is not None)
    raise InputError(f"unknown {option} {name!r}; choose one of auto, {', '.join(NETWORKS)}")


def named_classifier(
    name: str, samples: int = 0, *, sparse: bool = False, numbers: int | None = None, embedded: bool = False
) -> Any:
    """Return the unfitted classifier of a name for this number of samples; `embedded` ones are read by another model.

    On the tables of benchmarks/table-classifiers.md a random forest selects and ranks best. Features of networks are
    wide arrays, for which a support vector machine is better.
    """
    from sklearn.compose import ColumnTransformer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import MaxAbsScaler, StandardScaler

    scaler = MaxAbsScaler() if sparse else StandardScaler()  # subtracting the mean would fill sparse rows
    if numbers is not None:  # features of texts have one scale; most of those that vary little are noise
        scaler = ColumnTransformer([("numbers", scaler, slice(0, numbers))], remainder="passthrough")
    leaf = samples // SAMPLES_PER_LEAF_SAMPLE
    if name in ("nearest", "neighbours"):
        from sklearn.neighbors import KNeighborsClassifier

        # One neighbour memorises the training labels, as the theory assumes.
        return KNeighborsClassifier(1) if name == "nearest" else make_pipeline(scaler, KNeighborsClassifier(10))
    if name in ("forest", "trees"):
        from sklearn.ensemble import ExtraTreesClassifier, RandomForestClassifier

        if name == "forest":  # leaves of one sample repeat single wrong labels
            return RandomForestClassifier(100, min_samples_leaf=max(2, leaf))
        return ExtraTreesClassifier(200, min_samples_leaf=max(3, leaf))
    if name == "boosting":
        from sklearn.ensemble import HistGradientBoostingClassifier

        return HistGradientBoostingClassifier()
    if name == EDGES and samples > KERNEL_SAMPLES:
        from sklearn.kernel_approximation import Nystroem
        from sklearn.linear_model import LogisticRegression

        return make_pipeline(Nystroem(n_components=KERNEL_COMPONENTS), LogisticRegression(C=3, max_iter=300, tol=1e-3))
    if name in ("svm", EDGES):
        from sklearn.svm import SVC

        # Scaled, the few columns of colours would count for little beside the many of edges.
        return SVC(C=3) if name == EDGES else make_pipeline(scaler, SVC())
    from sklearn.linear_model import LogisticRegression

    if name == "logistic":
        if not embedded:
            return make_pipeline(scaler, LogisticRegression(max_iter=1000))
        from labelsieve.models.tuned_logistic import TunedLogistic

        return make_pipeline(scaler, TunedLogistic(max_iter=1000))
    from sklearn.feature_extraction.text import TfidfVectorizer

    from labelsieve.data.text import tokens

    # Newton steps in single precision reach the same optimum as the default in a sixth of the processor time:
    # benchmarks/text-speed.md.
    words = TfidfVectorizer(analyzer=tokens, sublinear_tf=True, dtype=np.float32)
    return make_pipeline(words, LogisticRegression(C=10, solver="newton-cg", max_iter=1000))


def check_classifier(estimator: Any, option: str) -> None:
    """Raise InputError for an estimator that does not predict classes or cannot be copied."""
    from sklearn.base import BaseEstimator, is_classifier
    from sklearn.utils import get_tags

    name = type(estimator).__name__
    if isinstance(estimator, BaseEstimator):
        kind = get_tags(estimator).estimator_type
        if kind is not None and not is_classifier(estimator):
            raise InputError(f"{option}: {name} is of type {kind}; give a classifier")
    elif not isinstance(estimator, Copyable):
        raise InputError(f"{option}: {name} cannot be copied; derive it from sklearn.base.BaseEstimator")


def own_network_needed(samples: SampleInfo, option: str) -> str:
    """Explain what can be done with arrays that are neither rows nor pictures."""
    return (
        f"X: arrays of shape {list(samples.shape)} need your own network: give {option} a function that returns one. "
        "Pictures are uint8 [n, height, width, channels] or [n, height, width], rows are X.reshape(len(X), -1)"
    )


def best_classifier(samples: SampleInfo) -> str:
    """Name a classifier for texts, rows or pictures."""
    if samples.kind == "text":
        return TEXT
    if samples.kind == "pictures":
        return EDGES
    if samples.embedded or samples.sparse or samples.numbers is not None:  # benchmarks/table-reading.md
        return "logistic"
    if (samples.columns or samples.shape[0]) <= WIDE_TABLE_COLUMNS:
        return "forest"
    return "svm" if samples.count <= KERNEL_SAMPLES else "trees"


def _automatic_selector(samples: SampleInfo, request: SelectorRequest) -> str:
    if samples.kind == "arrays":
        raise InputError(own_network_needed(samples, request.option))
    if samples.kind != "pictures":
        return best_classifier(samples)
    auto = request.protocol == "auto"
    if auto and samples.in_memory and samples.many_small_pictures and request.device_type == "cuda":
        return FAST
    # Epochs or a loss only have a meaning for a network.
    any_model = auto and request.loss == "ce" and request.epochs is None
    few = samples.count <= KERNEL_SAMPLES and min(samples.shape[1:]) >= EDGES_MIN_SIDE
    if any_model and few and request.device_type == "cpu":
        return best_classifier(samples)
    return best_network(samples.shape, request.device_type)


def _check_reads(name: str, samples: SampleInfo, option: str) -> None:
    """Raise InputError if a named model does not read such samples."""
    problem = ""
    pictures_only = name in (EDGES, FAST) or (name in PICTURE_NETWORKS and samples.kind == "arrays")
    if samples.kind == "text" and name != TEXT:
        problem = f"does not read texts; choose {TEXT}"
    elif name == TEXT and samples.kind != "text":
        problem = f"reads texts; these samples are {samples.described}"
    elif pictures_only and samples.kind != "pictures":
        problem = f"reads pictures as uint8 [n, height, width, channels]; these samples are {samples.described}"
    elif samples.kind == "arrays":
        problem = "reads rows of numbers; give X.reshape(len(X), -1)"
    elif name == "boosting" and samples.sparse:
        able = ", ".join(other for other in CLASSIFIERS if other not in (name, EDGES, TEXT))
        problem = f"does not read sparse rows; choose one of {able}, or give X.toarray()"
    elif name == FAST:
        from labelsieve.models.fast_cnn import WIDTHS

        smallest = 2 ** len(WIDTHS)  # each block halves the picture
        if not samples.in_memory:
            problem = "reads pictures of one size, these differ in size; choose another model"
        elif min(samples.shape[1:]) < smallest:
            problem = f"needs pictures of at least {smallest} pixels per side, these have {min(samples.shape[1:])}; "
            problem += f"enlarge them (files: --size {smallest}), or choose small-cnn"
    if problem:
        raise InputError(f"{option}: {name} {problem}")


def _is_own(model: Any) -> bool:
    """Whether a model is the user's own, an object or package.module:Name."""
    return ":" in model if isinstance(model, str) else model is not None


def _own_model(
    model: Any, samples: SampleInfo, classes: int, option: str, *, networks_only: bool = False
) -> ModelChoice:
    """Return the user's own network factory or, unless `networks_only`, classifier."""
    named = isinstance(model, str)
    name, where = (model, f"{option} {model}") if named else (type(model).__name__, option)
    found = import_object(model, what=option) if named else model
    if not networks_only:
        if isinstance(found, type) and isinstance(found, Classifier):
            if not named:
                raise InputError(f"{where}: {found.__name__} is a class; give an object, such as {found.__name__}()")
            found = found()
        if isinstance(found, Classifier):
            check_classifier(found, where)
            return ModelChoice(name, ModelKind.CLASSIFIER, build_classifier=partial(_unchanged, found))
        if samples.kind == "text":
            raise InputError(f"{where}: a network cannot read texts; choose {TEXT}")
    factory = _own_factory(found, classes, where, named=named)
    return ModelChoice(name if named else "network", ModelKind.NETWORK, factory=factory)


def _unchanged(found: Any) -> Any:
    """Return the argument; unlike a lambda, a partial of this function can be pickled."""
    return found


def _own_factory(found: Any, classes: int, option: str, *, named: bool) -> Factory:
    """Return the user's network factory; one that was named is called with the number of classes."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(found, torch.nn.Module):
        raise InputError(f"{option}: a network can only be trained once; give a function that returns a new one")
    if not callable(found) or isinstance(found, Classifier):
        raise InputError(f"{option}: expected a function that returns a torch module, or a name, got {found!r}")
    return partial(found, classes) if named else found
