"""The adaptive Laplace mechanism, corrected: noisy records, with more noise where it matters less.

===========================================  =======================================================
:class:`NoisyInputs`                         a record's inputs, told once, by shares of relevance
:class:`NoisyLabels`                         its label, told once
:func:`train_adaptive_laplace`               both for all records, and a model of them
:func:`learn_again`                          another model of the same, for nothing
:mod:`~sfumato.learning.adaptive_laplace.printed`  what the published version gives, and specimens
===========================================  =======================================================

Symbols: d inputs, beta_j the share of input j (sum d), e1, e2, e3 for relevance, inputs and labels,
b_j = range_j d / (beta_j e2) the scale of the noise on input j.
"""

from sfumato.learning.adaptive_laplace.inputs import NoisyInputs
from sfumato.learning.adaptive_laplace.labels import NoisyLabels
from sfumato.learning.adaptive_laplace.recipe import AdaptiveLaplaceRecipe
from sfumato.learning.adaptive_laplace.training import (
    AdaptiveLaplaceTrained,
    learn_again,
    train_adaptive_laplace,
)

__all__ = [
    "AdaptiveLaplaceRecipe",
    "AdaptiveLaplaceTrained",
    "NoisyInputs",
    "NoisyLabels",
    "learn_again",
    "train_adaptive_laplace",
]
