"""``sfumato train votes``: how far a run's teachers agreed, for its curator alone."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sfumato.cli.options import AsJson, Plot
from sfumato.cli.output import console, number, plain_table, print_json, working

if TYPE_CHECKING:
    from sfumato.learning.pate.privacy import CuratorView
    from sfumato.learning.pate.run_votes import RunVotes

__all__ = ["votes"]

_BAR = 40  # characters of the longest bar


def votes(
    folder: Annotated[Path, typer.Argument(help="Of a run of sfumato train pate.")],
    bins: Annotated[int, typer.Option(help="Of the histogram.")] = 10,
    plot: Plot = None,
    as_json: AsJson = False,
) -> None:
    """How far the teachers of a PATE run agreed, and what its answers cost: FOR YOU ALONE.

    Read from curator/: private votes, for which nothing was charged. Publish none of it, and choose
    nothing by it that is published. Shown are the run's own aggregator and others with noise of the
    same standard deviation: epsilon for all data, by which budgets are charged, and for these
    votes.

    Example: sfumato train votes runs/pate --plot votes.png

    With --plot, the histogram of agreement, and epsilon against the number of questions.
    """
    from sfumato.learning.pate.run_votes import read_run_votes

    with working("Reading the votes"):
        read = read_run_votes(folder)
        views = read.views(bins=bins)
    if plot is not None:
        from sfumato.plots import plot as draw

        draw(views).save(plot)
    if as_json:
        shown = {name: view.to_dict() for name, view in views.items()}
        extra = {"plot": str(plot)} if plot else {}
        print_json({"curator_only": True, "teachers": read.teachers, "views": shown} | extra)
        return
    _tell(read, views)
    if plot is not None:
        console().print(f"Plot written to {plot}: for you alone")


def _tell(read: RunVotes, views: dict[str, CuratorView]) -> None:
    own = read.plan.aggregator.kind
    _tell_agreement(read, views[own])
    delta = views[own].curve.delta
    table = plain_table(f"Epsilon at delta {delta:g} after {len(read.counts):,} questions, by RDP")
    for heading in ("aggregator", "answers", "for all data", "for these votes"):
        table.add_column(heading, justify="left" if heading == "aggregator" else "right")
    for name, view in views.items():
        curve = view.curve
        about = "" if name == own or not view.aggregator.get("sigma_check") else "about "
        shown = f"{name} (this run)" if name == own else name
        cells = number(curve.independent[-1]), number(curve.dependent[-1])
        table.add_row(shown, f"{about}{curve.answers[-1]:,}", *cells)
    console().print(table)
    console().print(
        "FOR YOU ALONE: read from private votes, and not charged. Others have noise of the same "
        "standard deviation."
    )


def _tell_agreement(read: RunVotes, view: CuratorView) -> None:
    table = plain_table(f"Share of {read.teachers:,} teachers who chose the first class")
    table.add_column("share", no_wrap=True, justify="right")
    table.add_column("questions", justify="right")
    table.add_column("")
    edges, counts = view.agreement.edges, view.agreement.counts
    most = max(counts)
    for low, high, count in zip(edges[:-1], edges[1:], counts, strict=True):
        bar = "#" * round(_BAR * count / most)
        table.add_row(f"{low:.0%} to {high:.0%}", f"{count:,}", bar)
    console().print(table)
