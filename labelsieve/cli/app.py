"""The command line: names the commands, turns every end of one into an exit code.

0 done, 1 failed, 2 wrong usage or bad input (one line), 130 interrupted by Ctrl-C, 143 by SIGTERM.
A command is one function in `commands/`, a line in COMMANDS adds it. Commands import what is heavy when they run.
"""

from __future__ import annotations

import errno
import os
import shlex
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from cyclopts import App, CycloptsError, MissingArgumentError, UnknownOptionError

import labelsieve
from labelsieve import pipes, stopping
from labelsieve.errors import FailedError, InputError
from labelsieve.files import FULL, WriteError

COMMANDS = {
    "demo": "labelsieve.cli.demo",
    "theory": "labelsieve.cli.theory",
    "corrupt": "labelsieve.cli.corrupt",
    "select": "labelsieve.cli.select",
    "train": "labelsieve.cli.train",
    "run": "labelsieve.cli.run",
    "predict": "labelsieve.cli.predict",
    "plan": "labelsieve.cli.plan",
    "report": "labelsieve.cli.report",
    "review": "labelsieve.cli.review",
    "export": "labelsieve.cli.export",
    "reproduce": "labelsieve.cli.reproduce",
    "data": "labelsieve.cli.data",
    "bench": "labelsieve.cli.bench",
    "version": "labelsieve.cli.version",
}

# Warnings of others about what is known better here: labels were found to be classes before scikit-learn sees a few.
KNOWN_BETTER = ("The number of unique classes is greater than 50% of the number of samples",)

# The option that says where a command writes.
WHERE = dict.fromkeys(("demo", "corrupt", "select", "train", "run"), "--out")
WHERE |= dict.fromkeys(("predict", "export", "data"), "--to")


def make_app() -> App:
    """Each module has a function, or an app of subcommands, of the command's own name."""
    app = App(
        name="labelsieve",
        help="Finds the wrong labels in your data and trains networks that do not learn them.",
        help_format="markdown",
        version=labelsieve.__version__,
        suppress_keyboard_interrupt=False,
    )
    for name, module in COMMANDS.items():
        app.command(getattr(import_module(module), name), name=name)
    return app


def run(tokens: Sequence[str]) -> int:
    """Run one command line; the exit code. A reader of its words that goes away does not end the work."""
    with pipes.unbroken():
        return _run(tokens)


def _run(tokens: Sequence[str]) -> int:
    setattr(warnings, "showwarning", _note_teller())  # noqa: B010
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, stopping.on_signal)
    try:
        command, bound = parse(make_app(), list(tokens))
        result = command(*bound.args, **bound.kwargs)
        sys.stdout.flush()  # here a disk that took nothing is still a failure
    except InputError as problem:
        return _fail(2, str(problem))
    except FailedError as problem:
        return _fail(1, str(problem))
    except stopping.Terminated:
        return _fail(143, f"stopped; {_kept(tokens)}")
    except KeyboardInterrupt:
        return _fail(130, f"interrupted; {_kept(tokens)}")
    except MemoryError:
        return _fail(1, "out of memory: use a smaller --size, fewer samples or a smaller --model")
    except OSError as problem:
        if (told := _not_written(problem)) is not None:
            option = WHERE.get(next(iter(tokens), ""))
            ways = ["make room there"] * (problem.errno in FULL) + [f"give another {option}"] * bool(option)
            return _fail(1, told + (f"; {' or '.join(ways)}" if ways else ""))
        where = f" ({problem.filename})" if problem.filename else ""
        return _fail(1, f"{problem.strerror or problem}{where}")
    return result if isinstance(result, int) else 0


def parse(app: App, tokens: list[str]) -> tuple[Any, Any]:
    """The command and its arguments. Everything wrong with the arguments is said at once, not one a try."""
    problems: list[str] = []
    named: set[str] = set()
    while True:
        try:
            command, bound, _ = app.parse_args(tokens, exit_on_error=False, print_error=False)
        except CycloptsError as error:
            option = _option(error)
            if not (isinstance(error, MissingArgumentError) and option in named):
                problems.append(_sentence(error, option))
            named.add(option)
            if _without(tokens, error, option):
                continue
        if problems:
            raise InputError("; ".join(problems))
        return command, bound


def _sentence(error: CycloptsError, option: str) -> str:
    told = " ".join(str(error).split())
    told = told if told.endswith("...") else told.rstrip(".")
    missing = isinstance(error, MissingArgumentError) and told.endswith("requires an argument")
    if isinstance(error, UnknownOptionError) and os.path.lexists(named := error.token.keyword or error.token.value):
        return f"{told}; if the file {named!r} is meant, write {shlex.quote(f'./{named}')}"
    if missing and error.command_chain and not getattr(error, "tokens_so_far", None):
        command = " ".join(error.command_chain)
        return f"{option} is missing: see `labelsieve {command} --help`"
    return told


def _option(error: CycloptsError) -> str:
    """The option an error is about, as it was typed or as it is called."""
    token = getattr(error, "token", None)
    if token is not None and token.keyword:
        return str(token.keyword)
    return str(error.argument.name) if error.argument is not None else ""


def _without(tokens: list[str], error: CycloptsError, option: str) -> bool:
    """Take the option at fault out of `tokens`, so that the rest can be looked at; False where that cannot be done."""
    if isinstance(error, MissingArgumentError) or not option.startswith("-"):
        return False
    for i, token in enumerate(tokens):
        if token == option or token.startswith(option + "="):
            # What follows an unknown option is its value unless it looks like an option itself.
            follows = i + 1 < len(tokens) and "=" not in token
            value = follows and not (isinstance(error, UnknownOptionError) and tokens[i + 1].startswith("-"))
            del tokens[i : i + (2 if value else 1)]
            return True
    return False


def _not_written(problem: OSError) -> str | None:
    """What to say of a file that could not be written; None where it was to be read, or nobody knows."""
    target = Path(str(problem.filename or ""))
    refused = isinstance(problem, WriteError) or bool(problem.filename and problem.errno in FULL)
    if not refused and problem.filename and problem.errno in (errno.EACCES, errno.EROFS):
        there = next(folder for folder in (target, *target.absolute().parents) if os.access(folder, os.F_OK))
        refused = there != target and os.access(there, os.R_OK | os.X_OK) and not os.access(there, os.W_OK)
    return f"cannot write {target}: {problem.strerror}" if refused else None


def _kept(tokens: Sequence[str]) -> str:
    """What a command leaves behind that was stopped."""
    measures = next(iter(tokens), "") == "bench"
    return "a measurement that was not finished is not kept" if measures else "what was done is kept"


def _fail(code: int, text: str) -> int:
    print(f"labelsieve: {' '.join(text.split())}", file=sys.stderr)
    return code


def _note_teller() -> Callable[..., None]:
    """Prints warnings as notes, each once a command: Python forgets what it showed whenever a filter is changed."""
    told: set[str] = set()

    def tell(message: Warning | str, *_: Any) -> None:
        if str(message) not in told and not str(message).startswith(KNOWN_BETTER):
            told.add(str(message))
            print(f"labelsieve: note: {message}", file=sys.stderr)

    return tell
