"""Claims about several releases together: what was dropped from a theorem, or chosen too late."""

from __future__ import annotations

import math

import numpy as np
from scipy import stats

from sfumato.accounting.account import account
from sfumato.accounting.theorems import amplify, optimal
from sfumato.audit.claims.lower_bounds import epsilon_of_events, sampled_gaussian_at_least
from sfumato.audit.claims.order_filter import ORDERS, audit_filter
from sfumato.audit.claims.registry import Claim, Kind, register
from sfumato.audit.exact import audit_finite
from sfumato.audit.findings import Finding
from sfumato.core.events import dp_sgd
from sfumato.core.guarantee import Guarantee
from sfumato.core.neighbours import Neighbours


@register
def fifty_answers_for_one() -> Claim:
    """Is each of fifty answers above 4, where the true count is 4 or 3?"""
    queries, epsilon = 50, 1 / math.sqrt(2)
    claimed = Guarantee(epsilon, 0.0, Neighbours.ADD_REMOVE, "person")
    holds = Guarantee(queries * epsilon, 0.0, Neighbours.ADD_REMOVE, "person")
    counts = np.arange(queries + 1)

    def audit(claim: Guarantee) -> Finding:
        laws = [stats.binom.pmf(counts, queries, p) for p in (0.5, 0.5 * math.exp(-epsilon))]
        return audit_finite(*laws, claim=claim, accuracy=1e-12)

    return Claim(
        name="fifty-answers-for-one",
        title="Fifty answers at the price of one",
        statement="A count is answered fifty times, each time with fresh Laplace noise of standard "
        "deviation 2: the example has an ε of 0.707, which is quite small.",
        source="Lecture slides on deep learning",
        claimed=claimed,
        audit=lambda: audit(claimed),
        corrected="ε adds up over the answers, 50 · 0.7071:",
        holds=holds,
        corrected_audit=lambda: audit(holds),
        kind=Kind.EXACT,
    )


# --- amplification by sampling ------------------------------------------------------------------


def _sampled_answers(epsilon: float, rate: float, steps: int, claim: Guarantee) -> Finding:
    """How often "in the sample" was reported by randomised response, with and without a record.

    The record enters each sample with probability ``rate``; every step reports truthfully with
    probability e^epsilon / (1 + e^epsilon), and is epsilon-DP.
    """
    keep = 1 / (1 + math.exp(-epsilon))
    present = rate * keep + (1 - rate) * (1 - keep)
    reports = np.arange(steps + 1)
    laws = [stats.binom.pmf(reports, steps, p) for p in (present, 1 - keep)]
    return audit_finite(*laws, claim=claim, accuracy=1e-12)


@register
def sampling_multiplies_epsilon() -> Claim:
    """Ten steps of randomised response on one per cent samples."""
    epsilon, rate, steps = 2.0, 0.01, 10
    claimed = Guarantee(rate * steps * epsilon, 0.0, Neighbours.ADD_REMOVE)
    holds = Guarantee(steps * amplify(epsilon, rate), 0.0, Neighbours.ADD_REMOVE)
    return Claim(
        name="sampling-multiplies-epsilon",
        title="Sampling multiplies ε by q",
        statement="T steps, each (ε, δ)-DP, with batches that are a q fraction of the data, are "
        "(qTε, qTδ)-DP. (Here ε = 2, q = 1 %, T = 10; it is false at T = 1 already.)",
        source="Lecture slides on private learning",
        claimed=claimed,
        audit=lambda: _sampled_answers(epsilon, rate, steps, claimed),
        corrected="T ln(1 + q(e^ε − 1)):",
        holds=holds,
        corrected_audit=lambda: _sampled_answers(epsilon, rate, steps, holds),
        kind=Kind.EXACT,
    )


@register
def sampling_at_most_twice() -> Claim:
    """One step at epsilon 3; the inequality ends at epsilon 1.2564."""
    epsilon, rate = 3.0, 0.01
    claimed = Guarantee(2 * rate * epsilon, 0.0, Neighbours.ADD_REMOVE)
    holds = Guarantee(amplify(epsilon, rate), 0.0, Neighbours.ADD_REMOVE)
    return Claim(
        name="sampling-at-most-twice",
        title="Sampling gives at most 2qε",
        statement="Note that ln(1 + q(e^ε − 1)) ≤ 2qε, so a sampled step is (2qε, qδ)-DP. (Here "
        "ε = 3, q = 1 %.)",
        source="Lecture slides on private learning, and on DP-SGD",
        claimed=claimed,
        audit=lambda: _sampled_answers(epsilon, rate, 1, claimed),
        corrected="ln(1 + q(e^ε − 1)), which is below 2qε only up to ε = 1.2564:",
        holds=holds,
        corrected_audit=lambda: _sampled_answers(epsilon, rate, 1, holds),
        kind=Kind.EXACT,
    )


# --- many steps ---------------------------------------------------------------------------------


@register
def strong_composition_without_its_terms() -> Claim:
    """Ten thousand answers by randomised response, each 1.2-DP: how many are flipped?"""
    epsilon, steps, delta = 1.2, 10_000, 1e-5
    total = steps * delta
    printed = epsilon * math.sqrt(steps * math.log(1 / delta))
    claimed = Guarantee(printed, total, Neighbours.REPLACE_ONE)
    holds = Guarantee(optimal(epsilon, 0.0, steps, total), total, Neighbours.REPLACE_ONE)

    def audit(claim: Guarantee) -> Finding:
        flip, flips = 1 / (1 + math.exp(epsilon)), np.arange(steps + 1)
        few = [
            np.logaddexp.accumulate(stats.binom.logpmf(flips, steps, p)) for p in (flip, 1 - flip)
        ]
        found = epsilon_of_events(few[0], few[1], total)
        return Finding(found, total, 1.0, "exact", claim, {"events": steps + 1})

    return Claim(
        name="strong-composition-without-its-terms",
        title="Strong composition without its terms",
        statement="T steps, each (ε, δ)-DP, are (ε√(T ln 1/δ), Tδ)-DP: 10,000 steps of (1.2, 1e-5) "
        "give (360, 0.1). (The formula gives 407.)",
        source="Lecture slides on DP-SGD, citing Dwork, Rothblum and Vadhan (FOCS 2010)",
        claimed=claimed,
        audit=lambda: audit(claimed),
        corrected="ε√(2T ln 1/δ) + Tε(e^ε − 1), or exactly, by Kairouz, Oh and Viswanath:",
        holds=holds,
        corrected_audit=lambda: audit(holds),
        kind=Kind.EXACT,
    )


@register
def moments_without_their_constant() -> Claim:
    """A hundred steps at noise multiplier 1: below what the theorem's hidden constant covers."""
    noise, rate, steps, delta = 1.0, 0.01, 100, 1e-5
    step = math.sqrt(2 * math.log(1.25 / delta)) / noise
    claimed = Guarantee(rate * step * math.sqrt(steps), delta, Neighbours.ADD_REMOVE)
    holds = account(dp_sgd(noise, rate, steps), delta)

    def audit(claim: Guarantee) -> Finding:
        found = sampled_gaussian_at_least(noise, rate, steps, delta)
        return Finding(found, delta, 1.0, "exact", claim, {"losses": "rounded down"})

    return Claim(
        name="moments-without-their-constant",
        title="The moments accountant as a formula",
        statement="For σ = √(2 ln(1.25/δ)) / ε, T steps on a q fraction of the data are "
        "(qε√T, δ)-DP. (Here σ = 1, q = 1 %, T = 100.)",
        source="Lecture slides on private learning, for Abadi et al., arXiv:1607.00133, theorem 1, "
        "which hides a constant and asks for ε < c₁q²T",
        claimed=claimed,
        audit=lambda: audit(claimed),
        corrected="There is no such formula; an accountant gives",
        holds=holds,
        corrected_audit=lambda: audit(holds),
        kind=Kind.EXACT,
    )


# --- choosing late ------------------------------------------------------------------------------


@register
def best_order_for_free() -> Claim:
    """A first noisy answer decides at which order the rest of the budget is spent."""
    epsilon, delta = 10.0, 1e-5
    claimed = Guarantee(epsilon, delta, Neighbours.ADD_REMOVE)
    return Claim(
        name="best-order-for-free",
        title="A filter that picks its best Rényi order",
        statement="Requests, chosen after seeing answers, pass as long as their Rényi divergences "
        "add up, at one order or another, to no more than converts to (ε, δ). All that passed is "
        "(ε, δ)-DP.",
        source="PrivateKube (Luo et al., OSDI 2021) and Turbo: “for at least one alpha”; here with "
        "the sharp conversion of Canonne, Kamath and Steinke, arXiv:2004.00010",
        claimed=claimed,
        audit=lambda: audit_filter(delta, claimed),
        corrected=f"Each of the {len(ORDERS)} orders gets δ/{len(ORDERS)}; or one order is fixed "
        "in advance:",
        holds=claimed,
        corrected_audit=lambda: audit_filter(delta / len(ORDERS), claimed),
        kind=Kind.EXACT,
    )
