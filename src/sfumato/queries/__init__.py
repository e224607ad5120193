"""Private statistics over any table: DuckDB by default, PostgreSQL, Spark and others by URL.

Read :mod:`~sfumato.queries.protected` first (what happens when a question is asked), then
:mod:`~sfumato.queries.bounding` (what one unit can contribute), then
:mod:`~sfumato.queries.measures` and :mod:`~sfumato.queries.tabulate` (what is released).

====  =========================================================
R     most rows of one unit that count: ``max_rows_per_unit``
G     most groups a unit may enter: ``max_groups_per_unit``
n     the number of rows in a cell
====  =========================================================
"""

from sfumato.queries.answers import Answer
from sfumato.queries.engine import SourceError
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
    query_from_dict,
)
from sfumato.queries.protected import GroupedBy, Protected, protect

__all__ = [
    "Answer",
    "ArgMax",
    "Count",
    "CountUnits",
    "Crosstab",
    "GroupBy",
    "GroupedBy",
    "Histogram",
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
