"""The selection stage: stopped at its very end it is whole, and what its networks did is on record once."""

from __future__ import annotations

import signal
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from labelsieve import stopping
from labelsieve.cli.app import run
from labelsieve.errors import FailedError
from labelsieve.execute.network_trainer import EngineTrainer
from labelsieve.execute.sklearn_trainer import SklearnTrainer
from labelsieve.runfolder import RunFolder
from labelsieve.workflow.select import check_disk

MLP = "select t.csv --model mlp --epochs 3 --iterations 2 --device cpu --out run"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    rows = [f"{rng.normal(5 * (i % 2)):.3f},{rng.normal():.3f},{'ab'[i % 2]}" for i in range(60)]
    (tmp_path / "t.csv").write_text("\n".join(["x,z,label", *rows]))
    return tmp_path


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_stop_during_the_last_trainings_is_not_forgotten(
    here: Path, monkeypatch: pytest.MonkeyPatch, number: int, code: int
) -> None:
    train = SklearnTrainer.train_and_score

    def asked_to_stop(self: SklearnTrainer, jobs: Any) -> Any:
        if any(job.name.startswith("incv-1-") for job in jobs):
            stopping.on_signal(number)
        return train(self, jobs)

    line = "run t.csv --model logistic --protocol paper --iterations 1 --train-epochs 2 --out run".split()
    with monkeypatch.context() as patch:
        patch.setattr(SklearnTrainer, "train_and_score", asked_to_stop)
        assert run(line) == code
    assert RunFolder("run").state("select") == "done" and RunFolder("run").state("train") is None
    assert not stopping.requested()
    assert run(line) == 0


def test_a_stop_in_the_last_epoch_is_not_forgotten(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import labelsieve.engine as engine

    train = engine.train

    def asked_to_stop(*args: Any, **options: Any) -> Any:
        found = train(*args, **options)
        stopping.on_signal(signal.SIGINT)
        return found

    monkeypatch.setattr(engine, "train", asked_to_stop)
    line = "run t.csv --model logistic --iterations 1 --train-epochs 2 --out run".split()
    assert run(line) == 130
    assert RunFolder("run").state("train") == "done" and RunFolder("run").state("report") is None


def epochs() -> Counter[tuple[str, int]]:
    lines = [entry for entry in RunFolder("run").read_history() if "epoch" in entry]
    assert {entry["stage"] for entry in lines} == {"select"}
    return Counter((entry["training"], entry["epoch"]) for entry in lines)


def test_epochs_of_the_networks_that_select_are_on_record(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(MLP.split()) == 0
    found = epochs()
    assert {name for name, _ in found} >= {"incv-1-1", "incv-1-2"} and set(found.values()) == {1}
    assert {epoch for name, epoch in found if name == "incv-1-1"} == {1, 2, 3}
    rounds = [entry["iteration"] for entry in RunFolder("run").read_history() if "epoch" not in entry]
    assert rounds == list(range(1, len(rounds) + 1))
    assert not (here / "run" / "checkpoints" / "networks").exists()  # their answers are kept
    assert list((here / "run" / "checkpoints" / "select").glob("incv-1-1-*.npz"))
    assert run(["report", "run"]) == 0
    page = (here / "run" / "report.html").read_text()
    assert "No epochs" not in page and "select, incv-1-1" in page


def test_a_killed_selection_tells_no_epoch_twice(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(MLP.replace("--out run", "--out whole").split()) == 0
    train = EngineTrainer.train_and_score
    rounds = []

    def killed(self: EngineTrainer, jobs: Any) -> Any:
        found = train(self, jobs)  # its epochs are told,
        rounds.append(jobs)
        if len(rounds) == 2:
            raise KeyboardInterrupt  # its answers are not yet kept
        return found

    with monkeypatch.context() as patch:
        patch.setattr(EngineTrainer, "train_and_score", killed)
        assert run(MLP.split()) == 130
    assert len(list((here / "run" / "checkpoints" / "networks").iterdir())) == 1  # of this round alone
    assert run(MLP.split()) == 0
    assert set(epochs().values()) == {1}
    lines = [sorted((e.get("training", ""), e.get("epoch", 0)) for e in RunFolder(f).read_history()) for f in
             ("run", "whole")]  # fmt: skip
    assert lines[0] == lines[1]


def test_a_disk_too_small_is_told_before_the_selection(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from collections import namedtuple

    usage = namedtuple("usage", "total used free")
    trained: list[str] = []
    monkeypatch.setattr("shutil.disk_usage", lambda _: usage(10**9, 10**9, 1000))
    monkeypatch.setattr(EngineTrainer, "train_and_score", lambda _, jobs: trained.append("network"))
    monkeypatch.setattr(SklearnTrainer, "train_and_score", lambda _, jobs: trained.append("classifier"))
    message = " MB for checkpoints, 1.0 kB are free; make room there or give another --out\n"
    assert run(MLP.split()) == 1
    assert message in capsys.readouterr().err
    assert run("run t.csv --model logistic --train-epochs 2 --out other".split()) == 1
    assert message in capsys.readouterr().err and trained == []
    with pytest.raises(FailedError, match=r"needs 11\.4 kB for checkpoints"):
        check_disk(here, lambda: __import__("torch").nn.Linear(10, 10), networks=2)
