"""Private statistics over any table: DuckDB by default, PostgreSQL, Spark and others by URL.

Read :mod:`~sfumato.queries.protected` first (what happens when a question is asked), then
:mod:`~sfumato.queries.bounding` (what one unit can contribute), then
:mod:`~sfumato.queries.measures` and :mod:`~sfumato.queries.tabulate` (what is released).

====  =========================================================
R     most rows of one unit that count: ``max_rows_per_unit``
G     most groups a unit may enter: ``max_groups_per_unit``
n     the number of rows in a cell
====  =========================================================

Names are loaded when first used: :mod:`~sfumato.queries.local` needs none of the table engines.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sfumato.queries.answers import (
        Answer,
    )
    from sfumato.queries.engine import (
        SourceError,
    )
    from sfumato.queries.kinds import (
        ArgMax,
        Count,
        CountUnits,
        Crosstab,
        GroupBy,
        Histogram,
        Mean,
        Median,
        MostCommon,
        Quantile,
        Sum,
        Variance,
    )
    from sfumato.queries.local import (
        LocalCount,
        LocalFrequency,
        LocalMean,
    )
    from sfumato.queries.opening import protect
    from sfumato.queries.parsing import query_from_dict
    from sfumato.queries.protected import GroupedBy, Protected

_HOMES = {
    "answers": "Answer",
    "engine": "SourceError",
    "kinds": (
        "ArgMax Count CountUnits Crosstab GroupBy Histogram Mean Median MostCommon Quantile Sum "
        "Variance"
    ),
    "local": "LocalCount LocalFrequency LocalMean",
    "opening": "protect",
    "parsing": "query_from_dict",
    "protected": "GroupedBy Protected",
}
_HOME = {name: module for module, names in _HOMES.items() for name in names.split()}

__all__ = [
    "Answer",
    "ArgMax",
    "Count",
    "CountUnits",
    "Crosstab",
    "GroupBy",
    "GroupedBy",
    "Histogram",
    "LocalCount",
    "LocalFrequency",
    "LocalMean",
    "Mean",
    "Median",
    "MostCommon",
    "Protected",
    "Quantile",
    "SourceError",
    "Sum",
    "Variance",
    "protect",
    "query_from_dict",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'sfumato.queries' has no attribute {name!r}")
    try:
        value = getattr(import_module(f"sfumato.queries.{_HOME[name]}"), name)
    except ModuleNotFoundError as error:
        if error.name in ("ibis", "sqlglot", "pyarrow", "duckdb"):
            raise ImportError(
                f"private statistics over tables need {error.name}: pip install 'sfumato[queries]'"
            ) from error
        raise
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
