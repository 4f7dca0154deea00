"""`reproduce --executor ray` on a real cluster of two nodes, one of which is lost in the middle of the trainings."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from labelsieve.errors import InputError
from labelsieve.experiments import cluster, records, run
from labelsieve.experiments.cells import Wish
from labelsieve.experiments.settings import Noise

COMMIT = "c" * 40
# `Slow` travels with the task, as it is no module's.
SCRIPT = textwrap.dedent(
    """
    import os, sys, threading, time
    from pathlib import Path
    from labelsieve.experiments import cluster, run
    from labelsieve.experiments.cells import Wish
    from labelsieve.experiments.settings import Noise
    from ray.cluster_utils import Cluster

    folder = Path(sys.argv[1])
    os.chdir(folder)
    EPOCHS, LOG = 8, str(folder / "epochs.txt")
    wish = Wish(noises=(Noise("symmetric", 0.2), Noise("pair", 0.4)), methods=("incv-coteaching",), epochs=EPOCHS)
    options = dict(scale="smoke", wish=wish, commit="c" * 40, device="cpu", lockstep=2, draw=False)
    run.reproduce("accuracy", results=Path("here"), **options)

    class Slow(cluster.Sweep):
        def __call__(self, cells):
            from labelsieve.experiments import training

            def tell(at):
                with open(LOG, "a") as log:
                    log.write(f"{cells[0].id} {os.getpid()} {at['epoch']}\\n")
                for _ in range(600):  # side by side: nobody is far ahead while the other's process starts
                    known = {line.split()[0] for line in open(LOG) if line.startswith("acc")}
                    if not cells[0].id.startswith("acc") or at["epoch"] < 2 or len(known) > 1:
                        break
                    time.sleep(0.1)
                time.sleep(0.15)

            training.Room.teller = lambda room, what: tell
            return cluster.Sweep.__call__(self, cells)

    cluster.Sweep = Slow
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
    done = run.reproduce("accuracy", results=Path("there"), executor=f"ray://{nodes.address}", **options)
    losing.join()
    assert done["finished"] == done["cells"] == 4 and done["left"] == [], done
    nodes.shutdown()
    """
)


@pytest.fixture(scope="module")
def swept(alone_with_ray):
    with alone_with_ray(SCRIPT) as folder:
        yield folder


def test_a_sweep_that_lost_a_node_gives_the_same_records(swept: Path) -> None:
    found = list(records.walk(swept / "there"))
    assert sorted(r["kind"] for r in found) == ["accuracy"] * 2 + ["selection"] * 2
    for ours in found:
        alone = records.load(swept / "here", ours["id"])
        assert alone is not None
        assert ours["hashes"] == alone["hashes"] and ours["results"] == alone["results"]
    assert list((swept / "there" / ".work").iterdir()) == []


def test_a_lost_node_costs_a_sweep_at_most_one_epoch(swept: Path) -> None:
    assert (swept / "lost.txt").exists()
    by_cell: dict[str, dict[str, list[int]]] = {}
    for line in (swept / "epochs.txt").read_text().splitlines():
        cell, process, epoch = line.split()
        by_cell.setdefault(cell, {}).setdefault(process, []).append(int(epoch))
    again = [list(found.values()) for cell, found in by_cell.items() if cell.startswith("accuracy") and len(found) > 1]
    assert len(again) == 1  # one of the two was on the lost node
    before, after = again[0]
    assert before[0] == 1 and 3 <= before[-1] < 8
    assert before[-1] <= after[0] <= before[-1] + 1
    assert after[-1] == 8


def sweep(results: Path, ends: float | None = None) -> cluster.Sweep:
    return cluster.Sweep(run.open_bench("synthetic", None), results, COMMIT, "cpu", ends)


def test_a_task_stores_every_epoch_does_nothing_twice_and_keeps_time(tmp_path: Path, monkeypatch) -> None:
    wish = Wish(noises=(Noise("symmetric", 0.2),), methods=("d2l",))
    cells = [c for c in run.ITEMS["accuracy"].cells(run.SCALES["smoke"], wish) if c.kind == "accuracy"]
    assert sweep(tmp_path, ends=1.0)(cells) is False  # 1970: the time is up
    rooms = []

    def watching(group, room):
        rooms.append(room)
        return original(group, room)

    original = run.run_lockstep
    monkeypatch.setattr(run, "run_lockstep", watching)
    assert sweep(tmp_path)(cells) is True
    assert [room.checkpoint_seconds for room in rooms] == [0.0]
    assert records.load(tmp_path, cells[0].id) is not None
    assert sweep(tmp_path)(cells) is True and len(rooms) == 1


def test_networks_are_spread_over_the_places(tmp_path: Path) -> None:
    cells = run.ITEMS["selection"].cells(run.SCALES["smoke"], Wish())
    assert sum(cell.networks for cell in cells) == 8
    assert cluster._at_once(cells, places=2, most=16) == 4
    assert cluster._at_once(cells, places=100, most=16) == 2
    assert cluster._at_once(cells, places=1, most=6) == 6


def test_an_executor_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="choose local, ray or ray://HEAD:PORT"):
        run.reproduce("theory", results=tmp_path, scale="smoke", executor="slurm", say=lambda line: None)
