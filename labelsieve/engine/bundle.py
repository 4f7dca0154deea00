"""n networks with their optimizer: one module, one flat vector of parameters, one learning rate per network.

Parameters are views into one float32 vector, so that an optimizer step is a few operations for any network, and a
checkpoint is a few tensors. Frozen parameters (requires_grad=False) are not part of the vector. Everything that changes
with the epoch (learning rates, step counts) is a tensor, so that a captured step stays valid. `check_factory` checks a
user's factory of networks before training.

A teacher is a second module whose parameters are a moving average of the first one's. In training it normalises with
the statistics of its own batches, as the network does, and its running statistics follow them. An average of the
network's statistics would not fit: the network reads strong views and mixtures, the teacher plain samples.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from labelsieve.engine.parallel import ALONE, World, share_statistics
from labelsieve.engine.rng import preserve_rng
from labelsieve.engine.schedule import Schedule
from labelsieve.errors import InputError, class_and_line, first_line
from labelsieve.models import kernels
from labelsieve.models.kernels.reference import BETA_1, BETA_2, EPSILON
from labelsieve.models.layers import BatchNorm, Stackable, stack_states, unstack_state
from labelsieve.progress import counted

Factory = Callable[..., nn.Module]
NetworkState = dict[str, Tensor]

PROBED = 2  # samples that a network is tried with: some cannot read a single one
NOTHING_TRAINABLE = "has nothing to train: no parameter that its output depends on has requires_grad=True"


def initial_state(factory: Factory, seed: int) -> NetworkState:
    """The initial weights of a single network, the same on every device and in every stack."""
    with preserve_rng():
        # Without a GPU, `torch.manual_seed` would store a copy of the stack for every other kind of device.
        (torch.manual_seed if torch.cuda.is_available() else torch.default_generator.manual_seed)(seed)
        return {name: tensor.detach().clone() for name, tensor in factory().state_dict().items()}


def stackable(factory: Factory) -> bool:
    """Whether the factory takes `n` and returns a stack of n networks."""
    with preserve_rng(), torch.device("meta"):
        try:
            return isinstance(factory(n=1), Stackable)
        except TypeError:
            return False


class Networks:
    """n networks in one module."""

    def __init__(self, factory: Factory, n: int, device: torch.device, world: World) -> None:
        self.factory, self.n, self.device, self.world = factory, n, device, world
        with preserve_rng():
            module = factory(n=n) if n > 1 else factory()
        self.module: nn.Module = module.to(device).train()

    def load(self, states: Sequence[NetworkState]) -> None:
        state = stack_states(states) if self.n > 1 else states[0]
        own = self.module.state_dict(keep_vars=True)
        with torch.no_grad():
            for name, tensor in state.items():
                own[name].copy_(tensor)

    def states(self) -> list[NetworkState]:
        """Copies of the states of the single networks."""
        state = {name: tensor.detach() for name, tensor in self.module.state_dict().items()}
        return unstack_state(state, self.n) if self.n > 1 else [{k: v.clone() for k, v in state.items()}]

    def forward(self, x: Tensor) -> Tensor:
        """Logits [n, B, classes]."""
        if x.is_cuda and not isinstance(self.module, Stackable):
            with torch.autocast("cuda", dtype=torch.bfloat16):
                logits = self.module(x)
        else:
            logits = self.module(x)
        found: Tensor = logits.view(len(x), self.n, -1).transpose(0, 1)
        return found


def flatten(parameters: Sequence[nn.Parameter]) -> Tensor:
    """Copy parameters into one float32 vector, and make them views of it."""
    flat = torch.cat([p.detach().reshape(-1).float() for p in parameters])
    for p, view in zip(parameters, torch.split(flat, [p.numel() for p in parameters]), strict=True):
        p.data = view.view(p.shape)
    return flat


def trainable(module: nn.Module) -> list[nn.Parameter]:
    return [p for p in module.parameters() if p.requires_grad]


class Bundle(Networks):
    """Networks that are trained together; with a `teacher_decay` they have teachers, which are evaluated."""

    def __init__(
        self,
        factory: Factory,
        states: Sequence[NetworkState],
        schedule: Schedule,
        device: torch.device,
        world: World = ALONE,
        teacher_decay: float | None = None,
    ) -> None:
        super().__init__(factory, len(states), device, world)
        self.schedule = schedule
        self._parts: dict[int, Networks] = {}
        self.parameters = trainable(self.module)
        if not self.parameters:
            raise InputError(f"the network {NOTHING_TRAINABLE}")
        sizes = [p.numel() for p in self.parameters]
        self.flat = flatten(self.parameters)
        decay = torch.zeros_like(self.flat)
        owner = torch.empty(sum(sizes), dtype=torch.int32, device=device)
        for p, d, o in zip(self.parameters, torch.split(decay, sizes), torch.split(owner, sizes), strict=True):
            if p.ndim > 1 or schedule.decay_everything:
                d.fill_(schedule.weight_decay)
            o.copy_(torch.arange(self.n, device=device).repeat_interleave(p.numel() // self.n))
        self.decay, self.owner = decay, owner
        self.buffers = dict(self.module.named_buffers())
        self.rate = torch.zeros(self.n, device=device)
        self.count = torch.zeros(self.n, device=device)  # optimizer steps since its state was fresh
        self.first = torch.zeros_like(self.flat)
        self.second = torch.zeros_like(self.flat) if schedule.optimizer == "adam" else None
        self.last_gradients: Sequence[Tensor | None] = ()
        self.teacher_decay = teacher_decay or 0.0
        self.teacher = None if teacher_decay is None else Networks(factory, self.n, device, world)
        modules = [self.module] if self.teacher is None else [self.module, self.teacher.module]
        self.teacher_flat = flatten(trainable(modules[-1])) if self.teacher is not None else self.flat
        self.teacher_buffers = dict(modules[-1].named_buffers()) if self.teacher is not None else {}
        self.norms = [m for module in modules for m in module.modules() if isinstance(m, BatchNorm)]
        self.shared_norms = [norm for module in modules for norm in share_statistics(module, world)]
        self.has_norm = any(
            isinstance(m, BatchNorm | nn.modules.batchnorm._BatchNorm) and m.training for m in self.module.modules()
        )
        self.load(states)

    # -- weights in and out

    def load(self, states: Sequence[NetworkState]) -> None:
        super().load(states)
        if self.teacher is not None:
            self.teacher.load(states)

    def load_network(self, i: int, state: NetworkState) -> None:
        """Replace the weights of network i and reset its optimizer."""
        for networks in (self, *([] if self.teacher is None else [self.teacher])):
            with torch.no_grad():
                for name, tensor in networks.module.state_dict(keep_vars=True).items():
                    (tensor.chunk(self.n)[i] if self.n > 1 else tensor).copy_(state[name])
        self.forget(i)

    def forget(self, i: int) -> None:
        """Reset the optimizer of network i."""
        mine = self.owner == i
        self.first[mine] = 0
        if self.second is not None:
            self.second[mine] = 0
        self.count[i] = 0

    def tensors(self) -> dict[str, Tensor]:
        """All tensors that a step changes, by name; not copies."""
        found = {"flat": self.flat, "first": self.first, "rate": self.rate, "count": self.count}
        if self.second is not None:
            found["second"] = self.second
        if self.teacher is not None:
            found["teacher"] = self.teacher_flat
        found |= {f"teacher.{name}": buffer for name, buffer in self.teacher_buffers.items()}
        return found | {f"buffer.{name}": buffer for name, buffer in self.buffers.items()}

    def part(self, networks: Sequence[int]) -> tuple[Networks, list[int]]:
        """Return networks for inference, and the places of the wanted ones in them: all networks, or copies of a few.

        A whole stack would compute the outputs of all its networks. The number of copies is a power of two, so that few
        sizes are compiled. Teachers take the place of their networks.
        """
        source = self.teacher or self
        size = 1 << (len(networks) - 1).bit_length()
        if 2 * size > self.n:
            return source, list(networks)
        if size not in self._parts:
            self._parts[size] = Networks(self.factory, size, self.device, self.world)
        part = self._parts[size]
        seats = [*networks, *[networks[-1]] * (size - len(networks))]
        own = part.module.state_dict(keep_vars=True)
        with torch.no_grad():
            for name, tensor in source.module.state_dict(keep_vars=True).items():
                pieces = tensor.chunk(self.n)
                for seat, place in zip(seats, own[name].chunk(size), strict=True):
                    place.copy_(pieces[seat])
        return part, list(range(len(networks)))

    # -- a step

    def set_valid(self, valid: Tensor | None) -> None:
        for norm in self.norms:
            norm.valid = valid
        for shared in self.shared_norms:
            shared.valid = valid

    def update(self, gradients: Sequence[Tensor | None]) -> None:
        """Take one optimizer step. The gradient of an unused parameter is 0."""
        if self.device.type == "cpu":
            # Kept until the next step: they are above the activations on the heap. If both were freed, the allocator
            # would return the memory of a whole step to the system and request it again, page by page.
            self.last_gradients = gradients
        pairs = zip(self.parameters, gradients, strict=True)
        with torch.no_grad():
            gradient = torch.cat([(torch.zeros_like(p) if g is None else g).reshape(-1).float() for p, g in pairs])
            self.world.add_up(gradient)
            self.count += 1
            if self.flat.is_cuda and kernels.available():
                self._update_by_kernel(gradient)
            elif self.schedule.optimizer == "adam":
                self._adam(gradient.addcmul_(self.flat, self.decay))
            else:
                self._sgd(gradient.addcmul_(self.flat, self.decay))
            if self.teacher is not None:
                # The first averages are over few steps: (1 + s) / (10 + s) is about the last tenth of s steps.
                decay = ((1 + self.count) / (10 + self.count)).clamp_max(self.teacher_decay)
                self.teacher_flat.lerp_(self.flat, self._each(1 - decay))

    def _update_by_kernel(self, gradient: Tensor) -> None:
        from labelsieve.models.kernels.step import adam, sgd

        if self.second is None:
            momentum, nesterov = self.schedule.momentum, self.schedule.nesterov
            sgd(
                self.flat, gradient, self.first, self.decay, self.owner, self.rate, momentum=momentum, nesterov=nesterov
            )
        else:
            adam(self.flat, gradient, self.first, self.second, self.decay, self.owner, self.rate, self.count)

    def _each(self, per_network: Tensor) -> Tensor:
        """One value per network, repeated for each of its parameters."""
        return per_network if self.n == 1 else per_network.index_select(0, self.owner)

    def _adam(self, gradient: Tensor) -> None:
        assert self.second is not None
        self.first.lerp_(gradient, 1 - BETA_1)
        self.second.mul_(BETA_2).addcmul_(gradient, gradient, value=1 - BETA_2)
        root = torch.sqrt(1 - BETA_2**self.count)
        step = -self.rate * root / (1 - BETA_1**self.count)
        # p -= rate * (m / (1-b1^t)) / (sqrt(v / (1-b2^t)) + eps), with both corrections moved into one factor
        denominator = self.second.sqrt().add_(self._each(EPSILON * root))
        self.flat.addcmul_(self.first / denominator, self._each(step))

    def _sgd(self, gradient: Tensor) -> None:
        self.first.mul_(self.schedule.momentum).add_(gradient)
        direction = gradient.add(self.first, alpha=self.schedule.momentum) if self.schedule.nesterov else self.first
        self.flat.addcmul_(direction, self._each(-self.rate))


def check_factory(
    factory: Callable[..., Any], shape: tuple[int, ...], classes: int, *, name: str = "the network"
) -> None:
    """Raise InputError unless `factory()` is a trainable network that maps such samples to one output per class."""
    with preserve_rng():
        network = build(factory, name)
        found = _probe(network, shape, name)
    if not isinstance(found, Tensor):
        raise InputError(f"{name} returns a {type(found).__name__}: it must return one tensor with one row per sample")
    if found.ndim < 2 or len(found) != PROBED:
        raise InputError(
            f"{name} returns shape {list(found.shape)} for {PROBED} samples: "
            "it must have one row per sample and one column per class"
        )
    if (outputs := math.prod(found.shape[1:])) != classes:
        raise InputError(f"{name} has {counted(outputs, 'output')} per sample, but the data have {classes:,} classes")
    if not any(parameter.requires_grad for parameter in network.parameters()):
        raise InputError(f"{name} {NOTHING_TRAINABLE}")


def materialize(factory: Callable[..., nn.Module], shape: tuple[int, ...]) -> Callable[..., nn.Module]:
    """Return a factory whose lazy layers (nn.LazyLinear) have their sizes."""
    return partial(_build, factory, shape)


def _build(factory: Callable[..., nn.Module], shape: tuple[int, ...], **options: Any) -> nn.Module:
    network = factory(**options)
    if any(is_lazy(tensor) for tensor in (*network.parameters(), *network.buffers())):
        _probe(network, shape, "the network")
    return network


def build(factory: Callable[..., Any], name: str) -> nn.Module:
    """Call the factory, and raise InputError if it needs arguments or does not return a network."""
    try:
        inspect.signature(factory).bind()
    except (TypeError, ValueError) as problem:  # a partial with too many arguments raises ValueError
        how = "with only the number of classes" if isinstance(factory, partial) else "without arguments"
        raise InputError(f"{name} must return a network when it is called {how}: {first_line(problem)}") from None
    network = factory()
    if isinstance(network, nn.Module):
        return network
    raise InputError(f"{name} must return a torch module, not a {type(network).__name__}")


def _probe(network: nn.Module, shape: tuple[int, ...], name: str) -> Any:
    """The output of the network for zeros, computed on a GPU if the CPU cannot."""
    problem: Exception | None = None
    here = torch.get_default_device()  # the CPU, or the meta device
    for device in (here, *([torch.device("cuda")] if torch.cuda.is_available() else [])):
        try:
            with torch.no_grad():
                return network.to(device).eval()(torch.zeros(PROBED, *shape, device=device))
        except Exception as error:  # a user's network can raise anything
            problem = problem or error
    assert problem is not None
    reason = first_line(problem) if isinstance(problem, RuntimeError | ValueError) else class_and_line(problem)
    raise InputError(f"{name} cannot read samples of shape {list(shape)}: {reason}") from problem
