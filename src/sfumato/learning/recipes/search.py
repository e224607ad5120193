"""A search over recipes: its candidates, its number of runs, and what all of it costs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np

from sfumato.accounting import Trials, account, calibrate, selected_curve
from sfumato.accounting.dpa import DEFAULT_ORDERS
from sfumato.accounting.rdp import rdp_vector
from sfumato.core import validation
from sfumato.core.events import Event, RdpCurveEvent
from sfumato.core.guarantee import Guarantee
from sfumato.core.randomness import Coins
from sfumato.learning.recipes.recipe import Recipe
from sfumato.mechanisms.sampling import uniform_integers

__all__ = ["Search", "SearchPlan"]


@final
@dataclass(frozen=True)
class SearchPlan:
    """What a search costs, before a row is read.

    Attributes:
        noise_multiplier: of every candidate.
        event: everything that is released.
        guarantee: what that amounts to.
    """

    noise_multiplier: float
    event: RdpCurveEvent
    guarantee: Guarantee


@final
@dataclass(frozen=True)
class Search:
    """Candidates, and the law of the number of runs.

    Attributes:
        candidates: recipes that say how long to train (``epochs`` or ``steps``), and neither
            epsilon nor noise, which follow; all for one relation and one unit.
        trials: how many runs; at least one.
        epsilon: of the whole search.
        delta: likewise.
    """

    candidates: tuple[Recipe, ...]
    trials: Trials
    epsilon: float
    delta: float = 1e-5

    def __post_init__(self) -> None:
        validation.positive("epsilon", self.epsilon)
        validation.open_probability("delta", self.delta)
        if not self.candidates:
            validation.fail("candidates", "at least one recipe", self.candidates)
        if self.trials.poisson:
            validation.fail("trials", "a law of at least one run, not a Poisson one", self.trials)
        for recipe in self.candidates:
            if recipe.epsilon is not None or recipe.noise_multiplier is not None:
                raise ValueError(
                    "candidates must leave epsilon and noise_multiplier open: the search finds the "
                    "noise by which all of it costs epsilon"
                )
            if recipe.canaries is not None:
                raise ValueError("candidates must have no canaries: audit the recipe that won")
        if len({(r.neighbours, r.unit, r.rows_per_owner) for r in self.candidates}) > 1:
            raise ValueError("candidates must all be for one relation, one unit and one bound")

    def plan(self, public_size: int) -> SearchPlan:
        """The noise, and the guarantee, for so many units, as declared."""
        noise = calibrate(
            lambda multiplier: self.event(public_size, multiplier),
            epsilon=self.epsilon,
            delta=self.delta,
        )
        event = self.event(public_size, noise)
        return SearchPlan(noise, event, account(event, self.delta))

    def event(self, public_size: int, noise_multiplier: float) -> RdpCurveEvent:
        """Everything that a search with so much noise releases."""
        first = self.candidates[0]
        events: list[Event] = []
        for recipe in self.candidates:
            found = self.priced(recipe, noise_multiplier).event(public_size)
            if found not in events:  # most searches vary what costs nothing
                events.append(found)
        curves = [rdp_vector(event, first.neighbours) for event in events]
        if any(curve.slack > 0 for curve in curves):
            raise ValueError("candidates must have an RDP: leave out max_lot, which costs delta")
        worst = np.max([curve.values for curve in curves], axis=0)
        usable = np.isfinite(worst)
        orders = np.asarray(DEFAULT_ORDERS)[usable]
        one = RdpCurveEvent(
            tuple(orders.tolist()), tuple(worst[usable].tolist()), False, first.neighbours,
            first.unit,
        )  # fmt: skip
        return selected_curve(one, self.trials)

    def priced(self, recipe: Recipe, noise_multiplier: float) -> Recipe:
        """A candidate with the noise of the search."""
        return replace(recipe, noise_multiplier=noise_multiplier, delta=self.delta)

    def draw(self, coins: Coins) -> list[int]:
        """The secret coins of one search: for each run the place of its candidate, drawn fairly.

        They are drawn before a row is read, whatever the data are.
        """
        count = self.trials.draw(coins)
        return [int(uniform_integers(len(self.candidates), 1, coins)[0]) for _ in range(count)]

    @property
    def said(self) -> str:
        """For a record: where the hyper-parameters come from."""
        return (
            f"chosen on this data and paid for: the best, on public test rows, of a random number "
            f"of runs (mean {self.trials.mean:g}, shape {self.trials.shape:g}) among "
            f"{len(self.candidates)} candidates"
        )

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return {
            "candidates": [recipe.to_dict() for recipe in self.candidates],
            "trials": {"mean": self.trials.mean, "shape": self.trials.shape},
            "epsilon": self.epsilon,
            "delta": self.delta,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Search:
        """The inverse of :meth:`to_dict`."""
        candidates = tuple(Recipe.from_dict(each) for each in data["candidates"])
        return cls(candidates, Trials(**data["trials"]), data["epsilon"], data["delta"])
