"""NCV and INCV as scikit-learn estimators: fit(X, y), then look at which labels are right.

incv = INCV(random_state=0).fit(X, y)
X[incv.selected_], y[incv.selected_]          labels that held-out predictions confirm
np.argsort(-incv.suspicion_)[:20]             the twenty most doubtful ones
"""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from labelsieve.checks import whole
from labelsieve.data.duplicates import copies_among
from labelsieve.errors import InputError
from labelsieve.execute.local import check_executor
from labelsieve.execute.losses import check_loss, method_of
from labelsieve.execute.sklearn_trainer import SklearnTrainer
from labelsieve.selection.defaults import (
    CLASSIFIERS,
    EDGES,
    KERNEL_SAMPLES,
    default_estimator,
    is_text,
    named_classifier,
)
from labelsieve.selection.incv import incv_steps, rare_classes
from labelsieve.selection.inputs import about_rare, check_samples, columns_of, encode_labels, group_codes
from labelsieve.selection.ncv import ncv_settings
from labelsieve.selection.run_selection import drive
from labelsieve.selection.settings import INCVSettings
from labelsieve.types import Trainer

FAST = "fast"
LEAST_SIDE = 16  # pixels of pictures that `edges` tells apart


class RareClassWarning(UserWarning):
    """A class has too few samples to be in both halves; its labels could not be checked and stay candidates."""


class INCV(BaseEstimator):  # type: ignore[misc]
    """Iterative noisy cross-validation: finds the samples whose labels are right.

    Parameters
    ----------
    estimator : a scikit-learn classifier (with `predict_proba`, `decision_function` or only `predict`), a function that
        returns a new `torch.nn.Module`, one of the command line's names: "boosting", "forest", "logistic", "nearest",
        "neighbours", "svm", "tfidf" (texts), "trees", "mlp" (a network), for pictures (uint8 [n, height, width,
        channels]) "edges" (quick), "fast" (a network made for a GPU) or another network ("small-cnn", "resnet32"), or
        None: a sensible one for the data; of pictures "edges", up to 5,000 of at least 16 pixels a side.
    n_iterations : rounds; fewer are run where a further one would add nothing.
    remove_ratio : samples removed for each one selected; "auto" takes it from the measured noise.
    random_state : int, RandomState or None. The same number gives the same answer, on any number of workers.
    executor : where the trainings run: None, "threads", "processes", a number of workers, or an object with `map`.
    protocol : "auto" measures the noise; "paper" does what the authors' code does and wants to be told `pattern`.
    pattern : "auto", "symmetric" or "pair", where the noise pattern is known.
    checkpoint : which epoch of a network selects: "auto", "last", "best-until-2".
    repeats : random splits in each iteration, whose predictions are averaged: better, for so many times the cost.
    epochs, device, loss : for networks. epochs: None is 50, or 10 of the fast one. loss: "ce", or "gce", generalised
        cross-entropy, which learns doubtful labels late.

    Attributes
    ----------
    selected_, candidate_, removed_ : bool, one a sample: disjoint, together everything.
    noise_ratio_, transition_matrix_ : share of wrong labels; T[i, j] = P(given label j | true class i).
    noise_known_ : bool; False where the labels cannot be told from random ones, the classifier misses whole classes or
        is equally sure of most samples: the two above and what is expected of the selected then say nothing, nothing is
        removed on the strength of it unless you say so, and `notes_[0]` says why. It says how far to trust them
        elsewhere, too.
    predicted_, probability_, loss_ : held-out prediction, probability of the given label, its cross-entropy.
    suspicion_ : 0..1, the probability that the label is wrong; sorting by it ranks the suspects.
    suggested_ : the predicted label where the given one is doubted, else the given one: it differs for the suspects.
    suggested_probability_ : that the predicted label is the true one (nan with protocol "paper", which judges nothing;
        `suspicion_` is then a rank only).
    iteration_ : in which iteration the verdict fell; 0 for candidates.
    expected_precision_, expected_recall_ : of the selected samples, as far as can be told without the truth.
    history_, notes_ : each iteration in numbers; what was concluded, in sentences.
    classes_, n_features_in_, feature_names_in_ : as everywhere in scikit-learn.
    """

    def __init__(
        self,
        estimator: Any = None,
        *,
        n_iterations: int = 4,
        remove_ratio: Any = "auto",
        random_state: Any = None,
        executor: Any = None,
        protocol: str = "auto",
        pattern: str = "auto",
        checkpoint: str = "auto",
        epochs: int | None = None,
        device: str = "auto",
        loss: str = "ce",
        repeats: int = 1,
    ) -> None:
        self.estimator = estimator
        self.n_iterations = n_iterations
        self.remove_ratio = remove_ratio
        self.random_state = random_state
        self.executor = executor
        self.protocol = protocol
        self.pattern = pattern
        self.checkpoint = checkpoint
        self.epochs = epochs
        self.device = device
        self.loss = loss
        self.repeats = repeats

    def fit(self, X: Any, y: Any, groups: Any = None) -> INCV:
        """Select the clean labels of `y`.

        `groups`: one value a sample; samples of one group (a patient, a film) are never on both sides of a split. None
        keeps exact copies together, which would confirm each other's labels.
        """
        settings = INCVSettings(
            n_iterations=self.n_iterations,
            remove_ratio=self.remove_ratio,
            pattern=self.pattern,
            checkpoint=self.checkpoint,
            repeats=self.repeats,
            protocol=self.protocol,  # type: ignore[arg-type]
        )
        self._select(X, y, settings, "incv", groups)
        return self

    def _select(self, X: Any, y: Any, settings: INCVSettings, name: str, groups: Any) -> None:
        check_executor(self.executor)
        if self.epochs is not None:
            whole("epochs", self.epochs, least=1, otherwise=", or None")
        try:
            X = check_samples(self, X, y)
        except ValueError as problem:
            raise in_our_words(problem, X) from None
        if groups is not None and self.protocol == "paper":
            raise InputError("groups: the paper's protocol has none; choose protocol auto")
        classes, codes = encode_labels(y)
        seed = draw_seed(self.random_state)
        kept_together = copies_among(X, codes, text=is_text(X)) if groups is None else group_codes(groups, len(codes))
        trainer = self._trainer(X, len(classes))
        if self.protocol == "auto" and is_pictures(X):
            trainer.disable_harmful_mirroring(X, codes)
        if isinstance(self.estimator, str) and self.estimator == FAST:
            settings = settings.for_fast_network()
        classifiers = isinstance(trainer, SklearnTrainer)
        settings = replace(
            settings, networks=not classifiers, own_half=classifiers and is_text(X), columns=columns_of(X)
        )
        steps = incv_steps(
            codes, len(classes), settings=settings, seed=seed, name=name, names=classes.tolist(), groups=kept_together
        )
        selection = drive(steps, trainer)
        rare = classes[list(rare_classes(selection))].tolist()
        if rare:
            warnings.warn(about_rare(rare), RareClassWarning, stacklevel=3)
        self.classes_ = classes
        self.selected_ = selection.selected
        self.candidate_ = selection.candidate
        self.removed_ = selection.removed
        self.noise_ratio_ = selection.noise_ratio
        self.noise_known_ = selection.noise_known
        self.transition_matrix_ = selection.transition_matrix
        self.predicted_: NDArray[Any] = classes[selection.predicted]
        self.suggested_: NDArray[Any] = classes[np.where(selection.doubted(codes), selection.predicted, codes)]
        self.probability_ = selection.probability
        self.loss_ = selection.loss
        self.suspicion_ = selection.suspicion
        self.suggested_probability_ = selection.suggested_probability
        self.iteration_ = selection.iteration
        self.expected_precision_ = selection.expected_precision
        self.expected_recall_ = selection.expected_recall
        self.history_ = list(selection.history)
        self.notes_ = list(selection.notes)

    def _trainer(self, X: Any, classes: int) -> Trainer:
        if isinstance(self.estimator, str) and self.estimator == FAST:
            return self._fast_trainer(X, classes)
        estimator = default_for(X) if self.estimator is None else self.estimator
        if isinstance(estimator, str):
            X, estimator = named_for(estimator, X, classes)
        network = is_network_factory(estimator)
        check_loss(self.loss, network=network)
        if network:
            from labelsieve.execute.lockstep import EngineTrainer

            trainer: Trainer = EngineTrainer(
                X, estimator, classes=classes, epochs=50 if self.epochs is None else self.epochs, device=self.device,
                method=method_of(self.loss),
            )  # fmt: skip
            return trainer
        if isinstance(estimator, type) or not hasattr(estimator, "fit") or not hasattr(estimator, "predict"):
            raise InputError(
                "estimator: expected a scikit-learn classifier or a function that returns a torch module,"
                f" got {estimator!r}"
            )
        check_classifier(estimator)
        return SklearnTrainer(X, estimator, classes, self.executor)

    def _fast_trainer(self, X: Any, classes: int) -> Trainer:
        from labelsieve.engine.fast import EPOCHS
        from labelsieve.execute.fast import LABEL_SMOOTHING, FastTrainer

        method = method_of(self.loss, label_smoothing=LABEL_SMOOTHING)
        epochs = EPOCHS if self.epochs is None else self.epochs
        return FastTrainer(X, classes=classes, epochs=epochs, method=method, device=self.device)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.input_tags.sparse = True
        return tags


class NCV(INCV):
    """Noisy cross-validation: one round, nothing removed. Parameters and attributes as in INCV."""

    def __init__(
        self,
        estimator: Any = None,
        *,
        random_state: Any = None,
        executor: Any = None,
        protocol: str = "auto",
        pattern: str = "auto",
        checkpoint: str = "auto",
        epochs: int | None = None,
        device: str = "auto",
        loss: str = "ce",
        repeats: int = 1,
    ) -> None:
        super().__init__(
            estimator,
            random_state=random_state,
            executor=executor,
            protocol=protocol,
            pattern=pattern,
            checkpoint=checkpoint,
            epochs=epochs,
            device=device,
            loss=loss,
            repeats=repeats,
        )

    def fit(self, X: Any, y: Any, groups: Any = None) -> NCV:
        """Select the clean labels of `y`; `groups` as in INCV."""
        settings = INCVSettings(
            pattern=self.pattern,
            checkpoint=self.checkpoint,
            repeats=self.repeats,
            protocol=self.protocol,  # type: ignore[arg-type]
        )
        self._select(X, y, ncv_settings(settings), "ncv", groups)
        return self


def is_network_factory(estimator: Any) -> bool:
    """A function or class that makes a network; a network itself is refused, for it can be trained only once."""
    if hasattr(estimator, "state_dict") and not isinstance(estimator, type):
        raise InputError("estimator: give a function that returns a new torch module, not a module")
    return callable(estimator) and not hasattr(estimator, "fit")


def check_classifier(estimator: Any) -> None:
    """Raise InputError for what answers with no classes; one that does not say what it is, is taken at its word."""
    from sklearn.base import is_classifier
    from sklearn.utils import get_tags

    kind = get_tags(estimator).estimator_type if hasattr(estimator, "__sklearn_tags__") else None
    if kind is not None and not is_classifier(estimator):
        what = f"{'an' if kind[0] in 'aeiou' else 'a'} {kind.replace('_', ' ')}"
        raise InputError(f"estimator: a classifier is needed: {type(estimator).__name__} is {what}")
    if not hasattr(estimator, "get_params"):
        raise InputError(
            f"estimator: {type(estimator).__name__} has no get_params, without which scikit-learn cannot copy it; "
            "derive it from sklearn.base.BaseEstimator"
        )


def default_for(x: Any) -> Any:
    """The classifier, or its name, where none is given; a network for pictures is the user's choice: it takes long."""
    if getattr(x, "ndim", 2) <= 2:
        return default_estimator(x)
    if is_pictures(x) and min(x.shape[1:3]) >= LEAST_SIDE and len(x) <= KERNEL_SAMPLES:
        return EDGES
    raise InputError(
        f"estimator: None takes up to {KERNEL_SAMPLES:,} pictures of {LEAST_SIDE} pixels a side and more, uint8 "
        f"[n, height, width, channels], not {x.dtype} {list(x.shape)}; give 'edges', 'fast' or a function that "
        "returns a network"
    )


def is_pictures(x: Any) -> bool:
    return getattr(x, "ndim", 2) == 4 and x.dtype == np.uint8


def named_for(name: str, x: Any, classes: int) -> tuple[Any, Any]:
    """What the classifier or network of that name reads of samples like these, and itself."""
    if name not in CLASSIFIERS:
        return x, named_network(name, x, classes)
    if is_text(x) != (name == "tfidf"):
        told = "does not read texts: choose 'tfidf'" if is_text(x) else "reads texts, not rows of numbers"
        raise InputError(f"estimator: {name!r} {told}")
    if name == EDGES:
        from labelsieve.data.edges import edge_features

        if not is_pictures(x):
            raise InputError(f"estimator: {name!r} reads pictures: give uint8 [n, height, width, channels]")
        return edge_features(x), named_classifier(name)
    if getattr(x, "ndim", 2) > 2:
        raise InputError(f"estimator: {name!r} reads rows of numbers: give X.reshape(len(X), -1)")
    return x, named_classifier(name, x.shape[0] if hasattr(x, "shape") else len(x), sparse=hasattr(x, "toarray"))


def named_network(name: str, x: Any, classes: int) -> Any:
    """The factory of a network that the command line's `--model` calls so, for samples like these."""
    from labelsieve.models.catalog import MODELS, create

    networks = [known for known in MODELS if known != "auto"]
    if name not in networks:
        names = ", ".join(map(repr, (FAST, *CLASSIFIERS, *networks)))
        raise InputError(f"estimator: {name!r} is not known; by name go {names}, or give a classifier itself")
    if is_text(x):
        raise InputError(f"estimator: {name!r} does not read texts: choose 'tfidf'")
    if is_pictures(x):
        height, width, channels = x.shape[1:]
        return create(name, (channels, height, width), classes)
    if x.ndim > 2:
        raise InputError(f"estimator: {name!r} reads pictures as uint8 [n, height, width, channels], not {x.dtype}")
    return create(name, (x.shape[1],), classes)


def in_our_words(problem: ValueError, x: Any) -> ValueError:
    """scikit-learn's refusal of samples, told as what is wrong, where, and what to do; any other one as it is."""
    if isinstance(problem, InputError):
        return problem
    if "could not convert string to float" in str(problem):
        return InputError(
            "X: it holds texts where numbers are needed; give a plain list of texts, or turn these columns into "
            "numbers first (sklearn.preprocessing.OneHotEncoder)"
        )
    if "NaN" not in str(problem) and "infinity" not in str(problem):
        return problem
    try:
        rows = np.unique(np.nonzero(~np.isfinite(np.asarray(x, dtype=np.float64)))[0])
        where = f" in {len(rows):,} samples, the first is sample {rows[0]}"
    except (TypeError, ValueError, IndexError):  # sparse, or with None among the numbers
        where = ""
    return InputError(
        f"X: it contains NaN or infinity{where}; fill these values (sklearn.impute.SimpleImputer) or drop the samples"
    )


def draw_seed(random_state: Any) -> int:
    """A number from whatever scikit-learn accepts; an int is itself."""
    if isinstance(random_state, int | np.integer) and not isinstance(random_state, bool):
        if random_state < 0:
            raise InputError(f"random_state: expected a number of at least 0, got {random_state}")
        return int(random_state)
    from sklearn.utils import check_random_state

    return int(check_random_state(random_state).randint(2**31 - 1))
