"""The cells of each item, their names, and their grouping into locksteps."""

from __future__ import annotations

import pytest

from labelsieve.errors import InputError
from labelsieve.experiments import cells
from labelsieve.experiments.cells import SweepRequest, group_into_locksteps
from labelsieve.experiments.paper import (
    FIGURE_2_NOISES,
    FIGURE_4,
    METHODS,
    PAPER,
    POSTERIOR,
    TABLE_1,
    TABLE_2,
    WEBVISION_PAPER,
    Noise,
)
from labelsieve.methods import METHODS as IMPLEMENTED


def test_all_cells_of_the_paper() -> None:
    accuracy = cells.accuracy_cells(PAPER, SweepRequest(seeds=(0, 1, 2, 3, 4)))
    assert sum(c.kind == "accuracy" for c in accuracy) == 7 * 4 * 5
    assert sum(c.kind == "selection" for c in accuracy) == 4 * 5
    assert len({c.id for c in accuracy}) == len(accuracy)
    theory = cells.theory_cells(PAPER, SweepRequest())
    assert sorted(c.noise.ratio for c in theory if c.noise.pattern == "pair") == [i / 10 for i in range(1, 11)]
    assert len(theory) == 21 and {c.network for c in theory} == {"resnet110-preactivation"}
    free = cells.theory_cells(PAPER, SweepRequest(), kind="theory-without-decay")
    assert [c.name for c in free] == [c.name for c in theory] and len(group_into_locksteps([*theory, *free], 64)) == 2
    assert {*METHODS, POSTERIOR} == set(IMPLEMENTED) and POSTERIOR not in METHODS  # the paper does not have it
    for method in (*TABLE_1, *TABLE_2):
        assert method in METHODS
    assert {n.key for n in PAPER.table_noises} == set(FIGURE_4) == set(TABLE_1["d2l"])


def test_the_automatic_method_has_its_own_selection() -> None:
    request = SweepRequest(methods=("automatic", "incv-coteaching"), noises=(Noise("pair", 0.4),))
    own, papers, *trained = cells.accuracy_cells(PAPER, request)
    assert [own.id, papers.id] == ["automatic/incv-pair-0.4-seed0", "selection/incv-pair-0.4-seed0"]
    assert (own.network, own.epochs, own.batch_size) == ("fast", 10, 512)
    assert [cells.selections_for(c)[0].id for c in trained] == [own.id, papers.id]
    assert len(group_into_locksteps(trained, 32)) == 1 and len(group_into_locksteps([own, papers], 32)) == 2
    with pytest.raises(InputError, match="no method automatic"):
        cells.accuracy_cells(WEBVISION_PAPER, request, kind="webvision")


def test_cell_names_are_stable() -> None:
    """Records are found by these names, so a change would orphan all existing records."""
    first = cells.accuracy_cells(PAPER, SweepRequest(seeds=(3,), methods=("coteaching",), noises=(Noise("pair", 0.4),)))
    assert [c.id for c in first] == ["accuracy/coteaching-pair-0.4-seed3"]
    shorter = cells.selection_cells(
        PAPER, SweepRequest(noises=(Noise("symmetric", 0.5),), selection_epochs=10, iterations=2)
    )
    assert [c.id for c in shorter] == ["selection/incv-symmetric-0.5-seed0-e10-i2"]
    assert [c.id for c in cells.selection_cells(PAPER, SweepRequest(), kind="errors")] == ["errors/incv-none-seed0"]
    settings = (("coteaching", "gradual_epochs", 20), ("d2l", "window", 3))
    changed = cells.accuracy_cells(PAPER, SweepRequest(methods=("coteaching", "standard"), settings=settings))
    assert changed[0].settings == (("gradual_epochs", 20),)
    assert changed[0].id.startswith("accuracy/coteaching-symmetric-0.2-seed0-") and changed[4].settings == ()


def test_a_training_shares_the_selection_of_its_noise_setting() -> None:
    request = SweepRequest(methods=("incv-coteaching",), noises=(Noise("symmetric", 0.2),), iterations=3)
    selection, trained = cells.accuracy_cells(PAPER, request)
    assert [c.id for c in cells.selections_for(trained)] == ["selection/incv-symmetric-0.2-seed0", selection.id]


def test_locksteps_group_compatible_cells() -> None:
    wanted = cells.accuracy_cells(PAPER, SweepRequest(seeds=(0, 1)))
    groups = group_into_locksteps(wanted, 12)
    assert sorted(c.id for group in groups for c in group) == sorted(c.id for c in wanted)
    for group in groups:
        assert sum(c.networks for c in group) <= 12
        assert len({c.lockstep_key() for c in group}) == 1
        if group[0].method == "incv-coteaching":
            assert {c.method for c in group} == {group[0].method}
    assert group_into_locksteps(wanted[:1], 1) == [wanted[:1]]  # a cell with two networks runs even if the limit is one


@pytest.mark.parametrize(
    ("text", "noise"),
    [("symmetric-0.5", Noise("symmetric", 0.5)), ("sym-0.5", Noise("symmetric", 0.5)), ("pair-1", Noise("pair", 1.0))],
)
def test_noise_settings_are_parsed(text: str, noise: Noise) -> None:
    assert Noise.parse(text) == noise and noise in FIGURE_2_NOISES


@pytest.mark.parametrize("text", ["symmetric", "sym-2", "other-0.5", ""])
def test_invalid_noise_settings_are_refused(text: str) -> None:
    with pytest.raises(InputError, match="cannot read the noise setting"):
        Noise.parse(text)


def test_unknown_methods_and_settings_are_refused() -> None:
    with pytest.raises(InputError, match="no method magic"):
        cells.accuracy_cells(PAPER, SweepRequest(methods=("magic",)))
    with pytest.raises(InputError, match=r"no setting pair-0\.3"):
        cells.selection_cells(PAPER, SweepRequest(noises=(Noise("pair", 0.3),)))
