import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.federated.integer_noise.rotation import Rotation, padded_dimension


@settings(deadline=None, max_examples=50)
@given(st.integers(1, 300), st.integers(0, 10**9))
def test_lengths_are_kept_and_it_is_undone(dimension, seed):
    vector = np.random.default_rng(seed).normal(size=dimension)
    rotation = Rotation(dimension, seed)
    turned = rotation.forward(vector)
    assert turned.shape == (padded_dimension(dimension),)
    assert np.linalg.norm(turned) == pytest.approx(np.linalg.norm(vector), rel=1e-12)
    assert rotation.backward(turned) == pytest.approx(vector, abs=1e-12)


def test_it_is_the_matrix_of_walsh_and_hadamard():
    h = np.array([[1.0]])
    for _ in range(3):
        h = np.block([[h, h], [h, -h]])
    columns = np.stack([Rotation(8, 5).forward(unit) for unit in np.eye(8)], axis=1)
    signs = np.sign(columns[0])
    assert columns == pytest.approx(h * signs / math.sqrt(8))


def test_no_coordinate_stays_large():
    turned = np.concatenate([Rotation(4096, seed).forward(np.eye(4096)[0]) for seed in range(4)])
    assert np.abs(turned).max() == pytest.approx(1 / 64)
    vector = np.zeros(4096)
    vector[:100] = 1.0  # of length 10: coordinates of about 10/64
    shown = np.stack([Rotation(4096, seed).forward(vector) for seed in range(20)])
    assert np.mean(np.abs(shown) > 4 * 10 / 64) <= 2 * math.exp(-8)


def test_seeds_differ_and_inputs_are_not_changed():
    vector = np.ones(16)
    first = Rotation(16, 1).forward(vector)
    assert not np.array_equal(first, Rotation(16, 2).forward(vector))
    assert np.array_equal(first, Rotation(16, 1).forward(vector))
    Rotation(16, 1).backward(first)
    assert np.array_equal(vector, np.ones(16))


def test_bad_parameters():
    with pytest.raises(ValueError, match="dimension"):
        Rotation(0)
    with pytest.raises(ValueError, match="seed"):
        Rotation(4, -1)
    with pytest.raises(ValueError, match="vector must be"):
        Rotation(4).forward(np.ones(3))
