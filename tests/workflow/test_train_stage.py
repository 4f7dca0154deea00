"""The training stage with --protocol paper: batches and E_0 of the authors' code; and what it must never see."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from labelsieve.cli.app import run
from labelsieve.errors import FailedError
from labelsieve.experiments.paper import PAPER
from labelsieve.methods.incv_coteaching import authors_warmup, auto_warmup
from labelsieve.models.choose import SampleInfo
from labelsieve.runfolder import RunFolder
from labelsieve.types import LabelledData
from labelsieve.workflow.select import check_disk
from labelsieve.workflow.settings import TrainSettings
from labelsieve.workflow.train import TrainingSizes


def settings(line: str, folder: str) -> dict[str, Any]:
    assert run([*line.split(), "--out", folder]) == 0
    found: dict[str, Any] = RunFolder(folder).record()["stages"]["train"]["settings"]
    return found


def test_batches_are_table_1s() -> None:
    def batch_size(samples: int) -> int:
        sizes = TrainingSizes.choose(TrainSettings(), samples, pictures=True, device_type="cuda", paper=True)
        return sizes.batch_size

    assert batch_size(50_000) == PAPER.batch_size == 128
    assert [batch_size(n) for n in (1, 60, 500)] == [2, 60, 128]


@pytest.mark.parametrize(("device", "strong"), [("cuda", True), ("cpu", False)])
def test_a_recipe_changes_settings_of_its_method_on_a_gpu(device: str, strong: bool) -> None:
    settings = TrainSettings(method="incv-posterior", set=("momentum=0.3",))
    sizes = TrainingSizes.choose(settings, 5_000, pictures=True, device_type=device, paper=False)
    found = settings.create_method(sizes.method_settings("preact-resnet18")).settings()
    assert found["strong"] is strong and found["momentum"] == 0.3
    off = TrainSettings(method="incv-posterior", set=("strong=false",))
    assert "unmixed" not in sizes.method_settings("preact-resnet18")
    assert off.create_method(sizes.method_settings("preact-resnet18")).settings()["strong"] is False


@pytest.mark.parametrize(
    ("method", "side", "device", "wanted", "network"),
    [
        ("incv-posterior", 32, "cuda", "auto", "preact-resnet18"),
        ("incv-posterior", 32, "cuda", "resnet32", "resnet32"),
        ("incv-posterior", 32, "cpu", "auto", "auto"),
        ("incv-posterior", 128, "cuda", "auto", "auto"),
        ("incv-coteaching", 32, "cuda", "auto", "auto"),
    ],
)
def test_a_recipe_names_the_network_of_small_pictures(
    method: str, side: int, device: str, wanted: str, network: str
) -> None:
    settings = TrainSettings(method=method, network=wanted)
    sizes = TrainingSizes.choose(settings, 5_000, pictures=True, device_type=device, paper=False)
    assert sizes.network(wanted, SampleInfo("pictures", 5_000, (3, side, side))) == network


def test_the_authors_choices_are_made_where_they_are_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    true = rng.integers(0, 3, 300)
    given = np.where(rng.random(300) < 0.2, (true + 1) % 3, true)
    rows = [f"{rng.normal(6 * t):.3f},{rng.normal(-4 * t):.3f},{'abc'[g]}" for t, g in zip(true, given, strict=True)]
    (tmp_path / "t.csv").write_text("\n".join(["x,z,label", *rows]))
    line = "run t.csv --model logistic --iterations 1 --train-epochs 10"
    usual = settings(line, "usual")
    assert usual["batch_size"] == 32 and usual["method_settings"]["warmup"] == "auto"
    assert usual["augment"] == "none"  # rows are trained on as they are
    symmetric = settings(f"{line} --protocol paper --pattern symmetric", "symmetric")
    assert symmetric["batch_size"] == 128 and symmetric["method_settings"]["warmup"] == 2
    pair = settings(f"{line} --protocol paper --pattern pair --batch-size 64", "pair")
    assert pair["batch_size"] == 64 and pair["method_settings"]["warmup"] == 4
    other = settings(f"{line} --protocol paper --pattern pair --method standard", "standard")
    assert other["batch_size"] == 128


def test_true_labels_that_a_file_has_change_no_weight(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """summary.json then holds measured values beside the expected ones: the training goes by the expected."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    true = rng.integers(0, 3, 200)
    given = np.where(rng.random(200) < 0.2, (true + 1) % 3, true)
    rows = [f"{i},{rng.normal(6 * t):.3f},{rng.normal(-4 * t):.3f},{'abc'[t]}" for i, t in enumerate(true)]
    (tmp_path / "t.csv").write_text("\n".join(["id,x,z,label", *rows]))
    known: dict[str, Any] = {"none": None, "real": true, "nonsense": rng.integers(0, 3, 200)}
    for name, column in known.items():
        lines = [f"{i},{'abc'[g]}" + ("" if column is None else f",{'abc'[column[i]]}") for i, g in enumerate(given)]
        header = "id,label" + ("" if column is None else ",true")
        (tmp_path / f"{name}.csv").write_text("\n".join([header, *lines]))
        line = f"run t.csv --labels {name}.csv --model logistic --iterations 1 --train-epochs 3 --device cpu"
        assert run([*line.split(), "--out", name]) == 0
        assert ("measured_label_precision" in RunFolder(name).read_summary()) == (column is not None)
    models = {(tmp_path / name / "model.safetensors").read_bytes() for name in known}
    assert len(models) == 1


@pytest.mark.parametrize(
    ("pattern", "ratio", "selected", "candidates"),
    [("symmetric", 0.2, 38192, 2659), ("symmetric", 0.5, 24511, 9227), ("symmetric", 0.8, 13503, 9491),
     ("pair", 0.4, 32767, 17233)],
)  # fmt: skip
def test_on_table_1_both_rules_agree(pattern: str, ratio: float, selected: int, candidates: int) -> None:
    """The sets as results/ has them: what `reproduce` trains and what --protocol paper would is the same."""
    assert authors_warmup(200, pattern=pattern, noise_ratio=ratio) == auto_warmup(200, selected, candidates)


def test_too_little_disk_is_a_failure_in_units_one_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    free = shutil._ntuple_diskusage(10**9, 10**9, 40_000)  # type: ignore[attr-defined]
    monkeypatch.setattr("shutil.disk_usage", lambda _: free)
    message = rf"{tmp_path} needs 1.0 MB for checkpoints, 40.0 kB are free; make room there or give another --out"
    with pytest.raises(FailedError, match=message):
        check_disk(tmp_path, lambda: torch.nn.Linear(99, 100), networks=2)


@pytest.mark.parametrize(
    ("shape", "device", "options", "paper", "method"),
    [
        ((5_000, 32), "cuda", {}, False, "incv-posterior"),
        ((4_999, 32), "cuda", {}, False, "incv-coteaching"),
        ((5_000, 65), "cuda", {}, False, "incv-coteaching"),
        ((5_000, 32), "cpu", {}, False, "classifier"),
        ((5_001, 32), "cpu", {}, False, "incv-coteaching"),
        ((60, 15), "cpu", {}, False, "incv-coteaching"),
        ((60, 32), "cpu", {}, True, "incv-coteaching"),
        ((60, 32), "cpu", {"network": "resnet20"}, False, "incv-coteaching"),
        ((60, 32), "cpu", {"augment": "shift"}, False, "incv-coteaching"),
        ((60, 32), "mps", {}, False, "incv-coteaching"),
        ((60, 128), "cpu", {}, False, "classifier"),
        ((5_000, 32), "cuda", {}, True, "incv-coteaching"),
        ((5_000, 32), "cuda", {"set": ("warmup=3",)}, False, "incv-coteaching"),
        ((5_000, 32), "cuda", {"network": "preact-resnet18"}, False, "incv-posterior"),
        ((5_000, 32), "cuda", {"method": "standard"}, False, "standard"),
    ],
)
def test_the_automatic_method_of_pictures(
    shape: tuple[int, int],
    device: str,
    options: dict[str, Any],
    paper: bool,
    method: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("labelsieve.engine.device.choose_device", lambda name: torch.device(device))
    count, side = shape
    data = LabelledData(
        np.zeros((count, side, side, 3), np.uint8),
        np.arange(count) % 2,
        ("a", "b"),
        np.arange(count).astype(str),
        "pictures",
    )
    assert TrainSettings(**options).for_samples(data, {}, paper=paper).method == method


def test_the_automatic_method_keeps_no_predictions_that_do_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("labelsieve.engine.device.choose_device", lambda name: torch.device("cuda"))
    pictures, labels = np.zeros((5_000, 32, 32, 3), np.uint8), np.arange(5_000)
    data = LabelledData(pictures, labels, tuple(range(500_000)), labels.astype(str), "pictures")
    assert TrainSettings().for_samples(data, {}, paper=False).method == "incv-coteaching"
