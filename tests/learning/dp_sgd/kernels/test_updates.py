"""Updates by noisy means: torch's own formulas, and the kernel beside its twin."""

import importlib.util

import pytest
import torch
from torch import nn

from sfumato.core.randomness import SeededCoins
from sfumato.learning.dp_sgd.kernels.chacha import LANES, PER_BLOCK, KeyStream, Segment, fill
from sfumato.learning.dp_sgd.kernels.updates import Descent, Moments, alike, update

TILE = LANES * PER_BLOCK
on_a_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")

DESCENTS = [
    {"lr": 0.1},
    {"lr": 0.1, "weight_decay": 0.3},
    {"lr": 0.1, "momentum": 0.9},
    {"lr": 0.1, "momentum": 0.9, "first": True, "dampening": 0.5},
    {"lr": 0.1, "momentum": 0.8, "dampening": 0.3, "weight_decay": 0.2},
    {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.2},
]
MOMENTS = [
    {"lr": 0.1},
    {"lr": 0.1, "weight_decay": 0.3},
    {"lr": 0.1, "weight_decay": 0.3, "decoupled": True, "eps": 1e-3},
    {"lr": 0.1, "beta1": 0.0, "beta2": 0.0},
    {"lr": 0.1, "beta1": 0.6, "beta2": 0.9999},
]


def numbers(count, seed):
    return torch.randn(count, generator=torch.Generator().manual_seed(seed))


def descent(count, options, device="cpu"):
    buffer = torch.zeros(count) if options.get("first") else numbers(count, 2)
    held = buffer.to(device) if "momentum" in options else None
    return Descent(numbers(count, 1).to(device), held, **options)


def moments(count, options, steps, device="cpu", counter="cpu"):
    made = [numbers(count, 1), numbers(count, 2), numbers(count, 3).square() + 0.01]
    at = torch.tensor(float(steps), device=counter)
    return Moments(*(t.to(device) for t in made), at, **options)


def updates(count, device="cpu"):
    """Pairs of the same update: here, and on a device."""
    for options in DESCENTS:
        yield descent(count, options), descent(count, options, device)
    for options in MOMENTS:
        for steps in (1, 2, 100, 30_000):
            yield moments(count, options, steps), moments(count, options, steps, device)


# --- the twin -------------------------------------------------------------------------------------


def test_the_mean_is_that_of_the_same_blocks():
    segment = KeyStream(SeededCoins(1)).take(3000)
    total, p = numbers(3000, 5), torch.zeros(3000)
    update(Descent(p, None, 1.0), total, 0.25, 8.0, segment)
    mean = torch.empty(3000)
    fill(mean, 0.25, segment, total, 8.0)
    assert torch.equal(p, -mean)


def test_numbers_go_where_they_lie_in_memory():
    segment = KeyStream(SeededCoins(1)).take(3000)
    total = numbers(3000, 5)
    flat, turned = torch.zeros(3000), torch.zeros(50, 60).T
    update(Descent(flat, None, 1.0), total, 0.25, 8.0, segment)
    update(Descent(turned, None, 1.0), total.view(50, 60).T, 0.25, 8.0, segment)
    assert torch.equal(turned.T.reshape(-1), flat)


@pytest.mark.parametrize("options", MOMENTS)
@pytest.mark.parametrize("steps", [1, 2, 100])
def test_moments_are_torch_s(options, steps):
    by = moments(500, options, steps)
    p = nn.Parameter(by.parameter.clone())
    kind = torch.optim.AdamW if options.get("decoupled") else torch.optim.Adam
    torchs = {n: v for n, v in options.items() if n in ("lr", "eps", "weight_decay")}
    torchs = {"weight_decay": 0.0, **torchs}
    optimizer = kind([p], betas=(by.beta1, by.beta2), **torchs)
    before = {"exp_avg": by.average.clone(), "exp_avg_sq": by.square.clone()}
    optimizer.state[p].update(step=torch.tensor(float(steps - 1)), **before)
    p.grad = numbers(500, 7)
    by.apply(p.grad.clone())
    optimizer.step()
    torch.testing.assert_close(by.parameter, p.detach(), rtol=2e-6, atol=2e-6)
    torch.testing.assert_close(by.average, optimizer.state[p]["exp_avg"], rtol=2e-6, atol=2e-6)
    torch.testing.assert_close(by.square, optimizer.state[p]["exp_avg_sq"], rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("options", DESCENTS)
def test_descent_is_torch_s(options):
    by = descent(500, options)
    p = nn.Parameter(by.parameter.clone())
    torchs = {n: v for n, v in options.items() if n != "first"}
    optimizer = torch.optim.SGD([p], **torchs)
    if by.buffer is not None and not by.first:
        optimizer.state[p]["momentum_buffer"] = by.buffer.clone()
    p.grad = numbers(500, 7)
    by.apply(p.grad.clone())
    optimizer.step()
    torch.testing.assert_close(by.parameter, p.detach(), rtol=2e-6, atol=2e-6)
    if by.buffer is not None:
        kept = optimizer.state[p]["momentum_buffer"]
        torch.testing.assert_close(by.buffer, kept, rtol=2e-6, atol=2e-6)


def test_alike():
    one = torch.zeros(4, 6)
    assert alike(one)
    assert alike(one, torch.zeros(4, 6), torch.zeros(9, 6)[2:6])
    assert alike(one.T, torch.zeros(4, 6).T)
    assert not alike(one, one.T.contiguous().T)
    assert not alike(one, torch.zeros(6, 4))
    assert not alike(one, one.double())
    assert not alike(one.double(), one.double())
    assert not alike(torch.zeros(4, 12)[:, ::2])
    assert not alike(one[:1].expand(4, 6), one[:1].expand(4, 6))
    assert not alike(one, torch.zeros(4, 6, device="meta"))
    pointwise = torch.zeros(5, 3, 1, 1)
    assert alike(pointwise, pointwise.as_strided((5, 3, 1, 1), (3, 1, 3, 3)))


# --- the kernel -----------------------------------------------------------------------------------


def check_kernel(device):
    """All that is asked of the Triton kernels: by interpretation, or on a GPU."""
    from sfumato.learning.dp_sgd.kernels import chacha_triton as kernel

    drawn = KeyStream(SeededCoins(3)).take(1).words
    first = 2**32 - 60  # the low half of the counter overflows within
    for count in (1, LANES + 1, TILE, TILE + 300):
        segment = Segment(drawn, first, -(-count // TILE) * LANES)
        total = 5 * numbers(count, 9)
        there = total.to(device)
        for near, far in updates(count, device):
            if count != TILE + 300 and isinstance(near, Moments) and float(near.step) > 1:
                continue
            version = far.parameter._version
            update(near, total, 0.3, 7.0, segment)
            kernel.update(far, there, 0.3, 7.0, segment)
            for here, other in zip(near.written, far.written, strict=True):
                torch.testing.assert_close(other.cpu(), here, rtol=2e-5, atol=2e-6)
            assert far.parameter._version > version
        assert torch.equal(there.cpu(), total)  # only read
    check_the_end(kernel, device, Segment(drawn, first, 2 * LANES))
    check_counters(kernel, device, Segment(drawn, first, LANES))


def check_the_end(kernel, device, segment):
    """Nothing beyond the end is touched, and nothing need be aligned."""
    count = TILE + 300
    for near in (descent(count, DESCENTS[5]), moments(count, MOMENTS[2], 3)):
        room = [torch.full((count + 10,), 5.0, device=device) for _ in near.written]
        for space, tensor in zip(room, near.written, strict=True):
            space[1 : count + 1] = tensor.to(device)
        held = [space[1 : count + 1] for space in room]
        if isinstance(near, Descent):
            far = Descent(*held, **DESCENTS[5])
        else:
            far = Moments(*held, near.step, **MOMENTS[2])
        total = numbers(count, 9)
        update(near, total, 0.3, 7.0, segment)
        kernel.update(far, total.to(device), 0.3, 7.0, segment)
        for space, tensor in zip(room, near.written, strict=True):
            torch.testing.assert_close(space[1 : count + 1].cpu(), tensor, rtol=2e-5, atol=2e-6)
            assert bool((space[count + 1 :] == 5).all())
            assert float(space[0]) == 5


def check_counters(kernel, device, segment):
    """A step that is counted on the device gives the same corrections."""
    total = numbers(300, 9)
    betas = [{}, {"beta1": 0.0, "beta2": 0.0}, {"beta1": 0.5, "beta2": 0.99999}]
    for options in ({"lr": 0.1, **b} for b in betas):
        for steps in (1, 2, 3, 10, 400, 700, 5000, 10**6):
            near = moments(300, options, steps)
            far = moments(300, options, steps, device, device)
            update(near, total, 0.3, 7.0, segment)
            kernel._launch_moments(far, total.to(device), 0.3, 1 / 7.0, segment, counted=True)
            torch.testing.assert_close(far.parameter.cpu(), near.parameter, rtol=1e-5, atol=2e-6)


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="no Triton here")
def test_the_kernel_by_interpretation(interpreted):
    interpreted(__file__)


@on_a_gpu
@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="no Triton here")
def test_the_kernel_on_a_gpu():
    check_kernel("cuda")
