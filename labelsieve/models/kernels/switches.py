"""Parts of Inception-ResNet-v2's step that go their own way. All are on; each is off where its variable says 0.

    LABELSIEVE_ASIDE=0      no weight gradients beside the way back           aside.py, units.py
    LABELSIEVE_PRODUCTS=0   no 1 x 1 convolutions as matrix products          pointwise.py
    LABELSIEVE_GROUPS=0     no small work for all blocks of a chain at once   groups.py

`benchmarks/inception.py --all` measures the step without each.
"""

from __future__ import annotations

import os

PARTS = ("ASIDE", "PRODUCTS", "GROUPS")


def switched_on(part: str) -> bool:
    return os.environ.get(f"LABELSIEVE_{part}") != "0"
