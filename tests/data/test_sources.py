"""Every kind of SOURCE that is not pictures: what is read, and the one plain sentence for what cannot be."""

from __future__ import annotations

import bz2
import gc
import gzip
import io
import lzma
import tarfile
import threading
import zipfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from labelsieve.data.columns import Encoding, Origin, encode_table
from labelsieve.data.huggingface import _without_unpacking, check_folder
from labelsieve.data.labels import encode, read_label_file, true_codes, with_labels
from labelsieve.data.source import ReadOptions, load_source, source_text
from labelsieve.errors import InputError
from labelsieve.progress import Progress


def write(path: Path, text: str) -> str:
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_a_source_is_a_path_or_a_name() -> None:
    assert source_text(Path("a.csv")) == source_text("a.csv") == "a.csv"
    for samples in (np.zeros((4, 2)), ["text"], None):
        with pytest.raises(InputError, match=f"not a {type(samples).__name__}: write .*INCV"):
            source_text(samples)  # type: ignore[arg-type]


# labels


def test_encode_keeps_the_users_names() -> None:
    y, classes = encode(["dog", "cat", "dog"])
    assert classes == ("cat", "dog") and y.tolist() == [1, 0, 1]
    y, classes = encode(["10", "9", "10"])
    assert classes == (9, 10) and y.tolist() == [1, 0, 1]
    assert encode([True, False])[1] == (False, True)
    assert encode(["01", "1"])[1] == ("01", "1")
    with pytest.raises(InputError, match="decimal"):
        encode([0.5, 1.0])


@given(st.lists(st.integers(-(10**20), 10**20) | st.text(max_size=5), min_size=1))
def test_encode_round_trips(labels: list[int | str]) -> None:
    texts = [str(label).replace("\0", "") for label in labels]
    y, classes = encode(texts)
    assert [str(classes[code]) for code in y] == texts


def test_digits() -> None:
    data = load_source("digits")
    assert len(data) == 1797 and data.classes == tuple(range(10)) and data.x.shape == (1797, 64)
    assert data.x.max() == 1.0 and data.ids[0] == "digit-0000"


# --labels


def test_label_file_replaces_labels_and_true_goes_elsewhere(tmp_path: Path) -> None:
    source = write(tmp_path / "t.csv", "id,label,a\nx,cat,1\ny,dog,2\n")
    file = read_label_file(write(tmp_path / "labels.csv", "id,label,true\ny,bird,dog\nx,cat,cat\n"))
    data = load_source(source, ReadOptions(labels=file))
    assert [data.classes[code] for code in data.y] == ["cat", "bird"]
    true = true_codes(data, file)
    assert true is not None and [data.classes[code] for code in true] == ["cat", "dog"]
    no_true = read_label_file(write(tmp_path / "l2.csv", "id,label\nx,cat\ny,dog\n"))
    assert true_codes(data, no_true) is None


def test_label_file_brings_labels_to_a_source_without(tmp_path: Path) -> None:
    source = write(tmp_path / "t.csv", "id,a\nx,1\ny,2\n")
    file = read_label_file(write(tmp_path / "labels.csv", "id,label\ny,1\nx,0\n"))
    assert load_source(source, ReadOptions(labels=file)).y.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ("id,label\n", "no rows"),
        ("name,label\na,b\n", "no column 'id': its columns are name, label"),
        ("id,class\na,b\n", "no column 'label'"),
        ("id,label\na,b\na,c\n", "the id 'a'.*line 3"),
        ("id,label\na,b\nb\n", "line 3: 1 cell,"),
        ("id,label\na,\n", "line 2"),
    ],
)
def test_bad_label_files(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_label_file(write(tmp_path / "labels.csv", text))


def test_label_file_must_fit_the_source(tmp_path: Path) -> None:
    data = load_source("digits")
    with pytest.raises(InputError, match=r"'digit-0000'"):
        with_labels(data, read_label_file(write(tmp_path / "a.csv", "id,label\nzz,1\n")))
    every = "".join(f"{id},1\n" for id in data.ids)
    with pytest.raises(InputError, match=r"sample 'zz'"):
        with_labels(data, read_label_file(write(tmp_path / "b.csv", "id,label\nzz,1\n" + every)))
    with pytest.raises(InputError, match="does not exist"):
        read_label_file(tmp_path / "none.csv")


# tables


def test_numbers_categories_and_gaps(tmp_path: Path) -> None:
    source = write(tmp_path / "t.csv", "age,city,label\n1,Rome,yes\n,Oslo,no\n3,,yes\n8,Rome,no\n")
    data = load_source(source)
    assert data.kind == "table" and data.classes == ("no", "yes") and data.ids.tolist() == ["0", "1", "2", "3"]
    # age with its gap at the median 3, where the gap was; then "", Oslo, Rome.
    expected = [[1, 0, 0, 0, 1], [3, 1, 0, 1, 0], [3, 0, 1, 0, 0], [8, 0, 0, 0, 1]]
    assert np.asarray(data.x).tolist() == expected
    assert data.x[np.array([3, 0])].tolist() == [expected[3], expected[0]]
    assert data.x.row(1) == {"age": None, "city": "Oslo"}


def test_parquet_reads_like_csv(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.table({"age": [1.0, None, 3.0], "city": ["Rome", "Oslo", None], "label": [0, 1, 1]})
    pq.write_table(table, tmp_path / "t.parquet")
    parquet = load_source(str(tmp_path / "t.parquet"))
    csv = load_source(write(tmp_path / "t.csv", "age,city,label\n1,Rome,0\n,Oslo,1\n3,,1\n"))
    assert np.array_equal(np.asarray(parquet.x), np.asarray(csv.x)) and parquet.classes == csv.classes == (0, 1)
    pq.write_table(table.set_column(2, "label", pa.array([0.5, 1, 2])), tmp_path / "f.parquet")
    with pytest.raises(InputError, match=r"row 1: the label 0.5 is a decimal number"):
        load_source(str(tmp_path / "f.parquet"))
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 not really")
    with pytest.raises(InputError, match="not a readable Parquet file"):
        load_source(str(tmp_path / "bad.parquet"))


def test_a_second_table_is_read_as_the_first(tmp_path: Path) -> None:
    first = load_source(write(tmp_path / "a.csv", "n,k,label\n1,u,0\n5,v,1\n,w,1\n"))
    encoding = Encoding.from_json(first.x.encoding.to_json())
    assert encoding == first.x.encoding
    second = load_source(write(tmp_path / "b.csv", "k,n\nv,\nnew,7\n"), ReadOptions(labelled=False, encoding=encoding))
    assert np.asarray(second.x).tolist() == [[3, 1, 0, 1, 0], [7, 0, 0, 0, 0]]
    assert second.y.tolist() == [-1, -1] and second.classes == ()
    with pytest.raises(InputError, match="trained with: k"):
        load_source(write(tmp_path / "c.csv", "n\n1\n"), ReadOptions(labelled=False, encoding=encoding))
    with pytest.raises(InputError, match="'n' has text"):
        load_source(write(tmp_path / "d.csv", "n,k\nx,u\n"), ReadOptions(labelled=False, encoding=encoding))


def test_new_values_of_a_category() -> None:
    import pyarrow as pa

    words = [f"w{i:03d}" for i in range(100)] + ["common"] * 5
    x = encode_table(pa.table({"word": words, "few": ["u", "v", *["w"] * 103]}), Origin("t"))
    word, few = x.encoding.columns
    assert word.others and few.levels == ("u", "v", "w") and not few.others
    said: list[str] = []
    stored = Encoding.from_json(x.encoding.to_json())
    new = encode_table(pa.table({"word": ["new", "common"], "few": ["x", "v"]}), Origin("t", said.append), stored)
    assert np.asarray(new)[:, [0, 49, 50, 51, 52]].tolist() == [[0, 1, 0, 0, 0], [1, 0, 0, 1, 0]]
    assert len(said) == 1 and "'x'" in said[0] and "few" in said[0]


def test_the_most_frequent_levels_are_kept() -> None:
    import pyarrow as pa

    words = [f"w{i:03d}" for i in range(60) for _ in range(5 + i % 3)]
    column = encode_table(pa.table({"word": words}), Origin("t")).encoding.columns[0]
    assert len(column.levels) == 49 and column.others and column.width == 50
    assert {f"w{i:03d}" for i in range(60) if i % 3} <= set(column.levels)


def test_text_with_quotes_and_line_breaks(tmp_path: Path) -> None:
    data = load_source(write(tmp_path / "t.csv", 'text,label\n"a, ""b""\nc",spam\nplain,ham\n'))
    assert data.kind == "text" and data.x.tolist() == ['a, "b"\nc', "plain"] and data.classes == ("ham", "spam")


def test_semicolons_tabs_and_a_byte_order_mark(tmp_path: Path) -> None:
    assert len(load_source(write(tmp_path / "t.csv", "\ufefflabel;a\nx;1\ny;2\n"))) == 2
    assert len(load_source(write(tmp_path / "t.tsv", "a\tlabel\n1\tx\n2\ty\n"))) == 2


def test_true_and_id_are_no_features(tmp_path: Path) -> None:
    data = load_source(write(tmp_path / "t.csv", "id,a,label,true\n7,1,x,x\n8,2,y,x\n"))
    assert data.x.shape == (2, 1) and data.ids.tolist() == ["7", "8"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"t\.csv is empty"),
        ("label,a\n", "no rows"),
        ("a,b\n1,2\n", "no column 'label'"),
        ("label,a\nx,1\ny,2,3\n", "line 3: 3 cells"),
        ('label,a\n"x\nx",1\ny,2,3\n', "line 4: 3 cells"),
        ("label,a\nx,1\n,2\n", "line 3"),
        ("label,a\n1,1\n0.5,2\n", "line 3: the label 0.5 is a decimal number"),
        ("label,a\n1.0,1\n2.5,2\n", r"line 3: the label 2\.5 is a decimal number"),
        ("id,label,a\nk,x,1\nj,x,2\nk,y,3\n", r"'k' occurs twice.*line 2 and line 4"),
        ('id,label,a\nk,x,"1\n"\nj,x,2\n\nk,y,3\n', r"'k' occurs twice.*line 2 and line 6"),
        (
            "id,label,a\nk,x,1\nj,x,2\nj,x,2\nk,y,3\nk,y,3\n",
            r"'j' occurs twice.*line 3 and line 4",
        ),
        ("label\nx\ny\n", "has only the label"),
        ("label,a\nx,1\nx,2\n", r"only one class \('x'\)"),
        ("label,a\n" + "".join(f"T-{i},{i % 3}\n" for i in range(20)), r"20 classes for 20 samples.*--label-column"),
        ("label,a\nx,1\ny,inf\n", "line 3: column 'a' has inf"),
        ("label,path\nx,a.jpg\n", "line 2: the file 'a.jpg'"),
        ("label,path\nx,../../etc/passwd\n", "line 2: '../../etc/passwd'"),
        ("label,path\nx,/etc/passwd\n", "line 2: '/etc/passwd'"),
    ],
)
def test_bad_tables(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        load_source(write(tmp_path / "t.csv", text))


def test_not_utf8_far_below(tmp_path: Path) -> None:
    many = "".join(f"x{i % 2},city{i % 5},{i}\r\n" for i in range(3000))
    for row in ("x1,Málaga,0", "Málaga,city1,0"):  # beyond what is looked at first, among features and labels
        (tmp_path / "t.csv").write_bytes(f"label,a,b\r\n{many}{row}\r\n{many}".encode("latin-1"))
        data = load_source(str(tmp_path / "t.csv"))
        assert "line 3002" in data.notes[0]
        assert "Málaga" in (*data.classes, data.x.table.column("a").to_pylist()[3000])
        (tmp_path / "t.csv").write_bytes(f"label,a,b\r\n{many}{row}\x81\r\n{many}".encode("latin-1"))
        with pytest.raises(InputError, match="line 3002: not UTF-8"):
            load_source(str(tmp_path / "t.csv"))


def test_unknown_files(tmp_path: Path) -> None:
    (tmp_path / "t.docx").write_bytes(b"")
    with pytest.raises(InputError, match="not supported"):
        load_source(str(tmp_path / "t.docx"))
    with pytest.raises(InputError, match="does not exist"):
        load_source(str(tmp_path / "nowhere"))


@given(st.binary(max_size=200))
def test_any_bytes_as_a_csv_end_in_samples_or_one_sentence(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    path = tmp_path_factory.mktemp("csv") / "t.csv"
    path.write_bytes(b"label,a\nx,1\ny,2\n" + content)
    try:
        assert len(load_source(str(path))) >= 2
    except InputError as error:
        assert "\n" not in str(error)


# npz


def test_npz(tmp_path: Path) -> None:
    path = tmp_path / "d.npz"
    np.savez(path, x=np.arange(6).reshape(3, 2), y=np.array(["b", "a", "b"]))
    data = load_source(str(path))
    assert data.kind == "table" and data.x.dtype == np.float32 and data.classes == ("a", "b") and data.y[1] == 0
    np.savez(path, x=np.zeros((3, 4, 5), np.uint8), y=np.array([0, 1, 1]), ids=np.array(["p", "q", "r"]))
    data = load_source(str(path))
    assert data.kind == "pictures" and data.x.shape == (3, 4, 5, 3) and data.ids.tolist() == ["p", "q", "r"]
    np.savez(path, x=np.array(["good", "bad"]), y=np.array([1, 0]))
    assert load_source(str(path)).kind == "text"


def test_bad_npz(tmp_path: Path) -> None:
    path = tmp_path / "d.npz"

    def refuse(message: str, **arrays: np.ndarray) -> None:
        np.savez(path, **arrays)
        with pytest.raises(InputError, match=message):
            load_source(str(path))

    y = np.array([0, 1])
    refuse("needs arrays named x and y; it has x", x=np.zeros((2, 2)))
    refuse("y .*3", x=np.zeros((3, 2)), y=y)
    refuse("NaN or infinite values, first in row 2", x=np.array([[0.0], [np.nan]]), y=y)
    refuse("decimal", x=np.zeros((2, 2)), y=np.array([0.5, 1.5]))
    refuse("no samples", x=np.zeros((0, 2)), y=np.zeros(0, int))
    twice = r"'q' occurs twice.*row 1 and row 2"
    refuse(twice, x=np.zeros((2, 2)), y=y, ids=np.array(["q", "q"]))
    refuse("y must have one entry per sample", x=np.zeros((2, 2)), y=np.zeros((2, 2), int))
    path.write_bytes(b"PK\x03\x04 broken")
    with pytest.raises(InputError, match="not a readable"):
        load_source(str(path))


class Payload:
    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return Path.touch, (self.marker,)  # type: ignore[return-value]


def test_a_pickle_inside_an_npz_is_never_run(tmp_path: Path) -> None:
    path, marker = tmp_path / "d.npz", tmp_path / "ran"
    np.savez(path, x=np.array([Payload(marker), 1], dtype=object), y=np.array([0, 1]))
    with pytest.raises(InputError, match="Python objects"):
        load_source(str(path))
    assert not marker.exists()


# hf


def test_hugging_face_folders(tmp_path: Path) -> None:
    import datasets

    names = datasets.ClassLabel(names=["neg", "pos"])
    features = datasets.Features({"text": datasets.Value("string"), "label": names})
    rows = datasets.Dataset.from_dict({"text": ["good", "bad"], "label": [1, 0]}, features=features)
    rows.save_to_disk(tmp_path / "saved")
    data = load_source(f"hf:{tmp_path / 'saved'}")
    assert data.kind == "text" and data.classes == ("neg", "pos") and data.y.tolist() == [1, 0]
    datasets.DatasetDict({"train": rows, "test": rows.select([0])}).save_to_disk(tmp_path / "dict")
    assert len(load_source(f"hf:{tmp_path / 'dict'}")) == 2
    assert len(load_source(f"hf:{tmp_path / 'dict'}", ReadOptions(split="test", labelled=False))) == 1
    assert len(load_source(f"hf:{tmp_path / 'dict'}", ReadOptions(split="all"))) == 3
    with pytest.raises(InputError, match=r"dev.*train, test"):
        load_source(f"hf:{tmp_path / 'dict'}", ReadOptions(split="dev"))
    with pytest.raises(InputError, match="--split"):
        load_source(f"hf:{tmp_path / 'saved'}", ReadOptions(split="test"))
    with pytest.raises(InputError, match=r"no column 'kind'.*--label-column"):
        load_source(f"hf:{tmp_path / 'saved'}", ReadOptions(label_column="kind"))
    with pytest.raises(InputError, match=r"'C\+\+'"):  # a + is no blank
        load_source(f"hf:{tmp_path / 'saved'}?C++=1")
    with pytest.raises(InputError, match="write hf:NAME_OR_DIR"):
        load_source("hf:x?colour=red")


def test_the_label_column_of_a_hugging_face_folder(tmp_path: Path) -> None:
    import datasets

    columns = {"text": ["good", "bad", "fine"], "label": ["a", "b", "a"], "mood": ["x", "x", "y"]}
    datasets.Dataset.from_dict(columns).save_to_disk(tmp_path)
    data = load_source(f"hf:{tmp_path}", ReadOptions(label_column="mood"))
    assert data.classes == ("x", "y") and data.y.tolist() == [0, 0, 1]
    assert load_source(f"hf:{tmp_path}").classes == ("a", "b")
    # Samples to predict need no labels.
    assert len(load_source(f"hf:{tmp_path}", ReadOptions(label_column="none", labelled=False))) == 3


def test_hugging_face_names_without_a_network(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    import datasets

    def unreachable(*_: object, **__: object) -> None:
        raise OSError("Name or service not known")

    monkeypatch.setattr("huggingface_hub.HfApi.dataset_info", unreachable)
    online = datasets.config.HF_HUB_OFFLINE
    with pytest.raises(InputError, match=r"hf:nobody/nothing .*cannot be reached.*hf:FOLDER"):
        load_source("hf:nobody/nothing")
    assert capfd.readouterr().err == "" and datasets.config.HF_HUB_OFFLINE is online


def test_hugging_face_names_in_offline_mode_make_no_request(monkeypatch: pytest.MonkeyPatch) -> None:
    requests: list[object] = []
    monkeypatch.setattr("huggingface_hub.HfApi.dataset_info", lambda *names, **_: requests.append(names))
    monkeypatch.setattr("datasets.config.HF_HUB_OFFLINE", True)
    with pytest.raises(InputError, match="hf:nobody/nothing"):
        load_source("hf:nobody/nothing")
    assert requests == []


def test_hugging_face_pictures_and_tables(tmp_path: Path) -> None:
    import datasets
    from PIL import Image

    pictures = [Image.fromarray(np.full((8, 8, 3), shade, np.uint8)) for shade in (0, 255)]
    features = datasets.Features({"image": datasets.Image(), "label": datasets.Value("string")})
    rows = datasets.Dataset.from_dict({"image": pictures, "label": ["dark", "light"]}, features=features)
    rows.save_to_disk(tmp_path / "pictures")
    data = load_source(f"hf:{tmp_path / 'pictures'}", ReadOptions(cache_dir=tmp_path / "staged"))
    assert data.kind == "pictures" and data.x.shape == (2, 8, 8, 3) and data.x[1].min() == 255
    datasets.Dataset.from_dict({"a": [1, 2], "label": [0, 1]}).save_to_disk(tmp_path / "table")
    data = load_source(f"hf:{tmp_path / 'table'}")
    assert data.kind == "table" and np.asarray(data.x).tolist() == [[1], [2]]


OUTSIDE = 'configs:\n- config_name: default\n  data_files: "../other/secret.csv"\n'


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("README.md", f"---\n{OUTSIDE}---\n"),
        ("README.md", f"\n---\n{OUTSIDE}---\n"),
        ("README.md", f" ---\n{OUTSIDE}---\n"),
        ("README.md", f"\ufeff---\n{OUTSIDE}---\n"),
        ("README.md", f"---\n# \u2028---\n{OUTSIDE}---\n"),
        ("README.md", f"---\n{OUTSIDE}--- \t\n".replace("\n", "\r\n")),
        (".huggingface.yaml", OUTSIDE),
    ],
)
def test_hugging_face_descriptions_that_lead_outside_are_refused(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_bytes(text.encode())
    with pytest.raises(InputError, match=r"secret\.csv"):
        check_folder(tmp_path, "hf:set")


def test_hugging_face_descriptions_that_stay_inside_are_accepted(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text('---\nconfigs:\n- config_name: default\n  data_dir: ""\n---\n')
    (tmp_path / "sub").mkdir()
    (tmp_path / "images.tar.gz.md5").write_text("d41d8cd98f00b204e9800998ecf8427e  images.tar.gz\n")
    (tmp_path / "sub" / "README.md").write_bytes("---\nauthor: Jos\xe9\n---\n".encode("latin-1"))  # is not read
    check_folder(tmp_path, "hf:set")


def test_a_hugging_face_snapshot_is_accepted_in_any_cache(tmp_path: Path) -> None:
    blobs, snapshot = tmp_path / "datasets--x" / "blobs", tmp_path / "datasets--x" / "snapshots" / "abc"
    blobs.mkdir(parents=True)
    snapshot.mkdir(parents=True)
    (blobs / "1").write_text("text,label\ngood,a\n")
    (snapshot / "train.csv").symlink_to("../../blobs/1")
    check_folder(snapshot, "hf:set")
    (tmp_path / "secret").touch()
    (snapshot / "test.csv").symlink_to(tmp_path / "secret")
    with pytest.raises(InputError, match=r"test\.csv"):
        check_folder(snapshot, "hf:set")


def packed(name: str, content: bytes, *, holes: int = 0, before: bytes = b"") -> bytes:
    """An archive with one file; in a tar archive the file has `holes`, bytes that are not stored."""
    buffer = io.BytesIO(before)
    if name.endswith(".zip"):
        with zipfile.ZipFile(buffer, "a", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("t.csv", content)
    elif ".tar" in name:
        with tarfile.open(
            fileobj=buffer, mode="w:gz" if name.endswith("gz") else "w", format=tarfile.PAX_FORMAT
        ) as tar:
            entry = tarfile.TarInfo("t.csv")
            entry.size = len(content)
            if holes:
                entry.pax_headers = {"GNU.sparse.size": str(holes), "GNU.sparse.map": f"0,{len(content)}"}
            tar.addfile(entry, io.BytesIO(content))
    else:
        return {"gz": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress}[name.rpartition(".")[2]](content)
    return buffer.getvalue()


HOLE = packed("t.tar", b"", holes=10**12)


@pytest.mark.parametrize(
    "name",
    ["t.zip", "t.ZIP", "t.csv.gz", "t.csv.bz2", "t.csv.xz", "t.tar", "t.tar.gz", "t.zst", ".gz"],
)
def test_packed_files_in_a_hugging_face_folder_are_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"any")
    with pytest.raises(InputError, match=f"{name} is packed"):
        load_source(f"hf:{tmp_path}")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("train.csv", packed("t.csv.gz", b"text,label\ngood,a\n")),
        ("train.csv", packed("t.zip", b"text,label\ngood,a\n", before=b"# hello\n")),
        ("t.zip_1", packed("t.zip", b"text,label\ngood,a\n", before=b"# hello\n")),
        ("t.tar.x", HOLE),
        ("t.csv.gz_1", packed("t.csv.gz", b"text,label\ngood,a\nbad,b\n")),
        ("t.csv.dat", packed("t.csv.gz", b"text,label\ngood,a\nbad,b\n")),  # read by pandas
        ("train.csv", HOLE),
        ("train.csv", gzip.compress(HOLE)),
        ("train.csv", lzma.compress(HOLE, lzma.FORMAT_ALONE)),
        ("train.jsonl", packed("t.csv.gz", b'{"text": "good", "label": "a"}\n')),
    ],
)
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # `datasets` does not close the file
def test_archives_with_other_names_are_not_unpacked(
    tmp_path: Path, name: str, content: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`datasets` recognises them by their content too, and would unpack them without a limit."""
    from datasets.utils.extract import Extractor

    unpacked: list[Any] = []
    monkeypatch.setattr(Extractor, "infer_extractor_format", unpacked.append)
    monkeypatch.setattr(Extractor, "extract", lambda *arguments: unpacked.append(arguments))
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError) as problem:
        load_source(f"hf:{tmp_path}")
    assert not unpacked and "\n" not in str(problem.value)
    del problem
    gc.collect()


def test_datasets_does_not_read_tar_archives_with_other_names(tmp_path: Path) -> None:
    """It reads them if any part of their names is tar, and unpacks the compressed files in them."""
    (tmp_path / "t.tar.x").write_bytes(packed("t.tar", b"text,label\ngood,a\n"))
    with pytest.raises(InputError, match=r"t\.tar\.x is an archive"):
        load_source(f"hf:{tmp_path}")


def test_threads_that_read_hugging_face_folders_restore_the_functions_of_datasets() -> None:
    from datasets import DownloadManager
    from datasets.utils import file_utils

    def functions() -> list[Any]:
        return [DownloadManager.extract, DownloadManager.iter_archive, file_utils._get_extraction_protocol]

    before = functions()
    inside = threading.Event()

    def second() -> None:
        with _without_unpacking():
            inside.set()

    with _without_unpacking():
        other = threading.Thread(target=second)
        other.start()
        assert not inside.wait(0.1)
    other.join()
    with suppress(KeyError), _without_unpacking():
        raise KeyError
    assert inside.is_set() and functions() == before


def test_a_folder_with_the_name_of_an_archive_is_read(tmp_path: Path) -> None:
    (tmp_path / "x.zip").mkdir()
    write(tmp_path / "x.zip" / "t.csv", "text,label\ngood,a\nbad,b\n")
    assert len(load_source(f"hf:{tmp_path}")) == 2


def test_what_is_odd_about_the_data_stays_with_it(tmp_path, capsys):
    path = tmp_path / "t.csv"
    path.write_text("a,label\n" + "".join(f"{i},{' x' if i % 2 else 'y'}\n" for i in range(20)) + "n.a.,x\n")
    data = load_source(str(path), progress=Progress(silent=True))
    assert any("'n.a.'" in note for note in data.notes) and any("spaces" in note for note in data.notes)
    assert data.classes == ("x", "y") and capsys.readouterr().err == ""


# ids


LABELLED = "".join(f"m{i};{'xy'[i % 2]};{i};p\n" for i in range(8))
EMPTY_BETWEEN = "nr;label;a;b\n;;;\nk1;x;2;q\n;;;\n;;5;p\nn/a;;6;p\nn/a;;7;p\n" + LABELLED


def test_rows_that_are_left_out_need_no_ids(tmp_path: Path) -> None:
    data = load_source(write(tmp_path / "t.csv", EMPTY_BETWEEN), ReadOptions(id_column="nr"))
    assert data.ids.tolist() == ["k1", *(f"m{i}" for i in range(8))] and data.x.matrix.shape[0] == 9
    assert [tuple(skipped) for skipped in data.skipped] == [(id, "no label") for id in ("", "", "", "n/a", "n/a")]
    assert data.notes[0] == "5 samples left out (no label): line 2, line 4, line 5, line 6, line 7"


def test_an_id_leads_to_one_row(tmp_path: Path) -> None:
    """Also where the other row of this id is left out: an export could not tell them apart."""
    with pytest.raises(InputError, match=r"'k1' occurs twice.*line 3 and line 16"):
        load_source(write(tmp_path / "t.csv", EMPTY_BETWEEN + "k1;;2;q\n"), ReadOptions(id_column="nr"))


def test_labels_without_ids_are_named_and_a_single_one_has_the_empty_id(tmp_path: Path) -> None:
    message = r"2 ids are empty, first in line 3"
    with pytest.raises(InputError, match=message):
        load_source(write(tmp_path / "t.csv", "nr;label;a\nk1;x;1\n;y;2\n;;\n  ;x;3\n"), ReadOptions(id_column="nr"))
    data = load_source(write(tmp_path / "t.csv", "nr;label;a\nk1;x;1\n;y;2\nk3;x;3\n"), ReadOptions(id_column="nr"))
    assert data.ids.tolist() == ["k1", "", "k3"]


def test_empty_rows_are_nothing_to_predict_or_to_name_in_a_file_of_labels(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", "nr;label;a\nk1;x;1\n;;\nk2;y;2\n;;\nk3;;3\n")
    lines = io.StringIO()
    data = load_source(path, ReadOptions(id_column="nr", labelled=False), progress=Progress(stream=lines))
    assert data.ids.tolist() == ["k1", "k2", "k3"] and len(data.skipped) == 2 and set(data.y.tolist()) == {-1}
    assert "line 3, line 5" in lines.getvalue()
    labels = read_label_file(write(tmp_path / "labels.csv", "id,label\nk1,y\nk2,x\nk3,x\n"))
    data = load_source(path, ReadOptions(id_column="nr", labels=labels))
    assert [data.classes[code] for code in data.y] == ["y", "x", "x"]
    with pytest.raises(InputError, match="2 ids are empty, first in line 2"):
        load_source(write(tmp_path / "t.csv", "nr;a\n;1\n;2\n"), ReadOptions(id_column="nr", labelled=False))
    with pytest.raises(InputError, match="empty"):
        load_source(write(tmp_path / "t.csv", "nr;a\n;\n"), ReadOptions(id_column="nr", labelled=False))
