"""What a run releases and what that costs, from public facts alone.

    >>> from sfumato.learning.functional.recipe import FunctionalRecipe
    >>> plan = FunctionalPlan(FunctionalRecipe(1.0, rounds=4, clip=2.0), (16,), 10, 1437)
    >>> plan.guarantee, plan.dimension, round(plan.noise_scale, 6)
    (Guarantee: epsilon 1, delta 0, add or remove one record, 340, 8.0)

In round r = 1..R, at public weights, every record's vector (g, kappa h) is clipped to C and all are
added (:mod:`~sfumato.learning.functional.clipping`): the sum moves by Delta = C in the clip's norm
if a record is added or removed, by 2 C if one is replaced.

* *Laplace*: noise of scale Delta / eps_r on each number of the sum is eps_r-DP, as one release: g
  and h are parts of one vector. Rounds add up: R eps_r = epsilon. With records sampled at rate q a
  round costs ln(1 + q (e^eps_r - 1)).
* *Gaussian*: noise sigma = m Delta, m such that R rounds, sampled or not, are (epsilon, delta)-DP
  by their privacy loss distribution.

What comes next, minimisers and new weights, is made of noisy sums alone. Noise is exact: it is
added to whole numbers of units (2^30 of them are C), the sum of which has no rounding, and the
result is rounded to a public grid.

A number of the sum has a signal of about q n C / 2p at most, p the number of weights, next to noise
of q R C / epsilon or so: there is something to learn where **n epsilon is far above 2 p R**
(:attr:`FunctionalPlan.headroom`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, final

from sfumato.accounting import Accountant, account, calibrate
from sfumato.core import validation
from sfumato.core.events import Event, GaussianEvent, Leaf, PoissonSampledEvent, repeat
from sfumato.core.guarantee import Guarantee
from sfumato.core.neighbours import Neighbours
from sfumato.core.sensitivity import Sensitivity
from sfumato.learning.functional.clipping import UNITS
from sfumato.learning.functional.networks import Topology
from sfumato.learning.functional.recipe import FunctionalRecipe
from sfumato.mechanisms.gaussian import Gaussian
from sfumato.mechanisms.laplace import Laplace

__all__ = ["FunctionalPlan"]

_WANTED = 3.0  # the headroom that a round should have
_FEWEST, _MOST = 2, 32  # rounds, if nothing is said


@final
@dataclass(frozen=True)
class FunctionalPlan:
    """A recipe for rows of one shape, before any row is read.

    Attributes:
        recipe: how.
        shape: of one row's features.
        classes: how many.
        records: N, the declared number of records; the true one need not be known.
    """

    recipe: FunctionalRecipe
    shape: tuple[int, ...]
    classes: int
    records: int

    def __post_init__(self) -> None:
        validation.count("records", self.records)
        _ = self.mechanism  # calibrated, or it says why not

    @cached_property
    def topology(self) -> Topology:
        """The network."""
        return self.recipe.topology(self.shape, self.classes)

    @property
    def dimension(self) -> int:
        """Numbers of one round's release."""
        return self.topology.parameters * (1 if self.recipe.curvature == "none" else 2)

    @cached_property
    def rounds(self) -> int:
        """R: as said; or by N epsilon / numbers of a round, such that each has a headroom of 3.

        From 2 to 32 of them, and 32 with normal noise, of which the cost grows like the root of R.
        """
        recipe = self.recipe
        if recipe.rounds is not None:
            return recipe.rounds
        if recipe.delta > 0:
            return _MOST
        steps = 2 if recipe.neighbours is Neighbours.REPLACE_ONE else 1
        fitting = self.records * recipe.epsilon / (_WANTED * steps * self.dimension)
        return min(_MOST, max(_FEWEST, int(fitting)))

    @property
    def sensitivity(self) -> Sensitivity:
        """Of one round's sum, in units of C / 2^30: exact."""
        recipe = self.recipe
        steps = 2 if recipe.neighbours is Neighbours.REPLACE_ONE else 1
        bound = float(steps * UNITS)
        return Sensitivity(bound, recipe.norm, recipe.neighbours, recipe.unit, self.dimension)

    @cached_property
    def mechanism(self) -> Laplace | Gaussian:
        """The noise of a round, in units."""
        return self._laplace() if self.recipe.delta == 0 else self._gaussian()

    def _laplace(self) -> Laplace:
        recipe = self.recipe
        each = recipe.epsilon / self.rounds
        inside = each if recipe.sample_rate == 1 else _before_sampling(each, recipe.sample_rate)
        less = 2.0**-50
        while True:  # until floating point's sum of rounds is not above epsilon
            made = Laplace.calibrate(self.sensitivity, epsilon=inside)
            if (
                account(self._rounds(made.event), 0.0, accountant=Accountant.BASIC).epsilon
                <= recipe.epsilon
            ):
                return made
            inside, less = inside * (1 - less), 2 * less

    def _gaussian(self) -> Gaussian:
        recipe, known = self.recipe, self.sensitivity
        multiplier = calibrate(
            lambda m: self._rounds(GaussianEvent(m, recipe.neighbours, recipe.unit)),
            recipe.epsilon,
            recipe.delta,
        )
        return Gaussian(multiplier * known.bound, known, recipe.delta)  # a power of 2: exact

    def _rounds(self, one: Leaf) -> Event:
        rate = self.recipe.sample_rate
        return repeat(PoissonSampledEvent(one, rate) if rate < 1 else one, self.rounds)

    @property
    def event(self) -> Event:
        """All rounds."""
        return self._rounds(self.mechanism.event)

    @cached_property
    def guarantee(self) -> Guarantee:
        """What they promise together."""
        pure = self.recipe.delta == 0  # then rounds add up, and there is nothing to convolve
        by = Accountant.BASIC if pure else Accountant.PLD
        return account(self.event, self.recipe.delta, accountant=by)

    @property
    def noise_scale(self) -> float:
        """Laplace's scale b, or sigma, of the noise on a sum of slopes."""
        made = self.mechanism
        scale = made.scale if isinstance(made, Laplace) else made.sigma
        return scale * self.recipe.clip / UNITS

    @property
    def noise_deviation(self) -> float:
        """The standard deviation of that."""
        return self.mechanism.standard_deviation * self.recipe.clip / UNITS

    @property
    def headroom(self) -> float:
        """The largest even signal of a number, q N C over all of them, over the noise on it."""
        expected = self.recipe.sample_rate * self.records
        return expected * self.recipe.clip / (self.dimension * self.noise_scale)

    @property
    def facts(self) -> dict[str, Any]:
        """For the record."""
        recipe = self.recipe
        facts: dict[str, Any] = {
            "steps": self.rounds,
            "records": self.records,
            "clipping": {"kind": f"flat, {recipe.norm.value}", "clip": recipe.clip},
            "sensitivity": self.sensitivity.bound * recipe.clip / UNITS,
            "noise": recipe.noise,
            "noise_scale": self.noise_scale,
            "noise_on": f"{self.dimension} sums a round",
            "headroom": self.headroom,
            "arithmetic": "sums exact in whole units, noise exact, released on a public grid",
        }
        if recipe.sample_rate < 1:
            lots = {"kind": "poisson", "size": recipe.sample_rate * self.records}
            facts["lots"] = lots
        return facts


def _before_sampling(epsilon: float, rate: float) -> float:
    """What a round may cost its sample, ln(1 + (e^epsilon - 1) / q), without overflow."""
    # e^-epsilon ((e^epsilon - 1) + q) / q, and epsilon added to its logarithm.
    return epsilon + math.log1p(math.exp(-epsilon) * (rate - 1)) - math.log(rate)
