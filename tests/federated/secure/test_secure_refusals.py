"""What a participant will not do for a server that lies, and what a refusal leaves behind."""

import numpy as np
import pytest

from sfumato.federated.secure.keys import IdentityKey, SessionKeys
from sfumato.federated.secure.masking import STAGES, MaskSettings, Refused
from sfumato.federated.secure.masking_client import MaskingClient
from sfumato.federated.secure.masking_server import MaskingServer
from sfumato.federated.secure.sessions import FolderLog
from sfumato.federated.wire import Malformed, pack, unpack


def edited(message, edit):
    header, arrays = unpack(message, most_bytes=10**7)
    arrays = {name: array.copy() for name, array in arrays.items()}
    edit(header, arrays)
    return pack(header, arrays)


def rename(key, place, name):
    def edit(header, arrays):
        header[key][place] = name

    return edit


def leave(*keep, key, arrays):
    """Only these rows of the lists."""

    def edit(header, held):
        header[key] = [header[key][i] for i in keep]
        for array in arrays:
            held[array] = held[array][list(keep)]

    return edit


def flip(key, *place):
    def edit(header, arrays):
        arrays[key][place] ^= 1

    return edit


def put(**fields):
    def edit(header, arrays):
        header.update(fields)

    return edit


def array(key, value):
    def edit(header, arrays):
        arrays[key] = value

    return edit


def swap(key):
    def edit(header, arrays):
        arrays[key][[1, 2]] = arrays[key][[2, 1]]

    return edit


def drop(key):
    def edit(header, arrays):
        header.pop(key, None)
        arrays.pop(key, None)

    return edit


LIES = {
    "another agreement": (
        "advertise",
        put(settings={"threshold": 2}),
        "not those that were agreed",
    ),
    "no session": ("advertise", drop("session"), "without session"),
    "a short session": ("advertise", put(session="00"), "1 bytes instead of 32"),
    "a session that is no number": ("advertise", put(session="xyz"), "no hexadecimal"),
    "a stranger": ("share", rename("names", 3, "stranger"), "not in the directory"),
    "a bad signature": ("share", flip("keys", 1, 100), "p1: session keys with a bad signature"),
    "another key": ("share", flip("keys", 1, 40), "p1: session keys with a bad signature"),
    "swapped keys": ("share", swap("keys"), "bad signature"),
    "a name twice": ("share", rename("names", 2, "p1"), "twice"),
    "names that are none": ("share", put(names=[1, 2, 3, 4]), "without names"),
    "no names": ("share", put(names="p0"), "without names"),
    "keys of another form": ("share", array("keys", np.zeros((4, 9), np.uint8)), "should be uint8"),
    "floats as keys": ("share", array("keys", np.zeros((4, 128))), "should be uint8"),
    "too few partners": ("share", leave(0, 1, key="names", arrays=["keys"]), "only 2 partic"),
    "a roster without her": (
        "share",
        leave(1, 2, 3, key="names", arrays=["keys"]),
        "without her keys",
    ),
    "too few dealers": (
        "masked-input",
        lambda h, a: (
            leave(0, 1, key="dealers", arrays=[])(h, a),
            leave(0, key="session", arrays=["sealed", "commitments"])(dict(h), a),
        ),
        "only 2 participants dealt",
    ),
    "a dealer that is not there": ("masked-input", rename("dealers", 3, "q"), "not on the roster"),
    "dealers without her": ("masked-input", rename("dealers", 0, "p"), "without her"),
    "a share that was changed": ("masked-input", flip("sealed", 0, 50), "shares of p1"),
    "shares under wrong names": ("masked-input", swap("sealed"), "shares of p2"),
    "a hash that was changed": (
        "masked-input",
        flip("commitments", 0, 1, 5),
        "not those that were",
    ),
    "no order": ("masked-input", drop("order"), "without order"),
    "an order of floats": ("masked-input", array("order", np.ones(2)), "without order"),
    "too few survivors": ("consistency", put(survivors=["p0", "p1"]), "only 2 survivors"),
    "survivors without her": ("consistency", put(survivors=["p1", "p2", "p3"]), "without her"),
    "a survivor from nowhere": ("consistency", put(survivors=["p0", "p1", "p2", "x"]), "no shares"),
    "a survivor twice": ("consistency", put(survivors=["p0", "p0", "p1"]), "twice"),
    "survivors as numbers": ("consistency", put(survivors=[0, 1, 2]), "without survivors"),
    "too few signatures": (
        "unmask",
        leave(0, 1, key="signers", arrays=["signatures"]),
        "only 2 signatures",
    ),
    "a forged signature": ("unmask", flip("signatures", 1, 3), "p1 has not signed"),
    "signatures of others": ("unmask", rename("signers", 3, "x"), "others than the survivors"),
    "one signature three times": (
        "unmask",
        lambda h, a: h.update(signers=["p0", "p0", "p0", "p0"]),
        "twice",
    ),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_lie_ends_the_session(group, lie):
    stage, edit, reason = LIES[lie]
    members = group(4, 3)
    values = members.values()
    right = members.run(values, stop=stage)["p0"]
    client, asked = members.clients["p0"], len(members.asked)

    def contribution(order):
        raise AssertionError("no numbers for a liar")

    methods = {
        "advertise": client.advertise,
        "share": client.share,
        "masked-input": lambda message: client.masked_input(message, contribution),
        "consistency": client.consistency,
        "unmask": client.unmask,
    }
    with pytest.raises(Refused, match=reason):
        methods[stage](edited(right, edit))
    assert len(members.asked) == asked
    if stage != "advertise":
        with pytest.raises(Refused, match="not the turn"):  # it is over, with the truth as well
            methods[stage](right)


def test_a_lie_to_one_is_known_to_the_server_that_told_it_by_accident(group):
    """A refusal is an answer: the operator reads why."""
    members = group(4, 3)
    values = members.values()

    def twist(stage, name, message):
        wrong = stage == "masked-input" and name == "p0"
        return edited(message, flip("sealed", 1, 50)) if wrong else message

    result = members.run(values, twist=twist)
    assert result.refused == {"p0": "masked-input: refuses: shares of p2 that do not open"}
    np.testing.assert_array_equal(result.total, members.plain_sum(values, ["p1", "p2", "p3"]))


def test_other_survivors_for_half_of_them(group):
    """The server shows two lists; signatures under one are no proof of the other."""
    members = group(4, 3)
    lists = {"p0": ["p0", "p1", "p2"], "p1": ["p0", "p1", "p2"]}

    def twist(stage, name, message):
        if stage == "consistency" and name in lists:
            return edited(message, put(survivors=lists[name]))
        return message

    from sfumato.federated.secure.masking import SecureSumFailed

    with pytest.raises(SecureSumFailed, match="signed another list"):
        members.run(members.values(), twist=twist)
    # It has four signatures, two of each kind, and shows them all.
    signers, signatures = ["p0", "p1", "p2"], []
    for name in signers:
        _, arrays = unpack(members.said["consistency", name][64:], most_bytes=10**5)
        signatures.append(arrays["signature"])
    header, _ = unpack(members.told["consistency", "p0"], most_bytes=10**5)
    header = {"stage": "unmask", "session": header["session"], "signers": signers}
    proof = pack(header, {"signatures": np.stack(signatures)})
    for name, other in [("p0", "p2"), ("p2", "p0")]:
        with pytest.raises(Refused, match=f"{other} has not signed the same list"):
            members.clients[name].unmask(proof)


def test_a_key_that_two_have(group):
    """p1 colludes and signs p2's keys as hers, so that two masks are the same."""
    members = group(3, 2)

    def edit(header, arrays):
        row = arrays["keys"][2].copy()
        parts = (bytes.fromhex(header["session"]), "p1", row[:32].tobytes(), row[32:64].tobytes())
        row[64:] = np.frombuffer(members.keys["p1"].sign("session keys", *parts), np.uint8)
        arrays["keys"][1] = row

    right = members.run(members.values(), stop="share")["p0"]
    with pytest.raises(Refused, match="the same"):
        members.clients["p0"].share(edited(right, edit))


def test_more_participants_than_agreed(group):
    """The tolerated number of colluders holds for the agreed number of participants."""
    members = group(4, 2, participants=3)
    session = bytes(32)
    first = {"stage": "advertise", "session": session.hex(), "settings": members.settings.facts()}
    adverts = {name: c.advertise(pack(first)) for name, c in members.clients.items()}
    rows = []
    for said in adverts.values():
        _, arrays = unpack(said[64:], most_bytes=10**5)
        rows.append(np.concatenate([arrays[k] for k in ("sealing", "masking", "signature")]))
    header = {"stage": "share", "session": session.hex(), "names": members.names}
    with pytest.raises(Refused, match="at most 3 were agreed"):
        members.clients["p0"].share(pack(header, {"keys": np.stack(rows)}))


def test_keys_of_an_earlier_session_are_of_no_use(group):
    """p1 is away; the server replays what she signed. The session's id is signed, too."""
    members = group(3, 2)
    members.run(members.values())
    _, old = unpack(members.said["advertise", "p1"][64:], most_bytes=10**5)

    def edit(header, arrays):
        arrays["keys"][1] = np.concatenate([old[k] for k in ("sealing", "masking", "signature")])

    right = members.run(members.values(), stop="share")["p0"]
    with pytest.raises(Refused, match="p1: session keys with a bad signature"):
        members.clients["p0"].share(edited(right, edit))


def test_the_same_session_with_others_who_never_saw_it(group):
    """The id is used again, so p1's signature is good; but only she can seal shares for p2."""
    members, session = group(3, 2), bytes(32)
    members.run(members.values(), session=session, silent={"p2": "advertise"})
    _, old = unpack(members.said["advertise", "p1"][64:], most_bytes=10**5)
    _, dealt = unpack(members.said["share", "p1"][64:], most_bytes=10**5)
    fresh = members.clients["p2"]
    first = {"stage": "advertise", "session": session.hex(), "settings": members.settings.facts()}
    _, mine = unpack(fresh.advertise(pack(first))[64:], most_bytes=10**5)
    fields = ("sealing", "masking", "signature")
    rows = np.stack([np.concatenate([a[k] for k in fields]) for a in (old, mine)])
    place = {"session": session.hex()}
    fresh.share(pack({**place, "stage": "share", "names": ["p1", "p2"]}, {"keys": rows}))
    arrays = {
        "sealed": dealt["sealed"][:1],
        "commitments": dealt["commitments"][:1],
        "order": np.zeros(0, np.uint8),
    }
    header = {**place, "stage": "masked-input", "dealers": ["p1", "p2"]}
    with pytest.raises(Refused, match="shares of p1 that do not open"):
        fresh.masked_input(pack(header, arrays), lambda order: np.zeros(4, np.uint64))


def test_a_replayed_session_is_refused(group):
    members = group(3, 2)
    members.run(members.values())
    for name in members.names:
        with pytest.raises(Refused, match="replay"):
            members.clients[name].advertise(members.told["advertise", name])
        for stage in STAGES[1:]:
            said = members.reply(name, members.told[stage, name], members.values())
            assert unpack(said[64:], most_bytes=10**5)[0]["refusal"]


def test_stages_out_of_turn_change_nothing(group):
    other = group(3, 2)
    other.run(other.values())
    members = group(3, 2)
    values = members.values()

    def twist(stage, name, message):
        header, _ = unpack(message, most_bytes=10**5)
        for wrong in STAGES[1:]:
            if wrong != stage:
                out = edited(other.told[wrong, name], put(session=header["session"]))
                refused = members.reply(name, out, values)
                assert "turn" in unpack(refused[64:], most_bytes=10**5)[0]["refusal"]
        return message

    result = members.run(values, twist=twist)
    np.testing.assert_array_equal(result.total, members.plain_sum(values, members.names))


def test_unmasking_twice(group):
    members = group(3, 2)
    members.run(members.values())
    with pytest.raises(Refused, match="not the turn of unmask"):
        members.clients["p0"].unmask(members.told["unmask", "p0"])


def test_a_state_put_back_is_not_asked_again(group, tmp_path):
    """Whoever stores states could restore one; the log of what was answered forbids it."""
    members = group(3, 2)
    members.logs["p0"] = FolderLog(tmp_path)
    members.clients["p0"] = members.client("p0")
    kept = {}

    def twist(stage, name, message):
        kept[stage, name] = members.clients[name].to_bytes()
        return message

    members.run(members.values(), twist=twist)
    for stage, method in [("share", "share"), ("consistency", "consistency"), ("unmask", "unmask")]:
        again = MaskingClient.from_bytes(
            kept[stage, "p0"],
            "p0",
            members.keys["p0"],
            members.directory,
            members.settings,
            log=FolderLog(tmp_path),
        )
        with pytest.raises(Refused, match="replay"):
            getattr(again, method)(members.told[stage, "p0"])


@pytest.mark.parametrize("junk", [b"", b"junk", b"\xff" * 100, bytes(8) + b"{}"])
def test_junk_is_refused_at_every_stage(group, junk):
    client = group(3, 2).clients["p0"]
    for method in (client.advertise, client.share, client.consistency, client.unmask):
        with pytest.raises(Refused, match="no message"):
            method(junk)
    with pytest.raises(Refused, match="no message"):
        client.answer(junk, lambda order: np.zeros(4, np.uint64))


def test_messages_that_lead_nowhere(group):
    client = group(3, 2).clients["p0"]
    for header in ({"stage": "dance"}, {"stage": 3}, {}):
        with pytest.raises(Refused, match="no stage"):
            client.answer(pack(header), lambda order: np.zeros(4, np.uint64))
    with pytest.raises(Refused, match="hexadecimal"):
        client.answer(
            pack({"stage": "share", "session": "?"}), lambda order: np.zeros(4, np.uint64)
        )
    with pytest.raises(Refused, match="not share"):
        client.share(pack({"stage": "unmask", "session": "00" * 32}))


def test_messages_that_are_too_long(group):
    members = group(2, 2)
    agreed = MaskSettings(4, 2, 2, most_order=10)
    client = MaskingClient("p0", members.keys["p0"], members.directory, agreed)
    with pytest.raises(Refused, match="bytes"):
        client.answer(bytes(10**6), lambda order: np.zeros(4, np.uint64))
    members.settings = agreed
    members.clients = {name: members.client(name) for name in members.names}
    right = members.run(members.values(), stop="masked-input")["p0"]
    with pytest.raises(Refused, match="an order of 11 bytes"):
        members.clients["p0"].masked_input(
            edited(right, array("order", np.zeros(11, np.uint8))), lambda order: None
        )


def test_a_key_that_is_not_hers(group):
    members = group(2, 2)
    for name, key in [("p0", members.keys["p1"]), ("x", IdentityKey.generate())]:
        with pytest.raises(ValueError, match="identity must be the key of"):
            MaskingClient(name, key, members.directory, members.settings)


def test_states_that_are_none(group):
    members = group(3, 2)
    members.run(members.values(), stop="unmask")
    right = members.clients["p0"].to_bytes()

    def load(data, name="p0"):
        return MaskingClient.from_bytes(
            data,
            name,
            members.keys[name],
            members.directory,
            members.settings,
            log=members.logs[name],
        )

    with pytest.raises(Malformed, match="another participant"):
        load(right, "p1")
    for edit in (
        put(state="Lost"),
        drop("state"),
        drop("shares"),
        put(shares={"p0": ["zz", "00"]}),
        put(shares=[1]),
        put(roster=[["p0"]]),
        put(session="00"),
    ):
        with pytest.raises(Malformed):
            load(edited(right, edit))
    with pytest.raises(Malformed):
        load(b"junk")
    assert load(right).to_bytes() == right


def test_errors_of_the_contribution_are_the_callers_and_end_the_session(group):
    members = group(2, 2)
    right = members.run(members.values(), stop="masked-input")["p0"]

    def broken(order):
        raise OSError("disk")

    with pytest.raises(OSError, match="disk"):
        members.clients["p0"].answer(right, broken)
    with pytest.raises(Refused, match="turn"):
        members.clients["p0"].masked_input(right, lambda order: np.zeros(4, np.uint64))


def test_secrets_do_not_show(group):
    members = group(2, 2)
    members.run(members.values(), stop="masked-input")
    state = members.clients["p0"]._state
    assert state.seed.hex() not in repr(state)
    assert repr(state.seed) not in repr(state)
    assert repr(SessionKeys.generate()).count("\\x") == 0


def test_a_server_never_repeats_a_session(group):
    members = group(2, 2)
    server = MaskingServer(members.directory, members.settings)
    sessions = {
        unpack(next(server.collect(["p0", "p1"]))["p0"], most_bytes=9**5)[0]["session"]
        for _ in range(5)
    }
    assert len(sessions) == 5
