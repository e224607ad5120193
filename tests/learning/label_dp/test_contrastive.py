"""Contrastive pre-training: the loss by hand, the same weights when cut off, inputs alone."""

import math

import pytest
import torch

from sfumato.learning.label_dp.contrastive import contrastive_loss, image_body, pretrain_body
from sfumato.learning.label_dp.fitting import Clock, OutOfTime
from sfumato.learning.label_dp.networks import make_network


def by_hand(codes, temperature):
    """As the formula says, term by term."""
    codes, views = codes.tolist(), len(codes)

    def alike(a, b):
        size = math.hypot(*a) * math.hypot(*b)
        return sum(x * y for x, y in zip(a, b, strict=True)) / size / temperature

    total = 0.0
    for i in range(views):
        j = (i + views // 2) % views
        others = sum(math.exp(alike(codes[i], codes[k])) for k in range(views) if k != i)
        total -= math.log(math.exp(alike(codes[i], codes[j])) / others)
    return total / views


@pytest.mark.parametrize("temperature", [0.2, 0.5])
def test_the_loss_by_hand(temperature) -> None:
    codes = torch.randn(10, 4, generator=torch.Generator().manual_seed(0))
    expected = by_hand(codes, temperature)
    assert float(contrastive_loss(codes, temperature)) == pytest.approx(expected, rel=1e-5)
    found = contrastive_loss(codes.bfloat16(), temperature)
    assert found.dtype == torch.float32
    assert float(contrastive_loss(7 * codes, temperature)) == pytest.approx(expected, rel=1e-5)


def test_the_loss_is_least_for_views_that_agree() -> None:
    """Four images with orthogonal codes: log(1 + 6 e^(-1/T))."""
    codes = torch.eye(4).repeat(2, 1)
    assert float(contrastive_loss(codes)) == pytest.approx(math.log(1 + 6 * math.exp(-5)), rel=1e-4)
    expected = math.log(1 + 6 * math.exp(-1 / 0.5))
    assert float(contrastive_loss(codes, 0.5)) == pytest.approx(expected, rel=1e-5)


def images(count=48):
    return torch.rand(count, 3, 8, 8, generator=torch.Generator().manual_seed(2))


def body():
    return image_body(make_network("small-cnn", (3, 8, 8), 4, width=2), "small-cnn")


def pretrained(folder=None, clock=None, **changes):
    settings = {"epochs": 2, "batch": 16, "mirrored": True, "seed": 3} | changes
    return pretrain_body(body, images(), folder=folder, clock=clock, **settings)


def test_cut_off_it_ends_with_the_same_weights(tmp_path) -> None:
    whole, stops = pretrained(), 0
    while True:
        try:
            found = pretrained(tmp_path / "a", Clock(0))  # a step at a time
            break
        except OutOfTime:
            stops += 1
    assert stops == 5
    assert set(found) == set(whole) == set(body()[0].state_dict())
    assert all(torch.equal(weight, found[name]) for name, weight in whole.items())
    other = pretrained(seed=4)
    assert not torch.equal(whole["0.weight"], other["0.weight"])


def test_half_precision_runs() -> None:
    assert all(value.isfinite().all() for value in pretrained(half=True).values())


def test_torchs_own_coins_are_put_back() -> None:
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    pretrained(epochs=1)
    assert torch.equal(torch.rand(3), expected)


def test_it_learns_to_tell_images_apart() -> None:
    """Views of one image have more alike codes than before, on images that it has seen."""
    from sfumato.learning.label_dp.views import viewed

    def distinct(weights):
        made, _ = body()
        if weights is not None:
            made.load_state_dict(weights)
        torch.manual_seed(0)
        flat = torch.rand(48, 3, 1, 1, generator=torch.Generator().manual_seed(9)).expand(
            -1, -1, 8, 8
        )
        with torch.no_grad():
            found = made.eval()(viewed(torch.cat([flat, flat])))
        found = found - found.mean(dim=0)
        return float(contrastive_loss(found))

    torch.manual_seed(1)
    inputs = torch.rand(48, 3, 1, 1, generator=torch.Generator().manual_seed(9)).expand(
        -1, -1, 8, 8
    )
    made = pretrain_body(body, inputs.contiguous(), epochs=40, batch=16, mirrored=True, seed=0)
    assert distinct(made) < distinct(None) - 0.2


@pytest.mark.parametrize(
    ("name", "shape", "width"), [("resnet18", (3, 8, 8), 16), ("small-cnn", (1, 8, 8), 8)]
)
def test_bodies(name, shape, width) -> None:
    network = make_network(name, shape, 5, width=2)
    found, size = image_body(network, name)
    assert size == width
    assert found(torch.rand(2, *shape)).shape == (2, width)


@pytest.mark.parametrize(("name", "shape"), [("mlp", (3, 8, 8)), ("linear", (12,))])
def test_networks_without_one(name, shape) -> None:
    with pytest.raises(ValueError, match="network must be resnet18 or small-cnn"):
        image_body(make_network(name, shape, 5), name)
