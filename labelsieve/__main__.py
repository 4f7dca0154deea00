"""python -m labelsieve"""

from __future__ import annotations

import sys


def main() -> None:
    from labelsieve import stopping
    from labelsieve.cli.app import run

    code = run(sys.argv[1:])
    stopping.limit_exit(code)
    sys.exit(code)


if __name__ == "__main__":
    main()
