"""Integer noise that clients add in shares, so that a secure sum of their updates is private.

=====================  =========================================================================
file                   what it has
=====================  =========================================================================
:mod:`.rotation`       the public random rotation: no coordinate is large
:mod:`.rounding`       random rounding within a bound on the norm: the sensitivity
:mod:`.encoding`       from updates to integers modulo 2^b and back; how likely sums wrap around
:mod:`.gaussian_sums`  how private a sum of discrete Gaussians is
:mod:`.distributed`    clients' messages, the server's release, the event, calibration
:mod:`.shares`         the two laws of a share, and what is promised: start here
=====================  =========================================================================

Notation: c the clip norm, gamma the granularity, b bits, k the padded dimension, n clients, z the
noise multiplier, sigma a share's parameter in steps of gamma.
"""

from sfumato.federated.integer_noise.distributed import DistributedNoise, TooFewShares
from sfumato.federated.integer_noise.encoding import Encoding
from sfumato.federated.integer_noise.rotation import Rotation
from sfumato.federated.integer_noise.rounding import round_within, squared_norm_bound
from sfumato.federated.integer_noise.shares import DistributedGaussian, DistributedSkellam

__all__ = [
    "DistributedGaussian",
    "DistributedNoise",
    "DistributedSkellam",
    "Encoding",
    "Rotation",
    "TooFewShares",
    "round_within",
    "squared_norm_bound",
]
