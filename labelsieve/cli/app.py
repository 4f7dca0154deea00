"""The command line: registers the commands and turns every end of a command into an exit code.

0 done, 1 failed, 2 wrong usage or bad input, 130 interrupted by Ctrl-C, 143 stopped by SIGTERM. Each command is one
function in `labelsieve.cli`. Only the module of the command that runs is imported, so that `labelsieve --help` is fast.
"""

from __future__ import annotations

import errno
import os
import shlex
import sys
import warnings
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import Any

from cyclopts import App, CycloptsError, MissingArgumentError, UnknownOptionError, UnusedCliTokensError

import labelsieve
from labelsieve import stopping
from labelsieve.cli import COMMANDS as COMMANDS
from labelsieve.cli.common import Common
from labelsieve.errors import FailedError, InputError

MODULES = {  # of the commands
    "runs": ("plan", "select", "train", "run", "predict"),
    "results": ("report", "review", "export"),
    "data": ("data", "corrupt"),
    "paper": ("theory", "demo", "reproduce", "bench"),
    "app": ("version",),
}
# The option that says where a command writes.
OUTPUT_OPTIONS = dict.fromkeys(("demo", "corrupt", "select", "train", "run"), "--out")
OUTPUT_OPTIONS |= dict.fromkeys(("predict", "export", "data"), "--to")

# scikit-learn doubts labels in small parts of the data; labelsieve has checked all of them.
IGNORED_WARNINGS = ("The number of unique classes is greater than 50% of the number of samples",)


def version(*, common: Common = Common()) -> None:
    """Print the versions of labelsieve and of the packages that affect its results."""
    from labelsieve.runfolder import versions

    found = versions()
    common.say(*(f"{name} {number}" for name, number in found.items()))
    common.answer(found)


def make_app(command: str | None = None) -> App:
    """Return the app. Given a command, only that one is imported, and the others are known by name and help."""
    app = App(
        name="labelsieve",
        help="Find wrong labels in your data and train models that are robust to them.",
        help_format="plaintext" if command == "" else "markdown",
        version=labelsieve.__version__,
        suppress_keyboard_interrupt=False,
    )
    for name, text in COMMANDS.items():
        module = next(f"labelsieve.cli.{module}" for module, names in MODULES.items() if name in names)
        if command is None or name == command:
            app.command(getattr(import_module(module), name), name=name)
        else:
            app.command(f"{module}:{name}", name=name, help=text)
    return app


def run(tokens: Sequence[str]) -> int:
    """Run a command line and return its exit code. A reader that closes the output does not stop the work."""
    with stopping.unbroken(), stopping.handled():
        return _run(tokens)


def _run(tokens: Sequence[str]) -> int:
    setattr(warnings, "showwarning", _warning_printer())  # noqa: B010
    name = next(iter(tokens), "")
    try:
        command, bound = parse(make_app(name if name in COMMANDS else ""), list(tokens))
        result = command(*bound.args, **bound.kwargs)
        sys.stdout.flush()  # a full disk fails here
    except InputError as problem:
        return _fail(2, str(problem))
    except FailedError as problem:
        return _fail(1, str(problem))
    except KeyboardInterrupt as stopped:
        kept = "the measurement is not saved" if name == "bench" else "run the same command to resume"
        if isinstance(stopped, stopping.Terminated):
            return _fail(143, f"stopped; {kept}")
        return _fail(130, f"interrupted; {kept}")
    except MemoryError:
        return _fail(1, "out of memory: use a smaller --size, fewer samples or a smaller --model")
    except OSError as problem:
        return _fail(1, describe_os_error(problem, OUTPUT_OPTIONS.get(name)))
    return result if isinstance(result, int) else 0


def parse(app: App, tokens: list[str]) -> tuple[Any, Any]:
    """Return the command and its arguments."""
    try:
        command, bound, _ = app.parse_args(tokens, exit_on_error=False, print_error=False)
    except CycloptsError as error:
        raise InputError(_describe(error)) from None
    return command, bound


def _describe(error: CycloptsError) -> str:
    text = " ".join(str(error).split())
    text = text[:1].lower() + (text if text.endswith("...") else text.rstrip("."))[1:]
    if isinstance(error, UnknownOptionError):
        name = error.token.keyword or error.token.value
        if os.path.lexists(name):
            return f"unknown option {name}; for the file {name!r} write {shlex.quote(f'./{name}')}"
        known = [other for argument in error.argument_collection if argument.parse for other in argument.names]
        longer = [other for other in known if name.startswith("--") and other.startswith(name)]
        target = [other for other in known if {name, other} == {"--out", "--to"}]
        near = longer or target or get_close_matches(name, known, n=1, cutoff=0.75)
        return f"unknown option {name}" + (f"; did you mean {' or '.join(near)}?" if near else "")
    if isinstance(error, MissingArgumentError) and error.command_chain and not error.tokens_so_far:
        name = error.argument.name if error.argument is not None else "an argument"
        return f"{name} is missing; see `labelsieve {' '.join(error.command_chain)} --help`"
    if isinstance(error, UnusedCliTokensError):
        extra = ", ".join(map(repr, error.unused_tokens or ()))
        return f"too many arguments: {extra}; see `labelsieve {' '.join(error.command_chain or ())} --help`"
    return text


def describe_os_error(problem: OSError, option: str | None) -> str:
    """Return the message for an error of the operating system; `option` says where the command writes."""
    from labelsieve.files import FULL, WriteError

    target = Path(str(problem.filename or ""))
    refused = isinstance(problem, WriteError) or bool(problem.filename and problem.errno in FULL)
    if not refused and problem.filename and problem.errno in (errno.EACCES, errno.EROFS):
        parent = next(folder for folder in (target, *target.absolute().parents) if os.access(folder, os.F_OK))
        refused = parent != target and os.access(parent, os.R_OK | os.X_OK) and not os.access(parent, os.W_OK)
    if not refused:
        return f"{problem.strerror or problem}" + (f" ({problem.filename})" if problem.filename else "")
    ways = ["make room there"] * (problem.errno in FULL) + [f"give another {option}"] * bool(option)
    return f"cannot write {target}: {problem.strerror}" + (f"; {' or '.join(ways)}" if ways else "")


def _fail(code: int, text: str) -> int:
    print(f"labelsieve: {' '.join(text.split())}", file=sys.stderr)
    return code


def _warning_printer() -> Callable[..., None]:
    """Print every warning once per command: Python forgets which ones it showed whenever a filter changes."""
    shown: set[str] = set()

    def show(message: Warning | str, *_: Any) -> None:
        if str(message) not in shown and not str(message).startswith(IGNORED_WARNINGS):
            shown.add(str(message))
            print(f"labelsieve: note: {message}", file=sys.stderr)

    return show
