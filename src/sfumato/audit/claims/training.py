"""Claims about DP-SGD: steps that lack a half of their noise, and lots that are not what they seem.

The sampled audits run the steps of :mod:`~sfumato.audit.claims.specimens` two hundred thousand
times on two neighbouring lots, always with the same coins, so that a reader finds the figures of
the page again.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaincc, log_ndtr, ndtr
from scipy.stats import binom

from sfumato.accounting.account import account
from sfumato.audit.claims import specimens
from sfumato.audit.claims.lower_bounds import sampled_gaussian_at_least
from sfumato.audit.claims.registry import Claim, Kind, register
from sfumato.audit.exact import audit_finite, audit_half_lines
from sfumato.audit.findings import Finding
from sfumato.audit.mechanism import audit_mechanism
from sfumato.core.events import dp_sgd
from sfumato.core.gaussian_profile import gaussian_epsilon, least_multiplier
from sfumato.core.guarantee import Guarantee
from sfumato.core.neighbours import Neighbours
from sfumato.core.randomness import Coins, SeededCoins

_Floats = NDArray[np.float64]
_Step = Callable[[_Floats, int, Coins], _Floats]
_DELTA = 1e-5
_SAMPLES = 200_000
_COINS = 20_160_701


def _step_promise(noise: float, neighbours: Neighbours = Neighbours.ADD_REMOVE) -> Guarantee:
    """What one step with all records in the lot promises at that noise multiplier."""
    return Guarantee(gaussian_epsilon(noise, _DELTA), _DELTA, neighbours)


def audit_specimen(step: _Step, lot: _Floats, neighbour: _Floats, claim: Guarantee) -> Finding:
    """A step repeated on two neighbouring lots; which outputs tell them apart is learned."""
    coins = SeededCoins(_COINS)
    return audit_mechanism(
        lambda gradients, count: step(gradients, count, coins),
        [(lot, neighbour)],
        delta=claim.delta,
        claim=claim,
        samples=_SAMPLES,
        confidence=0.99,
    )


def _lot(*gradients: float) -> _Floats:
    """One-dimensional gradients, a row each."""
    return np.array(gradients)[:, None]


# --- one step -----------------------------------------------------------------------------------


@register
def mean_of_the_realised_batch() -> Claim:
    """A hundred gradients of +C, and one of -C."""
    noise, clip = 3.2, 1.0
    claimed, lot = _step_promise(noise), _lot(*[1.0] * 100)
    joined = np.concatenate([lot, _lot(-1.0)])

    def printed(gradients: _Floats, count: int, coins: Coins) -> _Floats:
        return specimens.mean_of_the_batch(gradients, count, coins, noise, clip)

    def corrected(gradients: _Floats, count: int, coins: Coins) -> _Floats:
        return specimens.right(gradients, count, coins, noise, clip, lot=100)

    return Claim(
        name="mean-of-the-realised-batch",
        title="Dividing by the realised batch size",
        statement="(Σ clip(g) + N(0, σ²C²)) / n has noise multiplier σ, where n is the number of "
        "examples in the batch. (Here σ = 3.2.)",
        source="Opacus #571: an ε of 1.2 reported, about 2.5 leaked; optax, `dpsgd`",
        claimed=claimed,
        audit=lambda: audit_specimen(printed, lot, joined, claimed),
        corrected="Divide by a public lot size; n is private:",
        holds=claimed,
        corrected_audit=lambda: audit_specimen(corrected, lot, joined, claimed),
        kind=Kind.SAMPLED,
    )


@register
def size_read_off_the_noise() -> Claim:
    """A million parameters, no gradient at all: how large is the noise, for 100 people or 101?"""
    noise, size, people = 1.0, 1_000_000, 100
    claimed = _step_promise(noise)

    def audit(normaliser: int) -> Finding:
        """The squared length of the update is chi-squared, over the normaliser's square."""
        spread = math.sqrt(2 * size)
        thresholds = np.linspace(size - 12 * spread, size + 12 * spread, 4_001)
        ratio = (normaliser / people) ** 2
        return audit_half_lines(
            lambda t: np.asarray(gammaincc(size / 2, t / 2), np.float64),
            lambda t: np.asarray(gammaincc(size / 2, ratio * t / 2), np.float64),
            thresholds,
            claim=claimed,
            accuracy=1e-6,
        )

    return Claim(
        name="size-read-off-the-noise",
        title="The number of people, read off the noise",
        statement="(Σ clip(g) + N(0, σ²C²I)) / n has noise multiplier σ in any dimension. (Here "
        "σ = 1, n = 100 or 101, a million parameters.)",
        source="Opacus up to 1.6, `expected_batch_size` from the length of the data (#819)",
        claimed=claimed,
        audit=lambda: audit(people + 1),
        corrected="The same with a public normaliser:",
        holds=claimed,
        corrected_audit=lambda: audit(people),
        kind=Kind.EXACT,
    )


@register
def batch_clipped_as_a_whole() -> Claim:
    """Ten gradients of +1, and one of -1000 that turns their mean around."""
    noise, clip = 2.0, 1.0
    claimed, lot = _step_promise(noise), _lot(*[1.0] * 10)
    joined = np.concatenate([lot, _lot(-1000.0)])

    def printed(gradients: _Floats, count: int, coins: Coins) -> _Floats:
        return specimens.clip_the_batch(gradients, count, coins, noise, clip)

    def corrected(gradients: _Floats, count: int, coins: Coins) -> _Floats:
        return specimens.right(gradients, count, coins, noise, clip, lot=10)

    return Claim(
        name="batch-clipped-as-a-whole",
        title="Clipping the batch's gradient",
        statement="Compute the gradient of a batch, clip it to length C, add N(0, σ²C²): the "
        "impact of any one point is limited to a vector of length C. (Here σ = 2.)",
        source="Lecture slides on private learning; TensorFlow Privacy #81: fewer microbatches do "
        "“not impact the privacy guarantee”",
        claimed=claimed,
        audit=lambda: audit_specimen(printed, lot, joined, claimed),
        corrected="Clip each example's gradient, then add up; a clipped batch moves by 2C:",
        holds=claimed,
        corrected_audit=lambda: audit_specimen(corrected, lot, joined, claimed),
        kind=Kind.SAMPLED,
    )


@register
def noise_split_among_workers() -> Claim:
    """Eight workers with a record each; one of them has one more."""
    noise, clip, workers = 2.0, 1.0, 8
    claimed, lot = _step_promise(noise), _lot(*[0.0] * workers)
    joined = np.concatenate([lot, _lot(1.0)])

    def split(share: float) -> _Step:
        return lambda gradients, count, coins: specimens.noise_of_the_workers(
            gradients, count, coins, share, clip, workers
        )

    return Claim(
        name="noise-split-among-workers",
        title="Noise divided by the number of workers",
        statement="Each of k workers (or of k micro-batches) adds noise σC/k to its part, so that "
        "the sum has noise multiplier σ. (Here σ = 2, k = 8.)",
        source="The remedy proposed and doubted in optax #148, for `dpsgd` on several devices",
        claimed=claimed,
        audit=lambda: audit_specimen(split(noise), lot, joined, claimed),
        corrected="Variances add, not deviations: σC/√k each, or σC once:",
        holds=claimed,
        corrected_audit=lambda: audit_specimen(
            split(noise * math.sqrt(workers)), lot, joined, claimed
        ),
        kind=Kind.SAMPLED,
    )


@register
def noise_of_the_mean_on_the_sum() -> Claim:
    """A batch of 64, one of which is the canary."""
    noise, clip, batch = least_multiplier(0.21, _DELTA), 1.0, 64
    claimed, lot = _step_promise(noise), _lot(*[0.0] * (batch - 1))
    joined = np.concatenate([lot, _lot(1.0)])

    def printed(gradients: _Floats, count: int, coins: Coins) -> _Floats:
        return specimens.noise_for_the_mean(gradients, count, coins, noise, clip, lot=batch)

    def corrected(gradients: _Floats, count: int, coins: Coins) -> _Floats:
        return specimens.right(gradients, count, coins, noise, clip, lot=batch)

    return Claim(
        name="noise-of-the-mean-on-the-sum",
        title="The noise of a mean, on a sum",
        statement="Gradients are averaged over a batch of B, so noise of σC/B is enough; but what "
        "is released was a sum. (Here ε = 0.21 by σ, B = 64.)",
        source="Backpropagation clipping, audited by Tramèr et al., arXiv:2202.12219: 0.21 "
        "claimed, 2.79 found",
        claimed=claimed,
        audit=lambda: audit_specimen(printed, lot, joined, claimed),
        corrected="σC on the sum, then divide:",
        holds=claimed,
        corrected_audit=lambda: audit_specimen(corrected, lot, joined, claimed),
        kind=Kind.SAMPLED,
    )


@register
def masks_from_a_public_seed() -> Claim:
    """Two thousand gradients of +1 and -1 in turns, behind Dropout(0.5), and one more in front.

    Noise is secret. Masks are not: of either table everybody can compute the sum without noise.
    With the row in front each mask goes to the next row, whose gradient has the other sign.

    With secret masks each row counts or not by a coin of its own: the sum is that of a binomial
    number of rows, and one row more is one coin more.
    """
    noise, clip, rows, seed = 8.0, 1.0, 2_000, 0
    claimed, joined = _step_promise(noise), np.where(np.arange(rows + 1) % 2, -1.0, 1.0)[:, None]
    joined_law = binom.pmf(np.arange(rows + 2), rows + 1, 0.5)
    law = binom.pmf(np.arange(rows + 1), rows, 0.5)

    def audit() -> Finding:
        first, second = (
            float(specimens.masked_sum(lot, specimens.masks_in_order(len(lot), 1, seed), clip)[0])
            for lot in (joined, joined[1:])
        )
        apart = abs(first - second)
        found = audit_half_lines(
            lambda t: ndtr((apart - t) / (noise * clip)),
            lambda t: ndtr(-t / (noise * clip)),
            np.linspace(-10 * noise, apart + 10 * noise, 20_001),
            claim=claimed,
        )
        return replace(found, facts={**found.facts, "apart_in_clips": apart / clip})

    def mixed(law: _Floats, start: int) -> Callable[[_Floats], _Floats]:
        """A number of that law, counted from ``start``, with noise."""
        values = (start + np.arange(len(law)))[:, None] * clip
        return lambda t: law @ ndtr((values - t) / (noise * clip))

    def corrected_audit() -> Finding:
        """Kept rows with +1 and left-out rows with -1 are a binomial number of all of them."""
        return audit_half_lines(
            mixed(joined_law, -rows // 2),
            mixed(law, -rows // 2),
            np.linspace(-250.0, 250.0, 1_001),
            claim=claimed,
            accuracy=1e-9,
        )

    return Claim(
        name="masks-from-a-public-seed",
        title="Dropout under a seed that others know",
        statement="Noise and lots from a secure generator, and each example's gradient clipped to "
        "C, make noise multiplier σ, whatever the network. (Here one weight behind Dropout(0.5), "
        "whose masks come from seed 0; σ = 8, one step of 2,000 records or one more.)",
        source="Opacus 1.6.0, `PrivacyEngine`, `secure_mode`: “uses secure random number generator "
        "for noise and shuffling”; masks are drawn from torch's global generator, which scripts "
        "seed, and which Hugging Face's `Trainer` seeds with 42",
        claimed=claimed,
        audit=audit,
        corrected="Masks that nobody knows, fresh in every batch; one record more is then one "
        "record more:",
        holds=claimed,
        corrected_audit=corrected_audit,
        kind=Kind.EXACT,
    )


# --- lots ---------------------------------------------------------------------------------------


@register
def layers_as_separate_lots() -> Claim:
    """A canary with a gradient of full length in both layers is in both sums or in neither."""
    noise, layers, rate, steps = 1.0, 2, 0.01, 1_000
    joint = noise / math.sqrt(layers)
    claimed = account(dp_sgd(noise, rate, layers * steps), _DELTA, accountant="moments")
    holds = account(dp_sgd(joint, rate, steps), _DELTA)

    def audit(claim: Guarantee) -> Finding:
        found = sampled_gaussian_at_least(joint, rate, steps, _DELTA)
        return Finding(found, _DELTA, 1.0, "exact", claim, {"losses": "rounded down"})

    return Claim(
        name="layers-as-separate-lots",
        title="Layers accounted as if sampled apart",
        statement="Each of k layers is clipped to C and gets noise σC; a step costs as much as k "
        "sampled Gaussians of σ. (Here σ = 1, k = 2, q = 1 %, T = 1000; the code's accountant.)",
        source="tensorflow/models, DP-SGD of Abadi et al., `sanitizer.py`",
        claimed=claimed,
        audit=lambda: audit(claimed),
        corrected="The layers share one lot: one sampled Gaussian of σ/√k a step:",
        holds=holds,
        corrected_audit=lambda: audit(holds),
        kind=Kind.EXACT,
    )


@register
def shuffled_as_poisson() -> Claim:
    """All gradients are -1, the canary's +1: the batch that has it stands out, once an epoch.

    Up to a shift, batch t shows 2 with the canary and 1 without it, and the others 0.
    """
    noise, batches = 1.0, 100
    poisson = account(dp_sgd(noise, 1 / batches, batches), _DELTA, neighbours="zero-out")
    holds = _step_promise(noise, Neighbours.ZERO_OUT)

    def audit(claim: Guarantee) -> Finding:
        """The largest of all batches: Pr[max > t] is a product, for each of the two data sets."""

        def largest(mean: float) -> Callable[[_Floats], _Floats]:
            return lambda t: (
                -np.expm1((batches - 1) * log_ndtr(t / noise) + log_ndtr((t - mean) / noise))
            )

        thresholds = np.linspace(0.0, 9.0, 9_001)
        return audit_half_lines(largest(2.0), largest(1.0), thresholds, claim=claim, accuracy=1e-9)

    return Claim(
        name="shuffled-as-poisson",
        title="Shuffled batches accounted as Poisson samples",
        statement="Shuffle, cut into batches, and account each as a Poisson sample of the same "
        "rate. (Here σ = 1, one epoch of 100 batches.)",
        source="Opacus #80 and most training loops; refuted by Chua et al., arXiv:2403.17673",
        claimed=poisson,
        audit=lambda: audit(poisson),
        corrected="Draw Poisson lots; or account a shuffled epoch as one Gaussian without "
        "amplification, for a blanked-out record:",
        holds=holds,
        corrected_audit=lambda: audit(holds),
        kind=Kind.EXACT,
    )


@register
def empty_lots_skipped() -> Claim:
    """Nobody, against one person: an update that is not 0 gives the person away."""
    noise, rate = 1.0, 0.01
    claimed = account(dp_sgd(noise, rate, 1), _DELTA)

    def corrected_audit() -> Finding:
        return audit_half_lines(
            lambda t: (1 - rate) * ndtr(-t / noise) + rate * ndtr((1 - t) / noise),
            lambda t: ndtr(-t / noise),
            np.linspace(-8.0, 9.0, 20_001),
            claim=claimed,
        )

    return Claim(
        name="empty-lots-skipped",
        title="Empty lots are skipped",
        statement="A Poisson lot without anyone in it needs no step and no noise. (Here σ = 1, "
        "q = 1 %, one step.)",
        source="Training loops that crash or `continue` on an empty batch; Opacus #161",
        claimed=claimed,
        audit=lambda: audit_finite([rate, 1 - rate], [0.0, 1.0], claim=claimed),
        corrected="An empty lot takes its step, of noise alone, and is charged:",
        holds=claimed,
        corrected_audit=corrected_audit,
        kind=Kind.EXACT,
    )
