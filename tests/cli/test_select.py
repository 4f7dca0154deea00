"""corrupt and select from end to end: what is written, what is resumed, what is refused."""

from __future__ import annotations

import csv
import json
import shlex
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from labelsieve.cli.app import run
from labelsieve.runfolder import RunFolder


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def answer(capsys: pytest.CaptureFixture[str], line: str) -> dict:
    assert run([*line.split(), "--json"]) == 0, capsys.readouterr().err
    return json.loads(capsys.readouterr().out)


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def blobs(path: Path, *, n: int = 120, seed: int = 0) -> np.ndarray:
    """Two groups that are far apart, a tenth of the labels wrong; returns where."""
    rng = np.random.default_rng(seed)
    true = rng.integers(0, 2, n)
    x = rng.normal(size=(n, 3)) + 6 * true[:, None]
    wrong = rng.random(n) < 0.1
    names = np.array(["cat", "dog"])
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "a", "b", "c", "label"])
        for i in range(n):
            writer.writerow([f"s{i}", *x[i], names[true[i] ^ wrong[i]]])
    return wrong


def test_corrupt_writes_what_it_says(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = answer(capsys, "corrupt digits --pattern pair --ratio 0.3 --seed 5 --out l.csv")
    rows = rows_of(here / "l.csv")
    wrong = [row for row in rows if row["label"] != row["true"]]
    assert len(rows) == 1797 and len(wrong) / 1797 == pytest.approx(found["wrong"])
    assert abs(len(wrong) / 1797 - 0.3) < 4 * (0.21 / 1797) ** 0.5
    assert all(int(row["label"]) == (int(row["true"]) + 1) % 10 for row in wrong)
    first = (here / "l.csv").read_text()
    answer(capsys, "corrupt digits --pattern pair --ratio 0.3 --seed 5 --out l.csv --force")
    assert (here / "l.csv").read_text() == first
    answer(capsys, "corrupt digits --pattern pair --ratio 0.3 --seed 6 --out l.csv --force")
    assert (here / "l.csv").read_text() != first


def test_corrupt_writes_over_nothing(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    blobs(here / "t.csv")
    before = (here / "t.csv").read_text()
    (here / "l.csv").write_text("mine\n")
    for out, options, said in (
        ("t.csv", "", "--out t.csv is the source"),
        ("t.csv", "--force", "--out t.csv is the source"),
        ("l.csv", "", "--force"),
        (".", "--force", "--out . is a folder"),
    ):
        assert run(f"corrupt t.csv --ratio 0.2 --out {out} {options}".split()) == 2
        assert said in capsys.readouterr().err
    assert (here / "t.csv").read_text() == before and (here / "l.csv").read_text() == "mine\n"
    assert run("corrupt t.csv --ratio 0.2 --out l.csv --force".split()) == 0


def test_corrupt_by_matrix_and_by_instance(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    blobs(here / "t.csv")
    (here / "m.csv").write_text("1,0\n1,0\n")
    answer(capsys, "corrupt t.csv --matrix m.csv --out l.csv")
    assert {row["label"] for row in rows_of(here / "l.csv")} == {"cat"}
    assert answer(capsys, "corrupt t.csv --pattern instance --ratio 0.25 --out i.csv")["wrong"] == pytest.approx(
        0.25, abs=0.15
    )
    assert run("corrupt digits --matrix m.csv --out d.csv".split()) == 2
    assert "2 classes, digits has 10" in capsys.readouterr().err


def test_select_finds_the_wrong_labels_of_a_table(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wrong = blobs(here / "t.csv")
    found = answer(capsys, "select t.csv --out run")
    rows = rows_of(here / "run" / "labels.csv")
    assert [row["id"] for row in rows] == [f"s{i}" for i in range(120)]
    assert {row["label"] for row in rows} == {"cat", "dog"}
    for row, bad in zip(rows, wrong, strict=True):
        assert (row["verdict"] != "selected") == bad
        assert row["suggested"] == ({"cat": "dog", "dog": "cat"}[row["label"]] if bad else "")
    assert found["counts"]["selected"] == int((~wrong).sum())
    assert abs(found["noise_ratio"] - wrong.mean()) < 0.05
    assert "measured_noise_ratio" not in found
    ranked = np.argsort([-float(row["suspicion"]) for row in rows], kind="stable")
    assert wrong[ranked[: wrong.sum()]].all()
    suspects = rows_of(here / "run" / "suggestions.csv")
    assert {row["id"] for row in suspects} == {row["id"] for row in rows if row["suggested"]}
    assert all(0 <= float(row["probability"]) <= float(row["suspicion"]) + 1e-5 for row in suspects)


def test_the_same_command_does_nothing_more_and_another_is_refused(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    blobs(here / "t.csv")
    first = answer(capsys, "select t.csv --out run --model neighbours")
    before = (here / "run" / "labels.csv").stat()
    again = answer(capsys, "select t.csv --out run --model neighbours")
    assert first["resumed"] == "new" and again["resumed"] == "done" and first["counts"] == again["counts"]
    assert (here / "run" / "labels.csv").stat().st_mtime_ns == before.st_mtime_ns
    assert run("select t.csv --out run --model neighbours --seed 3".split()) == 2
    assert "seed was 0, now 3" in capsys.readouterr().err
    blobs(here / "t.csv", seed=1)
    assert run("select t.csv --out run --model neighbours".split()) == 2
    assert "samples or their labels" in capsys.readouterr().err


def test_a_stopped_selection_goes_on_and_ends_the_same(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from labelsieve.execute.sklearn_trainer import SklearnTrainer

    blobs(here / "t.csv")
    answer(capsys, "select t.csv --out whole --model neighbours")
    train = SklearnTrainer.train_and_score
    asked: list[str] = []

    def interrupted(self: SklearnTrainer, jobs: list) -> list:
        if len(asked) >= 4:
            raise KeyboardInterrupt
        asked.extend(job.name for job in jobs)
        return train(self, jobs)

    with monkeypatch.context() as patch:
        patch.setattr(SklearnTrainer, "train_and_score", interrupted)
        assert run("select t.csv --out run --model neighbours".split()) == 130
    assert RunFolder("run").state("select") == "running" and not (here / "run" / "labels.csv").exists()
    damaged = next((here / "run" / "checkpoints" / "select").glob("incv-1-1-*.npz"))
    damaged.write_bytes(damaged.read_bytes()[:100])
    again: list[str] = []

    def counting(self: SklearnTrainer, jobs: list) -> list:
        again.extend(job.name for job in jobs)
        return train(self, jobs)

    monkeypatch.setattr(SklearnTrainer, "train_and_score", counting)
    capsys.readouterr()
    assert answer(capsys, "select t.csv --out run --model neighbours")["resumed"] == "resumed"
    assert not set(asked) & set(again) - {"incv-1-1"} and "incv-1-1" in again
    assert (here / "run" / "labels.csv").read_text() == (here / "whole" / "labels.csv").read_text()
    assert (here / "run" / "summary.json").read_text() == (here / "whole" / "summary.json").read_text()


def test_measured_values_come_from_the_true_column_alone(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wrong = blobs(here / "t.csv")
    rows = rows_of(here / "t.csv")
    other = {"cat": "dog", "dog": "cat"}
    with (here / "l.csv").open("w") as file:
        file.write("id,label,true\n")
        for row, bad in zip(rows, wrong, strict=True):
            file.write(f"{row['id']},{row['label']},{other[row['label']] if bad else row['label']}\n")
    found = answer(capsys, "select t.csv --labels l.csv --out run --model neighbours")
    assert found["measured_noise_ratio"] == pytest.approx(wrong.mean())
    assert found["measured_label_precision"] == 1.0
    nonsense = "\n".join(line.rsplit(",", 1)[0] + ",cat" for line in (here / "l.csv").read_text().splitlines()[1:])
    (here / "n.csv").write_text("id,label,true\n" + nonsense + "\n")
    other_run = answer(capsys, "select t.csv --labels n.csv --out nonsense --model neighbours")
    assert (here / "run" / "labels.csv").read_text() == (here / "nonsense" / "labels.csv").read_text()
    assert other_run["measured_noise_ratio"] != found["measured_noise_ratio"]


def with_true_labels(path: Path, rows: list[dict[str, str]], true: list[str]) -> None:
    lines = [f"{row['id']},{row['label']},{label}" for row, label in zip(rows, true, strict=True)]
    path.write_text("\n".join(["id,label,true", *lines]) + "\n")


def test_true_labels_that_changed_are_measured_with_again(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wrong = blobs(here / "t.csv")
    rows, other = rows_of(here / "t.csv"), {"cat": "dog", "dog": "cat"}
    true = [other[row["label"]] if bad else row["label"] for row, bad in zip(rows, wrong, strict=True)]
    with_true_labels(here / "l.csv", rows, true)
    line = "select t.csv --labels l.csv --out run --model neighbours"
    first = answer(capsys, line)
    files = {path: path.stat().st_mtime_ns for path in (here / "run").rglob("*") if path.is_file()}
    answer(capsys, line)
    assert files == {path: path.stat().st_mtime_ns for path in (here / "run").rglob("*") if path.is_file()}

    with_true_labels(here / "l.csv", rows, ["cat"] * 60 + [""] * 60)
    again = answer(capsys, line)
    whole = answer(capsys, line.replace("run", "anew"))
    assert again["resumed"] == "done" and again["measured_samples"] == 60
    assert again["measured_noise_ratio"] == np.mean([row["label"] == "dog" for row in rows[:60]])
    assert {**again, "run": ""} == {**whole, "run": "", "resumed": "done"}
    assert (here / "run" / "summary.json").read_text() == (here / "anew" / "summary.json").read_text()
    changed = {path for path in files if path.stat().st_mtime_ns != files[path]}
    assert changed == {here / "run" / "summary.json"}
    assert first["measured_noise_ratio"] != again["measured_noise_ratio"]

    (here / "l.csv").write_text("\n".join(["id,label", *(f"{row['id']},{row['label']}" for row in rows)]))
    assert not any(name.startswith("measured_") for name in answer(capsys, line))


@pytest.mark.parametrize(("model", "epochs", "loss"), [("neighbours", None, None), ("mlp", 50, "ce")])
def test_every_setting_is_on_record(
    here: Path, capsys: pytest.CaptureFixture[str], model: str, epochs: int | None, loss: str | None
) -> None:
    blobs(here / "t.csv")
    answer(capsys, f"select t.csv --out run --model {model} --iterations 1 --device cpu")
    stage = RunFolder("run").record()["stages"]["select"]
    assert stage["settings"] == {
        "method": "incv", "iterations": 1, "epochs": epochs, "loss": loss, "model": model, "repeats": 1, "seed": 0,
        "remove_ratio": "auto", "protocol": "auto", "pattern": "auto", "size": None, "label_column": "label",
        "text_column": None, "id_column": "id", "labels": None, "root": None, "predictions": None,
        "ignore_columns": None, "group_column": None, "split": None, "header": None, "embed": None,
        "embed_revision": None,
    }  # fmt: skip
    assert stage["where"] == {"device": "cpu", "executor": "local", "workers": None}
    # Where it runs is not what a run is known by.
    elsewhere = f"select t.csv --out run --model {model} --iterations 1 --workers 2"
    assert answer(capsys, elsewhere)["resumed"] == "done"


def test_ncv_texts_and_named_classifiers(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = {"fruit": "apple pear plum cherry".split(), "metal": "iron zinc copper tin".split()}
    rng = np.random.default_rng(0)
    with (here / "t.csv").open("w") as file:
        file.write("text,label\n")
        for i in range(60):
            kind = ("fruit", "metal")[i % 2]
            label = kind if i not in (6, 13) else ("metal", "fruit")[i % 2]
            file.write(f"{' '.join(rng.choice(words[kind], 6))},{label}\n")
    found = answer(capsys, "select t.csv --selection ncv")
    assert found["run"] == "runs/t"  # after the source, where no --out is given
    assert found["model"] == "tfidf" and found["counts"]["removed"] == 0 and len(found["iterations"]) == 1
    suspects = [row["id"] for row in rows_of(here / "runs" / "t" / "labels.csv") if row["suggested"]]
    assert suspects == ["6", "13"]
    blobs(here / "b.csv")
    found = answer(capsys, "select b.csv --out named --model sklearn.naive_bayes:GaussianNB --iterations 1")
    assert found["counts"]["selected"] > 90


def test_a_network_on_pictures_and_what_was_skipped(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(0)
    for i in range(40):
        kind = ("dark", "light")[i % 2]
        folder = here / "data" / (kind if i not in (4, 9) else ("light", "dark")[i % 2])
        folder.mkdir(parents=True, exist_ok=True)
        shade = 40 if kind == "dark" else 210
        pixels = np.clip(rng.normal(shade, 20, (8, 8, 3)), 0, 255).astype(np.uint8)
        Image.fromarray(pixels).save(folder / f"{i:02d}.png")
    (here / "data" / "dark" / "broken.png").write_text("no")
    found = answer(capsys, "select data --out run --epochs 6 --iterations 2 --device cpu")
    assert found["model"] == "small-cnn" and found["samples"] == 40 and found["skipped"] == 1
    assert "dark/broken.png," in (here / "run" / "skipped.csv").read_text()
    suspects = {row["id"] for row in rows_of(here / "run" / "labels.csv") if row["suggested"]}
    assert {"light/04.png", "dark/09.png"} <= suspects
    assert RunFolder("run").record()["data"]["kind"] == "pictures"


def test_a_locked_run_folder_is_refused(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    blobs(here / "t.csv")
    with RunFolder("run").lock():
        assert run("select t.csv --out run".split()) == 2
    assert "in use by process" in capsys.readouterr().err


def test_repeats_are_counted_recorded_and_checked(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wrong = blobs(here / "t.csv")
    found = answer(capsys, "select t.csv --out run --model neighbours --repeats 3 --iterations 2")
    assert found["counts"]["selected"] == int((~wrong).sum())
    assert found["iterations"][0]["splits"] == 3
    settings = json.loads((here / "run" / "run.json").read_text())["stages"]["select"]["settings"]
    assert settings["repeats"] == 3 and settings["loss"] is None
    assert len(list((here / "run" / "checkpoints" / "select").glob("*-split3-*.npz"))) >= 4
    assert run("select t.csv --out run --model neighbours --iterations 2".split()) == 2
    assert "repeats was 3, now 1" in capsys.readouterr().err
    assert run("select t.csv --out other --repeats 0".split()) == 2
    assert "--repeats must be at least 1, got 0" in capsys.readouterr().err
    assert run("select t.csv --out other --repeats 2 --protocol paper".split()) == 2
    assert "--repeats" in capsys.readouterr().err


def test_the_pattern_has_no_effect_with_protocol_auto(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    blobs(here / "t.csv")
    for pattern in ("auto", "pair"):
        found = answer(capsys, f"select t.csv --out {pattern} --model nearest --pattern {pattern}")
        assert found["counts"]["selected"] > 90
    assert (here / "pair" / "labels.csv").read_text() == (here / "auto" / "labels.csv").read_text()
    assert run("select t.csv --out other --pattern odd".split()) == 2 and not (here / "other").exists()


def test_what_is_said_fits_the_model_and_the_columns_that_were_written(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Categories become many columns of numbers, but the source is still a narrow table; a forest has no epochs."""
    rng = np.random.default_rng(0)
    with (here / "t.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["a", *(f"city{k}" for k in range(6)), "label"])
        for i in range(300):
            writer.writerow([rng.normal() + 4 * (i % 2), *(f"c{rng.integers(40)}" for _ in range(6)), "ab"[i % 2]])
    found = answer(capsys, "select t.csv --out r --iterations 1")
    assert found["model"] == "forest"
    assert not any("epoch" in note for note in found["notes"])
    for command in ("select t.csv --out e --iterations 1", "run t.csv --out d --dry-run"):
        assert run(f"{command} --model nearest --epochs 4".split()) == 0
        assert "--epochs 4 has no effect" in capsys.readouterr().err
    assert any(
        "epoch" in n for n in answer(capsys, "select t.csv --out n --model mlp --epochs 4 --iterations 1")["notes"]
    )


def test_an_unknown_ratio_is_not_printed(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(0)
    np.savez(here / "t.npz", x=rng.normal(size=(400, 3)), y=rng.integers(0, 3, 400))
    assert run("select t.npz --out r --iterations 1".split()) == 0
    said = capsys.readouterr().out
    assert "unknown" in said and "95 % interval" not in said
    assert json.loads((here / "r" / "summary.json").read_text())["noise_known"] is False
    blobs(here / "t.csv")
    assert answer(capsys, "select t.csv --out k --iterations 1")["noise_known"] is True


def test_what_to_do_next_can_be_copied(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    blobs(here / "t.csv")
    assert run(["select", "t.csv", "--out", "my runs/it's", "--iterations", "1"]) == 0
    text = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("next: "))
    first, *_ = text.removeprefix("next: ").split(", ")
    assert (
        shlex.split(first) == ["labelsieve", "report", "my runs/it's"] and text.count(shlex.quote("my runs/it's")) == 3
    )
    assert run(shlex.split(first)[1:]) == 0


def test_what_was_said_of_the_source_is_said_once(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    blobs(here / "t.csv")
    (here / "t.csv").write_text((here / "t.csv").read_text().replace("cat", "cat ", 1))
    assert run("select t.csv --out r --iterations 1".split()) == 0
    said = capsys.readouterr()
    note = "spaces at the start or end of 1 label are ignored"
    assert said.err.count(note) == 1 and note not in said.out
    assert note in json.loads((here / "r" / "summary.json").read_text())["notes"]


def test_a_text_that_was_read_as_a_category_is_named_again_where_nothing_was_learnt(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rng = np.random.default_rng(0)
    words = {"fruit": "apple pear plum cherry".split(), "metal": "iron zinc copper tin".split()}
    with (here / "t.csv").open("w") as file:
        file.write("message,amount,label\n")
        for i in range(160):
            kind = ("fruit", "metal")[i % 2]
            file.write(f"{i:03}th {' '.join(rng.choice(words[kind], 2))},{rng.random():.3f},{kind}\n")
    assert run("select t.csv --out numbers".split()) == 0
    text = capsys.readouterr()
    assert json.loads((here / "numbers" / "summary.json").read_text())["noise_known"] is False
    assert "--text-column message" in text.err and "--text-column message" in text.out
    assert run("select t.csv --out texts --text-column message".split()) == 0
    assert "--text-column" not in capsys.readouterr().out


def test_groups_of_a_column_are_searched_together(tmp_path, monkeypatch, capsys):
    """Rows of one patient are nearly alike: in both halves each would confirm the other's label."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(4)
    true = np.arange(240) % 3
    given = np.where(rng.random(240) < 0.2, (true + rng.integers(1, 3, 240)) % 3, true)
    patient = np.repeat(np.arange(240), 4)
    x = (rng.normal(size=(240, 4)) + 4 * np.eye(3, 4)[true])[patient] + 1e-3 * rng.normal(size=(960, 4))
    with open("t.csv", "w", newline="") as file:
        csv.writer(file).writerows(
            [["a", "b", "c", "d", "patient", "label"]]
            + [[*row, f"P{i:03d}", f"class{given[i]}"] for i, row in zip(patient, x, strict=True)]
        )
    assert run("select t.csv --out run --group-column patient --iterations 2 --model forest".split()) == 0
    said = capsys.readouterr().err
    assert "240 groups by patient" in said
    assert "features: a, b, c, d\n" in said
    rows = list(csv.DictReader((tmp_path / "run" / "labels.csv").read_text().splitlines()))
    wrong, flagged = (given != true)[patient], np.array([bool(row["suggested"]) for row in rows])
    assert flagged[wrong].mean() > 0.85 and wrong[flagged].mean() > 0.8
    assert run("select t.csv --out run --iterations 2 --model forest".split()) == 2
    assert "group_column was patient" in capsys.readouterr().err
    assert run("export run --to cleaned.csv".split()) == 0
    assert run("report run".split()) == 0
    assert "--group-column patient" in (tmp_path / "run" / "report.html").read_text()
    for words, message in (
        ("t.csv --group-column nobody", "has no column 'nobody' for --group-column"),
        ("t.csv --group-column patient --protocol paper", "--group-column: --protocol paper"),
        ("digits --group-column patient", "--group-column needs"),
    ):
        capsys.readouterr()
        assert run(f"select {words} --out other".split()) == 2
        assert message in capsys.readouterr().err
