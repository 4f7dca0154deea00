"""A cell: one training (or one selection) of a figure or table, with every setting, under a name that stays."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from labelsieve.errors import InputError
from labelsieve.experiments.settings import AS_IT_IS, METHODS, TOLD_NOTHING, WITHOUT_DECAY, Noise, Scale

# Kinds of cells, each a folder of records. `confusion` is drawn from theory's cells, `curves` from accuracy's.
# theory-without-decay: the theory takes for granted that wrong labels are learnt by heart, and weight decay works
# against that. The paper names one for every training; the ResNet-110 of its released code has none.
THEORY = ("theory", WITHOUT_DECAY)
SELECTIONS = ("selection", TOLD_NOTHING, "errors", "webvision-selection")
# Methods whose epochs differ in length from the others' run in a lockstep of their own.
OWN_LOCKSTEP = ("incv-coteaching", TOLD_NOTHING)


@dataclass(frozen=True)
class Cell:
    """`settings` are the method's own where they differ from its defaults."""

    kind: str
    noise: Noise
    method: str
    seed: int
    scale: str
    data: str
    network: str
    epochs: int
    batch_size: int
    iterations: int = 0  # of INCV: run by a selection, started from by incv-coteaching
    selection_epochs: int = 0  # of the INCV that the training starts from
    settings: tuple[tuple[str, Any], ...] = ()
    full_epochs: int = field(default=0, compare=False)  # what the protocol asks for
    full_iterations: int = field(default=0, compare=False)
    full_selection_epochs: int = field(default=0, compare=False)

    @property
    def name(self) -> str:
        """The record's file name: readable, and another one for every other setting."""
        parts = [self.method, self.noise.key, f"seed{self.seed}"]
        if self.epochs != self.full_epochs:
            parts.append(f"e{self.epochs}")
        if self.iterations != self.full_iterations:
            parts.append(f"i{self.iterations}")
        if self.selection_epochs != self.full_selection_epochs:
            parts.append(f"s{self.selection_epochs}")
        if self.settings:
            text = json.dumps(self.settings, sort_keys=True, default=str)
            parts.append(hashlib.sha256(text.encode()).hexdigest()[:6])
        return "-".join(parts)

    @property
    def id(self) -> str:
        return f"{self.kind}/{self.name}"

    @property
    def networks(self) -> int:
        """How many networks of a lockstep the cell takes."""
        return 2 if self.kind in SELECTIONS or self.method in TWO_NETWORKS else 1

    def describe(self) -> dict[str, Any]:
        """Every setting, for the record."""
        found = asdict(self)
        found["settings"] = dict(self.settings)
        return found

    def differs_from(self, record: Mapping[str, Any]) -> str:
        """What a record of this name was made with that this cell is not, in words; none where it is this cell's."""
        ours = json.loads(json.dumps(self.describe()))
        names = [
            name for name, value in record["cell"].items() if not name.startswith("full_") and ours.get(name) != value
        ]
        return ", ".join(f"{name} {record['cell'][name]} instead of {ours.get(name)}" for name in names)

    def lockstep_key(self) -> tuple[Any, ...]:
        """Cells with the same key can take their steps together."""
        own = self.method in OWN_LOCKSTEP
        return (self.kind, self.network, self.epochs, self.batch_size, self.iterations if own else 0, own)


TWO_NETWORKS = (*OWN_LOCKSTEP, "coteaching", "decoupling")


@dataclass(frozen=True)
class Wish:
    """What the user asks of an item: which settings, methods and seeds, and what differs from the protocol."""

    seeds: tuple[int, ...] = (0,)
    methods: tuple[str, ...] = METHODS
    noises: tuple[Noise, ...] | None = None
    epochs: int | None = None
    selection_epochs: int | None = None
    iterations: int | None = None  # of INCV
    settings: tuple[tuple[str, str, Any], ...] = ()  # method, setting, value

    def of(self, method: str) -> tuple[tuple[str, Any], ...]:
        return tuple(sorted((key, value) for name, key, value in self.settings if name == method))

    def choose(self, noises: Sequence[Noise]) -> list[Noise]:
        if self.noises is None:
            return list(noises)
        unknown = [f"{n.pattern}-{n.ratio:g}" for n in self.noises if n not in noises]  # `key` rounds
        if unknown:
            raise InputError(
                f"this item has no setting {', '.join(unknown)}: it has {', '.join(n.key for n in noises)}"
            )
        return list(self.noises)


def theory_cells(
    scale: Scale, wish: Wish, noises: Sequence[Noise] | None = None, *, kind: str = "theory"
) -> list[Cell]:
    """Section 5.1: a deep network trained on one half, asked about the other."""
    return [
        _cell(kind, noise, "standard", seed, scale, scale.deep_network, wish.epochs or scale.epochs, scale.epochs)
        for seed in wish.seeds
        for noise in wish.choose(noises or scale.theory_settings)
    ]


def selection_cells(scale: Scale, wish: Wish, *, kind: str = "selection") -> list[Cell]:
    """Section 5.2: INCV."""
    return [
        _selection(kind, noise, seed, scale, wish) for seed in wish.seeds for noise in wish.choose(scale.table_settings)
    ]


def errors_cells(scale: Scale, wish: Wish) -> list[Cell]:
    """Figure 5: INCV on the labels as they are."""
    return [_selection("errors", AS_IT_IS, seed, scale, wish) for seed in wish.seeds]


def accuracy_cells(scale: Scale, wish: Wish, *, kind: str = "accuracy") -> list[Cell]:
    """Section 5.3: table 1, or 2 for kind `webvision`; the selections that some start from come first."""
    known = (*METHODS, TOLD_NOTHING) if kind == "accuracy" else METHODS
    unknown = [m for m in wish.methods if m not in known]
    if unknown:
        raise InputError(f"no method {', '.join(unknown)}: choose from {', '.join(known)}")
    needy = [m for m in wish.methods if from_selection(kind, m)]
    sources = dict.fromkeys(_selection_kind(kind, m) for m in needy)
    cells = [cell for source in sources for cell in selection_cells(scale, wish, kind=source)]
    epochs = wish.epochs or scale.epochs
    for seed in wish.seeds:
        for method in wish.methods:
            for noise in wish.choose(scale.table_settings):
                from_incv = method in needy
                asked, usual = (_selection_epochs(_selection_kind(kind, method), scale, w) for w in (wish, Wish()))
                cells.append(
                    _cell(
                        kind,
                        noise,
                        method,
                        seed,
                        scale,
                        scale.network,
                        epochs,
                        scale.epochs,
                        iterations=(wish.iterations or scale.iterations) if from_incv else 0,
                        selection_epochs=asked if from_incv else 0,
                        full_selection_epochs=usual if from_incv else 0,
                        settings=wish.of(method),
                    )
                )
    return cells


def from_selection(kind: str, method: str) -> bool:
    """Whether a training starts from INCV's. On WebVision co-teaching does too: nobody else knows a noise ratio."""
    return method in OWN_LOCKSTEP or (kind == "webvision" and method == "coteaching")


def sources_of(cell: Cell, scale: Scale) -> list[Cell]:
    """The selections an incv-coteaching cell can start from: the whole one, or one that stopped where it starts."""
    return [
        _selection(
            _selection_kind(cell.kind, cell.method),
            cell.noise,
            cell.seed,
            scale,
            Wish(selection_epochs=cell.selection_epochs, iterations=k),
        )
        for k in dict.fromkeys((scale.iterations, cell.iterations))
    ]


def in_locksteps(cells: Iterable[Cell], networks: int) -> list[list[Cell]]:
    """Cells that run together: the same key, at most so many networks, in the order given."""
    groups: dict[tuple[Any, ...], list[list[Cell]]] = {}
    for cell in cells:
        pieces = groups.setdefault(cell.lockstep_key(), [[]])
        if pieces[-1] and sum(c.networks for c in pieces[-1]) + cell.networks > networks:
            pieces.append([])
        pieces[-1].append(cell)
    return [piece for pieces in groups.values() for piece in pieces if piece]


def _selection_kind(kind: str, method: str) -> str:
    if method == TOLD_NOTHING:
        return TOLD_NOTHING
    return "webvision-selection" if kind == "webvision" else "selection"


def _selection_epochs(kind: str, scale: Scale, wish: Wish) -> int:
    return wish.selection_epochs or (scale.fast_epochs if kind == TOLD_NOTHING else scale.selection_epochs)


def _selection(kind: str, noise: Noise, seed: int, scale: Scale, wish: Wish) -> Cell:
    epochs, usual = (_selection_epochs(kind, scale, w) for w in (wish, Wish()))
    iterations = wish.iterations or scale.iterations
    network = scale.fast_network if kind == TOLD_NOTHING else scale.network
    cell = _cell(kind, noise, "incv", seed, scale, network, epochs, usual, iterations=iterations)
    return replace(cell, batch_size=scale.fast_batch_size) if kind == TOLD_NOTHING else cell


def _cell(
    kind: str,
    noise: Noise,
    method: str,
    seed: int,
    scale: Scale,
    network: str,
    epochs: int,
    full_epochs: int,
    *,
    iterations: int = 0,
    selection_epochs: int = 0,
    full_selection_epochs: int = 0,
    settings: tuple[tuple[str, Any], ...] = (),
) -> Cell:
    return Cell(
        kind=kind,
        noise=noise,
        method=method,
        seed=seed,
        scale=scale.name,
        data=scale.data,
        network=network,
        epochs=epochs,
        batch_size=scale.batch_size,
        iterations=iterations,
        selection_epochs=selection_epochs,
        settings=settings,
        full_epochs=full_epochs,
        full_iterations=scale.iterations if iterations else 0,
        full_selection_epochs=full_selection_epochs,
    )
