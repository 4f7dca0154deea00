"""Networks by name: what `--model` takes. A factory is called without arguments, or with n=... for a stack."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from torch import nn

from labelsieve.errors import InputError
from labelsieve.models.inception_resnet_v2 import SMALLEST, InceptionResNetV2
from labelsieve.models.preact_resnet import PreActResNet
from labelsieve.models.resnet_cifar import ResNetCifar
from labelsieve.models.small import MLP, SmallCNN

Factory = Callable[..., nn.Module]

PICTURE_MODELS: dict[str, Factory] = {
    "small-cnn": SmallCNN,
    **{f"resnet{depth}": partial(ResNetCifar, depth=depth) for depth in (20, 32, 44, 56, 110)},
    "resnet110-preactivation": partial(ResNetCifar, depth=110, preactivation=True),
    "preact-resnet18": PreActResNet,
    "inception-resnet-v2": InceptionResNetV2,
}
MODELS = ("auto", *PICTURE_MODELS, "mlp")


def best_model(shape: tuple[int, ...]) -> str:
    """A sensible network for samples of this shape, (features,) or (channels, height, width)."""
    if len(shape) != 3:
        return "mlp"
    side = min(shape[1:])
    if side < 24:
        return "small-cnn"
    if side <= 64:
        return "resnet32"
    return "inception-resnet-v2" if side >= SMALLEST else "preact-resnet18"


def create(name: str, shape: tuple[int, ...], classes: int) -> Factory:
    """The factory of a named network for samples of this shape."""
    if name not in MODELS:
        raise InputError(f"model {name!r} is not known: choose one of {', '.join(MODELS)}")
    name = best_model(shape) if name == "auto" else name
    if name == "mlp":
        if len(shape) != 1:
            raise InputError(f"model mlp takes rows of numbers, not pictures of {shape[1]} x {shape[2]} pixels")
        return partial(MLP, classes, inputs=shape[0])
    if len(shape) != 3:
        raise InputError(f"model {name} takes pictures, not rows of {shape[0]} numbers: choose mlp")
    if name == "inception-resnet-v2" and min(shape[1:]) < SMALLEST:
        raise InputError(
            f"model {name} needs pictures of {SMALLEST} pixels a side, these have {min(shape[1:])}: choose another"
        )
    return partial(PICTURE_MODELS[name], classes, channels=shape[0])
