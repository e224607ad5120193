"""Sums by masks are exact, whoever drops out when, and in whatever process each stage runs."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from sfumato.federated.in_process import InProcess
from sfumato.federated.secure.driving import drive
from sfumato.federated.secure.masking import (
    STAGES,
    MaskSettings,
    SecureSumFailed,
    least_threshold,
)
from sfumato.federated.secure.masking_server import MaskingServer


@some.composite
def runs(draw):
    size = draw(some.integers(2, 6))
    threshold = draw(some.integers(2, size))
    length, bits = draw(some.integers(1, 40)), draw(some.sampled_from([1, 7, 8, 20, 32, 33, 64]))
    stages = draw(some.lists(some.sampled_from([None, None, None, *STAGES]), min_size=size))
    return size, threshold, length, bits, stages[:size]


@settings(max_examples=60)
@given(run=runs(), seed=some.integers(0, 2**32))
def test_the_sum_is_that_of_the_survivors(group, run, seed):
    size, threshold, length, bits, stages = run
    members = group(size, threshold, length=length, bits=bits)
    values = members.values(seed)
    silent = {name: s for name, s in zip(members.names, stages, strict=True) if s}
    left = [sum(silent.get(n) not in STAGES[: k + 1] for n in members.names) for k in range(5)]
    if min(left) < threshold:
        with pytest.raises(SecureSumFailed, match=f"{threshold} are needed") as failed:
            members.run(values, silent=silent)
        assert set(failed.value.dropped.items()) <= set(silent.items())
        return
    result = members.run(values, silent=silent)
    inside = [name for name in members.names if silent.get(name) not in STAGES[:3]]
    assert list(result.survivors) == inside
    assert dict(result.dropped) == silent
    assert not result.refused
    np.testing.assert_array_equal(result.total, members.plain_sum(values, inside))


def test_state_passes_through_bytes_between_all_stages(group):
    members = group(5, 3, length=9, bits=40)
    values = members.values()
    result = members.run(values, restart=True, silent={"p1": "masked-input", "p4": "consistency"})
    assert result.survivors == ("p0", "p2", "p3", "p4")
    np.testing.assert_array_equal(result.total, members.plain_sum(values, result.survivors))


def test_numbers_are_asked_for_once_with_the_order_and_only_in_their_stage(group):
    members = group(3, 2)
    members.run(members.values(), order=b"weights", stop="masked-input")
    assert members.asked == []
    members = group(3, 2)
    members.run(members.values(), order=b"weights")
    assert members.asked == [(name, b"weights") for name in members.names]


def test_several_sessions_with_the_same_participants(group):
    members = group(3, 2)
    for seed in range(3):
        values = members.values(seed)
        total = members.run(values).total
        np.testing.assert_array_equal(total, members.plain_sum(values, members.names))


def test_a_session_given_up_does_not_stop_the_next(group):
    members = group(3, 2)
    for stage in STAGES[1:]:
        members.run(members.values(), stop=stage)
    values = members.values(7)
    np.testing.assert_array_equal(
        members.run(values).total, members.plain_sum(values, members.names)
    )


def test_numbers_beyond_the_modulus_are_reduced_and_not_changed_in_place(group):
    members = group(2, 2, length=2, bits=8)
    values = {name: np.array([2**63 + 5, 300], np.uint64) for name in members.names}
    assert members.run(values).total.tolist() == [10, (2 * 300) % 256]
    assert values["p0"].tolist() == [2**63 + 5, 300]


@pytest.mark.parametrize("wrong", [np.zeros(3, np.uint64), np.zeros(4, np.int64), np.zeros(4)])
def test_numbers_of_another_kind_are_a_mistake_of_the_caller(group, wrong):
    members = group(2, 2)
    with pytest.raises(ValueError, match="4 numbers of type uint64"):
        members.run({"p0": wrong, "p1": wrong})


@pytest.mark.parametrize(("bits", "width"), [(1, 1), (8, 1), (20, 3), (32, 4), (64, 8)])
def test_the_wire_is_as_narrow_as_the_modulus(group, bits, width):
    members = group(2, 2, length=10_000, bits=bits)
    members.run(members.values())
    assert 0 <= len(members.said["masked-input", "p0"]) - 10_000 * width < 500


def test_over_an_engine_where_one_breaks(group):
    members = group(4, 3, length=3)
    values = members.values()

    class Member:
        def __init__(self, name):
            self.name = name

        def answer(self, message):
            if self.name == "p2" and members.asked:
                raise OSError("disk")
            return members.reply(self.name, message, values)

    engine = InProcess({name: Member(name) for name in members.names})
    server = MaskingServer(members.directory, members.settings)
    result = drive(server.collect(engine.participants()), engine)
    assert result.survivors == ("p0", "p1", "p3")
    assert result.dropped == {"p2": "masked-input"}
    np.testing.assert_array_equal(result.total, members.plain_sum(values, result.survivors))


def test_thresholds():
    for n in range(2, 40):
        for c in range(n - 1):
            t = least_threshold(n, colluders=c)
            assert 2 * t > n + c >= 2 * (t - 1) or t == c + 2
            assert MaskSettings(1, t, n).colluders_tolerated() >= c
            curious = least_threshold(n, colluders=c, malicious_server=False)
            assert curious == c + 2 <= t
        # The paper's: more than two thirds, for fewer than one third of colluders.
        colluders = -(-n // 3) - 1
        assert MaskSettings(1, max(2, 2 * n // 3 + 1), n).colluders_tolerated() >= min(
            colluders, n - 2
        )
    assert MaskSettings(1, 5, 10).colluders_tolerated() == -1
    assert MaskSettings(1, 5, 10).colluders_tolerated(malicious_server=False) == 3


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"threshold": 1}, "threshold"),
        ({"threshold": 4}, "at most the 3 participants"),
        ({"length": 0}, "length"),
        ({"bits": 65}, "bits"),
        ({"bits": 0}, "bits"),
        ({"participants": 1}, "participants"),
        ({"most_order": -1}, "most_order"),
    ],
)
def test_settings_that_cannot_work(change, match):
    agreed = {"length": 4, "threshold": 2, "participants": 3, **change}
    with pytest.raises(ValueError, match=match):
        MaskSettings(**agreed)


def test_colluders_beyond_all_but_two():
    with pytest.raises(ValueError, match="two are to be hidden"):
        least_threshold(4, colluders=3)


def test_who_may_be_asked(group):
    members = group(3, 2)
    server = MaskingServer(members.directory, members.settings)
    with pytest.raises(ValueError, match="twice"):
        server.collect(["p0", "p0"])
    with pytest.raises(ValueError, match="at most 3"):
        server.collect(["p0", "p1", "p2", "p3"])
    small = MaskingServer(members.directory, MaskSettings(4, 2, 3, most_order=3))
    with pytest.raises(ValueError, match="order"):
        small.collect(["p0", "p1"], b"long")
    with pytest.raises(SecureSumFailed, match="not in the directory"):
        next(server.collect(["p0", "stranger"]))
    messages = next(server.collect(["p0", "p1", "stranger"]))
    assert set(messages) == {"p0", "p1"}
