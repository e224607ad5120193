"""All releases of an auto-encoder's run as one game."""

from dataclasses import replace

import pytest

from sfumato.cli.audit_games import audit_draws, audit_product
from sfumato.core.randomness import SeededCoins
from sfumato.learning.autoencoder.games import run_game
from sfumato.learning.autoencoder.recipe import HEADS, AutoEncoderRecipe

BOTH = pytest.mark.parametrize("neighbours", ["replace-one", "add-remove"])


def game(coins=None, columns=3, **options):
    recipe = AutoEncoderRecipe(**({"widths": (2,), "epsilon": 1.0} | options))
    return run_game(recipe, columns=columns, coins=coins or SeededCoins(1))


def with_less_noise(made, share):
    parts = [layer.release for layer in made.layers]
    parts += [] if made.head is None else [made.head.way]
    for part in parts:
        noise = part.mechanism
        name = "sigma" if hasattr(noise, "sigma") else "scale"
        part.__dict__["mechanism"] = replace(noise, **{name: share * getattr(noise, name)})
    return made


@BOTH
@pytest.mark.parametrize("delta", [0.0, 1e-5])
@pytest.mark.parametrize("head", ["none", "functional"])
def test_releases_show_what_is_claimed_and_a_tenth_less_noise_more(neighbours, delta, head):
    made = game(neighbours=neighbours, delta=delta, head=head, rounds=3)
    found = audit_product(made)
    assert not found.refuted
    loose = (neighbours, head) == ("replace-one", "functional")  # squares stand still
    assert found.epsilon > (0.9 if loose else 0.998)
    assert audit_product(with_less_noise(made, 0.85 if loose else 0.9)).refuted


@BOTH
@pytest.mark.parametrize("delta", [0.0, 1e-5])
def test_by_law_the_objective_has_the_layers_part_alone(neighbours, delta):
    made = game(neighbours=neighbours, delta=delta, head="objective", head_share=0.4)
    assert made.head is not None
    assert made.head.loss is None
    assert 0.57 < audit_product(made).epsilon <= 0.6 + 1e-9


@pytest.mark.parametrize("delta", [0.0, 1e-5])
def test_layers(delta):
    """Added, a row shows most in all of them; replaced, in the first."""
    options = {"widths": (3, 2), "delta": delta, "head": "none"}
    whole, half = (
        game(neighbours="add-remove", **options),
        game(neighbours="replace-one", **options),
    )
    assert (whole.left_out, half.left_out) == (0, 2)
    assert 0.998 < audit_product(whole).epsilon <= 1
    assert 0.4 < audit_product(half).epsilon < 0.8


@BOTH
@pytest.mark.parametrize("head", HEADS)
def test_draws_show_no_more(neighbours, head):
    for delta in (0.0, 1e-5):
        made = game(neighbours=neighbours, delta=delta, head=head, epsilon=4.0)
        assert not any(found.refuted for found in audit_draws(made, 400, 1 - 1e-9))


def test_draws_catch_noise_that_is_far_too_small():
    made = with_less_noise(game(epsilon=4.0, head="none", neighbours="replace-one"), 0.4)
    assert audit_draws(made, 700, 1 - 1e-9)[1].refuted


def test_as_in_a_run_of_digits():
    recipe = AutoEncoderRecipe(widths=(16,), epsilon=8.0, head="functional")
    made = run_game(recipe, columns=64, records=1437, classes=10)
    found = audit_product(made)
    assert 7.98 < found.epsilon <= 8


@pytest.mark.parametrize(
    ("recipe", "options", "message"),
    [
        ({"way": "dp-sgd"}, {}, "way must be 'functional'"),
        ({}, {"rows": 1}, "rows must be"),
        ({}, {"columns": 0}, "columns must be"),
        ({}, {"classes": 1}, "classes must be"),
    ],
)
def test_mistakes(recipe, options, message):
    with pytest.raises(ValueError, match=message):
        run_game(AutoEncoderRecipe(**recipe), **options)
