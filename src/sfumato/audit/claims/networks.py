"""Claims about networks that are trained on noisy coefficients or on noisy inputs.

Three methods that add Laplace noise to what a network is made of, once, instead of to each step's
gradient: an expansion of the loss, the records themselves, and the objectives of auto-encoders.
Each is restated in :mod:`~sfumato.audit.claims.network_specimens`. Laws are exact: noise of known
scale on numbers that are known for either table. Nothing is drawn.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sfumato.audit.claims.network_specimens import (
    clipped_sum,
    far_records,
    inverted_clip,
    largest_of_those_there,
    mean_relevance,
    objective_bound,
    table_with,
    three_objectives,
    trained_weights,
)
from sfumato.audit.claims.registry import Claim, Kind, register
from sfumato.audit.exact import audit_finite
from sfumato.audit.findings import Finding
from sfumato.core.guarantee import Guarantee
from sfumato.core.neighbours import Neighbours
from sfumato.mechanisms.sensitivity import network_bound, printed_network_bound

_Floats = NDArray[np.float64]
_SMALLEST: Final = 1e-290
_ONE: Final = Guarantee(1.0, 0.0, Neighbours.REPLACE_ONE)
_SLIDES: Final = (
    "Manco, Pirrò and Ritacco, “Differential privacy and neural networks: a preliminary analysis” "
    "(PAP 2017, slides)"
)
_ADAPTIVE: Final = (
    "Phan, Wu, Hu and Dou, “Adaptive Laplace mechanism” (ICDM 2017), arXiv:1709.05750"
)
_AUTOENCODER: Final = (
    "Phan, Wang, Wu and Dou, “Differential privacy preservation for deep auto-encoders” (AAAI 2016)"
)


def corner_law(first: ArrayLike, second: ArrayLike, scale: float) -> tuple[_Floats, _Floats]:
    """The event that tells two tables apart best, and its opposite, on either table.

    Numbers that are ``first`` on one table and ``second`` on the other have independent Laplace
    noise of one scale. The event: each that differs lies beyond its first value, on the side away
    from the second. Of n such numbers it has probability 2^-n on the first table and e^-loss 2^-n
    on the second, loss = |first - second|_1 / scale: no event has a higher ratio. What is too small
    for a double is rounded up there, so that less is shown. Noise of scale 0 is none: numbers are
    then what they are.
    """
    apart = np.abs(np.asarray(first, np.float64) - np.asarray(second, np.float64)).ravel()
    if scale == 0:
        return np.array([1.0, 0.0]), np.array([0.0, 1.0] if apart.any() else [1.0, 0.0])
    near = 0.5 ** int(np.count_nonzero(apart))
    far = min(near, max(near * math.exp(-math.fsum(apart) / scale), _SMALLEST))
    return np.array([near, 1 - near]), np.array([far, 1 - far])


def _audit(numbers: Iterable[_Floats], scale: float, claim: Guarantee) -> Finding:
    """Of the numbers on two tables, with noise of that scale."""
    first, second = numbers
    facts = {"apart": float(np.abs(first - second).sum()), "scale": scale}
    return audit_finite(*corner_law(first, second, scale), claim=claim, facts=facts)


# --- the functional network: noise on an expansion of the loss ------------------------------------


@register
def clip_upside_down() -> Claim:
    """One record with a slope of 0.1 is replaced by one of -0.1; the sums become 10 and -10.

    Noise is what a clip to C would ask for. (That of the slides, for S = 2 * 0.1, is even less, and
    would show 100.) The repair is audited where it is tight, on slopes that it has to clip.
    """
    clip = 1.0

    def printed(slope: float) -> _Floats:
        return inverted_clip(np.array([slope]), clip)

    def corrected(slope: float) -> _Floats:
        return clipped_sum(np.array([[slope]]), clip)

    return Claim(
        name="clip-upside-down",
        title="A clip that lengthens short gradients",
        statement="Clip the sum of gradients by g / min(1, ‖g‖² / C) and add Laplace noise: ε-DP. "
        "(Here C = 1, one weight, and noise as for a clip to C, of scale 2C / ε.)",
        source=f"{_SLIDES}, algorithm 2, lines 4 to 7",
        claimed=_ONE,
        audit=lambda: _audit(map(printed, (0.1, -0.1)), 2 * clip, _ONE),
        corrected="Each record's g / max(1, ‖g‖₁ / C), before they are added:",
        holds=_ONE,
        corrected_audit=lambda: _audit(map(corrected, (10.0, -10.0)), 2 * clip, _ONE),
        kind=Kind.EXACT,
    )


def _beyond(point: float, centre: float, scale: float) -> float:
    """The probability of more than ``point``, which is above the centre."""
    return 0.5 * math.exp(-(point - centre) / scale)


@register
def scale_of_those_who_are_there() -> Claim:
    """Two records have slopes of 1; one of them is replaced by a slope of 2.

    The sum goes from 2 to 3, the scale of its noise from 2 to 4. More than t has probabilities of
    ratio e^((t - 1) / 4): no epsilon bounds it, and 100 is as far as we look. (And if all slopes
    are 0 there is no noise at all.) C = 1/2 leaves these sums as they are, clipped as printed.
    """
    point, clip, printed_clip = 100.0, 2.0, 0.5
    few, more = np.array([[1.0], [1.0]]), np.array([[1.0], [2.0]])

    def audit() -> Finding:
        tables = [
            (float(inverted_clip(t.sum(axis=0), printed_clip)[0]), largest_of_those_there(t))
            for t in (few, more)
        ]
        first, second = (_beyond(point, *table) for table in tables)
        scales = {"first_scale": tables[0][1], "second_scale": tables[1][1]}
        return audit_finite([first, 1 - first], [second, 1 - second], claim=_ONE, facts=scales)

    def corrected_audit() -> Finding:
        sums = [clipped_sum(np.array([[1.0], [slope]]), clip) for slope in (5.0, -5.0)]
        return _audit(sums, 2 * clip, _ONE)

    return Claim(
        name="scale-of-those-who-are-there",
        title="Noise as large as the largest record there",
        statement="Laplace noise of scale S / ε with S = 2 Σ maxₓ(|δz| + |bz²|), the largest over "
        "the data set, on the coefficients of an expanded loss is ε-DP. (Here two records, one "
        "weight, and values beyond 100; the farther out, the more.)",
        source=f"{_SLIDES}, algorithm 2, line 2",
        claimed=_ONE,
        audit=audit,
        corrected="Scale 2C / ε with a public C, to which each record is clipped:",
        holds=_ONE,
        corrected_audit=corrected_audit,
        kind=Kind.EXACT,
    )


@register
def noise_by_topology() -> Claim:
    """A table of one record, whose targets of 0 are replaced by targets of 1."""
    widths, inputs = (10, 10), 10

    def audit(bound: float) -> Finding:
        return _audit(far_records(), bound / _ONE.epsilon, _ONE)

    return Claim(
        name="noise-by-topology",
        title="Noise bounded by a network's shape",
        statement="For sigmoids, weights and inputs in [0, 1] and m layers of s units, Laplace "
        "noise of scale 2(0.25ᵐ Πs + Πs (0.1ᵐ + 0.001625 m)) / ε on the coefficients is ε-DP. "
        "(Here ten inputs and layers of ten and ten: 15.15 / ε.)",
        source=f"{_SLIDES}, last theorem",
        claimed=_ONE,
        audit=lambda: audit(printed_network_bound(widths)),
        corrected="2 Σ s_l s_(l−1) (δ_l + b_l) over all layers, inputs included, is enough: "
        "277.8 / ε; or clip each record:",
        holds=_ONE,
        corrected_audit=lambda: audit(network_bound(widths, inputs).bound),
        kind=Kind.EXACT,
    )


# --- the adaptive Laplace mechanism: noise on relevance, and on inputs ----------------------------


@register
def noise_over_the_batch() -> Claim:
    """A black picture is replaced by a white one: 784 inputs move by 1 each.

    The figures are those of the published code, with equal shares of epsilon for all inputs.
    """
    inputs, sensitivity, lot = 784, 9_800, 1_800
    claimed = Guarantee(0.075, 0.0, Neighbours.REPLACE_ONE)
    black, white = np.zeros(inputs), np.ones(inputs)
    printed = sensitivity / (claimed.epsilon * lot)
    return Claim(
        name="noise-over-the-batch",
        title="Noise on inputs, divided by the batch",
        statement="Each record's inputs with noise of Lap(Δ / ε) / |L|, L a batch, and a first "
        "layer made of them, are ε-DP. (Here 784 inputs in [0, 1], Δ = 9,800, |L| = 1,800, "
        "ε = 0.075, equal shares.)",
        source=f"{_ADAPTIVE}, algorithm 1, lines 8 to 14, with the numbers of the published code",
        claimed=claimed,
        audit=lambda: _audit((black, white), printed, claimed),
        corrected="Every record is seen by itself, and no mean over a batch: Lap(d / ε) on each of "
        "d inputs in [0, 1], not divided:",
        holds=claimed,
        corrected_audit=lambda: _audit((black, white), inputs / claimed.epsilon, claimed),
        kind=Kind.EXACT,
    )


@register
def noise_shared_by_the_batch() -> Claim:
    """A record in the same batch is known: (x + z) - (known + z) has no noise in it, at any scale.

    Here x of two zeros is replaced by two ones. With noise of its own, the noisy record itself
    tells most.
    """
    zeros, ones = np.zeros(2), np.ones(2)
    return Claim(
        name="noise-shared-by-the-batch",
        title="Noise on inputs, one draw for a batch",
        statement="x + z for all records x of a batch, with one draw z of Laplace noise for the "
        "sensitivity of x, is ε-DP. (Here two inputs in [0, 1], ε = 1.)",
        source="Published code of the adaptive Laplace mechanism and of private auto-encoders, "
        f"for {_ADAPTIVE}, and {_AUTOENCODER}",
        claimed=_ONE,
        audit=lambda: _audit((zeros, ones), 0.0, _ONE),
        corrected="A draw of its own for every record and every input:",
        holds=_ONE,
        corrected_audit=lambda: _audit((zeros, ones), len(ones) / _ONE.epsilon, _ONE),
        kind=Kind.EXACT,
    )


@register
def relevance_of_a_trained_network() -> Claim:
    """The last of a thousand records is (1, 0) with label 0, or (0, 1) with label 0.

    All others are (1, 1) with label 1: either input might explain them. The last record decides
    which, for everybody: a network that fits has weights (0, 1), or (1, 0), and so has each of the
    999 their relevance. No relevance is beyond [-1, 1], as lemma 1 asks. Its sensitivity for d = 2
    inputs is 4 / n, and the mean moves by 2 (n - 1) / n.

    The repair is audited with public weights (1, 1), for which the two last records differ by 2.
    """
    records, inputs = 1_000, 2
    tables = [table_with(last, records) for last in ((1.0, 0.0), (0.0, 1.0))]

    def audit() -> Finding:
        means = [mean_relevance(trained_weights(x, y), x, scaled=False) for x, y in tables]
        return _audit(means, 2 * inputs / (records * _ONE.epsilon), _ONE)

    def corrected_audit() -> Finding:
        means = [mean_relevance(np.ones(inputs), x, scaled=True) for x, _ in tables]
        return _audit(means, 2 / (records * _ONE.epsilon), _ONE)

    return Claim(
        name="relevance-of-a-trained-network",
        title="Relevance by a network of the same records",
        statement="The mean relevance of d inputs to a network that was trained on the n records, "
        "each in [−1, 1], moves by 2d / n at most, so that noise of Lap(2d / (nε)) is ε-DP. (Here "
        "n = 1000, d = 2, a linear network that fits.)",
        source=f"{_ADAPTIVE}, lemma 1 and algorithm 1, lines 1 to 7",
        claimed=_ONE,
        audit=audit,
        corrected="With a public network, or one that was privately trained, and each record's R "
        "scaled to R / max(1, ‖R‖₁), noise of Lap(2 / (nε)):",
        holds=_ONE,
        corrected_audit=corrected_audit,
        kind=Kind.EXACT,
    )


# --- the private auto-encoder: noise on each layer's objective ------------------------------------


@register
def epsilon_three_times() -> Claim:
    """A black record of label 0 is replaced by a white one of label 1.

    With printed sensitivities of 1.25 each, the objectives move by 0.625, 1 and 1: of 3 epsilon,
    2.1 are seen. Three layers of one network never move as far as they can all at once.
    """
    claimed = _ONE
    holds = Guarantee(3 * claimed.epsilon, 0.0, Neighbours.REPLACE_ONE)
    scale = objective_bound(1, 1) / claimed.epsilon

    def audit(claim: Guarantee) -> Finding:
        black, white = (np.concatenate(three_objectives(pixel)) for pixel in (0.0, 1.0))
        return _audit((black, white), scale, claim)

    return Claim(
        name="epsilon-three-times",
        title="Epsilon for each layer, and for all of them",
        statement="The objectives of two layers of auto-encoders and of the output, each with "
        "Laplace noise for its sensitivity and ε, make a network that is ε-DP. (Here one unit a "
        "layer, encoders fixed, Δ = d(b + b²/4) as printed.)",
        source=f"Published code for {_AUTOENCODER}, where one ε goes to both layers and the output",
        claimed=claimed,
        audit=lambda: audit(claimed),
        corrected="ε adds up over the three (for ε in all, each has ε/3):",
        holds=holds,
        corrected_audit=lambda: audit(holds),
        kind=Kind.EXACT,
    )
