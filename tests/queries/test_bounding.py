"""Which of a unit's rows and groups are kept: those of its own order, and any as likely as others.

The two laws of :mod:`sfumato.queries.bounding`. What is kept of a unit is a function of its rows
and the key, whoever else is in the table, in whatever order rows come, though the engine's hash
were constant. And over keys and units every row, and every group, is kept equally often.
"""

import datetime
import math
from decimal import Decimal

import ibis
import numpy as np
import pyarrow as pa
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.queries import Count, CountUnits, GroupBy, Histogram, Sum, bounding
from sfumato.queries.engine import fetch, quiet
from sfumato.queries.sources import open_source

KEY = 4_611_686_018_427_387_903
UTC = datetime.UTC
SCHEMA = pa.schema(
    {
        "person": pa.int64(),
        "city": pa.string(),
        "x": pa.float64(),
        "price": pa.decimal128(38, 20),
        "yes": pa.bool_(),
        "seen": pa.timestamp("us", "UTC"),
        "tags": pa.map_(pa.string(), pa.int64()),
        "parts": pa.list_(pa.float32()),
    }
)


def row(person):
    """Rows that often are the same, or equal to the engine alone."""
    return st.tuples(
        person,
        st.sampled_from(("Rome", "ROME", "rome ", "", "\x00", None)),
        st.sampled_from((0.0, -0.0, math.nan, math.inf, 1e308, None)),
        st.sampled_from((Decimal("1e-20"), Decimal(2), None)),
        st.sampled_from((True, False, None)),
        st.sampled_from((datetime.datetime(2026, 10, 25, 0, 30, tzinfo=UTC), None)),
        st.sampled_from(((), (("a", 1),), None)),
        st.sampled_from(((), (0.5,), (math.nan, None), None)),
    )


def rows_of(person):
    """A few different rows, many, or one of them very often."""
    some = st.lists(row(st.just(person)), min_size=1, max_size=6)
    few = st.lists(row(st.just(person)), min_size=1, max_size=2)
    return st.one_of(some, st.builds(lambda rows, n: rows * n, few, st.just(20)))


others = st.lists(row(st.sampled_from((0, 1, 2, -5, None))), max_size=12)


def duckdb_table(rows, schema=SCHEMA):
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(schema)
    arrays = [pa.array(column, kind) for column, kind in zip(columns, schema.types, strict=True)]
    return open_source(pa.table(arrays, schema=schema), name="people").table


def by_unit(table):
    """Each unit's rows as sorted texts, which tell -0.0 from 0.0."""
    found = {}
    for one in fetch(table, "testing"):
        unit, *rest = one.values()
        found.setdefault(unit, []).append(repr(rest))
    return {unit: sorted(held) for unit, held in found.items()}


def kept(rows, most, groups=None, key=KEY):
    table = bounding.bound_rows(duckdb_table(rows), "person", most, key)
    if groups is not None:
        table = bounding.bound_groups(table, "person", ("city", "yes"), groups, key)
    return by_unit(table)


def poor_hash(patch, which):
    """Puts a hash of two values or of one in its place, after which numbers or content decide."""
    if which != "its own":
        values = 1 if which == "content" else 2

        def hashed(table, *_):
            return (table["yes"].fill_null(False).cast("uint64") * (values - 1)).cast("uint64")

        patch.setattr(bounding, "_hash", hashed)
    if which == "content":
        patch.setattr(bounding, "_hash_again", lambda order, *_: (order * 0).cast("uint64"))


# --- a function of the unit's rows ----------------------------------------------------------------


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("decides", ["its own", "numbers", "content"])
@settings(max_examples=6)
@given(
    base=others, one=rows_of(99), most=st.integers(1, 4), groups=st.integers(1, 3), data=st.data()
)
def test_what_is_kept_of_a_unit_depends_on_its_rows_alone(
    decides, large, base, one, most, groups, data
):
    with pytest.MonkeyPatch.context() as patch:
        poor_hash(patch, decides)
        if large:
            patch.setattr(bounding, "_share_to_try", lambda *_: 0.3)
            patch.setattr(bounding, "_AT_ONCE", 3)
        together = kept(data.draw(st.permutations(base + one)), most, groups)
        assert together.pop(99) == kept(one[::-1], most, groups)[99]
        assert together == kept(base, most, groups)


@pytest.mark.parametrize("decides", ["numbers", "content"])
@pytest.mark.parametrize(
    ("column", "values"),
    [
        (1, ("rome", "ROME", "rome ", "rome\x00")),
        (2, (0.0, -0.0)),
        (2, (math.nan, None, math.inf)),
        (5, (datetime.datetime(2026, 10, 25, 0, 30, tzinfo=UTC),
             datetime.datetime(2026, 10, 25, 1, 30, tzinfo=UTC))),  # the same hour in Rome
        (6, ((), None)),
        (7, ((), None)),
    ],
)  # fmt: skip
def test_rows_that_are_nearly_the_same_have_one_order(decides, column, values, monkeypatch):
    """Two of each, so that they are numbered."""
    poor_hash(monkeypatch, decides)
    plain = (99, "Rome", 1.0, None, True, None, None, None)
    rows = 2 * [(*plain[:column], value, *plain[column + 1 :]) for value in values]
    for most in (1, len(values)):
        assert len({str(kept(rows[i:] + rows[:i], most)) for i in range(len(values))}) == 1


@settings(max_examples=10)
@given(base=others, one=rows_of(99), most=st.integers(1, 4), groups=st.integers(1, 3))
def test_as_many_rows_and_groups_are_kept_as_may_be(base, one, most, groups):
    held = by_unit(duckdb_table(base + one))
    held.pop(None, None)
    found = kept(base + one, most)
    assert found.keys() == held.keys()
    for unit, some in found.items():
        assert len(some) == min(most, len(held[unit]))
        assert all(some.count(r) <= held[unit].count(r) for r in some)
    bounded = bounding.bound_rows(duckdb_table(base + one), "person", most, KEY)
    entered = groups_of(bounded)
    left = groups_of(bounding.bound_groups(bounded, "person", ("city", "yes"), groups, KEY))
    assert {unit: len(some) for unit, some in left.items()} == {
        unit: min(groups, len(some)) for unit, some in entered.items()
    }


def groups_of(table):
    found = {}
    for one in fetch(table, "testing"):
        found.setdefault(one["person"], set()).add((one["city"], one["yes"]))
    return found


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
    rows = [(1, "Rome", float(i), None, True, None, None, None) for i in range(100)]
    first, again, other = kept(rows, 3), kept(rows, 3), kept(rows, 3, key=12345)
    assert first == again
    assert first != other
    assert bounding.secret_key() != bounding.secret_key()


# --- any as likely as others ----------------------------------------------------------------------


@pytest.mark.parametrize("number", range(8))
def test_every_row_and_group_is_kept_as_often_as_any_other(number, fairness):
    """The tables of the benchmark: few and many groups, skewed, dates, texts, equal rows."""
    case = fairness.cases(1500)[number]
    table = open_source(case.table, name="measured").table
    assert_fair(*fairness.unfairness(case, table, KEY))


def assert_fair(off, freedom):
    """One time in a million as far from fair by chance; the key is fixed."""
    assert off < scipy.stats.chi2.isf(1e-6, freedom)


def test_a_hash_that_does_not_mix_is_found(fairness):
    case = fairness.cases(1500)[1]
    table = open_source(case.table, name="measured").table
    with fairness.flat():
        off, freedom = fairness.unfairness(case, table, KEY)
    with pytest.raises(AssertionError):
        assert_fair(off, freedom)


def test_equal_rows_count_as_often_as_they_are_there():
    """Nine visits to one ward, one to another: the ninefold one is kept nine times of ten."""
    table = pa.table({"unit": np.repeat(range(2000), 10), "label": (["a"] * 9 + ["b"]) * 2000})
    kept_rows = fetch(bounding.bound_rows(open_source(table, name="t").table, "unit", 1, KEY), "t")
    often = sum(one["label"] == "a" for one in kept_rows)
    assert abs(often - 1800) < 5 * math.sqrt(2000 * 0.9 * 0.1)


# --- what reaches the bounded table ---------------------------------------------------------------


@pytest.mark.parametrize("kind", [pa.map_(pa.string(), pa.int64()), pa.list_(pa.int64())])
def test_a_filter_on_values_without_an_order_moves_by_one_unit(kind, protected):
    """DuckDB gives an empty map and a missing one the same hash, and maps no order."""
    found = []
    for units in (range(60), [60, *range(60)]):
        rows = [(unit, value) for unit in units for value in ([], None)]
        source = pa.table([pa.array([u for u, _ in rows]), pa.array([v for _, v in rows], kind)],
                          names=["person", "m"])  # fmt: skip
        table = protected(source, unit="person", max_rows_per_unit=1)
        table._bounded.key = KEY
        found.append(table.where("m IS NULL").count(epsilon=400.0).value)
    assert abs(found[0] - found[1]) <= 1
    assert 10 < found[0] < 50  # neither value has a better place


SURE = {"epsilon": 400.0, "where": "x > 0"}


@pytest.mark.parametrize(
    ("question", "most"),
    [
        (Count(**SURE), 2),
        (CountUnits(**SURE), 1),
        (Sum("x", 0, 1, **SURE), 2),
        (Histogram("x", [0, 2], **SURE), 2),
        (GroupBy(("y",), Count(**SURE), ["a"]), 2),
    ],
    ids=lambda value: getattr(value, "describe", lambda: "")(),
)
def test_a_unit_moves_a_filtered_answer_by_no_more_than_its_bounds(question, most, protected):
    """One person holds fifty rows that pass the filter; two of them count."""
    found = []
    for rows in (range(10), [*range(10), *[99] * 50]):
        columns = {"person": list(rows), "x": [1.0] * len(rows), "y": ["a"] * len(rows)}
        table = protected(pa.table(columns), unit="person", max_rows_per_unit=2)
        found.append(table.ask(question)[0].cells[0].value)
    assert found[1] - found[0] == pytest.approx(most, abs=1e-3)


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
