"""What RobustClassifier may be told, checked when it is fitted, as scikit-learn wants it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from labelsieve.checks import between, is_number, whole
from labelsieve.errors import InputError
from labelsieve.methods import METHODS
from labelsieve.selection.settings import INCVSettings

if TYPE_CHECKING:
    from torch import nn

    from labelsieve.engine import Method
    from labelsieve.methods.robust_classifier import RobustClassifier


def check_settings(told: RobustClassifier) -> None:
    """Raise InputError, which names the parameter and what was expected, for the first that cannot be."""
    for name in ("epochs", "selection_epochs", "batch_size"):
        if getattr(told, name) is not None:
            whole(name, getattr(told, name), least=1, otherwise=", or None")
    rate, ratio = told.learning_rate, told.noise_ratio
    if not is_number(rate) or not 0 < rate < float("inf"):
        raise InputError(f"learning_rate: expected a number above 0, got {rate!r}")
    if ratio is not None:
        between("noise_ratio", ratio, 0, 1, ends="[)", otherwise=", or None")
    if told.method_settings is not None and not isinstance(told.method_settings, Mapping):
        raise InputError(f"method_settings: expected a dict of the method's settings, got {told.method_settings!r}")
    if not isinstance(told.together, bool | np.bool_):
        raise InputError(f"together: expected True or False, got {told.together!r}")
    selection_settings(told)


def check_known_ratio(ratio: float | None, method: Method) -> None:
    """Raise InputError where a noise ratio is given that nobody would look at."""
    if ratio is None or (needs := method.needs()) == "ratio":
        return
    own = method.settings().get("noise_ratio")
    if own is not None:
        raise InputError(f"noise_ratio: it is {ratio} here and {own} in the method's settings; give one of them")
    # A method of one's own that needs nothing may still look at plan.noise_ratio.
    if needs == "selection" or METHODS.get(method.name) is type(method):
        raise InputError(
            f"noise_ratio: method {method.name!r} has no use for it; leave it out, or take method='coteaching'"
        )


def selection_settings(told: RobustClassifier) -> INCVSettings:
    return INCVSettings(n_iterations=told.n_iterations, remove_ratio=cast("Any", told.remove_ratio))


def default_network(shape: tuple[int, ...], classes: int) -> Callable[..., nn.Module]:
    """A small CNN for pictures, channels first, a small MLP for rows of numbers."""
    from labelsieve.models.small import MLP, SmallCNN

    if len(shape) == 3:
        return partial(SmallCNN, classes, channels=shape[0])
    return partial(MLP, classes, inputs=shape[0], widths=(64, 64))


def network_factory(network: Any, shape: tuple[int, ...], classes: int) -> Callable[..., nn.Module]:
    """None is a small one, a name the catalogue's, else the user's own; a network itself can be trained only once."""
    from labelsieve.models.catalog import create

    if network is None:
        return default_network(shape, classes)
    if isinstance(network, str):
        return create(network, shape, classes)
    if hasattr(network, "state_dict") and not isinstance(network, type):
        raise InputError("network: give a function that returns a new torch module, not a module")
    if not callable(network) or hasattr(network, "fit"):
        raise InputError(f"network: expected a function that returns a torch module, or a name, got {network!r}")
    return cast("Callable[..., nn.Module]", network)
