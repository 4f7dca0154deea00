"""The options of reading a source: the same in five commands, remembered by a run, refused where they do nothing."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from labelsieve.cli.app import make_app, run
from labelsieve.data.make_webvision import make
from labelsieve.data.source import ReadOptions
from labelsieve.errors import InputError
from labelsieve.progress import Progress
from labelsieve.runfolder import RunFolder
from labelsieve.types import LabelledData
from labelsieve.workflow.read import absolute_source, check_size, read_to_embed
from labelsieve.workflow.settings import SelectSettings, SourceSettings


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def ids_of(path: Path) -> list[str]:
    with path.open(newline="") as file:
        return [row["id"] for row in csv.DictReader(file)]


@pytest.mark.parametrize("command", ["select", "run", "plan", "corrupt", "predict"])
def test_five_commands_have_the_same_ones(command: str) -> None:
    names = {argument.name for argument in make_app()[command].assemble_argument_collection()}
    assert {"--root", "--label-column", "--text-column", "--id-column", "--ignore-columns"} <= names


def test_what_is_not_given_is_as_in_a_run() -> None:
    settings = {"label_column": "kind", "id_column": "key", "root": "/pictures", "text_column": None, "seed": 3}
    assert SourceSettings(id_column="id").as_in_run(settings) == SourceSettings(Path("/pictures"), "kind", None, "id")
    assert SourceSettings().as_in_run({"label_column": ["odd"], "root": 3}) == SourceSettings()


def test_predict_reads_new_rows_as_the_run_read_its_own(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(0)
    rows = [f"k{i},{rng.normal(5 * (i % 2)):.3f},{'ab'[i % 2]}" for i in range(60)]
    (here / "t.csv").write_text("\n".join(["key,x,kind", *rows]))
    line = "run t.csv --id-column key --label-column kind --model logistic --iterations 1 --train-epochs 2 --out run"
    assert run(line.split()) == 0
    (here / "new.csv").write_text("key,x\nk7,0.1\nk9,5.2\n")
    assert run("predict run new.csv --to p.csv".split()) == 0
    assert ids_of(here / "p.csv") == ["k7", "k9"]
    (here / "other.csv").write_text("number,x\nn1,0.1\nn2,5.2\n")
    assert run("predict run other.csv --to q.csv --id-column number".split()) == 0
    assert ids_of(here / "q.csv") == ["n1", "n2"]
    capsys.readouterr()
    assert run("predict run other.csv --to r.csv".split()) == 0
    assert ids_of(here / "r.csv") == ["0", "1"]
    message = capsys.readouterr().err
    assert "other.csv has no column 'key'" in message and "first id is '0'" in message
    (here / "named.csv").write_text("id,x\n1,0.1\n0,5.2\n")
    assert run("predict run named.csv --to s.csv".split()) == 0
    assert ids_of(here / "s.csv") == ["1", "0"] and "no column 'key'" in capsys.readouterr().err
    assert run("predict run other.csv --to v.csv --id-column key".split()) == 2
    assert "--id-column" in capsys.readouterr().err
    assert run("predict run new.csv --id-column key --to u.csv --score".split()) == 2
    assert "kind" in capsys.readouterr().err


def table(path: Path, n: int = 80) -> list[str]:
    """One column that tells the classes, a number of each row, one of nothing; with a comma in its name."""
    rng = np.random.default_rng(0)
    rows = [f"{i + 1:05},{rng.normal(5 * (i % 2)):.3f},{rng.normal():.3f},{'ab'[i % 2]}" for i in range(n)]
    path.write_text("\n".join(['customer_id,x,"noise, or so",label', *rows]))
    return rows


QUICK = "--model logistic --iterations 1 --train-epochs 2 --out run"


def test_a_run_without_ids_takes_rows_by_number(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table(here / "t.csv")
    assert run(f"run t.csv {QUICK}".split()) == 0
    text = capsys.readouterr().err
    assert text.count("t: features: x, noise, or so\n") == 1
    assert text.count("column customer_id is left out") == 1
    (here / "new.csv").write_text('x,"noise, or so"\n0.1,0\n5.2,0\n')
    assert run("predict run new.csv".split()) == 0
    assert ids_of(here / "predictions.csv") == ["0", "1"]
    assert "features" not in capsys.readouterr().err


def test_columns_are_left_out_for_good(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table(here / "t.csv")
    line = ["run", "t.csv", *QUICK.split()]
    assert run([*line, "--ignore-columns", 'x, "noise, or so"']) == 2
    assert "customer_id" in capsys.readouterr().err
    assert run([*line, "--ignore-columns", 'nix,"noise, or so",nada']) == 2
    assert "nada" in (message := capsys.readouterr().err) and "nix" in message
    ignoring = [*line, "--ignore-columns", 'customer_id,"noise, or so"']
    assert run(ignoring) == 0
    assert "t: features: x\n" in capsys.readouterr().err
    assert RunFolder("run").record()["settings"]["ignore_columns"] == ["customer_id", "noise, or so"]
    assert run(line) == 2
    assert "ignore_columns was ['customer_id', 'noise, or so'], now not set" in capsys.readouterr().err
    assert run([*line, "--ignore-columns", '"noise, or so", customer_id']) == 0  # in another order
    for again in ("train run --out other --train-epochs 1", "report run", "export run"):
        assert run(again.split()) == 0
        text = capsys.readouterr()
        assert "has changed" not in text.err + text.out
    (here / "new.csv").write_text("x\n0.1\n5.2\n")
    assert run("predict run new.csv --to p.csv".split()) == 0
    assert run("predict run new.csv --to q.csv --ignore-columns x".split()) == 2
    assert "--ignore-columns x" in capsys.readouterr().err


def test_a_run_of_before_there_were_ignored_columns_goes_on(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table(here / "t.csv")
    line = "select t.csv --model logistic --iterations 1 --out run --json"
    assert run(line.split()) == 0
    record = json.loads((here / "run" / "run.json").read_text())
    for settings in (record["settings"], record["stages"]["select"]["settings"]):
        assert settings.pop("ignore_columns") is None
    (here / "run" / "run.json").write_text(json.dumps(record))
    capsys.readouterr()
    assert run(line.split()) == 0
    assert json.loads(capsys.readouterr().out)["resumed"] == "done"
    assert run([*line.split(), "--ignore-columns", "x"]) == 2
    assert "ignore_columns was not set, now ['x']" in capsys.readouterr().err


@pytest.mark.parametrize("settings", [{}, {"ignore_columns": None}, {"ignore_columns": 3}, {"ignore_columns": "ab"}])
def test_a_record_that_names_no_columns_ignores_none(settings: dict[str, object]) -> None:
    assert ReadOptions.of_run(settings).ignore_columns == ()
    assert ReadOptions.of_run({"ignore_columns": ["b", 3]}).ignore_columns == ("b", "3")


def test_ignored_columns_of_what_has_none_are_refused(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["select", "digits", "--out", "run", "--ignore-columns", "a\rb"]) == 2
    assert "--ignore-columns" in capsys.readouterr().err
    assert run("select digits --ignore-columns a --out run".split()) == 2
    assert "--ignore-columns is for tables" in capsys.readouterr().err
    rng = np.random.default_rng(0)
    for i in range(4):
        Image.fromarray(rng.integers(0, 255, (8, 8, 3), dtype=np.uint8)).save(here / f"{i}.png")
    (here / "p.csv").write_text("path,a,label\n" + "".join(f"{i}.png,1,{'xy'[i % 2]}\n" for i in range(4)))
    assert run("corrupt p.csv --ignore-columns a --out l.csv".split()) == 2
    assert "--ignore-columns is for features" in capsys.readouterr().err


def test_one_text_column_of_several_is_read_on_request(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("fig and plum and pear {}", "zinc and tin and iron {}")
    rows = [f"n{i},{words[i % 2].format(i)},{words[1 - i % 2].format(i)},{'ab'[i % 2]}" for i in range(40)]
    (here / "t.csv").write_text("\n".join(["number,body,title,label", *rows]))
    for line in ("corrupt t.csv --out l.csv", "plan t.csv --seconds 0.2 --device cpu"):
        assert run(line.split()) == 0
        assert "--text-column" in capsys.readouterr().err
        line = line.replace("l.csv", "l.csv --force")
        assert run([*line.split(), "--text-column", "body", "--id-column", "number"]) == 0
    assert ids_of(here / "l.csv")[:2] == ["n0", "n1"]
    assert run("run t.csv --text-column body --id-column number --iterations 1 --train-epochs 2 --out run".split()) == 0
    (here / "new.csv").write_text("number,words\n1,fig and pear\n2,zinc and tin\n")
    assert run("predict run new.csv --to p.csv --text-column words".split()) == 0
    assert ids_of(here / "p.csv") == ["1", "2"]


def test_a_title_and_a_price_are_both_features(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("fig and plum and pear {}", "zinc and tin and iron {}")
    rows = [f"n{i},{words[i % 2].format(i)},{i % 7 + i % 2 * 5}.5,{'ab'[i % 2]}" for i in range(60)]
    (here / "t.csv").write_text("\n".join(["id,title,price,label", *rows]))
    assert run(f"run t.csv {QUICK} --dry-run".split()) == 0
    assert not (here / "run").exists() and "title, price" in capsys.readouterr().err
    assert run("corrupt t.csv --pattern instance --out m.csv".split()) == 0
    assert run("select t.csv --iterations 1 --out both".split()) == 0
    line = f"run t.csv {QUICK} --ignore-columns title --json"
    assert run(line.split()) == run(line.split()) == run("export run".split()) == 0
    (here / "new.csv").write_text("id,title,price\nx,a fig and a plum,1.5\n")
    assert run("predict run new.csv".split()) == 0


def test_plan_takes_labels_from_a_file(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "t.csv").write_text("id,x\n" + "".join(f"s{i},{i % 2 + i / 100}\n" for i in range(40)))
    (here / "l.csv").write_text("id,label\n" + "".join(f"s{i},{'ab'[i % 2]}\n" for i in range(40)))
    assert run("plan t.csv --labels l.csv --seconds 0.2 --device cpu --json".split()) == 0
    assert json.loads(capsys.readouterr().out)["wanted"]["samples"] == 40


def test_a_table_does_not_ask_for_a_model_of_pictures(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table(here / "t.csv")
    monkeypatch.setattr("labelsieve.workflow.read.is_local", lambda name: pytest.fail(f"asked for {name}"))
    settings, progress = SelectSettings(), Progress(silent=True)
    data, model = read_to_embed(str(here / "t.csv"), settings, progress, recorded={}, cache_dir=here / "cache")
    assert data.kind == "table" and model is None


@pytest.mark.parametrize("size", [32, 64, 96])
def test_no_embeddings_are_chosen_for_pictures_of_a_given_size(
    here: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    for module in ("workflow.read", "execute.embed_samples"):
        monkeypatch.setattr(f"labelsieve.{module}.is_local", lambda name: True)
    for name in ("a/1.png", "a/2.png", "b/1.png", "b/2.png"):
        (here / "photos" / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (120, 120), (len(name), ord(name[2]), ord(name[0]))).save(here / "photos" / name)
    source, progress = str(here / "photos"), Progress(silent=True)
    for chosen, expected in ((None, "facebook/dinov2-small"), (size, None)):
        settings, cache = SelectSettings(size=chosen), here / f"cache-{chosen}"
        assert read_to_embed(source, settings, progress, recorded={}, cache_dir=cache)[1] == expected


def test_a_source_is_found_from_anywhere(here: Path) -> None:
    (here / "cifar").mkdir()
    (here / "t.csv").write_text("")
    assert absolute_source("t.csv") == f"{here}/t.csv"
    assert absolute_source("cifar10:cifar") == f"cifar10:{here}/cifar"
    assert absolute_source("cifar10n:cifar?labels=worse") == f"cifar10n:{here}/cifar?labels=worse"
    for whole in ("digits", "hf:imdb", "hf:imdb?config=plain", "webvision:", "nowhere.csv", f"hf:{here}/cifar"):
        assert absolute_source(whole) == whole


def test_a_scheme_s_folder_is_absolute_in_the_record(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    make(here / "wv", classes=2, train=8, validation=1, side=32, wrong=0.0)
    line = "select webvision:wv?classes=2 --size 16 --model small-cnn --epochs 1 --iterations 1 --device cpu --out run"
    assert run(line.split()) == 0
    assert run("select webvision:wv?classes=2 --size 16 --model fast --out no".split()) == 2
    assert "--model: fast" in capsys.readouterr().err  # no --size can help
    assert RunFolder("run").record()["data"]["source"] == f"webvision:{here}/wv?classes=2"
    (here / "elsewhere").mkdir()
    monkeypatch.chdir(here / "elsewhere")
    assert run("train ../run --train-epochs 1 --network small-cnn --device cpu".split()) == 0


def pictures(side: int) -> LabelledData:
    x = np.zeros((4, side, side, 3), dtype=np.uint8)
    return LabelledData(x, np.arange(4) % 2, ("a", "b"), np.array(list("0123")), "pictures", name="p")


def test_a_size_that_does_nothing_is_refused(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    check_size(pictures(16), None)
    check_size(pictures(16), 16)
    with pytest.raises(InputError, match=r"--size 8 .* array of 16 x 16"):
        check_size(pictures(16), 8)
    np.savez(here / "p.npz", x=np.zeros((20, 6, 6, 3), dtype=np.uint8), y=np.arange(20) % 2)
    for line in ("select p.npz --size 8 --model fast --out run", "run p.npz --size 8 --out run", "plan p.npz --size 8"):
        assert run(line.split()) == 2
        assert "array of 6 x 6 pixels" in capsys.readouterr().err
    assert not (here / "run").exists()
    assert run("select digits --size 8 --out run".split()) == 2
    assert "--size 8" in capsys.readouterr().err
