"""White box, learned: an attack model reads losses and gradient norms, layer by layer.

What the attacker sees: the weights. What the attacker knows: some examples that are members and
some that are not, such as his own and those of people he knows. An attack model learns from these
what members' gradients look like, and is asked about others.

    >>> import torch
    >>> model = torch.nn.Linear(5, 2)
    >>> random = np.random.default_rng(1)
    >>> rows, labels = random.normal(size=(200, 5)), random.integers(0, 2, 200)
    >>> both = Candidates(rows, labels, np.arange(200) < 100)
    >>> known, asked = known_and_asked(both, random)
    >>> report = learned_gradient_attack(Target.of_module(model), asked, known)
    >>> len(known), len(asked), 0.3 < report.auc < 0.7
    (100, 100, True)

Results say who was in the data: they are for the curator, never for publication.

Reference: Nasr, Shokri and Houmansadr, "Comprehensive privacy analysis of deep learning", IEEE S&P
2019, arXiv:1812.00910, section III, the supervised attack. There a network reads whole gradients
and activations; here a logistic model reads norms.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sfumato.attacks.candidates import Candidates
from sfumato.attacks.membership.gradient_features import (
    NUMBERS,
    gradient_features,
    logistic_scores,
)
from sfumato.attacks.membership.reports import MembershipReport
from sfumato.attacks.targets import Target
from sfumato.core import validation

__all__ = ["known_and_asked", "learned_gradient_attack"]

_FEWEST = 2  # of either kind: one to learn from, one to be asked about


def known_and_asked(
    candidates: Candidates, generator: np.random.Generator
) -> tuple[Candidates, Candidates]:
    """Two halves at random, each with half of the members and half of the others.

    Raises:
        ValueError: if there are fewer than two members, or two others.
    """
    known = np.zeros(len(candidates), dtype=bool)
    for kind in (candidates.members, ~candidates.members):
        places = np.flatnonzero(kind)
        if len(places) < _FEWEST:
            counts = int(candidates.members.sum()), int((~candidates.members).sum())
            validation.fail("candidates", "at least two members and two others", counts)
        known[generator.permutation(places)[: len(places) // 2]] = True
    return candidates.only(known), candidates.only(~known)


def learned_gradient_attack(
    target: Target,
    candidates: Candidates,
    known: Candidates,
    *,
    further: tuple[NDArray[np.float64], NDArray[np.float64]] | None = None,
    numbers: int = NUMBERS,
    confidence: float = 0.95,
    generator: np.random.Generator | None = None,
) -> MembershipReport:
    """Tells members by what the gradients of known members look like.

    Args:
        target: the trained model; it must show gradients. If it shows its weights, norms are taken
            layer by layer.
        candidates: the examples in question. Their truth is used to count, not to guess.
        known: others whose membership the attacker knows.
        further: more columns for the attack model to read, of the candidates and of the known, such
            as :func:`~sfumato.attacks.membership.whitened.whitened_scores`.
        numbers: how many numbers of gradients may be held at once.
        confidence: of the report's intervals.
        generator: see :meth:`MembershipReport.from_scores`.
    """
    before = target.queries
    tables = [
        gradient_features(target, some.inputs, some.labels, numbers=numbers).table
        for some in (candidates, known)
    ]
    if further is not None:
        tables = [np.column_stack(both) for both in zip(tables, further, strict=True)]
    return MembershipReport.from_scores(
        logistic_scores(tables[1], known.members, tables[0]),
        candidates.members,
        labels=candidates.labels,
        attack="learned from gradients",
        confidence=confidence,
        generator=generator,
        queries=target.queries - before,
    )
