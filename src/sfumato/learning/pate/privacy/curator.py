"""The curator's view of real votes, not to be published: how far teachers agree, and its cost.

Everything here is read from private votes without being charged: it is for the operator who holds
the data, to be shown or kept where only the owner reads. A data-dependent epsilon leaves through
:mod:`~sfumato.learning.pate.privacy.smooth` or not at all.

    >>> from sfumato.learning.pate.aggregators import GaussianMax
    >>> votes = np.tile([180, 30, 20, 10, 10], (400, 1))
    >>> view = curator_view(votes, GaussianMax(sigma=40), delta=1e-5)
    >>> view.curve.questions[-1], view.curve.dependent[-1] < view.curve.independent[-1]
    (400, True)
    >>> max(view.agreement.counts), view.to_dict()["curator_only"]
    (400, True)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, final

import numpy as np
from numpy.typing import ArrayLike

from sfumato.accounting.dpa import DEFAULT_ORDERS
from sfumato.accounting.rdp import epsilon_from_rdp, rdp_vector
from sfumato.core import validation
from sfumato.core.events import Event
from sfumato.core.neighbours import Neighbours
from sfumato.learning.pate.aggregators import Aggregator
from sfumato.learning.pate.privacy.costs import answer_costs, check_costs
from sfumato.learning.pate.privacy.votes import Floats, as_counts

__all__ = ["AgreementHistogram", "CostCurve", "CuratorView", "agreement", "curator_view"]


@final
@dataclass(frozen=True)
class AgreementHistogram:
    """How many questions have how large a share of votes for the first class.

    Attributes:
        edges: of the bins, from 0 to 1.
        counts: one less than edges; the last bin holds full agreement.
    """

    edges: tuple[float, ...]
    counts: tuple[int, ...]


@final
@dataclass(frozen=True)
class CostCurve:
    """Epsilon against the number of questions, by RDP for both.

    Attributes:
        questions: after so many ...
        answers: ... of which so many were answered ...
        independent: ... epsilon for all data ...
        dependent: ... and for these.
        delta: of both.
    """

    questions: tuple[int, ...]
    answers: tuple[int, ...]
    independent: tuple[float, ...]
    dependent: tuple[float, ...]
    delta: float


@final
@dataclass(frozen=True)
class CuratorView:
    """What the curator may see of one run.

    Attributes:
        aggregator: how votes become answers, as a dictionary.
        agreement: the histogram of agreement.
        curve: epsilon against the number of questions.
    """

    aggregator: dict[str, Any]
    agreement: AgreementHistogram
    curve: CostCurve

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready, for the curator's folder only, and says so."""
        return asdict(self) | {"curator_only": True}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> CuratorView:
        """The inverse of :meth:`to_dict`."""
        shares, curve = data["agreement"], data["curve"]
        lines = {name: tuple(curve[name]) for name in _LINES}
        return cls(
            dict(data["aggregator"]),
            AgreementHistogram(tuple(shares["edges"]), tuple(shares["counts"])),
            CostCurve(**lines, delta=curve["delta"]),
        )


_LINES = ("questions", "answers", "independent", "dependent")


def agreement(votes: ArrayLike, bins: int = 20) -> AgreementHistogram:
    """The histogram of the first class's share. A question without votes counts as share 0."""
    counts = as_counts(votes)
    shares = counts[:, 0] / np.maximum(counts.sum(axis=1), 1.0)
    found, edges = np.histogram(shares, bins=validation.count("bins", bins), range=(0.0, 1.0))
    return AgreementHistogram(tuple(edges.tolist()), tuple(found.tolist()))


def curator_view(
    votes: ArrayLike,
    aggregator: Aggregator,
    delta: float,
    *,
    answered: ArrayLike | None = None,
    opinions: ArrayLike | None = None,
    points: int = 50,
    bins: int = 20,
) -> CuratorView:
    """All of it for one run, or for one aggregator that might be used.

    Args:
        votes: (questions, classes) counts, in the order asked.
        aggregator: how votes become answers.
        delta: of the epsilons.
        answered: which questions were answered, or with which probability they would be, for
            costs as they are to be expected; all by default.
        opinions: the student's (questions, classes) probabilities, for interactive answers.
        points: at how many numbers of questions epsilon is computed.
        bins: of the histogram.
    """
    counts = np.atleast_2d(np.asarray(votes, dtype=np.float64))
    asked = len(counts)
    given = np.ones(asked) if answered is None else np.asarray(answered, dtype=np.float64)
    if given.shape != (asked,):
        validation.fail("answered", f"one truth value for each of {asked} rows", given.shape)
    at = np.unique(
        np.linspace(1, asked, min(validation.count("points", points), asked)).astype(int)
    )
    answers = np.cumsum(given)[at - 1]
    delta = validation.open_probability("delta", delta)
    check, answer = aggregator.check_event("record"), aggregator.answer_event("record")
    independent = np.outer(at, _vector(check)) + np.outer(answers, _vector(answer))
    dependent = check_costs(aggregator, counts, DEFAULT_ORDERS, opinions)
    dependent += given[:, None] * answer_costs(aggregator, counts, DEFAULT_ORDERS)
    curve = CostCurve(
        tuple(at.tolist()),
        tuple(np.rint(answers).astype(int).tolist()),
        _epsilons(independent, delta),
        _epsilons(np.cumsum(dependent, axis=0)[at - 1], delta),
        delta,
    )
    return CuratorView(aggregator.to_dict(), agreement(counts, bins), curve)


def _vector(event: Event | None) -> Floats:
    if event is None:
        return np.zeros(len(DEFAULT_ORDERS))
    return rdp_vector(event, Neighbours.ADD_REMOVE, DEFAULT_ORDERS).values


def _epsilons(rows: Floats, delta: float) -> tuple[float, ...]:
    return tuple(epsilon_from_rdp(DEFAULT_ORDERS, row, delta) for row in rows)
