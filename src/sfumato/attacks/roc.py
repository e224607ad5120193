"""The curve of an attack that scores people: members found against false alarms, with intervals.

An attack gives a score to each of some members and some others. Every threshold finds a share of
the members (TPR) and raises a share of false alarms (FPR). All that is computed here needs the
order of the scores alone.

    >>> roc = Roc.from_scores([3, 2, 2, 0], [2, 1, 0, -1])
    >>> roc.auc, roc.advantage, roc.balanced_accuracy
    (0.78125, 0.5, 0.75)
    >>> print(roc.power_interval(0.25))
    75.0% (19.4% to 99.4%) of members found at 25% false alarms

Intervals take the scored people as independent draws. Scores that one model gives hang together
through its weights: an interval is about other people scored by this model, not about another
model trained anew.

Results say who was in the data: they are for the curator, never for publication.

References: E. R. DeLong, D. M. DeLong and D. L. Clarke-Pearson, "Comparing the areas under two or
more correlated receiver operating characteristic curves", Biometrics 44 (1988); C. J. Clopper and
E. S. Pearson, Biometrika 26 (1934); H. B. Mann and D. R. Whitney, Annals of Mathematical Statistics
18 (1947); W. Hoeffding, "Probability inequalities for sums of bounded random variables", JASA 58
(1963), section 5; P. Kairouz, S. Oh and P. Viswanath, "The composition theorem for differential
privacy", arXiv:1311.0776, for what differential privacy says of the curve.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sfumato.core import validation
from sfumato.core.rates import lower_rate, rate_interval, upper_rate

__all__ = ["Excess", "Interval", "Power", "Roc"]

Interval = tuple[float, float]
"""A lower and an upper limit."""


@dataclass(frozen=True)
class Power:
    """What is found at a low rate of false alarms. For the curator only.

    Attributes:
        false_alarms: the rate that was asked for.
        found: the share of members found at the threshold.
        interval: limits of the true share.
        alarms: the measured rate of false alarms at the threshold, at most ``false_alarms``.
        alarms_interval: limits of the true rate.
        threshold: members are called from this score on.
        measurable: whether so low a rate can be seen at all: one other person in
            1 / ``false_alarms`` must have been scored.
    """

    false_alarms: float
    found: float
    interval: Interval
    alarms: float
    alarms_interval: Interval
    threshold: float
    measurable: bool

    def __str__(self) -> str:
        if not self.measurable:
            return f"too few non-members to measure {_share(self.false_alarms)}"
        low, high = self.interval
        return (
            f"{self.found:.1%} ({low:.1%} to {high:.1%}) of members found at "
            f"{_share(self.false_alarms)} false alarms"
        )

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return {
            "false_alarms": self.false_alarms,
            "members_found": self.found,
            "interval": list(self.interval),
            "measured_false_alarms": self.alarms,
            "measured_false_alarms_interval": list(self.alarms_interval),
            "measurable": self.measurable,
        }


@dataclass(frozen=True)
class Excess:
    """The threshold that speaks most against a claim of (epsilon, delta). For the curator only.

    Attributes:
        epsilon, delta: the claim.
        confidence: of all limits at all thresholds together.
        side: "members above" for TPR <= e^epsilon FPR + delta, "others below" for
            1 - FPR <= e^epsilon (1 - TPR) + delta.
        larger: a lower limit of the rate that should be small: TPR, or 1 - FPR.
        smaller: an upper limit of the rate it is compared with: FPR, or 1 - TPR.
    """

    epsilon: float
    delta: float
    confidence: float
    side: str
    larger: float
    smaller: float

    @property
    def margin(self) -> float:
        """By how much the claim is exceeded; negative if it is not."""
        factor = math.exp(min(self.epsilon, 700.0))  # the largest exponent of a float
        return self.larger - factor * self.smaller - self.delta

    @property
    def exceeds(self) -> bool:
        """Whether the measured rates exceed the claim, with the confidence."""
        return self.margin > 0

    def __str__(self) -> str:
        verdict = "exceed" if self.exceeds else "are consistent with"
        return (
            f"the rates {verdict} epsilon {self.epsilon:g}, delta {self.delta:g} at "
            f"{self.confidence:.0%}: {self.side}, at least {self.larger:.4g} against at most "
            f"{self.smaller:.4g}"
        )


@dataclass(frozen=True, eq=False)
class Roc:
    """Members found against false alarms, at every threshold. For the curator only.

    Attributes:
        false_positive_rates, true_positive_rates: from (0, 0) to (1, 1), both rising.
        auc: the probability that a member scores above another person, ties counted half.
        members, others: how many of each were scored.
        thresholds: from which score on a person is called a member, for each pair of rates; the
            first is infinite.
    """

    false_positive_rates: NDArray[np.float64]
    true_positive_rates: NDArray[np.float64]
    auc: float
    members: int
    others: int
    thresholds: NDArray[np.float64]

    @classmethod
    def from_scores(cls, members: ArrayLike, others: ArrayLike) -> Roc:
        """From the scores of ``members`` and of ``others``; a higher score says "member"."""
        ins = np.sort(_scores("member scores", members))
        outs = np.sort(_scores("other scores", others))
        thresholds = np.unique(np.concatenate([ins, outs]))[::-1]
        found = len(ins) - np.searchsorted(ins, thresholds, side="left")
        alarms = len(outs) - np.searchsorted(outs, thresholds, side="left")
        below = np.searchsorted(outs, ins, side="left") + np.searchsorted(outs, ins, side="right")
        return cls(
            np.concatenate([[0.0], alarms / len(outs)]),
            np.concatenate([[0.0], found / len(ins)]),
            float(below.sum() / (2 * len(ins) * len(outs))),
            len(ins),
            len(outs),
            np.concatenate([[np.inf], thresholds]),
        )

    # --- one threshold --------------------------------------------------------------------------

    def power_at(self, false_alarms: float) -> float:
        """The largest rate of members found with at most this measured rate of false alarms.

        Below 1 / ``others`` the only such threshold lies above every other person's score: what it
        finds is found without a single false alarm, and says little of the rate itself.
        """
        return float(self.true_positive_rates[self._place(false_alarms)])

    def power_interval(self, false_alarms: float, confidence: float = 0.95) -> Power:
        """Members found at a rate of false alarms, with Clopper and Pearson's exact limits.

        The threshold is chosen on the same data: the lowest with at most this *measured* rate of
        false alarms. It lies just above one order statistic of the others' scores, and so depends
        on the others alone. Given it, the members' count is binomial, and the limits of the share
        found at this threshold are exact. The true rate of false alarms at it is not quite the one
        asked for; its own limits are given beside. They hold in spite of the choice: without ties
        the rate above the (k + 1)-th highest of n scores has the law Beta(k + 1, n - k), whose
        quantile is the upper limit, and the lower limit is below its quantile.
        """
        place = self._place(false_alarms)
        found = float(self.true_positive_rates[place])
        alarms = float(self.false_positive_rates[place])
        return Power(
            float(false_alarms),
            found,
            rate_interval(round(found * self.members), self.members, confidence),
            alarms,
            rate_interval(round(alarms * self.others), self.others, confidence),
            float(self.thresholds[place]),
            self.others * float(false_alarms) >= 1 - 1e-9,
        )

    def band(
        self, rates: ArrayLike, confidence: float = 0.95
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Limits of the share found at each rate; each holds by itself, not all together."""
        wanted = np.asarray(rates, dtype=np.float64).ravel()
        limits = [self.power_interval(rate, confidence).interval for rate in wanted.tolist()]
        lower, upper = np.array(limits).reshape(-1, 2).T
        return lower, upper

    @property
    def advantage(self) -> float:
        """The largest TPR - FPR of all thresholds: 0 for guessing, 1 for an attack without error.

        The threshold is chosen with the truth at hand, so that on few people even guessing has an
        advantage: about 0.89 / sqrt(n) with n of each kind.
        """
        return float((self.true_positive_rates - self.false_positive_rates).max())

    @property
    def balanced_accuracy(self) -> float:
        """(TPR + 1 - FPR) / 2 at the best of all thresholds, chosen with the truth at hand."""
        return (1 + self.advantage) / 2

    @property
    def balanced_threshold(self) -> float:
        """The score from which on a member is called, where TPR - FPR is largest."""
        gaps = self.true_positive_rates - self.false_positive_rates
        return float(self.thresholds[int(gaps.argmax())])

    # --- the area -------------------------------------------------------------------------------

    def auc_interval(self, confidence: float = 0.95) -> Interval:
        """Limits of the AUC: DeLong's variance on the scale of log(AUC / (1 - AUC)).

        Approximate, as DeLong's are. Two cases have no such variance, and get limits that hold for
        every sample size, from the min(members, others) pairs of different people. If no pair is
        ordered otherwise (an AUC of 0 or 1), the chance of it is at most alpha / 2 for an AUC
        beyond (alpha / 2)^(1 / pairs). If all scores are tied, or one side has a single person:
        Hoeffding's sqrt(log(2 / alpha) / (2 pairs)).
        """
        alpha = 1 - validation.open_probability("confidence", confidence)
        pairs = min(self.members, self.others)
        if self.auc in (0.0, 1.0):
            far = (alpha / 2) ** (1 / pairs)
            return (far, 1.0) if self.auc == 1.0 else (0.0, 1 - far)
        error = self.auc_error
        if not error > 0:
            half = math.sqrt(math.log(2 / alpha) / (2 * pairs))
            return max(0.0, self.auc - half), min(1.0, self.auc + half)
        centre = math.log(self.auc / (1 - self.auc))
        half = NormalDist().inv_cdf(1 - alpha / 2) * error / (self.auc * (1 - self.auc))
        return _logistic(centre - half), _logistic(centre + half)

    @property
    def auc_error(self) -> float:
        """DeLong's standard error of the AUC; NaN if one side has a single person.

        A person's placement is the share of the other side that she is ordered rightly with. The
        variance is that of the members' placements over their number, plus that of the others'.
        """
        if min(self.members, self.others) < 2:
            return math.nan
        alarms, found = self.false_positive_rates, self.true_positive_rates
        of_members = 1 - (alarms[1:] + alarms[:-1]) / 2
        of_others = (found[1:] + found[:-1]) / 2
        spread_in = np.diff(found) @ (of_members - self.auc) ** 2 / (self.members - 1)
        spread_out = np.diff(alarms) @ (of_others - self.auc) ** 2 / (self.others - 1)
        return math.sqrt(spread_in + spread_out)

    @property
    def p_value(self) -> float:
        """How likely so high an AUC is if members score as others do: Mann and Whitney's test.

        One-sided, by the normal approximation, with the correction for ties and for continuity;
        good from about ten people a side on.
        """
        m, n = self.members, self.others
        total = m + n
        ties = np.rint(
            m * np.diff(self.true_positive_rates) + n * np.diff(self.false_positive_rates)
        )
        tied = float((ties**3 - ties).sum()) / (total * (total - 1))
        variance = m * n / 12 * (total + 1 - tied)
        if variance <= 0:
            return 1.0
        z = ((self.auc - 0.5) * m * n - 0.5) / math.sqrt(variance)
        return 0.5 * math.erfc(z / math.sqrt(2))

    # --- what differential privacy allows -------------------------------------------------------

    def excess(self, epsilon: float, delta: float = 0.0, confidence: float = 0.95) -> Excess:
        """Where the curve speaks most against TPR <= e^epsilon FPR + delta, and its mirror image.

        All limits at all thresholds hold together with the confidence. The thresholds are fixed
        beforehand as ranks, k = 0, 1, 2, 3, 4, 6, 8, 11, ... of the others' scores from above (of
        the members' from below for the mirror image), and the error probability is shared out
        among them evenly. At each, the rate above the (k + 1)-th highest of n scores is at most the
        upper quantile of Beta(k + 1, n - k), ties or not; given it, the members' count is binomial.

        Sharing among some thirty ranks costs little: limits widen by the root of a logarithm. The
        band of Dvoretzky, Kiefer and Wolfowitz is as wide for rates of 0.1 % as for 50 %, about
        1.6 / sqrt(n), which hides all that happens at low rates; in the middle both are alike.

        This takes people as independent draws, as all limits here do. What exceeds a claim is a
        reason to audit the training that claimed it; :mod:`sfumato.audit` has tests that prove.
        """
        eps = validation.non_negative("epsilon", epsilon)
        slack = validation.delta("delta", delta)
        alpha = 1 - validation.open_probability("confidence", confidence)
        found = [
            Excess(eps, slack, confidence, side, larger, smaller)
            for side, curve in (("members above", self), ("others below", self._mirrored()))
            for larger, smaller in curve._limits(alpha / 2)
        ]
        return max(found, key=lambda excess: excess.margin)

    def to_dict(self, points: int = 160) -> dict[str, Any]:
        """JSON-ready: points of the curve, closer to each other where false alarms are rare."""
        asked = np.concatenate(
            [
                np.geomspace(1 / max(self.others, 2), 1.0, points // 2),
                np.linspace(0, 1, points // 2),
            ]
        )
        places = np.searchsorted(self.false_positive_rates, asked, side="right") - 1
        kept = np.unique([0, *places.tolist(), len(self.false_positive_rates) - 1])
        return {
            "false_positive_rates": self.false_positive_rates[kept].tolist(),
            "true_positive_rates": self.true_positive_rates[kept].tolist(),
        }

    def _limits(self, alpha: float) -> list[Interval]:
        """A lower limit of TPR and an upper one of FPR at each rank, all but for ``alpha``."""
        ranks = _ranks(self.others)
        each = alpha / (2 * len(ranks))
        found = [self.power_at((rank + 0.5) / self.others) for rank in ranks]
        return [
            (
                lower_rate(round(share * self.members), self.members, each),
                upper_rate(rank, self.others, each),
            )
            for rank, share in zip(ranks, found, strict=True)
        ]

    def _mirrored(self) -> Roc:
        """The curve of those who look for others, from the lowest score on."""
        return Roc(
            1 - self.true_positive_rates[::-1],
            1 - self.false_positive_rates[::-1],
            self.auc,
            self.others,
            self.members,
            -self.thresholds[::-1],
        )

    def _place(self, false_alarms: float) -> int:
        rate = validation.non_negative("false_alarms", false_alarms)
        return int(np.searchsorted(self.false_positive_rates, rate, side="right")) - 1


def _ranks(others: int) -> list[int]:
    """0, and the powers of sqrt(2) below ``others``, rounded."""
    powers = (round(2 ** (step / 2)) for step in range(2 * others.bit_length()))
    return sorted({0, *(rank for rank in powers if rank < others)})


def _logistic(x: float) -> float:
    return 1 / (1 + math.exp(-x)) if x > -700 else 0.0


def _share(rate: float) -> str:
    return f"{100 * rate:.6g}%"


def _scores(name: str, values: ArrayLike) -> NDArray[np.float64]:
    array = np.asarray(values, dtype=np.float64).ravel()
    if array.size == 0 or np.isnan(array).any():
        validation.fail(name, "one or more numbers", array.tolist()[:5])
    return array
