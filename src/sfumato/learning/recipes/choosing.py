"""Hyper-parameters chosen on public data, for nothing.

    chosen = choose(candidates, load_dataset("fashion-mnist"), public_size=60_000)
    train(chosen.recipe, load_dataset("mnist"), out="runs/mnist")

Every candidate is trained on data that was *declared public*, with the noise, the lots and the
number of steps that it would have on the private data, and scored on the public data's own test
rows. The best is then trained once on the private data, at the whole epsilon.

Guarantee: none is needed for the choice, and none is given to the people in the public data: it is
the caller who declares that they are to be protected from nobody. Nothing of the private data is
read, but for what is public about it (its declared size). The record of the private run says on
which data the choice was made, and that they were declared public.

Where there is no public data of the kind, :mod:`~sfumato.learning.recipes.tuning` chooses on the
private data, and pays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import final

from sfumato.core import validation
from sfumato.core.randomness import SYSTEM, Coins
from sfumato.data import Dataset
from sfumato.learning.recipes.observing import Observer, Shown
from sfumato.learning.recipes.preparing import check_sizes
from sfumato.learning.recipes.recipe import NOT_STATED, Recipe
from sfumato.learning.recipes.training import check_recipe, train

__all__ = ["Choice", "choose"]


@final
@dataclass(frozen=True)
class Choice:
    """What was chosen on public data. All of it may be told.

    Attributes:
        recipe: the best candidate; its ``origin`` says where it was chosen.
        scores: of each candidate in turn, its accuracies on the public test rows.
        chosen_on: the public data's name.
    """

    recipe: Recipe
    scores: tuple[tuple[float, ...], ...]
    chosen_on: str


def choose(
    candidates: Sequence[Recipe],
    public: Dataset,
    *,
    public_size: int,
    repeats: int = 1,
    device: str = "cpu",
    observer: Observer | None = None,
    watch: Callable[[int, Recipe, float], None] | None = None,
    coins: Coins = SYSTEM,
) -> Choice:
    """The best of the candidates on data that are declared public, by being given here.

    Args:
        candidates: for the private data, with their epsilon or noise.
        public: what they are tried on: never the private data, nor a part of them.
        public_size: the declared number of units of the *private* data, from which noise and steps
            of each candidate follow.
        repeats: how often each is trained; the mean accuracy counts.
        device: such as "cuda".
        observer: who is told of each run.
        watch: is told the candidate's number, the candidate and the score of each run.
        coins: of the runs.

    Raises:
        ValueError: if a candidate cannot be tried on these data, before any is.
    """
    times = validation.count("repeats", repeats)
    if not candidates:
        validation.fail("candidates", "at least one recipe", candidates)
    if public.test is None or not len(public.test.labels):
        raise ValueError(f"the public data {public.name!r} must have test rows to choose by")
    size = max(check_sizes(recipe, public, None) for recipe in candidates)
    tried = [_as_it_will_be(recipe, public_size) for recipe in candidates]
    for recipe in tried:
        if recipe.lot_size > size:
            validation.fail(
                "lot_size", f"at most the {size} rows of {public.name!r}", recipe.lot_size
            )
        check_recipe(recipe, public, size, device)
    shown = Shown(False) if observer is None else observer
    scores: list[tuple[float, ...]] = []
    for number, recipe in enumerate(tried):
        own: list[float] = []
        for _ in range(times):
            trained = train(
                recipe, public, public_size=size, device=device, evaluations=0, observer=shown,
                coins=coins,
            )  # fmt: skip
            assert trained.accuracy is not None
            own.append(trained.accuracy)
            if watch is not None:
                watch(number, candidates[number], own[-1])
        scores.append(tuple(own))
    best = max(range(len(scores)), key=lambda number: sum(scores[number]))  # of equals, the first
    return Choice(_told(candidates[best], public, len(scores), times), tuple(scores), public.name)


def _as_it_will_be(recipe: Recipe, public_size: int) -> Recipe:
    """With the noise and the steps that it has on the private data, whatever size these have."""
    if recipe.canaries is not None:
        raise ValueError("candidates must have no canaries: audit the recipe that won")
    plan = recipe.plan(public_size)
    return replace(
        recipe, epsilon=None, epochs=None, noise_multiplier=plan.noise_multiplier, steps=plan.steps
    )


def _told(recipe: Recipe, public: Dataset, count: int, times: int) -> Recipe:
    """With an origin that says where it was chosen."""
    each = "once each" if times == 1 else f"{times} times each"
    said = f"chosen on {public.name}, declared public: the best of {count}, tried {each}"
    known = recipe.origin
    origin = known.replace(NOT_STATED, said) if NOT_STATED in known else f"{known}; {said}"
    return replace(recipe, origin=origin)
