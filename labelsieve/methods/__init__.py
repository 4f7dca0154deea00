"""Robust methods: one file per method, each a loss on the engine. METHODS names them."""

from __future__ import annotations

from typing import Any

from labelsieve.checks import import_object
from labelsieve.engine.method import Method
from labelsieve.errors import InputError
from labelsieve.methods.coteaching import CoTeaching
from labelsieve.methods.custom_method import check_class, check_method, instantiate
from labelsieve.methods.d2l import D2L
from labelsieve.methods.decoupling import Decoupling
from labelsieve.methods.f_correction import FCorrection
from labelsieve.methods.incv_coteaching import INCVCoTeaching
from labelsieve.methods.incv_posterior import INCVPosterior
from labelsieve.methods.mentornet import MentorNet
from labelsieve.methods.standard import Standard

METHODS: dict[str, type[Method]] = {
    "incv-coteaching": INCVCoTeaching,
    "incv-posterior": INCVPosterior,
    "coteaching": CoTeaching,
    "decoupling": Decoupling,
    "f-correction": FCorrection,
    "mentornet": MentorNet,
    "d2l": D2L,
    "standard": Standard,
}


def create(method: str | Method | type[Method], /, **settings: Any) -> Method:
    """Return a method from its name, from `package.module:Name`, from a class or from an instance.

    Raises InputError if the method or one of the settings is not known.
    """
    if isinstance(method, str) and ":" not in method:
        if method not in METHODS:
            raise InputError(f"unknown method {method!r}: choose one of {', '.join(METHODS)}, or package.module:Name")
        return instantiate(METHODS[method], method, settings)
    if isinstance(method, str):
        found, name = import_object(method, what="method"), method
    else:
        found, name = method, method.__name__ if isinstance(method, type) else type(method).__name__
    check_class(found, name)
    if not isinstance(found, Method):
        instance = instantiate(found, name, settings)
    elif settings:
        raise InputError(
            f"method {name} is an instance, so it takes no settings ({', '.join(settings)}): pass its class instead"
        )
    else:
        instance = found
    check_method(instance, name)
    return instance


__all__ = ["METHODS", "create"]
