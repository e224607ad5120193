"""Differencing: two harmless totals whose difference is one person.

What the attacker sees: the answers to two questions about large groups, and a few facts that single
one person out (her age, her children, where she lives). "How many of all worked?" minus "how many
of all but her worked?" is her secret. Neither question concerns a small group, so a rule that
refuses small groups does not help.

    >>> people = {"age": np.array([35, 41, 28]), "ill": np.array([1, 0, 0])}
    >>> found = count_attack(lambda who: who.mask(people).sum(), {"age": 35}, {"ill": 1})
    >>> found.holds
    True
    >>> print(*found.questions, sep="; ")
    ill = 1; ill = 1 AND NOT (age = 35)

On private answers the difference drowns in the noise of both. If all that the attacker sees is
epsilon-DP, then no rule guesses a yes or no that was as likely as not more often than

    e^eps / (1 + e^eps)

of the time: see :func:`best_accuracy`. Only the first answer depends on her, so that an attacker
who knows all the others reaches this bound for the epsilon of that one question, and no one else
comes as far.

Results of an attack are facts about one person: they are for the curator, never for publication.

References: Denning, Denning and Schwartz, "The tracker: a threat to statistical database security",
ACM TODS 4(1) (1979); Kairouz, Oh and Viswanath, "The composition theorem for differential privacy",
arXiv:1311.0776, theorem 2.1 (what a guarantee leaves to a test).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from sfumato.core import validation

__all__ = [
    "Ask",
    "Columns",
    "Difference",
    "Filter",
    "Guesses",
    "best_accuracy",
    "count_attack",
    "play",
    "sum_attack",
]


class Columns(Protocol):
    """A table by its columns: a pandas data frame, or a mapping from names to arrays."""

    def __len__(self) -> int:
        """How many rows; of a mapping, how many columns."""
        ...

    def __getitem__(self, name: str, /) -> Any:
        """One column."""
        ...


@dataclass(frozen=True)
class Filter:
    """Whom a question is about: people with these facts, but not those with those.

    ``str`` gives it as a condition in SQL; :meth:`mask` applies it to a table at hand.

    Attributes:
        facts: columns and the values they must have; none for everyone.
        but_not: people for whom all of these hold are left out; none leaves out nobody.

    Example:
        >>> print(Filter({"worked": 1}, but_not={"age": 35, "town": "L'Aquila"}))
        worked = 1 AND NOT (age = 35 AND town = 'L''Aquila')
        >>> print(Filter())
        TRUE
    """

    facts: Mapping[str, Any] = field(default_factory=dict)
    but_not: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        parts = [_equals(column, value) for column, value in self.facts.items()]
        if self.but_not:
            inner = " AND ".join(_equals(column, value) for column, value in self.but_not.items())
            parts.append(f"NOT ({inner})")
        return " AND ".join(parts) or "TRUE"

    def mask(self, table: Columns) -> NDArray[np.bool_]:
        """For each row of ``table``, whether the question is about it."""
        keep = np.ones(_length(table), dtype=bool)
        for column, value in self.facts.items():
            keep &= np.asarray(table[column] == value, dtype=bool)
        if self.but_not:
            out = [np.asarray(table[c] == value, dtype=bool) for c, value in self.but_not.items()]
            keep &= ~np.logical_and.reduce(out)
        return keep


Ask = Callable[[Filter], Any]
"""The attacker's view: a question about a group, answered by one number, exact or noisy."""


@dataclass(frozen=True)
class Difference:
    """Two answers and what lies between them. For the curator only: it is a fact about a person.

    Attributes:
        everyone: the answer about everyone.
        but_one: the answer about everyone but the person.
        questions: the two conditions, as they were asked.
    """

    everyone: float
    but_one: float
    questions: tuple[str, str]

    @property
    def difference(self) -> float:
        """What the person adds: of a sum, her value; of a count, 1 or 0."""
        return self.everyone - self.but_one

    @property
    def holds(self) -> bool:
        """The guess from a count: closer to 1 than to 0, hence yes."""
        return self.difference > 0.5

    def __str__(self) -> str:
        return f"{self.everyone:,g} - {self.but_one:,g} = {self.difference:,g}"

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready; ``channel`` says who may read it."""
        return {
            "channel": "curator",
            "everyone": self.everyone,
            "but_one": self.but_one,
            "difference": self.difference,
            "questions": list(self.questions),
        }


def count_attack(
    ask: Ask, person: Mapping[str, Any], secret: Mapping[str, Any] | None = None
) -> Difference:
    """Does the person with these facts have this secret? Asks for two counts.

    Exact answers differ by 1 if she does and by 0 if not, provided that the facts are hers alone.
    Without a ``secret`` the difference is how many people the facts fit: 1 says that they do.

    Args:
        ask: how many people a condition holds for.
        person: what the attacker knows of the target (quasi-identifiers).
        secret: the columns and values in question.
    """
    return _subtract(ask, person, secret or {})


def sum_attack(
    ask: Ask, person: Mapping[str, Any], among: Mapping[str, Any] | None = None
) -> Difference:
    """What is the person's number (a salary)? Asks for two sums; the difference is the estimate.

    Args:
        ask: the sum of the number over the people a condition holds for.
        person: what the attacker knows of the target (quasi-identifiers).
        among: further facts that both questions share.
    """
    return _subtract(ask, person, among or {})


def _subtract(ask: Ask, person: Mapping[str, Any], shared: Mapping[str, Any]) -> Difference:
    if not person:
        validation.fail("person", "at least one fact that singles someone out", dict(person))
    everyone, but_one = Filter(shared), Filter(shared, but_not=person)
    return Difference(
        float(ask(everyone)), float(ask(but_one)), questions=(str(everyone), str(but_one))
    )


def best_accuracy(epsilon: float, delta: float = 0.0) -> float:
    """The share of right guesses that no attacker exceeds: (e^eps + delta) / (1 + e^eps).

    For one yes or no about one unit that is as likely as not before anything is seen, or, whatever
    the odds, for the average of the two rates of right guesses (of those where the answer is yes,
    and of those where it is no). Let a and b be these rates. The guarantee says
    a <= e^eps (1 - b) + delta and b <= e^eps (1 - a) + delta; add them.

    Example:
        >>> round(best_accuracy(1.0), 4)
        0.7311
    """
    epsilon = validation.non_negative("epsilon", epsilon)
    delta = validation.delta("delta", delta)
    right = 1 / (1 + math.exp(-epsilon))
    return min(1.0, right + delta * math.exp(-epsilon) * right)


@dataclass(frozen=True)
class Guesses:
    """How often an attacker guessed a yes or no rightly. For the curator only.

    Attributes:
        yes, yes_right: how often the truth was yes, and how often of those the guess.
        no, no_right: how often the truth was no, and how often of those the guess.
    """

    yes: int
    yes_right: int
    no: int
    no_right: int

    def __post_init__(self) -> None:
        validation.count("yes", self.yes)
        validation.count("no", self.no)

    @classmethod
    def compare(cls, guesses: Any, truth: Any) -> Guesses:
        """From one guess and one truth (yes or no) for each case."""
        guess, fact = np.asarray(guesses, dtype=bool).ravel(), np.asarray(truth, dtype=bool).ravel()
        if guess.shape != fact.shape:
            validation.fail("guesses", f"as many as the truths, {fact.size}", guess.size)
        right = guess == fact
        return cls(
            int(fact.sum()), int(right[fact].sum()), int((~fact).sum()), int(right[~fact].sum())
        )

    @property
    def accuracy(self) -> float:
        """The average of the two rates of right guesses: 1/2 is what a coin gives."""
        return (self.yes_right / self.yes + self.no_right / self.no) / 2

    def interval(self, confidence: float = 0.95) -> tuple[float, float]:
        """Where the accuracy lies with at least this confidence.

        The average of two exact (Clopper-Pearson) intervals, each held to half the allowed error.
        """
        from scipy.stats import beta  # slow to import, and only needed here

        confidence = validation.open_probability("confidence", confidence)
        tail = (1 - confidence) / 4
        parts = ((self.yes_right, self.yes), (self.no_right, self.no))
        lows = [float(beta.ppf(tail, k, n - k + 1)) if k else 0.0 for k, n in parts]
        highs = [float(beta.ppf(1 - tail, k + 1, n - k)) if k < n else 1.0 for k, n in parts]
        return sum(lows) / 2, sum(highs) / 2

    def __str__(self) -> str:
        low, high = self.interval()
        return (
            f"{self.accuracy:.1%} of {self.yes + self.no:,} guesses right "
            f"({low:.1%} to {high:.1%}, 95%)"
        )

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready; ``channel`` says who may read it."""
        low, high = self.interval()
        return {
            "channel": "curator",
            "guesses": self.yes + self.no,
            "accuracy": self.accuracy,
            "lower": low,
            "upper": high,
            "confidence": 0.95,
        }


def play(guess: Callable[[bool], bool], rounds: int = 1000) -> Guesses:
    """Lets an attacker guess in half as many rounds where the truth is yes, and as many no.

    Args:
        guess: builds the data with the given truth, answers the attacker's questions about it with
            fresh noise, and returns the attacker's guess.
        rounds: how often, at least 2.
    """
    half = validation.at_least("rounds", rounds, 2) // 2
    yes = sum(bool(guess(True)) for _ in range(half))
    no = sum(not guess(False) for _ in range(half))
    return Guesses(half, yes, half, no)


def _length(table: Columns) -> int:
    return len(next(iter(table.values()), ())) if isinstance(table, Mapping) else len(table)


def _equals(column: str, value: Any) -> str:
    """``column = value`` in SQL; names that are no plain words, and texts, are quoted."""
    plain = column.isidentifier() and column.isascii()
    name = column if plain else '"' + column.replace('"', '""') + '"'
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, bool):
        return f"{name} = {'TRUE' if value else 'FALSE'}"
    if isinstance(value, int | float):
        return f"{name} = {value!r}"
    return f"{name} = '" + str(value).replace("'", "''") + "'"
