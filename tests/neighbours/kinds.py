"""All kinds of cases, by name."""

from __future__ import annotations

from typing import Any

from tests.neighbours.declared import declared_cases
from tests.neighbours.drawing_tables import table_cases, unit_cases
from tests.neighbours.federations import federation_cases
from tests.neighbours.folders import folder_cases
from tests.neighbours.lines import line_cases
from tests.neighbours.loops import loop_cases

__all__ = ["KINDS"]

KINDS: dict[str, Any] = {
    "tables": table_cases(),
    "postgres": table_cases(("postgres",)),
    "spark": table_cases(("spark",)),
    "units": unit_cases(),
    "lines": line_cases(),
    "declared": declared_cases(),
    "loops": loop_cases(),
    "folders": folder_cases(),
    "federations": federation_cases(),
}
"""Strategies by the kind of case that they make."""
