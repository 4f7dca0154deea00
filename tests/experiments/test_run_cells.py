"""`reproduce --executor ray` on a real cluster of two nodes, one of which is lost during the trainings."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from labelsieve.experiments import records, run_cells
from labelsieve.experiments.cells import SweepRequest, accuracy_cells, selection_cells
from labelsieve.experiments.datasets import synthetic
from labelsieve.experiments.paper import SMOKE, Noise

COMMIT = "c" * 40
# Ray pickles `Slow` with the task, because it is defined in a script.
SCRIPT = textwrap.dedent(
    """
    import os, sys, threading, time
    from pathlib import Path
    from labelsieve.experiments import ReproduceOptions, run_cells, runner
    from ray.cluster_utils import Cluster

    folder = Path(sys.argv[1])
    os.chdir(folder)
    EPOCHS, LOG = 8, str(folder / "epochs.txt")
    options = dict(
        scale="smoke", settings="symmetric-0.2,pair-0.4", methods="incv-coteaching", epochs=EPOCHS, commit="c" * 40,
        device="cpu", lockstep=2, draw=False)
    runner.reproduce("accuracy", ReproduceOptions(results=Path("here"), **options))

    class Slow(run_cells.LockstepTask):
        def __call__(self, cells):
            from contextlib import contextmanager
            from labelsieve.progress import Progress

            def report(state):
                with open(LOG, "a") as log:
                    log.write(f"{cells[0].id} {os.getpid()} {state['epoch']}\\n")
                for _ in range(600):  # wait until the process of the other training has started
                    known = {line.split()[0] for line in open(LOG) if line.startswith("acc")}
                    if not cells[0].id.startswith("acc") or state["epoch"] < 2 or len(known) > 1:
                        break
                    time.sleep(0.1)
                time.sleep(0.15)

            @contextmanager
            def epochs(progress, name, total, *, hint=None):
                yield report

            Progress.epochs = epochs
            return run_cells.LockstepTask.__call__(self, cells)

    runner.LockstepTask = Slow
    memory = {"object_store_memory": 80 * 2**20}
    quick = {"health_check_initial_delay_ms": 500, "health_check_period_ms": 500, "health_check_failure_threshold": 4}
    nodes = Cluster(initialize_head=True, head_node_args={
        "num_cpus": 1, "include_dashboard": False, "_system_config": quick, **memory})
    doomed = nodes.add_node(num_cpus=1, **memory)

    def lose():
        while True:
            lines = [line.split() for line in open(LOG)] if os.path.exists(LOG) else []
            reached = {id: max(int(e) for n, _, e in lines if n == id) for id, _, _ in lines if id.startswith("acc")}
            if len(reached) == 2 and min(reached.values()) >= 3:
                break
            assert max(reached.values(), default=0) < EPOCHS, "the trainings did not run side by side"
            time.sleep(0.05)
        nodes.remove_node(doomed, allow_graceful=False)
        (folder / "lost.txt").write_text("")

    losing = threading.Thread(target=lose)
    losing.start()
    done = runner.reproduce(
        "accuracy", ReproduceOptions(results=Path("there"), executor=f"ray://{nodes.address}", **options))
    losing.join()
    assert done["finished"] == done["cells"] == 4 and done["left"] == [], done
    nodes.shutdown()
    """
)


@pytest.fixture(scope="module")
def swept(alone_with_ray):
    with alone_with_ray(SCRIPT) as folder:
        yield folder


@pytest.mark.slow  # tests/execute/test_ray.py loses a node too
def test_a_sweep_with_a_lost_node_gives_the_same_records(swept: Path) -> None:
    found = list(records.walk(swept / "there"))
    assert sorted(r["kind"] for r in found) == ["accuracy"] * 2 + ["selection"] * 2
    for ours in found:
        alone = records.load(swept / "here", ours["id"])
        assert alone is not None
        assert ours["hashes"] == alone["hashes"] and ours["results"] == alone["results"]
    assert list((swept / "there" / ".work").iterdir()) == []


@pytest.mark.slow
def test_a_lost_node_costs_a_sweep_at_most_one_epoch(swept: Path) -> None:
    assert (swept / "lost.txt").exists()
    by_cell: dict[str, dict[str, list[int]]] = {}
    for line in (swept / "epochs.txt").read_text().splitlines():
        cell, process, epoch = line.split()
        by_cell.setdefault(cell, {}).setdefault(process, []).append(int(epoch))
    again = [list(found.values()) for cell, found in by_cell.items() if cell.startswith("accuracy") and len(found) > 1]
    assert len(again) == 1  # one of the two ran on the lost node
    before, after = again[0]
    assert before[0] == 1 and 3 <= before[-1] < 8
    assert before[-1] <= after[0] <= before[-1] + 1
    assert after[-1] == 8


def task(results: Path, end: float | None = None) -> run_cells.LockstepTask:
    return run_cells.LockstepTask(synthetic(), results, COMMIT, "cpu", end)


def test_a_task_stores_every_epoch_repeats_nothing_and_keeps_the_deadline(tmp_path: Path, monkeypatch) -> None:
    cells = accuracy_cells(SMOKE, SweepRequest(noises=(Noise("symmetric", 0.2),), methods=("d2l",)))
    assert task(tmp_path, end=1.0)(cells) is False  # a deadline in 1970
    contexts = []

    def run_lockstep(group, context):
        contexts.append(context)
        return original(group, context)

    original = run_cells.run_lockstep
    monkeypatch.setattr(run_cells, "run_lockstep", run_lockstep)
    assert task(tmp_path)(cells) is True
    assert [context.checkpoint_seconds for context in contexts] == [0.0]
    assert records.load(tmp_path, cells[0].id) is not None
    assert task(tmp_path)(cells) is True and len(contexts) == 1


def test_networks_are_distributed_over_the_slots() -> None:
    cells = selection_cells(SMOKE, SweepRequest(seeds=(0, 1)))
    assert sum(cell.networks for cell in cells) == 8
    assert run_cells.networks_per_task(cells, slots=2, maximum=16) == 4
    assert run_cells.networks_per_task(cells, slots=100, maximum=16) == 2
    assert run_cells.networks_per_task(cells, slots=1, maximum=6) == 6
