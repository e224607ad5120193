"""What a guarantee says to those it protects, in plain words, and what it does not say.

Everything is computed from the event that a record holds, by the accountant:

- how well any attacker tells the two sides of what is compared apart (see
  :mod:`sfumato.reports.wording`): the trade-off curve f, so that with false alarms at rate a at
  most 1 - f(a) are found (Dong, Roth and Su, arXiv:1905.02383);
- how likely any attacker reconstructs a record: who would guess it with probability k without the
  release guesses it with at most 1 - f(k) (Hayes, Mahloujifar and Balle, "Bounding training data
  reconstruction in DP-SGD", arXiv:2302.07225, theorem 2; for (epsilon, delta) Balle, Cherubin and
  Hayes, "Reconstructing training data with informed adversaries", arXiv:2201.04845). The same
  argument, from any fixed value in its place, holds where one is replaced.

The attacker knows all other records, sees everything that was released, and may know how likely
each possible record was. A record whose noise was not secret promises none of this.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, cast

from sfumato.core.events import (
    CutSampledEvent,
    Event,
    GaussianEvent,
    event_from_dict,
    promises_nothing,
)
from sfumato.core.guarantee import Guarantee
from sfumato.core.neighbours import Neighbours
from sfumato.core.records import NOT_PRIVATE, UNPROTECTED
from sfumato.reports.documents import Block, Bullets, Cell, Paragraph, Picture, Table, recorded
from sfumato.reports.facts import (
    Fact,
    NotOnRecord,
    Sources,
    at_most_text,
    delta_text,
    epsilon_text,
)
from sfumato.reports.figures import trade_off_figure
from sfumato.reports.wording import LABEL, Words, words_for

__all__ = [
    "RECORD", "claimed", "deltas", "is_sound", "is_stamped", "lead", "limits", "promises",
    "promises_something", "protects_labels_alone", "recomputed", "reconstruction", "trade_off",
    "wording",
]  # fmt: skip

RECORD = "record.json"
_EVENT, _GUARANTEE, _PRIVATE = f"{RECORD}#/event", f"{RECORD}#/guarantee", f"{RECORD}#/private"
_RATES = (1e-6, 0.001, 0.01, 0.1, 0.5)  # where the curve is exact: all priors are among them
_DELTAS = (1e-4, 1e-5, 1e-6, 1e-8)
_GROUPS = {2: "two", 3: "three"}
_CHANGED = "the record was changed, or made by a faulty version. Do not rely on it."
_PLANS = (f"{RECORD}#/parameters/plan", f"{RECORD}#/parameters")  # of a recipe, of an engine
_ROWS = f"{RECORD}#/facts/data/rows"
_TEACHERS = f"{RECORD}#/parameters/recipe/kind"
_LARGE_DELTA = 0.01  # from here on a promise is not worth stating
_TOLERANCE = 1e-3  # of epsilon, between two computations of the same
_METHOD, _LABELS_ALONE = f"{RECORD}#/method", "label-dp"


# --- whether anything is promised ---------------------------------------------------------------


def promises_something(sources: Sources) -> bool | None:
    """Whether a record has a guarantee; None where it does not say.

    An event that promises nothing decides, whatever epsilon is written beside it.
    """
    try:
        if promises_nothing(_event(sources)):
            return False
    except NotOnRecord:
        pass
    try:
        with sources.reading(f"{_GUARANTEE}/epsilon"):
            epsilon = float(sources.fact(f"{_GUARANTEE}/epsilon").value)
    except NotOnRecord:
        return None
    return None if math.isnan(epsilon) else math.isfinite(epsilon)


def is_stamped(sources: Sources) -> bool:
    """Whether a record says of itself that it is not private: anyone can subtract its noise."""
    return sources.has(_PRIVATE) and sources.raw(_PRIVATE) is False


def is_sound(sources: Sources) -> bool:
    """Whether its guarantee follows from its event, as far as an accountant can tell.

    Where it does not, nothing may be derived from either of them.
    """
    try:
        guarantee, event = _guarantee(sources), _event(sources)
    except NotOnRecord:
        return False
    if event.unit_name != guarantee.unit or _claims_more_than_labels(sources, guarantee):
        return False
    epsilon = _epsilon(_frozen(sources), guarantee)
    if isinstance(epsilon, str):
        return False
    return epsilon is None or epsilon <= guarantee.epsilon * (1 + _TOLERANCE)


def protects_labels_alone(sources: Sources) -> bool:
    """Whether nothing but labels is protected, whatever else the record claims."""
    at = f"{_GUARANTEE}/unit"
    return _is_label_method(sources) or (sources.has(at) and sources.raw(at) == LABEL)


def _is_label_method(sources: Sources) -> bool:
    return sources.has(_METHOD) and sources.raw(_METHOD) == _LABELS_ALONE


def _claims_more_than_labels(sources: Sources, guarantee: Guarantee) -> bool:
    """Whether a method that randomises labels alone claims to protect something else."""
    return _is_label_method(sources) and guarantee.unit != LABEL


def claimed(sources: Sources) -> Cell:
    """The epsilon of a record, for a table; that it does not follow, where it does not."""
    if promises_something(sources) is None:
        return "not on record"
    if not is_sound(sources):
        return "does not follow from its event"
    return sources.fact(f"{_GUARANTEE}/epsilon", epsilon_text)


def recomputed(sources: Sources) -> Fact | None:
    """The epsilon that follows from the event on record, at the delta that is claimed; or None."""
    try:
        guarantee = _guarantee(sources)
        _event(sources)
    except NotOnRecord:
        return None
    epsilon = _epsilon(_frozen(sources), guarantee)
    if not isinstance(epsilon, float) or not math.isfinite(epsilon):
        return None
    return sources.computed(epsilon, _EVENT, epsilon_text)


def _vouched(sources: Sources) -> None:
    """Nothing is promised unless the record says that its noise was secret.

    Raises:
        NotOnRecord: if it does not.
    """
    if sources.raw(_PRIVATE) is not True:
        raise NotOnRecord(f"{sources.full(_PRIVATE)} (as true)")


# --- what is said -------------------------------------------------------------------------------


def lead(sources: Sources) -> list[Block]:
    """The guarantee, in one paragraph, with a warning where it is not what it seems."""
    if promises_something(sources) is False:
        return [Paragraph(UNPROTECTED, "warning")]
    if is_stamped(sources):
        stated = ("Had its noise been secret, it would have promised ", *_stated(sources), ".")
        return [
            Paragraph(NOT_PRIVATE, "warning"), Paragraph(stated, "note"),
            *recorded(lambda: _checked(sources)),
        ]  # fmt: skip
    _vouched(sources)
    unit, subject = sources.fact(f"{_GUARANTEE}/unit"), wording(sources).subject
    text = (
        "How much the release can depend on any one ", unit, f"{subject} is limited: ",
        *_stated(sources), ".",
    )  # fmt: skip
    return [Paragraph(text, "lead"), *_noted(sources), *recorded(lambda: _checked(sources))]


def _noted(sources: Sources) -> list[Block]:
    """What a reader must know besides, such as what has to be so for the guarantee."""
    at = f"{_GUARANTEE}/note"
    if not sources.has(at):
        return []
    return [Paragraph(("Noted beside it: ", sources.fact(at), "."), "note")]


def _stated(sources: Sources) -> tuple[str | Fact, ...]:
    guarantee = _guarantee(sources)
    words = guarantee.neighbours.describe(guarantee.unit)
    return (
        "epsilon ", sources.fact(f"{_GUARANTEE}/epsilon", epsilon_text),
        " at delta ", sources.fact(f"{_GUARANTEE}/delta", delta_text),
        " (", sources.computed(words, f"{_GUARANTEE}/neighbours"), ")",
    )  # fmt: skip


def _checked(sources: Sources) -> list[Block]:
    """Whether the guarantee follows from the event that is on record."""
    guarantee, event = _guarantee(sources), _event(sources)
    text: Cell
    if event.unit_name != guarantee.unit:
        other = sources.computed(event.unit_name, _EVENT)
        text = (
            "The event on record protects one ", other,
            f", which is not what is claimed: {_CHANGED}",
        )  # fmt: skip
        return [Paragraph(text, "warning")]
    if _claims_more_than_labels(sources, guarantee):
        text = f"This method protects labels alone, which is not what is claimed: {_CHANGED}"
        return [Paragraph(text, "warning")]
    epsilon = _epsilon(_frozen(sources), guarantee)
    if isinstance(epsilon, str):
        return [Paragraph(epsilon, "warning")]
    if epsilon is None:
        text = "No accountant of this version can check this epsilon against the event on record."
        return [Paragraph(text, "note")]
    if epsilon <= guarantee.epsilon * (1 + _TOLERANCE):
        return _plan_checked(sources)
    text = (
        "This epsilon does not follow from the event on record, which gives ",
        sources.computed(epsilon if math.isfinite(epsilon) else "inf", _EVENT, epsilon_text),
        f": {_CHANGED}",
    )
    return [Paragraph(text, "warning")]


def _plan_checked(sources: Sources) -> list[Block]:
    """Whether the noise multiplier of a plan is one of the event's: the card shows the plan's.

    Where noise falls from step to step, or is correlated over steps, the event has others.
    """
    multipliers = _multipliers(sources.raw(_EVENT))
    for plan in _PLANS:
        at = f"{plan}/noise_multiplier"
        scheduled = f"{plan}/schedule/phases"
        if not (multipliers and sources.has(at) and sources.has(scheduled)):
            continue
        with sources.reading(plan):
            phases = sources.raw(scheduled)
            plain = len(phases) == 1 and not sources.has(f"{plan}/correlation")
            stated = float(sources.raw(at)) * float(phases[0][1])
        if plain and not any(math.isclose(stated, one, rel_tol=1e-9) for one in multipliers):
            text = (
                "The parameters on record state a noise multiplier of ", sources.fact(at),
                f", which is not that of the event: {_CHANGED}",
            )  # fmt: skip
            return [Paragraph(text, "warning")]
    return []


def _multipliers(event: Any) -> list[float]:
    """Of all Gaussian releases within an event, as it is recorded."""
    if isinstance(event, list):
        parts = cast("list[Any]", event)
        return [found for part in parts for found in _multipliers(part)]
    if not isinstance(event, dict):
        return []
    known = cast("dict[str, Any]", event)
    if known.get("kind") == GaussianEvent.kind:
        return [float(known["noise_multiplier"])]
    return [found for part in known.values() for found in _multipliers(part)]


def wording(sources: Sources) -> Words:
    """In which words its promises are put."""
    guarantee = _guarantee(sources)
    return words_for(guarantee.unit, guarantee.neighbours)


def promises(sources: Sources) -> list[Block]:
    """What the guarantee promises to those whom it protects."""
    _vouched(sources)
    profile, words = _curve(sources), wording(sources)
    own = sources.fact(f"{_GUARANTEE}/unit", lambda _: words.own)
    right = sources.computed((1 + profile["advantage"]) / 2, _EVENT, at_most_text)
    found = sources.computed(_power(profile, 0.01), _EVENT, at_most_text)
    (coin, other), (looked_for, of_whom) = words.coin, words.found
    return [
        Bullets(
            [
                (
                    coin, own, f"{other}. Whoever sees the release, and knows {words.knows}, names "
                    "the side of the coin with a chance of at most ", right, " of being right. "
                    "Guessing alone is right half of the time.",
                ),
                (looked_for, found, f"{of_whom} {words.at_random}"),
                "Both hold now and later, however much anybody computes, and whatever is done "
                "with the release.",
            ]
        )
    ]  # fmt: skip


def limits(sources: Sources) -> list[Block]:
    """What it does not promise."""
    _vouched(sources)
    unit, words = sources.fact(f"{_GUARANTEE}/unit"), wording(sources)
    items: list[Cell] = [
        *words.not_hidden,
        words.general,
        ("One ", unit, f" is protected. {words.several}", *_groups(sources), words.many),
        "It speaks of this release alone. Whatever else is released from the same data adds up "
        "with it.",
        "How long a computation takes, and other traces of a running machine, are not covered.",
    ]
    if sources.has(_ROWS) and _guarantee(sources).neighbours is Neighbours.ADD_REMOVE:
        items.append(
            (
                "The first ", sources.fact(_ROWS), " rows of a larger table were taken. What is "
                "stated holds for these as a table of their own. For the whole table, taking one "
                "row out is a replacement among those taken: the next one moves up.",
            )
        )  # fmt: skip
    if sources.has(_TEACHERS) and sources.raw(_TEACHERS) == "own":
        items.append(
            (
                "It rests on a promise that was not checked: that one ", unit, " more or less "
                "changes one teacher only. Whoever brought the teachers vouches for it.",
            )
        )  # fmt: skip
    place = f"{RECORD}#/facts/arithmetic"
    if sources.has(place):
        allowed = sources.has(f"{RECORD}#/facts/rounding_allowance")
        rounding = (
            "; what rounding may add to a clipped gradient is allowed for." if allowed else "."
        )
        items.append(("Arithmetic: ", sources.fact(place), rounding))
    return [Bullets(items)]


def _groups(sources: Sources) -> list[str | Fact]:
    """What it says of several units together."""
    guarantee, pieces = _guarantee(sources), list[str | Fact]()
    for size, word in _GROUPS.items():
        many = guarantee.for_group(size)
        if many.delta < _LARGE_DELTA:
            pieces += [
                f"{word} by epsilon ", sources.computed(many.epsilon, _GUARANTEE, epsilon_text),
                " at delta ", sources.computed(many.delta, _GUARANTEE, delta_text), ", ",
            ]  # fmt: skip
    return pieces


def deltas(sources: Sources) -> list[Block]:
    """Epsilon at several deltas."""
    _vouched(sources)
    rows = [
        (sources.computed(one["delta"], _EVENT, delta_text),
         sources.computed(one["epsilon"], _EVENT, epsilon_text))
        for one in _curve(sources)["guarantees"]
    ]  # fmt: skip
    return [Table(("delta", "epsilon"), rows, "The same release, at several deltas")]


def trade_off(sources: Sources) -> list[Block]:
    """The trade-off curve, as a picture."""
    _vouched(sources)
    curve, words = _curve(sources)["trade_off"], wording(sources)
    figure = trade_off_figure(curve["alpha"], curve["beta"], "any attacker, at best")
    figure.set_size_inches(4.6, 3.7)
    (axes,) = figure.axes
    axes.set_xlabel(words.accused)
    axes.set_ylabel(words.missed)
    caption = (
        "No attacker comes below the curve. The nearer it lies to the dotted line, the less can be "
        "learned."
    )
    return [Picture(figure, words.alt, f"computed from {sources.full(_EVENT)}", caption)]


def reconstruction(sources: Sources) -> list[Block]:
    """How likely what is protected can be guessed."""
    _vouched(sources)
    profile, words = _curve(sources), wording(sources)
    own = sources.fact(f"{_GUARANTEE}/unit", lambda _: words.own)
    rows = [
        (sources.computed(prior, _EVENT, at_most_text),
         sources.computed(_power(profile, prior), _EVENT, at_most_text))
        for prior in words.priors
    ]  # fmt: skip
    text = (
        f"Suppose that somebody knows {words.knows}, and that without the release their best guess "
        "of ", own, " is right (exactly, or as nearly as they care) with the chance on the left. "
        "With the release their chance is at most the one on the right, however they try.",
    )  # fmt: skip
    return [Paragraph(text), Table(("chance without the release", "with it, at most"), rows)]


# --- computing ----------------------------------------------------------------------------------


def _guarantee(sources: Sources) -> Guarantee:
    for name in ("epsilon", "delta", "neighbours", "unit"):
        sources.fact(f"{_GUARANTEE}/{name}")  # says which is missing
    with sources.reading(_GUARANTEE):
        return Guarantee.from_dict(sources.raw(_GUARANTEE))


def _event(sources: Sources) -> Event:
    raw = sources.raw(_EVENT)
    with sources.reading(_EVENT):
        return event_from_dict(raw)


def _frozen(sources: Sources) -> str:
    return json.dumps(sources.raw(_EVENT), sort_keys=True)


@lru_cache(maxsize=32)
def _epsilon(event: str, guarantee: Guarantee) -> float | str | None:
    """At the guarantee's delta, from the event; a warning where none follows; None if unknown."""
    from sfumato.accounting import account
    from sfumato.accounting.support import UnsupportedError

    released = event_from_dict(json.loads(event))
    try:
        return account(released, guarantee.delta, neighbours=guarantee.neighbours).epsilon
    except UnsupportedError:
        return None
    except ValueError:
        return f"This guarantee does not follow from the event on record: {_CHANGED}"


def _curve(sources: Sources) -> dict[str, Any]:
    _event(sources)
    guarantee = _guarantee(sources)
    found = _profile(_frozen(sources), guarantee, _largest(sources, guarantee))
    if found is None:
        raise NotOnRecord(f"a trade-off curve that follows from {sources.full(_EVENT)}")
    return found


def _largest(sources: Sources, guarantee: Guarantee) -> float | None:
    """Up to which epsilon the event holds, where lots are cut; None where it always does.

    The event's extra delta, for the lots that were too large, was computed for that epsilon. There
    is none where the cut is a part of the event.
    """
    if CutSampledEvent.kind in _frozen(sources):
        return None
    for plan in _PLANS:
        if sources.has(f"{plan}/lots/max_size"):
            place = f"{plan}/claimed_epsilon"
            with sources.reading(place):
                return float(sources.raw(place)) if sources.has(place) else guarantee.epsilon
    return None


@lru_cache(maxsize=32)
def _profile(event: str, guarantee: Guarantee, largest: float | None) -> dict[str, Any] | None:
    """The whole profile of an event; None where none follows or no accountant knows."""
    from sfumato.accounting import privacy_profile

    asked = sorted({*_DELTAS, guarantee.delta} - {0.0}, reverse=True)
    released = event_from_dict(json.loads(event))
    try:
        found = privacy_profile(
            released, asked, neighbours=guarantee.neighbours, rates=_RATES, largest_epsilon=largest
        )
    except ValueError:  # among them that no accountant has a theorem
        return None
    return found.to_dict()


def _power(profile: dict[str, Any], rate: float) -> float:
    """The most that are found at this rate of false alarms, read off the curve from above."""
    alphas: Sequence[float] = profile["trade_off"]["alpha"]
    betas: Sequence[float] = profile["trade_off"]["beta"]
    at = next((b for a, b in zip(alphas, betas, strict=True) if a >= rate), betas[-1])
    return 1 - at
