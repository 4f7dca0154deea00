"""A cell is one training, or one INCV selection, of a figure or table. This module lists the cells of each section."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from labelsieve.errors import InputError, Problems
from labelsieve.experiments import ReproduceOptions
from labelsieve.experiments.paper import AS_GIVEN, AUTOMATIC, METHODS, POSTERIOR, SCALES, WEBVISION, Noise, Scale
from labelsieve.methods.custom_method import read_setting

# Kinds of cells; each kind has its own folder of records. `confusion` is drawn from the theory cells, `curves` from the
# accuracy cells. The theory assumes that the network memorises wrong labels, and weight decay works against that. The
# paper reports weight decay for every training; the ResNet-110 of its released code has none. Both are run.
WITHOUT_DECAY = "theory-without-decay"
THEORY_KINDS = ("theory", WITHOUT_DECAY)
FINISH, FINISH_SELECTION = "finish", "finish-selection"
FAST_KINDS = (AUTOMATIC, FINISH_SELECTION)  # selections by the fast network, which know nothing about the noise
SELECTION_KINDS = ("selection", *FAST_KINDS, "errors", "webvision-selection")
# The epochs of these methods have another length, so they do not share a lockstep with the others.
SEPARATE_LOCKSTEP = ("incv-coteaching", AUTOMATIC)
TWO_NETWORKS = (*SEPARATE_LOCKSTEP, POSTERIOR, "coteaching", "decoupling")
KNOWN_METHODS = (*METHODS, AUTOMATIC)
SETTING_FORM = "METHOD.SETTING=VALUE, e.g. f-correction.estimate_epochs=50"


@dataclass(frozen=True)
class Cell:
    """One training or selection with all its settings. The `full_*` fields are the protocol's own lengths."""

    kind: str
    noise: Noise
    method: str
    seed: int
    scale: str
    data: str
    network: str
    epochs: int
    batch_size: int
    iterations: int = 0  # INCV iterations: of the selection, or of the selection that the training starts from
    selection_epochs: int = 0  # epochs of the selection that the training starts from
    settings: tuple[tuple[str, Any], ...] = ()  # settings of the method that differ from its defaults
    full_epochs: int = field(default=0, compare=False)
    full_iterations: int = field(default=0, compare=False)
    full_selection_epochs: int = field(default=0, compare=False)

    @property
    def name(self) -> str:
        """File name of the record: readable, and different for different settings."""
        parts = [self.method, self.noise.key, f"seed{self.seed}"]
        if self.kind == FINISH:
            parts.insert(1, self.network)
        lengths = {
            "e": (self.epochs, self.full_epochs),
            "i": (self.iterations, self.full_iterations),
            "s": (self.selection_epochs, self.full_selection_epochs),
        }
        parts += [f"{letter}{length}" for letter, (length, full) in lengths.items() if length != full]
        if self.settings:
            text = json.dumps(self.settings, sort_keys=True, default=str)
            parts.append(hashlib.sha256(text.encode()).hexdigest()[:6])
        return "-".join(parts)

    @property
    def id(self) -> str:
        return f"{self.kind}/{self.name}"

    @property
    def networks(self) -> int:
        return 2 if self.kind in SELECTION_KINDS or self.method in TWO_NETWORKS else 1

    @property
    def starts_from_selection(self) -> bool:
        """Whether the training needs INCV first."""
        return self.kind not in SELECTION_KINDS and bool(_selection_kind(self.kind, self.method))

    @property
    def protocol(self) -> Scale:
        return (WEBVISION if self.kind.startswith("webvision") else SCALES)[self.scale]

    def describe(self) -> dict[str, Any]:
        """Return every setting, for the record."""
        return asdict(self) | {"settings": dict(self.settings)}

    def differences(self, record: Mapping[str, Any]) -> list[str]:
        """List the settings in which a record of this name differs from this cell."""
        wanted = json.loads(json.dumps(self.describe()))
        return [
            f"{name} {value} instead of {wanted.get(name)}"
            for name, value in record["cell"].items()
            if not name.startswith("full_") and wanted.get(name) != value
        ]

    def lockstep_key(self) -> tuple[Any, ...]:
        """Return a key that is equal for cells that can train in one lockstep."""
        separate = self.method in SEPARATE_LOCKSTEP
        return (self.kind, self.network, self.epochs, self.batch_size, self.iterations if separate else 0, separate)


@dataclass(frozen=True)
class SweepRequest:
    """The requested part of an item: seeds, methods and noise settings, and differences from the protocol."""

    seeds: tuple[int, ...] = (0,)
    methods: tuple[str, ...] = METHODS
    noises: tuple[Noise, ...] | None = None
    networks: tuple[str, ...] | None = None  # of items that compare several
    epochs: int | None = None
    selection_epochs: int | None = None
    iterations: int | None = None  # of INCV
    settings: tuple[tuple[str, str, Any], ...] = ()  # method, setting, value

    def settings_of(self, method: str) -> tuple[tuple[str, Any], ...]:
        return tuple(sorted((key, value) for name, key, value in self.settings if name == method))

    def choose(self, default: Sequence[Noise], more: Sequence[Noise] = ()) -> list[Noise]:
        """Return the requested noise settings, by default those of `default`; `more` must be requested."""
        if self.noises is None:
            return list(default)
        available = (*default, *more)
        unknown = [f"{n.pattern}-{n.ratio:g}" for n in self.noises if n not in available]  # `key` rounds
        if unknown:
            names = ", ".join(noise.key for noise in available)
            raise InputError(f"this item has no setting {', '.join(unknown)}: it has {names}")
        return list(self.noises)

    def choose_networks(self, available: Sequence[str]) -> Sequence[str]:
        """Return the requested networks, by default all available ones."""
        unknown = [name or repr(name) for name in self.networks or () if name not in available]
        if unknown:
            raise InputError(f"--networks {', '.join(unknown)}: this item has {', '.join(available)}")
        return available if self.networks is None else self.networks


# ---------------------------------------------------------------- the cells of each section


def theory_cells(
    scale: Scale, request: SweepRequest, *, kind: str = "theory", noises: Sequence[Noise] | None = None
) -> list[Cell]:
    """Section 5.1: a deep network trained on one half of the data and tested on the other."""
    chosen = request.choose(noises or scale.theory_noises)
    return [_cell(kind, noise, "standard", seed, scale, request) for seed in request.seeds for noise in chosen]


def selection_cells(scale: Scale, request: SweepRequest, *, kind: str = "selection") -> list[Cell]:
    """Section 5.2: INCV; for kind `errors` on the labels as given."""
    chosen = request.choose((AS_GIVEN,) if kind == "errors" else scale.table_noises)
    return [_cell(kind, noise, "incv", seed, scale, request) for seed in request.seeds for noise in chosen]


def accuracy_cells(scale: Scale, request: SweepRequest, *, kind: str = "accuracy") -> list[Cell]:
    """Section 5.3: table 1, or table 2 for kind `webvision`. The selections that trainings start from come first."""
    _check_known(request.methods, KNOWN_METHODS if kind == "accuracy" else METHODS)
    trainings = [
        _cell(kind, noise, method, seed, scale, request)
        for seed in request.seeds
        for method in request.methods
        for noise in request.choose(scale.table_noises)
    ]
    return _with_selections(trainings, scale, request)


def finish_cells(scale: Scale, request: SweepRequest) -> list[Cell]:
    """POSTERIOR with every network of the protocol, and the selections that it starts from."""
    trainings = [
        _cell(FINISH, noise, POSTERIOR, seed, scale, request, network)
        for seed in request.seeds
        for noise in request.choose(scale.finish_noises, scale.finish_more_noises)
        for network in request.choose_networks(scale.finish_networks)
    ]
    return _with_selections(trainings, scale, request)


def _with_selections(trainings: Sequence[Cell], scale: Scale, request: SweepRequest) -> list[Cell]:
    """Return the selections that trainings start from, then the trainings."""
    sources = [_source(cell, scale, request) for cell in trainings if cell.starts_from_selection]
    return [*{cell.id: cell for cell in sources}.values(), *trainings]


def selections_for(cell: Cell) -> list[Cell]:
    """Return the selections a training can start from: one that ended at the same iteration, or the full one.

    Protocol "auto" may change its verdicts until its last iteration, so that the full one cannot be used for less.
    """
    automatic = _selection_kind(cell.kind, cell.method) in FAST_KINDS
    lengths = (cell.iterations,) if automatic else (cell.protocol.iterations, cell.iterations)
    return [
        _source(cell, cell.protocol, SweepRequest(selection_epochs=cell.selection_epochs, iterations=iterations))
        for iterations in dict.fromkeys(lengths)
    ]


def _source(cell: Cell, scale: Scale, request: SweepRequest) -> Cell:
    return _cell(_selection_kind(cell.kind, cell.method), cell.noise, "incv", cell.seed, scale, request)


def _selection_kind(kind: str, method: str) -> str:
    """Return the kind of the selection that a cell is or starts from; empty if it has none.

    WebVision has no known noise ratio, so that co-teaching takes INCV's.
    """
    if kind in SELECTION_KINDS:
        return kind
    if method in (AUTOMATIC, POSTERIOR):
        return AUTOMATIC if method == AUTOMATIC else FINISH_SELECTION
    if kind == "webvision":
        return "webvision-selection" if method in ("incv-coteaching", "coteaching") else ""
    return "selection" if method == "incv-coteaching" else ""


def group_into_locksteps(cells: Iterable[Cell], networks: int) -> list[list[Cell]]:
    """Group cells with the same key, in order, with at most `networks` networks per group."""
    groups: dict[tuple[Any, ...], list[list[Cell]]] = {}
    for cell in cells:
        pieces = groups.setdefault(cell.lockstep_key(), [[]])
        if pieces[-1] and sum(c.networks for c in pieces[-1]) + cell.networks > networks:
            pieces.append([])
        pieces[-1].append(cell)
    return [piece for pieces in groups.values() for piece in pieces if piece]


def _cell(
    kind: str, noise: Noise, method: str, seed: int, scale: Scale, request: SweepRequest, network: str = ""
) -> Cell:
    """Return a cell with the lengths of the protocol, or with the requested ones."""
    selection = _selection_kind(kind, method)
    selection_epochs = scale.fast_epochs if selection in FAST_KINDS else scale.selection_epochs
    network, batch_size = network or scale.network, scale.batch_size
    epochs, wanted = scale.epochs, request.epochs
    if kind in SELECTION_KINDS:
        epochs, wanted = selection_epochs, request.selection_epochs
    if kind in FAST_KINDS:
        network, batch_size = scale.fast_network, scale.fast_batch_size
    if kind in THEORY_KINDS:
        network = scale.deep_network
    if kind == FINISH:
        epochs, batch_size = scale.finish_epochs, scale.finish_batch_size
    starts = bool(selection) and kind not in SELECTION_KINDS  # from a selection
    return Cell(
        kind, noise, method, seed, scale.name, scale.data, network, wanted or epochs, batch_size,
        iterations=(request.iterations or scale.iterations) if selection else 0,
        selection_epochs=(request.selection_epochs or selection_epochs) if starts else 0,
        settings=request.settings_of(method), full_epochs=epochs, full_iterations=scale.iterations if selection else 0,
        full_selection_epochs=selection_epochs if starts else 0,
    )  # fmt: skip


# ---------------------------------------------------------------- requests from the command line


def read_request(problems: Problems, options: ReproduceOptions) -> SweepRequest:
    """Parse the options. Defaults replace what cannot be parsed, so that the rest can be checked too."""
    numbers = {
        "--epochs": options.epochs,
        "--selection-epochs": options.selection_epochs,
        "--iterations": options.iterations,
    }
    for option, number in numbers.items():
        problems.check(number is None or number >= 1, f"{option} {number}: must be at least 1")
    noises = [problems.attempt(Noise.parse, text) for text in options.settings.split(",")] if options.settings else []
    settings = [problems.attempt(parse_method_setting, text) for text in options.set]
    methods = problems.attempt(parse_methods, options.methods) if options.methods else METHODS
    return SweepRequest(
        seeds=problems.attempt(parse_seeds, options.seeds or "0") or (0,),
        methods=methods or METHODS,
        noises=tuple(noise for noise in noises if noise is not None) or None,
        networks=tuple(name.strip() for name in options.networks.split(",")) if options.networks else None,
        epochs=options.epochs,
        selection_epochs=options.selection_epochs,
        iterations=options.iterations,
        settings=tuple(setting for setting in settings if setting is not None),
    )


def parse_seeds(text: str) -> tuple[int, ...]:
    """Read `0-4`, `0,2` or `3`."""
    seeds: list[int] = []
    try:
        for part in text.split(","):
            first, _, last = part.partition("-")
            seeds += range(int(first), int(last or first) + 1)
    except ValueError:
        seeds = []
    if not seeds:
        raise InputError(f"cannot read the seeds {text!r}: write 0-4, 0,2 or 3")
    return tuple(dict.fromkeys(seeds))


def parse_methods(text: str) -> tuple[str, ...]:
    """Read method names separated by commas."""
    names = tuple(name.strip() for name in text.split(","))
    _check_known(names, KNOWN_METHODS)
    return names


def parse_method_setting(text: str) -> tuple[str, str, Any]:
    """Read `f-correction.estimate_epochs=50`."""
    name, value = read_setting(text, form=SETTING_FORM)
    method, _, key = name.rpartition(".")
    if method not in (*KNOWN_METHODS, POSTERIOR) or not key:
        raise InputError(f"cannot read --set {text!r}: write {SETTING_FORM}")
    return method, key, value


def _check_known(methods: Sequence[str], known: Sequence[str]) -> None:
    unknown = [name or repr(name) for name in methods if name not in known]
    if unknown:
        raise InputError(f"no method {', '.join(unknown)}: choose from {', '.join(known)}")
