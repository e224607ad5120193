"""Examples come back from their gradient; and what keeps them from it."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from sfumato.accounting import account
from sfumato.attacks.gradients.defences import (
    Clipping,
    Dropout,
    GaussianNoise,
    LocalSteps,
    PrivateSteps,
    Pruning,
)
from sfumato.attacks.gradients.matching import Matching, invert_gradient, total_variation
from sfumato.attacks.gradients.sharing import share_gradient

SHAPE = (3, 16, 16)
QUICK = Matching.dlg(iterations=150)


def coins(seed=0):
    return np.random.default_rng(seed)


@pytest.fixture
def smooth():
    """Two convolutions with sigmoids, weights as in the first publication."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 12, 5, stride=2, padding=2), nn.Sigmoid(),
        nn.Conv2d(12, 12, 5, padding=2), nn.Sigmoid(), nn.Flatten(), nn.Linear(768, 10),
    )  # fmt: skip
    for parameter in model.parameters():
        nn.init.uniform_(parameter, -0.5, 0.5)
    return model


def attacked(model, images, labels, defences=(), matching=QUICK, known=False, shape=SHAPE):
    x, y = torch.from_numpy(images), torch.tensor(labels)
    sent = share_gradient(model, x, y, defences=defences, generator=coins(1))
    found = invert_gradient(
        model, sent, shape, generator=coins(), matching=matching, labels=labels if known else None
    )
    return found, found.compared(images), sent


def test_one_photograph_comes_back_with_its_label(smooth, photographs):
    found, alike, _ = attacked(smooth, photographs(1, 16), [7])
    assert found.labels.tolist() == [7]
    assert alike.psnr[0] > 25
    assert alike.ssim[0] > 0.8
    assert found.images.dtype == np.float32
    assert 0 <= found.images.min() <= found.images.max() <= 1


@pytest.mark.slow
def test_two_photographs_come_back(smooth, photographs):
    _, alike, _ = attacked(smooth, photographs(2, 16), [7, 2], matching=Matching.dlg(400))
    assert alike.psnr.min() > 20


def test_by_the_angle_alone(photographs):
    """A network with ReLUs, and a gradient that was clipped: the direction is all there is."""
    torch.manual_seed(2)
    model = nn.Sequential(
        nn.Conv2d(3, 24, 3, padding=1), nn.ReLU(), nn.Conv2d(24, 24, 3, padding=1), nn.ReLU(),
        nn.Flatten(), nn.Linear(24 * 64, 10),
    )  # fmt: skip
    how = Matching(iterations=400, rate=0.05)
    _, alike, _ = attacked(model, photographs(1, 8), [3], [Clipping(0.001)], how, shape=(3, 8, 8))
    assert alike.psnr[0] > 18


def test_through_local_steps(smooth, photographs):
    """The average over two steps, differentiated through them."""
    local = [LocalSteps(2, rate=0.05)]
    _, alike, _ = attacked(smooth, photographs(1, 16), [7], local, known=True)
    assert alike.psnr[0] > 25


def test_through_dropout_that_zeros_tell(smooth, photographs):
    _, alike, _ = attacked(smooth, photographs(1, 16), [7], [Dropout(0.2)], known=True)
    assert alike.psnr[0] > 20


def test_half_of_the_numbers_are_enough(smooth, photographs):
    _, alike, _ = attacked(smooth, photographs(1, 16), [7], [Pruning(0.5)], known=True)
    assert alike.psnr[0] > 18


def test_private_steps_stop_it(smooth, photographs):
    """At epsilon 8 for this one update."""
    private = PrivateSteps(clip=1.0, noise_multiplier=0.72)
    found, alike, sent = attacked(smooth, photographs(1, 16), [7], [private], known=True)
    assert account(sent.event, 1e-5).epsilon < 8
    assert alike.psnr[0] < 12
    assert "DP-SGD" in found.defence


def test_noise_stops_it_by_and_by(smooth, photographs):
    found = [
        attacked(smooth, photographs(1, 16), [7], [GaussianNoise(s)], known=True)[1].psnr[0]
        for s in (1e-4, 1e-2)
    ]
    assert found[0] > found[1] + 3


def test_the_same_seed_finds_the_same(smooth, photographs):
    before = {name: value.clone() for name, value in smooth.state_dict().items()}
    first, _, _ = attacked(smooth, photographs(1, 16), [7], matching=Matching.dlg(20, trials=2))
    again, _, _ = attacked(smooth, photographs(1, 16), [7], matching=Matching.dlg(20, trials=2))
    assert np.array_equal(first.images, again.images)
    assert first.to_dict() == again.to_dict()
    assert all(torch.equal(before[name], value) for name, value in smooth.state_dict().items())


def test_of_several_trials_the_one_with_the_least_cost(smooth, photographs):
    alone, _, _ = attacked(smooth, photographs(1, 16), [7], matching=Matching.dlg(30))
    best, _, _ = attacked(smooth, photographs(1, 16), [7], matching=Matching.dlg(30, trials=4))
    assert best.cost <= alone.cost


def test_other_bounds(smooth, photographs):
    """Pixels from 0 to 255 are the same pictures."""
    images = photographs(1, 16)

    class Bytes(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = smooth

        def forward(self, x):
            return self.inner(x / 255)

    model = Bytes()
    sent = share_gradient(model, torch.from_numpy(255 * images), torch.tensor([7]))
    how = Matching(iterations=60, rate=0.05)
    wide = invert_gradient(model, sent, SHAPE, generator=coins(), matching=how, bounds=(0.0, 255.0))
    plain = invert_gradient(smooth, sent_of(smooth, sent), SHAPE, generator=coins(), matching=how)
    assert wide.images.max() > 1
    assert np.allclose(wide.images / 255, plain.images, atol=0.05)


def sent_of(model, sent):
    """The same update under the inner model's names."""
    names = {f"inner.{name}": name for name, _ in model.named_parameters()}
    return replace(sent, gradient={names[name]: part for name, part in sent.gradient.items()})


def test_variation_by_hand():
    image = torch.tensor([[[[0.0, 1.0], [0.5, 0.5]]]])
    assert float(total_variation(image)) == pytest.approx(0.5 + 0.5)
    assert float(total_variation(torch.rand(3, 4))) == 0


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"distance": "angle"}, "distance must be squared or cosine, got 'angle'"),
        ({"optimizer": "sgd"}, "optimizer must be adam-signs or lbfgs, got 'sgd'"),
        ({"iterations": 0}, "iterations"),
        ({"rate": -1.0}, "rate"),
        ({"variation": -1.0}, "variation"),
        ({"trials": 0}, "trials"),
    ],
)
def test_bad_settings_are_refused(changes, words):
    with pytest.raises(ValueError, match=words):
        Matching(**changes)


def test_wrong_labels_are_refused(smooth, photographs):
    sent = share_gradient(smooth, torch.from_numpy(photographs(1, 16)), torch.tensor([7]))
    with pytest.raises(ValueError, match="labels must be one for each of 1 examples, got 2"):
        invert_gradient(smooth, sent, SHAPE, generator=coins(), labels=[1, 2])
    with pytest.raises(ValueError, match="bounds"):
        invert_gradient(smooth, sent, SHAPE, generator=coins(), bounds=(1.0, 1.0))
