"""False privacy statements from print, runnable, each with its refutation and its repair.

Read :mod:`~sfumato.audit.claims.registry` first, then any of the topics:
:mod:`~sfumato.audit.claims.mechanisms`, :mod:`~sfumato.audit.claims.composition`,
:mod:`~sfumato.audit.claims.training` (with its specimens of faulty steps),
:mod:`~sfumato.audit.claims.estimators`, :mod:`~sfumato.audit.claims.networks`,
:mod:`~sfumato.audit.claims.gradients`, :mod:`~sfumato.audit.claims.collaborative` (with its
specimens of faulty rounds) and :mod:`~sfumato.audit.claims.implementation`.
"""

from sfumato.audit.claims.registry import (
    Claim,
    Kind,
    Result,
    claim,
    claims,
    register,
    run_claims,
)
from sfumato.audit.claims.table import claims_table

__all__ = [
    "Claim",
    "Kind",
    "Result",
    "claim",
    "claims",
    "claims_table",
    "register",
    "run_claims",
]
