"""Work on a second stream: what nothing waits for yet runs beside what everything waits for.

A layer's weight gradient is wanted at the end of a step, its input's gradient by the next layer at once. Where pictures
are small neither fills a GPU; side by side they do. `LABELSIEVE_ASIDE=0` switches it off; on a CPU jobs run in line.

Order. `run` lets the second stream wait for all that was queued on the main one, `join` the main one for the second:
both are events, which a CUDA graph captures as its edges.

Memory, the same for eager steps and for a capture's private pool. The allocator hands a freed block out again to the
stream it was made on, at once, for it knows that stream's order alone.
  - What a job reads was made on the main stream: jobs are held, and what they read with them, until the main stream
    has been told to wait for them. Whatever is put in that place comes later.
  - What a job makes belongs to the second stream and is read on the main one after the join. Its place is given out
    again by a later `run` only, which begins by waiting for that reading.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Sequence
from functools import cache

import torch
from torch import Tensor

Job = Callable[[], Tensor]
UNDER_WAY = 4  # calls of `run` whose memory is held at most


def switched_on() -> bool:
    return os.environ.get("LABELSIEVE_ASIDE") != "0"


@cache
def _streams(device: torch.device) -> tuple[torch.cuda.Stream, torch.cuda.Stream]:
    """Two, as torch has few and one may be the main one; always the same, as libraries keep memory for each."""
    return torch.cuda.Stream(device), torch.cuda.Stream(device)  # type: ignore[no-untyped-call]


class Aside:
    """The second stream of this device, from now until `join`."""

    def __init__(self, device: torch.device) -> None:
        self.streams: tuple[torch.cuda.Stream, torch.cuda.Stream] | None = None
        if device.type == "cuda" and switched_on():
            main = torch.cuda.current_stream(device)
            self.streams = main, next(stream for stream in _streams(device) if stream != main)
        self.held: deque[tuple[torch.cuda.Event, Sequence[Job]]] = deque()

    def run(self, jobs: Sequence[Job]) -> list[Tensor]:
        """Their results, which are there after `join`. A job reads what the main stream has been told to make."""
        if self.streams is None:
            return [job() for job in jobs]
        main, side = self.streams
        side.wait_stream(main)
        with torch.cuda.stream(side):
            results = [job() for job in jobs]
        self.held.append((side.record_event(), jobs))
        while len(self.held) > UNDER_WAY:
            main.wait_event(self.held[0][0])
            self.held.popleft()
        return results

    def join(self) -> None:
        """The main stream goes on when all jobs are done."""
        if self.streams is not None and self.held:
            self.streams[0].wait_event(self.held[-1][0])  # the last one's end is the end of all
            self.held.clear()
