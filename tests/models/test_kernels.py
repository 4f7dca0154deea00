"""The kernels against plain torch (in Triton's interpreter where there is no GPU), and plain torch against loops."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from labelsieve.models import kernels
from labelsieve.models.kernels import Activation, Norm, blocks, reference
from labelsieve.models.layers import BatchNorm
from labelsieve.models.resnet_cifar import ResNetCifar

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def _norm_inputs(n: int, c: int, b: int, size: int, *, device: str = "cpu", seed: int = 0) -> dict[str, Tensor]:
    rng = torch.Generator().manual_seed(seed)
    shape = (b, n * c, size, size)
    made = {
        "x": torch.randn(shape, generator=rng) * 2 + 1,
        "residual": torch.randn(shape, generator=rng),
        "g": torch.randn(shape, generator=rng),
        "gamma": torch.rand(n * c, generator=rng) + 0.5,
        "beta": torch.randn(n * c, generator=rng),
        "mean": torch.randn(n * c, generator=rng),
        "var": torch.rand(n * c, generator=rng) + 0.5,
    }
    return {name: value.to(device) for name, value in made.items()}


def _norm(run: object, t: dict[str, Tensor], n: int, **options: object) -> dict[str, Tensor]:
    """Output, updated statistics and every gradient of one call."""
    leaf = {name: t[name].clone().requires_grad_() for name in ("x", "gamma", "beta", "residual")}
    mean, var = t["mean"].clone(), t["var"].clone()
    residual = leaf["residual"] if options.pop("residual", True) else None
    if "relu" in options:
        options["act"] = Activation.RELU if options.pop("relu") else Activation.NONE
    sums = {"sums": options.pop("sums")} if "sums" in options else {}
    norm = Norm(leaf["gamma"], leaf["beta"], mean, var, n, **options)
    y = run(leaf["x"], norm, residual=residual, **sums)  # type: ignore[operator]
    y.backward(t["g"].to(y.dtype))
    result = {"y": y.detach(), "mean": mean, "var": var}
    result |= {"d" + name: value.grad for name, value in leaf.items() if value.grad is not None}
    return result


def _same(got: dict[str, Tensor], want: dict[str, Tensor], tolerance: float = 2e-5) -> None:
    assert got.keys() == want.keys()
    for name, value in want.items():
        error = (got[name].double() - value.double()).norm() / value.double().norm().clamp_min(1e-3)
        assert error < tolerance, (name, float(error))


def test_reference_convolution_is_one_convolution_a_network() -> None:
    x, w = torch.randn(2, 3 * 4, 8, 8), torch.randn(3 * 5, 4, 3, 3)
    y = reference.grouped_conv3x3(x, w, 3, stride=2)
    for i in range(3):
        one = F.conv2d(x[:, 4 * i : 4 * i + 4], w[5 * i : 5 * i + 5], stride=2, padding=1)
        torch.testing.assert_close(y[:, 5 * i : 5 * i + 5], one)


@pytest.mark.parametrize("residual", [True, False])
def test_reference_norm_with_valid_is_torch_on_the_valid_samples(residual: bool) -> None:
    n, c, valid = 3, 4, (5, 2, 3)
    t = _norm_inputs(n, c, 5, 4)
    got = _norm(reference.batch_norm_act, t, n, residual=residual, valid=torch.tensor(valid, dtype=torch.int32))
    for i, k in enumerate(valid):
        own = slice(c * i, c * i + c)
        part = {name: (v[:k, own] if v.dim() == 4 else v[own]).clone() for name, v in t.items()}
        x, gamma, beta = (part[name].requires_grad_() for name in ("x", "gamma", "beta"))
        y = F.batch_norm(x, part["mean"], part["var"], gamma, beta, True, 0.1, 1e-5)
        y = F.relu(y + part["residual"] if residual else y)
        y.backward(part["g"])
        torch.testing.assert_close(got["y"][:k, own], y.detach())
        torch.testing.assert_close(got["dx"][:k, own], x.grad, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(got["dgamma"][own], gamma.grad, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(got["dbeta"][own], beta.grad, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(got["mean"][own], part["mean"])
        torch.testing.assert_close(got["var"][own], part["var"])
        assert got["y"].isfinite().all()
        assert not got["dx"][k:, own].any()
        assert not residual or not got["dresidual"][k:, own].any()


def test_reference_norm_full_batch_as_valid_changes_nothing() -> None:
    t = _norm_inputs(2, 4, 3, 4)
    valid = torch.full((2,), 3, dtype=torch.int32)
    _same(_norm(reference.batch_norm_act, t, 2, valid=valid), _norm(reference.batch_norm_act, t, 2))


def test_reference_norm_of_a_network_without_samples_is_finite_and_keeps_its_statistics() -> None:
    t = _norm_inputs(2, 4, 3, 4)
    got = _norm(reference.batch_norm_act, t, 2, valid=torch.tensor([0, 3], dtype=torch.int32))
    assert all(value.isfinite().all() for value in got.values())
    assert torch.equal(got["mean"][:4], t["mean"][:4]) and torch.equal(got["var"][:4], t["var"][:4])
    assert not got["dx"][:, :4].any() and got["dx"][:, 4:].any()


def test_the_public_ops_on_the_cpu_are_the_reference() -> None:
    t = _norm_inputs(2, 4, 3, 4)
    w = torch.randn(8, 4, 3, 3)
    y, sums = kernels.grouped_conv3x3_sums(t["x"], w, 2)
    assert sums is None and torch.equal(y, kernels.grouped_conv3x3(t["x"], w, 2))
    _same(_norm(kernels.batch_norm_act, t, 2), _norm(reference.batch_norm_act, t, 2))


def test_blocks_fit_shapes_outside_the_table() -> None:
    found = blocks.conv_block(3, 16, 64, 64)
    assert found.pixels % 64 == 0 and found.columns >= 16 and 64 % found.rows == 0


if find_spec("triton") is not None:
    HALF = torch.bfloat16 if DEVICE == "cuda" else torch.float16  # the interpreter cannot multiply bf16
    # A card's compiler takes minutes for products of single precision; nobody trains with them there.
    DTYPE = torch.float32 if DEVICE == "cpu" else HALF
    SHAPES = [  # networks, channels in and out, batch, size, stride
        (3, 16, 16, 3, 8, 1),
        (2, 32, 32, 5, 4, 1),
        (1, 64, 64, 3, 4, 1),
        (2, 3, 16, 2, 8, 1),
        (2, 5, 10, 2, 4, 1),
        (2, 16, 32, 3, 4, 2),
    ]

    @pytest.mark.parametrize("shape", SHAPES, ids=str)
    def test_convolution_and_gradients(shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
        from labelsieve.models.kernels import conv

        n, cin, cout, b, size, stride = shape
        block = blocks.ConvBlock(32, 4, 16, 4, 1)
        monkeypatch.setattr(blocks, "CONV", {(cin, size): block, (cout, size): block})
        monkeypatch.setattr(blocks, "WEIGHT", {(cin, size): blocks.WeightBlock(32, 64, 32, 4 * n, 4, 2)})
        rng = torch.Generator().manual_seed(1)
        x = torch.randn(b, n * cin, size, size, generator=rng).to(DEVICE, DTYPE, memory_format=torch.channels_last)
        w = torch.randn(n * cout, cin, 3, 3, generator=rng).to(DEVICE).to(DTYPE).float()
        assert conv.supported(x, w, n, stride)
        results = []
        for run, dtype in ((conv.grouped_conv3x3, DTYPE), (reference.grouped_conv3x3, torch.float64)):
            x_leaf, w_leaf = x.to(dtype, copy=True).requires_grad_(), w.clone().requires_grad_()
            y = run(x_leaf, w_leaf, n, stride=stride)
            y.backward(torch.cos(torch.arange(y.numel(), device=DEVICE)).view(y.shape).to(DTYPE).to(dtype))
            results.append({"y": y.detach(), "dx": x_leaf.grad, "dw": w_leaf.grad})
        _same(*results, 2e-5 if DEVICE == "cpu" else 3e-3)

    def test_convolution_in_half_precision() -> None:
        from labelsieve.models.kernels import conv

        rng = torch.Generator().manual_seed(2)
        x = torch.randn(2, 32, 4, 8, generator=rng).to(DEVICE, HALF)
        w = torch.randn(32, 16, 3, 3, generator=rng).to(DEVICE)
        y = conv.grouped_conv3x3(x, w, 2)
        want = reference.grouped_conv3x3(x.double(), w.to(HALF).double(), 2)
        assert (y.double() - want).norm() / want.norm() < 3e-3

    @pytest.mark.parametrize("valid", [None, (3, 1, 0)])
    def test_convolution_hands_its_sums_to_the_norm(valid: tuple[int, ...] | None) -> None:
        from labelsieve.models.kernels import conv, norm

        n, c, b, size = 3, 16, 3, 4
        limit = None if valid is None else torch.tensor(valid, dtype=torch.int32, device=DEVICE)
        t = _norm_inputs(n, c, b, size, device=DEVICE)
        w = torch.randn(n * c, c, 3, 3, device=DEVICE)
        y, sums = conv.grouped_conv3x3_sums(t["x"], w, n, valid=limit)
        got = _norm(norm.batch_norm_act, t | {"x": y}, n, valid=limit, sums=sums)
        _same(got, _norm(norm.batch_norm_act, t | {"x": y}, n, valid=limit))
        masked = y.double() if limit is None else y.double() * reference.valid_mask(limit, b, n * c)
        np.testing.assert_allclose(sums[0].sum(0).cpu(), masked.sum((0, 2, 3)).cpu(), rtol=1e-4, atol=1e-2)
        np.testing.assert_allclose(sums[1].sum(0).cpu(), (masked**2).sum((0, 2, 3)).cpu(), rtol=1e-4, atol=1e-2)

    @pytest.mark.parametrize("valid", [None, (5, 2, 0)])
    @pytest.mark.parametrize("residual", [True, False])
    @pytest.mark.parametrize("relu", [True, False])
    @pytest.mark.parametrize("training", [True, False])
    def test_norm_and_gradients(valid: tuple[int, ...] | None, residual: bool, relu: bool, training: bool) -> None:
        from labelsieve.models.kernels import norm

        n, c, b, size = 3, 16, 5, 6
        limit = None if valid is None else torch.tensor(valid, dtype=torch.int32, device=DEVICE)
        t = _norm_inputs(n, c, b, size, device=DEVICE)
        options = {"residual": residual, "relu": relu, "training": training, "valid": limit}
        got = _norm(norm.batch_norm_act, t, n, **options)
        want = _norm(reference.batch_norm_act, t, n, **options)
        if limit is not None:  # the output of padding is free, as long as it is finite
            assert got["y"].isfinite().all()
            inside = reference.valid_mask(limit, b, n * c)
            got["y"], want["y"] = got["y"] * inside, want["y"] * inside
        _same(got, want, 1e-4)

    def _stack(n: int, valid: tuple[int, ...] | None, *, preactivation: bool = False) -> ResNetCifar:
        torch.manual_seed(3)
        module = ResNetCifar(depth=8, n=n, preactivation=preactivation).to(DEVICE).train()
        for part in module.modules():
            if isinstance(part, BatchNorm):
                torch.nn.init.uniform_(part.weight, 0.5, 1.5)
                torch.nn.init.normal_(part.bias)
                part.valid = None if valid is None else torch.tensor(valid, dtype=torch.int32, device=DEVICE)
        return module

    SIDE = 8 if DEVICE == "cpu" else 32  # on a card the blocks are the tables'
    Found = Callable[[Callable[..., Tensor], torch.dtype], dict[str, Tensor]]

    def _small_blocks(monkeypatch: pytest.MonkeyPatch, together: int) -> None:
        """In the interpreter: several programs in every direction, and few of the kernels that serve all layers."""
        from labelsieve.models.kernels import resnet

        if DEVICE == "cpu":
            monkeypatch.setattr(resnet, "PACKED", 1 << 17)
            monkeypatch.setattr(resnet, "SUMMED", 1 << 17)
            monkeypatch.setattr(resnet, "TOGETHER", together)
            monkeypatch.setattr(blocks, "WEIGHT", {(16, 8): blocks.WEIGHT[16, 32]._replace(programs=8)})
            sizes = {(16, 8): (16, 4, 16, 1, 2, 1), (32, 4): (32, 2, 16, 1, 1, 1), (64, 2): (16, 8, 64, 4, 2, 1)}
            made = {key: blocks.FusedConvBlock(*size) for key, size in sizes.items()}
            monkeypatch.setattr(blocks, "FUSED_CONV", made)

    def _plain(module: ResNetCifar, x: Tensor) -> Tensor:
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(kernels, "usable", lambda x: False)
            return module.features(x)

    def _fused_is_plain(found: Found) -> None:
        """What is found by either; in half precision no more than half as far again from single as by plain layers."""
        from labelsieve.models.kernels import resnet

        exact = found(_plain, torch.float32)
        got = found(resnet.features, DTYPE)
        if DEVICE == "cpu":
            _same(got, exact, 1e-5)
            return
        plain = found(_plain, DTYPE)
        assert got.keys() == exact.keys()
        for name, value in exact.items():
            size = value.double().norm().clamp_min(1e-3)
            far, usual = (float((made[name].double() - value.double()).norm() / size) for made in (got, plain))
            assert far < 1.5 * usual + 0.01, (name, far, usual)

    @pytest.mark.parametrize("valid", [None, (3, 1)])
    @pytest.mark.parametrize("preactivation", [False, True])
    def test_fused_network_is_the_network(
        preactivation: bool, valid: tuple[int, ...] | None, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from labelsieve.models.kernels import resnet

        _small_blocks(monkeypatch, 16 if preactivation == (valid is None) else 2)
        n, b = 2, 3
        rng = torch.Generator().manual_seed(4)
        x = torch.randn(b, n * 3, SIDE, SIDE, generator=rng).to(DEVICE, memory_format=torch.channels_last)
        g = torch.randn(b, n * 64, generator=rng).to(DEVICE)

        def found(run: Callable[..., Tensor], dtype: torch.dtype) -> dict[str, Tensor]:
            module = _stack(n, valid, preactivation=preactivation)
            assert resnet.supported(module, x)
            names, parameters = zip(*(pair for pair in module.named_parameters() if "head" not in pair[0]), strict=True)
            features = run(module, x.to(dtype))
            gradients = torch.autograd.grad(features, parameters, g)
            features = features.detach()
            if valid is not None:  # the output of padding is free
                assert features.isfinite().all()
                features = features * reference.valid_mask(torch.tensor(valid, device=DEVICE), b, n * 64)[:, :, 0, 0]
            return dict(zip(names, gradients, strict=True)) | dict(module.named_buffers()) | {"y": features}

        _fused_is_plain(found)

    @pytest.mark.parametrize("preactivation", [False, True])
    def test_fused_network_scores_as_the_network(preactivation: bool, monkeypatch: pytest.MonkeyPatch) -> None:
        from labelsieve.models.kernels import resnet

        _small_blocks(monkeypatch, resnet.TOGETHER)
        n = 2
        module = _stack(n, (3, 1), preactivation=preactivation).eval()  # what training left in `valid` says nothing now
        rng = torch.Generator().manual_seed(5)
        for norm in (part for part in module.modules() if isinstance(part, BatchNorm)):
            norm.running_mean.copy_(torch.randn(norm.running_mean.shape, generator=rng))
            norm.running_var.copy_(torch.rand(norm.running_var.shape, generator=rng) + 0.5)
        before = {name: buffer.clone() for name, buffer in module.named_buffers()}
        x = torch.randn(5, n * 3, SIDE, SIDE, generator=rng).to(DEVICE, memory_format=torch.channels_last)
        assert not resnet.supported(module, x)  # a gradient might be wanted
        with torch.no_grad():
            assert resnet.supported(module, x)
            _fused_is_plain(lambda run, dtype: {"y": run(module, x.to(dtype))})
        assert all(torch.equal(buffer, before[name]) for name, buffer in module.named_buffers())
        assert resnet.supported(module.train(), x)

    def test_weights_of_another_layout_in_memory_are_left_to_the_layers(monkeypatch: pytest.MonkeyPatch) -> None:
        from labelsieve.models.kernels import resnet

        _small_blocks(monkeypatch, resnet.TOGETHER)
        monkeypatch.setattr(kernels, "usable", lambda x: True)
        module = _stack(2, None).eval()
        x = torch.randn(2, 6, SIDE, SIDE, generator=torch.Generator().manual_seed(6))
        x = x.to(DEVICE, DTYPE, memory_format=torch.channels_last)
        with torch.no_grad():
            want = module.features(x)
            assert resnet.supported(module, x)
            module.to(memory_format=torch.channels_last)
            assert not resnet.supported(module, x)
            _same({"y": module.features(x)}, {"y": want}, 1e-5 if DEVICE == "cpu" else 1e-2)

    def test_weight_gradients_of_equal_layers_are_made_together() -> None:
        from labelsieve.models.kernels import resnet

        assert resnet.Plan(_stack(32, None), 32, 32).chunks == [(i, 1) for i in range(7)]
        plan = resnet.Plan(ResNetCifar(depth=32, n=2), 32, 32)  # 10, 9 and 9 equal layers, at most 4 together
        of_them = [(first, size) for i, (first, size) in enumerate(plan.chunks) if first == i]
        assert of_them[:5] == [(0, 1), (1, 4), (5, 3), (8, 3), (11, 1)]
        assert of_them[5:] == [(12, 3), (15, 3), (18, 3), (21, 1), (22, 3), (25, 3), (28, 3)]

    def test_fused_network_leaves_what_it_cannot_do() -> None:
        from labelsieve.models.kernels import resnet

        x = torch.randn(2, 6, 8, 8, device=DEVICE)
        assert resnet.supported(_stack(2, None), x)
        assert not resnet.supported(_stack(2, None).eval(), x)
        assert not resnet.supported(_stack(2, None), x[:, :, :6, :6])
        with torch.no_grad():
            assert not resnet.supported(_stack(2, None), x)
        shared = _stack(2, None)
        shared.stem_norm.across = lambda t: t[None]
        assert not resnet.supported(shared, x)

    def test_pictures_gathered_by_one_kernel() -> None:
        from labelsieve.engine.store import PictureStore
        from labelsieve.models.kernels import step

        rng = np.random.default_rng(0)
        pictures = rng.integers(0, 256, (7, 8, 8, 3), dtype=np.uint8)
        store = PictureStore(pictures, torch.device(DEVICE), shift=2)
        index = torch.as_tensor(rng.integers(0, 7, (3, 4)), device=DEVICE)
        code = torch.as_tensor(rng.integers(0, store.codes, (3, 4)), device=DEVICE)
        got = step.gather_pictures(store.pixels, index, code, store.scale, store.offset, 8, 8, 2, store.dtype)
        want = store.batch(index, code)
        torch.testing.assert_close(got, want, rtol=1e-6, atol=1e-6)
        assert got.stride() == want.stride()

    def test_adam_by_one_kernel() -> None:
        from labelsieve.engine.bundle import Bundle, initial_state
        from labelsieve.engine.schedule import Schedule
        from labelsieve.models.kernels import step
        from labelsieve.models.small import MLP

        def factory(n: int = 1) -> MLP:
            return MLP(3, inputs=5, n=n)

        states = [initial_state(factory, seed) for seed in range(2)]
        usual = Bundle(factory, states, Schedule(1, ((0, 1e-2),), weight_decay=0.1), torch.device(DEVICE))
        usual.rate.copy_(torch.tensor([1e-2, 3e-3]))
        one = {name: getattr(usual, name).clone() for name in ("flat", "first", "second", "count")}
        for seed in range(3):
            rng = torch.Generator().manual_seed(seed)
            gradients = [torch.randn(p.shape, generator=rng).to(DEVICE) for p in usual.parameters]
            usual.update(gradients)
            one["count"] += 1
            flat = torch.cat([g.reshape(-1) for g in gradients])
            step.adam(
                one["flat"], flat, one["first"], one["second"], usual.decay, usual.owner, usual.rate, one["count"]
            )  # fmt: skip
            if seed == 0:  # from here on the networks' counts differ
                usual.count[1] = one["count"][1] = 5
        for name, value in one.items():
            torch.testing.assert_close(value, getattr(usual, name), rtol=1e-5, atol=1e-6)

    @pytest.mark.parametrize("nesterov", [False, True])
    def test_sgd_by_one_kernel(nesterov: bool) -> None:
        from labelsieve.engine.bundle import Bundle, initial_state
        from labelsieve.engine.schedule import Schedule
        from labelsieve.models.kernels.step import sgd
        from labelsieve.models.small import MLP

        def factory(n: int = 1) -> MLP:
            return MLP(3, inputs=5, n=n)

        schedule = Schedule(1, ((0, 0.1),), optimizer="sgd", weight_decay=0.1, momentum=0.8, nesterov=nesterov)
        usual = Bundle(factory, [initial_state(factory, seed) for seed in range(2)], schedule, torch.device("cpu"))
        usual.rate.copy_(torch.tensor([0.1, 0.03]))
        names = ("flat", "first", "decay", "owner", "rate")
        mine = {name: getattr(usual, name).clone().to(DEVICE) for name in names}
        for seed in range(3):
            rng = torch.Generator().manual_seed(seed)
            gradients = [torch.randn(p.shape, generator=rng) for p in usual.parameters]
            usual.update(gradients)
            flat = torch.cat([g.reshape(-1) for g in gradients]).to(DEVICE)
            sgd(mine["flat"], flat, *(mine[name] for name in names[1:]), momentum=0.8, nesterov=nesterov)
        for name in ("flat", "first"):
            torch.testing.assert_close(mine[name].cpu(), getattr(usual, name), rtol=1e-5, atol=1e-6)

    def test_short_slides_for_few_networks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
        from labelsieve.models.kernels import conv

        x, w = torch.randn(2, 32, 8, 16, device=DEVICE), torch.randn(32, 16, 3, 3, device=DEVICE)
        got, more = conv.grouped_conv3x3_sums(x, w, 2)
        monkeypatch.setattr(conv, "PROGRAMS", 1)
        want, sums = conv.grouped_conv3x3_sums(x, w, 2)
        assert more.shape[1] > sums.shape[1]
        _same({"y": got, "sums": more.sum(1)}, {"y": want, "sums": sums.sum(1)})


def test_the_fused_network_can_be_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LABELSIEVE_FUSED", raising=False)
    assert kernels.fused()
    monkeypatch.setenv("LABELSIEVE_FUSED", "0")
    assert not kernels.fused()


def test_fused_blocks_fill_the_device() -> None:
    few, many = (blocks.fused_conv_block(16, 16, 32, 32, n, 128) for n in (1, 32))
    assert few.rows < many.rows <= 32
    assert blocks.fused_conv_block(3, 16, 64, 64, 2, 8).pixels == 64
