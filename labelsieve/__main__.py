"""python -m labelsieve"""

from __future__ import annotations

import os
import sys


def main() -> None:
    # Read when torch is imported. Threads that wait actively take the core from the thread that they wait for, if other
    # programs are running: a training can then take many times as long. On an idle machine it is slightly faster.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
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
