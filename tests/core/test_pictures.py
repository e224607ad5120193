"""Pictures in JSON."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from sfumato.core.pictures import pack_pictures, unpack_pictures


@given(
    hnp.arrays(
        np.float64, hnp.array_shapes(min_dims=1, max_dims=4, max_side=5), elements=st.floats(0, 1)
    )
)
def test_there_and_back_to_half_a_level(images):
    found = unpack_pictures(json.loads(json.dumps(pack_pictures(images))))
    assert found.shape == images.shape
    assert np.abs(found - images).max() <= 0.5 / 255 + 1e-12


def test_levels_survive_exactly():
    levels = np.arange(256).reshape(4, 8, 8) / 255
    packed = pack_pictures(levels)
    assert np.array_equal(unpack_pictures(packed), levels)
    assert pack_pictures(unpack_pictures(packed)) == packed


def test_what_is_outside_is_cut():
    packed = pack_pictures([[-1.0, 2.0, np.nan, np.inf, -np.inf]])
    assert unpack_pictures(packed).tolist() == [[0, 1, 0, 1, 0]]


@pytest.mark.parametrize(
    "packed",
    [
        {"shape": [2, 2], "pixels": "AAAA"},
        {"shape": [-1, -3], "pixels": "AAAA"},
        {"shape": ["x"], "pixels": "AAAA"},
        {"shape": [3], "pixels": "not base 64!"},
        {"shape": [3]},
        {"pixels": "AAAA"},
    ],
)
def test_what_does_not_fit_is_refused(packed):
    with pytest.raises(ValueError, match=r"shape|pixels|pictures|base64"):
        unpack_pictures(packed)
