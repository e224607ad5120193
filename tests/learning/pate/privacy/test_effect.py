from __future__ import annotations

import json

import numpy as np
import pytest

from sfumato.learning.pate.aggregators import GaussianMax
from sfumato.learning.pate.privacy.effect import noisy_accuracy, teachers_effect
from sfumato.learning.pate.privacy.planning import epsilon_after, least_noise

RNG = np.random.default_rng(6)
LABELS = RNG.integers(0, 3, 400)
SHARES = np.full((400, 3), 0.15)
SHARES[np.arange(400), LABELS] = 0.7


def votes_of(teachers):
    return RNG.multinomial(teachers, SHARES)


def test_accuracy_by_drawing() -> None:
    votes = votes_of(60)
    noise = np.random.default_rng(1).normal(0, 25, (2000, 400, 3))
    drawn = ((votes + noise).argmax(axis=2) == LABELS).mean()
    # 800,000 draws of a chance about 0.8: a standard deviation is 0.00045 at most
    assert noisy_accuracy(votes, LABELS, 25.0) == pytest.approx(drawn, abs=0.003)


def test_accuracy_at_both_ends() -> None:
    votes = np.array([[10, 0, 0], [0, 10, 0], [5, 5, 0]])
    assert noisy_accuracy(votes, [0, 0, 0], 1e-3) == pytest.approx((1 + 0 + 0.5) / 3, abs=1e-6)
    assert noisy_accuracy(votes, [0, 0, 0], 1e6) == pytest.approx(1 / 3, abs=1e-4)
    with pytest.raises(ValueError, match="labels must be"):
        noisy_accuracy(votes, [0, 1], 1.0)


def test_the_most_noise_costs_just_what_it_may() -> None:
    votes = votes_of(200)
    found = teachers_effect(votes, LABELS, 0.7, answers=50, epsilons=(0.5, 4.0))
    lost = found.plurality - noisy_accuracy(votes, LABELS, found.noise)
    assert 0.0195 < lost <= 0.02
    assert found.epsilon == epsilon_after(GaussianMax(found.noise), 50, 1e-5).epsilon
    assert found.epsilon_dependent > 0
    (_, low), (_, high) = found.at_epsilon
    assert low < high
    sigma = least_noise(GaussianMax, 50, 4.0, 1e-5)
    assert high == pytest.approx(noisy_accuracy(votes, LABELS, sigma))
    assert json.loads(json.dumps(found.to_dict()))["teachers"] == 200


def test_more_teachers_who_agree_alike_bear_more_noise() -> None:
    few, many = (teachers_effect(votes_of(n), LABELS, 0.7) for n in (50, 200))
    assert many.noise > 3 * few.noise
    assert many.epsilon < few.epsilon / 3
    assert many.at_epsilon[0][1] > few.at_epsilon[0][1]
