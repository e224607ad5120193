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

from sfumato.federated.wire import Malformed
from sfumato.ledger import BudgetExceeded, LedgerError

__all__ = ["BUDGET", "FAILED", "is_public", "is_refusal", "public_reason"]

FAILED = "the participant could not answer"
BUDGET = "her budget does not allow it"

_EIGHT = "([0-9a-f]{8})"
_OTHER = "another federation file: the order is of {}, hers is {}"
_REFUSALS = (
    (f"an order of federation {_EIGHT}, but .* joined {_EIGHT}: .*", _OTHER),
    ("[0-9]+ answers were agreed to, and all were given", "her answers are used up"),
    (".* was answered before, or a later one was", "she answered this round before"),
    (".* was charged before", "she was charged for this round before"),
    (
        "contributions of this federation are never sent as they are",
        "this federation has no plain sums",
    ),
)
"""From what a participant raises to what may be told; the digits of digests alone are kept."""
_SAID = re.compile(
    "|".join(
        [re.escape(words) for words in (FAILED, BUDGET)]
        + [re.escape(words).replace(r"\{\}", _EIGHT) for _, words in _REFUSALS]
    )
)


def public_reason(error: Exception) -> str:
    """What may be told of it."""
    from sfumato.federated.member import Refusal

    if isinstance(error, BudgetExceeded):
        return BUDGET
    if isinstance(error, Refusal):
        for pattern, words in _REFUSALS:
            found = re.fullmatch(pattern, str(error), re.DOTALL)
            if found is not None:
                return words.format(*found.groups())
    return FAILED


def is_public(text: str) -> bool:
    """Whether it is on the list."""
    return _SAID.fullmatch(text) is not None


def is_refusal(error: Exception) -> bool:
    """Whether she does not follow an order, as opposed to a mistake in her program."""
    from sfumato.federated.member import Refusal
    from sfumato.federated.secure.masking import Refused

    return isinstance(error, Refusal | Refused | Malformed | LedgerError)
