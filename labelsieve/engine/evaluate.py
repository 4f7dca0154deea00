"""Networks in inference mode: scores, predicted classes, probabilities and features, computed in chunks."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from labelsieve.engine.bundle import Bundle, Factory, Networks, NetworkState, materialize
from labelsieve.engine.device import fastest_convolutions
from labelsieve.engine.rng import Generators, preserve_rng
from labelsieve.engine.schedule import Schedule
from labelsieve.models.layers import SequentialStack
from labelsieve.types import TOP_CLASSES, FloatArray, IntArray, Scores, Store

BYTES_PER_VALUE = 512  # of GPU memory per pixel of a chunk: about 50 million pixels with 24 GiB
FEWEST_IN_CHUNK, MOST_IN_CHUNK = 64, 4096  # samples per network
CPU_CHUNK = 512  # samples per network; bounds the memory of activations
MOST_COMPARED = 2_000  # samples that `agreement` compares
SCORED_AT_ONCE = 2**14  # samples whose probabilities `mean_probabilities` holds
LEAST_PROBABILITY = 1e-38  # of a label, for a finite loss
LEAST_OF_PRECISION = 0.85  # a network that learnt agrees with at least this share of the right labels
LEAST_ABOVE_LARGEST = 0.15  # of the way from the share of the largest class to 1, if the precision is not known


@runtime_checkable
class HasFeatures(Protocol):
    """A network with a method that returns its last hidden layer."""

    def features(self, x: Tensor) -> Tensor: ...


@contextmanager
def inference(bundle: Networks) -> Iterator[None]:
    bundle.module.eval()
    try:
        with torch.no_grad(), fastest_convolutions(bundle.device):
            yield
    finally:
        bundle.module.train()


def _chunk(bundle: Networks, store: Store) -> int:
    if store.device.type != "cuda":
        return CPU_CHUNK
    at_once = 1 if isinstance(bundle.module, SequentialStack) else bundle.n  # networks with activations in memory
    memory = torch.cuda.get_device_properties(store.device).total_memory
    fit = memory // (BYTES_PER_VALUE * at_once * math.prod(store.shape))
    return 1 << min(MOST_IN_CHUNK, max(FEWEST_IN_CHUNK, fit)).bit_length() - 1


def mean_of_views(logits: Sequence[Tensor]) -> Tensor:
    """The mean of the log-probabilities of several views; the logits themselves if there is only one."""
    if len(logits) == 1:
        return logits[0]
    return torch.stack([each.log_softmax(-1) for each in logits]).mean(0)


def outputs(bundle: Networks, store: Store, index: Tensor) -> Iterator[tuple[slice, Tensor]]:
    """Logits [n, b, c] of the samples index [n, M] in chunks; with several views the mean of the log-probabilities."""
    size = _chunk(bundle, store) * bundle.world.size
    with inference(bundle):
        for start in range(0, index.shape[1], size):
            piece = index[:, start : start + size]
            real = piece.shape[1]
            if store.device.type == "cuda":  # few widths, as cuDNN tries its algorithms for each
                piece = torch.nn.functional.pad(piece, (0, (1 << (real - 1).bit_length()) - real))
            own = bundle.world.local_columns(piece)
            seen = [bundle.forward(store.batch(own, torch.full_like(own, view))).float() for view in store.views]
            logits = bundle.world.gather_columns(mean_of_views(seen), piece.shape[1])
            yield slice(start, start + real), logits[:, :real]


def predicted_classes(bundle: Bundle, store: Store, networks: Sequence[int]) -> NDArray[np.uint16]:
    """The predicted class of every sample, [len(networks), len(store)]."""
    chosen, rows = bundle.part(networks)
    everything = torch.arange(len(store), device=store.device).expand(chosen.n, -1)
    found = [logits[rows].argmax(2) for _, logits in outputs(chosen, store, everything)]
    return torch.cat(found, 1).cpu().numpy().astype(np.uint16)


def held_out_scores(
    bundle: Bundle, store: Store, networks: Sequence[int], wanted: Sequence[tuple[IntArray, IntArray]]
) -> list[Scores]:
    """For each of these networks the scores of its own samples, given as (indices, labels)."""
    chosen, rows = bundle.part(networks)
    longest = max(len(places) for places, _ in wanted)
    index = np.zeros((chosen.n, longest), dtype=np.int64)
    labels = np.zeros((chosen.n, longest), dtype=np.int64)
    for row, (places, given) in zip(rows, wanted, strict=True):
        index[row, : len(places)], labels[row, : len(places)] = places, given
    device = store.device
    found = scores(chosen, store, torch.as_tensor(index, device=device), torch.as_tensor(labels, device=device))
    return [found[row].take(slice(len(places))) for row, (places, _) in zip(rows, wanted, strict=True)]


def scores(bundle: Networks, store: Store, index: Tensor, labels: Tensor) -> list[Scores]:
    """For each network the scores of the samples index [n, M] with the given labels [n, M]."""
    n, m = index.shape
    device = index.device
    predicted = torch.empty((n, m), dtype=torch.int64, device=device)
    probability, confidence, loss = (torch.empty((n, m), device=device) for _ in range(3))
    top_classes: list[Tensor] = []
    top_probs: list[Tensor] = []
    for place, logits in outputs(bundle, store, index):
        log_p = logits.log_softmax(2)
        top = log_p.topk(min(TOP_CLASSES, log_p.shape[2]), 2)
        top_classes.append(top.indices.int())
        top_probs.append(top.values.exp())
        best, predicted[:, place] = log_p.max(2)
        given = log_p.gather(2, labels[:, place, None])[..., 0]
        loss[:, place], probability[:, place], confidence[:, place] = -given, given.exp(), best.exp()
    kept = (predicted, probability, confidence, loss, torch.cat(top_classes, 1), torch.cat(top_probs, 1))
    arrays = [tensor.cpu().numpy() for tensor in kept]
    return [Scores(*(array[i] for array in arrays)) for i in range(n)]


def probabilities(bundle: Bundle, store: Store, indices: IntArray, network: int) -> Tensor:
    """The probabilities [M, c] of one network."""
    chosen, (row,) = bundle.part([network])
    index = torch.as_tensor(indices, device=store.device).expand(chosen.n, -1)
    return torch.cat([logits[row].softmax(1) for _, logits in outputs(chosen, store, index)])


def features(bundle: Bundle, store: Store, indices: IntArray, network: int) -> Tensor:
    """The last hidden layer [M, d] of one network."""
    chosen, (row,) = bundle.part([network])
    index = torch.as_tensor(indices, device=store.device).expand(chosen.n, -1)
    size = _chunk(chosen, store) * chosen.world.size
    found = []
    with inference(chosen):
        for start in range(0, index.shape[1], size):
            piece = index[:, start : start + size]
            own = chosen.world.local_columns(piece)
            hidden = hidden_layer(chosen, store.batch(own, torch.full_like(own, store.plain)))
            mine = hidden.view(len(hidden), chosen.n, -1)[:, row].float()
            found.append(chosen.world.gather_columns(mine[None], piece.shape[1])[0])
    return torch.cat(found)


def hidden_layer(bundle: Networks, x: Tensor) -> Tensor:
    """What goes into the last linear layer: by the network's own `features`, else caught on the way in."""
    module = bundle.module
    if isinstance(module, HasFeatures) and not isinstance(module.features, torch.nn.Module):
        return module.features(x)
    last = [layer for layer in module.modules() if isinstance(layer, torch.nn.Linear)][-1]
    caught: list[Tensor] = []
    hook = last.register_forward_pre_hook(lambda _, inputs: caught.append(inputs[0].detach()))
    try:
        bundle.forward(x)
    finally:
        hook.remove()
    return caught[0].flatten(1)


def agreement(
    store: Store, factory: Factory, states: Sequence[NetworkState], labels: IntArray, among: IntArray
) -> float:
    """The share of (some of) these samples whose label is the class that the networks predict together."""
    chosen = np.random.default_rng(0).permutation(among)[:MOST_COMPARED]
    return float(np.mean(mean_scores(store, factory, states, labels[chosen], chosen).predicted == labels[chosen]))


def mean_scores(
    store: Store, factory: Factory, states: Sequence[NetworkState], labels: IntArray, samples: IntArray
) -> Scores:
    """The scores of samples with these labels by the mean prediction of the networks."""
    parts = []
    for place, p in mean_probabilities(store, factory, states, samples):
        of_label = p[np.arange(len(p)), labels[place]]
        parts.append(Scores(p.argmax(1), of_label, p.max(1), -np.log(np.maximum(of_label, LEAST_PROBABILITY))))
    return Scores.concatenate(parts)


def mean_probabilities(
    store: Store, factory: Factory, states: Sequence[NetworkState], samples: IntArray
) -> Iterator[tuple[slice, FloatArray]]:
    """The mean of the networks' probabilities of these samples, in chunks [M, c]."""
    factory = materialize(factory, store.shape)
    with preserve_rng(store.device):
        Generators(store.device).seed(0)  # for networks that draw random numbers in inference too
        bundles = [Bundle(factory, [state], Schedule.incv_50(1), store.device) for state in states]
        for start in range(0, max(1, len(samples)), SCORED_AT_ONCE):
            place = slice(start, start + SCORED_AT_ONCE)
            each = [probabilities(bundle, store, samples[place], 0).cpu().numpy() for bundle in bundles]
            yield place, np.stack(each).mean(axis=0, dtype=np.float64)  # not on the device: MPS has no float64


def has_learnt(share: float, labels: IntArray, *, precision: float | None) -> bool:
    """Whether a network that agrees with this share of its training labels has learnt anything.

    `precision` is the expected share of right labels. If it is not known, the share of the largest class is compared.
    """
    if precision is not None:
        return share >= LEAST_OF_PRECISION * precision
    largest = np.bincount(labels).max() / len(labels)
    return bool(share >= largest + LEAST_ABOVE_LARGEST * (1 - largest))


def what_may_help(
    augment: str, *, option: str = "--augment {}", epochs: str = "epochs", network: str = "network"
) -> str:
    """Advice for a network that has not learnt: less augmentation, more epochs, another network."""
    less = {"mirror": f"{option.format('shift')} (or none), ", "shift": f"{option.format('none')}, "}.get(augment, "")
    return f"{less}more {epochs} or another {network} may help"
