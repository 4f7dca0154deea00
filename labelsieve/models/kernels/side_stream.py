"""Work on a stream of its own: what nothing waits for yet runs beside what everything waits for.

A layer's weight gradient is wanted at the end of a step, its input's gradient by the next layer at once. Where pictures
are small neither fills a GPU; side by side they do. On a CPU, and switched off (switches.py), jobs run in line.

Order. `run` lets the side stream wait for all that was queued on the main one, `join` the main one for it: both are
events, which a CUDA graph captures as its edges.

Memory, the same for eager steps and for a capture's private pool. The allocator hands a freed block out again to the
stream it was made on, at once, for it knows that stream's order alone.
  - What a job reads was made on the main stream: jobs are held, and what they read with them, until the main stream
    has been told to wait for them. Whatever is put in that place comes later.
  - What a job makes belongs to the side stream and is read on the main one after the join. Its place is given out
    again by a later `run` only, which begins by waiting for that reading.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import cache

import torch
from torch import Tensor

from labelsieve.models.kernels.switches import switched_on

Job = Callable[[], Tensor]
UNDER_WAY = 4  # calls of `run` whose memory is held at most


@cache
def _streams(device: torch.device) -> tuple[torch.cuda.Stream, ...]:
    """Two, as torch has few and one may be the main one; always the same, as libraries keep memory for each."""
    return tuple(torch.cuda.Stream(device) for _ in range(2))  # type: ignore[no-untyped-call]


class Aside:
    """The side stream of this device, from now until `join`."""

    def __init__(self, device: torch.device) -> None:
        self.side: torch.cuda.Stream | None = None
        if device.type == "cuda" and switched_on("ASIDE"):
            self.main = torch.cuda.current_stream(device)
            self.side = next(stream for stream in _streams(device) if stream != self.main)
        self.held: deque[tuple[torch.cuda.Event, Sequence[Job]]] = deque()

    def run(self, jobs: Sequence[Job]) -> list[Tensor]:
        """Their results, which are there after `join`. A job reads what the main stream has been told to make."""
        if self.side is None:
            return [job() for job in jobs]
        self.side.wait_stream(self.main)
        with torch.cuda.stream(self.side):
            results = [job() for job in jobs]
        self.held.append((self.side.record_event(), jobs))
        while len(self.held) > UNDER_WAY:
            self.main.wait_event(self.held[0][0])
            self.held.popleft()
        return results

    def join(self) -> None:
        """The main stream goes on when all jobs are done."""
        if self.held:
            self.main.wait_event(self.held[-1][0])  # the end of all before, too
        self.held.clear()
