"""Data to train shadow models on, without the target's data.

Three sources, from the least that an attacker may have to the most:

===================  ============================================================================
:func:`hill_climb`   nothing but the target's scores: records that it is sure of
:func:`independent`  what is public of each feature alone: its values and how common they are
:func:`noisy`        real records of the same kind, a share of their features wrong
===================  ============================================================================

Hill climbing, for one record of class c. With x the best record so far and k features to change:

1. Ask about x with k features, picked at random, changed: flipped if binary, drawn anew if not.
2. If the probability of c did not fall, keep the new record. If it is also above
   ``least_probability`` and c is the most likely class, stop with that probability; it is the
   record.
3. If it fell, count a refusal. After more than ``most_refusals`` in a row halve k, not below
   ``fewest_changed``. At first k is ``most_changed``.

    >>> from sfumato.attacks.membership.record_features import Binary
    >>> def answer(inputs):  # the more ones, the surer of class 1
    ...     ones = inputs.mean(axis=1)
    ...     return np.stack([1 - ones, ones], axis=1)
    >>> made = hill_climb(
    ...     Target.of_scores(answer), [1, 1, 0], Binary(40), least_probability=0.8, most_changed=8,
    ...     generator=np.random.default_rng(1),
    ... )
    >>> made.found.tolist(), bool((made.probabilities > 0.8).all())
    ([True, True, True], True)

Many records climb at once: each round asks the target about one proposal of each.

Marginals and bounds must be public facts. Records made from a target's answers carry what the
target tells of its training data: they are for the curator.

Reference: Shokri, Stronati, Song and Shmatikov, "Membership inference attacks against machine
learning models", IEEE S&P 2017, arXiv:1610.05820, section V-C and algorithm 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sfumato.attacks.membership.record_features import Features, Marginal, some_features
from sfumato.attacks.targets import Target, View
from sfumato.core import validation

__all__ = ["Synthesis", "hill_climb", "independent", "noisy"]


@final
@dataclass(frozen=True, eq=False)
class Synthesis:
    """Records made up against a target. For the curator only.

    Attributes:
        inputs: the best record of each climb.
        labels: the class that was asked for.
        probabilities: the target's probability of that class.
        found: which climbs ended with a record that counts; only these are worth training on.
        queries: how many questions each climb took.
    """

    inputs: NDArray[np.float64]
    labels: NDArray[np.int64]
    probabilities: NDArray[np.float64]
    found: NDArray[np.bool_]
    queries: NDArray[np.int64]

    @property
    def records(self) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Inputs and labels of those that were found: data to train shadows on."""
        return self.inputs[self.found], self.labels[self.found]

    @property
    def queries_per_record(self) -> float | None:
        """Questions for each record found, those of vain climbs included; None if none was."""
        return float(self.queries.sum() / self.found.sum()) if self.found.any() else None

    def __str__(self) -> str:
        cost = self.queries_per_record
        each = "" if cost is None else f", {cost:.0f} for each record"
        return (
            f"{int(self.found.sum()):,} of {len(self.found):,} records found with "
            f"{int(self.queries.sum()):,} queries{each}"
        )

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready, without the records; ``channel`` says who may read it."""
        return {
            "channel": "curator",
            "asked": len(self.found),
            "found": int(self.found.sum()),
            "queries": int(self.queries.sum()),
            "queries_per_record": self.queries_per_record,
        }


def hill_climb(
    target: Target,
    labels: ArrayLike,
    features: Features,
    *,
    generator: np.random.Generator,
    most_changed: int = 128,
    fewest_changed: int = 4,
    least_probability: float = 0.2,
    most_refusals: int = 10,
    most_queries: int = 1000,
) -> Synthesis:
    """Makes a record for each of ``labels``, as the module says.

    With a target that answers a limited number of queries, climbing ends when they are spent; what
    was found until then is returned.

    Args:
        target: the model; it must show scores.
        labels: the class wanted of each record.
        features: what a record may be.
        generator: for every random choice.
        most_changed: how many features change at first; at most all of them.
        fewest_changed: how many change at least.
        least_probability: the probability that the wanted class must exceed.
        most_refusals: how many refusals in a row are borne before fewer features change.
        most_queries: a climb that took so many ends without a record.

    Raises:
        NotSeen: if the target does not show scores.
    """
    target.require(View.SCORES)
    wanted = np.asarray(labels, dtype=np.int64).ravel()
    validation.count("number of labels", len(wanted))
    validation.at_least("labels", int(wanted.min()), 0)
    most = min(validation.count("most_changed", most_changed), features.count)
    least = min(validation.count("fewest_changed", fewest_changed), most)
    sure = validation.open_probability("least_probability", least_probability)
    patience = validation.at_least("most_refusals", most_refusals, 0)
    state = _Climb(wanted, features, most, generator)
    for _ in range(validation.count("most_queries", most_queries)):
        if not state.climbing.any() or _left(target) < state.climbing.sum():
            break
        state.step(target, least, sure, patience, generator)
    return Synthesis(state.best, wanted, state.probability, ~state.climbing, state.queries)


class _Climb:
    """Where every climb stands."""

    def __init__(
        self,
        wanted: NDArray[np.int64],
        features: Features,
        k: int,
        generator: np.random.Generator,
    ) -> None:
        rows = len(wanted)
        self.wanted, self.features = wanted, features
        self.proposed = features.draw(rows, generator=generator)
        self.best = self.proposed.copy()
        self.probability = np.zeros(rows)
        self.k = np.full(rows, k)
        self.refusals = np.zeros(rows, dtype=np.int64)
        self.queries = np.zeros(rows, dtype=np.int64)
        self.climbing = np.ones(rows, dtype=bool)

    def step(
        self,
        target: Target,
        least: int,
        least_probability: float,
        most_refusals: int,
        generator: np.random.Generator,
    ) -> None:
        """Asks about every proposal once, and makes the next ones."""
        rows = np.flatnonzero(self.climbing)
        answers = target.probabilities(self.proposed[rows])
        if answers.shape[1] <= self.wanted.max():
            top = answers.shape[1] - 1
            validation.fail("labels", f"classes of the target, 0 to {top}", self.wanted.max())
        self.queries[rows] += 1
        told = answers[np.arange(len(rows)), self.wanted[rows]]
        rose = told >= self.probability[rows]
        good = rose & (told > least_probability) & (answers.argmax(axis=1) == self.wanted[rows])
        done = good & (generator.random(len(rows)) < told)
        kept, refused = rows[rose], rows[~rose]
        self.best[kept], self.probability[kept] = self.proposed[kept], told[rose]
        self.refusals[kept] = 0
        self.refusals[refused] += 1
        tired = refused[self.refusals[refused] > most_refusals]
        self.k[tired] = np.maximum(least, -(-self.k[tired] // 2))
        self.refusals[tired] = 0
        self.climbing[rows[done]] = False
        on = rows[~done]
        where = some_features(self.k[on], self.features.count, generator=generator)
        self.proposed[on] = self.features.changed(self.best[on], where, generator=generator)


def noisy(
    records: ArrayLike, features: Features, share: float, *, generator: np.random.Generator
) -> NDArray[np.float64]:
    """Real records of which a share of the features, picked for each record, is changed.

    Binary features are flipped, numbers drawn anew. The paper takes shares of 0.1 and 0.2.

    Args:
        records: one a row.
        features: what they may be.
        share: of the features of each record, rounded to a whole number of them.
        generator: for every random choice.
    """
    rows = np.atleast_2d(np.asarray(records, dtype=np.float64))
    if rows.ndim != 2 or rows.shape[1] != features.count:
        validation.fail("records", f"rows of {features.count} features", rows.shape)
    part = validation.non_negative("share", share)
    if part > 1:
        validation.fail("share", "between 0 and 1", share)
    changed = np.full(len(rows), round(part * features.count))
    where = some_features(changed, features.count, generator=generator)
    return features.changed(rows, where, generator=generator)


def independent(
    marginals: Sequence[Marginal], rows: int, *, generator: np.random.Generator
) -> NDArray[np.float64]:
    """Records whose features are drawn each from its public marginal, without regard to the others.

    The target's own answers may serve as labels: ``target.labels(records)``.
    """
    if not marginals:
        validation.fail("marginals", "one for each feature", list(marginals))
    size = validation.count("rows", rows)
    return np.stack([marginal.draw(size, generator=generator) for marginal in marginals], axis=1)


def _left(target: Target) -> float:
    return float("inf") if target.budget is None else target.budget - target.queries
