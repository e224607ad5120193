"""The idx format, both ways, and whatever else may be in a file."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from sfumato.data.idx import idx_bytes, idx_header, read_idx


@given(arrays.arrays(np.uint8, arrays.array_shapes(max_dims=4, max_side=5, min_side=0)))
def test_what_is_written_is_read(values):
    read = read_idx(np.frombuffer(idx_bytes(values), np.uint8))
    assert read.shape == values.shape
    assert np.array_equal(read, values)


def test_mnists_own_header():
    assert idx_header((10_000,)) == bytes.fromhex("00000801 00002710")


def starts_well(content):
    return b"\0\0\x08" + content


@given(st.one_of(st.binary(max_size=80), st.binary(max_size=80).map(starts_well)))
def test_any_other_bytes_are_a_value_error_or_an_array(content):
    try:
        read = read_idx(np.frombuffer(content, np.uint8))
    except ValueError:
        return
    assert idx_bytes(read) == content


@given(st.integers(1, 30))
def test_a_file_cut_short_or_too_long_is_refused(cut):
    content = idx_bytes(np.ones((3, 6), np.uint8))
    for changed in (content[:-cut], content + bytes(cut)):
        with pytest.raises(ValueError, match="idx file"):
            read_idx(np.frombuffer(changed, np.uint8))


def test_sizes_that_overflow_are_refused():
    content = idx_header((2**31, 2**31, 4)) + b"\1"
    with pytest.raises(ValueError, match="must hold 18446744073709551616 values"):
        read_idx(np.frombuffer(content, np.uint8))
