"""RobustClassifier: selection and robust training as one scikit-learn classifier."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any

import numpy as np
import torch
from scipy.sparse import issparse
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted
from torch import nn

from labelsieve.checks import check_integer, check_range, is_number
from labelsieve.data.columns import Encoding, encoding_of
from labelsieve.data.duplicates import copies_among
from labelsieve.engine import Method, Plan, Store, train
from labelsieve.engine.augment import check_augment, mirror_test
from labelsieve.engine.bundle import check_factory
from labelsieve.engine.device import choose_device
from labelsieve.engine.evaluate import agreement, has_learnt, mean_of_views, what_may_help
from labelsieve.engine.rng import preserve_rng
from labelsieve.engine.schedule import DEFAULT_RATE, auto_batch_size, auto_epochs, one_drop
from labelsieve.errors import InputError
from labelsieve.execute.network_trainer import EngineTrainer
from labelsieve.methods import METHODS, create
from labelsieve.selection.estimators import MostLikelyClass, store_selection, warn_about_rare_classes
from labelsieve.selection.incv import drive, incv_steps
from labelsieve.selection.inputs import check_lengths, check_samples, encode_labels, unlabelled, without_torch
from labelsieve.selection.settings import INCVSettings
from labelsieve.types import FloatArray, IntArray, LabelledData, Selection, Trust
from labelsieve.workflow.model_file import SampleReader, network_for
from labelsieve.workflow.train import with_selection

MIN_WARNED_RATIO = 0.05  # a lower noise ratio changes little, so an unreliable one is not worth a warning
MIN_SELECTION_EPOCHS = 10  # fewer leave networks that have not learned small data sets
ROWS_PER_BLOCK = 256  # all blocks have this size, so that a prediction does not depend on the other rows


class WeakTrainingWarning(UserWarning):
    """The networks learned too little, or they cannot separate wrong labels from hard samples."""


@dataclass(repr=False, eq=False)
class RobustClassifier(MostLikelyClass, ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Train a network on noisy labels: INCV selects samples, a robust method trains on them.

    Parameters
    ----------
    network : callable, str or None, default=None
        A function that returns a new `torch.nn.Module`, which may read arrays of any shape, or a name such as "mlp",
        "small-cnn" or "resnet32". None: a network that suits the samples and the device, as in `labelsieve train`.
    method : str, Method or type, default="incv-coteaching"
        The name of a method, such as "coteaching" or "standard", "package.module:Name", or a custom method.
    method_settings : dict or None, default=None
        Settings of the method.
    n_iterations, remove_ratio
        As in `INCV`.
    noise_ratio : float or None, default=None
        Proportion of wrong labels, for the method "coteaching" only. None: INCV estimates it.
    epochs, batch_size : int or None, default=None
        Epochs and batch size of the training. None: depends on the number of samples.
    selection_epochs : int or None, default=None
        Epochs of each training of INCV. None: half of `epochs`, but at least 10.
    learning_rate : float, default=0.005
        Learning rate of Adam. It is divided by 10 for the last quarter of the epochs.
    augment : {"auto", "mirror", "shift", "none"}, default="auto"
        Augmentation of pictures. "auto" mirrors them unless the class of a picture depends on left and right.
    together : bool, default=True
        If the method trains two networks: True averages their predictions, False uses those of the first network.
    device : str, default="auto"
        Device of the training: "auto", "cpu", "cuda", "cuda:1" or "mps". Predictions run on the CPU.
    random_state : int, RandomState or None, default=None
        Seed. On a CPU the same int gives the same networks.

    Attributes
    ----------
    networks_ : list of torch.nn.Module
        The trained networks.
    classes_ : ndarray of shape (n_classes,)
        The class labels.
    method_ : Method
        The method with its settings.
    history_ : list of dict
        Loss, accuracy on the given labels and learning rate of each epoch.
    augment_ : str
        The augmentation that was used.
    selection_history_ : list of dict
        `history_` of the selection. This and the attributes of the selection (`selected_`, `suspicion_`,
        `noise_ratio_`, `notes_` and others, as in `INCV`) exist only if the method needs a selection or the noise
        ratio.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from sklearn.preprocessing import scale
    >>> from labelsieve import RobustClassifier
    >>> X, y = load_wine(return_X_y=True)
    >>> model = RobustClassifier(method="standard", epochs=10, random_state=0, device="cpu").fit(scale(X), y)
    >>> model.score(scale(X), y) > 0.9
    True
    """

    network: Any = None
    _: KW_ONLY
    method: Any = "incv-coteaching"
    method_settings: Any = None
    n_iterations: int = 4
    remove_ratio: Any = "auto"
    noise_ratio: float | None = None
    epochs: int | None = None
    selection_epochs: int | None = None
    batch_size: int | None = None
    learning_rate: float = DEFAULT_RATE
    augment: str = "auto"
    together: bool = True
    device: str = "auto"
    random_state: Any = None

    def fit(self, X: Any, y: Any) -> RobustClassifier:
        """Select samples, if the method needs it, and train.

        Parameters
        ----------
        X : array, data frame, list of str, or pictures as uint8 [n, height, width, channels]
            The samples.
        y : array-like of shape (n_samples,)
            The given labels: ints, strings or bools.

        Returns
        -------
        RobustClassifier
            The fitted classifier.
        """
        incv = self._check_settings()
        method: Method = create(self.method, **(self.method_settings or {}))
        check_known_ratio(self.noise_ratio, method)
        X = without_torch(X)
        check_lengths(X, y)
        for name in [name for name in vars(self) if name.endswith("_") and not name.startswith("_")]:
            delattr(self, name)  # of an earlier fit
        data = self._samples(X, fitting=True)
        self.classes_, given = encode_labels(y)
        data = replace(data, y=given, classes=tuple(self.classes_.tolist()))
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        device = choose_device(self.device)
        self._reader = SampleReader.learn(data)
        classes = len(self.classes_)
        _, factory = network_for(self.network, self._reader, classes, device.type, option="network")
        self.augment_ = self._choose_augment(data)
        store = self._reader.store(data, device, augment=self.augment_)
        check_factory(factory, store.shape, classes, name="network:")
        batch_size = self.batch_size or auto_batch_size(len(given))
        epochs = self.epochs or auto_epochs(len(given), batch_size, pictures=len(store.shape) > 1)

        plan = Plan(method.name, given, np.arange(len(given)), seed, noise_ratio=self.noise_ratio)
        needs = method.needs()
        if needs in ("selection", "transition") or (needs == "ratio" and self.noise_ratio is None):
            schedule = one_drop(self.selection_epochs or max(MIN_SELECTION_EPOCHS, epochs // 2), self.learning_rate)
            trainer = EngineTrainer(
                store, factory, classes=classes, schedule=schedule, batch_size=batch_size, together=True
            )
            copies = copies_among(data.x, given, text=data.kind == "text")
            steps = incv_steps(given, data.classes, settings=incv, seed=seed, groups=copies)
            selection = drive(steps, trainer)
            self._store(selection, given)
            plan = with_selection(plan, selection, method)
        method.check(plan, epochs)  # the engine checks it again, without warnings
        result = train(
            store, factory, method, [plan],
            schedule=one_drop(epochs, self.learning_rate), batch_size=batch_size, together=True, classes=classes,
        )[0]  # fmt: skip
        self.method_, self.history_ = method, result.history
        self.networks_ = [_network(factory, state) for state in result.states]
        if data.kind == "pictures":
            self._warn_if_weak(agreement(store, factory, result.states, given, plan.train), plan)
        return self

    def predict_proba(self, X: Any) -> FloatArray:
        """Return the probability of each class for each sample, in the order of `classes_`.

        Parameters
        ----------
        X : as in `fit`
            The samples. A data frame has the columns of `fit` in the same order, as scikit-learn requires.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            The probabilities.
        """
        check_is_fitted(self, "networks_")
        data = self._samples(without_torch(X))
        store: Store = self._reader.store(data, torch.device("cpu"), augment=self.augment_)
        store.averages_views = True
        networks = self.networks_ if self.together else self.networks_[:1]
        found = np.empty((len(store), len(self.classes_)))
        for start in range(0, len(store), ROWS_PER_BLOCK):
            rows = torch.from_numpy(np.arange(start, start + ROWS_PER_BLOCK) % len(store))[None]
            views = [store.batch(rows, torch.full_like(rows, view)) for view in store.views]
            with torch.no_grad():
                each = [mean_of_views([network(batch).double() for batch in views]).softmax(1) for network in networks]
            mean = torch.stack(each).mean(0).numpy()
            found[start : start + ROWS_PER_BLOCK] = mean[: len(store) - start]
        return found

    def _check_settings(self) -> INCVSettings:
        """Raise InputError for the first parameter that is wrong; return the settings of INCV."""
        for name in ("epochs", "selection_epochs", "batch_size"):
            if (value := getattr(self, name)) is not None:
                check_integer(name, value, least=1, otherwise=", or None")
        if not is_number(self.learning_rate) or not 0 < self.learning_rate < float("inf"):
            raise InputError(f"learning_rate: expected a number above 0, got {self.learning_rate!r}")
        if self.noise_ratio is not None:
            check_range("noise_ratio", self.noise_ratio, 0, 1, ends="[)", otherwise=", or None")
        if self.method_settings is not None and not isinstance(self.method_settings, Mapping):
            raise InputError(f"method_settings: expected a dict, got {self.method_settings!r}")
        if not isinstance(self.together, bool | np.bool_):
            raise InputError(f"together: expected True or False, got {self.together!r}")
        check_augment(self.augment)
        return INCVSettings(n_iterations=self.n_iterations, remove_ratio=self.remove_ratio)

    def _samples(self, X: Any, *, fitting: bool = False) -> LabelledData:
        """Check the samples and return them without labels."""
        if issparse(X):
            raise InputError("X: sparse matrices are not supported; use X.toarray(), or use CleanClassifier or INCV")
        model, encoding = "auto" if self.network is None else self.network, None if fitting else self._encoding
        X = check_samples(self, X, model=model, encoding=encoding, fitting=fitting)
        if fitting:
            self._encoding: Encoding | None = encoding_of(X)
        data = unlabelled(X)
        return replace(data, x=np.array(X, dtype=object)) if data.kind == "text" else data

    def _choose_augment(self, data: LabelledData) -> str:
        """Return the augmentation; all labels decide, because the networks that select see the same pictures."""
        if self.augment != "auto" or data.kind != "pictures":
            return self.augment if self.augment != "auto" else "mirror"
        return "shift" if mirror_test(data.x, data.y, np.arange(len(data.y))).harms else "mirror"

    def _store(self, selection: Selection, given: IntArray) -> None:
        """Store what INCV found, and warn if the noise ratio is not reliable."""
        store_selection(self, selection, self.classes_, given)
        noise = selection.noise
        assert noise is not None
        self.selection_history_ = list(selection.history)
        warn_about_rare_classes(selection, self.classes_)
        if noise.trust in (Trust.ROUGH, Trust.UNKNOWN) and selection.noise_ratio >= MIN_WARNED_RATIO:
            ratio = f"the noise ratio ({100 * selection.noise_ratio:.1f} %) is not reliable"
            text = (
                f"{ratio if noise.known else 'the noise ratio is not known'} ({noise.explanation}). Hard samples may "
                'have been treated as wrong labels: compare with method="standard", or try another network'
            )
            warnings.warn(text, WeakTrainingWarning, stacklevel=3)

    def _warn_if_weak(self, share: float, plan: Plan) -> None:
        precision = None if plan.candidates is None else 1 - float(plan.noise_ratio or 0.0)
        if not has_learnt(share, plan.labels[plan.train], precision=precision):
            ways = what_may_help(self.augment_, option='augment="{}"')
            agrees = f"it agrees with {100 * share:.1f} % of the labels it was trained on"
            text = f"the network learned little: {agrees}; {ways}"
            warnings.warn(text, WeakTrainingWarning, stacklevel=3)


def check_known_ratio(ratio: float | None, method: Method) -> None:
    """Raise InputError if a noise ratio is given that the method does not use."""
    if ratio is None or (needs := method.needs()) == "ratio":
        return
    own = method.settings().get("noise_ratio")
    if own is not None:
        raise InputError(
            f"noise_ratio: the values {ratio} of noise_ratio= and {own} in method_settings differ; set only one of them"
        )
    # Your own method that needs nothing may still look at plan.noise_ratio.
    if needs in ("selection", "transition") or METHODS.get(method.name) is type(method):
        raise InputError(f"noise_ratio: method {method.name!r} does not use it; omit it, or use 'coteaching'")


def _network(factory: Any, state: dict[str, Any]) -> nn.Module:
    with preserve_rng():  # its initial weights are overwritten
        network: nn.Module = factory()
    network.load_state_dict(state)
    return network.eval()
