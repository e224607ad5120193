"""The attack model: right slopes, odds that mean what they say, no knowledge out of nothing."""

import numpy as np
import pytest
from scipy.special import expit

from sfumato.attacks.membership import small_network
from sfumato.attacks.membership.small_network import SmallNetwork


def test_gradients_are_the_slopes_of_the_cross_entropy():
    random = np.random.default_rng(1)
    weights = [random.normal(size=shape) for shape in ((3, 5), 5, 5, 1)]
    x, y = random.normal(size=(20, 3)), random.integers(0, 2, 20).astype(float)

    def loss():
        return small_network._cross_entropy(small_network._logits(weights, x), y)

    for part, slope in zip(weights, small_network._gradients(weights, x, y), strict=True):
        for place in np.ndindex(part.shape):
            part[place] += 1e-6
            above = loss()
            part[place] -= 2e-6
            below = loss()
            part[place] += 1e-6
            assert slope[place] == pytest.approx((above - below) / 2e-6, abs=1e-7)


@pytest.mark.parametrize("rows", [300, 20_000])
def test_probabilities_are_those_of_a_known_law(rows):
    random = np.random.default_rng(2)
    x = random.normal(size=(rows, 4))
    odds = 2 * x[:, 0] - np.abs(x[:, 1])
    network = SmallNetwork(3)
    network.fit(x, random.random(rows) < expit(odds))
    fresh = random.normal(size=(5000, 4))
    found = network.predict_proba(fresh)
    assert found.sum(axis=1) == pytest.approx(1.0)
    exact = expit(2 * fresh[:, 0] - np.abs(fresh[:, 1]))
    assert np.abs(found[:, 1] - exact).mean() < (0.12 if rows == 300 else 0.025)


def test_out_of_nothing_comes_the_share():
    random = np.random.default_rng(4)
    x, kinds = random.normal(size=(2000, 6)), random.random(2000) < 0.3
    network = SmallNetwork(5)
    network.fit(x, kinds)
    found = network.predict_proba(random.normal(size=(1000, 6)))[:, 1]
    assert found.mean() == pytest.approx(0.3, abs=0.03)
    assert found.std() < 0.06


def test_it_learns_what_no_line_divides_and_is_repeatable():
    random = np.random.default_rng(6)
    x = random.normal(size=(1000, 2))
    networks = [SmallNetwork(7), SmallNetwork(7)]
    for network in networks:
        network.fit(x, x[:, 0] * x[:, 1] > 0)
    fresh = random.normal(size=(1000, 2))
    one, two = (network.predict_proba(fresh)[:, 1] for network in networks)
    assert np.array_equal(one, two)
    assert ((one > 0.5) == (fresh[:, 0] * fresh[:, 1] > 0)).mean() > 0.95


def test_bad_parameters_are_refused():
    with pytest.raises(ValueError, match="fit the network"):
        SmallNetwork(1).predict_proba([[1.0]])
    with pytest.raises(ValueError, match="rows must be"):
        SmallNetwork(1).fit(np.zeros((10, 2)), np.zeros(9))
    with pytest.raises(ValueError, match="hidden must be"):
        SmallNetwork(1, hidden=0)
