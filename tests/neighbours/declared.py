"""Data of one's own to train on: one row comes and goes, and the others' numbers stay the same.

What is declared is public. A row is read by itself: what stands in one changes no other row's
numbers, their type or order, and leads to no error, warning or record.
"""

from __future__ import annotations

import datetime
import shutil
import tempfile
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from hypothesis import strategies as st
from tests.neighbours.harness import Case, Outcome, UnusableError, differences, done, making
from tests.odd_objects import FAILURES, Odd, odd_object

__all__ = ["Decimal", "DeclaredCase", "Odd", "datetime", "declared_cases", "inf", "nan", "np"]

inf, nan = float("inf"), float("nan")  # as cases write them
_NAMES = ("x", "city", "ill", "person")


@dataclass(frozen=True)
class DeclaredCase(Case):
    """A table of four columns, and the row that its neighbour lacks.

    Attributes:
        source: what it is when it is read.
        rows: of cells; the last column's tell whose a row is.
        gone: the number of the row that comes and goes.
        numbers: whether the label is a number.
        owner: whether owners are read.
    """

    kind: ClassVar[str] = "declared"
    source: str
    rows: tuple[tuple[Any, ...], ...]
    gone: int = 0
    numbers: bool = False
    owner: bool = False

    def traits(self) -> frozenset[str]:
        """Types of cells."""
        return frozenset({self.source, *(type(cell).__name__ for row in self.rows for cell in row)})

    def broken(self) -> list[str]:
        """Other errors, or other numbers of other rows."""
        left = tuple(row for i, row in enumerate(self.rows) if i != self.gone)
        one, two = self._outcome(self.rows), self._outcome(left)
        found = differences(one, two)
        if one.numbers is None or two.numbers is None:
            return found
        for name, values in one.numbers.items():
            others = np.delete(values, self.gone, 0)
            same = others.dtype == two.numbers[name].dtype
            if not same or others.tolist() != two.numbers[name].tolist():
                found.append(f"{name} of others: {others.tolist()}, {two.numbers[name].tolist()}")
        return found

    def _outcome(self, rows: tuple[tuple[Any, ...], ...]) -> Outcome:
        folder = Path(tempfile.mkdtemp(prefix="pair"))
        try:
            source = self._made(rows, folder)
            return done(lambda out: self._read(out, source), [str(folder)])
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _read(self, outcome: Outcome, source: Any) -> None:
        import sfumato as sf

        columns = [
            sf.Column("x", lower=-5, upper=5, default=1),
            sf.Column("city", categories=("Rome", "Bari", "3")),
        ]
        label: dict[str, Any] = {"label_bounds": (0, 10)} if self.numbers else {"classes": (0, 1)}
        declared = sf.Declaration(
            sf.Features(columns=tuple(columns), label="ill", **label), records=10,
            **({"owner": "person", "rows_per_owner": 1} if self.owner else {}),
        )  # fmt: skip
        data = sf.load_own(source, declared)
        outcome.numbers = {"inputs": data.train.inputs, "labels": data.train.labels}
        if data.owners is not None:
            outcome.numbers["owners"] = np.array(_named(data.owners), object)
        outcome.shape = (data.classes, data.shape, data.bounds, data.public_size)

    def _made(self, rows: tuple[tuple[Any, ...], ...], folder: Path) -> Any:
        if self.source in ("csv", "parquet"):
            rows = tuple(tuple(None if type(c) is Odd else c for c in row) for row in rows)
        columns = {name: [_cell(row[i]) for row in rows] for i, name in enumerate(_NAMES)}
        if self.source == "lists":
            return lambda: columns
        if self.source == "arrays":
            return lambda: {name: _objects(cells) for name, cells in columns.items()}
        with making():
            if self.source == "polars":
                import polars as pl

                columns = {name: [*map(_simple, cells)] for name, cells in columns.items()}
                schema = {name: getattr(pl, _kind(name)) for name in _NAMES}
                frame = pl.DataFrame(columns, schema, strict=False)
                return lambda: frame
            import pandas as pd

            if self.source == "pandas, categories":
                simple = {name: [*map(_held, cells)] for name, cells in columns.items()}
                kept = pd.DataFrame(simple, dtype=object).astype("category")
                return lambda: kept
            arrays = {name: _objects(cells) for name, cells in columns.items()}
            table = pd.DataFrame(
                {name: pd.Series(cells, dtype=object) for name, cells in arrays.items()}
            )
            if self.source == "pandas":
                return lambda: table
            path = folder / f"data.{self.source}"
            if self.source == "csv":
                if any(isinstance(cell, str) and "\n" in cell for row in rows for cell in row):
                    raise UnusableError("a line feed ends the row")
                table.to_csv(path, index=False)
            else:
                texts = {name: table[name].map(str, na_action="ignore") for name in _NAMES}
                pd.DataFrame(texts, dtype="string").to_parquet(path)
        return str(path)


def _cell(cell: Any) -> Any:
    return odd_object(cell.what) if type(cell) is Odd else cell


def _simple(cell: Any) -> Any:
    """What a Polars column of numbers or text is made from; its engine panics at others."""
    return cell if isinstance(cell, bool | int | float | str) else None


def _held(cell: Any) -> Any:
    """What pandas can hold among categories; some objects of one's own make it fail."""
    return cell if issubclass(type(cell), _CATEGORIES) else None


_CATEGORIES = (str, bytes, int, float, Decimal, complex, tuple, datetime.date, np.generic)


def _named(owners: Any) -> list[str]:
    """Owners as text; objects of one's own by their type."""
    known = str, int, float, np.generic, type(None)
    return [str(one) if issubclass(type(one), known) else type(one).__name__ for one in owners]


def _objects(cells: list[Any]) -> np.ndarray:
    found = np.empty(len(cells), object)
    for i, cell in enumerate(cells):
        found[i] = cell
    return found


def _kind(name: str) -> str:
    return {"x": "Float64", "ill": "Int64"}.get(name, "String")


_CELLS = st.one_of(
    st.sampled_from(
        (
            *(None, nan, inf, -inf, 0, 1, 2.5, -3, 10**30, 1e308, True, "", " ", "Rome", "rome"),
            *("Bari ", "3", "3.0", 3, 3.0, "1_000", "nan", "NULL", "-0", "٣", "0x10", "1e5"),
            *(b"Rome", b"\xff", Decimal("2.5"), Decimal("NaN"), Decimal("sNaN"), 1j, (), [1], {}),
            *(datetime.date(2020, 1, 1), np.float32(2), np.int64(3), np.str_("Rome")),
            *(datetime.datetime(2020, 1, 1), 2**53 + 1, *map(Odd, FAILURES)),
        )
    ),
    st.text(max_size=4), st.binary(max_size=4), st.floats(), st.integers(),
)  # fmt: skip
_SOURCES = ("lists", "arrays", "pandas", "pandas, categories", "polars", "csv", "parquet")
_PLAIN = st.sampled_from((0, 1, 2.5, "Rome", "3"))


@st.composite
def declared_cases(draw: st.DrawFn) -> DeclaredCase:
    """Ordinary rows, and one that holds anything."""
    source = draw(st.sampled_from(_SOURCES))
    cells = _CELLS if draw(st.booleans()) else _PLAIN
    rows = draw(st.lists(st.tuples(*(cells,) * 4), min_size=1, max_size=6))
    gone = draw(st.integers(0, len(rows) - 1))
    rows[gone] = draw(st.tuples(*(_CELLS,) * 4))
    return DeclaredCase(source, tuple(rows), gone, draw(st.booleans()), draw(st.booleans()))
