"""Several rounds as one game: as far apart in every round, whatever came before."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from sfumato.cli.audit_games import audit_draws, audit_product
from sfumato.core.neighbours import Neighbours
from sfumato.core.randomness import SeededCoins
from sfumato.learning.functional.games import round_game

ADD, REPLACE = Neighbours.ADD_REMOVE, Neighbours.REPLACE_ONE


def with_less_noise(made, share):
    noise = made.plan.mechanism
    name = "sigma" if hasattr(noise, "sigma") else "scale"
    made.plan.__dict__["mechanism"] = replace(noise, **{name: share * getattr(noise, name)})
    return made


@pytest.mark.parametrize("delta", [0.0, 1e-5])
@pytest.mark.parametrize("neighbours", [ADD, REPLACE])
@pytest.mark.parametrize("rounds", [1, 4, 32])
def test_rounds_show_what_is_claimed_and_a_tenth_less_noise_more(neighbours, delta, rounds):
    made = round_game(epsilon=1.0, delta=delta, neighbours=neighbours, rounds=rounds)
    assert len(made.log_ratios or made.mus) == rounds
    found = audit_product(made)
    assert not found.refuted
    assert found.epsilon > 0.999
    assert audit_product(with_less_noise(made, 0.9)).refuted


@pytest.mark.parametrize("delta", [0.0, 1e-5])
def test_a_round_moves_as_far_at_all_weights_that_can_be_reached(delta):
    made = round_game(epsilon=1.0, delta=delta, rounds=3)
    whole = made.centres[0] - made.centres[1]
    generator = torch.Generator().manual_seed(0)
    for _ in range(50):
        weights = [
            torch.rand(layer, generator=generator, dtype=torch.float64) / 2 - 0.25
            for layer in made.plan.topology.shapes
        ]
        one, other = made.centres_at(weights)
        assert np.abs(one - other - whole).max() < 1e-8
    ends = [torch.tensor([[-0.25, -0.25], [0.25, 0.25]], dtype=torch.float64)]
    one, other = made.centres_at(ends)
    assert np.abs(one - other - whole).max() < 1e-8


def test_weights_stay_within_reach_and_rounds_differ():
    made = round_game(epsilon=1.0, rounds=3, coins=SeededCoins(1))
    assert made.plan.rounds * made.plan.recipe.reach <= 0.25
    drawn = made(made.first, 2)
    assert drawn.shape == (2, 12)
    assert len(np.unique(drawn)) == drawn.size


def test_a_sampled_round_shows_ln_of_1_and_q_times_the_rest():
    made = round_game(epsilon=1.0, neighbours=ADD, sample_rate=0.25, rounds=2)
    inside = made.apart / made.noise.scale
    assert made.log_ratios[0] == pytest.approx(math.log(0.75 + 0.25 * math.exp(inside)))
    found = audit_product(made)
    assert 0.999 < found.epsilon <= 1
    assert audit_product(with_less_noise(made, 0.9)).refuted


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rounds": 0}, "rounds must be"),
        ({"clip": 0.6}, "clip must be at most 0.5"),
        ({"rows": 0}, "rows must be"),
        ({"sample_rate": 0.5}, "sample_rate must be 1"),
        ({"neighbours": "zero-out"}, "neighbours must be"),
    ],
)
def test_mistakes(options, message):
    with pytest.raises(ValueError, match=message):
        round_game(epsilon=1.0, **options)


def test_a_bound_for_normal_noise_is_not_taken_of_sampled_rounds():
    """Their law is another: this one promises 0.5 exactly, and would seem to break it."""
    made = round_game(
        epsilon=0.5, delta=0.04, neighbours=ADD, rows=1, sample_rate=0.05, coins=SeededCoins(3)
    )
    assert not made.normal
    found = audit_draws(made, 1000, 0.95)
    assert [one.method for one in found] == ["sampling"]
    assert not found[0].refuted
    assert round_game(epsilon=0.5, delta=0.04, neighbours=ADD).normal
    assert not round_game(epsilon=0.5, delta=0.0, neighbours=ADD).normal
