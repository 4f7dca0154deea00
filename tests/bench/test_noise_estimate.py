"""Peers' estimators against their own package and by hand; the measurement on pictures small enough for a CPU."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from labelsieve.experiments.bench import synthetic
from labelsieve.experiments.noise_estimate import (
    calibration_error,
    given_labels,
    measure,
    page,
    ranks,
    row_error,
    trainer_for,
)
from labelsieve.experiments.peer_estimators import (
    calibrated_joint,
    confident_issues,
    confident_joint,
    consensus,
    from_confident_joint,
    from_hoc,
    hoc,
    two_neighbours,
)

from labelsieve import metrics, noise, theory
from labelsieve.types import Job

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


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
    assert confident_joint(given, probs).tolist() == [[2, 1], [0, 1]]
    assert from_confident_joint(given, probs).ratio == pytest.approx(0.25)


@pytest.mark.parametrize("pattern", ["symmetric", "pair"])
def test_it_is_cleanlabs(pattern):
    from cleanlab.count import compute_confident_joint
    from cleanlab.filter import find_label_issues

    _, given, probs = predictions(theory.matrix(pattern, 6, 0.3))
    np.testing.assert_array_equal(confident_joint(given, probs), compute_confident_joint(given, probs, calibrate=False))
    theirs = compute_confident_joint(given, probs, calibrate=True)
    np.testing.assert_allclose(calibrated_joint(given, probs), theirs, atol=1)  # they round to whole samples
    flags = find_label_issues(given, probs, n_jobs=1)
    assert np.mean(confident_issues(given, probs) != flags) < 0.002
    assert flags.mean() > 0.1


def test_neighbours_and_consensus_by_hand():
    angles = np.deg2rad([0, 10, 25, 180, 185, 195])
    features = np.stack([np.cos(angles), np.sin(angles)], 1) * np.array([[1], [5], [2], [1], [3], [1]])
    assert two_neighbours(features).tolist() == [[1, 2], [0, 2], [1, 0], [4, 5], [3, 5], [4, 3]]
    one, two, three = consensus(np.array([0, 0, 1, 1, 1, 1]), two_neighbours(features), 2)
    assert one.tolist() == pytest.approx([2 / 6, 4 / 6])
    assert two.ravel().tolist() == pytest.approx([2 / 6, 0, 1 / 6, 3 / 6])
    assert three[0, 0].tolist() == pytest.approx([0, 2 / 6])
    assert three.sum() == pytest.approx(1)


def test_hoc_undoes_exact_consensuses():
    T = np.array([[0.7, 0.2, 0.1], [0.0, 0.9, 0.1], [0.3, 0.1, 0.6]])
    prior = np.array([0.5, 0.2, 0.3])
    two = np.einsum("i,ij,ik->jk", prior, T, T)
    three = np.einsum("i,ij,ik,il->jkl", prior, T, T, T)
    found, found_prior = hoc((prior @ T, two, three))
    np.testing.assert_allclose(found, T, atol=0.02)
    np.testing.assert_allclose(found_prior, prior, atol=0.02)


def test_hoc_reads_the_noise_of_clustered_features():
    rng = np.random.default_rng(0)
    true = rng.integers(4, size=1500)
    features = 6 * np.eye(4)[true] + rng.normal(0, 0.3, (1500, 4))
    T = theory.symmetric(4, 0.3)
    given = np.asarray(noise.corrupt(true, T, rng))
    found = from_hoc([(given[:800], features[:800]), (given[800:], features[800:])], 4, "cpu")
    assert found.ratio == pytest.approx(0.3, abs=0.04)
    assert row_error(found.transition, T) < 0.12


def test_errors_by_hand():
    assert row_error(np.array([[0.8, 0.2], [0.0, 1.0]]), np.array([[0.7, 0.3], [0.1, 0.9]])) == pytest.approx(0.2)
    wrong = np.array([True, False, False, True])
    assert calibration_error(np.array([0.5, 0.5, 0.0, 1.0]), wrong) == pytest.approx(0.0)
    assert calibration_error(np.array([0.9, 0.9, 0.0, 1.0]), wrong) == pytest.approx((1.8 - 1) / 4)


def test_settings_corrupt_as_they_say():
    bench = synthetic(classes=10, samples=2000, mistakes=0)
    assert np.array_equal(given_labels(bench, "symmetric", 0.0, 0), bench.true)
    for pattern in ("symmetric", "pair", "cifar10-map", "instance"):
        given = given_labels(bench, pattern, 0.4, 0)
        expected = 0.2 if pattern == "cifar10-map" else 0.4
        assert metrics.noise_ratio(given, bench.true) == pytest.approx(expected, abs=0.05)
        assert np.array_equal(given, given_labels(bench, pattern, 0.4, 0))


@pytest.mark.parametrize("model", ["small", "fast"])
def test_a_measurement_keeps_what_it_trained(model, tmp_path):
    bench = synthetic(classes=4, samples=240, mistakes=0)
    settings = (("symmetric", 0.0), ("symmetric", 0.3))
    said: list[str] = []

    def trainer():
        return trainer_for(
            model, bench, tmp_path, device="cpu", epochs=2, batch_size=32, widths=(24, 24), say=said.append
        )

    first = trainer()
    result = measure(bench, first, settings=settings)
    answer = first.answers["symmetric-0.3-1-1"]
    # The kept probabilities are the scoring network's own, whichever epoch that was.
    np.testing.assert_array_equal(answer.probs.argmax(1), answer.scores.predicted)
    np.testing.assert_allclose(answer.probs.max(1), answer.scores.confidence, atol=1e-4)
    assert len(answer.features) == len(answer.index)

    again = measure(bench, trainer(), settings=settings)
    assert again["rows"] == result["rows"] and again["training_seconds"] == 0
    assert "kept from an earlier run" in said[-4]
    text = page(json.loads(json.dumps(result)), command="`command`", what="small")
    assert "| symmetric-0.3 |" in text and "Share flagged" in text
    row = result["rows"][1]
    assert row["estimates"]["Eq. 4"]["error"] == abs(row["estimates"]["Eq. 4"]["ratio"] - row["noise_ratio"])


def test_what_another_epoch_or_network_answered_is_not_taken_up(tmp_path):
    bench = synthetic(classes=4, samples=64, mistakes=0)
    said: list[str] = []
    train, score = np.arange(32), np.arange(32, 64)
    for keep_best, widths in ((False, (24, 24)), (True, (24, 24)), (True, (24, 32)), (False, (24, 24))):
        trainer = trainer_for("fast", bench, tmp_path, device="cpu", epochs=1, widths=widths, say=said.append)
        trainer.train_and_score([Job("f", bench.true, train, score, seed=0, keep_best=keep_best)])
    assert ["kept" in line for line in said] == [False, False, False, True]


def test_ranks_tell_where_cleanlab_orders_better():
    def row(setting, *aurocs):
        tools = ("labelsieve, probability > 0.5", "cleanlab, f", "cleanlab, g", "cleanlab, f and g")
        return {"setting": setting, "detection": {t: {"auroc": a} for t, a in zip(tools, aurocs, strict=True)}}

    text = ranks([row("symmetric-0.2", 0.95, 0.9, 0.94, 0.96), row("pair-0.4", 0.97, 0.8, 0.98, 0.9)])
    assert "`f` or `g`: higher in 1 of 2 settings, not at pair-0.4 by 0.0100." in text
    assert "of the two: higher in 1 of 2 settings, not at symmetric-0.2 by 0.0100." in text


@pytest.mark.parametrize("script", ["fast_selector", "noise_estimate"])
def test_the_scripts_run_small(script, tmp_path, capsys):
    spec = importlib.util.spec_from_file_location(script, BENCHMARKS / f"{script}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    if script == "fast_selector":
        module.main(["--small", "--out", str(tmp_path / "found.json"), "--settings", "symmetric-0.5"])
        (found,) = json.loads((tmp_path / "found.json").read_text())["runs"]
        assert (tmp_path / "found.md").read_text().count("| symmetric-0.5") == 2
        assert [row["protocol"] for row in found["selections"]] == ["auto", "paper"]
        assert all(len(row["by_iteration"]) == len(row["seconds_by_iteration"]) for row in found["selections"])
        assert "clean labels:" in capsys.readouterr().out
    else:
        module.main(["--small", "--epochs", "2", "--out", str(tmp_path), "--work", str(tmp_path / "work")])
        assert json.loads((tmp_path / "noise-estimate.json").read_text())["rows"][-1]["setting"] == "instance-0.4"
        assert (tmp_path / "noise-estimate.md").read_text().startswith("# What the noise is")
