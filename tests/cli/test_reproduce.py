"""The command around the runner."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from labelsieve import stopping
from labelsieve.cli.app import run
from labelsieve.experiments.train_cells import ExperimentContext


def test_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["reproduce", "list"]) == 0
    assert "transition-matrices" in capsys.readouterr().out
    assert run(["reproduce", "list", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[1]["item"] == "theory"


def test_an_item_as_text_and_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["reproduce", "transition-matrices", "--results", str(tmp_path)]) == 0
    files = capsys.readouterr().out.split()
    assert len(files) == 3 and all(Path(file).is_file() for file in files)
    line = "reproduce confusion --settings pair-0.4 --scale smoke --device cpu --seed 1 --json --results"
    assert run([*line.split(), str(tmp_path), "--commit", "a" * 40]) == 0
    answer = capsys.readouterr()
    assert json.loads(answer.out)["finished"] == 1 and answer.err == ""
    assert (tmp_path / "theory" / "standard-pair-0.4-seed1.json").is_file()


def test_a_method_s_settings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = "reproduce accuracy --scale smoke --settings pair-0.4 --methods f-correction,coteaching --device cpu"
    changed = "--set f-correction.estimate_epochs=1 --set coteaching.gradual_epochs=2"
    assert run([*line.split(), *changed.split(), "--results", str(tmp_path), "--commit", "a" * 40]) == 0
    table = (tmp_path / "tables" / "accuracy.md").read_text()
    assert "[1] `--set coteaching.gradual_epochs=2`" in table and "`--set f-correction.estimate_epochs=1`" in table
    assert run([*line.split(), "--set", "f-correction", "--results", str(tmp_path)]) == 2
    assert "METHOD.SETTING=VALUE" in capsys.readouterr().err


def test_all_mistakes_are_named_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = "reproduce nothing --epochs 0 --budget -3 --lockstep 0 --methods magic --settings odd --executor cloud"
    assert run([*line.split(), "--device", "abacus", "--seeds", "x", "--results", str(tmp_path)]) == 2
    error = capsys.readouterr().err
    named = ("no item 'nothing'", "--epochs 0", "--budget -3.0", "--lockstep 0", "no method magic", "setting 'odd'")
    for part in (*named, "executor 'cloud'", "--device 'abacus'", "seeds 'x'"):
        assert part in error
    assert error.count("\n") == 1 and not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "wrong", ["--epochs 0", "--epochs -1", "--budget -3", "--lockstep 0", "--seed -1", "--seeds ,"]
)
def test_numbers_out_of_range_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str], wrong: str) -> None:
    arguments = ["reproduce", "confusion", "--scale", "smoke", "--results", str(tmp_path), *wrong.split()]
    assert run(arguments) == 2
    assert wrong.split()[1] in capsys.readouterr().err and not list(tmp_path.iterdir())


def test_unused_options_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = "reproduce theory --scale smoke --methods coteaching --set coteaching.gradual_epochs=2 --iterations 7"
    assert run([*line.split(), "--results", str(tmp_path)]) == 2
    error = capsys.readouterr().err
    for part in ("--methods coteaching", "--set coteaching.gradual_epochs", "--iterations 7"):
        assert part in error
    line = "reproduce accuracy --scale smoke --set coteaching.bogus=3"
    assert run([*line.split(), "--results", str(tmp_path)]) == 2
    assert "bogus" in capsys.readouterr().err and not list(tmp_path.iterdir())
    assert run(["reproduce", "accuracy", "--settings", "symmetric-0.52", "--results", str(tmp_path)]) == 2
    assert "no setting symmetric-0.52:" in capsys.readouterr().err


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_stopped_run_stores_the_epoch_and_continues(
    tmp_path: Path, number: int, code: int, forked: Callable[..., int]
) -> None:
    line = "reproduce theory --scale smoke --settings pair-0.4 --epochs 8 --device cpu --results"
    command = [*line.split(), str(tmp_path), "--commit", "a" * 40]

    def begun() -> bool:
        return any(tmp_path.glob(".work/*/cells.json"))

    def wait_in_the_first_epoch() -> int:
        must_stop = ExperimentContext.must_stop

        def after_the_signal(context: ExperimentContext) -> bool:
            while begun() and not stopping.requested():
                time.sleep(0.01)
            return must_stop(context)

        ExperimentContext.must_stop = after_the_signal  # type: ignore[method-assign]
        return run(command)

    child = forked(wait_in_the_first_epoch, tmp_path / "said")
    wait_for(begun)
    os.kill(child, number)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == code
    error = (tmp_path / "said").read_text()
    assert "0 finished" in error and "stopped with 1 left" in error
    (stored,) = tmp_path.glob(".work/*/engine/*.safetensors")  # long before two minutes are over
    if number == signal.SIGTERM:
        return  # the signals differ only in the exit code
    assert run(command) == 0
    assert run([part if part != str(tmp_path) else str(tmp_path / "again") for part in command]) == 0
    once, twice = (json.loads(path.read_text()) for path in sorted(tmp_path.rglob("standard-*.json")))
    assert once["hashes"] == twice["hashes"] and once["results"] == twice["results"] and not stored.exists()


def wait_for(seen: Callable[[], bool], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not seen():
        assert time.monotonic() < end
        time.sleep(0.05)
