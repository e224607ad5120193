"""Parameters at the ends of floating point: an answer, an infinity or a ValueError, never a crash.

Warnings are errors here, so an overflow that NumPy only mentions would show, too.
"""

import math

import pytest

import sfumato as sf
from sfumato import events
from sfumato.accounting import Accountant

LEAVES = [
    *(events.GaussianEvent(x) for x in (1e-170, 1e-3, 1e17, 1e170)),
    *(events.LaplaceEvent(x) for x in (1e-2, 1e9, 1e100)),
    *(events.DiscreteLaplaceEvent(x) for x in (1e-3, 1e9)),
    events.DiscreteLaplaceEvent(1e6, 10**6),
    *(events.DiscreteGaussianEvent(x) for x in (1e-2, 0.1, 1e5)),
    *(events.ExponentialEvent(x) for x in (1e-9, 1000.0)),
    *(events.EpsilonDeltaEvent(x, y) for x in (0.0, 1e-300, 1000.0) for y in (0.0, 1e-6)),
    *(events.RandomizedResponseEvent(x, 2) for x in (1e-300, 1e300, 1e308)),
    *(events.ZcdpEvent(x) for x in (1e-300, 1e5)),
]


@pytest.mark.parametrize("name", list(Accountant))
@pytest.mark.parametrize("leaf", LEAVES, ids=repr)
def test_one_and_three_of_each(leaf, name):
    one = sf.account(leaf, 1e-5, accountant=name).epsilon
    three = sf.account(sf.repeat(leaf, 3), 1e-5, accountant=name).epsilon
    assert 0 <= one <= three * (1 + 1e-6) + 1e-9


@pytest.mark.parametrize("name", ["pld", "rdp"])
@pytest.mark.parametrize("relation", ["add-remove", "replace-one"])
@pytest.mark.parametrize(
    ("noise", "rate", "steps"),
    [
        (1e-3, 0.01, 1),
        (1e-320, 0.01, 10),
        (0.01, 0.01, 10),
        (0.1, 1e-3, 100),
        (1e6, 0.5, 10**6),
        (1e200, 0.5, 10),
        (1, 1 - 1e-9, 10),
        (1, 1e-12, 10**6),
        (1, 1e-8, 10**9),
    ],
)
def test_training(noise, rate, steps, relation, name):
    run = sf.dp_sgd(noise, rate, steps)
    assert sf.account(run, 1e-5, neighbours=relation, accountant=name).epsilon >= 0


@pytest.mark.parametrize("leaf", [events.ExponentialEvent(800.0), events.EpsilonDeltaEvent(800.0)])
def test_sampled_releases_beyond_the_range_of_exp(leaf):
    """e^epsilon overflows above 709; the epsilon of a sample must not stop there."""
    found = sf.account(events.PoissonSampledEvent(leaf, 0.5), 1e-5).epsilon
    assert found == pytest.approx(800 + math.log(0.5), abs=0.01)


@pytest.mark.parametrize("delta", [1 - 1e-16, 1 - 1e-9, 0.5])
def test_hopeless_deltas(delta):
    event = events.EpsilonDeltaEvent(1.0, delta)
    for whole in (event, sf.repeat(event, 2), events.GroupedEvent(event, 3, "person")):
        assert sf.account(whole, 1e-5).epsilon == math.inf
        assert sf.account([whole, whole], 0.4).epsilon == math.inf
    assert list(sf.epsilon_curve(event, [0, 1, 10], 1e-5)) == [0.0, math.inf, math.inf]


@pytest.mark.parametrize(
    "event",
    [
        sf.repeat(events.RandomizedResponseEvent(1e-3), 10**8),
        sf.repeat(events.FixedSizeSampledEvent(events.GaussianEvent(1.0), 1, 10**6), 10**6),
        sf.repeat(events.FixedSizeSampledEvent(events.LaplaceEvent(1.0), 1, 10**9), 10**6),
        events.GroupedEvent(sf.dp_sgd(0.5, 0.01, 100), 50, "person"),
        sf.compose(events.GaussianEvent(1e-9), events.LaplaceEvent(1.0)),
        sf.compose(events.GaussianEvent(1e17), events.LaplaceEvent(1.0)),
    ],
    ids=["many small", "one in a million", "one in a billion", "large groups", "no noise", "all"],
)
def test_memory_is_enough(event):
    assert 0 <= sf.account(event, 1e-5).epsilon < math.inf


def test_more_noise_than_numbers_is_no_loss():
    assert sf.account(sf.dp_sgd(1e200, 0.5, 10), 1e-5).epsilon == 0.0
    both = sf.compose(events.GaussianEvent(1e17), events.LaplaceEvent(1.0))
    assert sf.account(both, 1e-5).epsilon == pytest.approx(
        sf.account(events.LaplaceEvent(1.0), 1e-5).epsilon, rel=1e-6
    )
