"""Sums of discrete Gaussians by convolution, against what is promised of them."""

import math

import numpy as np
import pytest
from scipy.special import logsumexp

from sfumato.federated.integer_noise.gaussian_sums import closeness, rho


def log_sum(sigma, shares, reach=70):
    """ln of the sum's law, outcome by outcome: by convolution in logarithms, no underflow."""
    k = np.arange(-reach, reach + 1)
    part = -(k**2) / (2 * sigma**2)
    part = part - logsumexp(part)
    total = part
    for _ in range(shares - 1):
        size = len(total) + 2 * reach
        table = np.full((len(part), size), -np.inf)
        for i, value in enumerate(part):
            table[i, i : i + len(total)] = total + value
        total = logsumexp(table, axis=0)
        edge = (len(total) - len(part)) // 2
        total = total[edge : len(total) - edge]  # what is cut has probability below e^-500
    return total


def divergence(logs, shift, order):
    keep = slice(10, -10)
    p, q = logs[:-shift][keep], logs[shift:][keep]
    return logsumexp(order * p + (1 - order) * q) / (order - 1)


LAWS = {(s, n): log_sum(s, n) for s in (0.4, 0.5, 0.7, 1.0, 1.5) for n in (2, 3, 6)}


@pytest.mark.parametrize(("sigma", "shares"), LAWS)
def test_closeness(sigma, shares):
    logs = LAWS[sigma, shares]
    middle = len(logs) // 2
    k = np.arange(-30, 31)
    gaussian = -(k**2) / (2 * shares * sigma**2)
    gaussian = gaussian - logsumexp(-(np.arange(-200, 201) ** 2) / (2 * shares * sigma**2))
    gap = np.abs(logs[middle - 30 : middle + 31] - gaussian).max()
    bound = closeness(sigma, shares)
    assert gap <= bound + 1e-12
    assert shares > 2 or bound <= 2.1 * gap + 1e-12  # further shares smooth what is left
    paper = 5 * sum(math.exp(-2 * math.pi**2 * sigma**2 * k / (k + 1)) for k in range(1, shares))
    assert bound <= paper


@pytest.mark.parametrize(("sigma", "shares"), LAWS)
@pytest.mark.parametrize("shift", [1, 2, 3])
@pytest.mark.parametrize("order", [1.05, 1.5, 2, 4, 8])
def test_divergences_are_within_what_is_promised(sigma, shares, shift, order):
    exact = divergence(LAWS[sigma, shares], shift, order)
    assert exact <= order * rho(sigma, shares, shift**2, 1) * (1 + 1e-9)
    # The paper's form with its own constant, as a check of both.
    tau = 10 * sum(math.exp(-2 * math.pi**2 * sigma**2 * k / (k + 1)) for k in range(1, shares))
    s = sigma * math.sqrt(shares)
    assert rho(sigma, shares, shift**2, 1) <= (shift / s + tau) ** 2 / 2 * (1 + 1e-9)


def test_it_is_tight_where_shares_are_large():
    for shift in (1, 3):
        exact = divergence(LAWS[1.5, 6], shift, 2)
        assert exact >= 0.999 * 2 * rho(1.5, 6, shift**2, 1)


def test_leaving_the_gap_out_would_be_wrong():
    exact = divergence(LAWS[0.5, 6], 1, 1.05)
    assert exact > 1.1 * 1.05 / (2 * 6 * 0.25)


def test_several_coordinates_add():
    """Every whole vector of squared length 5 in three coordinates."""
    for sigma, shares in ((0.5, 2), (0.7, 3), (1.0, 6)):
        one = [0.0, *(divergence(LAWS[sigma, shares], shift, 3) for shift in (1, 2))]
        worst = max(
            one[a] + one[b] + one[c]
            for a in range(3) for b in range(3) for c in range(3) if a * a + b * b + c * c <= 5
        )  # fmt: skip
        assert worst <= 3 * rho(sigma, shares, 5, 3)


def test_one_share_is_the_discrete_gaussian():
    assert closeness(0.3, 1) == 0
    assert rho(2.0, 1, 9, 100) == pytest.approx(9 / 8)


def test_the_two_series_meet_and_many_shares_are_bounded():
    v = math.sqrt(0.2)  # sigma^2 / 2 = 0.1 at two shares
    assert closeness(v * (1 - 1e-12), 2) == pytest.approx(closeness(v * (1 + 1e-12), 2), rel=1e-9)
    assert closeness(0.05, 2) > 40
    exact = math.fsum(closeness(1.0, n) - closeness(1.0, n - 1) for n in range(2, 101))
    assert closeness(1.0, 100) == pytest.approx(exact)
    beyond = closeness(1.0, 10_000) - closeness(1.0, 4000)
    assert beyond == pytest.approx(6000 * 4 * math.exp(-2 * math.pi**2), rel=0.02)
