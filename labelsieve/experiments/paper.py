"""The paper's protocol and its published values, and a small protocol that a CPU runs in seconds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from labelsieve.data.cifar import CIFAR10N_LABELS
from labelsieve.errors import InputError
from labelsieve.theory import Matrix, matrix

# Labels that people gave to the training pictures of CIFAR-10, by their names in CIFAR-10N.
PEOPLES_LABELS = ("random2", "random1", "random3", "aggregate", "worse")
# The meaning of each noise pattern, written into every record.
CONVENTIONS = {
    **{
        name: f"labels that people gave to the training pictures of CIFAR-10: {CIFAR10N_LABELS[name]} of CIFAR-10N"
        for name in PEOPLES_LABELS
    },
    "symmetric": "a label is wrong with probability eps; wrong labels are uniform over the other classes",
    "pair": "class i becomes (i + 1) mod c with probability eps; the paper's asymmetric noise",
    "none": "the labels that come with the data",
}
METHODS = ("incv-coteaching", "coteaching", "decoupling", "f-correction", "mentornet", "d2l", "standard")
# Not in the paper: the default of `labelsieve run`, INCV with the fast network and algorithm 3 after it.
AUTOMATIC = "automatic"
# Nor is this: a training that learns from every sample, after a selection as in AUTOMATIC.
POSTERIOR = "incv-posterior"


@dataclass(frozen=True)
class Noise:
    """A noise setting. `key` is its name in records and tables."""

    pattern: str
    ratio: float

    @property
    def key(self) -> str:
        return self.pattern if self.by_people or self.pattern == "none" else f"{self.pattern}-{self.ratio:.1f}"

    @property
    def title(self) -> str:
        if self.by_people:
            return f"people's {self.pattern}"
        names = {"symmetric": "Sym.", "pair": "Asym. (pair)", "none": "as given"}
        return names[self.pattern] + ("" if self.key == self.pattern else f" {self.ratio:.1f}")

    @property
    def by_people(self) -> bool:
        """Whether these are labels that people gave, instead of planted ones."""
        return self.pattern in PEOPLES_LABELS

    def transition(self, classes: int) -> Matrix:
        return matrix("symmetric" if self.pattern == "none" else self.pattern, classes, self.ratio)

    @classmethod
    def parse(cls, text: str) -> Noise:
        """Read `symmetric-0.5`, `sym-0.5`, `pair-0.4` or the name of people's labels."""
        if text.strip() in PEOPLES_LABELS:
            return cls(text.strip(), 0.0)
        pattern, _, ratio = text.strip().rpartition("-")
        pattern = {"sym": "symmetric", "asym": "pair", "asymmetric": "pair"}.get(pattern, pattern)
        try:
            value = float(ratio)
        except ValueError:
            value = -1.0
        if pattern not in ("symmetric", "pair") or not 0 <= value <= 1:
            raise InputError(f"cannot read the noise setting {text!r}: write symmetric-0.5 or pair-0.4")
        return cls(pattern, value)


SMOKE_NOTE = "Smoke run on generated pictures: these numbers test the code and are not results."
AS_GIVEN = Noise("none", 0.0)
PEOPLE, *OTHER_PEOPLE = (Noise(name, 0.0) for name in PEOPLES_LABELS)
TABLE_NOISES = (Noise("symmetric", 0.2), Noise("symmetric", 0.5), Noise("symmetric", 0.8), Noise("pair", 0.4))
# Without noise both patterns are the same training: it is listed once and drawn in both rows of figure 2.
FIGURE_2_NOISES = (
    Noise("symmetric", 0.0),
    *(Noise(pattern, tenth / 10) for pattern in ("symmetric", "pair") for tenth in range(1, 11)),
)
FIGURE_3_NOISES = (*(Noise("symmetric", ratio) for ratio in (0.7, 0.8, 0.9, 1.0)), Noise("pair", 0.4))


@dataclass(frozen=True)
class Scale:
    """A protocol for sections 5.1 (theory), 5.2 (selection) and 5.3 (accuracy) of the paper."""

    name: str
    data: str
    epochs: int  # of sections 5.1 and 5.3
    selection_epochs: int
    iterations: int  # of INCV
    batch_size: int
    network: str  # of sections 5.2 and 5.3
    deep_network: str = ""  # of section 5.1
    theory_noises: tuple[Noise, ...] = FIGURE_2_NOISES
    table_noises: tuple[Noise, ...] = TABLE_NOISES
    fast_network: str = "fast"  # the selector of AUTOMATIC
    fast_epochs: int = 10
    fast_batch_size: int = 512
    finish_networks: tuple[str, ...] = ("resnet32", "preact-resnet18")  # of POSTERIOR
    finish_noises: tuple[Noise, ...] = (*TABLE_NOISES, PEOPLE)
    finish_more_noises: tuple[Noise, ...] = tuple(OTHER_PEOPLE)  # only if --settings names them
    finish_epochs: int = 200
    finish_batch_size: int = 256
    suspects: int = 40  # labels shown in figure 5 and supplement C
    side: int = 0  # WebVision: shorter side of the pictures, and side of the window cut out of them
    crop: int = 0
    max_lockstep: int = 1024  # networks that train at once; large networks fill a GPU alone

    @property
    def note(self) -> str:
        """A warning printed above everything drawn from a smoke run."""
        return SMOKE_NOTE if self.name == "smoke" else ""


PAPER = Scale(
    name="paper",
    data="cifar10",
    epochs=200,
    selection_epochs=50,
    iterations=4,
    batch_size=128,
    network="resnet32",
    deep_network="resnet110-preactivation",
)
SMOKE = Scale(
    name="smoke",
    data="synthetic",
    epochs=4,
    selection_epochs=3,
    iterations=2,
    batch_size=16,
    network="small",
    deep_network="small",
    theory_noises=(
        *(noise for noise in FIGURE_2_NOISES if noise.ratio in (0.0, 1.0)),
        FIGURE_3_NOISES[0],
        FIGURE_3_NOISES[-1],
    ),
    table_noises=(TABLE_NOISES[0], TABLE_NOISES[-1]),
    fast_network="fast-small",
    fast_batch_size=32,
    finish_networks=("small",),
    finish_noises=(TABLE_NOISES[0], TABLE_NOISES[-1]),
    finish_epochs=4,
    finish_batch_size=16,
    suspects=16,
)
# A smoke run has few steps: the paper's weight decay would change nothing, and D2L starts to act after ten epochs.
SMOKE_WEIGHT_DECAY = 0.05  # of figure 2, which is also trained without weight decay
SMOKE_SETTINGS: dict[str, dict[str, Any]] = {"d2l": {"init_epochs": 0, "window": 1}}
SCALES = {scale.name: scale for scale in (PAPER, SMOKE)}

# Supplement A.2: table 2 and supplement C.
WEBVISION_PAPER = Scale(
    name="paper",
    data="webvision",
    epochs=120,
    selection_epochs=50,
    iterations=2,
    batch_size=128,
    network="inception-resnet-v2",
    table_noises=(AS_GIVEN,),
    suspects=24,
    side=256,
    crop=227,
    max_lockstep=2,
)
WEBVISION_SMOKE = Scale(
    name="smoke",
    data="webvision-drawn",
    epochs=3,
    selection_epochs=3,
    iterations=2,
    batch_size=16,
    network="small",
    table_noises=(AS_GIVEN,),
    suspects=16,
    side=32,
    crop=28,
)
WEBVISION = {scale.name: scale for scale in (WEBVISION_PAPER, WEBVISION_SMOKE)}
WEBVISION_REMOVE_RATIO = 0.1  # section 5.3 of the paper
WEBVISION_WARMUP = 20 / 120  # E_0 of algorithm 3, as a share of the epochs


# ---------------------------------------------------------------- published values

# Table 1: test accuracy in %, mean and standard deviation of 5 runs, ResNet-32 on CIFAR-10, last epoch.
# Columns: symmetric 0.2, 0.5, 0.8, asymmetric (pair) 0.4.
_TABLE_1 = {
    "f-correction": ((85.08, 0.43), (76.02, 0.19), (34.76, 4.53), (83.55, 2.15)),
    "decoupling": ((86.72, 0.32), (79.31, 0.62), (36.90, 4.61), (75.27, 0.83)),
    "coteaching": ((89.05, 0.32), (82.12, 0.59), (16.21, 3.02), (84.55, 2.81)),
    "mentornet": ((88.36, 0.46), (77.10, 0.44), (28.89, 2.29), (77.33, 0.79)),
    "d2l": ((86.12, 0.43), (67.39, 13.62), (10.02, 0.04), (85.57, 1.21)),
    "incv-coteaching": ((89.71, 0.18), (84.78, 0.33), (52.27, 3.50), (86.04, 0.54)),
}
TABLE_1: dict[str, dict[str, tuple[float, float]]] = {
    method: {noise.key: value for noise, value in zip(TABLE_NOISES, row, strict=True)}
    for method, row in _TABLE_1.items()
}

# Table 2: top-1 and top-5 accuracy in %, first 50 classes of WebVision's Google subset, inception-resnet v2.
TABLE_2: dict[str, dict[str, tuple[float, float]]] = {
    "f-correction": {"webvision": (61.12, 82.68), "imagenet": (57.36, 82.36)},
    "decoupling": {"webvision": (62.54, 84.74), "imagenet": (58.26, 82.26)},
    "coteaching": {"webvision": (63.58, 85.20), "imagenet": (61.48, 84.70)},
    "mentornet": {"webvision": (63.00, 81.40), "imagenet": (57.80, 79.92)},
    "d2l": {"webvision": (62.68, 84.00), "imagenet": (57.80, 81.36)},
    "incv-coteaching": {"webvision": (65.24, 85.34), "imagenet": (61.60, 84.98)},
}

# Figure 4, read off the authors' plot: (LP, LR) of INCV after iterations 1 to 4.
FIGURE_4: dict[str, tuple[tuple[float, float], ...]] = {
    "symmetric-0.2": ((0.993, 0.80), (0.991, 0.90), (0.990, 0.925), (0.988, 0.935)),
    "symmetric-0.5": ((0.953, 0.70), (0.943, 0.835), (0.935, 0.88), (0.93, 0.90)),
    "symmetric-0.8": ((0.55, 0.355), (0.535, 0.535), (0.517, 0.62), (0.50, 0.667)),
    "pair-0.4": ((0.885, 0.72), (0.866, 0.865), (0.85, 0.91), (0.837, 0.93)),
}

# Section 5.1: accuracy on the (noisy) training labels at the end of the training.
TRAINING_ACCURACY = {"symmetric-0.7": 0.58, "symmetric-0.8": 0.40, "symmetric-0.9": 0.24, "symmetric-1.0": 0.36}

# Figure 2, read off the authors' plot: test accuracy and LR without noise; largest distance of a point below a curve.
FIGURE_2_WITHOUT_NOISE = 0.90
FIGURE_2_LARGEST_GAP = 0.07
