import contextlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save

from sfumato.federated.wire import Malformed, pack, unpack

headers = st.dictionaries(st.text(max_size=8), st.integers() | st.text(max_size=8), max_size=4)


@given(headers, st.lists(st.floats(width=32), max_size=20))
def test_round_trip(header, numbers):
    sent = pack(header, {"a": np.array(numbers, np.float32)})
    found, arrays = unpack(sent, most_bytes=80)
    assert found == header
    assert arrays["a"].tobytes() == np.array(numbers, np.float32).tobytes()


def test_without_arrays():
    assert unpack(pack({"x": 1}), most_bytes=0) == ({"x": 1}, {})


@given(st.binary(max_size=300))
def test_any_bytes_are_refused_or_read(data):
    with contextlib.suppress(Malformed):
        unpack(data, most_bytes=1000)


@given(st.data())
def test_a_flipped_byte_is_no_crash(data):
    sent = bytearray(pack({"round": 1}, {"a": np.arange(8, dtype=np.float32)}))
    at = data.draw(st.integers(0, len(sent) - 1))
    sent[at] ^= data.draw(st.integers(1, 255))
    with contextlib.suppress(Malformed):
        unpack(bytes(sent), most_bytes=1000)


def test_oversized():
    with pytest.raises(Malformed, match="at most were agreed"):
        unpack(pack({}, {"a": np.zeros(10**6, np.float32)}), most_bytes=1000)


def test_a_safetensors_file_of_somebody_else():
    with pytest.raises(Malformed):
        unpack(save({"a": np.zeros(3)}), most_bytes=1000)


def test_numbers_in_headers_are_finite():
    with pytest.raises(ValueError, match="JSON"):
        pack({"clip": float("nan")})


def test_a_header_that_is_no_object():
    with pytest.raises(Malformed, match="no object"):
        unpack(save({"a": np.zeros(1)}, metadata={"sfumato": "[1]"}), most_bytes=1000)
