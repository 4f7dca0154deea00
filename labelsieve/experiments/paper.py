"""What the paper reports, and what can be read off the authors' plots. Nothing here is ours."""

from __future__ import annotations

# Table 1: test accuracy in %, mean and standard deviation of 5 runs, ResNet-32 on CIFAR-10, last epoch.
# Columns: symmetric 0.2, 0.5, 0.8, asymmetric (pair) 0.4.
TABLE_1: dict[str, dict[str, tuple[float, float]]] = {
    "f-correction": {
        "symmetric-0.2": (85.08, 0.43),
        "symmetric-0.5": (76.02, 0.19),
        "symmetric-0.8": (34.76, 4.53),
        "pair-0.4": (83.55, 2.15),
    },
    "decoupling": {
        "symmetric-0.2": (86.72, 0.32),
        "symmetric-0.5": (79.31, 0.62),
        "symmetric-0.8": (36.90, 4.61),
        "pair-0.4": (75.27, 0.83),
    },
    "coteaching": {
        "symmetric-0.2": (89.05, 0.32),
        "symmetric-0.5": (82.12, 0.59),
        "symmetric-0.8": (16.21, 3.02),
        "pair-0.4": (84.55, 2.81),
    },
    "mentornet": {
        "symmetric-0.2": (88.36, 0.46),
        "symmetric-0.5": (77.10, 0.44),
        "symmetric-0.8": (28.89, 2.29),
        "pair-0.4": (77.33, 0.79),
    },
    "d2l": {
        "symmetric-0.2": (86.12, 0.43),
        "symmetric-0.5": (67.39, 13.62),
        "symmetric-0.8": (10.02, 0.04),
        "pair-0.4": (85.57, 1.21),
    },
    "incv-coteaching": {
        "symmetric-0.2": (89.71, 0.18),
        "symmetric-0.5": (84.78, 0.33),
        "symmetric-0.8": (52.27, 3.50),
        "pair-0.4": (86.04, 0.54),
    },
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

# Figure 2, read off the authors' plot: test accuracy and LR without noise; the furthest a point lies under the curve.
FIGURE_2_WITHOUT_NOISE = 0.90
FIGURE_2_LARGEST_GAP = 0.07
