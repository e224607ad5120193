"""The neighbours' fuzzer: the same is done to two neighbouring inputs, and compared.

A :class:`Case` is plain data: a pair of inputs that differ in one unit, and what is done to both.
``case.broken()`` names the laws that it breaks. Strategies of Hypothesis make cases, and shrink
those that break one; what remains is written to a script that shows it (:func:`script`).

Only the public door is used, and one thing besides: :func:`~tests.coins.same_coins` lets both runs
draw the same numbers wherever they ask the operating system for secret ones.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import re
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Sequence
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, ClassVar

from tests.coins import same_coins

__all__ = [
    "Case",
    "Finding",
    "Outcome",
    "UnusableError",
    "differences",
    "done",
    "making",
    "script",
]

_ADDRESS = re.compile(r"0x[0-9a-f]+")
_TOLD = ("sfumato",)  # loggers whose records others see


class UnusableError(Exception):
    """A case that says nothing: the input itself cannot be made."""


@contextlib.contextmanager
def making() -> Generator[None]:
    """Whatever fails while an input is made is not our error; Polars' engine panics, too.

    Raises:
        UnusableError: in its place.
    """
    try:
        yield
    except UnusableError:
        raise
    except Exception as error:
        raise UnusableError(str(error)) from error
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        raise UnusableError(str(error)) from error


@dataclass
class Outcome:
    """What somebody sees of a run: all of it must be the same for neighbours but for ``numbers``.

    Attributes:
        error: the type and text of what was raised, or nothing.
        warned: warnings, in order.
        logged: log records, in order.
        shape: whatever else the run showed: schemas, keys, counts of cells, charges, files.
        numbers: released numbers, or exact ones before noise.
        told: whatever else was released, which may differ.
    """

    error: str = ""
    warned: list[str] = field(default_factory=list)
    logged: list[str] = field(default_factory=list)
    shape: Any = None
    numbers: Any = None
    told: list[Any] = field(default_factory=list)


class _Kept(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(f"{record.name} {record.levelname} {record.getMessage()}")


def done(
    work: Callable[[Outcome], None], hidden: Sequence[str] = (), coins: int | None = None
) -> Outcome:
    """What a run showed. ``work`` fills in the outcome it is given.

    Args:
        work: the run.
        hidden: texts that differ for reasons of the harness, such as folders; they are left out.
        coins: a seed for :func:`same_coins`; the operating system's own without.
    """
    outcome, kept = Outcome(), _Kept()
    loggers = [logging.getLogger(name) for name in _TOLD]
    for logger in loggers:
        logger.addHandler(kept)
    try:
        with warnings.catch_warnings(record=True) as caught, contextlib.ExitStack() as stack:
            warnings.simplefilter("always")
            if coins is not None:
                stack.enter_context(same_coins(coins))
            try:
                work(outcome)
            except UnusableError:
                raise
            except Exception as error:  # whatever it is, it must be the neighbour's, too
                outcome.error = f"{type(error).__name__}: {error}"
            except BaseException as error:  # Polars' engine panics, and a cell may ask to exit
                if type(error) is KeyboardInterrupt and not error.args:  # the keyboard's own
                    raise
                outcome.error = f"{type(error).__name__}: {error}"
        outcome.warned = [
            f"{w.category.__name__}: {w.message}"
            for w in caught
            if w.category is not ResourceWarning  # which comes whenever memory is tidied up
        ]
    finally:
        for logger in loggers:
            logger.removeHandler(kept)
    outcome.logged = kept.lines
    for text in hidden:
        outcome.error = outcome.error.replace(text, "...")
        outcome.warned = [line.replace(text, "...") for line in outcome.warned]
        outcome.logged = [line.replace(text, "...") for line in outcome.logged]
    outcome.error = _ADDRESS.sub("0x...", outcome.error)
    return outcome


def differences(one: Outcome, two: Outcome) -> list[str]:
    """What an observer could tell the two apart by, numbers aside."""
    found = []
    for name in ("error", "warned", "logged", "shape"):
        here, there = getattr(one, name), getattr(two, name)
        if here != there:
            found.append(f"{name}: {_short(here)} and {_short(there)}")
    return found


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 300 else f"{text[:200]} ... {text[-80:]}"


class Case(ABC):
    """One pair of neighbouring inputs, and what is done to both."""

    kind: ClassVar[str]

    @abstractmethod
    def broken(self) -> list[str]:
        """The laws that are broken, in words; none if all hold.

        Raises:
            UnusableError: if the inputs cannot be made.
        """

    def traits(self) -> frozenset[str]:
        """What the case is made of, numbers and sizes aside: fields that are not as usual."""
        found = set()
        for each in fields(self):  # pyright: ignore[reportArgumentType] - cases are dataclasses
            usual = each.default if each.default is not MISSING else None
            value = getattr(self, each.name)
            if value != usual:
                text = isinstance(value, str | bool)
                found.add(f"{each.name} {value}" if text else each.name)
        return frozenset(found)

    @property
    def imports(self) -> str:
        """What a script needs to import before the case's ``repr``."""
        return f"from {type(self).__module__} import *"


@dataclass(frozen=True)
class Finding:
    """Laws that a case breaks, and what it is made of; others like it are not news."""

    laws: frozenset[str]
    traits: frozenset[str]

    @classmethod
    def of(cls, case: Case, broken: Sequence[str]) -> Finding:
        """What is found of a case that was made small."""
        return cls(frozenset(_kind_of(law) for law in broken), case.traits())

    def covers(self, other: Finding) -> bool:
        """Whether the other breaks the same laws, and has all that this one is made of."""
        return other.laws <= self.laws and self.traits <= other.traits


def _kind_of(law: str) -> str:
    """``error``, ``shape`` or the like, or the sentence up to its first number."""
    return re.split(r"[:\d]", law, maxsplit=1)[0].strip()


def script(case: Case, broken: Sequence[str]) -> tuple[str, str]:
    """A file's name, and what to write to it: the case, and what it breaks."""
    shown = repr(case)
    name = f"{case.kind}_{hashlib.sha256(shown.encode()).hexdigest()[:10]}.py"
    said = "\n".join(f"#   {line}" for law in broken for line in law.splitlines())
    text = (
        f"# Run from the project's root: python -m tests.neighbours.fuzz --script FILE\n"
        f"# Broken when it was found:\n{said}\n{case.imports}\n\ncase = {shown}\n"
    )
    return name, text
