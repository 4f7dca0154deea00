"""The noise benchmark: other estimators against their own package and by hand, and the script on small pictures."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from labelsieve import metrics, noise, theory
from labelsieve.experiments.datasets import synthetic
from labelsieve.types import Job

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def load_script(name):
    spec = importlib.util.spec_from_file_location(name, BENCHMARKS / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


peers = load_script("peer_estimators")
script = load_script("noise_estimate")
row_error = script.row_error


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


def predictions(T, n=3000, seed=0):
    rng = np.random.default_rng(seed)
    c = len(T)
    true = rng.integers(c, size=n)
    odds = rng.normal(0, 1, (n, c)) + 2.5 * np.eye(c)[true]
    probs = np.exp(odds) / np.exp(odds).sum(1, keepdims=True)
    return true, np.asarray(noise.corrupt(true, T, rng)), probs


def test_the_confident_joint_by_hand():
    probs = np.array([[0.9, 0.1], [0.7, 0.3], [0.2, 0.8], [0.4, 0.6]])
    given = np.array([0, 0, 0, 1])
    # thresholds: class 0 (.9 + .7 + .2) / 3 = .6, class 1 .6: the third sample counts as a true 1
    assert peers.confident_joint(given, probs).tolist() == [[2, 1], [0, 1]]
    assert peers.from_confident_joint(given, probs).ratio == pytest.approx(0.25)


@pytest.mark.parametrize("pattern", ["symmetric", "pair"])
def test_the_confident_joint_is_cleanlabs(pattern):
    from cleanlab.count import compute_confident_joint
    from cleanlab.filter import find_label_issues

    _, given, probs = predictions(theory.matrix(pattern, 6, 0.3))
    np.testing.assert_array_equal(
        peers.confident_joint(given, probs), compute_confident_joint(given, probs, calibrate=False)
    )
    theirs = compute_confident_joint(given, probs, calibrate=True)
    np.testing.assert_allclose(peers.calibrated_joint(given, probs), theirs, atol=1)  # cleanlab rounds to whole samples
    flags = find_label_issues(given, probs, n_jobs=1)
    assert np.mean(peers.confident_issues(given, probs) != flags) < 0.002
    assert flags.mean() > 0.1


def test_neighbours_and_consensus_by_hand():
    angles = np.deg2rad([0, 10, 25, 180, 185, 195])
    features = np.stack([np.cos(angles), np.sin(angles)], 1) * np.array([[1], [5], [2], [1], [3], [1]])
    assert peers.two_neighbours(features).tolist() == [[1, 2], [0, 2], [1, 0], [4, 5], [3, 5], [4, 3]]
    one, two, three = peers.consensus(np.array([0, 0, 1, 1, 1, 1]), peers.two_neighbours(features), 2)
    assert one.tolist() == pytest.approx([2 / 6, 4 / 6])
    assert two.ravel().tolist() == pytest.approx([2 / 6, 0, 1 / 6, 3 / 6])
    assert three[0, 0].tolist() == pytest.approx([0, 2 / 6])
    assert three.sum() == pytest.approx(1)


def test_hoc_recovers_exact_consensuses():
    T = np.array([[0.7, 0.2, 0.1], [0.0, 0.9, 0.1], [0.3, 0.1, 0.6]])
    prior = np.array([0.5, 0.2, 0.3])
    two = np.einsum("i,ij,ik->jk", prior, T, T)
    three = np.einsum("i,ij,ik,il->jkl", prior, T, T, T)
    found, found_prior = peers.hoc((prior @ T, two, three))
    np.testing.assert_allclose(found, T, atol=0.02)
    np.testing.assert_allclose(found_prior, prior, atol=0.02)


def test_hoc_on_clustered_features():
    rng = np.random.default_rng(0)
    true = rng.integers(4, size=1500)
    features = 6 * np.eye(4)[true] + rng.normal(0, 0.3, (1500, 4))
    T = theory.symmetric(4, 0.3)
    given = np.asarray(noise.corrupt(true, T, rng))
    found = peers.from_hoc([(given[:800], features[:800]), (given[800:], features[800:])], 4, "cpu")
    assert found.ratio == pytest.approx(0.3, abs=0.04)
    assert row_error(found.transition, T) < 0.12


def test_row_error_by_hand():
    assert row_error(np.array([[0.8, 0.2], [0.0, 1.0]]), np.array([[0.7, 0.3], [0.1, 0.9]])) == pytest.approx(0.2)


def test_settings_have_their_noise_ratio():
    data = synthetic(classes=10, samples=2000, mistakes=0)
    assert np.array_equal(script.given_labels(data, "symmetric", 0.0, 0), data.true)
    for pattern in ("symmetric", "pair", "cifar10-map", "instance"):
        given = script.given_labels(data, pattern, 0.4, 0)
        expected = 0.2 if pattern == "cifar10-map" else 0.4
        assert metrics.noise_ratio(given, data.true) == pytest.approx(expected, abs=0.05)
        assert np.array_equal(given, script.given_labels(data, pattern, 0.4, 0))


@pytest.mark.slow  # of a benchmark
def test_a_measurement_stores_its_predictions(tmp_path):
    data = synthetic(classes=4, samples=240, mistakes=0)
    settings = (("symmetric", 0.0), ("symmetric", 0.3))
    said: list[str] = []

    def trainer():
        return script.trainer_for(
            "fast", data, tmp_path, device="cpu", epochs=2, batch_size=32, widths=(24, 24), say=said.append
        )

    first = trainer()
    result = script.measure(data, first, settings=settings)
    prediction = first.predictions["symmetric-0.3-1-1"]
    # The stored probabilities are of the network that gave the scores.
    np.testing.assert_array_equal(prediction.probs.argmax(1), prediction.scores.predicted)
    np.testing.assert_allclose(prediction.probs.max(1), prediction.scores.confidence, atol=1e-4)
    assert len(prediction.features) == len(prediction.index)

    again = script.measure(data, trainer(), settings=settings)
    assert again["rows"] == result["rows"] and again["training_seconds"] == 0
    assert "earlier run" in said[-4]
    text = script.page(json.loads(json.dumps(result)), command="`command`", what="small")
    assert "| symmetric-0.3 |" in text and "Share flagged" in text
    row = result["rows"][1]
    assert row["estimates"]["Eq. 4"]["error"] == abs(row["estimates"]["Eq. 4"]["ratio"] - row["noise_ratio"])


def test_stored_predictions_of_other_settings_are_not_used(tmp_path):
    data = synthetic(classes=4, samples=64, mistakes=0)
    said: list[str] = []
    train, score = np.arange(32), np.arange(32, 64)
    for keep_best, widths in ((False, (24, 24)), (True, (24, 24)), (True, (24, 32)), (False, (24, 24))):
        trainer = script.trainer_for("fast", data, tmp_path, device="cpu", epochs=1, widths=widths, say=said.append)
        trainer.train_and_score([Job("f", data.true, train, score, seed=0, keep_best=keep_best)])
    assert ["earlier run" in line for line in said] == [False, False, False, True]


def test_ranks_count_the_settings_with_a_higher_auroc():
    def row(setting, *aurocs):
        tools = ("labelsieve, probability > 0.5", "cleanlab, f", "cleanlab, g", "cleanlab, f and g")
        return {"setting": setting, "detection": {t: {"auroc": a} for t, a in zip(tools, aurocs, strict=True)}}

    text = script.ranks([row("symmetric-0.2", 0.95, 0.9, 0.94, 0.96), row("pair-0.4", 0.97, 0.8, 0.98, 0.9)])
    alone, both = text.split("With `f and g`")
    assert "1 of 2 settings, not at pair-0.4 by 0.0100" in alone
    assert "1 of 2 settings, not at symmetric-0.2 by 0.0100" in both


@pytest.mark.slow  # of a benchmark
def test_the_script_runs_small(tmp_path):
    script.main(["--small", "--epochs", "2", "--out", str(tmp_path), "--work", str(tmp_path / "work")])
    assert json.loads((tmp_path / "noise-estimate.json").read_text())["rows"][-1]["setting"] == "instance-0.4"
    assert (tmp_path / "noise-estimate.md").read_text().startswith("# ")


def test_the_fast_selector_script_runs_small(tmp_path, capsys):
    fast_selector = load_script("fast_selector")
    fast_selector.main(["--small", "--out", str(tmp_path / "found.json"), "--settings", "symmetric-0.5"])
    (found,) = json.loads((tmp_path / "found.json").read_text())["runs"]
    assert (tmp_path / "found.md").read_text().count("| symmetric-0.5") == 2
    assert [row["protocol"] for row in found["selections"]] == ["auto", "paper"]
    assert all(len(row["by_iteration"]) == len(row["seconds_by_iteration"]) for row in found["selections"])
    assert "clean labels:" in capsys.readouterr().out
