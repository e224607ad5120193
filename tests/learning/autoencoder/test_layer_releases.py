"""A layer's release: what is summed, what is added, what is made of it."""

import math

import numpy as np
import pytest

from sfumato.core.neighbours import Neighbours
from sfumato.core.randomness import SeededCoins
from sfumato.learning.autoencoder.encoding import Encoder, on_grid, random_encoder, tied_encoder
from sfumato.learning.autoencoder.releases import Coefficients, LayerRelease, decoder_of

ROWS = np.random.default_rng(3).random((500, 6))
ENCODER = random_encoder(6, 4, gain=3.0, seed=1)
CODES = ENCODER.codes(ROWS)
NORMAL = LayerRelease.normal(6, 4, 500, multiplier=2.0)
PURE = LayerRelease.pure(6, 4, 500, epsilon=1.5)
BOTH = pytest.mark.parametrize("layer", [NORMAL, PURE], ids=["normal", "pure"])


@BOTH
def test_coefficients_are_the_sums(layer):
    found = layer.read(layer.told(ROWS, CODES))
    np.testing.assert_allclose(found.linear, (0.5 - on_grid(ROWS)).T @ CODES, atol=1e-3)
    np.testing.assert_allclose(found.squares, CODES.T @ CODES / 8, atol=1e-3)
    assert (found.squares == found.squares.T).all()


def test_weights_are_where_the_surrogate_is_least():
    """W = -B^-1 A / 2: no gradient there, and a larger value everywhere around."""
    found = NORMAL.read(NORMAL.told(ROWS, CODES))
    weights = decoder_of(found)

    def surrogate(w):
        z = CODES @ w.T
        return float(((0.5 - on_grid(ROWS)) * z + z**2 / 8).sum())

    np.testing.assert_allclose(weights, -0.5 * found.linear @ np.linalg.inv(found.squares))
    np.testing.assert_allclose(found.linear + 2 * weights @ found.squares, 0, atol=1e-8)
    rng, least = np.random.default_rng(0), surrogate(weights)
    steps = [0.05 * rng.standard_normal(weights.shape) for _ in range(20)]
    assert all(surrogate(weights + step) > least for step in [*steps, 0.1 * weights])


def test_without_noise_inputs_are_read_off_by_least_squares():
    """1/2 + h W / 4 is the least-squares fit of x - 1/2 on h."""
    weights = decoder_of(NORMAL.read(NORMAL.told(ROWS, CODES)))
    best = np.linalg.lstsq(CODES, on_grid(ROWS) - 0.5, rcond=None)[0].T
    np.testing.assert_allclose(weights / 4, best, atol=2e-3)


@pytest.mark.parametrize("neighbours", list(Neighbours)[:2])
def test_noise_is_what_was_promised(neighbours):
    d, b = 6, 4
    least = {Neighbours.ADD_REMOVE: (0.75, 0.375), Neighbours.REPLACE_ONE: (1.0, 1.0)}[neighbours]
    pure = LayerRelease.pure(d, b, 500, epsilon=1.5, neighbours=neighbours)
    normal = LayerRelease.normal(d, b, 500, multiplier=2.0, neighbours=neighbours)
    assert pure.mechanism.scale == pytest.approx(least[0] * d * b / 1.5, rel=1e-6)
    assert normal.mechanism.sigma == pytest.approx(2 * math.sqrt(least[1] * d * b), rel=1e-6)
    coins = SeededCoins(2)
    for layer in (pure, normal):
        exact = layer.read(layer.told(ROWS, CODES))
        drawn = [layer.release(ROWS, ENCODER, coins) for _ in range(300)]
        linear = np.std([one.linear - exact.linear for one in drawn])
        assert linear == pytest.approx(layer.mechanism.standard_deviation, rel=0.05)
        wanted = layer.mechanism.standard_deviation / layer._weights.reshape(-1) / 8
        upper = np.triu_indices(b)
        squares = np.std([(one.squares - exact.squares)[upper] for one in drawn], axis=0)
        assert np.mean(squares / wanted) == pytest.approx(1, rel=0.05)


@BOTH
def test_the_same_coins_show_only_the_row_that_changed(layer):
    """Noise, and all that is done to others' rows, is the same: what differs is what one row is."""
    changed = ROWS.copy()
    changed[7] = 1.0
    first, second = (layer.release(rows, ENCODER, SeededCoins(5)) for rows in (ROWS, changed))
    wanted = layer.read(layer.told(ROWS[7:8], CODES[7:8])).linear
    wanted = wanted - layer.read(layer.told(changed[7:8], ENCODER.codes(changed[7:8]))).linear
    np.testing.assert_allclose(first.linear - second.linear, wanted, atol=1e-4)  # a grid


@BOTH
@pytest.mark.parametrize("rows", [ROWS[:0], np.full((3, 6), np.nan), np.full((2, 6), np.inf)])
def test_any_table_gives_weights(layer, rows):
    weights = layer.decoder(layer.release(rows, ENCODER, SeededCoins(1)))
    assert weights.shape == (6, 4)
    assert np.isfinite(weights).all()


def test_rows_beyond_four_times_the_declared_number_are_not_counted():
    few = LayerRelease.normal(1, 1, 2, multiplier=1.0)
    many = few.told(np.zeros((100, 1)), np.ones((100, 1)))
    assert many[0] == 8.0


def test_squares_that_are_not_positive_are_repaired():
    found = Coefficients(np.ones((2, 2)), np.diag([1.0, -1.0]))
    np.testing.assert_allclose(decoder_of(found), [[-0.5, 0.0], [-0.5, 0.0]])
    assert not decoder_of(Coefficients(np.ones((2, 2)), -np.eye(2))).any()


def test_directions_of_which_nothing_is_seen_say_nothing():
    found = Coefficients(np.array([[3.0, 0.1], [4.0, 0.1]]), np.diag([1.0, 2.0]))
    weights = decoder_of(found, noise=1.0)
    np.testing.assert_allclose(weights[:, 0], -0.5 * (1 - 2 / 25) * np.array([3.0, 4.0]))
    assert not weights[:, 1].any()


def test_a_rows_code_is_its_own_bit_for_bit():
    rows = np.random.default_rng(0).random((999, 300))
    encoder = random_encoder(300, 17, gain=2.0, seed=4)
    whole = encoder.codes(rows)
    for part in (slice(0, 1), slice(3, 260), slice(500, 999)):
        assert (encoder.codes(rows[part]) == whole[part]).all()
    order = np.random.default_rng(1).permutation(999)
    assert (encoder.codes(rows[order]) == whole[order]).all()


def test_encoders_are_public_or_made_of_what_was_released():
    one, same = (random_encoder(30, 5, gain=2.0, seed=9) for _ in range(2))
    assert (one.weights == same.weights).all()
    assert not (one.weights == random_encoder(30, 5, gain=2.0, seed=10).weights).all()
    decoder = np.random.default_rng(2).standard_normal((30, 5)) + 3.0
    tied = tied_encoder(decoder, 1.5)
    centred = decoder - decoder.mean(axis=1, keepdims=True)
    wanted = centred / np.linalg.norm(centred, axis=0)
    np.testing.assert_allclose(tied.weights, wanted, atol=1e-7)
    assert (np.linalg.norm(tied.weights, axis=0) <= 1).all()
    assert tied_encoder(np.ones((30, 1)), 1.0).weights.any()
    assert not Encoder.of(np.zeros((3, 2)), 1.0).weights.any()


@pytest.mark.parametrize(
    ("changes", "said"),
    [({"columns": 0}, "columns"), ({"width": 1.5}, "width"), ({"records": 0}, "records"),
     ({"epsilon": 0.0}, "amount"), ({"unit": ""}, "unit")],
)  # fmt: skip
def test_bad_parameters_are_named(changes, said):
    given = {"columns": 3, "width": 2, "records": 10, "epsilon": 1.0} | changes
    with pytest.raises(ValueError, match=said):
        LayerRelease.pure(**given)
