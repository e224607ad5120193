"""Standardised scattering: what it releases about private rows, and how far one row moves it."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from sfumato.accounting import account
from sfumato.core.events import GaussianEvent
from sfumato.core.neighbours import Neighbours
from sfumato.core.randomness import SeededCoins
from sfumato.learning.features import (
    FeatureMap,
    StandardizedScattering,
    standardized,
    transform,
)
from sfumato.learning.features.pink import pink_images
from sfumato.learning.features.standardized import statistics_of

SHAPE = (1, 8, 8)
FEATURES = StandardizedScattering(noise_multiplier=6.0)


def images(n, seed=0):
    return torch.rand(n, *SHAPE, generator=torch.Generator().manual_seed(seed))


@settings(max_examples=40, deadline=None)
@given(
    scale=st.sampled_from([0.0, 1e-3, 1.0, 30.0, 1e6, math.inf]),
    channels=st.sampled_from([1, 3, 81]),
    seed=st.integers(0, 99),
)
def test_one_row_moves_the_sum_by_at_most_one(scale, channels, seed):
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randn(5, channels, 2, 2, generator=generator)
    row = scale * torch.randn(1, channels, 2, 2, generator=generator)
    without, with_it = statistics_of(rows), statistics_of(torch.cat([rows, row]))
    assert math.fsum((with_it - without) ** 2) <= 1.0


def test_the_bound_is_attained():
    rows = torch.full((1, 9, 2, 2), 1e4)
    assert np.linalg.norm(statistics_of(rows)) == pytest.approx(1.0, abs=1e-4)


def test_sums_are_exact_in_any_order():
    rows = torch.randn(3000, 7, 2, 2, generator=torch.Generator().manual_seed(0))
    assert np.array_equal(statistics_of(rows), statistics_of(rows.flip(0)))


def released(noise, runs, monkeypatch):
    """The released sums of no rows at all: noise alone."""
    features, seen, usual = StandardizedScattering(noise), [], standardized._scales

    def watch(noisy):
        seen.append(np.array(noisy))
        return usual(noisy)

    monkeypatch.setattr(standardized, "_scales", watch)
    module = features.build(SHAPE)
    for run in range(runs):
        features.fit(module, images(0), SeededCoins(run))
    return np.concatenate(seen)


def test_the_noise_is_the_multiplier(monkeypatch):
    found = released(6.0, 20, monkeypatch) / 6.0  # 163 numbers each
    low, high = stats.chi2.interval(1 - 1e-6, len(found)) / np.array(len(found))
    assert low < np.mean(found**2) < high
    assert high < 1.1**2  # would notice a scale that is 10 % off
    assert low > 0.9**2
    assert stats.kstest(found, "norm").pvalue > 1e-6


def test_fitted_rows_have_mean_zero_and_variance_one():
    features = StandardizedScattering(noise_multiplier=1e-3)
    module = features.build(SHAPE)
    rows = 0.2 + 0.7 * pink_images(400, 8, 8).flip(2)  # other light, other contrast
    made = features.fit_transform(module, rows, SeededCoins(1))
    assert made.mean((0, 2, 3)).abs().max() < 0.05
    spread = made.var((0, 2, 3))
    assert ((spread > 0.8) & (spread < 1.2)).sum() > 0.5 * len(spread)  # others are at the floor
    assert spread.max() < 1.2


def test_both_ways_to_the_features_agree():
    one, two = FEATURES.build(SHAPE), FEATURES.build(SHAPE)
    rows = images(50)
    made = FEATURES.fit_transform(one, rows, SeededCoins(1))
    FEATURES.fit(two, rows, SeededCoins(1))
    assert torch.equal(made, transform(two, rows))
    assert torch.equal(one[2].mean, two[2].mean)


@pytest.mark.parametrize("rows", [0, 1, 30])
def test_bad_rows_never_show(rows):
    module = FEATURES.build(SHAPE)
    bad = torch.full((rows, *SHAPE), math.nan)
    FEATURES.fit(module, bad, SeededCoins(0))
    assert all(buffer.isfinite().all() for buffer in module.buffers())
    assert transform(module, images(3)).isfinite().all()


def test_what_it_costs():
    alone = account(FEATURES.event(Neighbours.ADD_REMOVE, "record"), 1e-5)
    assert alone.epsilon == account(GaussianEvent(6.0), 1e-5).epsilon
    assert FEATURES.event(Neighbours.ZERO_OUT, "person") == GaussianEvent(
        6.0, Neighbours.ZERO_OUT, "person"
    )
    replaced = account(
        FEATURES.event(Neighbours.REPLACE_ONE, "record"), 1e-5, neighbours="replace-one"
    )
    assert replaced.epsilon == pytest.approx(account(GaussianEvent(3.0), 1e-5).epsilon)


def test_public_scales_cost_nothing():
    public = StandardizedScattering(noise_multiplier=None)
    assert public.event(Neighbours.ADD_REMOVE, "record") is None
    module = public.build(SHAPE)
    before = {name: value.clone() for name, value in module.state_dict().items()}
    made = public.fit_transform(module, images(20), SeededCoins(0))
    assert all(torch.equal(before[name], value) for name, value in module.state_dict().items())
    assert torch.equal(made, transform(module, images(20)))
    assert not any(p.requires_grad for p in module.parameters())


def test_public_fields_are_always_the_same_and_look_alike():
    first = pink_images(50, 16, 16)
    assert torch.equal(first, pink_images(50, 16, 16))
    assert first.min() >= 0
    assert first.max() <= 1
    assert first.mean() == pytest.approx(0.5, abs=0.05)
    assert first.std() == pytest.approx(0.25, abs=0.05)


def test_json_and_errors():
    assert FeatureMap.from_dict(FEATURES.to_dict()) == FEATURES
    assert FEATURES.out_shape((3, 32, 32)) == (243, 8, 8)
    assert "private means" in FEATURES.provenance
    with pytest.raises(ValueError, match=r"noise_multiplier must be .*-1"):
        StandardizedScattering(noise_multiplier=-1)
    with pytest.raises(ValueError, match="multiples of"):
        FEATURES.build((1, 30, 30))
