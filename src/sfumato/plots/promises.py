"""Promises, and what audits found of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from matplotlib.figure import Figure

from sfumato.core.events import Event
from sfumato.core.guarantee import Guarantee
from sfumato.core.neighbours import Neighbours
from sfumato.plots.naming import Things, names_of, plain
from sfumato.reports.audit_figures import gauge_figure
from sfumato.reports.figures import trade_off_figure
from sfumato.reports.style import COLOURS, INK

if TYPE_CHECKING:
    from sfumato.audit import Finding

__all__ = ["findings", "trade_offs"]

Rates = tuple[Sequence[float], Sequence[float]]
"""False positive rates, and the least false negative rate of any attacker at each."""


def trade_offs(
    things: Things,
    *,
    title: str = "What an attacker cannot do",
    delta: float = 1e-5,
    neighbours: Neighbours | str | None = None,
) -> Figure:
    """Curves that no attacker lies below, of profiles, guarantees and events."""
    known = [_curve(one, delta, neighbours) for _, one in things]
    said = [(name or words, None) for (name, _), (_, words) in zip(things, known, strict=True)]
    labels = names_of(said, str)
    (alphas, betas), _ = known[0]
    figure = trade_off_figure(alphas, betas, labels[0])
    (axes,) = figure.axes
    for place, (rates, _) in enumerate(known[1:], start=1):
        axes.plot(*rates, color=COLOURS[place % len(COLOURS)], linewidth=2, label=labels[place])
    axes.legend(loc="upper right", frameon=False)
    axes.set_title(plain(title), loc="left", pad=12, fontsize=12, fontweight="bold", color=INK)
    return figure


def _curve(thing: Any, delta: float, neighbours: Neighbours | str | None) -> tuple[Rates, str]:
    """A trade-off curve, and what it says at one delta."""
    if isinstance(thing, Guarantee):
        return _bound(thing), _stated(thing)
    if isinstance(thing, Event):
        from sfumato.accounting import privacy_profile  # only where it is needed

        thing = privacy_profile(thing, [delta], neighbours=neighbours)
    rates = thing.alphas, thing.betas
    if not thing.guarantees:
        return rates, "any attacker, at best"
    near = min(thing.guarantees, key=lambda one: abs(math.log((one.delta or 1e-300) / delta)))
    return rates, _stated(near)


def _bound(guarantee: Guarantee) -> Rates:
    """The corners of max(0, 1 - delta - e^eps a, e^-eps (1 - delta - a)).

    Kairouz, Oh and Viswanath, "The composition theorem for differential privacy", arXiv:1311.0776.
    """
    if math.isinf(guarantee.epsilon):
        return (0.0, 1.0), (0.0, 0.0)
    covered = 1 - guarantee.delta
    both = covered / (1 + math.exp(min(guarantee.epsilon, 700.0)))  # where the two lines meet
    return (0.0, both, covered, 1.0), (covered, both, 0.0, 0.0)


def _stated(guarantee: Guarantee) -> str:
    epsilon, delta, relation = str(guarantee).split(", ", 2)
    return f"{epsilon}, {delta}\n{relation}"


def findings(
    things: Things,
    *,
    title: str = "Audited: at least, and claimed at most",
    claim: Guarantee | None = None,
) -> Figure:
    """A bar for each finding: what was found at least, of what was claimed at most."""
    audited: list[Finding] = [
        one if claim is None else replace(one, claim=claim) for _, one in things
    ]
    claims = [_finite(one.claim) for one in audited]
    found = [one.epsilon for one in audited]
    highest = max(epsilon for epsilon in [*claims, *found] if math.isfinite(epsilon))
    drawn = [min(epsilon, 2 * highest or 1.0) for epsilon in found]  # bars have an end
    labels = names_of(things, lambda one: one.method)
    figure = gauge_figure(list(zip(labels, drawn, claims, strict=True)), plain(title))
    texts = reversed(figure.axes[0].texts)
    for text, epsilon, claimed in zip(texts, found, claims, strict=True):
        if math.isinf(epsilon):
            text.set_text(f"infinite of {claimed:.3g}")
    return figure


def _finite(claim: Guarantee | None) -> float:
    if claim is None or math.isinf(claim.epsilon):
        said = "none" if claim is None else "one that promises nothing"
        raise ValueError(f"a finding is drawn against its claim, got {said}: give claim")
    return claim.epsilon
