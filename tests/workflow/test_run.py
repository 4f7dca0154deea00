"""labelsieve.run: the whole workflow as one function."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import labelsieve
from labelsieve.errors import InputError
from labelsieve.runfolder import RunFolder
from labelsieve.workflow.run import RunResult

QUICK = {"model": "logistic", "iterations": 1, "train_epochs": 3, "device": "cpu"}


def table(path: Path, *, seed: int = 0, n: int = 80) -> list[int]:
    """Write rows of two classes and return the indices of the wrong labels."""
    rng = np.random.default_rng(seed)
    rows = [f"s{i},{rng.normal(6 * (i % 2)):.3f},{'ab'[i % 2 ^ (i < 6)]}" for i in range(n)]
    path.write_text("id,x,kind\n" + "\n".join(rows) + "\n")
    return list(range(6))


def test_run_on_a_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wrong = table(tmp_path / "t.csv")
    options = QUICK | {"label_column": "kind", "set": {"warmup": 1}}
    result = labelsieve.run(tmp_path / "t.csv", out=tmp_path / "run", **options)
    assert result.path == tmp_path / "run" and result.stages == {"select": "new", "train": "new"}
    assert result.model_path.is_file() and result.report_path.is_file() and result.model == "logistic"
    assert str(result).startswith(f"{tmp_path / 'run'}: 80 samples") and len(str(result).splitlines()) == 1
    labels = result.labels
    assert list(labels["id"]) == [f"s{i}" for i in range(80)]
    assert not any(labels["verdict"][i] == "selected" for i in wrong)
    assert result.noise_ratio == result.summary["noise_ratio"] == pytest.approx(6 / 80, abs=0.05)
    table(tmp_path / "new.csv", seed=1, n=20)
    found = result.predict(tmp_path / "new.csv")
    assert found.probabilities.shape == (20, 2) and set(found.predicted) <= {"a", "b"}
    assert found.rows()[0] == ["id", "predicted", "probability"] and len(found.rows()) == 21
    again = labelsieve.run(str(tmp_path / "t.csv"), out=tmp_path / "run", **options)
    assert set(again.stages.values()) == {"done"} and again.summary == result.summary
    assert capsys.readouterr() == ("", "")  # a function prints nothing
    settings = RunFolder(tmp_path / "run").record()["settings"]
    assert settings["method_settings"]["warmup"] == 1 and settings["label_column"] == "kind"
    json.dumps(result.summary)


def test_wrong_options_are_named(tmp_path: Path) -> None:
    table(tmp_path / "t.csv")
    with pytest.raises(InputError, match="'epoch'"):
        labelsieve.run(str(tmp_path / "t.csv"), out=tmp_path / "run", epoch=3)
    with pytest.raises(InputError, match=r"--epochs must be at least 1, got 0.*--model 'odd'"):
        labelsieve.run(str(tmp_path / "t.csv"), out=tmp_path / "run", epochs=0, model="odd")
    with pytest.raises(InputError, match="'label'"):
        labelsieve.run(str(tmp_path / "t.csv"), out=tmp_path / "run", **QUICK)
    assert not (tmp_path / "run").exists()


def test_samples_in_memory_are_refused_with_the_class_to_use() -> None:
    pandas = pytest.importorskip("pandas")
    result = RunResult(Path("run"), {}, {}, "forest")
    for samples in (np.zeros((4, 2)), pandas.DataFrame({"x": [1, 2]})):
        for function in (labelsieve.run, result.predict):
            with pytest.raises(InputError, match=f"not a {type(samples).__name__}.*CleanClassifier"):
                function(samples)  # type: ignore[operator]
