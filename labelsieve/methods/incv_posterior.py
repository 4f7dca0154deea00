"""Learn from every sample: the target of a sample is the posterior of its true class.

    p_i      running mean of a teacher's prediction for sample i, with the class shares pulled towards the prior
    S_i      likelihood of the given label y_i for each true class: 1 - s_i for the class y_i, s_i spread over the other
             classes as in T (from the noise model); s_i is the probability that the label is wrong
    L_i      (S_i(k) T[k, y_i]) ^ label_weight
    target   ~ (p_i(k) L_i(k)) ^ (1 / temperature)
    loss     cross-entropy of the target, on a mixed strong view

The first epochs (`warmup`) train on the selected samples with their given labels, and with about as many of each class
as are right (class_balance.py): otherwise classes vanish at strong noise. The teacher (a moving average of the
network) reads weak views, its predictions are kept in a memory per sample, 4 bytes per sample, class and network: 4 MB
for 50,000 samples and 10 classes. The class shares are pulled by prior / shares, which keeps classes from growing at
the cost of others.

s_i is the suspicion of the selection, whose networks had not seen the label: the p_i of a network that has learnt a
wrong label would confirm it. On CIFAR-10 with people's labels a network with the same s_i for all labels of a class
memorises half of the wrong ones, with the selection's 9 to 13 % (docs/reproduction.md). But s_i is a posterior, so S_i
also contains an opinion about the sample, which p_i repeats: alone, S_i would count it twice, and a right label of a
sample that looks like another class would be ignored. Hence the geometric mean of S_i and T (benchmarks/finish.md).
The p_i repeat the labels, too: what a network has memorised is multiplied by L_i once more. With a smaller exponent
(`label_weight`) it memorises fewer wrong labels.

The networks soon rank the labels better than the selection did. So before each epoch the same values of s_i are
assigned to the labels in a new order, by p_i and the first s_i together (`ranked_again`). They also predict the classes
better, so T becomes the matrix of their predictions p_i and the given labels (`learnt_transition`), with the prior that
follows from it. The selection finds too few confusions of classes that its classifier cannot distinguish either
(benchmarks/finish.md).

If many selected labels are wrong, twice the epochs are more accurate on pictures, but not on digits if one round has
them all (docs/reproduction.md, benchmarks/finish.md). So a second round (`rounds`) trains new networks: in its first
epochs they learn the targets of the first round, which stay fixed. It gains on both.

With two networks p_i of a target is the prediction of the other network, and the labels are ranked by the mean of both.
Rows of numbers have no strong views: a network does not see a random part of the values (`hidden`), so that it cannot
memorise a label by a few of them (benchmarks/finish.md).

Needs a selection and its transition matrix. Fails if the warm-up leaves a class without predictions: if the share of a
class falls below a tenth of its prior, the training continues with the forward-corrected loss alone, with a note.

The recipe (teacher, memory, sharpening, strong views, mixup) combines published ones: Tarvainen and Valpola 2017 (mean
teacher), Patrini et al. 2017 (forward correction), Li et al. 2020 (DivideMix), Sohn et al. 2020 (FixMatch).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from labelsieve.checks import check_integer, check_range
from labelsieve.class_balance import balanced, class_prior
from labelsieve.engine.method import (
    Batch,
    Method,
    Needs,
    Plan,
    Recipe,
    State,
    TrainingView,
    Views,
    in_batches,
    mix_targets,
    repeat_batches,
    warn_user,
)
from labelsieve.engine.schedule import Schedule
from labelsieve.errors import InputError
from labelsieve.methods.f_correction import checked_transition
from labelsieve.types import FloatArray, IntArray

RATE_AT_256 = 0.06  # of SGD with 256 samples per batch, in proportion for other sizes
SHARES_DECAY = 0.99  # of the running shares of the predicted classes, per step
LEAST_NOISE = 0.01  # of a row of T, over all classes (`above_least_noise`)
LEAST_SUSPICION = 0.02  # no label counts as certain: one selected label in 40 is wrong on people's CIFAR-10 labels
COLLAPSED = 0.1  # a class whose share is below this part of its prior has collapsed
COMMON = 0.25  # rarer classes, compared with an even share, are not checked: their shares vary by chance
NEW_WEIGHT = 0.7  # of the network's log-odds in the order of the labels, against those of the selection
MANY_WRONG = 0.1  # of the selected labels; with fewer, a second round gains little (benchmarks/finish.md)
MOST_MEMORY = 2**33  # bytes
READ_AT_ONCE = 2**16  # samples, so that reading the memory needs little memory besides it
# Samples per class that the transition matrix of the selection counts for: a class of a few samples, whose labels a
# network has learnt, would look free of mistakes. Classes of benchmarks/finish.md have 100 samples or more.
SELECTION_COUNTS = 10.0


def memory_bytes(samples: int, classes: int, networks: int) -> int:
    return 4 * samples * classes * networks


def label_likelihood(labels: Tensor, suspicion: Tensor, transition: Tensor) -> Tensor:
    """S T [t, B, classes], the product of two likelihoods of labels [t, B] for each true class.

    T is the transition matrix [t, c, c]. S is 1 - suspicion for the given class; the suspicion is spread over the other
    classes as in T.
    """
    given = F.one_hot(labels, transition.shape[-1]).bool()
    row = torch.arange(len(labels), device=labels.device)[:, None]
    by_class = transition.transpose(1, 2)[row, labels]
    others = by_class.masked_fill(given, 0.0)
    spread = suspicion[..., None] * others / others.sum(-1, keepdim=True).clamp_min(1e-30)
    by_suspicion = torch.where(given, 1 - suspicion[..., None], spread)
    return by_class * by_suspicion


def posterior_targets(predictions: Tensor, likelihood: Tensor, temperature: float) -> Tensor:
    """Sharpened, normalised predictions * likelihood, both [..., classes]; the predictions need not be normalised."""
    posterior = predictions * likelihood
    posterior = posterior / posterior.amax(-1, keepdim=True).clamp_min(1e-30)
    sharp = posterior ** (1 / temperature)
    return sharp / sharp.sum(-1, keepdim=True).clamp_min(1e-30)


def learnt_transition(predictions: Tensor, labels: Tensor, first: Tensor) -> Tensor:
    """The shares of the given labels by predicted class [c, c], from predictions [n, c] of samples with these labels.

    The predictions need not be normalised. `first` is the matrix of the selection.
    """
    counts = SELECTION_COUNTS * first
    for p, given in zip(*(torch.split(values, READ_AT_ONCE) for values in (predictions, labels)), strict=True):
        p = p / p.sum(1, keepdim=True).clamp_min(1e-30)
        counts = counts + p.t() @ F.one_hot(given, len(first)).to(p.dtype)
    return counts / counts.sum(1, keepdim=True)


def above_least_noise(transition: Tensor) -> Tensor:
    """A transition matrix without zeros: few counted labels cannot show that a confusion never happens."""
    raised = transition.clamp_min(LEAST_NOISE / len(transition))
    return raised / raised.sum(1, keepdim=True)


def ranked_again(suspicion: Tensor, predictions: Tensor, labels: Tensor, transition: Tensor) -> Tensor:
    """The same suspicions [n] in the order of their log-odds and those of the predictions [n, c], both weighted.

    The values stay those of the selection, because a network that has learnt wrong labels finds too few of them.
    """
    right = []
    for p, given in zip(*(torch.split(values, READ_AT_ONCE) for values in (predictions, labels)), strict=True):
        posterior = p.clamp_min(1e-5) * transition.t()[given]
        right.append(posterior.gather(1, given[:, None])[:, 0] / posterior.sum(1))
    order = (1 - NEW_WEIGHT) * torch.logit(suspicion, 1e-4) - NEW_WEIGHT * torch.logit(torch.cat(right), 1e-4)
    return torch.empty_like(suspicion).index_put((order.argsort(stable=True),), suspicion.sort().values)


@dataclass(eq=False)
class INCVPosterior(Method):
    """Posterior targets from a teacher, a memory and the noise model.

    Parameters
    ----------
    networks
        2: each network learns from the predictions of the other one; 1: from its own. The recipe for pictures on a GPU
        uses 1.
    temperature
        Targets are raised to the power 1 / temperature.
    momentum
        Share of the earlier predictions in the memory.
    teacher_decay
        Decay of the teacher's weights per step.
    mixup
        Parameter of the beta distribution of mixup; 0 mixes nothing.
    unmixed
        Share of the epochs of a round, at the end, that train without mixup. ResNet-32 learns whole pictures better
        with 0.3 (docs/methods.md).
    strong
        Train on strong views of pictures; part of the recipe for pictures on a GPU.
    label_weight
        Exponent of the likelihood of the given label. With a smaller one, labels count less against the predictions.
    hidden
        Share of the values of a row of numbers that a network does not see in training: it reads the mean of the column
        instead. No effect on pictures.
    warmup
        Share of the epochs that train on the selected samples only, or, in a second round, that learn the targets of
        the first one.
    rounds
        2: new networks are trained after the first ones, for as many epochs. In their first epochs, they learn the
        targets of the first round. "auto": 2 if more than 10 % of the selected labels are probably wrong, else 1.
    """

    name = "incv-posterior"
    recipe = Recipe(
        200,
        256,
        lambda epochs, batch_size: Schedule.cosine(epochs, RATE_AT_256 * batch_size / 256),
        {"strong": True, "networks": 1},
        {"resnet32": {"unmixed": 0.3}},  # a small network fits mixtures at the cost of whole pictures (docs/methods.md)
        network="preact-resnet18",  # better than resnet32 at every noise: docs/reproduction.md
    )
    networks: int = 2
    temperature: float = 0.5
    momentum: float = 0.5
    teacher_decay: float = 0.996
    mixup: float = 0.5
    unmixed: float = 0.0
    strong: bool = False
    label_weight: float = 0.5
    hidden: float = 0.3
    warmup: float = 0.15
    rounds: int | Literal["auto"] = "auto"
    _epochs: int | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        check_integer("incv-posterior: networks", self.networks, least=1)
        check_range("incv-posterior: networks", self.networks, 1, 2)
        check_range("incv-posterior: temperature", self.temperature, 0, 1, ends="(]")
        for name in ("momentum", "teacher_decay"):
            check_range(f"incv-posterior: {name}", getattr(self, name), 0, 1, ends="[)")
        if not isinstance(self.strong, bool):
            raise InputError("incv-posterior: strong: choose true or false")
        check_range("incv-posterior: warmup", self.warmup, 0, 1)
        check_range("incv-posterior: mixup", self.mixup, 0, 100)
        for name in ("unmixed", "label_weight"):
            check_range(f"incv-posterior: {name}", getattr(self, name), 0, 1)
        check_range("incv-posterior: hidden", self.hidden, 0, 1, ends="[)")
        if not (isinstance(self.rounds, str) and self.rounds == "auto"):
            check_integer("incv-posterior: rounds", self.rounds, otherwise=", or 'auto'")
            check_range("incv-posterior: rounds", self.rounds, 1, 2)

    def needs(self) -> Needs:
        return "transition"

    def views(self) -> Views:
        return Views(self.teacher_decay, self.strong, self.mixup, self.unmixed, self.hidden)

    def epochs(self, plan: Plan, schedule_epochs: int) -> int:
        return self.rounds_of(plan) * schedule_epochs

    def rounds_of(self, plan: Plan) -> int:
        if self.rounds != "auto":
            return self.rounds
        known = plan.suspicion is not None  # otherwise the noise ratio is not known either
        return 2 if known and (plan.noise_ratio or 0.0) > MANY_WRONG else 1

    def check(self, plan: Plan, epochs: int) -> None:
        self._epochs = epochs  # of a round; batches() needs it for the length of the warm-up
        if plan.candidates is None or plan.transition is None:
            raise InputError(
                "method 'incv-posterior' needs a selection and its transition matrix: run `labelsieve select` first"
            )
        if len(plan.train) == 0:
            raise InputError(
                "method 'incv-posterior': no sample is selected; select with another model, or use another method"
            )
        classes = len(checked_transition(plan.transition, self.name))
        if (size := memory_bytes(len(plan.labels), classes, self.networks)) > MOST_MEMORY:
            raise InputError(
                f"method 'incv-posterior' keeps {size / 2**30:.0f} GiB of predictions for {len(plan.labels):,} samples "
                f"and {classes:,} classes, more than {MOST_MEMORY / 2**30:.0f} GiB: use 'incv-coteaching'"
            )

    def round_epochs(self) -> int:
        if self._epochs is None:
            raise InputError("incv-posterior needs the number of epochs: call check(plan, epochs) first")
        return self._epochs

    def warmup_epochs(self) -> int:
        epochs = self.round_epochs()
        return min(epochs, max(1, round(self.warmup * epochs))) if self.warmup else 0

    def batches(self, plan: Plan, epoch: int, batch_size: int, rng: np.random.Generator) -> IntArray:
        """Batches of all samples; in the warm-up as many batches of the selected ones, without repeats in a batch."""
        every = in_batches(rng.permutation(len(plan.labels)), batch_size)
        if epoch >= self.warmup_epochs():
            return every
        train = self._trusted(plan)
        return repeat_batches(lambda: in_batches(rng.permutation(train), batch_size), len(every))[: len(every)]

    def _trusted(self, plan: Plan) -> IntArray:
        """The selected samples, with balanced classes if the suspicion is known."""
        if plan.suspicion is None:
            return plan.train
        chosen = np.zeros(len(plan.labels), dtype=bool)
        chosen[plan.train] = True
        return np.flatnonzero(balanced(chosen, plan.labels, plan.suspicion, np.asarray(plan.transition)))

    def state(self, plan: Plan, *, samples: int, classes: int, epochs: int) -> State:
        found = checked_transition(plan.transition, self.name)
        if len(found) != classes:
            raise InputError(f"incv-posterior: the transition matrix has {len(found)} classes, the data {classes}")
        T = above_least_noise(torch.tensor(found)).numpy()
        prior = torch.tensor(class_prior(plan.labels, T), dtype=torch.float32)
        return {
            "memory": torch.zeros(samples + 1, self.networks, classes),  # the last row is for padding
            "shares": prior.expand(self.networks, classes).clone(),
            "prior": prior,
            "transition": torch.tensor(T, dtype=torch.float32),
            "first_transition": torch.tensor(T, dtype=torch.float32),
            "suspicion": torch.tensor(self._suspicion(plan, T), dtype=torch.float32),
            "warmup": torch.tensor(float(self.warmup_epochs())),
            "fixed": torch.tensor(0.0),  # 1 while the targets are those of the round before
            "target_weight": torch.ones(self.networks),
        }

    def _suspicion(self, plan: Plan, T: FloatArray) -> FloatArray:
        """The probability that each label is wrong, and 0 for padding."""
        of_class = 1 - np.diag(T) / T.sum(0)
        found = of_class[plan.labels]
        if plan.suspicion is not None:
            known = np.clip(plan.suspicion, LEAST_SUSPICION, 1 - LEAST_SUSPICION)
            found = np.where(np.isnan(known), found, known)
        return np.append(found, 0.0)

    def judges_labels(self, plan: Plan) -> bool:
        return plan.suspicion is not None

    def before_epoch(self, view: TrainingView) -> None:
        later, into_round = divmod(view.epoch, self.round_epochs())
        if later and into_round == 0 and view.state["target_weight"].any():
            view.restart()
        view.state["fixed"].fill_(later and into_round < max(1, self.warmup_epochs()))
        if into_round <= self.warmup_epochs():
            return
        if view.plan.suspicion is not None:
            self._read_memory(view)
        prior, weight = view.state["prior"], view.state["target_weight"]
        # The running shares are those of the last hundreds of steps: small data have collapsed for many epochs before
        # they show it, and no longer recover.
        shares = view.state["memory"].sum(0)
        shares = torch.minimum(view.state["shares"], shares / shares.sum(1, keepdim=True).clamp_min(1e-12))
        lost = (shares < COLLAPSED * prior) & (prior > COMMON / len(prior))
        if lost.any() and weight.any():
            weight.zero_()  # of both networks: the other one learns from the predictions of this one
            warn_user(
                f"incv-posterior: a class has nearly vanished from the predictions before epoch {view.epoch + 1}; the "
                "training continues with the forward-corrected loss alone, which is less accurate"
            )

    def _read_memory(self, view: TrainingView) -> None:
        """Estimate the transition matrix and the prior by the predictions, and rank the labels."""
        T, predictions = view.state["transition"], view.state["memory"][:-1].mean(1)
        labels = torch.as_tensor(view.plan.labels, dtype=torch.int64, device=T.device)
        T.copy_(above_least_noise(learnt_transition(predictions, labels, view.state["first_transition"])))
        found = T.cpu().numpy()
        view.state["prior"].copy_(torch.tensor(class_prior(view.plan.labels, found), dtype=torch.float32))
        first = torch.tensor(self._suspicion(view.plan, found)[:-1], dtype=torch.float32, device=T.device)
        view.state["suspicion"][:-1] = ranked_again(first, predictions, labels, T)

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        assert batch.teacher is not None
        state, classes = batch.state, logits.shape[-1]
        row = torch.arange(len(logits), device=logits.device)[:, None]
        real = batch.valid[:, None, :, None]  # [t,1,B,1]
        with torch.no_grad():
            p = batch.teacher.float().softmax(-1) * real
            fixed = (state["fixed"] > 0)[:, None, None]
            memory = state["memory"][row, batch.index]  # -1: the last row
            momentum = torch.where(fixed, 1.0, self.momentum)[..., None]
            memory = torch.lerp(p.transpose(1, 2), memory, momentum)
            state["memory"].index_put_((row, batch.index), memory)
            shares = p.sum(2) / real.sum(2).clamp_min(1)
            state["shares"].lerp_(shares, torch.where(fixed, 0.0, 1 - SHARES_DECAY))
            suspicion = state["suspicion"][row, batch.index]
            likelihood = label_likelihood(batch.labels, suspicion, state["transition"])
            likelihood = likelihood.pow(self.label_weight)[:, None]  # [t,1,B,c]
            pull = (state["prior"][:, None] / state["shares"].clamp_min(1e-6))[:, :, None]
            predictions = memory.transpose(1, 2) * pull
            targets = posterior_targets(predictions.flip(1), likelihood, self.temperature) * real
            given = F.one_hot(batch.labels, classes)[:, None] * real.float()
            warm = (batch.epoch < state["warmup"])[:, None]
            targets = torch.where(warm[..., None, None], given, targets)
            by_target, by_given = mix_targets(targets, batch), mix_targets(given, batch)
            weight = state["target_weight"]
            forward = torch.where(warm | (weight > 0), 0.0, 1.0)
        log_p = logits.float().log_softmax(-1)
        log_noisy = torch.matmul(log_p.exp(), state["transition"][:, None]).clamp_min(1e-8).log()
        by_targets = (by_target * log_p).sum((-1, -2)) / by_target.sum((-1, -2)).clamp_min(1)
        corrected = (by_given * log_noisy).sum((-1, -2)) / by_given.sum((-1, -2)).clamp_min(1)
        return -(weight * by_targets + forward * corrected)
