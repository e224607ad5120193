"""A round as it is played by auditors, and specimens that they catch."""

import math

import numpy as np
import pytest

from sfumato.audit.exact import audit_density, audit_finite
from sfumato.audit.findings import Verdict
from sfumato.audit.mechanism import audit_mechanism
from sfumato.core.guarantee import Guarantee
from sfumato.core.neighbours import Neighbours
from sfumato.core.randomness import SeededCoins
from sfumato.learning.functional.bounds import noise_bounds, noise_figure
from sfumato.learning.functional.games import round_game
from sfumato.learning.functional.printed import (
    Law,
    clipped_as_printed,
    counterexample,
    data_dependent_scale,
    inverted_clip,
    released_as_printed,
)
from sfumato.mechanisms.sensitivity import network_bound, printed_network_bound

ADD, REPLACE = Neighbours.ADD_REMOVE, Neighbours.REPLACE_ONE


@pytest.mark.parametrize("delta", [0.0, 1e-5])
@pytest.mark.parametrize("neighbours", [ADD, REPLACE])
def test_one_record_moves_the_sums_by_all_it_may(neighbours, delta):
    made = round_game(epsilon=1.0, delta=delta, neighbours=neighbours)
    assert len(made.first) - len(made.second) == (neighbours is ADD)
    assert made.noise.sensitivity.bound == (1 if neighbours is ADD else 2)
    assert 0.99999 * made.noise.sensitivity.bound < made.apart <= made.noise.sensitivity.bound
    if delta == 0:  # what the exact law shows is all that is promised
        laws = [Law(centre, made.noise.scale) for centre in made.centres]
        assert 0.9999 < laws[0].epsilon_against(laws[1]) <= 1.0


def test_releases_have_the_stated_law():
    """Means, and the mean distance from them, within six standard errors; fixed coins."""
    made = round_game(epsilon=1.0, coins=SeededCoins(3))
    drawn = made(made.first, 1000)
    off = np.abs(drawn - made.centres[0])
    scale = made.noise.scale
    assert off.mean() == pytest.approx(scale, rel=6 / math.sqrt(drawn.size))
    spread = math.sqrt(2) * scale / math.sqrt(1000)
    assert drawn.mean(axis=0) == pytest.approx(made.centres[0], abs=6 * spread)


def test_a_round_as_printed_shows_more_than_it_claims_and_ours_does_not():
    """All four slopes lean one way on the first table, and the other way on the second."""
    made = round_game(epsilon=2.0, rows=1, coins=SeededCoins(4))
    claim = made.plan.guarantee

    def of(draws):
        direction = np.sign(made.centres[0] - made.centres[1])

        def draw(table, count):
            return (draws(table, count) * direction > 0).all(axis=1).astype(float)

        return draw

    ours = audit_mechanism(
        of(lambda table, count: made(table, count)), [(made.first, made.second)], claim=claim,
        samples=600,
    )  # fmt: skip
    assert ours.epsilon <= 2.0

    centres = {made.first: made.centres[0], made.second: made.centres[1]}
    coins = SeededCoins(6)

    def inverted(table, count):
        """The same sums clipped upside down, with the same noise."""
        centre = inverted_clip(centres[table], clip=1.0)
        return Law(centre, made.noise.scale).draws(count, coins)

    apart = inverted_clip(made.centres[0], 1.0) - inverted_clip(made.centres[1], 1.0)
    assert np.abs(apart).sum() / made.noise.scale > 2.0
    found = audit_mechanism(
        of(inverted), [(made.first, made.second)], claim=claim, samples=4000
    )  # fmt: skip
    assert found.epsilon > 2.0


# --- specimens ----------------------------------------------------------------------------------


def test_the_inverted_clip_lengthens_short_vectors_and_leaves_long_ones():
    assert inverted_clip(np.array([0.1, 0.0]), 1.0) == pytest.approx([10, 0])
    assert inverted_clip(np.array([100.0, 0.0]), 1.0).tolist() == [100, 0]
    assert inverted_clip(np.zeros(2), 1.0).tolist() == [0, 0]


def density(law):
    centre, scale = float(law.centre[0]), law.scale
    return lambda y: np.exp(-np.abs(y - centre) / scale) / (2 * scale)


def test_the_inverted_clip_is_caught_even_with_a_fixed_scale():
    """A slope of 0.1 replaced by -0.1, with noise for vectors of length 1, becomes 10 and -10."""
    claim, scale = Guarantee(1.0, 0.0, REPLACE), 2 / 1.0
    laws = [Law(inverted_clip(np.array([sign * 0.1]), 1.0), scale) for sign in (1, -1)]
    assert laws[0].epsilon_against(laws[1]) == pytest.approx(10)
    found = audit_density(
        density(laws[0]), density(laws[1]), (-60, 60), claim=claim, breaks=(-10, 10)
    )  # fmt: skip
    assert found.epsilon == pytest.approx(10, rel=1e-3)
    clipped = [Law(np.array([sign * 0.1]), scale) for sign in (1, -1)]
    assert clipped[0].epsilon_against(clipped[1]) == pytest.approx(0.1)


def records(*slopes):
    return np.array(slopes, dtype=float)[:, None], np.zeros((len(slopes), 1))


def test_the_scale_tells_who_is_there():
    """One record is replaced, and the noise grows: far out, a table is as unlikely as one likes."""
    small, large = records(1.0, 1.0), records(1.0, 2.0)
    assert data_dependent_scale(small) == 2.0
    assert data_dependent_scale(large) == 4.0
    assert data_dependent_scale(records()[0:1] * 2) == 0.0
    one, other = (released_as_printed(table, 1.0, 0.5) for table in (small, large))
    assert (one.centre.tolist(), other.centre.tolist()) == ([2.0, 0.0], [3.0, 0.0])
    assert one.epsilon_against(other) == math.inf
    claim = Guarantee(1.0, 0.0, REPLACE)
    found = audit_density(density(one), density(other), (-100, 100), claim=claim, breaks=(2, 3))
    assert found.epsilon > 10


def test_nobody_there_means_no_noise_at_all():
    none, some = records(0.0), records(0.5)
    laws = [released_as_printed(table, 1.0, 1.0) for table in (none, some)]
    assert laws[0].scale == 0
    assert laws[0].draws(3).tolist() == [[0, 0]] * 3
    assert laws[0].epsilon_against(laws[1]) == math.inf
    assert laws[0].epsilon_against(laws[0]) == 0
    with pytest.raises(ValueError, match="scale must be the same"):
        laws[0].corner(laws[1])
    assert clipped_as_printed(some, 1.0) == pytest.approx([2.0, 0.0])


@pytest.mark.parametrize(
    ("widths", "value"), [((10, 10), 15.15), ((10, 10, 10), 43.0), ((300, 10), 454.5)]
)
def test_the_theorem_as_printed(widths, value):
    assert noise_bounds(widths, 10).printed == pytest.approx(value, rel=1e-3)


def test_the_theorem_is_false():
    first, second = counterexample()
    moved = np.abs(first - second).sum()
    assert moved == pytest.approx(29.63, abs=0.005)
    assert printed_network_bound((10, 10)) < moved < network_bound((10, 10), 10).bound
    epsilon = 1.0
    as_printed = [Law(one, printed_network_bound((10, 10)) / epsilon) for one in (first, second)]
    assert as_printed[0].epsilon_against(as_printed[1]) == pytest.approx(29.63 / 15.15, rel=1e-3)
    claim = Guarantee(epsilon, 0.0, REPLACE)
    found = audit_finite(*as_printed[0].corner(as_printed[1]), claim=claim)
    assert found.epsilon == pytest.approx(29.63 / 15.15, rel=1e-3)
    assert found.verdict is Verdict.REFUTED
    valid = [Law(one, network_bound((10, 10), 10).bound / epsilon) for one in (first, second)]
    assert valid[0].epsilon_against(valid[1]) < epsilon


def test_valid_bounds_and_clipped_ones():
    assert noise_bounds((10, 10), 10).valid == 277.8125
    assert noise_bounds((10, 10), 784).valid == 15395
    assert noise_bounds((10, 10), 784, clip=3.0).clipped == 6.0
    with pytest.raises(ValueError, match="clip must be"):
        noise_bounds((10, 10), 10, clip=0.0)


def test_the_figure(tmp_path):
    figure = noise_figure((2, 10), (1, 2), inputs=10)
    (axes,) = figure.axes
    lines = {line.get_label(): line.get_ydata() for line in axes.get_lines()}
    assert len(lines) == 5
    assert lines["2 layers, valid"][1] == 277.8125
    assert lines["2 layers, as printed"][1] == pytest.approx(15.15)
    assert figure.save(tmp_path / "noise.png").stat().st_size > 1000
