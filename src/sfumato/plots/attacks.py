"""What attacks found. All of it is for the curator only."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from sfumato.core.guarantee import Guarantee
from sfumato.plots.naming import Things, named, names_of, plain
from sfumato.reports.exposure_figures import exposure_figure
from sfumato.reports.extraction_figures import fidelity_figure
from sfumato.reports.inversion_figures import ImageRow, inversion_figure
from sfumato.reports.membership_figures import membership_roc_figure
from sfumato.reports.statistics_figures import bars_figure
from sfumato.reports.style import COLOURS, INK

if TYPE_CHECKING:
    from sfumato.attacks.exposure import Exposure
    from sfumato.attacks.inversion.results import Inversion
    from sfumato.attacks.inversion.scoring import Recognition
    from sfumato.attacks.membership.reports import MembershipReport

__all__ = ["exposures", "fidelities", "inversions", "memberships"]


def memberships(
    things: Things,
    *,
    title: str = "Members found at each rate of false alarms",
    claim: Guarantee | None = None,
    limits: bool = False,
) -> Figure:
    """Members found against false alarms, on log axes."""
    reports: list[tuple[str, MembershipReport]] = [
        (label, one)
        for label, (_, one) in zip(names_of(things, lambda one: one.attack), things, strict=True)
    ]
    others = min(one.roc.others for _, one in reports)
    rates = np.geomspace(1 / others, 1, 40)
    bound = None if claim is None or math.isinf(claim.epsilon) else claim
    return membership_roc_figure(
        [(label, o.roc.false_positive_rates, o.roc.true_positive_rates) for label, o in reports],
        [(label, rates, *o.roc.band(rates, o.confidence)) for label, o in reports if limits],
        epsilon=None if bound is None else bound.epsilon,
        delta=0.0 if bound is None else bound.delta,
        lowest=0.5 / others,
        others=others,
        title=plain(title),
    )


def inversions(
    things: Things,
    *,
    title: str = "What a class looks like, read off the model",
    classes: Sequence[str] | None = None,
    means: ArrayLike | None = None,
    recognition: Recognition | Sequence[Recognition] | None = None,
) -> Figure:
    """A row of pictures for each inversion, a column for each class."""
    found: list[Inversion] = [one for _, one in things]
    columns = found[0].labels.tolist()
    if any(one.labels.tolist() != columns for one in found):
        raise ValueError("inversions drawn together must show the same classes, in the same order")
    judged: Sequence[Recognition | None] = [None] * len(found)
    if recognition is not None:
        judged = [one for _, one in named(recognition)]
        if len(judged) != len(found):
            raise ValueError(f"recognition must be {len(found)}, one a row, got {len(judged)}")
    rows: list[ImageRow] = [] if means is None else [("mean of the class", means, None)]
    labels = names_of(things, lambda one: one.attack)
    for label, one, seen in zip(labels, found, judged, strict=True):
        rows.append((label, one.images, None if seen is None else _recognised(seen, columns)))
    low, high = zip(*(one.bounds for one in found), strict=True)
    names = [str(label) if classes is None else plain(str(classes[label])) for label in columns]
    return inversion_figure(rows, names, title=plain(title), bounds=(min(low), max(high)))


def _recognised(seen: Recognition, labels: Sequence[int]) -> list[bool]:
    known = [seen.by_class.get(label) for label in labels]
    if any(one is None or one.images != 1 for one in known):
        raise ValueError("recognition must be of one image a class, the one that is drawn")
    return [one is not None and one.first > 0 for one in known]


def fidelities(
    things: Things,
    *,
    title: str = "A copy of the model, by what its answers show",
    unknowns: int | None = None,
    chance: float | None = None,
) -> Figure:
    """How well copies of a model agree with it, against the number of queries."""
    labels = names_of(things, lambda one: f"{one.attack} from {one.shown}")
    lines = [
        (
            label,
            one.queries,
            [found.agreement.value for found in one.results],
            [found.agreement.interval for found in one.results],
        )
        for label, (_, one) in zip(labels, things, strict=True)
    ]
    return fidelity_figure(lines, unknowns, chance, plain(title))


def exposures(
    things: Things,
    *,
    title: str = "",
    candidates: ArrayLike | None = None,
    surprises: Sequence[float] | None = None,
) -> Figure:
    """Bits of each canary; with what was asked, a histogram of all secrets."""
    found: list[Exposure] = [one for _, one in things]
    names = [name or f"canary {place}" for place, (name, _) in enumerate(things, start=1)]
    if (candidates is None) != (surprises is None):
        raise ValueError("candidates and surprises must be given together, or neither")
    if candidates is None or surprises is None:
        return _bits(found, [plain(name) for name in names], title)
    if len(surprises) != len(found):
        raise ValueError(f"surprises must be {len(found)}, one a canary, got {len(surprises)}")
    told = zip(names, surprises, found, strict=True)
    canaries = [(name, float(surprise), one.bits) for name, surprise, one in told]
    heading = title or "How little a planted secret surprises the model"
    return exposure_figure(candidates, canaries, title=plain(heading))


def _bits(found: Sequence[Exposure], names: Sequence[str], title: str) -> Figure:
    """A bar a canary, against what one that was never planted has."""
    figure = bars_figure(
        names,
        [one.bits for one in found],
        [one.interval or (None, None) for one in found],
        "",
        "exposure in bits",
        plain(title) or "How far planted secrets were learned by heart",
        found[0].confidence or 0.95,
    )
    (axes,) = figure.axes
    most = max(one.most for one in found)
    axes.axhline(most, color=COLOURS[1], linewidth=1.5, label=f"learned: {most:.3g} bits")
    axes.axhline(
        1 / math.log(2), color=INK, linewidth=1, linestyle=":", label="never planted, on average"
    )
    inside = axes.get_legend()
    if inside is not None:
        inside.remove()  # it would lie on a bar or a line
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False)
    return figure
