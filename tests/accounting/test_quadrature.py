"""DP-SGD against an oracle that shares nothing with the accountants: Fourier inversion.

Losses of T steps add, so their characteristic function is one step's to the power T. One step's is
an integral over x of a smooth function, taken by the trapezoid rule; the tails of the sum come back
by Davies's formula. No grid of losses, no convolution, no pessimism.
"""

import math

import numpy as np
import pytest
from scipy import optimize, stats

import sfumato as sf

MIXTURES = {  # of N(0), N(1), N(-1): what is released, and what it is compared with
    "removed": lambda q: ((1 - q, q, 0.0), (1.0, 0.0, 0.0)),
    "added": lambda q: ((1.0, 0.0, 0.0), (1 - q, q, 0.0)),
    "replaced": lambda q: ((1 - q, q, 0.0), (1 - q, 0.0, q)),
}


def oracle(sigma, q, steps, delta, pair):
    """The epsilon at which P(L > eps) - e^eps Q(L > eps) is ``delta``, L the sum of losses."""
    upper, lower = MIXTURES[pair](q)
    x = np.linspace(-1 - 10 * sigma, 1 + 10 * sigma, 6001)
    normals = [stats.norm.pdf(x, centre, sigma) for centre in (0, 1, -1)]
    p = sum(w * n for w, n in zip(upper, normals, strict=True))
    other = sum(w * n for w, n in zip(lower, normals, strict=True))
    loss = np.log(p / other)
    weights_p, weights_q = p / p.sum(), other / other.sum()  # to the last digit: they are powered
    mean, deviation = steps * (weights_p @ loss), math.sqrt(steps * (weights_p @ loss**2))
    t = (np.arange(900) + 0.5) * 2 * math.pi / (60 * deviation)
    wave = np.exp(1j * np.outer(t, loss))
    powers = [(wave @ weights) ** steps for weights in (weights_p, weights_q)]

    def above(power, at):
        terms = np.imag(power * np.exp(-1j * t * at)) / (np.arange(900) + 0.5)
        return 0.5 + terms.sum() / math.pi

    def excess(eps):
        return above(powers[0], eps) - math.exp(eps) * above(powers[1], eps) - delta

    return optimize.brentq(excess, max(0.0, mean), mean + 7 * deviation, xtol=1e-9)


@pytest.mark.parametrize("relation", ["add-remove", "replace-one"])
@pytest.mark.parametrize(
    ("sigma", "q", "steps"),
    [(4, 0.01, 10_000), (4, 1e-4, 10**6), (2, 1e-3, 30_000), (1.3, 0.004, 14_062), (8, 0.2, 500)],
)
def test_epsilon_is_never_below_the_oracle_and_hardly_above(sigma, q, steps, relation):
    """Includes the tiny sample rate at which a fixed grid of 1e-4 says 0.1415 instead of 0.0763."""
    pairs = ["replaced"] if relation == "replace-one" else ["removed", "added"]
    truth = max(oracle(sigma, q, steps, 1e-5, pair) for pair in pairs)
    found = sf.account(sf.dp_sgd(sigma, q, steps), 1e-5, neighbours=relation).epsilon
    assert truth * (1 - 1e-5) <= found <= truth * 1.002


def test_the_epsilon_curve_too():
    step = sf.dp_sgd(2, 1e-3, 1)
    counts = [3_000, 30_000, 10_000]
    found = sf.epsilon_curve(step, counts, 1e-5)
    for n, epsilon in zip(counts, found, strict=True):
        truth = max(oracle(2, 1e-3, n, 1e-5, pair) for pair in ("removed", "added"))
        assert truth * (1 - 1e-5) <= epsilon <= truth * 1.005


def test_rdp_is_above_the_oracle():
    for sigma, q, steps in ((4, 0.01, 10_000), (1.3, 0.004, 14_062)):
        truth = oracle(sigma, q, steps, 1e-5, "removed")
        assert sf.account(sf.dp_sgd(sigma, q, steps), 1e-5, accountant="rdp").epsilon >= truth
