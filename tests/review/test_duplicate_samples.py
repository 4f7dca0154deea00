"""Equal samples: the labels of the others, their order in the review, and one of them among the neighbours."""

from __future__ import annotations

import csv

import numpy as np
import pytest

from labelsieve.data.duplicates import groups_of
from labelsieve.data.source import load_source
from labelsieve.review.review_session import Filter, ReviewSession
from labelsieve.runfolder import fingerprint


def rewritten(runs, run, source, change):
    """The table with its rows changed, and the run as if it had read them."""
    with source.open(newline="", encoding="utf-8") as file:
        head, *rows = csv.reader(file)
    for i, row in enumerate(rows):
        change(i, row)
    with source.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([head, *rows])
    about = run.record()["data"]
    data = load_source(about["source"])
    run.update(data={**about, "fingerprint": fingerprint(data)})
    place = {id: i for i, id in enumerate(row.id for row in run.read_labels())}
    kept = [place[id] for id in data.ids.tolist()]
    if "label" in head:
        runs.mark(run, "label", {i: row[head.index("label")] for i, row in enumerate(rows)})
    groups = {kept[i]: str(number) for number, group in enumerate(groups_of(data), start=1) for i in group}
    runs.mark(run, "duplicates", groups)
    return run


def label_counts(session, rows):
    codes, counts = np.unique(session.columns.label[rows], return_counts=True)
    return dict(zip(codes.tolist(), counts.tolist(), strict=True))


def test_duplicate_texts_show_all_their_labels(runs, tmp_path):
    def change(i, row):
        if i % 5 == 0:
            row[2] = "Hello, is anybody there?"
        elif i % 5 == 1:
            row[2] = "  "  # left out of a run, and nothing that is there twice

    run = rewritten(runs, runs.text(tmp_path), tmp_path / "mails.csv", change)
    session = ReviewSession(run)
    same = list(range(0, 60, 5))
    labels = session.item(same[3])["same"]
    assert dict(labels) == label_counts(session, [i for i in same if i != same[3]]) and len(labels) > 1
    assert [count for _, count in labels] == sorted((n for _, n in labels), reverse=True)
    assert session.item(1)["same"] == [] and session.item(2)["same"] == []


def test_duplicate_rows_show_all_their_labels(runs, tmp_path):
    def change(i, row):
        if i in (4, 20, 31):
            row[:3], row[4] = ["3", "99.5", "Bern"], "00000"

    session = ReviewSession(rewritten(runs, runs.table(tmp_path), tmp_path / "homes.csv", change))
    assert dict(session.item(20)["same"]) == label_counts(session, [4, 31]) and session.item(5)["same"] == []


def test_samples_without_duplicates(runs, tmp_path):
    session = ReviewSession(runs.text(tmp_path))
    assert session.item(0)["same"] == [] and not session.item(0)["outlier"]


def test_groups_with_different_labels_come_first_and_outliers_have_a_list(runs, tmp_path):
    def change(i, row):
        row[2] = {2: "one", 40: "one", 7: "two", 9: "two", 33: "two"}.get(i, row[2])
        row[1] = {2: "praise", 40: "praise", 7: "praise", 9: "payment", 33: "praise"}.get(i, row[1])

    run = rewritten(runs, runs.text(tmp_path), tmp_path / "mails.csv", change)
    runs.mark(run, "outlier", dict.fromkeys((5, 11), "true"))
    session = ReviewSession(run)
    shown = [item["row"] for item in session.items(Filter("duplicates"), 0, 9)["items"]]
    assert set(shown[:3]) == {7, 9, 33} and set(shown[3:]) == {2, 40}
    assert {item["row"] for item in session.items(Filter("outliers"), 0, 9)["items"]} == {5, 11}
    assert [near["row"] for near in session.neighbours(7)["duplicates"]] == [9, 33]
    session.decide([(5, 0)], "drop", None, window="w")
    assert session.item(5)["decision"] == "drop"


@pytest.mark.parametrize("kind", ["text", "table"])
def test_each_distinct_neighbour_is_listed_once_with_its_labels(runs, tmp_path, kind):
    """Half of the rows are one and the same: it had filled all places before."""

    def change(i, row):
        if i % 2 and kind == "text":
            row[2] = "The parcel came 2 days late, late, late."
        elif i % 2:
            row[:3], row[4] = ["3", "99.5", "Bern"], "00000"

    source = tmp_path / ("mails.csv" if kind == "text" else "homes.csv")
    session = ReviewSession(rewritten(runs, getattr(runs, kind)(tmp_path), source, change))
    everywhere = label_counts(session, list(range(1, 60, 2)))
    for row in (0, 1):
        for group in session.neighbours(row)["groups"]:
            shown = [str(item["content"]) for item in group["items"]]
            assert len(shown) == 4 and len(set(shown)) == 4
            often = [item for item in group["items"] if item["times"] > 1]
            assert all(item["times"] == 30 and dict(item["labels"]) == everywhere for item in often)
            assert len(often) == 1 or row == 0
            assert row not in [item["row"] for item in group["items"]]


def test_a_text_is_shown_with_the_other_columns_of_its_row(runs, tmp_path):
    def change(i, row):
        row[3] = "" if i else "en"

    run = rewritten(runs, runs.text(tmp_path), tmp_path / "mails.csv", change)
    session = ReviewSession(run)
    assert session.item(0)["content"]["cells"] == [["lang", "en"]] and session.item(1)["content"]["cells"] == [
        ["lang", ""]
    ]
    assert session.neighbours(0)["groups"][0]["items"][0]["content"]["cells"] == []  # there is no room for them
    source = tmp_path / "mails.csv"
    source.write_text(source.read_text().replace("id,label,text,lang", "id,label,text,true"))
    assert ReviewSession(run).item(0)["content"]["cells"] == []  # true labels are for metrics alone
