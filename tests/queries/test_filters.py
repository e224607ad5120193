"""Filters: what they mean, what is refused, and that no row makes one fail."""

import datetime
import math

import ibis
import pyarrow as pa
import pytest

from sfumato.queries.engine import fetch, quiet
from sfumato.queries.filters import describe_filter, named_filter, row_filter
from sfumato.queries.sources import open_source

ORDINARY = {
    "age": pa.array([12, 60, 61, None, 35, -4], pa.int64()),
    "small": pa.array([1, -128, 127, None, 5, 0], pa.int8()),
    "big": pa.array([3, 0, 2**64 - 1, None, 2**63, 4], pa.uint64()),
    "x": pa.array([1.5, -2.0, 0.0, None, 100.25, 3.0], pa.float64()),
    "city": pa.array(["Rome", "rome", "Milan", None, "", "São Paulo"]),
    "yes": pa.array([True, False, None, True, False, True]),
    "day": pa.array([datetime.date(2026, 1, d) for d in (1, 2, 3, 4, 5)] + [None]),
    "price": pa.array([None, *map(str, (1, 2, 3, 4, 5))]).cast(pa.decimal128(10, 2)),
}

SAME_AS_SQL = [
    "age > 60",
    "age >= 60 and age < 62",
    "not (age > 60)",
    "age <> 60 or city = 'Rome'",
    "age in (12, 35, 1000)",
    "age not in (12, 35)",
    "age not in (12, null)",
    "age in (12, 35.0, -4, x, null)",
    "age not in (-4, 61.5)",
    "x in (1.5, 3, -2, 100.25)",
    "x not in (0, 7)",
    "price in (3, 5.0)",
    "big in (-1, 3)",
    "big > -1 and big <> -7",
    "big not in (-1, 18446744073709551615)",
    "age < big or -5 < big",
    "big between -3 and 4",
    "city not in ('Rome', '', 'rome')",
    "city in ('Rome', lower(city), null)",
    "city in ('Rome', city)",
    "yes in (true, null)",
    "day in ('2026-01-02', '2026-01-05')",
    "age = null",
    "age is null",
    "age is not null and x is not null",
    "age between 12 and 60",
    "age not between 12 and 60",
    "age > -5 and age < -3",
    "age = -4",
    "small % 2 = 1",
    "age % 7 = 5",
    "x > 1.5",
    "x * 2 > 2.5 and x / 4 < 30",
    "x + age > 50 or x - age > 50",
    "abs(x) = 2",
    "-x = 2",
    "x = 1e2 + 0.25",
    "city like 'R%'",
    "city ilike 'r_me'",
    "city not like '%a%'",
    "city not ilike 'R%' and city !~~ 'x'",
    "ifnull(age, 5) = 5 and mod(age, 2) = 1",
    "x isnull or x notnull",
    "lower(city) = 'rome' and upper(city) <> 'X'",
    "length(city) > 4",
    "length(city) = 9",
    "city = ''",
    "city > 'N'",
    "city in ('Rome', 'Milan')",
    "coalesce(age, 99) = 99",
    "coalesce(city, 'none') = 'none'",
    "yes",
    "not yes",
    "yes is true",
    "yes is not true",
    "yes is false",
    "yes = false",
    "day > '2026-01-03'",
    "day >= date '2026-01-02' and day < date '2026-01-04'",
    "day = '2026-01-05' or day is null",
    "price > 2.5",
    "price * price = 9",
    "price = age - 10",
    "try_cast(city as double) is null",
    "cast(age as varchar) = '12'",
    "cast(yes as varchar) = 'true'",
    "cast(day as varchar) like '2026%'",
    "age > 5 -- older than five",
    "age /* years */ > 5",
    "((age)) > (5)",
    "true",
    "age > 60 is not null",
]


@pytest.fixture(scope="module")
def ordinary():
    table = open_source(pa.table(ORDINARY), name="people").table
    table.get_backend().con.register("frame", pa.table(ORDINARY))  # as DuckDB itself sees it
    return table


def chosen(table, where):
    """The ages, in order, of the rows that the filter holds for."""
    with quiet():
        return table.filter(row_filter(where, table)).to_pyarrow()["x"].to_pylist()


@pytest.mark.parametrize("text", SAME_AS_SQL)
def test_a_filter_means_what_sql_means(ordinary, text):
    plain = ordinary.get_backend().con.sql(f"SELECT x FROM frame WHERE {text}\n").fetchall()
    assert chosen(ordinary, text) == [x for (x,) in plain]


EXPRESSIONS = [
    (lambda t: t.age > 60, "age > 60"),
    (ibis._.age.isin([12, 35]), "age in (12, 35)"),
    ((ibis._.age > 5) & ~(ibis._.x <= 0) | ibis._.yes, "age > 5 and not (x <= 0) or yes"),
    (lambda t: t.x.isnull() | t.age.notnull(), "x is null or age is not null"),
    (lambda t: t.city.like("R%") | t.city.ilike("mil%"), "city like 'R%' or city ilike 'mil%'"),
    (lambda t: (t.x * 2 + t.age / 3 - 1) > -t.x.abs(), "x * 2 + age / 3 - 1 > -abs(x)"),
    (lambda t: t.age.between(12, 60), "age between 12 and 60"),
    (lambda t: t.city.lower().length() > t.age % 7, "length(lower(city)) > age % 7"),
    (lambda t: ibis.coalesce(t.age, 99) == 99, "coalesce(age, 99) = 99"),
    (lambda t: t.day > datetime.date(2026, 1, 3), "day > '2026-01-03'"),
    (lambda t: t.day >= "2026-01-03", "day >= '2026-01-03'"),
    (lambda t: t.age.cast("float64") == 12.0, "age = 12"),
    (lambda t: t.city.try_cast("float64").isnull(), "try_cast(city as double) is null"),
    (lambda t: t.age.cast("string") == "12", "cast(age as varchar) = '12'"),
    (["age > 5", ibis._.x > 0, ("yes",)], "age > 5 and x > 0 and yes"),
]


@pytest.mark.parametrize(("expression", "text"), EXPRESSIONS)
def test_an_ibis_expression_means_the_same(ordinary, expression, text):
    assert chosen(ordinary, expression) == chosen(ordinary, text)


REFUSED = [
    ("age > 60; drop table people", "one condition, got 2 statements"),
    ("select 1", "may not contain a subquery"),
    ("age > (select max(age) from people)", "may not contain a subquery"),
    ("age in (select age from people)", "may not contain a subquery"),
    ("exists (select 1 from people)", "may not contain a subquery"),
    ("age > all (select age from people)", "may not contain"),
    ("age = any (select age from people)", "may not contain"),
    ("age in unnest([1, 2])", "may not contain"),
    ("age in city", "may not contain"),
    ("age between symmetric 60 and 12", "may not contain"),
    ("people.age > 60", "own columns by name alone"),
    ("other.age > 60", "own columns by name alone"),
    ("salary > 5", "column must be one of age, small"),
    ("max(age) > 5", "may not contain"),
    ("count(*) > 5", "may not contain"),
    ("count(*) over () > 5", "may not contain"),
    ("lag(age) over (order by x) > 5", "may not contain"),
    ("row_number() over () = 1", "may not contain"),
    ("random() < 0.5", "may not contain"),
    ("now() > '2026-01-01'", "may not contain"),
    ("error('boo')", "may not contain"),
    ("read_csv('/etc/passwd') is null", "may not contain"),
    ("sqrt(x) > 1", "may not contain"),
    ("ln(x) > 1", "may not contain"),
    ("x ^ 2 > 1", "may not contain"),
    ("age // 0 = 1", "may not contain"),
    ("city || 'a' = 'b'", "may not contain"),
    ("case when age > 5 then 1/0 else true end", "may not contain"),
    ("regexp_matches(city, '(a+)+$')", "may not contain"),
    ("city similar to 'a'", "may not contain"),
    ("age is distinct from 5", "may not contain"),
    ("cast(city as int) = 5", "casts to DOUBLE or VARCHAR"),
    ("cast(city as date) = '2026-01-01'", "casts to DOUBLE or VARCHAR"),
    ("city::int[] is null", "casts to DOUBLE or VARCHAR"),
    ("*", "may not contain"),
    ("(age, x) = (1, 2)", "may not contain"),
    ("age > $1", "may not contain"),
    ("age > ?", "may not contain"),
    ("age", "true or false on every row"),
    ("1", "true or false on every row"),
    ("'yes'", "true or false on every row"),
    ("age and yes", "true or false on every row"),
    ("not age", "true or false on every row"),
    ("yes = 1", "cannot compare boolean with int8"),
    ("yes > 'a'", "cannot compare"),
    ("age = true", "cannot compare"),
    ("day > 5", "cannot compare"),
    ("day > city", "not with a text column"),
    ("day > 'tomorrow'", "must be like 2026-11-15"),
    ("lower(age) = 'a'", "text function needs text"),
    ("age like 'a%'", "text function needs text"),
    ("city like city", "LIKE takes a pattern in quotes"),
    ("city like 'a\\%'", "no backslash"),
    ("city like 'a!%' escape '!'", "may not contain"),
    ("x % 2 = 1", "remainder takes a whole-number column"),
    ("age % 0 = 1", "remainder takes a whole-number column"),
    ("age % small = 1", "remainder takes a whole-number column"),
    ("yes + day > 1", "arithmetic needs numbers"),
    ("coalesce(day, city) is null", "values of one type"),
    ("x > 1e400", "must be finite"),
    ("x > -1e400", "must be finite"),
    ("age > ", "is not a condition"),
    ("age > 60 limit 5", "is not a condition"),
    ("age > 60 order by age", "is not a condition"),
    ("'unclosed", "is not a condition"),
    ("", "one condition"),
    (";", "one condition"),
    ("age > 1 union select 1", "is not a condition|subquery"),
    ("(" * 5000 + "age > 1" + ")" * 5000, "nested"),
    (" and ".join(["age > 1"] * 500), "nested"),
    ("not " * 2000 + "yes", "nested"),
    ("x" + " + 1" * 200 + " > 1", "nested"),
    ("x*x*x*x*x*x*x > 1", "arithmetic in a filter may be nested 5 deep"),
    ("city = '" + "a" * 200_000 + "'", "may have 100,000 characters"),
    ("attach 'x.db'", "may not contain|is not a condition"),
    ("pragma database_list", "may not contain|is not a condition"),
    ("copy people to 'x.csv'", "may not contain|is not a condition"),
]


@pytest.mark.parametrize(("text", "words"), REFUSED, ids=[text[:40] for text, _ in REFUSED])
def test_what_is_no_filter_is_refused(ordinary, text, words, caplog):
    with pytest.raises(ValueError, match=words):
        row_filter(text, ordinary)


@ibis.udf.scalar.python
def shady(x: int) -> bool:
    return x > 1


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        (lambda t: shady(t.age), "may not contain"),
        (lambda t: ibis.random() < 0.5, "may not contain"),
        (lambda t: t.age > t.age.max(), "may not contain"),
        (lambda t: t.age.lag() > 1, "may not contain"),
        (lambda t: ibis.row_number() == 0, "may not contain"),
        (lambda t: t.age.isin(t.age), "may not contain"),
        (lambda t: t.city.re_search("(a+)+"), "may not contain"),
        (lambda t: ibis.ifelse(t.age > 1, t.yes, None), "may not contain"),
        (lambda t: t.age.cast("int8") > 1.5, None),
        (lambda t: t.x.cast("int64") > 1, "casts to float64 or to text"),
        (lambda t: t.city.cast("int64") > 1, "casts to float64 or to text"),
        (lambda t: t.x > float("inf"), "must be finite"),
        (lambda t: t.x > float("nan"), "must be finite"),
        (lambda t: t.salary > 1, "does not fit the table"),
        (ibis._.salary > 1, "does not fit the table"),
        (lambda t: t, "got Table"),
        (lambda t: 5, "got int"),
        (5, "got int"),
        (object(), "got object"),
        (lambda t: t.count() > 5, "may not contain"),
        (lambda t: t.city.like(t.city), "constant pattern"),
        (ibis.table({"age": "int64"}, name="other").age > 5, "of another table"),
        (ibis.memtable({"age": [1, 2]}).age > 5, "of another table"),
    ],
)
def test_what_is_no_ibis_filter_is_refused(ordinary, expression, words):
    if words is None:
        row_filter(expression, ordinary)
        return
    with pytest.raises(ValueError, match=words):
        row_filter(expression, ordinary)


def test_long_lists_are_fine(ordinary):
    assert len(chosen(ordinary, f"age in ({', '.join(map(str, range(1000)))})")) == 4
    texts = ", ".join(f"'{n}'" for n in range(3000))
    assert len(chosen(ordinary, f"city in ({texts}, '')")) == 1


def test_numbers_beyond_64_bits_are_compared_as_doubles(ordinary):
    assert len(chosen(ordinary, f"age < {10**30}")) == 5
    assert len(chosen(ordinary, "age > -99999999999999999999")) == 5


def test_every_expression_has_its_own_words(ordinary):
    where = [lambda t: t.age > 60, ibis._.age > 61, ibis._.x > 60, ibis._.age.isin([1, 2]), "yes"]
    named = named_filter(where, ordinary)
    assert len({describe_filter(part) for part in named}) == 5
    assert describe_filter(named) == (
        "(greater(age, 60)) and (greater(age, 61)) and (greater(x, 60)) and (invalues(age, [1, 2]))"
        " and (yes)"
    )


# --- adversarial rows ---------------------------------------------------------------------------

EVERYTHING = [
    "f > 0",
    "f = 5e-324",
    "f is null",
    "f in (1, 2)",
    "f between -1 and 1e308",
    "f * f > 1",
    "f * f * f * f < 1",
    "f / f > 0",
    "1 / f > 0",
    "f / 0 > 0",
    "f + f + f > 0",
    "f - f = 0",
    "-f < abs(f)",
    "r * r * r > 0",
    "r = 1e-45",
    "i + i > 0",
    "i * i > 0",
    "-i > 0",
    "abs(i) >= 9223372036854775807",
    "i % 7 = 1",
    "i / i > 0.5",
    "i > 9223372036854775806",
    "i = -9223372036854775808",
    "i < f",
    "n > 1",
    "n * n > 1",
    "n + i < f",
    "1 / n > 0",
    "n is null",
    "n in (1, 2.5)",
    "coalesce(f, n, i) > 0",
    "m * m * m * m > 1",
    "m = n",
    "length(s) > 2",
    "lower(s) like '%x%' or upper(s) > 'Z'",
    "s in ('', 'nan')",
    "d > '2020-01-01'",
    "d is null or d < '9999-12-31'",
    "ts > '2020-01-01 10:00:00'",
    "b and not b",
    "b is not true",
    "cast(f as varchar) = 'NaN'",
    "cast(i as varchar) like '%0%'",
    "cast(n as varchar) <> ''",
    "cast(d as varchar) > '2'",
]
ON_TEXT = ["s > 1", "s = i", "try_cast(s as double) * f > 0", "s between -1 and 1"]


def held(table, filters):
    """For each row, which of the filters hold; all of them in one statement."""
    marked = table.select("k", **{f"f{i}": row_filter(f, table) for i, f in enumerate(filters)})
    return {row.pop("k"): tuple(row.values()) for row in fetch(marked, "testing")}


def check_totality(make, rows, filters, alone=3):
    """No filter fails on any row, none is NULL, and each row's result is its own."""
    together = held(make(rows), filters)
    assert len(together) == len(rows)
    assert all(value in (True, False) for row in together.values() for value in row)
    for k in (len(rows) - 1, len(rows) // 2, 0)[:alone]:
        assert held(make(rows[k : k + 1]), filters) == {k: together[k]}
    return together


FLOATS = ["1e308", "-1e308", "5e-324", "-5e-324", "0", "-0", "1e-308", "1", "-3.5"]
STRANGE = ["NaN", "Infinity", "-Infinity"]
WHOLES = [str(2**63 - 1), str(-(2**63)), "0", "1", "-1", None]
TEXTS = ["x", "", "nan", "1e999", "0x1f", " 7 ", "1", "é\u0301", None, "'; drop table t; --"]
DECIMALS = ["99999999.99", "-99999999.99", "0.01", "0", None]


def adversarial(dates, numerics, moments):
    """Rows in which each column goes through all of its values."""
    floats = FLOATS + STRANGE + [None]
    size = 2 * max(map(len, (floats, TEXTS, dates, numerics)))

    def at(values, k, stride=1):
        return values[k * stride % len(values)]

    return [
        (
            k,
            at(floats, k),
            at([*STRANGE, "1e-45", "3e38", None], k),
            at(WHOLES, k),
            at(numerics, k),
            at(DECIMALS, k),
            at(TEXTS, k),
            at(["true", "false", None], k),
            at(dates, k),
            at(moments, k),
        )
        for k in range(size)
    ]


TYPES = "k INT, f DOUBLE, r REAL, i BIGINT, n {n}, m DECIMAL(10,2), s {s}, b BOOLEAN, d DATE"


def test_no_row_makes_a_filter_fail_in_duckdb():
    rows = adversarial(
        ["2026-01-01", "infinity", "-infinity", "5877642-06-25 (BC)", "5881580-07-10", None],
        ["99999999999999999.9", "-0.00000000000000000001", "0", None],
        ["2026-01-01", "infinity", "-infinity", "290309-12-22 (BC) 00:00:00", None],
    )
    connection = ibis.duckdb.connect()

    def make(some):
        columns = TYPES.format(n="DECIMAL(38,20)", s="VARCHAR")
        connection.raw_sql(f"CREATE OR REPLACE TABLE t ({columns}, ts TIMESTAMP)")
        connection.con.executemany(f"INSERT INTO t VALUES ({', '.join('?' * 10)})", some)
        with quiet():
            return connection.table("t")

    together = check_totality(make, rows, [*EVERYTHING, *ON_TEXT])
    first = dict(zip([*EVERYTHING, *ON_TEXT], zip(*together.values(), strict=True), strict=True))
    missing = [math.isnan(float(r[1])) or math.isinf(float(r[1])) if r[1] else True for r in rows]
    assert list(first["f is null"]) == missing
    assert not any(first["f / 0 > 0"])
    assert not any(first["b and not b"])


def test_no_row_makes_a_filter_fail_in_postgresql(postgres):
    numerics = ["1e400", "-1e400", "1e-400", "-1e-400", "NaN", "Infinity", "-Infinity", "1", None]
    rows = adversarial(
        ["2026-01-01", "infinity", "-infinity", "4713-01-01 BC", "5874897-12-31", None],
        numerics,
        ["2026-01-01", "infinity", "-infinity", "294276-12-31", None],
    )

    def make(some):
        columns = TYPES.format(n="NUMERIC", s="TEXT").replace("DOUBLE", "DOUBLE PRECISION")
        with postgres.con.cursor() as cursor:
            cursor.execute(f"DROP TABLE IF EXISTS t; CREATE TABLE t ({columns}, ts TIMESTAMP)")
            cursor.executemany(f"INSERT INTO t VALUES ({', '.join(['%s'] * 10)})", some)
        postgres.con.commit()
        return postgres.table("t")

    check_totality(make, rows, EVERYTHING)
    for text in ON_TEXT:
        with pytest.raises(ValueError, match="must be numeric, got string"):
            row_filter(text, make([]))


@pytest.mark.slow
def test_no_row_makes_a_filter_fail_in_spark(spark):
    rows = adversarial(
        ["2026-01-01", "0001-01-01", "9999-12-31", None],
        ["99999999999999999.9", "-0.00000000000000000001", "0", None],
        ["2026-01-01", "0001-01-01", "9999-12-31", None],
    )
    kinds = dict(
        part.split(" ") for part in TYPES.format(n="DECIMAL(38,20)", s="STRING").split(", ")
    )

    def make(some):
        frame = spark._session.createDataFrame(
            [tuple(None if v is None else str(v) for v in row) for row in some],
            ", ".join(f"{name} STRING" for name in [*kinds, "ts"]),
        )
        cast = [f"CAST({name} AS {kind}) {name}" for name, kind in kinds.items()]
        frame.selectExpr(*cast, "CAST(ts AS TIMESTAMP_NTZ) ts").createOrReplaceTempView("t")
        return spark.table("t")

    check_totality(make, rows, [*EVERYTHING, *ON_TEXT], alone=1)
