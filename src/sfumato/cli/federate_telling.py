"""What is said of a federation, before and after it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sfumato.cli.output import console, number, plain_table, print_json
from sfumato.federated.sums import MaskedSum

if TYPE_CHECKING:
    from rich.table import Table

    from sfumato.federated.federation import Federation

__all__ = ["may_drop_out", "print_trained", "public_facts", "views_table"]


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
        who = f"{who}, {view.condition}" if view.condition else who
        shown = "nobody" if math.isinf(promise.epsilon) else who
        table.add_row(view.observer, view.sees, number(promise.epsilon), shown)
    return table


def may_drop_out(federation: Federation) -> str:
    """How many participants a round can do without, in words; empty if that is all of them."""
    least, masked = federation.least, isinstance(federation.sums, MaskedSum)
    if not least:
        return ""
    if federation.participation < 1:
        return f"used if {least} answer, of about {federation.expected:.4g} who are asked"
    lost = federation.participants - least
    many = f"{least} of {federation.participants}"
    need = f"a masked sum opens for {many}" if masked else f"used if {many} answer"
    return f"{need}: {lost or 'no participant'} may drop out"


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
    view = federation.view("released models")
    against = ", ".join(filter(None, (view.observer, view.condition)))
    promise = view.guarantee(federation.delta)
    said = [f"{reached}{promise} ({against})", record.get("warning", "")]
    said.append("" if out is None else f"Kept in {out}")
    for text in filter(None, said):
        console().print(text, markup=False, soft_wrap=True)
