"""Bytes in Flower's records."""

from __future__ import annotations

import pytest
from flwr.app import ConfigRecord, MetricRecord, RecordDict
from hypothesis import given
from hypothesis import strategies as st

from sfumato.federated.flower.records import bytes_of, content_of, length_of
from sfumato.federated.wire import Malformed


@given(st.binary(max_size=200), st.integers(1, 64))
def test_what_goes_in_comes_out_whatever_the_pieces(data: bytes, piece: int) -> None:
    content = content_of(data, piece=piece)
    assert bytes_of(content, most_bytes=200) == data
    assert length_of(content) == len(data)
    assert len(content) == max(1, -(-len(data) // piece))


@pytest.mark.parametrize(
    "content",
    [
        RecordDict(),
        RecordDict({"weights": ConfigRecord({"bytes": b"1"})}),
        RecordDict({"sfumato.1": ConfigRecord({"bytes": b"1"})}),
        RecordDict({"sfumato.0": MetricRecord({"bytes": 1.0})}),
        RecordDict({"sfumato.0": ConfigRecord({"bytes": "text"})}),
        RecordDict({"sfumato.0": ConfigRecord({"bytes": b"1", "more": 2})}),
        RecordDict({"sfumato.0": ConfigRecord({"bytes": b"1"}), "other": ConfigRecord()}),
    ],
)
def test_anything_else_is_malformed(content: RecordDict) -> None:
    with pytest.raises(Malformed):
        bytes_of(content)


def test_a_message_that_is_too_long_is_malformed() -> None:
    with pytest.raises(Malformed, match="more than 9 bytes"):
        bytes_of(content_of(b"ten bytes!", piece=4), most_bytes=9)
