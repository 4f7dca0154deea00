"""Which column is the texts, and that a model remembers it."""

from __future__ import annotations

import csv
import io
import pickle
from pathlib import Path

import numpy as np
import pytest

from labelsieve.cli.app import run
from labelsieve.data.source import ReadOptions, load_source
from labelsieve.errors import InputError, MissingColumnError
from labelsieve.progress import Progress
from labelsieve.types import LabelledData

FRUIT = ("apple", "pear", "plum", "fig", "grape")
METAL = ("iron", "tin", "zinc", "lead", "gold")


def texts(n: int = 60) -> list[str]:
    """Half of them on fruit, half on metal, each with a number of its own."""
    words = (METAL, FRUIT)
    return [f"{words[i % 2][i % 5]} and {words[i % 2][i // 5 % 5]} in box {i}" for i in range(n)]


def load(path: Path, columns: dict[str, list[str]], **options: object) -> tuple[LabelledData, str]:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))
    lines = io.StringIO()
    data = load_source(str(path), ReadOptions(**options), progress=Progress(stream=lines))  # type: ignore[arg-type]
    return data, lines.getvalue()


def labels(n: int = 60) -> list[str]:
    return [("metal", "fruit")[i % 2] for i in range(n)]


def test_a_column_that_looks_like_text_is_the_texts(tmp_path: Path) -> None:
    columns = {"ticket": [str(1000 + i) for i in range(60)], "body": texts(), "label": labels()}
    data, said = load(tmp_path / "t.csv", columns)
    assert data.kind == "text" and data.x.tolist() == texts()
    assert "column body is read as text" in said
    assert "column body are used, and not ticket" in said
    # Known again in a file where it would not be found.
    new, said = load(tmp_path / "n.csv", {"body": ["tin"]}, labelled=False, encoding=data.x.encoding)
    assert new.kind == "text" and new.x.tolist() == ["tin"] and not said
    with pytest.raises(InputError, match="no column body"):
        load(tmp_path / "n.csv", {"words": ["tin"]}, labelled=False, encoding=data.x.encoding)


def test_a_column_named_text(tmp_path: Path) -> None:
    data, said = load(tmp_path / "t.csv", {"text": ["a", "b"], "body": ["one two three four", ""], "label": ["x", "y"]})
    assert data.x.tolist() == ["a", "b"] and "column text" in said and "body" in said
    assert getattr(data.x, "encoding", None) is None


def test_the_user_names_the_column(tmp_path: Path) -> None:
    columns = {"text": ["1", "2"], "path": ["p", "q"], "note": ["7", "8"], "label": ["x", "y"]}
    data, _ = load(tmp_path / "t.csv", columns, text_column="note")
    assert data.kind == "text" and data.x.tolist() == ["7", "8"]
    with pytest.raises(InputError, match="no column 'words'"):
        load(tmp_path / "t.csv", columns, text_column="words")


def test_texts_next_to_numbers_are_both_used(tmp_path: Path) -> None:
    ages, ids = [str(i % 9) for i in range(60)], [f"T{i}" for i in range(60)]
    columns = {"key": ids, "age": ages, "full address": texts(), "title": texts(), "label": labels()}
    data, said = load(tmp_path / "t.csv", columns)
    assert data.kind == "table" and data.x.encoding.texts == ["full address", "title"]
    assert data.x.numbers.shape == (60, 1) and data.x.shape[1] > 20 and "'full address', title" in said
    assert data.x.texts[0] == f"{texts()[0]}\n{texts()[0]}"
    again, _ = load(tmp_path / "n.csv", columns, labelled=False, encoding=data.x.encoding)
    assert np.array_equal(again.x.matrix, data.x.matrix)
    assert load(tmp_path / "t.csv", columns, text_column="full address")[0].kind == "text"
    assert load(tmp_path / "t.csv", columns, ignore_columns=["full address", "title"])[0].x.shape == (60, 1)


def test_remarks_and_ids_need_no_choice(tmp_path: Path) -> None:
    numbers = {"age": [str(i % 9) for i in range(60)], "label": labels()}
    for cells in ([*texts(20), *[""] * 40], [f"T{i}" for i in range(60)]):  # remarks here and there; ids
        assert load(tmp_path / "t.csv", {"a": cells, **numbers})[0].kind == "table"


def test_two_columns_of_texts_are_both_used(tmp_path: Path) -> None:
    columns = {"subject": texts(), "body": [text + "!" for text in texts()], "label": labels()}
    assert load(tmp_path / "t.csv", columns)[0].x.encoding.texts == ["subject", "body"]


@pytest.mark.parametrize(
    "cells",
    [
        ["it is one of two", "and this is the other"] * 30,  # levels, however long
        [*texts(20), *[""] * 40],  # a remark here and there
    ],
)
def test_what_does_not_look_like_text(tmp_path: Path, cells: list[str]) -> None:
    assert load(tmp_path / "t.csv", {"a": cells, "label": labels()})[0].kind == "table"


def test_short_texts_are_texts_if_there_is_no_other_feature(tmp_path: Path) -> None:
    names = [f"Mr John Smith-{i}" for i in range(60)]
    columns = {"full name": names, "colour": ["red", "blue"] * 30, "label": labels()}
    data, said = load(tmp_path / "t.csv", columns)
    assert data.kind == "table"
    assert "category" in said and "--text-column 'full name'" in said
    del columns["colour"]
    for more in ({}, {"nr": [str(i) for i in range(60)]}, {"code": [f"T{i}" for i in range(60)]}):
        data, said = load(tmp_path / "t.csv", {**columns, **more})
        assert data.kind == "text" and data.x.tolist() == names
        assert "column 'full name' is read as text" in said
    for two in (["Ms Smith"] * 60, [f"Smith-{i}" for i in range(60)]):
        assert "--text-column" not in load(tmp_path / "t.csv", {"a": two, "b": ["1", "2"] * 30, "label": labels()})[1]
    _, said = load(tmp_path / "t.csv", {**columns, "other": [f"Ms Ann-{i}" for i in range(60)]})
    assert said.count("--text-column") == 2


def test_ids_from_another_column(tmp_path: Path) -> None:
    columns = {"ticket": ["01", "02"], "id": ["5", "6"], "a": ["1", "2"], "label": ["x", "y"]}
    data, _ = load(tmp_path / "t.csv", columns, id_column="ticket")
    assert data.ids.tolist() == ["01", "02"] and data.x.shape == (2, 1)
    with pytest.raises(InputError, match=r"'nr'.*--id-column"):
        load(tmp_path / "t.csv", columns, id_column="nr")


def test_a_table_with_only_labels_and_ids(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"only the label.*column text"):
        load(tmp_path / "t.csv", {"text": ["a", "b"], "label": ["x", "y"]}, id_column="text")


def test_all_missing_columns_are_named_at_once(tmp_path: Path) -> None:
    columns = {"a": ["1", "2"], "label": ["x", "y"]}
    options = {"label_column": "nix", "id_column": "nada", "text_column": "nil"}
    with pytest.raises(MissingColumnError, match="--label-column") as refused:
        load(tmp_path / "t.csv", columns, **options)
    assert refused.value.columns == ("nix", "nada", "nil")


def test_ignored_columns_are_not_features(tmp_path: Path) -> None:
    columns = {"id": ["5", "6"], "a": ["1", "2"], "b": ["1e999", "3"], "remark": texts(2), "label": ["x", "y"]}
    with pytest.raises(InputError, match="inf"):
        load(tmp_path / "t.csv", columns, ignore_columns=["remark"])
    data, said = load(tmp_path / "t.csv", columns, ignore_columns=["remark", "b", "id"])
    assert data.x.shape == (2, 1) and data.ids.tolist() == ["5", "6"] and not said
    # What a column of text would have decided is not decided by it.
    data, said = load(tmp_path / "t.csv", {"body": texts(), "notes": texts(), "label": labels()},
                      ignore_columns=["notes"])  # fmt: skip
    assert data.x.encoding.text == "body" and "notes" not in said


def test_columns_that_cannot_be_ignored(tmp_path: Path) -> None:
    columns = {"a": ["1", "2"], "b": ["1", "2"], "note": ["u", "v"], "label": ["x", "y"]}
    with pytest.raises(InputError, match=r"--ignore-columns.*'nix', 'nada'.*a, b, note"):
        load(tmp_path / "t.csv", columns, ignore_columns=["nix", "a", "nada"])
    with pytest.raises(InputError, match="--ignore-columns label,note"):
        load(tmp_path / "t.csv", columns, text_column="note", ignore_columns=["note", "label"])
    with pytest.raises(InputError, match="--ignore-columns leaves no feature column"):
        load(tmp_path / "t.csv", columns, ignore_columns=["a", "b", "note"])
    trained = load(tmp_path / "t.csv", columns)[0].x.encoding
    with pytest.raises(InputError, match="--ignore-columns a: the model was trained with"):
        load(tmp_path / "t.csv", columns, encoding=trained, ignore_columns=["a"])


def test_hugging_face_columns_are_ignored_too(tmp_path: Path) -> None:
    import datasets

    rows = {"a": [1.5, 2.5] * 10, "b": [1.0, 2.0] * 10, "label": ["x", "y"] * 10}
    datasets.Dataset.from_dict(rows).save_to_disk(tmp_path / "saved")
    assert load_source(f"hf:{tmp_path / 'saved'}", ReadOptions(ignore_columns=("b",))).x.shape == (20, 1)


def test_hugging_face_texts_beside_numbers(tmp_path: Path) -> None:
    import datasets

    rows = {"price": [1.5, 2.5] * 30, "title": texts(), "label": labels()}
    datasets.Dataset.from_dict(rows).save_to_disk(tmp_path / "saved")
    assert load_source(f"hf:{tmp_path / 'saved'}").x.encoding.texts == ["title"]
    assert load_source(f"hf:{tmp_path / 'saved'}", ReadOptions(label_column="Label")).classes
    with pytest.raises(InputError, match="did you mean 'label'"):
        load_source(f"hf:{tmp_path / 'saved'}", ReadOptions(label_column="labels"))
    assert load_source(f"hf:{tmp_path / 'saved'}", ReadOptions(text_column="title")).kind == "text"


def test_hugging_face_texts_by_another_name(tmp_path: Path) -> None:
    import datasets

    datasets.Dataset.from_dict({"review": texts(), "label": labels()}).save_to_disk(tmp_path / "saved")
    data = load_source(f"hf:{tmp_path / 'saved'}")
    assert data.kind == "text" and data.x.encoding.text == "review"


def test_parts_and_copies_of_texts(tmp_path: Path) -> None:
    x = load(tmp_path / "t.csv", {"body": texts(), "label": labels()})[0].x
    assert x[np.array([3, 1])].encoding.text == "body" and isinstance(x[0], str)
    assert pickle.loads(pickle.dumps(x)).tolist() == x.tolist()


def predicted(path: Path) -> list[str]:
    with path.open(newline="") as file:
        return [row["predicted"] for row in csv.DictReader(file)]


def test_from_messy_tables_to_predictions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    load(Path("t.csv"), {"nr": [f"n{i}" for i in range(120)], "body": texts(120), "kind": labels(120)},
         label_column="kind")  # fmt: skip
    assert run("run t.csv --label-column kind --out texts --train-epochs 5 --iterations 1 --json".split()) == 0
    assert run("run t.csv --label-column kind --out texts --train-epochs 5 --iterations 1 --json".split()) == 0
    Path("new.csv").write_text("nr,body\na,zinc\nb,fig\n")
    assert run("predict texts new.csv --to p.csv --json".split()) == 0
    assert predicted(Path("p.csv")) == ["metal", "fruit"]

    weights = [str(i % 2 * 10 + i % 7) for i in range(120)]
    weights[4] = "n.a."
    days = [f"20{10 + i % 2 * 5}-01-{1 + i % 28:02}" for i in range(120)]
    load(Path("m.csv"), {"weight": weights, "since": days, "label": labels(120)})
    assert run("run m.csv --out messy --train-epochs 5 --iterations 1 --json".split()) == 0
    Path("new.csv").write_text("since,weight\n2010-01-05,n.a.\n2015-01-05,12\n")
    assert run("predict messy new.csv --to q.csv --json".split()) == 0
    assert predicted(Path("q.csv")) == ["metal", "fruit"]
