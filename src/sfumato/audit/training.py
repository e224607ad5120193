"""One call audits any way of training: it takes a callable, and sees scores.

A *method* trains with some canaries and gives each of them a score:

    >>> def method(included):  # of anything: DP-SGD, a protocol, a service
    ...     noise = np.random.default_rng(7).standard_normal(len(included))
    ...     return included + 1.0 * noise  # a sum in which every canary has a place of its own
    >>> from sfumato.core.randomness import SeededCoins
    >>> from sfumato.core.neighbours import Neighbours
    >>> claim = Guarantee(4.377, 1e-5, Neighbours.ADD_REMOVE)  # of noise multiplier 1
    >>> found = audit_training(method, 5000, claim=claim, coins=SeededCoins(1))
    >>> found.verdict.value, found.epsilon > 1.5
    ('consistent', True)

Canaries are the auditor's own units (rows, clients, gradients); each is included by a fair coin
that is tossed here, so that the method cannot know it before. Several runs are pooled: together
they are one mechanism in which each coin matters to one run only, so what holds for one run's
canaries holds for all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sfumato.audit.findings import Finding
from sfumato.audit.one_run import Analysis, audit_scores, require_relation
from sfumato.audit.repeated import audit_games
from sfumato.core import validation
from sfumato.core.guarantee import Guarantee
from sfumato.core.neighbours import Neighbours
from sfumato.core.randomness import SYSTEM, Coins, fair_coins

__all__ = ["Method", "audit_training"]

Method = Callable[[NDArray[np.bool_]], ArrayLike]
"""Trains with the canaries that are included; a score for each canary, in or out."""


def audit_training(
    method: Method,
    canaries: int,
    *,
    claim: Guarantee | None = None,
    delta: float | None = None,
    runs: int = 1,
    confidence: float = 0.95,
    guesses: int | None = None,
    analysis: Analysis | str = Analysis.GUESSES,
    neighbours: Neighbours | str = Neighbours.ADD_REMOVE,
    coins: Coins = SYSTEM,
    progress: Callable[[int, int], object] | None = None,
) -> Finding:
    """A lower bound on a method's epsilon.

    Args:
        method: trains and scores; called ``runs`` times.
        canaries: how many in each run. One, with many runs, is the classical audit.
        claim: what the method promises for one canary.
        delta: at which; by default the claim's.
        runs: how often to train.
        confidence: of the whole procedure.
        guesses: how many, over all runs; see :func:`~sfumato.audit.one_run.audit_scores`.
        analysis: see :class:`~sfumato.audit.one_run.Analysis`.
        neighbours: what the method puts in the place of a canary that is out; the claim must be for
            that relation (see :func:`~sfumato.audit.one_run.audit_scores`).
        coins: which canaries are in.
        progress: told (done, total) runs.
    """
    count, times = validation.count("canaries", canaries), validation.count("runs", runs)
    require_relation(claim, neighbours)
    included, scores = list[NDArray[np.bool_]](), list[NDArray[np.float64]]()
    for done in range(times):
        bits = fair_coins(count, coins)
        found = np.asarray(method(bits.copy()), np.float64)
        if found.shape != (count,):
            validation.fail("method", f"to return {count} scores", found.shape)
        included.append(bits)
        scores.append(found)
        if progress is not None:
            progress(done + 1, times)
    bits, values = np.concatenate(included), np.concatenate(scores)
    if count == 1:
        finding = audit_games(
            values[bits], values[~bits], delta=delta, claim=claim, confidence=confidence,
            analysis=analysis,
        )  # fmt: skip
    else:
        finding = audit_scores(
            values, bits, delta=delta, claim=claim, confidence=confidence, guesses=guesses,
            analysis=analysis, neighbours=neighbours,
        )  # fmt: skip
    return replace(finding, facts={**finding.facts, "runs": times})
