"""Settings of the wrong kind are refused by every method, in one line."""

import dataclasses
import math
import typing

import numpy as np
import pytest

from labelsieve.checks import as_labels, check_integer, check_range
from labelsieve.errors import InputError
from labelsieve.methods import METHODS
from labelsieve.methods.f_correction import FCorrection
from labelsieve.methods.standard import GeneralisedCE

KINDS = [*METHODS.values(), GeneralisedCE]
NUMBERS = [  # of every method: its settings that are numbers, and whether whole ones
    (kind, field.name, int in (hint, *typing.get_args(hint)))
    for kind in KINDS
    for field in dataclasses.fields(kind)
    if field.init and {int, float} & {hint := typing.get_type_hints(kind)[field.name], *typing.get_args(hint)}
]


def refused(kind, name, value):
    with pytest.raises(InputError, match=name.replace("noise_ratio", "noise.ratio")) as message:
        kind(**{name: value})
    assert "\n" not in str(message.value) and len(str(message.value)) < 300


def test_every_method_has_its_numbers_here():
    assert {kind for kind, _, _ in NUMBERS} == set(KINDS)
    assert sum(is_whole for _, _, is_whole in NUMBERS) == 13 and len(NUMBERS) == 32


@pytest.mark.parametrize(("kind", "name", "is_whole"), NUMBERS)
def test_what_is_no_number_is_refused(kind, name, is_whole):
    for value in (math.nan, math.inf, -math.inf, "abc", "3", True, [1], np.ones((40, 40)), {}, -1, 1 + 2j):
        refused(kind, name, value)
    if is_whole:
        for value in (1.5, 2.0, 2.5, 10.5, 200.0, np.float64(20), 10**30):
            refused(kind, name, value)


@pytest.mark.parametrize(("kind", "name", "is_whole"), NUMBERS)
def test_numbers_of_numpy_are_numbers(kind, name, is_whole):
    """As a grid search has them."""
    whole_number = 2 if name in ("networks", "rounds") else 20  # more than two are not possible
    value = np.int64(whole_number) if is_whole else np.float32(0.5)
    assert getattr(kind(**{name: value}), name) == value


@pytest.mark.parametrize(
    "transition", ["abc", [["a"]], [["1", "0"], ["0", "1"]], [[1, 0], [1]], 3, [1, 0], [[math.nan]], [[2.0]], {}]
)
def test_what_is_no_transition_matrix_is_refused(transition):
    refused(FCorrection, "transition", transition)


def test_whole_and_between_at_their_ends():
    check_integer("x", 3, least=3)
    check_range("x", 0, 0, 1)
    check_range("x", 1, 0, 1)
    check_range("x", 0.0, 0, 1, ends="[)")
    check_range("x", 1.0, 0, 1, ends="(]")
    with pytest.raises(InputError, match="x is 2: choose an integer of at least 3, or None"):
        check_integer("x", 2, least=3, otherwise=", or None")
    with pytest.raises(InputError, match=r"x is 1: choose a number in \[0, 1\)$"):
        check_range("x", 1, 0, 1, ends="[)")
    with pytest.raises(InputError, match=r"x is 0: choose a number in \(0, 1\]$"):
        check_range("x", 0, 0, 1, ends="(]")


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        ([0, 1, 2], "int64"),
        ([np.int8(0), np.int8(1)], "int8"),
        ([True, False], "bool"),
        ([np.True_, False], "bool"),
        ([0, 1.0], "float64"),
        ([0, math.nan], "float64"),  # missing
        (["a", "b"], "object"),
        ([0, True], "object"),
        ([0, None], "object"),
        ([2**70, 1], "object"),
        ([2**63, -1], "object"),  # float64 would round them
        ([], "object"),
    ],
)
def test_labels_of_dtype_object_get_a_plain_one_if_they_are_of_one_type(values, dtype):
    labels = np.empty(len(values), dtype=object)
    labels[:] = values
    assert as_labels(labels).dtype == dtype
    np.testing.assert_array_equal(as_labels(labels), labels.astype(dtype))
