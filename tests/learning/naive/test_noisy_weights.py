"""Noisy weights: the ball, the noise, and nothing else gets out."""

import json
import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn

from sfumato.accounting import account
from sfumato.core.events import GaussianEvent
from sfumato.core.gaussian_profile import least_multiplier
from sfumato.core.randomness import SeededCoins
from sfumato.core.records import Record
from sfumato.learning.naive import NoisyWeights
from sfumato.learning.naive.examples import vector_of
from sfumato.learning.naive.noisy_weights import projected

FIELDS = {"radius": 2.0, "epsilon": 3.0, "delta": 1e-5, "steps": 30, "batch_size": 32}


def model(width=5):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, width), nn.ReLU(), nn.Linear(width, 3))


def rows(count=100):
    torch.manual_seed(1)
    x = torch.randn(count, 5)
    return x, (x[:, 0] > 0).long()


def exact_square(vector):
    return sum(Fraction(value) ** 2 for value in vector.tolist())


@pytest.mark.parametrize("radius", [1e-3, 0.1, 7.0])
@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e150])
def test_the_projection_is_in_the_ball_exactly(radius, scale):
    generator = torch.Generator().manual_seed(2)
    for _ in range(20):
        vector = scale * torch.randn(50, generator=generator, dtype=torch.float64)
        found = projected(vector, radius)
        assert exact_square(found) <= Fraction(radius) ** 2
        inside = float(torch.linalg.vector_norm(vector)) <= radius * (1 - 1e-9)
        assert not inside or torch.equal(found, vector)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 1e300])
def test_what_is_not_finite_becomes_the_centre(bad):
    vector = torch.tensor([1.0, bad, 2.0], dtype=torch.float64)
    assert exact_square(projected(vector, 1.0)) <= 1
    if not math.isfinite(bad):
        assert not projected(vector, 1.0).any()


def test_the_event_is_known_before_data_is_read_and_calibrated_exactly():
    way = NoisyWeights(**FIELDS)
    assert isinstance(way.event, GaussianEvent)
    assert way.guarantee.epsilon == pytest.approx(3.0, rel=1e-6)
    assert way.guarantee.epsilon <= 3.0
    assert account(way.event, 1e-5).epsilon <= 3.0
    assert way.sigma == pytest.approx(2 * 2.0 * least_multiplier(3.0, 1e-5), rel=1e-12)


@pytest.mark.parametrize("centre", ["origin", "initial"])
def test_the_noise_has_the_stated_deviation_and_law_around_a_point_of_the_ball(centre):
    way = NoisyWeights(**(FIELDS | {"radius": 1e-6}), centre=centre)
    start = model(2500)
    out, _ = way.release(start, model(2500), coins=SeededCoins(3))
    middle = vector_of(start) if centre == "initial" else 0
    noise = (vector_of(out) - middle).numpy()
    sigma = 2 * 1e-6 * least_multiplier(3.0, 1e-5)
    if centre == "initial":  # weights in float32 leave steps of 3e-8 at most
        sigma = math.hypot(sigma, 1e-8)
    # The deviation of n numbers is within 4 / sqrt(2 n) = 2 % of sigma.
    assert noise.std() == pytest.approx(sigma, rel=4 / math.sqrt(2 * len(noise)))
    assert stats.kstest(noise, stats.norm(scale=0.9 * sigma).cdf).pvalue < 1e-9


def test_the_noise_is_normal():
    way = NoisyWeights(**FIELDS)
    out, _ = way.release(model(2500), model(2500), coins=SeededCoins(4))
    noise = (vector_of(out) - vector_of(model(2500))).numpy()
    assert stats.kstest(noise, stats.norm(scale=way.sigma).cdf).pvalue > 1e-4
    assert stats.kstest(noise, stats.norm(scale=0.9 * way.sigma).cdf).pvalue < 1e-9


@pytest.mark.parametrize("centre", ["origin", "initial"])
def test_released_weights_lie_within_noise_of_the_ball(centre):
    """At a huge epsilon the noise is small, and the ball can be seen."""
    way = NoisyWeights(**(FIELDS | {"epsilon": 1e9, "radius": 0.2}), centre=centre)
    x, y = rows()
    out, _ = way.run(model(), x, y, coins=SeededCoins(1))
    away = vector_of(out) - (vector_of(model()) if centre == "initial" else 0)
    assert float(torch.linalg.vector_norm(away)) == pytest.approx(0.2, rel=1e-2)


def test_with_a_large_ball_and_hardly_any_noise_it_learns():
    way = NoisyWeights(**(FIELDS | {"epsilon": 1e9, "radius": 50.0, "steps": 100}))
    x, y = rows(500)
    out, _ = way.run(model(), x, y, coins=SeededCoins(1))
    assert float((out(x).argmax(1) == y).float().mean()) > 0.9


def test_neighbours_with_the_same_coins_leave_the_same_record():
    way = NoisyWeights(**FIELDS)
    x, y = rows()
    bad = x.clone()
    bad[4] = math.nan
    records = [
        way.run(model(), inputs, labels, coins=SeededCoins(2))[1].to_dict()
        for inputs, labels in [(x, y), (x[:-1], y[:-1]), (bad, y), (x, y - 9), (x[:0], y[:0])]
    ]
    assert all(record == records[0] for record in records)


def test_one_bad_row_does_not_spoil_the_weights():
    x, y = rows()
    bad = x.clone()
    bad[4] = math.inf
    assert torch.isfinite(vector_of(NoisyWeights(**FIELDS).train(model(), bad, y))).all()


def test_running_statistics_and_frozen_weights_stay_the_initial_ones():
    torch.manual_seed(0)
    start = nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4), nn.Linear(4, 3))
    start[2].bias.requires_grad_(False)
    x, y = rows(65)  # the last batch of 32 has one row, which batch normalisation refuses
    out, record = NoisyWeights(**FIELDS).run(start, x, y)
    assert torch.equal(out[1].running_mean, torch.zeros(4))
    assert int(out[1].num_batches_tracked) == 0
    assert torch.equal(out[2].bias, start[2].bias)
    assert not torch.equal(out[2].weight, start[2].weight)
    assert record.facts["parameters"] == 5 * 4 + 4 + 8 + 12


def test_the_record_is_public_and_comes_back():
    x, y = rows()
    _, record = NoisyWeights(**FIELDS, centre="origin", unit="patient").run(model(), x, y)
    assert record.private
    assert record.curator_view() == {}
    data = json.loads(json.dumps(record.to_dict()))
    assert Record.from_dict(data).to_dict() == record.to_dict()
    assert data["parameters"]["centre"] == "origin"
    assert data["guarantee"]["unit"] == "patient"


@pytest.mark.parametrize(
    "wrong",
    [
        {"radius": 0.0},
        {"epsilon": -1.0},
        {"delta": 0.0},
        {"steps": 0},
        {"batch_size": 0.5},
        {"learning_rate": 0},
        {"momentum": 1},
        {"weight_decay": -1},
        {"centre": "middle"},
        {"neighbours": "next door"},
        {"unit": " "},
    ],
    ids=lambda wrong: "-".join(map(str, wrong.items())),
)
def test_bad_parameters_are_errors(wrong):
    with pytest.raises(ValueError, match="must be"):
        NoisyWeights(**(FIELDS | wrong))


def test_what_does_not_fit_is_an_error_before_anything_is_read():
    way = NoisyWeights(**FIELDS)
    x, y = rows()
    for wrong, match in [
        ((model(), np.zeros((3, 5)), y), "inputs must be"),
        ((model(), x, y.float()), "labels must be"),
        ((nn.Identity(), x, y), "trainable"),
    ]:
        with pytest.raises(ValueError, match=match):
            way.run(*wrong)
