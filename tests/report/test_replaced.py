"""Pictures that lie under their old names and are others by now: noticed by export, report and review."""

from __future__ import annotations

import os
import shutil

import numpy as np
import pytest
from PIL import Image

from labelsieve.data.source import ReadOptions, load_source
from labelsieve.errors import InputError
from labelsieve.export import export
from labelsieve.labels_csv import read_labels
from labelsieve.report import source_state, write_report
from labelsieve.report.source_state import DecodedPictures, SourceStatus, check_source
from labelsieve.review.review_session import ReviewSession

UNCHANGED = SourceStatus.UNCHANGED


def found(run):
    return check_source(run, read_labels(run / "labels.csv", run.read_summary()["classes"]))


def first_replaced(staged, files):
    decoded = DecodedPictures.read(staged)
    return None if decoded is None else decoded.first_replaced(files)


def a_picture(path, red):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (8, 8), (red, 0, 0)).save(path, **({"quality": 95} if path.suffix == ".jpg" else {}))


def a_folder(folder, n=6, suffix="png"):
    for i in range(n):
        a_picture(folder / "set" / "ab"[i % 2] / f"{i}.{suffix}", 40 * i % 256)
    return folder / "set"


def a_run(runs, folder, source, **settings):
    data = load_source(str(source), ReadOptions(cache_dir=folder / "run" / "staged"))
    return runs.write_run(folder / "run", data, data.y, str(source), **settings)


def test_a_replaced_picture_is_reported_by_all_commands(runs, tmp_path):
    root = a_folder(tmp_path)
    run = a_run(runs, tmp_path, root)
    assert found(run).status is UNCHANGED
    a_picture(root / "a" / "2.png", 200)
    message = found(run).explanation
    assert str(root) in message and "'a/2.png' was replaced" in message
    assert found(run).status is SourceStatus.CHANGED and not found(run).positional
    for target in (tmp_path / "c.csv", tmp_path / "out"):
        with pytest.raises(InputError, match="was replaced; labels could go to the wrong samples"):
            export(run, to=target)
        assert not target.exists()
    export(run, what="decisions", to=tmp_path / "d.csv")  # needs no source
    said = []
    assert message in write_report(run, note=said.append).read_text().partition("</header>")[0].replace("&#x27;", "'")
    assert said == [message] and ReviewSession(run).warnings()[0] == f"{message}."
    a_picture(root / "a" / "new.png", 5)
    assert found(run).explanation == message  # worse than one that came since
    (root / "a" / "new.png").unlink()
    a_picture(root / "a" / "2.png", 80)
    assert found(run).status is UNCHANGED and export(run, to=tmp_path / "c.csv").rows == 6


def test_a_replaced_file_of_the_same_length_is_detected(runs, tmp_path):
    root = a_folder(tmp_path, suffix="bmp")
    run = a_run(runs, tmp_path, root)
    lengths = {path.stat().st_size for path in root.glob("*/*.bmp")}
    a_picture(root / "b" / "1.bmp", 250)
    assert len(lengths) == 1 and "'b/1.bmp' was replaced" in found(run).explanation
    (root / "b" / "1.bmp").write_bytes(b"no picture")
    assert "'b/1.bmp' was replaced" in found(run).explanation


def test_copies_and_other_encodings_of_the_same_picture_are_not_changes(runs, tmp_path, monkeypatch):
    root = a_folder(tmp_path)
    run = a_run(runs, tmp_path, root)
    shutil.copytree(root, tmp_path / "copy", copy_function=shutil.copyfile)
    shutil.rmtree(root)
    (tmp_path / "copy").rename(root)
    assert found(run).status is UNCHANGED
    with Image.open(root / "a" / "0.png") as opened:
        opened.save(root / "a" / "0.png", compress_level=0)
    assert found(run).status is UNCHANGED
    monkeypatch.setattr(source_state, "decode", lambda data, size: 1 / 0)
    with pytest.raises(ZeroDivisionError):  # files with another time are decoded
        found(run)


def test_some_of_many_copies_are_opened_and_all_lengths_are_compared(runs, tmp_path, monkeypatch):
    root = a_folder(tmp_path, n=40)
    run = a_run(runs, tmp_path, root)
    monkeypatch.setattr(source_state, "MAX_OPENED", 4)
    opened = []
    decode = source_state.decode
    monkeypatch.setattr(source_state, "decode", lambda data, size: opened.append(data) or decode(data, size))
    for path in root.glob("*/*.png"):
        os.utime(path, (1, 1))
    assert found(run).status is UNCHANGED and len(opened) == 4
    rng = np.random.default_rng(0)
    Image.fromarray(rng.integers(0, 255, (8, 8, 3), dtype=np.uint8)).save(root / "b" / "17.png")
    assert "'b/17.png' was replaced" in found(run).explanation


@pytest.mark.parametrize("header", ["path,label", "id,path,label"])
def test_a_table_of_pictures(runs, tmp_path, header):
    a_folder(tmp_path)
    names = [f"set/{'ab'[i % 2]}/{i}.png" for i in range(6)]
    rows = [f"{'' if header == 'path,label' else f'n{i},'}{name},{'xy'[i % 2]}" for i, name in enumerate(names)]
    (tmp_path / "list.csv").write_text("\n".join([header, *rows]) + "\n")
    run = a_run(runs, tmp_path, tmp_path / "list.csv")
    assert found(run).status is UNCHANGED
    a_picture(tmp_path / names[4], 7)
    called = names[4] if header == "path,label" else "n4"
    assert found(run).explanation.endswith(f"{called!r} was replaced")
    with pytest.raises(InputError, match="was replaced"):
        export(run, to=tmp_path / "c.csv")


def test_a_branch_uses_the_cache_of_its_run(runs, tmp_path):
    root = a_folder(tmp_path)
    run = a_run(runs, tmp_path, root)
    second = shutil.copytree(run.path, tmp_path / "second", ignore=shutil.ignore_patterns("staged"))
    branch = type(run)(second)
    a_picture(root / "a" / "2.png", 200)
    assert found(branch).status is UNCHANGED  # nobody knows
    branch.update(branch=str(run.path))
    assert "'a/2.png' was replaced" in found(branch).explanation


def test_nothing_is_reported_without_a_readable_cache(runs, tmp_path):
    root = a_folder(tmp_path)
    run = a_run(runs, tmp_path, root)
    files = [(f"a/{i}.png", str(root / "a" / f"{i}.png")) for i in (0, 2, 4)]
    a_picture(root / "a" / "2.png", 200)
    assert first_replaced(run / "staged", files) == "a/2.png"
    assert first_replaced(run / "staged", [("other", str(root / "a" / "2.png")), ("a/0.png", "gone")]) is None
    for path in (path for path in (run / "staged").rglob("*.*") if path.suffix != ".json"):
        whole = path.read_bytes()
        for damaged in (b"", b"half", b"id,bytes\n1,2\n", b"id,bytes,modified\na/2.png,x,y\n"):
            path.write_bytes(damaged)
            assert first_replaced(run / "staged", files) is None
        path.write_bytes(whole)
    shutil.rmtree(run / "staged")
    assert found(run).status is UNCHANGED
