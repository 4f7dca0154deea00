"""Custom methods, including the example of docs/methods.md."""

import re
import sys
import warnings
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import make_blobs

from labelsieve.engine import Plan, Schedule, VectorStore, train
from labelsieve.engine.method import Method, MethodWarning, mean_over, sample_losses
from labelsieve.errors import InputError
from labelsieve.methods import METHODS, create
from labelsieve.models.small import MLP
from labelsieve.workflow.robust_classifier import RobustClassifier

PAGE = (Path(__file__).parents[2] / "docs" / "methods.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"<!-- tested(: mine\.py)? -->\n```python\n(.*?)```", PAGE, flags=re.DOTALL)


@pytest.fixture
def mine(tmp_path, monkeypatch):
    """The page's mine.py, in the folder one is in."""
    (text,) = [text for named, text in BLOCKS if named]
    (tmp_path / "mine.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])  # what is put there goes again
    monkeypatch.delitem(sys.modules, "mine", raising=False)
    yield
    sys.modules.pop("mine", None)


class MeanAbsolute(Method):
    name = "mae"

    def loss(self, logits, batch):
        p = torch.softmax(logits.float(), -1)
        t, k, b, _ = p.shape
        of_given = p.gather(-1, batch.labels[:, None, :, None].expand(t, k, b, 1)).squeeze(-1)
        return mean_over(1 - of_given, batch.valid[:, None])


class OnTheSelected(MeanAbsolute):
    networks = 2

    def __init__(self):
        self.plans = []

    def needs(self):
        return "selection"

    def check(self, plan, epochs):
        self.plans.append(plan)


class Silent(Method):
    pass


class Wants(MeanAbsolute):
    def __init__(self, power):
        self.power = power


def blobs(n=120):
    return make_blobs(n, centers=3, random_state=0, cluster_std=0.7)


def test_the_pages_example_in_python(mine, monkeypatch):
    monkeypatch.syspath_prepend(".")
    (text,) = [text for named, text in BLOCKS if not named]
    found = {}
    exec(compile(text, "docs/methods.md", "exec"), found)
    model, same = found["model"], found["same_model"]
    assert model.score(found["X"], found["y"]) > 0.9
    assert model.method_.settings() == same.method_.settings() == {"trust": 0.7}
    assert np.array_equal(model.predict_proba(found["X"]), same.predict_proba(found["X"]))


def test_the_pages_example_is_bootstrapping(mine):
    logits = torch.tensor([[[[2.0, 0.0, -1.0], [0.0, 0.0, 0.0]]]])
    from labelsieve.engine.method import Batch

    labels = torch.tensor([[1, 0]])
    batch = Batch(labels, labels, torch.tensor([[True, False]]), torch.zeros(1))
    p = np.exp([2.0, 0.0, -1.0]) / np.exp([2.0, 0.0, -1.0]).sum()
    target = 0.8 * np.array([0, 1, 0]) + 0.2 * p
    found = create("mine:Bootstrapping").loss(logits, batch)
    assert found.shape == (1, 1) and found.item() == pytest.approx(-(target * np.log(p)).sum(), rel=1e-5)


@pytest.mark.parametrize("given", [MeanAbsolute(), MeanAbsolute])
def test_an_instance_or_a_class(given):
    x, y = blobs()
    model = clone(RobustClassifier(method=given, epochs=10, random_state=0)).fit(x, y)
    assert isinstance(model.method_, MeanAbsolute) and not hasattr(model, "selected_")
    assert model.score(x, y) > 0.9
    plain = RobustClassifier(method="standard", epochs=10, random_state=0).fit(x, y)
    assert not np.allclose(model.predict_proba(x), plain.predict_proba(x))


def test_by_name(mine):
    x, y = blobs()
    settings = {"trust": 0.5}
    model = RobustClassifier(method="mine:Bootstrapping", method_settings=settings, epochs=3, random_state=0).fit(x, y)
    assert model.method_.settings() == settings and model.history_[0]["training"] == "bootstrapping"


def test_a_method_that_needs_a_selection_gets_one():
    x, y = blobs()
    method = OnTheSelected()
    model = RobustClassifier(method=method, epochs=3, selection_epochs=5, n_iterations=1, random_state=0).fit(x, y)
    plan = method.plans[-1]
    assert np.array_equal(plan.train, np.flatnonzero(model.selected_)) and len(model.networks_) == 2
    assert np.array_equal(plan.candidates, np.flatnonzero(model.candidate_)) and 0 <= plan.noise_ratio < 1


def with_attribute(**attributes):
    return type("Odd", (MeanAbsolute,), attributes)


@pytest.mark.parametrize(
    ("method", "settings", "message"),
    [
        (dict, {}, "dict is not a method: derive its class from labelsieve.engine.method.Method"),
        (3, {}, "int is not a method"),
        ([1], {}, "list is not a method"),
        (lambda: None, {}, "is not a method"),
        (Silent, {}, "Silent has no loss"),
        (Silent(), {}, "Silent has no loss"),
        (Method, {}, "Method has no loss"),
        (MeanAbsolute(), {"q": 1}, "MeanAbsolute is an instance"),
        (MeanAbsolute, {"q": 1}, "its settings: none"),
        (Wants, {}, "Wants cannot be created .*power.*; its settings: power"),
        (with_attribute(networks=0), {}, "networks is 0"),
        (with_attribute(networks="two"), {}, "networks is 'two'"),
        (with_attribute(needs=lambda self: "truth"), {}, "needs.. is 'truth'"),
        (with_attribute(settings=lambda self: {"x": torch.zeros(1)}), {}, "dict of numbers, strings and lists"),
        (with_attribute(settings=lambda self: None), {}, "dict of numbers, strings and lists"),
        (with_attribute(loss=lambda self, logits, batch: logits.mean()), {}, r"shape \[\] .* return \[t, k\]"),
        (with_attribute(loss=lambda self, logits, batch: sample_losses(logits, batch)), {}, r"shape \[1, 1, 128\]"),
        ("nowhere_at_all:Name", {}, "nowhere_at_all:Name: No module named"),
        ("json:Nothing", {}, "json:Nothing: module 'json' has no attribute 'Nothing'"),
        ("json:dumps", {}, "json:dumps is not a method"),
        (":Name", {}, "method :Name: "),
    ],
)
def test_invalid_methods_are_refused_in_one_line(method, settings, message):
    x, y = blobs(40)
    with pytest.raises(InputError, match=message) as error:
        RobustClassifier(method=method, method_settings=settings).fit(x, y)
    assert "\n" not in str(error.value)


def test_a_syntax_error_is_reported_in_one_line(mine):
    Path("broken_method.py").write_text("def loss(:\n")
    with pytest.raises(InputError, match=r"broken_method:Name: .*broken_method.py, line 1"):
        create("broken_method:Name")


def batches_of(returned):
    """A method whose batches are what `returned` makes of the plan."""
    return with_attribute(batches=lambda self, plan, epoch, batch_size, rng: returned(plan))


def state_of(returned):
    return with_attribute(state=lambda self, plan, *, samples, classes, epochs: returned)


def without_gradient(self, logits, batch):
    return MeanAbsolute.loss(self, logits.detach(), batch)


def no_epochs(self, plan, *, samples, classes):
    return {}


BAD_BATCHES = [
    (lambda plan: plan.train, r"batches\(\) returned the shape \[128\]: return \[steps, batch\]"),
    (lambda plan: None, r"batches\(\) .*not integers"),
    (lambda plan: [[0, 1], [2]], r"batches\(\) .*not integers"),
    (lambda plan: [["0", "1"]], r"batches\(\) .*not integers"),
    (lambda plan: np.ones((2, 2), dtype=bool), r"batches\(\) .*not integers"),
    (lambda plan: [[0.5, 1.0]], r"batches\(\) .*not integers"),
    (lambda plan: [[np.nan, 1.0]], r"batches\(\) .*not integers"),
    (lambda plan: [[0, -1, 2]], r"batches\(\) returned -1 before a sample"),
]


@pytest.mark.parametrize(
    ("method", "message"),
    [
        *((batches_of(returned), message) for returned, message in BAD_BATCHES),
        (state_of({"a": [1, 2]}), r"state\(\) returned list for 'a'"),
        (state_of(None), r"state\(\) returned NoneType: return a dict"),
        (
            with_attribute(state=no_epochs),
            r"state\(\) cannot .* write state\(self, plan, \*, samples, classes, epochs\)",
        ),
        (with_attribute(loss=lambda self, logits: logits), r"loss\(\) cannot .* write loss\(self, logits, batch\)"),
        (with_attribute(needs="selection"), r"needs\(\) cannot be called \(it is str\): write needs\(self\)"),
        (with_attribute(loss=lambda self, logits, batch: 0.5), r"loss\(\) returned float: return a tensor"),
        (with_attribute(loss=without_gradient), r"loss\(\) has no gradient"),
    ],
)
def test_mistakes_in_a_method_are_found_before_training(method, message):
    with pytest.raises(InputError, match=f"^method Odd: {message}") as error:
        create(method)
    assert "\n" not in str(error.value)


def trained(method, samples=40):
    x, y = blobs(samples)
    plan = Plan("p", y, np.arange(samples), seed=0)
    store, network = VectorStore(x.astype(np.float32), torch.device("cpu")), partial(MLP, 3, inputs=2, widths=(8,))
    return train(store, network, method(), [plan], schedule=Schedule(1, ((0, 1e-2),)), batch_size=8)


@pytest.mark.parametrize(
    ("method", "message"),
    [
        *((batches_of(returned), message.replace("128", "40")) for returned, message in BAD_BATCHES),
        (batches_of(lambda plan: np.empty((0, 8), dtype=np.int64)), r"batches\(\) returned no sample"),
        (batches_of(lambda plan: [[-1, -1]]), r"batches\(\) returned no sample"),
        (batches_of(lambda plan: [[0, 40]]), r"batches\(\) .*index 40"),
        (batches_of(lambda plan: [[0, -2]]), r"batches\(\) .*index -2"),
        (state_of({"a": [1, 2]}), r"state\(\) returned list for 'a'"),
        (with_attribute(loss=without_gradient), r"loss\(\) has no gradient"),
    ],
)
def test_the_engine_names_the_method(method, message):
    """Mistakes that the trial run does not see: other samples, or a method given to the engine directly."""
    with pytest.raises(InputError, match=f"^method Odd: {message}") as error:
        trained(method)
    assert "\n" not in str(error.value)


def test_errors_of_the_network_are_not_blamed_on_the_method(monkeypatch):
    def broken(self, x):
        raise RuntimeError("out of order")

    monkeypatch.setattr(MLP, "forward", broken)
    with pytest.raises(RuntimeError, match="out of order"):
        trained(MeanAbsolute)


@pytest.mark.parametrize("as_given", [np.asarray, np.ndarray.tolist, torch.from_numpy, lambda order: order / 1.0])
def test_batches_may_be_any_table_of_whole_numbers(as_given):
    method = batches_of(lambda plan: as_given(plan.train.reshape(5, 8)))
    (found,), (plain,) = trained(method), trained(batches_of(lambda plan: plan.train.reshape(5, 8)))
    assert found.history[0]["loss"] == plain.history[0]["loss"]


class Misspelt(MeanAbsolute):
    def loss(self, logits, batch):
        return torch.softmaxx(logits)


class Prepared(MeanAbsolute):
    """Needs its check before its loss, and refuses plans as small as the trial run's."""

    def check(self, plan, epochs):
        self.scale = 2.0
        if len(plan.train) < 1000:
            raise InputError("too few")

    def loss(self, logits, batch):
        return self.scale * super().loss(logits, batch)


class OfOtherSamples(MeanAbsolute):
    def state(self, plan, *, samples, classes, epochs):
        return {"weight": torch.ones(samples)[torch.tensor([samples + 5])]}

    def batches(self, plan, epoch, batch_size, rng):
        return np.array([[5000, 5001]])


def test_failures_of_the_trial_run_give_a_warning():
    with pytest.warns(MethodWarning, match=r"method Misspelt failed .* loss\(\) raised AttributeError: .*softmaxx"):
        create(Misspelt)
    with warnings.catch_warnings(), pytest.raises(AttributeError, match="softmaxx"):
        warnings.simplefilter("ignore")
        trained(Misspelt)


@pytest.mark.parametrize("method", [Prepared, OfOtherSamples, *(METHODS[name] for name in METHODS)])
def test_methods_that_need_more_than_the_trial_run_has(method):
    """Warnings are errors here. The methods of the paper go through it as well, given as classes."""
    assert isinstance(create(method), method)
