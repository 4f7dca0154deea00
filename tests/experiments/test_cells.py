"""Which cells there are, what they are called, which run together."""

from __future__ import annotations

import pytest

from labelsieve.errors import InputError
from labelsieve.experiments import cells
from labelsieve.experiments.cells import Wish, in_locksteps
from labelsieve.experiments.paper import FIGURE_4, TABLE_1, TABLE_2
from labelsieve.experiments.settings import FIGURE_2, METHODS, PAPER, Noise
from labelsieve.methods import METHODS as IMPLEMENTED


def test_every_cell_of_the_paper_is_there() -> None:
    accuracy = cells.accuracy_cells(PAPER, Wish(seeds=(0, 1, 2, 3, 4)))
    assert sum(c.kind == "accuracy" for c in accuracy) == 7 * 4 * 5
    assert sum(c.kind == "selection" for c in accuracy) == 4 * 5
    assert len({c.id for c in accuracy}) == len(accuracy)
    theory = cells.theory_cells(PAPER, Wish())
    assert sorted(c.noise.ratio for c in theory if c.noise.pattern == "pair") == [i / 10 for i in range(1, 11)]
    assert len(theory) == 21 and {c.network for c in theory} == {"resnet110-preactivation"}
    free = cells.theory_cells(PAPER, Wish(), kind="theory-without-decay")
    assert [c.name for c in free] == [c.name for c in theory] and len(in_locksteps([*theory, *free], 64)) == 2
    assert set(METHODS) == set(IMPLEMENTED)
    for method in (*TABLE_1, *TABLE_2):
        assert method in METHODS
    assert {n.key for n in PAPER.table_settings} == set(FIGURE_4) == set(TABLE_1["d2l"])


def test_what_is_told_nothing_starts_from_a_selection_of_its_own() -> None:
    wish = Wish(methods=("told-nothing", "incv-coteaching"), noises=(Noise("pair", 0.4),))
    own, papers, *trained = cells.accuracy_cells(PAPER, wish)
    assert [own.id, papers.id] == ["told-nothing/incv-pair-0.4-seed0", "selection/incv-pair-0.4-seed0"]
    assert (own.network, own.epochs, own.batch_size) == ("fast", 10, 512)
    assert [cells.sources_of(c, PAPER)[0].id for c in trained] == [own.id, papers.id]
    assert len(cells.in_locksteps(trained, 32)) == 1 and len(cells.in_locksteps([own, papers], 32)) == 2
    with pytest.raises(InputError, match="no method told-nothing"):
        cells.accuracy_cells(PAPER, wish, kind="webvision")


def test_names_stay_as_they_are() -> None:
    """Records are found by these names: a change would orphan every record there is."""
    first = cells.accuracy_cells(PAPER, Wish(seeds=(3,), methods=("coteaching",), noises=(Noise("pair", 0.4),)))
    assert [c.id for c in first] == ["accuracy/coteaching-pair-0.4-seed3"]
    shorter = cells.selection_cells(PAPER, Wish(noises=(Noise("symmetric", 0.5),), selection_epochs=10, iterations=2))
    assert [c.id for c in shorter] == ["selection/incv-symmetric-0.5-seed0-e10-i2"]
    assert [c.id for c in cells.errors_cells(PAPER, Wish())] == ["errors/incv-none-seed0"]
    settings = (("coteaching", "gradual_epochs", 20), ("d2l", "window", 3))
    changed = cells.accuracy_cells(PAPER, Wish(methods=("coteaching", "standard"), settings=settings))
    assert changed[0].settings == (("gradual_epochs", 20),)
    assert changed[0].id.startswith("accuracy/coteaching-symmetric-0.2-seed0-") and changed[4].settings == ()


def test_a_selection_is_shared_with_the_method_that_needs_it() -> None:
    wish = Wish(methods=("incv-coteaching",), noises=(Noise("symmetric", 0.2),), iterations=3)
    selection, trained = cells.accuracy_cells(PAPER, wish)
    assert [c.id for c in cells.sources_of(trained, PAPER)] == ["selection/incv-symmetric-0.2-seed0", selection.id]


def test_locksteps_hold_what_may_run_together() -> None:
    wanted = cells.accuracy_cells(PAPER, Wish(seeds=(0, 1)))
    groups = in_locksteps(wanted, 12)
    assert sorted(c.id for group in groups for c in group) == sorted(c.id for c in wanted)
    for group in groups:
        assert sum(c.networks for c in group) <= 12
        assert len({c.lockstep_key() for c in group}) == 1
        if group[0].method == "incv-coteaching":
            assert {c.method for c in group} == {group[0].method}
    assert in_locksteps(wanted[:1], 1) == [wanted[:1]]  # a cell of two networks runs all the same


@pytest.mark.parametrize(
    ("text", "noise"),
    [("symmetric-0.5", Noise("symmetric", 0.5)), ("sym-0.5", Noise("symmetric", 0.5)), ("pair-1", Noise("pair", 1.0))],
)
def test_noise_is_read(text: str, noise: Noise) -> None:
    assert Noise.parse(text) == noise and noise in FIGURE_2


@pytest.mark.parametrize("text", ["symmetric", "sym-2", "other-0.5", ""])
def test_noise_that_is_not_noise(text: str) -> None:
    with pytest.raises(InputError, match="cannot read the noise setting"):
        Noise.parse(text)


def test_mistakes_are_named() -> None:
    with pytest.raises(InputError, match="no method magic"):
        cells.accuracy_cells(PAPER, Wish(methods=("magic",)))
    with pytest.raises(InputError, match=r"no setting pair-0\.3"):
        cells.selection_cells(PAPER, Wish(noises=(Noise("pair", 0.3),)))
