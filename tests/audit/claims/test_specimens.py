"""Each faulty step has the noise and the sensitivity that its docstring says."""

import numpy as np
import pytest

from sfumato.audit.claims import specimens
from sfumato.audit.claims.implementation import textbook_laplace
from sfumato.core.randomness import SeededCoins

COUNT = 40_000
ONES = np.ones((10, 1))


def spread(outputs):
    return float(outputs.std()), float(outputs.mean())


def test_clipping_bounds_every_row_and_leaves_short_ones():
    rows = np.array([[3.0, 4.0], [0.3, 0.4], [0.0, 0.0]])
    assert specimens.clip_each(rows, 1.0).tolist() == [[0.6, 0.8], [0.3, 0.4], [0.0, 0.0]]


def test_the_right_step_has_its_noise_and_a_public_size():
    deviation, mean = spread(specimens.right(ONES, COUNT, SeededCoins(1), 2.0, 1.0, lot=20))
    assert deviation == pytest.approx(2 / 20, rel=0.02)
    assert mean == pytest.approx(10 / 20, abs=0.005)


def test_the_mean_shrinks_its_noise_with_the_batch():
    few = specimens.mean_of_the_batch(ONES, COUNT, SeededCoins(1), 2.0, 1.0)
    many = specimens.mean_of_the_batch(np.ones((20, 1)), COUNT, SeededCoins(1), 2.0, 1.0)
    assert few.std() == pytest.approx(2 * many.std(), rel=0.02)


def test_one_example_turns_a_clipped_batch_around():
    turned = np.concatenate([ONES, [[-1000.0]]])
    before = specimens.clip_the_batch(ONES, COUNT, SeededCoins(1), 0.5, 1.0)
    after = specimens.clip_the_batch(turned, COUNT, SeededCoins(1), 0.5, 1.0)
    assert before.mean() - after.mean() == pytest.approx(2.0, abs=0.02)


def test_workers_noise_falls_short_by_a_root():
    outputs = specimens.noise_of_the_workers(np.zeros((8, 1)), COUNT, SeededCoins(1), 2.0, 1.0, 4)
    assert outputs.std() == pytest.approx(2 / 2, rel=0.02)


def test_the_noise_of_a_mean_is_small_for_a_sum():
    outputs = specimens.noise_for_the_mean(ONES, COUNT, SeededCoins(1), 2.0, 1.0, lot=10)
    assert outputs.std() == pytest.approx(0.2, rel=0.02)
    assert outputs.mean() == pytest.approx(10.0, abs=0.01)


def test_one_key_leaves_differences_bare():
    outputs = specimens.one_noise_for_all(np.ones((3, 2)), 100, SeededCoins(1), 1.0, 10.0)
    assert (outputs[:, 0] == outputs[:, 1]).all()
    assert outputs[:, 0].std() > 5


def test_the_textbook_sampler_has_the_right_law_and_the_wrong_bits():
    uniform = np.random.default_rng(1).random(COUNT)
    zero, one = (textbook_laplace(value, 1.0, uniform) for value in (0.0, 1.0))
    assert np.abs(zero).mean() == pytest.approx(1.0, rel=0.02)
    assert np.abs(one - 1).mean() == pytest.approx(1.0, rel=0.02)
    small = [x[np.abs(x) < 0.5] * 2.0**53 for x in (zero, one)]
    assert (small[0] != np.round(small[0])).mean() > 0.3
    assert (small[1] == np.round(small[1])).all()
