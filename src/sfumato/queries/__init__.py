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

from typing import TYPE_CHECKING

from sfumato.lazy import homes, loader

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
_HOME = homes(_HOMES)

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


__getattr__ = loader(__name__, _HOME)


def __dir__() -> list[str]:
    return sorted(__all__)
