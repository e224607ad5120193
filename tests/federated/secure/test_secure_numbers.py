"""Residues and fixed point: exact where promised, total everywhere."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as some
from hypothesis.extra.numpy import arrays

from sfumato.federated.secure.fixed_point import FixedPoint
from sfumato.federated.secure.residues import (
    add_mask,
    pack_residues,
    reduce,
    to_residues,
    to_signed,
    unpack_residues,
    width_of,
)

BITS = some.integers(1, 64)
ANYTHING = arrays(np.float64, 7, elements=some.floats(width=64))


@given(bits=BITS, data=some.data())
def test_residues_keep_signs_and_pack(bits, data):
    half = 2 ** (bits - 1)
    drawn = data.draw(some.lists(some.integers(-half, half - 1), min_size=1, max_size=20))
    values = np.array(drawn, np.int64)
    residues = to_residues(values, bits)
    assert residues.dtype == np.uint64
    assert [int(r) for r in residues] == [v % 2**bits for v in drawn]
    np.testing.assert_array_equal(to_signed(residues, bits), values)
    packed = pack_residues(residues, bits)
    assert packed.nbytes == len(drawn) * width_of(bits)
    np.testing.assert_array_equal(unpack_residues(packed, len(drawn), bits), residues)


@given(bits=BITS, junk=arrays(np.uint8, 24))
def test_unpacked_junk_is_below_the_modulus(bits, junk):
    unpacked = unpack_residues(junk[: 3 * width_of(bits)], 3, bits)
    assert all(int(r) < 2**bits for r in unpacked)


@given(bits=BITS, key=some.binary(min_size=32, max_size=32), start=arrays(np.uint64, 9))
def test_masks_cancel(bits, key, start):
    total = start.copy()
    add_mask(total, key, bits)
    add_mask(total, key, bits, negative=True)
    np.testing.assert_array_equal(total, start)


def test_a_mask_is_the_key_stream_of_chacha20():
    """RFC 8439, appendix A.1, test vector 1: key, nonce and counter zero."""
    total = np.zeros(2, np.uint64)
    add_mask(total, bytes(32), 64)
    assert total.tobytes().hex() == "76b8e0ada0f13d90405d6ae55386bd28"
    total = np.zeros(2, np.uint64)
    add_mask(total, bytes(32), 16)
    assert reduce(total, 16).tolist() == [0xB876, 0xF1A0]


def test_floats_are_no_residues():
    with pytest.raises(ValueError, match="whole numbers"):
        to_residues(np.array([1.5]), 8)


@some.composite
def grids(draw):
    fraction = draw(some.integers(0, 40))
    bound = draw(some.floats(2.0**-8, 2.0**12))
    participants = draw(some.integers(1, 8))
    bits = draw(some.integers(8, 64))
    assume(bound * 2**fraction >= 1)
    assume(participants * (bound * 2**fraction + 0.5) < 2 ** (bits - 1))
    return FixedPoint(bits, fraction, bound, participants)


@given(grid=grids(), data=some.data())
def test_a_sum_is_within_the_stated_error(grid, data):
    parts = [data.draw(ANYTHING) for _ in range(grid.participants)]
    total = sum((grid.encode(part) for part in parts), np.zeros(7, np.uint64))
    decoded = grid.decode(reduce(total, grid.bits))
    for i in range(7):
        clamped = [_clamp(part[i], grid.bound) for part in parts]
        off = abs(Fraction(decoded[i]) - sum(clamped))
        # Beyond 2^53 steps of the grid a double rounds the sum once more.
        assert off <= Fraction(grid.error) + abs(Fraction(decoded[i])) / 2**53


def _clamp(value, bound):
    return Fraction(float(np.clip(value, -bound, bound))) if np.isfinite(value) else Fraction(0)


@given(grid=grids(), part=ANYTHING)
def test_encoding_is_total_and_bounded(grid, part):
    encoded = to_signed(grid.encode(part), grid.bits)
    assert (np.abs(encoded) <= round(Fraction(grid.bound) * 2**grid.fraction)).all()
    assert (encoded[~np.isfinite(part)] == 0).all()


def test_the_extreme_sum_does_not_wrap_and_one_bit_less_is_refused():
    grid = FixedPoint(bits=8, fraction=4, bound=1.0, participants=7)  # 7 * 16 = 112 < 128
    total = sum(grid.encode(np.array([5.0, -5.0])) for _ in range(7))
    assert grid.decode(total).tolist() == [7.0, -7.0]
    for changed in ({"participants": 8}, {"bits": 7}, {"fraction": 5}, {"bound": 2.0}):
        agreed = {"bits": 8, "fraction": 4, "bound": 1.0, "participants": 7, **changed}
        with pytest.raises(ValueError, match="could wrap"):
            FixedPoint(**agreed)


def test_the_error_is_reached():
    grid = FixedPoint(bits=32, fraction=3, bound=4.0, participants=5)
    total = sum(grid.encode(np.array([1 / 16])) for _ in range(5))  # half a step: to even, 0
    assert abs(grid.decode(total)[0] - 5 / 16) == grid.error == 5 / 16


@given(bits=some.integers(4, 64), bound=some.floats(1e-3, 1e3), participants=some.integers(1, 1000))
def test_the_finest_grid_cannot_be_finer(bits, bound, participants):
    try:
        grid = FixedPoint.finest(bits=bits, bound=bound, participants=participants)
    except ValueError:
        with pytest.raises(ValueError, match=r"wrap|one step"):
            FixedPoint(bits, 0, bound, participants)
        return
    with pytest.raises(ValueError, match="wrap"):
        FixedPoint(bits, grid.fraction + 1, bound, participants)


@pytest.mark.parametrize(
    ("changed", "match"),
    [
        ({"bits": 0}, "bits"),
        ({"bits": 65}, "bits"),
        ({"fraction": -1}, "fraction"),
        ({"fraction": 2000}, "fraction"),
        ({"bound": 0.0}, "bound"),
        ({"bound": float("nan")}, "bound"),
        ({"bound": 1e-9}, "one step"),
        ({"participants": 0}, "participants"),
    ],
)
def test_grids_that_cannot_work(changed, match):
    agreed = {"bits": 32, "fraction": 16, "bound": 1.0, "participants": 10, **changed}
    with pytest.raises(ValueError, match=match):
        FixedPoint(**agreed)
