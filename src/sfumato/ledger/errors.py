"""What a ledger says when it cannot or will not."""

from __future__ import annotations

__all__ = [
    "MISSHAPEN",
    "AlreadyWritten",
    "BudgetExceeded",
    "DataChangedWarning",
    "LedgerError",
    "WentOnElsewhere",
]

MISSHAPEN = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
)
"""What reading may raise where something else was written over what the ledger wrote."""


class LedgerError(ValueError):
    """The ledger cannot do what was asked; the message names the value and the remedy."""


class AlreadyWritten(LedgerError):  # noqa: N818 - a fact, for the caller to put into words
    """What a dataset holds only once (a reservation's end, a key) is there already."""


class WentOnElsewhere(LedgerError):  # noqa: N818 - a fact about a run
    """The run's folder is a copy, or an older state, of one that took a turn since."""


class BudgetExceeded(LedgerError):  # noqa: N818 - the name users read
    """A request was refused. Nothing was written and nothing was spent.

    Attributes:
        dataset: whose budget.
        scope: which limit refused: "dataset", or a cap in words.
        left: the epsilon of a pure release that would still pass.
    """

    def __init__(self, message: str, dataset: str = "", scope: str = "dataset", left: float = 0.0):
        super().__init__(message)
        self.dataset, self.scope, self.left = dataset, scope, left


class DataChangedWarning(UserWarning):
    """The data behind a dataset's name is not what it was. Its budget goes on."""
