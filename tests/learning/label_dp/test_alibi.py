"""ALIBI: Laplace noise on one-hot vectors, and Bayes' rule."""

import math

import numpy as np
import pytest

from sfumato.accounting import account
from sfumato.audit.exact import audit_density
from sfumato.core import Neighbours, SeededCoins
from sfumato.learning.label_dp.alibi import NoisyOneHot


@pytest.mark.parametrize("epsilon", [0.5, 2.0, 7.0])
def test_the_event_is_worth_the_claim(epsilon) -> None:
    noisy = NoisyOneHot(epsilon, 10)
    assert noisy.scale == pytest.approx(2 / epsilon, rel=1e-12)
    assert noisy.scale >= 2 / epsilon
    found = account(noisy.event, 0.0)
    assert found.epsilon == pytest.approx(epsilon, rel=1e-9)
    assert found.epsilon <= epsilon * (1 + 1e-12)
    assert (found.neighbours, found.unit) == (Neighbours.REPLACE_ONE, "label")


def test_an_audit_of_the_two_numbers_that_move() -> None:
    """The difference o_1 - o_0 moves from -1 to 1; its law shows no more than is claimed, and most.

    Both numbers at once show all of it; each alone shows half.
    """
    noisy = NoisyOneHot(2.0, 3)
    b = noisy.scale
    half = audit_density(
        lambda x: np.exp(-abs(x - 1) / b) / (2 * b),
        lambda x: np.exp(-abs(x) / b) / (2 * b),
        (-30.0, 31.0), delta=0.0, breaks=(0.0, 1.0),
    )  # fmt: skip
    assert half.epsilon == pytest.approx(1.0, rel=1e-3)
    assert half.epsilon <= 1.0
    together = 2 * half.epsilon  # independent noise: the ratios of two numbers multiply
    assert together == pytest.approx(noisy.guarantee().epsilon, rel=1e-3)


def test_noise_has_the_scale() -> None:
    n, noisy = 40_000, NoisyOneHot(2.0, 3)
    told = noisy.perturb(np.full(n, 1), coins=SeededCoins(0))
    expected = np.array([0.0, 1.0, 0.0])
    errors = np.abs(told - expected).mean(axis=0)  # E |noise| = b, with standard deviation b
    assert errors == pytest.approx([noisy.scale] * 3, rel=5 / math.sqrt(n))
    assert told.mean(axis=0) == pytest.approx(expected, abs=5 * 1.5 * noisy.scale / math.sqrt(n))


def test_posterior_is_by_bayes() -> None:
    noisy = NoisyOneHot(3.0, 4)
    told = np.array([[0.3, 1.2, -0.4, 0.5], [2.0, 0.0, 0.0, 0.0]])
    prior = np.array([[0.1, 0.2, 0.3, 0.4], [0.25] * 4])
    joint = np.array(
        [
            [
                prior[i, k] * math.exp(-np.abs(told[i] - np.eye(4)[k]).sum() / noisy.scale)
                for k in range(4)
            ]
            for i in range(2)
        ]
    )
    expected = joint / joint.sum(axis=1, keepdims=True)
    assert noisy.posterior(prior, told) == pytest.approx(expected, rel=1e-12)


def test_the_posterior_is_calibrated() -> None:
    """Of labels drawn by the prior, the posterior's mean is the prior: within 5 standard errors."""
    prior, n = np.array([0.6, 0.3, 0.1]), 20_000
    labels = np.random.default_rng(0).choice(3, n, p=prior)
    noisy = NoisyOneHot(1.5, 3)
    told = noisy.perturb(labels, coins=SeededCoins(2))
    found = noisy.posterior(np.tile(prior, (n, 1)), told)
    assert found.mean(axis=0) == pytest.approx(prior, abs=5 * 0.5 / math.sqrt(n))
    sure = found.max(axis=1)
    right = found.argmax(axis=1) == labels
    assert right.mean() == pytest.approx(sure.mean(), abs=5 * 0.5 / math.sqrt(n))


def test_another_label_moves_its_own_vector_alone() -> None:
    noisy = NoisyOneHot(1.0, 3)
    one, two = (noisy.perturb(y, coins=SeededCoins(1)) for y in ([0, 1, 2], [0, 2, 2]))
    assert (one[[0, 2]] == two[[0, 2]]).all()
    assert two[1] - one[1] == pytest.approx([0, -1, 1], abs=1e-6)


def test_what_is_no_label_counts_as_the_default() -> None:
    told = NoisyOneHot(1000.0, 3, default=2).perturb([np.nan, 9, "x"], coins=SeededCoins(0))
    assert told.argmax(axis=1).tolist() == [2, 2, 2]


def test_mistakes() -> None:
    for arguments in ((0, 3), (1.0, 1), (1.0, 3, 3), (math.inf, 3)):
        with pytest.raises(ValueError, match="must be"):
            NoisyOneHot(*arguments)
    with pytest.raises(ValueError, match="told must be"):
        NoisyOneHot(1.0, 3).log_likelihood([[0.0, 1.0]])


def test_a_posterior_that_no_class_explains_is_still_a_number() -> None:
    """What was told speaks so much against the only class of the prior that it underflows."""
    noisy = NoisyOneHot(4000.0, 2)
    found = noisy.posterior(np.array([[1.0, 0.0]]), np.array([[-1e3, 1e3]]))
    assert np.isfinite(found).all()
    assert (found >= 0).all()
