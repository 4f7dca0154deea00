"""A training that is killed at random moments ends with the same bits as an undisturbed one."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

# One process loads torch once and forks the trainings that are killed: the kills hit training, not importing.
SCRIPT = textwrap.dedent(
    """
    import os, random, signal, sys, time
    from pathlib import Path
    import numpy as np, torch
    from labelsieve.engine import Plan, Schedule, VectorStore, train
    from labelsieve.methods.coteaching import CoTeaching
    torch.set_num_threads(1)
    folder, kills = Path(sys.argv[1]), int(sys.argv[2])
    rng = np.random.default_rng(0)
    x, labels = rng.normal(size=(600, 20)), rng.integers(0, 4, 600)

    def network():
        return torch.nn.Sequential(
            torch.nn.Linear(20, 64), torch.nn.BatchNorm1d(64), torch.nn.ReLU(), torch.nn.Linear(64, 4))

    def training(name):
        plans = [Plan(f"p{i}", labels, np.arange(i * 50, 450 + i * 50), seed=i, noise_ratio=0.3) for i in range(2)]
        results = train(VectorStore(x, torch.device("cpu")), network, CoTeaching(), plans, batch_size=64,
                        schedule=Schedule(30, ((0, 1e-3), (15, 1e-4)), fresh_state=True), checkpoint=folder / name)
        digest = [float(t.double().sum()) for r in results for s in r.states for t in s.values()]
        (folder / f"{name}.txt").write_text(repr(digest))

    def forked(name, seconds=None):
        child = os.fork()
        if child == 0:
            training(name)
            os._exit(0)
        if seconds is not None:
            time.sleep(seconds)
            os.kill(child, signal.SIGKILL)
        return os.waitpid(child, 0)[1]

    began = time.monotonic()
    assert forked("undisturbed") == 0
    whole = time.monotonic() - began
    moments = random.Random(7)
    killed = 0
    while killed < kills:
        if forked("disturbed", moments.uniform(0, 1.2 * whole / kills)) == 0:
            print("ended after", killed, "kills")
            break
        killed += 1
    else:
        assert forked("disturbed") == 0
    print("killed", killed)
    assert (folder / "undisturbed.txt").read_text() == (folder / "disturbed.txt").read_text()
    """
)


def test_kills_at_random_moments_change_nothing(tmp_path):
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path), "6"],
        capture_output=True,
        text=True,
        env=environment,
        timeout=400,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.split()[-1]) == 6, done.stdout  # it did not end before the last kill
