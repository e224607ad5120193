"""Sources: the schema never depends on the rows, and no row keeps a source from opening."""

import warnings
from decimal import Decimal

import ibis
import numpy as np
import pandas as pd
import polars as pl
import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from polars.io.plugins import register_io_source
from pyarrow import csv, dataset
from tests.odd_objects import FAILURES, odd_object

from sfumato.ledger import Budget, LedgerError
from sfumato.ledger.errors import DataChangedWarning
from sfumato.queries import sources
from sfumato.queries.engine import fetch, quiet
from sfumato.queries.sources import open_source

SURE = {"epsilon": 500.0}
FRAME = {"person": [1, 1, 2, 3], "age": [30, 31, 50, 70], "city": ["Rome", "Rome", "Bari", None]}


def rows_of(source, **options):
    return fetch(open_source(source, name="d", **options).table, "testing")


@pytest.fixture
def files(tmp_path):
    """The same table in every kind of file and frame, and in a DuckDB file."""
    arrow = pa.table(FRAME)
    pq.write_table(arrow, tmp_path / "people.parquet")
    for part in range(2):
        pq.write_table(arrow.slice(2 * part, 2), tmp_path / f"part{part}.parquet")
    pandas = arrow.to_pandas()
    pandas.to_csv(tmp_path / "people.csv", index=False)
    pandas.to_csv(tmp_path / "people.csv.gz", index=False)
    pandas.to_csv(tmp_path / "people.tsv", index=False, sep="\t")
    connection = ibis.duckdb.connect(tmp_path / "people.db")
    connection.raw_sql("CREATE TABLE people (person BIGINT, age BIGINT, city VARCHAR)")
    rows = list(zip(*FRAME.values(), strict=True))
    connection.con.executemany("INSERT INTO people VALUES (?, ?, ?)", rows)
    connection.raw_sql("CREATE SCHEMA other; CREATE TABLE other.people AS SELECT * FROM people")
    connection.disconnect()
    memory = ibis.duckdb.connect()
    memory.raw_sql("CREATE TABLE people (person BIGINT, age BIGINT, city VARCHAR)")
    memory.con.executemany("INSERT INTO people VALUES (?, ?, ?)", rows)
    with quiet():
        table = memory.table("people")
    return {
        "parquet": (tmp_path / "people.parquet", {}),
        "parquet by text": (str(tmp_path / "people.parquet"), {}),
        "two parquets": (tmp_path / "part*.parquet", {}),
        "csv": (tmp_path / "people.csv", {"types": {"person": "int64", "age": "int64"}}),
        "gz": (tmp_path / "people.csv.gz", {"types": {"person": "int64", "age": "float64"}}),
        "tsv": (tmp_path / "people.tsv", {"types": {"person": "int64"}}),
        "text only": (tmp_path / "people.csv", {}),
        "pandas": (pandas, {}),
        "categories": (pandas.astype({"city": "category"}), {}),
        "nullable": (pandas.convert_dtypes(), {}),
        "pyarrow dtypes": (pandas.convert_dtypes(dtype_backend="pyarrow"), {}),
        "objects": (pandas.astype(object), {}),
        "polars": (pl.from_arrow(arrow), {}),
        "lazy": (pl.from_arrow(arrow).lazy(), {}),
        "categorical": (pl.from_arrow(arrow).with_columns(pl.col("city").cast(pl.Categorical)), {}),
        "arrow": (arrow, {}),
        "chunks": (pa.concat_tables([arrow.slice(0, 1), arrow.slice(1)]), {}),
        "dictionary": (arrow.set_column(2, "city", arrow["city"].dictionary_encode()), {}),
        "duckdb url": (f"duckdb://{tmp_path}/people.db", {"table": "people"}),
        "duckdb schema": (f"duckdb://{tmp_path}/people.db", {"table": "other.people"}),
        "duckdb csv": ("duckdb://", {"table": str(tmp_path / "people.csv")}),
        "duckdb parquet": ("duckdb://", {"table": str(tmp_path / "people.parquet")}),
        "ibis": (table, {}),
        "ibis expression": (table.filter(table.age > 0), {}),
        "memtable": (ibis.memtable(pandas), {}),
    }


KINDS = (
    "parquet,parquet by text,two parquets,csv,gz,tsv,text only,pandas,categories,nullable,"
    "pyarrow dtypes,objects,polars,lazy,categorical,arrow,chunks,dictionary,duckdb url,"
    "duckdb schema,duckdb csv,duckdb parquet,ibis,ibis expression,memtable"
)


@pytest.mark.parametrize("kind", KINDS.split(","))
def test_every_source_gives_the_same_answers(files, kind, protected):
    source, options = files[kind]
    table = protected(source, unit="person", max_rows_per_unit=2, **options)
    assert list(table.columns) == ["person", "age", "city"]
    assert table.columns["city"] == "string"
    assert table.count(**SURE).value == 4
    assert table.count_units(**SURE).value == 3
    assert table.sum("age", 0, 100, **SURE).value == pytest.approx(181, abs=5)
    assert table.histogram("city", keys=["Rome", "Bari"], **SURE).values == {"Rome": 2, "Bari": 1}
    assert table.where("age > 30 and city = 'Rome'").count(**SURE).value == 1


def test_names_come_from_files_and_tables(files, new_ledger):
    for kind, name in {
        "parquet": "people",
        "csv": "people",
        "gz": "people",
        "ibis": "people",
    }.items():
        assert open_source(files[kind][0]).name == name
    for kind in ("pandas", "ibis expression", "memtable"):
        with pytest.raises(ValueError, match="name"):
            open_source(files[kind][0])


def test_columns_whose_names_differ_in_case_alone_are_refused(tmp_path, postgresql_url, protected):
    """DuckDB would take the first for the other: rows of one person as twelve people."""
    arrow = pa.table({"u": range(12), "U": [7] * 12})
    pq.write_table(arrow, tmp_path / "t.parquet")
    for source in (arrow, arrow.to_pandas(), pl.from_arrow(arrow), tmp_path / "t.parquet"):
        for unit in ("u", "U", None):
            with pytest.raises(ValueError, match=r"not in case alone, got \['u', 'U'\]"):
                protected(source, unit=unit, **({"max_rows_per_unit": 1} if unit else {}))
    connection = ibis.duckdb.connect()
    with quiet():
        connection.raw_sql("CREATE TABLE t AS SELECT range AS u FROM range(12)")
        stored = connection.table("t")
    with pytest.raises(ValueError, match="not in case alone"):
        protected(stored.mutate(U=1), name="d")
    with psycopg.connect(postgresql_url, autocommit=True) as there:
        there.execute('CREATE TABLE t (u int, "U" int)')
        there.execute("INSERT INTO t SELECT i, 7 FROM generate_series(1, 12) i")
    people = protected(postgresql_url, table="t", unit="U", max_rows_per_unit=1)
    assert people.count(**SURE).value == 1
    people._table.get_backend().disconnect()
    connection.disconnect()


# --- CSV ------------------------------------------------------------------------------------------


def test_the_schema_of_a_csv_is_text_whatever_it_holds(tmp_path):
    schemas = set()
    for i, body in enumerate((b"", b"1,2\n", b"a,b\n", b"2026-01-01,true\n", b"\xff,\x00\n")):
        path = tmp_path / f"{i}.csv"
        path.write_bytes(b"\xef\xbb\xbfx,y\n" + body)
        schemas.add(str(open_source(path).table.schema()))
        found = open_source("duckdb://", table=str(path))
        schemas.add(str(found.table.schema()))
    assert len(schemas) == 1


def test_columns_of_the_same_name_are_refused(tmp_path):
    """The first would be taken for both, and those whom the second tells apart for one."""
    table = pa.Table.from_arrays([pa.array([1, 2]), pa.array([7, 7])], names=["u", "u"])
    pq.write_table(table, tmp_path / "u.parquet")
    for source in (table, str(tmp_path / "u.parquet")):
        with pytest.raises(ValueError, match="named differently"):
            open_source(source, name="d")


@pytest.mark.parametrize("name", ["v[1].parquet", "v?.parquet", "v*.parquet", "[v].parquet"])
def test_a_name_that_looks_like_a_pattern_is_the_file_s(tmp_path, name):
    for other in ("v1.parquet", "vx.parquet", "v.parquet"):
        pq.write_table(pa.table({"x": [1, 1, 1]}), tmp_path / other)
    pq.write_table(pa.table({"x": [2]}), tmp_path / name)
    assert rows_of(str(tmp_path / name)) == [{"x": 2}]
    at_url = open_source("duckdb://", table=str(tmp_path / name), name="d")
    assert fetch(at_url.table, "testing") == [{"x": 2}]


@pytest.mark.parametrize("damaged", [False, True])
def test_a_folder_s_name_is_no_column(tmp_path, damaged):
    folder = tmp_path / "person=all"
    folder.mkdir()
    texts = pa.array([b"a", b"\xff" if damaged else b"b"], pa.binary()).view(pa.string())
    pq.write_table(pa.table({"person": [1, 2], "t": texts}), folder / "v.parquet")
    table = open_source(str(folder / "v.parquet"), name="d").table
    assert table.columns == ("person", "t")
    assert [row["person"] for row in fetch(table, "testing")] == [1, 2]


def decimals(*raw, kind=None):
    """Decimals by the numbers that they are stored as."""
    data = b"".join(r.to_bytes(16, "little", signed=True) for r in raw)
    kind = pa.decimal128(38, 10) if kind is None else kind
    return pa.Array.from_buffers(kind, len(raw), [None, pa.py_buffer(data)])


@pytest.mark.parametrize("kind", ["arrow", "parquet", "polars"])
def test_a_decimal_beyond_its_type_is_missing(tmp_path, protected, kind):
    """DuckDB cannot negate the least of them, and sorts by negating."""
    cells = decimals(1, 10**38 - 1, 1 - 10**38, 10**38, -(10**38), -(2**127), 2**127 - 1)
    table = pa.table({"u": range(7), "c": cells})
    pq.write_table(table, tmp_path / "c.parquet")
    sources = {"arrow": lambda: table, "parquet": lambda: str(tmp_path / "c.parquet")}
    sources["polars"] = lambda: pl.from_arrow(table)
    people = protected(sources[kind](), unit="u", max_rows_per_unit=1)
    assert people.where("c IS NULL").count(**SURE).value == 4
    assert people.where("c > 0").count(**SURE).value == 2


def test_a_parquet_decimal_of_few_digits_too(tmp_path):
    kind = pa.decimal128(5, 2)
    pq.write_table(pa.table({"c": decimals(99_999, -1, kind=kind)}), tmp_path / "c.parquet")
    assert rows_of(str(tmp_path / "c.parquet")) == [
        {"c": Decimal("999.99")},
        {"c": Decimal("-0.01")},
    ]


def test_columns_of_arrow_in_a_pandas_frame_are_arrow_s():
    """As Python objects some of their cells cannot be had."""
    texts = pa.array([b"a", b"\xff"], pa.binary()).view(pa.string())
    hours = pa.array([1, 2**63 - 1], pa.int64()).view(pa.time64("us"))
    lists = pa.ListArray.from_arrays([0, 1, 2], texts)
    frame = pa.table({"t": texts, "h": hours, "l": lists}).to_pandas(types_mapper=pd.ArrowDtype)
    assert rows_of(frame) == [{"t": "a", "h": True, "l": True}, {"t": None, "h": True, "l": True}]


def test_halves_of_surrogates_are_missing_and_equal_to_nothing():
    frame = pd.DataFrame({"x": pd.Series(["?", "\ud800", "\udfff"], dtype=object)})
    assert [row["x"] for row in rows_of(frame)] == ["?", None, None]


VIEWS = (
    "select b.x from b left join '{file}' p on b.x = p.x and b.x > 100",
    "select x from b union all select x from '{file}' where x > 100",
    "select (select max(x) from '{file}') x from b",
    "select x from b where (select count(*) from '{file}') > 0",
)


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("rows", [[1], [1, 200]])
@pytest.mark.parametrize("stored", [[1], [1, 500]])
def test_what_a_view_reads_is_told_by_its_words_not_by_its_rows(tmp_path, view, rows, stored):
    """The plan that runs leaves out what no row needs."""
    pq.write_table(pa.table({"x": stored}), tmp_path / "p.parquet")
    connection = ibis.duckdb.connect(tmp_path / "t.db")
    connection.raw_sql("CREATE TABLE b (x INT)")
    connection.raw_sql("INSERT INTO b VALUES " + ", ".join(f"({row})" for row in rows))
    connection.raw_sql("CREATE VIEW v AS " + view.format(file=tmp_path / "p.parquet"))
    with quiet(), pytest.raises(ValueError, match="a table that DuckDB stores"):
        open_source(connection.table("v"), name="d")
    ((kept,),) = connection.raw_sql("SELECT current_setting('explain_output')").fetchall()
    assert kept.lower() == "physical_only"
    connection.disconnect()


def test_one_stored_table_has_one_place(tmp_path, monkeypatch, new_ledger, protected):
    monkeypatch.chdir(tmp_path)
    connection = ibis.duckdb.connect("t.db")
    connection.raw_sql("CREATE TABLE t AS SELECT 1 AS x")
    connection.disconnect()
    (tmp_path / "link.db").symlink_to("t.db")
    ledger = new_ledger()
    protected("duckdb://t.db", table="t", name="first", ledger=ledger)
    for url, table in (
        (f"duckdb://{tmp_path}/t.db", "t"), (f"duckdb://{tmp_path}/./t.db", "t"),
        ("duckdb://link.db", "t"), ("duckdb://t.db", "T"), ("duckdb://t.db", "main.t"),
    ):  # fmt: skip
        with pytest.raises(LedgerError, match="does not get a new budget"):
            protected(url, table=table, name="second", ledger=ledger)


def test_one_table_of_postgresql_has_one_place(postgresql_url, new_ledger, protected):
    with psycopg.connect(postgresql_url, autocommit=True) as connection:
        connection.execute("CREATE TABLE t AS SELECT 1 AS x")
        ((schema,),) = connection.execute("SELECT current_schema()").fetchall()
    ledger = new_ledger()
    first = protected(postgresql_url, table="t", name="first", ledger=ledger)
    for url, table in (
        (postgresql_url, f"{schema}.t"), (f"{postgresql_url}&connect_timeout=5", "t"),
        (postgresql_url.replace("postgresql:", "postgres:"), "t"),
    ):  # fmt: skip
        with pytest.raises(LedgerError, match="does not get a new budget"):
            protected(url, table=table, name="second", ledger=ledger)
    first._table.get_backend().disconnect()


@pytest.mark.parametrize("keys", [[1, 10**23], [-1, 2**64], ["a", "\ud800"]])
def test_keys_that_no_cell_can_hold_are_refused(protected, keys):
    frame = pa.table({"x": pa.array([1, 2]), "t": pa.array(["a", "b"])})
    column = "t" if isinstance(keys[0], str) else "x"
    people = protected(frame)
    with pytest.raises(ValueError, match="of the column's type"):
        people.histogram(column, keys=keys, **SURE)


def test_text_that_the_engine_reads_itself_is_refused(tmp_path):
    """Its rows are not lines: a view over it, an expression, and a view in a database file."""
    (tmp_path / "t.csv").write_text('a,b\n1,"open\n2,x\n')
    (tmp_path / "t.json").write_text('{"a": 1}\n')
    connection = ibis.duckdb.connect(tmp_path / "t.db")
    with quiet():
        lines = connection.read_csv(
            tmp_path / "t.csv",
            columns={"a": "VARCHAR", "b": "VARCHAR"},
            auto_detect=False,
            strict_mode=False,
            quote='"',
        )
        assert lines.count().execute() == 1, "a quote takes the lines after it"
        connection.raw_sql(f"CREATE VIEW v AS SELECT * FROM read_csv('{tmp_path}/t.csv')")
        connection.raw_sql(f"CREATE TABLE copied AS SELECT * FROM read_csv('{tmp_path}/t.csv')")
        connection.raw_sql("CREATE VIEW w AS SELECT * FROM v UNION ALL SELECT * FROM copied")
        tables = [lines, lines.filter(lines.a == "1"), connection.read_json(tmp_path / "t.json")]
        tables += [connection.table("v"), connection.table("w")]
        copied = connection.table("copied")
    lazy = pl.scan_csv(tmp_path / "t.csv", truncate_ragged_lines=True)
    tables += [lazy, lazy.filter(pl.col("a") > 0), pl.scan_ndjson(tmp_path / "t.json")]
    tables.append(pl.concat([pl.LazyFrame({"a": [1], "b": ["x"]}), lazy]))
    for table in tables:
        with pytest.raises(ValueError, match=r"reads itself.*data convert"):
            open_source(table, name="t")
    assert open_source(copied).table.columns == ("a", "b")
    connection.disconnect()
    for name in ("v", "w"):
        with pytest.raises(ValueError, match="that the engine reads itself"):
            open_source(f"duckdb://{tmp_path}/t.db", table=name)


def test_foreign_tables_of_postgresql_are_refused(distribution, tmp_path):
    """One line of a file makes every question fail, in a view over it as well."""
    import psycopg

    tmp_path.chmod(0o755)
    (tmp_path / "t.csv").write_text("1,rome\nbari\n")
    with psycopg.connect(distribution, autocommit=True) as there:
        there.execute("CREATE EXTENSION IF NOT EXISTS file_fdw")
        there.execute("CREATE SERVER IF NOT EXISTS files FOREIGN DATA WRAPPER file_fdw")
        there.execute(
            f"""CREATE FOREIGN TABLE lines (n int, city text) SERVER files
            OPTIONS (filename '{tmp_path}/t.csv', format 'csv');
            CREATE TABLE own (n int, city text);
            CREATE VIEW both_of_them AS SELECT * FROM own UNION ALL SELECT * FROM lines"""
        )
    for name in ("lines", "both_of_them"):
        with pytest.raises(ValueError, match=r"must not read a foreign table.*CREATE TABLE AS"):
            open_source(distribution, table=name)
    own = open_source(distribution, table="own").table
    assert own.columns == ("n", "city")
    own.get_backend().disconnect()


def test_a_lazy_frame_that_reads_something_itself_is_refused(tmp_path):
    """Whatever the reader: one line takes others with it there, or one cell makes it fail."""
    (tmp_path / "t.csv").write_text('a,b\n1,"open\n2,x\n')
    frame = pl.DataFrame({"a": [1], "b": ["x"]})
    frame.write_parquet(tmp_path / "t.parquet")
    options = csv.ParseOptions(newlines_in_values=True)
    text = dataset.dataset(tmp_path / "t.csv", format=dataset.CsvFileFormat(options))
    plugin = register_io_source(lambda *_: iter([frame]), schema=frame.schema)
    parquet = pl.scan_parquet(tmp_path / "t.parquet")
    lazies = [pl.scan_pyarrow_dataset(text), plugin, parquet, pl.concat([frame.lazy(), parquet])]
    for lazy in lazies:
        with pytest.raises(ValueError, match=r"lazy Polars frame that reads.*collect\(\)"):
            open_source(lazy, name="t")
    named = frame.lazy().rename({"a": "csv scan"}).with_columns(pl.lit("Csv SCAN").alias("c"))
    assert open_source(named, name="t").table.columns == ("csv scan", "b", "c")


def test_a_view_over_a_function_that_reads_elsewhere_is_refused(tmp_path):
    """Not by the reader's name: by what a plan begins with."""
    (tmp_path / "t.csv").write_text('a,b\n1,"open\n2,x\n')
    connection = ibis.duckdb.connect()
    with quiet():
        connection.raw_sql("CREATE TABLE stored AS SELECT range AS a FROM range(5)")
        for sql in (f"sniff_csv('{tmp_path}/t.csv')", f"glob('{tmp_path}/*')", "duckdb_tables()"):
            connection.raw_sql(f"CREATE OR REPLACE VIEW v AS SELECT * FROM stored, {sql}")
            with pytest.raises(ValueError, match="must be a table that DuckDB stores"):
                open_source(connection.table("v"))
        for sql in (
            "SELECT 1 AS a WHERE false",
            "SELECT stored.a FROM stored JOIN range(3) AS r(a) ON r.a = stored.a",
            "SELECT a, unnest([a, 1]) AS b FROM stored WHERE a IN (SELECT max(a) FROM stored)",
            "WITH RECURSIVE r AS (SELECT 1 a UNION ALL SELECT a + 1 FROM r WHERE a < 3) FROM r",
        ):
            connection.raw_sql(f"CREATE OR REPLACE VIEW v AS {sql}")
            assert open_source(connection.table("v")).table.columns[0] == "a"


def test_a_lazy_frame_that_fails_does_not_quote_a_row():
    frame = pl.LazyFrame({"a": ["Anna"]}).with_columns(pl.col("a").cast(pl.Int64))
    with pytest.raises(ValueError, match="could not be opened") as raised:
        open_source(frame, name="t")
    assert "Anna" not in str(raised.value)


def test_a_csv_needs_a_header(tmp_path):
    for i, header in enumerate((b"", b"a,a\n1,2\n", b"a,\n1,2\n")):
        path = tmp_path / f"{i}.csv"
        path.write_bytes(header)
        with pytest.raises(ValueError, match="must name its columns"):
            open_source(path)
    (tmp_path / "part1.csv").write_bytes(b"a,b\n1,2\n")
    (tmp_path / "part2.csv").write_bytes(b"b,a\n1,2\n")
    with pytest.raises(ValueError, match="must all have the same first line"):
        open_source(tmp_path / "part*.csv")


def test_declared_types_are_missing_where_they_do_not_fit(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("n,d\n1,2026-01-01\nx,x\n1e999,\n-0,9999-99-99\nnan,2026-02-30\n")
    rows = rows_of(path, types={"n": "int64", "d": "date"})
    assert [row["n"] for row in rows] == [1, None, None, 0, None]
    assert [row["d"] is None for row in rows] == [False, True, True, True, True]


# --- frames ---------------------------------------------------------------------------------------


def test_objects_in_a_memtable_are_text_as_in_the_frame():
    """Ibis would infer the column's type from its rows, and fail on a cell of another kind."""
    schemas = set()
    for cell in ("x", 1, 1.5, b"\xff", [1], {"a": 1}, None, float("nan"), Rude()):
        frame = pd.DataFrame({"n": [1, 2], "c": pd.Series(["x", cell], dtype=object)})
        found = open_source(ibis.memtable(frame), name="t").table
        assert found.count().execute() == 2
        schemas.add(str(found.schema()))
    numbers = pd.DataFrame({"n": [1, 2], "c": pd.Series([1, 2], dtype=object)})
    schemas.add(str(open_source(ibis.memtable(numbers), name="t").table.schema()))
    assert len(schemas) == 1
    floats = ibis.memtable(pd.DataFrame({"n": [1.5]}), schema={"n": "int64"})
    with pytest.raises(ValueError, match=r"schema\['n'\] must be float64, as the frame has it"):
        open_source(floats, name="t")


class Rude:
    def __str__(self):
        raise RuntimeError("no")

    def __ne__(self, other):
        raise RuntimeError("no")

    __hash__ = None


@pytest.mark.parametrize(
    "value",
    [
        *(None, np.nan, pd.NA, pd.NaT, "", "x", 5, 1.5, True, b"\xff", Decimal("NaN"), Decimal(1)),
        *([1, 2], {"a": 1}, np.array([1, 2]), "\ud800", object(), Rude(), float("inf"), 10**400),
        *(pd.Timestamp("2026-01-01"), np.float64("nan"), (), frozenset()),
    ],
    ids=lambda value: type(value).__name__,
)
def test_any_object_becomes_text_or_nothing(value):
    frame = pd.DataFrame({"x": pd.Series([value, "ordinary"], dtype=object)})
    table = open_source(frame, name="d").table
    assert str(table.schema()["x"]) == "string"
    first, second = rows_of(frame)
    assert second["x"] == "ordinary"
    missing = value is None or value is pd.NA or value is pd.NaT or isinstance(value, Rude)
    missing |= isinstance(value, str) and value == "\ud800"  # half a character is no text
    if missing or (isinstance(value, float) and np.isnan(value)):
        assert first["x"] is None
    else:
        assert isinstance(first["x"], str)


OBJECTS = ["a", "", None, np.nan, pd.NA, pd.NaT, "\ud800", 1.5, b"x", 3, np.str_("q"), " é"]


@given(st.lists(st.sampled_from(OBJECTS), max_size=4))
def test_no_object_decides_how_others_are_read(values):
    """Arrow reads a column of text at once, bytes in another way, and nothing where one is odd."""
    alone = [sources._texts([value]).to_pylist()[0] for value in values]
    assert sources._texts(values).to_pylist() == alone


def test_types_of_a_pandas_frame_are_its_dtypes():
    frame = pd.DataFrame(
        {
            "i8": np.array([1], "int8"),
            "u64": np.array([2**64 - 1], "uint64"),
            "f32": np.array([np.nan], "float32"),
            "bool": [True],
            "Int64": pd.array([None], "Int64"),
            "boolean": pd.array([None], "boolean"),
            "string": pd.array([None], "string"),
            "category": pd.Categorical([1]),
            "time": pd.to_datetime(["2026-01-01"]),
            0: [1],
        }
    )
    kinds = {k: str(v) for k, v in open_source(frame, name="d").table.schema().items()}
    assert kinds["category"] == kinds["string"] == "string"
    assert kinds["Int64"] == kinds["0"] == "int64"
    assert (kinds["i8"], kinds["u64"], kinds["f32"]) == ("int8", "uint64", "float32")
    assert kinds["bool"] == kinds["boolean"] == "boolean"
    assert kinds["time"].startswith("timestamp")
    assert (
        open_source(frame.iloc[:0], name="d").table.schema()
        == open_source(frame, name="d").table.schema()
    )


# --- the identity of data -------------------------------------------------------------------------


def test_a_copied_file_does_not_get_a_second_budget(tmp_path, protected, new_ledger):
    ledger = new_ledger()
    for name in ("a", "b"):
        pq.write_table(pa.table(FRAME), tmp_path / f"{name}.parquet")
    protected(tmp_path / "a.parquet", name="first", ledger=ledger)
    with pytest.raises(LedgerError, match="first"):
        protected(tmp_path / "b.parquet", name="second", ledger=ledger)
    protected(tmp_path / "b.parquet", name="third", ledger=ledger, same_data_ok=True)


def test_changed_data_goes_on_with_its_budget_and_warns(protected, new_ledger):
    ledger = new_ledger()
    protected(pa.table(FRAME), ledger=ledger, budget=Budget(1.0)).count(epsilon=0.5)
    with pytest.warns(DataChangedWarning):
        again = protected(pa.table(FRAME).slice(1), ledger=ledger, budget=Budget(1.0))
    assert again.status.left == 0.5
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        protected(pa.table(FRAME).slice(1), ledger=ledger, budget=Budget(1.0))


def test_passwords_are_not_shown():
    for url in (
        "postgresql://user:secret@localhost:1/db",
        "postgresql://user:sec/secret@localhost:1/db",
        "postgresql://localhost:1/db?user=u&password=secret&sslmode=disable",
    ):
        with pytest.raises(ValueError, match="could not be opened") as raised:
            open_source(url, table="t")
        assert "secret" not in str(raised.value)


def test_a_file_without_a_header_does_not_show_its_first_row(tmp_path):
    """The first line may be somebody's: no error repeats it."""
    path = tmp_path / "visits.csv"
    path.write_text("7,Anna,1597.65\n8,Bruno,20\n")
    for options in ({"columns": ["patient_id"]}, {"types": {"cost": "float64"}}):
        with pytest.raises(ValueError, match="does not name the column") as raised:
            open_source(path, **options)
        assert "Anna" not in str(raised.value)
        assert "1597" not in str(raised.value)
    path.write_text(",,1597.65\n8,Bruno,20\n")
    with pytest.raises(ValueError, match="must name its columns") as raised:
        open_source(path)
    assert "1597" not in str(raised.value)


@pytest.mark.parametrize("what", FAILURES)
def test_objects_read_as_a_value_or_as_missing_without_a_word(what, caplog):
    cells = np.array(["ordinary", None], object)
    cells[1] = odd_object(what)
    frame = pd.DataFrame({"x": pd.Series(cells, dtype=object)})
    first, second = rows_of(frame)
    assert first["x"] == "ordinary"
    if what in ("text", "exit", "interrupt", "dead"):
        assert second["x"] is None
    else:
        assert isinstance(second["x"], str)
    assert not caplog.records


def test_a_category_reads_alike_beside_any_other():
    wards = [1, 2, 1]
    for other in (2.5, True, "a", None):
        frame = pd.DataFrame({"x": pd.Series([*wards, other]).astype("category")})
        assert [row["x"] for row in rows_of(frame)][:3] == ["1", "2", "1"]
