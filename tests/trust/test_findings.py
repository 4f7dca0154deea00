"""Attacks that succeeded once, repeated with the command line as they were found.

They use commands and files only, so that they run on older versions too.
"""

from __future__ import annotations

import csv
import json
import os
import re
import signal
import sys
import time
import unicodedata
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from labelsieve.__main__ import main

Run = Callable[..., tuple[int, str]]
QUICK = "--model nearest --iterations 1"
FORMULA = "=cmd|' /C calc'!A0"


@pytest.fixture
def labelsieve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs a command in an empty folder; returns its exit code and its output."""
    monkeypatch.chdir(tmp_path)

    def run(line: str) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["labelsieve", *line.split()])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        said = "".join(capsys.readouterr())
        assert "Traceback" not in said
        return int(ended.value.code or 0), said

    return run


def table(path: str, extra: Callable[[int], str] = str, *, header: str = "id", n: int = 60) -> None:
    rng = np.random.default_rng(0)
    with Path(path).open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, quoting=csv.QUOTE_ALL)
        writer.writerow(["x", "z", "label", header])
        writer.writerows([f"{rng.normal() + i % 2 * 4:.3f}", i % 5, "ab"[i % 2], extra(i)] for i in range(n))


def pictures(folder: str, n: int = 6, *, bright: bool = False) -> None:
    Path(folder).mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(len(folder))
    for i in range(n):
        pixels = rng.integers(0, 100, (8, 8, 3)) + 150 * bright
        Image.fromarray(pixels.astype(np.uint8)).save(Path(folder) / f"{i}.png")


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("cell", [f"hi\r{FORMULA}", f"hi\n{FORMULA}", f"t;{FORMULA}", f"t\t{FORMULA}"])
def test_1_a_line_break_or_separator_before_a_formula(labelsieve: Run, cell: str) -> None:
    import pandas

    table("t.csv", lambda i: cell, header="note", n=200)
    assert labelsieve(f"select t.csv --out run {QUICK}")[0] == 0
    assert labelsieve("export run --what cleaned --to out.csv")[0] == 0
    rows = pandas.read_csv("out.csv", dtype=str, keep_default_na=False)
    assert len(rows) == 200 and set(rows["label"]) == {"a", "b"}
    text = Path("out.csv").read_bytes().decode()
    assert not [part for part in re.split("[\r\n;\t,]", text) if part.strip('"').startswith("=")]


@pytest.mark.filterwarnings("default")
def test_1_a_carriage_return_in_an_id_and_in_a_name(labelsieve: Run) -> None:
    table("t.csv", lambda i: f"s\r{i}")
    assert labelsieve(f"select t.csv --out run {QUICK}")[0] == 0
    pictures("set/a\rb")
    pictures("set/c", bright=True)
    Path("set/c/0.png").rename("set/c/\r0.png")
    assert labelsieve(f"select set --out other {QUICK}")[0] == 0
    for run, to in (("run", "out.csv"), ("other", "out")):
        assert labelsieve(f"report {run}")[0] == 0
        assert labelsieve(f"export {run} --what cleaned --to {to}")[0] == 0
    assert len(list(Path("out").rglob("*.png"))) == 12


@pytest.mark.filterwarnings("default")
def test_1_every_file_that_is_written_has_one_row_per_sample(labelsieve: Run) -> None:
    """Ids and labels with carriage returns and formulas, in the files of every command that writes CSV."""
    import pandas

    table("t.csv", lambda i: f"s{i}\r{FORMULA}")
    Path("t.csv").write_bytes(Path("t.csv").read_bytes().replace(b'"a"', b'"a\r=1"'))
    assert labelsieve(f"run t.csv --out run {QUICK} --train-epochs 1 --device cpu --method standard")[0] == 0
    decided = f'"s3 {FORMULA}",drop,,ann,2026-01-01T00:00:00.000+00:00\n'
    Path("run/decisions.csv").write_text(f"id,decision,label,reviewer,time\n{decided}")
    exports = ("cleaned", "selected", "suspects", "decisions")
    lines = ["predict run t.csv --to p.csv", "corrupt t.csv --out c.csv"]
    for line in (*lines, *(f"export run --what {what} --to {what}.csv" for what in exports)):
        code, said = labelsieve(line)
        assert code == 0, said
    expected = {"p": 60, "c": 60, "cleaned": 59, "decisions": 1, "run/labels": 60}
    for name in dict.fromkeys((*expected, *exports)):
        rows = pandas.read_csv(f"{name}.csv", dtype=str, keep_default_na=False)
        assert len(rows) == expected.get(name, len(rows)), name
        assert rows["id"].str.fullmatch(r"'?s\d+[\r ]'?=cmd.*").all(), name
        assert name not in exports or not rows["id"].str.contains("\r=").any(), name


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("to", [".", "batch1/a", "list.csv", "new/../batch1"])
def test_2_export_does_not_replace_other_files_of_the_source(labelsieve: Run, to: str) -> None:
    pictures("batch1/a", 4)
    pictures("batch1/b", 4, bright=True)
    names = [str(path) for path in sorted(Path().rglob("*.png"))]
    Path("list.csv").write_text("path,label\n" + "".join(f"{name},{Path(name).parent.name}\n" for name in names))
    before = {path: path.read_bytes() for path in (*map(Path, names), Path("list.csv"))}
    Path("new").mkdir()
    assert labelsieve(f"select list.csv --out run {QUICK}")[0] == 0
    assert labelsieve(f"export run --what cleaned --to {to} --force")[0] == 2
    assert {path: path.read_bytes() for path in before} == before


@pytest.mark.filterwarnings("default")
def test_2_export_does_not_replace_originals(labelsieve: Run) -> None:
    pictures("batch1/a", 4)
    pictures("batch2/a", 4)
    pictures("batch2/b", 4, bright=True)
    names = [str(path) for path in sorted(Path().rglob("*.png"))]
    Path("list.csv").write_text("path,label\n" + "".join(f"{name},{Path(name).parent.name}\n" for name in names))
    before = {name: Path(name).read_bytes() for name in names}
    assert labelsieve(f"select list.csv --out run {QUICK}")[0] == 0
    dropped = [f"{name},drop,,2026-01-01T00:00:00.000Z\n" for name in names if name.startswith("batch1")]
    Path("run/decisions.csv").write_text("id,decision,label,time\n" + "".join(dropped))
    code, said = labelsieve("export run --what cleaned --to batch1 --force")
    assert code == 2 and "batch1" in said
    assert {name: Path(name).read_bytes() for name in names} == before


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(os.mkfifo, id="pipe"),
        pytest.param(lambda path: os.mknod(path, 0o140644), id="socket", marks=pytest.mark.slow),
    ],
)
def test_3_special_files_do_not_stop_a_run(
    labelsieve: Run, forked: Callable[..., int], make: Callable[[str], None]
) -> None:
    pictures("set/a")
    pictures("set/b", bright=True)
    make("set/a/9.png")
    child = forked(["select", "set", "--out", "run", *QUICK.split()], Path("said.txt"))
    end = time.monotonic() + 100
    while (ended := os.waitpid(child, os.WNOHANG)) == (0, 0) and time.monotonic() < end:
        time.sleep(0.02)
    if ended == (0, 0):
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    assert ended == (child, 0), Path("said.txt").read_text()
    assert "9.png" in Path("run/skipped.csv").read_text()


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize(
    ("pipe", "line"),
    [
        ("t2.csv", f"select t2.csv --out new {QUICK}"),
        ("t2.jsonl", f"select t2.jsonl --out new {QUICK}"),
        ("t2.npz", f"select t2.npz --out new {QUICK}"),
        ("l.csv", f"select t.csv --labels l.csv --out new {QUICK}"),
        ("m.npy", "theory --matrix m.npy"),
        ("run/decisions.csv", "export run --what cleaned --to out.csv"),
        ("run/summary.json", "report run"),
    ],
)
def test_3_a_pipe_in_the_place_of_any_file_is_one_line(labelsieve: Run, pipe: str, line: str) -> None:
    table("t.csv")
    assert labelsieve(f"select t.csv --out run {QUICK}")[0] == 0
    Path(pipe).unlink(missing_ok=True)
    os.mkfifo(pipe)
    signal.signal(signal.SIGALRM, lambda *_: pytest.fail("waits for the other end of the pipe"))
    signal.alarm(120)
    try:
        code, said = labelsieve(line)
    finally:
        signal.alarm(0)
    assert code in (1, 2) and said.splitlines()[-1].startswith("labelsieve: "), said


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("place", ["set/a/loop", "set/loop", "set/a/loop.png"])
def test_4_a_loop_of_links(labelsieve: Run, place: str) -> None:
    pictures("set/a")
    pictures("set/b", bright=True)
    Path(place).symlink_to(Path(place).name)
    assert labelsieve(f"select set --out run {QUICK}")[0] == 0
    assert labelsieve("export run --what cleaned --to out")[0] == 0
    assert len(list(Path("out").rglob("*.png"))) == 12


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("names", [("CAT", "cat"), ("Caf\u00e9", unicodedata.normalize("NFD", "Caf\u00e9"))])
def test_5_class_folders_that_collide_are_listed(labelsieve: Run, names: tuple[str, str]) -> None:
    for i, name in enumerate(names):
        pictures(f"set/{name}", bright=bool(i))
    assert labelsieve(f"select set --out run {QUICK}")[0] == 0
    code, said = labelsieve("export run --what cleaned --to out")
    assert code == 0
    with Path("out-classes.csv").open(encoding="utf-8", newline="") as file:
        mapped = dict(list(csv.reader(file))[1:])
    for name in names:
        folder = Path("out", mapped.get(name, name))
        assert len(list(folder.iterdir())) == 6
    assert "out-classes.csv" in said


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("folder", ["checkpoints", "checkpoints/train"])
def test_6_nothing_is_written_through_a_linked_folder(labelsieve: Run, folder: str) -> None:
    table("t.csv")
    assert labelsieve(f"select t.csv --out run {QUICK}")[0] == 0
    Path("elsewhere").mkdir()
    link = Path("run", folder)
    link.parent.mkdir(exist_ok=True)
    if link.is_dir():
        link.rename("before")
    link.symlink_to(Path("elsewhere").absolute())
    code, said = labelsieve("train run --train-epochs 1 --device cpu --network mlp")
    assert list(Path("elsewhere").iterdir()) == []
    assert code == 2 and folder in said


@pytest.mark.filterwarnings("default")
def test_6_select_writes_nothing_through_a_linked_folder(labelsieve: Run) -> None:
    Path("t.csv").write_text("text,label\n" + "".join(f"{'good bad'.split()[i % 2]} {i},{i % 2}\n" for i in range(40)))
    Path("elsewhere").mkdir()
    Path("run").mkdir()
    Path("run/staged").symlink_to(Path("elsewhere").absolute())
    code, said = labelsieve("select t.csv --embed trust_models:embed --iterations 1 --out run")
    assert code != 0 and list(Path("elsewhere").iterdir()) == [], said


@pytest.mark.filterwarnings("default")
def test_7_restarts_of_a_review_add_nothing(labelsieve: Run, forked: Callable[..., int]) -> None:
    """A decision, and a kill; every second time in the middle of a line."""
    table("t.csv")
    assert labelsieve(f"select t.csv --out run {QUICK}")[0] == 0
    path = Path("run/decisions.csv")
    for i in range(3):
        if i % 2:
            with path.open("ab") as file:
                file.write(b"5,dr")
        _decide("run", i, forked)
    lines = path.read_text().split("\n")
    assert lines[-1] == "" and all(lines[:-1]) and len(lines) == 5, lines
    assert not list(Path("run").glob(".*.partial"))


def _decide(run: str, row: int, forked: Callable[..., int]) -> None:
    """Start a review, decide one sample, and kill the server."""
    from urllib.request import Request, urlopen

    said = Path(f"said-{row}.txt")
    server = forked(["review", run, "--port", "0", "--json"], said)
    try:
        end = time.monotonic() + 60
        while not (found := re.search(r'"address": "(\S+)"', said.read_text() if said.exists() else "")):
            assert os.waitpid(server, os.WNOHANG) == (0, 0) and time.monotonic() < end, said.read_text()
            time.sleep(0.02)
        base, _, token = found[1].partition("?token=")
        sample = {"row": row, "version": 0}
        body = {**sample, "samples": [sample], "decision": "keep", "label": None, "window": "w"}
        headers = {"Content-Type": "application/json", "X-Labelsieve-Token": token, "Origin": base.rstrip("/")}
        request = Request(f"{base}api/decide?token={token}", json.dumps(body).encode(), headers)
        with urlopen(request) as answer:
            assert answer.status == 200
    finally:
        os.kill(server, signal.SIGKILL)
        os.waitpid(server, 0)


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize(("group", "name"), [("settings", "root"), ("settings", "label_column"), ("data", "source")])
def test_8_a_setting_of_another_type_is_one_line(labelsieve: Run, group: str, name: str) -> None:
    table("t.csv")
    assert labelsieve(f"select t.csv --out run {QUICK}")[0] == 0
    record = json.loads(Path("run/run.json").read_text())
    record[group][name] = ["x"]
    Path("run/run.json").write_text(json.dumps(record))
    for command in ("report run", "export run --what cleaned --to out.csv", "train run --train-epochs 1"):
        code, said = labelsieve(command)
        assert code == 2 and said.count("\n") == 1 and f"{group}.{name}" in said, said


@pytest.mark.filterwarnings("default")
def test_8_every_setting_of_another_type_is_one_line(labelsieve: Run) -> None:
    table("t.csv")
    assert labelsieve(f"select t.csv --out run {QUICK}")[0] == 0
    record = json.loads(Path("run/run.json").read_text())
    for group in ("settings", "data"):
        for name in record[group]:
            for value in (["x"], {"a": 1}, "\0"):
                changed = {**record, group: {**record[group], name: value}}
                Path("run/run.json").write_text(json.dumps(changed))
                code, said = labelsieve("export run --what cleaned --to out.csv --force")
                assert code == 0 or (code in (1, 2) and said.count("\n") == 1), f"{group}.{name}: {said}"


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("value", [np.inf, -np.inf, 1e300])
def test_8_values_that_are_too_large_are_one_line(labelsieve: Run, value: float) -> None:
    x = np.random.default_rng(0).normal(size=(60, 3))
    x[5, 1] = value
    np.savez("t.npz", x=x, y=np.arange(60) % 2)
    code, said = labelsieve(f"select t.npz --out run {QUICK}")
    assert code == 2 and said.count("\n") == 1 and "row 6" in said, said


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("size", [3_000_000, pytest.param(200_000_000, marks=pytest.mark.slow)])
def test_8_a_long_cell_is_read(labelsieve: Run, size: int) -> None:
    with Path("t.csv").open("w") as file:
        file.write("text,label\n")
        for i in range(40):
            file.write(f"{('good fine nice', 'bad poor ugly')[i % 2]} {i},{'ab'[i % 2]}\n")
        file.write(f"{'a' * size},a\n")
    code, said = labelsieve("select t.csv --out run --model tfidf --iterations 1")
    assert code == 0, said
    assert json.loads(Path("run/summary.json").read_text())["samples"] == 41


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("column", ["id", "label"])
def test_texts_that_end_with_nul_are_not_mixed_up(labelsieve: Run, column: str) -> None:
    table("t.csv", lambda i: f"s{i}" + "\0" * (i % 2 if column == "id" else 0))
    if column == "label":
        Path("t.csv").write_bytes(Path("t.csv").read_bytes().replace(b'"a"', b'"b\0"'))
    code, said = labelsieve(f"select t.csv --out run {QUICK}")
    assert code == 2 and "NUL" in said


@pytest.mark.filterwarnings("default")
def test_9_a_column_with_the_given_label_is_named(labelsieve: Run) -> None:
    rng = np.random.default_rng(0)
    true = rng.integers(0, 2, 300)
    given = np.where(rng.random(300) < 0.274, 1 - true, true)
    rows = [f"{rng.normal() + 3 * t:.3f},{'no' if g else 'yes'},{'ab'[g]}\n" for t, g in zip(true, given, strict=True)]
    Path("t.csv").write_text("x,answer,label\n" + "".join(rows))
    code, said = labelsieve("select t.csv --out run --iterations 1")
    assert code == 0 and [line for line in said.splitlines() if "answer" in line and "features:" not in line]
    noise = json.loads(Path("run/summary.json").read_text())["iterations"][0]["estimate"]
    assert noise["trust"] == "unknown" and noise["why_unknown"] == "leak"
    assert labelsieve("report run")[0] == 0


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("blank_for", ["given", "true"])
def test_9_a_column_that_is_blank_for_one_class(labelsieve: Run, blank_for: str) -> None:
    """Blank cells that tell the given label are a leak; those that tell the true class do not narrow the interval."""
    rng = np.random.default_rng(0)
    true = rng.integers(0, 2, 1000)
    given = np.where(rng.random(1000) < 0.3, 1 - true, true)
    x = rng.normal(size=(1000, 3)) + 1.5 * true[:, None]
    blank = {"given": given, "true": true}[blank_for]
    rows = zip(x, blank, given, strict=True)
    text = "".join(f"{r[0]:.3f},{r[1]:.3f},{'' if b else f'{r[2]:.3f}'},{'ab'[g]}\n" for r, b, g in rows)
    Path("t.csv").write_text("p,q,r,label\n" + text)
    assert labelsieve("select t.csv --out run --iterations 1")[0] == 0
    noise = json.loads(Path("run/summary.json").read_text())["iterations"][0]["estimate"]
    if blank_for == "given":
        assert noise["why_unknown"] == "leak"
    else:
        assert noise["low"] <= np.mean(given != true) <= noise["high"]


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize(
    "entry", [{"label_recall": "x"}, {"noise_ratio": []}, {"notes": None}, {"notes": [[]]}, {"counts": {}}]
)
def test_a_damaged_summary_is_one_line(labelsieve: Run, entry: dict[str, object]) -> None:
    table("t.csv")
    assert labelsieve(f"select t.csv --out run {QUICK}")[0] == 0
    path = Path("run/summary.json")
    path.write_text(json.dumps(json.loads(path.read_text()) | entry))
    code, said = labelsieve(f"select t.csv --out run {QUICK}")
    assert code == 2 and "summary.json is damaged" in said.splitlines()[-1]


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("place", ["id", "label", "x", "name"])
def test_half_of_a_surrogate_pair_in_json_is_one_line(labelsieve: Run, place: str) -> None:
    rows = [{"id": f"s{i}", "x": i % 2 * 3 + i / 99, "label": "ab"[i % 2]} for i in range(30)]
    rows[20] = {**rows[20], ("\ud800" if place == "name" else place): "\udfff"}
    Path("t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    code, said = labelsieve(f"select t.jsonl --out run {QUICK}")
    assert code == 2 and said.count("\n") == 1 and "line 21" in said, said


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("cell", ["XFD1048576", "ZZZZZZ2000000000"])
def test_a_cell_far_from_the_others_of_a_spreadsheet_is_one_line(labelsieve: Run, cell: str) -> None:
    """The library that reads spreadsheets ended the process."""
    pytest.importorskip("python_calamine")
    spreadsheet("t.xlsx", [("A1", "x"), ("B1", "label"), ("A2", "1"), ("B2", "a"), (cell, "1")])
    code, said = labelsieve(f"select t.xlsx --out run {QUICK}")
    assert code == 2 and said.count("\n") == 1 and "t.xlsx" in said, said


def spreadsheet(path: str, cells: list[tuple[str, str]]) -> None:
    """The smallest .xlsx file with these cells."""
    office, package = (
        "http://schemas.openxmlformats.org/officeDocument/2006",
        "http://schemas.openxmlformats.org/package/2006",
    )
    main = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"

    def relation(kind: str, target: str) -> str:
        entry = f'<Relationship Id="r1" Type="{office}/relationships/{kind}" Target="{target}"/>'
        return f'<Relationships xmlns="{package}/relationships">{entry}</Relationships>'

    rows = "".join(
        f'<row r="{re.sub("[A-Z]", "", name)}"><c r="{name}" t="inlineStr"><is><t>{text}</t></is></c></row>'
        for name, text in cells
    )
    sheet = f'<sheet name="s" sheetId="1" r:id="r1" xmlns:r="{office}/relationships"/>'
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("[Content_Types].xml", f'<Types xmlns="{package}/content-types"/>')
        archive.writestr("_rels/.rels", relation("officeDocument", "xl/workbook.xml"))
        archive.writestr("xl/_rels/workbook.xml.rels", relation("worksheet", "worksheets/sheet1.xml"))
        archive.writestr("xl/workbook.xml", f'<workbook xmlns="{main}"><sheets>{sheet}</sheets></workbook>')
        archive.writestr(
            "xl/worksheets/sheet1.xml", f'<worksheet xmlns="{main}"><sheetData>{rows}</sheetData></worksheet>'
        )


@pytest.mark.filterwarnings("default")
def test_texts_without_words_are_read(labelsieve: Run) -> None:
    Path("t.csv").write_text("text,label\n" + "".join(f"{'+-'[i % 2]},{'ab'[i % 2]}\n" for i in range(40)))
    assert labelsieve("run t.csv --out run --text-column text --model tfidf --iterations 1 --train-epochs 1")[0] == 0
    assert labelsieve("predict run t.csv --to p.csv")[0] == 0
    assert Path("p.csv").read_text().count("\n") == 41
