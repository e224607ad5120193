"""All kinds of cases, by name. What a kind needs is imported when it is asked for."""

from __future__ import annotations

import importlib
from typing import Any

__all__ = ["KINDS", "cases_of"]

_HERE = "tests.neighbours."
KINDS: dict[str, tuple[str, str, tuple[Any, ...]]] = {
    "tables": ("drawing_tables", "table_cases", ()),
    "objects": ("drawing_tables", "table_cases", (("pandas, objects",),)),
    "postgres": ("drawing_tables", "table_cases", (("postgres",),)),
    "spark": ("drawing_tables", "table_cases", (("spark",),)),
    "units": ("drawing_tables", "unit_cases", ()),
    "lines": ("lines", "line_cases", ()),
    "declared": ("declared", "declared_cases", ()),
    "loops": ("loops", "loop_cases", ()),
    "loops on a GPU": ("loops", "loop_cases", ("cuda",)),
    "folders": ("folders", "folder_cases", ()),
    "federations": ("federations", "federation_cases", ()),
}
"""The module of each kind, the strategy that it has, and what that is given."""


def cases_of(kind: str) -> Any:
    """The strategy that makes cases of a kind."""
    module, strategy, given = KINDS[kind]
    return getattr(importlib.import_module(_HERE + module), strategy)(*given)
