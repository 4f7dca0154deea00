"""WebVision's layout: read as it is, made as it is, and every way it can be wrong."""

from __future__ import annotations

import csv
import io
import shutil
from pathlib import Path

import numpy as np
import pytest

from labelsieve.data import read_pictures, webvision
from labelsieve.data.decode import FILE_NOT_FOUND, ShorterSide
from labelsieve.data.make_webvision import SYNSETS, draw, make
from labelsieve.data.pictures import PictureFiles
from labelsieve.data.read_pictures import find_unreadable
from labelsieve.data.source import ReadOptions, load_source
from labelsieve.data.stage import StagedPictures
from labelsieve.errors import InputError
from labelsieve.progress import Progress


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made") / "webvision"
    summary = make(folder, classes=4, train=10, validation=3, wrong=0.25, side=24, seed=7)
    assert summary == {
        "folder": str(folder), "classes": 4, "train": 40, "validation": 12, "ilsvrc": 12, "wrong_labels": 10,
        "corrupt_files": 0, "seed": 7,
    }  # fmt: skip
    return folder


@pytest.fixture
def copy(made: Path, tmp_path: Path) -> Path:
    shutil.copytree(made, tmp_path / "copy")
    return tmp_path / "copy"


# -- a folder written by hand, line for line as WebVision's --------------------------------------------------------


def test_a_hand_written_folder(tmp_path: Path) -> None:
    from PIL import Image

    info = tmp_path / "info"
    info.mkdir()
    (info / "synsets.txt").write_text("n01440764 tench, Tinca tinca\nn02012849 crane\nn03126707 crane\n")
    (info / "train_filelist_google.txt").write_text(
        "google/q0001/a.jpg 0\ngoogle/q0003/b c.jpg 2\ngoogle/q0002/d.jpg 1\n"
    )
    (info / "train_filelist_flickr.txt").write_text("flickr/q0001/e.jpg 0\n")
    for name in ("google/q0001/a.jpg", "google/q0003/b c.jpg", "google/q0002/d.jpg", "flickr/q0001/e.jpg"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (30, 20), (200, 0, 0)).save(tmp_path / name)
    data = webvision.load(str(tmp_path))
    assert data.ids.tolist() == ["google/q0001/a.jpg", "google/q0003/b c.jpg", "google/q0002/d.jpg"]
    assert data.y.tolist() == [0, 2, 1]
    assert data.classes == ("tench, Tinca tinca", "crane (n02012849)", "crane (n03126707)")
    assert data.x[0].shape == (256, 384, 3) and data.kind == "pictures"
    two = webvision.load(f"webvision:{tmp_path}?classes=2", ReadOptions(size=10))
    assert two.y.tolist() == [0, 1] and two.x[1].shape == (10, 15, 3)
    assert two.classes == ("tench, Tinca tinca", "crane")
    assert webvision.load(f"{tmp_path}?subset=all").ids[-1] == "flickr/q0001/e.jpg"
    with (info / "train_filelist_flickr.txt").open("a") as file:
        file.write(f"flickr/q0001/{300 * 'x'}.jpg 0\n")  # a name that the file system refuses
    assert len(webvision.load(f"{tmp_path}?subset=flickr").skipped) == 1
    # --size, and the window of a network that was trained: 227 pixels are cut from pictures of 256
    source = f"webvision:{tmp_path}"
    sides = [load_source(source, ReadOptions(size=size)).x.side for size in (None, 32, (32, 32), (227, 227))]
    assert sides == [256, 32, 32, 256]


# -- the made folder -----------------------------------------------------------------------------------------------


def test_the_three_sets_share_their_classes(made: Path) -> None:
    train = webvision.load(f"webvision:{made}")
    validation = webvision.validation(made)
    ilsvrc = webvision.ilsvrc_validation(made / "ilsvrc12", webvision=made)
    assert (len(train), len(validation), len(ilsvrc)) == (40, 12, 12)
    assert train.classes == validation.classes == ilsvrc.classes
    assert train.classes[1] == "goldfish, Carassius auratus"
    for data in (validation, ilsvrc):
        assert np.bincount(data.y).tolist() == [3, 3, 3, 3]
        assert isinstance(data.x, PictureFiles) and len(data.x) == 12
    assert validation.ids[0] == "val000001.jpg"
    assert ilsvrc.ids[0].startswith("n01440764/ILSVRC2012_val_")
    assert len(train.skipped) == 0


def test_the_planted_truth_lies_beside_and_nowhere_else(made: Path) -> None:
    data = webvision.load(str(made))
    with (made / "planted_truth.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["id"] for row in rows] == data.ids.tolist()
    assert [row["label"] for row in rows] == [data.classes[code] for code in data.y]
    assert sum(row["label"] != row["true"] for row in rows) == 10
    assert np.bincount([data.classes.index(row["true"]) for row in rows]).tolist() == [10] * 4
    assert all("true" not in line for path in (made / "info").iterdir() for line in path.read_text().splitlines())


def test_drawn_classes_can_be_told_apart_and_vary() -> None:
    rng = np.random.default_rng(0)

    def hue_histogram(code: int) -> np.ndarray:
        from PIL import Image

        picture = Image.fromarray(draw(code, rng, side=48)).convert("HSV")
        hsv = np.asarray(picture).reshape(-1, 3)
        strong = hsv[(hsv[:, 1] > 140) & (hsv[:, 2] > 60), 0]
        return np.bincount(strong // 8, minlength=32) / max(1, len(strong))

    codes = np.repeat(np.arange(6), 6)
    found = np.stack([hue_histogram(int(code)) for code in codes])
    reference = np.stack([np.mean([hue_histogram(code) for _ in range(6)], axis=0) for code in range(6)])
    assert ((found @ reference.T).argmax(1) == codes).mean() > 0.85
    first, second = draw(0, rng, side=48), draw(0, rng, side=48)
    assert min(first.shape[:2]) == 48
    assert first.shape != second.shape or not np.array_equal(first, second)


def test_making_is_a_function_of_the_seed(tmp_path: Path) -> None:
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        make(tmp_path / name, classes=2, train=2, validation=1, side=16, seed=seed)
    contents = [
        [
            (str(path.relative_to(tmp_path / name)), path.read_bytes())
            for path in sorted((tmp_path / name).rglob("*.jpg"))
        ]
        for name in "abc"
    ]
    assert contents[0] == contents[1] != contents[2]


def test_the_synsets_are_the_first_fifty() -> None:
    assert len(SYNSETS) == 50
    wnids = [line.split()[0] for line in SYNSETS]
    assert wnids == sorted(set(wnids))
    assert wnids[0] == "n01440764" and wnids[-1] == "n01697457"


def test_pictures_that_do_not_fit_in_memory_are_staged(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read_pictures, "DEVICE_SHARE", 0.0)
    data = webvision.load(f"webvision:{made}", ReadOptions(size=20, cache_dir=tmp_path / "stage"))
    assert isinstance(data.x, StagedPictures) and len(data.x) == 40
    assert min(data.x[3].shape[:2]) == 20
    smaller = webvision.load(f"webvision:{made}", ReadOptions(size=16, cache_dir=tmp_path / "stage"))
    assert smaller.x.side == 16 and data.x[0].shape != smaller.x[0].shape


def test_it_says_how_far_it_is(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for share, output in (
        (read_pictures.DEVICE_SHARE, "checking pictures: 40/40 pictures, done in"),
        (0.0, "decoding pictures: 40/40 pictures, done in"),
        (0.0, "using the decoded pictures in"),
    ):
        monkeypatch.setattr(read_pictures, "DEVICE_SHARE", share)
        lines, options = io.StringIO(), ReadOptions(size=20, cache_dir=tmp_path / "stage")
        load_source(f"webvision:{made}", options, progress=Progress(stream=lines, every=0.0))
        assert output in lines.getvalue()


# -- what can be wrong ---------------------------------------------------------------------------------------------


def test_missing_and_empty_pictures_are_told_and_left_out(copy: Path) -> None:
    names = webvision.load(str(copy)).ids
    (copy / names[0]).unlink()
    (copy / names[5]).write_bytes(b"")
    data = webvision.load(str(copy))
    assert len(data) == 38 and len(data.x) == 38 and len(data.y) == 38
    assert [s.id for s in data.skipped] == [names[0], names[5]]
    assert data.skipped[0].reason == FILE_NOT_FOUND


@pytest.mark.parametrize("staged", [False, True])
def test_damaged_pictures_are_told_and_left_out(
    copy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, staged: bool
) -> None:
    whole = webvision.load(str(copy), ReadOptions(size=16))
    if staged:
        monkeypatch.setattr(read_pictures, "DEVICE_SHARE", 0.0)
    names = whole.ids
    (copy / names[2]).write_bytes((copy / names[2]).read_bytes()[:-300])  # cut short
    (copy / names[30]).write_bytes(b"<html>404</html>")
    data = webvision.load(str(copy), ReadOptions(size=16, cache_dir=tmp_path / "stage"))
    assert [s.id for s in data.skipped] == [names[2], names[30]]
    assert all(s.reason for s in data.skipped)
    kept = [i for i in range(40) if i not in (2, 30)]
    assert data.ids.tolist() == names[kept].tolist() and data.y.tolist() == whole.y[kept].tolist()
    assert len(data.x) == 38 and data.x.unreadable == {}
    for row, i in enumerate(kept):
        np.testing.assert_array_equal(data.x[row], whole.x[i])


@pytest.mark.parametrize("staged", [False, True])
def test_a_set_without_a_readable_picture_is_refused(
    copy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, staged: bool
) -> None:
    if staged:
        monkeypatch.setattr(read_pictures, "DEVICE_SHARE", 0.0)
    for name in webvision.load(str(copy)).ids.tolist():
        (copy / name).write_bytes(b"\xff\xd8 no picture \xff\xd9")
    with pytest.raises(InputError, match="no readable pictures in webvision"):
        webvision.load(str(copy), ReadOptions(size=16, cache_dir=tmp_path / "stage"))


def test_other_formats_and_jpegs_with_something_behind_are_readable(tmp_path: Path) -> None:
    from PIL import Image

    for name in ("a.png", "b.gif", "c.jpg", "d.jpg"):
        Image.new("RGB", (30, 20), (200, 0, 0)).save(tmp_path / name)
    with (tmp_path / "d.jpg").open("ab") as file:
        file.write(b"x" * 5000)
    pictures = PictureFiles(tmp_path, ["a.png", "b.gif", "c.jpg", "d.jpg", "gone.jpg"], ShorterSide(16))
    assert find_unreadable(pictures) == {4: FILE_NOT_FOUND}


def test_a_set_opened_here_is_read_from_anywhere(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(made.parent)
    data = webvision.load(made.name)
    monkeypatch.chdir(tmp_path)
    assert data.x[0].any() and data.x.unreadable == {}


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("info/train_filelist_google.txt", "google/q0001/a.jpg\n", r"train_filelist_google.txt:1: .* is not 'picture"),
        ("info/train_filelist_google.txt", "google/a.jpg 0\ngoogle/b.jpg 4\n", r":2: class 4, but .* names 4, 0 to 3"),
        ("info/train_filelist_google.txt", "google/a.jpg -1\n", r":1: .* is not 'picture"),
        ("info/train_filelist_google.txt", "", "no pictures of the first 4 classes"),
        ("info/train_filelist_google.txt", "google/a.jpg 0\n", "none of the 1 listed pictures exists"),
        ("info/synsets.txt", "", "empty"),
        ("info/synsets.txt", "tench\n", "synsets.txt:1: 'tench' must begin with a synset"),
    ],
)
def test_bad_lists(copy: Path, file: str, text: str, message: str) -> None:
    (copy / file).write_text(text)
    with pytest.raises(InputError, match=message):
        webvision.load(str(copy))


def test_missing_parts(copy: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no such folder; WebVision 1\.0 has info/synsets\.txt"):
        webvision.load(str(tmp_path / "nowhere"))
    shutil.rmtree(copy / "val_images_256")
    with pytest.raises(InputError, match="no folder val_images_256"):
        webvision.validation(copy)
    (copy / "info" / "train_filelist_google.txt").unlink()
    with pytest.raises(InputError, match=r"train_filelist_google\.txt: No such file"):
        webvision.load(str(copy))
    with pytest.raises(InputError, match="no such folder"):
        webvision.ilsvrc_validation(tmp_path / "nowhere", webvision=copy)
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="neither synset folders"):
        webvision.ilsvrc_validation(tmp_path / "empty", webvision=copy)


@pytest.mark.parametrize(
    ("query", "message"),
    [("colour=1", "colour"), ("classes=0", "whole number"), ("subset=bing", "google")],
)
def test_bad_settings(made: Path, query: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        webvision.load(f"{made}?{query}")
    with pytest.raises(InputError, match="no folder given"):
        webvision.load("webvision:")


def test_ilsvrc_in_its_other_forms(made: Path, tmp_path: Path) -> None:
    expected = webvision.ilsvrc_validation(made / "ilsvrc12", webvision=made)
    flat = tmp_path / "flat"
    (flat / "val").mkdir(parents=True)
    truth: dict[str, str] = {}
    for path in sorted((made / "ilsvrc12" / "val").rglob("*.JPEG"), key=lambda path: path.name):
        shutil.copy(path, flat / "val" / path.name)
        truth[path.name] = path.parent.name
    by_name = {str(id).split("/")[1]: int(code) for id, code in zip(expected.ids, expected.y, strict=True)}
    listed = flat / "imagenet_2012_validation_synset_labels.txt"
    listed.write_text("".join(f"{wnid}\n" for wnid in truth.values()))
    first = webvision.ilsvrc_validation(flat, webvision=made)
    assert dict(zip(first.ids.tolist(), first.y.tolist(), strict=True)) == by_name
    listed.write_text("n01440764\n")
    with pytest.raises(InputError, match="1 labels for 12 pictures"):
        webvision.ilsvrc_validation(flat, webvision=made)
    rows = "".join(f"{Path(name).stem},{wnid} 1 2 3 4 \n" for name, wnid in truth.items())
    (flat / "LOC_val_solution.csv").write_text("ImageId,PredictionString\n" + rows)
    second = webvision.ilsvrc_validation(flat, webvision=made)
    assert dict(zip(second.ids.tolist(), second.y.tolist(), strict=True)) == by_name
    (flat / "LOC_val_solution.csv").write_text("a,b\n1,2\n")
    with pytest.raises(InputError, match="ImageId"):
        webvision.ilsvrc_validation(flat, webvision=made)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"classes": 1}, "2 to 50"),
        ({"classes": 51}, "2 to 50"),
        ({"wrong": 1.0}, "between 0 and 1"),
        ({"train": 0}, "at least one picture"),
        ({"side": 4}, "16 pixels"),
    ],
)
def test_what_cannot_be_made(tmp_path: Path, options: dict[str, float], message: str) -> None:
    with pytest.raises(InputError, match=message):
        make(tmp_path / "new", **options)  # type: ignore[arg-type]


def test_all_that_is_wrong_is_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"^classes 0: [^;]*; side -1: [^;]*; wrong 1.5: [^;]*$"):
        make(tmp_path / "new", classes=0, side=-1, wrong=1.5)


def test_nothing_is_made_over_something(made: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="google, ilsvrc12, info and 2 more: give --to"):
        make(made, classes=2, train=1, validation=1)
    (tmp_path / "letter.txt").write_text("")
    with pytest.raises(InputError, match=r"letter\.txt: give --to"):
        make(tmp_path, classes=2, train=1, validation=1)
