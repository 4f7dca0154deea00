"""The stream beside the main one: the order of waits, and what is held until then."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec

import pytest
import torch

from labelsieve.models.kernels import side_stream as aside
from labelsieve.models.kernels.switches import PARTS

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
    streams = [Stream(name, log) for name in ("main", "side")]

    @contextmanager
    def on(stream: Stream) -> Iterator[None]:
        log.append(f"on {stream.name}")
        yield
        log.append("back")

    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: streams[0])
    monkeypatch.setattr(torch.cuda, "stream", on)
    monkeypatch.setattr(aside, "_streams", lambda device: streams)  # never the main one itself
    return log


def job(log: list[str], name: str, read: torch.Tensor) -> torch.Tensor:
    log.append(name)
    return read + 1


def test_jobs_come_after_what_was_queued_and_the_rest_after_them(log: list[str]) -> None:
    beside = aside.Aside(torch.device("cuda"))
    made = beside.run([partial(job, log, name, torch.zeros(1)) for name in "ab"])
    assert [float(tensor) for tensor in made] == [1, 1]
    beside.run([partial(job, log, "c", torch.zeros(1))])
    beside.join()
    first = ["side waits for main", "on side", "a", "b", "back"]
    assert log == [*first, "side waits for main", "on side", "c", "back", "main waits for side 2"]
    beside.join()
    assert len(log) == 10  # nothing is left to wait for


def test_what_jobs_read_is_held_until_it_was_waited_for(log: list[str]) -> None:
    beside = aside.Aside(torch.device("cuda"))
    seen = []
    for i in range(aside.UNDER_WAY + 2):
        read = torch.zeros(1)
        seen.append(weakref.ref(read))
        beside.run([partial(job, log, str(i), read)])
        del read
    waits = [line for line in log if line.startswith("main")]
    assert waits == ["main waits for side 1", "main waits for side 2"]
    assert [ref() is None for ref in seen] == [True] * 2 + [False] * aside.UNDER_WAY
    beside.join()
    assert all(ref() is None for ref in seen)


@pytest.mark.parametrize("on", [True, False])
def test_on_a_cpu_and_switched_off_jobs_run_in_line(on: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not on:
        monkeypatch.setenv("LABELSIEVE_ASIDE", "0")
    beside = aside.Aside(torch.device("cpu") if on else DEVICE)
    assert [float(t) for t in beside.run([partial(job, [], "a", torch.ones(1))])] == [2]
    beside.join()
    assert not beside.held


if find_spec("triton") is not None:

    def test_a_chain_s_gradients_are_the_same_whatever_is_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
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

        results = []
        for off in ((), *((part,) for part in PARTS), PARTS):
            with monkeypatch.context() as patched:
                for part in off:
                    patched.setenv(f"LABELSIEVE_{part}", "0")
                results.append(captured())
        for other in results[1:]:
            for mine, theirs in zip(results[0], other, strict=True):
                error = (mine - theirs).double().norm() / theirs.double().norm().clamp_min(1e-2)
                assert error < 2e-4, float(error)
