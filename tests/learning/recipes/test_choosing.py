"""Hyper-parameters chosen on public data: what is tried there is what will run, and it is free."""

from dataclasses import replace

import numpy as np
import pytest

from sfumato.data import load_dataset
from sfumato.learning.recipes import Recipe, train
from sfumato.learning.recipes import choosing as choosing_module
from sfumato.learning.recipes.canaries import Canaries
from sfumato.learning.recipes.choosing import choose
from sfumato.learning.recipes.rates import Rate

PRIVATE_SIZE = 5_000
BASE = Recipe("linear", lot_size=300, rate=Rate(1.0), epsilon=6, delta=1e-5, epochs=2)


@pytest.fixture(scope="module")
def digits():
    return load_dataset("digits")


def rates(*values, **more):
    return [replace(BASE, rate=Rate(rate), **more) for rate in values]


def test_the_best_on_public_rows_wins_and_says_so(digits):
    told = []
    choice = choose(
        rates(1e-4, 2.0, 1e-3), digits, public_size=PRIVATE_SIZE, repeats=2,
        watch=lambda number, recipe, score: told.append((number, recipe.rate.start, score)),
    )  # fmt: skip
    assert [(number, rate) for number, rate, _ in told] == [
        (n, r) for n, r in enumerate((1e-4, 2.0, 1e-3)) for _ in range(2)
    ]
    assert choice.scores == tuple(
        tuple(score for number, _, score in told if number == n) for n in range(3)
    )
    assert max(range(3), key=lambda n: np.mean(choice.scores[n])) == 1
    said = "chosen on digits, declared public: the best of 3, tried 2 times each"
    assert choice.recipe == replace(BASE, rate=Rate(2.0), origin=said)
    assert choice.chosen_on == "digits"


def test_what_is_tried_has_the_noise_and_steps_of_the_private_run(digits, monkeypatch):
    """The public data are smaller: by their own size noise and steps would be others."""
    seen = []

    def watched(recipe, data, **more):
        seen.append(recipe)
        return train(recipe, data, **more)

    monkeypatch.setattr(choosing_module, "train", watched)
    choice = choose(rates(1.0), digits, public_size=PRIVATE_SIZE)
    plan = choice.recipe.plan(PRIVATE_SIZE)
    (tried,) = seen
    assert (tried.noise_multiplier, tried.steps) == (plan.noise_multiplier, plan.steps)
    assert tried.lot_size == choice.recipe.lot_size
    assert plan.steps == round(2 * PRIVATE_SIZE / 300) != BASE.plan(1437).steps
    assert (choice.recipe.epsilon, choice.recipe.epochs) == (6, 2)  # as it was asked for


def test_an_origin_that_was_stated_stays(digits):
    choice = choose(rates(1.0, origin="a book"), digits, public_size=PRIVATE_SIZE)
    assert choice.recipe.origin.startswith("a book; chosen on digits, declared public")


@pytest.mark.parametrize(
    ("candidates", "change", "said"),
    [
        ([], {}, "at least one recipe"),
        (rates(1.0, lot_size=2_000), {}, "at most the 1437 rows of 'digits'"),
        (rates(1.0, model="nonsense"), {}, "nonsense"),
        (rates(1.0, canaries=Canaries(5)), {}, "no canaries"),
        (rates(1.0), {"repeats": 0}, "repeats"),
    ],
)
def test_mistakes_come_before_the_first_run(digits, monkeypatch, candidates, change, said):
    monkeypatch.setattr(choosing_module, "train", lambda *_, **__: pytest.fail("was run"))
    with pytest.raises(ValueError, match=said):
        choose(candidates, digits, public_size=PRIVATE_SIZE, **change)


def test_public_data_need_test_rows(digits):
    empty = type(digits.test)(digits.test.inputs[:0], digits.test.labels[:0])
    with pytest.raises(ValueError, match="test rows to choose by"):
        choose(rates(1.0), replace(digits, test=empty), public_size=PRIVATE_SIZE)
