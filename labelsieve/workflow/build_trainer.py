"""The trainer behind `--model`, `--loss` and `--executor` of the selection.

`fast` goes its own way: its first layer whitens the very pictures it is going to see, so it cannot come by name alone.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from labelsieve.errors import InputError, Problems
from labelsieve.types import LabelledData, Trainer

if TYPE_CHECKING:
    from labelsieve.progress import Progress

FAST = "fast"
STORED = "predictions"  # what `--predictions` selects with
SMALLEST, LARGEST = 24, 64  # pixels a side of pictures that `auto` gives to it
FEWEST = 5000  # of them: ten epochs of fewer are too few steps to learn
SMALLEST_PICTURE = 8  # pixels a side; the largest depends on the source
EPOCHS = 50  # the paper's, of every network but the fast one


def check_selector(problems: Problems, model: str, size: int | None) -> None:
    """What is wrong whatever the samples are, so that it is told with everything else."""
    from labelsieve.workflow.choose_model import check_name

    problems.attempt(check_name, model)
    check_picture_size(problems, size)


def check_picture_size(problems: Problems, size: int | None) -> None:
    problems.check(size is None or size >= SMALLEST_PICTURE, f"--size {size}: at least {SMALLEST_PICTURE} pixels")


def resolve_selector(
    model: str,
    data: LabelledData,
    device: str,
    *,
    loss: str = "ce",
    protocol: str = "auto",
    epochs: int | None = None,
    samples: int | None = None,
) -> str:
    """`auto` by the kind of data and the device; any other name, and the loss, is checked against it.

    Who gives epochs or a loss wants a network. `samples`: of how many `data` are only some.
    """
    from labelsieve.execute.losses import check_loss
    from labelsieve.selection.defaults import CLASSIFIERS, EDGES
    from labelsieve.workflow.choose_model import resolve, shape

    check_loss(loss)
    if model == "auto" and protocol == "auto" and _small_on_a_gpu(data, device):
        model = FAST
    if model == "auto" and (protocol, loss, epochs) == ("auto", "ce", None) and _few_on_a_cpu(data, device, samples):
        model = EDGES
    if model != FAST:
        model = resolve(model, data, device)
        check_loss(loss, network=model not in CLASSIFIERS)
        return model
    from labelsieve.execute.fast import check_pictures

    if data.kind != "pictures":
        what = "texts" if data.kind == "text" else "rows of a table"
        raise InputError(f"--model fast takes pictures, these samples are {what}: choose another, or auto")
    if not isinstance(data.x, np.ndarray):
        raise InputError(
            f"--model fast takes small pictures that lie in memory, those of {data.name} are read when they are needed"
            ": choose another model"
        )
    check_pictures(shape(data))
    return FAST


def _few_on_a_cpu(data: LabelledData, device: str, samples: int | None) -> bool:
    """Where a small network selects no better than `edges` and takes far longer: benchmarks/few-pictures.md."""
    if data.kind != "pictures":
        return False
    from labelsieve.engine.device import choose_device
    from labelsieve.selection.defaults import KERNEL_SAMPLES
    from labelsieve.selection.estimators import LEAST_SIDE

    if (samples or len(data)) > KERNEL_SAMPLES or min(data.x.shape[1:3]) < LEAST_SIDE:
        return False
    return choose_device(device).type == "cpu"


def _small_on_a_gpu(data: LabelledData, device: str) -> bool:
    """Where the fast network selects better than a ResNet-32, in less time: benchmarks/fast-selector.md."""
    if data.kind != "pictures" or not isinstance(data.x, np.ndarray):
        return False
    from labelsieve.engine.device import choose_device

    sides = data.x.shape[1:3]
    fits = len(data) >= FEWEST and min(sides) >= SMALLEST and max(sides) <= LARGEST
    return fits and choose_device(device).type == "cuda"


def epochs_of(model: str, asked: int | None) -> int:
    """What was asked for, else the model's own number."""
    if asked is not None:
        return asked
    if model != FAST:
        return EPOCHS
    from labelsieve.engine.fast import EPOCHS as FEW

    return FEW


def make_selector(
    data: LabelledData,
    model: str,
    *,
    epochs: int,
    loss: str = "ce",
    device: str = "auto",
    workers: int | None = None,
    checkpoint: Path | None = None,
    progress: Progress | None = None,
    protocol: str = "auto",
) -> Trainer:
    """The trainer of a resolved model name, here."""
    if model == FAST:
        trainer = _fast(data, epochs=epochs, loss=loss, device=device, checkpoint=checkpoint, progress=progress)
    else:
        from labelsieve.workflow.choose_model import make_trainer

        trainer = make_trainer(
            data, model, epochs=epochs, device=device, workers=workers, checkpoint=checkpoint, progress=progress
        )
        if loss != "ce":
            from labelsieve.execute.lockstep import EngineTrainer
            from labelsieve.execute.losses import check_loss, method_of

            check_loss(loss, network=isinstance(trainer, EngineTrainer))
            assert isinstance(trainer, EngineTrainer)
            trainer.method = method_of(loss)
    if data.kind == "pictures" and protocol == "auto":
        harmful = trainer.disable_harmful_mirroring(data.x, data.y)
        if harmful and progress is not None:
            progress.note("classes differ by left and right: networks that select see no mirrored pictures")
    return trainer


def cluster_selector(
    data: LabelledData,
    model: str,
    executor: str,
    *,
    epochs: int,
    loss: str,
    device: str,
    checkpoint: Path,
    progress: Progress,
    protocol: str = "auto",
) -> Trainer:
    """The same trainings as tasks of a Ray cluster."""
    from labelsieve import stopping
    from labelsieve.execute.ray_cluster import RayPool, RayTrainer

    pool = RayPool(executor, device=device, stop=stopping.requested, tell=progress.note)
    build = partial(make_selector, model=model, epochs=epochs, loss=loss, device=device, protocol=protocol)
    return RayTrainer(data, build, pool=pool, checkpoint=checkpoint)


def _fast(
    data: LabelledData, *, epochs: int, loss: str, device: str, checkpoint: Path | None, progress: Progress | None
) -> Trainer:
    from labelsieve import stopping
    from labelsieve.execute.fast import LABEL_SMOOTHING, FastTrainer
    from labelsieve.execute.losses import method_of

    def tell(state: dict[str, Any]) -> None:
        if progress is not None and state["epoch"] % max(1, epochs // 4) == 0:
            loss_now = float(np.mean(state["loss"])) if state["loss"] else float("nan")
            speed = f"{state['images_per_second']:,.0f} samples/s"
            progress.note(f"  epoch {state['epoch']}/{state['epochs']}, loss {loss_now:.3f}, {speed}")

    return FastTrainer(
        data.x, classes=len(data.classes), epochs=epochs, device=device, checkpoint=checkpoint,
        method=method_of(loss, label_smoothing=LABEL_SMOOTHING), progress=tell, stop=stopping.requested,
        checkpoint_seconds=5.0,
    )  # fmt: skip
