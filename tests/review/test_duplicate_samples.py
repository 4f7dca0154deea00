"""The same sample twice: what the card says of its labels, and that it stands among the neighbours once."""

from __future__ import annotations

import csv
import shutil

import numpy as np
import pytest

from labelsieve.data.source import load_source
from labelsieve.review.review_session import ReviewSession
from labelsieve.runfolder import fingerprint


def rewritten(run, source, change):
    """The table with its rows changed, and the run as if it had read them."""
    with source.open(newline="", encoding="utf-8") as file:
        head, *rows = csv.reader(file)
    for i, row in enumerate(rows):
        change(i, row)
    with source.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([head, *rows])
    about = run.record()["data"]
    run.update(data={**about, "fingerprint": fingerprint(load_source(about["source"]))})
    return run


def label_counts(session, rows):
    codes, counts = np.unique(session.columns.label[rows], return_counts=True)
    return dict(zip(codes.tolist(), counts.tolist(), strict=True))


def test_the_labels_of_the_same_text(runs, tmp_path):
    def change(i, row):
        if i % 5 == 0:
            row[2] = "Hello, is anybody there?"
        elif i % 5 == 1:
            row[2] = "  "  # left out of a run, and nothing that is there twice

    run = rewritten(runs.text(tmp_path), tmp_path / "mails.csv", change)
    session = ReviewSession(run)
    same = list(range(0, 60, 5))
    answer = session.same(same[3])
    assert answer["known"] and dict(answer["labels"]) == label_counts(session, [i for i in same if i != same[3]])
    assert len(answer["labels"]) > 1
    assert [count for _, count in answer["labels"]] == sorted((n for _, n in answer["labels"]), reverse=True)
    assert session.same(1)["labels"] == [] and session.same(2) == {"row": 2, "known": True, "labels": []}


def test_the_labels_of_the_same_row(runs, tmp_path):
    def change(i, row):
        if i in (4, 20, 31):
            row[:3], row[4] = ["3", "99.5", "Bern"], "00000"

    session = ReviewSession(rewritten(runs.table(tmp_path), tmp_path / "homes.csv", change))
    assert dict(session.same(20)["labels"]) == label_counts(session, [4, 31]) and session.same(5)["labels"] == []


def test_the_labels_of_the_same_picture(runs, tmp_path):
    run = runs.pictures(tmp_path, n=24)
    ids = [row.id for row in run.read_labels()]
    first, other = ids[0], next(id for id in ids if id.split("/")[0] != ids[0].split("/")[0])
    shutil.copy(tmp_path / "shapes" / first, tmp_path / "shapes" / other)
    session = ReviewSession(run)
    row = ids.index(other)
    assert session.same(0)["labels"] == [[int(session.columns.label[row]), 1]]
    assert session.same(row)["labels"] == [[int(session.columns.label[0]), 1]]
    assert session.same(1)["labels"] == []
    (tmp_path / "shapes" / other).unlink()
    assert ReviewSession(run).same(0) == {"row": 0, "known": True, "labels": []}


def test_the_labels_of_the_same_array(runs, tmp_path):
    x = np.random.default_rng(0).random((60, 3))
    x[7] = x[40]
    run = runs.table(tmp_path)
    y = np.array([row.label for row in run.read_labels()])
    np.savez(tmp_path / "homes.npz", x=x, y=y)
    run.update(data={**run.record()["data"], "source": str(tmp_path / "homes.npz"), "fingerprint": None})
    session = ReviewSession(run)
    assert session.same(7)["labels"] == [[int(session.columns.label[40]), 1]] and session.same(8)["labels"] == []


@pytest.mark.parametrize("gone", [False, True])
def test_a_search_that_fails_or_has_nothing_to_search_is_no_error(runs, tmp_path, gone):
    run = runs.text(tmp_path)
    if gone:
        (tmp_path / "mails.csv").unlink()
    session = ReviewSession(run)
    if not gone:
        object.__setattr__(session.samples, "same", lambda: 1 / 0)
    assert session.same(0) == {"row": 0, "known": True, "labels": []}


@pytest.mark.parametrize("kind", ["text", "table"])
def test_each_different_neighbour_stands_once_with_its_labels(runs, tmp_path, kind):
    """Half of the rows are one and the same: it had filled all places before."""

    def change(i, row):
        if i % 2 and kind == "text":
            row[2] = "The parcel came 2 days late, late, late."
        elif i % 2:
            row[:3], row[4] = ["3", "99.5", "Bern"], "00000"

    source = tmp_path / ("mails.csv" if kind == "text" else "homes.csv")
    session = ReviewSession(rewritten(getattr(runs, kind)(tmp_path), source, change))
    everywhere = label_counts(session, list(range(1, 60, 2)))
    for row in (0, 1):
        for group in session.neighbours(row)["groups"]:
            shown = [str(item["content"]) for item in group["items"]]
            assert len(shown) == 4 and len(set(shown)) == 4
            often = [item for item in group["items"] if item["times"] > 1]
            assert all(item["times"] == 30 and dict(item["labels"]) == everywhere for item in often)
            assert len(often) == 1 or row == 0
            assert row not in [item["row"] for item in group["items"]]


def test_a_text_comes_with_the_other_columns_of_its_row(runs, tmp_path):
    def change(i, row):
        row[3] = "" if i else "en"

    run = rewritten(runs.text(tmp_path), tmp_path / "mails.csv", change)
    session = ReviewSession(run)
    assert session.item(0)["content"]["cells"] == [["lang", "en"]] and session.item(1)["content"]["cells"] == [
        ["lang", ""]
    ]
    assert session.neighbours(0)["groups"][0]["items"][0]["content"]["cells"] == []  # there is no room for them
    source = tmp_path / "mails.csv"
    source.write_text(source.read_text().replace("id,label,text,lang", "id,label,text,true"))
    assert ReviewSession(run).item(0)["content"]["cells"] == []  # true labels are for metrics alone
