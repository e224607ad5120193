"""What released labels show of one teacher's votes, where many teachers vote with noise (PATE).

One unit more or less changes one teacher. The auditor is given the worst case: that teacher is the
adversary's, and in every question its one vote goes where the auditor wants it. So two tables of
votes differ by one moved vote a question, all labels are seen, and the game is which table they
come from.

The law of a label is known (:func:`label_law`), and noise is drawn afresh for every question. So
the best statistic is known too, the sum over all questions of

    ln Pr[label | votes with the unit] - ln Pr[label | votes without it],

and so is its law, by convolution: :func:`audit_label_law` bounds epsilon from below without any
draw. That is what the mechanism gives away if the code is right. Whether it is, games with the
code's own answers tell, scored by the same sum (:func:`label_score`).

    >>> tied = np.tile([125, 124], (20, 1))  # on each of 20 questions
    >>> moved = np.tile([124, 125], (20, 1))
    >>> p, q = (label_law(votes, "gaussian", 40.0) for votes in (tied, moved))
    >>> print(audit_label_law(p, q, delta=1e-5))
    at least epsilon 0.4124 at delta 1e-05 (exact, all labels)

The claim for these twenty answers is epsilon 0.5613: who sees labels does not see noisy counts.

Reference for the mechanism: Papernot et al., arXiv:1610.05755 and arXiv:1802.08908.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import log_ndtr, ndtr

from sfumato.audit.exact import at_delta
from sfumato.audit.findings import Finding
from sfumato.audit.intervals import epsilon_from_counts
from sfumato.audit.one_run import Analysis
from sfumato.audit.repeated import audit_games
from sfumato.core import validation
from sfumato.core.guarantee import Guarantee

__all__ = [
    "Check",
    "Law",
    "Scores",
    "Votes",
    "audit_label_law",
    "audit_scored_games",
    "label_law",
    "label_score",
    "log_ratios",
    "moved_worst",
    "scores_by_law",
]

Votes = NDArray[np.int64]
"""(questions, classes): how many teachers chose which class."""

Law = Callable[[Votes], NDArray[np.float64]]
"""From votes to :func:`label_law`'s probabilities."""

Scores = NDArray[np.float64]
"""One number for each game, higher where the unit is likelier to be there."""

_Floats = NDArray[np.float64]
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(16)
_FAR = 80.0  # scales below the leader beyond which a class never wins
_TAIL = 45.0  # scales above it that are integrated over
_ACCURACY = 1e-9  # relative, of the probabilities here: far more than their error
_NEGLIGIBLE = 1e-13  # outcomes that are left out, which only lowers a bound
_LOST = 0.01  # of epsilon, at most, by rounding losses down to a grid
_MOST_CELLS = 2**24
_LARGEST = 60.0  # of a log ratio
_LIKELY = 20_000  # scores by law
_MOST_EVENTS = 200  # tried by an auditor


@dataclass(frozen=True)
class Check:
    """What is asked before a label is given: does the largest number reach a threshold, noisily?

    Attributes:
        threshold: to reach.
        sigma: of its Gaussian noise.
        expected: (classes,) public numbers that votes are compared with; None for nothing.
    """

    threshold: float
    sigma: float
    expected: NDArray[np.float64] | None = None

    def passes(self, votes: Votes) -> NDArray[np.float64]:
        """How likely each question is to be answered."""
        compared = votes if self.expected is None else votes - self.expected
        return np.asarray(ndtr((compared.max(axis=1) - self.threshold) / self.sigma), np.float64)


def label_law(
    votes: ArrayLike, noise: str, scale: float, check: Check | None = None
) -> NDArray[np.float64]:
    """The probability of each label, and in the last column of none: (questions, classes + 1).

    Args:
        votes: (questions, classes) counts.
        noise: "gaussian" or "laplace", drawn for every count; the largest noisy count wins.
        scale: its standard deviation, or Laplace's scale.
        check: what comes before an answer; None if every question is answered.
    """
    counts = np.atleast_2d(np.asarray(votes, dtype=np.int64))
    scale = validation.positive("scale", scale)
    if noise not in _NOISES:
        validation.fail("noise", " or ".join(map(repr, _NOISES)), noise)
    rows, places = np.unique(counts, axis=0, return_inverse=True)
    won = np.stack([_winning(row / scale, *_NOISES[noise]) for row in rows])[places.reshape(-1)]
    passed = np.ones(len(counts)) if check is None else check.passes(counts)
    return np.concatenate([won * passed[:, None], 1 - passed[:, None]], axis=1)


def log_ratios(p: ArrayLike, q: ArrayLike) -> NDArray[np.float64]:
    """The difference ln p - ln q of each outcome; 0 for what happens on neither side."""
    first, second = np.asarray(p, np.float64), np.asarray(q, np.float64)
    least = np.finfo(np.float64).tiny
    found = np.log(np.maximum(first, least)) - np.log(np.maximum(second, least))
    return np.clip(found, -_LARGEST, _LARGEST)


def label_score(labels: Sequence[int | None], ratios: NDArray[np.float64]) -> float:
    """The log likelihood ratio of what was answered: higher where the unit is likelier to be there.

    Args:
        labels: the answers to the first questions, in order; None for no answer.
        ratios: from :func:`log_ratios`.
    """
    none = ratios.shape[1] - 1
    places = [none if label is None else label for label in labels]
    return float(ratios[np.arange(len(places)), places].sum())


def audit_label_law(
    p: ArrayLike,
    q: ArrayLike,
    *,
    delta: float | None = None,
    claim: Guarantee | None = None,
    facts: Mapping[str, Any] | None = None,
    private: bool = False,
) -> Finding:
    """What all labels together show about epsilon, if they follow these laws: all there is.

    The privacy loss of a question is ln p - ln q; losses of independent questions add. Each is
    rounded down to a grid, by 0.01 in the sum over all questions at most, so that the result is a
    lower bound.

    Args:
        p: (questions, outcomes): the law of each answer on one table of votes.
        q: the same on its neighbour.
        delta: at which; by default the claim's, or 0.
        claim: what was promised.
        facts: what else a reader should know.
        private: whether the votes are real ones; then so is the finding.
    """
    first, second = _laws("p", p), _laws("q", q)
    if first.shape != second.shape:
        validation.fail("q", f"probabilities of shape {first.shape}", second.shape)
    at = at_delta(delta, claim)
    sides = [_epsilon(*pair, at) for pair in ((first, second), (second, first))]
    known = {
        "questions": len(first), "likelier_on": ("first", "second")[int(np.argmax(sides))],
        **(facts or {}),
    }  # fmt: skip
    return Finding(max(sides), at, 1.0, "exact, all labels", claim, known, private)


def scores_by_law(law: ArrayLike, ratios: NDArray[np.float64], answers: int) -> Scores:
    """Scores as they are likely to be, by a law: from which an auditor chooses what to go by.

    Args:
        law: (questions, outcomes), the last of them for no answer.
        ratios: from :func:`log_ratios`.
        answers: after so many no question is asked.
    """
    random = np.random.default_rng(0)  # nothing of it is released
    total, given = np.zeros(_LIKELY), np.zeros(_LIKELY, np.int64)
    none = ratios.shape[1] - 1
    for chances, row in zip(_laws("law", law), ratios, strict=True):
        edges = np.cumsum(chances)[:-1]
        outcome = np.searchsorted(edges, random.random(_LIKELY), side="right")
        asked = given < answers
        total += np.where(asked, row[outcome], 0.0)
        given += asked & (outcome != none)
    return total


def audit_scored_games(
    inside: ArrayLike,
    outside: ArrayLike,
    *,
    claim: Guarantee,
    confidence: float,
    likely: tuple[Scores, Scores] | None = None,
) -> Finding:
    """A lower bound on epsilon from scores of independent games, whatever law they follow.

    The auditor goes by an event: a score above or below some number. What tells may be a label that
    is seldom given, more seldom with the unit or more seldom without it, so both are tried.

    Args:
        inside: scores of games with the unit.
        outside: of games without it.
        claim: what one game promises.
        confidence: of the whole procedure.
        likely: scores of either side that were not played, by which the event is chosen. By default
            every second game chooses it, and only the others count.
    """
    ins, outs = np.asarray(inside, np.float64), np.asarray(outside, np.float64)
    if likely is None:
        likely, ins, outs = (ins[::2], outs[::2]), ins[1::2], outs[1::2]
    at, sign = _telling_event(likely, (len(ins), len(outs)), claim.delta, confidence)
    first, second = (ins, outs) if sign == 1 else (-outs, -ins)
    found = audit_games(
        first, second, claim=claim, confidence=confidence, threshold=sign * at,
        analysis=Analysis.GUESSES,
    )  # fmt: skip
    kept = {name: value for name, value in found.facts.items() if name != "mu_at_least"}
    event = "above, likelier with the unit" if sign == 1 else "below, likelier without the unit"
    return replace(found, facts={**kept, "threshold": at, "event": f"a score {event}"})


def _telling_event(
    likely: tuple[Scores, Scores], games: tuple[int, int], delta: float, confidence: float
) -> tuple[float, int]:
    """The event of which so many games are likely to show most: its number, and 1 for above it."""
    ins, outs = likely
    seen = np.unique(np.concatenate([ins, outs]))
    places = np.unique(np.linspace(0, len(seen) - 1, _MOST_EVENTS).astype(int))
    best = (-1.0, -1.0, 0.0, 1)
    for at in seen[places].tolist():
        for sign in (1, -1):
            sides = (ins, outs) if sign == 1 else (-outs, -ins)
            power, alarms = (float((side > sign * at).mean()) for side in sides)
            rates = [(round(r * n), n) for r, n in zip((power, alarms), games[::sign], strict=True)]
            # One more alarm than is likely: luck at rare events is not power.
            rates[1] = (min(rates[1][0] + 1, rates[1][1]), rates[1][1])
            shown = epsilon_from_counts(rates[0], rates[1], delta, confidence)
            best = max(best, (shown, power - alarms, at, sign))
    return best[2], best[3]


def moved_worst(votes: ArrayLike, law: Law) -> tuple[Votes, Votes]:
    """Two tables with one vote moved in every question, the way that shows most.

    Tried are moves between the first, the second and the third class of each question. What shows
    most is the largest sum of both relative entropies; the first table is the one without the
    adversary, as given.
    """
    counts = np.atleast_2d(np.asarray(votes, dtype=np.int64))
    best, shown = counts.copy(), np.full(len(counts), -1.0)
    given = law(counts)
    for moved in _moves(counts):
        changed = law(moved)
        ratios = log_ratios(given, changed)
        found = np.einsum("ij,ij->i", given - changed, ratios)
        better = (found > shown) & (moved.min(axis=1) >= 0)
        best[better], shown[better] = moved[better], found[better]
    return counts, best


def _moves(counts: Votes) -> Iterable[Votes]:
    order = np.argsort(-counts, axis=1, kind="stable")
    rows = np.arange(len(counts))
    near = range(min(3, counts.shape[1]))
    for source in near:
        for goal in near:
            if source != goal:
                moved = counts.copy()
                moved[rows, order[:, source]] -= 1
                moved[rows, order[:, goal]] += 1
                yield moved


# --- the law of the winner ----------------------------------------------------------------------


def _log_normal_density(x: _Floats) -> _Floats:
    return -0.5 * x**2 - 0.5 * np.log(2 * np.pi)


def _log_laplace_density(x: _Floats) -> _Floats:
    return -np.abs(x) - np.log(2)


def _log_laplace_cdf(x: _Floats) -> _Floats:
    tail = -np.abs(x) - np.log(2)
    return np.asarray(np.where(x < 0, tail, np.log1p(-np.exp(tail))), np.float64)


_Function = Callable[[_Floats], _Floats]
_NOISES: dict[str, tuple[_Function, _Function]] = {
    "gaussian": (_log_normal_density, log_ndtr),
    "laplace": (_log_laplace_density, _log_laplace_cdf),
}


def _winning(levels: _Floats, log_density: _Function, log_cdf: _Function) -> _Floats:
    """How likely each is the largest, with noise of scale 1 on every level.

    The integral of density(x - z_j) times the product of cdf(x - z_i) over all others, by panels
    between whole numbers and the levels, where Laplace's density has its kinks.
    """
    below = np.maximum(levels - levels.max(), -_FAR)
    edges = np.unique(np.concatenate([np.arange(below.min() - 25, _TAIL + 1), below]))
    width = np.diff(edges)
    x = (edges[:-1, None] + width[:, None] * (1 + _NODES) / 2).ravel()
    away = x[:, None] - below[None, :]
    cdf = log_cdf(away)
    others = cdf.sum(axis=1, keepdims=True) - cdf
    values = np.exp(log_density(away) + others)
    return np.asarray((width[:, None] * _WEIGHTS / 2).ravel() @ values, np.float64)


# --- the law of the sum -------------------------------------------------------------------------


def _epsilon(p: _Floats, q: _Floats, delta: float) -> float:
    """The largest epsilon at which p against q exceeds delta, all questions together."""
    losses = log_ratios(p, q) - 2 * _ACCURACY
    counted = p > _NEGLIGIBLE
    spread = np.where(counted, losses, 0.0)
    width = float((spread.max(axis=1) - spread.min(axis=1)).sum())
    step = max(_LOST / len(p), width / _MOST_CELLS)
    law, start = np.ones(1), 0
    for row, kept, chances in zip(losses, counted, p, strict=True):
        places = np.floor(row[kept] / step).astype(np.int64)
        lowest = int(places.min())
        law = _added(law, chances[kept] * (1 - _ACCURACY), places - lowest)
        start += lowest
    totals = np.arange(start, start + len(law), dtype=np.float64) * step
    return _largest(law, totals, delta)


def _added(law: _Floats, chances: _Floats, places: NDArray[np.int64]) -> _Floats:
    """The law of a sum with one question more."""
    found = np.zeros(len(law) + int(places.max()))
    for chance, place in zip(chances, places, strict=True):
        found[place : place + len(law)] += chance * law
    return found


def _largest(law: _Floats, totals: _Floats, delta: float) -> float:
    """The largest epsilon with E[max(1 - e^(epsilon - loss), 0)] above delta; 0 if there is none.

    Between two losses that is a - b e^epsilon, with a the probability of the larger losses and b
    the sum of their p e^(-loss).
    """
    law, totals = law[law > 0], totals[law > 0]
    above = np.cumsum(law[::-1])[::-1]
    with np.errstate(over="ignore"):
        other = np.cumsum((law * np.exp(-totals))[::-1])[::-1]
    with np.errstate(divide="ignore", invalid="ignore"):
        shown = np.log(above - delta) - np.log(other)
    return max(0.0, float(np.max(np.where(above > delta, shown, 0.0)))) * (1 - 1e-12)


def _laws(name: str, values: ArrayLike) -> _Floats:
    laws = np.atleast_2d(np.asarray(values, np.float64))
    fits = laws.ndim == 2 and laws.size and bool((laws >= 0).all())
    if not fits or bool((np.abs(laws.sum(axis=1) - 1) > 1e-6).any()):
        validation.fail(name, "a row of probabilities for each question", laws.shape)
    return laws
