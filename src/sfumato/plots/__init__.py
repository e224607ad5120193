"""One word for every figure: :func:`plot`.

    >>> from sfumato.core import Guarantee
    >>> from sfumato.plots import plot
    >>> figure = plot(Guarantee(1.0, 1e-5, "add-remove"))
    >>> figure.axes[0].get_xlabel()
    'false positive rate'

What can be drawn is found by its class's name, so that nothing is imported to draw something else.
Figures of attacks and audits are made from what was measured with private data: they are for the
curator, as the results are.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

from sfumato.plots.naming import Things, named

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from sfumato.reports.style import Drawing

__all__ = ["plot"]

_DRAWERS = {
    "sfumato.accounting.tradeoff.PrivacyProfile": "promises.trade_offs",
    "sfumato.core.guarantee.Guarantee": "promises.trade_offs",
    "sfumato.core.events.base.Event": "promises.trade_offs",
    "sfumato.queries.answers.Answer": "releases.answer",
    "sfumato.attacks.membership.reports.MembershipReport": "attacks.memberships",
    "sfumato.audit.findings.Finding": "promises.findings",
    "sfumato.learning.recipes.training.Trained": "releases.learning",
    "sfumato.learning.recipes.loading.Run": "releases.learning",
    "sfumato.ledger.ledger.Ledger": "releases.budget",
    "sfumato.attacks.inversion.results.Inversion": "attacks.inversions",
    "sfumato.attacks.extraction.fidelity.FidelityCurve": "attacks.fidelities",
    "sfumato.attacks.exposure.Exposure": "attacks.exposures",
    "sfumato.learning.pate.privacy.curator.CuratorView": "teachers.views",
    "sfumato.learning.pate.privacy.planning.PlannedCost": "teachers.costs",
    "sfumato.learning.pate.privacy.effect.TeachersEffect": "teachers.effects",
}
"""By the full name of a class: who draws it. A thing that exists has loaded its class."""


def plot(thing: Any, /, **options: Any) -> Drawing:
    """The figure of a thing, or of several of a kind, as a list or by names.

    It shows itself in notebooks, and ``.save("figure.png")`` writes it (png, svg, pdf).

    ======================  =======================================  ==========================
    thing                   figure                                   options besides ``title``
    ======================  =======================================  ==========================
    PrivacyProfile,         trade-off curves; no attacker lies       delta, neighbours (of
    Guarantee, Event        below; the three kinds may be mixed      events)
    Answer                  bars, or a heat map
    MembershipReport        members found against false alarms       claim, limits
    Finding                 found at least, claimed at most          claim
    Trained, Run            accuracy and epsilon against steps       curator
    Ledger                  the reading after each charge, and the   dataset (no title)
                            cap
    Inversion               a picture of each class                  classes, means,
                                                                     recognition
    FidelityCurve           how well a copy agrees                   unknowns, chance
    Exposure                bits of each canary; with surprises a    candidates, surprises
                            histogram
    CuratorView             teachers' agreement, and epsilon
                            against questions; curator's
    PlannedCost             epsilon against answers
    TeachersEffect          accuracy and epsilon against the number
                            of teachers
    ======================  =======================================  ==========================

    Answers, runs and ledgers are drawn one at a time.

    Args:
        thing: what to draw; a list or a dictionary draws several together.
        options: ``title``: the heading. ``delta``: at which an event's epsilon is stated.
            ``neighbours``: the relation it is accounted for. ``claim``: a guarantee whose bound is
            drawn. ``limits``: whether to shade the limits of what was found. ``curator``: whether
            a run's curve may be read from its curator's folder where none is public. ``dataset``:
            whose budget. ``classes``: names of classes. ``means``: an image of each class, as a
            row of its own. ``recognition``: what a judge saw, one for each inversion.
            ``unknowns``: how many numbers a model has. ``chance``: the agreement of a guess.
            ``candidates``: how surprising all secrets are, or a sample. ``surprises``: how
            surprising each canary is.

    Raises:
        TypeError: for what has no figure, several kinds at once, or an option that it has not.
        ValueError: for nothing, or where the figure cannot be drawn from what there is.
    """
    things = named(thing)
    draw = _drawer(things)
    _require_options(draw, type(things[0][1]).__name__, options)
    return cast("Drawing", draw(things, **options))


def _drawer(things: Things) -> Callable[..., Figure]:
    found = {type(one): _drawer_of(type(one)) for _, one in things}
    if len(set(found.values())) > 1:
        kinds = " and ".join(sorted(kind.__name__ for kind in found))
        raise TypeError(f"what is drawn together must be of one kind, got {kinds}")
    module, name = next(iter(found.values())).split(".")
    return getattr(import_module(f"{__name__}.{module}"), name)


def _drawer_of(kind: type) -> str:
    for one in kind.__mro__:
        drawer = _DRAWERS.get(f"{one.__module__}.{one.__qualname__}")
        if drawer is not None:
            return drawer
    known = [name.rpartition(".")[2] for name in _DRAWERS]
    raise TypeError(
        f"{kind.__module__}.{kind.__qualname__} has no figure: draw a {', '.join(known[:-1])} or "
        f"{known[-1]}, or several of a kind in a list or dictionary"
    )


def _require_options(draw: Callable[..., Figure], kind: str, options: Mapping[str, Any]) -> None:
    known = list(inspect.signature(draw).parameters)[1:]
    for name in options:
        if name not in known:
            raise TypeError(f"the figure of {kind} has no option {name!r}, only {', '.join(known)}")
