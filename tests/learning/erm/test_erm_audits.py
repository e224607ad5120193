"""Every way as an attacker sees it: told apart no better than claimed, and broken ones caught."""

import numpy as np
import pytest

from sfumato.audit.mechanism import audit_mechanism
from sfumato.core.randomness import SeededCoins
from sfumato.learning.erm.losses import HuberHinge, SimplexLogistic
from sfumato.learning.erm.tasks import Quadratic, Task
from sfumato.learning.erm.ways import way_names, way_of
from sfumato.mechanisms.gaussian import Gaussian

DRAWS = 1600
LOGISTIC, HINGE = SimplexLogistic(2), HuberHinge(1, 0.5)
ONES = np.ones((4, 1))
FIRST, SECOND = (ONES, np.array([1, 1, 0, 0])), (ONES, np.array([0, 1, 0, 0]))


def way(name, delta=0.05):
    """A hinge moves most by one label where it has a slope of 1; it has no polynomial, though."""
    loss = LOGISTIC if name in ("functional", "input") else HINGE
    poly = Quadratic(0.25, 0.5, 0.5, 1.0) if loss is LOGISTIC else None
    return way_of(name, Task(loss, 4, 1, 2.0, delta, regularisation=2.0, quadratic=poly))


def drawing(way):
    coins = SeededCoins(3)

    def draw(table, count):
        rows, labels = table
        codes = LOGISTIC.codes[labels]
        targets = labels if way.task.loss is LOGISTIC else 2 * codes
        return np.array([way.fit(rows, targets, codes, coins).ravel() for _ in range(count)])

    return draw


@pytest.mark.parametrize("name", way_names())
def test_no_way_shows_more_than_it_claims(name):
    made = way(name)
    found = audit_mechanism(
        drawing(made), [(FIRST, SECOND)], claim=made.guarantee, samples=DRAWS, confidence=0.999
    )
    assert not found.refuted


def test_the_pure_ways_too():
    for name in ("output", "functional"):
        made = way(name, delta=0.0)
        found = audit_mechanism(
            drawing(made), [(FIRST, SECOND)], claim=made.guarantee, samples=800, confidence=0.999
        )
        assert not found.refuted


def test_too_little_noise_is_caught():
    """Half of it, as by a sensitivity of 1 / (N lambda) for a replacement."""
    broken = way("output")
    noise = broken.mechanism
    broken.__dict__["mechanism"] = Gaussian(noise.sigma / 2, noise.sensitivity, noise.delta)
    claim = way("output").guarantee
    found = audit_mechanism(
        drawing(broken), [(FIRST, SECOND)], claim=claim, samples=DRAWS, confidence=0.999
    )
    assert found.refuted
    honest = audit_mechanism(
        drawing(way("output")), [(FIRST, SECOND)], claim=claim, samples=DRAWS, confidence=0.999
    )
    assert honest.epsilon > 0.5 * claim.epsilon
