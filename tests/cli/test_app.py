"""Every end of a command is an exit code and, where somebody made a mistake, one line."""

from __future__ import annotations

import contextlib
import errno
import inspect
import io
import json
import os
import resource
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

from labelsieve import stopping
from labelsieve.cli import app as cli
from labelsieve.cli.app import COMMANDS, make_app, run
from labelsieve.progress import Progress


def one_line(capsys: pytest.CaptureFixture[str]) -> str:
    said = capsys.readouterr()
    assert said.out == ""
    lines = [line for line in said.err.splitlines() if line.startswith("labelsieve: ") and "note:" not in line]
    assert len(lines) == 1, said.err
    assert "Traceback" not in said.err
    return lines[0]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("nonsense", "nonsense"),
        ("runn digits", "plan, ..."),  # not all commands are named, and that shows
        ("reproduce", "ITEM is missing"),
        ("theory --nonsense 3", "unknown option --nonsense"),
        ("predict run new --out p.csv", "unknown option --out; did you mean --to?"),
        ("run t.csv --to run", "unknown option --to; did you mean --out?"),
        ("run digits --label 3", "--label-column or --labels"),
        ("theory --ratio much", "--ratio"),
        ("run a.csv b.csv", "too many arguments: 'b.csv'"),
        ("theory --ratio 1.5", "--ratio must be a number from 0 to 1, got 1.5"),
        ("theory --classes 1", "--classes must be at least 2, got 1"),
        ("theory --pattern odd", "odd"),
        ("theory --matrix none.csv", "none.csv"),
        ("theory --accuracy 2", "--accuracy must be a number from 0 to 1, got 2.0"),
        ("corrupt digits", "--out"),
        ("corrupt nowhere --out l.csv", "nowhere"),
        ("corrupt digits --out l.csv --pattern odd", "symmetric"),
        ("select digits --out run --method odd", "--method 'odd'"),
        ("select digits --out run --model odd", "--model 'odd'"),
        ("select digits --out run --model no.module:Name", "No module named"),
        ("select digits --out run --model tfidf", "tfidf reads texts"),
        ("select digits --out run --model small-cnn", "small-cnn reads pictures"),
        ("select digits --out run --labels none.csv", "none.csv"),
        ("select digits --out run --remove-ratio some", "--remove-ratio"),
        ("select digits --out run --device gpu", "unknown --device 'gpu'"),
        ("select digits --out run --seed -1", "--seed must be an integer from 0 to 2^32 - 1, got -1"),
        ("report none", "none"),
    ],
)
def test_mistakes_are_one_line_and_exit_2(
    line: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(line.split()) == 2
    assert said in one_line(capsys)


def test_all_mistakes_are_told_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("theory --ratio 2 --classes 1 --pattern odd".split()) == 2
    line = one_line(capsys)
    for part in ("--ratio", "--classes", "odd"):
        assert part in line
    arguments = (
        "select digits --out run --method odd --iterations 0 --remove-ratio q --epochs 0 --protocol no --labels no.csv"
        " --root nowhere"
    )
    assert run(arguments.split()) == 2
    line = one_line(capsys)
    for part in (
        "--method",
        "--iterations must be at least 1, got 0",
        "--remove-ratio",
        "--epochs",
        "--protocol",
        "no.csv",
        "--root nowhere is",
    ):
        assert part in line
    assert not Path("run").exists()


def test_short_help_is_the_first_sentence_of_the_docstring() -> None:
    app = make_app()
    for name, text in COMMANDS.items():
        assert " ".join(str(app[name].help).split()).startswith(text), name


@pytest.mark.parametrize("name", list(COMMANDS))
def test_every_command_takes_json_and_seed(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([name, "--help"]) == 0
    said = capsys.readouterr().out
    if make_app()[name].default_command is not None:
        assert "--json" in said and "--seed" in said


def test_theory_says_the_closed_forms(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("theory --classes 10 --ratio 0.4 --json".split()) == 0
    found = json.loads(capsys.readouterr().out)
    # Corollary 1 and 2.2 by hand: 0.6^2 + 0.4^2 / 9, and 0.36 over that.
    assert found["test_accuracy"] == pytest.approx(0.36 + 0.16 / 9)
    assert found["label_precision"] == pytest.approx(0.36 / (0.36 + 0.16 / 9))
    assert found["label_recall"] == pytest.approx(0.6)
    assert run("theory --accuracy 0.378 --json".split()) == 0
    assert json.loads(capsys.readouterr().out)["ratio"] == pytest.approx(0.4, abs=1e-3)
    assert run(["theory"]) == 0
    assert "95.3 %" in capsys.readouterr().out


def test_theory_of_a_matrix_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "t.csv").write_text("0.8,0.2\n0.4,0.6\n")
    assert run(["theory", "--matrix", str(tmp_path / "t.csv"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["test_accuracy"] == pytest.approx((0.64 + 0.04 + 0.16 + 0.36) / 2)
    (tmp_path / "t.csv").write_text("0.8,0.3\n0.4,0.6\n")
    assert run(["theory", "--matrix", str(tmp_path / "t.csv")]) == 2
    assert "row 0 sums to 1.1, not 1" in one_line(capsys)


def test_failures_that_are_nobodys_mistake_exit_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device", str(tmp_path / "labels.csv"))

    monkeypatch.setattr("labelsieve.runfolder.versions", full)
    assert run(["version"]) == 1
    assert "No space left on device" in one_line(capsys)


def test_a_full_disk_is_reported_with_the_file_and_a_solution(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, forked: Callable[..., int]
) -> None:
    """A limit on the size of files has the effect of a full disk."""
    (tmp_path / "t.csv").write_text("x,label\n" + "".join(f"{i % 2 + i / 1000},{'ab'[i % 2]}\n" for i in range(900)))
    monkeypatch.chdir(tmp_path)
    line = "run t.csv --model logistic --iterations 1 --train-epochs 1 --out run"
    assert run(line.split()) == 0
    full = "File too large; make room there"
    expected = {
        "export run --to e.csv": f"cannot write e.csv: {full} or give another --to",
        "export run --to e.parquet": f"cannot write e.parquet: {full} or give another --to",
        "predict run t.csv --to p.csv": f"cannot write p.csv: {full} or give another --to",
        "report run": f"cannot write run/report.html: {full}",
        "select t.csv --out other --model logistic": f"cannot write other/run.json: {full} or give another --out",
    }
    ends, writer = os.pipe()

    def on_a_full_disk() -> int:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (600, 600))
        for command in expected:
            with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as error:
                code = run(command.split())
            os.write(writer, f"{code} {error.getvalue().splitlines()[-1]}\n".encode())
        return 0

    os.waitpid(forked(on_a_full_disk, tmp_path / "said"), 0)
    os.close(writer)
    with os.fdopen(ends) as lines:
        assert lines.read().splitlines() == [f"1 labelsieve: {text}" for text in expected.values()]


def test_a_file_that_is_called_like_an_option(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, way in (("-daten ä.csv", "'./-daten ä.csv'"), ("--odd.csv", "./--odd.csv")):
        assert run(["select", name]) == 2
        assert "./" not in one_line(capsys)
        Path(name).write_text("")
        assert run(["select", name]) == 2
        assert one_line(capsys).endswith(f"; for the file {name!r} write {way}")


@pytest.mark.parametrize("suffix", [".csv", ""])
def test_what_cannot_be_written_is_called_as_it_was_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], suffix: str
) -> None:
    # Its own name fits; the hidden one beside it, under which it is written first, does not.
    target = tmp_path / f"{'x' * 245}{suffix}"
    for i in range(4):
        (tmp_path / "set" / "ab"[i % 2]).mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (8, 8), (60 * i, 0, 0)).save(tmp_path / "set" / "ab"[i % 2] / f"{i}.png")
    source, out = str(tmp_path / "set"), str(tmp_path / "run")
    assert run(["select", source, "--model", "nearest", "--iterations", "1", "--out", out]) == 0
    capsys.readouterr()
    assert run(["export", out, "--to", str(target)]) == 1
    message = capsys.readouterr().err
    assert f"cannot write {target}: File name too long" in message and "--to" in message and message.count("\n") == 1


def test_a_folder_that_is_only_read_is_told_from_a_file_that_cannot_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "there.csv").write_text("")
    refused = PermissionError(errno.EACCES, "Permission denied", str(tmp_path / "new" / "run"))
    assert "cannot write" not in cli.describe_os_error(refused, "--out")  # the folder can be written
    monkeypatch.setattr("os.access", lambda path, mode: Path(path).exists() and not mode & os.W_OK)
    message = cli.describe_os_error(refused, "--out")
    assert str(tmp_path / "new" / "run") in message and message.endswith("give another --out")
    for problem in (
        PermissionError(errno.EACCES, "Permission denied", str(tmp_path / "there.csv")),
        FileNotFoundError(errno.ENOENT, "No such file", str(tmp_path / "gone.csv")),
    ):
        assert "cannot write" not in cli.describe_os_error(problem, "--out")


def test_a_closed_pipe_is_no_failure() -> None:
    done = subprocess.run(
        f"{sys.executable} -m labelsieve theory --classes 200 --json | head -1",
        shell=True,
        capture_output=True,
        text=True,
    )
    assert done.stdout == "{\n" and done.stderr == ""


WAIT = """
import sys, time
from labelsieve import stopping
import labelsieve.cli.app as app
from labelsieve.cli.app import run
def wait(**_):
    with stopping.safe_points():
        print("up", flush=True)
        while not (stopping.requested() and {obey}):
            time.sleep(0.01)
        raise stopping.reason()
app.version = wait
sys.exit(run(["version"]))
"""


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signals_stop_at_the_next_safe_point(number: signal.Signals, code: int) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", WAIT.format(obey=True)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert child.stdout is not None and child.stdout.readline() == "up\n"
    child.send_signal(number)
    _, said = child.communicate(timeout=120)
    assert child.returncode == code and "to resume" in said and "Traceback" not in said


def test_a_second_ctrl_c_stops_at_once() -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", WAIT.format(obey=False)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert child.stdout is not None and child.stdout.readline() == "up\n"
    child.send_signal(signal.SIGINT)
    time.sleep(0.3)
    assert child.poll() is None
    child.send_signal(signal.SIGINT)
    child.communicate(timeout=120)
    assert child.returncode == 130


def test_without_safe_points_a_signal_raises() -> None:
    with pytest.raises(KeyboardInterrupt):
        stopping.on_signal(signal.SIGINT)
    with pytest.raises(stopping.Terminated):
        stopping.on_signal(signal.SIGTERM)
    assert not stopping.requested()


def test_plain_progress_is_lines() -> None:
    stream = io.StringIO()
    with Progress(stream=stream, every=0.0).stage("decoding", 4, unit="pictures") as stage:
        for loss in (0.5, 0.25):
            stage.show(loss=loss)
            stage.advance(2)
    lines = stream.getvalue().splitlines()
    assert lines[0].startswith("decoding: 2/4 pictures") and lines[0].endswith("loss 0.5")
    assert lines[1].startswith("decoding: 4/4 pictures") and "done in" in lines[1] and len(lines) == 2


def test_silence_and_bars() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    silent = io.StringIO()
    with Progress(silent=True, stream=silent).stage("x", 1) as stage:
        stage.advance()
        stage.show(loss=1)
    assert silent.getvalue() == ""
    terminal = Terminal()
    with Progress(stream=terminal).stage("training", 2, unit="epochs") as stage:
        stage.advance(2)
        stage.show(loss=0.125)
    assert "training" in terminal.getvalue() and "loss 0.125" in terminal.getvalue()


def test_a_note_is_told_once_a_command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Python forgets what it has shown whenever a filter is changed, as libraries do when they are imported."""

    def told_twice() -> None:
        doubted = "The number of unique classes is greater than 50% of the number of samples. `y` could represent"
        for text in ("few", "few", doubted, "many"):
            warnings.simplefilter("always")
            warnings.warn(text, UserWarning, stacklevel=1)

    monkeypatch.setattr(cli, "parse", lambda app, tokens: (told_twice, inspect.signature(told_twice).bind()))
    for _ in range(2):  # another command tells it again
        with warnings.catch_warnings():
            assert cli.run(["version"]) == 0
        assert capsys.readouterr().err.splitlines() == ["labelsieve: note: few", "labelsieve: note: many"]


@pytest.mark.parametrize(("before", "after"), [(None, "passive"), ("active", "active")])
def test_threads_of_a_command_wait_passively_unless_set(before: str | None, after: str) -> None:
    code = (
        "import os, sys; sys.argv = ['labelsieve', 'theory', '--ratio', '0.4', '--json']\n"
        "from labelsieve.__main__ import main\n"
        "try:\n    main()\nfinally:\n    print(os.environ['OMP_WAIT_POLICY'])"
    )
    env = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"}
    env |= {} if before is None else {"OMP_WAIT_POLICY": before}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=100)
    assert done.stdout.splitlines()[-1] == after, done.stderr
