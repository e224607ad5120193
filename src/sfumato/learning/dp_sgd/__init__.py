"""DP-SGD: private training that fits into anybody's PyTorch loop.

Read in this order: ``plan`` (what a run promises, and the one object that sampler, sensitivity and
accountant come from), ``lots``, ``clipping``, ``clipped_sum`` (the sum that noise is added to),
``stepping`` (one noisy step), ``updating`` (its noise and update in one pass on a GPU),
``rehearsal``, ``refusals``, ``company``, ``padded_rows`` and ``zeros`` (what is checked before
anything is spent), ``items``, ``padding`` and ``sparing`` (rows that do not fit), ``looping`` (the
loop), ``trainer`` (what users make), ``gradients/`` for how per-example gradients are formed,
``correlated/`` for noise that cancels over steps, and ``distributed/`` for several processes.

======================  ==================================================
here                    Abadi et al., arXiv:1607.00133
======================  ==================================================
``lot_size``            L
``public_size``         N
``sample_rate``         q = L/N
``clip``                C
``noise_multiplier``    sigma
``steps``               T
======================  ==================================================
"""

from sfumato.learning.dp_sgd.clipping import Adaptive, Automatic, Clipping, Flat, PerLayer
from sfumato.learning.dp_sgd.correlated.errors import PrefixError, best_bands, prefix_error
from sfumato.learning.dp_sgd.correlated.strategies import (
    BandedNoise,
    BufferedNoise,
    Correlation,
    IndependentNoise,
    TreeNoise,
)
from sfumato.learning.dp_sgd.errors import TrainingError
from sfumato.learning.dp_sgd.in_order import InOrder
from sfumato.learning.dp_sgd.lots import FixedSizeLots, Lots, PoissonLots, ShuffledLots
from sfumato.learning.dp_sgd.noise import ChaChaNoise, CoinNoise, NoiseSource, TorchNoise
from sfumato.learning.dp_sgd.padding import PadTo
from sfumato.learning.dp_sgd.plan import TrainingPlan
from sfumato.learning.dp_sgd.schedules import NoiseSchedule
from sfumato.learning.dp_sgd.streamed_lots import CyclicPoissonLots, StreamedLots
from sfumato.learning.dp_sgd.trainer import DPSGD

__all__ = [
    "DPSGD",
    "Adaptive",
    "Automatic",
    "BandedNoise",
    "BufferedNoise",
    "ChaChaNoise",
    "Clipping",
    "CoinNoise",
    "Correlation",
    "CyclicPoissonLots",
    "FixedSizeLots",
    "Flat",
    "InOrder",
    "IndependentNoise",
    "Lots",
    "NoiseSchedule",
    "NoiseSource",
    "PadTo",
    "PerLayer",
    "PoissonLots",
    "PrefixError",
    "ShuffledLots",
    "StreamedLots",
    "TorchNoise",
    "TrainingError",
    "TrainingPlan",
    "TreeNoise",
    "best_bands",
    "prefix_error",
]
