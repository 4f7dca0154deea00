from __future__ import annotations

import csv

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labelsieve.errors import InputError
from labelsieve.report.columns import read_columns
from labelsieve.review.decision_log import DROP, KEEP, NOTHING, RELABEL, Book, ConflictError, Made, latest
from labelsieve.runfolder import RunFolder

HEAD = "id,label,predicted,probability,loss,verdict,iteration,suspicion,suggested\n"
IDS = ["a", "b,\nc", 'd"', "e", "=f"]


def small(folder):
    with (folder / "labels.csv").open("w", newline="", encoding="utf-8") as file:
        file.write(HEAD)
        writer = csv.writer(file)
        for i, id in enumerate(IDS):
            writer.writerow([id, "cat", "dog\nx", 0.1, 2.3, "candidate", 0, 0.9 - i / 10, "dog\nx"])
    run = RunFolder(folder)
    run.update(settings={})
    return run, read_columns(folder / "labels.csv")


@pytest.fixture
def book(tmp_path):
    return Book(*small(tmp_path))


def again(book):
    return Book(book.run, book.columns)


def standing(book):
    return [book.made(row) for row in range(len(book.columns))]


CAT, DOG = 0, 1


def test_a_decision_is_on_the_disk_before_it_is_answered(book):
    assert book.columns.classes == ("cat", "dog\nx")
    book.decide(1, Made(RELABEL, DOG), seen=0, window="w")
    with (book.run / "decisions.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(r["id"], r["decision"], r["label"]) for r in rows] == [("b, c", "relabel", "dog x")]
    assert again(book).made(1) == Made(RELABEL, DOG)  # found again, line breaks and all


def test_undo_and_redo_go_back_and_forth(book):
    book.decide(0, Made(KEEP, CAT), seen=0, window="w")
    book.decide(0, Made(DROP, -1), seen=1, window="w")
    book.decide(1, Made(RELABEL, DOG), seen=0, window="w")
    after = standing(book)
    assert book.undo("w") == [1]
    assert book.undo("w") == [0] and book.made(0) == Made(KEEP, CAT)
    assert book.undo("w") == [0] and book.made(0) == NOTHING
    assert book.undo("w") == []
    assert standing(again(book)) == [NOTHING] * 5
    assert [book.redo("w") for _ in range(4)] == [[0], [0], [1], []]
    assert standing(book) == standing(again(book)) == after
    book.undo("w")
    book.decide(3, Made(KEEP, CAT), seen=0, window="w")
    assert book.redo("w") == []  # something else was done since


def test_two_windows_do_not_overwrite_each_other(book):
    book.decide(0, Made(KEEP, CAT), seen=0, window="one")
    with pytest.raises(ConflictError):
        book.decide(0, Made(DROP, -1), seen=0, window="two")
    assert book.made(0) == Made(KEEP, CAT)
    book.decide(0, Made(DROP, -1), seen=book.version(0), window="two")
    with pytest.raises(ConflictError):
        book.undo("one")  # it is no longer what this window made of it
    assert book.made(0) == Made(DROP, -1)
    assert book.undo("two") == [0] and book.made(0) == Made(KEEP, CAT)


def test_windows_take_back_their_own(book):
    book.decide(0, Made(KEEP, CAT), seen=0, window="one")
    book.decide(1, Made(KEEP, CAT), seen=0, window="two")
    assert book.undo("one") == [0]
    assert book.made(1) == Made(KEEP, CAT)


def test_many_at_once_are_one_action_also_after_a_restart(book):
    book.decide(1, Made(KEEP, CAT), seen=0, window="w")
    assert book.accept(np.array([0, 1, 2, 3]), window="w") == [0, 2, 3]
    assert book.made(1) == Made(KEEP, CAT)  # what a person decided stays
    restarted = again(book)
    assert standing(restarted) == standing(book)
    assert restarted.undo("new window") == [0, 2, 3]
    assert standing(restarted) == [NOTHING, Made(KEEP, CAT), NOTHING, NOTHING, NOTHING]
    assert restarted.undo("new window") == [1]
    assert again(restarted).undo("w") == []


def test_a_torn_last_line_is_ignored_and_repaired(book):
    book.decide(0, Made(KEEP, CAT), seen=0, window="w")
    path = book.run / "decisions.csv"
    path.write_bytes(path.read_bytes() + b"e,dro")
    restarted = again(book)
    assert standing(restarted) == standing(book)
    assert restarted.passed_over() == "line 3: no line break ends it, it may be half a decision"
    restarted.decide(3, Made(DROP, -1), seen=0, window="w")
    assert standing(again(book))[3] == Made(DROP, -1)


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
    (book.run / "decisions.csv").write_text(text)
    found = again(book)
    assert found.passed_over() == ""
    assert [found.made(0), found.made(3)] == [Made(KEEP, CAT), Made(RELABEL, DOG)]
    found.decide(4, Made(DROP, -1), seen=0, window="w")
    assert standing(again(book)) == [Made(KEEP, CAT), NOTHING, NOTHING, Made(RELABEL, DOG), Made(DROP, -1)]


@pytest.mark.parametrize("text", [NAMES + TIMED + "e,relabel,dog x", NAMES + "e,relabel,dog x", "e,relabel,dog x"])
def test_a_last_line_that_may_be_half_of_one_is_told(book, text):
    """A class may be called dog xylophone."""
    (book.run / "decisions.csv").write_text(text)
    assert standing(again(book)) == [NOTHING if TIMED not in text else Made(KEEP, CAT), *[NOTHING] * 4]
    with pytest.raises(
        InputError, match=r"decisions.csv, line [123]: no line break ends it, it may be half a decision;"
    ):
        latest(book.run, book.columns)


def test_half_of_the_names_is_no_decision_and_nothing_to_tell(book):
    (book.run / "decisions.csv").write_text("id,deci")
    assert again(book).passed_over() == ""


def full(*_):
    raise OSError(28, "No space left on device")


def test_a_disk_that_refuses_changes_nothing(book, monkeypatch):
    monkeypatch.setattr(RunFolder, "append_decision", full)
    with pytest.raises(OSError):
        book.decide(0, Made(KEEP, CAT), seen=0, window="w")
    assert book.made(0) == NOTHING and book.version(0) == 0 and book.undo("w") == []


def test_what_could_not_be_undone_can_be_undone_later(book, monkeypatch):
    """The disk refuses once: the second key takes back the same decision, not the one before it."""
    book.decide(0, Made(KEEP, CAT), seen=0, window="w")
    book.decide(1, Made(RELABEL, DOG), seen=0, window="w")
    with monkeypatch.context() as disk:
        disk.setattr(RunFolder, "append_decision", full)
        with pytest.raises(OSError):
            book.undo("w")
    assert book.made(1) == Made(RELABEL, DOG) and book.redo("w") == []
    assert book.undo("w") == [1] and book.made(0) == Made(KEEP, CAT)
    with monkeypatch.context() as disk:
        disk.setattr(RunFolder, "append_decision", full)
        with pytest.raises(OSError):
            book.redo("w")
    assert book.made(1) == NOTHING
    assert book.redo("w") == [1] and standing(again(book)) == standing(book)


def test_what_was_done_before_a_restart_is_not_lost_either(book, monkeypatch):
    book.decide(0, Made(KEEP, CAT), seen=0, window="w")
    book.decide(1, Made(RELABEL, DOG), seen=0, window="w")
    restarted = again(book)
    with monkeypatch.context() as disk:
        disk.setattr(RunFolder, "append_decision", full)
        with pytest.raises(OSError):
            restarted.undo("w")
    assert [restarted.undo("w"), restarted.undo("w")] == [[1], [0]]


def test_what_another_window_overruled_is_not_in_the_way(book):
    """Undo and redo say so once; the next key goes on with what came before."""
    book.decide(1, Made(KEEP, CAT), seen=0, window="one")
    book.decide(0, Made(KEEP, CAT), seen=0, window="one")
    book.decide(0, Made(DROP, -1), seen=1, window="two")
    with pytest.raises(ConflictError):
        book.undo("one")
    assert book.undo("one") == [1]
    book.decide(1, Made(DROP, -1), seen=2, window="two")
    with pytest.raises(ConflictError):
        book.redo("one")
    assert book.redo("one") == []


@pytest.mark.parametrize("made", [Made(KEEP, -1), Made(RELABEL, 9), Made(7, 0), Made(DROP, 0)])
def test_what_is_no_decision_is_refused(book, made):
    with pytest.raises(InputError):
        book.decide(0, made, seen=0, window="w")
    with pytest.raises(InputError):
        book.decide(99, Made(KEEP, CAT), seen=0, window="w")


def test_lines_of_strangers_are_passed_over(book):
    for line in (("nobody", "keep", "cat"), ("a", "relabel", "no such class"), ("e", "burn", "cat"), ("e", "keep", "")):
        book.run.append_decision(*line)
    with (book.run / "decisions.csv").open("a") as file:
        file.write(f"alone\n\n{'x' * 200_000},keep\n")
    found = again(book)
    assert standing(found) == [NOTHING, NOTHING, NOTHING, Made(KEEP, CAT), NOTHING]
    assert found.not_understood == [
        "line 2: the run has no sample 'nobody'",
        "line 3: the run has no class 'no such class'",
        "line 4: 'burn' is none of undo, keep, relabel, drop",
        "line 6: expected id, decision, label, time",
        "line 8: expected id, decision, label, time",
    ]
    assert found.passed_over().endswith("'nobody' (and 4 more lines)")
    with pytest.raises(InputError, match=r"decisions.csv, line 2: .* \(and 4 more lines\); correct or remove"):
        latest(book.run, book.columns)


def test_keep_with_another_label_than_the_given_one_is_no_decision(book):
    (book.run / "decisions.csv").write_text("id,decision,label\na,keep,dog x\ne,keep, cat \n=f,keep,dgo\n")
    found = again(book)
    assert standing(found) == [NOTHING, NOTHING, NOTHING, Made(KEEP, CAT), NOTHING]
    told = "keep stands for the given label, 'cat', and not for 'dog x': write relabel, or no label"
    assert found.not_understood[0] == f"line 2: {told}" and found.not_understood[1].startswith("line 4: ")
    with pytest.raises(InputError, match=r"decisions.csv, line 2: keep stands for the given label"):
        latest(book.run, book.columns)
    with pytest.raises(InputError, match="keep stands for the given label"):
        book.decide(0, Made(KEEP, DOG), seen=0, window="w")


@pytest.mark.parametrize("code", ["utf-16", "utf-16-le", "utf-16-be"])
def test_a_file_in_utf_16_is_called_so_and_stays_as_it_is(book, code):
    content = "id,decision,label\r\na,drop,\r\n".encode(code)
    (book.run / "decisions.csv").write_bytes(content)
    with pytest.raises(InputError, match=r"decisions\.csv is in UTF-16: save it as UTF-8$"):
        again(book)
    with pytest.raises(InputError, match="is in UTF-16"):  # the report counts decisions, too
        book.run.read_decisions()
    assert (book.run / "decisions.csv").read_bytes() == content


@pytest.mark.parametrize(
    "text",
    [
        "\ufeffid;decision;label;time\r\ne;Relabel; dog x;x\r\n",
        "id\tdecision\tlabel\ne\trelabel\tdog x\n",
        "decision,id,label\nRELABEL,e,dog x\n",
    ],
)
def test_files_that_others_saved(book, text):
    (book.run / "decisions.csv").write_text(text, newline="")
    found = again(book)
    assert found.not_understood == [] and found.made(3) == Made(RELABEL, DOG)
    assert found.passed_over() == ""
    found.decide(0, Made(KEEP, CAT), seen=0, window="w")
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
    book = Book(*small(tmp_path_factory.mktemp("book")))
    made = {"keep": Made(KEEP, CAT), "relabel": Made(RELABEL, DOG), "drop": Made(DROP, -1)}
    for name, row, window in acts:
        if name in made:
            book.decide(row, made[name], seen=book.version(row), window=window)
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
