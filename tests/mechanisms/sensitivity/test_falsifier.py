"""The search: wrong claims it must refute, what it reports, and where it walks."""

import json
import math

import numpy as np
import pytest

from sfumato.core import Neighbours, Norm, Sensitivity
from sfumato.mechanisms.sensitivity import (
    NULL,
    Ball,
    BoundedSum,
    Box,
    Categories,
    Count,
    Groups,
    Histogram,
    Interval,
    Product,
    RoundedCount,
    falsify,
    largest_found,
)
from sfumato.mechanisms.sensitivity.falsifier import distance

ADD, REP, ZERO = Neighbours.ADD_REMOVE, Neighbours.REPLACE_ONE, Neighbours.ZERO_OUT
UNIT = Interval(0, 1)
SEEDS = pytest.mark.parametrize("seed", [0, 1, 2])


def private_mean(table):
    return sum(table) / len(table) if len(table) else 0.0


def batch_clipped(table):
    """The gradient of a batch clipped to norm 1 as a whole, as a lecture has it."""
    total = np.sum(np.reshape(table, (-1, 3)), axis=0)
    return total / max(1.0, float(np.linalg.norm(total)))


def squared_deviations(table):
    return sum((x - private_mean(table)) ** 2 for x in table)


def codeviations(table):
    x, y = np.reshape(table, (-1, 2)).T
    return ((x - private_mean(x)) * (y - private_mean(y))).sum() if len(x) else 0.0


def counter_of_one_byte(table):
    return len(table) % 256


def median(table):
    return sorted(table)[len(table) // 2] if table else 0.0


def unclamped_sum(table):
    return math.fsum(x for x in table if isinstance(x, int | float) and abs(x) < math.inf)


def trusting_sum(table):
    return sum(x for x in table if isinstance(x, float))


WRONG = {
    "mean of a private size, 1/n": (private_mean, UNIT, Sensitivity(1 / 50)),
    "rounded count, 1": (RoundedCount(5), UNIT, Sensitivity(1.0)),
    "clipped batch, C under replace-one": (
        batch_clipped,
        Ball(5.0, 3),
        Sensitivity(1.0, Norm.L2, REP, dimension=3),
    ),
    "clipped batch, C under add-remove": (
        batch_clipped,
        Ball(5.0, 3),
        Sensitivity(1.0, Norm.L2, ADD, dimension=3),
    ),
    "squared deviations, (range / 2)^2": (squared_deviations, UNIT, Sensitivity(0.25)),
    "squared deviations, replaced": (
        squared_deviations,
        UNIT,
        Sensitivity(0.5, neighbours=REP),
    ),
    "codeviations, (range / 2)^2": (codeviations, Box(0, 1, 2), Sensitivity(0.25)),
    "squares, from the upper bound alone": (
        lambda table: sum(x * x for x in table),
        Interval(-2, 1),
        Sensitivity(1.0),
    ),
    "squares, from the lower bound twice": (
        lambda table: sum(x * x for x in table),
        UNIT,
        Sensitivity(0.0),
    ),
    "sum without a clamp": (unclamped_sum, Interval(0, 1, raw=True), Sensitivity(1e6)),
    "sum that trusts NaN": (trusting_sum, Interval(0, 1, raw=True), Sensitivity(1e300)),
    "sum of [10, 20], u - l under add-remove": (
        BoundedSum(10, 20),
        Interval(10, 20),
        Sensitivity(10.0),
    ),
    "sum of [10, 20], u - l under zero-out": (
        BoundedSum(10, 20),
        Interval(10, 20),
        Sensitivity(10.0, neighbours=ZERO),
    ),
    "histogram, L1 = 1 under replace-one": (
        Histogram(("a", "b", "c")),
        Categories(("a", "b", "c")),
        Sensitivity(1.0, Norm.L1, REP, dimension=3),
    ),
    "histogram, L2 = 1 under replace-one": (
        Histogram(("a", "b", "c")),
        Categories(("a", "b", "c")),
        Sensitivity(1.0, Norm.L2, REP, dimension=3),
    ),
    "predicate count, 0 under replace-one": (
        Count(lambda x: x > 0.5),
        UNIT,
        Sensitivity(0.0, neighbours=REP),
    ),
    "median, range / n": (median, UNIT, Sensitivity(0.1, neighbours=REP)),
    "maximum, range / n": (lambda t: max(t, default=0.0), UNIT, Sensitivity(0.1)),
    "first record, range / n": (lambda t: t[0] if t else 0.0, UNIT, Sensitivity(0.1)),
}


@SEEDS
@pytest.mark.parametrize("name", WRONG)
def test_a_classic_wrong_claim_is_refuted(name: str, seed: int) -> None:
    function, domain, claim = WRONG[name]
    witness = falsify(function, domain, claim, seed=seed)
    assert witness is not None
    assert witness.violates
    assert witness.ratio > 1
    assert abs(len(witness.first) - len(witness.second)) == (claim.neighbours is ADD)


RIGHT = {
    "clipped batch, 2 C": (
        batch_clipped,
        Ball(5.0, 3),
        Sensitivity(2.0, Norm.L2, REP, dimension=3),
    ),
    "squared deviations, range^2": (squared_deviations, UNIT, Sensitivity(1.0)),
    "codeviations, range^2": (codeviations, Box(0, 1, 2), Sensitivity(1.0)),
    "squares, larger bound": (
        lambda table: sum(x * x for x in table),
        Interval(-2, 1),
        Sensitivity(4.0),
    ),
}


@pytest.mark.parametrize("name", RIGHT)
def test_the_corrected_claim_stands_and_is_nearly_attained(name: str) -> None:
    function, domain, claim = RIGHT[name]
    assert falsify(function, domain, claim) is None
    assert largest_found(function, domain, claim).ratio > 0.8


def test_a_counter_that_overflows_is_found_at_the_power_of_two() -> None:
    claim = Sensitivity(1.0)
    assert falsify(counter_of_one_byte, UNIT, claim) is None  # tables of up to 16 records
    witness = falsify(counter_of_one_byte, UNIT, claim, max_size=300)
    assert witness is not None
    assert (len(witness.first), len(witness.second), witness.distance) == (256, 255, 255)


def test_hill_climbing_finds_what_edges_and_chance_do_not() -> None:
    """A narrow peak away from every edge: two coordinates near 0.3 and 0.8."""

    def peak(table):
        return sum(math.exp(-10 * ((x - 0.3) ** 2 + (y - 0.8) ** 2)) for x, y in table)

    found = largest_found(peak, Box(0, 1, 2), Sensitivity(1.0))
    assert 0.99 < found.ratio <= 1


# What is reported.


def test_the_witness_is_shrunk_to_the_records_that_matter() -> None:
    def needs_three_ones(table):
        return float(sum(x == 1.0 for x in table) >= 3) * 10

    witness = falsify(needs_three_ones, UNIT, Sensitivity(1.0))
    assert witness is not None
    assert witness.first == (1.0, 1.0, 1.0)
    assert witness.second == (1.0, 1.0)


def test_a_witness_reads_well_and_survives_json() -> None:
    witness = falsify(trusting_sum, Interval(0, 1, raw=True), Sensitivity(2.0, neighbours=ZERO))
    assert witness is not None
    assert witness.neighbours is ZERO
    assert witness.bound == 2.0
    assert witness.distance == witness.ratio == math.inf
    assert str(witness).startswith("claim refuted (blank out one record): moved by inf")
    data = json.loads(json.dumps(witness.to_dict(), allow_nan=False))
    assert data["second"] == ["NULL"]
    assert data["distance"] == "inf"
    assert data["violates"] is True
    assert data["neighbours"] == "zero-out"


def test_long_tables_are_cut_in_print_but_not_in_the_record() -> None:
    found = falsify(counter_of_one_byte, UNIT, Sensitivity(1.0), max_size=300)
    assert found is not None
    assert "... 250 more" in str(found)
    assert len(found.to_dict()["first"]) == 256


def test_largest_found_reports_a_claim_that_stands() -> None:
    found = largest_found(BoundedSum(0, 4), Interval(0, 4), Sensitivity(5.0))
    assert found.ratio == pytest.approx(0.8)
    assert not found.violates
    assert str(found).startswith("claim not refuted")


def test_a_claim_of_zero_is_refuted_by_any_change() -> None:
    witness = falsify(Count(), UNIT, Sensitivity(0.0))
    assert witness is not None
    assert witness.ratio == math.inf
    assert largest_found(Count(), UNIT, Sensitivity(0.0, neighbours=REP)).ratio == 0


def test_the_same_seed_gives_the_same_pair_and_a_generator_will_do() -> None:
    claim = Sensitivity(0.3, neighbours=REP)
    pairs = [falsify(median, UNIT, claim, seed=s) for s in (5, 5, np.random.default_rng(5))]
    assert pairs[0] == pairs[1] == pairs[2]


def test_an_error_of_the_function_names_the_table() -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        falsify(lambda table: 1 / len(table), UNIT, Sensitivity(9.0))
    assert "on the table []" in caught.value.__notes__[0]


def test_a_claim_for_another_number_of_dimensions_is_an_error() -> None:
    with pytest.raises(ValueError, match="dimension"):
        falsify(Histogram(("a", "b")), Categories(("a",)), Sensitivity(1.0))


@pytest.mark.parametrize("arguments", [{"budget": 0}, {"max_size": 0}, {"budget": math.nan}])
def test_bad_search_parameters_are_errors(arguments) -> None:
    with pytest.raises(ValueError, match="must be"):
        falsify(Count(), UNIT, Sensitivity(1.0), **arguments)


def test_a_small_budget_is_kept() -> None:
    calls = []
    largest_found(lambda table: calls.append(table) or 0.0, UNIT, Sensitivity(1.0), budget=7)
    assert len(calls) == 14


def test_rounding_is_not_taken_for_a_violation_but_a_millionth_is() -> None:
    offset = 1e9
    claim = Sensitivity(0.1, neighbours=REP)
    assert falsify(lambda t: offset + 0.1 * math.fsum(t[:1]), UNIT, claim) is None
    assert falsify(lambda t: 0.1000001 * math.fsum(t[:1]), UNIT, claim) is not None


@pytest.mark.parametrize("norm", list(Norm))
def test_distances_with_nan_and_infinities(norm: Norm) -> None:
    nan, inf = math.nan, math.inf
    assert distance(np.array([nan, inf, 1.0]), np.array([nan, inf, 1.0]), norm) == 0
    assert distance(np.array([nan, 0.0]), np.array([0.0, 0.0]), norm) == inf
    assert distance(np.array([inf, 0.0]), np.array([-inf, 0.0]), norm) == inf
    assert (
        distance(np.array([3.0, 0.0]), np.array([0.0, 4.0]), norm)
        == {
            Norm.L1: 7,
            Norm.L2: 5,
            Norm.LINF: 4,
        }[norm]
    )
    assert distance(np.array([1.7e308]), np.array([-1.7e308]), norm) == inf


# Domains.

DOMAINS = {
    "interval": Interval(-2, 5),
    "widest interval": Interval(-1.7e308, 1.7e308),
    "categories": Categories(("a", "b")),
    "box": Box(-1, 3, 2),
    "large box": Box(0, 1, 30),
    "ball": Ball(2.0, 4),
    "l1 ball": Ball(2.0, 4, Norm.L1),
    "linf ball": Ball(2.0, 1, Norm.LINF),
    "product": Product((Ball(1.0, 3), Interval(-1, 1))),
    "large product": Product((Box(0, 1, 30), Box(0, 1, 5), Interval(0, 1))),
    "groups": Groups(Interval(0, 1), 3),
}


def inside(domain, record) -> bool:
    match domain:
        case Interval():
            return domain.lower <= record <= domain.upper
        case Categories():
            return record in domain.values
        case Box():
            return len(record) == domain.dimension and all(
                domain.lower <= entry <= domain.upper for entry in record
            )
        case Ball():
            order = {Norm.L1: 1, Norm.L2: 2, Norm.LINF: math.inf}[domain.norm]
            return len(record) == domain.dimension and bool(
                np.linalg.norm(record, order) <= domain.radius
            )
        case Product():
            return all(map(inside, domain.parts, record))
        case _:
            return len(record) <= domain.largest and all(inside(domain.member, m) for m in record)


@pytest.mark.parametrize("name", DOMAINS)
def test_every_record_of_a_domain_lies_inside(name: str) -> None:
    domain, rng = DOMAINS[name], np.random.default_rng(3)
    samples = [domain.sample(rng) for _ in range(200)]
    edges = list(domain.extremes())
    moved = [domain.mutate(rng, record) for record in samples + edges]
    assert 1 <= len(edges) <= 500
    assert all(inside(domain, record) for record in samples + edges + moved)
    assert len(set(samples)) > 1


@pytest.mark.parametrize(
    "domain",
    [
        Interval(0, 1, raw=True),
        Categories(("a",), raw=True),
        Box(0, 1, 3, raw=True),
        Ball(1.0, 3, raw=True),
        Product((Interval(0, 1, raw=True),), raw=True),
        Groups(Interval(0, 1, raw=True), 2, raw=True),
    ],
    ids=lambda domain: type(domain).__name__,
)
def test_raw_domains_hold_odd_records_and_can_leave_them(domain) -> None:
    rng = np.random.default_rng(0)
    edges = domain.extremes()
    assert any(edge is None for edge in edges)
    assert "nan" in repr(edges)
    for edge in edges:
        domain.mutate(rng, edge)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Interval(1, 0),
        lambda: Box(0, 0, 2),
        lambda: Box(0, 1, 0),
        lambda: Ball(0.0, 2),
        lambda: Ball(1.0, 2, "l5"),  # type: ignore[arg-type]
        lambda: Categories(()),
        lambda: Product(()),
        lambda: Groups(UNIT, 0),
    ],
)
def test_bad_domains_are_errors(make) -> None:
    with pytest.raises(ValueError, match="must"):
        make()


def test_a_domain_of_ones_own() -> None:
    class Weekdays:
        def sample(self, rng):
            return int(rng.integers(7))

        def extremes(self):
            return [0, 6]

        def mutate(self, rng, record):
            return (record + 1) % 7

    witness = falsify(lambda table: sum(table), Weekdays(), Sensitivity(5.0))
    assert witness is not None
    assert witness.first == (6,)
    assert witness.second in ((), (NULL,))


def test_a_domain_without_extremes_is_an_error() -> None:
    class Empty:
        def sample(self, rng):
            return 0

        def extremes(self):
            return []

        def mutate(self, rng, record):
            return 0

    with pytest.raises(ValueError, match="extreme"):
        falsify(Count(), Empty(), Sensitivity(1.0))
