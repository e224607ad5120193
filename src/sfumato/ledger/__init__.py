"""A durable privacy budget that every release passes through.

Read :mod:`~sfumato.ledger.gate` first (what is guaranteed, and why), then
:mod:`~sfumato.ledger.spending` (reserve, run, commit), then :mod:`~sfumato.ledger.entries` (what is
written down).

=====================  ===========================================================
``limits``             B at each order: the largest total that fits
``conversion_delta``   delta', what Rényi divergences may use of delta
``slack``              the opaque part of delta, charged by (epsilon, delta) events
``reading``            an odometer: what the totals so far convert to
=====================  ===========================================================
"""

from sfumato.ledger.budget import Budget
from sfumato.ledger.entries import Entry, Head
from sfumato.ledger.errors import (
    BudgetExceeded,
    DataChangedWarning,
    LedgerError,
    WentOnElsewhere,
)
from sfumato.ledger.identity import Identity
from sfumato.ledger.ledger import Ledger
from sfumato.ledger.plans import Plan
from sfumato.ledger.spending import Spending
from sfumato.ledger.status import Preview, Status
from sfumato.ledger.tables import DatasetTable
from sfumato.ledger.terms import Cap
from sfumato.ledger.turns import Turn
from sfumato.ledger.verify import Verification

__all__ = [
    "Budget",
    "BudgetExceeded",
    "Cap",
    "DataChangedWarning",
    "DatasetTable",
    "Entry",
    "Head",
    "Identity",
    "Ledger",
    "LedgerError",
    "Plan",
    "Preview",
    "Spending",
    "Status",
    "Turn",
    "Verification",
    "WentOnElsewhere",
]
