"""RMIA: an example against the population, ratio by ratio, with few reference models.

What the attacker sees: the target's probability for the true label of an example x, p_T(x), and of
examples z of the population that nobody trained on; the same from reference models he trained, be
it only one.

An example that the target likes better than reference models do may be a member, or the target may
like all examples better. So x is compared with the population under the same target:

    score(x) = Pr_z[ (p_T(x) / p(x)) / (p_T(z) / p(z)) >= gamma ],

with p(x) the probability over models trained with x and without it alike:

=========  =====================================================================================
online     p(x) = (mean p_in(x) + mean p_out(x)) / 2, from reference models of both kinds
offline    p(x) = ((1 + a) mean p_out(x) + (1 - a)) / 2, from models without x alone: p_in is
           guessed to be a p_out + 1 - a, between p_out (a = 1) and certainty (a = 0)
=========  =====================================================================================

x and z must be treated alike, so that the score of a non-member drawn as z was is uniform for gamma
= 1: where no model was trained on z, p(z) is always the offline one.

    >>> target, references = np.array([0.99, 0.6, 0.2]), np.array([[0.7, 0.6, 0.3]])
    >>> population, there = np.array([0.5, 0.8, 0.4, 0.9]), np.array([[0.6, 0.7, 0.5, 0.9]])
    >>> x, z = offline_marginal(references, a=0.3), offline_marginal(there, a=0.3)
    >>> rmia_scores(target, x, population, z, gamma=1.0).tolist()
    [1.0, 0.5, 0.0]

:func:`rmia_attack` asks a target and does all of this; the other functions are for probabilities
that are at hand. The ratios of the population are sorted once: n examples against m of the
population take (n + m) log m steps, not n m.

Probabilities may be plain softmax values, or those of a sharper or softer softmax: the paper uses a
Taylor softmax with a margin, gamma = 2 and a temperature of 2. What is found is for the curator,
never for publication.

Reference: Zarifzadeh, Liu and Shokri, "Low-cost high-power membership inference attacks", ICML
2024, arXiv:2312.03262.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sfumato.attacks.candidates import Candidates, Labelled
from sfumato.attacks.membership.reports import MembershipReport
from sfumato.attacks.roc import Roc
from sfumato.attacks.target_answers import class_numbers
from sfumato.attacks.targets import Target, View
from sfumato.core import validation

__all__ = [
    "GRID",
    "Tuning",
    "offline_marginal",
    "online_marginal",
    "rmia_attack",
    "rmia_scores",
    "tune_a",
]

GRID = tuple(step / 10 for step in range(11))
"""Values of a among which :func:`tune_a` picks."""

_LEAST = 1e-300  # a marginal of 0 would divide by 0

_Floats = NDArray[np.float64]
_Marks = NDArray[np.bool_]


def rmia_attack(
    target: Target,
    candidates: Candidates,
    shadow_answers: ArrayLike,
    included: ArrayLike,
    *,
    population: Labelled,
    population_answers: ArrayLike,
    online: bool = False,
    a: float | None = None,
    gamma: float = 2.0,
    confidence: float = 0.95,
    generator: np.random.Generator | None = None,
) -> MembershipReport:
    """Compares candidates with the population, under the target. It needs to see scores.

    Args:
        target: the model under attack.
        candidates: whose membership is guessed.
        shadow_answers: probabilities of the reference models for the candidates, of shape (models,
            examples, classes).
        included: of shape (models, examples): which model was trained on which candidate.
        population: inputs and labels of examples that no model was trained on.
        population_answers: probabilities of the reference models for these, of shape (models,
            population, classes).
        online: use models with a candidate as well as those without it.
        a: between 0 and 1; by default tuned on the first reference model: see :func:`tune_a`.
        gamma: how much larger the ratio of a candidate must be; 1 or above.
        confidence: of the report's intervals.
        generator: see :meth:`MembershipReport.from_scores`.

    Raises:
        NotSeen: if the target does not show scores.
        ValueError: if some candidate has too few models, or there are too few to tune ``a``.
    """
    target.require(View.SCORES)
    there, there_labels = np.asarray(population[0]), class_numbers("labels", population[1])
    references = _of_labels("shadow_answers", shadow_answers, candidates.labels)
    around = _of_labels("population_answers", population_answers, there_labels)
    slope = tune_a(references, around, included, gamma=gamma).a if a is None else a
    if online:
        marginal = online_marginal(references, included)
    else:
        marginal = offline_marginal(references, slope, included)
    before = target.queries
    scores = rmia_scores(
        _of_labels("probabilities", target.probabilities(candidates.inputs), candidates.labels),
        marginal,
        _of_labels("probabilities", target.probabilities(there), there_labels),
        offline_marginal(around, slope),
        gamma=gamma,
    )
    return MembershipReport.from_scores(
        scores,
        candidates.members,
        labels=candidates.labels,
        attack=f"RMIA, {'online' if online else 'offline'}",
        confidence=confidence,
        generator=generator,
        queries=target.queries - before,
    )


def rmia_scores(
    probabilities: ArrayLike,
    marginal: ArrayLike,
    population_probabilities: ArrayLike,
    population_marginal: ArrayLike,
    *,
    gamma: float = 2.0,
) -> _Floats:
    """The share of the population that each example beats by a factor gamma.

    Args:
        probabilities: p_T(x), the target's, for the label of each example.
        marginal: p(x), from :func:`offline_marginal` or :func:`online_marginal`.
        population_probabilities: p_T(z), for examples of the population.
        population_marginal: p(z), likewise.
        gamma: how much larger the ratio of x must be; 1 or above.
    """
    factor = validation.positive("gamma", gamma)
    if factor < 1:
        validation.fail("gamma", "1 or above", gamma)
    ours = _ratios("probabilities", probabilities, "marginal", marginal)
    theirs = _ratios(
        "population_probabilities",
        population_probabilities,
        "population_marginal",
        population_marginal,
    )
    bars = np.sort(factor * theirs)
    return np.searchsorted(bars, ours, side="right") / len(bars)


def offline_marginal(references: ArrayLike, a: float, included: ArrayLike | None = None) -> _Floats:
    """p(x) from models that were not trained on x: ((1 + a) mean p_out + 1 - a) / 2.

    Args:
        references: probabilities of the true label, of shape (models, examples).
        a: between 0 and 1; the smaller, the surer models are taken to be of what they trained on.
        included: of shape (models, examples): which model was trained on which example; these are
            left out. None if no model was trained on any.

    Raises:
        ValueError: if some example has no model without it.
    """
    slope = _a(a)
    table, marks = _models(references, included)
    return ((1 + slope) * _mean(table, ~marks, "without") + 1 - slope) / 2


def online_marginal(references: ArrayLike, included: ArrayLike) -> _Floats:
    """p(x) from models of both kinds: (mean p_in + mean p_out) / 2.

    Raises:
        ValueError: if some example has no model with it, or none without it.
    """
    table, marks = _models(references, included)
    return (_mean(table, marks, "with") + _mean(table, ~marks, "without")) / 2


@final
@dataclass(frozen=True)
class Tuning:
    """Which a did best on a model of the attacker's own.

    Attributes:
        a: the best one.
        aucs: pairs of an a and the AUC of the attack with it.
        paired: which reference model was attacked.
    """

    a: float
    aucs: tuple[tuple[float, float], ...]
    paired: int

    def __str__(self) -> str:
        best = dict(self.aucs)[self.a]
        return f"a = {self.a:g}: AUC {best:.3f} on reference model {self.paired}"

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return {
            "channel": "curator",
            "a": self.a,
            "aucs": [{"a": a, "auc": auc} for a, auc in self.aucs],
            "paired": self.paired,
        }


def tune_a(
    references: ArrayLike,
    population_references: ArrayLike,
    included: ArrayLike,
    *,
    paired: int = 0,
    gamma: float = 2.0,
    grid: Sequence[float] = GRID,
) -> Tuning:
    """The a that attacks one reference model best, with the others as its references.

    The attacker trained the reference models and knows who their members are. Nothing of the
    target is used: neither its answers nor the truth about it. Of equal ones the smallest a wins.

    Args:
        references: probabilities of the true label, of shape (models, examples), two models or
            more.
        population_references: the same for the population, of shape (models, population).
        included: which model was trained on which example, of shape (models, examples). Examples
            that no other model is without are passed over.
        paired: the model that is attacked.
        gamma: as in the attack to come.
        grid: values of a to try.
    """
    table, marks = _models(references, included)
    there, _ = _models(population_references, None)
    if len(table) < 2 or len(there) != len(table):
        sizes = len(table), len(there)
        validation.fail("reference models", "two or more, the same for the population", sizes)
    if not 0 <= paired < len(table):
        validation.fail("paired", f"one of {len(table)} models", paired)
    others, known = np.delete(table, paired, axis=0), np.delete(marks, paired, axis=0)
    usable = ~known.all(axis=0)
    truth = marks[paired, usable]
    if truth.all() or not truth.any():
        validation.fail("included", "mixed for the paired model", f"{int(truth.sum())} members")
    rest = np.delete(there, paired, axis=0)

    def auc(a: float) -> float:
        scores = rmia_scores(
            table[paired, usable],
            offline_marginal(others[:, usable], a, known[:, usable]),
            there[paired],
            offline_marginal(rest, a),
            gamma=gamma,
        )
        return Roc.from_scores(scores[truth], scores[~truth]).auc

    tried = tuple((value, auc(value)) for value in sorted({_a(a) for a in grid}))
    if not tried:
        validation.fail("grid", "one value of a or more", list(grid))
    best = max(tried, key=lambda pair: (pair[1], -pair[0]))
    return Tuning(best[0], tried, int(paired))


def _of_labels(name: str, answers: ArrayLike, labels: NDArray[np.int64]) -> _Floats:
    """The probability of its label for each example, of each model."""
    table = np.asarray(answers, dtype=np.float64)
    if table.ndim < 2 or table.shape[-2] != len(labels):
        validation.fail(name, f"answers about {len(labels)} examples", table.shape)
    if labels.size and labels.max() >= table.shape[-1]:
        validation.fail("labels", f"classes below {table.shape[-1]}", int(labels.max()))
    return table[..., np.arange(len(labels)), labels]


def _a(value: float) -> float:
    slope = validation.non_negative("a", value)
    if slope > 1:
        validation.fail("a", "between 0 and 1", value)
    return slope


def _mean(table: _Floats, marks: _Marks, kind: str) -> _Floats:
    counts = marks.sum(axis=0)
    missing = int((counts == 0).sum())
    if missing:
        raise ValueError(
            f"{missing} of {len(counts)} examples have no reference model {kind} them: "
            "train more models, or leave these examples out"
        )
    return (table * marks).sum(axis=0) / counts


def _models(references: ArrayLike, included: ArrayLike | None) -> tuple[_Floats, _Marks]:
    table = np.asarray(references, dtype=np.float64)
    if table.ndim != 2 or table.size == 0:
        validation.fail("references", "of shape (models, examples)", table.shape)
    _probabilities("references", table)
    marks = np.zeros(table.shape, dtype=bool) if included is None else np.asarray(included)
    if marks.shape != table.shape or not np.isin(marks, (0, 1)).all():
        validation.fail("included", f"True or False, of shape {table.shape}", marks.shape)
    return table, marks.astype(bool)


def _ratios(name: str, target: ArrayLike, whose: str, marginal: ArrayLike) -> _Floats:
    p, over = np.asarray(target, dtype=np.float64), np.asarray(marginal, dtype=np.float64)
    if p.ndim != 1 or p.shape != over.shape or p.size == 0:
        shapes = p.shape, over.shape
        validation.fail(f"{name} and {whose}", "two lists of the same length", shapes)
    _probabilities(name, p)
    _probabilities(whose, over)
    return p / np.maximum(over, _LEAST)


def _probabilities(name: str, values: _Floats) -> None:
    bad = values.size - int(((values >= 0) & (values <= 1 + 1e-9)).sum())
    if bad:
        validation.fail(name, "numbers from 0 to 1", f"{bad} that are not")
