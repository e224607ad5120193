"""Why a participant does not answer, in words that may leave her machine.

A fixed list: none of them depends on her rows. Whatever is not on it is :data:`FAILED` to everybody
else, and stays in her own log. The coordinator reads the same list: what a participant makes up
reaches no operator's screen.

    >>> from sfumato.ledger import BudgetExceeded
    >>> public_reason(BudgetExceeded("refused: 3 of 4.1 are spent"))
    'her budget does not allow it'
    >>> public_reason(ValueError("row 17: Ada Lovelace"))
    'the participant could not answer'
    >>> is_public("row 17: Ada Lovelace")
    False
"""

from __future__ import annotations

import re

from sfumato.federated.secure.masking import Refused
from sfumato.federated.wire import Malformed
from sfumato.ledger import BudgetExceeded, LedgerError

__all__ = [
    "ANSWERED", "BUDGET", "CHARGED", "COPIED", "FAILED", "NO_PLAIN_SUMS", "TOO_LONG", "USED_UP",
    "Refusal", "is_public", "is_refusal", "of_another_federation", "public_reason",
]  # fmt: skip

FAILED = "the participant could not answer"
BUDGET = "her budget does not allow it"
USED_UP = "her answers are used up"
ANSWERED = "she answered this round before"
CHARGED = "she was charged for this round before"
COPIED = "she went on elsewhere: this is an older copy of what she remembers"
NO_PLAIN_SUMS = "this federation has no plain sums"
TOO_LONG = "her message is longer than the server takes (serve --most-message)"
_OTHER = "another federation file: the order is of {}, hers is {}"

_EIGHT = "[0-9a-f]{8}"
_FIXED = (FAILED, BUDGET, USED_UP, ANSWERED, CHARGED, COPIED, NO_PLAIN_SUMS, TOO_LONG)
_SAID = re.compile("|".join([*map(re.escape, _FIXED), re.escape(_OTHER).replace(r"\{\}", _EIGHT)]))


class Refusal(ValueError):  # noqa: N818 - the name operators read
    """An order that a participant does not follow.

    Attributes:
        told: why, in words on this module's list; the message itself is for her own log.
    """

    def __init__(self, message: str, told: str) -> None:
        super().__init__(message)
        self.told = told


def of_another_federation(asked: str, name: str, joined: str) -> Refusal:
    """The refusal of an order of a federation that she did not join; both by their digests."""
    return Refusal(
        f"an order of federation {asked[:8]}, but {name} joined {joined[:8]}: both sides need the "
        "same federation file",
        _OTHER.format(asked[:8], joined[:8]),
    )


def public_reason(error: Exception) -> str:
    """What may be told of it."""
    if isinstance(error, BudgetExceeded):
        return BUDGET
    told = error.told if isinstance(error, Refusal) else FAILED
    return told if is_public(told) else FAILED


def is_public(text: str) -> bool:
    """Whether it is on the list."""
    return _SAID.fullmatch(text) is not None


def is_refusal(error: Exception) -> bool:
    """Whether she does not follow an order, as opposed to a mistake in her program."""
    return isinstance(error, Refusal | Refused | Malformed | LedgerError)
