"""Differential privacy for deep learning, from the first noisy count to an audited model.

    >>> import sfumato as sf
    >>> sf.account(sf.dp_sgd(noise_multiplier=4, sample_rate=0.01, steps=10_000), delta=1e-5)
    Guarantee: epsilon 0.947, delta 1e-05, add or remove one record

Importing the package is light: a name is loaded when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from sfumato.accounting import (
        Accountant,
        PrivacyProfile,
        Trials,
        account,
        account_many,
        calibrate,
        calibrate_noise,
        calibrate_sample_rate,
        calibrate_steps,
        epsilon_curve,
        privacy_profile,
        selected_curve,
    )
    from sfumato.audit import (
        Finding,
        audit_games,
        audit_scores,
        audit_step,
        audit_training,
        audit_two_runs,
    )
    from sfumato.core import (
        Event,
        Guarantee,
        Neighbours,
        Norm,
        Record,
        Release,
        SeededCoins,
        Sensitivity,
        events,
    )
    from sfumato.core.events import compose, dp_sgd, repeat
    from sfumato.data import (
        Column,
        Dataset,
        Declaration,
        Features,
        Pictures,
        dataset_names,
        load_dataset,
        load_images,
        load_own,
        load_table,
        read_declaration,
    )
    from sfumato.federated import Federation
    from sfumato.learning.comparing import Comparison, compare
    from sfumato.learning.dp_sgd import (
        DPSGD,
        Adaptive,
        Automatic,
        BandedNoise,
        BufferedNoise,
        CyclicPoissonLots,
        FixedSizeLots,
        Flat,
        IndependentNoise,
        InOrder,
        NoiseSchedule,
        PadTo,
        PerLayer,
        PoissonLots,
        PrefixError,
        ShuffledLots,
        StreamedLots,
        TrainingError,
        TrainingPlan,
        TreeNoise,
        best_bands,
        prefix_error,
    )
    from sfumato.learning.erm.recipe import ErmRecipe
    from sfumato.learning.erm.training import train_erm
    from sfumato.learning.features import (
        PrivatePCA,
        PublicNetwork,
        ScatteringFeatures,
        StandardizedScattering,
    )
    from sfumato.learning.huggingface.arguments import PrivacyArguments
    from sfumato.learning.huggingface.documents import chunk_documents
    from sfumato.learning.huggingface.losses import class_losses, row_losses, token_losses
    from sfumato.learning.huggingface.rows import made_up_rows
    from sfumato.learning.huggingface.trainer import PrivateTrainer, PrivateTrainerMixin
    from sfumato.learning.label_dp import (
        LabelRecipe,
        NumberRecipe,
        label_preset,
        number_preset,
        train_label_dp,
    )
    from sfumato.learning.models import make_model
    from sfumato.learning.recipes import (
        Canaries,
        Rate,
        Recipe,
        Run,
        Trained,
        load_run,
        preset,
        train,
        train_plain,
    )
    from sfumato.ledger import Budget, BudgetExceeded, Ledger
    from sfumato.mechanisms import sensitivity
    from sfumato.mechanisms.crossover import crossover_dimension, laplace_or_gaussian
    from sfumato.mechanisms.discrete_gaussian import DiscreteGaussian
    from sfumato.mechanisms.discrete_laplace import DiscreteLaplace, noisy_count
    from sfumato.mechanisms.exponential import Exponential
    from sfumato.mechanisms.gaussian import Gaussian
    from sfumato.mechanisms.laplace import Laplace
    from sfumato.mechanisms.local import LocalLaplace
    from sfumato.mechanisms.noisy_max import ReportNoisyMax
    from sfumato.mechanisms.permute_and_flip import PermuteAndFlip
    from sfumato.mechanisms.randomized_response import RandomizedResponse
    from sfumato.mechanisms.sensitivity import falsify
    from sfumato.mechanisms.skellam import Skellam
    from sfumato.mechanisms.sparse_vector import SparseVector
    from sfumato.plots import plot
    from sfumato.queries import (
        Answer,
        ArgMax,
        Count,
        CountUnits,
        Crosstab,
        Histogram,
        LocalCount,
        LocalFrequency,
        LocalMean,
        Mean,
        Median,
        MostCommon,
        Protected,
        Quantile,
        Sum,
        Variance,
        protect,
    )

_HOMES = {
    "sfumato.accounting": (
        "Accountant PrivacyProfile Trials account account_many calibrate calibrate_noise "
        "calibrate_sample_rate calibrate_steps epsilon_curve privacy_profile selected_curve"
    ),
    "sfumato.audit": ("Finding audit_games audit_scores audit_step audit_training audit_two_runs"),
    "sfumato.core": "Event Guarantee Neighbours Norm Record Release SeededCoins Sensitivity events",
    "sfumato.core.events": "compose dp_sgd repeat",
    "sfumato.data": (
        "Column Dataset Declaration Features Pictures dataset_names load_dataset load_images "
        "load_own load_table read_declaration"
    ),
    "sfumato.federated": "Federation",
    "sfumato.learning.comparing": "Comparison compare",
    "sfumato.learning.dp_sgd": (
        "DPSGD Adaptive Automatic BandedNoise BufferedNoise CyclicPoissonLots FixedSizeLots Flat "
        "InOrder IndependentNoise NoiseSchedule PadTo PerLayer PoissonLots PrefixError "
        "ShuffledLots StreamedLots TrainingError TrainingPlan TreeNoise best_bands prefix_error"
    ),
    "sfumato.learning.erm.recipe": "ErmRecipe",
    "sfumato.learning.erm.training": "train_erm",
    "sfumato.learning.features": (
        "PrivatePCA PublicNetwork ScatteringFeatures StandardizedScattering"
    ),
    "sfumato.learning.huggingface.arguments": "PrivacyArguments",
    "sfumato.learning.huggingface.documents": "chunk_documents",
    "sfumato.learning.huggingface.losses": "class_losses row_losses token_losses",
    "sfumato.learning.huggingface.rows": "made_up_rows",
    "sfumato.learning.huggingface.trainer": "PrivateTrainer PrivateTrainerMixin",
    "sfumato.learning.label_dp": (
        "LabelRecipe NumberRecipe label_preset number_preset train_label_dp"
    ),
    "sfumato.learning.models": "make_model",
    "sfumato.learning.recipes": (
        "Canaries Rate Recipe Run Trained load_run preset train train_plain"
    ),
    "sfumato.ledger": "Budget BudgetExceeded Ledger",
    "sfumato.mechanisms.crossover": "crossover_dimension laplace_or_gaussian",
    "sfumato.mechanisms.discrete_gaussian": "DiscreteGaussian",
    "sfumato.mechanisms.discrete_laplace": "DiscreteLaplace noisy_count",
    "sfumato.mechanisms.exponential": "Exponential",
    "sfumato.mechanisms.gaussian": "Gaussian",
    "sfumato.mechanisms.laplace": "Laplace",
    "sfumato.mechanisms.local": "LocalLaplace",
    "sfumato.mechanisms.noisy_max": "ReportNoisyMax",
    "sfumato.mechanisms.permute_and_flip": "PermuteAndFlip",
    "sfumato.mechanisms.randomized_response": "RandomizedResponse",
    "sfumato.mechanisms": "sensitivity",
    "sfumato.mechanisms.sensitivity": "falsify",
    "sfumato.mechanisms.skellam": "Skellam",
    "sfumato.mechanisms.sparse_vector": "SparseVector",
    "sfumato.plots": "plot",
    "sfumato.queries": (
        "Answer ArgMax Count CountUnits Crosstab Histogram LocalCount LocalFrequency LocalMean "
        "Mean Median MostCommon Protected Quantile Sum Variance protect"
    ),
}
_HOME = {name: module for module, names in _HOMES.items() for name in names.split()}

__all__ = [
    "DPSGD",
    "Accountant",
    "Adaptive",
    "Answer",
    "ArgMax",
    "Automatic",
    "BandedNoise",
    "Budget",
    "BudgetExceeded",
    "BufferedNoise",
    "Canaries",
    "Column",
    "Comparison",
    "Count",
    "CountUnits",
    "Crosstab",
    "CyclicPoissonLots",
    "Dataset",
    "Declaration",
    "DiscreteGaussian",
    "DiscreteLaplace",
    "ErmRecipe",
    "Event",
    "Exponential",
    "Features",
    "Federation",
    "Finding",
    "FixedSizeLots",
    "Flat",
    "Gaussian",
    "Guarantee",
    "Histogram",
    "InOrder",
    "IndependentNoise",
    "LabelRecipe",
    "Laplace",
    "Ledger",
    "LocalCount",
    "LocalFrequency",
    "LocalLaplace",
    "LocalMean",
    "Mean",
    "Median",
    "MostCommon",
    "Neighbours",
    "NoiseSchedule",
    "Norm",
    "NumberRecipe",
    "PadTo",
    "PerLayer",
    "PermuteAndFlip",
    "Pictures",
    "PoissonLots",
    "PrefixError",
    "PrivacyArguments",
    "PrivacyProfile",
    "PrivatePCA",
    "PrivateTrainer",
    "PrivateTrainerMixin",
    "Protected",
    "PublicNetwork",
    "Quantile",
    "RandomizedResponse",
    "Rate",
    "Recipe",
    "Record",
    "Release",
    "ReportNoisyMax",
    "Run",
    "ScatteringFeatures",
    "SeededCoins",
    "Sensitivity",
    "ShuffledLots",
    "Skellam",
    "SparseVector",
    "StandardizedScattering",
    "StreamedLots",
    "Sum",
    "Trained",
    "TrainingError",
    "TrainingPlan",
    "TreeNoise",
    "Trials",
    "Variance",
    "__version__",
    "account",
    "account_many",
    "audit_games",
    "audit_scores",
    "audit_step",
    "audit_training",
    "audit_two_runs",
    "best_bands",
    "calibrate",
    "calibrate_noise",
    "calibrate_sample_rate",
    "calibrate_steps",
    "chunk_documents",
    "class_losses",
    "compare",
    "compose",
    "crossover_dimension",
    "dataset_names",
    "dp_sgd",
    "epsilon_curve",
    "events",
    "falsify",
    "label_preset",
    "laplace_or_gaussian",
    "load_dataset",
    "load_images",
    "load_own",
    "load_run",
    "load_table",
    "made_up_rows",
    "make_model",
    "noisy_count",
    "number_preset",
    "plot",
    "prefix_error",
    "preset",
    "privacy_profile",
    "protect",
    "read_declaration",
    "repeat",
    "row_losses",
    "selected_curve",
    "sensitivity",
    "token_losses",
    "train",
    "train_erm",
    "train_label_dp",
    "train_plain",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'sfumato' has no attribute {name!r}")
    from sfumato.extras import needed_for

    with needed_for(f"sfumato.{name}"):
        home = import_module(_HOME[name])
        value = getattr(home, name, None) or import_module(f"{_HOME[name]}.{name}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
