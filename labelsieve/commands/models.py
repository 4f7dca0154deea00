"""What `--model` can name, and the trainer that it makes.

A classifier of scikit-learn trains on rows of numbers (pictures flattened) or on texts; a network trains on the engine.
`package.module:Name` is any scikit-learn classifier class or any function that returns a torch network.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from labelsieve.errors import InputError
from labelsieve.types import LabelledData, Trainer

if TYPE_CHECKING:
    from labelsieve.progress import Progress

CLASSIFIERS = ("boosting", "forest", "logistic", "nearest", "neighbours", "tfidf")
NETWORKS = ("mlp", "small-cnn", "resnet20", "resnet32", "resnet44", "resnet56", "resnet110", "preact-resnet18")
MANY_ROWS = 100_000


def resolve(model: str, data: LabelledData, device: str) -> str:
    """`auto` by the kind of data; any other name is checked against it."""
    if model == "auto":
        if data.kind == "text":
            return "tfidf"
        if data.kind == "table":
            return "boosting" if len(data) > MANY_ROWS else "forest"
        from labelsieve.engine.device import choose_device

        small = min(data.x.shape[1:3]) < 24 or choose_device(device).type == "cpu"
        return "small-cnn" if small else "resnet32"
    if ":" not in model and model not in (*CLASSIFIERS, *NETWORKS):
        names = ", ".join(("auto", *CLASSIFIERS, *NETWORKS))
        raise InputError(f"--model {model!r} is not known: choose one of {names}, or package.module:Name")
    fits = {"text": ("tfidf",), "table": (*CLASSIFIERS[:-1], "mlp"), "pictures": (*CLASSIFIERS[:-1], *NETWORKS[1:])}
    if ":" not in model and model not in fits[data.kind]:
        raise InputError(f"--model {model} does not read {data.kind}: choose one of {', '.join(fits[data.kind])}")
    return model


def make_trainer(
    data: LabelledData,
    model: str,
    *,
    epochs: int = 50,
    device: str = "auto",
    workers: int | None = None,
    checkpoint: Path | None = None,
    progress: Progress | None = None,
) -> Trainer:
    """The trainer for a resolved model name."""
    made = classifier(model) if model in CLASSIFIERS else None
    factory: Callable[..., Any] | None = None
    if model in NETWORKS:
        factory = network(model, data)
    elif made is None:
        made, factory = from_name(model, len(data.classes))
    if factory is not None:
        return _engine_trainer(data, factory, epochs=epochs, device=device, checkpoint=checkpoint, progress=progress)
    from labelsieve.execute.sklearn_trainer import SklearnTrainer

    return SklearnTrainer(rows(data), made, len(data.classes), workers)


def rows(data: LabelledData) -> Any:
    """What a scikit-learn classifier reads."""
    if data.kind != "pictures":
        return data.x if data.kind == "text" else np.asarray(data.x)
    return np.asarray(data.x, dtype=np.float32).reshape(len(data), -1) / 255


def classifier(name: str) -> Any:
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    if name in ("nearest", "neighbours"):
        from sklearn.neighbors import KNeighborsClassifier

        # The nearest one alone repeats its label, right or wrong: it memorises, as the theory assumes.
        return (
            KNeighborsClassifier(1) if name == "nearest" else make_pipeline(StandardScaler(), KNeighborsClassifier(10))
        )
    if name == "forest":
        from sklearn.ensemble import RandomForestClassifier

        return RandomForestClassifier(200)
    if name == "boosting":
        from sklearn.ensemble import HistGradientBoostingClassifier

        return HistGradientBoostingClassifier()
    from sklearn.linear_model import LogisticRegression

    if name == "logistic":
        return make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
    from sklearn.feature_extraction.text import TfidfVectorizer

    return make_pipeline(
        TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True), LogisticRegression(C=10, max_iter=1000)
    )


def network(name: str, data: LabelledData) -> Callable[..., Any]:
    classes = len(data.classes)
    if name == "mlp":
        from labelsieve.models.small import MLP

        return partial(MLP, classes, inputs=int(np.prod(data.x.shape[1:])))
    if name == "small-cnn":
        from labelsieve.models.small import SmallCNN

        return partial(SmallCNN, classes)
    if name == "preact-resnet18":
        from labelsieve.models.preact_resnet import PreActResNet

        return partial(PreActResNet, classes)
    from labelsieve.models.resnet_cifar import ResNetCifar

    return partial(ResNetCifar, classes, depth=int(name.removeprefix("resnet")))


def from_name(name: str, classes: int) -> tuple[Any, Callable[..., Any] | None]:
    """(classifier, None) or (None, factory) for package.module:Name."""
    module, _, attribute = name.partition(":")
    try:
        found = getattr(import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as problem:
        raise InputError(f"--model {name}: {problem}") from None
    if hasattr(found, "fit"):
        return (found() if isinstance(found, type) else found), None
    if not callable(found):
        raise InputError(f"--model {name} is neither a classifier nor a function that makes a network")
    return None, partial(found, classes)


def _engine_trainer(
    data: LabelledData,
    factory: Callable[..., Any],
    *,
    epochs: int,
    device: str,
    checkpoint: Path | None,
    progress: Progress | None,
) -> Trainer:
    if data.kind == "text":
        raise InputError("a network cannot read texts as they are: use --model tfidf")
    from labelsieve import stopping
    from labelsieve.execute.lockstep import EngineTrainer

    def tell(state: dict[str, Any]) -> None:
        if progress is not None and state["epoch"] % max(1, epochs // 5) == 0:
            loss = float(np.mean(state["loss"])) if state["loss"] else float("nan")
            speed = f"{state['images_per_second']:,.0f} samples/s"
            progress.note(f"  epoch {state['epoch']}/{state['epochs']}, loss {loss:.3f}, {speed}")

    return EngineTrainer(
        data.x, factory, classes=len(data.classes), epochs=epochs, device=device, checkpoint=checkpoint,
        progress=tell, stop=stopping.requested, checkpoint_seconds=5.0,
    )  # fmt: skip
