"""Estimated slopes: exact for linear probabilities, with the variance that is stated."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from sfumato.attacks.inversion.slopes import CoordinateDifferences, RandomDirections
from sfumato.attacks.targets import Target

SLOPE = np.array([0.05, -0.1, 0.02, 0.0, 0.08])


def linear(slope=SLOPE):
    def answer(x):
        p = 0.4 + x.astype(np.float64) @ slope
        return np.stack([p, 1 - p], axis=1)

    return Target.of_scores(answer)


def many(image, count):
    images = np.tile(np.asarray(image, dtype=np.float32), (count, 1))
    return images, np.zeros(count, dtype=np.int64), np.zeros(count)


@given(arrays(np.float64, 5, elements=st.floats(0, 1)), st.sampled_from([0, 1]))
def test_pixel_by_pixel_is_exact_for_a_line_at_the_bounds_too(image, label):
    images = image[None].astype(np.float32)
    found = CoordinateDifferences(0.05)(
        linear(), images, np.array([label]), np.zeros(1), (0.0, 1.0)
    )
    assert found[0] == pytest.approx(SLOPE if label == 0 else -SLOPE, abs=1e-5)


@pytest.mark.parametrize("place", [0.5, 0.0, 1.0])
def test_random_directions_have_the_right_mean_and_spread(place):
    directions, repeats = 4, 8_000
    slopes = RandomDirections(directions, step=0.1, generator=np.random.default_rng(1))
    target = linear()
    found = slopes(target, *many([place] * 5, repeats), (0.0, 1.0))
    assert target.queries == 2 * directions * repeats
    variance = (SLOPE @ SLOPE - SLOPE**2) / directions
    assert np.abs(found.mean(axis=0) - SLOPE).max() < 4 * np.sqrt(variance.max() / repeats)
    assert found.var(axis=0) == pytest.approx(variance, rel=0.06)


def test_the_step_is_a_share_of_the_bounds():
    asked = []

    def answer(x):
        asked.append(x.copy())
        bright = (x[:, 0] + 2) / 4
        return np.stack([bright, 1 - bright], axis=1)

    image = np.zeros((1, 2), np.float32)
    CoordinateDifferences(0.1)(
        Target.of_scores(answer), image, np.array([0]), np.zeros(1), (-2.0, 2.0)
    )
    assert np.unique(np.concatenate(asked)) == pytest.approx([-0.4, 0, 0.4])


def test_bad_parameters_are_refused():
    for step in (0, 1, -0.1):
        with pytest.raises(ValueError, match="step must be"):
            CoordinateDifferences(step)
    with pytest.raises(ValueError, match="directions must be"):
        RandomDirections(0, generator=np.random.default_rng())
