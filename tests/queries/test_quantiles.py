"""The price of quantiles: choices and searches add up to epsilon, over all groups of a unit."""

import itertools

import ibis.expr.datatypes as dt
import pytest
from scipy import integrate, stats

from sfumato.accounting import account
from sfumato.core import Neighbours
from sfumato.queries import GroupBy, Median, Quantile
from sfumato.queries.facts import Facts
from sfumato.queries.quantiles import _sum_tail

COLUMNS = {"person": dt.int64, "x": dt.float64, "city": dt.string}
CITIES = ("Rome", "Milan", "Bari")


def facts(rows=1, groups=1, neighbours="add-remove"):
    relation = Neighbours.parse(neighbours)
    return Facts(COLUMNS, "person", "person", rows, groups, relation)


@pytest.mark.parametrize("interval", [False, True])
@pytest.mark.parametrize("groups", [1, 3])
@pytest.mark.parametrize("grouped", [False, True])
def test_all_of_it_costs_epsilon_and_no_less(interval, groups, grouped):
    """Each of G groups that a unit may be in gets its G-th part."""
    of = Median("x", 0.0, 1.0, candidates=8, interval=interval, epsilon=0.6)
    query = GroupBy(("city",), of, CITIES) if grouped else of
    plan = query.plan(facts(groups, groups))
    cells = groups if grouped else 1
    assert plan.guarantee.epsilon == 0.6
    assert account(plan.event, 0.0).epsilon == pytest.approx(0.6)
    searches = 2 * plan.search.epsilon if interval else 0.0
    assert plan.choice.epsilon + searches == pytest.approx(0.6 / cells)
    if interval:
        assert plan.choice.epsilon == pytest.approx(0.3 / cells)


@pytest.mark.parametrize(("quantile", "weights"), [(0.5, (1, 1)), (0.9, (1, 9)), (0.25, (3, 1))])
@pytest.mark.parametrize(("relation", "twice"), [("add-remove", 1), ("replace-one", 2)])
def test_a_row_moves_the_score_by_its_larger_weight(quantile, weights, relation, twice):
    query = Quantile("x", quantile, 0.0, 1.0, candidates=8, epsilon=1.0)
    plan = query.plan(facts(4, 4, relation))
    assert plan.weights == weights
    for part in (plan.choice, plan.search):
        assert part.sensitivity.bound == twice * 4 * max(weights)


def test_by_group_a_replaced_unit_would_change_more():
    of = Median("x", 0.0, 1.0, epsilon=1.0)
    with pytest.raises(ValueError, match="quantiles by group need add-remove or zero-out"):
        GroupBy(("city",), of, CITIES).plan(facts(neighbours="replace-one"))
    assert of.plan(facts(neighbours="replace-one")).guarantee.neighbours == "replace-one"
    with pytest.raises(ValueError, match="delta must be 0 for a quantile"):
        Median("x", 0.0, 1.0, epsilon=1.0, delta=1e-6).plan(facts())


@pytest.mark.parametrize(("a", "b"), [(1.0, 2.0), (2.0, 1.0), (3.0, 3.0), (1.0, 50.0)])
@pytest.mark.parametrize("probability", [0.2, 0.025, 1e-4])
def test_the_slack_of_a_search_covers_the_noise_of_one_comparison(a, b, probability):
    t = _sum_tail(a, b, probability)
    one, other = stats.laplace(scale=a), stats.laplace(scale=b)
    kinks = [-60 * a, 0.0, t, t + 60 * a]
    beyond = sum(
        integrate.quad(lambda x: one.pdf(x) * other.sf(t - x), low, high, epsabs=1e-13)[0]
        for low, high in itertools.pairwise(kinks)
    )
    assert beyond <= probability * (1 + 1e-6)
    assert beyond >= probability * 0.97


def test_a_search_passes_the_first_true_candidate_rarely():
    """Its threshold lies below 0 by more than the noise of a comparison at that confidence."""
    plans = [
        Median("x", 0.0, 1.0, epsilon=1.0, confidence=level).plan(facts(2, 2))
        for level in (0.5, 0.95, 0.999)
    ]
    for level, plan in zip((0.5, 0.95, 0.999), plans, strict=True):
        search = plan.search
        levels = -search.threshold * search.steps / search.sensitivity.bound - 2
        tail = _sum_tail(search.threshold_scale, search.query_scale, (1 - level) / 2)
        assert levels >= tail * (1 - 1e-9)
    assert plans[0].search.threshold > plans[1].search.threshold > plans[2].search.threshold
