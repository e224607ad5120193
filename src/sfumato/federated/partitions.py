"""One data set as many participants' data, for simulations: evenly, by shards, by Dirichlet.

    >>> labels = np.arange(10).repeat(60)
    >>> parts = by_shards(labels, participants=20, seed=0)
    >>> len(parts), {len(part) for part in parts}, max(len(set(labels[part])) for part in parts)
    (20, {30}, 2)

Real participants come with their data as it is. These cuts imitate how unlike each other they are;
their coins are seeded, and nothing here is a release.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sfumato.core import validation

__all__ = [
    "by_dirichlet",
    "by_shards",
    "check_partition",
    "evenly",
    "partition",
    "partition_names",
]

Part = NDArray[np.int64]
"""Which rows one participant has."""

_NAMES = ("even", "shards", "dirichlet")


def partition_names() -> tuple[str, ...]:
    """What :func:`partition` knows."""
    return _NAMES


def partition(
    labels: ArrayLike, participants: int, how: str = "shards", *, seed: int = 0
) -> list[Part]:
    """Rows of each participant.

    Args:
        labels: of all rows.
        participants: how many.
        how: "even", "shards" (two classes each, nearly) or "dirichlet" (concentration 0.3).
        seed: of the cut.
    """
    check_partition(how)
    if how == "even":
        return evenly(len(np.asarray(labels)), participants, seed=seed)
    return {"shards": by_shards, "dirichlet": by_dirichlet}[how](labels, participants, seed=seed)


def check_partition(how: str) -> None:
    """Refuses a cut that there is not."""
    if how not in _NAMES:
        validation.fail("partition", f"one of {', '.join(_NAMES)}", how)


def evenly(rows: int, participants: int, *, seed: int = 0) -> list[Part]:
    """Everyone a random part of the same size, to one row."""
    order = np.random.default_rng(seed).permutation(_enough(rows, participants))
    return [np.sort(part) for part in np.array_split(order, participants)]


def by_shards(
    labels: ArrayLike, participants: int, *, shards: int = 2, seed: int = 0
) -> list[Part]:
    """Rows sorted by label, cut into shards, a few to each: most see two classes.

    McMahan et al., "Communication-efficient learning of deep networks from decentralized data",
    arXiv:1602.05629, section 3.
    """
    found = np.asarray(labels)
    total = participants * validation.count("shards", shards)
    most = len(found) // shards
    if validation.count("participants", participants) > most:
        validation.fail(
            "participants",
            f"at most {most} for {shards} shards each of {len(found)} rows (or another partition)",
            participants,
        )
    random = np.random.default_rng(seed)
    shuffled = random.permutation(len(found))
    ordered = shuffled[np.argsort(found[shuffled], kind="stable")]
    pieces = np.array_split(ordered, total)
    given = random.permutation(total).reshape(participants, shards)
    return [np.sort(np.concatenate([pieces[i] for i in row])) for row in given]


def by_dirichlet(
    labels: ArrayLike, participants: int, *, concentration: float = 0.3, seed: int = 0
) -> list[Part]:
    """Each class spread over participants by Dirichlet shares: sizes and classes differ.

    Hsu, Qi and Brown, arXiv:1909.06335. Some may be left with few rows, or none.
    """
    found = np.asarray(labels)
    _enough(len(found), participants)
    alpha = validation.positive("concentration", concentration)
    random = np.random.default_rng(seed)
    parts: list[list[Part]] = [[] for _ in range(participants)]
    for label in np.unique(found):
        rows = random.permutation(np.flatnonzero(found == label))
        ends = np.cumsum(random.dirichlet(np.full(participants, alpha)))[:-1] * len(rows)
        for part, piece in zip(parts, np.split(rows, ends.astype(np.int64)), strict=True):
            part.append(piece)
    return [np.sort(np.concatenate(part)) for part in parts]


def _enough(rows: int, parts: int) -> int:
    parts = validation.count("participants", parts)
    if rows < parts:
        validation.fail("participants", f"at most the number of rows ({rows})", parts)
    return rows
