"""Which noise, which network, how long: the paper's protocol, and a small one that a CPU runs in seconds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from labelsieve.errors import InputError
from labelsieve.theory import Matrix, matrix

# What each pattern means, written into every record.
CONVENTIONS = {
    "symmetric": "a wrong label with probability eps, drawn from the other classes, never the true one",
    "pair": "class i becomes (i + 1) mod c with probability eps; the paper's asymmetric noise",
    "none": "the labels as they come with the data",
}
METHODS = ("incv-coteaching", "coteaching", "decoupling", "f-correction", "mentornet", "d2l", "standard")
# Not the paper's: what `labelsieve run` does by itself. INCV told nothing, with the fast network, then algorithm 3.
TOLD_NOTHING = "told-nothing"
WITHOUT_DECAY = "theory-without-decay"


@dataclass(frozen=True)
class Noise:
    """A noise setting; `key` is its name in records and tables."""

    pattern: str
    ratio: float

    @property
    def key(self) -> str:
        return "none" if self.pattern == "none" else f"{self.pattern}-{self.ratio:.1f}"

    @property
    def title(self) -> str:
        names = {"symmetric": "Sym.", "pair": "Asym. (pair)", "none": "As it is"}
        return names[self.pattern] + ("" if self.pattern == "none" else f" {self.ratio:.1f}")

    def transition(self, classes: int) -> Matrix:
        return matrix("symmetric" if self.pattern == "none" else self.pattern, classes, self.ratio)

    @classmethod
    def parse(cls, text: str) -> Noise:
        """`symmetric-0.5`, `sym-0.5` or `pair-0.4`."""
        pattern, _, ratio = text.strip().rpartition("-")
        pattern = {"sym": "symmetric", "asym": "pair", "asymmetric": "pair"}.get(pattern, pattern)
        try:
            value = float(ratio)
        except ValueError:
            value = -1.0
        if pattern not in ("symmetric", "pair") or not 0 <= value <= 1:
            raise InputError(f"cannot read the noise setting {text!r}: write symmetric-0.5 or pair-0.4")
        return cls(pattern, value)


TRIAL = "These pictures are drawn: the numbers are a trial of the code, not results."
AS_IT_IS = Noise("none", 0.0)
TABLE_1 = (Noise("symmetric", 0.2), Noise("symmetric", 0.5), Noise("symmetric", 0.8), Noise("pair", 0.4))
# Without noise both patterns are the same training: it is in the list once, and in both rows of the figure.
FIGURE_2 = (Noise("symmetric", 0.0), *(Noise(p, tenth / 10) for p in ("symmetric", "pair") for tenth in range(1, 11)))
FIGURE_3 = (*(Noise("symmetric", ratio) for ratio in (0.7, 0.8, 0.9, 1.0)), Noise("pair", 0.4))


@dataclass(frozen=True)
class Scale:
    """A whole protocol. Sections 5.1 (theory), 5.2 (selection) and 5.3 (accuracy) of the paper."""

    name: str
    data: str
    epochs: int  # of sections 5.1 and 5.3
    selection_epochs: int
    iterations: int
    batch_size: int
    network: str  # of sections 5.2 and 5.3
    deep_network: str  # of section 5.1
    theory_settings: tuple[Noise, ...] = FIGURE_2
    table_settings: tuple[Noise, ...] = TABLE_1
    fast_network: str = "fast"  # that selects where nothing is told
    fast_epochs: int = 10
    fast_batch_size: int = 512
    suspects: int = 40
    side: int = 0  # WebVision: the pictures' shorter side, and the window cut out of it
    crop: int = 0
    at_once: int = 1024  # networks in lockstep at most: large ones fill a card by themselves

    @property
    def note(self) -> str:
        """Over what is drawn from a trial, so that nobody takes it for a result."""
        return TRIAL if self.name == "smoke" else ""


PAPER = Scale("paper", "cifar10", 200, 50, 4, 128, "resnet32", "resnet110-preactivation")
SMOKE = Scale(
    "smoke",
    "synthetic",
    4,
    3,
    2,
    16,
    "small",
    "small",
    theory_settings=tuple(n for n in FIGURE_2 if n.ratio in (0.0, 0.5, 1.0)) + FIGURE_3[:1] + FIGURE_3[-1:],
    fast_network="fast-small",
    fast_epochs=10,
    fast_batch_size=16,
    suspects=16,
)
# So few steps would show neither the paper's weight decay nor where D2L turns, which it does after ten epochs.
SMOKE_WEIGHT_DECAY = 0.05  # of figure 2, which is trained without any as well
SMOKE_SETTINGS: dict[str, dict[str, Any]] = {"d2l": {"init_epochs": 0, "window": 1}}
SCALES = {scale.name: scale for scale in (PAPER, SMOKE)}

# Supplement A.2: table 2 and supplement C.
WEBVISION = {
    "paper": Scale(
        "paper",
        "webvision",
        120,
        50,
        2,
        128,
        "inception-resnet-v2",
        "inception-resnet-v2",
        table_settings=(AS_IT_IS,),
        suspects=24,
        side=256,
        crop=227,
        at_once=2,
    ),
    "smoke": Scale(
        "smoke",
        "webvision-drawn",
        3,
        3,
        2,
        16,
        "small",
        "small",
        table_settings=(AS_IT_IS,),
        suspects=16,
        side=32,
        crop=28,
    ),
}
WEBVISION_REMOVE_RATIO = 0.1


def webvision_settings(method: str, epochs: int) -> dict[str, Any]:
    """Where a method's settings on WebVision differ from its defaults."""
    if method == "incv-coteaching":
        return {"warmup": max(1, round(20 * epochs / 120))}  # E_0 = 20 of 120
    return {}


def scale_of(kind: str, name: str) -> Scale:
    """The protocol that a cell of this kind belongs to."""
    return (WEBVISION if kind.startswith("webvision") else SCALES)[name]
