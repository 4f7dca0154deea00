"""The fast network as a selector: by name, in Python and on the command line, on a CPU."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from labelsieve import INCV, NCV, noise, theory
from labelsieve.cli.app import run
from labelsieve.errors import InputError
from labelsieve.execute.build_trainer import check_loss, method_of
from labelsieve.execute.network_trainer import FastTrainer, batch_size_for
from labelsieve.experiments.datasets import synthetic
from labelsieve.methods.standard import GeneralisedCE, Standard
from labelsieve.selection.settings import INCVSettings


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


def test_batches_leave_a_half_of_the_data_some_fifty_steps() -> None:
    assert [batch_size_for(n) for n in (1, 1_000, 3_200, 10_000, 50_000, 10**7)] == [32, 32, 32, 128, 512, 512]


def test_pictures_that_are_too_small_are_refused() -> None:
    with pytest.raises(InputError, match="8 x 6"):
        FastTrainer(np.zeros((20, 8, 6, 3), dtype=np.uint8), classes=2, device="cpu")


def test_losses_by_name() -> None:
    assert isinstance(method_of("ce"), Standard)
    assert method_of("gce") == GeneralisedCE(q=0.7)
    assert method_of("ce", label_smoothing=0.2) == GeneralisedCE(q=0.0, label_smoothing=0.2)
    with pytest.raises(InputError, match="ce or gce"):
        method_of("mae")
    with pytest.raises(InputError, match="'mae'"):
        check_loss("mae")
    with pytest.raises(InputError, match="for networks"):
        INCV(loss="gce").fit(np.random.default_rng(0).normal(size=(20, 2)), np.arange(20) % 2)


def test_incv_takes_it_by_name() -> None:
    bench = synthetic(samples=160, mistakes=0)
    given = np.asarray(noise.corrupt(bench.true, theory.symmetric(4, 0.2), rng=0))
    found = NCV("fast", epochs=14, device="cpu", random_state=0, protocol="paper", checkpoint="last")
    found.fit(bench.pictures, given)
    assert np.mean(found.predicted_ == bench.true) > 0.9
    assert found.selected_.sum() > 80 and (bench.true == given)[found.selected_].mean() > 0.95
    with pytest.raises(InputError, match="uint8"):
        INCV("fast").fit(np.zeros((30, 64)), np.arange(30) % 3)
    with pytest.raises(InputError, match="'quick'"):
        INCV("quick").fit(bench.pictures, given)


def test_the_last_epoch_of_the_fast_network_selects() -> None:
    assert INCVSettings().for_fast_network().checkpoint == "last"
    for settings in (INCVSettings(protocol="paper"), INCVSettings(checkpoint="best-until-2")):
        assert settings.for_fast_network() == settings


def test_the_command_line_takes_it_for_pictures_only(
    short_measurement: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    bench = synthetic(samples=96)
    np.savez("p.npz", x=bench.pictures, y=bench.true)
    np.savez("small.npz", x=bench.pictures[:, :6, :6], y=bench.true)
    line = "select p.npz --model fast --method ncv --protocol paper --epochs 1 --loss gce --device cpu --json --out run"
    assert run(line.split()) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["model"] == "fast" and sum(found["counts"].values()) == 96
    settings = json.loads(Path("run/run.json").read_text())["stages"]["select"]["settings"]
    assert settings["epochs"] == 1 and settings["loss"] == "gce"
    assert run([*line.replace(" --loss gce", "").split()]) == 2
    assert "gce" in capsys.readouterr().err
    assert run("run p.npz --model fast --dry-run --out dry".split()) == 0
    assert "selection with fast" in capsys.readouterr().out

    Path("t.csv").write_text("text,label\n" + "good,a\nbad,b\n" * 10)
    for source, words in (
        ("digits", "rows of a table"),
        ("t.csv", "texts"),
        ("small.npz", "--size 8"),
    ):
        assert run(f"select {source} --model fast --out no".split()) == 2
        assert words in capsys.readouterr().err
    assert run("select digits --model svm --loss gce --out no".split()) == 2
    assert "for networks" in capsys.readouterr().err
    assert run("select digits --loss hinge --out no".split()) == 2
    assert "hinge" in capsys.readouterr().err
