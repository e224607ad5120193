"""What a guarantee says to a person in the data, in plain words, and what it does not say.

Everything is computed from the event that a record holds, by the accountant:

- how well any attacker tells one of the data from one who is not: the trade-off curve f, so that
  with false alarms at rate a at most 1 - f(a) are found (Dong, Roth and Su, arXiv:1905.02383);
- how likely any attacker reconstructs a record: who would guess it with probability k without the
  release guesses it with at most 1 - f(k) (Hayes, Mahloujifar and Balle, "Bounding training data
  reconstruction in DP-SGD", arXiv:2302.07225, theorem 2; for (epsilon, delta) Balle, Cherubin and
  Hayes, "Reconstructing training data with informed adversaries", arXiv:2201.04845).

The attacker knows all other records, sees everything that was released, and may know how likely
each possible record was.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from sfumato.core.events import event_from_dict
from sfumato.core.guarantee import Guarantee
from sfumato.reports.documents import Block, Bullets, Paragraph, Picture, Table
from sfumato.reports.facts import Fact, NotOnRecord, Sources, at_most_text, epsilon_text
from sfumato.reports.figures import trade_off_figure

__all__ = ["deltas", "lead", "limits", "promises", "reconstruction", "trade_off"]

RECORD = "record.json"
_EVENT, _GUARANTEE = f"{RECORD}#/event", f"{RECORD}#/guarantee"
_PRIORS = (0.1, 0.01, 0.001, 1e-6)
_RATES = tuple(sorted({0.01, *_PRIORS}))  # where the curve is exact
_GROUPS = (2, 3)
_LARGE_DELTA = 0.01  # from here on a promise is not worth stating
_TOLERANCE = 1e-3  # of epsilon, between two computations of the same


def lead(sources: Sources) -> list[Block]:
    """The guarantee, in one paragraph, with a warning where it is not what it seems."""
    guarantee = _guarantee(sources)
    relation = sources.computed(_relation(guarantee), f"{_GUARANTEE}/neighbours")
    if math.isinf(guarantee.epsilon):
        return [Paragraph("NOT PRIVATE: this model was trained without privacy.", "warning")]
    blocks: list[Block] = [
        Paragraph(
            (
                "Whoever sees what was released learns almost the same about a ",
                sources.fact(f"{_GUARANTEE}/unit"),
                " in the data as if it had not been there: ",
                *_stated(sources),
                " (",
                relation,
                ").",
            ),
            "lead",
        )
    ]
    if not sources.raw(f"{RECORD}#/private"):
        blocks.insert(0, Paragraph(str(sources.raw(f"{RECORD}#/warning")), "warning"))
    return blocks + _checked(sources, guarantee)


def _stated(sources: Sources) -> tuple[str | Fact, ...]:
    return (
        "epsilon ", sources.fact(f"{_GUARANTEE}/epsilon", epsilon_text),
        " at delta ", sources.fact(f"{_GUARANTEE}/delta", _delta_text),
    )  # fmt: skip


def _checked(sources: Sources, guarantee: Guarantee) -> list[Block]:
    """Whether epsilon follows from the event that is on record."""
    known = _profile(_frozen(sources), guarantee)
    if known is None or known["epsilon"] <= guarantee.epsilon * (1 + _TOLERANCE):
        return []
    found = sources.computed(known["epsilon"], _EVENT, epsilon_text)
    return [
        Paragraph(
            (
                "This epsilon does not follow from the event on record, which gives ", found,
                ": the record was changed, or made by a faulty version. Do not rely on it.",
            ),
            "warning",
        )
    ]  # fmt: skip


def promises(sources: Sources) -> list[Block]:
    """What the guarantee promises to somebody in the data."""
    profile, unit = _curve(sources), sources.fact(f"{_GUARANTEE}/unit")
    right = sources.computed((1 + profile["advantage"]) / 2, _EVENT, at_most_text)
    found = sources.computed(_power(profile, 0.01), _EVENT, at_most_text)
    return [
        Bullets(
            [
                (
                    "Somebody tosses a coin for whether your ", unit, " is in the data. Whoever "
                    "sees the release and knows all other data guesses the coin right with "
                    "probability at most ", right, "; guessing alone is right half of the time.",
                ),
                (
                    "Somebody who looks for members and wrongly accuses one in a hundred of those "
                    "who are not finds at most ", found, " of those who are. Accusing at random "
                    "finds one in a hundred.",
                ),
                "It holds whatever else they know, now or later, whatever they compute, and for "
                "everything that is done with the release.",
            ]
        )
    ]  # fmt: skip


def limits(sources: Sources) -> list[Block]:
    """What it does not promise."""
    unit = sources.fact(f"{_GUARANTEE}/unit")
    items: list[Any] = [
        "What is true of everybody, it may teach, and it may be used to guess about you: that is "
        "the same whether you are in the data or not.",
        (
            "One ",
            unit,
            " is protected. Who has several of them in the data has less: ",
            *_groups(sources),
        ),
        "It speaks of this release and of what is named here. Whatever else leaves the same data "
        "adds up with it.",
        "How long a computation takes, and other traces of a running machine, are not covered.",
    ]
    if sources.has(f"{RECORD}#/facts/arithmetic"):
        items.append(
            ("Arithmetic: ", sources.fact(f"{RECORD}#/facts/arithmetic"),
             "; what rounding may add to a clipped gradient is allowed for.")
        )  # fmt: skip
    return [Bullets(items)]


def _groups(sources: Sources) -> list[str | Fact]:
    """What it says of several units together."""
    guarantee, pieces = _guarantee(sources), list[str | Fact]()
    for size in _GROUPS:
        many = guarantee.for_group(size)
        if many.delta < _LARGE_DELTA:
            pieces += [
                sources.computed(size, _GUARANTEE), " together epsilon ",
                sources.computed(many.epsilon, _GUARANTEE, epsilon_text), " at delta ",
                sources.computed(many.delta, _GUARANTEE, _delta_text), "; ",
            ]  # fmt: skip
    return [*pieces, "a family or a hospital still less."]


def deltas(sources: Sources) -> list[Block]:
    """Epsilon at several deltas."""
    rows = [
        (sources.computed(one["delta"], _EVENT, _delta_text),
         sources.computed(one["epsilon"], _EVENT, epsilon_text))
        for one in _curve(sources)["guarantees"]
    ]  # fmt: skip
    return [Table(("delta", "epsilon"), rows, "The same release, at several deltas")]


def trade_off(sources: Sources) -> list[Block]:
    """The trade-off curve, as a picture."""
    curve = _curve(sources)["trade_off"]
    figure = trade_off_figure(curve["alpha"], curve["beta"], "any attacker, at best")
    figure.set_size_inches(5.6, 4.0)
    alt = "The least rate of members missed at each rate of false alarms, for any attacker"
    return [Picture(figure, alt, f"computed from {_EVENT}")]


def reconstruction(sources: Sources) -> list[Block]:
    """How likely a record can be reconstructed."""
    profile = _curve(sources)
    rows = [
        (sources.computed(prior, _EVENT, at_most_text),
         sources.computed(min(1.0, _power(profile, prior)), _EVENT, at_most_text))
        for prior in _PRIORS
    ]  # fmt: skip
    return [
        Paragraph(
            "Who knows all other data, and would guess yours (or come as close to it as they "
            "like) as often as the left column says, guesses it from the release as often as the "
            "right column says, at most."
        ),
        Table(("without the release", "with it, at most"), rows),
    ]


# --- computing ----------------------------------------------------------------------------------


def _guarantee(sources: Sources) -> Guarantee:
    return Guarantee.from_dict(sources.raw(_GUARANTEE))


def _relation(guarantee: Guarantee) -> str:
    return guarantee.neighbours.describe(guarantee.unit)


def _frozen(sources: Sources) -> str:
    return json.dumps(sources.raw(_EVENT), sort_keys=True)


def _curve(sources: Sources) -> dict[str, Any]:
    found = _profile(_frozen(sources), _guarantee(sources))
    if found is None:
        raise NotOnRecord(f"a curve that follows from {_EVENT}")
    return found


@lru_cache(maxsize=32)
def _profile(event: str, guarantee: Guarantee) -> dict[str, Any] | None:
    """The whole profile of an event; None where no accountant can say more than the record."""
    from sfumato.accounting import privacy_profile
    from sfumato.accounting.support import UnsupportedError

    asked = sorted({1e-4, 1e-5, 1e-6, 1e-8, guarantee.delta} - {0.0}, reverse=True)
    try:
        found = privacy_profile(
            event_from_dict(json.loads(event)), asked, neighbours=guarantee.neighbours,
            rates=_RATES,
        )  # fmt: skip
    except UnsupportedError:
        return None
    at = {one.delta: one.epsilon for one in found.guarantees}
    exact = at.get(guarantee.delta, guarantee.epsilon)
    return found.to_dict() | {"epsilon": exact}


def _power(profile: dict[str, Any], rate: float) -> float:
    """The most members found at this rate of false alarms, read off the curve from above."""
    alphas: Sequence[float] = profile["trade_off"]["alpha"]
    betas: Sequence[float] = profile["trade_off"]["beta"]
    at = next((b for a, b in zip(alphas, betas, strict=True) if a >= rate), betas[-1])
    return 1 - at


def _delta_text(value: float) -> str:
    return f"{value:.3g}"
