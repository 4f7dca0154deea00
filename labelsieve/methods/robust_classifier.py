"""A scikit-learn classifier that is not misled by wrong labels: INCV selects, a robust method trains.

    RobustClassifier(random_state=0).fit(X, y).predict(X_new)

Rows of numbers get a small MLP, texts become rows of numbers first, pictures (uint8 [n, height, width, channels], or
grey [n, height, width]) get a small CNN, arrays of any other shape the network of your `network` factory. Both steps
train on the engine, on whatever device there is.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import nn

from labelsieve.data.duplicates import copies_among
from labelsieve.engine import Method, Plan, Store, VectorStore, stage_pictures, train
from labelsieve.engine.agreement import agreement, has_learnt, what_may_help
from labelsieve.engine.augment import check_augment, mirror_test
from labelsieve.engine.device import choose_device
from labelsieve.engine.factory import check_factory
from labelsieve.engine.rng import borrowed
from labelsieve.errors import InputError
from labelsieve.execute.lockstep import EngineTrainer, row_statistics
from labelsieve.methods import METHODS, create
from labelsieve.methods.classifier_settings import (
    check_known_ratio,
    check_settings,
    network_factory,
    selection_settings,
)
from labelsieve.methods.defaults import (
    LEARNING_RATE,
    WORST_RATIO,
    auto_batch_size,
    auto_epochs,
    one_drop,
    training_sets,
)
from labelsieve.selection.finalize import JudgedSelection
from labelsieve.selection.inputs import (
    about_rare,
    as_pictures,
    check_frame,
    check_lengths,
    check_words,
    encode_labels,
    is_frame,
    only_own_networks,
    without_torch,
)
from labelsieve.types import BoolArray, FloatArray, IntArray, NoiseEstimate, Trust

MATTERS = 0.05  # a lower noise ratio changes little, so an unreliable one is not worth a warning
ROWS_AT_ONCE = 256  # predictions go through the network in blocks of one size, so that no row depends on its company


class WeakTrainingWarning(UserWarning):
    """Networks learnt too little: one agrees with far fewer of the labels it was trained on than are expected to be
    right, or those that select cannot tell wrong labels from hard samples."""


class RobustClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Trains a network on noisy labels.

    method: a name of `labelsieve.methods.METHODS`, or a method of your own (docs/methods.md): an instance of
    `labelsieve.engine.method.Method`, its class, or "package.module:Name". `method_settings`: a dict of its settings.
    network: a factory of torch modules, called without arguments, that map a batch to logits; a name that the command
    line's `--network` takes ("mlp", "small-cnn", "resnet32"); None for a small one, of rows two layers of 64. One of
    your own also gets float arrays of any shape, [n, ...], as they are but for one mean and one spread of all numbers.
    n_iterations, remove_ratio: INCV's. noise_ratio: of the given labels, for `coteaching` (None: INCV estimates it);
    a method that has no use for it refuses it. `incv-coteaching` asks INCV how noisy the samples are that it selected.
    epochs, batch_size: None for a choice by the number of samples. selection_epochs: None for half of them, 10 or more.
    learning_rate: Adam's, a tenth of it for the last quarter of the epochs, selecting and training alike. It suits few
    epochs. `labelsieve train` does the same with "mlp" for rows (two layers of 128) and, for pictures on a GPU, the
    paper's 200 epochs and rates.
    augment: what training does to pictures: "mirror" (and shift them), "shift", "none", or "auto": mirror, unless the
    nearest neighbours of mirrored pictures have other labels, as those of digits have.
    together: whether the networks of a method with two predict together (their mean) or the first alone.
    device: where it trains: "auto" (a GPU if there is one), "cpu", "cuda", "cuda:1" (a card by number) or "mps";
    predictions are made on the CPU.
    random_state: int, RandomState or None. On a CPU the same number gives the same networks; on a GPU sums may be taken
    in another order.

    Afterwards: networks_ (in inference mode), history_, method_, augment_ (what was done to pictures), and where the
    method asked for a selection also what INCV calls so: selected_, candidate_, removed_, iteration_, suspicion_,
    suggested_, suggested_probability_ (one a sample), noise_ratio_, transition_matrix_, noise_known_ (False where these
    two say nothing), expected_precision_, expected_recall_, notes_; besides, trust_ (a sentence on how far to trust the
    noise ratio), noise_interval_ (its 95 % interval) and selection_history_ (INCV's history_).
    WeakTrainingWarning says where trust_ is low: hard samples may then have been taken for wrong labels.
    """

    def __init__(
        self,
        network: Callable[..., nn.Module] | str | None = None,
        *,
        method: str | Method | type[Method] = "incv-coteaching",
        method_settings: dict[str, Any] | None = None,
        n_iterations: int = 4,
        remove_ratio: float | str = "auto",
        noise_ratio: float | None = None,
        epochs: int | None = None,
        selection_epochs: int | None = None,
        batch_size: int | None = None,
        learning_rate: float = LEARNING_RATE,
        augment: str = "auto",
        together: bool = True,
        device: str = "auto",
        random_state: Any = None,
    ) -> None:
        self.network = network
        self.method = method
        self.method_settings = method_settings
        self.n_iterations = n_iterations
        self.remove_ratio = remove_ratio
        self.noise_ratio = noise_ratio
        self.epochs = epochs
        self.selection_epochs = selection_epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.augment = augment
        self.together = together
        self.device = device
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> RobustClassifier:
        """Select (where the method needs it) and train."""
        check_settings(self)
        check_augment(self.augment)
        method = create(self.method, **(self.method_settings or {}))
        check_known_ratio(self.noise_ratio, method)
        X = without_torch(X)
        check_lengths(X, y)
        self._forget()
        X = self._checked(X, ensure_min_samples=2)
        self.classes_, given = encode_labels(y)
        classes = len(self.classes_)
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        self.augment_ = self._augment(X, given)
        store = self._staged(X, choose_device(self.device))
        factory = network_factory(self.network, store.shape, classes)
        check_factory(factory, store.shape, classes, name="network:")
        batch_size = self.batch_size or auto_batch_size(len(given))
        epochs = self.epochs or auto_epochs(len(given), batch_size, pictures=len(store.shape) > 1)

        everything, no_selection = np.arange(len(given)), {"candidates": None, "noise_ratio": self.noise_ratio}
        plan_sets: dict[str, Any] = {"train": everything} | no_selection
        needs_sets = method.needs() == "selection"
        needs_ratio = method.needs() == "ratio" and self.noise_ratio is None
        if needs_sets or needs_ratio:
            rounds = self.selection_epochs or max(10, epochs // 2)
            copies = copies_among(X, given)
            selection = self._select(store, factory, given, classes, batch_size, rounds, seed, copies)
            self._keep(selection, given)
            self._warn_of(selection)
            if needs_sets:
                chosen, candidates = training_sets(selection.selected, selection.candidate, given)
                eps = min(WORST_RATIO, max(0.0, 1 - selection.expected_precision))
                plan_sets = {"train": chosen, "candidates": candidates, "noise_ratio": eps}
            else:
                plan_sets["noise_ratio"] = min(WORST_RATIO, selection.noise_ratio)
        plan = Plan(name=method.name, labels=given, seed=seed, **plan_sets)
        method.check(plan, method.epochs(epochs))  # the engine does so as well, but tells nobody
        result = train(
            store, factory, method, [plan],
            schedule=one_drop(epochs, self.learning_rate), batch_size=batch_size, together=True, classes=classes,
        )[0]  # fmt: skip
        self.method_ = method
        self.history_ = result.history
        self.networks_ = [_network(factory, state) for state in result.states]
        if self._picture_shape:
            self._warn_if_weak(agreement(store, factory, result.states, given, plan.train), plan)
        return self

    def predict_proba(self, X: Any) -> FloatArray:
        """One row a sample, one column a class in the order of `classes_`."""
        check_is_fitted(self, "networks_")
        X = self._checked(without_torch(X))
        store = self._staged(X, torch.device("cpu"), fitted=True)
        networks = self.networks_ if self.together else self.networks_[:1]
        found = np.empty((len(X), len(self.classes_)))
        for start in range(0, len(X), ROWS_AT_ONCE):
            index = np.arange(start, start + ROWS_AT_ONCE) % len(X)
            rows = torch.from_numpy(index)[None]
            batch = store.batch(rows, torch.full_like(rows, store.plain))
            with torch.no_grad():
                each = [torch.softmax(network(batch).double(), 1) for network in networks]
            mean = torch.stack(each).mean(0).numpy()
            found[start : start + ROWS_AT_ONCE] = mean[: len(X) - start]
        return found

    def predict(self, X: Any) -> Any:
        """The most likely class of each sample."""
        most_likely = self.predict_proba(X).argmax(1)
        return self.classes_[most_likely]

    def _checked(self, X: Any, **fitting: Any) -> Any:
        from labelsieve.selection.estimators import in_our_words

        if hasattr(X, "toarray"):
            raise InputError(
                "X: sparse rows are not read here: give X.toarray(), or select with INCV, which reads them"
            )
        X = as_pictures(self._in_numbers(X, fitting=bool(fitting)))
        if is_frame(X):
            check_frame(X, allow_nan=False)
        many_axes = getattr(X, "ndim", 2) > 2
        self._check_shape(X, fitting=bool(fitting))
        options: dict[str, Any] = {"dtype": "numeric", "allow_nd": True} if many_axes else {"dtype": np.float64}
        try:
            return validate_data(self, X, reset=bool(fitting), **options, **fitting)
        except ValueError as problem:
            raise in_our_words(problem, X) from None

    def _in_numbers(self, X: Any, *, fitting: bool) -> Any:
        """Texts as the rows of numbers that `labelsieve run` trains on as well; anything else as it is."""
        from labelsieve.data.text import TextFeatures
        from labelsieve.selection.defaults import is_text

        texts = is_text(X)
        if fitting:
            if texts:
                check_words(X, own=False)
            self._text_features = TextFeatures.learn(X) if texts else None
        features = getattr(self, "_text_features", None)
        if texts and features is None:
            raise InputError("X: these are texts, but the classifier was fitted on numbers: give samples of that kind")
        if features is not None and not texts:
            raise InputError("X: the classifier was fitted on texts: give a list of strings")
        return features.rows(X) if features is not None else X

    def _staged(self, X: Any, device: torch.device, *, fitted: bool = False) -> Store:
        if self._picture_shape:
            if not fitted:
                store = stage_pictures(X, device, augment=self.augment_ != "none")
                if self.augment_ == "shift":
                    store.disable_mirroring()
                self._picture_statistics = (store.mean, store.std)
                return store
            from labelsieve.engine import PictureStore

            mean, std = self._picture_statistics
            return PictureStore(X, device, shift=0, flip=False, mean=mean, std=std)
        if not fitted:
            self._row_statistics = row_statistics(X, texts=self._text_features is not None)
        centre, spread = self._row_statistics
        return VectorStore((X - centre) / spread, device)

    def _augment(self, X: Any, given: IntArray) -> str:
        """mirror, shift or none; by all labels, for the networks that select learn from the same pictures."""
        if self.augment != "auto" or not self._picture_shape:
            return self.augment if self.augment != "auto" else "mirror"
        return "shift" if mirror_test(X, given, np.arange(len(X))).harms else "mirror"

    def _check_shape(self, X: Any, *, fitting: bool) -> None:
        """Predict pictures of the size that was fitted, arrays of that shape, and rows where rows were."""
        shape: tuple[int, ...] = tuple(X.shape[1:]) if getattr(X, "ndim", 2) > 2 else ()
        pictures = shape if len(shape) == 3 and X.dtype == np.uint8 else ()
        if fitting:
            if shape and not pictures and (self.network is None or isinstance(self.network, str)):
                raise InputError(only_own_networks(X, "network"))
            self._picture_shape, self._array_shape = pictures, () if pictures else shape
            return
        known = getattr(self, "_picture_shape", ()), getattr(self, "_array_shape", ())
        if (found := (pictures, () if pictures else shape)) != known:
            raise InputError(f"X: these are {_told(*found)}, the classifier was fitted on {_told(*known)}")

    def _warn_if_weak(self, share: float, plan: Plan) -> None:
        precision = None if plan.candidates is None else 1 - float(plan.noise_ratio or 0.0)
        if not has_learnt(share, plan.labels[plan.train], precision=precision):
            ways = what_may_help(self.augment_, option='augment="{}"')
            told = f"the network learnt little: it agrees with {share:.1%} of the labels it was trained on; {ways}"
            warnings.warn(told, WeakTrainingWarning, stacklevel=3)

    def _select(
        self,
        store: Store,
        factory: Any,
        given: IntArray,
        classes: int,
        batch_size: int,
        epochs: int,
        seed: int,
        groups: IntArray | None,
    ) -> JudgedSelection:
        from labelsieve.selection.incv import incv_steps
        from labelsieve.selection.run_selection import drive

        schedule = one_drop(epochs, self.learning_rate)
        trainer = EngineTrainer(
            store, factory, classes=classes, schedule=schedule, batch_size=batch_size, together=True
        )
        columns = store.shape[0] if len(store.shape) == 1 else None
        settings = replace(selection_settings(self), columns=columns)
        names = self.classes_.tolist()
        return drive(incv_steps(given, classes, settings=settings, seed=seed, names=names, groups=groups), trainer)

    def _forget(self) -> None:
        """What an earlier fit found; this one may find less."""
        for name in [name for name in vars(self) if name.endswith("_") and not name.startswith("_")]:
            delattr(self, name)

    def _warn_of(self, selection: JudgedSelection) -> None:
        """What INCV would say of classes, and that the noise is not what it seems where that may be so."""
        from labelsieve.selection.estimators import RareClassWarning
        from labelsieve.selection.incv import rare_classes

        rare = self.classes_[rare_classes(selection)].tolist()
        if rare:
            warnings.warn(about_rare(rare), RareClassWarning, stacklevel=3)
        if self.trust_ in (Trust.ROUGH, Trust.UNKNOWN) and selection.noise_ratio >= MATTERS:
            noise = NoiseEstimate.from_record(selection.history[0]["estimate"])
            known, ratio = noise.known, f"{100 * selection.noise_ratio:.1f} %"
            measured = f"the noise ratio, {ratio}, is not to be relied on" if known else "the noise ratio is not known"
            told = (
                f"{measured}: {noise.explanation}; right labels of hard samples may have been taken for wrong ones:"
                ' compare with method="standard" by cross-validation, or try another network'
            )
            warnings.warn(told, WeakTrainingWarning, stacklevel=3)

    def _keep(self, selection: JudgedSelection, given: IntArray) -> None:
        self.selected_: BoolArray = selection.selected
        self.candidate_: BoolArray = selection.candidate
        self.removed_: BoolArray = selection.removed
        self.iteration_ = selection.iteration
        self.suspicion_ = selection.suspicion
        self.suggested_ = self.classes_[np.where(selection.doubted(given), selection.predicted, given)]
        self.suggested_probability_ = selection.suggested_probability
        self.noise_ratio_ = selection.noise_ratio
        self.noise_known_ = selection.noise_known
        self.transition_matrix_ = selection.transition_matrix
        estimate = selection.history[0]["estimate"]
        self.noise_interval_: tuple[float, float] = (estimate["low"], estimate["high"])
        self.trust_ = NoiseEstimate.from_record(estimate).trust
        self.expected_precision_ = selection.expected_precision
        self.expected_recall_ = selection.expected_recall
        self.notes_ = list(selection.notes)
        self.selection_history_ = list(selection.history)


def _told(pictures: tuple[int, ...], arrays: tuple[int, ...]) -> str:
    if pictures:
        return f"pictures of {pictures[0]} x {pictures[1]} pixels and {pictures[2]} channels"
    return f"arrays of the shape {list(arrays)}" if arrays else "rows of numbers"


def _network(factory: Callable[..., nn.Module], state: dict[str, Any]) -> nn.Module:
    with borrowed():  # what it draws is overwritten, and nobody else's
        network = factory()
    network.load_state_dict(state)
    return network.eval()


__all__ = ["METHODS", "RobustClassifier", "auto_batch_size"]
