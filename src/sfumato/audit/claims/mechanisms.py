"""Claims about single releases: a missing 2, a formula beyond its range, the wrong neighbours."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from sfumato.accounting.account import account
from sfumato.audit.claims.registry import Claim, Kind, register
from sfumato.audit.exact import audit_density, audit_finite, audit_half_lines
from sfumato.audit.findings import Finding
from sfumato.core.events import GaussianEvent
from sfumato.core.gaussian_profile import gaussian_epsilon, least_multiplier
from sfumato.core.guarantee import Guarantee
from sfumato.core.neighbours import Neighbours
from sfumato.mechanisms.exponential import softmax

_Floats = NDArray[np.float64]


@register
def exponential_without_the_2() -> Claim:
    """One person who liked every film but the first becomes one who liked the first alone."""
    epsilon = 1.0
    scores = np.array([0.0] + [1.0] * 999)
    claimed = Guarantee(epsilon, 0.0, Neighbours.REPLACE_ONE, "person")

    def audit(rate: float) -> Finding:
        return audit_finite(softmax(rate * scores), softmax(rate * (1 - scores)), claim=claimed)

    return Claim(
        name="exponential-without-the-2",
        title="Exponential mechanism without the 2",
        statement="Pr[o] ∝ exp(ε s(o) / Δs) is ε-DP.",
        source="Lecture slides on private learning",
        claimed=claimed,
        audit=lambda: audit(epsilon),
        corrected="Pr[o] ∝ exp(ε s(o) / 2Δs); the 2 goes only if all scores move the same way:",
        holds=claimed,
        corrected_audit=lambda: audit(epsilon / 2),
        kind=Kind.EXACT,
    )


# --- Gaussian noise -----------------------------------------------------------------------------


def gaussian_audit(noise_multiplier: float, claimed: Guarantee) -> Finding:
    """N(1, m^2) against N(0, m^2): the best events are half-lines, so this is exact."""
    m = noise_multiplier
    reach = np.linspace(-10 * m, 1 + 10 * m, 40_001)
    return audit_half_lines(
        lambda t: ndtr((1 - t) / m), lambda t: ndtr(-t / m), reach, claim=claimed
    )


def _gaussian_formula(constant: float, name: str, source: str) -> Claim:
    """The formula sqrt(2 ln(c / delta)) / epsilon, at an epsilon for which nobody proved it."""
    epsilon, delta = 10.0, 1e-5
    printed = math.sqrt(2 * math.log(constant / delta)) / epsilon
    claimed = Guarantee(epsilon, delta, Neighbours.ADD_REMOVE)
    return Claim(
        name=name,
        title=f"Gaussian formula with {constant:g}, at ε = 10",
        statement=f"Noise of σ = Δ₂ √(2 ln({constant:g}/δ)) / ε is (ε, δ)-DP.",
        source=source,
        claimed=claimed,
        audit=lambda: gaussian_audit(printed, claimed),
        corrected="The least σ with Φ(1/2σ − εσ) − e^ε Φ(−1/2σ − εσ) ≤ δ, here "
        f"{least_multiplier(epsilon, delta):.4f} instead of {printed:.4f}:",
        holds=claimed,
        corrected_audit=lambda: gaussian_audit(least_multiplier(epsilon, delta), claimed),
        kind=Kind.EXACT,
    )


@register
def gaussian_formula_with_1_25() -> Claim:
    """Proved for epsilon below 1; first false, at delta 1e-5, at epsilon 8.42."""
    source = "Lecture slides; Dwork and Roth (2014), theorem A.1, which says ε < 1"
    return _gaussian_formula(1.25, "gaussian-formula-with-1-25", source)


@register
def gaussian_formula_with_2() -> Claim:
    """First false, at delta 1e-5, at epsilon 9.40."""
    return _gaussian_formula(2.0, "gaussian-formula-with-2", "Lecture slides on neural networks")


@register
def gaussian_formula_with_1() -> Claim:
    """First false, at delta 1e-5, at epsilon 7.97."""
    return _gaussian_formula(1.0, "gaussian-formula-with-1", "Lecture slides on DP-SGD")


@register
def gaussian_replaced_as_removed() -> Claim:
    """A record clipped to norm C, replaced by its opposite, moves the sum by 2C."""
    noise, delta = 4.0, 1e-5
    removed = account(GaussianEvent(noise), delta, accountant="rdp")
    claimed = Guarantee(removed.epsilon, delta, Neighbours.REPLACE_ONE)
    holds = Guarantee(gaussian_epsilon(noise / 2, delta), delta, Neighbours.REPLACE_ONE)
    return Claim(
        name="gaussian-replaced-as-removed",
        title="Replaced records accounted as removed ones",
        statement="Noise of standard deviation σC on a sum of records clipped to C costs the same, "
        "whether a record is removed or replaced. (Here σ = 4.)",
        source="dp-accounting 0.6, `RdpAccountant` under replace-one (google/differential-privacy "
        "#378)",
        claimed=claimed,
        audit=lambda: gaussian_audit(noise / 2, claimed),
        corrected="From +C to −C is 2C, so the noise multiplier counts half:",
        holds=holds,
        corrected_audit=lambda: gaussian_audit(noise / 2, holds),
        kind=Kind.EXACT,
    )


# --- Laplace noise ------------------------------------------------------------------------------


@register
def mean_over_a_private_count() -> Claim:
    """The data {1}, against {1, 0}: the mean moves and so does the scale of its noise."""
    epsilon = 0.1
    claimed = Guarantee(epsilon, 0.0, Neighbours.ADD_REMOVE)

    def density(values: tuple[float, ...]) -> _Laplace:
        return _Laplace(sum(values) / len(values), 1 / (len(values) * epsilon))

    def audit() -> Finding:  # what is cut off at 0 and 1 is left out, which lowers the result
        return audit_density(
            density((1.0,)), density((1.0, 0.0)), (0.0, 1.0), breaks=(0.5,), claim=claimed
        )

    def corrected_audit() -> Finding:
        """Sum 1 and count 1, against 2 and 2: which of the two answers are above 2."""
        near, far = 0.5, 0.5 * math.exp(-epsilon / 2)
        return audit_finite(_two_coins(near), _two_coins(far), claim=claimed)

    return Claim(
        name="mean-over-a-private-count",
        title="A mean over a private count",
        statement="mean(x) + Lap((b − a) / (n ε)), cut to [a, b], is ε-DP, where n = len(x).",
        source="diffprivlib, `tools.mean`, after any filter that makes n private",
        claimed=claimed,
        audit=audit,
        corrected="A noisy sum and a noisy count, ε/2 each, and their ratio:",
        holds=claimed,
        corrected_audit=corrected_audit,
        kind=Kind.EXACT,
    )


class _Laplace:
    """The density of Laplace noise about a centre."""

    def __init__(self, centre: float, scale: float) -> None:
        self.centre, self.scale = centre, scale

    def __call__(self, x: _Floats) -> _Floats:
        return np.exp(-np.abs(x - self.centre) / self.scale) / (2 * self.scale)


def _two_coins(rate: float) -> list[float]:
    """Both, one, the other or none of two independent events of that probability."""
    return [rate * rate, rate * (1 - rate), (1 - rate) * rate, (1 - rate) * (1 - rate)]


@register
def parallel_for_replaced() -> Claim:
    """One person moves from the first group to the second: both counts move."""
    epsilon = 1.0
    claimed = Guarantee(epsilon, 0.0, Neighbours.REPLACE_ONE)
    holds = Guarantee(2 * epsilon, 0.0, Neighbours.REPLACE_ONE)

    def audit(claim: Guarantee) -> Finding:
        """Counts (1, 0) against (0, 1): is the first answer above 1, the second below 0?"""
        near, far = 0.5, 0.5 * math.exp(-epsilon)
        return audit_finite(_two_coins(near), _two_coins(far), claim=claim)

    return Claim(
        name="parallel-for-replaced",
        title="Parallel composition for a replaced record",
        statement="Each person is in exactly one chunk, so an ε-DP answer from every chunk is "
        "ε-DP in all: a histogram with Lap(1/ε) on each bar.",
        source="Lecture slides on deep learning",
        claimed=claimed,
        audit=lambda: audit(claimed),
        corrected="ε if a person is added or removed; if one is replaced, two chunks change and "
        "the two largest ε add:",
        holds=holds,
        corrected_audit=lambda: audit(holds),
        kind=Kind.EXACT,
    )


@register
def votes_counted_once() -> Claim:
    """All 250 teachers agree; one record turns one teacher's vote; the other label wins."""
    gamma, teachers = 0.05, 250
    claimed = Guarantee(gamma, 0.0, Neighbours.ADD_REMOVE)
    holds = Guarantee(2 * gamma, 0.0, Neighbours.ADD_REMOVE)

    def wins(gap: float) -> float:
        """That Lap(1/gamma) - Lap(1/gamma) exceeds a lead of ``gap`` votes."""
        return math.exp(-gamma * gap) * (2 + gamma * gap) / 4

    def audit(claim: Guarantee) -> Finding:
        first, second = wins(teachers), wins(teachers - 2)
        return audit_finite([1 - first, first], [1 - second, second], claim=claim)

    return Claim(
        name="votes-counted-once",
        title="A turned vote counted once",
        statement="Noise of scale 20 on the teachers' votes guarantees an individual query bound "
        "of ε = 0.05.",
        source="Papernot et al., PATE, arXiv:1610.05755, section 4.2",
        claimed=claimed,
        audit=lambda: audit(claimed),
        corrected="One teacher moves two counts, so Lap(1/γ) is 2γ-DP, as the paper's own theorem "
        "has it:",
        holds=holds,
        corrected_audit=lambda: audit(holds),
        kind=Kind.EXACT,
    )
