"""Accountants that forget everything but (epsilon, delta): basic and strong composition.

Each release is first reduced to an (epsilon, delta) statement of its own, with delta shared equally
among the releases that need one; then the statements compose by a theorem. For comparison, and for
those who must use them: both are far above RDP and PLD for many noisy steps.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from sfumato.accounting import dpa, theorems
from sfumato.accounting.atoms import Atom, Multiset, flatten, pure_epsilon
from sfumato.accounting.pld import LossDistribution, choose_grid, compose_atoms
from sfumato.accounting.rdp import atom_rdp
from sfumato.accounting.support import UnsupportedError
from sfumato.core.events import EpsilonDeltaEvent, Event, GaussianEvent
from sfumato.core.gaussian_profile import gaussian_epsilon
from sfumato.core.neighbours import Neighbours

__all__ = ["basic_epsilon", "strong_epsilon"]


@dataclass(frozen=True)
class _Statement:
    """``count`` releases, each (``epsilon``, ``delta``)-DP."""

    epsilon: float
    delta: float
    count: int


def basic_epsilon(event: Event, delta: float, neighbours: Neighbours) -> float:
    """The sum of all epsilons, each at its share of ``delta``."""
    statements = _statements(event, delta, neighbours)
    return math.fsum(s.count * s.epsilon for s in statements)


def strong_epsilon(event: Event, delta: float, neighbours: Neighbours) -> float:
    """Kairouz, Oh and Viswanath: exact for equal releases, their closed bound for a mixture.

    Releases that state no delta of their own get half of what is left of ``delta``.
    """
    statements = _statements(event, delta, neighbours, spent=0.5)
    total = math.fsum(s.count * s.epsilon for s in statements)
    slack = delta - math.fsum(s.count * s.delta for s in statements)
    if math.isinf(total):
        return total
    if len(statements) == 1:
        (s,) = statements
        return min(total, theorems.optimal(s.epsilon, s.delta, s.count, delta))
    if slack <= 0:
        return total
    drift = math.fsum(s.count * s.epsilon * math.tanh(s.epsilon / 2) for s in statements)
    square = math.fsum(s.count * s.epsilon * s.epsilon for s in statements)
    return min(total, drift + math.sqrt(2 * math.log(1 / slack) * square))


def _statements(
    event: Event, delta: float, neighbours: Neighbours, spent: float = 1.0
) -> list[_Statement]:
    """One statement an atom; those that need a delta share the part ``spent`` of what is left."""
    atoms = flatten(event, neighbours)
    given = math.fsum(n * a.delta for a, n in atoms if isinstance(a, EpsilonDeltaEvent))
    if given > delta:
        return [_Statement(math.inf, 0.0, 1)]
    needy = sum(n for a, n in atoms if _needs_delta(a))
    share = spent * (delta - given) / needy if needy else 0.0
    statements: list[_Statement] = []
    for atom, count in sorted(atoms, key=repr):
        if isinstance(atom, EpsilonDeltaEvent):
            statements.append(_Statement(atom.epsilon, atom.delta, count))
        elif (pure := pure_epsilon(atom)) is not None:
            statements.append(_Statement(pure, 0.0, count))
        else:
            statements.append(_Statement(_epsilon_of(atom)(share), share, count))
    return statements


def _needs_delta(atom: Atom) -> bool:
    return not isinstance(atom, EpsilonDeltaEvent) and pure_epsilon(atom) is None


def _epsilon_of(atom: Atom) -> Callable[[float], float]:
    """The exact (epsilon, delta) curve of one release."""
    if isinstance(atom, GaussianEvent):
        return lambda delta: gaussian_epsilon(atom.noise_multiplier, delta)
    try:
        alone: Multiset = frozenset({(atom, 1)})
        single = LossDistribution(dpa.masses(compose_atoms(alone, choose_grid(alone))))
    except UnsupportedError:
        vector = atom_rdp(atom, dpa.DEFAULT_ORDERS)
        return vector.epsilon
    return single.epsilon
