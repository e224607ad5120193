"""A recipe for labels that are numbers: everything about a run, before any label is read.

    >>> recipe = NumberRecipe(epsilon=2.0, histogram_share=0.1)
    >>> read_recipe(recipe.to_dict()) == recipe
    True
    >>> recipe.guarantee
    Guarantee: epsilon 2, delta 0, replace one label
    >>> recipe.method.histogram_epsilon, recipe.method.report_epsilon
    (0.2, 1.8)

Between which bounds labels are is declared with the data. All of it is public, and none of it may
be chosen by looking at private labels: ``origin`` says where the choice comes from.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, final

import numpy as np

from sfumato.core import validation
from sfumato.core.events import Event
from sfumato.core.guarantee import Guarantee
from sfumato.learning.label_dp.bins import BinnedResponse, Loss, checked_grid
from sfumato.learning.label_dp.recipe import LabelRecipe
from sfumato.learning.label_dp.regression import RegressionLabels
from sfumato.learning.label_dp.top_k import LABEL
from sfumato.learning.recipes.recipe import NOT_STATED

__all__ = ["NO_NETWORK", "NumberRecipe", "read_recipe"]

NO_NETWORK = "none"
"""Instead of a network's name: least squares alone."""

_KIND = "numbers"


@final
@dataclass(frozen=True)
class NumberRecipe:
    """How to train where labels are private numbers and inputs are public.

    Each label is told once, through bins (:mod:`~sfumato.learning.label_dp.bins`). Bins suit a
    noisy histogram of the labels, which costs a share of epsilon; or a guess that is public, or
    none, and all of epsilon is the reports'.

    Attributes:
        epsilon: of the histogram and of each label's one report together, hence of everything.
        histogram_share: of epsilon, for the histogram; 0 for none.
        points: of the grid that bins are made of, evenly from the least to the greatest label.
        loss: what a report should be close by: "squared" or "absolute".
        prior: a public guess of how probable each point is; () for none. Not besides a histogram.
        features: "none", or "wavelets": scattering coefficients, then the principal components of
            the public inputs.
        components: of the features.
        network: by name, see :mod:`~sfumato.learning.label_dp.networks`; it learns what least
            squares leave over. "none" for least squares alone.
        options: of the network.
        epochs: of the network's training.
        batch: rows of a step.
        rate: the highest learning rate of AdamW; it rises for a twentieth of the steps, then falls.
        weight_decay: of the optimizer.
        unit: "label": what is replaced, and nothing else.
        seed: of folds, first weights and orders; privacy does not rest on it.
        origin: where the hyper-parameters come from.
    """

    epsilon: float
    histogram_share: float = 0.1
    points: int = 32
    loss: Loss = "squared"
    prior: tuple[float, ...] = ()
    features: str = "none"
    components: int = 400
    network: str = NO_NETWORK
    options: dict[str, Any] = field(default_factory=dict[str, Any])
    epochs: float = 10.0
    batch: int = 256
    rate: float = 2e-3
    weight_decay: float = 0.01
    unit: str = LABEL
    seed: int = 0
    origin: str = NOT_STATED

    def __post_init__(self) -> None:
        for name in ("epsilon", "epochs", "rate"):
            object.__setattr__(self, name, validation.positive(name, getattr(self, name)))
        for name in ("weight_decay", "histogram_share"):
            object.__setattr__(self, name, validation.non_negative(name, getattr(self, name)))
        validation.count("components", self.components)
        validation.at_least("batch", self.batch, 2)
        validation.at_least("seed", self.seed, 0)
        if self.features not in ("none", "wavelets"):
            validation.fail("features", "one of none, wavelets", self.features)
        if self.network == NO_NETWORK and self.options:
            validation.fail("options", "left out without a network", self.options)
        self._check_prior()
        self.expected_bins  # noqa: B018  # or says why not, as the method does

    def _check_prior(self) -> None:
        prior = tuple(validation.non_negative("prior", p) for p in self.prior)
        object.__setattr__(self, "prior", prior)
        if prior and self.histogram_share:
            wanted = "0 with a prior, which is instead of a histogram"
            validation.fail("histogram_share", wanted, self.histogram_share)
        if prior:
            checked_grid(self.method.grid, np.array(prior))

    @cached_property
    def method(self) -> RegressionLabels:
        """What tells labels that are moved to between -1 and 1."""
        return RegressionLabels(
            self.epsilon, -1.0, 1.0, self.points, self.loss, self.histogram_share, self.unit
        )

    @property
    def expected_bins(self) -> BinnedResponse:
        """The best bins without a histogram: for the public guess, or for none."""
        return self.method.bins_for(self.prior or np.ones(self.points))

    @property
    def event(self) -> Event:
        """What the histogram and all reports together amount to."""
        return self.method.event

    @property
    def guarantee(self) -> Guarantee:
        """What that promises."""
        return self.method.guarantee

    @property
    def shares(self) -> tuple[float, ...]:
        """Of the labels that each stage reads: there is one stage."""
        return (1.0,)

    @property
    def optimizer(self) -> str:
        """Of the network."""
        return "adamw"

    @property
    def augment(self) -> str:
        """Inputs are taken as they are."""
        return "none"

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        plain = {f.name: getattr(self, f.name) for f in fields(self)}
        return {"kind": _KIND} | plain | {"prior": list(self.prior), "options": dict(self.options)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> NumberRecipe:
        """The inverse of :meth:`to_dict`."""
        return cls(**{name: value for name, value in data.items() if name != "kind"})


def read_recipe(data: Mapping[str, Any]) -> LabelRecipe | NumberRecipe:
    """A recipe for classes, or one for numbers, as its ``to_dict`` wrote it."""
    return (NumberRecipe if data.get("kind") == _KIND else LabelRecipe).from_dict(data)
