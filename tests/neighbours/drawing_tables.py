"""Strategies that make cases of tables, of delimited lines among them."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st
from tests.neighbours.cells import (
    ARROW,
    DUCKDB,
    OBJECTS,
    POSTGRES,
    SPARK,
    Column,
    readable,
)
from tests.neighbours.tables import Question, TableCase

__all__ = ["table_cases", "unit_cases"]

_IN_SQL = {"duckdb": DUCKDB, "postgres": POSTGRES, "spark": SPARK}
_FRAMES = ("arrow", "parquet", "polars", "pandas", "pandas, arrow")
_OBJECTS = "pandas, objects"
_SOURCES = (*_FRAMES, _OBJECTS, "duckdb")
_NUMBERS = re.compile(
    r"u?int|float|decimal|INT|DOUBLE|FLOAT|DECIMAL|numeric|double|real|small|big|duration"
)
_TEXTS = re.compile("string$|CHAR|text|char|cit|STRING")
_LITERALS = (
    *("0", "1", "-1", "0.1", "'rome'", "'ROME'", "''", "NULL", "9223372036854775807", "1e308"),
    *("DATE '2020-01-01'", "TIMESTAMP '2020-01-01 00:00:00'", "true"),
)
_FILTERS = (
    *('"{a}" IS NULL', '"{a}" IS NULL', '"{a}" IS NOT NULL', '"{a}" = {v}', '"{a}" <> {v}'),
    *('"{a}" < {v}', '"{a}" >= {v}', '"{a}" IN ({v}, {w})', '"{a}" NOT IN ({v}, {w})'),
    *('"{a}" BETWEEN {v} AND {w}', '"{a}" = "{b}"', '"{a}" < "{b}"', '"{a}" / "{b}" > {v}'),
    *('"{a}" * "{b}" > {v}', '"{a}" + "{b}" > {v}', '"{a}" % 2 = 1', 'length("{a}") > 1'),
    *("\"{a}\" LIKE 'r%'", "\"{a}\" ILIKE 'R%'", 'lower("{a}") = {v}', 'NOT ("{a}" = {v})'),
    *('"{a}" = {v} OR "{b}" IS NULL', '"{a}" > {v} AND "{b}" < {w}', '-"{a}" > {v}'),
    *('abs("{a}") > {v}', 'CAST("{a}" AS DOUBLE) > {v}', 'CAST("{a}" AS BIGINT) = {v}'),
    *('coalesce("{a}", {v}) = {w}', 'CASE WHEN "{a}" = {v} THEN true ELSE false END'),
)  # fmt: skip


def _pool(source: str) -> Any:
    return OBJECTS if source == _OBJECTS else _IN_SQL.get(source, ARROW)


def _key(source: str, cell: Any) -> Any:
    """A stored cell, or a literal, as one writes it among keys; None where one cannot."""
    if source not in _IN_SQL:
        return readable(cell)
    if re.fullmatch(r"'[^']*'", cell):
        return cell[1:-1]
    return int(cell) if re.fullmatch(r"-?\d+", cell) else None


def _identifier(source: str, number: int) -> Any:
    if source in _IN_SQL:
        return str(number)
    return number


@st.composite
def _cells(draw: st.DrawFn, pool: Sequence[Any]) -> Any:
    """Any cells, or such as some would take for the same: of another case, accent or blank."""
    cell = draw(st.sampled_from(pool))
    alike = [other for other in pool if _folded(other) == _folded(cell)]
    return st.sampled_from(alike if len(alike) > 1 and draw(st.booleans()) else pool)


def _folded(cell: Any) -> str:
    text = cell.decode(errors="replace") if isinstance(cell, bytes) else str(cell)
    text = text.replace("'e' || chr(769)", "e").strip("' ")
    letters = unicodedata.normalize("NFKD", text)
    return "".join(c for c in letters if not unicodedata.combining(c)).casefold().strip()


@st.composite
def _columns(draw: st.DrawFn, source: str, least: int = 1) -> tuple[tuple[Column, ...], bool]:
    """Columns, and whether the first holds numbers of units, each with the same few rows."""
    pool = _pool(source)
    kind = st.sampled_from(sorted(pool))
    texts = st.sampled_from([k for k in sorted(pool) if _TEXTS.search(k)])
    kinds = draw(st.lists(st.one_of(kind, kind, texts), min_size=least, max_size=3))
    names = draw(st.permutations(["x", "city", "m", "Name", "a b", "count"]))[: len(kinds)]
    if draw(st.integers(0, 30)) == 0:
        names = [*names[:-1], draw(st.sampled_from(["x", "X", "person"]))]
    few = [
        draw(st.lists(draw(_cells(pool[k])), min_size=1, max_size=4, unique_by=repr)) for k in kinds
    ]
    choices = [st.sampled_from([*cells, None]) for cells in few]
    alike = draw(st.booleans())
    if not alike:
        rows = draw(st.lists(st.tuples(*choices), min_size=1, max_size=9))
        return tuple(
            Column(name, kind, cells)
            for name, kind, cells in zip(names, kinds, zip(*rows, strict=True), strict=True)
        ), False
    pattern = draw(st.lists(st.tuples(*choices), min_size=1, max_size=4))
    units = draw(st.sampled_from([3, 30] if source != "spark" else [3, 6]))
    whole = {"postgres": "bigint"}.get(source, "BIGINT" if source in _IN_SQL else "int64")
    ids = tuple(_identifier(source, u) for u in range(units) for _ in pattern)
    every = [row for _ in range(units) for row in pattern]
    others = tuple(
        Column(name, kind, cells)
        for name, kind, cells in zip(names, kinds, zip(*every, strict=True), strict=True)
    )
    return (Column("person", whole, ids), *others), True


@st.composite
def _question(draw: st.DrawFn, source: str, columns: tuple[Column, ...]) -> Question:
    return replace(draw(_unfiltered(source, columns)), where=draw(_filters(columns)))


@st.composite
def _unfiltered(draw: st.DrawFn, source: str, columns: tuple[Column, ...]) -> Question:
    def keys_of(column: Column) -> tuple[Any, ...]:
        found = {_key(source, cell) for cell in column.cells if cell is not None} - {None}
        more = draw(st.sampled_from([(), ("elsewhere",), (3,)]))
        return tuple(sorted(found, key=repr)) + more or ("nothing",)

    name = draw(
        st.sampled_from(
            (
                *("count", "count_units", "sum", "sum", "histogram", "histogram", "crosstab"),
                *("mean", "variance", "median", "quantile", "most_common", "arg_max"),
            )
        )
    )
    column = draw(st.sampled_from(columns))
    numbers = [c for c in columns if _NUMBERS.search(c.type)] or list(columns)
    number = draw(st.sampled_from(numbers)).name
    low, high = draw(st.sampled_from([(0.0, 1.0), (-10.0, 10.0), (-5.0, -1.0), (0.0, 1e6)]))
    options: list[tuple[str, Any]] = []
    if name in ("count", "count_units"):
        arguments: tuple[Any, ...] = ()
    elif name in ("sum", "mean", "variance"):
        arguments = (number, low, high)
        default = draw(st.sampled_from([None, None, high, low, 0.0]))
        options += [] if default is None else [("default", default)]
    elif name == "median":
        arguments = (number, low, high)
    elif name == "quantile":
        arguments = (number, 0.9, low, high)
    elif name == "histogram":
        if draw(st.booleans()):
            return Question(name, (column.name,), (("keys", keys_of(column)),))
        return Question(name, (number, [low, (low + high) / 2, high]))
    elif name == "crosstab":
        two = draw(st.permutations(columns))[:2]
        if len(two) < 2:
            return Question("count")
        return Question(
            name, tuple(c.name for c in two), (("keys", {c.name: list(keys_of(c)) for c in two}),)
        )
    elif name == "most_common":
        return Question(name, (column.name,), (("keys", keys_of(column)),))
    else:
        return Question(name, (column.name, number, low, high), (("keys", keys_of(column)),))
    if draw(st.integers(0, 2)) == 0:
        if draw(st.booleans()):
            return Question(name, arguments, tuple(options), (column.name,), None, True)
        return Question(name, arguments, tuple(options), (column.name,), keys_of(column))
    return Question(name, arguments, tuple(options))


@st.composite
def _filters(draw: st.DrawFn, columns: tuple[Column, ...]) -> tuple[str, ...]:
    if draw(st.integers(0, 2)) > 0:
        return ()
    a, b = (draw(st.sampled_from(columns)).name for _ in range(2))
    v, w = (draw(st.sampled_from(_LITERALS)) for _ in range(2))
    return (draw(st.sampled_from(_FILTERS)).format(a=a, b=b, v=v, w=w),)


def _victim(columns: tuple[Column, ...], unit: str | None, row: int) -> tuple[int, ...]:
    if unit is None:
        return (row,)
    cells = next(c.cells for c in columns if c.name == unit)
    if cells[row] is None:
        return (row,)
    return tuple(i for i, cell in enumerate(cells) if repr(cell) == repr(cells[row]))


@st.composite
def table_cases(draw: st.DrawFn, sources: tuple[str, ...] = _SOURCES) -> TableCase:
    """Any table, unit, bound, filter and question."""
    source = draw(st.sampled_from(sources))
    columns, numbered = draw(_columns(source))
    unit = "person" if numbered else draw(st.sampled_from([None, columns[0].name]))
    victim = _victim(columns, unit, draw(st.integers(0, len(columns[0].cells) - 1)))
    relation = "add-remove"
    if source != "pandas":
        relation = draw(st.sampled_from(["add-remove", "add-remove", "zero-out"]))
    most = 5 if source != "spark" else 2  # where each takes seconds
    questions = draw(st.lists(_question(source, columns), min_size=1, max_size=most))
    rows, types = 1, ()
    groups = None
    if unit is not None:
        rows = draw(st.sampled_from([1, 2, 5]))
        groups = draw(st.sampled_from([None, None, 1])) if rows > 1 else None
    texts = [c.name for c in columns if "string" in c.type and c.name != unit]
    if texts and draw(st.integers(0, 3)) == 0:
        types = ((texts[0], draw(st.sampled_from(["float64", "int64", "date", "bool"]))),)
    return TableCase(
        source, columns, victim, unit, rows, groups, relation, tuple(questions), types,
    )  # fmt: skip


@st.composite
def unit_cases(draw: st.DrawFn) -> TableCase:
    """A dataset that was opened with one unit column, and is opened with another, or none."""
    people, visits = draw(st.integers(1, 4)), draw(st.integers(1, 5))
    count = people * visits
    columns = (
        Column("person", "int64", tuple(i // visits for i in range(count))),
        Column("visit", "int64", tuple(range(count))),
        Column("x", "float64", tuple(draw(st.sampled_from([0.0, 1.0, 7.5])) for _ in range(count))),
    )
    first = draw(st.sampled_from(["person", "person", "visit", None]))
    unit = draw(st.sampled_from(["person", "visit", None]))
    questions = Question("count"), Question("count_units"), Question("sum", ("x", 0, 10))
    row = draw(st.integers(0, count - 1))
    return TableCase(
        draw(st.sampled_from(_FRAMES)), columns, _victim(columns, first, row), unit,
        draw(st.sampled_from([1, 2, 5])), None, "add-remove", questions, first=first,
    )  # fmt: skip
