"""Answers: released values with their interval, what they cost and what is left."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sfumato.core.guarantee import Guarantee, round_up
from sfumato.core.html import facts_table
from sfumato.core.records import NOT_PRIVATE
from sfumato.extras import needed_for
from sfumato.queries.base import Cell, Plan, Query

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Answer"]

_STORED = "stored answer, nothing charged"
_MOST_ROWS = 60  # of a table in a notebook


@dataclass(frozen=True)
class Answer:
    """What was released, in answer to one question.

    Attributes:
        query: the question, as data.
        cells: the values, each with its keys and interval; one cell for a plain number.
        key_names: what the keys of a cell are called.
        unit_of_value: what the value is a number of.
        confidence: of each interval by itself. It covers the noise; rows that were left out because
            a unit held too many are not part of the exact value either.
        guarantee: what the answer cost.
        left, budget: what the ledger has left of how much, in epsilon, after the answer: of the
            dataset's cap, or of the analyst's or period's if less is left of that.
        private: False if seeded test coins made the noise.
    """

    query: dict[str, Any]
    cells: tuple[Cell, ...]
    key_names: tuple[str, ...]
    unit_of_value: str
    confidence: float
    guarantee: Guarantee
    left: float
    budget: float
    note: str = ""
    private: bool = True
    repeated: bool = field(default=False, compare=False)

    @classmethod
    def make(
        cls,
        query: Query,
        plan: Plan,
        cells: tuple[Cell, ...],
        *,
        left: float,
        budget: float,
        private: bool,
    ) -> Answer:
        """From a plan's released cells."""
        return cls(
            query=query.to_dict(),
            cells=cells,
            key_names=plan.key_names,
            unit_of_value=plan.unit_of_value,
            confidence=query.confidence,
            guarantee=plan.guarantee,
            left=left,
            budget=budget,
            note=plan.note,
            private=private,
        )

    # --- the value ----------------------------------------------------------------------------

    @property
    def value(self) -> Any:
        """The value of an answer that is one value.

        Raises:
            ValueError: if it is a table: use ``cells``, ``to_pandas()`` or ``to_dict()``.
        """
        if len(self.cells) != 1 or (self.key_names and self.key_names != ("rank",)):
            raise ValueError(
                f"this answer is a table of {len(self.cells)} cells: use .cells or .to_pandas()"
            )
        return self.cells[0].value

    @property
    def interval(self) -> tuple[float, float] | None:
        """The interval of an answer that is one value."""
        _ = self.value
        low, high = self.cells[0].low, self.cells[0].high
        return None if low is None or high is None else (low, high)

    @property
    def values(self) -> dict[Any, Any]:
        """Values by key: the key itself for one column, a tuple for several."""
        return {c.keys[0] if len(c.keys) == 1 else c.keys: c.value for c in self.cells}

    def __float__(self) -> float:
        return float(self.value)

    def __int__(self) -> int:
        return int(self.value)

    def __getitem__(self, key: Any) -> Any:
        return self.values[key]

    # --- for people ---------------------------------------------------------------------------

    def __str__(self) -> str:
        stamp = "" if self.private else f" [{NOT_PRIVATE}]"
        stamp += f" ({_STORED})" if self.repeated else ""
        ending = f"cost {_cost(self.guarantee)}, {self.remaining}{stamp}"
        if not self.key_names or self.key_names == ("rank",):
            return ", ".join([*(self._one(cell) for cell in self.cells), self.remaining]) + stamp
        lines = [f"{self._key(cell)}: {self._one(cell)}" for cell in self.cells[:20]]
        if len(self.cells) > 20:
            lines.append(f"... and {len(self.cells) - 20} more")
        return "\n".join([*(lines or ["no group passed the threshold"]), ending])

    __repr__ = __str__

    @property
    def remaining(self) -> str:
        """What is left, in words; rounded down."""
        return f"{_down(self.left)} of {self.budget:.10g} left"

    def _key(self, cell: Cell) -> str:
        return ", ".join(str(key) for key in cell.keys)

    def _one(self, cell: Cell) -> str:
        shown, spread = self._shown(cell), self._spread(cell)
        if not spread:
            return shown + (f" ({self.note})" if self.note else "")
        if spread.startswith("+/-"):
            note = f": {self.note}" if self.note else ""
            return f"{shown} {spread} ({self.confidence:.0%}{note})"
        reason = f"; {self.note}" if self.note else ""
        return f"{shown} ({self.confidence:.0%}: {spread}{reason})"

    def _shown(self, cell: Cell) -> str:
        shown = cell.value if not isinstance(cell.value, float) else f"{cell.value:.6g}"
        return f"{shown} {self.unit_of_value}" if isinstance(cell.value, int) else str(shown)

    def _spread(self, cell: Cell) -> str:
        """The interval, empty where there is none."""
        if cell.low is None or cell.high is None:
            return ""
        if isinstance(cell.value, int) and cell.low <= cell.value <= cell.high:
            return f"+/- {cell.high - cell.value:.10g}"
        return f"{cell.low:.6g} to {cell.high:.6g}"

    def _repr_html_(self) -> str:
        shown = self.cells[:_MOST_ROWS]
        rows = [(*map(str, c.keys), self._shown(c), self._spread(c)) for c in shown]
        headings = [*self.key_names, "value", f"{self.confidence:.0%} interval"]
        more = len(self.cells) - len(shown)
        notes = [
            f"... and {more} more" if more else "",
            "" if self.cells else "no group passed the threshold",
            self.note,
            f"cost {_cost(self.guarantee)}",
            self.remaining,
            _STORED if self.repeated else "",
        ]
        return facts_table(
            _heading(self), rows, headings=headings, stamp="" if self.private else NOT_PRIVATE,
            note="; ".join(note for note in notes if note),
        )  # fmt: skip

    # --- for programs -------------------------------------------------------------------------

    def rows(self) -> list[dict[str, Any]]:
        """One dictionary a cell: its keys, value, low and high."""
        return [
            dict(zip(_key_columns(self.key_names), cell.keys, strict=True))
            | {"value": cell.value, "low": cell.low, "high": cell.high}
            for cell in self.cells
        ]

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready; the keys epsilon, delta, neighbours and unit say what it cost."""
        data: dict[str, Any] = {
            "query": self.query,
            "keys": list(self.key_names),
            "rows": [{name: _plain(value) for name, value in row.items()} for row in self.rows()],
            "of": self.unit_of_value,
            "confidence": self.confidence,
            "left": self.left,
            "budget": self.budget,
            "note": self.note,
            "private": self.private,
        }
        if not self.private:
            data["warning"] = NOT_PRIVATE
        return data | self.guarantee.to_dict()

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Answer:
        """The inverse of :meth:`to_dict`; keys that were dates come back as text."""
        names = tuple(data["keys"])
        cells = tuple(
            Cell(tuple(row[n] for n in _key_columns(names)), row["value"], row["low"], row["high"])
            for row in data["rows"]
        )
        return cls(
            query=dict(data["query"]),
            cells=cells,
            key_names=names,
            unit_of_value=data["of"],
            confidence=data["confidence"],
            guarantee=Guarantee.from_dict({**data, "note": ""}),  # the note is the answer's own
            left=data["left"],
            budget=data["budget"],
            note=data["note"],
            private=data["private"],
            repeated=True,
        )

    def to_pandas(self) -> Any:
        """A pandas frame, one row a cell."""
        with needed_for("to_pandas"):
            import pandas as pd

        columns: Any = [*_key_columns(self.key_names), "value", "low", "high"]
        return pd.DataFrame(self.rows(), columns=columns)

    def to_polars(self) -> Any:
        """A Polars frame, one row a cell."""
        with needed_for("to_polars"):
            import polars as pl

        rows = self.rows()
        return pl.DataFrame(
            {
                name: [row[name] for row in rows]
                for name in [*_key_columns(self.key_names), "value", "low", "high"]
            }
        )

    def plot(self, title: str = "") -> Figure:
        """Bars with error bars for one key, a heat map for two; a matplotlib figure."""
        from sfumato.reports.statistics_figures import bars_figure, heat_map_figure

        heading = title or _heading(self)
        if len(self.key_names) == 2:
            first, second = _key_columns(self.key_names)
            return heat_map_figure(self.rows(), first, second, self.unit_of_value, heading)
        return bars_figure(
            [self._key(cell) or self.unit_of_value for cell in self.cells],
            [float(cell.value) for cell in self.cells],
            [(cell.low, cell.high) for cell in self.cells],
            self.key_names[0] if self.key_names else "",
            self.unit_of_value,
            heading,
            self.confidence,
        )


def _key_columns(names: tuple[str, ...]) -> list[str]:
    """What the keys are called beside the value: a column may be called "value" itself."""
    return [f"{name} (key)" if name in ("value", "low", "high") else name for name in names]


def _heading(answer: Answer) -> str:
    asked = answer.query.get("of") or answer.query
    what = " of ".join(str(asked[name]) for name in ("query", "column") if name in asked)
    known = answer.key_names in ((), (asked.get("column"),))
    by = "" if known else f" by {', '.join(answer.key_names)}"
    return f"{what}{by} (epsilon {round_up(answer.guarantee.epsilon):g})"


def _plain(value: Any) -> Any:
    return value if isinstance(value, str | int | float | bool | None) else str(value)


def _cost(guarantee: Guarantee) -> str:
    delta = f", delta {guarantee.delta:.10g}" if guarantee.delta else ""
    return f"epsilon {round_up(guarantee.epsilon):.10g}{delta}"


def _down(value: float) -> str:
    """To four digits after the point, never above; what floating point blurred is not lost."""
    return f"{math.floor(value * 1e4 + 1e-6) / 1e4:.10g}"
