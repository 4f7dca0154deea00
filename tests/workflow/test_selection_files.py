"""incv-posterior judges the labels again: final files, the files before, resuming, and training another method."""

from __future__ import annotations

import csv
import json
import re

import numpy as np
import pytest

import labelsieve
from labelsieve.errors import InputError
from labelsieve.progress import Progress
from labelsieve.workflow.run import train_run
from labelsieve.workflow.settings import TrainSettings

OPTIONS = {
    "model": "logistic", "iterations": 1, "method": "incv-posterior", "train_epochs": 20, "network": "mlp",
    "device": "cpu",
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Three clouds of rows, a fifth of the labels wrong, and the true labels in a file."""
    folder = tmp_path_factory.mktemp("second")
    rng = np.random.default_rng(0)
    true = np.arange(300) % 3
    x = 2.5 * rng.normal(size=(3, 6))[true] + rng.normal(size=(300, 6))
    given = np.where(rng.random(300) < 0.2, (true + 1) % 3, true)
    names = np.array(["a", "b", "c"])
    with (folder / "data.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "label", *(f"x{i}" for i in range(6))])
        writer.writerows([i, names[given[i]], *x[i]] for i in range(300))
    with (folder / "labels.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "label", "true"])
        writer.writerows([i, names[given[i]], names[true[i]]] for i in range(300))
    return folder


def test_a_run_judges_its_labels_again(folder):
    out = folder / "run"
    options = OPTIONS | {"labels": folder / "labels.csv", "out": out}
    result = labelsieve.run(str(folder / "data.csv"), **options)
    summary, before = (json.loads((part / "summary.json").read_text()) for part in (out, out / "before"))
    assert result.stages == {"select": "new", "train": "new"}
    assert summary["before_finish"]["noise_ratio"] == before["noise_ratio"]
    assert summary["before_finish"]["measured_auroc"] == before["measured_auroc"]
    assert summary["measured_auroc"] > max(0.9, before["measured_auroc"] - 0.01)
    assert abs(summary["noise_ratio"] - summary["measured_noise_ratio"]) < 0.1
    final, first = ((part / "labels.csv").read_text().splitlines() for part in (out, out / "before"))
    assert len(final) == len(first) == 301 and final != first
    assert summary["counts"]["selected"] == sum(line.split(",")[5] == "selected" for line in final)
    assert (out / "suggestions.csv").is_file()
    note = next(note for note in summary["notes"] if "assessed again" in note)
    changed = (f"{100 * part['label_precision']:.1f} %" for part in (before, summary))
    assert re.search(r"[1-9]\d* of the \d+ most suspicious", note) and all(value in note for value in changed), note

    again = labelsieve.run(str(folder / "data.csv"), **options)  # a finished run is left as it is
    assert again.stages == {"select": "done", "train": "done"}
    assert (out / "labels.csv").read_text().splitlines() == final

    other = TrainSettings(method="standard", train_epochs=1, network="mlp", device="cpu")
    train_run(out, folder / "other", other, Progress(silent=True))
    assert (folder / "other" / "labels.csv").read_text().splitlines() == first  # the judgement of the selection

    path = out / "before" / "summary.json"
    for number, (entries, method) in enumerate(
        (
            ({"transition_matrix": "x"}, "incv-posterior"),
            ({"transition_matrix": None, "transition_entries": [[0, 7, 1.0]]}, "incv-posterior"),
            ({"iterations": 3}, "standard"),
            ({"iterations": [3]}, "incv-coteaching"),
        )
    ):
        path.write_text(json.dumps(before | entries))
        settings = TrainSettings(method=method, train_epochs=1, network="mlp", device="cpu")
        with pytest.raises(InputError, match="damaged"):
            train_run(out, folder / f"damaged{number}", settings, Progress(silent=True))
    path.write_text(json.dumps(before | {"transition_matrix": "x"}))  # a classifier does not need it
    train_run(out, folder / "damaged", TrainSettings(method="classifier"), Progress(silent=True))
    path.write_text(json.dumps(before))


def test_networks_that_have_learnt_nothing_do_not_judge(folder):
    out = folder / "weak"
    options = OPTIONS | {"batch_size": 300, "train_epochs": 1, "set": ("hidden=0.999",)}  # one step without values
    labelsieve.run(str(folder / "data.csv"), out=out, **options)
    assert (out / "model.safetensors").is_file()
    assert "before_finish" not in json.loads((out / "summary.json").read_text()) and not (out / "before").exists()


@pytest.mark.parametrize("networks", [1, 2])
def test_the_networks_have_learnt_the_labels_and_change_only_their_order(folder, networks):
    out = folder / f"networks{networks}"
    labelsieve.run(str(folder / "data.csv"), out=out, **OPTIONS | {"set": (f"networks={networks}",), "train_epochs": 2})
    summary = json.loads((out / "summary.json").read_text())
    before = summary["before_finish"]
    assert summary["noise_ratio"] == pytest.approx(before["noise_ratio"], abs=1e-6)
