"""Clipping: how far one unit can move a lot's sum, and the noise that this calls for.

Every unit's gradient (a record's, or a user's, whatever is sampled) is scaled before it is summed,
so that one unit added or removed moves the sum by at most C; zeroed out, by at most C; replaced, by
at most 2C, which accountants derive from the first. Noise is therefore always stated relative to
one unit's whole contribution, and one noise multiplier z speaks for everything that a step
releases: groups of parameters and a noisy count are *one* Gaussian release in which

    sum over parts of (sensitivity / standard deviation)^2 = 1 / z^2.

    >>> PerLayer({"body": 1.0, "head": 2.0}).noise_scales(4.0, (1.0, 2.0))
    (5.656854249492381, 11.313708498984761)

Bounds are public. Nothing here branches on a value read from the data: a norm that is NaN or
infinite gets the factor 0. (0 times an infinite gradient is NaN again, so whoever multiplies must
also replace what is not finite by 0.)

Rounding. A contribution is scaled to C (1 - eta), where eta covers the error with which its norm,
its factor and their product are computed, see :data:`ROUNDING`, and what sums may lose
(:mod:`~sfumato.learning.dp_sgd.gradients.summing`).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, cast, final

from sfumato.core import validation
from sfumato.core.kinds import ByKind

if TYPE_CHECKING:
    from torch import Tensor

__all__ = [
    "CLIP_RANGE",
    "ROUNDING",
    "SMALLEST",
    "Adaptive",
    "Automatic",
    "Clipping",
    "Flat",
    "Groups",
    "PerLayer",
]

ROUNDING: Mapping[str, float] = {"float64": 2.0**-40, "float32": 2.0**-14}
"""The part of eta for norms and factors, by the type in which they are formed.

A sum of squares added up in a tree or in blocks of depth d has a relative error of about (d + 1) u,
u = 2^-24 or 2^-53; its root half of that; the factor and the product 2u more. 2^-14 is 1024 u, and
2^-40 is 8192 u: room for blocks of a thousand additions in a row. bfloat16, float16 and tf32 are
not listed: their u is 2^-8 to 2^-11, and no useful eta covers a sum in them. Accumulate in float32.
"""

CLIP_RANGE = 1e6
"""An adapted clip norm stays within this factor of the initial one, both ways."""

SMALLEST = 1e-12
"""The least clip norm: squares of much shorter gradients would vanish in float32."""

Groups = tuple[tuple[str, ...], ...]
"""Names of the parameters that are clipped together."""


def _large_enough(name: str, value: object) -> float:
    number = validation.positive(name, value)
    if number < SMALLEST:
        validation.fail(name, f"at least {SMALLEST:g}", value)
    return number


class Clipping(ByKind, ABC, family=True):
    """How one unit's contribution is bounded. Subclasses are frozen dataclasses."""

    @abstractmethod
    def groups(self, names: Sequence[str]) -> Groups:
        """The parameters, by name, that are clipped together."""

    @abstractmethod
    def bounds(self, groups: Groups) -> tuple[float, ...]:
        """C_l: the clip norm of each group (of an adapted one, at first)."""

    @abstractmethod
    def scales(self, norms: Tensor, bounds: Sequence[float], eta: float) -> Tensor:
        """What to multiply each unit's gradient with, group by group.

        Args:
            norms: [B, k], each unit's norm in each group.
            bounds: C_l.
            eta: the allowance for rounding.

        Returns:
            [B, k] factors f with f times norm at most C_l (1 - eta); 0 where the norm is not
            finite.
        """

    @abstractmethod
    def noise_scales(self, noise_multiplier: float, bounds: Sequence[float]) -> tuple[float, ...]:
        """The standard deviation of the noise on each group's sum.

        So that everything that a step releases is one Gaussian release with ``noise_multiplier``.

        Raises:
            ValueError: if no noise on the sums does that.
        """

    @abstractmethod
    def resolved(self, expected_size: float) -> Clipping:
        """The same with every default that depends on the lot size filled in."""


class _Together(Clipping, ABC):
    """All parameters in one group, with one clip norm."""

    clip: float

    def groups(self, names: Sequence[str]) -> Groups:
        """One group."""
        return (_checked(names),)

    def bounds(self, groups: Groups) -> tuple[float, ...]:
        """(C,)."""
        if len(groups) != 1:
            validation.fail("groups", "the one group that groups(names) returns", groups)
        return (self.clip,)


@final
@dataclass(frozen=True)
class Flat(_Together):
    """All parameters together: g min(1, C / ||g||). Noise z C.

    Sensitivity: one unit's clipped gradient has norm at most C.

    Reference: Abadi et al., "Deep learning with differential privacy", arXiv:1607.00133,
    algorithm 1.
    """

    kind: ClassVar[str] = "flat"
    clip: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "clip", _large_enough("clip", self.clip))

    def scales(self, norms: Tensor, bounds: Sequence[float], eta: float) -> Tensor:
        """min(1, C (1 - eta) / norm)."""
        return _shrunk(norms, bounds, eta)

    def noise_scales(self, noise_multiplier: float, bounds: Sequence[float]) -> tuple[float, ...]:
        """(z C,)."""
        return _jointly(noise_multiplier, bounds)

    def resolved(self, expected_size: float) -> Flat:
        """Itself."""
        return self


@final
@dataclass(frozen=True)
class PerLayer(Clipping):
    """Each of k layers by itself, to C_l; noise z sqrt(k) C_l on its sum.

    Sensitivity: the k sums are one release; in units of their noise one unit moves them by
    sqrt(sum of 1 / (z^2 k)) = 1/z. (Noise z C_l on each would be a multiplier of z / sqrt(k) only,
    and k releases accounted one by one after sampling understate the cost: all k see the same lot.)

    Attributes:
        clip: one number C for the whole, C / sqrt(k) for each owning module (a parameter's name up
            to its last dot); or a clip norm for each prefix of names, which must cover every
            parameter and each match one. The longest prefix counts.

    Reference: Abadi et al., arXiv:1607.00133, section 3.1; McMahan et al., arXiv:1710.06963,
    section 3.1.
    """

    kind: ClassVar[str] = "per-layer"
    clip: float | Mapping[str, float] | tuple[tuple[str, float], ...] = 1.0

    def _plain(self, value: Any) -> Any:
        """A clip norm for each layer as an object."""
        pairs = cast("tuple[tuple[str, float], ...]", value)
        return dict(pairs) if isinstance(value, tuple) else value

    def __post_init__(self) -> None:
        if not isinstance(self.clip, Mapping | tuple):
            object.__setattr__(self, "clip", _large_enough("clip", self.clip))
            return
        listed = dict(self.clip).items()
        pairs = tuple((str(k), _large_enough(f"clip of {k!r}", v)) for k, v in listed)
        if not pairs:
            validation.fail("clip", "a number, or a clip norm for each layer", self.clip)
        object.__setattr__(self, "clip", pairs)

    @property
    def _by_prefix(self) -> dict[str, float]:
        return dict(self.clip) if isinstance(self.clip, Mapping | tuple) else {}

    def groups(self, names: Sequence[str]) -> Groups:
        """The parameters of one module, or of one prefix, together; in order of appearance."""
        found: dict[str, list[str]] = {}
        for name in _checked(names):
            found.setdefault(self._layer(name), []).append(name)
        unused = [prefix for prefix in self._by_prefix if prefix not in found]
        if unused:
            raise ValueError(
                f"clip must name layers that are trained, got {unused[0]!r}, which is none of "
                f"{', '.join(sorted(set(map(_owner, names))))}: correct or remove it"
            )
        return tuple(map(tuple, found.values()))

    def _layer(self, name: str) -> str:
        prefixes = self._by_prefix
        if not prefixes:
            return _owner(name)
        matching = [p for p in prefixes if p == "" or name == p or name.startswith(f"{p}.")]
        if not matching:
            raise ValueError(
                f"clip must cover every trained parameter, got nothing for {name!r}: add its layer "
                f"({_owner(name)!r}), or freeze it"
            )
        return max(matching, key=len)

    def bounds(self, groups: Groups) -> tuple[float, ...]:
        """C / sqrt(k) each, or what was given for each."""
        prefixes = self._by_prefix
        if prefixes:
            return tuple(prefixes[self._layer(group[0])] for group in groups)
        assert isinstance(self.clip, float)
        return (self.clip / math.sqrt(len(groups)),) * len(groups)

    def scales(self, norms: Tensor, bounds: Sequence[float], eta: float) -> Tensor:
        """min(1, C_l (1 - eta) / norm_l)."""
        return _shrunk(norms, bounds, eta)

    def noise_scales(self, noise_multiplier: float, bounds: Sequence[float]) -> tuple[float, ...]:
        """Noise z sqrt(k) C_l on each."""
        return _jointly(noise_multiplier, bounds)

    def resolved(self, expected_size: float) -> PerLayer:
        """Itself."""
        return self


@final
@dataclass(frozen=True)
class Automatic(_Together):
    """Normalising: g C / (||g|| + gamma), for gradients large and small. Noise z C.

    Sensitivity: norm C ||g|| / (||g|| + gamma), below C. C only scales the learning rate, so there
    is no clip norm to tune; gamma keeps a bias away and must be above 0.

    Reference: Bu et al., "Automatic clipping", arXiv:2206.07136, equation AUTO-S.
    """

    kind: ClassVar[str] = "automatic"
    clip: float = 1.0
    gamma: float = 0.01

    def __post_init__(self) -> None:
        object.__setattr__(self, "clip", _large_enough("clip", self.clip))
        object.__setattr__(self, "gamma", _large_enough("gamma", self.gamma))

    def scales(self, norms: Tensor, bounds: Sequence[float], eta: float) -> Tensor:
        """C (1 - eta) / (norm + gamma)."""
        limit = _limit(norms, bounds, eta)
        return (limit / (norms + self.gamma)).masked_fill(~norms.isfinite(), 0.0)

    def noise_scales(self, noise_multiplier: float, bounds: Sequence[float]) -> tuple[float, ...]:
        """(z C,)."""
        return _jointly(noise_multiplier, bounds)

    def resolved(self, expected_size: float) -> Automatic:
        """Itself."""
        return self


@final
@dataclass(frozen=True)
class Adaptive(_Together):
    """Flat clipping whose C follows a quantile of the norms, by a noisy count in every lot.

    Released in each step: the clipped sum, and b = sum over units of (1[norm <= C] - 1/2), which
    one unit moves by 1/2. With noise sigma_b on b, the whole has the noise multiplier z if the
    gradient's own is larger,

        z_g = (z^-2 - (2 sigma_b)^-2)^(-1/2),    which needs 2 sigma_b > z.

    C itself is computed from earlier releases, hence free to use. A step replaces it by
    C exp(-learning_rate (b / L + 1/2 - quantile)), L the declared lot size.

    Attributes:
        clip: the first C.
        quantile: the share of norms that should be at most C.
        learning_rate: how fast C moves.
        count_noise: sigma_b; by default a twentieth of the lot size.

    Reference: Andrew et al., "Differentially private learning with adaptive clipping",
    arXiv:1905.03871, theorem 1 and algorithm 1.
    """

    kind: ClassVar[str] = "adaptive"
    clip: float = 1.0
    quantile: float = 0.5
    learning_rate: float = 0.2
    count_noise: float | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "clip", _large_enough("clip", self.clip))
        validation.open_probability("quantile", self.quantile)
        validation.positive("learning_rate", self.learning_rate)
        if self.count_noise is not None:
            noise = validation.positive("count_noise", self.count_noise)
            object.__setattr__(self, "count_noise", noise)

    def scales(self, norms: Tensor, bounds: Sequence[float], eta: float) -> Tensor:
        """min(1, C (1 - eta) / norm)."""
        return _shrunk(norms, bounds, eta)

    def noise_scales(self, noise_multiplier: float, bounds: Sequence[float]) -> tuple[float, ...]:
        """(z_g C,), the count having noise sigma_b beside it."""
        z, doubled = validation.positive("noise_multiplier", noise_multiplier), 2 * self._noise
        if doubled <= z:
            raise ValueError(
                f"count_noise must be above half the noise multiplier ({z / 2:.4g}), got "
                f"{self._noise:.4g}: the count alone would cost more than the step may. Give a "
                "larger count_noise, or larger lots"
            )
        return _jointly(z / math.sqrt((1 - z / doubled) * (1 + z / doubled)), bounds)

    @property
    def _noise(self) -> float:
        if self.count_noise is None:
            raise ValueError(
                "count_noise must be known before noise is added, got None: use the clipping of a "
                "TrainingPlan, or resolved(expected_size)"
            )
        return self.count_noise

    def resolved(self, expected_size: float) -> Adaptive:
        """With the count's noise for that lot size."""
        return self if self.count_noise else replace(self, count_noise=expected_size / 20)

    def count(
        self, norms: Tensor, bounds: Sequence[float], present: Tensor | None = None
    ) -> Tensor:
        """Sum of +1/2 for norms at most C and -1/2 for others (NaN among them), noise to come.

        Args:
            norms: [B, 1].
            bounds: the C in force.
            present: [B], 1 for a unit and 0 for padding, if there is any.
        """
        sides = (norms[:, 0] <= bounds[0]).to(norms.dtype) - 0.5
        return (sides if present is None else sides * present.to(norms.dtype)).sum()

    def updated(self, clip: float, noisy_count: float, expected_size: float) -> float:
        """The next C, within a factor of :data:`CLIP_RANGE` of the first."""
        excess = noisy_count / expected_size + 0.5 - self.quantile
        moved = clip * math.exp(min(max(-self.learning_rate * excess, -50.0), 50.0))
        least = max(self.clip / CLIP_RANGE, SMALLEST)
        return min(max(moved, least), self.clip * CLIP_RANGE)


# --- formulas -----------------------------------------------------------------------------------


def _jointly(noise_multiplier: float, bounds: Sequence[float]) -> tuple[float, ...]:
    """Noise z sqrt(k) C_l: the sum of (C_l / s_l)^2 over k groups is 1 / z^2."""
    z = validation.positive("noise_multiplier", noise_multiplier)
    return tuple(z * math.sqrt(len(bounds)) * bound for bound in bounds)


def _shrunk(norms: Tensor, bounds: Sequence[float], eta: float) -> Tensor:
    factors = (_limit(norms, bounds, eta) / norms).clamp(max=1.0)  # C / 0 is infinite, hence 1
    return factors.masked_fill(~norms.isfinite(), 0.0)


def _limit(norms: Tensor, bounds: Sequence[float], eta: float) -> Tensor | float:
    """C_l (1 - eta), as one number where the groups share it."""
    limits = [bound * (1 - eta) for bound in bounds]
    return limits[0] if len(set(limits)) == 1 else norms.new_tensor(limits)


def _owner(name: str) -> str:
    return name.rpartition(".")[0]


def _checked(names: Sequence[str]) -> tuple[str, ...]:
    if not names or len(set(names)) < len(names):
        validation.fail("names", "the names of the trained parameters, each once", list(names))
    return tuple(names)
