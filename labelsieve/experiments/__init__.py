"""The paper's figures and tables, from runs that can be repeated: `labelsieve reproduce list`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal


@dataclass(frozen=True)
class ReproduceOptions:
    """Options of `labelsieve reproduce`.

    Parameters
    ----------
    data
        Folder with CIFAR-10 (`labelsieve data fetch cifar10 --to DIR`). For webvision and webvision-errors: folder
        with WebVision 1.0, and ILSVRC12's validation set in its subfolder ilsvrc12. Not needed for `--scale smoke`.
    results
        Folder of the records (default: `results`, or `runs/reproduce-smoke` for smoke).
    scale
        `paper` is the paper's protocol, `smoke` a small one that a CPU runs in seconds.
    seeds
        Seeds to run: `0-4`, `0,2` or `3` (default: the one of `--seed`).
    methods
        Methods of tables 1 and 2, separated by commas, in the order in which they run.
    settings
        Noise settings, separated by commas, such as `symmetric-0.5,pair-0.4`.
    epochs
        Number of training epochs, if different from the protocol. Tables name every difference.
    selection_epochs
        Number of epochs of INCV's trainings, if different from the protocol.
    iterations
        Number of INCV iterations, if different from the protocol.
    set
        A setting of a method, METHOD.SETTING=VALUE, such as `f-correction.estimate_epochs=50`.
    budget
        Seconds after which the run stops; the same command continues it. With 0 nothing runs, and the table and
        figure are drawn from the existing records.
    lockstep
        Maximum number of networks that train at once.
    device
        `auto`, `cpu`, `cuda` or `mps`.
    executor
        `local`, `ray` (this machine, or $RAY_ADDRESS) or `ray://HEAD:6379`. On Ray every group of trainings is a
        task, with one GPU if the cluster has GPUs. `--results`, and `--data` for WebVision, must be on storage that
        all machines share.
    commit
        Commit of the code, written to the records (default: the current commit of git).
    draw
        Draw the table and figure from the records after the run.
    """

    data: Path | None = None
    results: Path | None = None
    scale: Literal["smoke", "paper"] = "paper"
    seeds: str | None = None
    methods: str | None = None
    settings: str | None = None
    epochs: int | None = None
    selection_epochs: int | None = None
    iterations: int | None = None
    set: tuple[str, ...] = ()
    budget: float | None = None
    lockstep: int = 16
    device: str = "auto"
    executor: str = "local"
    commit: str | None = None
    draw: bool = True
