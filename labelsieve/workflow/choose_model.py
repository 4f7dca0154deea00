"""What `--model` can name, and the trainer that it makes.

A classifier of scikit-learn trains on rows of numbers (pictures flattened) or on texts; a network trains on the engine.
What `auto` chooses for tables was measured: see `selection.defaults`. `package.module:Name` is any scikit-learn
classifier class or any function that returns a torch network.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from labelsieve.errors import InputError
from labelsieve.import_name import imported
from labelsieve.selection.defaults import CLASSIFIERS, EDGES, default_name, named_classifier
from labelsieve.types import LabelledData, Trainer
from labelsieve.workflow.sample_reader import CROP

if TYPE_CHECKING:
    from labelsieve.progress import Progress


def resolve(model: str, data: LabelledData, device: str) -> str:
    """`auto` by the kind of data; any other name is checked against it."""
    if ":" in model:
        return model
    if data.kind == "text":
        if model not in ("auto", "tfidf"):
            raise InputError(f"--model {model} does not read texts: choose tfidf, or package.module:Name")
        return "tfidf"
    if model == "auto" and data.kind == "table":
        # A column of names is many once it is numbers, and still one that somebody wrote.
        written = getattr(getattr(data.x, "encoding", None), "columns", ())
        return default_name(len(data), len(written) or data.x.shape[1])
    if model in CLASSIFIERS:
        if model == "tfidf":
            raise InputError(f"--model tfidf reads texts, not {data.kind}")
        if model == EDGES and data.kind != "pictures":
            raise InputError("--model edges reads pictures, not rows of a table: choose another, or auto")
        return model
    return resolve_network(model, shape(data), len(data.classes), device, others=("fast", *CLASSIFIERS))


def check_name(model: str, *, others: Sequence[str] = ("fast", *CLASSIFIERS), option: str = "--model") -> None:
    """Is there something of that name? Whether it takes the samples is seen when they are there."""
    if model == "auto" or model in others or ":" in model:
        return  # without torch, which the names of networks need
    from labelsieve.models.catalog import MODELS

    if model not in MODELS:
        names = ", ".join((*MODELS, *others))
        raise InputError(f"{option} {model!r} is not known: choose one of {names}, or package.module:Name")


def resolve_network(
    model: str,
    shape: tuple[int, ...],
    classes: int,
    device: str,
    *,
    others: Sequence[str] = (),
    option: str = "--model",
) -> str:
    """`auto` by the samples' shape and the device; any other name is checked against the shape."""
    if ":" in model:
        return model
    from labelsieve.models.catalog import best_model, create

    check_name(model, others=others, option=option)
    if model == "auto":
        from labelsieve.engine.device import choose_device

        small = len(shape) == 3 and min(shape[1:]) <= 64 and choose_device(device).type == "cpu"
        model = "small-cnn" if small else best_model(shape)
    create(model, shape, classes)
    return model


def factory_of(model: str, shape: tuple[int, ...], classes: int) -> Callable[..., Any]:
    """The factory of a resolved network name."""
    if ":" in model:
        _, factory = from_name(model, classes)
        if factory is None:
            raise InputError(f"{model} is a classifier, not a network")
        from labelsieve.engine.factory import check_factory, settled

        check_factory(factory, shape, classes, name=model)
        return settled(factory, shape)
    from labelsieve.models.catalog import create

    return create(model, shape, classes)


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
    made: Any = None
    factory: Callable[..., Any] | None = None
    if model in CLASSIFIERS:
        made = named_classifier(model, len(data))
    elif ":" in model:
        made, factory = from_name(model, len(data.classes))
    else:
        factory = factory_of(model, shape(data), len(data.classes))
    if factory is not None:
        return _engine_trainer(
            data, factory, model, epochs=epochs, device=device, checkpoint=checkpoint, progress=progress
        )
    from labelsieve.execute.sklearn_trainer import SklearnTrainer

    return SklearnTrainer(rows(data, model), made, len(data.classes), workers)


def shape(data: LabelledData, *, crop: int = CROP) -> tuple[int, ...]:
    """Of one sample as a network sees it: channels first. `crop`: the most of pictures that come from files."""
    if data.kind == "pictures":
        if not isinstance(data.x, np.ndarray):
            side = min(crop, int(data.x.side))
            return 3, side, side
        height, width, channels = data.x.shape[1:]
        return channels, height, width
    return (data.x.shape[1],)


def rows(data: LabelledData, model: str = "") -> Any:
    """What a scikit-learn classifier reads."""
    if data.kind != "pictures":
        return data.x if data.kind == "text" else np.asarray(data.x)
    if model == EDGES:
        from labelsieve.data.edges import edge_features

        return edge_features(data.x)
    return np.asarray(data.x, dtype=np.float32).reshape(len(data), -1) / 255


def from_name(name: str, classes: int) -> tuple[Any, Callable[..., Any] | None]:
    """(classifier, None) or (None, factory) for package.module:Name."""
    found = imported(name, what="--model")
    if hasattr(found, "fit"):
        from labelsieve.selection.estimators import check_classifier

        classifier = found() if isinstance(found, type) else found
        try:
            check_classifier(classifier)
        except InputError as problem:
            raise InputError(str(problem).replace("estimator:", f"--model {name}:", 1)) from None
        return classifier, None
    if not callable(found):
        raise InputError(f"--model {name} is neither a classifier nor a function that makes a network")
    if hasattr(found, "state_dict") and not isinstance(found, type):
        raise InputError(f"--model {name} is a network itself: name a function that makes one for a number of classes")
    return None, partial(found, classes)


def _engine_trainer(
    data: LabelledData,
    factory: Callable[..., Any],
    name: str,
    *,
    epochs: int,
    device: str,
    checkpoint: Path | None,
    progress: Progress | None,
) -> Trainer:
    if data.kind == "text":
        raise InputError("a network cannot read texts as they are: use --model tfidf")
    from labelsieve import stopping
    from labelsieve.progress import Progress
    from labelsieve.workflow.time_hints import ToldTrainer

    x = data.x
    if data.kind == "pictures" and not isinstance(x, np.ndarray):
        from labelsieve.data.device_pictures import picture_store
        from labelsieve.engine.device import choose_device

        x = picture_store(x, choose_device(device), crop=shape(data)[1])
    return ToldTrainer(
        x, factory, told=progress or Progress(silent=True), side=shape(data)[1] if data.kind == "pictures" else None,
        classes=len(data.classes), epochs=epochs, device=device, checkpoint=checkpoint, name=name,
        stop=stopping.requested, checkpoint_seconds=5.0,
    )  # fmt: skip
