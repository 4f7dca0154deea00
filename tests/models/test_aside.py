"""Streams beside the main one: the order of waits, and what is held until then."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec

import pytest
import torch

from labelsieve.models.kernels import aside

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


class Stream:
    """Writes down what it is told."""

    def __init__(self, name: str, log: list[str]) -> None:
        self.name, self.log, self.events = name, log, 0

    def wait_stream(self, other: Stream) -> None:
        self.log.append(f"{self.name} waits for {other.name}")

    def record_event(self) -> str:
        self.events += 1
        return f"{self.name} {self.events}"

    def wait_event(self, event: str) -> None:
        self.log.append(f"{self.name} waits for {event}")


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    log: list[str] = []
    streams = [Stream(name, log) for name in ("main", "left", "right")]

    @contextmanager
    def on(stream: Stream) -> Iterator[None]:
        log.append(f"on {stream.name}")
        yield
        log.append("back")

    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: streams[0])
    monkeypatch.setattr(torch.cuda, "stream", on)
    # never the main one itself
    monkeypatch.setattr(aside, "_streams", lambda device, number: streams[: number + 1])
    return log


def job(log: list[str], name: str, read: torch.Tensor) -> torch.Tensor:
    log.append(name)
    return read + 1


def test_jobs_come_after_what_was_queued_and_the_rest_after_them(
    log: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    monkeypatch.setenv("LABELSIEVE_ASIDE", "1")
    beside = aside.Aside(torch.device("cuda"))
    made = beside.run([partial(job, log, name, torch.zeros(1)) for name in "ab"])
    assert [float(tensor) for tensor in made] == [1, 1]
    beside.run([partial(job, log, "c", torch.zeros(1))])
    beside.join()
    first = ["left waits for main", "on left", "a", "back", "on left", "b", "back"]
    assert log == [*first, "left waits for main", "on left", "c", "back", "main waits for left 2"]
    beside.join()
    assert len(log) == 12  # nothing is left to wait for


def test_jobs_take_turns_on_two_streams(log: list[str]) -> None:
    beside = aside.Aside(torch.device("cuda"))
    for names in ("a", "b", "cde"):
        beside.run([partial(job, log, name, torch.zeros(1)) for name in names])
    where = [log[at - 1] for at, line in enumerate(log) if len(line) == 1]
    assert where == ["on left", "on right", "on left", "on right", "on left"]
    for name in "abcde":  # each began when its stream had waited for the main one
        side = log[log.index(name) - 1].removeprefix("on ")
        assert f"{side} waits for main" in log[: log.index(name)]
    assert log[:4] == ["left waits for main", "on left", "a", "back"]
    before = len(log)
    beside.join()
    assert sorted(log[before:]) == ["main waits for left 2", "main waits for right 2"]


def test_what_jobs_read_is_held_until_it_was_waited_for(log: list[str]) -> None:
    beside = aside.Aside(torch.device("cuda"))
    seen = []
    for i in range(aside.UNDER_WAY + 2):
        read = torch.zeros(1)
        seen.append(weakref.ref(read))
        beside.run([partial(job, log, str(i), read)])
        del read
    waits = [line for line in log if line.startswith("main")]
    assert waits == ["main waits for left 1", "main waits for right 1"]
    assert [ref() is None for ref in seen] == [True] * 2 + [False] * aside.UNDER_WAY
    beside.join()
    assert all(ref() is None for ref in seen)


@pytest.mark.parametrize("on", [True, False])
def test_without_a_second_stream_jobs_run_in_line(on: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LABELSIEVE_ASIDE", "1" if on else "0")
    beside = aside.Aside(torch.device("cpu") if on else DEVICE)
    assert [float(t) for t in beside.run([partial(job, [], "a", torch.ones(1))])] == [2]
    beside.join()
    assert not beside.held


if find_spec("triton") is not None:

    def test_a_chain_s_gradients_are_the_same_with_all_switches(monkeypatch: pytest.MonkeyPatch) -> None:
        """Captured and replayed on a GPU, where memory is given out again at once."""
        from labelsieve.models.inception_resnet_v2 import Residual, Residuals
        from labelsieve.models.kernels import branches

        torch.manual_seed(0)
        blocks = [Residual(32, [(16, 1)], [(8, 1), (16, (1, 3)), (24, (3, 1))], scale=0.3) for _ in range(7)]
        chain = Residuals(*blocks).to(DEVICE)
        x = torch.randn(8, 32, 5, 5).to(DEVICE, memory_format=torch.channels_last)
        g = torch.randn(8, 32, 5, 5).to(DEVICE, memory_format=torch.channels_last)
        parameters = list(chain.parameters())

        def gradients() -> list[torch.Tensor]:
            leaf = x.clone().requires_grad_()
            return list(torch.autograd.grad(branches.residual_blocks(chain, leaf), [leaf, *parameters], g))

        def captured() -> list[torch.Tensor]:
            if DEVICE.type == "cpu":
                return gradients()
            main = torch.cuda.Stream()
            main.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(main):
                gradients()
            torch.cuda.current_stream().wait_stream(main)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                found = gradients()
            for _ in range(3):
                graph.replay()
            return [tensor.clone() for tensor in found]

        monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
        names = ("LABELSIEVE_ASIDE", "LABELSIEVE_PRODUCTS", "LABELSIEVE_GROUPS")
        results = []
        for off in ((), *((name,) for name in names), names):
            for name in names:
                monkeypatch.setenv(name, "0" if name in off else "1")
            results.append(captured())
        for other in results[1:]:
            for mine, theirs in zip(results[0], other, strict=True):
                error = (mine - theirs).double().norm() / theirs.double().norm().clamp_min(1e-2)
                assert error < 2e-4, float(error)
