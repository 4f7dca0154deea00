"""Many tensors at once against one after the other."""

from __future__ import annotations

import pytest
import torch

from labelsieve.models.kernels import groups

SHAPES = [(4, 3, 1, 1), (5, 4, 1, 3), (4, 3, 1, 1), (5, 4, 3, 1), (5, 4, 1, 3), (4, 3, 3, 3)]


@pytest.fixture(params=["together", "each by itself"], autouse=True)
def switch(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param != "together":
        monkeypatch.setenv("LABELSIEVE_GROUPS", "0")


def tensors() -> list[torch.Tensor]:
    torch.manual_seed(0)
    return [torch.randn(shape) for shape in SHAPES]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_weights_are_rounded_and_put_in_order(dtype: torch.dtype) -> None:
    before = tensors()
    for mine, weight in zip(groups.ordered(before, dtype), before, strict=True):
        expected = weight.to(dtype, memory_format=torch.channels_last)
        assert torch.equal(mine, expected) and mine.dtype == dtype
        assert mine.is_contiguous(memory_format=torch.channels_last) and mine.stride() == expected.stride()
    moved = [weight.to(memory_format=torch.channels_last) for weight in before]  # as a user may have done
    for mine, weight in zip(groups.ordered(moved, dtype), before, strict=True):
        assert torch.equal(mine, weight.to(dtype)) and mine.is_contiguous(memory_format=torch.channels_last)
    parts = torch.randn(8, 3, 1, 2).chunk(2)  # a network's part of a parameter
    for mine, weight in zip(groups.ordered(parts, dtype), parts, strict=True):
        assert torch.equal(mine, weight.to(dtype))


def test_gradients_are_put_back() -> None:
    given = tensors()
    mixed = [
        g.bfloat16().to(memory_format=torch.channels_last) if i % 3 else g
        for i, g in enumerate(given)
    ]  # fmt: skip
    found = groups.as_parameters(mixed)
    assert found[0] is given[0] and found[3] is given[3]  # nothing to do
    for mine, gradient in zip(found, mixed, strict=True):
        assert mine.is_contiguous() and mine.dtype == torch.float32
        assert torch.equal(mine, gradient.float())


def test_scales() -> None:
    before = tensors()
    for i, mine in enumerate(groups.scaled(before, [0.1 * i for i in range(len(before))])):
        torch.testing.assert_close(mine, before[i] * (0.1 * i), rtol=0, atol=0)


def test_groups_have_one_shape(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LABELSIEVE_GROUPS", raising=False)
    assert groups.of_one_shape(tensors()) == [[0, 2], [1, 4], [3], [5]]
