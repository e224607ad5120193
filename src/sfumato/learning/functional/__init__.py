"""The functional network: small networks trained by noisy quadratic expansions, pure epsilon.

=====================================  ==========================================================
:class:`FunctionalRecipe`              everything about a run, before any row is read
:func:`train_functional`               from a data set to a run's folder
:class:`FunctionalPlan`                what a run releases, and what that costs
:func:`expand`                         slopes and curvatures of each record's loss
:func:`noise_bounds`                   how much noise a network's shape asks for without a clip
:class:`MeanPool`                      means over squares of pixels: fewer weights
=====================================  ==========================================================

In each round the loss of every record is expanded to second order around public weights; slopes and
curvatures are clipped together, added, and released with Laplace noise; the noisy parabola's
minimiser is the next round's centre. The guarantee is pure where delta is 0. It needs n epsilon far
above twice the number of weights times rounds, which is why networks here are small.
"""

from sfumato.learning.features import MeanPool
from sfumato.learning.functional.bounds import NoiseBounds, noise_bounds, noise_figure
from sfumato.learning.functional.expansion import Expansion, expand
from sfumato.learning.functional.networks import Topology, as_module
from sfumato.learning.functional.plan import FunctionalPlan
from sfumato.learning.functional.recipe import FunctionalRecipe
from sfumato.learning.functional.training import (
    FunctionalTrained,
    fitted_weights,
    planned,
    train_functional,
)

__all__ = [
    "Expansion",
    "FunctionalPlan",
    "FunctionalRecipe",
    "FunctionalTrained",
    "MeanPool",
    "NoiseBounds",
    "Topology",
    "as_module",
    "expand",
    "fitted_weights",
    "noise_bounds",
    "noise_figure",
    "planned",
    "train_functional",
]
