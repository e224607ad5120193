"""One finished run of randomised labels, audited by its own reports.

Label privacy needs no canaries. A run tells every label once, and whoever holds the true labels has
thousands of draws of the same mechanism: reports of the rows of class a, and of those of class b.

    >>> from sfumato.core.neighbours import Neighbours
    >>> from sfumato.core.randomness import SeededCoins
    >>> rng = np.random.default_rng(0)
    >>> labels = rng.integers(0, 2, 4000)
    >>> reports = np.where(rng.random(4000) < 0.75, labels, 1 - labels)  # epsilon ln 3 = 1.0986
    >>> claim = Guarantee(1.0986123, 0.0, Neighbours.REPLACE_ONE, "label")
    >>> print(audit_reports(labels, reports, claim=claim, coins=SeededCoins(1)))
    at least epsilon 0.9... at delta 0 (0.95 confidence): consistent with the claimed epsilon 1.099

What is assumed
    Reports are independent, and those of equal labels have one law. That holds where all labels are
    told by one mechanism with the same public settings, as in a run's first stage. It does not
    where the settings differ from row to row.

The procedure
    A fair coin sends each row to one of two halves. On the first, for every two classes a and b, an
    event is sought (:mod:`~sfumato.audit.events`); the classes and the event that show most are
    kept. On the second half,

        epsilon >= ln(lower limit of Pr[report in S | a] / upper limit of Pr[report in S | b])

    by Clopper and Pearson's limits, since to replace a label a by b changes no probability by more
    than e^epsilon. Which rows are counted depends on coins, labels and the other half's reports, on
    none that is counted: the confidence is that of two binomial counts.
"""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sfumato.audit.events import LearnedEvent, learn_event
from sfumato.audit.findings import Finding
from sfumato.audit.intervals import Rates, epsilon_from_counts
from sfumato.core import validation
from sfumato.core.guarantee import Guarantee
from sfumato.core.randomness import SYSTEM, Coins, fair_coins

__all__ = ["audit_reports"]

_FEWEST = 8  # rows of a class in either half
_MOST_CLASSES = 10  # the commonest, of which every two are tried


def audit_reports(
    labels: ArrayLike,
    reports: ArrayLike,
    *,
    claim: Guarantee | None = None,
    confidence: float = 0.95,
    coins: Coins = SYSTEM,
) -> Finding:
    """A lower bound on the epsilon of randomised labels, from one report of each.

    Args:
        labels: (n,) the true class of each row. Private.
        reports: (n,) what was told of each, or (n, classes) noisy vectors.
        claim: what was promised, at a delta of 0.
        confidence: of the whole procedure.
        coins: which rows are counted; seeded in tests only.

    Returns:
        The finding, for the curator alone; at least 0 where no two classes have rows enough.
    """
    codes, told = np.asarray(labels), np.asarray(reports)
    if codes.ndim != 1 or len(told) != len(codes):
        validation.fail("reports", f"one for each of the {codes.shape} labels", told.shape)
    validation.open_probability("confidence", confidence)
    counted = fair_coins(max(len(codes), 1), coins)[: len(codes)]
    pairs = list(combinations(_classes(codes, counted), 2))
    facts: dict[str, Any] = {"rows": len(codes), "pairs_tried": len(pairs)}
    epsilon = 0.0
    if pairs:
        events = [_learned(codes, told, ~counted, pair) for pair in pairs]
        place = max(range(len(pairs)), key=lambda i: events[i].shown)
        inside, outside = _counts(codes, told, counted, pairs[place], events[place])
        epsilon = epsilon_from_counts(inside, outside, 0.0, confidence)
        facts |= {
            "labels": list(pairs[place]), "event": events[place].description,
            "likelier_on": "first" if events[place].on_first else "second",
            "inside": list(inside), "outside": list(outside),
        }  # fmt: skip
    return Finding(epsilon, 0.0, confidence, "reports of labels", claim, facts, private=True)


def _classes(codes: NDArray[Any], counted: NDArray[np.bool_]) -> list[int]:
    """The commonest of those with rows enough in both halves."""
    names, sizes = np.unique(codes, return_counts=True)
    enough = [
        (-int(size), int(name))
        for name, size in zip(names, sizes, strict=True)
        if min(int((half & (codes == name)).sum()) for half in (counted, ~counted)) >= _FEWEST
    ]
    return sorted(name for _, name in sorted(enough)[:_MOST_CLASSES])


def _shown(told: NDArray[Any], pair: tuple[int, int]) -> NDArray[Any]:
    """What is looked at: a report, or of a noisy vector the two numbers that may have moved."""
    return told if told.ndim == 1 else told[:, list(pair)]


def _learned(
    codes: NDArray[Any], told: NDArray[Any], rows: NDArray[np.bool_], pair: tuple[int, int]
) -> LearnedEvent:
    first, second = (_shown(told[rows & (codes == label)], pair) for label in pair)
    return learn_event(first, second)


def _counts(
    codes: NDArray[Any],
    told: NDArray[Any],
    rows: NDArray[np.bool_],
    pair: tuple[int, int],
    event: LearnedEvent,
) -> tuple[Rates, Rates]:
    """How often the event happened to the class where it is likelier, and to the other."""
    found: list[Rates] = []
    for label in pair:
        happened = event.contains(_shown(told[rows & (codes == label)], pair))
        found.append((int(happened.sum()), len(happened)))
    return (found[0], found[1]) if event.on_first else (found[1], found[0])
