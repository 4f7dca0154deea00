from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from labelsieve.errors import InputError
from labelsieve.execute.sklearn_trainer import run_all


def square(value):
    return value * value


@pytest.mark.parametrize("executor", [None, "threads", "processes", 1, 2])
def test_answers_keep_the_order(executor):
    assert list(run_all(square, [3, 1, 2], executor)) == [9, 1, 4]
    assert list(run_all(square, [], executor)) == []


def test_any_object_with_map():
    with ThreadPoolExecutor(2) as pool:
        assert list(run_all(square, [3, 1, 2], pool)) == [9, 1, 4]


@pytest.mark.parametrize("executor", ["cloud", 0, -2, 1.5, True, object()])
def test_others_are_refused(executor):
    with pytest.raises(InputError, match="executor"):
        run_all(square, [1, 2], executor)
