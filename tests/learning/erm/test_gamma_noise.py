"""Euclidean Laplace noise: its length, its direction, its promise."""

import math

import numpy as np
import pytest
from scipy import stats

from sfumato.core import Norm, Sensitivity
from sfumato.core.randomness import SYSTEM, SeededCoins
from sfumato.learning.erm.gamma_noise import EuclideanLaplace, euclidean_draw

DRAWS = 1500


@pytest.mark.parametrize("dimension", [1, 2, 5])
def test_its_length_is_gamma_and_its_direction_uniform(dimension):
    coins = SeededCoins(4)
    noise = EuclideanLaplace(0.5, Sensitivity(1.0, Norm.L2, dimension=dimension))
    drawn = np.array([noise.perturb(np.zeros(dimension), coins=coins) for _ in range(DRAWS)])
    lengths = np.linalg.norm(drawn, axis=1)
    assert stats.kstest(lengths, stats.gamma(dimension, scale=0.5).cdf).pvalue > 1e-6
    for away in (drawn / lengths[:, None]).T:  # along every axis
        if dimension == 1:
            assert abs(away.mean()) < 6 / math.sqrt(DRAWS)
        else:  # (1 + cosine) / 2 of a uniform direction is Beta((d - 1) / 2, (d - 1) / 2)
            shape = (dimension - 1) / 2
            assert stats.kstest((1 + away) / 2, stats.beta(shape, shape).cdf).pvalue > 1e-6
            assert abs(stats.spearmanr(lengths, away).statistic) < 6 / math.sqrt(DRAWS)


def test_values_are_moved_and_put_on_the_grid():
    noise = EuclideanLaplace.calibrate(Sensitivity(0.3, Norm.L2, dimension=4), epsilon=1.5)
    values = np.array([[1.0, -2.0], [1e6, 0.1]])
    made = noise.perturb(values, coins=SeededCoins(1)) - values
    alone = noise.perturb(np.zeros((2, 2)), coins=SeededCoins(1))
    grid = 2.0 ** (math.frexp(noise.scale)[1] - 1 - 20)
    assert np.abs(made - alone).max() <= grid
    assert (alone / grid == np.rint(alone / grid)).all()
    assert noise.perturb([np.nan, 1.0]).shape == (2,)
    assert noise.perturb([]).size == 0


def test_what_it_promises():
    noise = EuclideanLaplace.calibrate(Sensitivity(0.3, Norm.L2, dimension=4), epsilon=0.7)
    assert noise.guarantee().epsilon <= 0.7 * (1 + 1e-15)
    assert noise.event.epsilon == pytest.approx(0.7)
    assert noise.event.delta == 0
    with pytest.raises(ValueError, match="l2 bound"):
        EuclideanLaplace(1.0, Sensitivity(1.0, Norm.L1, dimension=2))


def test_draws_are_fresh():
    assert euclidean_draw(3, SYSTEM) != euclidean_draw(3, SYSTEM)
    assert euclidean_draw(0, SYSTEM) == []
