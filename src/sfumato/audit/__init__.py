"""Audits: lower bounds on epsilon, by attack, beside the upper bounds that accountants prove.

=======================  ==========================================================================
:func:`audit_training`   any way of training, as a callable, by canaries
:func:`audit_scores`     one finished run, by its canaries' scores
:func:`audit_games`      many runs, with and without one canary
:func:`audit_two_runs`   two runs, each step of which shows a score
:func:`audit_step`       single steps, where a wrong constant shows
=======================  ==========================================================================

A :class:`Finding` states the bound, its confidence (of the whole procedure) and the verdict.
"""

from sfumato.audit.findings import Finding, Verdict
from sfumato.audit.one_run import Analysis, audit_scores
from sfumato.audit.repeated import audit_games, audit_two_runs
from sfumato.audit.steps import audit_step
from sfumato.audit.training import audit_training

__all__ = [
    "Analysis",
    "Finding",
    "Verdict",
    "audit_games",
    "audit_scores",
    "audit_step",
    "audit_training",
    "audit_two_runs",
]
