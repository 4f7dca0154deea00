"""NCV, INCV and CleanClassifier as scikit-learn estimators: select the samples whose labels are right, and predict."""

from __future__ import annotations

import warnings
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import ClassifierTags, check_random_state, get_tags
from sklearn.utils.validation import check_is_fitted

from labelsieve.checks import check_integer
from labelsieve.data.columns import TableX, encoding_of
from labelsieve.data.duplicates import kept_together, with_duplicates
from labelsieve.data.label_notes import label_notes, why_unknown
from labelsieve.errors import InputError
from labelsieve.execute.build_trainer import TrainerOptions, build_trainer, check_loss, device_type
from labelsieve.execute.embed_samples import embed, kind_of, with_similar
from labelsieve.execute.sklearn_trainer import Refit, TrainingSet, check_executor, take
from labelsieve.frames import (
    SHOWN_SUSPECTS,
    Suspect,
    frame_table,
    installed_frame,
    is_frame,
    sample_html,
    suspects_html,
)
from labelsieve.models.choose import ModelChoice, ModelKind, SelectorRequest, choose_selector
from labelsieve.progress import Progress
from labelsieve.selection.incv import drive, incv_steps, rare_classes
from labelsieve.selection.inputs import (
    check_lengths,
    check_samples,
    describe_samples,
    encode_labels,
    group_codes,
    rare_classes_warning,
    unlabelled,
)
from labelsieve.selection.settings import INCVSettings, ncv_settings, selection_passes
from labelsieve.types import CANDIDATE, REMOVED, SELECTED, VERDICTS, FloatArray, IntArray, Kind, LabelledData, Selection


class RareClassWarning(UserWarning):
    """A class has too few samples to be in both halves; its labels could not be checked and stay candidates."""


class MostLikelyClass:
    """`predict` of the estimators that have `predict_proba`."""

    classes_: NDArray[Any]

    def predict_proba(self, X: Any) -> FloatArray:
        """Return the probability of each class."""
        raise NotImplementedError

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the most likely class of new samples.

        Parameters
        ----------
        X : as in `fit`
            The samples. A data frame has the columns of `fit` in the same order, as scikit-learn requires.

        Returns
        -------
        ndarray of shape (n_samples,)
            The predicted classes.
        """
        likeliest = self.predict_proba(X).argmax(axis=1)
        return np.asarray(self.classes_[likeliest])


@dataclass(repr=False, eq=False)
class Selector(MostLikelyClass, BaseEstimator):  # type: ignore[misc]
    """What the selection estimators have in common: parameters, `fit`, predictions, data frame, view in a notebook."""

    estimator: Any = None
    _: KW_ONLY
    random_state: Any = None
    executor: Any = None
    protocol: str = "auto"
    pattern: str = "auto"
    checkpoint: str = "auto"
    epochs: int | None = None
    device: str = "auto"
    loss: str = "ce"
    repeats: int = 1
    embed: Any = None
    verbose: bool = False

    def fit(self, X: Any, y: Any, groups: Any = None) -> Self:
        """Select the samples whose labels are probably right.

        Parameters
        ----------
        X : array, sparse matrix, data frame, list of str, or pictures as uint8 [n, height, width, channels]
            The samples.
        y : array-like of shape (n_samples,)
            The given labels: ints, strings or bools.
        groups : array-like of shape (n_samples,), default=None
            Samples of one group, such as one patient, are never on both sides of a split. None keeps exact copies
            together.

        Returns
        -------
        self
            The fitted estimator.
        """
        settings = INCVSettings(
            pattern=self.pattern,
            checkpoint=self.checkpoint,
            repeats=self.repeats,
            protocol=self.protocol,  # type: ignore[arg-type]
        )
        select_and_store(self, X, y, self._settings(settings), groups)
        return self

    def _settings(self, shared: INCVSettings) -> INCVSettings:
        """Return the settings of the algorithm."""
        raise NotImplementedError

    def _check_model(self, choice: ModelChoice) -> None:
        """Raise InputError if the estimator does not support a model. INCV and NCV support all of them."""

    def predict_proba(self, X: Any) -> FloatArray:
        """Return the probability of each class for new samples, in the order of `classes_`.

        The classifier of the selection is trained once more, on the samples whose labels are more likely right than
        wrong; a random forest and an `SVC` (such as "edges") on all samples, suspicious ones with less weight. If a
        network selected the samples, `InputError` is raised: use `RobustClassifier` instead.

        Parameters
        ----------
        X : as in `fit`
            The samples. A data frame has the columns of `fit` in the same order, as scikit-learn requires.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            The probabilities.
        """
        check_is_fitted(self, "selected_")
        if self._refit is None:
            raise InputError("estimator: networks of the selection cannot predict; use RobustClassifier instead")
        if self.embed is not None:
            X = embed(X, self.embed, device=self.device)
        X = check_samples(self, X, model=self.estimator, encoding=self._encoding, fitting=False)
        refit: Refit = self._refit
        return refit.predict_proba(self._choice.rows(unlabelled(X), self._edges), len(self.classes_))

    def to_frame(self) -> Any:
        """Return one row per sample: label, predicted, probability, loss, verdict, iteration, suspicion, suggested.

        Returns
        -------
        DataFrame
            A data frame of pandas if it is installed, else of polars, else an arrow table.
        """
        check_is_fitted(self, "selected_")
        verdict = np.array(VERDICTS)[np.select([self.selected_, self.removed_], [SELECTED, REMOVED], CANDIDATE)]
        names = ("predicted", "probability", "loss", "iteration", "suspicion", "suggested")
        columns = {"label": self.labels_, "verdict": verdict} | {name: getattr(self, f"{name}_") for name in names}
        return installed_frame(columns)

    def _repr_html_(self) -> str:
        """Return the most suspicious labels as HTML; before `fit`, the parameters."""
        if "selected_" not in vars(self):
            return str(super()._html_repr())
        title = f"{type(self).__name__}: {int(self.selected_.sum()):,} of {len(self.labels_):,} labels selected"
        return suspects_html(title, self._suspects)

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        return {"text/plain": repr(self), "text/html": self._repr_html_()}

    def __sklearn_tags__(self) -> Any:
        """Return the tags of an estimator that needs labels and reads sparse rows if its classifier does."""
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        own = isinstance(self.estimator, BaseEstimator)
        tags.input_tags.sparse = not own or get_tags(self.estimator).input_tags.sparse
        tags.classifier_tags = ClassifierTags()  # `predict_proba` gives one column per class
        return tags


@dataclass(repr=False, eq=False)
class INCV(Selector):
    """Iterative noisy cross-validation (INCV): select the samples whose labels are probably right.

    Parameters
    ----------
    estimator : classifier, callable, str or None, default=None
        The model used for the selection: a scikit-learn classifier; a function that returns a new `torch.nn.Module`; a
        model name of the command line, such as "forest", "svm", "tfidf", "edges", "mlp" or "resnet32". None: a model
        that suits the type and number of the samples.
    n_iterations : int, default=4
        Maximum number of iterations. With protocol "auto", INCV stops earlier if an iteration changes few verdicts.
    remove_ratio : float or "auto", default="auto"
        Maximum number of removed samples per selected sample. "auto": no limit, or the rule of the paper's authors with
        protocol "paper".
    random_state : int, RandomState or None, default=None
        Seed. The same int gives the same result, on any number of workers.
    executor : None, "threads", "processes", int or object with `map`, default=None
        How several classifiers are trained at the same time: in threads, in processes, in this number of processes, or
        with the `map` method of the object. None: one after the other. It has no effect on networks.
    protocol : {"auto", "paper"}, default="auto"
        "auto" estimates the noise from the data; "paper" follows the code of the paper's authors.
    pattern : {"auto", "symmetric", "pair"}, default="auto"
        Noise pattern for protocol "paper"; "auto" is symmetric. It has no effect with protocol "auto", which estimates
        the noise.
    checkpoint : str, default="auto"
        Epoch of a network whose predictions are used. "last": the last epoch. "best-until-2": up to iteration 2 (or
        another number) the epoch with the best accuracy on the held-out labels, then the last epoch. "auto": as
        "best-until-1", but "last" for the model "fast", and as in the authors' code with protocol "paper".
    epochs : int or None, default=None
        Epochs of each training of a network. None: 50, or 10 for the model "fast".
    device : str, default="auto"
        Device of networks: "auto", "cpu", "cuda", "cuda:1" or "mps".
    loss : {"ce", "gce"}, default="ce"
        Loss of networks: cross-entropy, or generalised cross-entropy, which gives less weight to labels that the
        network considers unlikely.
    repeats : int, default=1
        Number of random splits per iteration. Their predictions are averaged. The time is proportional to it.
    embed : str, callable or None, default=None
        Pretrained model that converts X, a list of texts or pictures, to rows of numbers first; see `labelsieve.embed`.
    verbose : bool, default=False
        Show a progress bar with the remaining time.

    Attributes
    ----------
    labels_ : ndarray of shape (n_samples,)
        The given labels.
    selected_ : ndarray of bool, shape (n_samples,)
        Samples whose given label is predicted by models that were not trained on them, or more likely right than wrong.
    candidate_ : ndarray of bool, shape (n_samples,)
        Samples that are neither selected nor removed.
    removed_ : ndarray of bool, shape (n_samples,)
        Samples for which another class is more likely than the given label; with protocol "paper", samples with another
        prediction and a large loss. They are not used to train the models of later iterations.
    noise_ratio_ : float
        Estimated proportion of wrong labels.
    noise_interval_ : tuple of float or None
        95 % interval of `noise_ratio_`; None with protocol "paper".
    trust_ : Trust or None
        How reliable `noise_ratio_` is: trustworthy, fair, rough or unknown; None with protocol "paper".
    transition_matrix_ : ndarray of shape (n_classes, n_classes)
        T[i, j] is the probability of the given label j for the true class i.
    noise_known_ : bool
        False if the noise could not be estimated. `notes_` says why, and nothing is removed.
    predicted_ : ndarray of shape (n_samples,)
        Out-of-sample prediction; with protocol "auto", the mean of the predictions of all iterations.
    probability_ : ndarray of shape (n_samples,)
        Out-of-sample probability of the given label.
    confidence_ : ndarray of shape (n_samples,)
        Out-of-sample probability of the predicted label.
    loss_ : ndarray of shape (n_samples,)
        Cross-entropy of the given label.
    suspicion_ : ndarray of shape (n_samples,)
        Probability that the label is wrong. With protocol "paper" it only ranks the samples.
    suggested_ : ndarray of shape (n_samples,)
        The predicted label of samples that are not selected, and the given label of the others.
    suggested_probability_ : ndarray of shape (n_samples,)
        Probability that the predicted label is right.
    iteration_ : ndarray of int, shape (n_samples,)
        Iteration since which the verdict on the sample holds; 0 for candidates.
    expected_precision_ : float
        Expected label precision of the selected samples.
    expected_recall_ : float
        Expected label recall of the selected samples.
    history_ : list of dict
        Results of each iteration, such as the number of candidates.
    notes_ : list of str
        Notes about the results. The first one describes the noise estimate.
    classes_ : ndarray of shape (n_classes,)
        The class labels.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from labelsieve import INCV
    >>> X, y = load_wine(return_X_y=True)
    >>> y[:5] = 2  # five wrong labels
    >>> incv = INCV("forest", random_state=0).fit(X, y)
    >>> bool(incv.selected_[:5].any())
    False
    >>> sorted(map(int, incv.suspicion_.argsort()[-5:]))
    [0, 1, 2, 3, 4]
    >>> incv.predict(X[:3]).tolist()  # the same type of classifier
    [0, 0, 0]
    >>> frame = incv.to_frame()  # one row per sample
    """

    _: KW_ONLY
    n_iterations: int = 4
    remove_ratio: Any = "auto"

    def _settings(self, shared: INCVSettings) -> INCVSettings:
        return replace(shared, n_iterations=self.n_iterations, remove_ratio=self.remove_ratio)


@dataclass(repr=False, eq=False)
class NCV(Selector):
    """Noisy cross-validation: one iteration of INCV that removes nothing.

    Parameters and attributes are those of `INCV`, without `n_iterations` and `remove_ratio`.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from labelsieve import NCV
    >>> X, y = load_wine(return_X_y=True)
    >>> ncv = NCV("forest", random_state=0).fit(X, y)
    >>> bool(ncv.removed_.any()), len(ncv.history_)
    (False, 1)
    """

    def _settings(self, shared: INCVSettings) -> INCVSettings:
        return ncv_settings(shared)


@dataclass(repr=False, eq=False)
class CleanClassifier(ClassifierMixin, INCV):  # type: ignore[misc]
    """A classifier for data with wrong labels: select with INCV, train on the labels that are probably right, predict.

    A random forest or an `SVC` is trained on all labels, suspicious ones with less weight.

    Parameters and attributes are those of `INCV`. `estimator` is any scikit-learn classifier, the name of a classifier
    such as "forest" or "tfidf", or None, which chooses one that suits the samples. Networks are not supported: use
    `RobustClassifier`.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from sklearn.naive_bayes import GaussianNB
    >>> from labelsieve import CleanClassifier
    >>> X, y = load_wine(return_X_y=True)
    >>> noisy = y.copy()
    >>> noisy[::8] = 2  # wrong labels
    >>> model = CleanClassifier(GaussianNB(), random_state=0).fit(X, noisy)
    >>> bool(model.score(X, y) > 0.95)
    True
    """

    def _check_model(self, choice: ModelChoice) -> None:
        if choice.is_network:
            raise InputError(
                f"estimator: CleanClassifier does not support networks, and {choice.name!r} is one; use "
                'RobustClassifier, or a classifier such as "forest" (pictures: "edges")'
            )


def select_and_store(selector: Selector, X: Any, y: Any, settings: INCVSettings, groups: Any) -> None:
    """Run a selection on users' samples and store what it found as the attributes of a fitted estimator."""
    _check_parameters(selector, groups)
    check_lengths(X, y)
    original, embedded = X, selector.embed is not None
    if embedded:
        X = embed(X, selector.embed, device=selector.device)
    X = check_samples(selector, X, y, model=selector.estimator)
    classes, codes = encode_labels(y)
    seed = draw_seed(selector.random_state)
    samples = replace(describe_samples(X), embedded=embedded)
    request = SelectorRequest(
        selector.estimator, device_type(selector.device, samples), selector.loss, selector.epochs, selector.protocol,
        option="estimator",
    )  # fmt: skip
    choice = choose_selector(samples, len(classes), request)
    selector._check_model(choice)
    kind: Kind = "table" if samples.kind == "arrays" else samples.kind
    data = with_duplicates(X, codes, kind)
    together = _groups(data, groups, embedded_from=original if embedded else None)
    data = replace(data, classes=tuple(classes.tolist()), kind=kind, groups=together)
    options = TrainerOptions(selector.epochs, selector.loss, selector.device, selector.executor, selector.protocol)
    trainer = build_trainer(choice, data, options)
    notes = label_notes(data)
    incv = settings.for_model(choice, why_unknown(notes))
    steps = incv_steps(codes, classes.tolist(), settings=incv, seed=seed, groups=together)
    total = len(codes) * selection_passes(incv)
    with Progress(silent=not selector.verbose).trainings(trainer, total):
        selection = drive(steps, trainer)
    warn_about_rare_classes(selection, classes)
    store_selection(selector, selection, classes, codes)
    selector.predicted_ = classes[selection.predicted]
    selector.probability_, selector.confidence_ = selection.probability, selection.confidence
    selector.loss_ = selection.loss
    selector.history_ = list(selection.history)
    selector.notes_ += [*(X.notes if isinstance(X, TableX) else ()), *map(str, notes)]
    selector.labels_ = classes[codes]
    selector._choice, selector._refit, selector._encoding = choice, None, encoding_of(X)
    if choice.kind is ModelKind.CLASSIFIER:
        samples_used = TrainingSet.choose(choice.classifier, codes, selection)
        selector._edges = choice.learn_edges(data)
        selector._refit = Refit.train(choice.classifier, choice.rows(data, selector._edges), codes, samples_used, seed)
    suspects = np.flatnonzero(selection.is_suspect(codes))
    ranked = suspects[np.argsort(-selection.suspicion[suspects], kind="stable")][:SHOWN_SUSPECTS]
    samples_shown = _samples_of(original if embedded or is_frame(original) else X, ranked)
    selector._suspects = [
        Suspect(i, sample_html(sample), selector.labels_[i], selector.predicted_[i], float(selection.suspicion[i]))
        for i, sample in zip(ranked.tolist(), samples_shown, strict=True)
    ]


def _check_parameters(selector: Selector, groups: Any) -> None:
    check_executor(selector.executor)
    check_loss(selector.loss)
    if selector.epochs is not None:
        check_integer("epochs", selector.epochs, least=1, otherwise=", or None")
    if groups is not None and selector.protocol == "paper":
        raise InputError('groups: protocol="paper" does not support groups; omit them, or use protocol="auto"')


def _groups(data: LabelledData, groups: Any, *, embedded_from: Any) -> IntArray | None:
    """Return one code per sample, equal for samples that stay on one side of every split; None if there are none.

    These are the samples of one of the user's `groups`, by default copies. If the data are embeddings, `embedded_from`
    are the texts or pictures.
    """
    if groups is not None:
        return group_codes(groups, len(data))
    if embedded_from is not None:
        data = with_similar(replace(data, kind=kind_of(embedded_from), embedding=data.x))
    return kept_together(data)


def _samples_of(X: Any, rows: IntArray) -> list[Any]:
    """Return some samples as texts, pictures, rows of numbers or, of a data frame, cells by column."""
    if is_frame(X):
        return list(frame_table(take(X, rows)).to_pylist())
    taken = take(X, rows)
    return list(taken.toarray() if issparse(taken) else taken)


def warn_about_rare_classes(selection: Selection, classes: NDArray[Any]) -> None:
    """Warn about classes whose labels could not be checked."""
    rare = classes[list(rare_classes(selection))].tolist()
    if rare:
        warnings.warn(rare_classes_warning(rare), RareClassWarning, stacklevel=4)  # where `fit` is called


def store_selection(estimator: Any, selection: Selection, classes: NDArray[Any], given: IntArray) -> None:
    """Store what a selection found as the attributes that INCV, NCV and RobustClassifier have in common."""
    estimator.classes_ = classes
    for name in ("selected", "candidate", "removed", "iteration", "suspicion", "suggested_probability"):
        setattr(estimator, f"{name}_", getattr(selection, name))
    for name in ("noise_ratio", "noise_known", "transition_matrix", "expected_precision", "expected_recall"):
        setattr(estimator, f"{name}_", getattr(selection, name))
    estimator.suggested_ = classes[
        np.where(selection.is_suspect(given) & ~selection.selected, selection.predicted, given)
    ]
    estimator.noise_interval_, estimator.trust_ = None, None
    if selection.noise is not None:
        estimator.noise_interval_, estimator.trust_ = (selection.noise.low, selection.noise.high), selection.noise.trust
    estimator.notes_ = list(selection.notes)


def draw_seed(random_state: Any) -> int:
    """Return a seed from anything that scikit-learn accepts as random_state; an int is used as it is."""
    if isinstance(random_state, int | np.integer) and not isinstance(random_state, bool):
        if random_state < 0:
            raise InputError(f"random_state: expected an integer of at least 0, got {random_state}")
        return int(random_state)
    return int(check_random_state(random_state).randint(2**31 - 1))
