"""One participant's fault costs her part, or nothing: she is named and the sum goes on."""

import json

import numpy as np
import pytest

from sfumato.federated.secure import masking_client
from sfumato.federated.secure.keys import SessionKeys, digest
from sfumato.federated.secure.masking import STAGES, SecureSumFailed
from sfumato.federated.secure.masking_rounds import sign_answer
from sfumato.federated.secure.shamir import Share, split
from sfumato.federated.wire import unpack

BAD = "p1"


def signed_again(members, stage, said, edit):
    """What she could send if she cheats: her own signature under something else."""
    header, arrays = unpack(said[64:], most_bytes=10**7)
    arrays = {name: array.copy() for name, array in arrays.items()}
    edit(header, arrays)
    session = bytes.fromhex(header["session"])
    return sign_answer(members.keys[BAD], (session, stage, BAD), header, arrays)


def only(stage, change):
    """The change to what BAD says at one stage."""
    return lambda at, name, said: change(said) if (at, name) == (stage, BAD) else said


def deep(members, stage, said):
    """JSON that is nested too deep to be parsed."""
    nested = json.dumps({"__metadata__": {"sfumato": "[" * 60_000}}).encode()
    return signed_bytes(members, stage, said, len(nested).to_bytes(8, "little") + nested)


def signed_bytes(members, stage, said, body):
    session = bytes.fromhex(unpack(said[64:], most_bytes=10**7)[0]["session"])
    return members.keys[BAD].sign("answer", session, stage, BAD, digest(body)) + body


FAULTS = {
    "junk": lambda members, stage, said: b"junk",
    "nothing in it": lambda members, stage, said: b"",
    "cut off": lambda members, stage, said: said[:-1],
    "one bit": lambda members, stage, said: said[:-1] + bytes([said[-1] ^ 1]),
    "another signature": lambda members, stage, said: bytes(64) + said[64:],
    "far too long": lambda members, stage, said: said + bytes(10**7),
    "signed junk": lambda members, stage, said: signed_bytes(members, stage, said, b"junk"),
    "no arrays": lambda m, stage, said: signed_again(m, stage, said, lambda h, a: a.clear()),
    "floats": lambda m, stage, said: signed_again(
        m, stage, said, lambda h, a: a.update({k: v.astype(np.float32) for k, v in a.items()})
    ),
    "one row less": lambda m, stage, said: signed_again(
        m, stage, said, lambda h, a: a.update({k: v[:-1] for k, v in a.items()})
    ),
    "not numbers": lambda m, stage, said: signed_again(
        m, stage, said, lambda h, a: a.update({k: np.full(v.shape, np.nan) for k, v in a.items()})
    ),
    "nested too deep": deep,
}


def check(members, values, result, stage):
    late = STAGES.index(stage) > 2
    inside = [name for name in members.names if late or name != BAD]
    assert list(result.survivors) == inside
    assert list(result.refused) == [BAD]
    assert result.refused[BAD].startswith(stage)
    assert not result.dropped
    np.testing.assert_array_equal(result.total, members.plain_sum(values, inside))


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_costs_her_alone(group, stage, fault):
    members = group(4, 3)
    values = members.values()
    change = only(stage, lambda said: FAULTS[fault](members, stage, said))
    check(members, values, members.run(values, change=change), stage)


@pytest.mark.parametrize("stage", STAGES)
def test_an_answer_of_another_stage_session_or_participant(group, stage):
    members = group(4, 3)
    values = members.values()
    members.run(values)
    old = dict(members.said)
    following = {s: STAGES[(i + 1) % 5] for i, s in enumerate(STAGES)}
    for sent in (
        lambda said: old[stage, BAD],
        lambda said: members.said[stage, "p0"],
        lambda said: old[following[stage], BAD],
    ):
        check(members, values, members.run(values, change=only(stage, sent)), stage)


@pytest.mark.parametrize("stage", STAGES)
def test_below_the_threshold_there_is_no_sum_and_she_is_named(group, stage):
    members = group(3, 3)
    with pytest.raises(SecureSumFailed, match="only 2 participants remain, 3 are needed") as failed:
        members.run(members.values(), change=only(stage, lambda said: b"junk"))
    assert list(failed.value.refused) == [BAD]
    assert f"{BAD}: {stage}" in str(failed.value)


def test_names_that_nobody_asked_are_ignored(group):
    from sfumato.federated.secure.masking_server import MaskingServer

    members = group(3, 2)
    server = MaskingServer(members.directory, members.settings).collect(["p0", "p1"])
    messages = next(server)
    replies = {name: members.reply(name, m, {}) for name, m in messages.items()}
    assert set(server.send({**replies, "p2": b"me too", "x": b"?"})) == {"p0", "p1"}


@pytest.mark.parametrize("gone", [{}, {"p3": "masked-input"}])
def test_a_wrong_share_is_seen_and_the_sum_is_right(group, gone):
    members = group(5, 3)
    values = members.values()

    def wrong(said):
        return signed_again(members, "unmask", said, lambda h, a: a["shares"].__ixor__(1))

    result = members.run(values, silent=gone, change=only("unmask", wrong))
    assert "not the one dealt" in result.refused[BAD]
    np.testing.assert_array_equal(result.total, members.plain_sum(values, result.survivors))


def test_rubbish_sealed_for_one_costs_that_one_who_names_the_dealer(group):
    members = group(4, 3)
    values = members.values()

    def wrong(said):
        return signed_again(members, "share", said, lambda h, a: a["sealed"][0].__ixor__(1))

    result = members.run(values, change=only("share", wrong))
    assert result.refused == {"p0": "masked-input: refuses: shares of p1 that do not open"}
    np.testing.assert_array_equal(result.total, members.plain_sum(values, result.survivors))


def test_rubbish_sealed_for_all_stops_the_sum_and_the_dealer_is_named(group):
    members = group(4, 3)

    def wrong(said):
        return signed_again(members, "share", said, lambda h, a: a["sealed"].__ixor__(1))

    with pytest.raises(SecureSumFailed, match="shares of p1 that do not open"):
        members.run(members.values(), change=only("share", wrong))


@pytest.mark.parametrize("gone", [{}, {"p1": "masked-input"}])
@pytest.mark.parametrize("large", [True, False])
def test_shares_of_no_polynomial_name_the_dealer(group, monkeypatch, gone, large):
    calls = []

    def cheating(secret, *, threshold, count):
        calls.append(count)
        if len(calls) in (3, 4):  # p1's
            other = [split(bytes([i]) * 32, threshold=threshold, count=count) for i in range(count)]
            return [Share(i + 1, i + 5) if not large else o[i] for i, o in enumerate(other)]
        return split(secret, threshold=threshold, count=count)

    monkeypatch.setattr(masking_client, "split", cheating)
    members = group(4, 3)
    with pytest.raises(SecureSumFailed, match="p1 dealt shares that do not fit together"):
        members.run(members.values(), silent=gone)


def test_two_with_the_same_session_key_are_left_out(group, monkeypatch):
    members = group(5, 3)
    values = members.values()
    fixed = SessionKeys.generate()
    drawn = iter([fixed, fixed, *(SessionKeys.generate() for _ in range(3))])
    monkeypatch.setattr(masking_client.SessionKeys, "generate", lambda: next(drawn))
    result = members.run(values)
    assert result.survivors == ("p2", "p3", "p4")
    assert set(result.refused) == {"p0", "p1"}
    assert all("there twice" in reason for reason in result.refused.values())
    np.testing.assert_array_equal(result.total, members.plain_sum(values, result.survivors))


def test_a_key_of_small_order_is_left_out(group):
    members = group(4, 3)
    values = members.values()

    def wrong(said):
        def edit(header, arrays):
            session, zero = bytes.fromhex(header["session"]), bytes(32)
            sealing = arrays["sealing"].tobytes()
            signature = members.keys[BAD].sign("session keys", session, BAD, sealing, zero)
            arrays["masking"] = np.zeros(32, np.uint8)
            arrays["signature"] = np.frombuffer(signature, np.uint8)

        return signed_again(members, "advertise", said, edit)

    result = members.run(values, change=only("advertise", wrong))
    assert "small order" in result.refused[BAD]
    check(members, values, result, "advertise")


def test_a_long_refusal_is_cut(group):
    members = group(4, 3)

    def wrong(said):
        return signed_again(members, "share", said, lambda h, a: h.update(refusal="x" * 50_000))

    result = members.run(members.values(), change=only("share", wrong))
    assert len(result.refused[BAD]) < 600
