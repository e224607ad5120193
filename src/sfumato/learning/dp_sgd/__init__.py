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

Names are loaded when first used: lots, clipping, plans and correlations are arithmetic, and need
no torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sfumato.lazy import homes, loader

if TYPE_CHECKING:
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

_HOMES = {
    "clipping": "Adaptive Automatic Clipping Flat PerLayer",
    "correlated.errors": "PrefixError best_bands prefix_error",
    "correlated.strategies": "BandedNoise BufferedNoise Correlation IndependentNoise TreeNoise",
    "errors": "TrainingError",
    "in_order": "InOrder",
    "lots": "FixedSizeLots Lots PoissonLots ShuffledLots",
    "noise": "ChaChaNoise CoinNoise NoiseSource TorchNoise",
    "padding": "PadTo",
    "plan": "TrainingPlan",
    "schedules": "NoiseSchedule",
    "streamed_lots": "CyclicPoissonLots StreamedLots",
    "trainer": "DPSGD",
}

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

__getattr__ = loader(__name__, homes(_HOMES))


def __dir__() -> list[str]:
    return sorted(__all__)
