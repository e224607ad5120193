"""What must hold of every accountant, whatever the events."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sfumato as sf
from sfumato import events
from sfumato.accounting.account import Accountant
from sfumato.accounting.atoms import flatten

ADD, REP, ZERO = sf.Neighbours.ADD_REMOVE, sf.Neighbours.REPLACE_ONE, sf.Neighbours.ZERO_OUT
SAMPLED = events.PoissonSampledEvent(events.GaussianEvent(2.0), 0.05)
MIXED = [
    events.GaussianEvent(3.0),
    events.LaplaceEvent(5.0),
    events.DiscreteLaplaceEvent(4.0, 1),
    events.DiscreteGaussianEvent(5.0, 1),
    events.EpsilonDeltaEvent(0.1, 1e-8),
    events.ExponentialEvent(0.2),
    SAMPLED,
    events.PoissonSampledEvent(events.LaplaceEvent(1.0), 0.1),
    events.PoissonSampledEvent(events.EpsilonDeltaEvent(0.5), 0.1),
    events.ParallelEvent((events.GaussianEvent(3.0), events.LaplaceEvent(4.0))),
]
event_lists = st.lists(st.sampled_from(MIXED), min_size=1, max_size=3)
accountants = st.sampled_from(list(Accountant))


def epsilon(event, delta=1e-5, **options):
    return sf.account(event, delta, **options).epsilon


def composed(kinds):
    """The pairs of an event and an accountant that has a theorem for it."""
    return [
        (event, name)
        for event in MIXED
        for name in kinds
        if not (
            name in ("rdp", "moments")
            and isinstance(event, events.PoissonSampledEvent)
            and isinstance(event.event, events.DiscreteGaussianEvent)
        )
    ]


@pytest.mark.parametrize(("event", "name"), composed(["pld", "rdp", "moments", "strong", "basic"]))
def test_repeating_is_composing(event, name):
    three = sf.compose(event, event, event)
    assert epsilon(sf.repeat(event, 3), accountant=name) == epsilon(three, accountant=name)
    assert epsilon(sf.repeat(event, 3), accountant=name) > epsilon(event, accountant=name)


@settings(max_examples=25)
@given(event_lists, accountants)
def test_order_and_nesting_do_not_matter(parts, name):
    nested = sf.compose(parts[0], sf.compose(*parts[1:])) if len(parts) > 1 else parts[0]
    found = epsilon(parts, accountant=name)
    assert epsilon(parts[::-1], accountant=name) == pytest.approx(found, rel=1e-12)
    assert epsilon(nested, accountant=name) == pytest.approx(found, rel=1e-12)


@settings(max_examples=25)
@given(event_lists)
def test_better_accountants_are_never_worse(parts):
    pld, rdp, moments = (epsilon(parts, accountant=n) for n in ("pld", "rdp", "moments"))
    assert pld <= rdp * (1 + 1e-3) + 1e-6
    assert rdp <= moments + 1e-9
    assert pld <= epsilon(parts, accountant="basic") * (1 + 1e-3) + 1e-6


@settings(max_examples=25)
@given(event_lists, accountants)
def test_epsilon_falls_as_delta_grows(parts, name):
    found = [epsilon(parts, delta, accountant=name) for delta in (1e-6, 1e-5, 1e-3)]
    assert found == sorted(found, reverse=True)


@pytest.mark.parametrize("name", list(Accountant))
def test_more_noise_fewer_steps_and_smaller_samples_cost_less(name):
    def cost(noise=2.0, rate=0.05, steps=100):
        return epsilon(sf.dp_sgd(noise, rate, steps), accountant=name)

    assert cost(noise=2.2) < cost() < cost(steps=120)
    assert cost(rate=0.04) < cost() < cost(rate=1.0)


@pytest.mark.parametrize("name", ["pld", "rdp"])
def test_replace_one_costs_more_and_zero_out_the_same(name):
    for event in (SAMPLED, events.GaussianEvent(3.0)):
        add = epsilon(event, accountant=name)
        assert epsilon(event, accountant=name, neighbours=ZERO) == add
        assert epsilon(event, accountant=name, neighbours=REP) > add


def test_nothing_converts_to_add_remove():
    for relation in (REP, ZERO):
        with pytest.raises(ValueError, match="says nothing about add-remove"):
            epsilon(events.GaussianEvent(1.0, relation), neighbours=ADD)
    with pytest.raises(ValueError, match="says nothing about zero-out"):
        epsilon(events.GaussianEvent(1.0, REP), neighbours=ZERO)


def test_sampling_everything_is_no_sampling():
    plain = events.GaussianEvent(2.0)
    assert epsilon(events.PoissonSampledEvent(plain, 1.0)) == epsilon(plain)
    full = events.FixedSizeSampledEvent(plain, 10, 10)
    assert epsilon(full, neighbours=REP) == epsilon(plain, neighbours=REP)
    assert epsilon(full, neighbours=ZERO) == epsilon(plain)


@pytest.mark.parametrize("event", MIXED[:7])
def test_equal_parts_in_parallel_cost_one_part(event):
    parallel = events.ParallelEvent((event,) * 5)
    # A lone Gaussian is accounted in closed form, everything else on the same grid.
    assert epsilon(parallel) == pytest.approx(epsilon(event), rel=1e-6)
    twice = events.ParallelEvent((event,) * 5, groups_per_unit=2)
    assert epsilon(twice) == pytest.approx(epsilon(sf.repeat(event, 2)), rel=1e-6)


def test_parallel_parts_cost_the_worst_and_under_replace_one_the_two_that_change():
    small, large = events.LaplaceEvent(4.0), events.LaplaceEvent(2.0)
    parallel = events.ParallelEvent((small, large))
    assert epsilon(parallel, 0.0) == 0.5
    assert epsilon(parallel, 0.0, neighbours=REP) == 1.0
    assert epsilon(parallel) == pytest.approx(epsilon(large), rel=1e-6)
    gaussians = events.ParallelEvent((events.GaussianEvent(2.0), events.GaussianEvent(4.0)))
    replaced = epsilon(gaussians, neighbours=REP)
    assert replaced >= epsilon(events.GaussianEvent(2.0), neighbours=REP) * (1 - 1e-9)
    assert replaced >= epsilon(sf.repeat(events.GaussianEvent(2.0), 2)) * (1 - 1e-9)


def test_crossing_parts_cost_at_least_both_at_every_delta():
    """Gaussian and Laplace curves cross: neither part is the worst everywhere."""
    parts = (events.GaussianEvent(3.0), events.LaplaceEvent(1.0))
    for delta in (1e-9, 1e-5, 1e-2, 0.1):
        worst = max(epsilon(part, delta) for part in parts)
        found = epsilon(events.ParallelEvent(parts), delta)
        assert worst * (1 - 1e-9) <= found <= worst + 2e-4


def test_parts_declared_for_replacement_are_refused_in_parallel():
    part = events.GaussianEvent(1.0, REP)
    with pytest.raises(ValueError, match="needs parts declared under add-remove"):
        epsilon(events.ParallelEvent((part, part)))


def test_groups():
    one = events.GroupedEvent(SAMPLED, 1, "person")
    assert sf.account(one, 1e-5).unit == "person"
    assert epsilon(one) == epsilon(SAMPLED)
    plain = events.GroupedEvent(events.GaussianEvent(6.0), 3, "person")
    assert epsilon(plain) == epsilon(events.GaussianEvent(2.0))
    sampled = events.GroupedEvent(sf.repeat(SAMPLED, 100), 3, "person")
    textbook = sf.account(sf.repeat(SAMPLED, 100), 1e-7).for_group(3)
    assert epsilon(sf.repeat(SAMPLED, 100)) < epsilon(sampled) < textbook.epsilon
    assert epsilon(sampled) < epsilon(sampled, accountant="rdp")
    with pytest.raises(ValueError, match="several"):
        epsilon(sampled, neighbours=REP)
    fixed = events.FixedSizeSampledEvent(events.GaussianEvent(1), 1, 10)
    with pytest.raises(ValueError, match="single records"):
        epsilon(events.GroupedEvent(fixed, 2, "person"))
    with pytest.raises(ValueError, match="several parts"):
        epsilon(events.GroupedEvent(events.ParallelEvent((SAMPLED,)), 2, "person"))


@pytest.mark.parametrize(
    "event",
    [
        events.GaussianEvent(9.0), events.LaplaceEvent(8.0), events.EpsilonDeltaEvent(0.1, 1e-7),
        SAMPLED, sf.compose(events.GaussianEvent(9.0), events.ExponentialEvent(0.1)),
    ],
)  # fmt: skip
def test_groups_of_groups_and_repetitions_of_repetitions_multiply(event):
    inner = events.GroupedEvent(event, 2, "patient")
    outer = events.GroupedEvent(inner, 3, "household")
    assert flatten(outer, ADD) == flatten(events.GroupedEvent(event, 6, "household"), ADD)
    twice = events.RepeatedEvent(events.RepeatedEvent(event, 4), 5)
    assert flatten(twice, ADD) == flatten(sf.compose(*[event] * 20), ADD)
    mixed = events.RepeatedEvent(events.GroupedEvent(twice, 3, "patient"), 2)
    alone = events.GroupedEvent(event, 3, "patient")
    assert flatten(mixed, ADD) == flatten(sf.compose(*[alone] * 40), ADD)


def test_mixed_lists_compose_by_pld_and_fall_back_with_a_reason():
    training = sf.dp_sgd(4, 0.01, 10_000)
    mixed = sf.account(
        [events.LaplaceEvent(10.0), events.EpsilonDeltaEvent(0.2, 1e-7), training], 1e-5
    )
    assert (mixed.accountant, mixed.note) == ("pld", "")
    assert 0.947 + 0.1 < mixed.epsilon < 0.947 + 0.3
    for odd in (events.ZcdpEvent(0.001), events.RdpCurveEvent((2.0, 8.0), (0.01, 0.04))):
        found = sf.account([training, odd], 1e-5)
        assert found.accountant == "rdp"
        assert "known by its RDP alone" in found.note
        assert found.epsilon > epsilon(training)
    tiny = sf.account(training, 1e-13)
    assert "delta below" in tiny.note


def test_delta_zero_is_for_pure_releases():
    pure = [events.LaplaceEvent(2.0), events.ExponentialEvent(0.25)]
    assert sf.account(pure, 0.0).epsilon == 0.75
    assert epsilon(
        events.PoissonSampledEvent(events.LaplaceEvent(1.0), 0.01), 0.0
    ) == pytest.approx(math.log1p(0.01 * math.expm1(1.0)))
    with pytest.raises(ValueError, match="not pure"):
        sf.account([*pure, events.GaussianEvent(1.0)], 0.0)


def test_pld_never_exceeds_the_sum_of_pure_epsilons():
    assert epsilon(events.LaplaceEvent(2.0), 1e-11) <= 0.5
    assert epsilon(sf.repeat(events.ExponentialEvent(0.1), 3), 1e-14) <= 0.3 * (1 + 1e-12)


@pytest.mark.parametrize("name", list(Accountant))
def test_an_opaque_delta_beyond_the_target_leaves_no_guarantee(name):
    event = sf.repeat(events.EpsilonDeltaEvent(0.1, 1e-6), 11)
    assert epsilon(event, accountant=name) == math.inf


def test_nothing_released_costs_nothing():
    for name in Accountant:
        assert epsilon([], accountant=name) == 0.0


def nested(event):
    return [
        event,
        sf.repeat(event, 2),
        sf.compose(events.GaussianEvent(1.0), event),
        events.ParallelEvent((event,)),
        events.GroupedEvent(event, 1, "person"),
    ]


def test_data_dependent_curves_stay_with_the_curator():
    curve = events.RdpCurveEvent((2.0, 8.0), (0.01, 0.04), data_dependent=True)
    for event in nested(curve):
        with pytest.raises(ValueError, match="data-dependent"):
            epsilon(event)
        assert epsilon(event, curator=True) > 0
    for event in nested(events.RdpCurveEvent((2.0, 8.0), (0.01, 0.04))):
        assert epsilon(event) > 0


@pytest.mark.parametrize("bad", ["laplace", 5, None, ["laplace"], [events.GaussianEvent(1), 3]])
def test_what_is_no_event_is_refused(bad):
    with pytest.raises(ValueError, match="event"):
        sf.account(bad, 1e-5)


@pytest.mark.parametrize("bad", [-1e-5, 1, 2, math.nan, math.inf, "1e-5", None])
def test_bad_deltas(bad):
    with pytest.raises(ValueError, match="delta"):
        sf.account(SAMPLED, bad)


def test_bad_names():
    with pytest.raises(ValueError, match="accountant"):
        sf.account(SAMPLED, 1e-5, accountant="abacus")
    with pytest.raises(ValueError, match="neighbours"):
        sf.account(SAMPLED, 1e-5, neighbours="cousins")


def test_several_deltas_agree_with_one_by_one():
    deltas = [1e-3, 1e-5, 1e-7]
    many = sf.account_many(SAMPLED, deltas)
    assert [g.epsilon for g in many] == [epsilon(SAMPLED, delta) for delta in deltas]


@pytest.mark.parametrize("sample", [10, 100])
def test_a_sample_says_nothing_of_a_relation_that_its_release_does_not_have(sample):
    """A record that is blanked is not one that is replaced by another of the domain."""
    fixed = events.FixedSizeSampledEvent(events.GaussianEvent(4, REP), sample, 100)
    assert epsilon(fixed) > 0
    for target in (ZERO, ADD):
        with pytest.raises(ValueError, match=r"says nothing about|no add-remove guarantee"):
            epsilon(fixed, neighbours=target)
