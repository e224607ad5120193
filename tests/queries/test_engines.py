"""The same questions in DuckDB, PostgreSQL and Spark: the same exact numbers, valid choices."""

import datetime

import pyarrow as pa
import pytest
import scipy.stats

from sfumato.core import Neighbours
from sfumato.ledger import Budget
from sfumato.queries import (
    ArgMax,
    Count,
    CountUnits,
    Crosstab,
    GroupBy,
    Histogram,
    Mean,
    Median,
    Sum,
    Variance,
    bounding,
)
from sfumato.queries.engine import engine_name, fetch
from sfumato.queries.facts import Facts
from sfumato.queries.filters import row_filter
from sfumato.queries.protected import _Bounded
from sfumato.queries.sources import open_source

KEY = 987654321
CITIES = ("Rome", "Milan", "Bari")
COLUMNS = ("person", "city", "x", "whole", "yes", "day")
ROWS = [
    (
        None if i == 7 else i % 9,
        None if i % 11 == 0 else CITIES[i * i % 3],
        [1.5, None, float("nan"), float("inf"), 1e308, -2.25, 5e-324, 0.1 * i][i % 8],
        [i, 2**63 - 1, -(2**63), 0][i % 4],
        [True, False, None][i % 3],
        datetime.date(2026, 1, 1 + i % 28),
    )
    for i in range(80)
]
SCHEMA = pa.schema(
    {
        "person": pa.int64(),
        "city": pa.string(),
        "x": pa.float64(),
        "whole": pa.int64(),
        "yes": pa.bool_(),
        "day": pa.date32(),
    }
)
P = {"epsilon": 1.0}
D = {"epsilon": 1.0, "delta": 1e-6}
QUESTIONS = [
    Count(**P),
    CountUnits(**P),
    Sum("x", -3, 7, **P),
    Mean("whole", 0, 50, default=3, **P),
    Variance("x", -3, 7, where="x <> 1.5 or whole > 10", **P),
    Sum("yes", 0, 1, **P),
    Median("x", -3, 7, candidates=20, **P),
    Histogram("x", (-3, 0, 0.5, 7), **P),
    Histogram("day", keys=(datetime.date(2026, 1, 3), datetime.date(2026, 1, 9)), **P),
    Crosstab(("city", "yes"), {"city": CITIES}, **P),
    GroupBy(("city",), CountUnits(**P), CITIES),
    GroupBy(("city",), Median("x", -3, 7, candidates=5, **P), CITIES),
    GroupBy(("city", "yes"), Sum("x", -3, 7, **D), private_keys=True),
    ArgMax("city", "x", -3, 7, CITIES, where="day > '2026-01-05' and city like '%a%'", **P),
]


def duckdb_table(rows):
    arrays = [pa.array(c, k) for c, k in zip(zip(*rows, strict=True), SCHEMA.types, strict=True)]
    return open_source(pa.table(arrays, schema=SCHEMA), name="people").table


def postgres_table(connection, rows, name="people"):
    kinds = ("BIGINT", "TEXT", "DOUBLE PRECISION", "BIGINT", "BOOLEAN", "DATE")
    columns = ", ".join(f"{c} {k}" for c, k in zip(COLUMNS, kinds, strict=True))
    with connection.con.cursor() as cursor:
        cursor.execute(f"DROP TABLE IF EXISTS {name}; CREATE TABLE {name} ({columns})")
        cursor.executemany(f"INSERT INTO {name} VALUES (%s, %s, %s, %s, %s, %s)", rows)
    connection.con.commit()
    return connection.table(name)


def spark_table(connection, rows, name="people"):
    kinds = ("BIGINT", "STRING", "DOUBLE", "BIGINT", "BOOLEAN", "DATE")
    columns = ", ".join(f"{c} {k}" for c, k in zip(COLUMNS, kinds, strict=True))
    connection._session.createDataFrame(rows, columns).createOrReplaceTempView(name)
    return connection.table(name)


def spark_frame(connection, table):
    frame = connection._session.createDataFrame(table.to_pandas())
    frame.createOrReplaceTempView("fair")
    return connection.table("fair")


def facts_of(table, rows, groups):
    columns = dict(table.schema().items())
    relation = Neighbours.ADD_REMOVE
    return Facts(columns, "person", "person", rows, groups, relation, {}, engine_name(table))


def exact(table, query, rows=100, groups=100):
    """The exact aggregate, in an order that does not depend on the engine."""
    facts = facts_of(table, rows, groups)
    plan = query.plan(facts)
    bounded = _Bounded(table, facts, KEY).table(plan.group_columns)
    found = fetch(plan.exact(bounded.filter(row_filter(query.where, bounded))), "testing")
    plain = [{k: v if isinstance(v, str) else str(v) for k, v in row.items()} for row in found]
    return sorted(plain, key=str)


def shown(values):
    """A row as text; Spark's NaN comes back as missing."""
    return repr(tuple(None if value != value else value for value in values))


def held(table, rows, groups=None):
    bounded = bounding.bound_rows(table, "person", rows, KEY)
    if groups:
        bounded = bounding.bound_groups(bounded, "person", ("city",), groups, KEY)
    found = {}
    for row in fetch(bounded, "testing"):
        found.setdefault(row["person"], []).append(shown(row.values()))
    return {unit: sorted(some) for unit, some in found.items()}


def check_choices(make, patch):
    """Each unit's rows: its own, no more than allowed, in few groups, whatever others hold."""
    one = [
        (99, city, 1e308, i, True, datetime.date(2026, 2, 1)) for i in range(9) for city in CITIES
    ]
    without, with_it = held(make(ROWS), 3, 2), held(make([*reversed(one), *reversed(ROWS)]), 3, 2)
    assert len(with_it.pop(99)) <= 3
    assert with_it == without
    theirs = {}
    for row in ROWS:
        theirs.setdefault(row[0], []).append(shown(row))
    theirs.pop(None)
    for unit, some in held(make(ROWS), 3).items():
        assert len(some) == 3
        assert all(some.count(row) <= theirs[unit].count(row) for row in some)
    for some in with_it.values():
        assert len({row.split(", ")[1] for row in some}) <= 2
    patch.setattr(bounding, "_hash", lambda table, *_: table["person"] * 0)
    patch.setattr(bounding, "_hash_again", lambda order, *_: order)
    assert held(make(ROWS), 3) == held(make(ROWS[::-1]), 3)


def check_fair(fairness, make, *numbers):
    """One time in a million as far from fair by chance; the key is fixed."""
    for number in numbers:
        case = fairness.cases(500)[number]
        off, freedom = fairness.unfairness(case, make(case.table), KEY)
        assert off < scipy.stats.chi2.isf(1e-6, freedom), case.name


def test_postgresql_agrees_with_duckdb(postgres):
    here, there = duckdb_table(ROWS), postgres_table(postgres, ROWS)
    for query in QUESTIONS:
        assert exact(there, query) == exact(here, query), query


def test_choices_in_duckdb(monkeypatch):
    check_choices(duckdb_table, monkeypatch)


def test_choices_in_postgresql(postgres, monkeypatch):
    check_choices(lambda rows: postgres_table(postgres, rows, "choices"), monkeypatch)


def test_choices_in_postgresql_are_fair(postgres, fairness):
    def make(table):
        labels = {"string": "TEXT", "int64": "BIGINT"}
        kinds = [labels[str(kind)] for kind in table.schema.types]
        columns = ", ".join(f"{c} {k}" for c, k in zip(table.column_names, kinds, strict=True))
        with postgres.con.cursor() as cursor:
            cursor.execute(f"DROP TABLE IF EXISTS fair; CREATE TABLE fair ({columns})")
            with cursor.copy("COPY fair FROM STDIN") as copy:
                for row in zip(*table.to_pydict().values(), strict=True):
                    copy.write_row(row)
        postgres.con.commit()
        return postgres.table("fair")

    check_fair(fairness, make, 1, 5)


def test_equal_numbers_that_print_differently_have_one_order_in_postgresql(postgres, monkeypatch):
    """1.0 and 1.00 are equal there, and a filter can tell them apart by their text."""
    monkeypatch.setattr(bounding, "_hash", lambda table, *_: table["unit"] * 0)
    monkeypatch.setattr(bounding, "_hash_again", lambda order, *_: order)
    values = ["1.0 0 a", "1.00 0 a", "1.000 -0 a", "1 0 A", "1 0.1 a", "1 0.10000000000000002 a"]
    found = []
    for rows in (values, values[::-1], [*values[3:], *values[:3]]):
        with postgres.con.cursor() as cursor:
            cursor.execute("""SET extra_float_digits = 0; DROP TABLE IF EXISTS equal;
                CREATE TABLE equal (unit INT, n NUMERIC, x DOUBLE PRECISION, c CHAR(3))""")
            cursor.executemany(
                "INSERT INTO equal VALUES (1, %s, %s, %s)", [row.split() for row in rows]
            )
        postgres.con.commit()
        for most in range(1, 6):
            bounded = bounding.bound_rows(postgres.table("equal"), "unit", most, KEY)
            with postgres.con.cursor() as cursor:
                texts = "n::text || ' ' || float8send(x)::text || ' ' || c"
                cursor.execute(f'SELECT {texts} FROM "{bounded.get_name()}"')
                found.append((most, sorted(cursor.fetchall())))
    with postgres.con.cursor() as cursor:
        cursor.execute("RESET extra_float_digits")
    assert len({repr(one) for one in found}) == 5


def test_spark_agrees_with_duckdb_and_chooses_well(interpreted, monkeypatch, tmp_path, fairness):
    spark = interpreted
    here, there = duckdb_table(ROWS), spark_table(spark, ROWS)
    for query in QUESTIONS[::4]:
        assert exact(there, query) == exact(here, query), query
    check_choices(lambda rows: spark_table(spark, rows, "choices"), monkeypatch)
    monkeypatch.undo()
    check_fair(fairness, lambda table: spark_frame(spark, table), 1)
    path = tmp_path / "t.csv"
    path.write_text("x,y\n1,a\r2,b\n")
    text = spark.read_csv(str(path), header=True, inferSchema=False)
    assert text.count().execute() == 2, "rows of one line"
    for source, options in (("pyspark://", {"table": str(path)}), (text, {}),
                            (text.filter(text.x != "0"), {"name": "t"})):  # fmt: skip
        with pytest.raises(ValueError, match="that the engine reads itself"):
            open_source(source, **{"name": "t"} | options)
    parquet = str(tmp_path / "t.parquet")
    text.to_parquet(parquet)
    opened = open_source("pyspark://", table=parquet, types={"x": "float64"}).table
    assert [str(kind) for kind in opened.schema().values()] == ["float64", "string"]


@pytest.mark.slow
def test_spark_agrees_with_duckdb_on_every_other_question(interpreted):
    here, there = duckdb_table(ROWS), spark_table(interpreted, ROWS)
    for number, query in enumerate(QUESTIONS):
        if number % 4 == 0:
            continue
        assert exact(there, query) == exact(here, query), query


def test_a_table_in_postgresql_from_asking_to_the_answer(postgres, server, protected):
    postgres_table(postgres, ROWS, "visits")
    sure = {"epsilon": 500.0}
    table = protected(
        server,
        table=f"{postgres.schema_name}.visits",
        unit="person",
        max_rows_per_unit=20,
        budget=Budget(1e4, 1e-3),
        domains={"city": CITIES},
    )
    assert table.count(**sure).value == 79
    assert table.where("x > 0 and day < '2026-01-15'").count(**sure).value == sum(
        row[0] is not None and row[5].day < 15 and row[2] is not None and 0 < row[2] < 1.8e308
        for row in ROWS
    )
    assert table.group_by("city").count_units(**sure).values == dict.fromkeys(CITIES, 9) | {
        city: len({row[0] for row in ROWS if row[1] == city and row[0] is not None})
        for city in CITIES
    }
    assert table.group_by("city", private_keys=True).count(delta=1e-4, **sure).values
    table._table.get_backend().disconnect()
    with pytest.raises(ValueError, match="could not be opened"):
        protected(server, table="no_such_table", name="other")


@pytest.mark.parametrize("value", [2**62 + 1, -(2**62) - 1])
def test_large_sums_are_exact(postgres, value):
    for make in (duckdb_table, lambda rows: postgres_table(postgres, rows, "large")):
        table = make([(1, "", 0.0, value, True, None)])
        assert fetch(table.aggregate(s=table.whole.sum()), "testing") == [{"s": value}]
        empty = table.filter(table.person > 5)
        found = fetch(empty.aggregate(s=empty.whole.sum(), n=empty.count()), "testing")
        assert found == [{"s": None, "n": 0}]
