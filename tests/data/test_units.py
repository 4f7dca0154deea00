"""Numbers with something around them: what is taken off, what makes a code of them, and new rows read the same way."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from labelsieve.data.cells import clearly_commas, read_numbers
from labelsieve.data.columns import Encoding
from labelsieve.data.source import ReadOptions, load_source
from labelsieve.data.units import FAMILIES, unit
from labelsieve.errors import InputError
from labelsieve.progress import Progress
from labelsieve.types import LabelledData


def load(path: Path, rows: list[str], **options: object) -> tuple[LabelledData, str]:
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    lines = io.StringIO()
    data = load_source(str(path), ReadOptions(**options), progress=Progress(stream=lines))  # type: ignore[arg-type]
    return data, lines.getvalue()


def kept(data: LabelledData) -> Encoding:
    """As a model keeps it."""
    return Encoding.from_json(json.loads(json.dumps(data.x.encoding.to_json())))


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        (["9'109.64", "8’548", "950.1", "-1'234'567"], [9109.64, 8548, 950.1, -1234567]),
        (["9\u00a0109.5", "9\u202f109", "1 234 567", "7"], [9109.5, 9109, 1234567, 7]),
        (["3.2 %", "-1.9%", "7"], [3.2, -1.9, 7]),
        (["$410.96", "-$35.4", "$ 7", "$-2"], [410.96, -35.4, 7, -2]),
        (["US$5", "US$6.5"], [5, 6.5]),
        (["EUR 5", "EUR6"], [5, 6]),
        (["3.168kg", "1.9 kg", "2 KG"], [3.168, 1.9, 2]),
        (["12 km/h", "13.5 km/h"], [12, 13.5]),
        (["−5 °C", "12.5 °C"], [-5, 12.5]),
        (["12 m2", "13 m2"], [12, 13]),
        (["3 days", "1 day", "4 days"], [3, 1, 4]),
        (["5歳", "17歳"], [5, 17]),
        (["$1,234.50", "$3", "$1,234"], [1234.5, 3, 1234]),
        (["$1,234", "$950"], [1234, 950]),
        (["1,234,567", "1,000"], [1234567, 1000]),
        (["1.234 €", "950 €"], [1234, 950]),
    ],
)
def test_signs_units_and_thousands(cells: list[str], expected: list[float]) -> None:
    found = read_numbers(pa.array(cells))
    assert found is not None and found.form == "number" and found.values.tolist() == expected
    again = read_numbers(pa.array(cells), found.form, around=found.around)
    assert again is not None and again.values.tolist() == expected


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        (["65,00 €", "1.250,00 €", "7 €"], [65, 1250, 7]),
        (["9\u00a0109,64", "85,00"], [9109.64, 85]),
        (["Kč 7,5", "Kč 1 250,00"], [7.5, 1250]),
        (["3,2 %", "4,25 %"], [3.2, 4.25]),
    ],
)
def test_decimal_commas_with_something_around(cells: list[str], expected: list[float]) -> None:
    found = read_numbers(pa.array(cells))
    assert found is not None and found.form == "comma" and found.values.tolist() == expected
    assert clearly_commas(pa.array(cells))


@pytest.mark.parametrize(
    "cells",
    [
        ["A12", "B7", "C9"],  # the letter varies
        ["T12", "T13"],  # a code, though it does not
        ["T007", "T008"],
        ["007A", "008A"],
        ["EUR007", "EUR008"],
        ["Room 1", "Room 2"],
        ["12:30 Uhr", "13:00 Uhr"],
        ["3.1.2", "4.2.2"],
        ["030 123 456", "040 123 456"],  # telephones
        ["12 34", "56 78"],
        ["5 kg", "300 g", "7"],  # seven of which?
        ["5 kg", "300 m"],
        ["2 h", "30 m"],  # metres are no time
        ["5 Mb", "300 kB"],  # bits, perhaps
        ["2 years", "3 months"],  # how long is a month?
        ["5 kg", "300 g", "T12", "7 lb"],
        ["1,234", "5,678"],  # thousands, perhaps
        ["#12", "#13"],
    ],
)
def test_what_are_no_numbers_with_something_around(cells: list[str]) -> None:
    assert read_numbers(pa.array(cells)) is None


@pytest.mark.parametrize(
    ("cells", "expected", "unit"),
    [
        (["5 kg", "300 g", "2kg", "1e3 mg"], [5, 0.3, 2, 0.001], "kg"),
        (["1.5 m", "20 cm", "-3 CM", "1 km"], [150, 20, -3, 100_000], "cm"),
        (["2 h", "30 min", "1 hour", "45 mins", "90 Minutes."], [120, 30, 60, 45, 90], "min"),
        (["1 l", "1.5 L", "250 ml", "3 cl"], [1, 1.5, 0.25, 0.03], "l"),
        (["2 GB", "500 MB", "1 gb", "1,000 MB", "1,200.5 KB"], [2, 0.5, 1, 1, 0.0012005], "GB"),
        (["1 lb", "16 oz", "2 pounds", "", None], [1, 1, 2, np.nan, np.nan], "lb"),
        (["5 µm", "2 \u03bcm", "1 mm"], [5, 2, 1000], "µm"),
        (["3 days", "1 week", "2 d", "3 weeks"], [3 / 7, 1, 2 / 7, 3], "week"),
        (["5 kg"] * 8 + ["300 g", "unknown"], [5] * 8 + [0.3, np.nan], "kg"),  # a word is no number, here as elsewhere
    ],
)
def test_units_of_one_family_are_read_as_one(cells: list[str], expected: list[float], unit: str) -> None:
    found = read_numbers(pa.array(cells))
    assert found is not None and found.form == "number" and found.around.after == unit
    np.testing.assert_allclose(found.values, expected, rtol=1e-12)
    again = read_numbers(pa.array(cells), found.form, around=found.around)
    assert again is not None
    np.testing.assert_array_equal(again.values, found.values)
    backwards = read_numbers(pa.array(cells[::-1]))
    assert backwards is not None and backwards.around == found.around


def test_units_with_decimal_commas() -> None:
    found = read_numbers(pa.array(["1,5 kg", "300,25 g", "2 kg"]))
    assert found is not None and found.form == "comma"
    np.testing.assert_allclose(found.values, [1.5, 0.30025, 2])


def test_no_unit_is_in_two_families() -> None:
    every = [one for units in FAMILIES.values() for one in units]
    assert len(set(every)) == len(every) and all(unit(one) == one for one in every)
    assert [unit(word) for word in ("Kg", "GRAMS", "Inches", "Hrs", "Feet", "mL", "KB", "tb")] == [
        *("kg", "g", "in", "h", "ft", "ml", "kB", "TB"),
    ]
    assert {unit(word) for word in ("M", "Mg", "Mm", "NM", "Nm", "Mb", "S", "T", "km/h", "month", "", "%")} == {None}


def test_new_rows_are_read_in_the_unit_of_the_run(tmp_path: Path) -> None:
    rows = ["w,a,label", *(f"{(i, i * 100)[i % 2]} {('kg', 'g')[i % 2]},{i % 7},{'xy'[i % 2]}" for i in range(60))]
    data, said = load(tmp_path / "t.csv", rows)
    np.testing.assert_allclose(np.asarray(data.x)[1:4, 0], [0.1, 2, 0.3], rtol=1e-6)
    assert "column 'w': read as numbers of 'kg', whatever the unit (mass)\n" in said
    encoding = kept(data)
    new, said = load(tmp_path / "n.csv", ["w,a", "5 g,1", "2 lb,1", "7,1"], labelled=False, encoding=encoding)
    np.testing.assert_allclose(np.asarray(new.x)[:2, 0], [0.005, 0.90718474], rtol=1e-6)
    assert "column w: 2 numbers and 1 other value ('7', line 4), which counts as missing" in said
    for cells in (["7,1", "8,1"], ["7 m,1"]):  # of which unit, if any?
        with pytest.raises(
            InputError, match="'w' holds text where the model was trained with numbers with units of mass"
        ):
            load(tmp_path / "n.csv", ["w,a", *cells], labelled=False, encoding=encoding)
    # A model that needs no such thing says nothing of it, and an earlier version reads it.
    assert ["family" in entry for entry in data.x.encoding.to_json()] == [True, False]


@pytest.mark.parametrize(
    ("cells", "minutes"),
    [
        (["14:05", "9:30", "00:00", "23:59"], [845, 570, 0, 1439]),
        (["14:05:30", "9:30:00"], [845.5, 570]),
        (["2:05 PM", "12:00 am", "12:30pm"], [845, 0, 750]),
    ],
)
def test_times_of_the_day_are_parts_of_it(cells: list[str], minutes: list[float]) -> None:
    found = read_numbers(pa.array(cells))
    assert found is not None and found.form == "clock"
    np.testing.assert_allclose(found.values * 24 * 60, minutes)


@pytest.mark.parametrize(
    "cells", [["25:21", "30:28"], ["16:9", "4:3"], ["14:65", "13:70"], ["1:02:03:04", "1:00:00:00"]]
)
def test_what_are_no_times(cells: list[str]) -> None:
    assert read_numbers(pa.array(cells)) is None


def test_times_are_read_the_same_however_they_are_written(tmp_path: Path) -> None:
    """Arrow knows times of two digits each by itself; one row with a digit less must not make ids of them."""
    rows = ["t,a,label", *(f"{i % 24:02}:{i:02},{i % 7},{'xy'[i % 2]}" for i in range(60))]
    data, _ = load(tmp_path / "t.csv", rows)
    other, said = load(tmp_path / "o.csv", [*(row.removeprefix("0") for row in rows), "late,3,y"])
    np.testing.assert_array_equal(np.asarray(other.x)[:60, [0, 2]], np.asarray(data.x))
    assert "column t: 60 times and 1 other value ('late', line 62), which counts as missing" in said
    new, _ = load(tmp_path / "n.csv", ["t,a", "9:30,1"], labelled=False, encoding=kept(data))
    new2, _ = load(tmp_path / "n.csv", ["t,a", "09:30:00,1"], labelled=False, encoding=kept(other))
    assert np.asarray(new.x)[0, 0] == np.asarray(new2.x)[0, 0] == np.float32(570 / 1440)
    with pytest.raises(InputError, match="'t' holds text where the model was trained with times such as 14:05"):
        load(tmp_path / "n.csv", ["t,a", "soon,1"], labelled=False, encoding=kept(data))


def test_a_unit_of_few_cells_is_a_slip() -> None:
    found = read_numbers(pa.array([*["5 kg"] * 18, "7 lb", "7"]))
    assert found is not None and found.words == ("7 lb",) and found.values[-1] == 7
    found = read_numbers(pa.array([*["5"] * 19, "7 lb"]))
    assert found is not None and found.words == ("7 lb",)


@pytest.mark.parametrize(
    ("cells", "form"),
    [
        (["Jan 3, 1970", "January 3 1970", "1970-01-03"], "mon d y"),
        (["3 Jan 1970", "3. January 1970", "03-Jan-70", "3rd Jan. 1970"], "d mon y"),
    ],
)
def test_months_by_their_names(cells: list[str], form: str) -> None:
    found = read_numbers(pa.array(cells))
    assert found is not None and found.form == form and found.values.tolist() == [2] * len(cells)
    assert read_numbers(pa.array([cell.replace("Jan", "Jux") for cell in cells[:2]])) is None
    assert read_numbers(pa.array([cell.replace("3", "32") for cell in cells[:2]])) is None


def test_prices_are_no_ids_and_are_readselect_again(tmp_path: Path) -> None:
    rows = ["price,share,label", *(f"${1000.25 + i:.2f},{i / 2} %,{'xy'[i % 2]}" for i in range(60))]
    data, said = load(tmp_path / "t.csv", rows)
    assert np.asarray(data.x)[:2].tolist() == [[1000.25, 0], [1001.25, 0.5]]
    assert "columns 'price', 'share': read as numbers without '$', '%'\n" in said and "ids" not in said
    encoding = kept(data)
    for cells in (["$7.50,3 %", "$8,4%"], ["7.50,3", "8,4"]):
        new, _ = load(tmp_path / "n.csv", ["price,share", *cells], labelled=False, encoding=encoding)
        assert np.asarray(new.x).tolist() == [[7.5, 3], [8, 4]]
    with pytest.raises(InputError, match="'price' holds text where the model was trained with numbers"):
        load(tmp_path / "n.csv", ["price,share", "€7.50,3 %"], labelled=False, encoding=encoding)


def test_thousands_of_the_run_are_those_of_new_rows(tmp_path: Path) -> None:
    rows = ["price;label", *(f"{p};{'xy'[i % 2]}" for i, p in enumerate(["950 €", "1.234 €"] * 30))]
    encoding = kept(load(tmp_path / "t.csv", rows)[0])
    assert encoding.columns[0].thousands == "."
    new, _ = load(tmp_path / "n.csv", ["price;b", "1.234;1", "12;1"], labelled=False, encoding=encoding)
    assert np.asarray(new.x).ravel().tolist() == [1234, 12]


def test_what_is_measured_is_never_an_id(tmp_path: Path) -> None:
    def features(cells: list[str]) -> list[str]:
        rows = ["a,b,label", *(f"{cell},{i % 7},{'xy'[i % 2]}" for i, cell in enumerate(cells))]
        return [column.name for column in load(tmp_path / "t.csv", rows)[0].x.encoding.columns]

    assert features([f"{i + 0.5}{('kg', 'lb')[i % 2]}" for i in range(60)]) == ["a", "b"]
    assert features([f"{i} kg" for i in range(60)]) == ["a", "b"]
    assert features([f"T{i:03}" for i in range(60)]) == ["b"]
    assert features([f"{i}{'ABC'[i % 3]}" for i in range(60)]) == ["b"]


@pytest.mark.parametrize(
    "wrong", [{"before": 1}, {"thousands": ";"}, {"after": None}, {"family": "mass"}, {"family": 3}]
)
def test_a_damaged_encoding_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="not one of a table"):
        Encoding.from_json([{"name": "a", "kind": "number", "levels": [], **wrong}])
