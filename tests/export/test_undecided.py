"""What becomes of suspects nobody decided on: whose suggestions are taken unseen, and whose are not."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest

from labelsieve.export import export

_spec = importlib.util.spec_from_file_location(
    "export_undecided_runs", Path(__file__).parents[1] / "report" / "runs.py"
)
assert _spec is not None and _spec.loader is not None
runs = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(runs)
rows_of, suspects_of = runs.rows_of, runs.suspects_of


def test_without_any_decision_the_suggestions_are_taken(tmp_path):
    run = runs.table(tmp_path)
    suspects = {int(row.id): row.suggested for row in suspects_of(run)}
    done = export(run, what="cleaned", to=tmp_path / "cleaned.csv")
    assert done.changed == len(suspects) and "got the suggested label" in done.note
    cleaned = rows_of(tmp_path / "cleaned.csv")
    assert all(row["label"] == suspects.get(i, row["label"]) for i, row in enumerate(cleaned))
    true = [row["true"] for row in cleaned]
    given_right = np.mean([row["label"] == row["true"] for row in rows_of(tmp_path / "homes.csv")])
    assert np.mean([row["label"] == t for row, t in zip(cleaned, true, strict=True)]) > given_right + 0.1
    assert export(run, what="cleaned", to=tmp_path / "k.csv", undecided="keep").changed == 0
    assert export(run, what="cleaned", to=tmp_path / "d.csv", undecided="drop").rows == 60 - len(suspects)


def test_a_suggestion_that_is_less_likely_than_the_label_is_not_taken(tmp_path):
    run = runs.table(tmp_path)
    first, second, *rest = suspects_of(run)
    lines = [f"{row.id},{row.label},{row.suspicion},{row.suggested}" for row in (first, second, *rest)]
    likely = [max(0.0, 0.7 * (1 - first.suspicion)), 1.0, *(1.0 for _ in rest)]
    table = "\n".join(f"{line},{p}" for line, p in zip(lines, likely, strict=True))
    (run / "suggestions.csv").write_text(f"id,label,suspicion,suggested,probability\n{table}\n")
    done = export(run, to=tmp_path / "cleaned.csv")
    assert done.changed == 1 + len(rest) and "1 kept the given label" in done.note
    assert rows_of(tmp_path / "cleaned.csv")[int(first.id)]["label"] == first.label
    assert export(run, to=tmp_path / "all.csv", undecided="suggested").changed == 2 + len(rest)


@pytest.mark.parametrize(
    ("trust", "why"),
    [
        ("not distinguishable from random: ...", "random"),
        ("the classifier is weak: ...", "weak"),
        ("the classifier gives its highest confidence to 9 of 9 samples, ...", "weak"),
    ],
)
def test_suggestions_of_a_model_that_knows_nothing_are_not_taken(tmp_path, trust, why):
    run = runs.text(tmp_path)
    summary = run.read_summary()
    summary["iterations"][0]["estimate"]["trust"] = trust
    run.write_summary(summary)
    done = export(run, what="cleaned", to=tmp_path / "c.csv")
    assert done.changed == 0 and why in done.note
    assert export(run, what="cleaned", to=tmp_path / "s.csv", undecided="suggested").changed > 0


def test_a_classifier_that_is_worse_than_the_labels_changes_none(tmp_path):
    run = runs.text(tmp_path)
    lines = [f"{row.id},{row.label},{row.suspicion},{row.suggested},1.0" for row in suspects_of(run)]
    (run / "suggestions.csv").write_text("\n".join(["id,label,suspicion,suggested,probability", *lines]) + "\n")
    summary = run.read_summary()
    for selected, changes in ((78, True), (70, False)):  # at a noise of 0.15 it is then wrong on 8 or 18 of 100
        first = {"iteration": 1, "candidates": 100, "selected": selected}
        run.write_summary(summary | {"noise_ratio": 0.15, "iterations": [first]})
        done = export(run, to=tmp_path / f"{selected}.csv")
        assert (done.changed > 0) == changes
        assert ("wrong more often (about 18 %)" in done.note) != changes
    assert export(run, to=tmp_path / "all.csv", undecided="suggested").changed == len(lines)
    first = {"iteration": 1, "candidates": 100, "selected": 50}  # at a noise of 0.4 it is wrong on 17 of 100
    run.write_summary(summary | {"noise_ratio": 0.4, "iterations": [first]})
    done = export(run, to=tmp_path / "much.csv")
    assert done.changed == 0 and "wrong on about 17 %" in done.note
    assert export(run, to=tmp_path / "likely.csv", undecided="likely").changed == len(lines)


def test_after_a_decision_the_careful_choice_is_still_there(tmp_path):
    run = runs.table(tmp_path)
    first, second, third, *rest = suspects_of(run)
    lines = [f"{row.id},{row.label},{row.suspicion},{row.suggested}" for row in (first, second, third, *rest)]
    likely = [1.0, 0.5 * (1 - second.suspicion), *(1.0 for _ in (third, *rest))]
    table = "\n".join(f"{line},{p}" for line, p in zip(lines, likely, strict=True))
    (run / "suggestions.csv").write_text(f"id,label,suspicion,suggested,probability\n{table}\n")
    run.append_decision(third.id, "keep", third.label)
    done = export(run, to=tmp_path / "decided.csv")
    assert done.changed == 0 and "kept their given label (--undecided likely" in done.note
    done = export(run, to=tmp_path / "careful.csv", undecided="likely")
    cleaned = rows_of(tmp_path / "careful.csv")
    assert done.changed == 1 + len(rest) and cleaned[int(third.id)]["label"] == third.label
    assert cleaned[int(second.id)]["label"] == second.label  # likelier right
