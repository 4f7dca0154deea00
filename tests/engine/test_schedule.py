from __future__ import annotations

import pytest

from labelsieve.engine import Schedule
from labelsieve.engine.schedule import auto_batch_size, auto_epochs, one_drop
from labelsieve.errors import InputError


def rates(schedule: Schedule, *epochs: int) -> list[float]:
    return [schedule.learning_rate(epoch) for epoch in epochs]


def test_section_5_2_adam_over_50_epochs():
    assert rates(Schedule.incv_50(), 0, 19, 20, 29, 30, 39, 40, 49) == pytest.approx(
        [1e-3, 1e-3, 5e-4, 5e-4, 2.5e-4, 2.5e-4, 1e-4, 1e-4]
    )


def test_sections_5_1_and_5_3_adam_over_200_epochs():
    schedule = Schedule.paper_200()
    assert rates(schedule, 79, 80, 120, 160, 179, 180, 199) == pytest.approx([1e-3, 1e-4, 1e-5, 1e-6, 1e-6, 5e-7, 5e-7])
    assert [epoch for epoch in range(200) if schedule.drops_at(epoch)] == [80, 120, 160, 180]
    assert schedule.fresh_state and schedule.weight_decay == 2e-4


def test_supplement_a2_sgd():
    assert rates(Schedule.webvision_120(), 39, 40, 80, 119) == pytest.approx([0.1, 0.01, 0.001, 0.001])
    assert rates(Schedule.webvision_incv_50(), 19, 20, 30, 40) == pytest.approx([0.1, 0.05, 0.025, 0.01])


def test_a_shortened_schedule_keeps_its_shape():
    assert Schedule.paper_200(20).steps == ((0, 1e-3), (8, 1e-4), (12, 1e-5), (16, 1e-6), (18, 5e-7))
    assert Schedule.paper_200(1).steps == ((0, 1e-3),)


NAMED = [Schedule.paper_200, Schedule.incv_50, Schedule.webvision_120, Schedule.webvision_incv_50]


@pytest.mark.parametrize("named", NAMED)
@pytest.mark.parametrize("epochs", range(1, 30))
def test_a_short_schedule_skips_no_rate_and_holds_none_that_is_never_reached(named, epochs):
    schedule, whole = named(epochs), [rate for _, rate in named().steps]
    trained_with = list(dict.fromkeys(rates(schedule, *range(epochs))))
    assert trained_with == whole[: len(trained_with)]
    assert [rate for _, rate in schedule.steps] == trained_with
    if epochs >= 8:
        assert trained_with == whole


def test_what_gives_way_where_epochs_are_too_few():
    assert Schedule.paper_200(4).steps == ((0, 1e-3), (2, 1e-4), (3, 1e-5))
    assert Schedule.incv_50(4).steps == ((0, 1e-3), (2, 5e-4), (3, 2.5e-4))


@pytest.mark.parametrize("named", NAMED)
def test_schedules_of_records_are_what_they_were(named):
    """From 8 epochs on a drop lies where rounding puts it: results/ was trained so."""
    for epochs in (8, 10, 20, 50, 80, 100, 120, 200, 400):
        shape = named()
        plain = {round(start * epochs / shape.epochs): rate for start, rate in shape.steps}
        assert named(epochs).steps == tuple(plain.items())


@pytest.mark.parametrize("steps", [(), ((1, 0.1),), ((0, 0.1), (0, 0.2)), ((0, 0.1), (5, 0.1), (3, 0.1))])
def test_steps_that_make_no_sense(steps):
    with pytest.raises(InputError, match="steps"):
        Schedule(5, steps)


def test_no_epochs():
    with pytest.raises(InputError, match="epochs is 0"):
        Schedule(0, ((0, 0.1),))


def test_batch_size_and_epochs_depend_on_the_data() -> None:
    assert [auto_batch_size(n) for n in (10, 1000, 5000)] == [32, 62, 128]
    assert [auto_epochs(n, auto_batch_size(n)) for n in (10, 100, 200, 50_000)] == [60, 40, 22, 20]
    assert [auto_epochs(n, auto_batch_size(n), pictures=True) for n in (100, 600, 3000, 5000)] == [60, 37, 26, 20]


def test_the_learning_rate_drops_in_the_last_quarter() -> None:
    assert one_drop(40).steps == ((0, 5e-3), (30, 5e-4))
    assert one_drop(8, 0.1).steps == ((0, 0.1), (6, 0.01))
    assert one_drop(1, 0.1).steps == ((0, 0.1),)
