"""Files made to harm whoever reads them. Each case makes its files and names the command that reads them.

A payload, if it ran, would leave a file named `marker`. What it means to survive a case is in trust_case.py.
"""

from __future__ import annotations

import csv
import io
import json
import os
import pickle
import shutil
import struct
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from trust_case import CASES, Case, case, survive


class Payload:
    """Unpickled, it leaves a marker."""

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.system, ("touch marker",)


SELECT = "--out run --model nearest --iterations 1"
RUNS, GROWS, LEADS, PICTURES, SHEETS = (
    "code in files", "files that grow", "names that lead outside", "pictures that are none", "cells of spreadsheets",
)  # fmt: skip


def plain_table(folder: Path, n: int = 24) -> None:
    rows = [f"{i % 2 + i / 100:.3f},{'ab'[i % 2]}" for i in range(n)]
    (folder / "t.csv").write_text("x,label\n" + "\n".join(rows) + "\n")


def trained(folder: Path) -> Path:
    """A run folder with a model, as somebody might send it."""
    from labelsieve.cli.app import run

    plain_table(folder)
    kept = folder.parent / "trained"
    if not kept.exists():
        line = f"run {folder / 't.csv'} --out {kept} --model nearest --iterations 1 --train-epochs 1 --network mlp"
        assert run([*line.split(), "--json"]) == 0
    shutil.copytree(kept, folder / "run")
    return folder / "run"


# ---------------------------------------------------------------- code


@case(RUNS, f"select t.npz {SELECT}", message="Python objects")
def objects_in_an_npz(folder: Path) -> None:
    evil = np.empty(2, dtype=object)
    evil[:] = [Payload(), Payload()]
    np.savez(folder / "t.npz", x=np.zeros((2, 2)), y=evil)


@case(RUNS, f"select t.npz {SELECT}", message="not a readable .npz archive")
def a_pickle_named_npz(folder: Path) -> None:
    (folder / "t.npz").write_bytes(pickle.dumps(Payload()))


def _batches(folder: Path, content: bytes) -> None:
    for i in range(1, 6):
        (folder / f"data_batch_{i}").write_bytes(content)


def pickled(protocol: int) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        _batches(folder, pickle.dumps({"data": Payload(), "labels": [1]}, protocol))

    make.__name__ = f"a_cifar_batch_that_calls,_protocol_{protocol}"
    return make


for _protocol in range(5):
    case(RUNS, f"select cifar10:. {SELECT}", message="posix.system" if _protocol else "system")(pickled(_protocol))


@case(RUNS, f"select cifar10:. {SELECT}", message="plain arrays")
def a_cifar_batch_that_changes_the_reader(folder: Path) -> None:
    """BUILD with a state for a function: its defaults would be other ones for every later file."""
    _batches(folder, b"\x80\x02c_codecs\nencode\nN}X\x0c\x00\x00\x00__defaults__X\x04\x00\x00\x00utf8\x85s\x86b.")


@case(RUNS, f"select cifar10n:. {SELECT}", message="posix.system")
def a_cifar10n_file_that_calls(folder: Path) -> None:
    import torch

    rows = np.zeros((10, 3073), dtype=np.uint8)
    rows[:, 0] = np.arange(10)
    for i in range(1, 6):
        rows.tofile(folder / f"data_batch_{i}.bin")
    torch.save({"worse_label": Payload()}, folder / "CIFAR-10_human.pt")


@case(RUNS, "predict run t.csv --to p.csv", message="is damaged")
def a_pickle_as_a_model(folder: Path) -> None:
    (trained(folder) / "model.safetensors").write_bytes(pickle.dumps(Payload()))


def bent_model(folder: Path, **changes: Any) -> None:
    from safetensors import safe_open
    from safetensors.torch import save_file

    path = trained(folder) / "model.safetensors"
    with safe_open(path, framework="pt") as file:
        about = {**json.loads(file.metadata()["about"]), **changes}
        tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
    save_file(tensors, path, metadata={"format": "labelsieve-model-1", "about": json.dumps(about)})


@case(RUNS, "predict run t.csv --to p.csv", message="if you trust it, give --network")
def a_model_that_names_a_module_beside_it(folder: Path) -> None:
    (folder / "evil.py").write_text("import os\nos.system('touch marker')\ndef net(classes): pass\n")
    bent_model(folder, model="evil:net")


@case(RUNS, "predict run t.csv --to p.csv", message="if you trust it, give --network")
def a_model_that_names_a_function_of_python(folder: Path) -> None:
    bent_model(folder, model="os:_exit")


@case(RUNS, f"run t.csv {SELECT} --train-epochs 1 --network mlp", code=0)
def checkpoints_and_answers_that_are_pickles(folder: Path) -> None:
    """Planted where a resumed run looks for its own."""
    plain_table(folder)
    from labelsieve.cli.app import run

    line = "run t.csv --out run --model nearest --iterations 1 --train-epochs 1 --network mlp --json"
    assert run(line.split()) == 0
    record = json.loads((folder / "run" / "run.json").read_text())
    for stage in record["stages"].values():
        stage["state"] = "running"
    (folder / "run" / "run.json").write_text(json.dumps(record))
    planted = 0
    for path in (folder / "run" / "checkpoints").rglob("*"):
        if path.is_file():
            path.write_bytes(pickle.dumps(Payload()))
            planted += 1
    assert planted >= 3


@case(RUNS, "theory --matrix m.npy", message="m.npy")
def a_matrix_that_is_a_pickle(folder: Path) -> None:
    np.save(folder / "m.npy", np.array([Payload()], dtype=object), allow_pickle=True)


@case(RUNS, f"select webvision:wv {SELECT}", message="no readable picture")
def postscript_named_jpg(folder: Path) -> None:
    """Pillow would hand EPS to Ghostscript, which runs it."""
    webvision(folder, ["a.jpg", "b.jpg"])
    program = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n(marker) (w) file closefile\nshowpage\n%%EOF\n"
    for name in ("a.jpg", "b.jpg"):
        (folder / "wv" / name).write_bytes(program)


@case(RUNS, f"select hf:set {SELECT}", code=None)
def a_data_set_folder_with_a_script(folder: Path) -> None:
    (folder / "set").mkdir()
    (folder / "set" / "set.py").write_text("import os\nos.system('touch marker')\n")
    (folder / "set" / "dataset_infos.json").write_text("{}")


# ---------------------------------------------------------------- files that grow


def _bomb_npz(folder: Path, shape: tuple[int, ...], stored: int, descr: str = "|u1") -> None:
    """An entry that says `shape`, with `stored` zero bytes: a megabyte of file for a gigabyte of zeros."""
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": descr, "fortran_order": False, "shape": shape})
    with zipfile.ZipFile(folder / "t.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        with archive.open("x.npy", "w", force_zip64=True) as entry:
            entry.write(header.getvalue())
            zeros = bytes(2**20)
            for _ in range(stored // len(zeros)):
                entry.write(zeros)
        labels = io.BytesIO()
        np.save(labels, np.arange(2))
        archive.writestr("y.npy", labels.getvalue())


@case(GROWS, f"select t.npz {SELECT}", message="should have")
def an_npz_that_claims_a_terabyte(folder: Path) -> None:
    _bomb_npz(folder, (2, 2**39), 2**20)


@case(GROWS, f"select t.npz {SELECT}", message="should have")
def an_npz_with_letters_of_a_gigabyte(folder: Path) -> None:
    _bomb_npz(folder, (2,), 2**20, "<U268435456")


@case(GROWS, f"select t.npz {SELECT}", message="memory")
def an_npz_that_unpacks_to_more_than_there_is(folder: Path) -> None:
    """The zip says 8 EB are inside; nobody looks further."""
    _bomb_npz(folder, (2, 2**50), 2**20)
    content = bytearray((folder / "t.npz").read_bytes())
    at = content.rfind(b"PK\x01\x02", 0, content.rfind(b"PK\x01\x02"))
    assert at >= 0
    # The central directory's size of x.npy, moved to its 64-bit field.
    with zipfile.ZipFile(folder / "t.npz") as archive:
        info = archive.infolist()[0]
    extra = struct.pack("<HHQ", 1, 8, 2**53)
    name_length, extra_length = struct.unpack("<HH", content[at + 28 : at + 32])
    content[at + 24 : at + 28] = b"\xff\xff\xff\xff"
    content[at + 30 : at + 32] = struct.pack("<H", len(extra))
    place = at + 46 + name_length
    content[place : place + extra_length] = extra
    grown = len(extra) - extra_length
    end = content.rfind(b"PK\x05\x06")
    size = struct.unpack("<I", content[end + 12 : end + 16])[0]
    content[end + 12 : end + 16] = struct.pack("<I", size + grown)
    (folder / "t.npz").write_bytes(content)
    assert info.filename == "x.npy"


def bomb_xlsx(path: Path, rows: int) -> None:
    """A spreadsheet whose sheet has this many equal rows; an archive stores them in a thousandth."""
    main = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
    row = b"<row><c><v>1</v></c><c><v>2</v></c></row>" * 10_000
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("xl/workbook.xml", f'<workbook xmlns="{main}"/>')
        with archive.open("xl/worksheets/sheet1.xml", "w", force_zip64=True) as sheet:
            sheet.write(f'<worksheet xmlns="{main}"><sheetData>'.encode())
            for _ in range(rows // 10_000):
                sheet.write(row)
            sheet.write(b"</sheetData></worksheet>")


@case(GROWS, f"select t.xlsx {SELECT}", message="unpacked")
def a_spreadsheet_that_unpacks_to_80_megabytes(folder: Path) -> None:
    bomb_xlsx(folder / "t.xlsx", 2_000_000)


@case(GROWS, f"select t.xlsx {SELECT}", message="unpacked")
def a_spreadsheet_that_declares_a_false_size(folder: Path) -> None:
    bomb_xlsx(folder / "t.xlsx", 1_000_000)
    content = bytearray((folder / "t.xlsx").read_bytes())
    at = content.rfind(b"PK\x01\x02")
    content[at + 24 : at + 28] = struct.pack("<I", 1000)
    (folder / "t.xlsx").write_bytes(content)


@case(GROWS, f"select t.parquet {SELECT}", message="GB of memory")
def a_parquet_file_that_repeats_a_long_text(folder: Path) -> None:
    """A kilobyte that would need a terabyte."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = pa.array(np.zeros(1_000_000, np.int32))
    text = pa.DictionaryArray.from_arrays(rows, pa.array(["a" * 1_000_000]))
    table = pa.table({"text": text, "label": pa.DictionaryArray.from_arrays(rows, pa.array(["a"]))})
    options: dict[str, Any] = {"compression": "zstd", "dictionary_pagesize_limit": 2**30, "store_schema": False}
    pq.write_table(table, folder / "t.parquet", **options)


@case(GROWS, f"select t.csv {SELECT}", message="1,000,001 columns")
def a_table_of_a_million_columns(folder: Path) -> None:
    (folder / "t.csv").write_text("x," * 10**6 + "label\n" + ("1," * 10**6 + "a\n") * 2)


@case(GROWS, f"select t.jsonl {SELECT}", message="different names")
def json_lines_with_a_new_name_in_every_line(folder: Path) -> None:
    """As a table with a cell for every name in every line, this megabyte would need 30 gigabytes."""
    names = [f'{{"c{i}":1}}' for i in range(60_000)]
    (folder / "t.jsonl").write_text('{"label":"a"}\n' + "\n".join(names) + "\n")


@case(GROWS, f"select cifar10:. {SELECT}", message="place")
def a_pickle_with_a_place_of_its_own_choosing(folder: Path) -> None:
    """Sixteen bytes for which Python's reader makes room for two thousand million values."""
    _batches(folder, b"\x80\x02}r\xff\xff\xff\x7f.")


@case(GROWS, f"select cifar10:. {SELECT}", message="labels")
def a_pickle_of_a_billion_laughs(folder: Path) -> None:
    """Lists that hold the list before ten times, eighteen deep: 10^18 values out of a few hundred bytes."""
    made = b"\x80\x02]q\x00"
    for level in range(1, 19):
        made += b"](" + (b"h%c" % (level - 1)) * 10 + b"eq%c" % level
    _batches(folder, made + b"}X\x04\x00\x00\x00datah\x12s.")


@case(GROWS, f"select cifar10n:. {SELECT}", message="unpacked")
def a_pt_file_that_unpacks_to_two_gigabytes(folder: Path) -> None:
    rows = np.zeros((10, 3073), dtype=np.uint8)
    rows[:, 0] = np.arange(10)
    for i in range(1, 6):
        rows.tofile(folder / f"data_batch_{i}.bin")
    with zipfile.ZipFile(folder / "CIFAR-10_human.pt", "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        with archive.open("archive/data.pkl", "w", force_zip64=True) as entry:
            zeros = bytes(2**24)
            for _ in range(2**31 // len(zeros) // 8):
                entry.write(zeros)
    # A quarter of the zeros suffice to be slow; the directory says the rest.
    content = bytearray((folder / "CIFAR-10_human.pt").read_bytes())
    at = content.rfind(b"PK\x01\x02")
    content[at + 24 : at + 28] = struct.pack("<I", 2**31)
    (folder / "CIFAR-10_human.pt").write_bytes(content)


def header(size: int, content: bytes = b"{}") -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        (trained(folder) / "model.safetensors").write_bytes(struct.pack("<Q", size) + content)

    make.__name__ = f"a_model_whose_header_says_{size}_bytes"
    return make


for _size in (0, 2, 2**31, 2**63, 2**64 - 1):
    case(GROWS, "predict run t.csv --to p.csv", message="t a model of labelsieve" if _size == 2 else "is damaged")(
        header(_size)
    )


@case(GROWS, "predict run t.csv --to p.csv", message="is damaged")
def a_model_with_a_giant_shape(folder: Path) -> None:
    bent_model(folder, shape=[2**40])


@case(GROWS, "predict run t.csv --to p.csv", message="is damaged")
def a_model_with_many_inputs_it_has_no_weights_for(folder: Path) -> None:
    bent_model(folder, shape=[9_999_999], encoding=None)


@case(GROWS, "predict run t.csv --to p.csv", message="is damaged")
def a_model_with_a_column_of_a_billion_gaps(folder: Path) -> None:
    column = {"name": "x", "kind": "number", "median": 0.0, "gaps": 10**9, "levels": [], "others": False}
    bent_model(folder, encoding=[column])


@case(GROWS, "report run", message="not valid JSON")
def a_summary_nested_without_end(folder: Path) -> None:
    (trained(folder) / "summary.json").write_text('{"a":' + "[" * 200_000 + "]" * 200_000 + "}")


def png(width: int, height: int, rows: int) -> bytes:
    """A PNG that says width x height and holds `rows` rows of zeros."""

    def chunk(name: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))

    packer = zlib.compressobj(9)
    packed = b"".join(packer.compress(bytes(1 + width * 3)) for _ in range(rows)) + packer.flush()
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", packed) + chunk(b"IEND", b"")


def good_pictures(root: Path, *, n: int = 12) -> None:
    from PIL import Image

    rng = np.random.default_rng(0)
    for i in range(n):
        folder = root / "ab"[i % 2]
        folder.mkdir(parents=True, exist_ok=True)
        pixels = rng.integers(0, 100, (10, 10, 3)) + 150 * (i % 2)
        Image.fromarray(pixels.astype(np.uint8)).save(folder / f"{i}.png")


def skipped_one(reason: str, name: str = "bad") -> Callable[[Path], None]:
    def check(folder: Path) -> None:
        with (folder / "run" / "skipped.csv").open(newline="") as file:
            rows = list(csv.DictReader(file))
        assert any(name in row["id"] and reason in row["reason"] for row in rows), rows

    return check


def bad_picture(name: str, content: bytes | Callable[[], bytes], reason: str, file: str = "bad.jpg") -> None:
    def make(folder: Path) -> None:
        good_pictures(folder / "set")
        (folder / "set" / "a" / file).write_bytes(content if isinstance(content, bytes) else content())

    make.__name__ = name
    case(PICTURES, f"select set {SELECT}", code=0, check=skipped_one(reason))(make)


def jpeg_cut_short() -> bytes:
    from PIL import Image

    out = io.BytesIO()
    Image.effect_noise((60, 60), 90).convert("RGB").save(out, "JPEG")
    return out.getvalue()[: len(out.getvalue()) // 2]


def giant_jpeg() -> bytes:
    from PIL import Image

    out = io.BytesIO()
    Image.new("RGB", (16, 16)).save(out, "JPEG")
    content = bytearray(out.getvalue())
    at = content.find(b"\xff\xc0")
    content[at + 5 : at + 9] = struct.pack(">HH", 65000, 65000)
    return bytes(content)


SVG = b'<?xml version="1.0"?><svg xmlns="http://www.w3.org/2000/svg" onload="alert(1)"><script>alert(1)</script></svg>'
HTML = b"<!doctype html><script>document.title='ran'</script>"
EPS = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n(marker) (w) file closefile\nshowpage\n%%EOF\n"
bad_picture("a_picture_of_200_megapixels", lambda: png(20_000, 10_000, 40), "too large", "bad.png")
bad_picture("a_picture_of_a_gigapixel", lambda: png(40_000, 30_000, 4), "too large", "bad.png")
bad_picture("a_jpeg_of_four_gigapixels", giant_jpeg, "too large")
bad_picture("a_jpeg_cut_short", jpeg_cut_short, "damaged")
bad_picture("svg_named_jpg", SVG, "not a picture")
bad_picture("html_named_jpg", HTML, "not a picture")
bad_picture("postscript_in_a_class_folder", EPS, "not a picture")
bad_picture("an_empty_jpg", b"", "not a picture")


@case(GROWS, f"select set {SELECT}", code=0, check=skipped_one("damaged"))
def a_png_whose_comment_unpacks_to_a_quarter_of_a_gigabyte(folder: Path) -> None:
    good_pictures(folder / "set")
    text = b"zTXt" + b"c\0\0" + zlib.compress(bytes(2**28), 9)
    chunk = struct.pack(">I", len(text) - 4) + text + struct.pack(">I", zlib.crc32(text))
    plain = png(8, 8, 8)
    (folder / "set" / "a" / "bad.png").write_bytes(plain[:33] + chunk + plain[33:])


# ---------------------------------------------------------------- names that lead outside


def webvision(folder: Path, names: list[str]) -> None:
    info = folder / "wv" / "info"
    info.mkdir(parents=True)
    (info / "synsets.txt").write_text("n00000001 one\nn00000002 two\n")
    lines = [f"{name} {i % 2}" for i, name in enumerate(names)]
    (info / "train_filelist_google.txt").write_text("\n".join(lines) + "\n")


def secret(folder: Path) -> Path:
    """A picture that is nobody's business, beside the data set."""
    from PIL import Image

    Image.new("RGB", (40, 40), (200, 0, 0)).save(folder / "secret.png")
    return folder / "secret.png"


def outside_of(command: str, **options: Any) -> Any:
    return case(LEADS, command, **options)


@outside_of("select webvision:wv --out run --model nearest --iterations 1", message="none of the 3 listed")
def a_file_list_that_leads_outside(folder: Path) -> None:
    elsewhere = secret(folder)
    webvision(folder, ["../secret.png", str(elsewhere), "link.png"])
    (folder / "wv" / "link.png").symlink_to(elsewhere)


@outside_of(f"select list.csv {SELECT}", message="outside")
def a_csv_of_paths_with_dots(folder: Path) -> None:
    secret(folder.parent)
    good_pictures(folder / "set")
    (folder / "list.csv").write_text("path,label\nset/a/0.png,a\n../secret.png,b\n")


@outside_of(f"select list.csv {SELECT}", message="outside")
def a_csv_of_whole_paths(folder: Path) -> None:
    elsewhere = secret(folder.parent)
    good_pictures(folder / "set")
    (folder / "list.csv").write_text(f"path,label\nset/a/0.png,a\n{elsewhere},b\n")


@outside_of(f"select set {SELECT}", code=0, check=skipped_one("link"))
def links_in_a_folder(folder: Path) -> None:
    good_pictures(folder / "set")
    (folder / "set" / "a" / "bad.png").symlink_to(secret(folder))
    (folder / "set" / "bad").symlink_to("/etc", target_is_directory=True)


@outside_of(f"select hf:rows {SELECT}", code=0, check=skipped_one("leads outside", "3"))
def rows_that_name_other_files(folder: Path) -> None:
    import datasets

    elsewhere = str(secret(folder))
    good_pictures(folder / "set", n=4)
    cells = [{"bytes": (folder / "set" / "ab"[i % 2] / f"{i}.png").read_bytes(), "path": None} for i in range(3)]
    cells.append({"bytes": None, "path": elsewhere})
    struct_ = {"bytes": datasets.Value("binary"), "path": datasets.Value("string")}
    features = datasets.Features({"image": struct_, "label": datasets.ClassLabel(names=["a", "b"])})
    rows = datasets.Dataset.from_dict({"image": cells, "label": [0, 1, 0, 1]}, features=features)
    rows.save_to_disk(folder / "rows")
    # Saved as pictures, the library would have put the bytes in; by hand it is only a name.
    info = json.loads((folder / "rows" / "dataset_info.json").read_text())
    info["features"]["image"] = {"_type": "Image"}
    (folder / "rows" / "dataset_info.json").write_text(json.dumps(info))


def kept_precious(folder: Path) -> None:
    assert (folder / "precious").read_text() == "keep me\n"


for _command, _name, _link, _code in (
    ("train run --train-epochs 1", "a_run_folder_whose_lock_is_a_link", "run.lock", 1),
    ("run t.csv --out run --iterations 2", "a_new_run_whose_lock_is_a_link", "run.lock", 1),
):

    def _make(folder: Path, link: str = _link) -> None:
        run = trained(folder)
        (folder / "precious").write_text("keep me\n")
        (run / link).symlink_to(folder / "precious")

    _make.__name__ = _name
    case(LEADS, _command, code=_code, message="symbolic links", check=kept_precious)(_make)


@case(LEADS, f"select set {SELECT}", code=0, check=skipped_one("not valid UTF-8", "\\udcff"))
def a_file_name_that_is_no_text(folder: Path) -> None:
    good_pictures(folder / "set")
    shutil.copy(folder / "set" / "a" / "0.png", os.fsencode(folder) + b"/set/a/\xff\xfe.png")
    os.mkdir(os.fsencode(folder) + b"/set/\xff")
    shutil.copy(folder / "set" / "a" / "0.png", os.fsencode(folder) + b"/set/\xff/1.png")


# ---------------------------------------------------------------- spreadsheets


def neutral_cells(folder: Path) -> None:
    with (folder / "out.csv").open(newline="") as file:
        cells = [cell for row in csv.reader(file) for cell in row]
    assert any("cmd|" in cell for cell in cells)
    assert not [cell for cell in cells if cell[:1] in "=+-@\t\r" and not cell.lstrip("+-").replace(".", "").isdigit()]


@case(SHEETS, "export run --what cleaned --to out.csv", code=0, check=neutral_cells)
def formulas_in_every_cell(folder: Path) -> None:
    from labelsieve.cli.app import run

    evil = ("=cmd|' /C calc'!A0", "@SUM(1+1)*cmd|' /C calc'!A0", "+1+cmd|' /C calc'!A0", "-2+3+cmd|' /C calc'!A0")
    with (folder / "t.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["=id", "x", "label", "note"])
        writer.writerows([f"={i}", i % 2 + i / 100, evil[i % 2], evil[2 + i % 2]] for i in range(16))
    line = f"select {folder / 't.csv'} --out {folder / 'run'} --model nearest --iterations 1 --json"
    assert run(line.split()) == 0


__all__ = ["CASES", "Case", "survive"]
