"""Label privacy: inputs are public, labels are private, each is randomised once.

    data = sf.load_dataset("mnist")
    trained = train_label_dp(label_preset(data, epsilon=2.0), data, out="runs/labels")

    wages = sf.load_dataset("wages.csv", sf.read_declaration("wages.toml"))  # with label_bounds
    trained = train_label_dp(number_preset(wages, epsilon=3.0), wages, out="runs/wages")

===========================  ======================================================================
:mod:`.top_k`                randomised response within a public set of classes
:mod:`.with_prior`           the best such set for a prior (RR-with-prior)
:mod:`.alibi`                one-hot vectors with Laplace noise, and their posterior
:mod:`.bins`                 the best bins for numbers (RR-on-bins), :mod:`.regression` their use
:mod:`.targets`              hard, debiased and soft labels
:mod:`.contrastive`          networks learn from the public inputs first
:mod:`.training`             one stage or several, with networks: LP-1ST, LP-2ST, LP-MST
:mod:`.number_runs`          the same of numbers: bins, reports, least squares or a network
===========================  ======================================================================

In the papers' symbols: ``epsilon`` is eps, ``classes`` K, ``sets`` Y_k, ``temperature`` T,
``mixup`` alpha, ``shares`` the split n_1 / n, n_2 / n, ...
"""

from sfumato.learning.label_dp.alibi import NoisyOneHot
from sfumato.learning.label_dp.bins import BinnedResponse, best_bins
from sfumato.learning.label_dp.fitting import OutOfTime
from sfumato.learning.label_dp.number_recipe import NumberRecipe
from sfumato.learning.label_dp.presets import label_preset, label_preset_names, number_preset
from sfumato.learning.label_dp.recipe import LabelRecipe
from sfumato.learning.label_dp.regression import RegressionLabels, RegressionReports
from sfumato.learning.label_dp.targets import debiased_loss, debiased_targets, soft_targets
from sfumato.learning.label_dp.top_k import LABEL, TopKResponse
from sfumato.learning.label_dp.training import LabelTrained, train_label_dp
from sfumato.learning.label_dp.with_prior import best_sets, respond_with_prior

__all__ = [
    "LABEL",
    "BinnedResponse",
    "LabelRecipe",
    "LabelTrained",
    "NoisyOneHot",
    "NumberRecipe",
    "OutOfTime",
    "RegressionLabels",
    "RegressionReports",
    "TopKResponse",
    "best_bins",
    "best_sets",
    "debiased_loss",
    "debiased_targets",
    "label_preset",
    "label_preset_names",
    "number_preset",
    "respond_with_prior",
    "soft_targets",
    "train_label_dp",
]
