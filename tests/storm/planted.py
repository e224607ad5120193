"""Breaks of the law on purpose, for tests of whether a storm sees them.

Each is a function that changes the library in this process, and so in all that it forks.
"""

from __future__ import annotations

import time
from typing import Any

from sfumato.core.events import RepeatedEvent
from sfumato.ledger import Ledger, entries, ledger, plans, spending, store

__all__ = ["PLANTED"]

_REAL_SPEND = Ledger.spend


class _Late:
    """A release that is charged when its answer is stored."""

    repeated = False

    def __init__(self, at: Ledger, name: str, event: Any, asked: dict[str, Any]) -> None:
        self._make = lambda: _REAL_SPEND(at, name, event, **asked)
        self.sequence = at.head(name).sequence + 1

    def __enter__(self) -> Any:
        return self

    def stop_after(self, steps: int, because: str) -> None:
        pass

    def commit(self, answer: Any) -> None:
        time.sleep(0.005)
        self._make().commit(answer)

    def __exit__(self, *_: Any) -> None:
        pass


def late_charge() -> None:
    """The charge comes after noise was drawn."""
    Ledger.spend = lambda self, name, event, **asked: _Late(self, name, event, asked)  # pyright: ignore


def refund_on_error() -> None:
    """A release that fails costs nothing."""
    real = spending.Spending.__exit__

    def give_back(self: Any, kind: Any, error: Any, trace: Any) -> None:
        if kind is not None and isinstance(self.event, RepeatedEvent):
            self.stop_after(0, "fixed plan")
        real(self, kind, error, trace)

    spending.Spending.__exit__ = give_back


def stale_gate() -> None:
    """Whether it fits is decided by what a process saw when it began."""
    fits: dict[str, bool] = {}

    def ask_early(self: Ledger, name: str, event: Any, **asked: Any) -> Any:
        who = asked.get("analyst", "")
        fits.setdefault(name, self.preview(name, event, analyst=who).passes)
        return _REAL_SPEND(self, name, event, **asked)

    real = spending.refuse_unless_it_fits

    def late(dataset: str, *more: Any) -> None:
        if not fits[dataset]:
            real(dataset, *more)

    spending.refuse_unless_it_fits = late
    Ledger.spend = ask_early


def forgotten_keys() -> None:
    """A key that was used is not looked up."""
    real = entries.mark_of

    def unmarked(kind: str, payload: Any) -> Any:
        return None if kind == "reserve" else real(kind, payload)

    for module in (entries, store):
        module.mark_of = unmarked
    ledger.Ledger._answered = lambda *_: None


def forgotten_answers() -> None:
    """An answer is shown, and stored later or never."""

    def later(self: Any, answer: Any = None) -> None:
        self.answer, self._done = answer, True

    spending.Spending.commit = later


def plans_without_keys() -> None:
    """A run that died between its plan and the plan's first draw declares another."""
    real = Ledger.declare

    def slowly(*arguments: Any, **more: Any) -> Any:
        plan = real(*arguments, **more)
        time.sleep(0.5)  # so that it is hit
        return plan

    plans.declared, Ledger.declare = lambda *_: None, slowly


PLANTED = {
    each.__name__: each
    for each in (
        late_charge, refund_on_error, stale_gate, forgotten_keys, forgotten_answers,
        plans_without_keys,
    )
}  # fmt: skip
