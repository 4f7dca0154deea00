from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np
from PIL import Image

from labelsieve.data.source import load_source
from labelsieve.labels_csv import read_labels
from labelsieve.report.source_state import SourceStatus, check_source

UNCHANGED = SourceStatus.UNCHANGED
MISSING = SourceStatus.MISSING


def found(run):
    return check_source(run, read_labels(run / "labels.csv", run.read_summary()["classes"]))


def test_a_table_of_pictures_is_compared_by_ids_and_labels(runs, tmp_path):
    for i in range(6):
        Image.new("RGB", (8, 8), (40 * i, 0, 0)).save(tmp_path / f"{i}.png")
    source = tmp_path / "list.csv"
    lines = ["path,label", *(f"{i}.png,{'ab'[i % 2]}" for i in range(6))]
    source.write_text("\n".join(lines) + "\n")
    data = load_source(str(source))
    run = runs.write_run(tmp_path / "run", data, data.y, str(source))
    assert found(run).status is UNCHANGED
    source.write_text("\n".join([*lines[:6], "5.png,c"]) + "\n")
    assert found(run).explanation.endswith("the label of '5.png' was 'b' and is now 'c'") and not found(run).positional
    source.write_text("\n".join([*lines, "0.png,a"]) + "\n")
    assert found(run).explanation.endswith("it had 6 samples and now has 7")
    source.write_text("\n".join(lines[:6]) + "\n")
    assert found(run).explanation.endswith("'5.png' is missing")


def test_an_array_is_compared_by_its_content(runs, tmp_path):
    source, x, y = tmp_path / "a.npz", np.arange(12.0).reshape(6, 2), np.array([0, 1] * 3)
    np.savez(source, x=x, y=y)
    data = load_source(str(source))
    run = runs.write_run(tmp_path / "run", data, data.y, str(source))
    assert found(run).status is UNCHANGED
    np.savez(source, x=x[::-1], y=y)
    assert found(run).positional and "order" in found(run).explanation
    source.write_bytes(b"no archive")
    assert found(run).positional and found(run).status is SourceStatus.CHANGED


def test_a_table_that_can_no_longer_be_read_counts_as_changed(runs, tmp_path):
    run = runs.text(tmp_path)
    for damaged in (b"\xff\xfe\x00id", b"id,label\nmail-0000,a,b,c\n", b""):
        (tmp_path / "mails.csv").write_bytes(damaged)
        assert found(run).positional and found(run).status is SourceStatus.CHANGED  # no sample of it is shown
    (tmp_path / "t.parquet").write_bytes(b"no table")
    run.update(data={**run.record()["data"], "source": str(tmp_path / "t.parquet")})
    assert found(run).positional and found(run).status is SourceStatus.CHANGED


def test_runs_of_other_versions_are_compared_by_ids_and_labels(runs, tmp_path):
    run = runs.text(tmp_path)
    run.update(versions={"labelsieve": "0.0"}, data={**run.record()["data"], "fingerprint": "read in another way"})
    assert found(run).status is UNCHANGED
    source = tmp_path / "mails.csv"
    source.write_text(source.read_text().replace(",praise,", ",thanks,"))
    assert "was 'praise' and is now 'thanks'" in found(run).explanation


def test_skipped_rows_do_not_count_as_changes(runs, tmp_path):
    source = tmp_path / "t.csv"
    source.write_text("text,label\n" + "".join(f"{'' if i == 4 else f'text {i} is'},{'ab'[i % 2]}\n" for i in range(9)))
    data = load_source(str(source))
    run = runs.write_run(tmp_path / "run", data, data.y, str(source))
    assert len(data.skipped) == 1 and found(run).status is UNCHANGED


def test_folders_and_built_in_data_are_compared_by_name(runs, tmp_path):
    run = runs.pictures(tmp_path, n=8)
    assert found(run).status is UNCHANGED  # a folder's pictures are known by their names
    (tmp_path / "shapes").rename(tmp_path / "moved")
    assert found(run).status is MISSING
    run.update(data={**run.record()["data"], "source": "digits"})
    assert found(run).status is UNCHANGED


def test_an_unchanged_file_is_not_read_again(runs, tmp_path):
    run = runs.text(tmp_path)
    record = run.record()
    later = (datetime.now(UTC) + timedelta(seconds=60)).isoformat()
    stages = {"select": {**record["stages"]["select"], "started": later}}
    run.update(stages=stages, data={**record["data"], "fingerprint": "of other rows"})
    assert found(run).status is UNCHANGED
    (tmp_path / "mails.csv").rename(tmp_path / "elsewhere.csv")  # as old as it was, and yet another file
    (tmp_path / "elsewhere.csv").rename(tmp_path / "mails.csv")
    run.update(stages={"select": {**stages["select"], "started": record["stages"]["select"]["started"]}})
    assert found(run).status is SourceStatus.CHANGED
