"""Folders of pictures as they come: every size and mode, broken ones, hostile ones."""

from __future__ import annotations

import io
import os
import struct
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from labelsieve.data.decode import FILE_NOT_FOUND
from labelsieve.data.folder import FOLDER_NOT_UTF8, LINK, NOT_UTF8, UNSUPPORTED
from labelsieve.data.labels import read_label_file
from labelsieve.data.read_pictures import common_size
from labelsieve.data.source import ReadOptions, load_source
from labelsieve.errors import InputError
from labelsieve.files import safe_path
from labelsieve.progress import Progress


def picture(
    path: Path, *, mode: str = "RGB", size: tuple[int, int] = (8, 8), colour: object = None, **save: object
) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, colour if colour is not None else 0).save(path, **save)  # type: ignore[arg-type]


def two_classes(root: Path) -> Path:
    picture(root / "black" / "a.png")
    picture(root / "white" / "b.png", colour=(255, 255, 255))
    return root


def test_small_pictures_of_one_size_keep_it(tmp_path: Path) -> None:
    for i in range(3):
        picture(tmp_path / "red" / f"{i}.png", size=(12, 9), colour=(255, 0, 0))
        picture(tmp_path / "blue" / "deep" / f"{i}.bmp", size=(12, 9), colour=(0, 0, 255))
    data = load_source(str(tmp_path))
    assert data.x.shape == (6, 9, 12, 3) and data.x.dtype == np.uint8 and data.classes == ("blue", "red")
    assert data.ids.tolist()[:2] == ["blue/deep/0.bmp", "blue/deep/1.bmp"]
    assert data.x[0, 0, 0].tolist() == [0, 0, 255] and data.y.tolist() == [0, 0, 0, 1, 1, 1]
    assert data.skipped == ()


def test_every_mode_becomes_rgb(tmp_path: Path) -> None:
    two_classes(tmp_path)
    a = tmp_path / "modes"
    picture(a / "grey.png", mode="L", colour=128)
    picture(a / "grey16.png", mode="I;16", colour=128 * 257)
    picture(a / "clear.png", mode="RGBA", colour=(255, 0, 0, 0))
    picture(a / "cmyk.jpg", mode="CMYK", colour=(0, 0, 0, 0))
    picture(a / "one.png", mode="1", colour=1)
    palette = Image.new("P", (8, 8), 0)
    palette.putpalette([0, 255, 0, *[0] * 765])
    palette.save(a / "palette.gif", transparency=7)
    data = load_source(str(tmp_path))
    seen = {id: data.x[i].mean(axis=(0, 1)) for i, id in enumerate(data.ids.tolist())}
    for name, colour in {
        "grey.png": 128,
        "grey16.png": 128,
        "clear.png": 255,
        "cmyk.jpg": 255,
        "one.png": 255,
        "palette.gif": (0, 255, 0),
    }.items():
        assert np.allclose(seen[f"modes/{name}"], colour, atol=1), name
    assert not data.skipped


def test_exif_turns_the_picture(tmp_path: Path) -> None:
    two_classes(tmp_path)
    pixels = np.zeros((8, 8, 3), np.uint8)
    pixels[:, :4] = 255  # left half white
    exif = Image.Exif()
    exif[0x0112] = 6  # shown turned a quarter to the right: the left becomes the top
    Image.fromarray(pixels).save(tmp_path / "white" / "turned.png", exif=exif)
    data = load_source(str(tmp_path))
    turned = data.x[data.ids.tolist().index("white/turned.png")]
    assert turned[:4].mean() == 255 and turned[4:].mean() == 0


def test_sizes_are_made_common(tmp_path: Path) -> None:
    picture(tmp_path / "a" / "small.png", size=(20, 10))
    picture(tmp_path / "b" / "large.jpg", size=(300, 200))
    assert load_source(str(tmp_path)).x.shape == (2, 64, 64, 3)
    assert load_source(str(tmp_path), ReadOptions(size=32)).x.shape == (2, 32, 32, 3)
    with pytest.raises(InputError, match=r"--size 5000 is outside 8\.\.1024"):
        load_source(str(tmp_path), ReadOptions(size=5000))
    assert common_size(np.array([(28, 28), (28, 28)]), None) == (28, 28)
    assert common_size(np.array([(28, 28), (20, 30)]), None) == (28, 28)
    assert common_size(np.array([(500, 400)]), None) == (64, 64)


def bomb(width: int, height: int) -> bytes:
    """A PNG of a few bytes whose header promises width x height pixels."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")


def test_what_cannot_be_read_is_listed_and_stops_nothing(tmp_path: Path) -> None:
    root = two_classes(tmp_path / "data")
    black = root / "black"
    whole = io.BytesIO()
    Image.fromarray(np.random.default_rng(0).integers(0, 255, (64, 64, 3), dtype=np.uint8)).save(whole, "JPEG")
    (black / "truncated.jpg").write_bytes(whole.getvalue()[:900])
    (black / "page.jpg").write_text("<html><script>alert(1)</script></html>")
    (black / "drawing.jpg").write_text("<svg xmlns='http://www.w3.org/2000/svg'/>")
    (black / "script.jpg").write_text("%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n")
    (black / "empty.png").write_bytes(b"")
    (black / "bomb.png").write_bytes(bomb(15_000, 10_000))
    (black / "huge.png").write_bytes(bomb(60_000, 60_000))
    (black / "notes.txt").write_text("mine")
    (black / ".hidden").write_text("")
    secret = tmp_path / "secret.png"
    picture(secret)
    (black / "link.png").symlink_to(secret)
    (root / "elsewhere").symlink_to("/etc")
    (black / "loop").symlink_to(root)
    (black / "inside.png").symlink_to(black / "a.png")
    lines = io.StringIO()
    data = load_source(str(root), progress=Progress(stream=lines))
    assert data.ids.tolist() == ["black/a.png", "white/b.png"]
    assert f"4 samples left out ({LINK})" in lines.getvalue()
    reasons = dict(data.skipped)
    assert reasons.pop("black/truncated.jpg").startswith("damaged: ")
    not_picture = "not a picture in a supported format"
    assert reasons == {
        "elsewhere": LINK,
        "black/link.png": LINK,
        "black/loop": LINK,
        "black/inside.png": LINK,
        "black/notes.txt": "not a picture file",
        "black/page.jpg": not_picture,
        "black/drawing.jpg": not_picture,
        "black/script.jpg": not_picture,
        "black/empty.png": not_picture,
        "black/bomb.png": "too large: 150 megapixels, at most 100 are read",
        "black/huge.png": "too large: at most 100 megapixels are read",
    }
    # All that are skipped but the links, whether they look like pictures or not.
    assert len(data.skipped) == 12 and "8 of 10 files cannot be read, such as black/bomb.png (" in lines.getvalue()


def test_one_that_cannot_be_read_is_named_alone(tmp_path: Path) -> None:
    root = two_classes(tmp_path / "data")
    (root / "black" / "notes.txt").write_text("mine")
    lines = io.StringIO()
    load_source(str(root), progress=Progress(stream=lines))
    assert "1 of 3 files cannot be read: black/notes.txt (not a picture file)\n" in lines.getvalue()


def test_a_format_of_cameras_is_named_as_one(tmp_path: Path) -> None:
    root = two_classes(tmp_path / "data")
    (root / "black" / "IMG_1.HEIC").write_bytes(b"\0\0\0\x18ftypheic")
    lines = io.StringIO()
    data = load_source(str(root), progress=Progress(stream=lines))
    assert dict(data.skipped) == {"black/IMG_1.HEIC": UNSUPPORTED}
    assert f"black/IMG_1.HEIC ({UNSUPPORTED})\n" in lines.getvalue()


def test_pictures_beside_the_class_folders_are_left_out_with_a_word(tmp_path: Path) -> None:
    root = two_classes(tmp_path / "data")
    (root / "black" / "notes.txt").write_text("mine")
    (root / "black" / "empty.png").write_bytes(b"")
    (root / "licence.txt").write_text("a list, a licence: nobody misses them")
    picture(root / "one.png")
    lines = io.StringIO()
    data = load_source(str(root), progress=Progress(stream=lines))
    assert "1 sample left out (in no class folder): one.png\n" in lines.getvalue()
    # The same files are counted everywhere: those in class folders.
    assert "listing data: 4 files" in lines.getvalue() and "2 of 4 files cannot be read" in lines.getvalue()
    assert "checking pictures: 3/3" in lines.getvalue()
    (root / "two.HEIC").write_bytes(b"")
    data = load_source(str(root), progress=Progress(stream=lines))
    assert "2 samples left out (in no class folder): one.png, " in lines.getvalue()
    assert dict(data.skipped).keys() == {"black/notes.txt", "black/empty.png", "one.png", "two.HEIC"}
    assert dict(data.skipped)["one.png"] == "in no class folder" and len(data) == 2
    assert {"one.png", "black/a.png"} < set(
        load_source(str(root), ReadOptions(labelled=False)).ids.tolist()
    )  # to be predicted


@pytest.mark.skipif(sys.platform != "linux", reason="other file systems have no such names")
def test_names_that_are_not_utf8_are_samples_in_class_folders_only(tmp_path: Path) -> None:
    root = two_classes(tmp_path / "data")
    bad = os.fsdecode(b"\xff")
    (root / f"licence{bad}").write_text("free")
    (root / "black" / f"c{bad}.png").write_bytes(b"")
    (root / f"grey{bad}").mkdir()
    lines = io.StringIO()
    data = load_source(str(root), progress=Progress(stream=lines))
    assert "2 of 4 files cannot be read" in lines.getvalue()
    assert sorted(reason for _, reason in data.skipped) == sorted((FOLDER_NOT_UTF8, NOT_UTF8))


def test_hidden_folders_with_pictures_are_noted(tmp_path: Path) -> None:
    root = two_classes(tmp_path / "data")
    for name in (".cache", ".git"):
        (root / name / "below").mkdir(parents=True)
        (root / name / "below" / "config").write_text("x")
    picture(root / ".cache" / "below" / "c.png")
    data = load_source(str(root))
    assert data.classes == ("black", "white") and len(data) == 2
    assert len([note for note in data.notes if "'.cache'" in note]) == 1 and not any(".git" in n for n in data.notes)


def test_the_example_of_an_unreadable_file_is_a_picture_if_there_is_one(tmp_path: Path) -> None:
    root = two_classes(tmp_path / "data")
    (root / "LICENSE").write_text("free")
    (root / "black" / "IMG_1.HEIC").write_bytes(b"")
    lines = io.StringIO()
    load_source(str(root), ReadOptions(labelled=False), progress=Progress(stream=lines))
    assert "2 of 4 files cannot be read, such as black/IMG_1.HEIC (" in lines.getvalue()


def test_labels_of_what_lies_in_class_folders_are_enough(tmp_path: Path) -> None:
    """A file of labels that was exported from such a folder knows nothing of the pictures beside them."""
    root = two_classes(tmp_path / "data")
    labels = "".join(f"{id},{'xy'[i % 2]}\n" for i, id in enumerate(load_source(str(root)).ids.tolist()))
    (tmp_path / "labels.csv").write_text("id,label\n" + labels)
    picture(root / "one.png")
    lines = io.StringIO()
    file = read_label_file(tmp_path / "labels.csv")
    data = load_source(str(root), ReadOptions(labels=file), progress=Progress(stream=lines))
    assert len(data) == 2 and dict(data.skipped) == {"one.png": "in no class folder"}
    assert "1 sample left out (in no class folder): one.png\n" in lines.getvalue()
    (tmp_path / "labels.csv").write_text("id,label\n" + labels.splitlines()[0])
    with pytest.raises(InputError, match="no label for the sample"):  # one in a class folder
        load_source(str(root), ReadOptions(labels=read_label_file(tmp_path / "labels.csv")))


def test_empty_class_folders_are_allowed_and_said(tmp_path: Path) -> None:
    two_classes(tmp_path)
    (tmp_path / "nothing").mkdir()
    lines = io.StringIO()
    data = load_source(str(tmp_path), progress=Progress(stream=lines))
    assert data.classes == ("black", "white")
    assert "class folder 'nothing' contains no pictures" in lines.getvalue()


def test_no_samples(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no labelled samples found in .*"):
        load_source(str(tmp_path))
    (tmp_path / "a").mkdir()
    with pytest.raises(InputError, match="no pictures"):
        load_source(str(tmp_path))
    (tmp_path / "a" / "x.jpg").write_text("no")
    with pytest.raises(InputError, match="no readable picture"):
        load_source(str(tmp_path))
    picture(tmp_path / "a" / "y.png")
    with pytest.raises(InputError, match="only one class"):
        load_source(str(tmp_path))


def test_a_folder_to_predict_without_class_folders_has_no_pictures(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no pictures") as refused:
        load_source(str(tmp_path), ReadOptions(labelled=False))
    assert "class folders" not in str(refused.value)


def test_a_second_start_uses_the_staged_copy(tmp_path: Path) -> None:
    root = two_classes(tmp_path / "data")
    (root / "black" / "bad.png").write_text("no")
    first = load_source(str(root), ReadOptions(cache_dir=tmp_path / "staged"))
    lines = io.StringIO()
    second = load_source(str(root), ReadOptions(cache_dir=tmp_path / "staged"), progress=Progress(stream=lines))
    assert "using the decoded pictures" in lines.getvalue() and "decoding" not in lines.getvalue()
    assert np.array_equal(first.x, second.x) and first.skipped == second.skipped
    assert first.ids.tolist() == second.ids.tolist() == ["black/a.png", "white/b.png"]
    picture(root / "black" / "a.png", colour=(9, 9, 9))
    os.utime(root / "black" / "a.png", ns=(1, 1))
    assert load_source(str(root), ReadOptions(cache_dir=tmp_path / "staged")).x[0, 0, 0].tolist() == [9, 9, 9]
    for path in (tmp_path / "staged").glob("*/*.bin"):
        path.write_bytes(b"half")
    assert len(load_source(str(root), ReadOptions(cache_dir=tmp_path / "staged"))) == 2


def test_a_csv_of_paths(tmp_path: Path) -> None:
    two_classes(tmp_path)
    (tmp_path / "t.csv").write_text("path,label\nblack/a.png,dark\nwhite/b.png,light\n")
    data = load_source(str(tmp_path / "t.csv"))
    assert data.kind == "pictures" and data.classes == ("dark", "light") and data.ids[1] == "white/b.png"
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "t.csv").write_text("path,label\nblack/a.png,dark\nwhite/b.png,light\n")
    assert len(load_source(str(tmp_path / "sub" / "t.csv"), ReadOptions(root=tmp_path))) == 2


def test_flat_folders_can_be_predicted_on(tmp_path: Path) -> None:
    picture(tmp_path / "a.png")
    data = load_source(str(tmp_path), ReadOptions(labelled=False))
    assert data.ids.tolist() == ["a.png"] and data.y.tolist() == [-1]


def test_safe_path(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "folder").mkdir(parents=True)
    (root / "linked").symlink_to(root / "folder")
    (root / "loop").symlink_to("loop")
    (tmp_path / "other").symlink_to(root)  # the root may be a link: the user names it
    for base in (root, tmp_path / "other"):
        assert safe_path(base, "a/../b") == base / "b"
        assert safe_path(base, str(root / "folder" / "x")) == root / "folder" / "x"
        for name in ("..", "../x", "/etc/passwd", "a/../../x", "a\0b", "linked", "linked/x", "loop", "loop/x"):
            assert safe_path(base, name) is None, name


def test_links_in_lists_are_refused(tmp_path: Path) -> None:
    two_classes(tmp_path)
    (tmp_path / "linked").symlink_to(tmp_path / "black")
    with pytest.raises(InputError, match=r"line 3: 'linked/a.png' is outside .* or a link"):
        load_source(listed(tmp_path, ["white/b.png", "linked/a.png"]))


def listed(folder: Path, names: list[str]) -> str:
    """A table of paths, with two labels in turn."""
    lines = [f"{name},{('dark', 'light')[i % 2]}" for i, name in enumerate(names)]
    (folder / "t.csv").write_text("\n".join(["path,label", *lines]) + "\n")
    return str(folder / "t.csv")


@pytest.mark.parametrize("labelled", [True, False])
def test_files_of_a_table_that_are_not_there_are_left_out(tmp_path: Path, labelled: bool) -> None:
    two_classes(tmp_path)
    picture(tmp_path / "black" / "c.png", colour=(9, 9, 9))
    picture(tmp_path / "white" / "d.png", colour=(250, 250, 250))
    there = ["black/a.png", "white/b.png", "black/c.png", "white/d.png"]
    lines = io.StringIO()
    source = listed(tmp_path, [*there[:2], "black/gone.png", *there[2:]])
    data = load_source(source, ReadOptions(labelled=labelled), progress=Progress(stream=lines))
    assert data.ids.tolist() == there and data.skipped == (("black/gone.png", FILE_NOT_FOUND),)
    assert f"1 sample left out ({FILE_NOT_FOUND}): line 4: 'black/gone.png'\n" in lines.getvalue()
    assert [data.classes[code] for code in data.y.tolist()] == ["dark", "light", "light", "dark"]
    (tmp_path / "black" / "broken.png").write_bytes(b"")
    source = listed(tmp_path, ["", *there, "black", "black/broken.png", ""])  # a folder, and rows without a path
    data = load_source(source, ReadOptions(labelled=labelled), progress=Progress(stream=lines))
    assert f"3 samples left out ({FILE_NOT_FOUND}): line 2: '', " in lines.getvalue()
    assert data.ids.tolist() == there and [skipped.id for skipped in data.skipped] == [
        "", "black", "", "black/broken.png",
    ]  # fmt: skip
    with pytest.raises(InputError, match=r"line 3: '\.\./x\.png' is outside .*--root"):
        load_source(listed(tmp_path, ["black/gone.png", "../x.png", *there]), ReadOptions(labelled=labelled))


def test_where_most_files_are_not_there_the_way_to_them_is_asked_for(tmp_path: Path) -> None:
    two_classes(tmp_path / "data")
    source = listed(tmp_path, ["data/black/a.png", "black/a.png", "white/b.png"])
    with pytest.raises(InputError, match=r"t\.csv, line 3: the file 'black/a\.png' .*2 of 3 .*give --root"):
        load_source(source)
    with pytest.raises(InputError, match=r"line 2: the file 'data/black/a\.png' .*give another --root"):
        load_source(listed(tmp_path, ["data/black/a.png", "a.png"]), ReadOptions(root=tmp_path / "data" / "black"))
    source = listed(tmp_path, ["data\\black\\a.png", "data\\white\\b.png"])
    with pytest.raises(InputError, match=r"2 of 2 .*replace the backslashes"):
        load_source(source, ReadOptions(labelled=False))


def test_run_folders_in_the_source_are_not_samples(tmp_path: Path) -> None:
    root = two_classes(tmp_path)
    for run in (root / "runs" / "first", root / "second"):
        picture(run / "thumbnails" / "x.png")
        (run / "run.json").write_text("{}")
    lines = io.StringIO()
    data = load_source(str(root), progress=Progress(stream=lines))
    assert data.ids.tolist() == ["black/a.png", "white/b.png"] and data.classes == ("black", "white")
    assert data.skipped == () and "runs" not in lines.getvalue() and "second" not in lines.getvalue()
