"""Tables, from files, frames and databases, and every kind of question about them.

The neighbour lacks one unit's rows, or has them blanked. Both tables are asked with the same coins,
so that the same rows of the other units are kept and the same noise is drawn: answers may differ by
what the unit adds to the exact ones, which the noise must be able to hide. How much that is, is
read off the answers' own intervals: a Laplace scale b and epsilon promise that the exact numbers
differ by at most sum |difference| / b <= epsilon.
"""

from __future__ import annotations

import atexit
import contextlib
import datetime
import functools
import itertools
import math
import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import quote

import numpy as np
from tests.coins import same_coins
from tests.databases import has_java, server_programs, server_with_collations, spark_session
from tests.neighbours.cells import Column, arrow_table, frame_of_objects
from tests.neighbours.harness import Case, Outcome, UnusableError, differences, done, making
from tests.odd_objects import Odd

__all__ = [
    "Column",
    "Decimal",
    "Odd",
    "Question",
    "TableCase",
    "asked",
    "datetime",
    "inf",
    "nan",
    "np",
    "too_far",
]

inf, nan = math.inf, math.nan  # as cases write them
COINS = 20261119
EPSILON = 0.02  # so that the noise is wide beside the grid of whole numbers
TAIL = math.log(20)  # of a Laplace distribution: where 95 % end, in scales
_SLACK = 1.1  # intervals end at whole numbers of a grid
_numbers = itertools.count()


@dataclass(frozen=True)
class Question:
    """One question of the public door: a method, its arguments, and what it is grouped by."""

    name: str = "count"
    arguments: tuple[Any, ...] = ()
    options: tuple[tuple[str, Any], ...] = ()
    by: tuple[str, ...] = ()
    keys: Any = None
    private_keys: bool = False
    where: tuple[str, ...] = ()

    @property
    def adds_up(self) -> bool:
        """Whether noise is added to the exact numbers, so that they can be compared."""
        counted = ("count", "count_units", "sum", "histogram", "crosstab")
        return self.name in counted and not self.private_keys

    def traits(self) -> set[str]:
        """What kind of question it is."""
        found = {self.name, *(name for name, _ in self.options)}
        found |= {"filtered"} if self.where else set()
        found |= {"grouped"} if self.by else set()
        return found | ({"private keys"} if self.private_keys else set())

    def ask(self, table: Any) -> Any:
        """The answer."""
        if self.where:
            table = table.where(*self.where)
        if self.by and self.private_keys:
            table = table.group_by(*self.by, private_keys=True)
        elif self.by:
            table = table.group_by(*self.by, keys=self.keys)
        extra = {"delta": 1e-6} if self.private_keys else {}
        return getattr(table, self.name)(
            *self.arguments, epsilon=EPSILON, **extra, **dict(self.options)
        )


def asked(outcome: Outcome, table: Any, questions: Sequence[Question]) -> None:
    """Asks one after the other, and notes what is seen."""
    outcome.shape, outcome.numbers, outcome.told = [table.columns], [], []
    for number, question in enumerate(questions):
        try:
            with same_coins(COINS + 1 + number):  # whatever the one before drew
                answer = question.ask(table)
        except Exception as error:  # whatever it is, it must be the neighbour's, too
            outcome.shape.append(f"{type(error).__name__}: {error}")
            outcome.numbers.append([])
            outcome.told.append([])
            continue
        outcome.shape.append(
            {
                "cells": [] if question.private_keys else [cell.keys for cell in answer.cells],
                "keys": answer.key_names,
                "note": answer.note,
                "cost": str(answer.guarantee),
                "left": answer.remaining,
                "kinds": sorted({type(cell.value).__name__ for cell in answer.cells}),
            }
        )
        outcome.told.append([cell.keys for cell in answer.cells])
        adds = question.adds_up
        outcome.numbers.append([(c.value, c.low, c.high) for c in answer.cells] if adds else [])


def too_far(one: Outcome, two: Outcome) -> list[str]:
    """Whether the noise is too small to hide the difference of two answers with the same noise."""
    found: list[str] = []
    for here, there in zip(one.numbers or [], two.numbers or [], strict=False):
        moved = 0.0
        for (a, low, high), (b, _, _) in zip(here, there, strict=False):
            if low is None or high is None or a == b:
                continue
            width = max(high - a, a - low)  # a count's ends at 0
            moved += abs(a - b) / (width / TAIL) if width > 0 else math.inf
        if moved > EPSILON * _SLACK:
            values = [[cell[0] for cell in each] for each in (here, there)]
            found.append(f"an answer moves by {moved:.3g}, not {EPSILON}: {values[0]}, {values[1]}")
    return found


@dataclass(frozen=True)
class TableCase(Case):
    """A table, the rows that its neighbour lacks, and a question.

    Attributes:
        source: what the table is when it is protected.
        columns: with their cells.
        victim: numbers of the rows of the unit that comes and goes.
        unit: the unit's column, or None where each row is a unit.
        rows: most rows of a unit.
        groups: most groups of a unit.
        relation: add-remove, or zero-out.
        questions: what is asked.
        types: what columns of text stand for.
        first: the unit's column with which the dataset was opened before, where it was.
    """

    kind: ClassVar[str] = "tables"
    source: str
    columns: tuple[Column, ...]
    victim: tuple[int, ...]
    unit: str | None = None
    rows: int = 1
    groups: int | None = None
    relation: str = "add-remove"
    questions: tuple[Question, ...] = (Question(),)
    types: tuple[tuple[str, str], ...] = ()
    first: str | None = ""

    def broken(self) -> list[str]:
        """Other errors, other shapes, or numbers too far apart."""
        one, two = self._outcome(self.columns), self._outcome(self._neighbour())
        return [*differences(one, two), *too_far(one, two), *self._told_of_her(one)]

    def _told_of_her(self, outcome: Outcome) -> list[str]:
        """Keys that nobody declared, and that no one but her has."""
        mine, columns = set(self.victim), {column.name: column.cells for column in self.columns}
        found = []
        for question, answered in zip(self.questions, outcome.told, strict=False):
            for i, name in enumerate(question.by if question.private_keys else ()):
                hers = {_written(cell) for j, cell in enumerate(columns[name]) if j in mine}
                others = {_written(cell) for j, cell in enumerate(columns[name]) if j not in mine}
                if alone := (hers - others) & {str(keys[i]) for keys in answered}:
                    found.append(f"keys that one unit alone has are told: {sorted(alone)}")
        return found

    def traits(self) -> frozenset[str]:
        """Types of columns, and kinds of questions."""
        found = {column.type for column in self.columns}
        found |= set().union(*(question.traits() for question in self.questions))
        found |= {"a unit's column"} if self.unit is not None else set()
        found |= {"opened before"} if self.first != "" else set()
        return frozenset(found | {self.relation} | ({"types"} if self.types else set()))

    def _neighbour(self) -> tuple[Column, ...]:
        gone = set(self.victim)

        def cells(column: Column) -> tuple[Any, ...]:
            kept = self.first if self.first != "" else self.unit
            if self.relation == "add-remove":
                return tuple(c for i, c in enumerate(column.cells) if i not in gone)
            if column.name == kept:
                return column.cells
            return tuple(None if i in gone else c for i, c in enumerate(column.cells))

        return tuple(replace(column, cells=cells(column)) for column in self.columns)

    def _outcome(self, columns: tuple[Column, ...]) -> Outcome:
        folder = Path(tempfile.mkdtemp(prefix="pair"))
        try:
            with contextlib.closing(made(self.source, columns, folder)) as table:
                hidden = [text for text in (str(folder), table.named) if text]
                return done(lambda out: self._open_and_ask(out, table, folder), hidden, COINS)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _open_and_ask(self, outcome: Outcome, source: Made, folder: Path) -> None:
        import sfumato as sf

        ledger = f"sqlite:///{folder}/ledger.db"

        def opened(unit: str | None, **more: Any) -> Any:
            if unit is not None:
                more |= {"unit": unit, "max_rows_per_unit": self.rows}
            return sf.protect(
                source.given, name="data", ledger=ledger, neighbours=self.relation,
                types=dict(self.types) or None, **source.options, **more,
            )  # fmt: skip

        budget = sf.Budget(100, 1e-3)
        if self.first != "":
            opened(self.first, budget=budget, unit_name="person").count(epsilon=EPSILON)
            table = opened(self.unit, unit_name="person")
        else:
            groups = {} if self.groups is None else {"max_groups_per_unit": self.groups}
            table = opened(self.unit, budget=budget, **groups)
        asked(outcome, table, self.questions)


def _written(cell: Any) -> str:
    """A stored cell, or a literal of it, as its key is written."""
    text = cell.decode(errors="replace") if isinstance(cell, bytes) else str(cell)
    return text.strip("'")


# --- sources --------------------------------------------------------------------------------------


@dataclass
class Made:
    """What is protected, and how to let go of it."""

    given: Any
    options: dict[str, Any]
    close: Callable[[], None] = lambda: None
    named: str = ""


def made(source: str, columns: tuple[Column, ...], folder: Path) -> Made:
    """The table as a source of that kind.

    Raises:
        UnusableError: if it cannot hold these cells; that is somebody else's error.
    """
    if source == "duckdb":
        return _in_duckdb(columns, folder)
    if source == "postgres":
        return _in_postgres(columns)
    if source == "spark":
        return _in_spark(columns)
    if source == "pandas, objects":
        with making():
            return Made(frame_of_objects(columns), {})
    table = arrow_table(columns)
    if source == "arrow":
        return Made(table, {})
    with making():
        if source == "parquet":
            import pyarrow.parquet as pq

            pq.write_table(table, folder / "data.parquet")
            return Made(str(folder / "data.parquet"), {})
        if source == "polars":
            import polars as pl

            return Made(pl.from_arrow(table), {})
        if source == "pandas, arrow":
            import pandas as pd

            return Made(table.to_pandas(types_mapper=pd.ArrowDtype), {})
        return Made(_as_pandas(table), {})


def _as_pandas(table: Any) -> Any:
    """With types that hold missing values: NumPy's depend on whether there are any."""
    import pandas as pd
    import pyarrow as pa

    wholes = {f"{sign}int{bits}": bits for sign in ("", "u") for bits in (8, 16, 32, 64)}
    kinds = {getattr(pa, name)(): getattr(pd, _capital(name) + "Dtype")() for name in wholes}
    kinds |= {pa.bool_(): pd.BooleanDtype(), pa.float64(): pd.Float64Dtype()}
    return table.to_pandas(types_mapper=kinds.get)


def _capital(name: str) -> str:
    return name.replace("u", "U").replace("int", "Int")


def _in_duckdb(columns: tuple[Column, ...], folder: Path) -> Made:
    import duckdb

    connection = duckdb.connect(str(folder / "data.duckdb"))
    try:
        _fill(connection.execute, columns, duckdb.Error)
    finally:
        connection.close()
    return Made(f"duckdb://{folder}/data.duckdb", {"table": "t"})


def _fill(execute: Callable[[str], Any], columns: tuple[Column, ...], failure: type) -> None:
    try:
        execute("CREATE TABLE t (" + ", ".join(f'"{c.name}" {c.type}' for c in columns) + ")")
        for row in zip(*(column.cells for column in columns), strict=True):
            execute(f"INSERT INTO t VALUES ({', '.join(c or 'NULL' for c in row)})")
    except failure as error:
        raise UnusableError(str(error)) from error


_OPEN = contextlib.ExitStack()


@functools.cache
def _postgres() -> str:
    """A server that runs as long as this process."""
    if not server_programs():
        raise UnusableError("there is no PostgreSQL")
    atexit.register(_OPEN.close)
    return _OPEN.enter_context(server_with_collations())


def _in_postgres(columns: tuple[Column, ...]) -> Made:
    import psycopg

    server, schema = _postgres(), f"pair_{next(_numbers)}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {schema}")
        connection.execute(f"SET search_path TO {schema}, public")

        def close() -> None:
            with psycopg.connect(server, autocommit=True) as again:
                again.execute(f"DROP SCHEMA {schema} CASCADE")

        try:
            _fill(connection.execute, columns, psycopg.Error)
        except UnusableError:
            close()
            raise
    options = quote(f"-csearch_path={schema},public")
    return Made(f"{server}&options={options}", {"table": "t"}, close, schema)


@functools.cache
def _spark() -> Any:
    """A session that runs as long as this process, and does not compile every question to Java."""
    import ibis

    if not has_java():
        raise UnusableError("there is no Java")
    atexit.register(_OPEN.close)
    session = _OPEN.enter_context(spark_session())
    session.conf.set("spark.sql.codegen.wholeStage", "false")
    session.conf.set("spark.sql.codegen.factoryMode", "NO_CODEGEN")
    session.conf.set("spark.sql.adaptive.enabled", "false")
    return ibis.pyspark.connect(session)


def _in_spark(columns: tuple[Column, ...]) -> Made:
    from pyspark.errors import PySparkException

    engine, name = _spark(), f"pair_{next(_numbers)}"
    session = engine._session
    cast = [
        [f"CAST({cell or 'NULL'} AS {column.type})" for cell in column.cells] for column in columns
    ]
    rows = ", ".join(f"({', '.join(row)})" for row in zip(*cast, strict=True))
    names = ", ".join(f"`{column.name}`" for column in columns)
    fields = ", ".join(f"CAST(NULL AS {column.type}) AS `{column.name}`" for column in columns)
    text = f"SELECT * FROM VALUES {rows} AS t({names})" if rows else f"SELECT {fields} LIMIT 0"
    try:
        kept = session.sql(text).localCheckpoint()  # computed here, where errors are the input's
        kept.createOrReplaceTempView(name)
    except PySparkException as error:
        raise UnusableError(str(error).partition("\n")[0]) from error

    def close() -> None:
        session.catalog.dropTempView(name)

    return Made(engine.table(name), {}, close, name)
