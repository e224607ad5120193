"""Priors: smoothness by hand, and pictures from codes that were learned from public pictures."""

import numpy as np
import pytest
import torch
from torch import nn

from sfumato.attacks.inversion.priors import (
    LearnedPrior,
    energy,
    total_variation,
    train_autoencoder_prior,
)


def test_variation_and_energy_by_hand():
    images = torch.tensor([[[[0.0, 1.0], [0.5, 0.25]]], [[[0.3, 0.3], [0.3, 0.3]]]])
    assert total_variation(images).tolist() == pytest.approx([(0.5 + 0.75) / 2 + 1.25 / 2, 0])
    assert energy(images, 0.3)[1] == 0
    assert energy(images, 0.0)[0] == pytest.approx((1 + 0.25 + 0.0625) / 4)
    with pytest.raises(ValueError, match="images must be"):
        total_variation(torch.zeros(2, 5))


def test_pictures_that_it_never_saw_come_back_from_their_codes(digits, prior):
    images = digits.private[0]
    rebuilt = prior.rebuilt(images)
    assert rebuilt.shape == images.shape
    left = ((rebuilt - images) ** 2).mean() / images.var(axis=0).mean()
    assert left < 0.5
    assert str(prior) == "codes of 12 numbers to images of 1 x 8 x 8"


def test_normal_codes_make_pictures_within_the_bounds(digits):
    shifted = 4 * digits.others[0][:300] - 3
    prior = train_autoencoder_prior(
        shifted,
        generator=np.random.default_rng(1),
        bounds=(-3.0, 1.0),
        code=6,
        hidden=64,
        epochs=60,
        batch_size=16,
    )
    made = prior.decoded(np.random.default_rng(2).standard_normal((500, 6)))
    assert made.min() >= -3
    assert made.max() <= 1
    assert made.mean(axis=0) == pytest.approx(shifted.mean(axis=0), abs=0.6)
    assert not any(weights.requires_grad for weights in prior.decoder.parameters())


def test_only_the_attackers_coins_are_tossed(digits):
    before = torch.get_rng_state()
    one, two, three = (
        train_autoencoder_prior(
            digits.others[0][:50], generator=np.random.default_rng(seed), hidden=8, epochs=1
        ).decoded(np.zeros((1, 16)))
        for seed in (5, 5, 6)
    )
    assert np.array_equal(one, two)
    assert not np.array_equal(one, three)
    assert torch.equal(before, torch.get_rng_state())


def test_a_decoder_alone_does_not_rebuild():
    decoder = nn.Linear(3, 4)
    prior = LearnedPrior(decoder, (3,))
    assert prior.decoded(np.zeros((2, 3))) == pytest.approx(decoder.bias.detach().expand(2, 4))
    with pytest.raises(ValueError, match="encoder"):
        prior.rebuilt(np.zeros((1, 4)))


def test_bad_parameters_are_refused():
    generator = np.random.default_rng(1)
    with pytest.raises(ValueError, match="images must be"):
        train_autoencoder_prior([], generator=generator)
    for name in ("code", "hidden", "epochs", "batch_size", "rate"):
        with pytest.raises(ValueError, match=f"{name} must be"):
            train_autoencoder_prior(np.zeros((2, 4)), generator=generator, **{name: 0})
    with pytest.raises(ValueError, match="weight must be"):
        train_autoencoder_prior(np.zeros((2, 4)), generator=generator, weight=-1)
