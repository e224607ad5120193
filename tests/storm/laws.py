"""The law of spending: what children told is held against what the ledger says.

A child tells ``drew`` once noise was drawn, which is after its charge, and ``shown`` once its
answer was committed. What it drew is told in its own terms (the scale of Laplace noise, the
multiplier of Gaussian noise), and summed up here without the ledger's arithmetic: pure epsilons
add as fractions, Gaussian ones by their exact curve.
"""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

from tests.storm.children import told

from sfumato.ledger import Entry, Ledger

__all__ = ["Drawn", "exact_delta", "judge", "sum_of_charges", "tell_drawn"]

_UNITS = 10**12


class Drawn:
    """What noise was drawn with."""

    def __init__(self, kind: str, scale: float, steps: int = 1) -> None:
        self.kind, self.scale, self.steps = kind, scale, steps

    @property
    def pure(self) -> Fraction:
        """Its epsilon; scales are such that this is a short decimal."""
        one = Fraction(str(round(1 / self.scale, 9))) if self.kind == "laplace" else Fraction(0)
        return one * self.steps

    @property
    def square(self) -> float:
        """1 / sigma^2, which adds up over Gaussian releases."""
        return self.steps / self.scale**2 if self.kind == "gaussian" else 0.0


def tell_drawn(drawn: Drawn) -> dict[str, Any]:
    """For a line."""
    return {"kind": drawn.kind, "scale": drawn.scale, "steps": drawn.steps}


def exact_delta(epsilon: float, square: float) -> float:
    """The delta of Gaussian releases whose 1 / sigma^2 add up to ``square``.

    Balle and Wang, arXiv:1805.06530, theorem 8, with mu = sqrt(square).
    """
    if square == 0:
        return 0.0
    mu = math.sqrt(square)

    def phi(x: float) -> float:
        return 0.5 * math.erfc(-x / math.sqrt(2))

    return phi(mu / 2 - epsilon / mu) - math.exp(epsilon) * phi(-mu / 2 - epsilon / mu)


class Seen:
    """What children told of one dataset, by operation."""

    def __init__(self) -> None:
        self.drawn: dict[str, list[tuple[int, Drawn]]] = defaultdict(list)
        self.shown: dict[str, set[str]] = defaultdict(set)
        self.analysts: dict[str, str] = {}
        self.at: dict[str, str] = {}


def _seen(lines: list[dict[str, Any]]) -> dict[str, Seen]:
    found: dict[str, Seen] = defaultdict(Seen)
    for line in lines:
        seen, operation = found[line["dataset"]], line["op"]
        if line["did"] == "drew":
            drawn = Drawn(line["kind"], line["scale"], line["steps"])
            seen.drawn[operation].append((line["entry"], drawn))
            seen.analysts[operation] = line["analyst"]
        elif line["did"] == "shown":
            seen.shown[operation].add(json.dumps(line["answer"]))
    return found


def judge(storm: Any, ledger: Ledger, path: Path, caps: dict[str, float] | None = None) -> None:
    """Holds what children told against the ledger, dataset by dataset.

    Args:
        storm: to which findings are told.
        ledger: opened anew.
        path: the children's file, or folder of files.
        caps: what an analyst may spend of a dataset, if there are such.
    """
    everything = _seen(told(path))
    for name in ledger.names():
        with storm.expecting(f"looking at {name}"):
            _judge_one(storm, ledger, name, everything.pop(name, Seen()), caps or {})
    for name in everything:
        storm.find("lost", f"{name} was spent from and is not in the ledger")


def _judge_one(storm: Any, ledger: Ledger, name: str, seen: Seen, caps: dict[str, float]) -> None:
    def find(law: str, what: str) -> None:
        storm.find(law, f"{name}: {what}")

    found = ledger.verify(name)
    for problem in found.problems:
        find("overspent" if "exceeds" in problem else "wrong", f"verify: {problem}")
    terms, entries = ledger.terms(name), ledger.history(name)
    orders = terms.gate.orders
    reserved = {e.sequence: e.data for e in entries if e.kind == "reserve"}
    net = _net(entries)
    committed = {e.data["reserve"]: e.data["answer"] for e in entries if e.kind == "commit"}

    # Nothing double: an operation, and a key, is charged once.
    for which in ("op", "key"):
        words = [_operation(data) if which == "op" else data["key"] for data in reserved.values()]
        for word, times in Counter(filter(None, words)).items():
            if times > 1:
                find("double", f"{which} {word} was charged {times} times")
    for operation, draws in seen.drawn.items():
        if len({entry for entry, _ in draws}) > 1:
            find("double", f"{operation} drew noise under entries {[e for e, _ in draws]}")

    # Nothing lost: what was drawn is charged, what was shown is stored.
    own = {_operation(data): number for number, data in reserved.items()}
    for operation, draws in seen.drawn.items():
        for number, drawn in draws:
            if number not in reserved or _operation(reserved[number]) != operation:
                find("lost", f"{operation} drew noise, and entry {number} is no charge for it")
            elif not _covers(net[number], orders, drawn):
                find("lost", f"{operation} drew {tell_drawn(drawn)}, charged {net[number]}")
    for operation, answers in seen.shown.items():
        stored = committed.get(own.get(operation, 0))
        if len(answers) > 1:
            find("wrong", f"{operation} was answered in {len(answers)} ways: {answers}")
        if operation not in own or own[operation] not in committed:
            find("lost", f"{operation} was answered, and the ledger holds no answer")
        elif json.dumps(stored) not in answers:
            find("wrong", f"{operation} was answered {answers}, stored is {stored}")

    # Nothing overspent, by the ledger's own sums and by what was observed.
    status = ledger.status(name, declared=False)
    if status.reading > terms.budget.epsilon:
        find("overspent", f"the ledger reads {status.reading}")
    total = [sum(column) for column in zip(*net.values(), strict=True)] if net else []
    if total and all(a > b for a, b in zip(total, terms.gate.limits, strict=True)):
        find("overspent", f"charges add up to {total}, limits are {terms.gate.limits}")
    if abs(len(status.open) - (len(reserved) - _ends(entries))):
        find("wrong", f"{len(status.open)} are open of {len(reserved)}, {_ends(entries)} ended")
    _observed(find, seen, terms.budget, caps)


def _net(entries: Sequence[Entry]) -> dict[int, list[int]]:
    """What each reservation costs at infinity and at each order, less what was given back."""
    net = {e.sequence: list(e.data["charge"][1:]) for e in entries if e.kind == "reserve"}
    for data in (entry.data for entry in entries if entry.kind == "refund"):
        pairs = zip(net[data["reserve"]], data["back"][1:], strict=True)
        net[data["reserve"]] = [a - b for a, b in pairs]
    return net


def sum_of_charges(entries: Sequence[Entry], chosen: Callable[[dict[str, Any]], bool]) -> Fraction:
    """The pure epsilon of the reservations that are chosen by what their entries hold."""
    net = _net(entries)
    units = sum(net[e.sequence][0] for e in entries if e.sequence in net and chosen(e.data))
    return Fraction(units, _UNITS)


def _operation(data: dict[str, Any]) -> str:
    asked = data["request"]
    return asked.get("op", "") if isinstance(asked, dict) else ""


def _ends(entries: Sequence[Entry]) -> int:
    return sum(entry.kind in ("commit", "failed") for entry in entries)


def _covers(net: list[int], orders: tuple[float, ...], drawn: Drawn) -> bool:
    """Whether a charge pays for what was drawn: pure at infinity, Gaussian at every order."""
    if drawn.kind == "laplace":
        return net[0] >= drawn.pure * _UNITS
    least = (order / 2 * drawn.square * _UNITS * (1 - 1e-9) for order in orders)
    return all(a >= b for a, b in zip(net[1:], least, strict=True))


def _observed(find: Any, seen: Seen, budget: Any, caps: dict[str, float]) -> None:
    """What was drawn in all, and by each analyst, is within the budget."""
    most = {
        op: max((d for _, d in draws), key=lambda d: d.steps) for op, draws in seen.drawn.items()
    }
    for who, limit in {"": budget.epsilon, **caps}.items():
        mine = [d for op, d in most.items() if who in ("", seen.analysts[op])]
        pure, square = sum(d.pure for d in mine), sum(d.square for d in mine)
        if square and exact_delta(limit, square) > budget.delta:
            find("overspent", f"{who or 'all'} drew Gaussian noise of {square} at {limit}")
        if not square and pure > Fraction(str(limit)):
            find("overspent", f"{who or 'all'} drew {float(pure)} in all, of {limit}")
