"""python -m labelsieve"""

from __future__ import annotations

import sys


def main() -> None:
    from labelsieve import stopping
    from labelsieve.cli import overview

    if sys.argv[1:] in ([], ["-h"], ["--help"]):
        code = 0
        try:
            with stopping.unbroken():
                print(overview(), flush=True)
        except OSError as problem:  # a full disk
            print(f"labelsieve: {problem.strerror}", file=sys.stderr)
            code = 1
    else:
        from labelsieve.cli.app import run

        code = run(sys.argv[1:])
    stopping.limit_exit(code)
    sys.exit(code)


if __name__ == "__main__":
    main()
