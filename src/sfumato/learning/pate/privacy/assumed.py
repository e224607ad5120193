"""What a plan assumes about agreement, which is private and must not be looked at to plan.

    >>> assumed = mnist_agreement(rows=60_000)(250)
    >>> assumed.shares.shape, round(float(assumed.shares[:, 0].mean()), 2)
    ((10, 10), 0.94)

By default that of teachers measured on public data, MNIST, with as many rows each: ten kinds of
question, equally frequent, from those on which teachers differ most to those on which they all
agree. Harder data have less agreement; give a guess of your own, or what public data like yours
show. Never what the private votes show: noise and numbers chosen by them would release them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import ArrayLike

from sfumato.core import validation
from sfumato.learning.pate.privacy.votes import Floats

__all__ = ["Assumed", "as_assumed", "mnist_agreement", "two_classes"]


@final
@dataclass(frozen=True)
class Assumed:
    """Kinds of question, all equally frequent.

    Attributes:
        shares: (kinds, classes) of the votes.
        right: (kinds,) how often the class with most votes is the right one; None if not assumed.
    """

    shares: Floats
    right: Floats | None = None


def as_assumed(agreement: ArrayLike | Assumed) -> Assumed:
    """Rows of shares, checked.

    Raises:
        ValueError: unless they are shares of at least two classes.
    """
    if isinstance(agreement, Assumed):
        return agreement
    shares = np.atleast_2d(np.asarray(agreement, dtype=np.float64))
    fine = shares.ndim == 2 and shares.shape[1] > 1 and np.isfinite(shares).all()
    if not fine or (shares < 0).any() or (shares.sum(axis=1) > 1 + 1e-9).any():
        validation.fail("agreement", "rows of shares of the votes, of sum 1 at most", agreement)
    return Assumed(shares)


def two_classes(first: ArrayLike) -> Assumed:
    """Kinds of question by the first class's share; all others vote for one second class.

    >>> two_classes([0.9, 0.75]).shares.round(2).tolist()
    [[0.9, 0.1], [0.75, 0.25]]
    """
    given = np.atleast_1d(np.asarray(first, dtype=np.float64))
    if given.ndim != 1 or not ((given >= 0.5) & (given <= 1)).all():
        validation.fail("agreement", "shares of the first class, from 0.5 to 1", first)
    return Assumed(np.stack([given, 1 - given], axis=1))


def mnist_agreement(rows: int = 60_000) -> Callable[[int], Assumed]:
    """From a number of teachers to how far those on MNIST agree who have as many rows each.

    Between measured numbers of rows, linear in their logarithm; above the largest, as there.

    Args:
        rows: of the private data, dealt to all teachers; a public number.

    Raises:
        ValueError: for fewer rows a teacher than were measured.
    """
    rows = validation.count("rows", rows)
    known = sorted(_MNIST)

    def assumed(teachers: int) -> Assumed:
        each = rows / validation.count("teachers", teachers)
        if each < known[0]:
            validation.fail(
                "teachers",
                f"at most {rows // known[0]} for {rows} rows, to have {known[0]} each: agreement "
                "of teachers with fewer was not measured; assume one of your own",
                teachers,
            )
        place, table = np.log(each), np.array([_MNIST[number] for number in known])
        at = np.array(
            [np.interp(place, np.log(known), cell) for cell in table.reshape(len(known), -1).T]
        )
        first, second, right = at.reshape(3, -1) / 1000
        return Assumed(_spread(first, second), right)

    return assumed


_CLASSES = 10


def _spread(first: Floats, second: Floats) -> Floats:
    """The votes that are left go to all other classes alike."""
    rest = np.maximum(1 - first - second, 0.0) / (_CLASSES - 2)
    return np.stack([first, second, *[rest] * (_CLASSES - 2)], axis=1)


_MNIST: dict[int, tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]] = {
    60: (
        (449, 614, 720, 795, 851, 893, 923, 947, 969, 987),
        (303, 248, 180, 132, 97, 70, 50, 33, 20, 7),
        (615, 847, 934, 972, 992, 996, 996, 998, 999, 999),
    ),
    120: (
        (540, 760, 873, 932, 965, 982, 991, 996, 999, 1000),
        (312, 181, 94, 51, 27, 14, 7, 3, 1, 0),
        (626, 886, 954, 980, 996, 999, 997, 999, 999, 1000),
    ),
    240: (
        (620, 879, 963, 988, 996, 1000, 1000, 1000, 1000, 1000),
        (287, 99, 31, 10, 4, 0, 0, 0, 0, 0),
        (664, 914, 978, 990, 999, 998, 1000, 1000, 1000, 999),
    ),
    600: (
        (715, 962, 998, 1000, 1000, 1000, 1000, 1000, 1000, 1000),
        (232, 33, 2, 0, 0, 0, 0, 0, 0, 0),
        (698, 953, 998, 996, 999, 1000, 1000, 999, 1000, 997),
    ),
    1200: (
        (776, 992, 1000, 1000, 1000, 1000, 1000, 1000, 1000, 1000),
        (191, 7, 0, 0, 0, 0, 0, 0, 0, 0),
        (739, 981, 995, 994, 998, 1000, 997, 1000, 1000, 995),
    ),
    2400: (
        (832, 1000, 1000, 1000, 1000, 1000, 1000, 1000, 1000, 1000),
        (148, 0, 0, 0, 0, 0, 0, 0, 0, 0),
        (780, 992, 989, 995, 994, 999, 994, 999, 999, 993),
    ),
    6000: (
        (868, 1000, 1000, 1000, 1000, 1000, 1000, 1000, 1000, 1000),
        (121, 0, 0, 0, 0, 0, 0, 0, 0, 0),
        (810, 989, 986, 992, 991, 998, 990, 999, 999, 991),
    ),
}
"""By rows of a teacher, in thousandths for each tenth of the test images, those with the least
agreement first: the share of the first class, of the second, and how often the first is right."""
