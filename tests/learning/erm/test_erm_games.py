"""Tables on which one row matters most, for every way, and what their exact laws show."""

import math
from dataclasses import replace

import numpy as np
import pytest

from sfumato.core.neighbours import Neighbours
from sfumato.core.randomness import SeededCoins
from sfumato.learning.erm.games import way_game, ways_for
from sfumato.learning.erm.ways import way_names

REPLACE, ADD = Neighbours.REPLACE_ONE, Neighbours.ADD_REMOVE
ALL = [(name, REPLACE) for name in way_names()] + [(name, ADD) for name in ways_for(ADD)]


def game(name, neighbours=REPLACE, delta=1e-5, epsilon=1.0, rows=4, seed=1):
    return way_game(
        name, epsilon=epsilon, delta=delta, neighbours=neighbours, rows=rows,
        coins=SeededCoins(seed),
    )  # fmt: skip


@pytest.mark.parametrize(("name", "neighbours"), ALL)
@pytest.mark.parametrize("rows", [2, 5])
def test_tables_are_neighbours(name, neighbours, rows):
    made = game(name, neighbours, rows=rows)
    assert len(made.first) == rows
    assert made.first[1:] == made.second[-rows + 1 :]
    assert len(made.second) == (rows if neighbours is REPLACE else rows - 1)
    assert all(abs(x) == 1 for x, _ in (*made.first, *made.second))
    assert made.way.guarantee.neighbours is neighbours


@pytest.mark.parametrize("delta", [1e-5, 0.0])
@pytest.mark.parametrize(
    ("name", "neighbours", "share"),
    [
        ("output", REPLACE, 0.999), ("output", ADD, 0.999), ("sgd", REPLACE, 0.999),
        ("input", REPLACE, 0.999), ("functional", ADD, 0.999), ("functional", REPLACE, 0.79),
    ],
)  # fmt: skip
def test_one_row_moves_what_is_noised_by_all_it_may(name, neighbours, share, delta):
    """Of a replaced label the functional way's squares know nothing."""
    made = game(name, neighbours, delta)
    apart = made.centres[0] - made.centres[1]
    moved = np.abs(apart).sum() if delta == 0 else np.sqrt((apart**2).sum())
    bound = made.noise.sensitivity.bound
    assert share * bound <= moved <= bound


@pytest.mark.parametrize("delta", [1e-5, 0.0])
@pytest.mark.parametrize(("epsilon", "neighbours"), [(0.1, REPLACE), (1.0, ADD), (6.0, REPLACE)])
def test_the_tilted_minimiser_is_the_tilt_on_a_sum(epsilon, neighbours, delta):
    """All margins are on the straight part of the hinge, wherever the density is."""
    made = game("objective", neighbours, delta, epsilon)
    low, high = made.law.support
    assert -0.5 < low < high < 0.5
    strength = made.way.regularisation * made.way.task.records
    grid = np.linspace(low, high, 20_001)
    for density, table in ((made.law.first, made.first), (made.law.second, made.second)):
        found = density(grid)
        assert np.trapezoid(found, grid) == pytest.approx(1, abs=1e-4)
        centre = sum(2 * label - 1 for _, label in table)
        tilt = strength * grid - centre
        if delta:
            expected = np.exp(-((tilt / made.way.tilt) ** 2) / 2) / math.sqrt(2 * math.pi)
        else:
            expected = np.exp(-np.abs(tilt) / made.way.tilt) / 2
        assert found == pytest.approx(expected / made.way.tilt * strength, rel=1e-9)


@pytest.mark.parametrize("name", ["objective", "output", "sgd"])
def test_fits_have_that_law(name):
    """Means and spread of 400 fits, within six standard errors; fixed coins."""
    made = game(name)
    drawn = made(made.first, 400)[:, 0]
    if name == "objective":
        strength = made.way.regularisation * made.way.task.records
        centre, spread = 0.0, made.way.tilt / strength
    else:
        centre, spread = float(made.centres[0][0]), made.noise.sigma
    assert drawn.mean() == pytest.approx(centre, abs=6 * spread / 20)
    assert drawn.std() == pytest.approx(spread, rel=6 / math.sqrt(800))


def test_noisy_rows_are_what_the_input_way_shows():
    made = game("input")
    drawn = made(made.second, 300)
    assert drawn.shape == (300, 8)
    spread = made.noise.sigma / math.sqrt(300)
    assert drawn.mean(axis=0) == pytest.approx(made.centres[1], abs=6 * spread)


def test_the_same_code_as_a_run_is_played(monkeypatch):
    """Weights come from the way's own fit: with other coins, others."""
    made = game("functional")
    asked = []
    fit = type(made.way).fit
    monkeypatch.setattr(
        type(made.way), "fit", lambda *given: asked.append(len(given[1])) or fit(*given)
    )
    made(made.first, 2)
    assert asked == [4, 4]
    other = replace(made, coins=SeededCoins(2))
    assert (made(made.first, 2) != other(made.first, 2)).any()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": "magic"}, "way must be one of objective"),
        ({"rows": 1}, "rows must be"),
        ({"rows": 51}, "rows must be at most 50"),
        ({"epsilon": 0}, "epsilon must be"),
        ({"delta": 1.0}, "delta must be"),
        ({"neighbours": "zero-out"}, "neighbours must be"),
        ({"name": "sgd", "neighbours": ADD}, "neighbours must be 'replace-one'"),
    ],
)
def test_mistakes(change, message):
    given = {"name": "output", "epsilon": 1.0, "delta": 1e-5} | change
    with pytest.raises(ValueError, match=message):
        way_game(given.pop("name"), **given)


def test_what_a_way_does_not_have():
    with pytest.raises(ValueError, match="way must be one that adds noise"):
        _ = game("objective").centres
    with pytest.raises(ValueError, match="way must be 'objective'"):
        _ = game("output").law


@pytest.mark.parametrize(
    ("name", "neighbours", "share"),
    [("functional", ADD, 0.999), ("functional", REPLACE, 0.81), ("input", REPLACE, 0.999)],
)
def test_numbers_move_by_all_they_may(name, neighbours, share):
    made = way_game(name, epsilon=1.0, delta=1e-5, neighbours=neighbours, numbers=True)
    apart = made.centres[0] - made.centres[1]
    bound = made.noise.sensitivity.bound
    assert share * bound <= np.sqrt((apart**2).sum()) <= bound
