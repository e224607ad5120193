"""One unit, whatever its rows hold, moves no exact part by more than the noise is calibrated to."""

import functools
import math
from decimal import Decimal

import ibis
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
    bounding,
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
    opened.raw_sql("CREATE TABLE bounded AS SELECT * FROM frame")
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
def test_adding_a_unit_moves_every_part_within_its_bound(base, one, rows, groups, case, delta):
    check([base, base + one], rows, groups, case, "add-remove", delta)


@settings(max_examples=6)
@given(**strategies, other=rows_of(99))
def test_replacing_a_unit_moves_every_part_within_its_bound(base, one, other, rows, groups, case):
    check([base + one, base + other], rows, groups, case, "replace-one", 0.0)


@pytest.mark.slow
@settings(max_examples=200)
@given(**strategies, delta=st.sampled_from((0.0, 1e-6)))
def test_adding_a_unit_at_length(base, one, rows, groups, case, delta):
    check([base, base + one], rows, groups, case, "zero-out", delta)


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


# --- the bounded table itself ---------------------------------------------------------------------


def shown(values):
    """A row as text, the same for equal decimals and for both zeros."""
    plain = (v.normalize() if isinstance(v, Decimal) else v for v in values)
    return repr(tuple(v + 0.0 if isinstance(v, float) else v for v in plain))


def kept(rows, most, groups=None, key=KEY, columns=("city",)):
    """The rows of each unit that the bounded table holds, sorted."""
    table = bounding.bound_rows(duckdb_table(rows), "person", most, key)
    if groups is not None:
        table = bounding.bound_groups(table, "person", columns, groups, key)
    found = {}
    for one in fetch(table, "testing"):
        found.setdefault(one["person"], []).append(shown(one.values()))
    return {unit: sorted(held) for unit, held in found.items()}


def model(rows, most, hashes):
    """The same choice in plain Python, given each row's hash."""
    found = {}
    for one in rows:
        found.setdefault(one[0], []).append(one)
    found.pop(None, None)
    order = {
        unit: sorted(held, key=lambda r: (hashes[r], sort_key(r))) for unit, held in found.items()
    }
    return {unit: sorted(map(shown, held[:most])) for unit, held in order.items()}


def sort_key(values):
    """DuckDB's order: NULL last, NaN above every number."""
    return tuple(
        (
            value is None,
            isinstance(value, float) and math.isnan(value),
            0 if value is None else value,
        )
        if not (isinstance(value, float) and math.isnan(value))
        else (False, True, 0)
        for value in values
    )


@settings(max_examples=15)
@given(
    base=others, one=rows_of(99), most=st.integers(1, 4), groups=st.integers(1, 3), data=st.data()
)
def test_one_unit_changes_no_other_units_rows(base, one, most, groups, data):
    shuffled = data.draw(st.permutations(base + one))
    without, with_it = kept(base, most, groups), kept(shuffled, most, groups)
    with_it.pop(99)
    assert with_it == without


@settings(max_examples=15)
@given(
    base=others, one=rows_of(99), most=st.integers(1, 4), groups=st.integers(1, 3), data=st.data()
)
def test_position_does_not_matter_and_bounds_hold(base, one, most, groups, data):
    rows = base + one
    found = kept(rows, most)
    assert found == kept(data.draw(st.permutations(rows)), most)
    held = {}
    for r in rows:
        held.setdefault(r[0], []).append(shown(r))
    held.pop(None, None)
    assert found.keys() == held.keys()
    for unit, some in found.items():
        assert len(some) == min(most, len(held[unit]))
        assert all(some.count(r) <= held[unit].count(r) for r in some)
    for some in kept(rows, most, groups).values():
        assert len({r.split(",")[1] for r in some}) <= groups


@pytest.mark.parametrize("values", [1, 2])
@pytest.mark.parametrize("large", [False, True])
@settings(max_examples=8)
@given(base=others, one=rows_of(99), most=st.integers(1, 4), data=st.data())
def test_ties_are_settled_by_content(values, large, base, one, most, data):
    """With a hash of one or two values nearly all rows tie."""

    def poor_hash(table, columns, key):
        return (table["yes"].fill_null(False).cast("uint64") * (values - 1)).cast("uint64")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bounding, "_hash", poor_hash)
        if large:
            patch.setattr(bounding, "_share_to_try", lambda *_: 1e-19 * values)
        rows = data.draw(st.permutations(base + one))
        plain = [tuple(0.0 if v == 0 and isinstance(v, float) else v for v in r) for r in rows]
        hashes = {r: (values - 1) * bool(r[6]) for r in plain}
        assert kept(plain, most) == model(plain, most, hashes)


@settings(max_examples=10)
@given(base=others, one=rows_of(99), most=st.integers(1, 4), share=st.floats(0, 0.999))
def test_two_passes_choose_as_one_does(base, one, most, share):
    rows = base + one
    plain = kept(rows, most)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bounding, "_LARGE", 0)
        assert kept(rows, most) == plain
        patch.setattr(bounding, "_share_to_try", lambda *_: share)
        assert kept(rows, most) == plain


def test_the_key_decides_which_rows_are_kept():
    rows = [(1, "Rome", float(i), i, None, "", True) for i in range(100)]
    first, again, other = kept(rows, 3), kept(rows, 3), kept(rows, 3, key=12345)
    assert first == again
    assert first != other
    assert bounding.secret_key() != bounding.secret_key()


def test_rows_are_chosen_evenly():
    """Over 2,000 units, each of ten rows is kept with the same probability, 3 in 10."""
    rows = [(unit, "Rome", float(i), i, None, "", True) for i in range(10) for unit in range(2000)]
    counts = dict.fromkeys(range(10), 0)
    for held in kept(rows, 3).values():
        for text in held:
            counts[int(text.split(", ")[3])] += 1
    spread = math.sqrt(2000 * 0.3 * 0.7)
    assert all(abs(n - 600) < 4.5 * spread for n in counts.values())


@pytest.mark.parametrize("frame", ["polars", "arrow", "enum"])
def test_categories_read_off_the_rows_do_not_decide(frame, protected):
    """A categorical column numbers its values in order of appearance: another unit's rows count."""
    import polars as pl

    base = [(1, value) for value in "abcdefgh"]
    found = []
    for rows in (base, [(2, "h"), (2, "g"), (2, "c"), *base]):
        units, values = zip(*rows, strict=True)
        if frame == "polars":
            source = pl.DataFrame({"u": units, "c": values}).with_columns(
                pl.col("c").cast(pl.Categorical)
            )
        elif frame == "arrow":
            source = pa.table({"u": units, "c": pa.array(values).dictionary_encode()})
        else:
            connection = ibis.duckdb.connect()
            listed = ", ".join(f"'{value}'" for value in dict.fromkeys(values))
            connection.raw_sql(f"CREATE TABLE t (u BIGINT, c ENUM({listed}))")
            connection.con.executemany("INSERT INTO t VALUES (?, ?)", rows)
            with quiet():
                source = connection.table("t")
        table = protected(source, unit="u", max_rows_per_unit=3)
        assert table.columns["c"] == "string"
        table._bounded.key = KEY
        held = fetch(table._bounded.table(()), "testing")
        found.append(sorted(row["c"] for row in held if row["u"] == 1))
    assert found[0] == found[1]


def test_categories_inside_lists_are_refused(protected):
    connection = ibis.duckdb.connect()
    connection.raw_sql("CREATE TABLE t (c ENUM('a', 'b')[])")
    with quiet():
        table = connection.table("t")
    with pytest.raises(ValueError, match="'c' holds categories inside"):
        protected(table)
