"""Data sets in a folder (cifar10:, webvision:, hf:) that changed since a run, or are gone."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from labelsieve.data import read_pictures
from labelsieve.data.make_webvision import make
from labelsieve.data.source import ReadOptions, files_of, load_source
from labelsieve.errors import InputError
from labelsieve.export import export
from labelsieve.labels_csv import read_labels
from labelsieve.report import write_report
from labelsieve.report.source_state import SourceStatus, check_source
from labelsieve.runfolder import STAGED

UNCHANGED = SourceStatus.UNCHANGED
MISSING = SourceStatus.MISSING


def found(run):
    return check_source(run, read_labels(run / "labels.csv", run.read_summary()["classes"]))


def a_run(runs, folder, source, **settings):
    data = load_source(source, ReadOptions(size=settings.get("size")))
    return runs.write_run(folder / "run", data, data.y, source, **settings)


def cifar(folder, seed=0):
    folder.mkdir(exist_ok=True)
    rng = np.random.default_rng(seed)
    for i in range(1, 6):
        rows = rng.integers(0, 256, (4, 3073), dtype=np.uint8)
        rows[:, 0] = np.arange(4) % 3
        rows.tofile(folder / f"data_batch_{i}.bin")


def hugging_face(folder, texts, labels=("x", "y") * 3):
    import datasets

    shutil.rmtree(folder, ignore_errors=True)
    datasets.Dataset.from_dict({"text": texts, "label": list(labels)}).save_to_disk(folder)


def refused(run, tmp_path, message):
    with pytest.raises(InputError, match=rf"has changed since .*{message}.*; labels could go to the wrong samples"):
        export(run, to=tmp_path / "c.csv")
    assert "has changed since" in write_report(run).read_text().partition("</header>")[0]


def test_cifar_batches(runs, tmp_path):
    cifar(tmp_path / "c")
    run = a_run(runs, tmp_path, f"cifar10:{tmp_path / 'c'}")
    assert found(run).status is UNCHANGED
    assert export(run, to=tmp_path / "first.csv").rows == 20
    batch = tmp_path / "c" / "data_batch_3.bin"
    whole = batch.read_bytes()
    batch.write_bytes(whole[:-1] + b"\0")
    assert found(run).positional
    refused(run, tmp_path, "order")
    batch.write_bytes(b"\5" + whole[1:])
    refused(run, tmp_path, "'train-00008' was 'airplane' and is now 'dog'")
    batch.write_bytes(whole + whole)
    refused(run, tmp_path, "had 20 samples and now has 24")
    batch.write_bytes(whole[:-3073])
    refused(run, tmp_path, "'train-00019' is missing")
    batch.unlink()
    refused(run, tmp_path, "cifar10.*")
    batch.write_bytes(whole)
    assert found(run).status is UNCHANGED
    (tmp_path / "c").rename(tmp_path / "moved")
    assert found(run).status is MISSING
    assert export(run, to=tmp_path / "c.csv").rows == 20  # labels need no pictures


def test_unchanged_files_are_not_read_again(runs, tmp_path, monkeypatch):
    cifar(tmp_path / "c")
    run = a_run(runs, tmp_path, f"cifar10:{tmp_path / 'c'}")
    stages = run.record()["stages"]
    later = (datetime.now(UTC) + timedelta(seconds=60)).isoformat()
    run.update(stages={"select": {**stages["select"], "started": later}})
    monkeypatch.setattr("labelsieve.report.source_state.load_source", None)
    assert found(run).status is UNCHANGED
    run.update(stages=stages)
    with pytest.raises(TypeError):
        found(run)


def test_runs_of_other_versions_are_compared_by_ids_and_labels(runs, tmp_path):
    cifar(tmp_path / "c")
    run = a_run(runs, tmp_path, f"cifar10:{tmp_path / 'c'}")
    cifar(tmp_path / "c", seed=1)
    assert found(run).status is SourceStatus.CHANGED
    run.update(versions={"labelsieve": "0.0"})
    assert found(run).status is UNCHANGED


def test_webvision(runs, tmp_path):
    root = tmp_path / "wv"
    make(root, classes=2, train=6, validation=1, side=24)
    source = f"webvision:{root}?classes=2"
    run = a_run(runs, tmp_path, source, size=16)
    assert found(run).status is UNCHANGED
    ids = read_labels(run / "labels.csv", ()).ids.to_pylist()
    whole = (root / ids[3]).read_bytes()
    (root / ids[3]).write_bytes((root / ids[4]).read_bytes())
    refused(run, tmp_path, "order")
    assert not found(run).positional  # the others are known by their names
    (root / ids[3]).unlink()
    refused(run, tmp_path, f"{ids[3]!r} is missing")
    (root / ids[3]).write_bytes(whole)
    assert found(run).status is UNCHANGED
    lists = root / "info" / "train_filelist_google.txt"
    lists.write_text("".join(f"{line[:-1]}{1 - int(line[-1])}\n" for line in lists.read_text().splitlines()))
    refused(run, tmp_path, f"the label of {ids[0]!r} was")
    lists.unlink()
    assert "train_filelist_google.txt" in found(run).explanation


def test_the_comparison_writes_no_cache(runs, tmp_path, monkeypatch):
    monkeypatch.setattr(read_pictures, "available_memory", lambda: 0)  # nothing fits into memory
    root = tmp_path / "wv"
    make(root, classes=2, train=6, validation=1, side=24)
    source = f"webvision:{root}?classes=2"
    data = load_source(source, ReadOptions(size=16, cache_dir=tmp_path / "run" / STAGED))
    run = runs.write_run(tmp_path / "run", data, data.y, source, size=16)
    assert any((run / STAGED).iterdir())
    shutil.rmtree(run / STAGED)
    assert found(run).status is UNCHANGED and not (run / STAGED).exists()


def test_a_hugging_face_folder(runs, tmp_path):
    texts = [f"a text of number {i}" for i in range(6)]
    hugging_face(tmp_path / "hf", texts)
    run = a_run(runs, tmp_path, f"hf:{tmp_path / 'hf'}")
    assert found(run).status is UNCHANGED
    hugging_face(tmp_path / "hf", texts)  # the same once more
    assert found(run).status is UNCHANGED
    hugging_face(tmp_path / "hf", [*texts[:5], "another text"])
    assert found(run).positional
    refused(run, tmp_path, "order")
    hugging_face(tmp_path / "hf", texts, ["y", "y", *["x", "y"] * 2])
    refused(run, tmp_path, "'0' was 'x' and is now 'y'")
    shutil.rmtree(tmp_path / "hf")
    assert found(run).status is MISSING


def test_sources_that_need_missing_packages_are_not_compared(runs, tmp_path, monkeypatch):
    texts = [f"a text of number {i}" for i in range(6)]
    hugging_face(tmp_path / "hf", texts)
    run = a_run(runs, tmp_path, f"hf:{tmp_path / 'hf'}")
    hugging_face(tmp_path / "hf", texts[::-1])
    monkeypatch.setattr("labelsieve.report.source_state.find_spec", lambda name: None)
    assert found(run).status is UNCHANGED
    run.update(data={**run.record()["data"], "source": "hf:some/name"})
    assert found(run).status is UNCHANGED


def test_the_files_of_a_source(tmp_path):
    cifar(tmp_path / "c")
    files = files_of(f"cifar10n:{tmp_path / 'c'}?labels=worse")
    assert [file.name for file in files] == [*(f"data_batch_{i}.bin" for i in range(1, 6)), "CIFAR-10_human.pt"]
    hugging_face(tmp_path / "hf", list("abcdef"))
    (tmp_path / "hf" / "cache-1.arrow").write_text("of somebody who works with it")
    names = {file.name for file in files_of(f"hf:{tmp_path / 'hf'}")}
    assert "state.json" in names and "cache-1.arrow" not in names
    assert files_of("hf:some/name") == []
