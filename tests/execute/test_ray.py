"""A real cluster of two nodes on this machine; one is lost in the middle of the trainings."""

from __future__ import annotations

import socket
import sys
import textwrap
import time

import numpy as np
import pytest

from labelsieve.errors import InputError
from labelsieve.execute import ray_cluster
from labelsieve.types import Job

SCRIPT = textwrap.dedent(
    """
    import os, sys, threading, time
    from functools import partial
    from pathlib import Path
    import numpy as np
    from labelsieve.engine import Schedule
    from labelsieve.errors import InputError
    from labelsieve.execute.network_trainer import EngineTrainer
    from labelsieve.execute.ray_cluster import RayPool, RayTrainer
    from labelsieve.models.small import MLP
    from labelsieve.selection.incv import drive
    from labelsieve.selection.incv import incv_steps
    from labelsieve.selection.settings import INCVSettings
    from ray.cluster_utils import Cluster

    folder, EPOCHS = Path(sys.argv[1]), 10
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 240)
    x = rng.normal(size=(240, 6)) + 2 * np.eye(6)[labels]
    labels[:60] = rng.integers(0, 3, 60)

    def trainer(x, checkpoint=None, pause=0.0):
        def tell(state):
            with open(folder / "epochs.txt", "a") as log:
                log.write(f"{checkpoint.name} {os.getpid()} {state['epoch']}\\n")
            for _ in range(600):  # side by side: nobody is far ahead while the other's process starts
                text = (folder / "epochs.txt").read_text()
                if not pause or state["epoch"] < 3 or len({line.split()[0] for line in text.splitlines()}) > 1:
                    break
                time.sleep(0.1)
            time.sleep(pause)

        return EngineTrainer(
            x, partial(MLP, 3, inputs=6, widths=(16,)), classes=3, device="cpu",
            schedule=Schedule(EPOCHS, ((0, 1e-2),)), batch_size=32,
            checkpoint=checkpoint, progress=tell if checkpoint else None)

    def select(with_trainer):
        settings = INCVSettings(n_iterations=2, protocol="paper")
        return drive(incv_steps(labels, 3, settings=settings, seed=0), with_trainer)

    undisturbed = select(trainer(x))

    memory = {"object_store_memory": 80 * 2**20}
    quick = {"health_check_initial_delay_ms": 500, "health_check_period_ms": 500, "health_check_failure_threshold": 4}
    cluster = Cluster(initialize_head=True, head_node_args={
        "num_cpus": 1, "include_dashboard": False, "_system_config": quick, **memory})
    doomed = cluster.add_node(num_cpus=1, **memory)
    began = time.monotonic()
    pool = RayPool(f"ray://{cluster.address}")

    def refused(what, **kwargs):
        try:
            what(**kwargs)
        except InputError as problem:
            return str(problem)
        raise AssertionError("not refused")

    said = [refused(RayPool, executor="ray", device="cuda")]
    mine = os.open(folder, os.O_RDONLY)  # a folder that only this process can see under this name
    said += [refused(RayTrainer, data=x, build=trainer, pool=pool, checkpoint=Path(f"/proc/self/fd/{mine}"))]

    def wrong(item):
        raise InputError(f"item {item} is wrong")

    said += [refused(pool.map, task=wrong, items=[7])]
    (folder / "said.txt").write_text("\\n".join(said))
    assert pool.map(abs, [-3, 2, -1]) == [3, 2, 1]

    def lose():
        log = folder / "epochs.txt"
        while True:
            lines = [line.split() for line in log.read_text().splitlines()] if log.exists() else []
            reached = {name: max(int(e) for n, _, e in lines if n == name) for name, _, _ in lines}
            if len(reached) == 2 and min(reached.values()) >= 4:
                break
            assert max(reached.values(), default=0) < EPOCHS, "the trainings did not run side by side"
            time.sleep(0.05)
        cluster.remove_node(doomed, allow_graceful=False)
        (folder / "lost.txt").write_text("")

    losing = threading.Thread(target=lose)
    losing.start()
    on_ray, trained = RayTrainer(x, partial(trainer, pause=0.2), pool=pool, checkpoint=folder / "checkpoints"), []
    on_ray.on_trained = trained.append
    disturbed = select(on_ray)
    losing.join()
    assert len(trained) == 4  # two iterations of two halves, for the progress bar
    for name in ("verdict", "iteration", "predicted", "loss"):
        assert np.array_equal(getattr(undisturbed, name), getattr(disturbed, name), equal_nan=True), name
    assert 0 < disturbed.selected.sum() < 240
    pool.close()
    cluster.shutdown()
    """
)


@pytest.fixture(scope="module")
def cluster_run(alone_with_ray):
    with alone_with_ray(SCRIPT) as folder:
        yield {path.name: path.read_text() for path in folder.glob("*.txt")}


def test_a_node_lost_in_the_middle_changes_nothing_and_costs_at_most_one_epoch(cluster_run):
    assert "lost.txt" in cluster_run
    starts: dict[str, dict[str, list[int]]] = {}
    for line in cluster_run["epochs.txt"].splitlines():
        name, process, epoch = line.split()
        starts.setdefault(name, {}).setdefault(process, []).append(int(epoch))
    assert len(starts) == 4  # two iterations of two halves
    again = [list(by_process.values()) for by_process in starts.values() if len(by_process) > 1]
    assert len(again) == 1  # one of them was on the lost node
    before, after = again[0]
    assert before[0] == 1 and before[-1] >= 4
    assert before[-1] <= after[0] <= before[-1] + 1  # the epoch that ran when the node went away, no more
    assert after[-1] == 10


def test_what_is_in_the_way_is_said(cluster_run):
    no_gpu, not_shared, own = cluster_run["said.txt"].splitlines()
    assert "the Ray cluster has no GPU" in no_gpu
    assert "is not shared: node" in not_shared
    assert own == "item 7 is wrong"


def test_an_address_that_nobody_listens_at_is_refused_in_seconds():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, not listening: refused
        began = time.monotonic()
        with pytest.raises(InputError, match="no Ray cluster can be reached at 127"):
            ray_cluster.connect(f"ray://127.0.0.1:{taken.getsockname()[1]}")
        assert time.monotonic() - began < 60
    with pytest.raises(InputError, match="give the head's address and port"):
        ray_cluster.connect("ray://somewhere")
    with pytest.raises(InputError, match="unknown"):
        ray_cluster.connect("raygun")


def test_a_server_that_is_no_ray_head_is_refused(monkeypatch):
    monkeypatch.setattr(ray_cluster, "ANSWER_SECONDS", 3.0)
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        with pytest.raises(InputError, match="is not the head of a Ray cluster"):
            ray_cluster.check_reachable(f"127.0.0.1:{other.getsockname()[1]}")


def test_without_ray_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(InputError, match=r"pip install 'labelsieve\[ray\]'"):
        ray_cluster.connect("ray")


def test_other_jobs_have_other_folders():
    labels, half = np.zeros(4, dtype=np.int64), np.arange(2)
    job = Job("incv/1/first half", labels, half, half + 2, seed=1)
    names = {
        ray_cluster.group_name(jobs)
        for jobs in (
            [job],
            [job, job],
            [Job(job.name, labels, half + 2, half, 1)],
            [Job(job.name, labels, half, half + 2, 2)],
        )
    }
    assert len(names) == 4
    assert ray_cluster.group_name([job]) == ray_cluster.group_name([job])
    assert all(name.startswith("incv-1-first-half") for name in names)
