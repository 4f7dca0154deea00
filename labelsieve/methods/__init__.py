"""Robust methods: one file a method, each a loss on the engine. Table 1 of the paper is this dictionary."""

from __future__ import annotations

from typing import Any

from labelsieve.engine.method import Method
from labelsieve.errors import InputError
from labelsieve.methods.coteaching import CoTeaching
from labelsieve.methods.d2l import D2L
from labelsieve.methods.decoupling import Decoupling
from labelsieve.methods.f_correction import FCorrection
from labelsieve.methods.incv_coteaching import INCVCoTeaching
from labelsieve.methods.mentornet import MentorNet
from labelsieve.methods.standard import Standard

METHODS: dict[str, type[Method]] = {
    "incv-coteaching": INCVCoTeaching,
    "coteaching": CoTeaching,
    "decoupling": Decoupling,
    "f-correction": FCorrection,
    "mentornet": MentorNet,
    "d2l": D2L,
    "standard": Standard,
}


def create(name: str, **settings: Any) -> Method:
    """The method of that name with these settings; an InputError names what is unknown."""
    if name not in METHODS:
        raise InputError(f"unknown method {name!r}: choose one of {', '.join(METHODS)}")
    try:
        return METHODS[name](**settings)
    except TypeError as error:
        known = ", ".join(METHODS[name]().settings()) or "none"
        raise InputError(f"method {name!r} got a setting it does not have ({error}); its settings: {known}") from error


__all__ = [
    "D2L",
    "METHODS",
    "CoTeaching",
    "Decoupling",
    "FCorrection",
    "INCVCoTeaching",
    "MentorNet",
    "Standard",
    "create",
]
