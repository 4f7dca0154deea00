"""Decoded pictures in a folder: known by their files, and replaced only by what a run takes."""

from __future__ import annotations

import csv
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from labelsieve.data.pictures import PictureFiles
from labelsieve.data.source import ReadOptions, load_source
from labelsieve.data.stage import DecodeCache, provisional_cache
from labelsieve.errors import InputError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for i in range(6):
        path = tmp_path / "set" / "ab"[i % 2] / f"{i}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (8, 8), (40 * i, 0, 0)).save(path)
    (tmp_path / "set" / "a" / "broken.png").write_text("no")
    return tmp_path / "set"


def names(staged: Path) -> set[str]:
    return {path.name for path in staged.iterdir()}


def test_every_row_says_what_its_file_was(folder: Path, tmp_path: Path) -> None:
    data = load_source(str(folder), ReadOptions(cache_dir=tmp_path / "staged"))
    (table,) = (tmp_path / "staged").glob("*.csv")
    with table.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["id"] for row in rows] == data.ids.tolist()  # broken.png is none of them
    for row in rows:
        seen = (folder / row["id"]).stat()
        assert (int(row["bytes"]), int(row["modified"])) == (seen.st_size, seen.st_mtime_ns)


def test_pictures_of_another_size_lie_beside_the_first(folder: Path, tmp_path: Path) -> None:
    staged = tmp_path / "staged"
    load_source(str(folder), ReadOptions(cache_dir=staged))
    first = {path: path.read_bytes() for path in staged.rglob("*.*")}
    load_source(str(folder), ReadOptions(cache_dir=staged, size=16))
    assert len(names(staged)) == 6 and first == {path: path.read_bytes() for path in first}


def test_what_is_refused_goes_and_what_is_taken_replaces_the_rest(folder: Path, tmp_path: Path) -> None:
    staged = tmp_path / "staged"
    with pytest.raises(InputError), provisional_cache(staged, begun=False):
        load_source(str(folder), ReadOptions(cache_dir=staged))
        raise InputError("of the first command: it is as good for the next one")
    first = names(staged)
    with pytest.raises(InputError), provisional_cache(staged, begun=True):
        load_source(str(folder), ReadOptions(cache_dir=staged, size=16))
        raise InputError("not these")
    assert names(staged) == first
    with provisional_cache(staged, begun=True) as take:
        load_source(str(folder), ReadOptions(cache_dir=staged, size=16))
        take()
    assert len(names(staged)) == 3 and not names(staged) & first
    second = names(staged)
    with pytest.raises(InputError), provisional_cache(staged, begun=True) as take:
        load_source(str(folder), ReadOptions(cache_dir=staged, size=32))
        take()
        raise InputError("of the training, which has nothing to do with it")
    assert len(names(staged)) == 3 and not names(staged) & second
    with provisional_cache(staged, begun=True) as take:
        load_source(str(folder), ReadOptions(cache_dir=staged, size=32))
        take()
    assert len(names(staged)) == 3


def test_what_a_kill_left_is_written_again_and_stays(folder: Path, tmp_path: Path) -> None:
    staged = tmp_path / "staged"
    load_source(str(folder), ReadOptions(cache_dir=staged))
    whole = names(staged)
    next(staged.glob("*.json")).unlink()  # killed before the last file was written
    with provisional_cache(staged, begun=True) as take:
        load_source(str(folder), ReadOptions(cache_dir=staged))
        take()
    assert names(staged) == whole
    load_source(str(folder), ReadOptions(cache_dir=staged, size=16))  # of another command that was stopped
    (staged / "pictures.npy").write_text("of an earlier version")
    with provisional_cache(staged, begun=True) as take:
        load_source(str(folder), ReadOptions(cache_dir=staged))
        take()
    assert names(staged) == whole


def test_a_run_that_has_none_keeps_none_that_it_refuses(folder: Path, tmp_path: Path) -> None:
    staged = tmp_path / "staged"
    with pytest.raises(InputError), provisional_cache(staged, begun=True):
        load_source(str(folder), ReadOptions(cache_dir=staged))
        raise InputError("not these")
    assert names(staged) == set()


def test_a_new_run_without_pictures_removes_those_of_a_refused_start(folder: Path, tmp_path: Path) -> None:
    staged = tmp_path / "staged"
    with pytest.raises(InputError), provisional_cache(staged, begun=False):
        load_source(str(folder), ReadOptions(cache_dir=staged))
        raise InputError("a text model for pictures")
    assert len(names(staged)) == 3
    with provisional_cache(staged, begun=False) as take:
        take()
    assert names(staged) == set()


def test_half_of_it_is_decoded_again(folder: Path, tmp_path: Path) -> None:
    staged = tmp_path / "staged"
    first = np.array(load_source(str(folder), ReadOptions(cache_dir=staged)).x)
    files = sorted(folder.glob("*/*.png"))
    pictures = PictureFiles(folder, [str(path) for path in files])
    assert DecodeCache.of(staged, pictures, np.array([path.name for path in files]), "another size").read() is None
    for path in staged.rglob("*.*"):
        path.write_text("{half")
        assert np.array_equal(load_source(str(folder), ReadOptions(cache_dir=staged)).x, first)


def test_a_data_set_that_was_changed_where_it_lies_is_decoded_again(tmp_path: Path) -> None:
    import datasets

    features = datasets.Features({"image": datasets.Image(), "label": datasets.Value("string")})
    for shade in (0, 200):
        pictures = [Image.fromarray(np.full((8, 8, 3), value, np.uint8)) for value in (shade, 255)]
        rows = datasets.Dataset.from_dict({"image": pictures, "label": ["dark", "light"]}, features=features)
        rows.save_to_disk(tmp_path / str(shade))
    for name in os.listdir(tmp_path / "0"):
        if name.endswith(".arrow"):  # under the fingerprint that state.json gives
            (tmp_path / "0" / name).write_bytes((tmp_path / "200" / name).read_bytes())
        else:
            (tmp_path / "200" / name).write_bytes((tmp_path / "0" / name).read_bytes())
    (tmp_path / "0").rename(tmp_path / "other")
    features_of = {}
    for name in ("other", "200"):
        features_of[name] = load_source(f"hf:{tmp_path / name}", ReadOptions(cache_dir=tmp_path / "staged")).x[
            0, 0, 0, 0
        ]
    assert features_of == {"other": 200, "200": 200}


def test_a_link_in_a_run_folder_does_not_lead_writing_elsewhere(folder: Path, tmp_path: Path) -> None:
    staged, elsewhere = tmp_path / "staged", tmp_path / "elsewhere"
    load_source(str(folder), ReadOptions(cache_dir=staged))
    (shards,) = (path for path in staged.iterdir() if path.is_dir())
    shutil.rmtree(shards)
    elsewhere.mkdir()
    shards.symlink_to(elsewhere)
    load_source(str(folder), ReadOptions(cache_dir=staged))
    assert not list(elsewhere.iterdir()) and shards.is_dir() and not shards.is_symlink()
