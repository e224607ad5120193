"""Tables in memory, in PostgreSQL and in Spark, and protected ones with repeatable coins."""

import itertools
import os
import shutil
import warnings
from datetime import UTC, datetime

import ibis
import pytest

from sfumato.core import SeededCoins
from sfumato.ledger import Budget, Ledger
from sfumato.queries import protect

_numbers = itertools.count()


def standing_clock():
    return datetime(2026, 1, 15, 12, tzinfo=UTC)


@pytest.fixture
def new_ledger(tmp_path):
    """A function that opens a fresh ledger whose clock stands still."""

    def make():
        return Ledger(tmp_path / f"privacy_{next(_numbers)}.db", clock=standing_clock)

    return make


@pytest.fixture
def protected(new_ledger):
    """A function that protects a table with a large budget and repeatable coins."""

    def make(source, **options):
        options = {
            "name": "people",
            "budget": Budget(1e4, 1e-2),
            "ledger": new_ledger(),
            "coins": SeededCoins(1),
        } | options
        return protect(source, **options)

    return make


@pytest.fixture(scope="session")
def spark():
    """One Spark session on one thread, in ANSI mode as by default."""
    if not shutil.which("java") and not os.environ.get("JAVA_HOME"):
        pytest.skip("Spark needs Java, and there is none")
    pyspark_sql = pytest.importorskip("pyspark.sql")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Spark's own, about pandas and time zones
        session = (
            pyspark_sql.SparkSession.builder.master("local[1]")
            .config("spark.ui.enabled", "false")
            .config("spark.sql.shuffle.partitions", "1")
            .config("spark.ui.showConsoleProgress", "false")
            .config("spark.driver.host", "localhost")
            .getOrCreate()
        )
        session.sparkContext.setLogLevel("OFF")
        assert session.conf.get("spark.sql.ansi.enabled") == "true"
        yield ibis.pyspark.connect(session)
        session.stop()


@pytest.fixture(scope="module")
def postgres(server):
    """An Ibis connection to a PostgreSQL schema of the module's own."""
    from urllib.parse import quote

    import psycopg

    name = f"queries_{os.getpid()}_{next(_numbers)}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {name}")
    opened = ibis.connect(f"{server}&options={quote(f'-csearch_path={name}')}")
    opened.schema_name = name
    yield opened
    opened.disconnect()
