"""How well the noise is known, and wrong labels found, beside others on the same predictions (no figure of the paper).

Every noise setting's networks train in one lockstep: f on each half, then g on what f selected. What they say of the
held-out samples, whole probabilities and last hidden layer, is kept on disk: a stopped run trains nothing twice.
True labels corrupt and measure (metrics), nothing else.
"""

from __future__ import annotations

import functools
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

from labelsieve import metrics, noise, theory
from labelsieve.engine import Method, PictureStore, Plan, Schedule, stage_pictures
from labelsieve.engine import evaluate as inference
from labelsieve.engine.bundle import Bundle, Factory, NetworkState
from labelsieve.engine.device import choose_device, fastest_convolutions
from labelsieve.engine.fast import BATCH_SIZE, EPOCHS, fast_schedule, fast_store
from labelsieve.engine.lockstep import Lockstep, Options
from labelsieve.errors import InputError
from labelsieve.experiments.bench import CORRUPTION, Bench
from labelsieve.experiments.peer_estimators import Estimate, confident_issues, from_confident_joint, from_hoc
from labelsieve.experiments.plots import table as markdown
from labelsieve.experiments.records import digest
from labelsieve.experiments.training import factory_of
from labelsieve.files import atomic_path
from labelsieve.methods.generalised_ce import GeneralisedCE
from labelsieve.methods.standard import Standard
from labelsieve.models.fast_cnn import WIDTHS, fast_cnn_factory
from labelsieve.models.layers import Stackable
from labelsieve.selection.estimate import eq4_ratio, estimate_from_scores
from labelsieve.selection.incv import incv_steps
from labelsieve.selection.run_selection import drive_together
from labelsieve.selection.settings import INCVSettings
from labelsieve.selection.state import INCVState
from labelsieve.types import FloatArray, IntArray, Job, Scores, Selection, Trainer

Say = Callable[[str], None]
SETTINGS = (
    ("symmetric", 0.0), ("symmetric", 0.2), ("symmetric", 0.5), ("symmetric", 0.8),
    ("pair", 0.2), ("pair", 0.4), ("cifar10-map", 0.4), ("instance", 0.4),
)  # fmt: skip


def given_labels(bench: Bench, pattern: str, ratio: float, seed: int) -> IntArray:
    """The noisy labels of a setting; `instance` follows the pictures themselves."""
    rng = np.random.default_rng([seed, CORRUPTION])
    if ratio == 0:
        return bench.true.copy()
    if pattern == "instance":
        rows = bench.pictures.reshape(len(bench.true), -1)
        return np.asarray(noise.corrupt_by_instance(bench.true, rows, ratio, rng, classes=np.arange(bench.classes)))
    return np.asarray(noise.corrupt(bench.true, theory.matrix(pattern, bench.classes, ratio), rng), dtype=np.int64)


# ---------------------------------------------------------------- trainings whose answers are kept whole


@dataclass(frozen=True)
class Answer:
    """What one training says of the samples it was held back from."""

    index: IntArray
    scores: Scores
    probs: NDArray[np.float32]
    features: NDArray[np.float16]


class KeepsTheScorer(Lockstep):
    """Remembers the weights that gave each training its scores: the best epoch's or the last one's."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.scorers: dict[str, NetworkState] = {}

    def _score(self, row: int, *, last: bool, line: dict[str, Any]) -> None:
        training = self.trainings[self.running[row]]
        before = training.scores
        super()._score(row, last=last, line=line)
        if training.scores is not before:
            bundle, i = self._locate(self.networks_of[row][0])
            state = bundle.module.state_dict()
            self.scorers[training.plan.name] = {
                name: tensor.detach().chunk(bundle.n)[i].clone() for name, tensor in state.items()
            }


@dataclass
class WholeAnswers(Trainer):
    """A Trainer that keeps probabilities and features of all its answers, in memory and in `folder`."""

    model: str
    store: PictureStore
    factory: Factory
    schedule: Schedule
    batch_size: int
    method: Method
    folder: Path
    say: Say = print
    together: bool | None = None
    widths: Sequence[int] = ()  # of the fast network, where they are not the usual ones
    answers: dict[str, Answer] = field(default_factory=dict)
    seconds: float = 0.0

    def train_and_score(self, jobs: Sequence[Job]) -> list[Scores]:
        path = self.folder / f"{self._key(jobs)}.npz"
        if path.is_file():
            found = _load(path, jobs)
            self.say(f"{len(jobs)} trainings from {jobs[0].name} on: kept from an earlier run")
        else:
            began = time.monotonic()
            found = self._train(jobs)
            self.seconds += time.monotonic() - began
            self.say(f"{len(jobs)} trainings from {jobs[0].name} on: {time.monotonic() - began:.1f} s")
            _save(path, found)
        self.answers |= {job.name: answer for job, answer in zip(jobs, found, strict=True)}
        return [answer.scores for answer in found]

    def _key(self, jobs: Sequence[Job]) -> str:
        told = [(job.labels, job.train, job.score, np.array([job.seed, job.keep_best])) for job in jobs]
        learning = (self.schedule.settings(), self.batch_size, self.method.name, self.method.settings())
        settings = repr((self.model, tuple(self.widths), *learning))
        return f"{jobs[0].name}-{digest(np.frombuffer(settings.encode(), dtype=np.uint8), *chain(*told))[:16]}"

    def _train(self, jobs: Sequence[Job]) -> list[Answer]:
        plans = [Plan(j.name, j.labels, j.train, j.seed, score=j.score, keep_best=j.keep_best) for j in jobs]
        together = self.store.device.type == "cuda" if self.together is None else self.together
        options = Options(batch_size=self.batch_size, together=together)
        lockstep = KeepsTheScorer(self.store, self.factory, [(self.method, p) for p in plans], self.schedule, options)
        with fastest_convolutions(self.store.device):
            trained = lockstep.run()
        states = [lockstep.scorers[plan.name] for plan in plans]
        outputs = whole_outputs(self.factory, states, self.schedule, self.store, [job.score for job in jobs])
        answers = []
        for job, training, (probs, features) in zip(jobs, trained, outputs, strict=True):
            assert training.scores is not None
            answers.append(Answer(job.score, training.scores, probs, features))
        return answers


def whole_outputs(
    factory: Factory, states: Sequence[NetworkState], schedule: Schedule, store: PictureStore, wanted: list[IntArray]
) -> list[tuple[NDArray[np.float32], NDArray[np.float16]]]:
    """Softmax and last hidden layer of each network on its own samples, in one pass of the stack."""
    bundle = Bundle(factory, states, schedule, store.device)
    module = bundle.module
    if not isinstance(module, Stackable):
        raise InputError("whole answers need a network that stacks (labelsieve.models.layers.Stackable)")
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


def _save(path: Path, answers: Sequence[Answer]) -> None:
    arrays: dict[str, NDArray[Any]] = {}
    for i, a in enumerate(answers):
        arrays |= {f"{i}.scores.{name}": array for name, array in a.scores.arrays().items()}
        arrays |= {f"{i}.probs": a.probs, f"{i}.features": a.features}
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_path(path) as partial, partial.open("wb") as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]


def _load(path: Path, jobs: Sequence[Job]) -> list[Answer]:
    with np.load(path, allow_pickle=False) as stored:
        answers = []
        for i, job in enumerate(jobs):
            own = f"{i}.scores."
            scores = Scores(**{name.removeprefix(own): stored[name] for name in stored.files if name.startswith(own)})
            answers.append(Answer(job.score, scores, stored[f"{i}.probs"], stored[f"{i}.features"]))
        return answers


# ---------------------------------------------------------------- a whole measurement


def trainer_for(
    model: str, bench: Bench, folder: Path, *, device: str = "auto", epochs: int | None = None,
    batch_size: int | None = None, widths: Sequence[int] | None = None, say: Say = print,
) -> WholeAnswers:  # fmt: skip
    """`fast`, or a network of experiments.training with the paper's 50-epoch schedule."""
    where = choose_device(device)
    if model == "fast":
        store = fast_store(bench.pictures, where)
        size = batch_size or BATCH_SIZE
        factory: Factory = fast_cnn_factory(store, bench.classes, widths=tuple(widths or WIDTHS))
        method: Method = GeneralisedCE(q=0.0, label_smoothing=0.2)
        schedule = fast_schedule(epochs or EPOCHS, size)
        return WholeAnswers(model, store, factory, schedule, size, method, folder, say, widths=widths or ())
    store = stage_pictures(bench.pictures, where)
    schedule = Schedule.incv_50(epochs or 50)
    factory = factory_of(model, bench.classes)
    return WholeAnswers(model, store, factory, schedule, batch_size or 128, Standard(), folder, say)


def measure(
    bench: Bench, trainer: WholeAnswers, *, settings: Sequence[tuple[str, float]] = SETTINGS, seed: int = 0,
    checkpoint: str = "auto",
) -> dict[str, Any]:  # fmt: skip
    """Every estimator and detector at every setting, as plain JSON."""
    wanted = INCVSettings(n_iterations=1, remove_ratio=0.0, checkpoint=checkpoint)
    states: dict[str, INCVState] = {}
    labels = {f"{pattern}-{ratio:g}": given_labels(bench, pattern, ratio, seed) for pattern, ratio in settings}
    steps = [
        incv_steps(
            given, bench.classes, settings=wanted, seed=seed, name=key,
            on_iteration=functools.partial(states.__setitem__, key),
        )
        for key, given in labels.items()
    ]  # fmt: skip
    selections = drive_together(steps, trainer)
    rows = []
    for (key, given), selection in zip(labels.items(), selections, strict=True):
        rows.append({"setting": key, **_measured(bench, trainer, key, given, states[key], selection, seed)})
        trainer.say(f"{key}: {rows[-1]['estimates']['labelsieve']}")
    return {"rows": rows, "training_seconds": trainer.seconds}


def _measured(
    bench: Bench, trainer: WholeAnswers, key: str, given: IntArray, state: INCVState, selection: Selection, seed: int
) -> dict[str, Any]:
    c = bench.classes
    f = [trainer.answers[f"{key}-1-{k}"] for k in (1, 2)]
    g = [a for k in (1, 2) if (a := trainer.answers.get(f"{key}-estimate-{k}")) is not None] or f
    by_f, by_g = _gathered(f, len(given), c), _gathered(g, len(given), c)
    agreement = float(np.mean(by_f.argmax(1) == given))
    alone = estimate_from_scores(
        [a.scores for a in f], [given[a.index] for a in f], c, seed=seed, method="confident counting"
    )
    eq4 = eq4_ratio(agreement, c)
    estimates = {
        "labelsieve": Estimate(state.transition, state.noise_ratio),
        "labelsieve, f alone": Estimate(alone.transition, alone.ratio),
        "Eq. 4": Estimate(theory.symmetric(c, eq4), eq4),
        "confident joint, f": from_confident_joint(given, by_f),
        "confident joint, g": from_confident_joint(given, by_g),
        "HOC, f": from_hoc([(given[a.index], a.features) for a in f], c, trainer.store.device),
    }
    truth = metrics.confusion(bench.true, given, c)
    ratio = metrics.noise_ratio(given, bench.true)
    return {
        "noise_ratio": ratio,
        "agreement_f": agreement,
        "agreement_g": float(np.mean(by_g.argmax(1) == given)),
        "accuracy_f": metrics.accuracy(bench.true, by_f.argmax(1)),
        "accuracy_g": metrics.accuracy(bench.true, by_g.argmax(1)),
        "estimates": {
            name: {"ratio": e.ratio, "error": abs(e.ratio - ratio), "row_error": row_error(e.transition, truth)}
            for name, e in estimates.items()
        },
        "unmixes": state.unmixes,
        "selector": state.history[0].get("selector"),
        "detection": _detected(bench, given, state, selection, by_f, by_g),
    }


def row_error(estimate: FloatArray, truth: FloatArray) -> float:
    """Mean over the classes of the summed absolute differences of a row."""
    return float(np.nanmean(np.abs(estimate - truth).sum(axis=1)))


def _detected(
    bench: Bench, given: IntArray, state: INCVState, selection: Selection, by_f: FloatArray, by_g: FloatArray
) -> dict[str, dict[str, float]]:
    raw, calibrated = state.suspicion, selection.suspicion
    both = np.sqrt(by_f * by_g)
    both /= both.sum(axis=1, keepdims=True)
    flags: dict[str, tuple[NDArray[np.bool_], FloatArray]] = {
        "labelsieve, not selected": (~selection.selected, raw),
        "labelsieve, probability > 0.5": (calibrated > 0.5, calibrated),
    }
    rows = np.arange(len(given))
    for name, probs in (("f", by_f), ("g", by_g), ("f and g", both)):
        flags[f"cleanlab, {name}"] = (confident_issues(given, probs), 1 - probs[rows, given])
    bad = given != bench.true
    found = {}
    for name, (flagged, suspicion) in flags.items():
        found[name] = {"flagged": float(flagged.mean())}
        if bad.any():
            found[name] |= metrics.detection(bad, flagged, suspicion)._asdict()
    if bad.any():
        found["labelsieve, probability > 0.5"]["calibration_error"] = calibration_error(calibrated, bad)
        found["labelsieve, not selected"]["calibration_error"] = calibration_error(raw, bad)
    return found


def calibration_error(probability: FloatArray, wrong: NDArray[np.bool_], *, bins: int = 15) -> float:
    """Expected calibration error: by how much stated and measured shares differ, over bins of equal width."""
    which = np.minimum((probability * bins).astype(np.int64), bins - 1)
    size = np.bincount(which, minlength=bins)
    stated, measured = (np.bincount(which, weights=x, minlength=bins) for x in (probability, wrong.astype(np.float64)))
    return float(np.abs(stated - measured).sum() / max(1, size.sum()))


def _gathered(answers: Sequence[Answer], n: int, classes: int) -> FloatArray:
    """The halves' probabilities as one array in input order."""
    probs = np.zeros((n, classes))
    for answer in answers:
        probs[answer.index] = answer.probs
    return probs


# ---------------------------------------------------------------- the page

PAGE = """\
# What the noise is, and which labels are wrong, beside others

{command}

{what}. One seed. `f`: a network trained on one half, asked about the other; `g`: one trained on what `f` selected. All
estimators see the same predictions. *Row error*: mean over the classes of sum_j |T-hat_ij - T_ij|. The truth is
measured on the drawn labels. HOC is simplified (labelsieve/experiments/peer_estimators.py says how).

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
    """benchmarks/noise-estimate.md."""
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
            f" (suspicion as it was {found['labelsieve, not selected']['calibration_error']:.3f})"
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
    """How the probability orders labels beside cleanlab's score, which may see one network or our average of two."""

    def lead(row: dict[str, Any], *others: str) -> float:
        aurocs: dict[str, float] = {tool: found["auroc"] for tool, found in row["detection"].items()}
        return aurocs["labelsieve, probability > 0.5"] - max(aurocs[f"cleanlab, {other}"] for other in others)

    def told(leads: dict[str, float]) -> str:
        behind = [f"{setting} by {-found:.4f}" for setting, found in leads.items() if found <= 0]
        return f"higher in {len(leads) - len(behind)} of {len(leads)} settings" + (
            f", not at {', '.join(behind)}" if behind else ""
        )

    alone = told({row["setting"]: lead(row, "f", "g") for row in rows})
    both = told({row["setting"]: lead(row, "f and g") for row in rows})
    return (
        "AUROC of labelsieve's probability beside cleanlab's score on one network, `f` or `g`: "
        f"{alone}. On `f and g`, the average that labelsieve itself makes of the two: {both}. Where mistakes are "
        "spread evenly over the classes there is no noise to undo, and both order labels by nearly the same average."
    )


def bold(text: str, best: bool) -> str:
    return f"**{text}**" if best else text
