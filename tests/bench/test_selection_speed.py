"""The selection benchmark on small cases, with real subprocesses and files."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from labelsieve import scoring
from labelsieve.bench import selection_speed as bench_select
from labelsieve.bench.selection_speed import Case
from labelsieve.errors import InputError


def test_small_run_prints_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    case = Case(20_000, 10, "float64")
    report = bench_select.run(cases=(case,), repeats=1)
    table = capsys.readouterr().out.splitlines()
    assert [row["tool"] for row in report["results"]] == ["select_clean", "label_suspicion", bench_select.THEIRS]
    assert len(table) == 4 and case.name in table[1] and "of the time" in table[1]
    assert all(row["seconds"] > 0 and row["extra_mb"] >= 0 for row in report["results"])
    # The true factor is about 100, so the test also passes on a busy machine.
    assert report["results"][0]["seconds"] < report["results"][2]["seconds"]


def test_mapped_run_as_json_stays_small(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_select, "LARGE", Case(600_000, 50, "float32", mapped=True))
    bench_select.run(True, large=True, cases=())
    report = json.loads(capsys.readouterr().out)
    rows = report["results"]
    assert [row["tool"] for row in rows] == ["select_clean", "label_suspicion"]
    # 120 MB of predictions are read; only the outputs and a window of the file are in memory.
    assert all(row["extra_mb"] < 60 and row["compared"] == "" for row in rows)


def test_written_predictions_are_valid_and_noisy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_select, "WRITE_ROWS", 700)
    case = Case(2_000, 10, "float32")
    bench_select.write_case(case, tmp_path)
    labels = np.fromfile(tmp_path / "labels.bin", dtype=np.int64)
    probs = np.fromfile(tmp_path / "probs.bin", dtype="float32").reshape(2_000, 10)
    assert len(labels) == 2_000
    np.testing.assert_allclose(probs.sum(axis=1), 1, atol=1e-5)
    assert 0.3 < scoring.select_clean(labels, probs).mean() < 0.9
    measured = bench_select.measure(case, "select_clean", tmp_path)
    assert measured["samples"] == 2_000


def test_too_little_disk_space_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"GB needed, .* GB free; set TMPDIR"):
        bench_select._require_disk(tmp_path, 10**18)


def test_a_tool_that_fails_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="select_clean cannot be measured: FileNotFoundError"):
        bench_select._measure(Case(10, 2, "float64"), "select_clean", tmp_path, 1)
