"""Shares of the work: every unit of every tile is somebody's, and processors are kept busy."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfumato.learning.dp_sgd.kernels.launches import equal_parts

H200 = 132


@given(st.integers(1, 400), st.integers(1, 4096), st.integers(1, 600))
def test_no_more_parts_than_units_and_none_for_many_tiles(tiles, units, at_once):
    parts = equal_parts(tiles, units, at_once)
    assert 0 <= parts <= units
    assert (parts == 0) == (2 * tiles > at_once)
    shares = [units * (p + 1) // parts - units * p // parts for p in range(parts)]
    assert sum(shares) == (units if parts else 0)
    assert parts == 0 or max(shares) - min(shares) <= 1


@pytest.mark.parametrize("tiles", [1, 5, 9, 18, 36, 66])
def test_few_processors_stay_idle(tiles):
    parts = equal_parts(tiles, 512, 2 * H200)
    rounds = -(-parts * tiles // (2 * H200))
    longest = -(-512 // parts)
    assert 512 * tiles >= 0.8 * rounds * longest * 2 * H200 or parts == 64
