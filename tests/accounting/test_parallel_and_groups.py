"""Parts of the data: what one unit can change, by explicit distributions."""

import itertools
import math

import numpy as np
import pytest
from scipy import signal

import sfumato as sf
from sfumato import events
from sfumato.accounting import dpa
from sfumato.accounting.atoms import flatten, pure_total
from sfumato.accounting.gaussian_losses import gaussian_losses
from sfumato.accounting.pld import delta_at, loss_distribution
from sfumato.accounting.rdp import rdp_vector

ADD, REPLACE = sf.Neighbours.ADD_REMOVE, sf.Neighbours.REPLACE_ONE
AT = np.linspace(0, 6, 61)


def curve(event, relation=ADD, grid=1e-3):
    return loss_distribution(event, relation, grid).delta(AT)


@pytest.mark.parametrize(("sigma", "q"), [(0.5, 0.5), (1.0, 0.1), (1.0, 0.9), (2.0, 0.3)])
def test_a_replaced_unit_leaves_one_part_and_enters_another(sigma, q):
    """One part sees a removal, the other an addition: neither twice the same."""
    part = events.PoissonSampledEvent(events.GaussianEvent(sigma), q)
    removed, added = gaussian_losses(sigma, q, False, 1e-3)
    both = dpa.LossMasses(
        removed.lowest + added.lowest,
        signal.fftconvolve(removed.probs, added.probs),
        removed.infinite + added.infinite,
        1e-3,
    )
    moved = delta_at(both, AT)
    stayed = curve(part, REPLACE)
    found = curve(events.ParallelEvent((part, part)), REPLACE)
    assert np.all(found >= np.maximum(moved, stayed) * (1 - 1e-9) - 1e-12)
    assert found == pytest.approx(np.maximum(moved, stayed), rel=1e-3, abs=1e-9)


@pytest.mark.parametrize(("sigma", "q"), [(1.0, 0.1), (2.0, 0.3), (0.5, 0.9)])
def test_a_replaced_unit_costs_two_sampled_parts_by_rdp_too(sigma, q):
    """It leaves one part and enters another: as one release of each, or stays, if that is more."""
    part = events.PoissonSampledEvent(events.GaussianEvent(sigma), q)
    orders = (1.5, 2.0, 8.0, 32.0, 64.0)
    found = rdp_vector(events.ParallelEvent((part, part)), REPLACE, orders).values
    moved = rdp_vector(sf.compose(part, part), ADD, orders).values
    stayed = rdp_vector(part, REPLACE, orders).values
    assert found.tolist() == np.maximum(moved, stayed).tolist()
    assert (moved > stayed).any()


def test_parts_whose_sizes_are_public_cannot_lose_a_unit():
    """Zero-out noise covers a blanked record, not one that moves and so changes two sizes."""
    part = events.GaussianEvent(1.0, neighbours="zero-out")
    parts = events.ParallelEvent((part, part))
    assert sf.account(parts, 1e-5).epsilon == pytest.approx(sf.account(part, 1e-5).epsilon)
    with pytest.raises(ValueError, match="declared under add-remove"):
        sf.account(parts, 1e-5, neighbours="replace-one")


PARTS = [
    events.GaussianEvent(1.0),
    events.GaussianEvent(0.5),
    events.LaplaceEvent(1.0),
    events.LaplaceEvent(0.5),
    events.ExponentialEvent(2.0),
    events.EpsilonDeltaEvent(0.5, 1e-3),
    events.EpsilonDeltaEvent(0.0, 0.01),
    sf.repeat(events.LaplaceEvent(3.0), 4),
]


@pytest.mark.parametrize("pair", list(itertools.combinations(PARTS, 2)))
def test_a_person_may_have_one_record_in_each_part(pair):
    """Parts of different kinds: by RDP, for which it is proved; Gaussians by their curves."""
    grouped = events.GroupedEvent(events.ParallelEvent(pair), 2, "person")
    for delta in (1e-2, 0.05):
        true = loss_distribution(sf.compose(*pair), ADD, 1e-3).epsilon(delta)
        assert sf.account(grouped, delta).epsilon >= true - 1e-6
    if all(isinstance(part, events.GaussianEvent) for part in pair):
        assert np.all(curve(sf.compose(*pair)) <= curve(grouped) * (1 + 1e-6) + 1e-11)
    else:
        assert "accounted by RDP" in sf.account(grouped, 1e-2).note or pure_total(
            flatten(grouped, ADD)
        )


EQUAL = [
    events.GaussianEvent(1.0),
    events.LaplaceEvent(0.7),
    events.LaplaceEvent(5.0),
    events.ExponentialEvent(1.5),
    events.DiscreteLaplaceEvent(4.0, 2),
    events.EpsilonDeltaEvent(0.5, 1e-3),
    sf.compose(events.LaplaceEvent(3.0), events.GaussianEvent(2.0)),
]


@pytest.mark.parametrize("part", EQUAL)
@pytest.mark.parametrize("loads", [(1, 1), (1, 2), (1, 1, 1)])
def test_records_spread_over_equal_parts_are_dominated_by_all_in_one(part, loads):
    parallel = events.ParallelEvent((part,) * 3)
    stated = curve(events.GroupedEvent(parallel, sum(loads), "person"))
    spread = sf.compose(*(events.GroupedEvent(part, load, "person") for load in loads))
    assert np.all(curve(spread) <= stated * (1 + 1e-6) + 1e-11)


@pytest.mark.parametrize(("x", "y"), [(0.3, 0.3), (0.5, 1.0), (1.0, 4.0), (3.0, 3.0)])
def test_the_affinity_of_two_laplace_losses_is_as_proved(x, y):
    """1 - delta of the product over that of x + y in one: g of the docstring, and at least 1."""
    losses = np.linspace(-x, x, 200_001)
    epsilons = np.linspace(-x - y, x + y, 41)

    def k(v):
        return np.minimum(1, np.exp((y - np.abs(v)) / 2))

    between = np.trapezoid(k(epsilons[:, None] - losses), losses, axis=1)
    g = (k(epsilons - x) + k(epsilons + x)) / 2 + between / 4
    assert g.min() >= 1 - 1e-9
    assert (g[0], g[-1]) == pytest.approx((1, 1))
    product = sf.compose(events.LaplaceEvent(1 / x), events.LaplaceEvent(1 / y))
    delta = loss_distribution(product, ADD, 1e-3).delta(epsilons)
    assert 1 - delta == pytest.approx(g * np.exp((epsilons - x - y) / 2), abs=1e-3)


@pytest.mark.parametrize(
    "leaf",
    [
        events.GaussianEvent(0.7), events.LaplaceEvent(0.4), events.LaplaceEvent(3.0),
        events.ExponentialEvent(2.0), events.EpsilonDeltaEvent(1.5, 1e-3), events.ZcdpEvent(0.2),
        events.DiscreteLaplaceEvent(2.0, 3), events.DiscreteGaussianEvent(1.2),
    ],
)  # fmt: skip
def test_what_a_leaf_costs_grows_at_least_in_proportion_to_the_distance(leaf):
    orders = (1.1, 1.5, 2.0, 5.0, 30.0, 200.0)
    vectors = [rdp_vector(leaf.stretched(steps), ADD, orders) for steps in range(1, 9)]
    each = np.array([vector.values / steps for steps, vector in enumerate(vectors, 1)])
    slack = np.array([vector.slack / steps for steps, vector in enumerate(vectors, 1)])
    assert np.all(np.diff(each, axis=0) >= -1e-12 * each[1:] - 1e-13)
    assert np.all(np.diff(slack[slack * range(1, 9) < 1]) >= 0)


def test_parts_known_by_a_curve_are_accounted_for_few_steps_alone():
    part = events.RdpCurveEvent((2.0, 4.0, 8.0, 64.0), (0.1, 0.2, 0.4, 1.0))
    parallel = events.ParallelEvent((part, part))
    assert sf.account(events.GroupedEvent(parallel, 3, "person"), 1e-2).epsilon < math.inf
    with pytest.raises(ValueError, match="three steps away, got 4"):
        sf.account(events.GroupedEvent(parallel, 4, "person"), 1e-2)


def test_sampled_parts_are_not_accounted_for_groups():
    part = events.PoissonSampledEvent(events.GaussianEvent(1.0), 0.1)
    grouped = events.GroupedEvent(events.ParallelEvent((part, part)), 2, "person")
    with pytest.raises(ValueError, match="Sample whole units"):
        sf.account(grouped, 1e-5)


def test_several_groups_per_unit_compose():
    part = events.LaplaceEvent(2.0)
    three = events.ParallelEvent((part,) * 10, groups_per_unit=3)
    assert curve(three) == pytest.approx(curve(sf.repeat(part, 3)), rel=1e-6, abs=1e-9)
    assert sf.account(three, 0.0).epsilon == 1.5
    assert sf.account(three, 0.0, neighbours="replace-one").epsilon == 3.0


def normal(x, centre, sigma):
    return np.exp(-(((x - centre) / sigma) ** 2) / 2) / (sigma * math.sqrt(2 * math.pi))


@pytest.mark.parametrize("q", [0.05, 0.3, 0.8])
@pytest.mark.parametrize("sigma", [0.5, 1.0, 2.0])
def test_a_replaced_record_is_worst_when_turned_around(sigma, q):
    """Of all records inside the clip norm, opposite ones on its edge are hardest to hide."""
    h = 2e-3 * sigma
    x = np.arange(-1 - 9 * sigma, 1 + 9 * sigma, h)
    absent = (1 - q) * normal(x, 0, sigma)
    step = events.PoissonSampledEvent(events.GaussianEvent(sigma), q)
    for epsilon in (0.0, 0.1, 1.0, 2.0):
        stated = loss_distribution(step, REPLACE, 1e-3).delta(epsilon)[0]
        for old, new in itertools.product((1.0, 0.6, 0.2, -0.5), (-1.0, -0.7, 0.0, 0.5, 1.0)):
            here = absent + q * normal(x, old, sigma)
            there = absent + q * normal(x, new, sigma)
            true = np.maximum(here - math.exp(epsilon) * there, 0).sum() * h
            assert true <= stated + 1e-6


DIRECTIONS = {  # two records and what replaces the first, of length at most 1, in the plane
    "lined up": ((1.0, 0.0), (1.0, 0.0), (-1.0, 0.0)),
    "at right angles": ((1.0, 0.0), (0.0, 1.0), (0.0, -1.0)),
    "shorter": ((0.6, 0.5), (-0.3, 0.9), (-0.7, -0.4)),
    "opposite": ((1.0, 0.0), (-1.0, 0.0), (0.3, 0.0)),
}


@pytest.mark.parametrize("records", DIRECTIONS.values(), ids=DIRECTIONS)
@pytest.mark.parametrize(("sigma", "q"), [(0.7, 0.2), (1.5, 0.6)])
def test_sampled_records_in_any_directions_are_no_worse_than_lined_up(records, sigma, q):
    """Kahane's interpolation, by quadrature in the plane: two records of a unit; one replaced."""
    first, second, instead = records
    axis = np.arange(-2 - 6.5 * sigma, 2 + 6.5 * sigma, sigma / 25)
    x, y = np.meshgrid(axis, axis, sparse=True)

    def at(*centre):
        return normal(x, centre[0], sigma) * normal(y, centre[1], sigma)

    both = (first[0] + second[0], first[1] + second[1])
    absent = at(0, 0)
    two = (1 - q) ** 2 * absent + q * (1 - q) * (at(*first) + at(*second)) + q * q * at(*both)
    here, there = ((1 - q) * absent + q * at(*one) for one in (first, instead))
    step = events.PoissonSampledEvent(events.GaussianEvent(sigma), q)
    person = loss_distribution(events.GroupedEvent(step, 2, "person"), ADD, 1e-3)
    replaced = loss_distribution(step, REPLACE, 1e-3)
    cell = (axis[1] - axis[0]) ** 2
    for epsilon in (0.0, 0.3, 1.0, 2.5):
        for p, r, stated in ((two, absent, person), (absent, two, person),
                             (here, there, replaced), (there, here, replaced)):  # fmt: skip
            true = np.maximum(p - math.exp(epsilon) * r, 0).sum() * cell
            assert true <= stated.delta(epsilon)[0] + 2e-5


@pytest.mark.parametrize(
    "event",
    [
        events.DiscreteLaplaceEvent(0.8, 4), events.DiscreteLaplaceEvent(5.0, 3),
        events.DiscreteGaussianEvent(0.4, 3), events.DiscreteGaussianEvent(2.5, 4),
    ],
)  # fmt: skip
def test_an_integer_that_moves_by_less_is_no_worse(event):
    """Monotone likelihood ratio: the bound is the worst move, and it is reached."""
    at = np.arange(-400, 401)
    laplace = isinstance(event, events.DiscreteLaplaceEvent)
    log_p = -abs(at) / event.scale if laplace else -((at / event.sigma) ** 2) / 2
    probs = np.exp(log_p) / math.fsum(np.exp(log_p))
    epsilons = np.linspace(-3, 6, 91)
    stated = loss_distribution(event, ADD, 1e-4).delta(epsilons)
    found = []
    for move in range(-event.sensitivity, event.sensitivity + 1):
        odds = np.exp(epsilons)[:, None] * probs
        found.append(np.maximum(np.roll(probs, move) - odds, 0).sum(axis=1))
        assert np.all(found[-1] <= stated + 1e-12)
    growing = np.array(found[event.sensitivity :])
    assert np.all(np.diff(growing, axis=0) >= -1e-15)
    assert growing[-1] == pytest.approx(stated, abs=1e-4)


@pytest.mark.parametrize("relation", [ADD, REPLACE])
@pytest.mark.parametrize("groups", [1, 3])
def test_rdp_of_parts_is_that_of_as_many_as_a_unit_is_in(relation, groups):
    """The worst part, once for each group a unit may be in; deltas of their own likewise."""
    orders = (1.5, 2.0, 8.0, 64.0)
    parts = (
        events.PoissonSampledEvent(events.GaussianEvent(1.0), 0.2),
        events.LaplaceEvent(2.0),
        events.EpsilonDeltaEvent(0.1, 1e-6),
    )
    found = rdp_vector(events.ParallelEvent(parts, groups), relation, orders)
    one = rdp_vector(events.ParallelEvent(parts), relation, orders)
    assert found.values == pytest.approx(groups * one.values)
    twice = 2 if relation is REPLACE else 1
    worst = np.max([rdp_vector(part, ADD, orders).values for part in parts], axis=0)
    assert np.all(one.values >= twice * worst * (1 - 1e-12))
    assert found.slack == pytest.approx(groups * max(twice, 1 + math.exp(0.1) * (twice - 1)) * 1e-6)


@pytest.mark.parametrize("leaf", [events.LaplaceEvent(1.0), events.EpsilonDeltaEvent(0.5)])
def test_sampled_releases_other_than_gaussians_are_for_one_record_that_comes_or_goes(leaf):
    """What amplification says of one record is not said of a replaced one, nor of several."""
    sampled = events.PoissonSampledEvent(leaf, 0.1)
    several = events.GroupedEvent(sampled, 2, "person")
    assert rdp_vector(sampled, ADD).values.max() > 0
    for event, relation in ((sampled, REPLACE), (several, ADD), (several, REPLACE)):
        with pytest.raises(ValueError, match="one record added or removed"):
            rdp_vector(event, relation)


def test_an_opaque_delta_is_not_lost_at_delta_zero():
    """(0, 1e-6)-DP is not (0, 0)-DP, though no order's divergence is above 0."""
    vector = rdp_vector(events.EpsilonDeltaEvent(0.0, 1e-6), ADD)
    assert vector.epsilon(0.0) == vector.epsilon(1e-6) == math.inf
    assert vector.epsilon(2e-6) == 0.0


@pytest.mark.parametrize(("noise", "sample"), [(1.0, 10), (3.0, 50)])
def test_a_fixed_sample_is_a_poisson_sample_of_a_replaced_record(noise, sample):
    """At every epsilon from 0 on, by the removal of a record; the other direction is its mirror."""
    fixed = events.FixedSizeSampledEvent(events.GaussianEvent(noise, REPLACE), sample, 100)
    poisson = events.PoissonSampledEvent(events.GaussianEvent(noise), sample / 100)
    (both,) = loss_distribution(fixed, REPLACE, 1e-3).directions
    removed, _ = loss_distribution(poisson, ADD, 1e-3).directions
    assert delta_at(both, AT) == pytest.approx(delta_at(removed, AT), rel=1e-6, abs=1e-12)
