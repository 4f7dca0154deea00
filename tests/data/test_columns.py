"""Columns with invalid cells, dates and ids, and new tables that are read as the first one was."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pytest

from labelsieve.data.columns import Column, Encoding
from labelsieve.data.source import ReadOptions, load_source
from labelsieve.errors import InputError
from labelsieve.progress import Progress
from labelsieve.types import LabelledData


def load(path: Path, rows: list[str], **options: object) -> tuple[LabelledData, str]:
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    lines = io.StringIO()
    data = load_source(str(path), ReadOptions(**options), progress=Progress(stream=lines))  # type: ignore[arg-type]
    return data, lines.getvalue()


def kept(data: LabelledData) -> Encoding:
    """The encoding as a model file stores it."""
    return Encoding.from_json(json.loads(json.dumps(data.x.encoding.to_json())))


def numbers(n: int = 30) -> list[str]:
    return [f"{i / 2},{'xy'[i % 2]}" for i in range(n)]


def test_one_invalid_cell_does_not_make_numbers_a_category(tmp_path: Path) -> None:
    rows = ["a,label", *numbers()]
    rows[8] = "n.a.,y"
    data, said = load(tmp_path / "t.csv", rows)
    assert data.x.shape == (30, 2) and np.asarray(data.x)[7].tolist() == [7.5, 1]
    assert "column a has 29 numbers" in said and "'n.a.', line 9" in said
    rows[9] = "?,x"
    _, said = load(tmp_path / "t.csv", rows)
    assert "column a has 28 numbers" in said and "'n.a.', line 9" in said


def test_other_texts_among_numbers_are_missing_in_prediction_too(tmp_path: Path) -> None:
    rows = ["a,label", *numbers()]
    rows[8] = "n.a.,y"
    encoding = kept(load(tmp_path / "t.csv", rows)[0])
    new = {"labelled": False, "encoding": encoding}
    assert np.asarray(load(tmp_path / "n.csv", ["a", "NA"], **new)[0].x)[0, 1] == 1
    data, said = load(tmp_path / "n.csv", ["a", "4", "unknown"], **new)
    assert np.asarray(data.x)[:, 1].tolist() == [0, 1] and "'unknown', line 3" in said
    with pytest.raises(InputError, match="'a' has text"):
        load(tmp_path / "n.csv", ["a", "unknown"], **new)
    with pytest.raises(InputError, match=r"'a' has date32\[day\]"):
        load(tmp_path / "n.csv", ["a", "2024-01-01"], **new)


AMOUNTS = ["€{}", "{} m²", "-${}.50", "{} %", "1'{}", "{} km/h", "{}kg", "{}g", "{}km/h", "{}€/kg", "$1.{}M"]
AMOUNTS += ["1.{}.500", "1,{}.50", "1.{},50", "CHF 1,{}", "1 {}.50 €", "1\u202f{}\u00a0€", "{}°C"]


@pytest.mark.parametrize("form", AMOUNTS)
@pytest.mark.parametrize("different", [7, 60, 120])
def test_a_note_explains_that_amounts_are_not_read_as_numbers(tmp_path: Path, form: str, different: int) -> None:
    cells = [form.format(200 + i % different) for i in range(120)]
    rows = ["a,b,label", *(f'"{cell}",{i % 7},{"xy"[i % 2]}' for i, cell in enumerate(cells))]
    _, said = load(tmp_path / "t.csv", rows)
    left_out = different == 120 and " " not in form  # as if they were ids
    assert ("column a is left out" if left_out else "column a is read as categories") in said
    assert repr(form.format(200)) in said and "as numbers" in said and said.count("column a is") == 1


def test_amounts_below_a_thousand_have_no_separator(tmp_path: Path) -> None:
    cells = ["1,234.50", "950.00", "870.10", "15.00"]
    rows = ["a,b,label", *(f'"{cells[i % 4]}",{i % 7},{"xy"[i % 2]}' for i in range(60))]
    assert "'1,234.50'" in load(tmp_path / "t.csv", rows)[1]


CODES = [("#{}", True), ("{}T", True), ("{}B", True), ("{}XL", True), ("K{}", True), ("K{} b", False)]
CODES += [("{}.168.100.101", True), ("{}kg7", True)]


@pytest.mark.parametrize(("form", "left_out"), CODES)
def test_codes_with_digits_are_no_amounts(tmp_path: Path, form: str, left_out: bool) -> None:
    rows = ["a,b,label", *(f"{form.format(200 + i)},{i % 7},{'xy'[i % 2]}" for i in range(120))]
    _, said = load(tmp_path / "t.csv", rows)
    assert ("column a is left out because its values are ids" in said) == left_out
    assert "as numbers" not in said


def test_dates_are_one_column_of_days(tmp_path: Path) -> None:
    rows = ["since,label", *(f"2024-0{1 + i % 9}-1{i % 10},{'xy'[i % 2]}" for i in range(60))]
    data, _ = load(tmp_path / "t.csv", rows)
    column = data.x.encoding.columns[0]
    assert data.x.shape == (60, 1) and column.form == "date"
    assert np.asarray(data.x)[0, 0] + column.origin == 19732  # 2024-01-10
    assert data.x.row(0)["since"].isoformat() == "2024-01-10"
    rows[5] = "unknown,x"  # now pyarrow reads text
    written, said = load(tmp_path / "u.csv", rows)
    assert "59 dates" in said and "'unknown', line 6" in said and written.x.shape == (60, 2)
    new, _ = load(tmp_path / "n.csv", ["since", "2024-01-11", "unknown"], labelled=False, encoding=kept(written))
    first = written.x.encoding.columns[0]
    assert np.allclose(np.asarray(new.x), [[19733 - first.origin, 0], [first.median, 1]])


MOMENTS = ["0{month}/0{day}/2024", "{month}/{day}/21", "1{day}.{month}.24", "1{day} Jan 202{month}"]
MOMENTS += ["Jan {day}; 202{month}", "{month}:1{day}:33", "{month}/{day}/2024 {month}:15 pm", "2024/{month}/{day}"]


@pytest.mark.parametrize("form", MOMENTS)
@pytest.mark.parametrize("different", [9, 81])
def test_a_note_explains_that_some_dates_and_times_are_not_read(tmp_path: Path, form: str, different: int) -> None:
    cells = [form.replace(";", ",").format(day=1 + i % different % 9, month=1 + i % different // 9) for i in range(81)]
    rows = ["day,b,label", *(f'"{cell}",{i % 7},{"xy"[i % 2]}' for i, cell in enumerate(cells))]
    data, said = load(tmp_path / "t.csv", rows)
    assert all(column.kind == "category" for column in data.x.encoding.columns if column.name == "day")
    assert "column day is" in said and repr(cells[0]) in said and "YYYY-MM-DD" in said
    assert "most frequent" not in said


@pytest.mark.parametrize("form", ["1{}2-45-6789", "192.168.{}.1", "C12:3{}", "{}/3"])
def test_codes_are_no_dates(tmp_path: Path, form: str) -> None:
    rows = ["a,b,label", *(f"{form.format(i % 9)},{i % 7},{'xy'[i % 2]}" for i in range(60))]
    assert "YYYY-MM-DD" not in load(tmp_path / "t.csv", rows)[1]


def test_a_note_says_in_which_order_dates_are_read(tmp_path: Path) -> None:
    cells = [(f"{1 + i % 28}/{1 + i % 12}/2024", f"{1 + i % 12}/{1 + i % 28}/2024") for i in range(60)]
    rows = ["from,to,label", *(f"{first},{last},{'xy'[i % 2]}" for i, (first, last) in enumerate(cells))]
    said = load(tmp_path / "t.csv", rows)[1]
    assert "day/month/year in from" in said and "month/day/year in to" in said


@pytest.mark.parametrize("cells", [["5", "5"], ["5", "5.0"], ["x", "x"], ["", ""], ["NA", ""], ["2024-01-10"] * 2])
def test_columns_with_one_value_are_not_features(tmp_path: Path, cells: list[str]) -> None:
    rows = ["a,b,c,label", *(f"{i % 7},{cells[i % 2]},u,{'xy'[i % 2]}" for i in range(30))]
    data, said = load(tmp_path / "t.csv", rows)
    assert [column.name for column in data.x.encoding.columns] == ["a"] and data.x.shape == (30, 1)
    assert said.count("left out") == 1 and ": b, c\n" in said
    for new in (["a", "3"], ["b,a", "7,3"], ["c,a,b", ",3,"]):
        table, said = load(tmp_path / "n.csv", new, labelled=False, encoding=kept(data))
        assert np.asarray(table.x).tolist() == [[3]] and not said
    with pytest.raises(InputError, match=r"t\.csv has no features: .* b, c"):
        load(tmp_path / "t.csv", [row.partition(",")[2] for row in rows])


def test_missing_values_are_a_second_value(tmp_path: Path) -> None:
    rows = ["a,b,label", *(f"{'5' * (i % 2)},{'v' * (i % 3 > 0)},{'xy'[i % 2]}" for i in range(30))]
    data, said = load(tmp_path / "t.csv", rows)
    assert [column.name for column in data.x.encoding.columns] == ["a", "b"] and "left out" not in said


def test_a_model_of_arrays_reads_columns_with_one_value(tmp_path: Path) -> None:
    """It has no encoding, so that the new table says how to read its columns."""
    for options in ({"labelled": False}, {"allow_one_class": True}):
        assert load(tmp_path / "t.csv", ["a,b,label", "5,1,x"], **options)[0].x.matrix.tolist() == [[5, 1]]


def test_texts_beside_columns_with_one_value(tmp_path: Path) -> None:
    rows = ["body,b,label", *(f"these are the words {i},7,{'xy'[i % 2]}" for i in range(30))]
    assert load(tmp_path / "t.csv", rows)[0].kind == "text"


def test_seconds_of_one_day_stay_different(tmp_path: Path) -> None:
    rows = ["at,label", *(f"2024-05-01 10:00:{i:02},{'xy'[i % 2]}" for i in range(60))]
    assert len(np.unique(np.asarray(load(tmp_path / "t.csv", rows)[0].x))) == 60


def test_ids_are_not_features(tmp_path: Path) -> None:
    rows = ["a,code,label", *(f"{i % 7},C{i:03}x,{'xy'[i % 2]}" for i in range(60))]
    data, said = load(tmp_path / "t.csv", rows)
    assert data.x.shape == (60, 1) and "column code is left out" in said
    new, _ = load(tmp_path / "n.csv", ["code,a", "other,3"], labelled=False, encoding=kept(data))
    assert np.asarray(new.x).tolist() == [[3]]
    again = ["a,code,label", *(f"{i % 7},C{i % 59:03}x,{'xy'[i % 2]}" for i in range(60))]
    assert [c.name for c in load(tmp_path / "u.csv", again)[0].x.encoding.columns] == [
        "a",
        "code",
    ]  # one occurs twice
    few, _ = load(tmp_path / "v.csv", rows[:30])
    assert [c.name for c in few.x.encoding.columns] == ["a", "code"]  # few enough for a category
    with pytest.raises(InputError, match="no feature columns: code"):
        load(tmp_path / "w.csv", [row.partition(",")[2] for row in rows])


@pytest.mark.parametrize(
    "cells",
    [
        [f"{i + 1:05}" for i in range(60)],
        [str(900 - i * 7 % 60) for i in range(60)],  # shuffled
        [str(i + i // 2) for i in range(60)],  # every third row was deleted
        [*(str(i) for i in range(58)), "", ""],
    ],
)
def test_row_numbers_are_not_features(tmp_path: Path, cells: list[str]) -> None:
    rows = ["nr,a,label", *(f"{cell},{i % 7},{'xy'[i % 2]}" for i, cell in enumerate(cells))]
    data, said = load(tmp_path / "t.csv", rows)
    assert [column.name for column in data.x.encoding.columns] == ["a"] and data.x.shape == (60, 1)
    assert "column nr is left out" in said
    new, _ = load(tmp_path / "n.csv", ["a", "3"], labelled=False, encoding=kept(data))
    assert np.asarray(new.x).tolist() == [[3]]
    with pytest.raises(InputError, match="no feature columns: nr"):
        load(tmp_path / "w.csv", [f"{nr},{label}" for nr, _, label in (row.split(",") for row in rows)])


@pytest.mark.parametrize(
    "cells",
    [
        [str(i) for i in range(50)],  # few
        [str(2 * i) for i in range(60)],  # half of the range is missing
        [str(i % 55) for i in range(60)],  # some occur twice
        [str(i / 2) for i in range(60)],
        [f"2024-0{i // 28 + 1}-{i % 28 + 1:02}" for i in range(60)],  # dates
    ],
)
def test_other_numbers_stay_features(tmp_path: Path, cells: list[str]) -> None:
    data, said = load(tmp_path / "t.csv", ["a,label", *(f"{cell},{'xy'[i % 2]}" for i, cell in enumerate(cells))])
    assert data.x.shape == (len(cells), 1) and "left out" not in said


def test_models_of_earlier_versions_are_read(tmp_path: Path) -> None:
    old = [
        {"name": "n", "kind": "number", "median": 3.0, "gaps": True, "levels": [], "others": False},
        {"name": "d", "kind": "category", "median": 0.0, "gaps": False, "levels": ["2024-01-01"], "others": False},
    ]
    data, _ = load(tmp_path / "t.csv", ["n,d", "1,2024-01-01", ",2024-01-02"], labelled=False,
                   encoding=Encoding.from_json(old))  # fmt: skip
    assert np.asarray(data.x).tolist() == [[1, 0, 1], [3, 1, 0]]
    spaced = Encoding.from_json([{**old[0], "name": " n"}])  # a table file has no spaces around names
    data, _ = load(tmp_path / "s.csv", ["a, n", "x,1", "y,2"], labelled=False, encoding=spaced)
    assert np.asarray(data.x).tolist() == [[1, 0], [2, 0]]


def test_decimal_commas_are_kept_for_new_rows(tmp_path: Path) -> None:
    rows = ["temp;mass;n;label", *(f"{i},{i}5;{i % 9 + 1},{i % 7}50;{i};{'xy'[i % 2]}" for i in range(30))]
    data, said = load(tmp_path / "t.csv", rows)
    assert data.x.shape == (30, 3) and np.allclose(np.asarray(data.x)[12], [12.125, 4.55, 12])
    assert said.count("decimal commas in temp, mass") == 1
    encoding = kept(data)
    assert [column.form for column in encoding.columns] == ["comma", "comma", "number"]
    new, said = load(tmp_path / "n.csv", ["mass,temp,n", '"1,234","1,5",3'], labelled=False, encoding=encoding)
    assert np.allclose(np.asarray(new.x), [[1.5, 1.234, 3]]) and "decimal" not in said
    with pytest.raises(InputError, match=r"'temp' has text.*decimal commas"):
        load(tmp_path / "n.csv", ["temp,mass,n", "1.5,2,3"], labelled=False, encoding=encoding)


def test_other_columns_decide_about_ambiguous_commas(tmp_path: Path) -> None:
    cells = [f'"{i + 1},234"' for i in range(30)]
    alone = ["a,label", *(f"{cell},{'xy'[i % 2]}" for i, cell in enumerate(cells))]
    data, said = load(tmp_path / "t.csv", alone)
    assert data.x.encoding.columns[0].kind == "category" and "decimal" not in said
    beside = ["a,b,label", *(f'{cell},"{i},5",{"xy"[i % 2]}' for i, cell in enumerate(cells))]
    data, said = load(tmp_path / "t.csv", beside)
    assert np.allclose(np.asarray(data.x)[1], [2.234, 1.5])
    assert "decimal commas in a, b" in said
    semicolons = ["a;label", *(f"{cell};{'xy'[i % 2]}" for i, cell in enumerate(cells))]
    data, said = load(tmp_path / "t.csv", semicolons)
    assert np.allclose(np.asarray(data.x)[1], [2.234]) and "decimal commas in a" in said


def test_many_columns_with_commas_are_one_note(tmp_path: Path) -> None:
    names = [f"c{j}" for j in range(14)]
    rows = [";".join([*names, "label"]), *(";".join([*[f"{i},5"] * 14, "xy"[i % 2]]) for i in range(20))]
    said = load(tmp_path / "t.csv", rows)[1]
    assert "c9 and 4 more" in said and said.count("\n") == 1


def test_numbers_with_commas_next_to_texts(tmp_path: Path) -> None:
    rows = ["size;remark;label", *(f"{i},5;this is the remark number {i};{'xy'[i % 2]}" for i in range(60))]
    encoding = load(tmp_path / "t.csv", rows)[0].x.encoding
    assert encoding.commas == ("size",) and encoding.texts == ["remark"]


@pytest.mark.parametrize(
    ("form", "cell", "trained"),
    [
        ("d.m.y", "{day}.{month}.2024 12:00", "31.12.2024"),
        ("d/m/y", "{day}/{month}/2024", "31/12/2024"),
        ("m/d/y", "{month}/{day}/2024", "12/31/2024"),
    ],
)
def test_dates_are_read_in_the_order_of_the_run(tmp_path: Path, form: str, cell: str, trained: str) -> None:
    cells = [cell.format(day=1 + i % 28, month=1 + i % 12) for i in range(60)]
    data, _ = load(tmp_path / "t.csv", ["since,label", *(f"{c},{'xy'[i % 2]}" for i, c in enumerate(cells))])
    encoding = kept(data)
    assert data.x.shape == (60, 1) and encoding.columns[0].form == form
    new, _ = load(tmp_path / "n.csv", ["since", cell.format(day=2, month=3)], labelled=False, encoding=encoding)
    noon = 0.5 * (form == "d.m.y")
    assert np.asarray(new.x)[0, 0] + encoding.columns[0].origin == 19784 + noon  # the 2nd of March
    new, _ = load(tmp_path / "n.csv", ["since", "2024-03-02"], labelled=False, encoding=encoding)
    assert np.asarray(new.x)[0, 0] + encoding.columns[0].origin == 19784
    with pytest.raises(InputError, match=f"'since' has text.*{trained}"):
        load(tmp_path / "n.csv", ["since", "soon"], labelled=False, encoding=encoding)


def test_a_model_with_decimal_points_reads_no_commas(tmp_path: Path) -> None:
    """Models of the first version do not store the form of a column."""
    old = [{"name": "n", "kind": "number", "median": 3.0, "gaps": True, "levels": [], "others": False}]
    rows = ["n;m", "1,5;0", "2.5;0"]
    data, said = load(tmp_path / "t.csv", rows, labelled=False, encoding=Encoding.from_json(old))
    assert np.asarray(data.x).tolist() == [[3, 1], [2.5, 0]] and "'1,5', line 2" in said


@pytest.mark.parametrize("wrong", [{"form": "code"}, {"origin": "x"}, {"origin": True}])
def test_a_damaged_encoding_is_refused(wrong: dict[str, object]) -> None:
    entry = Encoding((Column("a", "number"),)).to_json()[0]
    with pytest.raises(ValueError, match="not one of a table"):
        Encoding.from_json([{**entry, **wrong}])
    for damaged in (1, "abc", None):  # the errors that `model_file.load` reports in one line
        with pytest.raises((TypeError, ValueError)):
            Encoding.from_json([damaged])  # type: ignore[list-item]


@pytest.mark.parametrize("scale", [1, 0.25])
def test_large_numbers_with_small_differences_stay_different(tmp_path: Path, scale: float) -> None:
    """Seconds since 1970: float32 rounds them to 128 seconds."""
    rows = [f"{(1_700_000_000 + 40 * (i % 2) + i // 2) * scale},{'xy'[i % 2]}" for i in range(40)]
    data, _ = load(tmp_path / "t.csv", ["t,label", *rows])
    x = np.asarray(data.x)[:, 0]
    assert len(np.unique(x)) == 40 and x[data.y == 0].max() < x[data.y == 1].min()
    new, _ = load(tmp_path / "n.csv", ["t", rows[7].partition(",")[0], "NA"], labelled=False, encoding=kept(data))
    assert np.asarray(new.x)[:, 0].tolist() == [x[7], np.float32(kept(data).columns[0].median)]


def test_numbers_that_float32_holds_stay_as_they_are(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    rows = [
        f"{2 * i + 1_000_000},{area:.1f},{draw},{'xy'[i % 2]}" for i, (area, draw) in enumerate(rng.random((60, 2)))
    ]
    data, _ = load(tmp_path / "t.csv", ["a,b,c,label", *rows])
    assert [column.origin for column in data.x.encoding.columns] == [0, 0, 0]


@pytest.mark.parametrize("cell", ["1e39", "-1e39", "1e308"])
def test_a_number_too_large_for_float32_is_named(tmp_path: Path, cell: str) -> None:
    rows = ["a,label", *numbers()]
    encoding = kept(load(tmp_path / "t.csv", rows)[0])
    rows[8] = f"{cell},y"
    with pytest.raises(InputError, match=r"t\.csv, line 9: column 'a' has -?1e\+\d+"):
        load(tmp_path / "t.csv", rows)
    with pytest.raises(InputError, match=r"n\.csv, line 3: column 'a'"):
        load(tmp_path / "n.csv", ["a", "1", cell], labelled=False, encoding=encoding)
    far = ["a,label", *(f"{sign}3e38,x" for sign in ("", "-", "")), "1.1,y"]
    assert np.isfinite(np.asarray(load(tmp_path / "f.csv", far)[0].x)).all()


def test_a_column_with_units_is_a_category(tmp_path: Path) -> None:
    rows = ["a,weight,label", *(f"{i % 7}.5,{i % 9} kg,{'xy'[i % 2]}" for i in range(60))]
    data, _ = load(tmp_path / "t.csv", rows)
    assert data.x.encoding.columns[1].kind == "category"


def test_only_the_most_frequent_values_of_a_category_are_used(tmp_path: Path) -> None:
    cells = ["red and blue"] * 3 + [f"shade {i}" for i in range(60)]
    rows = ["a,b,label", *(f"{cell},{i % 5},{'xy'[i % 2]}" for i, cell in enumerate(cells))]
    column = load(tmp_path / "t.csv", rows)[0].x.encoding.columns[0]
    assert len(column.levels) == 49 and column.others and "red and blue" in column.levels
