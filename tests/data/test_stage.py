"""Staging: decoded once, whatever happens in between."""

from __future__ import annotations

import pickle
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch

from labelsieve.data import stage as staging
from labelsieve.data.decode import GREY
from labelsieve.data.make_webvision import make
from labelsieve.data.pictures import PictureFiles
from labelsieve.data.stage import StagedPictures, stage
from labelsieve.data.webvision import listed_training
from labelsieve.engine.picture_stores import CropStream
from labelsieve.errors import InputError
from labelsieve.progress import Progress, Stage


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> PictureFiles:
    folder = tmp_path_factory.mktemp("made") / "webvision"
    make(folder, classes=3, train=9, validation=1, side=40, corrupt=2, seed=1)
    found = listed_training(folder, side=32).x
    assert isinstance(found, PictureFiles)
    return found


class Heard(Progress):
    """The messages, in order."""

    def __init__(self) -> None:
        super().__init__(silent=True)
        self.heard: list[tuple[str, int]] = []

    def note(self, text: str, *, passing: bool = False) -> None:
        self.heard.append((text, 0))

    @contextmanager
    def stage(self, name: str, total: int | None = None, *, unit: str = "") -> Iterator[Stage]:
        self.heard.append((name, total or 0))
        message = Stage()
        message.resume = lambda done: self.heard.append(("before", done))  # type: ignore[method-assign]
        message.advance = lambda steps=1: self.heard.append(("more", steps))  # type: ignore[method-assign, misc]
        yield message


def shard_bytes(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def test_staged_pictures_are_the_decoded_ones(pictures: PictureFiles, tmp_path: Path) -> None:
    message = Heard()
    staged = stage(pictures, tmp_path, workers=1, shard_size=10, progress=message)
    assert len(staged) == len(pictures) == 27
    for i in range(27):
        np.testing.assert_array_equal(staged[i], pictures[i])
    assert sum(picture.nbytes for picture in staged) == staged.nbytes
    assert len(staged.unreadable) == 2
    for i in staged.unreadable:
        assert (staged[i] == GREY).all()
    assert message.heard == [("decoding pictures", 27), ("before", 0), ("more", 10), ("more", 10), ("more", 7)]
    (tmp_path / "shard-00002.json").unlink()
    stage(pictures, tmp_path, workers=1, shard_size=10, progress=(rest := Heard()))
    assert rest.heard == [("decoding pictures", 27), ("before", 20), ("more", 7)]
    stage(pictures, tmp_path, workers=1, shard_size=10, progress=(again := Heard()))
    assert again.heard == [("decoding pictures", 27), ("before", 27)]


def test_any_number_of_processes_writes_the_same_files(pictures: PictureFiles, tmp_path: Path) -> None:
    stage(pictures, tmp_path / "one", workers=1, shard_size=7)
    stage(pictures, tmp_path / "two", workers=2, shard_size=7)
    assert shard_bytes(tmp_path / "one") == shard_bytes(tmp_path / "two")


def test_a_stopped_staging_goes_on(pictures: PictureFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stage(pictures, tmp_path / "whole", workers=1, shard_size=7)
    folder = tmp_path / "stopped"
    stage(pictures, folder, workers=1, shard_size=7)
    (folder / "shard-00001.json").unlink()  # stopped between the two renames
    data = folder / "shard-00002.bin"
    data.write_bytes(data.read_bytes()[:-1])  # and one cut short
    with pytest.raises(InputError, match="missing or damaged"):
        StagedPictures.open(folder)
    written: list[int] = []
    real = staging.write_shard
    monkeypatch.setattr(staging, "write_shard", lambda job: (written.append(job.number), real(job))[1])
    stage(pictures, folder, workers=1, shard_size=7)
    assert written == [1, 2]
    assert shard_bytes(folder) == shard_bytes(tmp_path / "whole")


def test_shards_of_other_pictures_are_not_kept(pictures: PictureFiles, tmp_path: Path) -> None:
    """A picture that could not be read in the first start may be readable in the second one."""
    later = pictures.subset(np.arange(1, 22))
    stage(pictures.subset(np.arange(21)), tmp_path, workers=1, shard_size=7, key="a")
    staged = stage(later, tmp_path, workers=1, shard_size=7, key="b")
    for i in range(21):
        np.testing.assert_array_equal(staged[i], later[i])


def test_two_runs_may_stage_at_once(pictures: PictureFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stage(pictures, tmp_path / "whole", workers=1, shard_size=27)
    script = (
        "import sys; from labelsieve.data.stage import stage; from labelsieve.data.webvision import listed_training; "
        "stage(listed_training(sys.argv[1], side=32).x, sys.argv[2], workers=1, shard_size=27)"
    )
    command = [sys.executable, "-c", script, str(pictures.root), str(tmp_path / "both")]
    real = PictureFiles.decode

    def overtaken(self: PictureFiles, i: int) -> np.ndarray:
        if i == 5:  # the other process starts and ends in the middle of our shard
            subprocess.run(command, check=True)
        return real(self, i)

    monkeypatch.setattr(PictureFiles, "decode", overtaken)
    stage(pictures, tmp_path / "both", workers=1, shard_size=27)
    assert shard_bytes(tmp_path / "both") == shard_bytes(tmp_path / "whole")


def test_what_a_killed_staging_left_is_swept_away(pictures: PictureFiles, tmp_path: Path) -> None:
    stage(pictures, tmp_path, workers=1, shard_size=27)
    whole = shard_bytes(tmp_path)
    (tmp_path / ".shard-00000.bin.999999999.partial").write_bytes(b"half")
    (tmp_path / ".mine.partial").write_bytes(b"somebody's")
    stage(pictures, tmp_path, workers=1, shard_size=27)
    assert shard_bytes(tmp_path) == whole | {".mine.partial": b"somebody's"}


def test_a_full_disk_is_told_and_leaves_no_half_shard(pictures: PictureFiles, tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8_000, hard))
    try:
        with pytest.raises(InputError, match="decoded pictures need"):
            stage(pictures, tmp_path, workers=1, shard_size=27)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert [path.name for path in tmp_path.iterdir()] == ["stage.json"]
    assert len(stage(pictures, tmp_path, workers=1, shard_size=27)) == 27


def test_not_a_stage(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not a folder of decoded pictures"):
        StagedPictures.open(tmp_path)


def test_shard_sizes() -> None:
    assert [staging.default_shard_size(n) for n in (1, 6_400, 2_400_000)] == [64, 100, 4096]


def test_what_travels_to_another_process_is_small_and_finds_its_shards(
    pictures: PictureFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    stage(pictures, "shards", workers=1, shard_size=10)
    staged = StagedPictures.open("shards")  # named relative to here
    expected = [np.array(picture) for picture in staged]  # maps the shards
    sent = pickle.dumps(staged)
    assert len(sent) < 5000 < staged.nbytes
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    received = pickle.loads(sent)
    assert received.unreadable == staged.unreadable and len(received) == 27
    for found, picture in zip(received, expected, strict=True):
        np.testing.assert_array_equal(found, picture)
    index, code = torch.tensor([[3, 0, 26, 11]]), torch.tensor([[0, 7, 20_000, 5]])
    there, here = CropStream(received, crop=24, workers=0), CropStream(pictures, crop=24, workers=0)
    assert torch.equal(there.batch(index, code), here.batch(index, code))


def test_some_of_the_staged(pictures: PictureFiles, tmp_path: Path) -> None:
    staged = stage(pictures, tmp_path, workers=1, shard_size=10)
    bad = sorted(staged.unreadable)
    some = staged.subset(np.array([25, bad[1], 4]))
    assert len(some) == 3 and list(some.unreadable) == [1]
    for found, i in zip(some, (25, bad[1], 4), strict=True):
        np.testing.assert_array_equal(found, staged[i])
