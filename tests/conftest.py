"""Fixtures of several test folders, and the order of the test files."""

from __future__ import annotations

import gc
import json
import os
import random
import subprocess
import sys
import tempfile
import traceback
import warnings
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

try:  # The CUDA tests also run on machines without hypothesis.
    from hypothesis import settings
except ImportError:
    pass
else:  # `make test` tries the same examples every time, `make test-slow` draws new ones.
    settings.register_profile("repeatable", derandomize=True, deadline=None)
    settings.register_profile("random", deadline=None)
    settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))

# Imports and collection make millions of objects that live until the end. Every worker collects all tests, and the
# garbage collector would visit these objects again and again.
gc.disable()

# Files need not survive a power failure here, and waiting for the disk takes up to a third of a test's time.
os.fsync = lambda descriptor: None


def pytest_make_parametrize_id(val, argname):
    """Name bytes by their argument: compressed bytes can contain the time, and all workers must collect equal names."""
    return argname if isinstance(val, bytes) else None


def pytest_collection_finish():
    gc.freeze()
    gc.enable()


CHROMIUM = "/usr/bin/chromium"
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update",
         "--disable-sync", "--no-first-run"]  # fmt: skip


# Files that take longest. They run first, so that no worker is left with one of them at the end.
LONG_FILES = (
    "test_runner.py",
    "test_robust_classifier.py",
    "test_browser.py",
    "test_tutorials.py",
    "test_faults.py",
    "test_estimators.py",
    "test_parallel.py",
    "test_webvision.py",
    "test_lockstep.py",
    "test_findings.py",
    "test_ray.py",
    "test_elsewhere.py",
    "test_select.py",
    "test_classifier_selection.py",
    "test_fast.py",
    "test_run_command.py",
    "test_training.py",
    "test_kills.py",
)


def pytest_runtest_setup():
    """Every test draws the same random numbers, whichever tests ran before it."""
    random.seed(0)
    np.random.seed(0)  # noqa: NPY002 - the generator of scikit-learn if no seed is given
    if torch := sys.modules.get("torch"):  # without a GPU, `manual_seed` would store a copy of the stack three times
        (torch.manual_seed if torch.cuda.is_available() else torch.default_generator.manual_seed)(0)


def pytest_collection_modifyitems(items):
    for item in items:
        if item.get_closest_marker("slow"):  # on a busy machine they take several times longer than alone
            item.add_marker(pytest.mark.timeout(3600))
    order = {name: at for at, name in enumerate(LONG_FILES)}
    items.sort(key=lambda item: order.get(item.path.name, len(order)))


@pytest.fixture(scope="session")
def browser():
    if not Path(CHROMIUM).exists():
        pytest.skip("no Chromium here: apt-get install chromium")
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with playwright.sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield chromium
        chromium.close()


@pytest.fixture
def short_measurement(monkeypatch):
    """A plan times the network for 0.2 seconds instead of 5."""
    from labelsieve.workflow import plan

    measure, trial_samples = plan.measure, plan.trial_samples
    monkeypatch.setattr(plan, "measure", lambda *args, **options: measure(*args, **{**options, "seconds": 0.2}))
    monkeypatch.setattr(plan, "trial_samples", lambda factory, store, _: trial_samples(factory, store, 0.2))


@pytest.fixture(scope="session")
def alone_with_ray():
    """Run a script that uses Ray in its own process: Ray keeps threads and writes to HOME. Yields its folder."""

    @contextmanager
    def ran(script):
        # Ray's sockets are in this folder, and their names must stay short.
        with tempfile.TemporaryDirectory(prefix="ls") as home:
            folder = Path(home) / "run"
            folder.mkdir()
            environment = {**os.environ, "HOME": home, "TMPDIR": home, "RAY_TMPDIR": home, "OMP_NUM_THREADS": "1"}
            command = [sys.executable, "-c", script, str(folder)]
            done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=400)
            assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
            yield folder

    return ran


@pytest.fixture(scope="session")
def forked():
    """Run a command, or a function, in a forked child: in a new process, the imports would take most of the time.

    What it prints goes to the file `said`. Returns the process id.
    """

    def started(command, said, **environment):
        child = os.fork()
        if child:
            return child
        code = 99
        try:
            written = os.open(said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            for number in (1, 2):
                os.dup2(written, number)
            sys.stdout, sys.stderr = (os.fdopen(number, "w", closefd=False) for number in (1, 2))
            warnings.resetwarnings()  # as outside of the tests
            warnings.simplefilter("ignore", DeprecationWarning)
            os.environ |= environment
            from labelsieve.cli.app import run

            code = command() if callable(command) else run(command)
            sys.stdout.flush()
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)

    return started


@pytest.fixture(scope="session")
def static_model(tmp_path_factory):
    """A small model2vec model with random word vectors."""
    model2vec = pytest.importorskip("model2vec")
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = ["[UNK]", "the", "card", "is", "lost", "where", "money"]
    folder = tmp_path_factory.mktemp("models") / "static"
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    vectors = np.random.default_rng(0).normal(size=(len(words), 6)).astype(np.float32)
    model2vec.StaticModel(vectors, tokenizer).save_pretrained(str(folder))
    return folder


@pytest.fixture(scope="session")
def dinov2(tmp_path_factory):
    """A small DINOv2 with random weights."""
    transformers = pytest.importorskip("transformers")
    folder = tmp_path_factory.mktemp("models") / "dinov2"
    config = transformers.Dinov2Config(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=2, image_size=28, patch_size=14
    )
    transformers.Dinov2Model(config).save_pretrained(folder)
    described = {
        "image_processor_type": "BitImageProcessor", "size": {"shortest_edge": 32}, "do_resize": True,
        "do_center_crop": True, "crop_size": {"height": 28, "width": 28}, "do_normalize": True,
        "image_mean": [0.5] * 3, "image_std": [0.5] * 3, "do_rescale": True,
    }  # fmt: skip
    (folder / "preprocessor_config.json").write_text(json.dumps(described))
    return folder
