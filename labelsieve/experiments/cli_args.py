"""What the runner is asked for, read from texts and checked: everything that is wrong is named at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from labelsieve.errors import InputError, Problems
from labelsieve.execute.ray_cluster import is_ray
from labelsieve.experiments.cells import Cell, Wish
from labelsieve.experiments.items import find
from labelsieve.experiments.settings import METHODS, TOLD_NOTHING, Noise
from labelsieve.experiments.training import method_of
from labelsieve.methods.settings_text import read_setting

DEVICES = ("auto", "cpu", "cuda", "mps")
HOW_TO_SET = "METHOD.SETTING=VALUE, e.g. f-correction.estimate_epochs=50"


def check_asked(
    items: Sequence[str],
    *,
    scale: str = "paper",
    budget: float | None = None,
    lockstep: int = 16,
    device: str = "auto",
    executor: str = "local",
    **told: Any,
) -> Wish:
    """The wish of these items, or one InputError; `told` is what `_wish` takes."""
    wrong = Problems()
    wish = _wish(wrong, **told)
    cells: list[Cell] = []
    for name in items:
        item = wrong.attempt(find, name)
        if item is not None and scale in item.scales:
            cells += wrong.attempt(item.cells, item.scales[scale], wish) or []
    if cells:
        _check_used(wrong, wish, cells, named=bool(told.get("methods")))
    wrong.check(budget is None or budget >= 0, f"--budget {budget}: at least 0 seconds")
    wrong.check(lockstep >= 1, f"--lockstep {lockstep}: at least 1 network")
    known = device.partition(":")[0] in DEVICES
    wrong.check(known, f"--device {device!r} is not known: choose {', '.join(DEVICES[:-1])} or {DEVICES[-1]}")
    wrong.attempt(check_executor, executor)
    wrong.stop_if_any()
    return wish


def _check_used(wrong: Problems, wish: Wish, cells: Sequence[Cell], *, named: bool) -> None:
    """Nothing asked for is passed over without a word, and what is no setting is found before any training."""
    methods = dict.fromkeys(cell.method for cell in cells)
    has = f"this item has {', '.join(methods)}"
    for name in wish.methods if named else ():
        wrong.check(name in methods, f"--methods {name}: {has}")
    for name, key, _ in wish.settings:
        wrong.check(name in methods, f"--set {name}.{key}: {has}")
    if wish.iterations:
        wrong.check(any(cell.iterations for cell in cells), f"--iterations {wish.iterations}: nothing here is iterated")
    for cell in {(cell.method, cell.settings): cell for cell in cells if cell.settings}.values():
        wrong.attempt(method_of, cell)


def check_executor(executor: str) -> None:
    if executor != "local" and not is_ray(executor):
        raise InputError(f"executor {executor!r} is not known: choose local, ray or ray://HEAD:PORT")


def _wish(
    wrong: Problems,
    *,
    seeds: str = "0",
    methods: str | None = None,
    settings: str | None = None,
    epochs: int | None = None,
    selection_epochs: int | None = None,
    iterations: int | None = None,
    method_settings: Sequence[str] = (),
) -> Wish:
    """What could be read; the usual stands in for what could not, so that the rest can be checked too."""
    numbers = {"--epochs": epochs, "--selection-epochs": selection_epochs, "--iterations": iterations}
    for option, number in numbers.items():
        wrong.check(number is None or number >= 1, f"{option} {number}: at least 1 is needed")
    noises = [wrong.attempt(Noise.parse, text) for text in settings.split(",")] if settings else []
    own = [wrong.attempt(parse_setting, text) for text in method_settings]
    return Wish(
        seeds=wrong.attempt(parse_seeds, seeds) or (0,),
        methods=(wrong.attempt(parse_methods, methods) or METHODS) if methods else METHODS,
        noises=tuple(noise for noise in noises if noise is not None) or None,
        epochs=epochs,
        selection_epochs=selection_epochs,
        iterations=iterations,
        settings=tuple(setting for setting in own if setting is not None),
    )


def parse_seeds(text: str) -> tuple[int, ...]:
    """`0-4`, `0,2` or `3`."""
    found: list[int] = []
    try:
        for part in text.split(","):
            first, _, last = part.partition("-")
            found += range(int(first), int(last or first) + 1)
    except ValueError:
        found = []
    if not found:
        raise InputError(f"cannot read the seeds {text!r}: write 0-4, 0,2 or 3")
    return tuple(dict.fromkeys(found))


def parse_methods(text: str) -> tuple[str, ...]:
    """Names separated by commas; whether the item has them is the item's to say."""
    names, known = tuple(name.strip() for name in text.split(",")), (*METHODS, TOLD_NOTHING)
    unknown = [name or repr(name) for name in names if name not in known]
    if unknown:
        raise InputError(f"no method {', '.join(unknown)}: choose from {', '.join(known)}")
    return names


def parse_setting(text: str) -> tuple[str, str, Any]:
    """`f-correction.estimate_epochs=50`: a setting of a method."""
    name, value = read_setting(text, how=HOW_TO_SET)
    method, _, key = name.rpartition(".")
    if method not in (*METHODS, TOLD_NOTHING) or not key:
        raise InputError(f"cannot read --set {text!r}: write {HOW_TO_SET}")
    return method, key, value
