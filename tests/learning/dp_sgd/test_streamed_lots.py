"""Streamed and cyclic Poisson lots: who takes part when, and what that costs."""

import itertools
import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from sfumato.accounting import account
from sfumato.core.events import GaussianEvent, PoissonSampledEvent, RepeatedEvent, dp_sgd
from sfumato.core.gaussian_profile import gaussian_epsilon
from sfumato.core.neighbours import Neighbours
from sfumato.core.randomness import SeededCoins
from sfumato.learning.dp_sgd import (
    CyclicPoissonLots,
    FixedSizeLots,
    PoissonLots,
    ShuffledLots,
    StreamedLots,
)
from sfumato.learning.dp_sgd.lots import Lots

ADD, ZERO, REPLACE = Neighbours.ADD_REMOVE, Neighbours.ZERO_OUT, Neighbours.REPLACE_ONE


def take(lots, count, available, seed=1, first=0):
    return list(itertools.islice(lots.sampler(available, SeededCoins(seed), first), count))


# --- streamed -------------------------------------------------------------------------------------


def test_streamed_lots_are_the_table_in_its_order():
    lots = take(StreamedLots(4, 10), 6, 10)
    assert [lot.tolist() for lot in lots[:3]] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert [lot.tolist() for lot in lots[3:]] == [lot.tolist() for lot in lots[:3]]
    assert all(lot.dtype == np.int64 for lot in lots)


@given(st.integers(1, 12), st.integers(1, 60), st.integers(0, 30), st.integers(1, 40))
def test_a_unit_takes_part_once_an_epoch_wherever_a_run_goes_on(size, population, first, steps):
    lots = StreamedLots(min(size, population), population)
    count, separation = lots.participation(first + steps)
    whole = take(lots, first + steps, population)
    went_on = take(lots, steps, population, first=lots.resume_point(first))
    assert [a.tolist() for a in whole[first:]] == [a.tolist() for a in went_on]
    for unit in range(population):
        steps_with = [t for t, lot in enumerate(whole) if unit in lot]
        assert len(steps_with) <= count
        assert all(b - a == separation for a, b in itertools.pairwise(steps_with))


def test_streamed_lots_cost_one_gaussian_an_epoch():
    lots = StreamedLots(10, 100)
    for relation, factor in ((ZERO, 1), (REPLACE, 2)):
        event = lots.events([(2.0, 25)], relation)
        assert event == RepeatedEvent(GaussianEvent(2.0, ZERO), 3)
        found = account(event, 1e-5, neighbours=relation).epsilon
        wanted = gaussian_epsilon(2.0 / (factor * math.sqrt(3)), 1e-5)
        assert found == pytest.approx(wanted, rel=1e-3)
        assert found >= wanted * (1 - 1e-9)
    with pytest.raises(ValueError, match="neighbours must be 'replace-one' or 'zero-out'"):
        lots.events([(2.0, 25)], ADD)
    assert lots.sample_rate == 1  # an order is not amplification
    assert lots.events([(2.0, 25)], ZERO) == ShuffledLots(10, 100).events([(2.0, 25)], ZERO)
    assert lots.steps_for(2) == 20


# --- cyclic Poisson -------------------------------------------------------------------------------


def test_parts_are_disjoint_and_take_turns():
    lots = CyclicPoissonLots(10, 200, groups=4)
    drawn = take(lots, 400, 200)
    parts = [set(np.concatenate(drawn[g::4]).tolist()) for g in range(4)]
    assert all(a.isdisjoint(b) for a, b in itertools.combinations(parts, 2))
    assert len(set.union(*parts)) == 200
    for unit in (0, 77, 199):
        steps = [t for t, lot in enumerate(drawn) if unit in lot]
        assert len({t % 4 for t in steps}) == 1
        assert lots.participation(400) == (100, 4)


def test_parts_and_inclusion_by_chi_square():
    lots, units = CyclicPoissonLots(12.0, 60, 3), 60
    sizes, hits = np.zeros(3), 0
    for seed in range(60):
        drawn = take(lots, 2 * 3, units, seed)
        hits += sum(map(len, drawn))
        big = take(CyclicPoissonLots(20.0, 60, 3), 3, units, seed)  # a rate of 1 shows the parts
        sizes += [len(lot) for lot in big]
    assert stats.chisquare(sizes).pvalue > 1e-3
    rate = lots.sample_rate
    assert rate == pytest.approx(0.6)
    trials = 60 * units * 2
    assert abs(hits - trials * rate) < 4 * math.sqrt(trials * rate * (1 - rate))


def test_a_unit_more_leaves_the_parts_of_others():
    """By coins of their own: a rule by place would move everyone behind the new unit."""
    lots = CyclicPoissonLots(8, 32, 4)
    fewer, more = (lots._draw(n, SeededCoins(5)) for n in (31, 32))
    for a, b in zip(itertools.islice(fewer, 4), more, strict=False):
        assert a.tolist() == [i for i in b.tolist() if i < 31]


def test_cyclic_lots_cost_a_sampled_gaussian_a_turn():
    lots = CyclicPoissonLots(50, 10_000, 8)
    step = PoissonSampledEvent(GaussianEvent(1.3), 0.04)
    assert lots.events([(1.3, 80)], ADD) == RepeatedEvent(step, 10)
    assert lots.events([(1.3, 81)], ADD) == RepeatedEvent(step, 11)  # begun is begun
    assert lots.events([(1.3, 3)], ADD) == step
    assert lots.events([(1.3, 8)], ADD, first=4) == RepeatedEvent(step, 2)  # touches two turns
    everyone = CyclicPoissonLots(25, 100, 4)
    assert everyone.events([(1.3, 8)], ADD) == RepeatedEvent(GaussianEvent(1.3), 2)
    changing = lots.events([(2.0, 12), (1.0, 4)], ADD)
    assert account(changing, 1e-5).epsilon >= account(lots.events([(1.0, 8)], ADD), 1e-5).epsilon


def test_one_group_is_poisson_sampling():
    one, plain = CyclicPoissonLots(50, 10_000, 1), PoissonLots(50, 10_000)
    for relation in Neighbours:
        assert one.events([(1.3, 80)], relation) == plain.events([(1.3, 80)], relation)
    assert one.events([(1.3, 80)], ADD) == dp_sgd(1.3, 0.005, 80)
    assert (one.sample_rate, one.cycle) == (plain.sample_rate, plain.cycle)


def test_as_dp_accounting_composes_it():
    """Choquette-Choo et al., arXiv:2306.08153, theorem 4: as JAX Privacy accounts it."""
    from dp_accounting.pld import privacy_loss_distribution as pld

    lots = CyclicPoissonLots(100, 10_000, 16)
    once = pld.from_gaussian_mechanism(1.5, sampling_prob=0.16, value_discretization_interval=1e-4)
    wanted = once.self_compose(math.ceil(250 / 16)).get_epsilon_for_delta(1e-5)
    found = account(lots.events([(1.5, 250)], ADD), 1e-5).epsilon
    assert found == pytest.approx(wanted, rel=1e-3)


def test_where_runs_go_on():
    lots = CyclicPoissonLots(10, 100, 4)
    assert [lots.resume_point(step) for step in (0, 1, 4, 5, 8)] == [0, 4, 4, 8, 8]
    assert StreamedLots(10, 100).resume_point(13) == 13


@given(st.integers(1, 6), st.integers(1, 40), st.lists(st.integers(0, 40), max_size=3))
def test_no_unit_has_more_turns_than_counted_however_often_a_run_is_cut_off(groups, steps, stops):
    """Parts are drawn anew each time: the worst unit has the best-placed part in each piece."""
    lots = CyclicPoissonLots(1, 100, groups)
    most, at = 0, 0
    for stop in [*sorted(stops), steps]:
        stop = min(stop, steps)
        if stop <= at:
            continue
        most += max(len(range(at + part, stop, groups)) for part in range(groups))
        at = min(lots.resume_point(stop), steps)
    assert most <= lots.participation(steps)[0]


# --- both -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("lots", [StreamedLots(7, 100), CyclicPoissonLots(2.5, 100, 8)])
def test_json(lots):
    back = Lots.from_dict(json.loads(json.dumps(lots.to_dict())))
    assert back == lots
    assert type(back) is type(lots)


def test_bad_parameters():
    with pytest.raises(ValueError, match="size must be a whole number"):
        StreamedLots(2.5, 10)
    with pytest.raises(ValueError, match="size must be at most the population"):
        StreamedLots(11, 10)
    with pytest.raises(ValueError, match="available must be the declared population 10"):
        StreamedLots(3, 10).sampler(9, SeededCoins(1))
    with pytest.raises(ValueError, match=r"groups must be at most population / size = 3\.333"):
        CyclicPoissonLots(3, 10, 4)
    with pytest.raises(ValueError, match="groups must be a whole number, 1 or above, got 0"):
        CyclicPoissonLots(3, 10, 0)
    CyclicPoissonLots(3, 10, 3).sampler(2, SeededCoins(1))  # the true number is private
    with pytest.raises(ValueError, match="records_per_unit must be 1 for cyclic-poisson"):
        CyclicPoissonLots(3, 10, 3).check(ADD, records_per_unit=2)
    StreamedLots(3, 10).check(ZERO, records_per_unit=2)


@pytest.mark.parametrize("lots", [PoissonLots(3, 10), FixedSizeLots(3, 10)])
def test_lots_that_bound_nothing_say_so(lots):
    with pytest.raises(ValueError, match=f"got {lots.kind} lots: use StreamedLots"):
        lots.participation(5)


def test_shuffled_lots_bound_one_epoch():
    assert ShuffledLots(10, 100).participation(10) == (1, 10)
    with pytest.raises(ValueError, match="use StreamedLots"):
        ShuffledLots(10, 100).participation(11)
