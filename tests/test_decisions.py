from __future__ import annotations

import csv

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labelsieve.decisions import (
    NO_DECISION,
    Choice,
    ConflictError,
    DecisionLog,
    Resolution,
    append_decision,
    read_decisions,
)
from labelsieve.errors import InputError
from labelsieve.labels_csv import read_labels

HEAD = "id,label,predicted,probability,loss,verdict,iteration,suspicion,suggested,duplicates,outlier,confidence\n"
IDS = ["a", "b,\nc", 'd"', "e", "=f"]


def small(folder):
    with (folder / "labels.csv").open("w", newline="", encoding="utf-8") as file:
        file.write(HEAD)
        writer = csv.writer(file)
        for i, id in enumerate(IDS):
            writer.writerow([id, "cat", "dog\nx", 0.1, 2.3, "candidate", 0, 0.9 - i / 10, "dog\nx", "", "", 0.9])
    return folder / "decisions.csv", read_labels(folder / "labels.csv")


@pytest.fixture
def book(tmp_path):
    return DecisionLog(*small(tmp_path))


def again(book):
    return DecisionLog(book.path, book.columns)


def standing(book):
    return [book.resolution(row) for row in range(len(book.columns))]


CAT, DOG = 0, 1
KEEP, RELABEL, DROP = Resolution(Choice.KEEP, CAT), Resolution(Choice.RELABEL, DOG), Resolution(Choice.DROP, -1)


def test_a_decision_is_on_the_disk_before_it_is_answered(book):
    assert book.columns.classes == ("cat", "dog\nx")
    book.decide([(1, RELABEL, 0)], window="w")
    with book.path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(r["id"], r["decision"], r["label"]) for r in rows] == [("b, c", "relabel", "dog x")]
    assert again(book).resolution(1) == RELABEL  # found again, line breaks and all


def test_undo_and_redo_go_back_and_forth(book):
    book.decide([(0, KEEP, 0)], window="w")
    book.decide([(0, DROP, 1)], window="w")
    book.decide([(1, RELABEL, 0)], window="w")
    after = standing(book)
    assert book.undo("w") == [1]
    assert book.undo("w") == [0] and book.resolution(0) == KEEP
    assert book.undo("w") == [0] and book.resolution(0) == NO_DECISION
    assert book.undo("w") == []
    assert standing(again(book)) == [NO_DECISION] * 5
    assert [book.redo("w") for _ in range(4)] == [[0], [0], [1], []]
    assert standing(book) == standing(again(book)) == after
    book.undo("w")
    book.decide([(3, KEEP, 0)], window="w")
    assert book.redo("w") == []  # something else was done since


def test_two_windows_do_not_overwrite_each_other(book):
    book.decide([(0, KEEP, 0)], window="one")
    with pytest.raises(ConflictError):
        book.decide([(0, DROP, 0)], window="two")
    assert book.resolution(0) == KEEP
    book.decide([(0, DROP, book.version(0))], window="two")
    with pytest.raises(ConflictError):
        book.undo("one")  # it is no longer what this window made of it
    assert book.resolution(0) == DROP
    assert book.undo("two") == [0] and book.resolution(0) == KEEP


def test_windows_take_back_their_own(book):
    book.decide([(0, KEEP, 0)], window="one")
    book.decide([(1, KEEP, 0)], window="two")
    assert book.undo("one") == [0]
    assert book.resolution(1) == KEEP


def test_many_at_once_are_one_action_also_after_a_restart(book):
    book.decide([(1, KEEP, 0)], window="w")
    assert book.accept(np.array([0, 1, 2, 3]), window="w") == [0, 2, 3]
    assert book.resolution(1) == KEEP  # what a person decided stays
    restarted = again(book)
    assert standing(restarted) == standing(book)
    assert restarted.undo("new window") == [0, 2, 3]
    assert standing(restarted) == [NO_DECISION, KEEP, NO_DECISION, NO_DECISION, NO_DECISION]
    assert restarted.undo("new window") == [1]
    assert again(restarted).undo("w") == []


def test_accepted_suggestions_are_not_reviewed(book):
    book.decide([(1, KEEP, 0)], window="w")
    book.accept(np.array([0, 1, 2, 3]), window="w")
    assert book.undo("w") and book.redo("w") == [0, 2, 3]
    restarted = again(book)
    for log in (book, restarted):
        assert log.reviewed.tolist() == [False, True, False, False, False]
        assert log.decided.tolist() == [True, True, True, True, False]
    suggested = Resolution(Choice.RELABEL, int(book.columns.suggested[0]))
    restarted.decide([(0, suggested, 0)], window="v", reviewer="anna")  # the same label is no conflict
    assert restarted.resolution(0) == suggested and restarted.reviewed[0]


def test_a_torn_last_line_is_ignored_and_repaired(book):
    book.decide([(0, KEEP, 0)], window="w")
    path = book.path
    path.write_bytes(path.read_bytes() + b"e,dro")
    restarted = again(book)
    assert standing(restarted) == standing(book)
    assert restarted.problem().startswith("line 3: ")
    restarted.decide([(3, DROP, 0)], window="w")
    assert standing(again(book))[3] == DROP


NAMES = "id,decision,label,time\n"
TIMED = "a,keep,cat,2026-01-01T00:00:00.000+00:00\n"


@pytest.mark.parametrize(
    "text",
    [
        NAMES + TIMED + "e,relabel,dog x,2026-01-01T00:00:01.000+00:00",  # its time is there to the end
        NAMES + "a,keep\ne,relabel,dog x",  # others without a time: written by hand
        "id,decision,label\na,keep,cat\ne,relabel,dog x",
        "id;decision;label\r\na;keep;cat\r\ne;relabel;dog x",
    ],
)
def test_the_last_line_of_an_editor_without_a_line_break_counts(book, text):
    book.path.write_text(text)
    found = again(book)
    assert found.problem() == ""
    assert [found.resolution(0), found.resolution(3)] == [KEEP, RELABEL]
    found.decide([(4, DROP, 0)], window="w")
    assert standing(again(book)) == [
        KEEP,
        NO_DECISION,
        NO_DECISION,
        RELABEL,
        DROP,
    ]


@pytest.mark.parametrize("text", [NAMES + TIMED + "e,relabel,dog x", NAMES + "e,relabel,dog x", "e,relabel,dog x"])
def test_a_last_line_that_may_be_half_of_one_is_told(book, text):
    """A class may be called dog xylophone."""
    book.path.write_text(text)
    assert standing(again(book)) == [
        NO_DECISION if TIMED not in text else KEEP,
        *[NO_DECISION] * 4,
    ]
    with pytest.raises(InputError, match=r"decisions.csv, line [123]: "):
        again(book).check()


def test_half_of_the_names_is_no_decision_and_nothing_to_tell(book):
    book.path.write_text("id,deci")
    assert again(book).problem() == ""


def full(*_):
    raise OSError(28, "No space left on device")


def test_a_disk_that_refuses_changes_nothing(book, monkeypatch):
    monkeypatch.setattr("labelsieve.decisions.append_line", full)
    with pytest.raises(OSError):
        book.decide([(0, KEEP, 0)], window="w")
    assert book.resolution(0) == NO_DECISION and book.version(0) == 0 and book.undo("w") == []


def test_what_could_not_be_undone_can_be_undone_later(book, monkeypatch):
    """The disk refuses once: the second key takes back the same decision, not the one before it."""
    book.decide([(0, KEEP, 0)], window="w")
    book.decide([(1, RELABEL, 0)], window="w")
    with monkeypatch.context() as disk:
        disk.setattr("labelsieve.decisions.append_line", full)
        with pytest.raises(OSError):
            book.undo("w")
    assert book.resolution(1) == RELABEL and book.redo("w") == []
    assert book.undo("w") == [1] and book.resolution(0) == KEEP
    with monkeypatch.context() as disk:
        disk.setattr("labelsieve.decisions.append_line", full)
        with pytest.raises(OSError):
            book.redo("w")
    assert book.resolution(1) == NO_DECISION
    assert book.redo("w") == [1] and standing(again(book)) == standing(book)


def test_what_was_done_before_a_restart_is_not_lost_either(book, monkeypatch):
    book.decide([(0, KEEP, 0)], window="w")
    book.decide([(1, RELABEL, 0)], window="w")
    restarted = again(book)
    with monkeypatch.context() as disk:
        disk.setattr("labelsieve.decisions.append_line", full)
        with pytest.raises(OSError):
            restarted.undo("w")
    assert [restarted.undo("w"), restarted.undo("w")] == [[1], [0]]


def test_what_another_window_overruled_is_not_in_the_way(book):
    """Undo and redo say so once; the next key goes on with what came before."""
    book.decide([(1, KEEP, 0)], window="one")
    book.decide([(0, KEEP, 0)], window="one")
    book.decide([(0, DROP, 1)], window="two")
    with pytest.raises(ConflictError):
        book.undo("one")
    assert book.undo("one") == [1]
    book.decide([(1, DROP, 2)], window="two")
    with pytest.raises(ConflictError):
        book.redo("one")
    assert book.redo("one") == []


@pytest.mark.parametrize("made", [KEEP._replace(label=-1), RELABEL._replace(label=9), DROP._replace(label=0)])
def test_what_is_no_decision_is_refused(book, made):
    with pytest.raises(InputError):
        book.decide([(0, made, 0)], window="w")
    with pytest.raises(InputError):
        book.decide([(99, KEEP, 0)], window="w")


def test_lines_of_strangers_are_passed_over(book):
    for line in (("nobody", "keep", "cat"), ("a", "relabel", "no such class"), ("e", "burn", "cat"), ("e", "keep", "")):
        append_decision(book.path, *line)
    with book.path.open("a") as file:
        file.write(f"alone\n\n{'x' * 200_000},keep\n")
    found = again(book)
    assert standing(found) == [NO_DECISION, NO_DECISION, NO_DECISION, KEEP, NO_DECISION]
    assert [problem.partition(":")[0] for problem in found.not_understood] == [
        "line 2", "line 3", "line 4", "line 6", "line 8",
    ]  # fmt: skip
    for problem, named in zip(found.not_understood, ("nobody", "no such class", "burn"), strict=False):
        assert repr(named) in problem
    with pytest.raises(InputError, match=r"decisions.csv, line 2: .*4 more"):
        again(book).check()


def test_keep_with_another_label_than_the_given_one_is_no_decision(book):
    book.path.write_text("id,decision,label\na,keep,dog x\ne,keep, cat \n=f,keep,dgo\n")
    found = again(book)
    assert standing(found) == [NO_DECISION, NO_DECISION, NO_DECISION, KEEP, NO_DECISION]
    assert [problem.partition(":")[0] for problem in found.not_understood] == ["line 2", "line 4"]
    assert "'dog x'" in found.not_understood[0]
    with pytest.raises(InputError, match=r"decisions.csv, line 2: keep"):
        again(book).check()
    with pytest.raises(InputError, match="keep"):
        book.decide([(0, Resolution(Choice.KEEP, DOG), 0)], window="w")


@pytest.mark.parametrize("code", ["utf-16", "utf-16-le", "utf-16-be"])
def test_a_file_in_utf_16_is_called_so_and_stays_as_it_is(book, code):
    content = "id,decision,label\r\na,drop,\r\n".encode(code)
    book.path.write_bytes(content)
    with pytest.raises(InputError, match=r"decisions\.csv.*UTF-16"):
        again(book)
    with pytest.raises(InputError, match="is in UTF-16"):  # the report counts decisions, too
        read_decisions(book.path)
    assert book.path.read_bytes() == content


@pytest.mark.parametrize(
    "text",
    [
        "\ufeffid;decision;label;time\r\ne;Relabel; dog x;x\r\n",
        "id\tdecision\tlabel\ne\trelabel\tdog x\n",
        "decision,id,label\nRELABEL,e,dog x\n",
    ],
)
def test_files_that_others_saved(book, text):
    book.path.write_text(text, newline="")
    found = again(book)
    assert found.not_understood == [] and found.resolution(3) == RELABEL
    assert found.problem() == ""
    found.decide([(0, KEEP, 0)], window="w")
    found.accept(np.arange(5), window="w")
    after = again(found)
    assert standing(after) == standing(found) and after.not_understood == []


ACTS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["keep", "relabel", "drop"]), st.integers(0, 4), st.sampled_from("vw")),
        st.tuples(st.sampled_from(["undo", "redo", "accept", "restart"]), st.just(0), st.sampled_from("vw")),
    ),
    max_size=25,
)


@given(ACTS)
@settings(max_examples=60, deadline=None)
def test_whatever_is_pressed_the_file_says_what_stands(tmp_path_factory, acts):
    book = DecisionLog(*small(tmp_path_factory.mktemp("book")))
    made = {
        "keep": KEEP,
        "relabel": RELABEL,
        "drop": DROP,
    }
    for name, row, window in acts:
        if name in made:
            book.decide([(row, made[name], book.version(row))], window=window)
        elif name == "accept":
            book.accept(np.arange(5), window=window)
        elif name == "restart":
            book = again(book)
        else:
            before = standing(book)
            try:
                getattr(book, name)(window)
            except ConflictError:
                assert standing(book) == before
        assert standing(again(book)) == standing(book)


def test_restarts_add_no_blank_lines(book):
    for row in range(4):
        book.decide([(row, DROP, 0)], window="w")
        book = again(book)
    lines = book.path.read_text().split("\n")
    assert len(lines) == 6 and lines.pop() == "" and all(lines)


def test_a_decision_is_never_saved_for_another_sample_or_class(tmp_path):
    """In the file, a line break is a space: ids and classes that differ only in it must not be mixed up."""
    ids, classes = ["p q", "p\nq", "p\rq"], ["cat", "cat\n", "big cat", "big\ncat"]
    with (tmp_path / "labels.csv").open("w", newline="", encoding="utf-8") as file:
        file.write(HEAD)
        rows = [
            [ids[i % 3] + str(i // 3), name, "", 0.1, 2.3, "candidate", 0, 0.9, "cat", "", "", 0.9]
            for i, name in enumerate(classes)
        ]
        csv.writer(file).writerows(rows)
    log = DecisionLog(tmp_path / "decisions.csv", read_labels(tmp_path / "labels.csv", classes))
    refused = 0
    for row, choice in enumerate([DROP] * 4):
        for made in (choice, *(Resolution(Choice.RELABEL, label) for label in range(4))):
            try:
                log.decide([(row, made, log.version(row))], window="w")
            except InputError:
                refused += 1
            assert standing(again(log)) == standing(log)
    assert refused > 0
    log.decide([(0, DROP, log.version(0))], window="w")
    with pytest.raises(InputError, match="line breaks"):
        log.decide([(1, DROP, log.version(1))], window="w")
