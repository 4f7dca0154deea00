"""Records are complete, match their arrays, and the tables in results/ match the records."""

from __future__ import annotations

import copy
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from labelsieve.errors import InputError
from labelsieve.experiments import records, theory_figures
from labelsieve.experiments.runner import ITEMS

ARRAYS = {"predicted_test": np.array([[1, 2, 3]], np.uint8), "verdict": np.array([0, 1], np.int8)}


@pytest.fixture
def record() -> dict[str, Any]:
    return {
        "schema": 1,
        "id": "accuracy/standard-pair-0.4-seed0",
        "kind": "accuracy",
        "cell": {"scale": "paper"},
        "noise": {"convention": "words", "pattern": "pair", "ratio": 0.4, "measured_ratio": 0.401},
        "method": {"name": "standard"},
        "schedule": {"epochs": 200, "steps": [[0, 0.001], [180, 5e-7]]},
        "versions": {"torch": "2"},
        "device": "cpu",
        "commit": "0" * 40,
        "source": "1" * 64,
        "seconds": 12.5,
        "lockstep": {"cells": 1},
        "hashes": {"data": "2" * 64, "train_labels": "3" * 64, **records.array_hashes(ARRAYS)},
        "results": {"test_accuracy": 0.5, "curve": [0.1, 0.5], "missing": float("nan")},
    }


def test_a_record_is_saved_and_loaded(tmp_path: Path, record: dict[str, Any]) -> None:
    path = records.save(tmp_path, record, ARRAYS)
    back = records.load(tmp_path, record["id"])
    assert back is not None and back["results"] == {"test_accuracy": 0.5, "curve": [0.1, 0.5], "missing": None}
    assert "[0.1, 0.5]" in path.read_text()
    assert back["schedule"] == record["schedule"]  # small numbers are kept
    assert records.load_arrays(tmp_path, back)["verdict"].tolist() == [0, 1]
    assert [r["id"] for r in records.read_all(tmp_path, "accuracy")] == [record["id"]]
    assert records.read_all(tmp_path, "accuracy", scale="smoke") == []
    assert records.load(tmp_path, "accuracy/other") is None


@pytest.mark.parametrize("field", ["commit", "hashes", "source", "device", "versions", "noise", "seconds", "results"])
def test_all_fields_are_required(tmp_path: Path, record: dict[str, Any], field: str) -> None:
    del record[field]
    with pytest.raises(InputError, match=f"no '{field}'"):
        records.save(tmp_path, record, ARRAYS)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("field", ["data", "train_labels", "predictions", "arrays"])
@pytest.mark.parametrize("value", [None, "", "abc", "x" * 64])
def test_hashes_must_be_valid(record: dict[str, Any], field: str, value: Any) -> None:
    if value is None:
        del record["hashes"][field]
    else:
        record["hashes"][field] = value
    with pytest.raises(InputError, match="no SHA-256"):
        records.check(record)


@pytest.mark.parametrize("commit", ["", "main", "abc123", "g" * 40])
def test_the_commit_must_be_valid(record: dict[str, Any], commit: str) -> None:
    record["commit"] = commit
    with pytest.raises(InputError, match="40 digits"):
        records.check(record)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seconds": float("nan")}, "'seconds' is nan"),
        ({"seconds": -1}, "'seconds' is -1"),
        ({"results": {}}, "no results"),
        ({"schema": 2}, "schema 2"),
        ({"noise": {"pattern": "pair"}}, "no 'convention'"),
        ({"seconds": True}, "wrong type"),
        ({"cell": []}, "wrong type"),
    ],
)
def test_other_invalid_records(record: dict[str, Any], change: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        records.check(record | change)
    with pytest.raises(InputError, match="JSON object"):
        records.check([record])


def test_changed_arrays_are_refused(tmp_path: Path, record: dict[str, Any]) -> None:
    other = copy.deepcopy(ARRAYS)
    other["predicted_test"][0, 0] = 9
    with pytest.raises(InputError, match="hash"):
        records.save(tmp_path, record, other)
    path = records.save(tmp_path, record, ARRAYS)
    np.savez(path.with_suffix(".npz"), **other)
    with pytest.raises(InputError, match="hash"):
        records.load_arrays(tmp_path, record)
    np.savez(path.with_suffix(".npz"), **ARRAYS | {"verdict": np.ones(2, dtype=np.int8)})
    with pytest.raises(InputError, match=r"arrays .* do not match"):
        records.load_arrays(tmp_path, record)
    path.with_suffix(".npz").unlink()
    with pytest.raises(InputError, match="is missing"):
        records.load_arrays(tmp_path, record)


def test_copied_or_damaged_records_are_refused(tmp_path: Path, record: dict[str, Any]) -> None:
    path = records.save(tmp_path, record, ARRAYS)
    path.with_name("standard-pair-0.4-seed1.json").write_text(path.read_text())
    with pytest.raises(InputError, match="moved or copied"):
        records.load(tmp_path, "accuracy/standard-pair-0.4-seed1")
    path.write_text(path.read_text()[:-20])
    with pytest.raises(InputError, match="not JSON"):
        records.load(tmp_path, record["id"])


def test_digest_depends_on_type_shape_and_contents() -> None:
    a = np.arange(6, dtype=np.int64)
    same = [records.digest(a), records.digest(np.arange(12)[::2] // 2)]
    assert len(set(same)) == 1
    others = [a.astype(np.int32), a.reshape(2, 3), a[::-1], a[:5]]
    assert len({*same, *(records.digest(o) for o in others)}) == 5


def test_commit_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    assert records.commit("a" * 40) == "a" * 40
    monkeypatch.setenv("LABELSIEVE_COMMIT", "b" * 40)
    assert records.commit() == "b" * 40
    with pytest.raises(InputError, match="--commit"):
        records.commit("not a commit")
    monkeypatch.delenv("LABELSIEVE_COMMIT")
    monkeypatch.setenv("PATH", "")
    with pytest.raises(InputError, match="LABELSIEVE_COMMIT"):
        records.commit()


def test_records_in_the_repository_are_valid() -> None:
    results = Path(__file__).parents[2] / "results"
    paths = sorted(results.glob("*/*.json"))
    assert len(paths) >= 139
    for path in paths:
        record = records.load(results, f"{path.parent.name}/{path.stem}")
        assert record is not None
        records.load_arrays(results, record)
        assert json.loads(records.to_json(record)) == record


def numbers(text: str) -> list[str]:
    return re.findall(r"[+-]?\d[\d,]*(?:\.\d+)?", text)


def test_tables_in_the_repository_have_the_numbers_of_its_records() -> None:
    results = Path(__file__).parents[2] / "results"
    for item in ITEMS.values():
        found = records.read_all(results, item.kind) if item.kind else []
        stored = (results / "tables" / f"{item.name}.md").read_text()
        drawn = item.text(found, item.scales["paper"], results)
        rows = [[line for line in text.splitlines() if line.startswith("|")][2:] for text in (stored, drawn)]
        assert rows[0] == rows[1], item.name
        assert sorted(numbers(stored)) == sorted(numbers(drawn)), item.name


def test_recall_with_own_errors() -> None:
    def record(ratio: float, confusion: list[list[float]]) -> dict[str, Any]:
        flip = [[1 - ratio, ratio], [ratio, 1 - ratio]]
        noise = {"pattern": "symmetric", "ratio": ratio}
        lengths = {"epochs": 1, "iterations": 0, "selection_epochs": 0}
        cell = {"noise": noise, "method": "standard", "settings": {}, **lengths}
        return {"noise": noise, "cell": cell, "results": {"confusion": confusion, "transition": flip}}

    found = [record(0.0, [[0.9, 0.1], [0.2, 0.8]]), record(0.25, [[0.6, 0.4], [0.5, 0.5]])]
    expected = theory_figures.recall_with_own_errors(found)
    assert {noise.ratio: value for noise, value in expected.items()} == pytest.approx({0.0: 0.85, 0.25: 0.675})
    assert theory_figures.recall_with_own_errors(found[1:]) == {}
