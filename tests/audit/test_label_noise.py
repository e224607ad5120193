"""The noise of answers and checks by what they show: honest noise stands, half of it falls."""

import numpy as np
import pytest
from scipy.stats import norm

from sfumato.audit.label_noise import answers_game, check_game
from sfumato.audit.labels import Check, label_law

GAMES = {
    "gaussian": answers_game("gaussian", 9.0, games=1000),
    "laplace": answers_game("laplace", 8.0, games=1000),
    "checked": answers_game("gaussian", 9.0, games=1000, threshold=150, sigma_check=36.0),
    "check": check_game(150.0, 36.0, games=1000),
    "low threshold": check_game(20.0, 36.0, games=1000),
}


def drawn(game, share, times=200):
    """How often noise of that share of the declared is refuted."""
    random = np.random.default_rng(1)
    rates = game.rates(share * game.declared)
    counts = [random.binomial(game.games, rate, size=times).tolist() for rate in rates]
    found = [game.found((a, game.games), (b, game.games)) for a, b in zip(*counts, strict=True)]
    return np.mean([one.refuted for one in found])


@pytest.mark.parametrize("name", GAMES)
def test_it_finds_what_it_says_and_no_honest_noise(name):
    game = GAMES[name]
    assert 0.6 < game.refutes_below < 1
    assert drawn(game, game.refutes_below) > 0.9
    assert drawn(game, 0.5) == 1
    assert drawn(game, 1.0) <= 0.02
    assert drawn(game, 1.5) == 0


@pytest.mark.parametrize("name", ["gaussian", "laplace", "checked"])
def test_rates_are_those_of_the_law(name):
    game = GAMES[name]
    check = Check(150.0, 36.0) if name == "checked" else None
    for scale in (game.declared, game.declared / 2):
        law = label_law([game.inside, game.outside], game.noise, scale, check)
        assert game.rates(scale) == pytest.approx(law[:, 1], rel=1e-6)
        assert law[:, 2] == pytest.approx([0, 0], abs=1e-12)  # all are answered


def test_rates_of_a_check():
    game = GAMES["check"]
    wanted = norm.cdf([(table[0] - 150) / 18 for table in (game.inside, game.outside)])
    assert game.rates(18.0) == pytest.approx(wanted)
    assert game.inside[0] > 150 > game.outside[0] >= 0


@pytest.mark.parametrize("name", GAMES)
def test_exact_rates_of_endless_games_give_the_scale(name):
    """The bound is tight: with very many games it comes to the scale that was played."""
    game, many = GAMES[name], 10**12
    for scale in (game.declared, 0.7 * game.declared):
        counts = [(round(rate * many), many) for rate in game.rates(scale)]
        assert game.found(*counts).at_most == pytest.approx(scale, rel=1e-4)


def test_votes_differ_by_what_is_moved():
    for game in GAMES.values():
        assert game.inside[0] - game.outside[0] in (-game.moved, game.moved)
        assert min(*game.inside, *game.outside) >= 0


def test_no_answers_count_for_checks_alone():
    labels = [0, None, 1, 1]
    assert GAMES["checked"].happened(labels) == (2, 3)
    assert GAMES["check"].happened(labels) == (3, 4)


def test_nothing_seen_is_nothing_found():
    for counts in (((0, 0), (0, 0)), ((1, 100), (99, 100)), ((50, 100), (50, 100))):
        found = GAMES["checked"].found(*counts)
        assert not found.refuted
        assert found.to_dict()["noise_at_most"] == "inf"
    assert answers_game("gaussian", 9.0, games=4).refutes_below == 0


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: answers_game("uniform", 1.0, games=100), "noise must be"),
        (lambda: answers_game("laplace", 0.0, games=100), "scale must be"),
        (lambda: answers_game("laplace", 1.0, games=1), "games must be"),
        (lambda: check_game(1.0, -1.0, games=100), "sigma must be"),
        (lambda: check_game(1.0, 1.0, games=100, confidence=1.0), "confidence must be"),
    ],
)
def test_mistakes_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
