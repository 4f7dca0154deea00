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
        with WebVision 1.0 and, in the subfolder ilsvrc12, the ILSVRC12 validation set. Not needed for `--scale smoke`.
    results
        Folder for the results of the experiments. Default: `results`; `runs/reproduce-smoke` with `--scale smoke`.
    scale
        `paper`: the protocol of the paper. `smoke`: a small test that takes seconds on a CPU.
    seeds
        Seeds to use: a range (`0-4`), a list (`0,2`) or a number (`3`). Default: the value of `--seed`.
    methods
        Methods of tables 1 and 2, separated by commas, in the order in which they run.
    settings
        Noise settings, separated by commas, such as `symmetric-0.5,pair-0.4`. Of finish also the label sets of
        CIFAR-10N: `random1`, `random2`, `random3`, `aggregate`, `worse`.
    networks
        Networks of finish, separated by commas: `resnet32,preact-resnet18`. Default: all.
    epochs
        Number of training epochs, if different from the protocol. The tables list all differences.
    selection_epochs
        Number of epochs of each network that INCV trains, if different from the protocol.
    iterations
        Number of INCV iterations, if different from the protocol.
    set
        A setting of a method, METHOD.SETTING=VALUE, such as `f-correction.estimate_epochs=50`.
    budget
        Time limit in seconds. Run the same command again to continue. With 0, no experiments are run, and the table and
        figure are created from existing results.
    lockstep
        Maximum number of networks that train at once.
    device
        `auto`, `cpu`, `cuda` or `mps`.
    executor
        `local`, `ray` (this machine or $RAY_ADDRESS) or `ray://HEAD:PORT`. With Ray, each group of networks that train
        at once is one task, with one GPU if the cluster has GPUs. `--results`, and `--data` for WebVision, must be on
        storage that all machines share.
    commit
        Commit to store with the results. Default: the current Git commit.
    draw
        Create the table and figure from the results after the run.
    """

    data: Path | None = None
    results: Path | None = None
    scale: Literal["smoke", "paper"] = "paper"
    seeds: str | None = None
    methods: str | None = None
    settings: str | None = None
    networks: str | None = None
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
