from __future__ import annotations

import pytest
import torch

from labelsieve.engine.device import SMALL_STEP, choose_device, fastest_convolutions, threads_for
from labelsieve.errors import InputError

CUDA = torch.device("cuda")


def test_convolutions_are_tried_on_a_gpu_alone_and_what_was_set_comes_back():
    with fastest_convolutions(torch.device("cpu")):
        assert not torch.backends.cudnn.benchmark
    with pytest.raises(KeyError), fastest_convolutions(CUDA):
        assert torch.backends.cudnn.benchmark
        raise KeyError
    assert not torch.backends.cudnn.benchmark


def test_nothing_is_tried_where_torch_is_to_be_deterministic(monkeypatch):
    monkeypatch.setattr(torch, "are_deterministic_algorithms_enabled", lambda: True)
    with fastest_convolutions(CUDA):
        assert not torch.backends.cudnn.benchmark


def test_a_device_that_is_not_there_is_named():
    for unknown in ("tpu", "cuda:", "cuda:x", "cpu:-1"):
        with pytest.raises(InputError, match="unknown"):
            choose_device(unknown)


def test_a_card_by_number_must_be_there(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert choose_device("cuda:1") == torch.device("cuda", 1)
    with pytest.raises(InputError, match="2 CUDA devices"):
        choose_device("cuda:2")


def test_small_steps_have_one_thread_and_what_was_set_comes_back():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with pytest.raises(KeyError), threads_for(SMALL_STEP / 2):
            assert torch.get_num_threads() == 1
            raise KeyError
        with threads_for(SMALL_STEP):
            assert torch.get_num_threads() == 2
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
