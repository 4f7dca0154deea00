"""The parts that `make trust` shares with these tests lie beside them; models that a run names as code too."""

from __future__ import annotations

import os
import sys
from pathlib import Path

HERE = Path(__file__).parent
if str(HERE) not in sys.path:
    sys.path.insert(0, str(HERE))
# Forked runs find what they name as package.module:Name.
os.environ["PYTHONPATH"] = os.pathsep.join([str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])])
