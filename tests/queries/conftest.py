"""Tables in memory, in PostgreSQL and in Spark, and protected ones with repeatable coins."""

import importlib.util
import itertools
import os
import sys
from datetime import UTC, datetime
from pathlib import Path

import ibis
import pytest
from tests.databases import has_java, server_programs, server_with_collations, spark_session

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
def fairness():
    """The benchmark of fair bounding as a module: its tables, and how unfair a choice is."""
    path = Path(__file__).parents[2] / "benchmarks" / "fair_bounding.py"
    spec = importlib.util.spec_from_file_location("fair_bounding", path)
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def spark():
    """One Spark session on one thread, in ANSI mode as by default."""
    if not has_java():
        pytest.skip("Spark needs Java, and there is none")
    pytest.importorskip("pyspark.sql")
    with spark_session() as session:
        yield ibis.pyspark.connect(session)


@pytest.fixture
def interpreted(spark):
    """Spark without compiling every question to Java, which takes most of the time."""
    settings = {
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.sql.adaptive.enabled": "false",
    }
    for name, value in settings.items():
        spark._session.conf.set(name, value)
    yield spark
    for name in settings:
        spark._session.conf.unset(name)


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


@pytest.fixture(scope="session")
def distribution():
    """The distribution's PostgreSQL, which has ICU's collations and citext, as a URL."""
    if not server_programs():
        pytest.skip("PostgreSQL with ICU is not installed: make setup")
    with server_with_collations() as url:
        yield url
