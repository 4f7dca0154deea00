"""labelsieve data: data sets to be had, made or looked into."""

from __future__ import annotations

import shlex
from pathlib import Path

from cyclopts import App

from labelsieve.cli.classes import classes
from labelsieve.cli.common import Common

data = App(
    name="data",
    help="List a source's classes and write them alike; fetch CIFAR; make a small folder laid out like WebVision.",
    help_format="plaintext",
)
data.command(classes)


@data.command
def fetch(name: str, /, *, to: Path, common: Common = Common()) -> None:
    """Fetch a data set, checksums checked. Beside sources called hf:NAME nothing else goes to the network.

    Parameters
    ----------
    name
        cifar10 or cifar100.
    to
        The folder to put it in.
    """
    from labelsieve.data.cifar_fetch import fetch as get

    folder = get(to, name, say=common.progress().note)
    common.say(f"{name} is in {folder}; use it as {shlex.quote(f'{name}:{folder}')}")
    common.answer({"name": name, "to": folder, "source": f"{name}:{folder}"})


@data.command(name="make-webvision")
def make_webvision(
    *,
    to: Path,
    classes: int = 10,
    train: int = 40,
    validation: int = 10,
    wrong: float = 0.2,
    side: int = 256,
    corrupt: int = 0,
    common: Common = Common(),
) -> None:
    """Write a small folder of WebVision's layout with drawn pictures and planted wrong labels.

    Parameters
    ----------
    to
        The folder to write.
    classes
        How many.
    train
        Training pictures a class.
    validation
        Validation pictures a class.
    wrong
        Share of training labels that are planted wrong.
    side
        Shorter side of the pictures in pixels.
    corrupt
        How many training files are cut short.
    """
    from labelsieve.data.make_webvision import make

    found = make(
        to,
        classes=classes,
        train=train,
        validation=validation,
        wrong=wrong,
        side=side,
        corrupt=corrupt,
        seed=common.seed,
    )
    common.say(
        f"{to}: {classes} classes, {classes * train:,} training pictures; use it as {shlex.quote(f'webvision:{to}')}"
    )
    common.answer({"to": to, "source": f"webvision:{to}", **found})
