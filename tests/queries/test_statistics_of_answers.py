"""The released numbers have the law they should: spread, bias, coverage, choice probabilities.

Every count of repetitions is large enough that a constant off by a tenth fails. The noise is drawn
many times from one exact aggregate, as a question would read it.
"""

import itertools
import math

import ibis.expr.datatypes as dt
import mpmath
import numpy as np
import pyarrow as pa
import pytest
from scipy import stats

from sfumato.core import Neighbours, SeededCoins
from sfumato.queries import (
    ArgMax,
    Count,
    CountUnits,
    GroupBy,
    Histogram,
    Mean,
    Median,
    MostCommon,
    Quantile,
    Sum,
    Variance,
)
from sfumato.queries.engine import fetch
from sfumato.queries.facts import Facts
from sfumato.queries.private_keys import threshold
from sfumato.queries.sources import open_source

CITIES = ("Rome", "Milan", "Bari")
COLUMNS = {"person": dt.int64, "x": dt.float64, "city": dt.string}


def facts(rows=1, groups=1, neighbours="add-remove", unit="person"):
    return Facts(COLUMNS, "person", unit, rows, groups, Neighbours.parse(neighbours))


def draws(plan, rows, number, seed=5):
    """The one cell of ``number`` independent answers."""
    coins = SeededCoins(seed)
    return [plan.release(rows, coins)[0] for _ in range(number)]


def spread_of(cells):
    return np.std([float(cell.value) for cell in cells])


def coverage(cells, truth):
    return np.mean([cell.low <= truth <= cell.high for cell in cells])


def test_a_count_has_the_noise_of_r_rows():
    """Discrete Laplace of scale R / epsilon = 4 / 0.5: R - 1 would be 25 % less."""
    plan = Count(epsilon=0.5, confidence=0.9).plan(facts(rows=4))
    cells = draws(plan, [{"n": 1000}], 20_000)
    p = math.exp(-0.5 / 4)
    assert spread_of(cells) == pytest.approx(math.sqrt(2 * p) / (1 - p), rel=0.03)
    assert np.mean([cell.value for cell in cells]) == pytest.approx(1000, abs=4 * 11.3 / 141)
    assert coverage(cells, 1000) == pytest.approx(0.9, abs=0.015)
    assert all(isinstance(cell.value, int) for cell in cells)


def test_a_count_of_units_has_the_noise_of_one():
    plan = CountUnits(epsilon=0.1).plan(facts(rows=50, groups=50))
    cells = draws(plan, [{"n": 1000}], 10_000)
    assert spread_of(cells) == pytest.approx(math.sqrt(2) * 10, rel=0.04)
    assert coverage(cells, 1000) == pytest.approx(0.95, abs=0.01)


@pytest.mark.parametrize("neighbours", ["add-remove", "zero-out", "replace-one"])
def test_a_sum_has_the_noise_of_its_larger_bound(neighbours):
    twice = 2 if neighbours == "replace-one" else 1
    plan = Sum("x", -3, 7, epsilon=2.0).plan(facts(rows=2, neighbours=neighbours))
    exact = round(50 / plan.measure.grid.step)
    cells = draws(plan, [{"s": exact}], 10_000)
    assert spread_of(cells) == pytest.approx(math.sqrt(2) * twice * 2 * 7 / 2.0, rel=0.04)
    assert np.mean([cell.value for cell in cells]) == pytest.approx(50, abs=0.4 * twice)
    assert coverage(cells, 50) == pytest.approx(0.95, abs=0.01)


@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_a_mean_covers_and_has_the_spread_of_its_parts(delta):
    query = Mean("x", 10, 20, epsilon=1.0, delta=delta, confidence=0.9)
    plan = query.plan(facts(rows=2))
    grid, n, mean = plan.measure.grid, 500, 13.0
    rows = [{"n": n, "s": round(n * (mean - 15) / grid.step)}]
    cells = draws(plan, rows, 4000)
    assert coverage(cells, mean) >= 0.9 - 0.015
    count, total = (mechanism.standard_deviation for mechanism in plan.noise.mechanisms)
    expected = math.hypot(total * grid.step, (mean - 15) * count) / n
    assert spread_of(cells) == pytest.approx(expected, rel=0.06)
    if not delta:  # 2 rows of half the range, at half of epsilon
        assert total * grid.step == pytest.approx(math.sqrt(2) * 2 * 5 / 0.5, rel=1e-6)


@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_a_variance_covers(delta):
    query = Variance("x", 0, 10, epsilon=1.0, delta=delta, confidence=0.8)
    plan = query.plan(facts(rows=1))
    grid, n, mean, variance = plan.measure.grid, 3000, 4.0, 2.5
    squares = n * (variance + (mean - 5) ** 2) / grid.square_value(1)
    rows = [{"n": n, "s": round(n * (mean - 5) / grid.step), "q": round(squares)}]
    cells = draws(plan, rows, 3000)
    assert coverage(cells, variance) >= 0.8 - 0.02
    assert np.mean([cell.value for cell in cells]) == pytest.approx(variance, abs=0.02)
    if not delta:
        spread = plan.noise.mechanisms[2].standard_deviation * grid.square_value(1)
        assert spread == pytest.approx(math.sqrt(2) * 25 / 0.5, rel=1e-6)


def test_gaussian_noise_has_its_sigma_and_covers():
    plan = Count(epsilon=1.0, delta=1e-5).plan(facts(rows=3))
    (mechanism,) = plan.noise.mechanisms
    assert 3 * 3.6 < mechanism.sigma < 3 * 3.8  # about 3.73 for sensitivity 1
    cells = draws(plan, [{"n": 100}], 10_000)
    assert spread_of(cells) == pytest.approx(mechanism.sigma, rel=0.03)
    assert coverage(cells, 100) == pytest.approx(0.95, abs=0.02)


@pytest.mark.parametrize("delta", [0.0, 1e-6])
@pytest.mark.parametrize("rows", [1, 3])
def test_cells_of_a_histogram_each_cover(delta, rows):
    query = Histogram("x", tuple(range(101)), epsilon=0.5, delta=delta, confidence=0.9)
    plan = query.plan(facts(rows=rows))
    exact = [{"sfumato_axis_0": i, "n": 10 * i} for i in range(0, 100, 2)]
    coins, hits, errors = SeededCoins(7), [], []
    for _ in range(40):
        cells = plan.release(exact, coins)
        truth = [10 * i if i % 2 == 0 else 0 for i in range(100)]
        hits += [c.low <= t <= c.high for c, t in zip(cells, truth, strict=True)]
        errors += [c.value - t for c, t in zip(cells, truth, strict=True)]
    assert 0.9 - 0.02 <= np.mean(hits) <= 0.9 + 0.07  # no count is negative, and counts are whole
    assert np.mean(errors) == pytest.approx(0, abs=5 * np.std(errors) / 63)
    if not delta:  # one unit has R rows in all, however many cells there are
        assert np.std(errors) == pytest.approx(math.sqrt(2) * rows / 0.5, rel=0.07)


# --- quantiles ------------------------------------------------------------------------------------

DATA = {
    "even": np.linspace(0, 100, 1001),
    "ties": np.repeat([10.0, 20.0, 30.0], [400, 301, 300]),
    "one value": np.full(501, 42.0),
    "a gap": np.concatenate([np.linspace(0, 10, 500), np.linspace(90, 100, 501)]),
    "at the bounds": np.repeat([0.0, 100.0], [400, 601]),
    "on candidates": np.repeat(np.arange(0, 100, 7, dtype=float), 31),
    "few": np.array([3.0, 50.0, 97.0]),
}


@pytest.mark.parametrize("quantile", [0.5, 0.1])
@pytest.mark.parametrize("name", DATA)
def test_the_interval_of_a_quantile_covers(name, quantile):
    """Ties and gaps included; the quantiles of the data are an interval themselves."""
    values = np.sort(DATA[name])
    table = open_source(pa.table({"x": values}), name="d").table
    query = Quantile("x", quantile, 0, 100, candidates=70, epsilon=1.0, confidence=0.8)
    plan = query.plan(facts())
    rows = fetch(plan.exact(table), "testing")
    n = len(values)
    least = values[max(math.ceil(n * quantile) - 1, 0)]
    most = values[min(math.floor(n * quantile), n - 1)]
    cells = draws(plan, rows, 250)
    covered = np.mean([cell.low <= most and least <= cell.high for cell in cells])
    assert covered >= 0.8 - 0.06
    assert all(cell.low <= cell.value <= cell.high for cell in cells)
    assert all(cell.low >= 0 and cell.high <= 100 for cell in cells)


def test_a_median_is_near():
    table = open_source(pa.table({"x": np.linspace(20, 60, 4001)}), name="d").table
    plan = Median("x", 0, 100, epsilon=1.0).plan(facts())
    cells = draws(plan, fetch(plan.exact(table), "testing"), 40)
    assert all(abs(cell.value - 40) < 1 for cell in cells)
    assert np.median([cell.high - cell.low for cell in cells]) < 5


@pytest.mark.parametrize("rows", [1, 4])
def test_a_quantile_is_chosen_by_the_exponential_mechanism(rows):
    """With u(x) = below - above, of sensitivity R: weights e^(-epsilon |u| / 2R)."""
    query = Median("x", 0, 4, candidates=4, interval=False, epsilon=0.8)
    plan = query.plan(facts(rows=rows))
    exact = [{"sfumato_bin": i, "n": n} for i, n in enumerate((2, 0, 3, 1))]
    balance = np.array([-6, -2, -2, 4, 6])
    weights = np.exp(-0.8 * np.abs(balance) / (2 * rows))
    check_choices([c.value for c in draws(plan, exact, 6000)], range(5), weights)


def check_choices(found, candidates, weights):
    counts = [found.count(candidate) for candidate in candidates]
    assert sum(counts) == len(found)
    expected = len(found) * np.asarray(weights) / np.sum(weights)
    assert stats.chisquare(counts, expected).pvalue > 1e-4


@pytest.mark.parametrize("neighbours", ["add-remove", "replace-one"])
def test_the_most_common_is_chosen_by_the_exponential_mechanism(neighbours):
    """Counts are monotone, which halves the cost; under replace-one nothing is, and R counts twice.

    Scores move by 2 R there by two steps, so the weights are e^(epsilon n / 4R).
    """
    plan = MostCommon("city", CITIES, epsilon=0.6).plan(facts(rows=2, neighbours=neighbours))
    exact = [{"sfumato_axis_0": "Rome", "n": 3}, {"sfumato_axis_0": "Bari", "n": 5}]
    per_row = 0.6 / 2 if neighbours == "add-remove" else 0.6 / (2 * 4)
    weights = np.exp(per_row * np.array([3, 0, 5]))
    check_choices([c.value for c in draws(plan, exact, 8000)], CITIES, weights)


@pytest.mark.parametrize(("lower", "factor"), [(0, 1), (-4, 2)])
def test_the_largest_sum_is_chosen_by_the_exponential_mechanism(lower, factor):
    plan = ArgMax("city", "x", lower, 4, CITIES, epsilon=0.6).plan(facts(rows=2))
    step = plan.measure.grid.step
    sums = (6.0, 0.0, -3.0 if lower else 3.0)
    exact = [
        {"sfumato_axis_0": city, "s": round(s / step)} for city, s in zip(CITIES, sums, strict=True)
    ]
    weights = np.exp(0.6 * np.array(sums) / (factor * 2 * 4))
    check_choices([c.value for c in draws(plan, exact, 8000)], CITIES, weights)


def test_winners_are_drawn_without_replacement():
    plan = MostCommon("city", CITIES, winners=2, epsilon=1.2).plan(facts())
    exact = [{"sfumato_axis_0": "Rome", "n": 1}, {"sfumato_axis_0": "Bari", "n": 2}]
    coins = SeededCoins(3)
    found = [tuple(c.value for c in plan.release(exact, coins)) for _ in range(8000)]
    weight = dict(zip(CITIES, np.exp(0.6 * np.array([1, 0, 2])), strict=True))
    total = sum(weight.values())
    orders = list(itertools.permutations(CITIES, 2))
    law = [weight[a] / total * weight[b] / (total - weight[a]) for a, b in orders]
    check_choices(found, orders, law)


# --- private keys ---------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [0.05, 0.5, 1.0, 2.0, 7.3, 40.0, 1e3, 1e6, 1e9])
@pytest.mark.parametrize("groups", [1, 3, 1000])
@pytest.mark.parametrize("delta", [0.4, 1e-2, 1e-6, 1e-12, 1e-100, 1e-300])
def test_the_threshold_by_exact_arithmetic(scale, groups, delta):
    """G Pr[Y >= T - 1] <= delta, and a threshold lower by two would break it."""
    with mpmath.workdps(60):
        p = mpmath.exp(-1 / mpmath.mpf(scale))

        def missed(t):
            return groups * p ** (t - 1) / (1 + p) <= delta

        found = threshold(scale, groups, delta)
        slack = 2 + int(1e-11 * found)
        assert missed(found)
        assert found <= 2 or not missed(found - slack)


def test_a_group_of_one_unit_shows_as_seldom_as_delta_says():
    query = GroupBy(("city",), Count(epsilon=2.0, delta=0.01), private_keys=True)
    plan = query.plan(facts(rows=2, groups=2))
    rows = [{"sfumato_axis_0": f"{i:06}", "units": 1, "n": 1} for i in range(100_000)]
    shown = len(plan.release(rows, SeededCoins(11)))
    p = math.exp(-1 / plan.selection.scale)
    exact = p ** (plan.threshold - 1) / (1 + p)
    assert plan.selection.scale == 2.0  # two groups a unit, at half of epsilon
    assert 2 * exact <= 0.01 < 2 * exact / p**2
    assert shown == pytest.approx(1e5 * exact, abs=5 * math.sqrt(1e5 * exact))


@pytest.mark.parametrize("groups", [1, 2, 3])
@pytest.mark.parametrize("epsilon", [0.05, 0.7, 3.0])
@pytest.mark.parametrize("delta", [1e-6, 0.01, 0.4])
def test_which_private_groups_are_named_is_private_when_some_of_them_are_new(
    groups, epsilon, delta
):
    """The exact laws on both sides: one unit more, in some groups that are there and some new."""
    scale = groups / epsilon
    p, least = math.exp(-1 / scale), threshold(groups / epsilon, groups, delta)

    def passes(count):
        tail = p ** abs(least - count) / (1 + p)
        return tail if count < least else 1 - p * tail

    def law(counts):
        """Of all sets of names; a group that is not there is never named."""
        probs = np.ones(1)
        for share in (passes(count) if count else 0.0 for count in counts):
            probs = np.multiply.outer(probs, [1 - share, share]).ravel()
        return probs

    for new, around in itertools.product(range(groups + 1), (1, least - 1, least, least + 5)):
        old = [max(around, 1)] * (groups - new)
        here, there = law([*(n + 1 for n in old), *[1] * new]), law([*old, *[0] * new])
        for a, b in ((here, there), (there, here)):
            assert np.maximum(a - math.exp(epsilon) * b, 0).sum() <= delta * (1 + 1e-9)


def test_large_private_groups_show_with_an_unbiased_count():
    query = GroupBy(("city",), Count(epsilon=1.0, delta=1e-6), private_keys=True)
    plan = query.plan(facts(rows=3, groups=1))
    rows = [{"sfumato_axis_0": i, "units": 200, "n": 500} for i in range(4000)]
    cells = plan.release(rows, SeededCoins(11))
    assert len(cells) == 4000
    errors = np.array([cell.value - 500 for cell in cells])
    assert errors.std() == pytest.approx(math.sqrt(2) * 3 / 0.5, rel=0.07)
    assert np.mean([cell.low <= 500 <= cell.high for cell in cells]) == pytest.approx(
        0.95, abs=0.02
    )


def test_private_keys_come_in_their_own_order():
    query = GroupBy(("city",), Count(epsilon=9.0, delta=1e-6), private_keys=True)
    plan = query.plan(facts())
    rows = [{"sfumato_axis_0": city, "units": 900, "n": 900} for city in ("c", "a", "b")]
    for order in itertools.permutations(rows):
        assert [cell.keys for cell in plan.release(order, SeededCoins(1))] == [
            ("a",),
            ("b",),
            ("c",),
        ]
        assert plan.release(order, SeededCoins(1)) == plan.release(rows, SeededCoins(1))


# --- floating point -------------------------------------------------------------------------------


def test_the_digits_of_a_sum_do_not_tell_the_exact_one():
    """The share of outputs that are multiples of a power of two is the same for 0 and for 1.

    Means and variances are computed from noisy whole numbers alone, so theirs cannot tell either.
    """
    plan = Sum("x", 0, 1, epsilon=1.0).plan(facts())
    grid, shares = plan.measure.grid, []
    for value in (0.0, 1.0):
        found = [cell.value for cell in draws(plan, [{"s": round(value / grid.step)}], 5000)]
        shares.append([np.mean([math.fmod(v, 2.0**-k) == 0 for v in found]) for k in (22, 24, 53)])
    assert shares[0] == pytest.approx(shares[1], abs=0.03)
    assert shares[0][1:] == shares[1][1:] == [1.0, 1.0]
