"""One epsilon in three parts: relevance, inputs, labels.

>>> parts = split_epsilon(10.0, classes=10, relevance_share=0.1)
>>> [round(e, 4) for e in parts]
[1.0, 5.22, 3.78]
>>> sum(parts) <= 10.0
True
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import NamedTuple

from sfumato.core import validation

__all__ = ["Parts", "best_label_share", "split_epsilon"]


class Parts(NamedTuple):
    """What each release may cost."""

    relevance: float
    inputs: float
    labels: float


def best_label_share(epsilon: float, classes: int) -> float:
    """The part of what is left after relevance that makes class means of noisy inputs clearest.

    A mean over the reports of a class differs from that of another by the contrast p - q of
    randomised response, and its noise is 1 over the inputs' epsilon: the greatest (epsilon - e)
    (p - q)(e), where p - q = (E - 1) / (E + K - 1) with E = exp(e). A function of public numbers.

    >>> round(best_label_share(9.0, 10), 2), round(best_label_share(1.0, 10), 2)
    (0.42, 0.55)
    """
    total, most = (
        validation.positive("epsilon", epsilon),
        validation.at_least("classes", classes, 2),
    )

    def worth(share: float) -> float:
        grown = math.expm1(min(share * total, 700.0))
        return (1 - share) * grown / (grown + most)

    return max((step / 100 for step in range(1, 100)), key=worth)


def split_epsilon(
    epsilon: float, classes: int, relevance_share: float = 0.0, label_share: float | None = None
) -> Parts:
    """The three epsilons; they never add up to more than ``epsilon``, exactly.

    Args:
        epsilon: of everything.
        classes: how many.
        relevance_share: for relevance, at least 0 and below 1; 0 for none.
        label_share: of the rest, for labels; None for the best.
    """
    whole = validation.positive("epsilon", epsilon)
    first = whole * validation.delta("relevance_share", relevance_share)
    share = best_label_share(whole - first, classes) if label_share is None else label_share
    last = (whole - first) * validation.open_probability("label_share", share)
    middle = whole - first - last
    while sum(map(Fraction, (first, middle, last))) > Fraction(whole):
        middle = math.nextafter(middle, 0.0)
    return Parts(first, middle, last)
