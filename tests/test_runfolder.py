"""The files of a run: what is written is what is read, whole or not at all, by one process at a time."""

from __future__ import annotations

import errno
import json
import math
import os
import signal
import subprocess
import sys
import textwrap
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labelsieve import stopping
from labelsieve.decisions import append_decision, read_decisions
from labelsieve.errors import InputError
from labelsieve.files import SpecialFileError, append_line, atomic_writer, locked, open_file, read_lines, write_text
from labelsieve.labels_csv import LabelRow
from labelsieve.runfolder import NoteTopic, RunFolder, fingerprint, notes_besides, plain, summarise
from labelsieve.types import LabelledData, Selection, Skipped


def three_samples() -> LabelledData:
    return LabelledData(
        x=np.arange(6.0).reshape(3, 2),
        y=np.array([0, 1, 1]),
        classes=("cat, tabby", "dog\n"),
        ids=np.array(["a", "b,c", "d"]),
        kind="table",
        name="pets",
        skipped=(Skipped("broken.jpg", "damaged"),),
    )


def a_selection() -> Selection:
    nan = math.nan
    return Selection(
        verdict=np.array([1, 2, 0], dtype=np.int8),
        iteration=np.array([1, 2, 0], dtype=np.int16),
        predicted=np.array([0, 0, -1]),
        probability=np.array([0.75, 0.125, nan]),
        confidence=np.array([0.75, 0.875, nan]),
        loss=np.array([0.25, 2.0, nan]),
        suspicion=np.array([0.25, 0.875, 0.5]),
        noise_ratio=1 / 3,
        transition_matrix=np.eye(2),
        expected_precision=0.9,
        expected_recall=0.8,
    )


@pytest.mark.parametrize(
    ("problem", "raised"),
    [
        (OSError(errno.ENOSPC, "no space left"), OSError),
        (InputError("a damaged file"), InputError),
        (InterruptedError("stopped; the checkpoints are kept"), KeyboardInterrupt),
        (RuntimeError("any exception of work that stops"), KeyboardInterrupt),
    ],
)
def test_a_stop_does_not_hide_a_full_disk_or_a_bad_file(tmp_path, monkeypatch, problem, raised) -> None:
    run = RunFolder.to_write(tmp_path / "run")
    run.start("select", settings={})
    with pytest.raises(raised), run.work("select", 0.0):
        monkeypatch.setattr(stopping, "_requested", signal.SIGINT)
        raise problem
    assert run.state("select") == ("running" if raised is KeyboardInterrupt else "failed")


def test_a_damaged_record_does_not_hide_the_problem_of_a_stage(tmp_path) -> None:
    run = RunFolder.to_write(tmp_path / "run")
    run.start("select", settings={})
    with pytest.raises(RuntimeError, match="the problem"), run.work("select", 0.0):
        (run / "run.json").write_text("{")
        raise RuntimeError("the problem")


def test_notes_have_a_topic() -> None:
    data = replace(three_samples(), notes=("on the data",))
    history = ({"estimate": {"ratio": 0.3, "low": 0.2, "high": 0.4, "trust": "fair"}},)
    summary = summarise(data, replace(a_selection(), notes=("on the noise", "on removal"), history=history))
    assert notes_besides(summary, NoteTopic.NOISE) == ["on the data", "on removal"]
    assert notes_besides(summary, NoteTopic.DATA) == ["on the noise", "on removal"]
    without_estimate = summarise(data, replace(a_selection(), notes=("first", "second")))
    assert notes_besides(without_estimate, NoteTopic.NOISE) == ["on the data", "first", "second"]
    earlier = {"notes": summary["notes"]}  # runs of version 0.2
    assert notes_besides(earlier, NoteTopic.NOISE) == summary["notes"] and notes_besides({}, NoteTopic.DATA) == []


def test_labels_are_read_as_they_were_written(tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "run")
    run.write_selection(three_samples(), a_selection(), measured={"label_precision": 1.0})
    rows = list(run.read_labels())
    assert rows[0] == LabelRow("a", "cat, tabby", "cat, tabby", 0.75, 0.25, "selected", 1, 0.25, "", confidence=0.75)
    second = LabelRow("b,c", "dog\n", "cat, tabby", 0.125, 2.0, "removed", 2, 0.875, "cat, tabby", confidence=0.875)
    assert rows[1] == second
    assert rows[2].predicted == "" and math.isnan(rows[2].loss) and rows[2].suggested == ""
    header = (run / "labels.csv").read_text().splitlines()[0]
    head = "id,label,predicted,probability,loss,verdict,iteration,suspicion,suggested"
    assert header == f"{head},duplicates,outlier,confidence,no_class"


def test_summary_counts_by_verdict_and_class(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    run.write_selection(three_samples(), a_selection(), measured={"label_precision": 1.0})
    summary = run.read_summary()
    assert summary["counts"] == {"candidate": 1, "selected": 1, "removed": 1}
    assert summary["by_class"]["dog\n"] == {"candidate": 1, "selected": 0, "removed": 1}
    assert summary["samples"] == 3 and summary["skipped"] == 1 and summary["classes"] == ["cat, tabby", "dog\n"]
    assert summary["measured_label_precision"] == 1.0
    assert "measured_label_precision" not in summarise(three_samples(), a_selection())


def test_a_stage_begins_goes_on_and_is_done(tmp_path: Path) -> None:
    data = three_samples()
    run = RunFolder(tmp_path / "run")
    assert run.start("select", settings={"seed": 1}, data=data, source="pets.csv") == "new"
    assert run.state("select") == "running"
    assert RunFolder(tmp_path / "run").start("select", settings={"seed": 1}, data=data) == "resumed"
    run.finish("select", seconds=1.5)
    assert run.start("select", settings={"seed": 1}, data=data) == "done"
    record = json.loads((run / "run.json").read_text())
    assert record["seed"] == 1 and record["data"]["source"] == "pets.csv"
    assert record["stages"]["select"]["seconds"] == 1.5
    assert {"labelsieve", "numpy", "torch", "python"} <= record["versions"].keys()
    assert "broken.jpg,damaged" in (run / "skipped.csv").read_text()


def test_files_of_others_are_not_written_over(tmp_path: Path) -> None:
    (tmp_path / "labels.csv").write_text("my only data")
    run = RunFolder(tmp_path)
    for name in ("labels.csv", "mine.csv"):
        with pytest.raises(InputError, match=rf"{name} but no run.json: give --out"):
            run.start("select", settings={}, data=three_samples())
        assert [path.name for path in tmp_path.iterdir()] == [name]
        (tmp_path / name).rename(tmp_path / "mine.csv")
    (tmp_path / "mine.csv").rename(tmp_path / ".hidden")
    assert run.start("select", settings={}, data=three_samples()) == "new"
    (tmp_path / "notes.txt").write_text("what may be added to a run")
    assert RunFolder.to_write(tmp_path).start("select", settings={}, data=three_samples()) == "resumed"


def test_a_folder_to_write_is_a_runs_or_nobodys(tmp_path: Path) -> None:
    RunFolder.to_write(tmp_path / "new")
    (tmp_path / "staged").mkdir()
    (tmp_path / "run.lock").write_text("")  # what a command leaves that was killed while it decoded pictures
    (tmp_path / "staged" / "pictures-0.npy").write_text("")
    (tmp_path / "staged" / ".pictures-1.npy.7.partial").write_text("")
    RunFolder.to_write(tmp_path)
    (tmp_path / "staged" / "holiday.jpg").write_text("")
    with pytest.raises(InputError, match=r"staged but no run\.json"):
        RunFolder.to_write(tmp_path)
    (tmp_path / "run.json").write_text('{"format": 1}')
    RunFolder.to_write(tmp_path)


def test_settings_are_refused_before_the_samples_are_read(tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "run")
    run.check_settings("select", {"seed": 1})
    run.start("select", settings={"seed": 1, "size": None, "model": "forest"}, data=three_samples())
    before = {path: path.stat().st_mtime_ns for path in run.path.rglob("*")}
    run.check_settings("select", {"seed": 1, "size": None})
    run.check_settings("train", {"seed": 2})
    with pytest.raises(InputError, match=r"seed was 1, now 2; size was not set, now 8"):
        run.check_settings("select", {"size": 8, "seed": 2})
    assert before == {path: path.stat().st_mtime_ns for path in run.path.rglob("*")}


def test_a_run_that_does_not_begin_leaves_no_folder(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), RunFolder(tmp_path / "runs" / "mine").lock():
        raise RuntimeError
    assert os.listdir(tmp_path) == []
    with RunFolder(tmp_path / "runs" / "mine").lock():
        (tmp_path / "runs" / "other").mkdir()
    assert [path.name for path in tmp_path.rglob("*")] == ["runs", "other"]


def test_a_folder_that_an_export_left_half_filled_is_swept_up(tmp_path: Path) -> None:
    half = tmp_path / ".cleaned.999999999.partial" / "cat"
    half.mkdir(parents=True)
    (half / "1.png").write_text("")
    with RunFolder(tmp_path).lock():
        assert os.listdir(tmp_path) == ["run.lock"]


def test_changes_under_a_resume_are_refused_aloud(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = three_samples()
    run = RunFolder(tmp_path)
    run.start("select", settings={"seed": 1, "epochs": 50}, data=data)
    with pytest.raises(InputError, match=r"epochs was 50, now 40; seed was 1, now 2.*another --out"):
        run.start("select", settings={"seed": 2, "epochs": 40}, data=data)
    changed = LabelledData(**{**data.__dict__, "y": np.array([1, 1, 1])})
    with pytest.raises(InputError, match="samples or their labels"):
        run.start("select", settings={"seed": 1, "epochs": 50}, data=changed)
    with pytest.raises(InputError, match="other data"):
        run.start("train", settings={}, data=changed)
    monkeypatch.setattr("labelsieve.runfolder.versions", lambda: {"torch": "9.9"})
    with pytest.raises(InputError, match=r"version of torch was .*, now 9\.9"):
        run.start("select", settings={"seed": 1, "epochs": 50}, data=data)
    run.finish("select")
    assert run.start("select", settings={"seed": 1, "epochs": 50}, data=data) == "done"


def test_decisions_are_told_to_go_along_with_data_that_grew(tmp_path: Path) -> None:
    data = three_samples()
    run = RunFolder(tmp_path)
    run.start("select", settings={}, data=data)
    more = replace(data, x=np.arange(8.0).reshape(4, 2), y=np.array([0, 1, 1, 0]), ids=np.array([*data.ids, "e"]))
    with pytest.raises(InputError, match=r"samples was 3, now 4.*--out$"):
        run.start("select", settings={}, data=more)
    append_decision(run / "decisions.csv", "a", "keep", "cat, tabby")
    append_decision(run / "decisions.csv", "d", "drop")
    append_decision(run / "decisions.csv", "d", "undo")
    assert run.decided() == 1
    with pytest.raises(InputError) as refused:
        run.start("select", settings={}, data=more)
    assert "--out" in str(refused.value) and f"copy {tmp_path}/decisions.csv" in str(refused.value)


def test_a_run_that_is_done_needs_no_lock_where_nobody_can_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = RunFolder(tmp_path)
    run.start("select", settings={}, data=three_samples())
    seen = []
    monkeypatch.setattr("os.access", lambda path, mode: not mode & os.W_OK)
    with run.lock():
        seen.append((tmp_path / "run.lock").exists())
    run.finish("select")
    with run.lock():
        seen.append((tmp_path / "run.lock").exists())
    monkeypatch.undo()
    with run.lock():
        seen.append((tmp_path / "run.lock").exists())
    assert seen == [True, False, True]


def test_fingerprint_sees_ids_labels_and_content() -> None:
    data = three_samples()
    prints = {fingerprint(data)}
    prints.add(fingerprint(LabelledData(**{**data.__dict__, "x": data.x + 1})))
    prints.add(fingerprint(LabelledData(**{**data.__dict__, "y": np.array([0, 1, 0])})))
    prints.add(fingerprint(LabelledData(**{**data.__dict__, "ids": np.array(["a", "b", "c"])})))
    assert len(prints) == 4
    assert fingerprint(data) == fingerprint(three_samples())


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "file.txt"
    write_text(path, "old")
    with pytest.raises(RuntimeError), atomic_writer(path) as file:
        file.write("half of the n")
        raise RuntimeError
    assert path.read_text() == "old" and os.listdir(tmp_path) == ["file.txt"]


def test_sigkill_in_the_middle_of_a_write_leaves_old_or_new(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    write_text(path, "0" * 1_000_000)
    program = textwrap.dedent(f"""
        from pathlib import Path
        from labelsieve.files import write_text
        print("up", flush=True)
        while True:
            for digit in "0123456789":
                write_text(Path({str(path)!r}), digit * 1_000_000)
    """)
    for _ in range(5):
        child = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
        assert child.stdout is not None
        child.stdout.readline()
        child.stdout.close()
        child.send_signal(signal.SIGKILL)
        child.wait()
        content = path.read_text()
        assert len(content) == 1_000_000 and len(set(content)) == 1
    with RunFolder(tmp_path).lock():
        assert sorted(os.listdir(tmp_path)) == ["run.json", "run.lock"]  # what the crashes left is swept up


def test_half_a_line_is_ignored_and_repaired(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    run.append_history({"epoch": 0, "loss": math.nan})
    with (run / "history.jsonl").open("a") as file:
        file.write('{"epoch": 1, "lo')
    assert run.read_history() == [{"epoch": 0, "loss": None}]
    run.append_history({"epoch": 1, "loss": 0.5})
    assert [entry["epoch"] for entry in run.read_history()] == [0, 1]
    run.rewind_history(lambda entry: entry["epoch"] < 1)
    assert [entry["epoch"] for entry in run.read_history()] == [0]


@settings(deadline=None)
@given(st.lists(st.tuples(st.text(max_size=20), st.text(max_size=20)), max_size=5))
def test_decisions_survive_any_name(tmp_path_factory: pytest.TempPathFactory, names: list[tuple[str, str]]) -> None:
    run = RunFolder(tmp_path_factory.mktemp("run"))
    for id, label in names:
        id, label = (text.encode("utf-8", "replace").decode() for text in (id, label))
        append_decision(run / "decisions.csv", id, "relabel", label)
    made = read_decisions(run / "decisions.csv")
    assert len(made) == len(names)
    for decision, (id, _) in zip(made, names, strict=True):
        assert decision.id == id.encode("utf-8", "replace").decode().replace("\r", " ").replace("\n", " ")


@pytest.mark.parametrize("left", ["", "id,deci"])
def test_a_full_disk_at_the_first_decision_costs_no_decision(tmp_path: Path, left: str) -> None:
    run = RunFolder(tmp_path)
    (run / "decisions.csv").write_text(left)  # what a refused header leaves, or a crash within it
    append_decision(run / "decisions.csv", "a", "keep", "cat")
    append_decision(run / "decisions.csv", "b", "drop")
    assert [made.id for made in read_decisions(run / "decisions.csv")] == ["a", "b"]
    assert (run / "decisions.csv").read_text().startswith("id,decision,label,reviewer,time\na,keep,cat,")


def test_decisions_without_a_header_are_all_read(tmp_path: Path) -> None:
    (tmp_path / "decisions.csv").write_text("a,keep,cat,t\nb,drop,,t\n")
    assert [made.id for made in read_decisions(RunFolder(tmp_path) / "decisions.csv")] == ["a", "b"]


def test_what_others_are_writing_is_left_alone(tmp_path: Path) -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    theirs, dead = tmp_path / f".report.html.{child.pid}.partial", tmp_path / "checkpoints" / ".a.999999999.partial"
    dead.parent.mkdir()
    odd = [tmp_path / name for name in (".x.partial", f".x.{'9' * 30}.partial", f".y.{os.getpid()}.partial")]
    for path in (theirs, dead, *odd):
        path.write_text("half")
    try:
        with RunFolder(tmp_path).lock():
            assert theirs.exists() and not any(path.exists() for path in (dead, *odd))
    finally:
        child.communicate(b"\n")
    with RunFolder(tmp_path).lock():
        assert not theirs.exists()


def test_lines_of_a_file_that_is_not_there(tmp_path: Path) -> None:
    assert read_lines(tmp_path / "none")[0] == []
    append_line(tmp_path / "some", "a\u2028b")
    assert read_lines(tmp_path / "some")[0] == ["a\u2028b"]


HOLD = """
import sys, time
from labelsieve.runfolder import RunFolder
with RunFolder(sys.argv[1]).lock():
    print("held", flush=True)
    time.sleep(60)
"""


def test_a_second_process_is_refused_and_a_dead_ones_lock_taken(tmp_path: Path) -> None:
    child = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE)
    assert child.stdout is not None
    assert child.stdout.readline() == b"held\n"
    child.stdout.close()
    with pytest.raises(InputError, match=f"in use by process {child.pid} on "), RunFolder(tmp_path).lock():
        pass
    child.send_signal(signal.SIGKILL)
    child.wait()
    assert (tmp_path / "run.lock").exists()  # stale
    with RunFolder(tmp_path).lock():
        assert json.loads((tmp_path / "run.lock").read_text())["pid"] == os.getpid()
        with pytest.raises(InputError, match="in use by process"), RunFolder(tmp_path).lock():
            pass
    assert not (tmp_path / "run.lock").exists()


def test_another_machines_lock_is_believed(tmp_path: Path) -> None:
    (tmp_path / "run.lock").write_text(json.dumps({"pid": 1, "host": "another-machine"}))
    with pytest.raises(InputError, match=r"process 1 on another-machine.*if that process is gone, delete"):
        with locked(tmp_path / "run.lock", what="run"):
            pass


def test_what_is_not_a_run_folder(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"run\.json not found"):
        RunFolder.existing(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="is a file, not a run folder"):
        RunFolder.existing(tmp_path / "file")
    with pytest.raises(InputError, match="is a file, not a run folder"):
        RunFolder(tmp_path / "file")
    with pytest.raises(InputError, match=r"labels\.csv does not exist"):
        list(RunFolder(tmp_path).read_labels())
    with pytest.raises(InputError, match=r"no summary\.json"):
        RunFolder(tmp_path).read_summary()
    (tmp_path / "run.json").write_text("{half")
    with pytest.raises(InputError, match="not valid JSON"):
        RunFolder(tmp_path).record()
    (tmp_path / "run.json").write_text('{"format": 99}')
    with pytest.raises(InputError, match="format 99"):
        RunFolder(tmp_path).record()
    (tmp_path / "labels.csv").write_text(",".join(LabelRow._fields) + "\nonly,two\n")
    with pytest.raises(InputError, match=r"labels\.csv"):
        list(RunFolder(tmp_path).read_labels())


@pytest.mark.parametrize("link", ["checkpoints", "checkpoints/networks", "staged"])
def test_a_linked_folder_in_a_run_is_refused(tmp_path: Path, link: str) -> None:
    run = RunFolder(tmp_path / "run")
    run.start("select", settings={}, data=three_samples())
    (tmp_path / "elsewhere").mkdir()
    (run.path / link).parent.mkdir(exist_ok=True)
    (run.path / link).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InputError, match=rf"{link} is a link"), run.lock():
        pass
    assert os.listdir(tmp_path / "elsewhere") == []


def test_the_path_of_a_file_does_not_lead_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "run" / "data").symlink_to(tmp_path / "elsewhere")
    run = RunFolder(tmp_path / "run")
    for name in ("data/train.npz", "data"):
        with pytest.raises(InputError, match="data is a link"):
            run / name
    for name in ("run.json", "history.jsonl", "decisions.csv"):
        (tmp_path / name).write_text("theirs")
        (tmp_path / "run" / name).symlink_to(tmp_path / name)
    for write in (
        lambda: run.append_history({}),
        lambda: append_decision(run / "decisions.csv", "a", "drop"),
        lambda: run.update(seed=1),
        lambda: run.read_history(),
    ):
        with pytest.raises(InputError, match="is a link"):
            write()
    assert all((tmp_path / name).read_text() == "theirs" for name in ("run.json", "history.jsonl", "decisions.csv"))


@pytest.mark.parametrize(
    "entries",
    [
        {"settings": {"root": ["x"]}},
        {"settings": {"label_column": {"a": 1}}},
        {"settings": {"size": "big"}},
        {"settings": []},
        {"data": {"source": 7}},
        {"data": {"kind": ["pictures"]}},
        {"stages": {"select": {"state": "done"}}},
    ],
)
def test_a_run_json_with_a_wrong_type_is_refused_in_one_line(tmp_path: Path, entries: dict[str, object]) -> None:
    (tmp_path / "run.json").write_text(json.dumps({"format": 1, **entries}))
    with pytest.raises(InputError, match=r"run\.json is damaged: \w+") as refused:
        RunFolder(tmp_path).record()
    assert "\n" not in str(refused.value)


def test_a_pipe_is_refused_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path, Path("/dev/null")):
        with pytest.raises(SpecialFileError):
            open_file(path)
    os.mkfifo(tmp_path / "decisions.csv")
    with pytest.raises(SpecialFileError):
        read_decisions(RunFolder(tmp_path) / "decisions.csv")


def test_numbers_of_any_precision_are_stored() -> None:
    wide = np.array([1.5, math.nan], dtype=np.longdouble)
    assert plain({"wide": wide, "one": wide[0], "narrow": np.float16(0.25)}) == {
        "wide": [1.5, None],
        "one": 1.5,
        "narrow": 0.25,
    }
