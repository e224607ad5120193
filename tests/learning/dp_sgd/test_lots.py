"""Lots: what is sampled is what is accounted."""

import itertools
import json
import math

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import sfumato as sf
from sfumato.accounting import account
from sfumato.core.events import (
    ComposedEvent,
    CutSampledEvent,
    EpsilonDeltaEvent,
    FixedSizeSampledEvent,
    GaussianEvent,
    GroupedEvent,
    RepeatedEvent,
    dp_sgd,
)
from sfumato.core.gaussian_profile import gaussian_epsilon
from sfumato.core.neighbours import Neighbours
from sfumato.core.randomness import SeededCoins
from sfumato.learning.dp_sgd.draws import arrangement, below, bernoulli, permutation, subset
from sfumato.learning.dp_sgd.lots import FixedSizeLots, Lots, PoissonLots, ShuffledLots
from sfumato.learning.dp_sgd.schedules import NoiseSchedule, by_epoch

ADD, ZERO, REPLACE = Neighbours.ADD_REMOVE, Neighbours.ZERO_OUT, Neighbours.REPLACE_ONE


def take(lots, count, available, seed=1):
    return list(itertools.islice(lots.sampler(available, SeededCoins(seed)), count))


class Fixed:
    """Coins that give the words they were made with."""

    private = False

    def __init__(self, *words):
        self.left = [np.asarray(w, dtype=np.uint64) for w in words]

    def words(self, count):
        got = self.left.pop(0)
        assert len(got) == count
        return got


# --- public facts -------------------------------------------------------------------------------


@given(st.integers(1, 10**6), st.floats(1e-3, 1), st.integers(0, 10**6))
def test_the_rate_and_the_normaliser_are_declared(population, share, available):
    size = share * population
    lots = PoissonLots(size, population)
    assert lots.sample_rate == size / population
    assert lots.expected_size == size
    lots.sampler(available, SeededCoins(1))  # never an error, whatever the true size
    assert (lots.sample_rate, lots.expected_size) == (size / population, size)


def test_the_rate_is_not_one_over_a_number_of_batches():
    lots = PoissonLots(8192, 50_000)
    assert lots.sample_rate == pytest.approx(0.16384)  # 1/7 = 0.1429 would understate the cost
    assert lots.steps_per_epoch == 7
    assert lots.steps_for(10) == 61
    assert FixedSizeLots(8192, 50_000).steps_for(10) == 61
    assert ShuffledLots(8192, 50_000).steps_for(10) == 70
    assert PoissonLots(600, 60_000).steps_for(60) == 6000
    assert PoissonLots(600, 60_000).steps_for(1e-9) == 1
    assert FixedSizeLots(600, 60_000).sample_rate == 0.01
    assert ShuffledLots(600, 60_000).sample_rate == 1  # shuffling is not amplification


@pytest.mark.parametrize(
    ("lots", "relations"),
    [
        (PoissonLots(10, 100), {ADD, ZERO, REPLACE}),
        (FixedSizeLots(10, 100), {ZERO, REPLACE}),
        (ShuffledLots(10, 100), {ZERO, REPLACE}),
    ],
)
def test_public_sizes_have_no_add_remove_guarantee(lots, relations):
    assert lots.relations == relations
    for relation in Neighbours:
        if relation in relations:
            event = lots.events([(1.0, 5)], relation)
            assert account(event, 1e-5, neighbours=relation).epsilon < math.inf
        else:
            with pytest.raises(ValueError, match="use PoissonLots"):
                lots.events([(1.0, 5)], relation)


def test_bad_parameters():
    for make in (PoissonLots, FixedSizeLots, ShuffledLots):
        for size, population in ((0, 10), (11, 10), (-1, 10), (1, 0), (math.nan, 10)):
            with pytest.raises(ValueError, match="must be"):
                make(size, population)
    with pytest.raises(ValueError, match="size must be a whole number"):
        FixedSizeLots(2.5, 10)
    with pytest.raises(ValueError, match="max_size must be"):
        PoissonLots(10, 100, max_size=9)
    for lots in (FixedSizeLots(3, 10), ShuffledLots(3, 10)):
        for available in (0, 9, 11):
            with pytest.raises(ValueError, match="available must be the declared population 10"):
                lots.sampler(available, SeededCoins(1))


@pytest.mark.parametrize(
    "lots",
    [
        PoissonLots(10.5, 100),
        PoissonLots(10, 100, max_size=30),
        FixedSizeLots(10, 100),
        ShuffledLots(7, 100),
    ],
)
def test_json(lots):
    back = Lots.from_dict(json.loads(json.dumps(lots.to_dict())))
    assert back == lots
    assert type(back) is type(lots)
    with pytest.raises(ValueError, match="kind must be one of cyclic-poisson, fixed-size"):
        Lots.from_dict({"kind": "no"})


# --- samplers -----------------------------------------------------------------------------------


def test_poisson_inclusion_by_chi_square():
    available, q, draws = 50, 0.13, 20_000
    lots = take(PoissonLots(13, 100), draws, available)
    hits = np.bincount(np.concatenate(lots), minlength=available)
    spread = (hits - draws * q) ** 2 / (draws * q * (1 - q))
    assert stats.chi2.sf(spread.sum(), available) > 1e-3
    assert hits.mean() / draws == pytest.approx(q, rel=0.01)
    sizes = np.bincount([len(lot) for lot in lots], minlength=available + 1)
    expected = draws * stats.binom.pmf(np.arange(available + 1), available, q)
    seen = expected > 20
    spread = ((sizes - expected) ** 2 / expected)[seen].sum()
    assert stats.chi2.sf(spread, seen.sum() - 1) > 1e-3


def test_poisson_units_are_independent_of_each_other_and_from_step_to_step():
    lots = take(PoissonLots(30, 100), 20_000, 5, seed=3)
    entered = np.zeros((len(lots), 5))
    for row, lot in zip(entered, lots, strict=True):
        row[lot] = 1
    both = np.corrcoef(np.hstack([entered[:-1], entered[1:]]).T)
    assert np.abs(both - np.eye(10)).max() < 4 / math.sqrt(len(lots))


@settings(max_examples=30)
@given(st.integers(1, 2**64 - 1), st.integers(0, 2**64 - 1))
def test_poisson_compares_all_64_bits(threshold, word):
    # A unit whose first 16 bits are the threshold's is decided by 48 more.
    high = threshold >> 48
    leading = (word >> 48) == high
    coins = Fixed([word >> 48], *([[(word << 16) % 2**64]] if leading else [[]]))
    assert len(bernoulli(1, threshold, coins)) == (word < threshold)


@pytest.mark.parametrize("q", [1e-7, 0.01, 0.16384, 0.5])
def test_the_sampler_never_exceeds_the_accounted_rate(q):
    lots = PoissonLots(q * 1000, 1000)
    threshold = math.floor(mpmath.mpf(lots.sample_rate) * 2**64)
    assert threshold <= mpmath.mpf(lots.sample_rate) * 2**64 < threshold + 1
    for word, enters in ((threshold - 1, True), (threshold, False)):
        coins = Fixed([word >> 48], [(word << 16) % 2**64])
        if word >> 48 != threshold >> 48:
            coins = Fixed([word >> 48], [])
        assert len(next(lots._draw(1, coins))) == enters


def test_everyone_at_rate_one_and_no_one_in_an_empty_table():
    (lot,) = take(PoissonLots(10, 10), 1, 7)
    assert sorted(lot.tolist()) == list(range(7))
    lots = take(PoissonLots(1, 10), 5, 0)
    assert [len(lot) for lot in lots] == [0] * 5
    assert all(lot.dtype == np.int64 for lot in lots)
    assert any(len(lot) == 0 for lot in take(PoissonLots(0.5, 10), 50, 10))


def test_poisson_takes_as_many_words_whatever_the_rows_hold():
    # One unit more, same coins: the others' coins stay as they are (up to a word of four).
    fewer = take(PoissonLots(30, 100), 1, 8, seed=5)[0]
    more = take(PoissonLots(30, 100), 1, 9, seed=5)[0]
    assert sorted(fewer) == [i for i in sorted(more) if i < 8]


def test_cut_lots_are_uniform_among_all_rows_however_many_there_are():
    lots = take(PoissonLots(5, 10, max_size=5), 20_000, 14, seed=2)
    sizes = np.array([len(lot) for lot in lots])
    assert sizes.max() == 5
    assert (sizes == 5).mean() == pytest.approx(stats.binom.sf(4, 14, 0.5), abs=0.015)
    hits = np.bincount(np.concatenate(lots), minlength=14)
    assert stats.chisquare(hits).pvalue > 1e-3


def test_fixed_size_lots_are_uniform_subsets():
    lots = take(FixedSizeLots(2, 5), 10_000, 5, seed=4)
    assert all(len(set(lot.tolist())) == 2 for lot in lots)
    pairs = [5 * a + b for a, b in (lot.tolist() for lot in lots)]
    counts = np.unique(pairs, return_counts=True)[1]
    assert len(counts) == 20  # in either order
    assert stats.chisquare(counts).pvalue > 1e-3


@settings(max_examples=40)
@given(st.integers(1, 60), st.integers(1, 60))
def test_shuffled_lots_part_each_epoch(population, size):
    size = min(size, population)
    lots = ShuffledLots(size, population)
    drawn = take(lots, 3 * lots.steps_per_epoch, population)
    for epoch in range(3):
        part = drawn[epoch * lots.steps_per_epoch : (epoch + 1) * lots.steps_per_epoch]
        assert np.sort(np.concatenate(part)).tolist() == list(range(population))
        assert all(len(lot) == size for lot in part[:-1])


def test_permutations_are_uniform_and_fresh():
    coins = SeededCoins(6)
    drawn = [tuple(permutation(4, coins)) for _ in range(12_000)]
    counts = np.unique(drawn, axis=0, return_counts=True)[1]
    assert len(counts) == 24
    assert stats.chisquare(counts).pvalue > 1e-3


def inside_out(count, coins):
    """Fisher and Yates, as they are written down."""
    order = []
    for i, j in enumerate(below(np.arange(1, count + 1), coins).tolist()):
        order.append(i)
        order[i], order[j] = order[j], i
    return order


@given(st.integers(0, 60), st.integers(0, 2**32))
def test_one_unit_more_moves_one_other_to_the_end(count, seed):
    order = arrangement(count, SeededCoins(seed))
    assert order.tolist() == inside_out(count, SeededCoins(seed))
    more = arrangement(count + 1, SeededCoins(seed)).tolist()
    at = more.index(count)
    assert more[:at] + [more[-1]] * (at < count) + more[at + 1 : -1] == order.tolist()


def test_every_order_of_a_lot_is_equally_likely():
    coins = SeededCoins(8)
    drawn = [tuple(arrangement(4, coins)) for _ in range(12_000)]
    counts = np.unique(drawn, axis=0, return_counts=True)[1]
    assert len(counts) == 24
    assert stats.chisquare(counts).pvalue > 1e-3
    lots = take(FixedSizeLots(3, 3), 6000, 3)
    counts = np.unique(lots, axis=0, return_counts=True)[1]
    assert len(counts) == 6
    assert stats.chisquare(counts).pvalue > 1e-3


def test_ties_are_drawn_again():
    assert permutation(3, Fixed([5, 5, 1], [9, 2, 4])).tolist() == [1, 2, 0]
    # A tie across the border is drawn again; one inside is no matter.
    assert subset(3, 1, Fixed([5, 5, 7], [9, 2, 4])).tolist() == [1]
    assert subset(3, 2, Fixed([5, 5, 7])).tolist() == [0, 1]


def test_where_a_resumed_run_goes_on():
    assert PoissonLots(10, 100).resume_point(13) == 13
    assert FixedSizeLots(10, 100).resume_point(13) == 13
    shuffled = ShuffledLots(30, 100)  # four lots an epoch
    assert [shuffled.resume_point(step) for step in (0, 1, 4, 5, 8)] == [0, 4, 4, 8, 8]


# --- events -------------------------------------------------------------------------------------


def test_poisson_events_are_dp_sgd():
    lots = PoissonLots(600, 60_000)
    assert lots.events([(1.3, 500)], ADD) == dp_sgd(1.3, 0.01, 500)
    assert lots.events([(1.3, 500)], ADD, "user") == dp_sgd(1.3, 0.01, 500, "user")
    assert PoissonLots(10, 10).events([(1.3, 5)], ADD) == dp_sgd(1.3, 1.0, 5)
    two = lots.events([(1.3, 500), (2.0, 100)], ADD)
    assert two == ComposedEvent((dp_sgd(1.3, 0.01, 500), dp_sgd(2.0, 0.01, 100)))


def test_replace_one_is_not_accounted_with_the_add_remove_distance():
    event = PoissonLots(600, 60_000).events([(4.0, 10_000)], REPLACE)
    assert account(event, 1e-5, neighbours=REPLACE).epsilon == pytest.approx(1.993, abs=1e-3)
    whole = PoissonLots(5, 5).events([(4.0, 1)], REPLACE)
    assert account(whole, 1e-5, neighbours=REPLACE).epsilon == pytest.approx(
        gaussian_epsilon(2.0, 1e-5)
    )
    zero = PoissonLots(600, 60_000).events([(4.0, 10_000)], ZERO)
    assert zero.relation is ZERO
    assert account(zero, 1e-5).epsilon == pytest.approx(0.947, abs=1e-3)


def test_fixed_size_takes_the_noise_at_twice_the_clip():
    lots = FixedSizeLots(600, 60_000)
    event = lots.events([(4.0, 1000)], REPLACE)
    assert isinstance(event, RepeatedEvent)
    assert isinstance(event.event, FixedSizeSampledEvent)
    ours = account(event, 1e-5, neighbours=REPLACE, accountant="rdp").epsilon
    # The same with the noise stated over the distance of a replaced record, 2C.
    stated = FixedSizeSampledEvent(GaussianEvent(2.0, REPLACE), 600, 60_000)
    assert ours == account(sf.repeat(stated, 1000), 1e-5, accountant="rdp").epsilon
    wrong = FixedSizeSampledEvent(GaussianEvent(4.0, REPLACE), 600, 60_000)
    assert ours > 1.5 * account(sf.repeat(wrong, 1000), 1e-5, accountant="rdp").epsilon
    everyone = FixedSizeLots(50, 50).events([(4.0, 1)], ZERO)
    assert account(everyone, 1e-5).epsilon == pytest.approx(gaussian_epsilon(4.0, 1e-5))


@pytest.mark.parametrize(("relation", "distance"), [(ZERO, 1), (REPLACE, 2)])
def test_shuffled_lots_cost_one_gaussian_an_epoch(relation, distance):
    lots = ShuffledLots(600, 60_000)
    for steps, epochs in ((1, 1), (100, 1), (101, 2), (1000, 10)):
        event = lots.events([(4.0, steps)], relation)
        found = account(event, 1e-5, neighbours=relation).epsilon
        assert found == pytest.approx(
            gaussian_epsilon(4.0 / distance / math.sqrt(epochs), 1e-5), rel=1e-9
        )


def test_shuffled_lots_are_not_accounted_as_poisson():
    shuffled = ShuffledLots(600, 60_000).events([(1.0, 1000)], ZERO)
    poisson = PoissonLots(600, 60_000).events([(1.0, 1000)], ZERO)
    assert account(shuffled, 1e-5).epsilon > 5 * account(poisson, 1e-5).epsilon


def test_an_epoch_with_two_multipliers_counts_with_the_smaller():
    lots = ShuffledLots(10, 100)
    event = lots.events([(2.0, 15), (3.0, 15), (1.0, 2)], ZERO)
    assert event.events == tuple(GaussianEvent(z, ZERO) for z in (2.0, 2.0, 3.0, 1.0))
    # From within an epoch, that epoch counts.
    assert by_epoch([(2.0, 3)], 10, first=8) == [(2.0, 2)]


@given(
    st.lists(st.tuples(st.floats(0.5, 4), st.integers(1, 40)), min_size=1, max_size=6),
    st.integers(1, 17),
    st.integers(0, 40),
)
def test_epochs_by_the_definition(noise, length, first):
    flat = [z for z, count in noise for _ in range(count)]
    least = {}
    for step, z in enumerate(flat, first):
        least[step // length] = min(z, least.get(step // length, math.inf))
    found = [z for z, epochs in by_epoch(noise, length, first) for _ in range(epochs)]
    assert found == [least[epoch] for epoch in sorted(least)]


def test_groups():
    lots = PoissonLots(600, 60_000)
    event = lots.events([(1.3, 5)], ADD, records_per_unit=3, group_unit="person")
    assert event == GroupedEvent(dp_sgd(1.3, 0.01, 5), 3, "person")
    for refused, relation in ((lots, REPLACE), (FixedSizeLots(6, 60), ZERO)):
        with pytest.raises(ValueError, match="records_per_unit must be 1"):
            refused.events([(1.3, 5)], relation, records_per_unit=3, group_unit="person")
    shuffled = ShuffledLots(6, 60).events(
        [(6.0, 20)], ZERO, records_per_unit=3, group_unit="person"
    )
    found = account(shuffled, 1e-5)
    assert found.unit == "person"
    assert found.epsilon == pytest.approx(gaussian_epsilon(6 / 3 / math.sqrt(2), 1e-5))


# --- cut lots -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("size", "population", "most"), [(600, 60_000, 750), (600, 60_000, 900), (5, 10, 7), (1, 9, 1)]
)
def test_the_probability_of_overflow(size, population, most):
    with mpmath.workdps(50):
        p = mpmath.mpf(size) / population
        tail = mpmath.fsum(
            mpmath.binomial(population, i) * p**i * (1 - p) ** (population - i)
            for i in range(most + 1, min(population, most + 600) + 1)
        )
    lots = PoissonLots(size, population, max_size=most)
    found = lots.overflow(1, ZERO)
    assert tail <= found <= tail * (1 + 1e-6) + 1e-250
    assert lots.overflow(7, REPLACE) == pytest.approx(min(1.0, 7 * found))
    assert lots.overflow(7, ADD) == 0


def lots_of_zero_out(noise, steps):
    return PoissonLots(600, 60_000).events([(noise, steps)], ZERO)


def test_cutting_lots_costs_delta():
    lots = PoissonLots(600, 60_000, max_size=780)
    noise, steps, delta, epsilon = 1.2, 1000, 1e-5, 2.0
    event = lots.events([(noise, steps)], ZERO, delta=delta, largest_epsilon=epsilon)
    main, cut = event.events
    assert main == lots_of_zero_out(noise, steps)
    eta = steps * stats.binom.sf(780, 60_000, 0.01)
    assert isinstance(cut, EpsilonDeltaEvent)
    assert cut.epsilon == 0
    assert cut.delta == pytest.approx((1 + math.e**epsilon) * eta / (1 - delta), rel=1e-6)
    # The whole has at least delta + (1 + e^epsilon) eta.
    extra = (1 + math.e**epsilon) * eta
    whole = account(event, delta).epsilon
    assert whole >= account(main, delta).epsilon
    assert whole == pytest.approx(account(main, delta - extra).epsilon, rel=1e-4)
    # Never for the larger unit k-fold: the argument holds for any two data sets.
    grouped = lots.events(
        [(noise, steps)],
        ZERO,
        records_per_unit=3,
        group_unit="person",
        delta=delta,
        largest_epsilon=epsilon,
    )
    assert grouped.events[1] == EpsilonDeltaEvent(0.0, cut.delta, ZERO, "person")


def test_cutting_too_much_is_refused():
    lots = PoissonLots(600, 60_000, max_size=650)
    with pytest.raises(ValueError, match="max_size must be larger, got 650"):
        lots.events([(1.2, 1000)], ZERO, delta=1e-5, largest_epsilon=2.0)
    with pytest.raises(ValueError, match="largest_epsilon must be"):
        PoissonLots(600, 60_000, max_size=780).events([(1.2, 1000)], ZERO, delta=1e-5)
    never = PoissonLots(6, 60, max_size=60)
    assert never.events([(1.2, 10)], ZERO) == PoissonLots(6, 60).events([(1.2, 10)], ZERO)


def test_under_add_remove_a_cut_lot_counts_at_twice_the_distance():
    """However many units are declared: the table may hold more, and then lots are cut."""
    for most in (650, 60_000):
        lots = PoissonLots(600, 60_000, max_size=most)
        event = lots.events([(2.4, 1000)], ADD)
        assert event == sf.repeat(CutSampledEvent(GaussianEvent(2.4), 0.01), 1000)
        assert account(event, 1e-5) == account(dp_sgd(1.2, 0.01, 1000), 1e-5)
    assert lots.events([(2.4, 5)], REPLACE) == PoissonLots(600, 60_000).events([(2.4, 5)], REPLACE)


def test_tables_beyond_the_declared_size_are_refused_where_sizes_are_public():
    lots = PoissonLots(6, 60, max_size=30)
    for relation in (ZERO, REPLACE):
        lots.check_table(60, relation)
        PoissonLots(6, 60).check_table(61, relation)
        with pytest.raises(ValueError, match=r"at least the 61 units of the table .* got 60"):
            lots.check_table(61, relation)
    lots.check_table(61, ADD)  # the size is private, and nobody's error depends on it


# --- schedules ----------------------------------------------------------------------------------

schedules = st.lists(st.tuples(st.floats(0.01, 1), st.floats(0.1, 10)), min_size=1, max_size=8).map(
    lambda raw: NoiseSchedule(tuple((s / math.fsum(x for x, _ in raw), f) for s, f in raw))
)


@given(schedules, st.integers(1, 300), st.data())
def test_a_schedule_covers_every_step_once(schedule, steps, data):
    parts = schedule.multipliers(2.0, steps)
    assert sum(count for _, count in parts) == steps
    assert all(count > 0 for _, count in parts)
    flat = [z for z, count in parts for _ in range(count)]
    assert flat == [2.0 * schedule.at(step, steps) for step in range(steps)]
    first = data.draw(st.integers(0, steps))
    last = data.draw(st.integers(first, steps))
    cut = schedule.multipliers(2.0, steps, first, last)
    assert [z for z, count in cut for _ in range(count)] == flat[first:last]
    assert NoiseSchedule.from_dict(json.loads(json.dumps(schedule.to_dict()))) == schedule


def test_schedules():
    assert NoiseSchedule.constant().is_constant
    linear = NoiseSchedule.linear(2.0, 1.0, phases=4)
    assert [factor for _, factor in linear.phases] == pytest.approx([1.875, 1.625, 1.375, 1.125])
    assert not linear.is_constant
    geometric = NoiseSchedule.geometric(4.0, 1.0, phases=2)
    assert [f for _, f in geometric.phases] == pytest.approx([4 / 2**0.5, 2**0.5])
    assert (geometric.least, geometric.greatest) == pytest.approx((2**0.5, 4 / 2**0.5))
    for phases in (((0.5, 1.0),), (), ((1.0, 0.0),), ((-1.0, 1.0), (2.0, 1.0))):
        with pytest.raises(ValueError, match="must be"):
            NoiseSchedule(phases)
    with pytest.raises(ValueError, match="step must be from 0 to 9"):
        linear.at(10, 10)
