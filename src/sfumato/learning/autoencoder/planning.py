"""What a run releases and what that costs, from public facts alone.

    >>> recipe = AutoEncoderRecipe(widths=(25,), epsilon=1.0)
    >>> plan = planned(recipe, columns=784, records=60_000, classes=10)
    >>> plan.guarantee
    Guarantee: epsilon 1, delta 1e-05, add or remove one record
    >>> len(plan.releases), plan.event.kind
    (2, 'composed')

One account pays for everything: each layer's releases, or all steps of descent, and the classifier.
Each sees the whole table, and each but the first may depend on what was released before: that is
composition, and there is no way around it (:func:`~.printed.spent_thrice` is what comes of not
adding up).

- All normal (functional layers, functional head): releases of multipliers m_i are together one of
  multiplier m with 1/m^2 = sum 1/m_i^2, exactly. The head has the share s of 1/m^2, and the layers'
  R releases (1 - s) / R each.
- Otherwise epsilons add, and deltas: s of both for the head, the rest for the layers, of which pure
  releases take equal parts, and normal ones equal parts of 1/m^2.
- Descent: its noise is the least for which its steps and the head together cost epsilon, by
  privacy loss distributions.

References: Dong, Roth and Su, arXiv:1905.02383, corollary 2 (normal releases compose exactly);
Dwork and Roth (2014), theorem B.1 (epsilons and deltas add, adaptively).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, final

from sfumato.core import validation
from sfumato.core.events import Event, GaussianEvent, compose
from sfumato.core.gaussian_profile import composed_multiplier, gaussian_epsilon, least_multiplier
from sfumato.core.guarantee import Guarantee
from sfumato.core.neighbours import Neighbours
from sfumato.core.randomness import Coins
from sfumato.learning.autoencoder.encoding import MOST_COLUMNS
from sfumato.learning.autoencoder.recipe import AutoEncoderRecipe
from sfumato.learning.autoencoder.releases import LayerRelease
from sfumato.learning.dp_sgd import Flat, PoissonLots, TrainingPlan
from sfumato.learning.erm.classifiers import PrivateLogisticRegression

__all__ = ["Head", "RunPlan", "planned"]

_DESCENT = "floating point, ideal Gaussian assumed; codes taken to be a function of each row alone"
_UP, _DOWN = 1 + 2.0**-30, 1 - 2.0**-40


@final
@dataclass(frozen=True)
class Head:
    """A private classifier of codes in [0, 1], by :mod:`sfumato.learning.erm`.

    Attributes:
        way: as there.
        epsilon, delta: its part.
        classes: how many.
        records: N, public.
        neighbours, unit: of the guarantee.
    """

    way: str
    epsilon: float
    delta: float
    classes: int
    records: int
    neighbours: Neighbours
    unit: str

    def estimator(self, coins: Coins | None = None) -> PrivateLogisticRegression:
        """Not fitted yet, and charged to nobody: the run is charged as a whole."""
        replaced = self.neighbours is Neighbours.REPLACE_ONE
        return PrivateLogisticRegression(
            classes=tuple(range(self.classes)), epsilon=self.epsilon, delta=self.delta,
            way=self.way, bounds=(0.0, 1.0), norm=1.0, neighbours=self.neighbours.value,
            public_size=None if replaced else self.records, unit=self.unit, coins=coins,
        )  # fmt: skip

    def event(self, width: int) -> Event:
        """What a fit on so many codes releases."""
        return self.estimator().plan(width, self.records).event

    def facts(self, width: int) -> dict[str, Any]:
        """For the record; public."""
        way = self.estimator().plan(width, self.records)
        return {"way": self.way, "epsilon": self.epsilon, "delta": self.delta} | way.facts


@final
@dataclass(frozen=True, eq=False)
class RunPlan:
    """Everything that the guarantee of a run depends on.

    Attributes:
        releases: of the functional way, in order: ``rounds`` for each layer.
        descent: of the other way.
        head: None for none.
        event: all of it together.
        guarantee: what that promises.
        records: N, public.
    """

    releases: tuple[LayerRelease, ...]
    descent: TrainingPlan | None
    head: Head | None
    event: Event
    guarantee: Guarantee
    records: int

    def facts(self, width: int) -> dict[str, Any]:
        """Sensitivities and noise, for the record; public."""
        found: dict[str, Any] = {"records": self.records}
        if self.releases:
            found["releases"] = [release.facts for release in self.releases]
        if self.descent is not None:
            found["descent"] = {
                "steps": self.descent.steps,
                "noise_multiplier": self.descent.noise_multiplier,
                "arithmetic": _DESCENT,
            }
        return found | ({} if self.head is None else {"head": self.head.facts(width)})


def planned(
    recipe: AutoEncoderRecipe, columns: int, records: int, classes: int | None = None
) -> RunPlan:
    """The plan of a run on rows of so many columns.

    Args:
        recipe: how.
        columns: of a row.
        records: N, the public number of rows.
        classes: how many there are; None if the head is "none".

    Raises:
        ValueError: for what cannot be.
    """
    if validation.count("columns", columns) > MOST_COLUMNS:
        validation.fail("columns", f"at most {MOST_COLUMNS}", columns)
    records = validation.count("records", records)
    if recipe.head != "none" and classes is None:
        validation.fail("head", "'none' where labels are no classes", recipe.head)
    if recipe.way == "dp-sgd":
        return _by_descent(recipe, records, classes)
    if recipe.delta and recipe.head in ("functional", "none"):
        return _all_normal(recipe, columns, records, classes)
    return _by_adding(recipe, columns, records, classes)


def _head(
    recipe: AutoEncoderRecipe, epsilon: float, delta: float, classes: int | None, records: int
) -> Head | None:
    if recipe.head == "none" or classes is None:
        return None
    return Head(
        recipe.head, epsilon, delta, classes, records, recipe.neighbours, recipe.unit
    )  # fmt: skip


def _layers(recipe: AutoEncoderRecipe, columns: int) -> list[tuple[int, int]]:
    """Inputs and codes of each release."""
    sizes = (columns, *recipe.widths)
    return [pair for pair in pairwise(sizes) for _ in range(recipe.rounds)]


def _normal(
    recipe: AutoEncoderRecipe, columns: int, records: int, multiplier: float
) -> tuple[LayerRelease, ...]:
    """Releases that are together one of this multiplier."""
    layers = _layers(recipe, columns)
    each = multiplier * math.sqrt(len(layers)) * _UP
    about: dict[str, Any] = {"neighbours": recipe.neighbours, "unit": recipe.unit}
    return tuple(LayerRelease.normal(d, b, records, multiplier=each, **about) for d, b in layers)


def _pure(
    recipe: AutoEncoderRecipe, columns: int, records: int, epsilon: float
) -> tuple[LayerRelease, ...]:
    layers = _layers(recipe, columns)
    each = epsilon / len(layers) * _DOWN
    about: dict[str, Any] = {"neighbours": recipe.neighbours, "unit": recipe.unit}
    return tuple(LayerRelease.pure(d, b, records, epsilon=each, **about) for d, b in layers)


def _all_normal(
    recipe: AutoEncoderRecipe, columns: int, records: int, classes: int | None
) -> RunPlan:
    whole, share = least_multiplier(recipe.epsilon, recipe.delta), recipe.share
    releases = _normal(recipe, columns, records, whole / math.sqrt(1 - share))
    head = None
    if share:
        part = gaussian_epsilon(whole / math.sqrt(share) * _UP, recipe.delta)
        head = _head(recipe, part, recipe.delta, classes, records)
    plan = _composed(recipe, releases, head, records)
    parts = [event.noise_multiplier for event in _parts(plan) if isinstance(event, GaussianEvent)]
    together = composed_multiplier((m, 1) for m in parts)
    if len(parts) != len(_parts(plan)) or gaussian_epsilon(together, recipe.delta) > recipe.epsilon:
        raise ValueError(
            f"epsilon must be one that layers and head can share, got {recipe.epsilon!r}: take "
            "another, or head='none'"
        )
    return plan


def _by_adding(
    recipe: AutoEncoderRecipe, columns: int, records: int, classes: int | None
) -> RunPlan:
    share = recipe.share
    epsilon, delta = (1 - share) * recipe.epsilon * _DOWN, (1 - share) * recipe.delta * _DOWN
    if recipe.delta:
        releases = _normal(recipe, columns, records, least_multiplier(epsilon, delta))
    else:
        releases = _pure(recipe, columns, records, epsilon)
    head = _head(
        recipe, share * recipe.epsilon * _DOWN, share * recipe.delta * _DOWN, classes, records
    )
    return _composed(recipe, releases, head, records)


def _parts(plan: RunPlan) -> list[Event]:
    parts: list[Event] = [release.event for release in plan.releases]
    return parts if plan.head is None else [*parts, plan.head.event(plan.releases[-1].width)]


def _composed(
    recipe: AutoEncoderRecipe, releases: tuple[LayerRelease, ...], head: Head | None, records: int
) -> RunPlan:
    promise = Guarantee(
        recipe.epsilon, recipe.delta, recipe.neighbours, recipe.unit, "composition of releases"
    )
    draft = RunPlan(releases, None, head, releases[0].event, promise, records)
    return RunPlan(releases, None, head, compose(*_parts(draft)), promise, records)


def _by_descent(recipe: AutoEncoderRecipe, records: int, classes: int | None) -> RunPlan:
    head, before = None, None
    if share := recipe.share:
        head = _head(recipe, *_part_of(recipe, share), classes, records)
        assert head is not None
        before = head.event(recipe.widths[-1])
    if recipe.lot_size > records:
        validation.fail("lot_size", f"at most the declared size ({records})", recipe.lot_size)
    descent = TrainingPlan.make(
        PoissonLots(recipe.lot_size, records), Flat(recipe.clip), delta=recipe.delta,
        epsilon=recipe.epsilon, epochs=recipe.epochs, neighbours=recipe.neighbours,
        unit=recipe.unit, before=before,
    )  # fmt: skip
    return RunPlan((), descent, head, descent.event, descent.guarantee, records)


def _part_of(recipe: AutoEncoderRecipe, share: float) -> tuple[float, float]:
    """The head's epsilon and delta beside descent."""
    if recipe.head != "functional":
        return share * recipe.epsilon, share * recipe.delta
    whole = least_multiplier(recipe.epsilon, recipe.delta)
    return gaussian_epsilon(whole / math.sqrt(share), recipe.delta), recipe.delta
