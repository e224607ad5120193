"""Kind ``spenders``: several processes spend from one ledger at once, and die at any moment.

Operations are plain releases; releases with a key, which others repeat after a death; steps of
which some are given back; releases that fail after noise was drawn; and such as are never ended.
Half of the datasets are pure, with caps for two analysts; the others take Gaussian noise.
"""

from __future__ import annotations

import logging
import random
import secrets
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from tests.storm.children import tell
from tests.storm.laws import Drawn, judge, tell_drawn
from tests.storm.storm import Storm

from sfumato.core.events import GaussianEvent, LaplaceEvent, repeat
from sfumato.ledger import Budget, BudgetExceeded, Ledger, LedgerError

__all__ = ["CAPS", "Spender", "at_work_on", "open_dataset", "operate", "spend", "spenders"]

CAPS = {"ann": 2.5, "bob": 1.5}
_PURE, _GAUSSIAN = Budget(3.2), Budget(2.0, 1e-6)
_KEYS, REFUSED = 10, 3
SCALES = {"laplace": (5.0, 10.0, 20.0), "gaussian": (12.0, 20.0, 30.0)}
_GONE = ("was charged", "has ended")
_AWAY = "cannot be reached"
_T = TypeVar("_T")


class FailedError(Exception):
    """What a release raises in the middle."""


def patiently(step: Callable[[], _T], seconds: float) -> _T:
    """Takes a step, again and again while the ledger's server is away."""
    while True:
        try:
            return step()
        except LedgerError as error:
            if _AWAY not in str(error) or seconds <= 0:
                raise
        seconds -= 0.05
        time.sleep(0.05)


class Spender:
    """One process's operations on one dataset."""

    def __init__(
        self, url: str, dataset: str, told: str, seed: int, patience: float = 0.0,
        bears: Sequence[str] = (), closes: float = 0.1,
    ) -> None:  # fmt: skip
        self.random = random.Random(seed)
        logging.getLogger("psycopg").setLevel(logging.CRITICAL)  # a lost server is no news here
        self.ledger = patiently(lambda: Ledger(url, create=False, timeout=60.0), patience)
        self.dataset, self._told, self.refused = dataset, told, 0
        self._patience = patience  # seconds to go on asking a server that is away
        self._bears, self._closes = (*_GONE, *bears), closes
        self.kind = "laplace" if dataset.startswith("pure") else "gaussian"
        self.analyst = self.random.choice(list(CAPS)) if self.kind == "laplace" else ""

    def event(self, scale: float) -> Any:
        """One release."""
        return LaplaceEvent(scale) if self.kind == "laplace" else GaussianEvent(scale)

    def tell(self, operation: str, did: str, **facts: Any) -> None:
        """Says what was seen."""
        tell(self._told, dataset=self.dataset, op=operation, did=did, **facts)

    def drew(self, operation: str, entry: int, scale: float, steps: int = 1) -> None:
        """Noise was drawn, and may have been seen."""
        drawn = tell_drawn(Drawn(self.kind, scale, steps))
        self.tell(operation, "drew", entry=entry, analyst=self.analyst, **drawn)

    def one(self) -> None:
        """One operation, whichever."""
        works = [self.plain, self.keyed, self.steps] * 2 + [self.failing, self.left]
        operation = secrets.token_hex(6)
        scale = self.random.choice(SCALES[self.kind])
        work = self.random.choice(works)
        try:
            work(operation, scale)
        except BudgetExceeded:
            self.refused += 1
        except FailedError:
            pass
        except LedgerError as error:
            self._bear(error)
        if self.random.random() < self._closes:
            self.ledger.close()

    def _bear(self, error: LedgerError) -> None:
        """Goes on after what may happen; nothing else may."""
        if any(sign in str(error) for sign in self._bears):
            if not any(sign in str(error) for sign in _GONE):
                self.tell("", "trouble", error=str(error)[:200])
            return
        if _AWAY in str(error) and self._patience > 0:
            time.sleep(0.05)
            self._patience -= 0.05
            return
        raise error

    def plain(self, operation: str, scale: float) -> None:
        """A release."""
        with self._spend(operation, self.event(scale)) as spending:
            self._finish(operation, spending, scale)

    def keyed(self, _: str, __: float) -> None:
        """One of ten, which others ask, too."""
        number = self.random.randrange(_KEYS)
        key = f"key {number} of {self.analyst or 'all'}"
        scale = SCALES[self.kind][number % 3]
        with self._spend(key, self.event(scale), key=key) as spending:
            if spending.repeated:
                self.tell(key, "shown", answer=spending.answer)
                return
            self._finish(key, spending, scale)

    def steps(self, operation: str, scale: float) -> None:
        """Some of several steps; the others are given back."""
        planned = self.random.randrange(2, 5)
        taken = self.random.randrange(1, planned + 1)
        with self._spend(operation, repeat(self.event(scale), planned)) as spending:
            for step in range(taken):
                self.drew(operation, spending.sequence, scale, step + 1)
                if self.random.random() < 0.1:
                    raise FailedError
            if self.random.random() < 0.8:
                spending.stop_after(taken, "fixed plan")
            answer = self.random.getrandbits(60)
            spending.commit(answer)
            self.tell(operation, "shown", answer=answer)

    def failing(self, operation: str, scale: float) -> None:
        """Fails after noise was drawn: the charge stays."""
        with self._spend(operation, repeat(self.event(scale), 2)) as spending:
            self.drew(operation, spending.sequence, scale, 2)
            raise FailedError

    def left(self, operation: str, scale: float) -> None:
        """Is never ended."""
        spending = self._spend(operation, self.event(scale))
        self.drew(operation, spending.sequence, scale)

    def _spend(self, operation: str, event: Any, key: str = "") -> Any:
        return self.ledger.spend(
            self.dataset, event, analyst=self.analyst, key=key, request={"op": operation}
        )

    def _finish(self, operation: str, spending: Any, scale: float) -> None:
        self.drew(operation, spending.sequence, scale)
        answer = self.random.getrandbits(60)
        spending.commit(answer)
        self.tell(operation, "shown", answer=answer)


def spend(url: str, dataset: str, told: str, seed: int, patience: float = 0.0) -> int:
    """A child's work: some operations; its exit code says whether the budget is spent."""
    return operate(Spender(url, dataset, told, seed, patience))


def operate(spender: Spender) -> int:
    """Some operations."""
    for _ in range(8):
        spender.one()
        if spender.refused >= 3:
            return REFUSED
    return 0


def open_dataset(url: str, number: int) -> str:
    """A budget of which about forty releases come; asked again, it is the same one."""
    ledger = Ledger(url, timeout=60.0)
    name = f"pure {number}" if number % 2 else f"gaussian {number}"
    ledger.create(name, _PURE if number % 2 else _GAUSSIAN)
    if number % 2:
        for analyst, epsilon in CAPS.items():
            ledger.grant(name, analyst, Budget(epsilon))
    ledger.close()
    return name


def _problems(url: str, dataset: str) -> tuple[str, ...]:
    ledger = Ledger(url, create=False, timeout=60.0)
    try:
        return ledger.verify(dataset).problems
    finally:
        ledger.close()


def at_work_on(
    storm: Storm,
    url: str,
    told: Path,
    *,
    work: Callable[..., int] = spend,
    together: int = 3,
    patience: float = 0.0,
    before: Callable[[], Any] = lambda: None,
    meanwhile: Callable[[], Any] = lambda: None,
    make: Callable[[str, int], str] | None = None,
    **more: Callable[[], Any],
) -> None:
    """Has some at work at any time until there were kills enough; then all is judged.

    Args:
        storm: the piece.
        url: the ledger.
        told: the children's file.
        work: what they do.
        together: how many at once.
        patience: seconds that each goes on asking a server that is away.
        before: called before the ledger is used from here.
        meanwhile: called after every end.
        make: makes a dataset, of a number.
        more: for the work, drawn for each child.
    """
    make = make or open_dataset
    dataset, number = "", 0
    while not storm.over:
        if not dataset:
            before()
            dataset, number = patiently(partial(make, url, number), patience), number + 1
        while storm.at_work < together:
            seed = storm.random.getrandbits(32)
            asked = {"url": url, "dataset": dataset, "told": str(told), "seed": seed}
            asked |= {name: value() for name, value in more.items()}
            storm.start(work, **asked | ({"patience": patience} if patience else {}))
        spent = any(code == REFUSED for _, code in storm.wait())
        meanwhile()
        if storm.random.random() < 0.05:
            before()
            with storm.expecting("looking on, while others are at work"):
                for problem in patiently(partial(_problems, url, dataset), patience):
                    storm.find("wrong", f"in the middle, {dataset}: {problem}")
        dataset = "" if spent else dataset
    storm.end_all()
    before()
    dataset = patiently(partial(make, url, number), patience)
    last = str(told / "last" if told.is_dir() else told)
    code = storm.spare(spend, url=url, dataset=dataset, told=last, seed=1, patience=patience)
    if code not in (0, REFUSED):
        storm.find("wrong", "nobody could spend any more")
    storm.note_problems()
    ledger = patiently(lambda: Ledger(url, create=False), patience)
    judge(storm, ledger, told, CAPS)
    ledger.close()


def spenders(storm: Storm) -> None:
    """A file, and three at a time."""
    url = f"sqlite:///{storm.folder / 'privacy.db'}"
    at_work_on(storm, url, storm.folder / "told")
