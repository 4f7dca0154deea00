"""Every item end to end at the smoke scale, stopped and taken up again, and drawn."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from labelsieve.errors import InputError
from labelsieve.experiments import cli_args as asked
from labelsieve.experiments import records, run, training
from labelsieve.experiments.cells import THEORY, Wish, accuracy_cells, theory_cells
from labelsieve.experiments.items import ITEMS, ON_CIFAR10
from labelsieve.experiments.settings import METHODS, PAPER, SMOKE, SMOKE_WEIGHT_DECAY, TRIAL, Noise
from labelsieve.types import SELECTED

COMMIT = "c" * 40


def reproduce(item: str, results: Path, **options: object) -> dict[str, object]:
    settings = {"scale": "smoke", "commit": COMMIT, "device": "cpu", "lockstep": 32, "say": lambda line: None}
    return run.reproduce(item, results=results, **(settings | options))  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def smoke(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All items by the command line's own entry."""
    results = tmp_path_factory.mktemp("smoke")
    arguments = [
        "--scale",
        "smoke",
        "--results",
        str(results),
        "--commit",
        COMMIT,
        "--device",
        "cpu",
        "--lockstep",
        "32",
    ]
    assert run.main(["all", *arguments]) == 0
    return results


def test_every_item_has_its_table_and_figure(smoke: Path) -> None:
    for item in (ITEMS[name] for name in ON_CIFAR10):
        text = (smoke / "tables" / f"{item.name}.md").read_text()
        assert text.startswith(("|", TRIAL)) and "No records" not in text
        assert (TRIAL in text) == bool(item.kind)  # figure 1 is arithmetic, all else a trial
        if item.figure is not None:
            assert (smoke / "figures" / f"{item.name}.svg").read_text().lstrip().startswith("<?xml")
            assert (smoke / "figures" / f"{item.name}.png").read_bytes().startswith(b"\x89PNG")
    assert list((smoke / ".work").iterdir()) == []  # nothing unfinished is left behind


def test_records_are_whole_and_agree(smoke: Path) -> None:
    found = list(records.walk(smoke))
    assert len(found) == 7 + 7 + 4 + 1 + 28
    labels: dict[tuple[str, str], set[str]] = {}
    for record in found:
        records.load_arrays(smoke, record)
        assert record["commit"] == COMMIT and record["seconds"] > 0
        if record["kind"] in ("selection", "accuracy"):
            cell = (record["noise"]["pattern"], str(record["noise"]["ratio"]))
            labels.setdefault(cell, set()).add(record["hashes"]["train_labels"])
    assert len(labels) == 4 and all(len(hashes) == 1 for hashes in labels.values())


def test_training_does_what_it_is_for(smoke: Path) -> None:
    """At little noise every method learns these pictures, INCV finds the clean labels and the planted mistakes."""
    for method in METHODS:
        record = records.load(smoke, f"accuracy/{method}-symmetric-0.2-seed0")
        assert record is not None and record["results"]["test_accuracy"] > 0.9
        assert len(record["results"]["curve"]) == SMOKE.epochs
        assert record["results"]["curve"][-1] == record["results"]["test_accuracy"]
    selected = records.load(smoke, "selection/incv-symmetric-0.2-seed0")
    assert selected is not None and selected["results"]["by_iteration"][-1]["label_precision"] > 0.95
    errors = records.load(smoke, "errors/incv-none-seed0")
    assert errors is not None
    assert {s["index"] for s in errors["results"]["suspects"][:5]} == set(range(5))
    assert all(s["given"] != s["suggested"] for s in errors["results"]["suspects"])


def test_without_decay_nothing_but_the_optimizer_differs(smoke: Path) -> None:
    cell = "standard-pair-0.4-seed0"
    decayed, free = (records.load(smoke, f"{kind}/{cell}") for kind in THEORY)
    assert decayed is not None and free is not None
    assert (decayed["schedule"]["weight_decay"], free["schedule"]["weight_decay"]) == (SMOKE_WEIGHT_DECAY, 0)
    assert (decayed["schedule"]["fresh_state"], free["schedule"]["fresh_state"]) == (True, False)
    assert decayed["schedule"]["steps"] == free["schedule"]["steps"] and len(free["schedule"]["steps"]) > 1
    assert decayed["hashes"]["train_labels"] == free["hashes"]["train_labels"]
    papers = [training.schedule_of(theory_cells(PAPER, Wish(), kind=kind)[0]) for kind in THEORY]
    assert [(s.weight_decay, s.fresh_state, s.steps[-1][1]) for s in papers] == [(2e-4, True, 5e-7), (0, False, 5e-7)]


def test_a_trial_shows_what_its_items_are_about(smoke: Path) -> None:
    """With the paper's weight decay, and D2L's ten epochs, the two would be one training in so few steps."""
    for noise in SMOKE.theory_settings:
        decayed, free = (records.load(smoke, f"{kind}/standard-{noise.key}-seed0") for kind in THEORY)
        assert decayed is not None and free is not None
        assert decayed["hashes"]["predictions"] != free["hashes"]["predictions"]
    for noise in SMOKE.table_settings:
        plain, turned = (records.load(smoke, f"accuracy/{m}-{noise.key}-seed0") for m in ("standard", "d2l"))
        assert plain is not None and turned is not None and plain["results"]["loss"] != turned["results"]["loss"]
    [cell] = accuracy_cells(PAPER, Wish(methods=("d2l",), noises=(Noise("pair", 0.4),)))
    assert training.method_of(cell).settings()["init_epochs"] == 5


def test_incv_coteaching_trains_on_what_was_selected(smoke: Path) -> None:
    selection = records.load(smoke, "selection/incv-pair-0.4-seed0")
    trained = records.load(smoke, "accuracy/incv-coteaching-pair-0.4-seed0")
    assert selection is not None and trained is not None
    arrays = records.load_arrays(smoke, selection)
    assert trained["method"]["trained_on"] == int((arrays["verdict"] == SELECTED).sum())
    assert trained["method"]["noise_ratio_told"] == pytest.approx(
        1 - selection["results"]["expected_precision"], abs=1e-5
    )
    after = training.verdict_after(arrays["verdict"], arrays["iteration"], 1)
    assert int((after == SELECTED).sum()) == selection["results"]["by_iteration"][0]["selected"]


def test_what_labelsieve_does_by_itself_stands_beside_the_papers_methods(tmp_path: Path) -> None:
    wish = Wish(methods=("told-nothing",), noises=(Noise("symmetric", 0.2),))
    assert reproduce("accuracy", tmp_path, wish=wish)["left"] == []
    selection = records.load(tmp_path, "told-nothing/incv-symmetric-0.2-seed0")
    trained = records.load(tmp_path, "accuracy/told-nothing-symmetric-0.2-seed0")
    assert selection is not None and trained is not None
    assert selection["method"]["settings"]["protocol"] == "auto" and selection["cell"]["network"] == "fast-small"
    assert selection["results"]["by_iteration"][-1]["label_precision"] > 0.95
    assert trained["method"]["trained_on"] == selection["results"]["verdicts"][SELECTED]
    assert trained["results"]["test_accuracy"] > 0.9
    assert "\n| told-nothing | 1" in (tmp_path / "tables" / "accuracy.md").read_text()


def test_what_is_finished_is_not_run_again(smoke: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*arguments: object) -> None:
        raise AssertionError("nothing was left to run")

    monkeypatch.setattr(run, "open_bench", never)
    before = {path: path.read_bytes() for path in smoke.rglob("*.svg")}
    done = reproduce("accuracy", smoke)
    assert done["finished"] == done["cells"] == 32 and done["left"] == []
    assert run.main(["draw", "--scale", "smoke", "--results", str(smoke)]) == 0
    assert {path: path.read_bytes() for path in smoke.rglob("*.svg")} == before  # the same records, the same picture


@pytest.mark.parametrize(
    ("item", "wish"),
    [
        ("selection", Wish(noises=(Noise("symmetric", 0.2), Noise("pair", 0.4)))),
        ("accuracy", Wish(noises=(Noise("symmetric", 0.5),), methods=("coteaching", "f-correction"))),
        ("theory", Wish(noises=(Noise("pair", 0.4),))),
    ],
)
def test_stopped_and_taken_up_it_ends_the_same(
    smoke: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, item: str, wish: Wish
) -> None:
    asked = 0

    def every_third_time(room: training.Room) -> bool:
        nonlocal asked
        asked += 1
        return asked % 3 == 0

    monkeypatch.setattr(training.Room, "out_of_time", every_third_time)
    stops = 0
    while (done := reproduce(item, tmp_path, wish=wish, draw=False))["left"]:
        stops += 1
        assert stops < 30
    assert stops >= 1
    for path in tmp_path.glob("*/*.json"):
        ours, theirs = (records.load(folder, f"{path.parent.name}/{path.stem}") for folder in (tmp_path, smoke))
        assert ours is not None and theirs is not None
        assert ours["hashes"] == theirs["hashes"]
        assert ours["results"] == theirs["results"]
    assert done["finished"] == done["cells"]


def test_a_shorter_selection_is_another_cell_and_told(tmp_path: Path) -> None:
    wish = Wish(noises=(Noise("symmetric", 0.2),), methods=("incv-coteaching",))
    reproduce("accuracy", tmp_path, wish=replace(wish, selection_epochs=1))
    assert "INCV of 1 epochs instead of 3" in (tmp_path / "tables" / "accuracy.md").read_text()
    done = reproduce("accuracy", tmp_path, wish=wish)
    assert done["left"] == [] and len(list((tmp_path / "accuracy").glob("*.json"))) == 2
    assert "instead of" not in (tmp_path / "tables" / "accuracy.md").read_text()
    said: list[str] = []
    reproduce("accuracy", tmp_path, wish=replace(wish, selection_epochs=1), say=said.append)
    hidden = [cell for cell in map(str.split, said) if "not in the table" in " ".join(cell)]
    assert len(hidden) == 1 and hidden[0][-1].startswith("accuracy/incv-coteaching-symmetric-0.2-seed0-")


def test_trials_do_not_lie_among_results_of_another_scale(smoke: Path) -> None:
    before = (smoke / "tables" / "cifar10-errors.md").read_text()
    with pytest.raises(InputError, match="holds records of scale 'smoke': give another --results for 'paper'"):
        reproduce("cifar10-errors", smoke, scale="paper", wish=Wish(seeds=(3,)))
    assert (smoke / "tables" / "cifar10-errors.md").read_text() == before


def test_a_record_of_another_protocol_is_refused(smoke: Path) -> None:
    with pytest.raises(InputError, match=r"scale smoke instead of paper, .* network small instead of resnet110"):
        reproduce("theory", smoke, scale="paper")


def test_switches_of_the_environment_stand_in_the_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LABELSIEVE_FUSED", "0")
    reproduce("theory", tmp_path, wish=Wish(noises=(Noise("pair", 0.4),)))
    record = records.load(tmp_path, "theory/standard-pair-0.4-seed0")
    assert record is not None and record["environment"] == {"LABELSIEVE_FUSED": "0"}


def test_a_spent_budget_starts_nothing(tmp_path: Path) -> None:
    done = reproduce("theory", tmp_path, budget=0.0)
    assert done["finished"] == 0 and len(done["left"]) == 7  # type: ignore[arg-type]


def test_other_settings_are_other_cells_and_told(tmp_path: Path) -> None:
    wish = asked.check_asked(
        ["accuracy"],
        scale="smoke",
        settings="sym-0.2",
        methods="coteaching",
        epochs=2,
        method_settings=["coteaching.gradual_epochs=2"],
        seeds="0-1",
    )
    reproduce("accuracy", tmp_path, wish=wish)
    stored = sorted(path.stem for path in (tmp_path / "accuracy").glob("*.json"))
    assert len(stored) == 2 and all("-e2-" in name for name in stored)
    table = (tmp_path / "tables" / "accuracy.md").read_text()
    assert "2 epochs instead of 4" in table and "coteaching.gradual_epochs=2" in table and "±" in table


def test_labels_of_another_run_are_refused(smoke: Path, tmp_path: Path) -> None:
    source = "selection/incv-symmetric-0.2-seed0"
    record = records.load(smoke, source)
    assert record is not None
    arrays = records.load_arrays(smoke, record)
    record["hashes"]["train_labels"] = "0" * 64
    records.save(tmp_path, record, arrays)
    wish = Wish(noises=(Noise("symmetric", 0.2),), methods=("incv-coteaching",))
    with pytest.raises(InputError, match="other labels"):
        reproduce("accuracy", tmp_path, wish=wish)


def test_the_page_is_written_from_the_records(smoke: Path, tmp_path: Path) -> None:
    page = tmp_path / "docs" / "reproduction.md"
    (smoke / "remarks.md").write_text("# Remarks\n\n## accuracy\n\nA word about it.\n\n## differences\n\nAnd here.\n")
    arguments = ["docs", "--scale", "smoke", "--results", str(smoke), "--docs", str(page)]
    assert run.main(arguments) == 0
    text = page.read_text()
    for item in ITEMS.values():
        assert item.title in text
    assert "A word about it." in text and text.rstrip().endswith("And here.")
    total = sum(r["seconds"] for r in records.walk(smoke)) / 60
    assert f"| **in all** |  |  | 47 | {total / 47:.2f} |  | **{total:.1f}** |" in text
    for kind in THEORY:
        gaps = [r["results"]["gap"] for r in records.walk(smoke) if r["kind"] == kind]
        largest = max(abs(v) for gap in gaps for v in gap.values())
        assert f"is **{largest:.3f}** (" in text
    for line in text.splitlines():
        if line.startswith("!["):
            assert (page.parent / line.rpartition("(")[2].rstrip(")")).is_file()
    empty = tmp_path / "empty"
    assert run.main(["docs", "--results", str(empty), "--docs", str(page)]) == 0
    assert "No records yet." in page.read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["magic"], "no item 'magic'"),
        (["theory", "--seeds", "x"], "cannot read the seeds 'x'"),
        (["theory", "--settings", "x"], "noise setting 'x'"),
        (["accuracy", "--set", "x=1"], "METHOD.SETTING=VALUE"),
        (["theory", "--epochs", "0"], "--epochs 0: at least 1"),
        (["theory", "--selection-epochs", "-1"], "--selection-epochs -1: at least 1"),
        (["theory", "--iterations", "0"], "--iterations 0: at least 1"),
        (["theory", "--budget", "-3"], "--budget -3.0: at least 0 seconds"),
        (["theory", "--budget", "nan"], "--budget nan: at least 0 seconds"),
        (["theory", "--lockstep", "0"], "--lockstep 0: at least 1 network"),
        (["theory", "--methods", "magic"], "no method magic: choose from incv-coteaching"),
        (["webvision", "--methods", "told-nothing"], "no method told-nothing"),
        (["theory", "--device", "abacus"], "--device 'abacus' is not known"),
        (["theory"], "give --data DIR"),
        (["theory", "--data", "nowhere"], "no cifar10 in nowhere"),
    ],
)
def test_mistakes_end_with_2_and_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert run.main([*arguments, "--results", str(tmp_path), "--commit", COMMIT]) == 2
    told = capsys.readouterr().err
    assert message in told and told.count("\n") == 1


def test_everything_wrong_is_named_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = "accuracy --seeds x --methods magic --settings x,sym-0.3 --epochs 0 --budget -3 --lockstep 0 --set x=1"
    assert run.main([*line.split(), "--executor", "cloud", "--results", str(tmp_path)]) == 2
    told = capsys.readouterr().err
    for part in ("seeds 'x'", "method magic", "setting 'x'", "no setting symmetric-0.3", "--epochs 0", "--budget -3.0"):
        assert told.count(part) == 1, part
    for part in ("--lockstep 0", "METHOD.SETTING=VALUE", "executor 'cloud'"):
        assert told.count(part) == 1, part
    assert told.count("\n") == 1


def test_listing(capsys: pytest.CaptureFixture[str]) -> None:
    assert run.main(["list"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == list(ITEMS)


def test_seeds_are_read() -> None:
    assert asked.parse_seeds("0-4") == (0, 1, 2, 3, 4)
    assert asked.parse_seeds("3,1-2,3") == (3, 1, 2)


def test_the_networks_of_the_paper() -> None:
    resnet = training.factory_of("resnet32", 10)()
    assert sum(p.numel() for p in resnet.parameters()) == pytest.approx(0.46e6, rel=0.02)
    deep = training.factory_of("resnet110-preactivation", 10)()
    assert sum(p.numel() for p in deep.parameters()) == pytest.approx(1.73e6, rel=0.02)
    with pytest.raises(InputError, match="unknown network"):
        training.factory_of("vgg16", 10)


def test_the_runner_needs_torch_and_numpy_alone() -> None:
    """It runs on GPU machines where nothing else is installed."""
    code = (
        "import sys, json, labelsieve.experiments.run\n"
        "print(json.dumps(sorted({m.split('.')[0] for m in sys.modules})))"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    heavy = {
        "sklearn",
        "scipy",
        "pyarrow",
        "pandas",
        "matplotlib",
        "PIL",
        "cyclopts",
        "rich",
        "pydantic",
        "ray",
        "datasets",
    }
    assert not heavy & set(json.loads(answer.stdout))


def test_predictions_are_the_ones_the_accuracy_comes_from(smoke: Path) -> None:
    from labelsieve.experiments.bench import synthetic

    record = records.load(smoke, "accuracy/decoupling-symmetric-0.2-seed0")
    assert record is not None
    predicted = records.load_arrays(smoke, record)["predicted_test"]
    again = np.mean(predicted == synthetic().test_labels())
    assert again == pytest.approx(record["results"]["test_accuracy"], abs=1e-6)
