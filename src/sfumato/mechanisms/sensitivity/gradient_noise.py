"""How much noise a private gradient needs, by Laplace's route and by the Gaussian one.

A lecture (Lei, 2024, section 4.3) finds that the gradient of a two-layer network with m units and d
inputs, D = m (d + 1) numbers, has an L1 sensitivity of order m sqrt(d), asks for Laplace noise of
that over epsilon, and concludes that differential privacy is impractical for networks. The order is
right where nothing is clipped, residuals and weights are of order 1, and privacy must be pure. The
conclusion does not follow. Noise on each number, for one record that is added or removed:

====================  =======================================================================
``printed``           sqrt(2) (m log(m / s) + m sqrt(d)) / epsilon, as printed, with C = 1
``unclipped``         sqrt(2) 2 m (1 + sqrt(d)) / epsilon, the same with its factors
``clipped``           sqrt(2) C sqrt(D) / epsilon: gradients clipped to C in L2, Laplace noise
``gaussian``          sigma(epsilon, delta) C: the same gradients, Gaussian noise; no m, no d
====================  =======================================================================

By the norm that the noise is made for, L2 instead of L1, a factor of sqrt(2 D) / (epsilon sigma) is
gained: it is why DP-SGD works and Laplace's route does not.

    >>> found = gradient_noise(1000, 784, epsilon=1.0, delta=1e-5)
    >>> {name: round(sd, 1) for name, sd in found.to_dict().items()}
    {'printed': 53603.6, 'unclipped': 82024.4, 'clipped': 1253.0, 'gaussian': 3.7}
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass

from sfumato.core import validation
from sfumato.core.gaussian_profile import least_multiplier
from sfumato.mechanisms.sensitivity.two_layer import printed_two_layer_bound, two_layer_bound

__all__ = ["GradientNoise", "gradient_noise"]


@dataclass(frozen=True)
class GradientNoise:
    """Standard deviations of the noise on each number; see the module."""

    printed: float
    unclipped: float
    clipped: float
    gaussian: float

    def to_dict(self) -> dict[str, float]:
        """JSON-ready."""
        return asdict(self)


def gradient_noise(
    hidden: int, input_dimension: int, *, epsilon: float, delta: float, clip: float = 1.0
) -> GradientNoise:
    """Of the sum of gradients over any number of records, add-or-remove one of them.

    Args:
        hidden: m.
        input_dimension: d.
        epsilon: of the release.
        delta: of the Gaussian route; the others have none.
        clip: C, the L2 norm that gradients are clipped to; the first two do not clip.
    """
    epsilon, delta = validation.positive("epsilon", epsilon), validation.delta("delta", delta)
    if delta == 0:
        validation.fail("delta", "above 0: Gaussian noise has one", delta)
    clip, numbers = validation.positive("clip", clip), hidden * (input_dimension + 1)
    laplace = math.sqrt(2) / epsilon
    return GradientNoise(
        printed=laplace * printed_two_layer_bound(hidden, input_dimension),
        unclipped=laplace * two_layer_bound(hidden, input_dimension).bound,
        clipped=laplace * clip * math.sqrt(numbers),
        gaussian=least_multiplier(epsilon, delta) * clip,
    )
