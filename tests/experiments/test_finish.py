"""`labelsieve reproduce finish` at smoke scale: records, judgements before and after, and the table."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from labelsieve.errors import InputError
from labelsieve.experiments import ReproduceOptions, records
from labelsieve.experiments.cells import SweepRequest, finish_cells
from labelsieve.experiments.datasets import synthetic
from labelsieve.experiments.paper import PAPER, PEOPLE, Noise
from labelsieve.experiments.result_figures import repeat_judgement
from labelsieve.experiments.runner import reproduce


def test_cells():
    cells = finish_cells(PAPER, SweepRequest(seeds=(0, 1, 2)))
    trainings = [cell for cell in cells if cell.kind == "finish"]
    assert len(trainings) == 2 * 5 * 3 and len(cells) - len(trainings) == 5 * 3
    assert len({cell.id for cell in cells}) == len(cells)
    assert Noise.parse("random2") == PEOPLE and PEOPLE in {cell.noise for cell in trainings}
    assert {(cell.epochs, cell.batch_size) for cell in trainings} == {(200, 256)}


def test_all_label_sets_of_people_can_be_requested(tmp_path):
    cells = finish_cells(PAPER, SweepRequest(noises=(Noise.parse("worse"),), networks=("resnet32",)))
    assert [(cell.kind, cell.noise.key) for cell in cells] == [("finish-selection", "worse"), ("finish", "worse")]
    labels = np.arange(320) % 4
    data = replace(synthetic(), people={"worse": labels})
    np.testing.assert_array_equal(data.given(cells[0]), labels)
    with pytest.raises(InputError):
        SweepRequest(noises=(Noise.parse("worse"),)).choose(PAPER.table_noises)


def test_networks_can_be_chosen(tmp_path):
    cells = finish_cells(PAPER, SweepRequest(networks=("preact-resnet18",)))
    assert {cell.network for cell in cells if cell.kind == "finish"} == {"preact-resnet18"}
    for item, networks in (("finish", "resnet32"), ("finish", "small,"), ("accuracy", "preact-resnet18")):
        options = ReproduceOptions(scale="smoke", networks=networks, results=tmp_path, device="cpu")
        with pytest.raises(InputError, match="--networks"):
            reproduce(item, options)


def test_a_smoke_run(tmp_path):
    options = ReproduceOptions(
        scale="smoke", settings="symmetric-0.2", results=tmp_path, device="cpu", selection_epochs=2, iterations=1,
        networks="small",
    )  # fmt: skip
    found = reproduce("finish", options)
    assert found["finished"] == found["cells"] == 2
    (path,) = (tmp_path / "finish").glob("*.json")
    results = json.loads(path.read_text())["results"]
    for when in ("before", "after"):
        assert 0 <= results[when]["auroc"] <= 1 and 0 <= results[when]["calibration_error"] <= 1
    assert results["predict_accuracy"] == pytest.approx(results["test_accuracy"], abs=0.15)
    table = (tmp_path / "tables" / "finish.md").read_text()
    assert "small" in table and f"{100 * results['predict_accuracy']:.2f}" in table
    started = path.stat().st_mtime_ns
    assert reproduce("finish", options)["left"] == []
    assert path.stat().st_mtime_ns == started
    check_repeated_judgement(tmp_path, records.load(tmp_path, f"finish/{path.stem}"))


def check_repeated_judgement(folder, record):
    """The stored losses give the recorded judgement; without them, or with another selection, the record counts."""
    arrays, recorded = records.load_arrays(folder, record), record["results"]["after"]
    assert arrays["label_loss"].dtype == np.float16 and arrays["label_wrong"].mean() == pytest.approx(0.2, abs=0.05)
    record["results"]["after"] = recorded | {"auroc": 0.0}
    assert repeat_judgement(record, folder)["results"]["after"] == pytest.approx(recorded, abs=2e-3)
    record["results"]["selection"]["arrays"] = "0" * 64
    assert repeat_judgement(record, folder)["results"]["after"]["auroc"] == 0
    del record["results"]["selection"]
    assert repeat_judgement(record, folder)["results"]["after"]["auroc"] == 0


@pytest.mark.parametrize("labels", ["random2", "aggregate"])
def test_peoples_labels_must_be_there(tmp_path, labels):
    with pytest.raises(InputError):
        reproduce("finish", ReproduceOptions(scale="smoke", settings=labels, results=tmp_path, device="cpu"))
