"""Time and kernels of a training step, for the benchmarks of single networks."""

from __future__ import annotations

import time

import torch

from labelsieve.engine.lockstep import Lockstep

PROFILED = 10  # steps


def wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def rate(made: Lockstep, networks: int, batch: int, seconds: float) -> float:
    """Training pictures per second of all networks."""
    device = made.store.device
    at_a_time = 5 if device.type == "cuda" else 1
    made.stepper.run(3 if device.type == "cuda" else 1, batch)
    wait(device)
    began, steps = time.perf_counter(), 0
    while (spent := time.perf_counter() - began) < seconds or steps == 0:
        made.stepper.run(at_a_time, batch)
        wait(device)
        steps += at_a_time
    return steps * batch * networks / spent if spent else 0.0


def profile(made: Lockstep, batch: int, top: int) -> list[str]:
    """The kernels of one step, those that take longest first."""
    activity = torch.profiler.ProfilerActivity.CUDA
    with torch.profiler.profile(activities=[activity]) as record:
        made.stepper.run(PROFILED, batch)
        torch.cuda.synchronize()
    events = sorted(record.key_averages(), key=lambda event: -event.self_device_time_total)
    total = sum(event.self_device_time_total for event in events)
    count = sum(event.count for event in events) / PROFILED
    lines = [f"one network: {total / PROFILED / 1000:.3f} ms of {count:.0f} kernels a step"]
    for event in events[:top]:
        share, each = 100 * event.self_device_time_total / total, event.self_device_time_total / event.count
        lines.append(f"{share:5.1f} %  {each:8.1f} us x {event.count / PROFILED:6.1f}  {event.key[:110]}")
    return lines
