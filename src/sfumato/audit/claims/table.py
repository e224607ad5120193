"""The registry as one Markdown table: what was claimed, what was found, what holds."""

from __future__ import annotations

import math
from collections.abc import Iterable

from sfumato.audit.claims.registry import Result
from sfumato.core.guarantee import Guarantee, round_up

__all__ = ["claims_table", "row"]

_HEAD = ("claim", "where printed", "claimed", "found at least", "sure", "what holds instead")


def claims_table(results: Iterable[Result]) -> str:
    """One row a claim; promises are rounded up and findings down, to four digits."""
    lines = [_line(_HEAD), _line(("---",) * len(_HEAD)), *(row(result) for result in results)]
    return "\n".join(lines)


def row(result: Result) -> str:
    """The row of one claim."""
    known, found = result.claim, result.found
    delta = "" if found.delta == known.claimed.delta else f" at δ {found.delta:.4g}"
    shown = "no ε holds" if math.isinf(found.epsilon) else f"ε {_rounded_down(found.epsilon):.10g}"
    return _line(
        (
            f"**{known.title}** (`{known.name}`). {known.statement}",
            known.source,
            _promise(known.claimed),
            shown + delta,
            known.kind.value,
            f"{known.corrected} {_promise(known.holds)}",
        )
    )


def _promise(guarantee: Guarantee) -> str:
    delta = f", δ {guarantee.delta:.4g}" if guarantee.delta else ""
    return f"ε {round_up(guarantee.epsilon):.10g}{delta}"


def _rounded_down(value: float) -> float:
    return -round_up(-value) if value else value


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"
