"""What was released: answers, models, and the budget that paid for them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, cast

from matplotlib.figure import Figure

from sfumato.plots.naming import Things, only, plain
from sfumato.reports.budget_figures import burn_down_figure
from sfumato.reports.training_figures import learning_curve_figure

if TYPE_CHECKING:
    from sfumato.learning.recipes import Run, Trained
    from sfumato.ledger import Ledger

__all__ = ["answer", "budget", "learning"]


def answer(things: Things, *, title: str = "") -> Figure:
    """Bars of an answer's cells, or a heat map."""
    return only(things).plot(plain(title))


def learning(things: Things, *, title: str = "", curator: bool = False) -> Figure:
    """Accuracy and epsilon against steps."""
    from sfumato.learning.recipes.loading import described

    run = only(things)
    points, public = _points(run, curator)
    guarantee = run.record.guarantee
    promises = math.isfinite(guarantee.epsilon)
    ending = str(guarantee) if promises else ""
    heading = title or f"{described(run.record)}: {ending}".rstrip(": ")
    if not run.record.private:
        heading = f"NOT PRIVATE. {heading}"
    figure = learning_curve_figure(
        [point["step"] for point in points],
        [point["accuracy"] for point in points],
        [point["epsilon"] if promises else 0.0 for point in points],
        title=plain(heading),
        target=guarantee.epsilon if promises else None,
        tested_on="public test set" if public else "for the curator",
    )
    if not promises:
        figure.axes[1].remove()  # there is no epsilon to speak of
    return figure


def _points(run: Trained | Run, curator: bool) -> tuple[list[dict[str, Any]], bool]:
    """A learning curve, and whether it is public."""
    kept = getattr(run, "points", None)
    if kept is not None:
        points, public = [point.to_dict() for point in kept], cast(Any, run).accuracy_is_public
    elif "curve" in run.record.facts:
        points, public = run.record.facts["curve"], True
    elif curator:
        points, public = cast(Any, run).folder.read_curator("results.json")["curve"], False
    else:
        raise ValueError(
            "the run has no public learning curve: curator=True draws the one that its curator "
            "keeps, for the curator's eyes"
        )
    if not points:
        raise ValueError("the run has no learning curve: it was never tested")
    return points, public


def budget(things: Things, *, dataset: str = "") -> Figure:
    """The reading after each charge, by analyst, under the cap."""
    ledger: Ledger = only(things)
    names = ledger.names()
    if not dataset and len(names) != 1:
        raise ValueError(f"dataset must be one of {', '.join(names) or 'none'}, got {dataset!r}")
    name = dataset or names[0]
    readings = ledger.readings(name)
    analysts = sorted({one.analyst for one in readings})
    parts: dict[str, list[float]] = {analyst: [] for analyst in analysts}
    totals, before = dict.fromkeys(analysts, 0.0), 0.0
    for one in readings:
        totals[one.analyst] += one.reading - before
        before = one.reading
        for analyst in analysts:
            parts[analyst].append(totals[analyst])
    stacked = {plain(analyst): part for analyst, part in parts.items()}
    return burn_down_figure(
        [one.reading for one in readings], ledger.terms(name).budget.epsilon, plain(name),
        stacked if len(analysts) > 1 else None,
    )  # fmt: skip
