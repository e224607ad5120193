"""LiRA: a likelihood ratio for every example, from models trained with it and without it.

What the attacker sees: the target's probabilities for an example (and for changed copies of it, if
he asks several queries), and the same from shadow models he trained himself, each on a random half
of the examples. He knows which shadow models had which examples.

An example's confidence on the scale of logits, phi = log(p_y / (1 - p_y)), is close to normal over
training runs. So for each example two normal laws are fitted: over the models with it (in) and over
those without it (out). The target's phi is then read against both:

=========  =====================================================================================
online     log N(phi; mu_in, sigma_in^2) - log N(phi; mu_out, sigma_out^2)
offline    z = (phi - mu_out) / sigma_out: no model with the example is needed, so that the
           shadow models are trained before it is known whom to attack
=========  =====================================================================================

The paper's offline score is 1 - Pr[Z > phi] = Phi(z), Z of the out law. It rises with z and rounds
to 1 from z = 8.3 on, where the surest members are: z itself is given, which keeps them apart.

*Several queries* of an example have spherical laws N(mu, sigma^2 I): a centre each, one variance.
Online their log ratios add up. Offline, z is that of their sum: (sum phi - sum mu) / (sigma
sqrt(k)) for k queries.

*Variances* are, with fewer than 64 models, one for all examples and all "in" (another for all
"out"), for a variance of few values is worse than a common one. It is the pooled variance *within*
examples; the spread of one example's mean from another's is no part of it.

    >>> random = np.random.default_rng(1)
    >>> included = np.arange(8)[:, None] % 2 == np.arange(500) % 2
    >>> phis = random.normal(3.0 * included, 1.0)
    >>> scores = lira_each(phis, included)
    >>> from sfumato.attacks.roc import Roc
    >>> round(Roc.from_scores(scores[included], scores[~included]).auc, 2)  # at best 0.98
    0.97

:func:`lira_attack` asks a target and does all of this; :func:`lira_scores` is for numbers that are
at hand, :func:`lira_each` for many targets at once.

What is found is for the curator, never for publication.

Reference: Carlini, Chien, Nasr, Song, Terzis and Tramèr, "Membership inference attacks from first
principles", IEEE S&P 2022, arXiv:2112.03570, algorithm 1, equation 4 and section VI.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sfumato.attacks.candidates import Candidates
from sfumato.attacks.membership.label_only import Change, changed_inputs
from sfumato.attacks.membership.logit_scale import phi, phi_from_logits, smallest
from sfumato.attacks.membership.reports import MembershipReport
from sfumato.attacks.targets import Target, View
from sfumato.core import validation

__all__ = ["lira_attack", "lira_each", "lira_scores", "phi", "phi_from_logits"]

ENOUGH_MODELS = 64
"""From so many models on each example gets variances of its own."""

_LEAST_VARIANCE = 1e-12  # differences of phi below 1e-6 are rounding

_Floats = NDArray[np.float64]
_Marks = NDArray[np.bool_]


def lira_attack(
    target: Target,
    candidates: Candidates,
    shadow_answers: ArrayLike,
    included: ArrayLike,
    *,
    changes: Sequence[Change] = (),
    online: bool = True,
    fixed_variance: bool | None = None,
    medians: bool = False,
    confidence: float = 0.95,
    generator: np.random.Generator | None = None,
) -> MembershipReport:
    """Reads the target's answers against those of shadow models. It needs to see scores.

    Shadow models should be asked as the target is: through the same rounding, the same changes. A
    probability that a target rounds to 0 counts as half of its last digit, for shadows as well.

    Args:
        target: the model under attack.
        candidates: whose membership is guessed.
        shadow_answers: the shadows' probabilities for the candidates, of shape (models, examples,
            classes); with ``changes``, (models, examples, 1 + changes, classes), the unchanged
            example first.
        included: of shape (models, examples): which model was trained on which candidate.
        changes: the target is also asked about each candidate after each of these; a mirrored
            picture, for instance. They must change the same way each time.
        online: see :func:`lira_scores`.
        fixed_variance: see there.
        medians: see there.
        confidence: of the report's intervals.
        generator: see :meth:`MembershipReport.from_scores`.

    Raises:
        NotSeen: if the target does not show scores.
        ValueError: see :func:`lira_scores`.
    """
    target.require(View.SCORES)
    labels = candidates.labels[:, None]
    shadows = _shadows(shadow_answers, len(labels), 1 + len(changes))
    least = smallest(shadows) if target.digits is None else 10.0**-target.digits / 2
    before = target.queries
    asked = changed_inputs(candidates.inputs, changes)
    told = np.stack([target.probabilities(rows) for rows in asked], axis=1)
    scores = lira_scores(
        phi(told, labels, least),
        phi(shadows, labels, least),
        included,
        online=online,
        fixed_variance=fixed_variance,
        medians=medians,
    )
    return MembershipReport.from_scores(
        scores,
        candidates.members,
        labels=candidates.labels,
        attack=f"LiRA, {'online' if online else 'offline'}",
        confidence=confidence,
        generator=generator,
        queries=target.queries - before,
    )


def _shadows(answers: ArrayLike, examples: int, queries: int) -> NDArray[Any]:
    """Of shape (models, examples, queries, classes)."""
    table = np.asarray(answers)
    table = table[:, :, None] if table.ndim == 3 else table
    if table.ndim != 4 or table.shape[1:3] != (examples, queries):
        more = "" if queries == 1 else f", {queries}"
        wanted = f"of shape (models, {examples}{more}, classes)"
        validation.fail("shadow_answers", wanted, np.shape(answers))
    return table


def lira_scores(
    target_phi: ArrayLike,
    shadow_phi: ArrayLike,
    included: ArrayLike,
    *,
    online: bool = True,
    fixed_variance: bool | None = None,
    medians: bool = False,
) -> _Floats:
    """A score for each example: the higher, the likelier a member of the target.

    Args:
        target_phi: of shape (examples,) or (examples, queries).
        shadow_phi: of shape (models, examples) or (models, examples, queries).
        included: of shape (models, examples): which model was trained on which example.
        online: read against models with the example and without it; if False, without it only.
        fixed_variance: one variance for all examples; by default with fewer than 64 models.
        medians: take medians for the centres, not means, as a guard against single models. The
            variances are about the means all the same.

    Raises:
        ValueError: if some example has too few models: none with it (online) or none without it;
            or, with variances of their own, fewer than two.
    """
    shadows, marks = _models(shadow_phi, included)
    own = np.asarray(target_phi, dtype=np.float64)
    own = own[:, None] if own.ndim == 1 else own
    if own.shape != shadows.shape[1:]:
        validation.fail("target_phi", f"of the shadows' shape {shadows.shape[1:]}", own.shape)
    _numbers("target_phi", own)
    fixed = len(shadows) < ENOUGH_MODELS if fixed_variance is None else fixed_variance
    inside = _Side.of(shadows, marks, medians) if online else None
    return _read(own, inside, _Side.of(shadows, ~marks, medians), fixed)


def lira_each(
    shadow_phi: ArrayLike,
    included: ArrayLike,
    *,
    online: bool = True,
    fixed_variance: bool | None = None,
    medians: bool = False,
) -> _Floats:
    """Scores with each model as the target in turn, the others its shadows.

    N models give N attacks without training any more: row t of the result, of shape (models,
    examples), is ``lira_scores`` of model t against the others, and ``included[t]`` is its truth.
    For a report pool all rows: ``MembershipReport.from_scores(scores.ravel(), included.ravel())``.
    Pooled scores of one example are not independent: the report's intervals are too narrow.

    Sums and medians without one model are had from those with all, so that 256 models of 50,000
    examples take seconds. For the arguments and errors see :func:`lira_scores`.
    """
    phis, marks = _models(shadow_phi, included)
    fixed = len(phis) - 1 < ENOUGH_MODELS if fixed_variance is None else fixed_variance
    inside = _Side.of(phis, marks, medians) if online else None
    outside = _Side.of(phis, ~marks, medians)
    scores = np.empty(marks.shape)
    for place, (own, mine) in enumerate(zip(phis, marks, strict=True)):
        without = None if inside is None else inside.without(own, mine)
        scores[place] = _read(own, without, outside.without(own, ~mine), fixed)
    return scores


@dataclass(frozen=True, eq=False)
class _Side:
    """What the models on one side, in or out, say of each example.

    Attributes:
        count: how many models there are, of shape (examples,).
        mean: of shape (examples, queries).
        squares: the sum of squares about the mean, over models and queries, of shape (examples,).
        ordered: their values in order, infinite ones last; only if medians are wanted.
        median: of shape (examples, queries); only if wanted.
    """

    count: NDArray[np.int64]
    mean: _Floats
    squares: _Floats
    ordered: _Floats | None = None
    median: _Floats | None = None

    @classmethod
    def of(cls, phis: _Floats, marks: _Marks, medians: bool) -> _Side:
        """From all values, and which of them are on this side."""
        count = marks.sum(axis=0)
        some = np.maximum(count, 1)[:, None]
        mean = np.einsum("mpq,mp->pq", phis, marks) / some
        squares = np.zeros(len(count))
        for values, mine in zip(phis, marks, strict=True):  # no second table of their size
            squares += mine * ((values - mean) ** 2).sum(axis=1)
        if not medians:
            return cls(count, mean, squares)
        ordered = np.sort(np.where(marks[..., None], phis, np.inf), axis=0)
        middle = (_at(ordered, (count - 1) // 2) + _at(ordered, count // 2)) / 2
        return cls(count, mean, squares, ordered, middle)

    def without(self, own: _Floats, mine: _Marks) -> _Side:
        """The same without one model, where it is on this side."""
        left = self.count - mine
        share = (mine / np.maximum(left, 1))[:, None]
        distance = own - self.mean
        mean = self.mean - share * distance
        # By n / (n - 1) times its squared distance from the mean of all n.
        lost = mine * (self.count / np.maximum(left, 1)) * (distance**2).sum(axis=1)
        squares = np.maximum(self.squares - lost, 0.0)
        if self.ordered is None or self.median is None:
            return _Side(left, mean, squares)
        low, high = (self._rank_without(own, (left - near) // 2) for near in (1, 0))
        return _Side(
            left, mean, squares, None, np.where(mine[:, None], (low + high) / 2, self.median)
        )

    def _rank_without(self, own: _Floats, rank: NDArray[np.int64]) -> _Floats:
        """The value of this rank among the others: the next one if ``own`` is at or before it."""
        assert self.ordered is not None
        here = _at(self.ordered, rank)
        return np.where(own > here, here, _at(self.ordered, rank + 1))

    @property
    def centre(self) -> _Floats:
        """The median if there is one, else the mean."""
        return self.mean if self.median is None else self.median

    def variance(self, fixed: bool) -> _Floats:
        """Of each example, or one for all: squares about the mean over the free values."""
        free = (self.count - 1) * self.mean.shape[1]
        if fixed:
            found = np.full(len(free), self.squares.sum() / max(int(free.sum()), 1))
        else:
            found = self.squares / np.maximum(free, 1)
        return np.maximum(found, _LEAST_VARIANCE)


def _read(own: _Floats, inside: _Side | None, outside: _Side, fixed: bool) -> _Floats:
    """The target's values against the two laws, or against the out law alone."""
    for name, side in (("with", inside), ("without", outside)):
        if side is not None:
            _enough(name, side, fixed)
    spread = outside.variance(fixed)
    queries = own.shape[1]
    if inside is None:
        return (own - outside.centre).sum(axis=1) / np.sqrt(queries * spread)
    return _log_density(own, inside, fixed) - _log_density(own, outside, fixed)


def _log_density(own: _Floats, side: _Side, fixed: bool) -> _Floats:
    """Of a spherical normal law, but for a constant."""
    variance = side.variance(fixed)
    squares = ((own - side.centre) ** 2).sum(axis=1)
    return -(squares / variance + own.shape[1] * np.log(variance)) / 2


def _enough(name: str, side: _Side, fixed: bool) -> None:
    needed = 1 if fixed else 2
    short = int((side.count < needed).sum())
    if short:
        raise ValueError(
            f"{short} of {len(side.count)} examples have fewer than {needed} shadow models {name} "
            "them: train more models, or leave these examples out"
        )
    if fixed and (side.count < 2).all():
        raise ValueError(
            f"no example has two shadow models {name} it, so that no variance can be had: "
            "train more models"
        )


def _models(shadow_phi: ArrayLike, included: ArrayLike) -> tuple[_Floats, _Marks]:
    phis, marks = np.asarray(shadow_phi, dtype=np.float64), np.asarray(included)
    phis = phis[..., None] if phis.ndim == 2 else phis
    if phis.ndim != 3 or phis.size == 0:
        validation.fail("shadow_phi", "of shape (models, examples[, queries])", phis.shape)
    if marks.shape != phis.shape[:2] or not np.isin(marks, (0, 1)).all():
        validation.fail("included", f"True or False, of shape {phis.shape[:2]}", marks.shape)
    _numbers("shadow_phi", phis)
    return phis, marks.astype(bool)


def _numbers(name: str, values: _Floats) -> None:
    bad = values.size - int(np.isfinite(values).sum())
    if bad:
        validation.fail(name, "finite numbers", f"{bad} that are not")


def _at(ordered: _Floats, ranks: NDArray[np.int64]) -> _Floats:
    """The value of rank ``ranks[p]`` of example p, for every query."""
    places = np.clip(ranks, 0, len(ordered) - 1)
    return ordered[places, np.arange(ordered.shape[1])]
