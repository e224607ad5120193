"""Claims that hold on paper and not in the machine: doubles are no reals, and keys are reused."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sfumato.audit.claims import specimens
from sfumato.audit.claims.registry import Claim, Kind, register
from sfumato.audit.claims.training import audit_specimen
from sfumato.audit.findings import Finding
from sfumato.audit.mechanism import audit_mechanism
from sfumato.core.gaussian_profile import gaussian_epsilon
from sfumato.core.guarantee import Guarantee
from sfumato.core.neighbours import Neighbours
from sfumato.core.randomness import Coins, SeededCoins
from sfumato.core.sensitivity import Norm, Sensitivity
from sfumato.mechanisms.gaussian import Gaussian
from sfumato.mechanisms.laplace import Laplace

_Floats = NDArray[np.float64]


def textbook_laplace(value: float, scale: float, uniform: _Floats) -> _Floats:
    """A specimen: value - b sgn(u - 1/2) ln(1 - 2 |u - 1/2|), in double precision.

    Between -1/2 and 1/2 doubles lie closer than 2^-53 apart, and this noise reaches the finer ones
    around 0. Added to 1 it loses them: a result below 1/2 that is no multiple of 2^-53 says that
    the value was not 1.
    """
    centred = uniform - 0.5
    return value - scale * np.sign(centred) * np.log1p(-2 * np.abs(centred))


@register
def laplace_in_floating_point() -> Claim:
    """A count of 0 or 1 with Laplace noise of scale 1, from the formula that everyone writes."""
    scale = 1.0
    claimed = Guarantee(1 / scale, 0.0, Neighbours.ADD_REMOVE)

    def printed() -> Finding:
        rng = np.random.default_rng(20_121_016)
        return audit_mechanism(
            lambda value, count: textbook_laplace(value, scale, rng.random(count)),
            [(0.0, 1.0)],
            claim=claimed,
            samples=100_000,
            confidence=0.99,
        )

    def corrected() -> Finding:
        mechanism = Laplace(scale, Sensitivity(1.0))
        return audit_mechanism(
            mechanism, [(0.0, 1.0)], claim=claimed, samples=100_000, coins=SeededCoins(20_121_016)
        )

    return Claim(
        name="laplace-in-floating-point",
        title="Laplace noise from the textbook formula",
        statement="f(D) − b sgn(u) ln(1 − 2|u|), with u uniform on (−½, ½), is (Δ/b)-DP. (Here in "
        "double precision, b = Δ = 1.)",
        source="Every textbook, and libraries that follow it; Mironov, “On significance of the "
        "least significant bits” (CCS 2012)",
        claimed=claimed,
        audit=printed,
        corrected="Real noise, drawn exactly and rounded to a public grid:",
        holds=claimed,
        corrected_audit=corrected,
        kind=Kind.SAMPLED,
    )


@register
def gaussian_in_floating_point() -> Claim:
    """A sum of 0 or 1 with noise of standard deviation 1, added as every training loop adds it."""
    sigma, delta = 1.0, 1e-5
    claimed = Guarantee(gaussian_epsilon(sigma, delta), delta, Neighbours.ADD_REMOVE)

    def printed() -> Finding:
        rng = np.random.default_rng(20_220_522)
        return audit_mechanism(
            lambda value, count: value + sigma * rng.standard_normal(count),
            [(0.0, 1.0)],
            claim=claimed,
            samples=100_000,
            confidence=0.99,
        )

    def corrected() -> Finding:
        mechanism = Gaussian(sigma, Sensitivity(1.0, norm=Norm.L2))
        return audit_mechanism(
            mechanism, [(0.0, 1.0)], claim=claimed, samples=100_000, coins=SeededCoins(20_220_522)
        )

    return Claim(
        name="gaussian-in-floating-point",
        title="Gaussian noise added in floating point",
        statement="x + σ · standard_normal() has the privacy of Gaussian noise. (Here in double "
        "precision, σ = Δ = 1, and x is 0 or 1.)",
        source="Nearly all DP-SGD; Jin, McMurtry, Rubinstein and Ohrimenko, “Are we there yet?”, "
        "arXiv:2112.05307",
        claimed=claimed,
        audit=printed,
        corrected="The same, drawn exactly and rounded to a public grid:",
        holds=claimed,
        corrected_audit=corrected,
        kind=Kind.SAMPLED,
    )


@register
def one_key_for_all_parameters() -> Claim:
    """Two parameters, of which the canary moves the first: their difference has no noise."""
    noise, clip, delta = 1.0, 1.0, 1e-5
    claimed = Guarantee(gaussian_epsilon(noise, delta), delta, Neighbours.ADD_REMOVE)
    lot = np.zeros((1, 2))
    joined = np.array([[0.0, 0.0], [1.0, 0.0]])

    def printed(gradients: _Floats, count: int, coins: Coins) -> _Floats:
        return specimens.one_noise_for_all(gradients, count, coins, noise, clip)

    def corrected(gradients: _Floats, count: int, coins: Coins) -> _Floats:
        return specimens.right(gradients, count, coins, noise, clip, lot=1)

    return Claim(
        name="one-key-for-all-parameters",
        title="One random key for all parameters",
        statement="Each parameter's gradient gets noise N(0, σ²C²), drawn with the step's key. "
        "(Here σ = 1, two parameters of one shape.)",
        source="JAX's DP-SGD example until jax #3646",
        claimed=claimed,
        audit=lambda: audit_specimen(printed, lot, joined, claimed),
        corrected="Independent noise for every coordinate:",
        holds=claimed,
        corrected_audit=lambda: audit_specimen(corrected, lot, joined, claimed),
        kind=Kind.SAMPLED,
    )
