"""Formats of planted secrets: a text with blanks, and all that may stand in them.

What the attacker sees is said in :mod:`sfumato.attacks.exposure`, which ranks a canary among all
sequences of its format.

    >>> codes = Secrets("code ##", "0123456789")
    >>> codes.size, codes.place("code 45"), codes.fill([4, 5])
    (100, 45, 'code 45')

Reference: Carlini, Liu, Erlingsson, Kos and Song, "The Secret Sharer: evaluating and testing
unintended memorization in neural networks", USENIX Security 2019, arXiv:1802.08232, section 4.1.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from sfumato.core import validation

__all__ = ["Secrets"]


@final
@dataclass(frozen=True)
class Secrets:
    """All sequences of one format: what a canary is drawn from.

    Attributes:
        template: a text, or a tuple of tokens, with blanks.
        alphabet: what may stand in a blank, all of it as likely.
        blank: what marks a blank.
    """

    template: str | tuple[Any, ...]
    alphabet: Sequence[Any]
    blank: Any = "#"

    def __post_init__(self) -> None:
        validation.count("number of blanks", self.blanks)
        validation.at_least("size of the alphabet", len(set(self.alphabet)), 2)
        if len(set(self.alphabet)) < len(self.alphabet):
            validation.fail("alphabet", "different from each other", self.alphabet)

    @property
    def blanks(self) -> int:
        """How many blanks the template has."""
        return sum(token == self.blank for token in self.template)

    @property
    def size(self) -> int:
        """|R|: how many sequences there are."""
        return len(self.alphabet) ** self.blanks

    def fill(self, letters: Sequence[int]) -> Any:
        """The sequence with these places of the alphabet in its blanks."""
        drawn = iter(letters)
        tokens = [
            self.alphabet[next(drawn)] if token == self.blank else token for token in self.template
        ]
        return "".join(tokens) if isinstance(self.template, str) else tuple(tokens)

    def draw(self, count: int, generator: np.random.Generator) -> list[Any]:
        """Sequences at random, all as likely, the same one perhaps more than once."""
        size = validation.count("count", count), self.blanks
        return [self.fill(row) for row in generator.integers(0, len(self.alphabet), size).tolist()]

    def everything(self, batch: int = 4096) -> Iterator[list[Any]]:
        """All sequences, in batches."""
        for first in range(0, self.size, batch):
            numbers = np.arange(first, min(first + batch, self.size))
            shape = (len(self.alphabet),) * self.blanks
            places = np.stack(np.unravel_index(numbers, shape), axis=1)
            yield [self.fill(row) for row in places.tolist()]

    def place(self, sequence: Any) -> int:
        """Where a sequence of this format is among :meth:`everything`, from 0."""
        number = 0
        for token, slot in zip(sequence, self.template, strict=True):
            if slot == self.blank:
                number = number * len(self.alphabet) + list(self.alphabet).index(token)
        return number

    def require(self, canaries: Sequence[Any]) -> None:
        """Raises ``ValueError`` unless all ``canaries`` are of this format."""
        letters = set(self.alphabet)
        for canary in canaries:
            fits = len(canary) == len(self.template) and all(
                token in letters if slot == self.blank else token == slot
                for token, slot in zip(canary, self.template, strict=True)
            )
            if not fits:
                validation.fail("canaries", f"of the format {self.template!r}", canary)
