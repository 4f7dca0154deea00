"""Every item end to end at the smoke scale: run, stopped, continued, drawn, and written to the page."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from labelsieve.errors import InputError
from labelsieve.experiments import ReproduceOptions, cells, records, runner, train_cells
from labelsieve.experiments.cells import THEORY_KINDS, SweepRequest, accuracy_cells, theory_cells
from labelsieve.experiments.datasets import synthetic
from labelsieve.experiments.paper import METHODS, PAPER, SMOKE, SMOKE_NOTE, SMOKE_WEIGHT_DECAY, Noise
from labelsieve.experiments.runner import ITEMS, ON_CIFAR10, PAPER_ITEMS
from labelsieve.models.choose import create_network
from labelsieve.types import SELECTED

COMMIT = "c" * 40


def reproduce(item: str, results: Path, **options: Any) -> dict[str, Any]:
    settings = {"scale": "smoke", "commit": COMMIT, "device": "cpu", "lockstep": 32} | options
    return runner.reproduce(item, ReproduceOptions(results=results, **settings))


def stored(results: Path, id: str) -> records.Record:
    record = records.load(results, id)
    assert record is not None
    return record


@pytest.fixture(scope="module")
def smoke(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All items on CIFAR-10, from the command of machines without cyclopts, and one drawing of each figure."""
    results = tmp_path_factory.mktemp("smoke")
    line = f"all --scale smoke --commit {COMMIT} --device cpu --lockstep 32 --no-draw --results"
    assert runner.main([*line.split(), str(results)]) == 0
    for item in ON_CIFAR10:
        if not item.endswith("without-decay"):  # the same drawing as with weight decay
            reproduce(item, results, budget=0)
    return results


def test_every_item_has_a_table_and_a_figure(smoke: Path) -> None:
    for item in (ITEMS[path.stem] for path in (smoke / "tables").glob("*.md")):
        text = (smoke / "tables" / f"{item.name}.md").read_text()
        assert text.startswith(("|", SMOKE_NOTE)) and "No records" not in text
        assert (SMOKE_NOTE in text) == bool(item.kind)  # figure 1 needs no training
        if item.figure is not None:
            assert (smoke / "figures" / f"{item.name}.svg").read_text().lstrip().startswith("<?xml")
            assert (smoke / "figures" / f"{item.name}.png").read_bytes().startswith(b"\x89PNG")
    assert list((smoke / ".work").iterdir()) == []  # nothing unfinished is left


def test_records_are_complete_and_agree_on_the_labels(smoke: Path) -> None:
    found = list(records.walk(smoke))
    assert len(found) == 5 + 5 + 2 + 1 + 14
    labels: dict[tuple[str, str], set[str]] = {}
    for record in found:
        records.load_arrays(smoke, record)
        assert record["commit"] == COMMIT and record["seconds"] > 0
        if record["kind"] in ("selection", "accuracy"):
            noise = (record["noise"]["pattern"], str(record["noise"]["ratio"]))
            labels.setdefault(noise, set()).add(record["hashes"]["train_labels"])
    assert len(labels) == 2 and all(len(hashes) == 1 for hashes in labels.values())


def test_methods_learn_and_incv_finds_wrong_labels(smoke: Path) -> None:
    for method in METHODS:
        results = stored(smoke, f"accuracy/{method}-symmetric-0.2-seed0")["results"]
        assert results["test_accuracy"] > 0.9
        assert len(results["curve"]) == SMOKE.epochs and results["curve"][-1] == results["test_accuracy"]
    selection = stored(smoke, "selection/incv-symmetric-0.2-seed0")
    assert selection["results"]["by_iteration"][-1]["label_precision"] > 0.95
    suspects = stored(smoke, "errors/incv-none-seed0")["results"]["suspects"]
    assert {suspect["index"] for suspect in suspects[:5]} == set(range(5))  # the wrong labels of `synthetic`
    assert all(suspect["given"] != suspect["suggested"] for suspect in suspects)


def test_without_decay_only_the_optimizer_differs(smoke: Path) -> None:
    with_decay, without = (stored(smoke, f"{kind}/standard-pair-0.4-seed0") for kind in THEORY_KINDS)
    schedules = with_decay["schedule"], without["schedule"]
    assert [s["weight_decay"] for s in schedules] == [SMOKE_WEIGHT_DECAY, 0]
    assert [s["fresh_state"] for s in schedules] == [True, False]
    assert schedules[0]["steps"] == schedules[1]["steps"] and len(schedules[0]["steps"]) > 1
    assert with_decay["hashes"]["train_labels"] == without["hashes"]["train_labels"]
    paper = [train_cells.build_schedule(theory_cells(PAPER, SweepRequest(), kind=kind)[0]) for kind in THEORY_KINDS]
    assert [(s.weight_decay, s.fresh_state, s.steps[-1][1]) for s in paper] == [(2e-4, True, 5e-7), (0, False, 5e-7)]


def test_smoke_settings_have_an_effect(smoke: Path) -> None:
    """With the paper's weight decay and D2L's ten epochs, these pairs of trainings would be the same."""
    for noise in SMOKE.theory_noises:
        pair = [stored(smoke, f"{kind}/standard-{noise.key}-seed0")["hashes"]["predictions"] for kind in THEORY_KINDS]
        assert pair[0] != pair[1]
    for noise in SMOKE.table_noises:
        losses = [stored(smoke, f"accuracy/{m}-{noise.key}-seed0")["results"]["loss"] for m in ("standard", "d2l")]
        assert losses[0] != losses[1]
    [cell] = accuracy_cells(PAPER, SweepRequest(methods=("d2l",), noises=(Noise("pair", 0.4),)))
    assert train_cells.build_method(cell).settings()["init_epochs"] == 5


def test_incv_coteaching_trains_on_the_selected_samples(smoke: Path) -> None:
    selection = stored(smoke, "selection/incv-pair-0.4-seed0")
    method = stored(smoke, "accuracy/incv-coteaching-pair-0.4-seed0")["method"]
    arrays = records.load_arrays(smoke, selection)
    assert method["trained_on"] == int((arrays["verdict"] == SELECTED).sum())
    assert method["noise_ratio_told"] == pytest.approx(1 - selection["results"]["expected_precision"], abs=1e-5)
    after = train_cells.verdict_after(arrays["verdict"], arrays["iteration"], 1)
    assert int((after == SELECTED).sum()) == selection["results"]["by_iteration"][0]["selected"]


def test_the_automatic_method(tmp_path: Path) -> None:
    options = {"methods": "automatic", "settings": "symmetric-0.2", "iterations": 1}
    assert reproduce("accuracy", tmp_path, **options)["left"] == []
    selection = stored(tmp_path, "automatic/incv-symmetric-0.2-seed0-i1")
    trained = stored(tmp_path, "accuracy/automatic-symmetric-0.2-seed0-i1")
    assert selection["method"]["settings"]["protocol"] == "auto" and selection["cell"]["network"] == "fast-small"
    assert selection["results"]["by_iteration"][-1]["label_precision"] > 0.95
    assert trained["method"]["trained_on"] == selection["results"]["verdicts"][SELECTED]
    assert trained["results"]["test_accuracy"] > 0.9
    assert "\n| automatic | " in (tmp_path / "tables" / "accuracy.md").read_text()


def test_finished_cells_are_not_run_again(smoke: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*arguments: object) -> None:
        raise AssertionError("there was nothing to run")

    monkeypatch.setattr(runner, "open_data", never)
    outcome = reproduce("all", smoke, draw=False)
    assert outcome["finished"] == outcome["cells"] and outcome["left"] == []
    figure = smoke / "figures" / "selection.svg"
    before = figure.read_bytes()
    assert str(figure) in reproduce("selection", smoke)["files"]
    assert figure.read_bytes() == before  # the same records give the same bytes


@pytest.mark.parametrize(
    ("item", "options"),
    [
        ("selection", {"settings": "symmetric-0.2,pair-0.4"}),
        ("accuracy", {"settings": "pair-0.4", "methods": "coteaching,f-correction"}),
        ("theory", {"settings": "pair-0.4"}),
    ],
)
def test_a_stopped_run_continues_and_gives_the_same_results(
    smoke: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, item: str, options: dict[str, str]
) -> None:
    calls = 0

    def every_third_call(context: train_cells.ExperimentContext) -> bool:
        nonlocal calls
        calls += 1
        return calls % 3 == 0

    monkeypatch.setattr(train_cells.ExperimentContext, "must_stop", every_third_call)
    stops = 0
    while (outcome := reproduce(item, tmp_path, draw=False, **options))["left"]:
        stops += 1
        assert stops < 30
    assert stops >= 1 and outcome["finished"] == outcome["cells"]
    for path in tmp_path.glob("*/*.json"):
        ours, theirs = (stored(folder, f"{path.parent.name}/{path.stem}") for folder in (tmp_path, smoke))
        assert ours["hashes"] == theirs["hashes"] and ours["results"] == theirs["results"]


def test_a_shorter_selection_is_another_cell(tmp_path: Path) -> None:
    options = {"settings": "symmetric-0.2", "methods": "incv-coteaching"}
    table = tmp_path / "tables" / "accuracy.md"
    reproduce("accuracy", tmp_path, selection_epochs=1, **options)
    assert "INCV of 1 epochs instead of 3" in table.read_text()
    assert reproduce("accuracy", tmp_path, **options)["left"] == []
    assert len(list((tmp_path / "accuracy").glob("*.json"))) == 2
    assert "instead of" not in table.read_text()


def test_records_of_another_scale_are_refused(smoke: Path) -> None:
    before = (smoke / "tables" / "cifar10-errors.md").read_text()
    with pytest.raises(InputError, match=r"scale 'smoke'.* --results"):
        reproduce("cifar10-errors", smoke, scale="paper", seeds="3")
    assert (smoke / "tables" / "cifar10-errors.md").read_text() == before
    with pytest.raises(InputError, match=r"scale smoke instead of paper, .* network small instead of resnet110"):
        reproduce("theory", smoke, scale="paper")


def test_the_environment_is_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LABELSIEVE_FUSED", "0")
    reproduce("theory", tmp_path, settings="pair-0.4", epochs=1, draw=False)
    record = stored(tmp_path, "theory/standard-pair-0.4-seed0-e1")
    assert record["environment"] == {"LABELSIEVE_FUSED": "0"}


def test_a_budget_of_zero_runs_nothing(tmp_path: Path) -> None:
    outcome = reproduce("theory", tmp_path, budget=0.0, scale="paper")
    assert outcome["finished"] == 0 and len(outcome["left"]) == 21
    assert (tmp_path / "tables" / "theory.md").is_file()


def test_changed_settings_are_other_cells_and_are_named(tmp_path: Path) -> None:
    changes: dict[str, Any] = {"epochs": 2, "set": ("coteaching.gradual_epochs=2",), "seeds": "0-1"}
    reproduce("accuracy", tmp_path, settings="sym-0.2", methods="coteaching", **changes)
    names = sorted(path.stem for path in (tmp_path / "accuracy").glob("*.json"))
    assert len(names) == 2 and all("-e2-" in name for name in names)
    table = (tmp_path / "tables" / "accuracy.md").read_text()
    assert "2 epochs instead of 4" in table and "coteaching.gradual_epochs=2" in table and "±" in table


def test_a_selection_of_other_labels_is_refused(smoke: Path, tmp_path: Path) -> None:
    record = stored(smoke, "selection/incv-symmetric-0.2-seed0")
    arrays = records.load_arrays(smoke, record)
    record["hashes"]["train_labels"] = "0" * 64
    records.save(tmp_path, record, arrays)
    with pytest.raises(InputError, match="other labels"):
        reproduce("accuracy", tmp_path, settings="symmetric-0.2", methods="incv-coteaching")


def test_predictions_give_the_recorded_accuracy(smoke: Path) -> None:
    record = stored(smoke, "accuracy/decoupling-symmetric-0.2-seed0")
    predicted = records.load_arrays(smoke, record)["predicted_test"]
    accuracy = np.mean(predicted == synthetic().test_labels())
    assert accuracy == pytest.approx(record["results"]["test_accuracy"], abs=1e-6)


# ---------------------------------------------------------------- the page


def test_the_page_is_written_from_the_records(smoke: Path, tmp_path: Path, page_script: Any) -> None:
    page, remarks = tmp_path / "docs" / "reproduction.md", tmp_path / "remarks.md"
    remarks.write_text("# Remarks\n\n## accuracy\n\nOn accuracy.\n\n## differences\n\nOn differences.\n")
    arguments = ["--page", str(page), "--remarks", str(remarks)]
    page_script.main(["--scale", "smoke", "--results", str(smoke), *arguments])
    text = page.read_text()
    for item in PAPER_ITEMS.values():
        assert item.title in text
    assert "On accuracy." in text and text.rstrip().endswith("On differences.")
    total = sum(record["seconds"] for record in records.walk(smoke)) / 60
    assert f"| 27 | {total / 27:.2f} |  | **{total:.1f}** |" in text
    for kind in THEORY_KINDS:
        gaps = [record["results"]["gap"] for record in records.walk(smoke) if record["kind"] == kind]
        assert f"**{max(abs(value) for gap in gaps for value in gap.values()):.3f}** (" in text
    for line in text.splitlines():
        if line.startswith("!["):
            assert (page.parent / line.rpartition("(")[2].rstrip(")")).is_file()
    page_script.main(["--results", str(tmp_path / "empty"), *arguments])
    assert "No records yet." in page.read_text()


def test_the_page_in_the_repository_is_up_to_date(tmp_path: Path, page_script: Any) -> None:
    page = page_script.ROOT / "docs" / "reproduction.md"
    remarks = page_script.read_remarks(page_script.REMARKS)
    assert page.read_text() == page_script.page_text(page_script.ROOT / "results", page, PAPER, remarks)


# ---------------------------------------------------------------- options


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["magic"], "magic"),
        (["theory", "--seeds", "x"], "seeds 'x'"),
        (["theory", "--settings", "x"], "noise setting 'x'"),
        (["accuracy", "--set", "x=1"], "METHOD.SETTING=VALUE"),
        (["theory", "--epochs", "0"], "--epochs 0"),
        (["theory", "--selection-epochs", "-1"], "--selection-epochs -1"),
        (["theory", "--iterations", "0"], "--iterations 0"),
        (["theory", "--budget", "-3"], "--budget -3.0"),
        (["theory", "--budget", "nan"], "--budget nan"),
        (["theory", "--lockstep", "0"], "--lockstep 0"),
        (["theory", "--methods", "magic"], "no method magic"),
        (["webvision", "--methods", "automatic"], "no method automatic"),
        (["theory", "--device", "abacus"], "--device 'abacus'"),
        (["theory", "--executor", "slurm"], "executor 'slurm'"),
        (["theory", "--scale", "huge"], "--scale 'huge'"),
        (["theory"], "--data DIR"),
        (["theory", "--data", "nowhere"], "nowhere"),
    ],
)
def test_mistakes_exit_with_2_and_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert runner.main([*arguments, "--results", str(tmp_path), "--commit", COMMIT]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1


def test_all_mistakes_are_named_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = "accuracy --seeds x --methods magic --settings x,sym-0.3 --epochs 0 --budget -3 --lockstep 0 --set x=1"
    assert runner.main([*line.split(), "--executor", "cloud", "--results", str(tmp_path)]) == 2
    error = capsys.readouterr().err
    named = ("seeds 'x'", "method magic", "setting 'x'", "no setting symmetric-0.3", "--epochs 0", "--budget -3.0")
    for part in (*named, "--lockstep 0", "METHOD.SETTING=VALUE", "executor 'cloud'"):
        assert error.count(part) == 1, part
    assert error.count("\n") == 1


def test_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert runner.main(["list"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == list(ITEMS)


def test_seeds_are_parsed() -> None:
    assert cells.parse_seeds("0-4") == (0, 1, 2, 3, 4)
    assert cells.parse_seeds("3,1-2,3") == (3, 1, 2)


def test_the_networks_of_the_paper() -> None:
    for name, parameters in (("resnet32", 0.46e6), ("resnet110-preactivation", 1.73e6)):
        network = create_network(name, (3, 32, 32), 10)()
        assert sum(p.numel() for p in network.parameters()) == pytest.approx(parameters, rel=0.02)
    with pytest.raises(InputError, match="vgg16"):
        create_network("vgg16", (3, 32, 32), 10)


def test_the_runner_imports_only_torch_and_numpy() -> None:
    """It runs on GPU machines without other packages."""
    code = (
        "import sys, json, labelsieve.experiments.runner\n"
        "print(json.dumps(sorted({m.split('.')[0] for m in sys.modules})))"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    others = {"sklearn", "scipy", "pyarrow", "pandas", "matplotlib", "PIL", "cyclopts", "rich", "ray"}
    assert not (others | {"datasets"}) & set(json.loads(answer.stdout))
