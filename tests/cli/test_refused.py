"""A command that is refused, or stopped, leaves a run folder as it was; one that is no run's is not touched."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from labelsieve.cli.app import run
from labelsieve.data.pictures import EncodedPictures, PictureFiles
from labelsieve.decisions import append_decision
from labelsieve.runfolder import RunFolder

SELECT = "--iterations 1 --model edges --device cpu"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    draw(tmp_path / "data", 1)
    return tmp_path


def draw(root: Path, seed: int, n: int = 40) -> None:
    rng = np.random.default_rng(seed)
    for i in range(n):
        path = root / ("dark", "light")[i % 2] / f"{i:02d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 120, (10, 10, 3), dtype=np.uint8) + np.uint8(120 * (i % 2))).save(path)


def files(folder: Path) -> dict[Path, tuple[int, bytes]]:
    return {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in folder.rglob("*") if path.is_file()}


def decoding_is_an_error(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(EncodedPictures, "decode", None)


@pytest.mark.parametrize("command", ["select", "run"])
def test_another_size_is_refused_before_a_picture_is_read(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    line = f"{command} data {SELECT}" + (" --train-epochs 1 --network small-cnn" if command == "run" else "")
    assert run([*line.split(), "--size", "12", "--out", "mine"]) == 0
    before = files(here / "mine")
    decoding_is_an_error(monkeypatch)
    for other, message in (
        ("--size 16 --seed 3", "seed was 0, now 3; size was 12, now 16"),
        ("", "size was 12, now not set"),
        ("--size 12 --model logistic", "model was edges, now logistic"),
    ):
        capsys.readouterr()
        assert run([*line.replace("--model edges", "" if "--model" in other else "--model edges").split(),
                    *other.split(), "--out", "mine"]) == 2  # fmt: skip
        assert f"mine was started with other settings: {message}." in capsys.readouterr().err
        assert files(here / "mine") == before
    assert run([*line.split(), "--size", "12", "--out", "mine"]) == 0  # which decodes nothing


def test_another_source_leaves_the_staged_pictures(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    draw(here / "other", 2)
    assert run(f"select data --out mine {SELECT}".split()) == 0
    before = files(here / "mine")
    assert run(f"select other --out mine {SELECT}".split()) == 2
    assert "samples or their labels" in capsys.readouterr().err
    assert files(here / "mine") == before
    decoding_is_an_error(monkeypatch)
    assert run(f"select data --out mine {SELECT}".split()) == 0


def test_a_source_that_changed_leaves_what_a_training_reads(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(f"select data --out mine {SELECT}".split()) == 0
    before = files(here / "mine")
    kept = (here / "data" / "dark" / "00.png").rename(here / "kept.png")
    Image.new("RGB", (10, 10), "red").save(here / "data" / "dark" / "00.png")
    for line in ("train mine --train-epochs 1", "train mine --train-epochs 1 --out second"):
        assert run([*line.split(), "--network", "small-cnn", "--device", "cpu"]) == 2
        assert "changed since" in capsys.readouterr().err
    assert files(here / "mine") == before
    kept.rename(here / "data" / "dark" / "00.png")
    assert run("train mine --train-epochs 1 --network small-cnn --device cpu".split()) == 0


def test_pictures_that_were_only_written_again_are_taken(here: Path) -> None:
    assert run(f"select data --out mine {SELECT}".split()) == 0
    before = {path.name for path in (here / "mine" / "staged").iterdir()}
    path = here / "data" / "dark" / "00.png"
    path.write_bytes(path.read_bytes())
    assert run(f"select data --out mine {SELECT}".split()) == 0
    after = {path.name for path in (here / "mine" / "staged").iterdir()}
    assert len(after) == len(before) == 3 and not after & before


@pytest.mark.parametrize(
    "line",
    [
        f"select data {SELECT} --out documents",
        f"run data {SELECT} --train-epochs 1 --out documents",
        f"run data {SELECT} --dry-run --out documents",
        "train mine --train-epochs 1 --out documents",
        "demo --out documents",
    ],
)
def test_a_folder_of_somebody_is_not_touched(here: Path, capsys: pytest.CaptureFixture[str], line: str) -> None:
    assert run(f"select data --out mine {SELECT}".split()) == 0
    (here / "documents").mkdir()
    for name in ("letter.txt", "labels.csv"):
        (here / "documents" / name).write_text("mine")
    before = files(here / "documents")
    capsys.readouterr()
    assert run(line.split()) == 2
    assert "labels.csv, letter.txt but no run.json: give --out" in capsys.readouterr().err
    assert files(here / "documents") == before


def test_an_empty_folder_with_hidden_files_is_free(here: Path) -> None:
    (here / "mine").mkdir()
    (here / "mine" / ".gitkeep").write_text("")
    (here / "mine" / ".DS_Store").write_text("")
    assert run(f"select data --out mine {SELECT}".split()) == 0
    assert run(f"select data --out mine {SELECT}".split()) == 0
    assert (here / "mine" / ".gitkeep").exists()


def test_a_source_below_runs_is_not_its_own_run_folder(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "data").rename((here / "runs").mkdir() or here / "runs" / "data")
    assert run(f"select runs/data {SELECT}".split()) == 2
    assert "dark, light but no run.json" in capsys.readouterr().err
    assert sorted(path.name for path in (here / "runs" / "data").iterdir()) == ["dark", "light"]


def test_a_command_that_is_stopped_while_it_decodes_goes_on(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(PictureFiles, "decode", stop)
        assert run(f"select data --out mine {SELECT}".split()) == 130
    assert not (here / "mine" / "run.json").exists()
    assert run(f"select data --out mine {SELECT}".split()) == 0


def stop(*_: object) -> int:
    raise KeyboardInterrupt


def test_a_branch_that_is_stopped_goes_on(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(f"select data --out mine {SELECT}".split()) == 0
    line = "train mine --train-epochs 1 --network small-cnn --device cpu --out second"
    for name in ("rewind_history", "append_history", "lock"):
        with monkeypatch.context() as patch:
            patch.setattr(RunFolder, name, stop)
            assert run(line.split()) == 130
    assert run(line.split()) == 0
    assert (here / "mine" / "labels.csv").read_bytes() == (here / "second" / "labels.csv").read_bytes()
    assert json.loads((here / "second" / "run.json").read_text())["stages"]["train"]["state"] == "done"


def test_a_demo_that_is_stopped_goes_on(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("labelsieve.workflow.demo.compare", stop)
        assert run("demo --out demo".split()) == 130
    assert run("demo --out demo --json".split()) == 0


def test_decisions_go_along_with_data_that_grew(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As docs/run-folder.md has it."""
    rng = np.random.default_rng(0)
    rows = [f"{rng.normal(5 * (i % 2)):.3f},{'ab'[i % 2 if i % 9 else 1 - i % 2]}\n" for i in range(120)]
    (here / "t.csv").write_text("x,label\n" + "".join(rows[:90]))
    line = "select t.csv --model logistic --iterations 1"
    assert run([*line.split(), "--out", "old"]) == 0
    old = RunFolder("old")
    given = {row.id: row.label for row in old.read_labels()}
    append_decision(old / "decisions.csv", "0", "keep", given["0"])
    append_decision(old / "decisions.csv", "9", "relabel", "ab"["ba".index(given["9"])])
    append_decision(old / "decisions.csv", "18", "drop")
    (here / "t.csv").write_text("x,label\n" + "".join(rows))
    capsys.readouterr()
    assert run([*line.split(), "--out", "old"]) == 2
    assert "copy old/decisions.csv" in capsys.readouterr().err
    assert run([*line.split(), "--out", "new"]) == 0
    shutil.copy(here / "old" / "decisions.csv", here / "new")
    capsys.readouterr()
    assert run("export new --dry-run".split()) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("1 label changed; ") and len(lines) == 2
    assert lines[1].startswith("nothing written") and lines[1].endswith("1 dropped")
    assert run("export new --json".split()) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["rows"], found["changed"], found["dropped"]) == (119, 1, 1)
    assert run("export new --what decisions --json".split()) == 0
    made = [line.split(",")[2] for line in (here / "t-decisions.csv").read_text().splitlines()]
    assert made == ["decision", "keep", "relabel", "drop"]
