"""Robust methods: one file a method, each a loss on the engine. Table 1 of the paper is this dictionary."""

from __future__ import annotations

from typing import Any

from labelsieve.engine.method import Method
from labelsieve.errors import InputError
from labelsieve.import_name import imported
from labelsieve.methods import custom_method as own
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


def create(method: str | Method | type[Method], **settings: Any) -> Method:
    """A method by its name, by package.module:Name, or of a class of one's own; an InputError names what is unknown."""
    if not isinstance(method, str):
        return own.made(method, getattr(method, "__name__", type(method).__name__), settings)
    if ":" in method:
        return own.made(imported(method, what="method"), method, settings)
    if method not in METHODS:
        raise InputError(f"unknown method {method!r}: choose one of {', '.join(METHODS)}, or package.module:Name")
    return own.instance(METHODS[method], method, settings)


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
