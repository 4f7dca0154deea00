"""Noise estimate and wrong-label detection on CIFAR-10, compared with Eq. 4, cleanlab's confident joint and HOC.

    python3 benchmarks/noise_estimate.py --data DIR                     ResNet-32: about 6 minutes on an H200
    python3 benchmarks/noise_estimate.py --data DIR --model fast        the fast selector: about 2 minutes
    python3 benchmarks/noise_estimate.py --small                        synthetic pictures on a CPU, half a minute
    python3 benchmarks/noise_estimate.py --draw                         writes the page again, from the JSON file

Writes noise-estimate.json and noise-estimate.md to --out. Needs torch and numpy, and LABELSIEVE_COMMIT if git cannot
report the commit. The networks of all noise settings train in one lockstep: f on each half, then g on the samples that
f selected. Their probabilities and features of the held-out samples are stored in --work, so a stopped run continues
after its last finished phase. All estimators see the same predictions. True labels only corrupt and measure.
"""

from __future__ import annotations

import argparse
import functools
import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parent))

from peer_estimators import Estimate, confident_issues, from_confident_joint, from_hoc

from labelsieve import metrics, noise, theory
from labelsieve.engine import Method, PictureStore, Plan, Schedule, stage_pictures
from labelsieve.engine import evaluate as inference
from labelsieve.engine.bundle import Bundle, Factory, NetworkState
from labelsieve.engine.device import choose_device, fastest_convolutions
from labelsieve.engine.lockstep import Lockstep, Options
from labelsieve.engine.schedule import FAST_BATCH_SIZE, fast_schedule
from labelsieve.engine.store import fast_store
from labelsieve.errors import InputError
from labelsieve.experiments.datasets import CORRUPTION, PictureArrays, open_cifar10, synthetic
from labelsieve.experiments.evaluate import calibration_error
from labelsieve.experiments.records import commit, device_name, digest, versions
from labelsieve.experiments.render import markdown
from labelsieve.files import atomic_path
from labelsieve.methods.standard import GeneralisedCE, Standard
from labelsieve.models.choose import FAST_EPOCHS, create_network
from labelsieve.models.fast_cnn import WIDTHS, fast_cnn_factory
from labelsieve.models.layers import Stackable
from labelsieve.selection.incv import drive_together, incv_steps
from labelsieve.selection.noise_model import denoise, fit_noise_model
from labelsieve.selection.settings import INCVSettings
from labelsieve.selection.state import INCVState
from labelsieve.types import FloatArray, IntArray, Job, Scores, Selection, Trainer

HERE = Path(__file__).parent

Say = Callable[[str], None]
SETTINGS = (
    ("symmetric", 0.0), ("symmetric", 0.2), ("symmetric", 0.5), ("symmetric", 0.8),
    ("pair", 0.2), ("pair", 0.4), ("cifar10-map", 0.4), ("instance", 0.4),
)  # fmt: skip


def given_labels(data: PictureArrays, pattern: str, ratio: float, seed: int) -> IntArray:
    """Return the noisy labels of a setting. The noise of `instance` depends on the pictures."""
    rng = np.random.default_rng([seed, CORRUPTION])
    if ratio == 0:
        return data.true.copy()
    if pattern == "instance":
        rows = data.pictures.reshape(len(data.true), -1)
        return np.asarray(noise.corrupt_by_instance(data.true, rows, ratio, rng, classes=np.arange(data.classes)))
    return np.asarray(noise.corrupt(data.true, theory.matrix(pattern, data.classes, ratio), rng), dtype=np.int64)


# ---------------------------------------------------------------- trainings that keep all predictions


@dataclass(frozen=True)
class Prediction:
    """Predictions of one training for its held-out samples."""

    index: IntArray
    scores: Scores
    probs: NDArray[np.float32]
    features: NDArray[np.float16]


class ScorerLockstep(Lockstep):
    """Keeps the weights that produced the scores of each training: of the best or of the last epoch."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.scorers: dict[str, NetworkState] = {}

    def _score(self, row: int, line: dict[str, Any]) -> None:
        training = self.trainings[self.running[row]]
        before = training.scores
        super()._score(row, line)
        if training.scores is not before:
            bundle, i = self.locate(self.networks_of[row][0])
            state = bundle.module.state_dict()
            self.scorers[training.plan.name] = {
                name: tensor.detach().chunk(bundle.n)[i].clone() for name, tensor in state.items()
            }


@dataclass
class PredictionTrainer(Trainer):
    """A Trainer that keeps probabilities and features of all its trainings, in memory and in `folder`."""

    model: str
    store: PictureStore
    factory: Factory
    schedule: Schedule
    batch_size: int
    method: Method
    folder: Path
    say: Say = print
    together: bool | None = None
    widths: Sequence[int] = ()  # of the fast network, if not the default
    predictions: dict[str, Prediction] = field(default_factory=dict)
    seconds: float = 0.0

    def train_and_score(self, jobs: Sequence[Job]) -> list[Scores]:
        path = self.folder / f"{self._key(jobs)}.npz"
        if path.is_file():
            found = _load(path, jobs)
            self.say(f"{len(jobs)} trainings, first {jobs[0].name}: loaded from an earlier run")
        else:
            began = time.monotonic()
            found = self._train(jobs)
            self.seconds += time.monotonic() - began
            self.say(f"{len(jobs)} trainings, first {jobs[0].name}: {time.monotonic() - began:.1f} s")
            _save(path, found)
        self.predictions |= {job.name: answer for job, answer in zip(jobs, found, strict=True)}
        return [answer.scores for answer in found]

    def _key(self, jobs: Sequence[Job]) -> str:
        arrays = [(job.labels, job.train, job.score, np.array([job.seed, job.keep_best])) for job in jobs]
        learning = (self.schedule.settings(), self.batch_size, self.method.name, self.method.settings())
        settings = repr((self.model, tuple(self.widths), *learning))
        return f"{jobs[0].name}-{digest(np.frombuffer(settings.encode(), dtype=np.uint8), *chain(*arrays))[:16]}"

    def _train(self, jobs: Sequence[Job]) -> list[Prediction]:
        plans = [Plan(j.name, j.labels, j.train, j.seed, score=j.score, keep_best=j.keep_best) for j in jobs]
        together = self.store.device.type == "cuda" if self.together is None else self.together
        options = Options(batch_size=self.batch_size, together=together)
        lockstep = ScorerLockstep(self.store, self.factory, [(self.method, p) for p in plans], self.schedule, options)
        with fastest_convolutions(self.store.device):
            trained = lockstep.run()
        states = [lockstep.scorers[plan.name] for plan in plans]
        outputs = predict_all(self.factory, states, self.schedule, self.store, [job.score for job in jobs])
        answers = []
        for job, training, (probs, features) in zip(jobs, trained, outputs, strict=True):
            assert training.scores is not None
            answers.append(Prediction(job.score, training.scores, probs, features))
        return answers


def predict_all(
    factory: Factory, states: Sequence[NetworkState], schedule: Schedule, store: PictureStore, wanted: list[IntArray]
) -> list[tuple[NDArray[np.float32], NDArray[np.float16]]]:
    """Return softmax and last hidden layer of each network for its own samples, in one pass."""
    bundle = Bundle(factory, states, schedule, store.device)
    module = bundle.module
    if not isinstance(module, Stackable):
        raise InputError("this benchmark needs a network that stacks (labelsieve.models.layers.Stackable)")
    longest = max(len(index) for index in wanted)
    index = np.zeros((len(wanted), longest), dtype=np.int64)
    for row, own in zip(index, wanted, strict=True):
        row[: len(own)] = own
    places = torch.as_tensor(index, device=store.device)
    probs: list[Tensor] = []
    hidden: list[Tensor] = []
    with inference.inference(bundle):
        for piece in torch.split(places, 512, dim=1):
            views = [module.features(store.batch(piece, torch.full_like(piece, view))) for view in store.views]
            logits = torch.stack([module.head(seen).float().view(len(seen), bundle.n, -1) for seen in views])
            probs.append(logits.log_softmax(3).mean(0).softmax(2).cpu())  # as evaluate.outputs
            hidden.append(views[0].view(len(views[0]), bundle.n, -1).half().cpu())
    all_probs, all_hidden = torch.cat(probs).numpy(), torch.cat(hidden).numpy()
    return [(all_probs[: len(own), i].copy(), all_hidden[: len(own), i].copy()) for i, own in enumerate(wanted)]


def _save(path: Path, answers: Sequence[Prediction]) -> None:
    arrays: dict[str, NDArray[Any]] = {}
    for i, a in enumerate(answers):
        arrays |= {f"{i}.scores.{name}": array for name, array in a.scores.arrays().items()}
        arrays |= {f"{i}.probs": a.probs, f"{i}.features": a.features}
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_path(path) as partial, partial.open("wb") as file:
        np.savez(file, **arrays)


def _load(path: Path, jobs: Sequence[Job]) -> list[Prediction]:
    with np.load(path, allow_pickle=False) as stored:
        answers = []
        for i, job in enumerate(jobs):
            own = f"{i}.scores."
            scores = Scores(**{name.removeprefix(own): stored[name] for name in stored.files if name.startswith(own)})
            answers.append(Prediction(job.score, scores, stored[f"{i}.probs"], stored[f"{i}.features"]))
        return answers


# ---------------------------------------------------------------- a whole measurement


def trainer_for(
    model: str, data: PictureArrays, folder: Path, *, device: str = "auto", epochs: int | None = None,
    batch_size: int | None = None, widths: Sequence[int] | None = None, say: Say = print,
) -> PredictionTrainer:  # fmt: skip
    """Return a trainer of the fast network, or of a named network with the paper's 50-epoch schedule."""
    where = choose_device(device)
    if model == "fast":
        store = fast_store(data.pictures, where)
        size = batch_size or FAST_BATCH_SIZE
        factory: Factory = fast_cnn_factory(store, data.classes, widths=tuple(widths or WIDTHS))
        method: Method = GeneralisedCE(q=0.0, label_smoothing=0.2)
        schedule = fast_schedule(epochs or FAST_EPOCHS, size)
        return PredictionTrainer(model, store, factory, schedule, size, method, folder, say, widths=widths or ())
    store = stage_pictures(data.pictures, where)
    schedule = Schedule.incv_50(epochs or 50)
    factory = create_network(model, store.shape, data.classes)
    return PredictionTrainer(model, store, factory, schedule, batch_size or 128, Standard(), folder, say)


def measure(
    data: PictureArrays, trainer: PredictionTrainer, *, settings: Sequence[tuple[str, float]] = SETTINGS, seed: int = 0,
    checkpoint: str = "auto",
) -> dict[str, Any]:  # fmt: skip
    """Measure every estimator and detector at every setting."""
    wanted = INCVSettings(n_iterations=1, remove_ratio=0.0, checkpoint=checkpoint)
    states: dict[str, INCVState] = {}
    labels = {f"{pattern}-{ratio:g}": given_labels(data, pattern, ratio, seed) for pattern, ratio in settings}
    steps = [
        incv_steps(
            given, data.classes, settings=wanted, seed=seed, name=key,
            on_iteration=functools.partial(states.__setitem__, key),
        )
        for key, given in labels.items()
    ]  # fmt: skip
    selections = drive_together(steps, trainer)
    rows = []
    for (key, given), selection in zip(labels.items(), selections, strict=True):
        rows.append({"setting": key, **_measured(data, trainer, key, given, states[key], selection)})
        trainer.say(f"{key}: {rows[-1]['estimates']['labelsieve']}")
    return {"rows": rows, "training_seconds": trainer.seconds}


def _measured(
    data: PictureArrays,
    trainer: PredictionTrainer,
    key: str,
    given: IntArray,
    state: INCVState,
    selection: Selection,
) -> dict[str, Any]:
    c = data.classes
    f = [trainer.predictions[f"{key}-1-{k}"] for k in (1, 2)]
    g = [a for k in (1, 2) if (a := trainer.predictions.get(f"{key}-estimate-{k}")) is not None] or f
    by_f, by_g = _gathered(f, len(given), c), _gathered(g, len(given), c)
    agreement = float(np.mean(by_f.argmax(1) == given))
    labels = np.concatenate([given[a.index] for a in f])
    held_out = Scores.concatenate([a.scores for a in f])
    alone = fit_noise_model(denoise(held_out, labels, c), labels, c, held_out=held_out).estimate
    eq4 = theory.ratio_from_accuracy(agreement, c, "symmetric").ratio
    estimates = {
        "labelsieve": Estimate(state.transition, state.noise_ratio),
        "labelsieve, f alone": Estimate(alone.transition, alone.ratio),
        "Eq. 4": Estimate(theory.symmetric(c, eq4), eq4),
        "confident joint, f": from_confident_joint(given, by_f),
        "confident joint, g": from_confident_joint(given, by_g),
        "HOC, f": from_hoc([(given[a.index], a.features) for a in f], c, trainer.store.device),
    }
    truth = metrics.confusion(data.true, given, c)
    ratio = metrics.noise_ratio(given, data.true)
    return {
        "noise_ratio": ratio,
        "agreement_f": agreement,
        "agreement_g": float(np.mean(by_g.argmax(1) == given)),
        "accuracy_f": metrics.accuracy(data.true, by_f.argmax(1)),
        "accuracy_g": metrics.accuracy(data.true, by_g.argmax(1)),
        "estimates": {
            name: {"ratio": e.ratio, "error": abs(e.ratio - ratio), "row_error": row_error(e.transition, truth)}
            for name, e in estimates.items()
        },
        "detection": _detected(data, given, selection, by_f, by_g),
    }


def row_error(estimate: FloatArray, truth: FloatArray) -> float:
    """Mean over the classes of the sum of absolute differences in a row."""
    return float(np.nanmean(np.abs(estimate - truth).sum(axis=1)))


def _detected(
    data: PictureArrays, given: IntArray, selection: Selection, by_f: FloatArray, by_g: FloatArray
) -> dict[str, dict[str, float]]:
    raw, calibrated = 1 - selection.probability, selection.suspicion
    both = np.sqrt(by_f * by_g)
    both /= both.sum(axis=1, keepdims=True)
    flags: dict[str, tuple[NDArray[np.bool_], FloatArray]] = {
        "labelsieve, not selected": (~selection.selected, raw),
        "labelsieve, probability > 0.5": (calibrated > 0.5, calibrated),
    }
    rows = np.arange(len(given))
    for name, probs in (("f", by_f), ("g", by_g), ("f and g", both)):
        flags[f"cleanlab, {name}"] = (confident_issues(given, probs), 1 - probs[rows, given])
    bad = given != data.true
    found = {}
    for name, (flagged, suspicion) in flags.items():
        found[name] = {"flagged": float(flagged.mean())}
        if bad.any():
            found[name] |= metrics.detection(bad, flagged, suspicion)._asdict()
    if bad.any():
        found["labelsieve, probability > 0.5"]["calibration_error"] = calibration_error(bad, calibrated)
        found["labelsieve, not selected"]["calibration_error"] = calibration_error(bad, raw)
    return found


def _gathered(answers: Sequence[Prediction], n: int, classes: int) -> FloatArray:
    """Combine the probabilities of both halves in input order."""
    probs = np.zeros((n, classes))
    for answer in answers:
        probs[answer.index] = answer.probs
    return probs


# ---------------------------------------------------------------- the page

PAGE = """\
# Noise estimate and wrong labels, compared with other tools

{command}

{what}. One seed. `f` is a network trained on one half and tested on the other; `g` is trained on the samples that `f`
selected. All estimators see the same predictions. *Row error*: mean over the classes of sum_j |T-hat_ij - T_ij|. True
values are measured on the corrupted labels. HOC is simplified, as described in `benchmarks/peer_estimators.py`.

## Noise ratio: estimate (error)

{ratios}

## Transition matrix: mean row error

{matrices}

## Finding wrong labels: precision / recall / F1 / AUROC

{detections}

{ranks}

Expected calibration error of the probability, by setting: {calibration}.

## Clean labels

{clean}
"""


def page(result: dict[str, Any], *, command: str, what: str) -> str:
    """Format the page noise-estimate.md."""
    rows = result["rows"]
    names = list(rows[0]["estimates"])

    def estimates(value: Callable[[dict[str, float]], str], key: str) -> str:
        lines = []
        for row in rows:
            found = row["estimates"]
            least = min(e[key] for e in found.values())
            cells = [bold(value(found[name]), found[name][key] == least) for name in names]
            lines.append([row["setting"], f"{row['noise_ratio']:.3f}", *cells])
        return markdown(["setting", "true", *names], lines)

    tools = list(rows[0]["detection"])
    detections, calibration = [], []
    for row in rows:
        if row["noise_ratio"] == 0:
            continue
        found = row["detection"]
        fields = ("precision", "recall", "f1", "auroc")
        best = {key: max(found[tool][key] for tool in tools) for key in fields}
        cells = [
            " / ".join(bold(f"{found[tool][key]:.3f}", found[tool][key] == best[key]) for key in fields)
            for tool in tools
        ]
        detections.append([row["setting"], *cells])
        calibration.append(
            f"{row['setting']} {found['labelsieve, probability > 0.5']['calibration_error']:.3f}"
            f" (before calibration {found['labelsieve, not selected']['calibration_error']:.3f})"
        )
    clean = [
        f"Share flagged, {tool}: {row['detection'][tool]['flagged']:.4f}"
        for row in rows
        if row["noise_ratio"] == 0
        for tool in tools
    ]
    return PAGE.format(
        command=command,
        what=what,
        ratios=estimates(lambda e: f"{e['ratio']:.3f} ({e['error']:.3f})", "error"),
        matrices=estimates(lambda e: f"{e['row_error']:.3f}", "row_error"),
        detections=markdown(["setting", *tools], detections),
        ranks=ranks([row for row in rows if row["noise_ratio"] > 0]),
        calibration="; ".join(calibration),
        clean="\n".join(f"- {line}" for line in clean) or "not measured",
    )


def ranks(rows: Sequence[dict[str, Any]]) -> str:
    """Compare the ranking by probability with cleanlab's score, from one network or from our average of two."""

    def lead(row: dict[str, Any], *others: str) -> float:
        aurocs: dict[str, float] = {tool: found["auroc"] for tool, found in row["detection"].items()}
        return aurocs["labelsieve, probability > 0.5"] - max(aurocs[f"cleanlab, {other}"] for other in others)

    def count(leads: dict[str, float]) -> str:
        behind = [f"{setting} by {-found:.4f}" for setting, found in leads.items() if found <= 0]
        return f"higher in {len(leads) - len(behind)} of {len(leads)} settings" + (
            f", not at {', '.join(behind)}" if behind else ""
        )

    alone = count({row["setting"]: lead(row, "f", "g") for row in rows})
    both = count({row["setting"]: lead(row, "f and g") for row in rows})
    return (
        "AUROC of labelsieve's probability compared with cleanlab's score from one network, `f` or `g`: "
        f"{alone}. With `f and g`, labelsieve's own average of the two: {both}. If wrong labels are uniform over the "
        "classes there is no preference to correct, and both rank labels by nearly the same average."
    )


def bold(text: str, best: bool) -> str:
    return f"**{text}**" if best else text


# ---------------------------------------------------------------- the script


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder with CIFAR-10")
    parser.add_argument("--model", default="resnet32", help="resnet32 or fast")
    parser.add_argument("--epochs", type=int, help="default: 50, fast: 10")
    parser.add_argument("--batch-size", type=int, help="default: 128, fast: 512")
    parser.add_argument("--checkpoint", help="epoch that selects: auto (the best) or last; default: auto, fast: last")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--work", type=Path, default=Path("runs/noise-estimate"), help="folder of stored predictions")
    parser.add_argument("--out", type=Path, default=HERE, help="folder of the JSON and the page")
    parser.add_argument("--small", action="store_true", help="synthetic pictures on a CPU")
    parser.add_argument("--draw", action="store_true", help="write the page from the JSON file in --out")
    args = parser.parse_args(arguments)
    name = "noise-estimate" if args.model == "resnet32" else f"noise-estimate-{args.model}"
    stored = args.out / f"{name}.json"
    if not args.draw:
        args.out.mkdir(parents=True, exist_ok=True)
        stored.write_text(json.dumps(measured(args), indent=1) + "\n")
    text = drawn(json.loads(stored.read_text()))
    stored.with_suffix(".md").write_text(text)
    print(text)


def measured(args: argparse.Namespace) -> dict[str, Any]:
    if args.small:
        data = synthetic(classes=10, samples=600, test_samples=10, mistakes=0)
        model = "fast" if args.model == "fast" else "small"
        trainer = trainer_for(
            model, data, args.work, device="cpu", epochs=args.epochs or 4, batch_size=32, widths=(24, 32)
        )
    else:
        data = open_cifar10(args.data)
        trainer = trainer_for(
            args.model, data, args.work, device=args.device, epochs=args.epochs, batch_size=args.batch_size
        )
    settings = (SETTINGS[0], SETTINGS[1], SETTINGS[-1]) if args.small else SETTINGS
    checkpoint = args.checkpoint or ("last" if args.model == "fast" else "auto")
    return measure(data, trainer, settings=settings, seed=args.seed, checkpoint=checkpoint) | {
        "data": data.name,
        "model": args.model,
        "seed": args.seed,
        "checkpoint": checkpoint,
        "schedule": trainer.schedule.settings(),
        "batch_size": trainer.batch_size,
        "method": {"name": trainer.method.name, **trainer.method.settings()},
        "device": device_name(str(trainer.store.device)),
        "versions": versions(),
        "commit": commit(),
    }


def drawn(result: dict[str, Any]) -> str:
    """Format the page from the stored results."""
    what = (
        f"{result['data']}, {result['model']}, {result['schedule']['epochs']} epochs, {result['device']}, commit"
        f" {result['commit'][:7]}: {result['training_seconds']:.0f} s of training for {len(result['rows'])} settings"
    )
    command = f"`python3 benchmarks/noise_estimate.py --data DIR --model {result['model']}`"
    return page(result, command=command, what=what)


if __name__ == "__main__":
    main()
