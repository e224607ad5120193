"""A layer's release as an attacker sees it, and what was printed as he sees that."""

import math
from dataclasses import replace

import numpy as np
import pytest

from sfumato.audit.exact import audit_finite
from sfumato.audit.mechanism import audit_mechanism
from sfumato.audit.pairs import audit_law
from sfumato.core.guarantee import Guarantee
from sfumato.core.neighbours import Neighbours
from sfumato.core.randomness import SeededCoins
from sfumato.core.sensitivity import Norm, Sensitivity
from sfumato.learning.autoencoder.encoding import random_encoder
from sfumato.learning.autoencoder.games import layer_game
from sfumato.learning.autoencoder.printed import (
    printed_bound,
    retrained_steps,
    shared_noise_codes,
    spent_thrice,
    subtracted,
)
from sfumato.learning.autoencoder.releases import Coefficients, LayerRelease
from sfumato.mechanisms.gaussian import Gaussian
from sfumato.mechanisms.laplace import Laplace

BOTH = pytest.mark.parametrize(
    "neighbours", [Neighbours.REPLACE_ONE, Neighbours.ADD_REMOVE], ids=str
)


def exact(game, claim=None):
    """What the noise shows of the two tables: computed, as for the length of what moves."""
    apart, noise = game.centres[0] - game.centres[1], game.release.mechanism
    if isinstance(noise, Gaussian):
        moved = float(np.linalg.norm(apart))
        one = Gaussian(noise.sigma, Sensitivity(moved), game.claim.delta)
    else:
        moved = float(np.abs(apart).sum())
        one = Laplace(noise.scale, Sensitivity(moved))
    return audit_law(one, claim=claim or game.claim, pairs=[(0.0, moved)])


@BOTH
@pytest.mark.parametrize("delta", [0.0, 1e-5])
def test_a_row_is_told_apart_as_well_as_claimed_and_no_better(neighbours, delta):
    game = layer_game(epsilon=1.0, delta=delta, neighbours=neighbours)
    found = exact(game)
    assert not found.refuted
    assert found.epsilon > 0.98
    assert exact(game, replace(game.claim, epsilon=0.95)).refuted


@BOTH
def test_a_replacements_noise_is_needed_for_replacements(neighbours):
    """The noise for a row that is added, on tables in which one is replaced, is not enough."""
    game = layer_game(epsilon=1.0, neighbours=Neighbours.REPLACE_ONE)
    other = layer_game(epsilon=1.0, neighbours=neighbours)
    scale = other.release.mechanism.scale
    moved = float(np.abs(game.centres[0] - game.centres[1]).sum())
    found = audit_law(Laplace(scale, Sensitivity(moved)), claim=game.claim, pairs=[(0.0, moved)])
    assert found.refuted == (neighbours is Neighbours.ADD_REMOVE)


@BOTH
@pytest.mark.parametrize("delta", [0.0, 0.01])
def test_draws_show_no_more_than_claimed(neighbours, delta):
    game = layer_game(epsilon=2.0, delta=delta, neighbours=neighbours, coins=SeededCoins(4))
    found = audit_mechanism(
        game, [(game.first, game.second)], claim=game.claim, samples=2000, confidence=0.999
    )
    assert not found.refuted


def test_draws_catch_half_of_the_noise():
    game = layer_game(epsilon=2.0, coins=SeededCoins(5))
    noise = game.release.mechanism
    game.release.__dict__["mechanism"] = Laplace(noise.scale / 2, noise.sensitivity)
    found = audit_mechanism(
        game, [(game.first, game.second)], claim=game.claim, samples=8000, confidence=0.999
    )
    assert found.refuted


# --- as printed -----------------------------------------------------------------------------------


def test_one_vector_of_noise_for_all_codes_is_subtracted():
    """Whatever its scale: who knows one row reads all the others' codes."""
    rows = np.random.default_rng(0).random((5, 8))
    codes = random_encoder(8, 3, gain=4.0, seed=0).codes(rows)
    for scale in (0.35525, 1e6):
        shown = shared_noise_codes(codes, scale, SeededCoins(1))
        found = shown - shown[0] + codes[0]
        np.testing.assert_allclose(found, codes, atol=1e-9 * max(scale, 1))


def test_a_game_catches_the_shared_noise():
    first, second = np.array([[0.0], [0.0]]), np.array([[1.0], [0.0]])
    coins, scale = SeededCoins(2), 100.0

    def draw(codes, count):
        return np.array([shared_noise_codes(codes, scale, coins).ravel() for _ in range(count)])

    claim = Guarantee(1 / scale, 0.0, Neighbours.REPLACE_ONE)
    found = audit_mechanism(draw, [(first, second)], claim=claim, samples=4000, confidence=0.999)
    assert found.refuted
    differences = np.diff(draw(first, 50)), np.diff(draw(second, 50))
    assert max(abs(differences[0]).max(), abs(differences[1] + 1).max()) < 1e-9


def test_epsilon_that_is_spent_three_times_is_three_epsilon():
    """Exactly: that three releases are all beyond a centre has probabilities of ratio e^(3 eps)."""
    game = layer_game(epsilon=0.5, columns=1, width=1)
    noise = game.release.mechanism
    moved = float(np.abs(game.centres[0] - game.centres[1]).sum())
    beyond = 0.5**3, (0.5 * math.exp(-moved / noise.scale)) ** 3
    found = audit_finite(*([p, 1 - p] for p in beyond), claim=game.claim)
    assert found.refuted
    assert found.epsilon == pytest.approx(1.5, rel=1e-3)
    release = LayerRelease.pure(3, 2, 4, epsilon=0.5, neighbours=Neighbours.REPLACE_ONE)
    noise = release.mechanism
    encoder = random_encoder(3, 2, gain=1.0, seed=0)
    rows = np.random.default_rng(1).random((4, 3))
    three = spent_thrice(release, rows, encoder, SeededCoins(3))
    drawn = np.array([found.linear for found in three])
    assert (drawn[0] != drawn[1]).all()
    assert (drawn[1] != drawn[2]).all()  # fresh noise each time: what is left of it averages out
    means = [
        np.mean([found.linear for found in spent_thrice(release, rows, encoder, SeededCoins(s))])
        for s in range(200)
    ]
    assert np.std(means) == pytest.approx(noise.standard_deviation / math.sqrt(18), rel=0.15)


def test_a_game_catches_epsilon_spent_three_times():
    release = LayerRelease.pure(1, 1, 2, epsilon=1.0, neighbours=Neighbours.REPLACE_ONE)
    coins = SeededCoins(6)
    noise = release.mechanism
    told = {x: release.told(np.array([[x]]), np.ones((1, 1))) for x in (0.0, 1.0)}

    def draw(x, count):
        return np.array(
            [[noise.perturb(told[x], coins=coins)[0] for _ in range(3)] for _ in range(count)]
        )

    claim = Guarantee(1.0, 0.0, Neighbours.REPLACE_ONE)
    found = audit_mechanism(draw, [(0.0, 1.0)], claim=claim, samples=4000, confidence=0.999)
    assert found.refuted


def test_noise_that_is_drawn_once_does_not_cover_codes_that_move():
    """From three steps' weights an attacker tells two tables apart without fail, at any noise."""
    rng = np.random.default_rng(7)
    rows = rng.random((20, 6))
    other = rows.copy()
    other[0] = 1 - other[0].round()
    start = rng.standard_normal((6, 2)) / 10
    for seed, scale in enumerate((1.0, printed_bound(6, 2) / 0.1)):
        noise = Laplace(scale, Sensitivity(1.0, Norm.L1)).perturb(
            np.zeros(16), coins=SeededCoins(seed)
        )
        both = Coefficients(noise[:12].reshape(6, 2), noise[12:].reshape(2, 2))
        for table, wrong in ((rows, other), (other, rows)):
            shown = retrained_steps(table, start, both, rate=1e-3 / scale, steps=3)
            assert subtracted(shown, table, 1e-3 / scale) < 1e-7 * scale
            assert subtracted(shown, wrong, 1e-3 / scale) > 1000 * subtracted(
                shown, table, 1e-3 / scale
            )
