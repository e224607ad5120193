"""The functional mechanism: noise on the coefficients of a quadratic objective.

    >>> round(regression_coefficients(13), 2), round(logistic_coefficients(13), 3)
    (42.42, 6.856)

The objective is a polynomial of the weights whose coefficients are sums over records:

    f(W) = -<A, W> + (bend / 2) <W, S W>,    A = sum x' code,  S = sum x' x.

Least squares is one (bend 1, code y). A logistic loss is one up to the third order at 0: ln 2 + z/2
+ z^2/8 - y z for two classes, off by at most 0.0151 where |z| <= 1; for K simplex-coded classes
bend is 1/2K and code q_y. Whatever is done with noisy coefficients is post-processing.

The noisy S is hardly ever positive definite (never, at 13 columns, 1000 rows and epsilon 1). To
draw again until it is costs 2 epsilon; instead only the directions in which S + N lambda I is
clearly curved are kept, and the minimiser sought among them.

References: Zhang, Zhang, Xiao, Yang and Winslett, "Functional mechanism: regression analysis under
differential privacy", arXiv:1208.0219 (whose sensitivities, 2 (d+1)^2 and d^2/4 + 3 d, are those of
||x||_1 <= d and not of ||x||_2 <= 1); Wang, "Revisiting differentially private linear regression",
arXiv:1803.02596, for normal noise on the same coefficients.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any, ClassVar, final

import numpy as np
from numpy.typing import NDArray

from sfumato.core import validation
from sfumato.core.events import Event
from sfumato.core.randomness import Coins
from sfumato.core.sensitivity import Norm, Sensitivity
from sfumato.learning.erm.sensitivity import one_step
from sfumato.learning.erm.solving import MOST_ROWS
from sfumato.learning.erm.tasks import Floats, Quadratic, Task, Way
from sfumato.mechanisms.gaussian import Gaussian
from sfumato.mechanisms.laplace import Laplace

__all__ = [
    "Functional",
    "exact_sums",
    "logistic_coefficients",
    "quadratic_of",
    "regression_coefficients",
    "trimmed_minimiser",
]

_UP = 1 + 2.0**-40
_FINE = 2.0**20
_EXACT = 2**13  # rows of which sums are exact in floating point
_SPILL = 2**9  # such blocks of which sums are exact in 64 bits


def regression_coefficients(columns: int) -> float:
    """2 (1 + sqrt d)^2: all coefficients of least squares (y^2, -2 y x, x'x) for a replacement.

    Of one record with ||x||_2 <= 1 and |y| <= 1 their absolute values sum to at most 1 + 2 sqrt d +
    d. The constant y^2 changes no minimiser; :class:`Functional` does not release it.
    """
    return 2 * (1 + math.sqrt(columns)) ** 2


def logistic_coefficients(columns: int) -> float:
    """The root of d, and d/4: coefficients x (1/2 - y) and x'x / 8 of two classes, replaced."""
    return math.sqrt(columns) + columns / 4


@final
class Functional(Way):
    """Noisy coefficients, then their minimiser among directions that are clearly curved.

    For delta 0, Laplace noise on A and on the monomials of S, for the L1 sensitivity k (a sqrt d +
    bend d / 2) with a the greatest sum of absolute values of a code and k = 2 for a replacement:
    the printed ones' tight form. Otherwise normal noise on both for an L2 sensitivity that does not
    depend on d: S is released times a = max ||code||, which gives both parts the same weight, and a
    record has length a sqrt(||x||^4 + ||x||^2) <= a sqrt 2; a replacement moves S by at most sqrt 2
    in Frobenius norm, A by at most the distance of codes, 2 a: sqrt(2 a^2 + 4 a^2) together.

    The sums are exact, for any number of rows: rows and codes are first moved towards 0 to
    multiples of 2^-20, which makes none of them longer (:func:`exact_sums`). They are then held
    between -4 N and 4 N, where they are anyway unless there are more than 4 N rows, and which
    brings no two of them further apart; so that to write them as floating-point numbers and weigh
    them costs a public rounding (:attr:`rounding`), which is part of the sensitivity.
    """

    name: ClassVar[str] = "functional"
    says: ClassVar[str] = "noise on the coefficients of a quadratic objective"

    def check(self) -> None:
        """The loss must have a polynomial, with codes as short as exact sums need."""
        if (length := quadratic_of(self.task, self.name).length) > 1:
            validation.fail("quadratic", "one with codes of length 1 at most", length)

    @property
    def quadratic(self) -> Quadratic:
        """The polynomial."""
        return quadratic_of(self.task, self.name)

    @property
    def usual_regularisation(self) -> float:
        """The spread of the noise's eigenvalues, scale sqrt(d), or 1e-5 if greater."""
        spread = self._noise_on_squares * math.sqrt(self.task.columns)
        return max(1e-5, self.quadratic.bend * spread / self.task.records)

    @property
    def _squares(self) -> int:
        return self.task.columns * (self.task.columns + 1) // 2

    @cached_property
    def _weights(self) -> Floats:
        """What each entry of S on or above the diagonal is multiplied by before it is noised."""
        upper = np.triu_indices(self.task.columns)
        return np.where(upper[0] == upper[1], 1.0, self._off_diagonal) * self._factor

    @cached_property
    def rounding(self) -> float:
        """What writing and weighing the sums adds to the sensitivity: a unit for each, twice."""
        norm = 1 if self.task.delta == 0 else 2
        all_of_them = np.concatenate([self._weights, np.ones(self.task.dimension)])
        size = float(np.linalg.norm(all_of_them, norm)) * _UP
        return 2.0**-51 * MOST_ROWS * self.task.records * size

    @cached_property
    def mechanism(self) -> Gaussian | Laplace:
        """The noise on all coefficients together."""
        task, poly = self.task, self.quadratic
        count = self._squares + task.dimension
        k = one_step(task.neighbours)
        if task.delta == 0:
            each = poly.length_1 * math.sqrt(task.columns) + poly.bend * task.columns / 2
            known = Sensitivity(
                k * each * _UP + self.rounding, Norm.L1, task.neighbours, task.unit, count
            )
            return Laplace.calibrate(known, epsilon=task.epsilon)
        square, linear = (1.0, poly.length) if k == 1 else (math.sqrt(2), 2 * poly.length)
        both = math.hypot(poly.length * square, linear)
        known = task.sensitivity(both * _UP + self.rounding, count)
        return Gaussian.calibrate(known, epsilon=task.epsilon, delta=task.delta)

    @property
    def _factor(self) -> float:
        """What an entry of S on the diagonal is multiplied by before it is noised."""
        pure = self.task.delta == 0
        return self.quadratic.bend / 2 if pure else self.quadratic.length

    @property
    def _off_diagonal(self) -> float:
        """And another one, besides: the monomial w_i w_j has 2 S_ij, the Frobenius norm sqrt 2."""
        return 2.0 if self.task.delta == 0 else math.sqrt(2)

    @property
    def _noise_on_squares(self) -> float:
        """The standard deviation of noise on an entry of S off the diagonal."""
        return self.mechanism.standard_deviation / (self._factor * self._off_diagonal)

    @property
    def event(self) -> Event:
        """That of the noise."""
        return self.mechanism.event

    @property
    def facts(self) -> dict[str, Any]:
        """Sensitivity and noise."""
        return {
            "sensitivity": self.mechanism.sensitivity.bound,
            "noise": "laplace" if self.task.delta == 0 else "gaussian",
            "noise_scale": getattr(self.mechanism, "sigma", getattr(self.mechanism, "scale", None)),
            "noise_on": f"{self._squares + self.task.dimension} coefficients",
            "arithmetic": "sums exact, released on a public grid, noise exact",
        }

    def fit(self, rows: Floats, targets: NDArray[Any], codes: Floats, coins: Coins) -> Floats:
        """From noisy coefficients to weights."""
        self.admit(len(rows))
        upper, weighed = np.triu_indices(self.task.columns), self._weights
        most = MOST_ROWS * self.task.records
        squares, linear = exact_sums(rows, rows, most), exact_sums(rows, codes, most)
        told = np.concatenate([squares[upper] * weighed, linear.ravel()])
        noisy = self.mechanism.perturb(told, coins=coins)
        found = np.zeros_like(squares)
        found[upper] = noisy[: len(weighed)] / weighed
        found = np.triu(found) + np.triu(found, 1).T
        noisy_linear = noisy[len(weighed) :].reshape(linear.shape)
        strength = self.regularisation * self.task.records
        return trimmed_minimiser(self.quadratic.bend * found, noisy_linear, strength)


def exact_sums(left: Floats, right: Floats, most: int) -> Floats:
    """The product left' right, of entries moved towards 0 to multiples of 2^-20, held to +-most.

    Entries are between -1 and 1. Products are multiples of 2^-40, so that floating point adds 2^13
    of them without rounding, in whatever order; and integers add the rest.
    """
    total = np.zeros((left.shape[1], right.shape[1]), dtype=np.int64)
    rest = total.astype(object)
    for at in range(0, len(left), _EXACT):
        x, c = (np.trunc(part[at : at + _EXACT] * _FINE) for part in (left, right))
        total += (x.T @ c).astype(np.int64)
        if (at // _EXACT) % _SPILL == _SPILL - 1:
            rest, total = rest + total, np.zeros_like(total)
    limit = most * int(_FINE) ** 2
    whole = np.clip(rest + total, -limit, limit)
    return np.asarray(whole / int(_FINE) ** 2, dtype=np.float64)


def trimmed_minimiser(curvature: Floats, linear: Floats, strength: float) -> Floats:
    """The argmin of <W, (curvature + strength I) W> / 2 - <linear, W>, where it is convex.

    Directions in which ``curvature`` itself is not positive are left out: what is known of them is
    noise. Never fails, whatever is in it.
    """
    sizes, directions = np.linalg.eigh(np.nan_to_num(curvature))
    kept = directions[:, sizes > 0]
    return kept @ ((kept.T @ linear) / (sizes[sizes > 0] + strength)[:, None])


def quadratic_of(task: Task, name: str) -> Quadratic:
    """The task's polynomial.

    Raises:
        ValueError: if it has none.
    """
    if task.quadratic is None:
        raise ValueError(
            f"way must be 'output', 'objective' or 'sgd' for this loss, got {name!r}, which needs "
            "one that a quadratic stands for: logistic or linear regression"
        )
    return task.quadratic
