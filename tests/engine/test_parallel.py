"""Two and four processes train what one trains; a killed one comes back; those that disagree are refused."""

from __future__ import annotations

import json
import os
import runpy
import socket
import subprocess
import sys
import textwrap
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from labelsieve.engine import OutOfTime, Plan, Schedule, VectorStore, parallel, stage_pictures, train
from labelsieve.engine.method import Views
from labelsieve.engine.parallel import World
from labelsieve.errors import InputError
from labelsieve.methods.coteaching import CoTeaching
from labelsieve.methods.d2l import D2L
from labelsieve.methods.standard import Standard
from labelsieve.models.resnet_cifar import ResNetCifar
from labelsieve.models.small import MLP

rng = np.random.default_rng(0)
rows, labels = rng.normal(size=(300, 12)), rng.integers(0, 4, 300)
labels[:4] = range(4)
pictures = rng.integers(0, 256, size=(300, 8, 8, 3), dtype=np.uint8)


def plain():
    return torch.nn.Sequential(
        torch.nn.Linear(12, 16), torch.nn.BatchNorm1d(16), torch.nn.ReLU(), torch.nn.Linear(16, 4)
    )


SGD = Schedule(2, ((0, 0.05), (1, 0.02)), optimizer="sgd")
# batches of 50, the last one of 2 or 3 samples: four processes do not get one each
PLANS = [
    Plan("a", labels, np.arange(0, 152), seed=1, noise_ratio=0.3, score=np.arange(200, 300), keep_best=True),
    Plan("b", labels, np.arange(20, 223), seed=2, noise_ratio=0.3, score=np.arange(223, 300)),
]


def cases():
    vectors, images = VectorStore(rows, torch.device("cpu")), stage_pictures(pictures, "cpu")
    resnet, mlp = partial(ResNetCifar, 4, depth=8), partial(MLP, 4, inputs=12, widths=(16,))
    yield "resnet standard", images, resnet, Standard(), False, PLANS[:1]
    yield "resnet coteaching stacked", images, resnet, CoTeaching(), True, PLANS[:1]
    yield "mlp coteaching", vectors, mlp, CoTeaching(), False, PLANS
    yield "mlp coteaching stacked", vectors, mlp, CoTeaching(), True, PLANS
    yield "torch's batch norm", vectors, plain, Standard(), False, PLANS
    yield "features between epochs", vectors, mlp, D2L(lid_samples=30, lid_batch=10, neighbours=5), False, PLANS[:1]


def everything(folder, name):
    world = parallel.start("cpu")
    found = {}
    for case, store, factory, method, together, plans in cases():
        results = train(store, factory, method, plans, schedule=SGD, batch_size=50, together=together, watch=store)
        for r in results:
            key = f"{case}/{r.plan.name}/"
            found |= {f"{key}{k}.{n}": t.numpy() for k, s in enumerate(r.states) for n, t in s.items()}
            found |= {
                key + "probability": r.scores.probability,
                key + "predicted": r.scores.predicted,
                key + "loss": np.array([line["loss"] for line in r.history]),
                key + "watched": r.watched,
            }
    np.savez(folder / f"{name}-{world.rank}.npz", **found)


class Dropping(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.head = torch.nn.Linear(12, 16), torch.nn.Linear(16, 4)

    def forward(self, x):
        x = torch.nn.functional.dropout(self.first(x).relu() + 1, 0.5, self.training)
        if self.training:
            masks.append(x[0].detach() != 0)
        return self.head(x)


class Noisy(Standard):
    def loss(self, logits, batch):
        return super().loss(logits + torch.randn_like(logits), batch)


masks = []


def drawing(folder, name):
    world = parallel.start("cpu")
    torch.manual_seed(world.rank)
    store = VectorStore(rows, torch.device("cpu"))
    (result,) = train(store, Dropping, Noisy(), PLANS[:1], schedule=SGD, batch_size=50)
    found = {name: tensor.numpy() for name, tensor in result.states[0].items()}
    np.savez(folder / f"drawing-{world.rank}.npz", **found, masks=torch.stack(masks).numpy())


class Mixing(Standard):
    def views(self):
        return Views(mixup=0.5)


def disagree(folder, name):
    world = parallel.start("cpu")
    odd = world.rank == world.size - 1
    said = []
    for data, seed, label in (
        (rows[: 300 - odd], 0, labels[: 300 - odd]),
        (rows, int(odd), labels),
        (rows, 0, np.roll(labels, int(odd))),
        (rows + odd, 0, labels),
    ):
        try:
            plans = [Plan("p", label, np.arange(50), seed)]
            train(VectorStore(data, torch.device("cpu")), plain, Standard(), plans, schedule=SGD, batch_size=50)
        except ValueError as problem:
            said.append(type(problem).__name__ + ": " + str(problem))
    try:  # a mixture needs samples of other processes
        store = VectorStore(rows, torch.device("cpu"))
        train(store, plain, Mixing(), [Plan("p", labels, np.arange(50), 0)], schedule=SGD, batch_size=50)
    except ValueError as problem:
        said.append(type(problem).__name__ + ": " + str(problem))
    (folder / f"said-{world.rank}.txt").write_text("\n".join(said))


def files(folder, name):
    world = parallel.start("cpu")
    run = folder / "run"
    own = world.folder(run)
    with world.one_first():
        staged = own / "staged" / "shard"
        seen = staged.exists()
        if not seen:
            staged.parent.mkdir(exist_ok=True)
            staged.write_text("x")
    # stopped by one process alone: all stop, and go on from the first one's checkpoint
    store = VectorStore(rows, torch.device("cpu"))
    options = {"schedule": SGD, "batch_size": 50, "checkpoint": own / "checkpoints" / "train"}
    try:
        train(store, plain, Standard(), PLANS[:1], stop=lambda: world.rank == world.size - 1, **options)
        stopped = False
    except OutOfTime:
        stopped = True
    (result,) = train(store, plain, Standard(), PLANS[:1], **options)
    lines = [
        own == run,
        (own / "run.json").read_text(),
        (own / "checkpoints/select/1.npz").exists(),
        seen,
        stopped,
        (own / "checkpoints" / "train").exists(),
        [line["epoch"] for line in result.history],
    ]
    (folder / f"files-{world.rank}.txt").write_text("|".join(str(line) for line in lines))


def run_work(folder: Path, forked: Any, *tasks: tuple[int, Callable[[Path, str], None]]) -> None:
    """Run each function in a number of processes with the environment that torchrun sets."""
    for size, function in tasks:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            shared = {"WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(probe.getsockname()[1])}

        def one(function: Callable[[Path, str], None] = function, name: str = str(size)) -> int:
            torch.set_num_threads(1)
            function(folder, name)
            parallel.leave()
            return 0

        ranks = [{"RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(size)]
        said = [folder / f"{function.__name__}-{size}-{rank}.txt" for rank in range(size)]
        children = [forked(one, path, **shared, **rank) for path, rank in zip(said, ranks, strict=True)]
        codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
        assert codes == [0] * size, "".join(path.read_text() for path in said)


@pytest.fixture(scope="module")
def work(tmp_path_factory, forked) -> Path:
    folder: Path = tmp_path_factory.mktemp("work")
    run = folder / "run"
    (run / "checkpoints/select").mkdir(parents=True)
    (run / "run.json").write_text('{"format": 1}')
    (run / "checkpoints/select/1.npz").write_bytes(b"scores")
    run_work(folder, forked, (1, everything), (2, everything), (3, disagree), (2, files), (2, drawing))
    return folder


@pytest.fixture(scope="module", params=[2, pytest.param(4, marks=pytest.mark.slow)])
def size(request, work, forked) -> int:
    """The number of processes; the trainings of two processes are part of `work`."""
    if request.param != 2:
        run_work(work, forked, (request.param, everything))
    return request.param


@pytest.fixture
def trained(work) -> dict[str, dict[str, np.ndarray]]:
    return {path.stem: dict(np.load(path)) for path in work.glob("*.npz")}


def test_processes_learn_what_one_learns_from_the_same_batches(size, trained):
    alone, together = trained["1-0"], trained[f"{size}-0"]
    assert len(alone) > 100 and alone.keys() == together.keys()
    for name, value in alone.items():
        if name.endswith(("watched", "predicted")):
            assert (value == together[name]).mean() > 0.99, name  # sums in another order may turn a tie
        else:
            np.testing.assert_allclose(together[name], value, atol=2e-4, rtol=2e-3, err_msg=name)


def test_the_processes_networks_are_equal_to_the_last_bit(size, trained):
    for rank in range(1, size):
        for name, value in trained[f"{size}-0"].items():
            assert np.array_equal(value, trained[f"{size}-{rank}"][name]), name


def test_where_networks_and_losses_draw_they_stay_equal_though_each_process_drops_its_own(trained):
    first, second = trained["drawing-0"], trained["drawing-1"]
    assert not np.array_equal(first.pop("masks"), second.pop("masks"))
    assert first and all(np.array_equal(value, second[name]) for name, value in first.items())


def test_what_differs_between_the_processes_is_named(work):
    for rank in range(3):
        samples, seed, labels, values, mixing = (work / f"said-{rank}.txt").read_text().splitlines()
        assert samples.startswith("InputError: the processes disagree about the data: process 0 has 300 samples")
        assert "process 2 has 299" in samples
        assert "settings or labels: process 2" in seed and "settings or labels: process 2" in labels
        assert "process 2 reads other samples than process 0" in values
        assert mixing.startswith("InputError") and "mixup" in mixing


def test_only_the_first_process_writes_into_the_run_folder(work):
    first, second = ((work / f"files-{rank}.txt").read_text().split("|") for rank in (0, 1))
    assert first == ["True", '{"format": 1}', "True", "False", "True", "True", "[1, 2]"]
    assert second == ["False", '{"format": 1}', "True", "True", "True", "False", "[1, 2]"]
    assert sorted(path.name for path in (work / "run").iterdir()) == ["checkpoints", "run.json", "staged"]


def test_one_card_for_all_processes_is_refused_before_they_meet(monkeypatch):
    for name, value in (("WORLD_SIZE", "2"), ("RANK", "1"), ("LOCAL_RANK", "1")):
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with pytest.raises(InputError, match="all 2 processes of torchrun"):
        parallel.start("cuda:0")
    assert parallel.current().size == 1


def test_a_share_of_the_columns():
    columns = torch.arange(7)[None]
    shares = [World(rank, 3).local_columns(columns)[0].tolist() for rank in range(3)]
    assert shares == [[0, 3, 6], [1, 4, 0], [2, 5, 0]]
    assert World().local_columns(columns) is columns and World().gather_columns(columns, 7) is columns


KILLED = textwrap.dedent(
    """
    import os, signal, sys
    from pathlib import Path
    import numpy as np, torch
    from labelsieve.engine import Plan, Schedule, VectorStore, parallel, train
    from labelsieve.methods.coteaching import CoTeaching
    from labelsieve.models.small import MLP
    torch.set_num_threads(1)
    folder, deadly = Path(sys.argv[1]), int(sys.argv[2])
    world = parallel.start("cpu")
    began = []

    def kill(state):
        began.append(state["epoch"])
        victim = folder / f"killed{state['epoch']}"
        if world.rank == 1 and state["epoch"] == deadly and not victim.exists():
            victim.write_text("")
            os.kill(os.getpid(), signal.SIGKILL)

    rng = np.random.default_rng(0)
    plan = Plan("p", rng.integers(0, 4, 200), np.arange(180), seed=0, noise_ratio=0.2)
    (result,) = train(VectorStore(rng.normal(size=(200, 10)), torch.device("cpu")),
                      lambda n=1: MLP(4, inputs=10, widths=(16,), n=n), CoTeaching(), [plan], batch_size=64,
                      schedule=Schedule(6, ((0, 0.05),), optimizer="sgd"),
                      checkpoint=folder / "checkpoints", progress=kill)
    flat = torch.cat([t.reshape(-1).float() for s in result.states for t in s.values()])
    replicas = world.gather_values(flat.tolist())
    if world.rank == 0:
        import json
        (folder / "end.json").write_text(json.dumps({"began": began, "replicas": replicas, "size": world.size}))
    """
)


def test_a_worker_killed_under_torchrun_comes_back_to_the_same_end(tmp_path, monkeypatch):
    script = tmp_path / "script.py"
    script.write_text(KILLED)
    for name in ("alone", "killed"):
        (tmp_path / name).mkdir()
    monkeypatch.setattr(sys, "argv", [str(script), str(tmp_path / "alone"), "0"])
    runpy.run_path(str(script))
    options = ["--nproc-per-node", "2", "--max-restarts", "3", "--monitor-interval", "0.2"]
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", *options, str(script), str(tmp_path / "killed"), "4"],
        capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    ends = {name: json.loads((tmp_path / name / "end.json").read_text()) for name in ("alone", "killed")}
    assert (tmp_path / "killed" / "killed4").exists()  # it was killed,
    assert ends["alone"]["began"] == [1, 2, 3, 4, 5, 6]
    assert ends["killed"]["began"] in ([4, 5, 6], [5, 6])  # and did not begin at the beginning
    first, second = ends["killed"]["replicas"]
    assert first == second
    np.testing.assert_allclose(first, ends["alone"]["replicas"][0], atol=1e-4, rtol=1e-3)
