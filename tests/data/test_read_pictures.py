"""Pictures are the same in memory, staged on disk and streamed, and the place depends on their size."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from labelsieve.data import edges, read_pictures
from labelsieve.data.decode import ExactSize
from labelsieve.data.edges import EdgeFeatures
from labelsieve.data.pictures import EncodedPictures, PictureFiles
from labelsieve.data.read_pictures import Placement, place_pictures
from labelsieve.data.source import ReadOptions, load_source
from labelsieve.data.stage import StagedPictures
from labelsieve.engine.picture_stores import ShiftStream, picture_store
from labelsieve.engine.store import PictureStore, stage_pictures
from labelsieve.runfolder import fingerprint


def write_pictures(root: Path, count: int, side: int = 20) -> None:
    rng = np.random.default_rng(0)
    for i in range(count):
        path = root / ("dark", "light")[i % 2] / f"{i:05d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        pixels = rng.integers(0, 150, (side, side, 3), dtype=np.uint8) + np.uint8(100 * (i % 2))
        Image.fromarray(pixels).save(path, compress_level=0)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("pictures") / "set"
    write_pictures(root, 70)
    (root / "dark" / "broken.png").write_text("no picture")
    whole = (root / "light" / "00001.png").read_bytes()
    (root / "light" / "cut.png").write_bytes(whole[: len(whole) // 2])
    return root


def no_memory(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(read_pictures, "MEMORY_LIMIT", 0)


def no_disk(patch: pytest.MonkeyPatch) -> None:
    no_memory(patch)
    patch.setattr(read_pictures, "free_disk", lambda folder: 0)


@pytest.mark.parametrize("size", [None, 12])
def test_every_placement_gives_the_same_samples(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int | None
) -> None:
    memory = load_source(str(folder), ReadOptions(size=size, cache_dir=tmp_path / "a"))
    assert isinstance(memory.x, np.ndarray)
    assert {skip.id for skip in memory.skipped} == {"dark/broken.png", "light/cut.png"}
    with monkeypatch.context() as patch:
        no_memory(patch)
        staged = load_source(str(folder), ReadOptions(size=size, cache_dir=tmp_path / "b"))
        again = load_source(str(folder), ReadOptions(size=size, cache_dir=tmp_path / "b"))
        no_disk(patch)
        streamed = load_source(str(folder), ReadOptions(size=size, cache_dir=tmp_path / "c"))
        alone = load_source(str(folder), ReadOptions(size=size))
    assert isinstance(staged.x, StagedPictures) and isinstance(again.x, StagedPictures)
    assert isinstance(streamed.x, EncodedPictures) and isinstance(alone.x, EncodedPictures)
    for data in (staged, again, streamed, alone):
        np.testing.assert_array_equal(np.asarray(data.x), memory.x)
        np.testing.assert_array_equal(data.x[np.array([3, 1])], memory.x[[3, 1]])
        assert data.ids.tolist() == memory.ids.tolist() and data.y.tolist() == memory.y.tolist()
        assert data.skipped == memory.skipped and data.notes == memory.notes
        assert fingerprint(data) == fingerprint(memory)  # a run may go on with another placement


def test_the_place_depends_on_size_device_and_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pictures = PictureFiles(tmp_path, ["a.png"] * 1000, ExactSize(64, 64))
    assert place_pictures(pictures, tmp_path) is Placement.MEMORY
    assert place_pictures(pictures, tmp_path, samples=10**6) is Placement.STAGED
    assert place_pictures(pictures, tmp_path / "new" / "folder", samples=10**6) is Placement.STAGED
    assert place_pictures(pictures, None, samples=10**6) is Placement.STREAMED
    assert place_pictures(pictures, tmp_path, samples=10**12) is Placement.STREAMED
    assert place_pictures(pictures, tmp_path, samples=10**6, device_memory=10**11) is Placement.DEVICE
    monkeypatch.setattr(read_pictures, "available_memory", lambda: 10**8)
    assert place_pictures(pictures, tmp_path) is Placement.STAGED


@pytest.mark.parametrize("workers", [0, 2])
def test_a_stream_gives_the_batches_of_pictures_in_memory(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workers: int
) -> None:
    no_memory(monkeypatch)
    data = load_source(str(folder), ReadOptions(cache_dir=tmp_path / "staged"))
    held = stage_pictures(np.asarray(data.x))
    stream = picture_store(data.x, workers=workers)
    assert isinstance(stream, ShiftStream) and isinstance(picture_store(data.x, hold=True), PictureStore)
    assert (stream.codes, stream.plain, stream.shape, len(stream)) == (held.codes, held.plain, held.shape, 70)
    np.testing.assert_array_equal(stream.mean, held.mean)
    rng = np.random.default_rng(0)
    index = [rng.integers(0, 70, (2, 9)) for _ in range(5)]
    code = [rng.integers(0, held.codes, (2, 9)) for _ in range(5)]
    with stream:
        stream.expect(index, code)
        for i, c in zip(index, code, strict=True):
            expected = held.batch(torch.as_tensor(i), torch.as_tensor(c))
            assert torch.equal(stream.batch(torch.as_tensor(i), torch.as_tensor(c)), expected)
        plain = torch.arange(4)[None], torch.full((1, 4), held.plain)
        assert torch.equal(stream.batch(*plain), held.batch(*plain))  # not expected
        held.averages_views = stream.averages_views = True
        assert len(stream.views) == 2
        reads = counted_calls(monkeypatch, stream, "_read_now")
        for view in stream.views:
            moved = torch.arange(4, 8)[None], torch.full((1, 4), view)
            assert torch.equal(stream.batch(*moved), held.batch(*moved))
        assert len(reads) == 1  # both views of a picture that was read once


def counted_calls(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> list[Any]:
    """The arguments of each call of a method from now on."""
    calls, method = [], getattr(owner, name)

    def call(*args: Any) -> Any:
        calls.append(args)
        return method(*args)

    monkeypatch.setattr(owner, name, call)
    return calls


@pytest.mark.parametrize("model", ["edges", "small-cnn --epochs 1"])
def test_a_selection_from_disk_is_the_one_from_memory(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: str
) -> None:
    from labelsieve.cli.app import run

    command = ["select", str(folder), "--model", *model.split(), "--iterations", "1", "--device", "cpu", "--out"]
    assert run([*command, str(tmp_path / "memory")]) == 0
    no_memory(monkeypatch)
    assert run([*command, str(tmp_path / "staged")]) == 0
    one, other = ((tmp_path / name / "labels.csv").read_bytes() for name in ("memory", "staged"))
    assert one == other


def test_features_of_many_pictures_are_few_and_do_not_depend_on_the_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_pictures(tmp_path / "set", 210, side=16)
    monkeypatch.setattr(edges, "FULL_ROWS", 200)
    memory = load_source(str(tmp_path / "set"))
    no_memory(monkeypatch)
    staged = load_source(str(tmp_path / "set"), ReadOptions(cache_dir=tmp_path / "staged"))
    features = EdgeFeatures.learn(memory.x).rows(memory.x)
    assert features.shape == (210, edges.COMPONENTS) and features.dtype == np.float32
    np.testing.assert_array_equal(EdgeFeatures.learn(staged.x).rows(staged.x), features)
