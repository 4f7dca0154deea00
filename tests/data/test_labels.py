"""Labels with blanks, capitals and gaps; the file that `--labels` names: whole, or the decisions of a review."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest

from labelsieve.data.labels import NO_TRUE, encode, read_label_file, true_codes
from labelsieve.data.source import ReadOptions, load_source
from labelsieve.errors import InputError
from labelsieve.progress import Progress


def source(folder: Path) -> str:
    path = folder / "fruit.csv"
    path.write_text("id,weight,label\na,1,apple\nb,2,pear\nc,3,apple\n")
    return str(path)


def test_decisions_change_what_they_name_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "decisions.csv").write_text("id,label,decision,given\nc,plum,class,apple\na,apple,keep,apple\n")
    data = load_source(source(tmp_path), ReadOptions(labels=read_label_file(tmp_path / "decisions.csv")))
    assert [data.classes[code] for code in data.y] == ["apple", "pear", "plum"]


def test_a_label_file_without_decisions_must_name_every_sample(tmp_path: Path) -> None:
    (tmp_path / "labels.csv").write_text("id,label\nc,plum\n")
    with pytest.raises(InputError, match="sample 'a'"):
        load_source(source(tmp_path), ReadOptions(labels=read_label_file(tmp_path / "labels.csv")))


def test_a_label_file_with_other_ids_is_explained(tmp_path: Path) -> None:
    (tmp_path / "labels.csv").write_text("id,label\n0,plum\n1,pear\n2,apple\n")
    with pytest.raises(InputError, match=r"first id is '0'.*'a'.*--id-column"):
        load_source(source(tmp_path), ReadOptions(labels=read_label_file(tmp_path / "labels.csv")))


def test_dropped_samples_are_left_out_and_named(tmp_path: Path) -> None:
    (tmp_path / "decisions.csv").write_text("id,label,decision\nc,,drop\n")
    lines = io.StringIO()
    file = read_label_file(tmp_path / "decisions.csv")
    data = load_source(source(tmp_path), ReadOptions(labels=file), progress=Progress(stream=lines))
    assert data.ids.tolist() == ["a", "b"] and [tuple(one) for one in data.skipped] == [("c", "dropped")]
    assert "decisions.csv" in lines.getvalue() and len(data.x) == 2
    (tmp_path / "decisions.csv").write_text("id,label,decision\nz,,drop\n")
    with pytest.raises(InputError, match=r"none of the samples.*'z'.*--id-column"):
        load_source(source(tmp_path), ReadOptions(labels=read_label_file(tmp_path / "decisions.csv")))


def test_a_label_file_may_lack_as_many_samples_as_it_says(tmp_path: Path) -> None:
    (tmp_path / "labels.csv").write_text("id,label,others_dropped\na,x,1\nb,y,1\n")
    data = load_source(source(tmp_path), ReadOptions(labels=read_label_file(tmp_path / "labels.csv")))
    assert data.ids.tolist() == ["a", "b"] and [tuple(one) for one in data.skipped] == [("c", "dropped")]
    (tmp_path / "labels.csv").write_text("id,label,others_dropped\na,x,1\n")  # half a file
    with pytest.raises(InputError, match="sample 'b'"):
        load_source(source(tmp_path), ReadOptions(labels=read_label_file(tmp_path / "labels.csv")))
    for cells in ("a,x,1\nb,y,2\n", "a,x,\n", "a,x,-1\n"):
        (tmp_path / "labels.csv").write_text("id,label,others_dropped\n" + cells)
        with pytest.raises(InputError, match="others_dropped"):
            read_label_file(tmp_path / "labels.csv")


def test_blanks_at_the_ends_of_labels_do_not_count(tmp_path: Path) -> None:
    lines = io.StringIO()
    path = tmp_path / "t.csv"
    path.write_text("a,label\n1, login \n2,login\n3,bill\n4,bill\u00a0\n", encoding="utf-8")
    data = load_source(str(path), progress=Progress(stream=lines))
    assert data.classes == ("bill", "login") and data.y.tolist() == [1, 1, 0, 0]
    assert "2 labels" in lines.getvalue()
    np.savez(tmp_path / "d.npz", x=np.eye(3), y=np.array(["a", "a ", "b"]))
    assert load_source(str(tmp_path / "d.npz")).classes == ("a", "b")
    (tmp_path / "labels.csv").write_text("id,label,true\n0,x ,x\n1,x,x \n2,y,y\n3,y,y\n")
    file = read_label_file(tmp_path / "labels.csv")
    assert file.true == {"0": "x", "1": "x", "2": "y", "3": "y"}
    assert load_source(str(path), ReadOptions(labels=file), progress=Progress(stream=lines)).y.tolist() == [0, 0, 1, 1]
    assert "labels.csv: " in lines.getvalue()


def test_classes_that_differ_only_in_case_are_told_and_kept(tmp_path: Path) -> None:
    lines = io.StringIO()
    path = tmp_path / "t.csv"
    path.write_text("a,label\n1,Gold\n2,gold\n3,tin\n")
    data = load_source(str(path), progress=Progress(stream=lines))
    assert data.classes == ("Gold", "gold", "tin")
    assert "'gold' (1) and 'Gold' (1)" in lines.getvalue() and f"labelsieve data classes {path}" in lines.getvalue()


def test_missing_labels_are_counted_and_the_first_lines_named(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("a,label\n" + "1,x\n2,\n3,\n4,y\n" * 4)
    message = r"8 labels are missing \(line 3, line 4, line 7, line 8, line 11, \.\.\.\).*--label-column"
    with pytest.raises(InputError, match=message):
        load_source(str(path))
    path.write_text("a,label\n1,x\n2,  \n")
    with pytest.raises(InputError, match=r"line 3"):
        load_source(str(path))
    (tmp_path / "labels.csv").write_text("id,label\na,\nb,x\nc,\n")
    with pytest.raises(InputError, match=r"2 labels are missing \(line 2, line 4\)"):
        read_label_file(tmp_path / "labels.csv")


def test_a_few_rows_without_a_label_are_left_out_by_name(tmp_path: Path) -> None:
    path, lines = tmp_path / "t.csv", io.StringIO()
    path.write_text("a,label\n" + "1,x\n2,\n3,y\n" * 7)
    data = load_source(str(path), progress=Progress(stream=lines))
    assert "7 samples left out (no label): line 3, line 6, line 9, line 12, line 15, ...\n" in lines.getvalue()
    assert data.ids.tolist() == [str(i) for i in range(21) if i % 3 != 1]  # still the rows of the file
    assert data.x[:, 0].tolist() == [1, 3] * 7 and [data.classes[code] for code in data.y] == ["x", "y"] * 7
    assert data.skipped[0] == ("1", "no label") and len(data.skipped) == 7
    assert len(load_source(str(path), ReadOptions(labelled=False))) == 21  # to predict, every row counts
    # A file of labels that was made from these samples need not know the others.
    names = [f"{id},{data.classes[code]}\n" for id, code in zip(data.ids.tolist(), data.y.tolist(), strict=True)]
    (tmp_path / "labels.csv").write_text("id,label\n" + "".join(names))
    again = load_source(str(path), ReadOptions(labels=read_label_file(tmp_path / "labels.csv")))
    assert again.ids.tolist() == data.ids.tolist() and len(again.skipped) == 7
    (tmp_path / "labels.csv").write_text("id,label\n" + "".join(names[1:]))
    with pytest.raises(InputError, match="sample '0'"):
        load_source(str(path), ReadOptions(labels=read_label_file(tmp_path / "labels.csv")))


def test_what_has_no_label_in_a_data_set_is_left_out(tmp_path: Path) -> None:
    import datasets

    rows = {"a": [1, 2, 3], "label": ["x", None, "y"]}
    datasets.Dataset.from_dict(rows).save_to_disk(tmp_path / "saved")
    data = load_source(f"hf:{tmp_path / 'saved'}")
    assert data.ids.tolist() == ["0", "2"] and data.skipped[0] == ("1", "no label")
    np.savez(tmp_path / "d.npz", x=np.eye(3), y=np.array(["x", "", "y"]))
    data = load_source(str(tmp_path / "d.npz"))
    assert data.ids.tolist() == ["0", "2"] and data.skipped[0] == ("1", "no label") and data.classes == ("x", "y")
    np.savez(tmp_path / "d.npz", x=np.eye(3), y=np.array(["x", "", ""]))
    with pytest.raises(InputError, match="2 labels are missing"):
        load_source(str(tmp_path / "d.npz"))


def test_empty_texts_are_left_out_and_nobody_compares_them(tmp_path: Path) -> None:
    path, lines = tmp_path / "t.csv", io.StringIO()
    path.write_text('text,label\nhello there,x\n"  ",x\nbye now,y\n"\t",y\n,y\n')
    data = load_source(str(path), progress=Progress(stream=lines))
    assert data.x.tolist() == ["hello there", "bye now"] and data.ids.tolist() == ["0", "2"]
    assert [tuple(one) for one in data.skipped] == [("1", "empty text"), ("3", "empty text"), ("4", "empty text")]
    assert "3 samples left out (empty text): line 3, line 5, line 6\n" in lines.getvalue()
    assert "occur more than once" not in lines.getvalue()
    to_predict = load_source(str(path), ReadOptions(labelled=False))
    assert len(to_predict) == 5 and [note for note in to_predict.notes if "line 3, line 5, line 6" in note]


@pytest.mark.parametrize("cells", ["x,,", "0.5,1.5,2", ",,"])
def test_labels_that_are_not_needed_are_not_judged(tmp_path: Path, cells: str) -> None:
    path = tmp_path / "t.csv"
    path.write_text("id,a,label\n" + "".join(f"{i},{i},{cell}\n" for i, cell in enumerate(cells.split(","))))
    data = load_source(str(path), ReadOptions(labelled=False))
    assert data.y.tolist() == [-1, -1, -1] and data.classes == () and data.x.shape == (3, 1)
    (tmp_path / "labels.csv").write_text("id,label\n0,p\n1,q\n2,p\n")
    data = load_source(str(path), ReadOptions(labels=read_label_file(tmp_path / "labels.csv")))
    assert data.y.tolist() == [0, 1, 0] and data.classes == ("p", "q")
    with pytest.raises(InputError, match=r"missing|decimal"):
        load_source(str(path))


def test_labels_that_are_not_needed_are_not_judged_elsewhere(tmp_path: Path) -> None:
    import datasets

    (tmp_path / "labels.csv").write_text("id,label\n0,p\n1,q\n")
    file = read_label_file(tmp_path / "labels.csv")
    datasets.Dataset.from_dict({"a": [1, 2], "label": ["x", None]}).save_to_disk(tmp_path / "saved")
    np.savez(tmp_path / "d.npz", x=np.eye(2), y=np.array([0.5, np.nan]))
    for source in (f"hf:{tmp_path / 'saved'}", str(tmp_path / "d.npz")):
        data = load_source(source, ReadOptions(labelled=False))
        assert data.y.tolist() == [-1, -1] and data.classes == () and len(data.x) == 2
        assert load_source(source, ReadOptions(labels=file)).classes == ("p", "q")
        with pytest.raises(InputError, match=r"missing|decimal"):
            load_source(source)


@pytest.mark.parametrize(
    "names", [("00", "01"), ("1_000", "2_000"), ("inf", "nan"), ("1" * 20, "2" * 20), ("1.5", "x")]
)
def test_names_of_digits_are_no_decimals(tmp_path: Path, names: tuple[str, str]) -> None:
    path = tmp_path / "t.csv"
    path.write_text("a,label\n" + "".join(f"{i},{names[i % 2]}\n" for i in range(4)))
    assert load_source(str(path)).classes == names


@pytest.mark.parametrize("second", ["2.0", "2.", ".5", "2e3", "-2E-3"])
def test_a_dot_or_an_exponent_makes_a_decimal(tmp_path: Path, second: str) -> None:
    path = tmp_path / "t.csv"
    path.write_text(f"a,label\n1,01\n2,nan\n3,{second}\n")
    with pytest.raises(InputError, match=r"line 4: the label .* is a decimal number"):
        load_source(str(path))


def test_whole_numbers_may_be_written_as_decimals(tmp_path: Path) -> None:
    """As pandas writes them as soon as one is missing."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = tmp_path / "t.csv"
    path.write_text("a,label\n1,10.0\n2,9\n3,\n4,10.00\n5,-1.\n6,0.0\n")
    data = load_source(str(path))
    assert data.classes == (-1, 0, 9, 10) and data.y.tolist() == [3, 2, 3, 0, 1]
    (tmp_path / "labels.csv").write_text("id,label\n0,9.0\n1,10.0\n3,-1.0\n4,0\n5,0.0\n")
    data = load_source(str(path), ReadOptions(labels=read_label_file(tmp_path / "labels.csv")))
    assert [str(data.classes[code]) for code in data.y] == ["9", "10", "-1", "0", "0"]
    path.write_text(path.read_text().replace("3,\n", ""))
    (tmp_path / "labels.csv").write_text("id,label\n0,9.0\n1,10.0\n2,-1.0\n3,0\n4,0.0\n")
    data = load_source(str(path), ReadOptions(labels=read_label_file(tmp_path / "labels.csv")))
    assert [data.classes[code] for code in data.y] == [9, 10, -1, 0, 0]
    for labels in ([2.0, 1.0, None], [2.0, 1.0, float("nan")]):
        table = pa.table({"a": [1, 2, 3], "label": pa.array(labels, pa.float64())})
        pq.write_table(table, tmp_path / "t.parquet")
        data = load_source(str(tmp_path / "t.parquet"))
        assert data.classes == (1, 2) and data.y.tolist() == [1, 0]
    path.write_text("a,label\n1,1.0\n2,2.0\n3,0.5\n")
    with pytest.raises(InputError, match=r"line 4: the label 0\.5 is a decimal number"):
        load_source(str(path))
    pq.write_table(pa.table({"a": [1, 2], "label": [1.0, float("inf")]}), tmp_path / "t.parquet")
    with pytest.raises(InputError, match="is a decimal number"):
        load_source(str(tmp_path / "t.parquet"))


def test_bytes_are_texts(tmp_path: Path) -> None:
    path = tmp_path / "d.npz"
    names = np.array(["kätzchen".encode(), b"dog ", b"dog"])
    np.savez(path, x=np.array([b"one", b"two", b"three"]), y=names, ids=np.array([b"p", b"q", b"r"]))
    data = load_source(str(path))
    assert data.classes == ("dog", "kätzchen") and data.x.tolist() == ["one", "two", "three"]
    assert data.ids.tolist() == ["p", "q", "r"]
    assert encode(names)[1] == ("dog", "dog ", "kätzchen") and encode([b"10", b"9"])[1] == (9, 10)
    np.savez(path, x=np.eye(2), y=np.array([b"\xff", b"a"]))
    with pytest.raises(InputError, match="not UTF-8"):
        load_source(str(path))


def test_a_blank_true_label_is_no_true_label(tmp_path: Path) -> None:
    (tmp_path / "labels.csv").write_text("id,label,true\na,apple,apple\nb,pear, \nc,apple,plum\n")
    file = read_label_file(tmp_path / "labels.csv")
    true = true_codes(load_source(source(tmp_path), ReadOptions(labels=file)), file)
    assert true is not None and true.tolist() == [0, NO_TRUE, -1]
    (tmp_path / "labels.csv").write_text("id,label,true\na,apple,\nb,pear,\nc,apple,\n")
    file = read_label_file(tmp_path / "labels.csv")
    assert true_codes(load_source(source(tmp_path), ReadOptions(labels=file)), file) is None


def test_true_labels_beside_decisions_are_of_some_samples(tmp_path: Path) -> None:
    (tmp_path / "decisions.csv").write_text("id,label,decision,true\nc,pear,class,pear\n")
    file = read_label_file(tmp_path / "decisions.csv")
    true = true_codes(load_source(source(tmp_path), ReadOptions(labels=file)), file)
    assert true is not None and true.tolist() == [NO_TRUE, NO_TRUE, 1]


def test_ids_and_labels_that_an_export_made_harmless_are_known_again(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("id,a,label\n+p,1,=x\n''-q,2,''-y\nr,3,=x\n")  # the second has an apostrophe of its own
    (tmp_path / "labels.csv").write_text("id,label,true\n'+p,''-y,'=x\n''-q,'=x,''-y\nr,'@new,\n")
    file = read_label_file(tmp_path / "labels.csv")
    data = load_source(str(path), ReadOptions(labels=file))
    assert [data.classes[code] for code in data.y] == ["'-y", "=x", "@new"]
    true = true_codes(data, file)
    assert true is not None and [data.classes[code] for code in true[:2]] == ["=x", "'-y"]
    (tmp_path / "decisions.csv").write_text("id,label,decision\n'+p,''-y,class\n")
    data = load_source(str(path), ReadOptions(labels=read_label_file(tmp_path / "decisions.csv")))
    assert [data.classes[code] for code in data.y] == ["'-y", "'-y", "=x"]


def test_a_very_long_cell_does_not_hide_what_is_wrong(tmp_path: Path) -> None:
    path, long = tmp_path / "t.csv", "word " * 30_000
    path.write_text(f"text,label\n{long},x\nshort,\n")
    with pytest.raises(InputError, match="line 3"):
        load_source(str(path))
    path.write_text(f"text,label\n{long},x\nshort,y,z\n")
    with pytest.raises(InputError, match="line 3: 3 cells"):
        load_source(str(path))
    path.write_text(f"text,label\n{long},x\nshort,y\n")
    assert load_source(str(path)).x.tolist() == [long, "short"]


def test_a_whole_file_of_labels_makes_one_class_of_two(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("a,label\n1,9\n2,10\n3,ten\n4,11\n")
    (tmp_path / "labels.csv").write_text("id,label,true\n0,9,9\n1,10,11\n2,10,10\n3,9,9\n")
    data = load_source(str(path), ReadOptions(labels=read_label_file(tmp_path / "labels.csv")))
    assert data.classes == ("10", "11", "9") and data.y.tolist() == [2, 0, 0, 2]  # 11 is what one of them truly is
    (tmp_path / "decisions.csv").write_text("id,label,decision\n2,10,change\n")
    data = load_source(str(path), ReadOptions(labels=read_label_file(tmp_path / "decisions.csv")))
    assert data.classes == ("10", "11", "9", "ten") and data.y.tolist() == [2, 0, 0, 1]
