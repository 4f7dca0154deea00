"""Parts of Inception-ResNet-v2's step that go their own way; off until a card has shown that they are right and faster.

    LABELSIEVE_ASIDE=2      weight gradients on so many side streams        aside.py
    LABELSIEVE_PRODUCTS=1   1 x 1 convolutions as matrix products           pointwise.py
    LABELSIEVE_GROUPS=1     small work for all blocks of a chain at once    groups.py
    LABELSIEVE_ENDS=1       both ends of a block in one kernel each         ends.py

`benchmarks/inception.py --all` measures each.
"""

from __future__ import annotations

import os

PARTS = {"ASIDE": 2, "PRODUCTS": 1, "GROUPS": 1, "ENDS": 1}  # what switches each on


def switch(part: str) -> int:
    return int(os.environ.get(f"LABELSIEVE_{part}", 0))
