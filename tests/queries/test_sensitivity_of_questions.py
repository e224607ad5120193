"""One unit, whatever its rows hold, moves no exact part by more than the noise is calibrated to."""

import dataclasses
import functools
import itertools
import math
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sfumato.core import Neighbours
from sfumato.queries import (
    ArgMax,
    Count,
    CountUnits,
    Crosstab,
    GroupBy,
    Histogram,
    Mean,
    Median,
    MostCommon,
    Quantile,
    Sum,
    Variance,
)
from sfumato.queries.choices import ChoicePlan
from sfumato.queries.engine import fetch, quiet
from sfumato.queries.facts import Facts
from sfumato.queries.filters import row_filter
from sfumato.queries.private_keys import PrivateGroups
from sfumato.queries.protected import _Bounded
from sfumato.queries.quantiles import QuantilePlan
from sfumato.queries.sources import open_source
from sfumato.queries.tabulate import exact_counts

KEY = 4_611_686_018_427_387_903
CITIES = ("Rome", "Milan", "Bari")
SCHEMA = pa.schema(
    {
        "person": pa.int64(),
        "city": pa.string(),
        "x": pa.float64(),
        "whole": pa.int64(),
        "price": pa.decimal128(38, 20),
        "text": pa.string(),
        "yes": pa.bool_(),
    }
)
FLOATS = (
    *(math.nan, math.inf, -math.inf, 1e308, -1e308, 5e-324, -5e-324, -0.0, 0.0, None),
    *(1.0, 0.1, 3.0, 4.999999999999999, 5.0, 5.000000000000001, -7.5, 1e100, 1e-300),
)
WHOLES = (-(2**63), 2**63 - 1, 0, 1, -1, 2**53 + 1, None, 7)
DECIMALS = (Decimal(10) ** 17, Decimal("1e-20"), Decimal("-99999999999999999.5"), None, Decimal(2))
TEXTS = ("", "seven", "7", "1e999", "nan", "inf", "-0", " 3 ", "0x10", "\x00", "é" * 50, None)


def row(person):
    return st.tuples(
        person,
        st.sampled_from((*CITIES, "Elsewhere", "", None)),
        st.sampled_from(FLOATS),
        st.sampled_from(WHOLES),
        st.sampled_from(DECIMALS),
        st.sampled_from(TEXTS),
        st.sampled_from((True, False, None)),
    )


def rows_of(person):
    """A few different rows, many, or one of them very often."""
    some = st.lists(row(st.just(person)), min_size=1, max_size=6)
    often = st.builds(
        lambda rows, n: rows * n,
        st.lists(row(st.just(person)), min_size=1, max_size=2),
        st.just(40),
    )
    return st.one_of(some, often)


others = st.lists(row(st.sampled_from((0, 1, 2, -5, None))), max_size=12)


def duckdb_table(rows):
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(SCHEMA)
    arrays = [pa.array(column, kind) for column, kind in zip(columns, SCHEMA.types, strict=True)]
    return open_source(pa.table(arrays, schema=SCHEMA), name="people").table


def facts_of(table, rows=1, groups=1, neighbours="add-remove", unit="person"):
    columns = dict(table.schema().items())
    relation = Neighbours.parse(neighbours)
    return Facts(columns, "person", unit, rows, groups, relation)


class Keys(dict):
    """A dictionary of keys by which a question can be looked up."""

    def __hash__(self):
        return hash(tuple(self.items()))


def questions(delta, bounds):
    """Every kind of question. Pure ones cost delta nothing."""
    low, high = bounds
    price = {"epsilon": 1.0, "delta": delta}
    grouped = [
        Count(**price),
        CountUnits(**price),
        Sum("x", low, high, **price),
        Mean("price", low, high, **price),
        Variance("text", low, high, default=high, **price),
    ]
    found = [
        Count(**price),
        CountUnits(**price),
        Sum("x", low, high, **price),
        Sum("whole", low, high, default=low, **price),
        Mean("text", low, high, **price),
        Variance("x", low, high, **price),
        Histogram("x", (-1.0, 0.0, 1.0, 5.0), **price),
        Crosstab(("city", "yes"), Keys(city=CITIES), **price),
        *(GroupBy(("city",), of, keys=CITIES) for of in grouped),
    ]
    if delta:
        return [*found, *(GroupBy(("city",), of, private_keys=True) for of in grouped[:3])]
    return [
        *found,
        Median("x", low, high, candidates=8, epsilon=1.0),
        Quantile("whole", 0.9, low, high, candidates=8, interval=False, epsilon=1.0),
        GroupBy(("city",), Median("x", low, high, candidates=4, epsilon=1.0), CITIES),
        MostCommon("city", CITIES, epsilon=1.0),
        ArgMax("city", "x", low, high, CITIES, epsilon=1.0),
    ]


@functools.cache
def arena():
    """One connection in which every world's bounded table takes its turn under one name."""
    opened = open_source(SCHEMA.empty_table(), name="people").table.get_backend()
    opened.con.register("incoming", SCHEMA.empty_table())
    opened.raw_sql("CREATE TABLE bounded AS SELECT * FROM incoming")
    return opened


@functools.cache
def compiled(query, where):
    """The question as SQL; it does not depend on how many rows and groups a unit may have."""
    with quiet():
        table = arena().table("bounded")
    plan = query.plan(facts_of(table, 2, 2))
    return arena().compile(plan.exact(table.filter(row_filter(where, table))))


def enter(table):
    """Makes a table of another connection the one that compiled questions are about."""
    rows = fetch(table, "testing")
    arena().con.register("incoming", pa.Table.from_pylist(rows, SCHEMA))
    arena().raw_sql("CREATE OR REPLACE TABLE bounded AS SELECT * FROM incoming")


def exact_parts(plan, query, where):
    """Each part's exact numbers in all cells, with the bound and norm its noise is made for."""
    rows = arena().con.sql(compiled(query, where)).to_arrow_table().to_pylist()
    if isinstance(plan, QuantilePlan):
        return [(rows_to_balances(plan, rows), plan.choice.sensitivity)]
    if isinstance(plan, ChoicePlan):
        scores = exact_counts(rows, (plan.axis,), [plan.part])[plan.part]
        return [(scores, plan.choice.sensitivity)]
    parts = [part.name for part in plan.noise.parts]
    sensitivities = [mechanism.sensitivity for mechanism in plan.noise.mechanisms]
    if isinstance(plan, PrivateGroups):
        cells = {tuple(plan._keys(row)): row for row in rows}
        found = [({k: int(r[name] or 0) for k, r in cells.items()}) for name in ("units", *parts)]
        return list(zip(found, (plan.selection.sensitivity, *sensitivities), strict=True))
    exact = exact_counts(rows, plan.axes, parts)
    return [(exact[name], bound) for name, bound in zip(parts, sensitivities, strict=True)]


def rows_to_balances(plan, rows):
    seen = {}
    object.__setattr__(plan, "_cell", lambda place, counts, coins: seen.update({place: counts}))
    plan.release(rows, None)
    object.__delattr__(plan, "_cell")
    return np.array([plan._balance(seen[place]) for place in sorted(seen)])


def distance(a, b, norm):
    if isinstance(a, dict):
        keys = a.keys() | b.keys()
        a, b = (np.array([v.get(k, 0) for k in keys], dtype=object) for v in (a, b))
    moved = [abs(int(x) - int(y)) for x, y in zip(np.ravel(a), np.ravel(b), strict=True)]
    if norm == "linf":
        return max(moved, default=0)
    return sum(moved) if norm == "l1" else math.sqrt(sum(m * m for m in moved))


def check(worlds, rows, groups, case, neighbours, delta):
    bounds, where = case
    facts = facts_of(duckdb_table([]), rows, groups, neighbours)
    asked = [query for query in questions(delta, bounds) if allowed(query, neighbours)]
    plans = [query.plan(facts) for query in asked]
    results = []
    for world in worlds:
        bounded, found = _Bounded(duckdb_table(world), facts, KEY), {}
        for columns in ((), ("city",)):
            enter(bounded.table(columns))
            for query, plan in zip(asked, plans, strict=True):
                if plan.group_columns == columns:
                    found[query] = exact_parts(plan, query, where)
        results.append(found)
    for query in asked:
        for (a, known), (b, _) in zip(results[0][query], results[1][query], strict=True):
            assert known.neighbours in (neighbours, "add-remove")
            assert distance(a, b, known.norm.value) <= known.bound, query


def allowed(query, neighbours):
    """Grouped quantiles have no guarantee under replace-one."""
    return neighbours != "replace-one" or not isinstance(getattr(query, "of", None), Median)


CASES = (
    ((0.0, 5.0), None),
    ((0.0, 5.0), "x > 0"),
    ((-1e-3, 1e100), "not (x > 0)"),
    ((2.5, 3.0), "x is null or city = 'Rome'"),
    ((-7.0, -1.0), "whole * whole / x >= 1 and text <> 'nan'"),
    ((1e-60, 2e-60), "price between -1 and 3"),
)
EXTREME = (99, "Alone", 1e308, 2**63 - 1, Decimal("1e17"), "inf", True)
LOWEST = (99, "Rome", -1e308, -(2**63), Decimal("-99999999999999999.5"), "-7", False)
strategies = {
    "base": others,
    "one": rows_of(99),
    "rows": st.integers(1, 4),
    "groups": st.integers(1, 3),
    "case": st.sampled_from(CASES),
}


@settings(max_examples=8)
@given(**strategies, delta=st.sampled_from((0.0, 1e-6)))
@example([], [EXTREME] * 50, 1, 1, CASES[0], 0.0)
@example([], [EXTREME] * 50, 3, 2, CASES[2], 1e-6)
@example([], [LOWEST] * 50, 2, 1, ((-7.0, -1.0), None), 0.0)
@example([], [LOWEST] * 50, 3, 2, ((-7.0, 2.0), None), 1e-6)
def test_adding_a_unit_moves_every_part_within_its_bound(base, one, rows, groups, case, delta):
    check([base, base + one], rows, groups, case, "add-remove", delta)


@settings(max_examples=6)
@given(**strategies, other=rows_of(99))
@example([], [LOWEST] * 50, [EXTREME] * 50, 2, 1, ((-7.0, -1.0), None))
def test_replacing_a_unit_moves_every_part_within_its_bound(base, one, other, rows, groups, case):
    check([base + one, base + other], rows, groups, case, "replace-one", 0.0)


@pytest.mark.slow
@settings(max_examples=200)
@given(**strategies, delta=st.sampled_from((0.0, 1e-6)))
def test_adding_a_unit_at_length(base, one, rows, groups, case, delta):
    check([base, base + one], rows, groups, case, "zero-out", delta)


# --- every small table: all kinds, filters, defaults and relations -------------------------------

X, PLACES = (None, -10.0, 10.0, 3.0), (None, "Rome", "Milan")
FILTERS = (None, "x is null or city = 'Rome'", "not (x > 0)")
RANGES = ((-10.0, 10.0, None), (-10.0, 10.0, 10.0), (-10.0, -2.0, -2.0))


def small_row(x, city):
    """A row of unit 99 of which two cells are known, or none."""
    return (99, city, x, None, None, None, None)


BLANK = small_row(None, None)


def small_questions():
    price = {"epsilon": 1.0}
    bounded = [
        kind("x", low, high, default=default, **price)
        for kind in (Sum, Mean, Variance)
        for low, high, default in RANGES
    ]
    single = [Count(**price), CountUnits(**price), *bounded]
    return [
        *single,
        *(GroupBy(("city",), of, CITIES) for of in single if getattr(of, "default", 0) is not None),
        *(
            GroupBy(("city",), of, private_keys=True)
            for of in (
                Count(**price, delta=1e-6),
                Sum("x", -10, 10, default=10, **price, delta=1e-6),
            )
        ),
        GroupBy(("city",), Median("x", -10, 10, candidates=4, **price), CITIES),
        Median("x", -10, 10, candidates=4, **price),
        Histogram("x", (-10.0, 0.0, 10.0), **price),
        Crosstab(("city", "yes"), Keys(city=CITIES), **price),
        MostCommon("city", CITIES, **price),
        ArgMax("city", "x", -10, 10, CITIES, **price),
    ]


def with_delta(query):
    """The question with Gaussian noise, if it can have any."""
    inside = getattr(query, "of", query)
    if isinstance(inside, Median | MostCommon | ArgMax) or inside.delta:
        return query
    gaussian = dataclasses.replace(inside, delta=1e-6)
    return gaussian if inside is query else dataclasses.replace(query, of=gaussian)


def small_steps(worlds, rows):
    """Pairs of what one unit holds, by relation: all that one step may do."""
    for one in worlds:
        yield "add-remove", one, ()
        yield "zero-out", one, ()
        for blanks in range(1, len(one) + 1):
            yield "zero-out", one, (BLANK,) * blanks
        for other in worlds:
            yield "replace-one", one, other
    if rows == 1:  # where a row is a unit, some of its cells may be blanked
        for _, city, x, *_ in (one[0] for one in worlds if one):
            yield "zero-out", (small_row(x, city),), (small_row(None, city),)
            yield "zero-out", (small_row(x, city),), (small_row(x, None),)


@pytest.mark.parametrize(
    ("rows", "filters", "xs", "cities"),
    [
        (1, FILTERS[:2], X[:3], PLACES[:2]),
        pytest.param(1, FILTERS, X, PLACES, marks=pytest.mark.slow),
        pytest.param(2, FILTERS, X[:3], PLACES[:2], marks=pytest.mark.slow),
    ],
)
def test_no_step_between_small_tables_moves_more_than_is_declared(rows, filters, xs, cities):
    """Exhaustively, and for zero-out by blanks that stay: they pass filters and take defaults."""
    cells = [small_row(x, city) for x, city in itertools.product(xs, cities)]
    worlds = [
        world
        for size in range(rows + 1)
        for world in itertools.combinations_with_replacement(cells, size)
    ]
    base = ((1, "Rome", 5.0, None, None, None, None),)
    relations = ("add-remove", "zero-out", "replace-one")
    table = duckdb_table([])
    facts = {relation: facts_of(table, rows, rows, relation) for relation in relations}
    plans = {
        (query, relation): (query.plan(known), with_delta(query).plan(known))
        for query, (relation, known) in itertools.product(small_questions(), facts.items())
        if may_ask(query, relation)
    }
    asked = list(itertools.product(small_questions(), filters))
    exact = {}
    for world in worlds:
        columns = zip(*(base + world), strict=True)
        arrays = [
            pa.array(column, kind) for column, kind in zip(columns, SCHEMA.types, strict=True)
        ]
        arena().con.register("incoming", pa.table(arrays, schema=SCHEMA))
        arena().raw_sql("CREATE OR REPLACE TABLE bounded AS SELECT * FROM incoming")
        for query, where in asked:
            plan = plans[query, "zero-out"][0]
            exact[world, query, where] = [a for a, _ in exact_parts(plan, query, where)]
    bounds = {key: [*map(sensitivities, made)] for key, made in plans.items()}
    for relation, one, other in small_steps(worlds, rows):
        for query, where in asked:
            pairs = [*zip(exact[one, query, where], exact[other, query, where], strict=True)]
            for (a, b), bound in (
                found
                for declared in bounds.get((query, relation), ())
                for found in zip(pairs, declared, strict=True)
            ):
                moved = distance(a, b, bound.norm.value)
                assert moved <= bound.bound, (query, where, relation, one, other)


def may_ask(query, neighbours):
    """Private keys have no guarantee under replace-one either."""
    hidden = isinstance(query, GroupBy) and query.private_keys
    return allowed(query, neighbours) and not (hidden and neighbours == "replace-one")


def sensitivities(plan):
    """What each of the exact parts may move, in order."""
    if isinstance(plan, QuantilePlan | ChoicePlan):
        return [plan.choice.sensitivity]
    first = [plan.selection.sensitivity] if isinstance(plan, PrivateGroups) else []
    return first + [mechanism.sensitivity for mechanism in plan.noise.mechanisms]


def test_a_default_costs_noise_under_zero_out_alone():
    """From a value to the default: most where the default is an end of the range."""
    table = duckdb_table([])
    for kind, middle in ((Sum, 0.0), (Mean, 5.0)):
        bound = {}
        for relation, default in itertools.product(
            ("add-remove", "zero-out"), (None, middle, 10.0)
        ):
            query = kind("x", middle - 10, middle + 10, default=default, epsilon=1.0)
            plan = query.plan(facts_of(table, 3, 3, relation))
            step = plan.measure.grid.step
            bound[relation, default] = plan.noise.mechanisms[-1].sensitivity.bound * step
        assert bound["zero-out", 10.0] == 3 * (20.0 if kind is Sum else 15.0)
        assert {bound.pop(key) for key in list(bound) if key != ("zero-out", 10.0)} == {30.0}


@pytest.mark.parametrize("rows", [1, 2, 5])
def test_the_bounds_are_reached(rows):
    """The noise is calibrated to what one unit can do, not to more."""
    one = [(99, "Rome", 1e9, 1, None, "1e9", True)] * 50
    facts = facts_of(duckdb_table([]), rows, rows)
    for query in (
        Count(epsilon=1.0),
        Sum("x", -3.0, 5.0, epsilon=1.0),
        Mean("text", 0.0, 5.0, epsilon=1.0),
        Variance("x", 0.0, 5.0, epsilon=1.0),
        Histogram("x", (0.0, 1e10), epsilon=1.0),
    ):
        plan, found = query.plan(facts), []
        for world in ([], one):
            enter(_Bounded(duckdb_table(world), facts, KEY).table(()))
            found.append(exact_parts(plan, query, None))
        pairs = zip(*found, strict=True)
        assert all(distance(a, b, "l1") == known.bound for (a, known), (b, _) in pairs)


@pytest.mark.parametrize("neighbours", ["add-remove", "zero-out", "replace-one"])
@pytest.mark.parametrize("rows", [1, 3])
def test_what_noise_is_calibrated_to(neighbours, rows):
    facts = facts_of(duckdb_table([]), rows, rows, neighbours)
    twice = 2 if neighbours == "replace-one" else 1
    grid = Sum("x", -3.0, 5.0, epsilon=0.5).plan(facts)
    (mechanism,) = grid.noise.mechanisms
    step = grid.measure.grid.step
    assert mechanism.scale * step == pytest.approx(twice * rows * 5.0 / 0.5, rel=1e-6)
    (mechanism,) = Count(epsilon=0.5).plan(facts).noise.mechanisms
    assert mechanism.scale == twice * rows / 0.5
    mean = Mean("x", 10.0, 20.0, epsilon=0.5).plan(facts)
    count, total = mean.noise.mechanisms
    assert count.scale == twice * rows / 0.25
    assert total.scale * mean.measure.grid.step == pytest.approx(twice * rows * 5 / 0.25, rel=1e-6)
    variance = Variance("x", 10.0, 20.0, epsilon=0.5).plan(facts)
    *_, squares = variance.noise.mechanisms
    unit = variance.measure.grid.square_value(1)
    assert squares.scale * unit == pytest.approx(twice * rows * 25 / 0.25, rel=1e-6)
    units = GroupBy(("city",), CountUnits(epsilon=0.5), CITIES).plan(facts)
    assert units.noise.mechanisms[0].scale == twice * min(rows, len(CITIES)) / 0.5
