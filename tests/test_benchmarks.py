"""Scripts in benchmarks/: their arithmetic, and short runs of each."""

from __future__ import annotations

import importlib.util
import json
import pickle
import shutil
import sys
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

from labelsieve.experiments import records
from labelsieve.scoring import score_probabilities

ROOT = Path(__file__).resolve().parent.parent


def script(path: str) -> ModuleType:
    found = importlib.util.spec_from_file_location(Path(path).stem, ROOT / path)
    assert found is not None and found.loader is not None
    module = importlib.util.module_from_spec(found)
    sys.modules[found.name] = module  # dataclasses need their module
    found.loader.exec_module(module)
    return module


def test_exponent_of_a_power_law() -> None:
    growth = script("benchmarks/growth.py")
    n = [1e4, 1e5, 1e6, 1e7]
    assert growth.exponent(n, [3e-7 * x**1.25 for x in n]) == pytest.approx(1.25)
    rest = {"wall": 9.0, "iterations": 3, "label_precision": 0.99, "label_recall": 0.9}
    rows = [rest | {"kind": k, "samples": x, "seconds": x**1.1, "bytes": 300 * x} for k in growth.KINDS for x in n]
    assert "time, all sizes **1.10**; memory, all sizes **1.00**" in growth.page(rows, "command")
    found = growth.fits(rows)["decisions"]
    assert found["time, all sizes"] == pytest.approx(1.1) and found["memory, from 10^5 on"] == pytest.approx(1.0)


@pytest.mark.parametrize("kind", ["decisions", "end to end"])
def test_growth_measures_a_valid_selection(tmp_path: Path, kind: str) -> None:
    growth = script("benchmarks/growth.py")
    growth.write_case(3000, tmp_path)
    found = growth.measure(kind, 3000, tmp_path)
    assert 0 < found["seconds"] < 60 and found["bytes"] > 0
    assert found["label_precision"] > 0.97 and 0.8 < found["label_recall"] <= 1


@pytest.mark.slow  # of a benchmark
def test_eager_network_equals_the_network_of_the_engine() -> None:
    inception = script("benchmarks/inception.py")
    torch.manual_seed(0)
    ours = inception.InceptionResNetV2(4)
    state = {name: tensor.clone() for name, tensor in ours.state_dict().items()}
    x = torch.randn(2, 3, 75, 75)
    with torch.no_grad():
        expected = ours.train()(x)
        after = {name: tensor.clone() for name, tensor in ours.state_dict().items()}
        ours.load_state_dict(state)
        plain = inception.plain(ours).train()
        found = plain(x)
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-3)
    kinds = {type(module).__module__.split(".")[0] for module in plain.modules() if not list(module.children())}
    norms = [m for m in plain.modules() if isinstance(m, torch.nn.BatchNorm2d)]
    assert len(norms) == 204 and "torch" in kinds  # as published, where ours joins the branches' first layers
    assert not any(isinstance(m, inception.BatchNorm | inception.Conv | inception.Branches) for m in plain.modules())
    first = next(name for name in after if name.endswith("running_mean"))
    torch.testing.assert_close(norms[0].running_mean, after[first])


def test_failed_row_does_not_affect_other_rows(tmp_path: Path) -> None:
    inception = script("benchmarks/inception.py")
    assert "not done in" in inception.measured(inception.BASE, ["--device=cpu"], timeout=0.05)["failed"]
    assert "no-such" in inception.measured(inception.BASE, ["--device=no-such"], timeout=60)["failed"]
    rows = {
        inception.BASE: {"images_per_second": 500.0, "peak_gib": 1.0, "seconds": 9.0},
        "engine, 1 network": {"failed": "a | b"},
        "engine, 2 networks": {"images_per_second": 2000.0, "peak_gib": 1.0, "seconds": 9.0},
        inception.SCORING: {"images_per_second": 8000.0, "peak_gib": 1.0, "seconds": 9.0},
    }
    hours = inception.table_2_hours(rows)
    assert hours["d2l"] == pytest.approx(120 * 65_944 / 2000 / 3600)
    own = (2 * 120 + 150) * 65_944 / 2000 / 3600 + 150 * 65_944 / 8000 / 3600
    assert hours["incv-coteaching"] == pytest.approx(own)
    options = type("Options", (), {"crop": 227, "batch": 128})
    page = inception.page(rows, "a card", "command", options)
    assert "reached, 4.00 x" in page and "| engine, 1 network | failed: a / b | | | |" in page


def test_scaling_page_is_up_to_date(tmp_path: Path) -> None:
    scaling = script("scripts/scaling_page.py")
    page = scaling.PAGE.read_text(encoding="utf-8")
    assert scaling.renewed(page, scaling.speed()) == page, "run `python scripts/scaling_page.py`"
    assumed = scaling.speed(tmp_path / "none.json")
    assert assumed.trained == 1000 and "assumed" in assumed.source
    rows = {
        "eager, fp32": {"images_per_second": 9e9},
        "engine, 1 network": {"images_per_second": 2000.0},
        "engine, 2 networks": {"failed": "out of memory"},
        "engine, scoring": {"images_per_second": 8000.0},
    }
    (tmp_path / "inception.json").write_text(json.dumps({"device": "NVIDIA X", "rows": rows}))
    measured = scaling.speed(tmp_path / "inception.json")
    assert (measured.trained, measured.scored) == (2000.0, 8000.0)
    again = scaling.renewed(page, measured)
    # 65,944 pictures: 3 x 50 passes trained and scored, 2 x 120 passes of the robust training
    parts = np.array([150 / 2000, 150 / 8000, 240 / 2000]) * 65_944 / 3600
    whole = " | ".join(f"{value:.1f}" for value in [*parts, parts.sum()])
    assert f"| 65,944 | {whole} |" in again and "measured on one NVIDIA X" in " ".join(again.split())
    assert scaling.renewed(again, scaling.speed()) == page


def test_speed_of_the_fast_network(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    fast = script("benchmarks/fast_network.py")
    asked = "--networks 1 2 --seconds 0.01 --batch 16 --widths 24 24 --samples 32 --device cpu"
    monkeypatch.setattr("sys.argv", ["fast_network.py", *asked.split()])
    fast.main()
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].startswith("1 networks: ") and lines[2].startswith("2 networks: ")


@pytest.mark.slow  # of a benchmark
def test_speed_of_inception(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    inception = script("benchmarks/inception.py")
    asked = "--profile --seconds 0.01 --batch 2 --crop 75 --samples 2 --device cpu"
    monkeypatch.setattr("sys.argv", ["inception.py", *asked.split()])
    inception.main()
    assert capsys.readouterr().out.strip().endswith("ms a step")  # kernels are a GPU's


# Smaller constants, so that each script runs in seconds.
SMALL: dict[str, dict[str, object]] = {
    "calibration": {"SETTINGS": (("symmetric", 0.0), ("symmetric", 0.3)), "MODELS": ("SVM",), "DATASETS": ("wine",)},
    "detection": {"RATIOS": (0.2, 0.5), "DATASETS": ("wine",)},
    "repeats": {
        "NOISE": (("pair", 0.2),),
        "NETWORK_NOISE": (("pair", 0.2),),
        "NETWORK_SEEDS": 1,
        "MODELS": ("SVM",),
        "REPEATS": (1, 2),
        "DATA": ("digits",),
    },
}


@pytest.mark.parametrize("name", [*list(SMALL)[:-1], pytest.param("repeats", marks=pytest.mark.slow)])
def test_scripts_write_their_page(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    module = script(f"benchmarks/{name}.py")
    for constant, value in SMALL[name].items():
        whole = getattr(module, constant)
        small = {key: whole[key] for key in value} if isinstance(whole, dict) else value  # type: ignore[attr-defined]
        monkeypatch.setattr(module, constant, small)
    monkeypatch.setattr(module, "HERE", tmp_path)
    monkeypatch.setattr(sys, "argv", [name, "--out", str(tmp_path), "--seeds", "1"])
    module.main()
    page = (tmp_path / f"{name}.md").read_text()
    assert page.startswith("# ") and "| " in page and "None" not in page


def test_page_of_own_trainings_and_its_stored_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    module = script("benchmarks/own_training.py")
    only = ["--only", "wine, logistic regression, symmetric 0.2"]
    folders = ["--work", str(tmp_path / "work"), "--out", str(tmp_path)]
    for again in ([], ["--again"]):
        monkeypatch.setattr(sys, "argv", ["own_training", "--tables", *folders, *only, *again])
        module.main()
    (row,) = json.loads((tmp_path / "own-training.json").read_text()).values()
    assert row["training_seconds"] == 0 and row["low"] <= row["ratio"] <= row["high"]  # measured from stored answers
    assert "| wine, logistic regression, symmetric 0.2 |" in (tmp_path / "own-training.md").read_text()


def test_page_of_real_noise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    module = script("benchmarks/real_noise.py")
    small = {
        "DATASETS": {"wine": module.DATASETS["wine"]},
        "RATIOS": (0.2,),
        "PATTERNS": ("symmetric", "instance-dependent"),
    }
    for constant, value in small.items():
        monkeypatch.setattr(module, constant, value)
    monkeypatch.setattr(module, "ABLATIONS", dict(list(module.ABLATIONS.items())[:2]))
    monkeypatch.setattr(sys, "argv", ["real_noise", "--out", str(tmp_path)])
    module.main()
    page = (tmp_path / "real-noise.md").read_text()
    assert page.startswith("# ") and "| wine, symmetric" in page and "no denoising" in page

    rng = np.random.default_rng(0)
    true, probs = np.arange(2000) % 4, np.full((2000, 4), 0.05)
    probs[np.arange(2000), np.where(rng.random(2000) < 0.8, true, 3 - true)] = 0.5 + 0.35 * rng.random(2000)
    given = np.where(rng.random(2000) < 0.1, (true + 1) % 4, true)
    scores = score_probabilities(given, probs / probs.sum(axis=1, keepdims=True))
    model = module.noise_model.fit_noise_model(scores, given, 4)
    least, most = (module.at_ratio(scores, given, model, ratio).estimate.ratio for ratio in (0.0, 1.0))
    middle = module.at_ratio(scores, given, model, (least + most) / 2).estimate.ratio
    assert least < most - 0.01 and middle == pytest.approx((least + most) / 2, abs=0.005)


def write_cifar10_with_human_labels(folder: Path) -> None:
    """50 training and 10 test pictures of noise, and the labels of two people: 25 and 17 are wrong."""
    rng, labels = np.random.default_rng(0), []
    for name in [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]:
        rows = rng.integers(0, 256, (10, 3073), dtype=np.uint8)
        rows[:, 0] = np.arange(10)
        (folder / f"{name}.bin").write_bytes(rows.tobytes())
        labels += rows[:, 0].tolist() if name != "test_batch" else []
    second, third = np.array(labels), np.array(labels)
    second[::2], third[::3] = (second[::2] + 1) % 10, (third[::3] + 2) % 10
    people = {"random_label2": second, "random_label3": third}
    (folder / "CIFAR-10_human.pt").write_bytes(pickle.dumps(people))


def test_trials_of_incv_posterior_test_on_held_out_training_pictures(tmp_path: Path, monkeypatch: Any) -> None:
    trials = script("benchmarks/finish_trials.py")
    monkeypatch.setattr(trials, "HELD_OUT", 10)
    write_cifar10_with_human_labels(tmp_path)
    one, worst = (trials.held_out(tmp_path, which) for which in ("random2", "worst"))
    assert len(one.true) == 40 and len(one.test_labels()) == 10
    pictures = np.concatenate([one.pictures, one.test_pictures]).reshape(50, -1)
    assert len(np.unique(pictures, axis=0)) == 50  # disjoint, and none of the test batch
    first, last = one.people["random2"], worst.people["random2"]
    wrong = first != one.true
    assert (last[wrong] == first[wrong]).all() and (last != worst.true).sum() > wrong.sum()
    monkeypatch.setattr(trials, "WRONG_OF_THREE", 0.8)
    three = trials.held_out(tmp_path, "worst-of-three").people["random2"]
    wrong = last != worst.true
    assert (three[wrong] == last[wrong]).all() and (three != worst.true).sum() > wrong.sum()
    assert not trials.held_out(tmp_path, "symmetric-0.8").people
    assert trials.parse_settings("momentum=0.2,temperature=1.0") == (
        ("incv-posterior", "momentum", 0.2),
        ("incv-posterior", "temperature", 1.0),
    )
    assert trials.parse_settings("") == ()


def test_human_labels_of_other_pictures_are_used_to_choose(tmp_path: Path, monkeypatch: Any) -> None:
    finish = script("benchmarks/finish.py")
    monkeypatch.setattr(finish, "PEOPLE_EMBEDDED", (40, 10))
    monkeypatch.setattr(finish, "PEOPLE_TRAINING", 15)
    write_cifar10_with_human_labels(tmp_path)
    rows = np.arange(50, dtype=np.float32)[:, None]  # each sample is its number
    np.savez(tmp_path / "cifar10-lite0.npz", train=rows[:40], test=rows[40:])
    monkeypatch.setattr(finish, "standardised", lambda *parts: parts)
    source = finish.people(tmp_path, tmp_path)
    one, two = source.kinds
    drawn = {(kind, seed): source.draw(kind, seed) for kind in (one, two) for seed in (20, 21, 50, 51)}
    used = {at: set(arrays[0][:, 0]) | set(arrays[2][:, 0]) for at, (arrays, _) in drawn.items()}
    assert all(len(numbers) == 15 + 5 for numbers in used.values())
    assert not (used[one, 20] | used[one, 21]) & (used[one, 50] | used[one, 51])
    assert used[one, 20] == used[two, 20] != used[one, 21]
    wrong = {kind: drawn[kind, 20][1] != drawn[kind, 20][0][1] for kind in (one, two)}
    assert wrong[two][wrong[one]].all() and wrong[two].sum() > wrong[one].sum()


def test_trials_of_incv_posterior_change_the_noise_ratio_of_copied_selections(tmp_path: Path) -> None:
    trials, results = script("benchmarks/finish_trials.py"), Path(__file__).parents[1] / "results"
    name = "finish-selection/incv-symmetric-0.8-seed0"
    for kind in ("json", "npz"):
        (tmp_path / "a" / f"{name}.{kind}").parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(results / f"{name}.{kind}", tmp_path / "a" / f"{name}.{kind}")
    trials.copy_selections(tmp_path / "a", tmp_path / "b", partial(trials.with_ratio, ratio=0.5))
    before, after = (records.load(tmp_path / folder, name)["results"]["transition_matrix"] for folder in "ab")
    assert np.diag(before).mean() == pytest.approx(0.2, abs=0.02) and np.diag(after).mean() == pytest.approx(
        0.5, abs=1e-6
    )
    assert np.sum(after, axis=1) == pytest.approx(np.ones(10))
