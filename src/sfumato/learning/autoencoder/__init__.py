"""Private auto-encoders: codes, reconstructions, and a classifier of codes, by one account.

======================  ============================================================================
way                     what is noised
======================  ============================================================================
functional (default)    the coefficients of each layer's quadratic reconstruction objective, for an
                        encoder that is fixed beforehand: random and public, or released before
dp-sgd                  gradients of the whole network's reconstruction error
======================  ============================================================================

Read ``sensitivity`` (how far a row moves the coefficients), ``releases`` (one layer), ``planning``
(one account for all), ``training`` (a run), ``printed`` (what was printed, and is not private).

Symbols: x an input in [0, 1]^d, h a code in [0, 1]^b, W_j the weights that reconstruct input j,
A = sum (1/2 - x) h', B = sum h h' / 8, N the public number of rows, m a noise multiplier.

Reference: Phan, Wang, Wu and Dou, "Differential privacy preservation for deep auto-encoders: an
application of human behavior prediction", AAAI 2016, whose objective is kept and whose privacy
argument is not.
"""

from sfumato.learning.autoencoder.measuring import ReconstructionErrors
from sfumato.learning.autoencoder.network import AutoEncoder
from sfumato.learning.autoencoder.planning import RunPlan, planned
from sfumato.learning.autoencoder.recipe import AutoEncoderRecipe
from sfumato.learning.autoencoder.releases import LayerRelease
from sfumato.learning.autoencoder.run_models import read_autoencoder
from sfumato.learning.autoencoder.training import AutoEncoderTrained, plan_of, train_autoencoder

__all__ = [
    "AutoEncoder",
    "AutoEncoderRecipe",
    "AutoEncoderTrained",
    "LayerRelease",
    "ReconstructionErrors",
    "RunPlan",
    "plan_of",
    "planned",
    "read_autoencoder",
    "train_autoencoder",
]
