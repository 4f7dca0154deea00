from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from labelsieve.labels_csv import read_labels
from labelsieve.report.samples import Missing, Picture, Row, Samples, Text, open_samples, render
from labelsieve.report.source_state import find_source
from labelsieve.runfolder import RunFolder


def opened(run):
    columns = read_labels(run / "labels.csv")
    return open_samples(run, columns), columns


def decoded(picture):
    return Image.open(io.BytesIO(picture.data))


def test_pictures_are_read_from_their_folder(runs, tmp_path):
    samples, columns = opened(runs.pictures(tmp_path, n=8))
    shown = samples.show(3, side=60)
    assert isinstance(shown, Picture) and shown.media == "image/png" and (shown.width, shown.height) == (60, 60)
    large = samples.show(3)
    assert (large.media, large.width) == ("image/webp", 120)
    expected = np.asarray(Image.open(tmp_path / "shapes" / columns.id(3)).convert("RGB").resize((16, 16)), float) / 255
    assert np.abs(samples.pixels(3) - expected).max() < 0.02


def test_texts_and_rows_are_shown_unchanged(runs, tmp_path):
    for kind in ("text", "table"):
        (tmp_path / kind).mkdir()
    samples, _ = opened(runs.text(tmp_path / "text", n=6))
    assert samples.show(0) == Text("The parcel came 2 days late and nobody told me.")
    samples, _ = opened(runs.table(tmp_path / "table", n=6))
    row = samples.show(5)
    assert isinstance(row, Row)
    assert [name for name, _ in row.cells] == ["rooms", "area m2", "town", "code"]  # neither label nor true
    assert dict(row.cells)["code"] == "00005" and dict(row.cells)["town"] == ""


def test_rows_are_found_by_id_if_some_are_missing(runs, tmp_path):
    run = runs.text(tmp_path, n=6)
    lines = (tmp_path / "mails.csv").read_text().splitlines()
    (tmp_path / "mails.csv").write_text("\n".join([lines[0], *lines[:0:-1][:-1]]) + "\n")  # reversed, the first gone
    samples, _ = opened(run)
    assert samples.show(0) == Missing("the source does not have this row any more")
    assert samples.show(5).text.endswith("five.")


def test_samples_that_cannot_be_shown_are_reported(runs, tmp_path):
    run = runs.pictures(tmp_path, n=8)
    _, columns = opened(run)
    root = tmp_path / "shapes"
    (root / columns.id(0)).unlink()
    (root / columns.id(1)).write_text("<html><script>alert(1)</script></html>")
    (root / columns.id(2)).write_bytes((root / columns.id(2)).read_bytes()[:100])
    (tmp_path / "secret.png").write_bytes((root / columns.id(3)).read_bytes())
    (root / columns.id(3)).unlink()
    (root / columns.id(3)).symlink_to(tmp_path / "secret.png")
    samples, _ = opened(run)
    assert samples.show(0) == Missing("the file is missing")
    assert isinstance(samples.show(1), Missing)
    assert isinstance(samples.show(2), Missing)
    assert samples.show(3) == Missing("outside the folder of the source")
    assert samples.pixels(1) is None
    assert isinstance(samples.show(4), Picture)


def test_a_missing_source(runs, tmp_path):
    run = runs.pictures(tmp_path, n=8)
    (tmp_path / "shapes").rename(tmp_path / "moved")
    samples, _ = opened(run)
    shown = samples.show(0)
    assert isinstance(shown, Missing) and "does not exist" in shown.reason


def test_a_relative_source_is_found_from_the_run_folder(runs, tmp_path, monkeypatch):
    run = runs.text(tmp_path, n=6)
    run.update(data={**run.record()["data"], "source": "mails.csv"})
    monkeypatch.chdir("/")
    assert isinstance(opened(run)[0].show(0), Text)


@pytest.mark.parametrize("source", ["digits", "npz"])
def test_sources_that_are_arrays(runs, tmp_path, source):
    run = runs.table(tmp_path, n=6)
    if source == "npz":
        x = np.random.default_rng(0).integers(0, 255, (6, 9, 9, 3), dtype=np.uint8)
        np.savez(tmp_path / "a.npz", x=x, y=np.array([0, 1, 0, 1, 0, 1]))
        source = str(tmp_path / "a.npz")
    run.update(data={**run.record()["data"], "source": source, "kind": "pictures", "fingerprint": None})
    shown = opened(run)[0].show(5)
    assert isinstance(shown, Picture)
    if source == "digits":
        assert (shown.width, shown.height) == (8, 8)
    else:
        assert np.array_equal(np.asarray(decoded(shown)), x[5])


def test_transparent_rotated_and_deep_pictures_are_converted():
    clear = Image.new("RGBA", (4, 4), (255, 0, 0, 0))
    assert np.asarray(decoded(render(clear, 100))).min() == 255  # white, not black
    deep = Image.fromarray(np.full((4, 4), 65535, dtype=np.uint16))
    assert np.asarray(decoded(render(deep, 100))).min() == 255
    turned = io.BytesIO()
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.new("RGB", (40, 20)).save(turned, "JPEG", exif=exif)
    turned.seek(0)
    shown = render(Image.open(turned), 100)
    assert (shown.width, shown.height) == (20, 40)


def test_an_unexpected_error_counts_as_a_missing_sample():
    class Broken(Samples):
        kind = "pictures"

        def read(self, row):
            raise ZeroDivisionError

    assert Broken().show(0) == Missing("cannot be shown (ZeroDivisionError)")


@pytest.mark.parametrize("kind", ["float", "time", "int", "null"])
def test_rows_of_a_parquet_file_are_found_by_ids_of_any_type(runs, tmp_path, kind):
    from datetime import datetime

    import pyarrow as pa
    import pyarrow.parquet as pq

    from labelsieve.data.source import load_source

    ids = {
        "float": [0.0, 1.5, 2.0, 1e20],
        "time": [datetime(2024, 1, 1, 10, second) for second in range(4)],
        "int": [3, 2, 1, 0],
        "null": ["a", None, "c", "d"],
    }[kind]
    source = tmp_path / "t.parquet"
    pq.write_table(pa.table({"id": ids, "a": [5, 6, 7, 8], "label": ["x", "y", "x", "y"]}), source)
    data = load_source(str(source))
    run = runs.write_run(tmp_path / "run", data, data.y, str(source))
    samples, _ = opened(run)
    assert [samples.show(row) for row in range(4)] == [Row((("a", str(value)),)) for value in (5, 6, 7, 8)]
    pq.write_table(pa.table({"id": ids[::-1], "a": [8, 7, 6, 5], "label": ["y", "x", "y", "x"]}), source)
    samples, _ = opened(run)
    assert [samples.show(row) for row in range(4)] == [Row((("a", str(value)),)) for value in (5, 6, 7, 8)]


def test_a_run_folder_with_the_name_of_its_source_is_not_the_source(runs, tmp_path, monkeypatch):
    runs.table(tmp_path, n=6)
    (tmp_path / "run").rename(tmp_path / "digits")
    run = RunFolder.existing(tmp_path / "digits")
    run.update(data={**run.record()["data"], "source": "digits"})
    for here in ("/", tmp_path):  # from there, digits is a folder
        monkeypatch.chdir(here)
        assert find_source(run, "digits") is None and isinstance(opened(run)[0].show(5), Picture)
    monkeypatch.chdir("/")
    (tmp_path / "photos").mkdir()
    assert find_source(run, "photos") == tmp_path / "photos"
    assert find_source(RunFolder(tmp_path / "photos"), "photos") is None
    (tmp_path / "hf:x").mkdir()
    assert find_source(run, "hf:x") is None


def test_arrays_without_labels_are_shown(runs, tmp_path):
    run = runs.table(tmp_path, n=6)
    np.savez(tmp_path / "a.npz", x=np.arange(12.0).reshape(6, 2))
    run.update(data={**run.record()["data"], "source": str(tmp_path / "a.npz"), "fingerprint": None})
    assert opened(run)[0].show(5) == Row((("x0", "10"), ("x1", "11")))


def test_sources_are_loaded_with_the_options_of_the_run(runs, tmp_path):
    import datasets

    rows = {
        "body": [f"a text of number {i}" for i in range(6)],
        "more": [f"some other words here {i}" for i in range(6)],
    }
    datasets.Dataset.from_dict(rows | {"key": list("abcdef"), "label": ["x", "y"] * 3}).save_to_disk(tmp_path / "saved")
    run = runs.text(tmp_path, n=6)
    run.update(
        data={**run.record()["data"], "source": f"hf:{tmp_path / 'saved'}"},
        settings={"text_column": "body", "id_column": "key", "labels": "elsewhere.csv"},
    )
    assert opened(run)[0].show(4) == Text("a text of number 4")
