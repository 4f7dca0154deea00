"""Table 2 and supplement C end to end on drawn pictures, and one step of the true architecture at its true size."""

from __future__ import annotations

import csv
import io
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from labelsieve import metrics
from labelsieve.data.make_webvision import make
from labelsieve.engine import Schedule
from labelsieve.engine.bundle import initial_state
from labelsieve.errors import InputError
from labelsieve.experiments import ReproduceOptions, cells, datasets, evaluate, records, runner, train_cells
from labelsieve.experiments.cells import SweepRequest, accuracy_cells
from labelsieve.experiments.paper import METHODS, SCALES, Noise, Scale
from labelsieve.experiments.paper import WEBVISION_PAPER as PAPER
from labelsieve.experiments.paper import WEBVISION_SMOKE as SMOKE
from labelsieve.experiments.run_cells import incv_settings
from labelsieve.experiments.runner import ITEMS, PAPER_ITEMS
from labelsieve.models.choose import create_network
from labelsieve.models.inception_resnet_v2 import InceptionResNetV2
from labelsieve.progress import SILENT, Progress
from labelsieve.types import SELECTED

COMMIT = "c" * 40
SELECTION = "webvision-selection/incv-none-seed0"


def reproduce(item: str, results: Path, *, progress: Progress = SILENT, **options: Any) -> dict[str, Any]:
    settings = {"scale": "smoke", "commit": COMMIT, "device": "cpu", "lockstep": 32} | options
    options = ReproduceOptions(results=results, **settings)
    return runner.reproduce(item, options, progress=progress)


def webvision_cells(scale: Scale, **request: Any) -> list[cells.Cell]:
    return accuracy_cells(scale, SweepRequest(**request), kind="webvision")


@pytest.fixture(scope="module")
def smoke(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Both items."""
    results = tmp_path_factory.mktemp("smoke")
    for item in ("webvision", "webvision-errors"):
        assert reproduce(item, results)["left"] == []
    return results


def stored(results: Path, id: str) -> records.Record:
    record = records.load(results, id)
    assert record is not None
    records.load_arrays(results, record)
    return record


def small_folder(folder: Path, *, side: int = 32, classes: int = 2, train: int = 2) -> Path:
    make(folder, classes=classes, train=train, validation=1, wrong=0.0, side=side)
    return folder


# -- the protocol --------------------------------------------------------------------------------------------------


def test_supplement_a2() -> None:
    """Every number of the paper's paragraph on WebVision."""
    wanted = webvision_cells(PAPER)
    assert [c.id for c in wanted] == [SELECTION, *(f"webvision/{m}-none-seed0" for m in METHODS)]
    assert (PAPER.side, PAPER.crop) == (256, 227)
    incv, ours = wanted[0], wanted[1]
    assert {c.batch_size for c in wanted} == {128} and {c.network for c in wanted} == {"inception-resnet-v2"}
    assert (incv.iterations, incv.epochs, ours.iterations, ours.epochs) == (2, 50, 2, 120)
    assert train_cells.build_method(ours).settings()["warmup"] == 20
    assert incv_settings(incv).remove_ratio == 0.1
    schedule = train_cells.build_schedule(ours)
    assert schedule.optimizer == "sgd" and schedule.epochs == 120
    assert [schedule.learning_rate(e) for e in (0, 39, 40, 79, 80)] == [0.1, 0.1, 0.01, 0.01, 0.001]
    selecting = Schedule.webvision_incv_50()
    assert [selecting.learning_rate(e) for e in (0, 20, 30, 40)] == [0.1, 0.05, 0.025, 0.01]
    network = create_network(PAPER.network, (3, 227, 227), 50)
    assert network.func is InceptionResNetV2  # type: ignore[attr-defined]


def test_cells_that_need_a_selection_include_it() -> None:
    for method, needed in (("coteaching", True), ("incv-coteaching", True), ("standard", False)):
        wanted = webvision_cells(PAPER, methods=(method,), selection_epochs=10, iterations=1)
        assert [c.kind for c in wanted] == ["webvision-selection"] * needed + ["webvision"]
        if needed:
            assert wanted[0].id in [c.id for c in cells.selections_for(wanted[1])]
    with pytest.raises(InputError, match="has no setting"):
        webvision_cells(PAPER, noises=(Noise("symmetric", 0.5),))
    groups = cells.group_into_locksteps(webvision_cells(PAPER), PAPER.max_lockstep)
    assert max(sum(c.networks for c in group) for group in groups) == 2  # a large network fills a GPU


# -- numbers -------------------------------------------------------------------------------------------------------


def test_top_1_and_top_5_by_hand() -> None:
    labels = np.array([3, 0, 6, 2])
    ranked = np.array([[3, 0, 1, 2, 4], [1, 2, 3, 4, 0], [0, 1, 2, 3, 4], [4, 2, 0, 1, 3]], np.uint8)
    assert [evaluate.top_accuracy(labels, ranked, k) for k in (1, 2, 5)] == [0.25, 0.5, 0.75]


def test_ranks_are_the_order_of_the_outputs(tmp_path: Path) -> None:
    """Against the network's own outputs, sorted; every rank, two networks."""
    data = datasets.read_webvision(small_folder(tmp_path / "drawn", classes=7, train=2), SMOKE)
    factory = create_network("small", (3, 28, 28), 7)
    states = [initial_state(factory, seed) for seed in (1, 2)]
    stores = data.validation_stores("cpu")
    store = stores["imagenet"]
    ranked = train_cells.ranked_classes(factory, states, Schedule.webvision_120(1), stores)
    assert [found.shape for found in ranked.values()] == [(2, 7, 5)] * 2
    assert not np.array_equal(ranked["imagenet"], ranked["webvision"])
    for state, found in zip(states, ranked["imagenet"], strict=True):
        network = factory().eval()
        network.load_state_dict(state)
        with torch.no_grad():
            logits = network(store.batch(torch.arange(7)[None], torch.full((1, 7), store.plain)))
        assert np.array_equal(found, np.argsort(-logits.numpy(), axis=1)[:, :5])


# -- end to end ----------------------------------------------------------------------------------------------------


def test_every_row_of_table_2(smoke: Path) -> None:
    labels = set()
    for method in METHODS:
        record = stored(smoke, f"webvision/{method}-none-seed0")
        results = record["results"]
        labels.add(record["hashes"]["train_labels"])
        for name in ("webvision", "imagenet"):
            top1, top5 = results[name]["top1"], results[name]["top5"]
            assert 0.25 < top1 <= top5 <= 1  # one class in eight is chance
            assert len(results[name]["top1_by_network"]) == record["method"]["networks"]
        assert results["pictures"] == {"training": 400, "missing": 0, "webvision": 80, "imagenet": 80}
        assert results["epochs_trained"] == (6 if method == "f-correction" else 3)
        assert record["commit"] == COMMIT and record["schedule"]["optimizer"] == "sgd"
    assert len(labels) == 1  # all of them trained on the same labels
    text = (smoke / "tables" / "webvision.md").read_text()
    for line in [line for line in text.splitlines() if line.startswith("|")][2:9]:
        assert "| - | - |" not in line and line.split(" | ")[1] == "1"
    assert "65.24" in text and "84.98" in text and "not results" in text


def test_accuracies_come_from_the_stored_predictions(smoke: Path) -> None:
    """Labels read from the lists themselves, not by the code under test."""
    folder = smoke / ".work" / "webvision-drawn"
    lines = (folder / "info" / "val_filelist.txt").read_text().splitlines()
    labels = np.array([int(line.split()[1]) for line in lines])
    record = stored(smoke, "webvision/decoupling-none-seed0")
    ranked = records.load_arrays(smoke, record)["predicted_webvision"]
    assert ranked.shape == (2, 80, 5)
    top5 = np.mean([[label in row for label, row in zip(labels, one, strict=True)] for one in ranked])
    assert record["results"]["webvision"]["top5"] == pytest.approx(top5, abs=1e-6)
    assert record["results"]["webvision"]["top1"] == pytest.approx(np.mean(ranked[:, :, 0] == labels), abs=1e-6)


def test_wrong_labels_are_found(smoke: Path) -> None:
    """LP above the base rate, and suspects that are wrong far more often than a label at random."""
    folder = smoke / ".work" / "webvision-drawn"
    with (folder / "planted_truth.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    record = stored(smoke, SELECTION)
    arrays, results = records.load_arrays(smoke, record), record["results"]
    given, true = (np.array([row[key] for row in rows]) for key in ("label", "true"))
    base = metrics.noise_ratio(given, true)
    assert record["noise"]["measured_ratio"] == pytest.approx(base) == pytest.approx(0.2)
    precision = metrics.label_precision(arrays["verdict"] == SELECTED, given, true)
    assert precision > 1 - base / 2
    assert results["by_iteration"][-1]["label_precision"] == pytest.approx(precision, abs=1e-6)
    wrong = np.mean([given[s["index"]] != true[s["index"]] for s in results["suspects"]])
    assert wrong > 3 * base and results["suspects_wrong"] == pytest.approx(wrong, abs=1e-6)
    for suspect in results["suspects"]:
        row = rows[suspect["index"]]
        assert (row["id"], row["label"]) == (suspect["id"], suspect["given"]) and suspect["suggested"] != row["label"]


def test_training_starts_from_the_selection(smoke: Path) -> None:
    selection = stored(smoke, SELECTION)
    verdict = records.load_arrays(smoke, selection)["verdict"]
    assert selection["results"]["history"][0]["remove_ratio"] == 0.1
    ours, coteaching = (stored(smoke, f"webvision/{m}-none-seed0")["method"] for m in ("incv-coteaching", "coteaching"))
    assert ours["trained_on"] == int((verdict == SELECTED).sum()) and ours["candidates"] == int((verdict == 0).sum())
    assert coteaching["trained_on"] == len(verdict)
    assert coteaching["noise_ratio_told"] == selection["results"]["noise_ratio_estimate"]


def test_the_gallery_needs_only_the_record(smoke: Path, tmp_path: Path) -> None:
    before = (smoke / "figures" / "webvision-errors.svg").read_bytes()
    for kind in ("webvision", "webvision-selection"):
        shutil.copytree(smoke / kind, tmp_path / kind)
    assert [reproduce(item, tmp_path, budget=0)["left"] for item in ("webvision", "webvision-errors")] == [[], []]
    assert (tmp_path / "figures" / "webvision-errors.svg").read_bytes() == before
    assert (tmp_path / "figures" / "webvision-errors.png").read_bytes().startswith(b"\x89PNG")
    for item in ("webvision", "webvision-errors"):
        again = (tmp_path / "tables" / f"{item}.md").read_text()
        assert again == (smoke / "tables" / f"{item}.md").read_text()
    pictures = records.load_arrays(tmp_path, stored(tmp_path, SELECTION))["suspect_pictures"]
    assert pictures.shape == (SMOKE.suspects, 32, 32, 3) and pictures.std() > 10


def test_a_stopped_run_continues_and_gives_the_same_results(
    smoke: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = 0

    def every_fifth_call(context: train_cells.ExperimentContext) -> bool:
        nonlocal asked
        asked += 1
        return asked % 5 == 0

    monkeypatch.setattr(train_cells.ExperimentContext, "must_stop", every_fifth_call)
    stops = 0
    while reproduce("webvision", tmp_path, methods="incv-coteaching", draw=False)["left"]:
        stops += 1
        assert stops < 20
    assert stops >= 2
    for id in (SELECTION, "webvision/incv-coteaching-none-seed0"):
        ours, theirs = stored(tmp_path, id), stored(smoke, id)
        assert ours["hashes"] == theirs["hashes"] and ours["results"] == theirs["results"]


def test_the_page_marks_items_that_were_not_run(smoke: Path, tmp_path: Path, page_script: Any) -> None:
    for results in (tmp_path / "results", smoke):  # numbers of smoke runs are on no page
        page = tmp_path / "reproduction.md"
        page_script.main(["--results", str(results), "--page", str(page)])
        text = page.read_text()
        for item in ("webvision", "webvision-errors"):
            section = text.split(f"`labelsieve reproduce {item}`")[1].split("\n## ")[0]
            assert "**Not run**" in section and ITEMS[item].title in text
        assert "| incv-coteaching | 0 | - | 65.24 | - | 85.34 | - | 61.60 | - | 84.98 |" in text


def test_all_items_of_cifar10_share_one_folder() -> None:
    assert set(ITEMS) - set(PAPER_ITEMS) == {"finish"}  # `reproduce all` runs the items of the paper only
    assert set(PAPER_ITEMS) - set(runner.ON_CIFAR10) == {"webvision", "webvision-errors"}
    assert all(ITEMS[name].scales is SCALES for name in runner.ON_CIFAR10)


# -- real pictures have no truth -----------------------------------------------------------------------------------


def test_without_true_labels_only_counts_are_measured(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    make(folder, classes=3, train=10, validation=2, wrong=0.2, side=32)
    (folder / "planted_truth.csv").unlink()
    reproduce("webvision-errors", tmp_path / "results", data=folder)
    record = stored(tmp_path / "results", SELECTION)
    assert record["noise"]["measured_ratio"] is None
    assert record["results"]["by_iteration"][0]["label_precision"] is None
    assert "suspects_wrong" not in record["results"]
    assert "planted" not in (tmp_path / "results" / "tables" / "webvision-errors.md").read_text()


@pytest.mark.slow
def test_inception_resnet_v2_trains_at_full_size(tmp_path: Path) -> None:
    """The paper's cell itself, but for its length: 227 x 227 windows of pictures of 256, SGD at 0.1, one network."""
    data = datasets.read_webvision(small_folder(tmp_path / "drawn", side=256, train=1), PAPER)
    context = train_cells.ExperimentContext(data, tmp_path / "results", COMMIT, device="cpu")
    (cell,) = webvision_cells(PAPER, methods=("standard",), epochs=1)
    assert context.store.shape == (3, 227, 227) and len(context.store) == 2
    train_cells.train_cells([cell], context, tmp_path / "work")
    record = stored(tmp_path / "results", cell.id)
    assert record["cell"]["network"] == "inception-resnet-v2" and record["cell"]["batch_size"] == 128
    assert np.isfinite(record["results"]["loss"]).all() and len(record["results"]["loss"]) == 1
    assert records.load_arrays(tmp_path / "results", record)["predicted_imagenet"].shape == (1, 2, 2)
    with torch.device("meta"):
        weights = sum(p.numel() for p in create_network(cell.network, (3, 227, 227), 1000)().parameters())
    assert weights == pytest.approx(55.84e6, rel=1e-3)


# -- mistakes ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("remove", "message"),
    [
        ("info/synsets.txt", r"info/synsets\.txt"),
        ("ilsvrc12", r"ilsvrc12: no such folder"),
        ("val_images_256", r"no folder val_images_256"),
        ("info", r"info/synsets\.txt"),
        ("google", "none of the 4 listed pictures"),
        ("ilsvrc12/val", "synset folders"),
    ],
)
def test_missing_files_are_named(tmp_path: Path, remove: str, message: str) -> None:
    folder = small_folder(tmp_path / "data")
    (folder / "planted_truth.csv").unlink()
    gone = folder / remove
    shutil.rmtree(gone) if gone.is_dir() else gone.unlink()
    with pytest.raises(InputError, match=message):
        reproduce("webvision", tmp_path / "results", scale="paper", data=folder)


def test_other_invalid_inputs(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="--data DIR"):
        reproduce("webvision", tmp_path, scale="paper")
    with pytest.raises(InputError, match="no such folder"):
        reproduce("webvision", tmp_path, scale="paper", data=tmp_path / "nowhere")
    folder = small_folder(tmp_path / "drawn")
    with pytest.raises(InputError, match="generated pictures"):
        reproduce("webvision-errors", tmp_path, scale="paper", data=folder)
    (folder / "planted_truth.csv").write_text("id,label,true\nelsewhere,tench,tench\n")
    with pytest.raises(InputError, match="does not match the pictures"):
        datasets.read_webvision(folder, SMOKE)
    data = datasets.read_webvision(small_folder(tmp_path / "other"), SMOKE)
    context = train_cells.ExperimentContext(data, tmp_path / "results", COMMIT, device="cpu")
    with pytest.raises(InputError, match="not finished"):
        train_cells.build_plan(webvision_cells(SMOKE, methods=("coteaching",))[1], context)


def test_an_interrupted_generation_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from labelsieve.data import make_webvision

    def stopped(to: Path, **options: object) -> None:
        small_folder(to)
        raise KeyboardInterrupt

    monkeypatch.setattr(make_webvision, "make", stopped)
    with pytest.raises(KeyboardInterrupt):
        datasets.generate_webvision(tmp_path / "drawn", 32)
    assert list(tmp_path.iterdir()) == []


def test_the_command_as_json(smoke: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from labelsieve.cli.app import run

    line = "reproduce webvision --scale smoke --device cpu --json --results"
    assert run([*line.split(), str(smoke)]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["finished"] == answer["cells"] == 8 and answer["left"] == []


def test_reading_pictures_reports_progress(tmp_path: Path) -> None:
    lines = io.StringIO()
    reproduce(
        "webvision-errors", tmp_path, progress=Progress(stream=lines), selection_epochs=1, iterations=1, draw=False
    )
    text = lines.getvalue()
    assert "400/400 pictures" in text and text.count("80/80 pictures") >= 2
