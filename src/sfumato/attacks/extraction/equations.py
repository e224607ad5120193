"""Equation solving: a linear model from d + 1 of its probabilities, exact to rounding.

What the attacker sees: probabilities of all classes, for inputs of her choice. She knows that the
model is a logistic or softmax regression. The idea: logarithms of probabilities are linear in what
is unknown. For two classes logit(p) = w x + b; for k of them

    log p_i - mean_j log p_j = (w_i - mean_j w_j) x + (b_i - mean_j b_j),

so that every query is one linear equation for each class, and d + 1 queries in general position
determine all that answers can tell.

    >>> truth = LinearModel(np.array([[0.0, 0.0], [2.0, -1.0]]), np.array([0.0, 0.5]))
    >>> target = Target.of_scores(truth.probabilities)
    >>> found = extract_by_equations(target, axis_points(2, bounds=(-1, 1)))
    >>> print(found)
    equation solving from scores: 3 queries, unknowns 3, equations used 3, ...
    >>> found.model.distance(truth) < 1e-12
    True

The queries of :func:`axis_points` are the middle of the box of inputs and one step from it along
each axis. Centred and scaled, their equations have the condition number sqrt(d + 1), so that little
is lost. What does lose digits is a probability near 1: that of the other
classes then has few of its own. A smaller step keeps answers away from 0 and 1.

An answer in which a class has probability 0 (rounded away, or hidden) gives no equation and is left
out; :mod:`~sfumato.attacks.extraction.likelihood` makes use of it. Answers rounded to r digits are
weighted by their smallest probability, since log p is uncertain by 10^-r / 2p. With more queries
than unknowns the error falls as one over the root of their number, down to a floor of about 10^-r
that rounding sets near 0 and 1, where it is not even-handed.

The copy is for the curator only.

References: Tramèr, Zhang, Juels, Reiter and Ristenpart, "Stealing machine learning models via
prediction APIs", USENIX Security 2016, arXiv:1609.02943, section 4.1.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sfumato.attacks.extraction.answers import Bounds, affordable, ask, box, described
from sfumato.attacks.extraction.linear import LinearModel, Standard
from sfumato.attacks.extraction.stolen import Stolen
from sfumato.attacks.targets import Target, View
from sfumato.core import validation

__all__ = ["LinearModel", "axis_points", "extract_by_equations"]


def axis_points(
    dimension: int, bounds: Bounds = (-1.0, 1.0), step: float = 0.5
) -> NDArray[np.float64]:
    """The d + 1 queries: the middle of the box, and a step from it along each axis.

    Args:
        dimension: d.
        bounds: what inputs the target takes.
        step: the step, as a share of the way from the middle to the bound.
    """
    low, high = box(bounds, (validation.count("dimension", dimension),))
    share = validation.sample_rate("step", step)
    middle = (low + high) / 2
    return np.vstack([middle, middle + share * np.diag((high - low) / 2)])


def extract_by_equations(target: Target, inputs: ArrayLike) -> Stolen:
    """The softmax regression behind a target's probabilities, from its answers at ``inputs``.

    Solved by least squares. With fewer answers than d + 1, and that is said in
    ``facts["undetermined"]``, it is the smallest of the models that fit them.

    Args:
        target: must show scores.
        inputs: queries, one a row. If a budget does not allow all, the first are asked.

    Raises:
        NotSeen: if it shows labels alone.
        ValueError: if no answer has all its probabilities above 0.
    """
    target.require(View.SCORES)
    queries = _table(inputs)
    allowed = affordable(target, len(queries))
    if allowed == 0:
        raise ValueError("inputs must be one or more, and the target's budget must allow one")
    asked = queries[:allowed]
    answers = ask(target, asked)
    used = (answers.shown > 0).all(axis=1)
    if not used.any():
        raise ValueError(
            "no answer has all probabilities above 0: take a smaller step, or fit by likelihood"
        )
    model, facts = _solved(asked[used], answers.shown[used], target.digits is not None)
    return Stolen(
        model.probabilities,
        "equation solving",
        described(target),
        allowed,
        stopped=allowed < len(queries),
        facts={"unknowns": model.unknowns, "equations_used": int(used.sum())} | facts,
        model=model,
    )


def _solved(
    points: NDArray[np.float64], shown: NDArray[np.float64], rounded: bool
) -> tuple[LinearModel, dict[str, float]]:
    standard = Standard.of(points)
    design, logs = standard.design(points), np.log(shown)
    wanted = logs - logs.mean(axis=1, keepdims=True)
    trust = shown.min(axis=1, keepdims=True) if rounded else np.ones((len(shown), 1))
    solution, _, rank, singular = np.linalg.lstsq(trust * design, trust * wanted)
    residual = float(np.sqrt(np.mean((design @ solution - wanted) ** 2)))
    missing = int(design.shape[1] - rank)
    condition = float(singular[0] / singular[rank - 1])
    facts = {"condition": condition, "residual": residual, "undetermined": missing}
    return standard.model(solution), facts


def _table(inputs: ArrayLike) -> NDArray[np.float64]:
    rows = np.asarray(inputs, dtype=np.float64)
    if rows.ndim != 2 or not np.isfinite(rows).all():
        validation.fail("inputs", "a table of finite numbers, one query a row", rows.shape)
    return rows
