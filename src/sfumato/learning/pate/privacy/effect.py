"""More teachers, more privacy, less accuracy: what a number of teachers does to both.

One row hides among more teachers, and noise drowns in more votes. But each teacher has fewer rows,
is right less often, and agrees less with the others. Both can be measured where data are public:

    >>> rng = np.random.default_rng(0)
    >>> votes = rng.multinomial(250, [0.8, 0.1, 0.1], size=50)
    >>> found = teachers_effect(votes, np.zeros(50, int), mean_teacher=0.8)
    >>> found.teachers, found.plurality, round(found.noise, 1), round(found.epsilon, 3)
    (250, 1.0, 52.5, 1.005)

Of private data all of it is the curator's, who may not choose the number of teachers by it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, final

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from sfumato.accounting.dpa import DEFAULT_ORDERS
from sfumato.accounting.rdp import epsilon_from_rdp
from sfumato.core import validation
from sfumato.learning.pate.aggregators import GaussianMax
from sfumato.learning.pate.privacy.gaussian import gaussian_rdp
from sfumato.learning.pate.privacy.planning import epsilon_after, least_noise
from sfumato.learning.pate.privacy.votes import Floats

__all__ = ["TeachersEffect", "noisy_accuracy", "teachers_effect"]


@final
@dataclass(frozen=True)
class TeachersEffect:
    """One number of teachers.

    Attributes:
        teachers: how many.
        mean_teacher: accuracy of one, on average.
        plurality: of the class with most votes, without noise.
        at_epsilon: (epsilon, accuracy of noisy answers at that epsilon) pairs.
        noise: the most (sigma) at which noisy answers are wrong ``loss`` more often than the
            plurality, and no more.
        epsilon: of answers with that noise, for all data.
        epsilon_dependent: of answers to such questions, for these votes, by RDP. **Curator's**.
        answers: how many all these epsilons are for.
        loss: see ``noise``.
        delta: of all epsilons.
    """

    teachers: int
    mean_teacher: float
    plurality: float
    at_epsilon: tuple[tuple[float, float], ...]
    noise: float
    epsilon: float
    epsilon_dependent: float
    answers: int
    loss: float
    delta: float

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return asdict(self)


def noisy_accuracy(votes: ArrayLike, labels: ArrayLike, sigma: float) -> float:
    """The mean probability that argmax n_j + N(0, sigma^2) is the label, by quadrature.

    The integral over z of phi(z) prod_j Phi(z + (n_label - n_j) / sigma), j not the label: the
    trapezoid rule, exact to about 1e-9.
    """
    counts, right = np.asarray(votes, dtype=np.float64), np.asarray(labels, dtype=np.int64)
    if counts.ndim != 2 or right.shape != counts.shape[:1]:
        validation.fail("labels", f"one for each of {len(counts)} rows of votes", right.shape)
    rows = np.arange(len(counts))
    ahead = (counts[rows, right][:, None] - counts) / validation.positive("sigma", sigma)
    ahead[rows, right] = np.inf
    z = np.linspace(-7.0, 7.0, 57)
    density = np.exp(-(z**2) / 2) * (z[1] - z[0]) / math.sqrt(2 * math.pi)
    wins = np.ones((len(counts), len(z)))
    for column in ahead.T:
        wins *= special.ndtr(z + column[:, None])
    return float((wins @ density).mean())


def teachers_effect(
    votes: ArrayLike,
    labels: ArrayLike,
    mean_teacher: float,
    *,
    answers: int = 100,
    epsilons: Sequence[float] = (1.0, 2.0),
    loss: float = 0.02,
    delta: float = 1e-5,
) -> TeachersEffect:
    """Both effects for one number of teachers, GNMax answering.

    Args:
        votes: (questions, classes) counts, every row of the same sum.
        labels: (questions,) the right classes.
        mean_teacher: accuracy of one teacher, on average.
        answers: how many are given at each epsilon.
        epsilons: at which the accuracy of noisy answers is found.
        loss: how much more often noisy answers may be wrong than the plurality.
        delta: of all epsilons.
    """
    counts, right = np.asarray(votes, dtype=np.float64), np.asarray(labels)
    plurality = _plurality(counts, right)
    at = [
        (epsilon, noisy_accuracy(counts, right, least_noise(GaussianMax, answers, epsilon, delta)))
        for epsilon in epsilons
    ]
    noise = _most_noise(counts, right, plurality - validation.positive("loss", loss))
    each = gaussian_rdp(counts, noise, DEFAULT_ORDERS).mean(axis=0)
    return TeachersEffect(
        int(counts[0].sum()),
        mean_teacher,
        plurality,
        tuple(at),
        noise,
        epsilon_after(GaussianMax(noise), answers, delta).epsilon,
        epsilon_from_rdp(DEFAULT_ORDERS, answers * each, delta),
        answers,
        loss,
        delta,
    )


def _plurality(votes: Floats, labels: np.ndarray) -> float:
    """How often the first class is right; of equals each counts in part."""
    first = votes == votes.max(axis=1, keepdims=True)
    return float((first[np.arange(len(votes)), labels] / first.sum(axis=1)).mean())


def _most_noise(votes: Floats, labels: np.ndarray, least: float) -> float:
    """The largest sigma, to one part in 200, at which answers are right that often."""
    low, high = 1e-2, 10 * float(votes.sum(axis=1).max()) + 1.0
    while high / low > 1.005:
        middle = math.sqrt(low * high)
        low, high = (
            (middle, high) if noisy_accuracy(votes, labels, middle) >= least else (low, middle)
        )
    return low
