"""run, train and predict from end to end on small data; the same command resumes and changes nothing when done."""

from __future__ import annotations

import csv
import json
import os
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


def table(path: Path, *, n: int = 160, seed: int = 0, labelled: bool = True) -> list[str]:
    """Two groups with a number, a gap and a category; a fifth of the labels wrong. Returns the true ones."""
    rng = np.random.default_rng(seed)
    true = rng.integers(0, 2, n)
    wrong = rng.random(n) < 0.2
    names = ["cat", "dog"]
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "weight", "colour", *(["label"] if labelled else [])])
        for i in range(n):
            weight = "" if i % 17 == 0 else f"{rng.normal(4 + 20 * true[i], 2):.2f}"
            colour = ["red", "blue"][true[i]] if rng.random() < 0.9 else "grey"
            writer.writerow([f"s{i}", weight, colour, *([names[true[i] ^ wrong[i]]] if labelled else [])])
    return [names[code] for code in true]


def test_a_table_from_noisy_labels_to_predictions(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table(here / "t.csv")
    found = answer(capsys, "run t.csv --out run --train-epochs 10")
    assert found["stages"] == {"select": "new", "train": "new"} and found["counts"]["selected"] > 100
    # Who may read one may read all, and predict: the writer of safetensors keeps its files to itself.
    assert len({(here / "run" / name).stat().st_mode for name in ("labels.csv", "model.safetensors")}) == 1
    for name in ("labels.csv", "summary.json", "report.html", "model.safetensors", "history.jsonl"):
        assert (here / "run" / name).stat().st_size > 0
    record = RunFolder("run").record()
    assert {stage["state"] for stage in record["stages"].values()} == {"done"} and len(record["stages"]) == 3
    assert record["settings"]["network"] == "mlp" and record["settings"]["train_method"] == "incv-coteaching"
    epochs = [entry["epoch"] for entry in RunFolder("run").read_history() if entry["stage"] == "train"]
    assert epochs == list(range(1, 11))

    true = table(here / "new.csv", n=60, seed=9, labelled=False)
    assert answer(capsys, "predict run new.csv --to p.csv --all-classes")["samples"] == 60
    rows = rows_of(here / "p.csv")
    assert np.mean([row["predicted"] == label for row, label in zip(rows, true, strict=True)]) > 0.95
    assert run("predict run new.csv --to p.csv".split()) == 2
    assert "--force" in capsys.readouterr().err
    answer(capsys, "predict run new.csv --to p.csv --force")
    assert list(rows_of(here / "p.csv")[0]) == ["id", "predicted", "probability"]
    assert run("predict run new.csv --to new.csv --force".split()) == 2
    assert "new.csv is the source" in capsys.readouterr().err
    assert all(abs(float(row["cat"]) + float(row["dog"]) - 1) < 1e-4 for row in rows)

    before = {path: path.stat().st_mtime_ns for path in (here / "run").rglob("*") if path.is_file()}
    again = answer(capsys, "run t.csv --out run --train-epochs 10")
    assert again["stages"] == {"select": "done", "train": "done"}
    assert before == {path: path.stat().st_mtime_ns for path in (here / "run").rglob("*") if path.is_file()}
    assert run("run t.csv --out run --train-epochs 11".split()) == 2
    assert "train_epochs was 10, now 11" in capsys.readouterr().err
    table(here / "t.csv", seed=3)
    assert run("train run --train-epochs 10".split()) == 2
    assert "changed since" in capsys.readouterr().err


def test_a_table_trains_the_classifier_that_selected(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table(here / "t.csv")
    assert answer(capsys, "run t.csv --out run --iterations 1")["stages"] == {"select": "new", "train": "new"}
    settings = RunFolder("run").record()["settings"]
    assert settings["train_method"] == "classifier" and settings["network"] == "forest"
    true = table(here / "new.csv", n=60, seed=9, labelled=False)
    answer(capsys, "predict run new.csv --to p.csv")
    assert np.mean([row["predicted"] == label for row, label in zip(rows_of(here / "p.csv"), true, strict=True)]) > 0.95
    assert answer(capsys, "run t.csv --out run --iterations 1")["stages"] == {"select": "done", "train": "done"}
    assert run("train run --network mlp --method classifier".split()) == 2
    assert "--network" in capsys.readouterr().err
    assert answer(capsys, "train run --network mlp --train-epochs 2 --method standard --out other")["resumed"] == "new"


def striped(path: Path, n: int, *, side: int = 20, seed: int = 0) -> list[str]:
    """Write pictures with horizontal or vertical stripes of any colour; return their classes."""
    rng = np.random.default_rng(seed)
    wave = np.sin(np.arange(side))[:, None, None]
    for i in range(n):
        grey = np.broadcast_to(wave if i % 2 else wave.swapaxes(0, 1), (side, side, 1))
        pixels = 128 + 60 * grey * rng.uniform(0.5, 1, 3) + rng.normal(0, 10, (side, side, 3))
        folder = path / ("flat", "upright")[i % 2 ^ (i in (4, 9))]
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(folder / f"{i:02d}.png")
    return [("flat", "upright")[i % 2] for i in range(n)]


def test_few_pictures_train_the_classifier_that_selected(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    striped(here / "data", 60)
    striped(here / "new", 12, side=30, seed=1)
    line = "run data --out run --iterations 1 --device cpu"
    assert answer(capsys, line)["stages"] == {"select": "new", "train": "new"}
    settings = RunFolder("run").record()["settings"]
    assert settings["train_method"] == "classifier" and settings["network"] == settings["model"] == "edges"
    answer(capsys, "predict run new --to p.csv")
    wanted = ["flat" if int(Path(row["id"]).stem) % 2 == 0 else "upright" for row in rows_of(here / "p.csv")]
    assert [row["predicted"] for row in rows_of(here / "p.csv")] == wanted
    assert answer(capsys, line)["stages"] == {"select": "done", "train": "done"}

    np.savez(here / "other.npz", x=np.zeros((2, 30, 30, 3), np.uint8), y=np.arange(2))
    assert run("predict run other.npz --to q.csv".split()) == 2
    assert "30 x 30 pixels and 3 channels, the model was trained on 20 x 20" in capsys.readouterr().err

    # Classifiers of pixels are not stored.
    answer(capsys, "run data --model forest --out pixels --iterations 1 --device cpu")
    assert RunFolder("pixels").record()["settings"]["network"] == "edges"

    answer(capsys, "train run --method incv-coteaching --train-epochs 1 --device cpu --out network")
    settings = RunFolder("network").record()["stages"]["train"]["settings"]
    assert settings["train_method"] == "incv-coteaching" and settings["network"] == "small-cnn"


def test_texts_and_flat_pictures(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = {"fruit": "apple pear plum cherry fig".split(), "metal": "iron zinc copper tin lead".split()}
    rng = np.random.default_rng(0)
    with (here / "t.csv").open("w") as file:
        file.write("text,label\n")
        for i in range(80):
            kind = ("fruit", "metal")[i % 2]
            file.write(f"{' '.join(rng.choice(words[kind], 6))},{kind if i % 10 else 'metal'}\n")
    (here / "new.csv").write_text("text\nfig plum pear\nzinc and tin\n")
    for network, options in (("mlp", "--train-epochs 8"), ("tfidf", "")):
        answer(capsys, f"run t.csv --out {network} {options}")
        assert RunFolder(network).record()["settings"]["network"] == network
        answer(capsys, f"predict {network} new.csv --to p.csv --force")
        assert [row["predicted"] for row in rows_of(here / "p.csv")] == ["fruit", "metal"]

    for i in range(40):
        kind = ("dark", "light")[i % 2]
        folder = here / "data" / (kind if i not in (4, 9) else ("light", "dark")[i % 2])
        folder.mkdir(parents=True, exist_ok=True)
        pixels = np.clip(rng.normal(40 if kind == "dark" else 210, 20, (8, 10, 3)), 0, 255).astype(np.uint8)
        Image.fromarray(pixels).save(folder / f"{i:02d}.png")
    answer(capsys, "run data --out pictures --epochs 4 --iterations 1 --train-epochs 6 --device cpu")
    (here / "new").mkdir()
    Image.new("RGB", (50, 40), (30, 30, 30)).save(here / "new" / "a.png")
    Image.new("L", (20, 40), 220).save(here / "new" / "b.jpg")
    (here / "new" / "c.jpg").write_text("no")
    found = answer(capsys, "predict pictures new --to q.csv --device cpu")
    assert [row["predicted"] for row in rows_of(here / "q.csv")] == ["dark", "light"]
    assert [skipped["id"] for skipped in found["skipped"]] == ["c.jpg"]


def test_train_needs_a_selection_only_where_the_method_does(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table(here / "t.csv", n=60)
    answer(capsys, "select t.csv --out run --model logistic --iterations 1")
    found = answer(capsys, "train run --method standard --train-epochs 3 --network mlp")
    assert found["resumed"] == "new" and found["settings"]["train_method"] == "standard"
    answer(capsys, "select t.csv --out other --model logistic --iterations 1")
    (here / "other" / "labels.csv").unlink()
    assert run("train other --train-epochs 3".split()) == 2
    assert "no selection" in capsys.readouterr().err
    assert answer(capsys, "train other --method decoupling --train-epochs 3")["resumed"] == "new"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("train nowhere", "nowhere is not a run folder"),
        ("train nowhere --method odd --train-epochs 0", "unknown --method 'odd'"),
        ("predict nowhere t.csv --to p.csv", "nowhere is not a run folder"),
        (
            "run t.csv --out run --selection odd --method odd --epochs 0 --batch-size 1",
            "--batch-size must be at least 2",
        ),
        ("run t.csv --out run --network resnet32", "resnet32 reads pictures"),
        ("run t.csv --out run --network nope", "--network 'nope'"),
        ("run t.csv --out run --device cuda", "cuda"),
        ("run nowhere.csv --out run --device mps", "device 'mps'"),  # before the source is read
        ("predict nowhere t.csv --device mps", "device 'mps'"),
        ("run t.csv --out run --label-column labels", "did you mean 'label'?"),
        ("run t.csv --out run --model frest --epochs 0 --device tpu", "--model 'frest'"),
        ("run t.csv --out run --network nope --epochs 0", "--network 'nope'"),
        ("run t.csv --out run --size -1 --epochs 0", "got -1"),
        ("data fetch mnist --to x", "mnist"),
        ("bench io --pictures 2", "got 2"),
    ],
)
def test_mistakes(here: Path, capsys: pytest.CaptureFixture[str], line: str, said: str) -> None:
    table(here / "t.csv", n=30)
    assert run(line.split()) == 2
    assert said in capsys.readouterr().err


def test_hostile_models_are_refused(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table(here / "t.csv", n=60)
    answer(capsys, "run t.csv --out run --train-epochs 2 --iterations 1")
    whole = (here / "run" / "model.safetensors").read_bytes()
    for content in (whole[: len(whole) // 2], b"\xff" * 8 + whole[8:], b"", b"\x80\x04cos\nsystem\n"):
        (here / "run" / "model.safetensors").write_bytes(content)
        assert run("predict run t.csv --to p.csv".split()) == 2
        assert "is damaged" in capsys.readouterr().err
    (here / "run" / "model.safetensors").unlink()
    assert run("predict run t.csv --to p.csv".split()) == 2
    assert "train first" in capsys.readouterr().err


def test_dry_run_writes_nothing(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table(here / "t.csv", n=60)
    before = sorted(os.listdir(here))
    found = answer(capsys, "run t.csv --out run --dry-run")
    assert found["stages"]["select"] == "not started" and found["plan"]["total_seconds"] > 0 and found["disk_free"] > 0
    assert sorted(os.listdir(here)) == before
    assert run("run t.csv --out run --dry-run".split()) == 0
    words = capsys.readouterr().out
    assert "selection with forest" in words and "training of forest" in words


def test_a_dry_run_refuses_other_settings_as_the_run_does(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table(here / "t.csv", n=60)
    assert run("select t.csv --out run --model logistic --iterations 1".split()) == 0
    line = "run t.csv --out run --model nearest --iterations 1"
    assert run(line.split()) == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert run([*line.split(), "--dry-run"]) == 2
    assert capsys.readouterr().err.splitlines()[-1] == said


def test_dry_run_calls_what_is_left_out_as_the_run_does(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table(here / "t.csv", n=60)
    with (here / "t.csv").open("a") as file:
        file.write(",,,\n,,,\n")
    assert run("run t.csv --out run --dry-run".split()) == 0
    assert "60 samples, 2 classes, 2 skipped\n" in capsys.readouterr().out
    assert run("select t.csv --out run --model logistic --iterations 1".split()) == 0
    assert "60 samples" in (words := capsys.readouterr().out) and ", 2 skipped (skipped.csv)" in words


def test_dry_run_times_what_the_run_would_use(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(0)
    np.savez(here / "p.npz", x=rng.integers(0, 255, (40, 32, 32, 3), dtype=np.uint8), y=np.arange(40) % 2)
    line = "run p.npz --out run --dry-run --device cpu --iterations 2 --repeats 2 --epochs 7 --method standard"
    found = answer(capsys, line)
    assert found["model"] == found["network"] == found["plan"]["selector"] == "small-cnn"
    wanted = found["plan"]["wanted"]
    assert wanted["selection_passes"] == (1 + 2 + 2) * 2 and wanted["selection_epochs"] == 7 and wanted["networks"] == 1
    (here / "t.csv").write_text("text,label\n" + "good and fine,a\nbad and sad,b\n" * 20)
    assert run("run t.csv --out run --dry-run".split()) == 0
    words = capsys.readouterr().out
    assert "selection with tfidf" in words and "training of tfidf" in words and "total" in words


def test_dry_run_counts_every_epoch_of_the_method(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table(here / "t.csv", n=60)
    line = "run t.csv --out run --model logistic --iterations 1 --train-epochs 4 --method "
    for method, epochs in (("f-correction", 8), ("standard", 4)):  # the first runs its schedule twice
        assert run([*line.split(), method, "--dry-run"]) == 0
        assert f"training of mlp, {epochs} epochs" in capsys.readouterr().out
    found = answer(capsys, f"{line} f-correction --dry-run")["plan"]
    assert found["wanted"]["training_epochs"] == 8 and found["wanted"]["networks"] == 1
    assert found["seconds"]["robust training"] == pytest.approx(8 * 60 / found["measured"]["trained"])
    answer(capsys, f"{line} f-correction")
    assert [entry["epoch"] for entry in RunFolder("run").read_history() if entry["stage"] == "train"][-1] == 8


def test_dry_run_has_no_opposite(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["run", "--help"]) == 0
    words = capsys.readouterr().out
    assert "--dry-run" in words and "--no-dry-run" not in words


def test_the_report_says_what_was_measured_again(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table(here / "t.csv", n=60)
    labels = [row["label"] for row in rows_of(here / "t.csv")]
    line = "run t.csv --out run --labels l.csv --model logistic --iterations 1 --train-epochs 2"
    pages = []
    for true in (labels, ["cat"] * 60):
        given = "".join(f"s{i},{label},{right}\n" for i, (label, right) in enumerate(zip(labels, true, strict=True)))
        (here / "l.csv").write_text(f"id,label,true\n{given}")
        ratio = answer(capsys, line)["measured_noise_ratio"]
        assert ratio == np.mean(np.array(labels) != true)
        pages.append((here / "run" / "report.html").read_text())
    assert pages[0] != pages[1]
    answer(capsys, line)
    assert (here / "run" / "report.html").read_text() == pages[1]


def test_a_run_remembers_its_label_column(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table(here / "t.csv", n=60)
    (here / "t.csv").write_text((here / "t.csv").read_text().replace("label", "kind", 1))
    answer(capsys, "run t.csv --label-column kind --model logistic --iterations 1 --out run --train-epochs 5")
    assert answer(capsys, "predict run t.csv --score")["accuracy"] > 0.5
    assert run("predict run t.csv --score --label-column other --force".split()) == 2


def test_train_reads_the_columns_that_the_selection_read(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [f"n{i},{('fig plum pear', 'zinc tin iron')[i % 2]},{'ab'[i % 2]}" for i in range(40)]
    (here / "t.csv").write_text("\n".join(["number,body,label", *rows]))
    answer(capsys, "select t.csv --text-column body --id-column number --iterations 1 --out run")
    assert answer(capsys, "train run --train-epochs 2")["resumed"] == "new"


def test_a_class_without_a_selected_sample_is_named(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(0)
    rows = [f"{rng.normal(5 * (i % 2)):.3f},{'ab'[i % 2]}" for i in range(60)]
    rows += [f"{rng.normal(0):.3f},rare" for _ in range(3)]  # looks like a: none is confirmed
    (here / "t.csv").write_text("\n".join(["x,label", *rows]))
    assert run("run t.csv --model logistic --iterations 1 --train-epochs 2 --out run".split()) == 0
    message = next(line for line in capsys.readouterr().err.splitlines() if line.startswith("training mlp"))
    selected = sum(row.verdict == "selected" for row in RunFolder("run").read_labels())
    assert f"{selected} selected samples and 3 samples of classes without any: 'rare'" in message


def test_made_webvision_and_bench(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = answer(capsys, "data make-webvision --to wv --classes 2 --train 3 --validation 1 --side 32")
    assert found["source"] == "webvision:wv"
    found = answer(capsys, "bench io --pictures 30")
    assert found["pictures"] == 30 and found["ratio"] > 0
    assert run("bench io --pictures 30".split()) == 0
    assert "pillow loop" in capsys.readouterr().out
