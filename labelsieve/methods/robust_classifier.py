"""A scikit-learn classifier that is not misled by wrong labels: INCV selects, a robust method trains.

    RobustClassifier(random_state=0).fit(X, y).predict(X_new)

Rows of numbers get a small MLP, texts become rows of numbers first, pictures (uint8 [n, height, width, channels]) get a
small CNN, anything else the network of your `network` factory. Both steps train on the engine, on whatever device there
is.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import nn

from labelsieve.data.conflicts import copies_among
from labelsieve.engine import Method, Plan, Store, VectorStore, stage_pictures, train
from labelsieve.engine.agreement import agreement, has_learnt, what_may_help
from labelsieve.engine.augment import check_augment, mirror_test, unmirrored
from labelsieve.engine.device import choose_device
from labelsieve.engine.factory import check_factory
from labelsieve.errors import InputError
from labelsieve.execute.lockstep import EngineTrainer, row_statistics
from labelsieve.methods import METHODS, create
from labelsieve.methods.classifier_settings import check_settings, network_factory, selection_settings
from labelsieve.methods.defaults import (
    LEARNING_RATE,
    WORST_RATIO,
    auto_batch_size,
    auto_epochs,
    one_drop,
    training_sets,
)
from labelsieve.selection.inputs import check_lengths, encode_labels
from labelsieve.types import BoolArray, FloatArray, IntArray, Selection

ROWS_AT_ONCE = 256  # predictions go through the network in blocks of one size, so that no row depends on its company


class WeakTrainingWarning(UserWarning):
    """A network agrees with far fewer of the labels it was trained on than are expected to be right."""


class RobustClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Trains a network on noisy labels.

    method: a name of `labelsieve.methods.METHODS`, or a method of your own (docs/methods.md): an instance of
    `labelsieve.engine.method.Method`, its class, or "package.module:Name". `method_settings`: a dict of its settings.
    network: a factory of torch modules, called without arguments, that map a batch to logits; a name that the command
    line's `--network` takes ("mlp", "small-cnn", "resnet32"); None for a small one, of rows two layers of 64.
    n_iterations, remove_ratio: INCV's. noise_ratio: of the given labels, for `coteaching` (None: INCV estimates it);
    `incv-coteaching` asks INCV how noisy the samples are that it selected.
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
    method asked for a selection also
    selected_, candidate_, removed_ (one a sample), suspicion_, noise_ratio_, transition_matrix_, noise_known_ (False
    where these two say nothing).
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
        check_lengths(X, y)
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
            self._keep(selection)
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
        if X.ndim == 4:
            self._warn_if_weak(agreement(store, factory, result.states, given, plan.train), plan)
        return self

    def predict_proba(self, X: Any) -> FloatArray:
        """One row a sample, one column a class in the order of `classes_`."""
        check_is_fitted(self, "networks_")
        X = self._checked(X)
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

        X = self._in_numbers(X, fitting=bool(fitting))
        pictures = getattr(X, "ndim", 2) == 4
        if not fitting:
            self._check_pictures(np.shape(X)[1:] if pictures else ())
        options: dict[str, Any] = {"dtype": "numeric", "allow_nd": True} if pictures else {"dtype": np.float64}
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
            self._text_features = TextFeatures.learn(X) if texts else None
        features = getattr(self, "_text_features", None)
        if texts and features is None:
            raise InputError("X: these are texts, but the classifier was fitted on numbers: give samples of that kind")
        if features is not None and not texts:
            raise InputError("X: the classifier was fitted on texts: give a list of strings")
        return features.rows(X) if features is not None else X

    def _staged(self, X: Any, device: torch.device, *, fitted: bool = False) -> Store:
        if X.ndim == 4:
            if not fitted:
                store = stage_pictures(X, device, augment=self.augment_ != "none")
                store = unmirrored(store) if self.augment_ == "shift" else store
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
        self._picture_shape: tuple[int, ...] = X.shape[1:] if X.ndim == 4 else ()
        if self.augment != "auto" or X.ndim != 4:
            return self.augment if self.augment != "auto" else "mirror"
        return "shift" if mirror_test(X, given, np.arange(len(X))).harms else "mirror"

    def _check_pictures(self, shape: tuple[int, ...]) -> None:
        """Predict pictures of the size that was fitted, and rows where rows were."""
        fitted = getattr(self, "_picture_shape", ())
        if shape != fitted:
            given, known = (
                f"pictures of {s[0]} x {s[1]} pixels and {s[2]} channels" if s else "rows of numbers"
                for s in (shape, fitted)
            )
            raise InputError(f"X: these are {given}, the classifier was fitted on {known}")

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
    ) -> Selection:
        from labelsieve.selection.drive import drive
        from labelsieve.selection.incv import incv_steps

        schedule = one_drop(epochs, self.learning_rate)
        trainer = EngineTrainer(
            store, factory, classes=classes, schedule=schedule, batch_size=batch_size, together=True
        )
        settings = selection_settings(self)
        names = list(self.classes_)
        return drive(incv_steps(given, classes, settings=settings, seed=seed, names=names, groups=groups), trainer)

    def _keep(self, selection: Selection) -> None:
        self.selected_: BoolArray = selection.selected
        self.candidate_: BoolArray = selection.candidate
        self.removed_: BoolArray = selection.removed
        self.suspicion_ = selection.suspicion
        self.noise_ratio_ = selection.noise_ratio
        self.noise_known_ = selection.noise_known
        self.transition_matrix_ = selection.transition_matrix


def _network(factory: Callable[..., nn.Module], state: dict[str, Any]) -> nn.Module:
    network = factory()
    network.load_state_dict(state)
    return network.eval()


__all__ = ["METHODS", "RobustClassifier", "auto_batch_size"]
