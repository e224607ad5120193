"""Cells: read in one total way, under binary equality, on every engine and from every source.

The law of :mod:`sfumato.queries.cells`, tried with neighbouring tables: one person's row, however
it is spelled, moves the counts of groups by one in all, and makes no question fail.
"""

from datetime import UTC, datetime
from typing import Any

import ibis
import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sfumato.ledger import Budget
from sfumato.queries import Count, CountUnits, GroupBy, Histogram
from sfumato.queries.engine import quiet

SURE: Any = {"epsilon": 400.0}


@pytest.fixture
def in_duckdb(tmp_path):
    """A function that makes a table in DuckDB from columns' types and rows, as a URL and a name."""
    made = iter(range(1000))

    def make(columns, rows, setup=()):
        path = tmp_path / f"{next(made)}.duckdb"
        connection = ibis.duckdb.connect(path)
        with quiet():
            for statement in (*setup, f"CREATE TABLE t ({columns})"):
                connection.raw_sql(statement)
            marks = ", ".join("?" * len(rows[0]))
            connection.con.executemany(f"INSERT INTO t VALUES ({marks})", rows)
        connection.disconnect()
        return {"source": f"duckdb://{path}", "table": "t"}

    return make


@pytest.fixture
def in_postgres(distribution):
    """The same in PostgreSQL, as an Ibis table."""
    made = iter(range(1000))
    opened = ibis.connect(distribution)

    def make(columns, rows):
        name = f"t{next(made)}"
        with psycopg.connect(distribution, autocommit=True) as connection:
            connection.execute(f"DROP TABLE IF EXISTS {name}; CREATE TABLE {name} ({columns})")
            marks = ", ".join(["%s"] * len(rows[0]))
            connection.cursor().executemany(f"INSERT INTO {name} VALUES ({marks})", rows)
        return {"source": opened.table(name), "name": name}

    yield make
    opened.disconnect()


@pytest.fixture
def in_spark(interpreted):
    """The same in Spark."""
    session, made = interpreted._session, iter(range(1000))

    def make(columns, rows):
        name = f"cells_{next(made)}"
        columns = columns.replace("VARCHAR(9)", "STRING")
        session.createDataFrame(rows, columns).createOrReplaceTempView(name)
        return {"source": interpreted.table(name), "name": name}

    return make


@pytest.fixture
def make(request):
    return request.getfixturevalue(f"in_{request.param}")


# --- equality -------------------------------------------------------------------------------------

COLLATED = [
    ("duckdb", "VARCHAR COLLATE NOCASE", "rome", "ROME"),
    ("duckdb", "VARCHAR COLLATE NOACCENT", "rome", "rômé"),
    ("duckdb", "VARCHAR COLLATE NFC", "r\u00f4me", "ro\u0302me"),
    ("duckdb", "VARCHAR COLLATE NOCASE.NOACCENT", "rome", "RÔME"),
    ("duckdb", "VARCHAR COLLATE de", "rome", "Rome"),
    ("duckdb", "VARCHAR", "rome", "rome "),
    ("duckdb", "ENUM ('rome', 'ROME', 'bari')", "rome", "ROME"),
    ("postgres", "TEXT COLLATE any_case", "rome", "ROME"),
    ("postgres", "VARCHAR(9) COLLATE any_accent", "rome", "Rôme"),
    ("postgres", "CHAR(9) COLLATE any_case", "rome", "ROME"),
    ("postgres", "CITEXT", "rome", "ROME"),
    ("postgres", "CITY", "rome", "ROME"),
    ("postgres", "CITIES", "rome", "ROME"),
    ("postgres", "TEXT", "rome", "rome "),
]


def answers(table, one, other):
    """Everything that compares text, in one request: counts by the key that they are of."""
    keys, like = (one, "bari"), one.replace("'", "''")
    asked = {
        "histogram": Histogram("city", keys=keys, **SURE),
        "both": Histogram("city", keys=(one, other), **SURE),
        "units": GroupBy(("city",), CountUnits(**SURE), keys),
        "private": GroupBy(("city",), Count(**SURE, delta=1e-3), private_keys=True),
    } | {
        condition: Count(where=f"city {condition}", **SURE)
        for condition in (
            f"= '{like}'",
            f"IN ('{like}', 'bari')",
            f"<= '{like}'",
            f"LIKE '{like}%'",
        )
    }
    found = table.ask(*asked.values())
    return {name: dict(answer) for name, answer in zip(asked, map(cells, found), strict=True)}


def cells(answer):
    return {cell.keys: cell.value for cell in answer.cells}


@pytest.mark.parametrize(("make", "kind", "one", "other"), COLLATED, indirect=["make"])
def test_one_persons_spelling_moves_no_group(make, protected, kind, one, other):
    """Sensitivity: over all groups the counts of neighbours differ by one at most."""
    rows = [(f"p{i:02}", one) for i in range(40)] + [(f"q{i}", "bari") for i in range(20)]
    options = {"unit": "person", "max_rows_per_unit": 1}
    made = make(f"person VARCHAR(9), city {kind}", rows)
    before = answers(protected(**made, **options), one, other)
    assert before["histogram"] == {(one,): 40, ("bari",): 20}
    for more in ([("zz", other), *rows], [*rows, ("aa", other)]):
        made = make(f"person VARCHAR(9), city {kind}", more)
        after = answers(protected(**made, **options), one, other)
        assert after["both"] == {(one,): 40, (other,): 1}
        for name, counts in before.items():
            found = after[name]
            moved = sum(abs(found.get(k, 0) - counts.get(k, 0)) for k in {*found, *counts})
            assert moved <= 1, (name, counts, found)


@pytest.mark.parametrize(("make", "kind", "one", "other"), COLLATED, indirect=["make"])
def test_a_unit_is_its_bytes(make, protected, kind, one, other):
    """Units that a collation takes for one are bounded each by itself."""
    rows = [(name, i) for name in (one, other) for i in range(5)]
    for some, units in ((rows, 2), (rows[:5], 1)):
        made = make(f"person {kind}, x INTEGER", some)
        table = protected(**made, unit="person", max_rows_per_unit=3)
        assert [a.value for a in table.ask(Count(**SURE), CountUnits(**SURE))] == [3 * units, units]


def test_a_connection_whose_texts_have_another_equality_is_refused(protected):
    connection = ibis.duckdb.connect()
    with quiet():
        connection.raw_sql("CREATE TABLE t (city VARCHAR); SET default_collation = 'NOCASE'")
        table = connection.table("t")
    with pytest.raises(ValueError, match="default_collation is 'NOCASE'"):
        protected(table)


OPAQUE = {
    "MAP(VARCHAR, INTEGER)": "MAP {}",
    "JSON": "'{}'",
    "BLOB": "'\\xFF'::BLOB",
    "BIT": "'101'::BIT",
    "INTERVAL": "INTERVAL 1 MONTH",
    "TIMETZ": "'12:00:00+02'::TIMETZ",
    "ENUM('a', 'b')[]": "['b']",
    "STRUCT(a VARCHAR)": "{'a': 'x'}",
    "UNION(n INTEGER)": "1",
    "UHUGEINT": "1",
}


def test_of_other_types_one_asks_whether_there_is_a_value(protected):
    """Rows of a unit differ in what can be asked alone, so others do not decide which are kept."""
    connection = ibis.duckdb.connect()
    columns = ", ".join(f"c{i} {kind}" for i, kind in enumerate(OPAQUE))
    values = ", ".join(OPAQUE.values())
    with quiet():
        connection.raw_sql(f"CREATE TABLE t (person INTEGER, {columns})")
        connection.raw_sql(f"INSERT INTO t SELECT i, {values} FROM range(9) r(i)")
        connection.raw_sql("INSERT INTO t (person) SELECT i FROM range(9) r(i)")
        given = connection.table("t")
    table = protected(given, unit="person", max_rows_per_unit=2)
    asked = [Count(where=f"c{i} IS NULL", **SURE) for i in range(len(OPAQUE))]
    asked.append(Count(where=given.c0.isnull(), **SURE))
    assert [answer.value for answer in table.ask(*asked)] == [9] * len(asked)
    for i in range(len(OPAQUE)):
        with pytest.raises(ValueError, match="must be numeric, got"):
            table.sum(f"c{i}", 0, 1, epsilon=1.0)
        with pytest.raises(ValueError, match=r"of the column.s type|must be public"):
            table.histogram(f"c{i}", keys=[True], epsilon=1.0)
        with pytest.raises(ValueError, match=r"text or whole numbers"):
            protected(given, unit=f"c{i}", max_rows_per_unit=1)


@pytest.mark.parametrize("make", ["duckdb", "postgres"], indirect=True)
def test_the_sessions_time_zone_decides_nothing(make, protected):
    """A moment is one; the first of them lies before the year 1 in New York."""
    first, noon = datetime(1, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, 12, tzinfo=UTC)
    rows = [(moment, moment.replace(tzinfo=None)) for moment in (first, noon, noon)]
    made = make("zoned TIMESTAMPTZ, plain TIMESTAMP", rows)
    asked = [
        Histogram("zoned", keys=(first, noon), **SURE),
        Histogram("plain", keys=(rows[0][1], rows[1][1]), **SURE),
        Count(where="zoned = '2026-01-01 12:00:00' and plain = '2026-01-01 12:00:00'", **SURE),
        Count(where="zoned = '2026-01-01T14:00:00+02:00'", **SURE),
        Count(where="cast(zoned as varchar) like '2026-01-01 12%'", **SURE),
    ]
    for zone in ("UTC", "America/New_York"):
        table = protected(**made)
        held = table._table.get_backend()
        held.con.execute(f"SET TimeZone = '{zone}'")
        if held.name == "postgres":
            held.con.commit()
        counts = [[cell.value for cell in answer.cells] for answer in table.ask(*asked)]
        assert counts == [[1, 2], [1, 2], [2], [2], [2]]
        with pytest.raises(ValueError, match="without a time zone"):
            table.where("plain > '2026-01-01T00:00:00+00:00'")


# --- cells that a reader fails on -----------------------------------------------------------------


def texts(kind, values=(b"rome", b"caf\xc3\xa9", b"\xff\xfe")):
    """Text as it may lie in a file: some of it is no UTF-8."""
    large = kind == pa.large_string()
    held = pa.array(values, pa.large_binary() if large else pa.binary())
    if kind == pa.string_view():
        held = held.cast(pa.binary_view())
    return pa.Array.from_buffers(kind, len(held), held.buffers())


def whole(kind, odd=2**63 - 1):
    width = pa.int32() if odd < 2**31 else pa.int64()
    return pa.array([1000 if width == pa.int32() else 86_400_000, 0, odd], width).view(kind)


def wide_decimals(kind):
    numbers = pa.array([1, 2, 10**37], pa.decimal128(38, 0))
    return pa.Array.from_buffers(kind, 3, numbers.buffers())


NOWHERE = pa.DictionaryArray.from_arrays(pa.array([0, 1, 7]), ["rome", "bari"], safe=False)
ODD = {
    "text": texts(pa.string()),
    "long text": texts(pa.large_string()),
    "text views": texts(pa.string_view()),
    "categories": pa.DictionaryArray.from_arrays(pa.array([0, 1, 2]), texts(pa.string())),
    "categories of nothing": NOWHERE,
    "JSON": pa.ExtensionArray.from_storage(pa.json_(), texts(pa.string(), (b"{}", b"1", b"{"))),
    "lists": pa.ListArray.from_arrays(pa.array([0, 1, 2, 3], pa.int32()), texts(pa.string())),
    "structs": pa.StructArray.from_arrays(
        [texts(pa.string()), whole(pa.duration("s"))], ["a", "b"]
    ),
    "maps": pa.MapArray.from_arrays([0, 1, 2, 3], ["a", "b", "c"], texts(pa.string())),
    "dates": whole(pa.date32(), 2**31 - 1),
    "dates in milliseconds": whole(pa.date64()),
    "a time in seconds": whole(pa.time32("s"), 2**31 - 1),
    "a time": whole(pa.time64("ns")),
    "wide decimals": wide_decimals(pa.decimal128(5, 2)),
    "wider decimals": pa.array([1, 2, 10**60], pa.decimal256(70, 0)),
    "decimals of tens": pa.array([10, 20, 30], pa.decimal128(5, 0)).cast(pa.decimal128(5, -1)),
    "halves": pa.array([1.0, 2.0, float("nan")], pa.float16()),
    "calendars": pa.array(
        [(0, 0, 0), (1, 2, 3), (2**31 - 1, 0, 2**63 - 1)], pa.month_day_nano_interval()
    ),
    "bytes": pa.array([b"", b"a", b"\xff"]),
    "runs": pa.RunEndEncodedArray.from_arrays(pa.array([1, 2, 3]), pa.array(["a", "b", "c"])),
} | {
    f"{kind}": whole(kind)
    for unit in ("s", "ms", "us", "ns")
    for kind in (pa.duration(unit), pa.timestamp(unit), pa.timestamp(unit, "Europe/Rome"))
}
NOT_IN_FILES = (
    *("categories of nothing", "decimals of tens", "calendars", "runs"),
    *(f"timestamp[s{zone}]" for zone in ("", ", tz=Europe/Rome")),
)
MISSING = ("text", "categories", "dates", "timestamp", "long text", "halves")


def neighbours(names):
    """A table, and the same with one person more, whose cells are odd."""
    cells = {f"c{i}": ODD[name] for i, name in enumerate(names)}
    table = pa.table({"person": [1, 2, 3], "city": ["rome", "bari", "rome"]} | cells)
    return table.slice(0, 2), table


def checked(names, protected, before, after):
    """What is asked of both is answered, and the counts of one row more are one more."""
    asked = [Count(**SURE), Count(where="city = 'rome'", **SURE)]
    asked += [Count(where=f"c{i} IS NULL", **SURE) for i in range(len(names))]
    missing = [int(name.startswith(MISSING)) for name in names]
    for options in ({}, {"unit": "person", "max_rows_per_unit": 1}):
        for source, counts in (
            (before, [2, 1, *(0 for _ in names)]),
            (after, [3, 2, *missing]),
        ):
            answered = protected(source, budget=Budget(1e5), **options).ask(*asked)
            assert [answer.value for answer in answered] == counts


def test_a_cell_in_a_frame_makes_no_question_fail(protected):
    checked([*ODD], protected, *neighbours(ODD))


FILES = {
    "text alone": ["text", "long text", "text views", "lists"],
    "what DuckDB reads": [
        "dates",
        "bytes",
        "duration[s]",
        "timestamp[us]",
        "timestamp[ns]",
        "halves",
    ],
    "categories": ["categories", "dates"],
    "all": [name for name in ODD if name not in NOT_IN_FILES],
}


@pytest.mark.parametrize("names", FILES.values(), ids=FILES)
def test_a_cell_in_a_file_makes_no_question_fail(names, protected, tmp_path):
    paths = [tmp_path / "before.parquet", tmp_path / "after.parquet"]
    for path, table in zip(paths, neighbours(names), strict=True):
        pq.write_table(table, path)
    checked(names, protected, *paths)


@pytest.mark.parametrize("name", ["text", "categories"])
def test_text_that_is_none_makes_no_group(name, protected, tmp_path):
    """In private keys no text shows that is none; counts of the others stay."""
    before, after = neighbours([name])
    for number, last in enumerate((before.slice(0, 0), after.slice(2))):
        table = pa.concat_tables([before] * 40 + [last], promote_options="default")
        pq.write_table(table, tmp_path / f"{number}.parquet")
        for source in (table, tmp_path / f"{number}.parquet"):
            by = protected(source).group_by("c0", private_keys=True).count(delta=1e-3, **SURE)
            assert by.values == {"rome": 40, "caf\u00e9": 40}


# --- cells of PostgreSQL --------------------------------------------------------------------------

POSTGRES = {
    "date": ("2026-01-01", "infinity"),
    "date ": ("2026-01-01", "4000-01-01 BC"),
    "timestamp": ("2026-01-01", "-infinity"),
    "timestamptz": ("2026-01-01", "20000-01-01"),
    "numeric": ("1.0", "NaN"),
    "numeric ": ("1.0", "1e400"),
    "float8": ("1.0", "-Infinity"),
    "json": ("{}", "[1]"),
    "jsonb": ("{}", '{"a": null}'),
    "interval": ("1 month", "-178000000 years"),
    "timetz": ("10:00+01", "24:00-15:59"),
    "int4range": ("[1,2)", "empty"),
    "point": ("(1,2)", "(NaN,Infinity)"),
    "inet": ("10.0.0.1", "::"),
    "money": ("1", "92233720368547758.07"),
    "xml": ("<a/>", ""),
    "text[]": ("{}", "{{a},{b}}"),
    "bytea": ("a", "\\xff"),
    "tsvector": ("a", ""),
    "uuid": ("6ecd8c99-4036-403d-bf84-cf8400f67836", "00000000-0000-0000-0000-000000000000"),
}
MISSING_THERE = ("date", "date ", "timestamp", "timestamptz", "numeric", "numeric ", "float8")


def test_a_cell_in_postgresql_makes_no_question_fail(in_postgres, protected):
    columns = ", ".join(["person int, city text", *(f"c{i} {k}" for i, k in enumerate(POSTGRES))])
    usual, odd = (list(cells) for cells in zip(*POSTGRES.values(), strict=True))
    rows = [[1, "rome", *usual], [2, "bari", *usual], [3, "rome", *odd]]
    asked = [Count(**SURE), Count(where="city = 'rome'", **SURE)]
    asked += [Count(where=f"c{i} IS NULL", **SURE) for i in range(len(POSTGRES))]
    missing = [int(name in MISSING_THERE) for name in POSTGRES]
    for some, counts in ((rows[:2], [2, 1, *(0 for _ in odd)]), (rows, [3, 2, *missing])):
        made = in_postgres(columns, some)
        for options in ({}, {"unit": "person", "max_rows_per_unit": 1}):
            answered = protected(**made, budget=Budget(1e5), **options).ask(*asked)
            assert [answer.value for answer in answered] == counts


def test_a_database_in_which_some_text_has_no_reading_is_refused(distribution, protected):
    with psycopg.connect(distribution, autocommit=True) as connection:
        connection.execute("DROP DATABASE IF EXISTS windows")
        connection.execute(
            "CREATE DATABASE windows ENCODING 'WIN1252' LOCALE 'C' TEMPLATE template0"
        )
    windows = distribution.replace("/postgres?", "/windows?")
    with psycopg.connect(windows, autocommit=True) as connection:
        connection.execute("CREATE TABLE t (city text)")
    with pytest.raises(ValueError, match="encoding is WIN1252"):
        protected(windows, table="t")


def test_what_duckdb_reads_elsewhere_is_refused(protected, tmp_path):
    """An Ibis table over a Parquet file or a frame: its reader would fail on a cell."""
    path = tmp_path / "people.parquet"
    pq.write_table(neighbours(["text"])[1], path)
    connection = ibis.duckdb.connect()
    with quiet():
        connection.con.register("frame", neighbours(["text"])[1])
        connection.raw_sql("CREATE TABLE stored AS SELECT 'rome' AS city")
        stored = connection.table("stored")
        tables = [connection.read_parquet(path), connection.table("frame")]
        for frame in (neighbours(["text"])[1], neighbours(["bytes"])[1].to_pandas()):
            tables.append(ibis.memtable(frame).filter(ibis._.person > 1))
    for table in (*tables, stored.join(tables[0], "city")):
        with pytest.raises(ValueError, match="must be a table that DuckDB stores"):
            protected(table)
    assert protected(ibis.memtable(neighbours(["text"])[1])).count(**SURE).value == 3


# --- cells of Spark -------------------------------------------------------------------------------


SPARK = ["UTF8_LCASE", pytest.param("UNICODE_CI_AI", marks=pytest.mark.slow)]


@pytest.mark.parametrize("collation", SPARK)
def test_no_collation_of_spark_moves_a_group_or_a_unit(in_spark, protected, collation):
    rows = [(f"p{i:02}", "rome") for i in range(40)] + [("P00", "rome")]
    columns = f"person STRING COLLATE {collation}, city STRING COLLATE {collation}"
    asked = (
        Histogram("city", keys=("rome",), **SURE),
        GroupBy(("city",), CountUnits(**SURE, delta=1e-3), private_keys=True),
    )
    for some in (rows, [("zz", "ROME"), *rows]):
        table = protected(**in_spark(columns, some), unit="person", max_rows_per_unit=1)
        for answer in table.ask(*asked):
            assert answer.values == {"rome": 41}


def test_a_cell_in_spark_makes_no_question_fail(interpreted, protected, tmp_path):
    names = ["text", "dates", "timestamp[us]", "maps", "lists"]
    odd = " and ".join(f"c{i} IS {'NOT ' * (i > 2)}NULL" for i in range(len(names)))
    asked = (
        Count(where=f"city = 'rome' and {odd}", **SURE),
        GroupBy(("c0",), Count(**SURE, delta=1e-3), private_keys=True),
    )
    for number in range(2):
        path = tmp_path / f"{number}.parquet"
        pq.write_table(neighbours(names)[number], path)
        table = interpreted.read_parquet(path)
        count, groups = protected(table, name="people").ask(*asked)
        assert (count.value, groups.values) == (number, {})


def test_spark_reads_no_milliseconds(interpreted, protected, tmp_path):
    pq.write_table(neighbours(["timestamp[ms]"])[0], tmp_path / "people.parquet")
    with pytest.raises(ValueError, match="moments in milliseconds"):
        protected(interpreted.read_parquet(tmp_path / "people.parquet"), name="people")


def test_blanks_that_fill_up_a_cell_are_no_part_of_it(interpreted, protected, tmp_path):
    session = interpreted._session
    session.sql(f"CREATE TABLE filled (city CHAR(9)) USING parquet LOCATION '{tmp_path}'")
    session.sql("INSERT INTO filled VALUES ('rome'), ('rome')")
    table = protected(interpreted.table("filled"), name="people")
    assert table.histogram("city", keys=["rome"], **SURE).values == {"rome": 2}
    session.sql("DROP TABLE filled")
