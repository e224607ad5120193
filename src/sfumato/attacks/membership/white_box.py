"""White box: members give themselves away in gradients and in the change of weights.

What the attacker sees: the model with its weights, or at least the gradient of its loss on any
example (a :class:`Target` that shows gradients). In collaborative training also what a round
changed: the update, theta_end - theta_start.

Two ideas:

- *Norms.* Training drives the gradients of members towards 0. With g the gradient of an example's
  loss by the weights, the score is -||g||. (For norms layer by layer, and an attack that learns
  from them, see :mod:`sfumato.attacks.membership.gradient_features`.)
- *Alignment.* A step of gradient descent is minus the sum of its members' gradients, times a
  factor. With u the update, a member's gradient is in it, and the score is one of

      inner        <g, -u>
      cosine       <g, -u> / (||g|| ||u||)
      coefficient  <g, -u> / ||g||^2

  Gradients of a large model are close to orthogonal, so that the coefficient of a member is close
  to the factor, and that of any other example close to 0. :func:`share_scores` does without
  this: it solves for the coefficients of all candidates at once.

      >>> import torch
      >>> model = torch.nn.Linear(5, 2)
      >>> inputs, labels = np.eye(5)[:4], np.array([0, 1, 0, 1])
      >>> start = Target.of_module(model, view="gradients")
      >>> update = -0.1 * start.gradients(inputs[:2], labels[:2]).sum(axis=0)
      >>> np.abs(share_scores(start, inputs, labels, update)).round(4).tolist()
      [0.1, 0.1, 0.0, 0.0]

Gradients are taken a few examples at a time and reduced to a few numbers at once: models of any
size fit, as long as the gradient of a single example does.

Results say who was in the data: they are for the curator, never for publication.

References: Nasr, Shokri and Houmansadr, "Comprehensive privacy analysis of deep learning", IEEE S&P
2019, arXiv:1812.00910 (of whose attack model only the features are here); Li, Li and Ribeiro,
"Effective passive membership inference attacks in federated learning against overparameterized
models", ICLR 2023 (the cosine); Melis, Song, De Cristofaro and Shmatikov, "Exploiting unintended
feature leakage in collaborative learning", IEEE S&P 2019, arXiv:1805.04049.
"""

from __future__ import annotations

from enum import StrEnum

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sfumato.attacks.candidates import Candidates
from sfumato.attacks.membership.gradient_features import NUMBERS, gradient_batches
from sfumato.attacks.membership.reports import MembershipReport
from sfumato.attacks.targets import Target
from sfumato.core import validation

__all__ = [
    "Measure",
    "alignment_scores",
    "gradient_norm_attack",
    "gradient_norm_scores",
    "share_scores",
    "update_attack",
    "weight_change",
]


class Measure(StrEnum):
    """How an example's gradient is held against an update; see the module."""

    INNER = "inner"
    COSINE = "cosine"
    COEFFICIENT = "coefficient"


def gradient_norm_scores(
    target: Target, inputs: ArrayLike, labels: ArrayLike, *, numbers: int = NUMBERS
) -> NDArray[np.float64]:
    """-||g|| for each example: members have small gradients.

    Args:
        target: the trained model; it must show gradients.
        inputs: one example a row.
        labels: their classes.
        numbers: how many numbers of gradients may be held at once.
    """
    squares = [
        np.einsum("ij,ij->i", rows, rows)
        for _, rows in gradient_batches(target, inputs, labels, numbers)
    ]
    return -np.sqrt(np.concatenate(squares))


def gradient_norm_attack(
    target: Target,
    candidates: Candidates,
    *,
    numbers: int = NUMBERS,
    confidence: float = 0.95,
    generator: np.random.Generator | None = None,
) -> MembershipReport:
    """Tells members by the norms of their gradients; see :func:`gradient_norm_scores`."""
    before = target.queries
    scores = gradient_norm_scores(target, candidates.inputs, candidates.labels, numbers=numbers)
    return MembershipReport.from_scores(
        scores,
        candidates.members,
        labels=candidates.labels,
        attack="gradient norm",
        confidence=confidence,
        generator=generator,
        queries=target.queries - before,
    )


def weight_change(start: Target, end: Target) -> NDArray[np.float64]:
    """theta_end - theta_start, flat, in the order of a target's gradients.

    Raises:
        NotSeen: if either does not show its weights.
    """
    before, after = _flat_weights(start), _flat_weights(end)
    if before.shape != after.shape:
        validation.fail("end", f"a model of {len(before):,} weights, as the start", len(after))
    return after - before


def alignment_scores(
    target: Target,
    inputs: ArrayLike,
    labels: ArrayLike,
    update: ArrayLike,
    *,
    measure: Measure | str = Measure.COSINE,
    numbers: int = NUMBERS,
) -> NDArray[np.float64]:
    """How well each example's gradient fits an update of the weights.

    Args:
        target: the model whose gradients are taken: for one step, as it was before the update;
            otherwise the closest that the attacker has.
        inputs: one example a row.
        labels: their classes.
        update: theta_end - theta_start (see :func:`weight_change`), or an update as it was sent;
            flat, in the order of the target's gradients.
        measure: ``inner``, ``cosine`` or ``coefficient``; see the module.
        numbers: how many numbers of gradients may be held at once.

    Raises:
        NotSeen: if the target does not show gradients.
    """
    kind = validation.choice("measure", measure, Measure)
    downhill = -_direction(update)
    found: list[NDArray[np.float64]] = []
    for _, rows in gradient_batches(target, inputs, labels, numbers):
        _same_width(rows, downhill)
        product, square = rows @ downhill, np.einsum("ij,ij->i", rows, rows)
        found.append(_measured(kind, product, square, downhill))
    return np.concatenate(found)


def share_scores(
    target: Target,
    inputs: ArrayLike,
    labels: ArrayLike,
    update: ArrayLike,
    *,
    numbers: int = NUMBERS,
    ridge: float = 1e-9,
) -> NDArray[np.float64]:
    """How much of each example's gradient is in the update: least squares over all of them.

    Solves G a = -u for a, with the gradients as the columns of G. After one step on a sum of
    gradients, a member's share is the step's factor and any other's is 0, exactly, if the gradients
    of all examples are linearly independent and every member of the step is among them.

    Takes a number of gradients of the order of the examples squared where not all of them fit in
    ``numbers``.

    Args:
        target: the model before the update; it must show gradients.
        inputs: one example a row.
        labels: their classes.
        update: theta_end - theta_start, flat, in the order of the target's gradients.
        numbers: how many numbers of gradients may be held at once.
        ridge: added to the diagonal of the gradients' products, as a share of its mean, so that
            examples with equal gradients share what is theirs.
    """
    x, y = np.asarray(inputs), np.asarray(labels, dtype=np.int64)
    downhill, size = -_direction(update), len(y)
    products, right = np.zeros((size, size)), np.zeros(size)
    for first, rows in gradient_batches(target, x, y, numbers // 2):
        _same_width(rows, downhill)
        mine, done = slice(first, first + len(rows)), first + len(rows)
        right[mine], products[mine, mine] = rows @ downhill, rows @ rows.T
        for place, others in gradient_batches(target, x[done:], y[done:], numbers // 2):
            theirs = slice(done + place, done + place + len(others))
            products[mine, theirs] = rows @ others.T
            products[theirs, mine] = products[mine, theirs].T
    weight = validation.positive("ridge", ridge) * (float(np.diag(products).mean()) or 1.0)
    return np.asarray(np.linalg.solve(products + weight * np.eye(size), right), np.float64)


def update_attack(
    target: Target,
    candidates: Candidates,
    update: ArrayLike,
    *,
    measure: Measure | str = Measure.COSINE,
    solve: bool = False,
    numbers: int = NUMBERS,
    confidence: float = 0.95,
    generator: np.random.Generator | None = None,
) -> MembershipReport:
    """Tells the members of a step, or of a training, by an update of the weights.

    Args:
        target: the model before the update, or the closest that the attacker has; it must show
            gradients.
        candidates: the examples in question. Their truth is used to count, not to guess.
        update: theta_end - theta_start, or an update as it was sent.
        measure: how one gradient is held against the update; see :func:`alignment_scores`.
        solve: solve for all candidates at once instead; see :func:`share_scores`.
        numbers: how many numbers of gradients may be held at once.
        confidence: of the report's intervals.
        generator: see :meth:`MembershipReport.from_scores`.
    """
    kind = validation.choice("measure", measure, Measure)
    before, asked = target.queries, (target, candidates.inputs, candidates.labels, update)
    if solve:
        scores = share_scores(*asked, numbers=numbers)
    else:
        scores = alignment_scores(*asked, measure=kind, numbers=numbers)
    return MembershipReport.from_scores(
        scores,
        candidates.members,
        labels=candidates.labels,
        attack=f"update {'shares' if solve else kind.value}",
        confidence=confidence,
        generator=generator,
        queries=target.queries - before,
    )


def _measured(
    kind: Measure,
    product: NDArray[np.float64],
    square: NDArray[np.float64],
    downhill: NDArray[np.float64],
) -> NDArray[np.float64]:
    if kind is Measure.INNER:
        return product
    # An example without any gradient says nothing: its product is 0, and so is its score.
    norm = np.sqrt(np.maximum(square, 1e-60))
    if kind is Measure.COSINE:
        return product / (norm * np.linalg.norm(downhill))
    return product / norm**2


def _flat_weights(target: Target) -> NDArray[np.float64]:
    parts = [
        weight.detach().double().cpu().numpy().ravel() for weight in target.module.parameters()
    ]
    return np.concatenate(parts)


def _direction(update: ArrayLike) -> NDArray[np.float64]:
    flat = np.asarray(update, dtype=np.float64).ravel()
    if not flat.any() or not np.isfinite(flat).all():
        validation.fail("update", "finite numbers, not all 0", f"{flat.size} numbers")
    return flat


def _same_width(rows: NDArray[np.float64], direction: NDArray[np.float64]) -> None:
    if rows.shape[1] != len(direction):
        validation.fail("update", f"a number for each of {rows.shape[1]:,} weights", len(direction))
