"""What an event costs a dataset: whole units at every order of its grid."""

from __future__ import annotations

import functools
import math

import numpy as np

from sfumato.accounting.account import refuse_data_dependent
from sfumato.accounting.atoms import (
    Atom,
    FixedSizeAtom,
    Multiset,
    ParallelAtom,
    PoissonAtom,
    flatten,
    pure_epsilon,
    pure_total,
)
from sfumato.accounting.rdp import atom_rdp
from sfumato.accounting.theorems import amplify
from sfumato.core.events import EpsilonDeltaEvent, Event
from sfumato.core.neighbours import Neighbours
from sfumato.ledger import amounts
from sfumato.ledger.amounts import SATURATED, Vector
from sfumato.ledger.errors import LedgerError

__all__ = ["charge", "require_unit"]


@functools.lru_cache(maxsize=4096)
def charge(event: Event, neighbours: Neighbours, orders: tuple[float, ...]) -> Vector:
    """The cost of ``event`` under the dataset's relation, rounded up.

    At infinity: the sum of epsilons, where every part has one (an opaque part's own; its delta is
    the vector's slack). At a finite order: the sum of RDP.

    Raises:
        ValueError: where no theorem gives the event a guarantee under that relation, or a part of
            it was read off the data.
    """
    refuse_data_dependent(event)
    atoms = flatten(event, neighbours)
    values, slack = np.zeros(len(orders)), 0
    for atom, count in atoms:
        with np.errstate(over="ignore", invalid="ignore"):  # what overflows never fits
            one = atom_rdp(atom, orders)
            values = values + count * one.values
        slack += count * amounts.delta_up(one.slack)
    finite = [amounts.rdp_up(float(value)) for value in values]
    return Vector((_at_infinity(atoms), *finite), min(slack, SATURATED))


def require_unit(event: Event, unit: str) -> None:
    """Refuses an event that speaks of another unit than the dataset."""
    found = event.unit_name
    if unit != "label" and "label" in _units(event):
        found = "label"  # however it is wrapped
    if found == unit:
        return
    if "label" in (found, unit):
        remedy = "label privacy has an account of its own: create a dataset for it"
    else:
        remedy = (
            f"where one {unit} holds at most k of them, wrap it: "
            f"GroupedEvent(event, size=k, unit={unit!r})"
        )
    raise LedgerError(
        f"the event protects one {found}, the dataset's budget one {unit}, so it cannot be "
        f"charged: {remedy}"
    )


def _units(event: Event) -> set[str]:
    """The units of an event and of everything inside it."""
    inside: Event | None = getattr(event, "event", None)
    parts: tuple[Event, ...] = getattr(event, "events", ()) if inside is None else (inside,)
    return {event.unit_name}.union(*map(_units, parts))


def _at_infinity(atoms: Multiset) -> int:
    """The sum of epsilons in units, saturated if some part has none.

    Each part is rounded up, then counted, so that n releases and one of n parts cost the same;
    unless rounding the sum up is less.
    """
    total = _sum_at_infinity(atoms)
    pure = pure_total(atoms)
    return total if pure is None else min(total, amounts.epsilon_up(pure))


def _sum_at_infinity(atoms: Multiset) -> int:
    return min(SATURATED, sum(count * _atom_at_infinity(atom) for atom, count in atoms))


def _atom_at_infinity(atom: Atom) -> int:
    if isinstance(atom, ParallelAtom):
        stays = [_sum_at_infinity(part) for part in atom.stays]
        moves = [2 * _sum_at_infinity(part) for part in atom.moves]
        return min(SATURATED, atom.groups * max(stays + moves))
    epsilon = pure_epsilon(atom)
    return amounts.epsilon_up(_opaque_epsilon(atom) if epsilon is None else epsilon)


def _opaque_epsilon(atom: Atom) -> float:
    """The epsilon beside an opaque release's delta; infinite for a release that has none."""
    if isinstance(atom, EpsilonDeltaEvent):
        return atom.epsilon
    if isinstance(atom, PoissonAtom) and (atom.records > 1 or atom.replace):
        return math.inf
    if isinstance(atom, PoissonAtom | FixedSizeAtom) and isinstance(atom.leaf, EpsilonDeltaEvent):
        return amplify(atom.leaf.epsilon, atom.sample_rate)
    return math.inf
