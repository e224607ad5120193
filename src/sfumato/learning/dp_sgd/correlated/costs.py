"""What correlated noise costs: which lots, clipping and schedules there is a theorem for.

A strategy C with columns of norm at most 1 releases C x + z, whose noise is ``noise_multiplier``
clip norms. One unit that takes part k times moves C x by s clip norms at most
(:meth:`Correlation.cost` is s^2), so without sampling the whole run is one Gaussian release of
multiplier z / s. It is stated as k releases of z sqrt(k) / s each, which compose to exactly that:
for orthogonal columns, s^2 = k, as k releases of z.
"""

from __future__ import annotations

import math

from sfumato.learning.dp_sgd.clipping import Adaptive, Clipping
from sfumato.learning.dp_sgd.correlated.strategies import Correlation
from sfumato.learning.dp_sgd.lots import Lots
from sfumato.learning.dp_sgd.schedules import NoiseSchedule

__all__ = ["check_correlated", "gain"]


def gain(correlation: Correlation, lots: Lots, steps: int, last: int) -> float:
    """sqrt(k) / s: the factor on the noise multiplier of each of a unit's k participations.

    Args:
        correlation: the strategy.
        lots: which units take part when.
        steps: of the whole run.
        last: count the participations before this step.
    """
    count, separation = lots.participation(last)
    return min(1.0, math.sqrt(count / correlation.cost(steps, count, separation)))


def check_correlated(
    correlation: Correlation,
    lots: Lots,
    clipping: Clipping,
    schedule: NoiseSchedule,
    steps: int,
) -> None:
    """Raises ``ValueError`` where correlated noise has no guarantee.

    - Lots must bound how often one unit takes part. Where amplification by sampling is claimed, its
      participations must also meet columns that do not overlap.
    - One standard deviation for the whole run: noise that is taken back must be what was added. So
      no noise schedule, and no clip norm that adapts.
    """
    if correlation.independent:
        return
    name = correlation.kind
    _, separation = lots.participation(steps)
    if lots.sample_rate < 1 and correlation.reach > separation:
        raise ValueError(
            f"{name} noise must not reach further than {separation} steps in lots of {separation} "
            f"groups, which are accounted as sampled, got {correlation.reach:g}: use "
            f"BandedNoise({separation}), more groups, or StreamedLots"
        )
    if not schedule.is_constant:
        raise ValueError(
            f"schedule must be constant with {name} noise, which takes back what earlier steps "
            f"added, got {len(schedule.phases)} phases: leave it out, or use IndependentNoise"
        )
    if isinstance(clipping, Adaptive):
        raise ValueError(
            f"clipping must not adapt with {name} noise, which takes back what earlier steps "
            "added, got Adaptive: use Flat, PerLayer or Automatic"
        )
