"""The sparse vector technique: many questions, few of which are answered "above".

Is this count above the threshold? Only the "above" answers cost anything, and the session ends
after a number of them fixed in advance.

    >>> from sfumato.core import Sensitivity, SeededCoins
    >>> alarm = SparseVector(2.0, Sensitivity(1.0), threshold=100, positives=1)
    >>> session = alarm.start(SeededCoins(1))        # tests only: leave the coins out otherwise
    >>> [session.ask(count) for count in (3, 12, 2, 700)]
    [False, False, False, True]
    >>> session.exhausted
    True
    >>> alarm.guarantee()
    Guarantee: epsilon 2, delta 0, add or remove one record

Many published versions are not private at all (Lyu, Su and Li, figure 1): they leave out the noise
on the answers, do not scale it by the number of positives, draw no fresh noise, or never stop. They
exist here only in the tests, as specimens that the tests' check must catch.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NoReturn, final

from sfumato.core import validation
from sfumato.core.events import EpsilonDeltaEvent
from sfumato.core.guarantee import Guarantee
from sfumato.core.randomness import SYSTEM, Coins
from sfumato.core.records import Release
from sfumato.core.sensitivity import Sensitivity
from sfumato.mechanisms.private_values import as_ratio
from sfumato.mechanisms.sampling import discrete_laplace
from sfumato.mechanisms.selection import check_monotone, check_sensitivity

__all__ = ["SparseVector", "SparseVectorSession"]

_LARGEST_SCALE = 2.0**50  # what the sampler allows: noise far inside 64-bit integers


@final
@dataclass(frozen=True)
class SparseVector:
    """Whether each of a stream of values is above a threshold, until ``positives`` of them are.

    The budget is split as epsilon = eps1 + eps2, eps1 : eps2 = 1 : (2c)^(2/3) for c positives
    (1 : c^(2/3) if ``monotone``), which minimises the variance of the comparison. With whole-number
    levels k = floor(N (value - threshold) / Delta), N steps to a sensitivity,

        rho ~ discrete Laplace of scale N / eps1, once;
        nu_i ~ discrete Laplace of scale 2 c N / eps2 (c N / eps2 if monotone), afresh each time;
        answer "above" if k_i + nu_i >= rho.

    Formal guarantee: epsilon-DP for the neighbours and unit of ``sensitivity``, for all answers
    together, however many questions are asked and even if each is chosen after the answers so far.

    *Proof* (exact in integers). One step moves k by at most N, because floor(x + N) = floor(x) + N.
    Fix answers with at most c positives; compare the run at rho = r on D with that at r + N on D'.
    (i) Pr[rho = r] <= e^eps1 Pr[rho = r + N]. (ii) A negative needs nu < r - k; r + N - k' is no
    smaller, so on D' it is at least as likely. (iii) A positive needs nu >= r - k; r + N - k' is
    larger by at most 2 N, so on D' it is at most e^(2N eps2 / (2cN)) = e^(eps2/c) times less
    likely. At most c positives: e^eps2. Sum over r. If monotone: where all k' >= k, the 2 N of
    (iii) is N; where all k' <= k, compare at the same r: (i) and (ii) cost nothing, (iii) moves N.

    Attributes:
        epsilon: the guarantee of the whole session.
        sensitivity: how far one neighbour step moves any one value.
        threshold: public.
        positives: c, after how many "above" the session ends.
        monotone: one step moves all values in the same direction (add/remove and zero-out only).
        default: what stands for a value that is not a finite number.

    Reference: Lyu, Su and Li, "Understanding the Sparse Vector Technique for Differential Privacy",
    arXiv:1603.01699, algorithms 1 and 7; Dwork and Roth (2014), section 3.6.
    """

    epsilon: float
    sensitivity: Sensitivity
    threshold: float
    positives: int = 1
    monotone: bool = False
    default: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", validation.positive("epsilon", self.epsilon))
        check_sensitivity(self.sensitivity)
        object.__setattr__(self, "threshold", validation.finite("threshold", self.threshold))
        object.__setattr__(self, "positives", validation.count("positives", self.positives))
        check_monotone(self.monotone, self.sensitivity)
        object.__setattr__(self, "default", validation.finite("default", self.default))
        if max(self.query_scale, self.threshold_scale) > _LARGEST_SCALE:
            raise ValueError(
                f"epsilon must be larger for {self.positives!r} positives, got {self.epsilon!r}: "
                "the noise would not fit 64-bit integers"
            )

    @property
    def split(self) -> tuple[Fraction, Fraction]:
        """The parts of epsilon for the threshold and for the answers; they add up exactly."""
        budget = Fraction(self.epsilon)
        ratio = (self.positives * (1 if self.monotone else 2)) ** (2 / 3)
        first = budget * Fraction(1 / (1 + ratio))
        return first, budget - first

    @property
    def steps(self) -> int:
        """N, the number of grid steps in one sensitivity: much finer than the noise."""
        return 2**10 * 2 ** max(0, int(self.epsilon).bit_length())

    @property
    def threshold_scale(self) -> float:
        """The scale of the threshold's noise, in grid steps, rounded up."""
        return math.nextafter(float(self.steps / self.split[0]), math.inf)

    @property
    def query_scale(self) -> float:
        """The scale of each answer's noise, in grid steps, rounded up."""
        factor = self.positives * (1 if self.monotone else 2)
        return math.nextafter(float(factor * self.steps / self.split[1]), math.inf)

    @property
    def event(self) -> EpsilonDeltaEvent:
        """The whole session."""
        where = (self.sensitivity.neighbours, self.sensitivity.unit)
        return EpsilonDeltaEvent(self.epsilon, 0.0, *where)

    def guarantee(self, delta: float = 0.0) -> Guarantee:
        """Pure epsilon-DP for the whole session, whatever ``delta`` is asked for."""
        validation.delta("delta", delta)
        return Guarantee(self.epsilon, 0.0, self.sensitivity.neighbours, self.sensitivity.unit)

    def start(self, coins: Coins = SYSTEM) -> SparseVectorSession:
        """A fresh session, to be charged in full as ``event``."""
        return SparseVectorSession(self, coins)

    def release(self, values: Iterable[Any], *, coins: Coins = SYSTEM) -> Release:
        """A whole session at once: True or False for each value, until exhausted."""
        session = self.start(coins)
        answers: list[bool] = []
        for value in values:
            if session.exhausted:
                break
            answers.append(session.ask(value))
        return Release(answers, self.event, self.guarantee(), private=coins.private)

    def level(self, value: Any) -> int:
        """How many grid steps ``value`` lies above the threshold, rounded down: private."""
        above = Fraction(*as_ratio(value, self.default)) - Fraction(self.threshold)
        return self.steps * above // Fraction(self.sensitivity.bound)


@final
class SparseVectorSession:
    """A stream of answers; made by :meth:`SparseVector.start`.

    It holds the threshold's noise, which must stay secret: it cannot be copied to disk, and its
    text does not show it.
    """

    def __init__(self, mechanism: SparseVector, coins: Coins) -> None:
        self.mechanism = mechanism
        self.positives_left = mechanism.positives
        self._coins = coins
        self._query_scale = mechanism.query_scale
        self._noisy_threshold = self._noise(mechanism.threshold_scale)

    @property
    def exhausted(self) -> bool:
        """Whether all positives have been given. Public: it follows from the answers."""
        return self.positives_left == 0

    @property
    def private(self) -> bool:
        """False if seeded test coins make the noise."""
        return self._coins.private

    def ask(self, value: Any) -> bool:
        """Whether the private ``value`` is, about, above the threshold.

        Raises:
            RuntimeError: if the session is exhausted.
        """
        if self.exhausted:
            raise RuntimeError(
                f"this session has given its {self.mechanism.positives} positive answers: "
                "start and charge another"
            )
        noise = self._noise(self._query_scale)
        above = self.mechanism.level(value) + noise >= self._noisy_threshold
        self.positives_left -= above
        return above

    def _noise(self, scale: float) -> int:
        return int(discrete_laplace(scale, 1, self._coins)[0])

    def __repr__(self) -> str:
        return f"SparseVectorSession(positives_left={self.positives_left})"

    def __getstate__(self) -> NoReturn:
        raise TypeError("a session holds secret noise and is never stored: start another")
