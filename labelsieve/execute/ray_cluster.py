"""Trainings as tasks of a Ray cluster: `--executor ray` (this machine, or $RAY_ADDRESS) or `ray://HEAD:6379`.

The address is printed by `ray start --head`, and the command runs on a machine of the cluster. The data is put into
Ray's object store once. A task uses a GPU if the cluster has one. If a node is lost, its tasks start again on another
node from their checkpoints, which must be on shared storage: only the current epoch is lost. If the lost node is still
alive, both take the same steps and files are written atomically, so the result is the same.

Needs `pip install 'labelsieve[ray]'`.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import socket
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from labelsieve.errors import FailedError, InputError, first_line
from labelsieve.types import Job, Scores, Trainer

RETRIES = 5  # of a task whose node or process was lost; an error in a task is not retried
REACH_SECONDS = 5.0  # to open a connection: only a head that is not there takes longer
ANSWER_SECONDS = 45.0  # for a head that accepts connections; mostly the start of Python on a busy machine

Build = Callable[..., Trainer]  # build(data, checkpoint=folder), called in the task


class RayPool:
    """The cluster as an executor: `map` runs tasks on any node and keeps the order of the items."""

    def __init__(
        self,
        executor: str = "ray",
        *,
        device: str = "auto",
        stop: Callable[[], bool] | None = None,
        note: Callable[[str], None] | None = None,
    ) -> None:
        self.ray = connect(executor)
        self.stop, self.note = stop, note
        self.gpus = 0 if device == "cpu" else int(self.ray.cluster_resources().get("GPU", 0))
        if device.startswith("cuda") and not self.gpus:
            raise InputError(f"device {device!r} is not available: the Ray cluster has no GPU; choose --device cpu")
        self._call = self.ray.remote(_call).options(max_retries=RETRIES, num_cpus=1, num_gpus=1 if self.gpus else 0)

    def share(self, thing: Any) -> Any:
        """Put a task into the object store once, for `map`."""
        return self.ray.put(thing)

    def map(self, task: Any, items: Iterable[Any]) -> list[Any]:
        """`[task(item) for item in items]`; an InputError of a task is raised here."""
        shared = task if isinstance(task, self.ray.ObjectRef) else self.share(task)
        references = [self._call.remote(shared, item) for item in items]
        waiting = list(references)
        try:
            while waiting:
                done, waiting = self.ray.wait(waiting, timeout=0.5)
                for reference in done:
                    self._get(reference)  # fail at once, not after the others
                if done and self.note is not None:
                    self.note(f"{len(references) - len(waiting)} of {len(references)} tasks are done")
                if waiting and self.stop is not None and self.stop():
                    raise InterruptedError("stopped; the checkpoints of the tasks are kept")
            return [self._get(reference) for reference in references]
        finally:
            for reference in waiting:
                self.ray.cancel(reference, force=True)

    def _get(self, reference: Any) -> Any:
        try:
            return self.ray.get(reference)
        except self.ray.exceptions.RayTaskError as problem:
            if isinstance(problem.cause, InputError):
                raise InputError(str(problem.cause)) from None
            raise
        except self.ray.exceptions.RayError as problem:
            raise FailedError(
                f"the Ray cluster lost a training and could not restart it: {first_line(problem)}; run the same "
                "command again"
            ) from None

    def check_shared(self, folder: Path) -> None:
        """Raise InputError if a node cannot read and write the folder."""
        folder.mkdir(parents=True, exist_ok=True)
        token = folder / f".shared-{uuid.uuid4().hex}"
        token.write_text(token.name)
        strategy = self.ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy
        look = self.ray.remote(_look)
        nodes = [node for node in self.ray.nodes() if node["Alive"]]
        try:
            answers = [
                look.options(
                    num_cpus=0, max_retries=1, scheduling_strategy=strategy(node["NodeID"], soft=False)
                ).remote(str(token), node["NodeID"])
                for node in nodes
            ]
            for node, answer in zip(nodes, answers, strict=True):
                try:
                    found = self.ray.get(answer)
                except self.ray.exceptions.RayError:
                    continue  # the node is gone; the others do its work
                back = token.with_name(f"{token.name}.{node['NodeID']}")
                if not (found and back.is_file()):
                    name = node.get("NodeManagerHostname") or node["NodeManagerAddress"]
                    raise InputError(
                        f"{folder} is not shared: node {name} cannot read and write it; "
                        "choose an output folder on storage that every machine of the cluster mounts"
                    )
        finally:
            for path in folder.glob(f"{token.name}*"):
                path.unlink(missing_ok=True)

    def close(self) -> None:
        """Disconnect; a cluster that was started here ends."""
        self.ray.shutdown()


class RayTrainer(Trainer):
    """Runs jobs as tasks: one per job, or one lockstep group per GPU of the cluster.

    `build(data, checkpoint=folder)` makes the trainer inside the task. It must be picklable: a function of a module, or
    a partial of one. `checkpoint` is a folder on shared storage.
    """

    def __init__(self, data: Any, build: Build, *, pool: RayPool, checkpoint: Path) -> None:
        self.pool, self.checkpoint = pool, Path(checkpoint).absolute()
        pool.check_shared(self.checkpoint)
        self.task = pool.share(partial(_train_and_score, data, build))

    def train_and_score(self, jobs: Sequence[Job]) -> list[Scores]:
        count = min(len(jobs), self.pool.gpus or len(jobs))
        groups = [list(jobs[start::count]) for start in range(count)]
        answers = self.pool.map(self.task, [(group, self.checkpoint / group_name(group)) for group in groups])
        if self.on_history is not None:
            self.on_history([line for _, lines in answers for line in lines])
        if self.on_trained is not None:
            for job in jobs:
                self.on_trained(job)
        return [answers[i % count][0][i // count] for i in range(len(jobs))]


def group_name(jobs: Sequence[Job]) -> str:
    """The name of the checkpoint folder of these jobs."""
    digest = hashlib.sha256("".join(job.digest() for job in jobs).encode())
    names = re.sub(r"[^\w.+-]+", "-", "+".join(job.name for job in jobs))
    return f"{names[:80]}-{digest.hexdigest()[:12]}"


# -- in the tasks


def _call(task: Callable[[Any], Any], item: Any) -> Any:
    return task(item)


def _train_and_score(
    data: Any, build: Build, item: tuple[Sequence[Job], Path]
) -> tuple[list[Scores], list[dict[str, Any]]]:
    """The scores of the jobs, and the history lines of their trainings."""
    jobs, folder = item
    # Arrays in the object store are read-only, and torch needs writable ones.
    own = [replace(job, labels=job.labels.copy(), train=job.train.copy(), score=job.score.copy()) for job in jobs]
    trainer = build(data, checkpoint=folder)
    trainer.checkpoint_every_epoch()
    lines: list[dict[str, Any]] = []
    trainer.on_history = lines.extend
    return trainer.train_and_score(own), lines


def _look(token: str, node: str) -> bool:
    path = Path(token)
    if not path.is_file() or path.read_text() != path.name:
        return False
    path.with_name(f"{path.name}.{node}").write_text("seen")
    return True


# -- connecting


def is_ray(executor: Any) -> bool:
    """Whether `--executor` names a Ray cluster."""
    return isinstance(executor, str) and (executor == "ray" or executor.startswith("ray://"))


def connect(executor: str = "ray") -> Any:
    """Return the ray module, connected. Raise InputError within seconds if that is not possible."""
    if not is_ray(executor):
        raise InputError(f"unknown executor {executor!r}; use ray, or ray://HOST:PORT")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # Ray's future default; this avoids its notice
    try:
        import ray
        import ray.util.scheduling_strategies
    except ImportError:
        raise InputError("--executor ray needs Ray, which is not installed: pip install 'labelsieve[ray]'") from None
    if ray.is_initialized():
        return ray
    address = executor.removeprefix("ray").removeprefix("://") or os.environ.get("RAY_ADDRESS", "")
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    if not address or address == "local":
        ray.init(address="local", include_dashboard=False, **quiet)
        return ray
    if address != "auto":
        address = address.removeprefix("ray://")
        check_reachable(address)
    try:
        ray.init(address=address, **quiet)
    except (OSError, RuntimeError, ValueError) as problem:
        raise InputError(
            f"no Ray cluster at {address}: {first_line(problem)} Run this on a machine of the cluster"
        ) from None
    return ray


def check_reachable(address: str) -> None:
    """Raise InputError unless a head answers; Ray would try for minutes and then end the process."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        raise InputError(f"--executor ray://{address}: give the head's address and port, e.g. ray://10.0.0.1:6379")
    try:
        socket.create_connection((host, int(port)), timeout=REACH_SECONDS).close()
    except (OSError, OverflowError) as problem:
        raise InputError(
            f"no Ray cluster can be reached at {address} ({problem}); is it running, and is this the address that "
            "`ray start --head` printed?"
        ) from None
    ask = [sys.executable, "-m", "ray.scripts.scripts", "status", "--address", address]
    try:
        answered = subprocess.run(ask, capture_output=True, timeout=ANSWER_SECONDS).returncode == 0
    except subprocess.TimeoutExpired:
        answered = False
    if not answered:
        raise InputError(f"{address} is not the head of a Ray cluster; the default port is 6379")
