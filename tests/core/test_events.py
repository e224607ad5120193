"""Events: JSON both ways for every kind, relations, units, and nonsense refused."""

import dataclasses
import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sfumato as sf
from sfumato import events
from sfumato.core import Neighbours
from sfumato.core.events.base import _KINDS

positive = st.floats(1e-3, 1e3)
small = st.integers(1, 50)
relations = st.sampled_from(list(Neighbours))
not_replace = st.sampled_from([Neighbours.ADD_REMOVE, Neighbours.ZERO_OUT])


def curves():
    orders = st.lists(st.floats(1.5, 100), min_size=1, max_size=4, unique=True).map(sorted)
    return orders.map(lambda o: events.RdpCurveEvent(tuple(o), tuple(0.1 * x for x in o)))


def leaves(relation):
    return st.one_of(
        st.builds(events.GaussianEvent, positive, relation),
        st.builds(events.LaplaceEvent, positive, relation),
        st.builds(events.DiscreteLaplaceEvent, positive, small, relation),
        st.builds(events.DiscreteGaussianEvent, positive, small, relation),
        st.builds(events.EpsilonDeltaEvent, positive, st.floats(0, 0.5), relation),
        st.builds(events.ExponentialEvent, positive, relation),
        st.builds(events.ZcdpEvent, positive, relation),
        curves(),
    )


any_leaf = st.one_of(
    leaves(relations),
    st.builds(events.RandomizedResponseEvent, positive, st.integers(2, 9)),
    st.builds(events.NotPrivateEvent, relations),
)
sampled = st.one_of(
    st.builds(events.PoissonSampledEvent, leaves(not_replace), st.floats(1e-4, 1)),
    st.builds(events.CutSampledEvent, leaves(st.just(Neighbours.ADD_REMOVE)), st.floats(1e-4, 1)),
    st.builds(events.FixedSizeSampledEvent, leaves(relations), small, st.integers(50, 99)),
)
trees = st.recursive(
    st.one_of(any_leaf, sampled),
    lambda inner: st.one_of(
        st.builds(events.ComposedEvent, st.lists(inner, max_size=3).map(tuple)),
        st.builds(events.RepeatedEvent, inner, small),
        st.builds(events.ParallelEvent, st.lists(inner, min_size=1, max_size=3).map(tuple), small),
        st.builds(events.GroupedEvent, inner, small, st.just("record")),
    ),
    max_leaves=6,
)


@given(trees)
def test_json_both_ways(event):
    assert events.event_from_dict(json.loads(json.dumps(event.to_dict()))) == event


@given(trees)
def test_events_are_hashable_values(event):
    copy = events.event_from_dict(event.to_dict())
    assert hash(copy) == hash(event)
    assert event.unit_name == "record"


def test_the_strategies_above_know_every_kind():
    known = {
        "gaussian laplace discrete-laplace discrete-gaussian epsilon-delta exponential zcdp",
        "rdp-curve randomized-response poisson-sampled fixed-size-sampled composed repeated",
        "parallel grouped not-private cut-sampled",
    }
    assert set(_KINDS) == {kind for line in known for kind in line.split()}


def test_events_are_frozen():
    event = events.GaussianEvent(1.0)
    with pytest.raises(dataclasses.FrozenInstanceError):
        event.noise_multiplier = 2.0


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"kind": "magic"},
        {"kind": ["gaussian"]},
        {"kind": "gaussian"},
        {"kind": "gaussian", "noise_multiplier": "4"},
        {"kind": "gaussian", "noise_multiplier": 4, "sigma": 4},
        {"kind": "repeated", "event": 5, "count": 3},
        {"kind": "composed", "events": [1, 2]},
        {"kind": "gaussian", "noise_multiplier": 4, "neighbours": "cousins"},
        {"kind": "gaussian", "noise_multiplier": 4, "unit": ""},
    ],
)
def test_bad_json_is_a_value_error(data):
    with pytest.raises(ValueError):  # noqa: PT011 - every kind of message
        events.event_from_dict(data)


BAD = [0, -1, math.nan, math.inf, "1", None, True]


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize(
    "make",
    [
        events.GaussianEvent,
        events.LaplaceEvent,
        events.DiscreteLaplaceEvent,
        events.DiscreteGaussianEvent,
        events.ExponentialEvent,
        events.RandomizedResponseEvent,
        events.ZcdpEvent,
        lambda x: events.PoissonSampledEvent(events.GaussianEvent(1), x),
    ],
)
def test_bad_parameters(make, bad):
    with pytest.raises(ValueError, match=r"must be .*got "):
        make(bad)


@pytest.mark.parametrize("bad", [-1, math.nan, math.inf, "1", None, True])
def test_bad_opaque_epsilon(bad):
    with pytest.raises(ValueError, match="epsilon"):
        events.EpsilonDeltaEvent(bad)


@pytest.mark.parametrize("bad", [-1e-9, 1, 2, math.nan, "0"])
def test_bad_opaque_delta(bad):
    with pytest.raises(ValueError, match="delta"):
        events.EpsilonDeltaEvent(1.0, bad)


@pytest.mark.parametrize("rate", [0, -0.1, 1.0001, math.nan, "0.1"])
def test_bad_sample_rates(rate):
    with pytest.raises(ValueError, match="sample_rate"):
        sf.dp_sgd(1.0, rate, 10)


@pytest.mark.parametrize("steps", [0, -1, 1.5, math.nan, math.inf, "10", True])
def test_bad_steps(steps):
    with pytest.raises(ValueError, match=r"steps|count"):
        sf.dp_sgd(1.0, 0.1, steps)


def test_a_sample_larger_than_the_population_is_refused():
    with pytest.raises(ValueError, match="sample_size"):
        events.FixedSizeSampledEvent(events.GaussianEvent(1), 11, 10)


def test_only_single_releases_are_sampled():
    twice = sf.repeat(events.GaussianEvent(1), 2)
    for make in (
        lambda: events.PoissonSampledEvent(twice, 0.1),
        lambda: events.FixedSizeSampledEvent(twice, 1, 10),
        lambda: events.CutSampledEvent(twice, 0.1),
    ):
        with pytest.raises(ValueError, match="single release"):
            make()


def test_a_poisson_sample_states_noise_over_the_whole_contribution():
    with pytest.raises(ValueError, match="replace-one"):
        events.PoissonSampledEvent(events.GaussianEvent(1, Neighbours.REPLACE_ONE), 0.1)


def test_randomised_response_is_about_replaced_answers():
    with pytest.raises(ValueError, match="replace-one"):
        events.RandomizedResponseEvent(1.0, neighbours=Neighbours.ADD_REMOVE)


@pytest.mark.parametrize(("noise", "epsilon"), [(0.5, math.log(3)), (0.1, math.log(19))])
def test_randomised_response_from_its_noise_parameter(noise, epsilon):
    event = events.RandomizedResponseEvent.from_noise_parameter(noise)
    assert event.epsilon == pytest.approx(epsilon)


def test_a_composite_takes_the_relation_all_parts_convert_to():
    add, zero, rep = (
        events.GaussianEvent(1, neighbours)
        for neighbours in (Neighbours.ADD_REMOVE, Neighbours.ZERO_OUT, Neighbours.REPLACE_ONE)
    )
    assert sf.compose(add, add).relation is Neighbours.ADD_REMOVE
    assert sf.compose(add, zero).relation is Neighbours.ZERO_OUT
    assert sf.compose(add, zero, rep).relation is Neighbours.REPLACE_ONE
    assert events.ParallelEvent((add, rep)).relation is Neighbours.REPLACE_ONE


def test_different_units_do_not_compose():
    person, label = events.LaplaceEvent(1, unit="person"), events.LaplaceEvent(1, unit="label")
    for make in (sf.compose, lambda *parts: events.ParallelEvent(parts)):
        with pytest.raises(ValueError, match=r"different units.*label, person"):
            make(person, label)


def test_records_become_people_by_a_declared_group_size():
    record = events.LaplaceEvent(1)
    person = events.GroupedEvent(record, 3, "person")
    assert sf.compose(person, events.LaplaceEvent(1, unit="person")).unit_name == "person"


STRETCH = [
    (events.GaussianEvent(6), events.GaussianEvent(2)),
    (events.LaplaceEvent(6), events.LaplaceEvent(2)),
    (events.DiscreteLaplaceEvent(6, 2), events.EpsilonDeltaEvent(1.0)),
    (events.DiscreteGaussianEvent(6, 2), events.ZcdpEvent(0.5)),
    (events.ExponentialEvent(0.1), events.ExponentialEvent(0.1 * 3)),
    (events.ZcdpEvent(0.1), events.ZcdpEvent(0.1 * 9)),
    (events.EpsilonDeltaEvent(0.1), events.EpsilonDeltaEvent(0.1 * 3)),
    (events.NotPrivateEvent(), events.NotPrivateEvent()),
]


@pytest.mark.parametrize(("event", "three_steps"), STRETCH)
def test_what_an_event_says_of_data_three_steps_apart(event, three_steps):
    assert event.stretched(3) == three_steps
    assert event.stretched(1) == event


@given(trees)
def test_a_part_that_promises_nothing_is_found_wherever_it_is(event):
    assert events.promises_nothing(event) == ("not-private" in json.dumps(event.to_dict()))


def test_what_promises_nothing_is_not_sampled():
    for make in (
        lambda event: events.PoissonSampledEvent(event, 0.1),
        lambda event: events.FixedSizeSampledEvent(event, 1, 10),
    ):
        with pytest.raises(ValueError, match="leave out the sampling"):
            make(events.NotPrivateEvent())


def test_stretched_opaque_and_rdp_events():
    group = events.EpsilonDeltaEvent(1.0, 1e-5).stretched(3)
    assert (group.epsilon, group.delta) == pytest.approx((3.0, 1.1107e-4), rel=1e-4)
    curve = events.RdpCurveEvent((2.0, 4.0, 8.0), (0.1, 0.2, 0.4)).stretched(2)
    assert curve.orders == (2.0, 4.0)
    assert curve.values == pytest.approx((0.6, 1.2))
    with pytest.raises(ValueError, match="orders must reach"):
        events.RdpCurveEvent((2.0,), (0.1,)).stretched(2)


@settings(max_examples=30)
@given(st.integers(1, 5), st.integers(1, 5))
def test_repeat_and_compose_write_the_obvious(n, m):
    event = events.GaussianEvent(1)
    assert sf.repeat(event, 1) is event
    assert sf.compose(event) is event
    assert sf.repeat(sf.repeat(event, n), m).relation is Neighbours.ADD_REMOVE
