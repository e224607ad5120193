"""Membership by a threshold: one model, one number an example, and nothing else.

A model fits what it was trained on better than what it was not. What the attacker sees of the
model, and what the score is (a higher one says "member"), with p the probabilities shown for an
example and y its label:

=================  ========  =======================================================================
statistic          needs     score
=================  ========  =======================================================================
loss               losses    log p_y, the loss with its sign changed
top-probability    scores    max_c p_c; no label is needed
entropy            scores    sum_c p_c log p_c; no label is needed
modified-entropy   scores    (1 - p_y) log p_y + sum_{c != y} p_c log(1 - p_c)
=================  ========  =======================================================================

The modified entropy falls when the model is sure of the label, and rises when it is sure of another
class; the plain one falls in both cases.

    >>> p, y = np.array([[0.98, 0.01, 0.01], [0.01, 0.98, 0.01]]), np.array([0, 0])
    >>> modified_entropy_scores(p, y).round(3).tolist(), entropy_scores(p).round(3).tolist()
    ([-0.001, -8.393], [-0.112, -0.112])

*Thresholds.* Yeom and others call an example a member if its loss is at most the mean loss of the
training data, where the attacker knows that. With a model trained alike on known examples, a shadow
model, a threshold can be had for every class: classes differ in how hard they are. One threshold
for all is weak at low rates of false alarms, where hard and easy examples must be told apart:
:mod:`sfumato.attacks.membership.lira` has a threshold for every example.

What is found is for the curator, never for publication.

References: Yeom, Giacomelli, Fredrikson and Jha, "Privacy risk in machine learning: analyzing the
connection to overfitting", CSF 2018, arXiv:1709.01604; Salem et al., "ML-Leaks", NDSS 2019,
arXiv:1806.01246, for the largest probability and the entropy; Song and Mittal, "Systematic
evaluation of privacy risks of machine learning models", USENIX Security 2021, arXiv:2003.10595, for
the modified entropy and thresholds for classes.
"""

from __future__ import annotations

from enum import StrEnum

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sfumato.attacks.candidates import Candidates
from sfumato.attacks.membership.reports import MembershipReport
from sfumato.attacks.roc import Roc
from sfumato.attacks.targets import Target, View
from sfumato.core import validation

__all__ = [
    "Statistic",
    "class_thresholds",
    "entropy_scores",
    "loss_attack",
    "loss_scores",
    "modified_entropy_scores",
    "statistic_scores",
    "threshold_attack",
    "top_probability_scores",
]

_Floats = NDArray[np.float64]
_LEAST = 1e-300  # a probability of 0 has a finite logarithm


class Statistic(StrEnum):
    """Which number tells members; see the module."""

    LOSS = "loss"
    TOP_PROBABILITY = "top-probability"
    ENTROPY = "entropy"
    MODIFIED_ENTROPY = "modified-entropy"

    @property
    def needs(self) -> View:
        """What the attacker must see."""
        return View.LOSSES if self is Statistic.LOSS else View.SCORES


def loss_scores(probabilities: ArrayLike, labels: ArrayLike) -> _Floats:
    """The logarithm of p_y: a small loss says "member"."""
    p, y = _labelled(probabilities, labels)
    return _log(p[np.arange(len(y)), y])


def top_probability_scores(probabilities: ArrayLike) -> _Floats:
    """The largest probability: a model that is sure, of whatever class, says "member"."""
    return _table(probabilities).max(axis=1)


def entropy_scores(probabilities: ArrayLike) -> _Floats:
    """The entropy with its sign changed: 0 where the model is certain, -log(classes) at worst."""
    p = _table(probabilities)
    return (p * _log(p)).sum(axis=1)


def modified_entropy_scores(probabilities: ArrayLike, labels: ArrayLike) -> _Floats:
    """Song and Mittal's entropy, which knows the label, with its sign changed."""
    p, y = _labelled(probabilities, labels)
    rows = np.arange(len(y))
    right = p[rows, y]
    wrong = p * _log(1 - p)
    wrong[rows, y] = 0.0
    return (1 - right) * _log(right) + wrong.sum(axis=1)


def statistic_scores(
    target: Target, inputs: ArrayLike, labels: ArrayLike, statistic: Statistic | str
) -> _Floats:
    """The scores of examples by what a target shows of them.

    Raises:
        NotSeen: if the target does not show what the statistic needs.
    """
    kind = validation.choice("statistic", statistic, Statistic)
    target.require(kind.needs)
    if kind is Statistic.LOSS:
        return -target.losses(inputs, labels)
    p = target.probabilities(inputs)
    if kind is Statistic.TOP_PROBABILITY:
        return top_probability_scores(p)
    return entropy_scores(p) if kind is Statistic.ENTROPY else modified_entropy_scores(p, labels)


def loss_attack(
    target: Target,
    candidates: Candidates,
    *,
    training_loss: float | None = None,
    confidence: float = 0.95,
    generator: np.random.Generator | None = None,
) -> MembershipReport:
    """Yeom's attack: members have small losses. It needs to see losses.

    Args:
        target: the model under attack.
        candidates: whose membership is guessed.
        training_loss: the mean loss of the training data, if the attacker knows it: an example
            whose loss is at most that is called a member.
        confidence: of the report's intervals.
        generator: see :meth:`MembershipReport.from_scores`.
    """
    own = (
        None if training_loss is None else -validation.non_negative("training_loss", training_loss)
    )
    before = target.queries
    scores = statistic_scores(target, candidates.inputs, candidates.labels, Statistic.LOSS)
    return MembershipReport.from_scores(
        scores,
        candidates.members,
        labels=candidates.labels,
        attack="loss threshold",
        confidence=confidence,
        generator=generator,
        threshold=own,
        queries=target.queries - before,
    )


def threshold_attack(
    target: Target,
    candidates: Candidates,
    statistic: Statistic | str = Statistic.MODIFIED_ENTROPY,
    *,
    shadow: tuple[Target, Candidates] | None = None,
    confidence: float = 0.95,
    generator: np.random.Generator | None = None,
) -> MembershipReport:
    """Scores candidates by one of the statistics, with thresholds for classes if there is a shadow.

    Args:
        target: the model under attack.
        candidates: whose membership is guessed.
        statistic: which number tells members.
        shadow: a model trained alike, and examples of which the attacker knows whether they are
            its members. Each class gets the threshold that is best there; scores are then measured
            from the threshold of their class, and those from 0 on are called members.
        confidence: of the report's intervals.
        generator: see :meth:`MembershipReport.from_scores`.
    """
    kind = validation.choice("statistic", statistic, Statistic)
    before = target.queries
    scores = statistic_scores(target, candidates.inputs, candidates.labels, kind)
    name, own = f"{kind.value} threshold", None
    if shadow is not None:
        model, known = shadow
        seen = statistic_scores(model, known.inputs, known.labels, kind)
        classes = int(max(candidates.labels.max(), known.labels.max())) + 1
        scores = (
            scores - class_thresholds(seen, known.labels, known.members, classes)[candidates.labels]
        )
        name, own = f"{kind.value} threshold for each class", 0.0
    return MembershipReport.from_scores(
        scores,
        candidates.members,
        labels=candidates.labels,
        attack=name,
        confidence=confidence,
        generator=generator,
        threshold=own,
        queries=target.queries - before,
    )


def class_thresholds(
    scores: ArrayLike, labels: ArrayLike, members: ArrayLike, classes: int
) -> _Floats:
    """For each class, the score from which on calling members is right most often.

    That is where the mean of the shares of members and others judged rightly is largest, half-way
    between the scores on either side of it. A class without members or without others gets the
    threshold of all classes together.

    Args:
        scores: of examples on a model whose members the attacker knows.
        labels: their classes.
        members: which of them are its members.
        classes: how many there are.
    """
    given, kinds = np.asarray(scores, dtype=np.float64), np.asarray(labels, dtype=np.int64)
    truth = np.asarray(members, dtype=bool)
    if not given.shape == kinds.shape == truth.shape:
        sizes = given.shape, kinds.shape, truth.shape
        validation.fail("scores, labels and members", "of the same length", sizes)
    found = np.full(validation.count("classes", classes), _between(given, truth))
    for label in range(classes):
        rows = kinds == label
        if truth[rows].any() and not truth[rows].all():
            found[label] = _between(given[rows], truth[rows])
    return found


def _between(scores: _Floats, members: NDArray[np.bool_]) -> float:
    """Half-way between the best threshold and the next lower score."""
    best = Roc.from_scores(scores[members], scores[~members]).balanced_threshold
    if np.isinf(best):  # nobody is best called a member
        return float(np.nextafter(scores.max(), np.inf))
    below = scores[scores < best]
    return float((best + below.max()) / 2) if below.size else best


def _table(probabilities: ArrayLike) -> _Floats:
    p = np.asarray(probabilities, dtype=np.float64)
    if p.ndim != 2 or p.size == 0:
        validation.fail("probabilities", "one row an example, one column a class", p.shape)
    return p


def _labelled(probabilities: ArrayLike, labels: ArrayLike) -> tuple[_Floats, NDArray[np.int64]]:
    p, y = _table(probabilities), np.asarray(labels, dtype=np.int64)
    if y.shape != (len(p),) or y.min() < 0 or y.max() >= p.shape[1]:
        wanted = f"one of {p.shape[1]} classes for each of {len(p)} examples"
        validation.fail("labels", wanted, y.shape if y.shape != (len(p),) else int(y.max()))
    return p, y


def _log(values: _Floats) -> _Floats:
    return np.log(np.maximum(values, _LEAST))
