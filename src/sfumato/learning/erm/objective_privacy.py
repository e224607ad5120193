"""What noise in the objective promises: exact minimisers of tilted objectives.

Release W = argmin over W of sum_i l(x_i W; t_i) + (Lambda/2) ||W||^2 + <B, W>, B random noise. At W
the gradient vanishes: B = -(sum_i x_i' s_i) - Lambda W =: B_D(W), one to one in W. So W has the
density p_D(W) = (density of noise at B_D(W)) |det of the curvature H_D(W)|, and for a table D' that
differs in one step

    ln p_D(W) / p_D'(W) = ln noise(B_D) / noise(B_D') + ln det H_D / det H_D'.

*The determinants.* Let H_0 be the curvature of the records that D and D' have in common, with
Lambda I in it. Then det H_D' >= det H_0, and det H_D / det H_0 = det(I + M' H_0^-1 M) <= det(I +
M' M / Lambda) for the record's curvature M M', which is ``loss.log_volume``: c. (In print there is
twice that for a replacement, ln(1 + 2c/n Lambda + c^2/(n Lambda)^2), from bounding both sides.)

*The noise.* B_D' = B_D + v, v = x's for the record that D alone has, less x''s' for the one that
D' alone has, s and s' their slopes at W.

- Density e^(-||B|| / b): the ratio is at most ||v|| / b <= R / b, R = G or 2 G. So **epsilon = c +
  R / b, pure**.
- Normal of standard deviation sigma: the ratio is X(v) = (||v||^2 + 2 <B_D, v>) / (2 sigma^2), and
  B_D is normal under D. v depends on W, but is linear in the slopes, X is convex in them, and the
  slopes lie in the convex hull of fixed corners (``loss.corners``, with 0): X(v) is at most the
  greatest of the X(v_j) at the finitely many pairs of corners, each of which is a *fixed* vector of
  length r_j, for which X(v_j) is the privacy loss of an ordinary Gaussian mechanism that moves by
  r_j. Since delta(epsilon) = E[(1 - e^(epsilon - loss))+] grows with the loss,

      delta(epsilon) <= sum_j delta_Gauss(epsilon - c; sigma / r_j)     for epsilon >= c.

For two classes under add/remove there is one corner, and the whole is exactly a Gaussian mechanism
at epsilon - ln(1 + 1/(4 Lambda)): less noise than by the general theorem, which has 2 delta_Gauss.

Twice differentiable losses make B_D(W) differentiable; for the Huber losses, it is Lipschitz in
both directions, which is all that a change of variables needs.

References: Chaudhuri, Monteleoni and Sarwate (2011), theorem 9; Kifer, Smith and Thakurta, "Private
convex empirical risk minimization and high-dimensional regression", COLT 2012; Redberg, Koskela and
Wang, "Improving the privacy and practicality of objective perturbation for differentially private
linear learners", arXiv:2401.00583, theorem 3.1 (the corner argument for one slope of either sign).
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from sfumato.core.gaussian_profile import gaussian_log_delta
from sfumato.core.neighbours import Neighbours
from sfumato.core.rounding import at_least_ratio, calibration_target, least
from sfumato.learning.erm.losses import Loss
from sfumato.learning.erm.sensitivity import one_step

__all__ = ["gaussian_tilt", "pure_tilt", "strength_for", "tilt_log_delta"]


def shifts(loss: Loss, neighbours: Neighbours) -> list[tuple[int, float]]:
    """(how many, how long): the corners that v can be at, but for 0."""
    alone = list(loss.corners)
    if one_step(neighbours) == 1:
        return alone
    either = [*alone, (1, 0.0)]
    return [(m * n, r + s) for m, r in either for n, s in either if r + s > 0]


def tilt_log_delta(loss: Loss, neighbours: Neighbours, sigma: float, epsilon: float) -> float:
    """Ln of the sum over corners of the Gaussian delta at ``epsilon``, from which c was taken."""
    return _log_sum(
        math.log(count) + gaussian_log_delta(sigma / length, epsilon)
        for count, length in shifts(loss, neighbours)
    )


def gaussian_tilt(
    loss: Loss, neighbours: Neighbours, strength: float, epsilon: float, delta: float
) -> float:
    """The least sigma of normal noise for (epsilon, delta), with Lambda = ``strength``."""
    left, target = epsilon - loss.log_volume(strength), calibration_target(delta)
    longest = max(length for _, length in shifts(loss, neighbours))
    return least(
        lambda sigma: tilt_log_delta(loss, neighbours, sigma, left) - target,
        guess=longest / math.sqrt(left),
    )


def pure_tilt(loss: Loss, neighbours: Neighbours, strength: float, epsilon: float) -> float:
    """The least b of noise of density e^(-||B|| / b) for epsilon."""
    left = (epsilon - loss.log_volume(strength)) * (1 - 2.0**-40)
    return at_least_ratio(one_step(neighbours) * loss.lipschitz, left)


def strength_for(loss: Loss, epsilon: float) -> float:
    """The least Lambda at which the determinants take no more than ``epsilon``."""
    return least(lambda strength: loss.log_volume(strength) - epsilon, guess=1 / epsilon)


def _log_sum(logarithms: Iterable[float]) -> float:
    found = list(logarithms)
    top = max(found)
    return top + math.log(math.fsum(math.exp(one - top) for one in found))
