"""Work on streams of its own: what nothing waits for yet runs beside what everything waits for.

A layer's weight gradient is wanted at the end of a step, its input's gradient by the next layer at once. Where pictures
are small neither fills a GPU; side by side they do. `LABELSIEVE_ASIDE` is the number of such streams (switches.py); on
a CPU, and where there are none, jobs run in line.

Order. `run` lets the side streams wait for all that was queued on the main one, `join` the main one for them: both are
events, which a CUDA graph captures as its edges.

Memory, the same for eager steps and for a capture's private pool. The allocator hands a freed block out again to the
stream it was made on, at once, for it knows that stream's order alone.
  - What a job reads was made on the main stream: jobs are held, and what they read with them, until the main stream
    has been told to wait for them. Whatever is put in that place comes later.
  - What a job makes belongs to its side stream and is read on the main one after the join. Its place is given out
    again by a later `run` only, which begins by waiting for that reading.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import cache

import torch
from torch import Tensor

from labelsieve.models.kernels.switches import switch

Job = Callable[[], Tensor]
UNDER_WAY = 4  # calls of `run` whose memory is held at most


def wanted_streams() -> int:
    return switch("ASIDE")


@cache
def _streams(device: torch.device, number: int) -> list[torch.cuda.Stream]:
    """One more, as torch has few and one may be the main one; always the same, as libraries keep memory for each."""
    return [torch.cuda.Stream(device) for _ in range(number + 1)]  # type: ignore[no-untyped-call]


class Aside:
    """The side streams of this device, from now until `join`."""

    def __init__(self, device: torch.device) -> None:
        self.sides: list[torch.cuda.Stream] = []
        number = wanted_streams()
        if device.type == "cuda" and number:
            self.main = torch.cuda.current_stream(device)
            self.sides = [stream for stream in _streams(device, number) if stream != self.main][:number]
        self.jobs = 0
        self.held: deque[tuple[dict[int, torch.cuda.Event], Sequence[Job]]] = deque()

    def run(self, jobs: Sequence[Job]) -> list[Tensor]:
        """Their results, which are there after `join`. A job reads what the main stream has been told to make."""
        if not self.sides:
            return [job() for job in jobs]
        turns = [number % len(self.sides) for number in range(self.jobs, self.jobs + len(jobs))]
        self.jobs += len(jobs)
        for turn in set(turns):
            self.sides[turn].wait_stream(self.main)
        results = []
        for turn, job in zip(turns, jobs, strict=True):
            with torch.cuda.stream(self.sides[turn]):
                results.append(job())
        self.held.append(({turn: self.sides[turn].record_event() for turn in set(turns)}, jobs))
        while len(self.held) > UNDER_WAY:
            self._wait_for(self.held[0][0])
            self.held.popleft()
        return results

    def join(self) -> None:
        """The main stream goes on when all jobs are done."""
        last: dict[int, torch.cuda.Event] = {}
        for events, _ in self.held:
            last |= events  # a stream's last event is the end of all before
        self._wait_for(last)
        self.held.clear()

    def _wait_for(self, events: dict[int, torch.cuda.Event]) -> None:
        for event in events.values():
            self.main.wait_event(event)
