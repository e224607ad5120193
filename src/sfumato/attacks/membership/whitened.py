"""White box: members' gradients are in the weights, once what all examples share is taken out.

What the attacker sees: the weights, and those that training began with (of a public seed); some
examples of the same kind, none of them members. Training adds up its members' gradients, times
factors, so that with u = theta_end - theta_start a member's own gradient g is in -u. But gradients
of all examples look alike, and what they share drowns what is one example's own. It is known from
the other examples: with their gradients' second moments F (and a ridge), the score is

    s = <g, F^-1 (-u)> / sqrt(<g, F^-1 g>),

the log likelihood ratio, up to its scale, of one gradient more in a sum whose rest is Gaussian with
covariance F.

    >>> import torch
    >>> random = np.random.default_rng(1)
    >>> model = torch.nn.Linear(200, 2)
    >>> _ = model.weight.data.zero_()
    >>> shared = random.normal(size=200)  # in all inputs, and ten times as large as what differs
    >>> inputs = (10 * shared + random.normal(size=(220, 200))).astype(np.float32)
    >>> labels = random.integers(0, 2, 220)
    >>> start = Target.of_module(model, view="gradients")
    >>> update = -start.gradients(inputs[:20], labels[:20]).sum(axis=0)
    >>> both = Candidates(inputs[:40], labels[:40], np.arange(40) < 20)
    >>> whitened_attack(start, both, update, (inputs[40:], labels[40:])).auc > 0.95
    True

F is never made: with N gradients as the rows of P, Woodbury's identity needs an N x N matrix only.

Results say who was in the data: they are for the curator, never for publication.

References: Dwork, Smith, Steinke, Ullman and Vadhan, "Robust traceability from trace amounts", FOCS
2015, for inner products with a whitened statistic; Melis, Song, De Cristofaro and Shmatikov,
arXiv:1805.04049, for gradients in updates.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sfumato.attacks.candidates import Candidates, Labelled
from sfumato.attacks.membership.gradient_features import NUMBERS, gradient_batches
from sfumato.attacks.membership.reports import MembershipReport
from sfumato.attacks.targets import Target
from sfumato.core import validation

__all__ = ["whitened_attack", "whitened_scores"]


def whitened_scores(
    target: Target,
    inputs: ArrayLike,
    labels: ArrayLike,
    update: ArrayLike,
    population: Labelled,
    *,
    ridge: float = 1e-2,
    numbers: int = NUMBERS,
) -> NDArray[np.float64]:
    """How much of each example's own gradient is in the update; see the module.

    Args:
        target: the model whose gradients are taken: as training began, or the closest that the
            attacker has. It must show gradients.
        inputs: one example a row.
        labels: their classes.
        update: theta_end - theta_start, flat, in the order of the target's gradients.
        population: inputs and labels of examples of the same kind, of whom none is in question;
            their gradients are held all at once.
        ridge: added to the diagonal of P P^T, as a share of its mean.
        numbers: how many numbers of the candidates' gradients may be held at once.
    """
    downhill = -np.asarray(update, dtype=np.float64).ravel()
    if not downhill.any() or not np.isfinite(downhill).all():
        validation.fail("update", "finite numbers, not all 0", f"{downhill.size} numbers")
    target.require("gradients")
    shared = target.gradients(*population).astype(np.float64)
    if shared.shape[1] != len(downhill):
        wanted = f"a number for each of {shared.shape[1]:,} weights"
        validation.fail("update", wanted, len(downhill))
    inverse = _ridged_inverse(shared, ridge)
    own = downhill - shared.T @ (inverse @ (shared @ downhill))
    found: list[NDArray[np.float64]] = [np.zeros(0)]
    for _, rows in gradient_batches(target, inputs, labels, numbers):
        products = rows @ shared.T
        common = np.einsum("ij,ij->i", products @ inverse, products)
        length = np.maximum(np.einsum("ij,ij->i", rows, rows) - common, 1e-30)
        found.append((rows @ own) / np.sqrt(length))
    return np.concatenate(found)


def _ridged_inverse(shared: NDArray[np.float64], ridge: float) -> NDArray[np.float64]:
    """The inverse of P P^T plus a ridge."""
    products = shared @ shared.T
    weight = validation.positive("ridge", ridge) * float(np.trace(products)) / len(products)
    found = np.linalg.inv(products + (weight or 1.0) * np.eye(len(products)))
    return np.asarray(found, np.float64)


def whitened_attack(
    target: Target,
    candidates: Candidates,
    update: ArrayLike,
    population: Labelled,
    *,
    ridge: float = 1e-2,
    numbers: int = NUMBERS,
    confidence: float = 0.95,
    generator: np.random.Generator | None = None,
) -> MembershipReport:
    """Tells members by their own gradients in the weights; see :func:`whitened_scores`."""
    before = target.queries
    scores = whitened_scores(
        target, candidates.inputs, candidates.labels, update, population, ridge=ridge,
        numbers=numbers,
    )  # fmt: skip
    return MembershipReport.from_scores(
        scores,
        candidates.members,
        labels=candidates.labels,
        attack="whitened weights",
        confidence=confidence,
        generator=generator,
        queries=target.queries - before,
    )
