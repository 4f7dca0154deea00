"""python -m labelsieve"""

from __future__ import annotations

import sys


def main() -> None:
    from labelsieve.cli.app import run

    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
