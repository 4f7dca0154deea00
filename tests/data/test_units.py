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
from labelsieve.data.source import load_source
from labelsieve.errors import InputError
from labelsieve.progress import Progress
from labelsieve.types import LabelledData


def load(path: Path, rows: list[str], **options: object) -> tuple[LabelledData, str]:
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    lines = io.StringIO()
    data = load_source(str(path), progress=Progress(stream=lines), **options)  # type: ignore[arg-type]
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
        ["5 kg", "300 g"],  # which is more?
        ["1,234", "5,678"],  # thousands, perhaps
        ["#12", "#13"],
    ],
)
def test_what_are_no_numbers_with_something_around(cells: list[str]) -> None:
    assert read_numbers(pa.array(cells)) is None


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


def test_prices_are_no_ids_and_are_read_again(tmp_path: Path) -> None:
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


@pytest.mark.parametrize("wrong", [{"before": 1}, {"thousands": ";"}, {"after": None}])
def test_a_damaged_encoding_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="not one of a table"):
        Encoding.from_json([{"name": "a", "kind": "number", "levels": [], **wrong}])
