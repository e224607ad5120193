"""Claims about collaborative learning: noise for a mean that is none, and one number for many.

Most are about the privacy that comes with Flower, as of 1.41.0, read and run. What it does is in
:mod:`~sfumato.audit.claims.collaborative_specimens`; the tests hold those against Flower itself.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy import stats
from scipy.special import log_ndtr, ndtr

from sfumato.accounting.account import account
from sfumato.audit.claims import collaborative_specimens as specimens
from sfumato.audit.claims.lower_bounds import epsilon_of_events
from sfumato.audit.claims.mechanisms import gaussian_audit
from sfumato.audit.claims.registry import Claim, Kind, register
from sfumato.audit.exact import audit_finite, audit_half_lines
from sfumato.audit.findings import Finding
from sfumato.core.events import GaussianEvent
from sfumato.core.gaussian_profile import gaussian_epsilon
from sfumato.core.guarantee import Guarantee
from sfumato.core.neighbours import Neighbours

__all__ = ["CLIENTS", "HEAVY", "adaptive_round", "broken_update"]

_Floats = NDArray[np.float64]
_DELTA: Final = 1e-5
_FLOWER: Final = "Flower 1.41.0"
_WRAPPERS: Final = "`DifferentialPrivacyServerSide…` and `…ClientSide…`"

CLIENTS: Final = 10
HEAVY: Final = 991.0
"""The examples of one participant; nine others have one each."""


def _promise(noise: float, neighbours: Neighbours) -> Guarantee:
    """Of one Gaussian round whose noise is that many times as large as what a neighbour moves."""
    return Guarantee(gaussian_epsilon(noise, _DELTA), _DELTA, neighbours, "participant")


def _others(count: int, size: int = 2) -> list[_Floats]:
    """Updates of the others: next to nothing, but not nothing, which is a claim of its own."""
    return [np.full(size, 1e-9)] * count


# --- one round ----------------------------------------------------------------------------------


@register
def a_heavy_participant() -> Claim:
    """One hospital has 991 of a thousand examples; her update counts, or is blank."""
    noise, clip = 1.0, 1.0
    claimed = _promise(noise, Neighbours.ZERO_OUT)

    def audit(heavy: float) -> Finding:
        weights = [1.0] * (CLIENTS - 1) + [heavy]
        means = [
            specimens.weighted_mean([*_others(CLIENTS - 1), last], weights, clip)
            for last in (np.array([7.0, 0.0]), np.zeros(2))
        ]
        moved = float(np.linalg.norm(means[0] - means[1])) / clip
        return gaussian_audit(specimens.mean_deviation(noise, 1.0, CLIENTS) / moved, claimed)

    return Claim(
        name="a-heavy-participant",
        title="A weighted mean with the noise of a plain one",
        statement="Clip each of n updates to C, average them by the number of examples, and add "
        "noise of standard deviation zC / n: the noise multiplier is z. (Here z = 1, n = 10, one "
        "participant with 991 of 1000 examples.)",
        source=f"{_FLOWER}, {_WRAPPERS} around `FedAvg`, fixed and adaptive, old API and new; not "
        "in the new API with an accountant, which refuses unequal weights",
        claimed=claimed,
        audit=lambda: audit(HEAVY),
        corrected="The same weight for all, or noise for the largest, zC max wᵢ / Σ wᵢ, by weights "
        "that were declared:",
        holds=claimed,
        corrected_audit=lambda: audit(1.0),
        kind=Kind.EXACT,
    )


def broken_update() -> _Floats:
    """An update with one parameter that is not a number, and one far beyond every clip."""
    return np.array([math.nan, 1e6])


@register
def not_a_number_unclipped() -> Claim:
    """One participant's training diverged; what comes out for everyone is not a number."""
    noise, clip = 1.0, 1.0
    claimed = _promise(noise, Neighbours.ZERO_OUT)
    weights = [1.0] * CLIENTS

    def means(clipping: specimens.Clipping, last: _Floats) -> tuple[_Floats, _Floats]:
        with_her, without = (
            specimens.weighted_mean([*_others(CLIENTS - 1), u], weights, clip, clipping)
            for u in (last, np.full(2, 1e-9))
        )
        return with_her, without

    def audit() -> Finding:
        found = means(specimens.clipped_by_division, broken_update())
        laws = [[float(np.isnan(m).any()), float(not np.isnan(m).any())] for m in found]
        return audit_finite(*laws, claim=claimed, facts={"other_parameter": float(found[0][1])})

    def corrected_audit() -> Finding:
        broken = means(specimens.clipped, broken_update())
        found = means(specimens.clipped, np.array([0.0, 1e6]))
        moved = max(float(np.linalg.norm(a - b)) for a, b in (broken, found))
        return gaussian_audit(specimens.mean_deviation(noise, clip, CLIENTS) / moved, claimed)

    return Claim(
        name="not-a-number-unclipped",
        title="An update that is not a number",
        statement="Every update is scaled by min(1, C / ‖u‖), so that no participant moves the "
        "mean of n by more than C / n. (Here z = 1, n = 10; one update has a NaN, and a million in "
        "another place, which also passes.)",
        source=f"{_FLOWER}, `clip_inputs_inplace` and `adaptive_clip_inputs_inplace`, used by all "
        "of its wrappers and mods: min(1, NaN) is 1",
        claimed=claimed,
        audit=audit,
        corrected="What is not finite counts as no update, on the server as well:",
        holds=claimed,
        corrected_audit=corrected_audit,
        kind=Kind.EXACT,
    )


@register
def a_zero_update_ends_the_round() -> Claim:
    """A participant who has nothing to say is the only one for whom the round fails."""
    noise, clip = 1.0, 1.0
    claimed = _promise(noise, Neighbours.ZERO_OUT)

    def completed(clipping: specimens.Clipping, last: _Floats) -> float:
        try:
            specimens.weighted_mean([*_others(CLIENTS - 1), last], [1.0] * CLIENTS, clip, clipping)
        except ZeroDivisionError:
            return 0.0
        return 1.0

    def audit() -> Finding:
        found = [
            completed(specimens.clipped_by_division, u) for u in (np.array([7.0, 0.0]), np.zeros(2))
        ]
        return audit_finite(*([p, 1 - p] for p in found), claim=claimed)

    def corrected_audit() -> Finding:
        found = [completed(specimens.clipped, u) for u in (np.array([7.0, 0.0]), np.zeros(2))]
        assert found == [1.0, 1.0]
        return gaussian_audit(noise, claimed)

    return Claim(
        name="a-zero-update-ends-the-round",
        title="An update of zeros",
        statement="Clipped updates with noise have the privacy of the Gaussian mechanism, also for "
        "whoever is left out and sends zeros. (Here z = 1, n = 10.)",
        source=f"{_FLOWER}, the same two functions: C / 0 is an error. On the server it ends the "
        "run; in a mod the reply is an error, and the round is skipped for all",
        claimed=claimed,
        audit=audit,
        corrected="Zeros stay zeros:",
        holds=claimed,
        corrected_audit=corrected_audit,
        kind=Kind.EXACT,
    )


# --- adaptive clipping --------------------------------------------------------------------------


def adaptive_round(
    noise: float, participants: int, late: bool, claim: Guarantee, rate: float = 0.2
) -> Finding:
    """One round in which all are clipped, and one turns her update around: at least this epsilon.

    The count of clipped updates gets noise of n / 20, and the update's multiplier makes up for it:
    z' = (z^-2 - (n / 10)^-2)^(-1/2). Both neighbours have the same count, hence the same law of the
    next clip C', which everybody sees. If noise is ``late``, made for C', the multiplier is
    z' C' / 2C, and delta(epsilon) the mean of the Gaussian one over C'. It is rounded down: each of
    the cells of the count's noise gets the least delta in it.
    """
    own = 1 / math.sqrt(1 / noise**2 - 100 / participants**2)
    edges = np.linspace(-8.0, 8.0, 2_001)
    fractions = 1 + edges[:-1] / 20  # the lower edge of a cell: there C' is largest
    after = np.array([specimens.next_clip_backwards(1.0, f, rate=rate) for f in fractions])
    multipliers = own * (after if late else np.ones_like(after)) / 2
    chances = np.diff(ndtr(edges)) * (1 - 1e-9)

    def shown(epsilon: float) -> float:
        upper = ndtr(1 / (2 * multipliers) - epsilon * multipliers)
        other = log_ndtr(-1 / (2 * multipliers) - epsilon * multipliers)
        return float(chances @ np.maximum(0.0, upper - np.exp(epsilon + other) - 1e-12))

    low, high = 0.0, 1_000.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if shown(middle) > _DELTA else (low, middle)
    facts = {"clip_after": float(np.median(after)), "count_deviation": participants / 20}
    return Finding(low, _DELTA, 1.0, "exact", claim, facts)


@register
def noise_for_the_next_clip() -> Claim:
    """A hundred participants, all clipped: the clip falls by a tenth, and the noise with it."""
    noise, participants = 1.0, 100
    claimed = _promise(noise / 2, Neighbours.REPLACE_ONE)
    return Claim(
        name="noise-for-the-next-clip",
        title="Noise for the next round's clip",
        statement="Updates are clipped to C, a noisy count of the clipped ones changes C, and "
        "noise of zC / n is added. (Here z = 1, so z / 2 for a replaced participant; n = 100, all "
        "clipped, the usual rate of 0.2 and target of ½.)",
        source=f"{_FLOWER}, `DifferentialPrivacyServerSideAdaptiveClipping` and "
        "`…ClientSideAdaptiveClipping`, old API and new: C changes before the noise is drawn. "
        "(`DPFedAvgAdaptive`, deprecated, changes it afterwards)",
        claimed=claimed,
        audit=lambda: adaptive_round(noise, participants, True, claimed),
        corrected="Noise for the C by which updates were clipped:",
        holds=claimed,
        corrected_audit=lambda: adaptive_round(noise, participants, False, claimed),
        kind=Kind.EXACT,
    )


# --- whom a number is about ---------------------------------------------------------------------


@register
def a_sample_of_fixed_size_as_removal() -> Claim:
    """A hundred of 101 participants take part; or she never joined, and it is all the others.

    Everybody's update is +C and hers -C. With her in the sample, the mean is lower by 2C / n; the
    other one who would have been there is missing.
    """
    noise, sample, people = 2.0, 100, 101
    rate = sample / people
    claimed = account(GaussianEvent(noise, unit="participant"), _DELTA, accountant="rdp")
    holds = _promise(noise / 2, Neighbours.ADD_REMOVE)

    def audit(claim: Guarantee) -> Finding:
        return audit_half_lines(
            lambda t: (1 - rate) * ndtr(-t / noise) + rate * ndtr((-2 - t) / noise),
            lambda t: ndtr(-t / noise),
            np.linspace(-2 - 10 * noise, 10 * noise, 40_001),
            claim=claim,
        )

    return Claim(
        name="a-sample-of-fixed-size-as-removal",
        title="A sample of fixed size, accounted as if one left",
        statement="A mean over n sampled participants with noise of zC / n costs, for one who is "
        "added or removed and without amplification, a Gaussian of z. (Here z = 2, n = 100 of "
        "101.)",
        source=f"{_FLOWER}, `RdpAccountant` with `no-amplification` and `add-or-remove-one`, the "
        "only setting that its fixed-clipping wrappers accept; they refuse any other n",
        claimed=claimed,
        audit=lambda: audit(claimed),
        corrected="n stays, so whoever leaves is replaced, and from −C to +C is 2C; z / 2:",
        holds=holds,
        corrected_audit=lambda: audit(holds),
        kind=Kind.EXACT,
    )


@register
def local_noise_for_one_message() -> Claim:
    """Fifty rounds in which one participant sends +C, or -C: fifty Gaussians are one."""
    epsilon, rounds, clip = 8.0, 50, 1.0
    claimed = Guarantee(epsilon, _DELTA, Neighbours.REPLACE_ONE, "participant")
    message = specimens.local_deviation(2 * clip, epsilon, _DELTA) / (2 * clip)
    holds = _promise(message / math.sqrt(rounds), Neighbours.REPLACE_ONE)

    def audit(claim: Guarantee) -> Finding:
        return gaussian_audit(message / math.sqrt(rounds), claim)

    return Claim(
        name="local-noise-for-one-message",
        title="A local budget that every message spends",
        statement="A participant clips her update to C and adds noise of Δ √(2 ln(1.25/δ)) / ε, "
        "where ε is “the privacy budget”. (Here ε = 8, fifty rounds, and Δ = 2C, as a changed "
        "update needs and nothing sees to. With Δ = C it would be 371.)",
        source=f"{_FLOWER}, `LocalDpMod`, old API and new: nothing is counted",
        claimed=claimed,
        audit=lambda: audit(claimed),
        corrected="ε is that of one message; T of them are one Gaussian of σ / √T:",
        holds=holds,
        corrected_audit=lambda: audit(holds),
        kind=Kind.EXACT,
    )


def _many_at_the_top(loss: float, parameters: int) -> float:
    """What events that are not rare show at delta 1e-5: so many values at their upper bound."""
    counts = np.arange(parameters // 2)
    logs = [stats.binom.logsf(counts - 1, parameters, p) for p in (0.5, 0.5 * math.exp(-loss))]
    return epsilon_of_events(logs[0], logs[1], 1e-5)


@register
def epsilon_of_one_parameter() -> Claim:
    """All gradients are +gamma, or all are -gamma, and every upload is at its upper bound.

    Sizes are the same, so which parameters are uploaded tells nothing. A value is at +gamma with
    probability 1/2, or e^(-2 gamma / b) / 2.
    """
    parameters, per_parameter, bound = 105_506, 1.0, 1e-3
    claimed = Guarantee(per_parameter, 0.0, Neighbours.REPLACE_ONE, "participant")
    holds = Guarantee(per_parameter * parameters, 0.0, Neighbours.REPLACE_ONE, "participant")

    def audit(claim: Guarantee) -> Finding:
        (up, scale), (down, _) = (
            specimens.fresh_answers(np.full(parameters, sign * bound), bound, per_parameter)
            for sign in (1.0, -1.0)
        )
        losses = (up - down) / scale  # of every value at its upper bound
        facts = {"at_delta_1e-5": round(_many_at_the_top(float(losses[0]), parameters), 1)}
        return Finding(math.fsum(losses) * (1 - 1e-9), 0.0, 1.0, "exact", claim, facts)

    return Claim(
        name="epsilon-of-one-parameter",
        title="An ε for each parameter, read as the total",
        statement="Participants upload selected gradients with noise; the privacy budget is ε / c "
        "for each of c parameters. (Here ε / c = 1, one epoch, all 105,506 parameters of the "
        "paper's network for MNIST.)",
        source="Shokri and Shmatikov, “Privacy-preserving deep learning” (CCS 2015), which reports "
        "ε per parameter and epoch",
        claimed=claimed,
        audit=lambda: audit(claimed),
        corrected="One upload is ε = c · (ε / c), by numeric sparse; epochs add up. "
        "`sfumato.federated.selective` states it:",
        holds=holds,
        corrected_audit=lambda: audit(holds),
        kind=Kind.EXACT,
    )
