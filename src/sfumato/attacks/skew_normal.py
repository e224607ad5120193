"""The skew normal law: fitted to a sample, and far down its lower tail.

Density 2 phi(z) Phi(a z) / w at z = (x - l) / w, with location l, scale w and shape a; a = 0 is the
normal law. Log-perplexities of random sequences are sums of many terms and follow it closely.

    >>> law = SkewNormal.fit(np.random.default_rng(1).normal(5.0, 2.0, 4000))
    >>> law.p_value > 0.01
    True
    >>> round(SkewNormal(0.0, 1.0, 0.0, 0.0, 1.0).log2_below(-38.0), 2)  # log2 of 2.9e-316
    -1048.2

References: Azzalini, "A class of distributions which includes the normal ones", Scandinavian
Journal of Statistics 12 (1985); for exposure Carlini et al., arXiv:1802.08232, section 4.4.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sfumato.core import validation

__all__ = ["SkewNormal"]

_STEEPEST = 200.0  # shapes beyond this look alike: half of a normal law


@final
@dataclass(frozen=True)
class SkewNormal:
    """A skew normal law fitted to a sample, and how well it fits.

    Attributes:
        location: l.
        scale: w.
        shape: a.
        distance: the largest gap between the fitted and the measured shares (Kolmogorov-Smirnov).
        p_value: of a law fitted to one half of the sample, tested on the other half. A small value
            says that the sample is not of this kind, and what is extrapolated from it worth little.
    """

    location: float
    scale: float
    shape: float
    distance: float
    p_value: float

    @classmethod
    def fit(cls, sample: ArrayLike) -> SkewNormal:
        """By maximum likelihood. The sample's order must be random: its halves are compared."""
        from scipy.stats import kstest

        values = np.asarray(sample, dtype=np.float64).ravel()
        if len(values) < 20 or not np.isfinite(values).all() or np.ptp(values) == 0:
            validation.fail("sample", "20 or more finite numbers, not all equal", len(values))
        half = len(values) // 2
        one = _fitted(values[:half])
        tested = kstest(_shares_below(values[half:], *one), "uniform")
        whole = _fitted(values)
        gap = kstest(_shares_below(values, *whole), "uniform")
        return cls(*whole, float(gap.statistic), float(tested.pvalue))

    def log2_below(self, value: float) -> float:
        """log2 of the probability of a number below ``value``, precise far in the tail, too."""
        z = (validation.finite("value", value) - self.location) / self.scale
        direct = float(_shares_below(np.array(z), 0.0, 1.0, self.shape))
        if direct > 1e-3:
            return math.log2(min(direct, 1.0))
        return _log_tail(z, self.shape) / math.log(2)

    def __str__(self) -> str:
        return (
            f"skew normal, location {self.location:.4g}, scale {self.scale:.4g}, shape "
            f"{self.shape:.3g} (Kolmogorov-Smirnov {self.distance:.3g}, p {self.p_value:.2g})"
        )

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return {
            "location": self.location,
            "scale": self.scale,
            "shape": self.shape,
            "distance": self.distance,
            "p_value": self.p_value,
        }


def _log_density(z: NDArray[np.float64], shape: float) -> NDArray[np.float64]:
    from scipy.special import log_ndtr

    return math.log(2) - 0.5 * math.log(2 * math.pi) - 0.5 * z**2 + log_ndtr(shape * z)


def _shares_below(
    values: NDArray[np.float64], location: float, scale: float, shape: float
) -> NDArray[np.float64]:
    """Phi(z) - 2 T(z, a), with Owen's T. Loses all digits far in the tail."""
    from scipy.special import ndtr, owens_t

    z = (values - location) / scale
    return np.clip(ndtr(z) - 2 * owens_t(z, shape), 0.0, 1.0)


def _log_tail(z: float, shape: float) -> float:
    """The log of the integral of the density up to z: log f(z) + log of that of f(z - s) / f(z).

    log f is concave. Once it has fallen by 1 at s = L, it has fallen by 60 or more at s = 60 L.
    """
    from scipy.integrate import quad

    here = float(_log_density(np.array(z), shape))

    def relative(s: float) -> float:
        return float(_log_density(np.array(z - s), shape)) - here

    length = 1.0
    while relative(length) > -1:
        length *= 2
    while relative(length / 2) < -1:
        length /= 2
    area, _ = quad(lambda s: math.exp(relative(s)), 0, 60 * length, limit=200, epsabs=0)
    return here + math.log(area)


def _fitted(values: NDArray[np.float64]) -> tuple[float, float, float]:
    """Location, scale and shape of the highest likelihood."""
    from scipy.optimize import minimize

    centre, spread = float(values.mean()), float(values.std())
    x = (values - centre) / spread

    def cost(parameters: NDArray[np.float64]) -> float:
        location, log_scale, shape = parameters
        if abs(shape) > _STEEPEST or abs(log_scale) > 10:
            return math.inf
        z = (x - location) * math.exp(-log_scale)
        return float(log_scale - _log_density(z, shape).mean())

    found = minimize(
        cost,
        _by_moments(x),
        method="Nelder-Mead",
        options={"xatol": 1e-5, "fatol": 1e-10, "maxiter": 2000},
    )
    location, log_scale, shape = (float(number) for number in found.x)
    return centre + spread * location, spread * math.exp(log_scale), shape


def _by_moments(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Where to start: the law with the sample's skewness, as far as the family reaches (0.995)."""
    skewness = float(np.clip((x**3).mean(), -0.9, 0.9))
    power = abs(skewness) ** (2 / 3)
    delta = math.sqrt(math.pi / 2 * power / (power + ((4 - math.pi) / 2) ** (2 / 3)))
    delta = math.copysign(delta, skewness)
    scale = 1 / math.sqrt(1 - 2 * delta**2 / math.pi)
    location = -scale * delta * math.sqrt(2 / math.pi)
    return np.array([location, math.log(scale), delta / math.sqrt(1 - delta**2)])
