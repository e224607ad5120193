"""Claims about fitted models and noisy labels: proofs of something else than what ran.

A proof for the exact minimiser, and a solver that stops before it; a proof that forgets how a
change of variables stretches volume; noise for a range that was computed as zero; coins that
everybody can toss again. All laws here are on the line, so that the audits compute and never
sample.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import brentq
from scipy.special import expit

from sfumato.audit.claims.registry import Claim, Kind, register
from sfumato.audit.exact import audit_density, audit_finite
from sfumato.audit.findings import Finding
from sfumato.core.guarantee import Guarantee
from sfumato.core.neighbours import Neighbours
from sfumato.mechanisms.randomized_response import RandomizedResponse

_Floats = NDArray[np.float64]


def above_law(moves: Sequence[float], scales: Sequence[float]) -> tuple[_Floats, _Floats]:
    """Which of several independent noisy numbers are at least their first value, on both tables.

    On the first table numbers have that value, on the second they are lower by ``moves``; noise is
    Laplace of ``scales``. Each is at least its first value with probability 1/2 on the first table
    and e^(-move/scale) / 2 on the second, and that "all of them" are is the event that tells most.
    Noise of scale 0 is none: then the probabilities are 1, and 0 for a number that moved.
    """
    first: _Floats = np.ones(1)
    second: _Floats = np.ones(1)
    for move, scale in zip(moves, scales, strict=True):
        near = 0.5 if scale > 0 else 1.0
        far = near * math.exp(-move / scale) if scale > 0 else float(move == 0)
        first = np.concatenate([near * first, (1 - near) * first])
        second = np.concatenate([far * second, (1 - far) * second])
    return first, second


# --- noise on a minimiser -----------------------------------------------------------------------


def stopped_solver(mean: float, convexity: float, tolerance: float) -> float:
    """A specimen: Newton's method from 0 on -mean w + (convexity / 2) w^2, by its gradient.

    It stops as soon as the gradient is within the tolerance, as solvers do. The objective is that
    of a rounded hinge (of slope -x y while x y w is small) with a regulariser; ``mean`` is that of
    x y.
    """
    weight = 0.0
    while abs(gradient := convexity * weight - mean) > tolerance:
        weight -= gradient / convexity
    return weight


@register
def minimiser_never_reached() -> Claim:
    """Sixty thousand records of which nearly all are 0; what is left adds up to 5, or to 7.

    A gradient of 5 / 60,000 is within the tolerance and one of 7 / 60,000 is not: from the one
    table comes the starting point, from the other the minimiser.

    The repair: J is mu-strongly convex, so a gradient of length tau is at most tau / mu from the
    minimiser, on either table, and minimisers are 2 G / (n mu) apart at most.
    """
    epsilon, records, convexity, tolerance = 1.0, 60_000, 1e-3, 1e-4
    claimed = Guarantee(epsilon, 0.0, Neighbours.REPLACE_ONE)
    minimisers = 2 / (records * convexity)

    def audit(sensitivity: float) -> Finding:
        first, second = (stopped_solver(s / records, convexity, tolerance) for s in (7, 5))
        law = above_law([first - second], [sensitivity / epsilon])
        return audit_finite(*law, claim=claimed, facts={"apart": first - second})

    return Claim(
        name="minimiser-never-reached",
        title="The noise of a minimiser, where a solver stopped",
        statement="Fit by a standard solver, then add noise for 2G / (nμ), the most by which one "
        "record moves the minimiser of a μ-strongly convex objective: ε-DP. (Here a rounded hinge, "
        "n = 60,000, μ = 0.001, a solver that stops at a gradient of τ = 1e-4.)",
        source="Chaudhuri, Monteleoni and Sarwate (JMLR 2011), algorithm 1, which is about the "
        "exact minimiser; run with the usual `tol=1e-4` of scikit-learn",
        claimed=claimed,
        audit=lambda: audit(minimisers),
        corrected="Two runs stop within τ/μ of their minimisers each: noise for "
        "2G / (nμ) + 2τ/μ, or a solver for which τ ≪ G/n:",
        holds=claimed,
        corrected_audit=lambda: audit(minimisers + 2 * tolerance / convexity),
        kind=Kind.EXACT,
    )


# --- noise in the objective ---------------------------------------------------------------------


class TiltedLogistic:
    """The law of argmin over w of ln(1 + e^(-x w)) + (strength / 2) w^2 + b w, b random.

    That is n times the objective of a table in which one record has that x and the label 1, and
    all others have x = 0. The density of b is (rate / 2) e^(-rate |b|). At the minimiser b = x s(-x
    w) - strength w, s the logistic function, which falls in w: the density of w is that of b there,
    times the absolute derivative.
    """

    def __init__(self, x: float, strength: float, rate: float) -> None:
        self.x, self.strength, self.rate = x, strength, rate

    def tilt(self, w: ArrayLike) -> _Floats:
        """The b that makes w the minimiser."""
        weight = np.asarray(w, np.float64)
        return self.x * expit(-self.x * weight) - self.strength * weight

    def __call__(self, w: _Floats) -> _Floats:
        """The density at w."""
        stretch = self.x**2 * expit(self.x * w) * expit(-self.x * w) + self.strength
        return self.rate / 2 * np.exp(-self.rate * np.abs(self.tilt(w))) * stretch

    @property
    def kink(self) -> float:
        """Where b is 0."""
        far = (abs(self.x) + 1) / self.strength
        return float(brentq(lambda w: float(self.tilt(w)), -far, far, xtol=1e-15))


def with_the_determinant(
    epsilon: float, records: int, regularisation: float, curvature: float = 0.25
) -> tuple[float, float]:
    """What is left of epsilon for the noise, and the regularisation, as printed in 2011."""
    share = curvature / (records * regularisation)
    left = epsilon - 2 * math.log1p(share)
    if left > 0:
        return left, regularisation
    return epsilon / 2, curvature / (records * math.expm1(epsilon / 4))


@register
def objective_without_its_determinant() -> Claim:
    """One record among a thousand has x = 1, the others 0; on the neighbour, all have 0.

    Around w = 0 the record adds 1/4 to a curvature of n Lambda = 1, which crowds the minimisers of
    many b into a quarter less room: ln 1.25 beside what the noise itself gives away.
    """
    epsilon, records, regularisation = 0.1, 1_000, 0.001
    claimed = Guarantee(epsilon, 0.0, Neighbours.REPLACE_ONE)

    def audit(left: float, strength: float) -> Finding:
        laws = [TiltedLogistic(x, records * strength, left / 2) for x in (1.0, 0.0)]
        breaks = sorted(law.kink for law in laws)
        return audit_density(laws[0], laws[1], (-10.0, 10.0), breaks=breaks, claim=claimed)

    return Claim(
        name="objective-without-its-determinant",
        title="Noise in the objective, its determinant forgotten",
        statement="Minimise Σ ln(1 + exp(−y w·x)) / n + Λ‖w‖²/2 + b·w / n with ‖b‖ ~ Gamma(d, 2/ε) "
        "in a random direction: ε-DP for any Λ. (Here n = 1000, Λ = 0.001, d = 1.)",
        source="Chaudhuri and Monteleoni (NIPS 2008), algorithm 2 and theorem 2; mended in "
        "Chaudhuri, Monteleoni and Sarwate (JMLR 2011)",
        claimed=claimed,
        audit=lambda: audit(epsilon, regularisation),
        corrected="‖b‖ ~ Gamma(d, 2/ε′), ε′ = ε − ln(1 + 2c/(nΛ) + c²/(nΛ)²), c = 1/4; where that "
        "is not positive, ε′ = ε/2 and Λ = c / (n(e^(ε/4) − 1)):",
        holds=claimed,
        corrected_audit=lambda: audit(*with_the_determinant(epsilon, records, regularisation)),
        kind=Kind.EXACT,
    )


# --- noise on sums of squares -------------------------------------------------------------------


def range_of_squares(lower: float, upper: float) -> float:
    """By how much x^2 can move, for x from ``lower`` to ``upper``: not more than the largest."""
    return max(abs(lower), abs(upper)) ** 2


def least_squares_law(
    lower: float, upper: float, squares: float, epsilon: float
) -> tuple[_Floats, _Floats]:
    """Noisy sums of y^2, x y and x^2, where x = y = ``upper`` is replaced by x = y = ``lower``.

    Each has Laplace noise for its range at a third of epsilon; that of x^2 is said to be
    ``squares``. For bounds from 0 up all three move as far as they can.
    """
    move = upper**2 - lower**2
    ranges = [range_of_squares(lower, upper), move, squares]
    return above_law([move] * 3, [one / (epsilon / 3) for one in ranges])


@register
def lower_bound_taken_twice() -> Claim:
    """Somebody with x = 1 and y = 1 is replaced by somebody with x = 0 and y = 0.

    The coefficients of least squares all move by 1, as far as x and y in [0, 1] can move them: the
    corrected version is audited where it is tight. (The code also folds negative sums up, which
    tells nothing more.)
    """
    epsilon, lower, upper = 1.0, 0.0, 1.0
    claimed = Guarantee(epsilon, 0.0, Neighbours.REPLACE_ONE)

    def audit(squares: float) -> Finding:
        return audit_finite(*least_squares_law(lower, upper, squares, epsilon), claim=claimed)

    return Claim(
        name="lower-bound-taken-twice",
        title="Squares with noise for the wrong bound",
        statement="Linear regression from noisy sums of y², xy and x², each with Laplace noise for "
        "its range and an equal share of ε, is ε-DP; and the range of x² in [l, u] is "
        "max(|l|, |l|)². (Here [0, 1], where that is 0, and ε/3 each.)",
        source="diffprivlib 0.6.6, `LinearRegression` without an intercept (IBM/"
        "differential-privacy-library #104, #105)",
        claimed=claimed,
        audit=lambda: audit(range_of_squares(lower, lower)),
        corrected="The range of x² is at most max(|l|, |u|)²:",
        holds=claimed,
        corrected_audit=lambda: audit(range_of_squares(lower, upper)),
        kind=Kind.EXACT,
    )


# --- noise on labels ----------------------------------------------------------------------------


def seeded_reports(
    labels: NDArray[np.int64], classes: int, epsilon: float, seed: int
) -> NDArray[np.int64]:
    """A specimen: randomised response with coins from a seed that is in the published settings.

    The probabilities are right: a label is reported as it is with probability e^eps / (e^eps + K -
    1), and as any other with the same probability each. But whoever has the seed has the coins.
    """
    coins = np.random.default_rng(seed).random(len(labels))
    keep = 1 / (1 + (classes - 1) * math.exp(-epsilon))
    others = np.floor((coins - keep) / (1 - keep) * (classes - 1)).astype(np.int64)
    return np.where(coins < keep, labels, others + (others >= labels))


@register
def label_noise_with_a_fixed_seed() -> Claim:
    """One of a hundred labels is replaced; everybody can compute the reports of both tables."""
    epsilon, classes, seed = 1.0, 10, 2019
    claimed = Guarantee(epsilon, 0.0, Neighbours.REPLACE_ONE, "label")

    def audit() -> Finding:
        labels = np.zeros(100, np.int64)
        reports = seeded_reports(labels, classes, epsilon, seed)
        told = int(np.argmax(reports == labels))  # a label for which the coin says: the truth
        neighbour = labels.copy()
        neighbour[told] = 1
        same = np.array_equal(reports, seeded_reports(neighbour, classes, epsilon, seed))
        facts = {"labels_read_off": float((reports == labels).mean())}
        return audit_finite([1.0, 0.0], [float(same), 1.0 - same], claim=claimed, facts=facts)

    def corrected_audit() -> Finding:
        response = RandomizedResponse(epsilon, classes, unit="label")
        law = np.full(classes, response.switch)
        law[0] = response.keep
        return audit_finite(law, np.roll(law, 1), claim=claimed)

    return Claim(
        name="label-noise-with-a-fixed-seed",
        title="Noisy labels from a published seed",
        statement="Each label is reported by randomised response, so that the reports, and all "
        "that is learned from them, are ε-label-DP. (Here ε = 1, ten classes, and the coins come "
        "from the seed 2019.)",
        source="google-research/label-dp, whose published settings fix the seeds of the labels' "
        "noise at 2019 and 2020",
        claimed=claimed,
        audit=audit,
        corrected="The same with coins that nobody knows, from the operating system:",
        holds=claimed,
        corrected_audit=corrected_audit,
        kind=Kind.EXACT,
    )
