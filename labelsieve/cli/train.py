"""labelsieve train: train a robust network on the selection of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from labelsieve.cli.common import Flat, Output
from labelsieve.workflow.settings import TrainSettings


def train(
    run: Path,
    /,
    *,
    out: Path | None = None,
    settings: Annotated[TrainSettings, Flat] = TrainSettings(),
    output: Output = Output(),
) -> None:
    """Train a robust network on the selection of a run. Run the same command again to resume a stopped training.

    Decisions of the review page are not used: to train on corrected labels, `export` them and `run` the exported file.

    Parameters
    ----------
    run
        Run folder of `select` or `run`.
    out
        Another run folder for the network, to compare methods on the same selection. Default: RUN.
    """
    from labelsieve.workflow.run import train_run

    done = train_run(run, out, settings, output.progress())
    stage = done.stage
    state = "already trained" if done.begun == "done" else f"trained in {stage['seconds']:.1f} s"
    model = done.path / "model.safetensors"
    output.say(f"{settings.method_text()}, {stage['settings']['network']}: {state}", f"model: {model}")
    output.answer({"run": done.path, "resumed": done.begun, "model": model, **stage, "notes": done.notes})
