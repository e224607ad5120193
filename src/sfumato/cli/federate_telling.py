"""What is said of a federation, before and after it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sfumato.cli.output import console, number, plain_table, print_json

if TYPE_CHECKING:
    from rich.table import Table

    from sfumato.federated.federation import Federation

__all__ = ["print_trained", "public_facts", "views_table"]


def public_facts(federation: Federation) -> dict[str, Any]:
    """For programs: the federation, every view, and the guarantee of released models."""
    found = [each.to_dict(federation.delta) for each in federation.views]
    released = federation.guarantee("released models").to_dict()
    return {"federation": federation.to_dict(), "views": found} | released


def views_table(federation: Federation) -> Table:
    """What each observer could learn."""
    rounds = f"{federation.rounds} round{'s' * (federation.rounds > 1)}"
    table = plain_table(f"Who could learn what, over {rounds}, delta {federation.delta:g}")
    table.add_column("observer")
    table.add_column("sees")
    table.add_column("epsilon", justify="right")
    table.add_column("protects")
    for view in federation.views:
        promise = view.guarantee(federation.delta)
        who = promise.neighbours.describe(promise.unit)
        shown = "nobody" if math.isinf(promise.epsilon) else who
        table.add_row(view.observer, view.sees, number(promise.epsilon), shown)
    return table


def print_trained(
    federation: Federation,
    record: dict[str, Any],
    accuracy: float | None,
    out: Path | None,
    as_json: bool,
) -> None:
    """What came of it."""
    if as_json:
        print_json(public_facts(federation) | {"record": record, "accuracy": accuracy})
        return
    reached = "" if accuracy is None else f"accuracy {accuracy:.2%} on public rows, "
    promise = federation.guarantee("released models")
    said = [f"{reached}{promise} (released models)", record.get("warning", "")]
    said.append("" if out is None else f"Kept in {out}")
    for text in filter(None, said):
        console().print(text, markup=False, soft_wrap=True)
