"""Masked numbers are uniform to all who lack a mask; the threshold is what keeps it so."""

import itertools

import numpy as np
import pytest
from scipy.stats import chisquare

from sfumato.federated.secure.keys import agree
from sfumato.federated.secure.masking import Refused
from sfumato.federated.secure.masking_rounds import KEY_SHARE, SELF_SHARE, order_hash
from sfumato.federated.secure.masking_state import load_state
from sfumato.federated.secure.residues import add_mask, reduce, unpack_residues
from sfumato.federated.secure.shamir import SHARE_BYTES, Share, join
from sfumato.federated.wire import pack, unpack

LENGTH = 20_000
VICTIM = "p2"


def looks_uniform(values):
    """False alarm once in a million."""
    return chisquare(np.bincount(values.astype(np.int64), minlength=256)).pvalue > 1e-6


def sevens(members):
    return {name: np.full(members.settings.length, 7, np.uint64) for name in members.names}


def masked(members, name):
    _, arrays = unpack(members.said["masked-input", name][64:], most_bytes=10**7)
    return unpack_residues(arrays["masked"], members.settings.length, members.settings.bits)


def knows(members, name):
    """All that a participant has after the masked input, if she shows it to the server."""
    return load_state(members.clients[name].to_bytes(), name, members.settings)


def stopped(group, size, threshold, length=LENGTH, stop="consistency"):
    members = group(size, threshold, length=length, bits=8)
    members.run(sevens(members), stop=stop)
    return members


def opened(members, colluders, victim, kind):
    states = {name: knows(members, name) for name in colluders}
    shares = [
        Share.from_bytes(state.roster.index(name), state.shares[victim][kind])
        for name, state in states.items()
    ]
    return join(shares, threshold=members.settings.threshold)


def without(roster, values, *, seed=None, masking=None, partners=()):
    """The victim's numbers with these masks taken off, as the server would."""
    total, told = values.copy(), order_hash(b"", roster.names)
    if seed:
        add_mask(total, roster.self_key(seed, VICTIM), 8, negative=True)
    for partner in partners:
        shared = agree(masking, roster.by_name[partner].masking)
        key = roster.pair_key(shared, VICTIM, partner, told)
        add_mask(total, key, 8, negative=partner > VICTIM)
    return reduce(total, 8)


def test_the_test_sees_numbers_without_masks():
    assert not looks_uniform(np.full(LENGTH, 7))
    nearly = np.random.default_rng(0).integers(0, 256, LENGTH)
    nearly[: LENGTH // 50] = 7
    assert not looks_uniform(nearly)


def test_masked_numbers_are_uniform_until_the_last_mask_is_off(group):
    members = stopped(group, 4, 3)
    for name in members.names:
        assert looks_uniform(masked(members, name))
    seed = opened(members, ["p0", "p1", "p3"], VICTIM, SELF_SHARE)
    masking = opened(members, ["p0", "p1", "p3"], VICTIM, KEY_SHARE)
    others = [name for name in members.names if name != VICTIM]
    hidden, roster = masked(members, VICTIM), knows(members, VICTIM).roster
    assert looks_uniform(without(roster, hidden, seed=seed))
    assert looks_uniform(without(roster, hidden, masking=masking, partners=others))
    for two in itertools.combinations(others, 2):
        assert looks_uniform(without(roster, hidden, seed=seed, masking=masking, partners=two))
    # Whoever has both secrets has the numbers.
    shown = without(roster, hidden, seed=seed, masking=masking, partners=others)
    assert (shown == 7).all()


def test_the_same_numbers_are_masked_afresh_in_each_session(group):
    members = group(3, 2, length=LENGTH, bits=8)
    seen = []
    for _ in range(2):
        members.run(sevens(members))
        seen.append(masked(members, "p0"))
    assert looks_uniform((seen[0] - seen[1]) & np.uint64(255))


def test_masks_of_two_participants_are_independent_without_their_pair(group):
    members = stopped(group, 3, 2)
    both = (masked(members, "p0") + masked(members, "p1")) & np.uint64(255)
    assert looks_uniform(both)  # p2's masks and two own ones are still there


@pytest.mark.parametrize("threshold", [2, 3, 4])
def test_colluders_below_the_threshold_open_nothing(group, threshold):
    members = stopped(group, 5, threshold, length=4)
    others = [name for name in members.names if name != VICTIM]
    for colluders in itertools.combinations(others, threshold - 1):
        for kind in (KEY_SHARE, SELF_SHARE):
            with pytest.raises(ValueError, match="threshold"):
                opened(members, colluders, VICTIM, kind)
    roster, hidden = knows(members, VICTIM).roster, masked(members, VICTIM)
    for colluders in itertools.combinations(others, threshold):
        masking = opened(members, colluders, VICTIM, KEY_SHARE)
        seed = opened(members, colluders, VICTIM, SELF_SHARE)
        shown = without(roster, hidden, seed=seed, masking=masking, partners=others)
        assert (shown == 7).all()


@pytest.mark.parametrize("gone", [(), ("p1",), ("p1", "p4")])
def test_a_participant_opens_one_secret_of_each_dealer_and_never_both(group, gone):
    members = group(5, 3)
    silent = dict.fromkeys(gone, "masked-input")
    before = {}

    def keep(stage, name, said):
        if stage == "consistency":
            before[name] = knows(members, name)
        return said

    result = members.run(members.values(), silent=silent, change=keep)
    for name in result.survivors:
        _, arrays = unpack(members.said["unmask", name][64:], most_bytes=10**6)
        assert set(arrays) == {"shares"}
        assert arrays["shares"].shape == (5, SHARE_BYTES)
        for dealer, row in zip(members.names, arrays["shares"], strict=True):
            key_share, self_share = before[name].shares[dealer]
            assert (row.tobytes() == key_share) == (dealer in gone)
            assert (row.tobytes() == self_share) == (dealer not in gone)
        after = members.clients[name].to_bytes()  # and she forgets the other
        assert all(share.hex().encode() not in after for share in before[name].shares[name])


def test_secrets_are_forgotten_as_soon_as_they_are_not_needed(group):
    members = stopped(group, 3, 2, length=4, stop="masked-input")
    keys = knows(members, "p0").keys
    seed = knows(members, "p0").seed
    assert keys.masking.hex().encode() in members.clients["p0"].to_bytes()
    members.reply("p0", members.run(sevens(members), stop="masked-input")["p0"], sevens(members))
    after = members.clients["p0"].to_bytes()
    for secret in (keys.masking, keys.sealing, seed, members.keys["p0"].to_bytes()):
        assert secret.hex().encode() not in after


# A server that lies about who survived.


def split_attack(group, threshold, told_survived):
    """Tells some that the victim survived, others that she did not; the shares it gets of each."""
    members = stopped(group, 5, threshold, length=4)
    roster, session = knows(members, "p0").roster, knows(members, "p0").session.hex()
    without_her = [name for name in members.names if name != VICTIM]
    told = {*told_survived, VICTIM}
    lists = {name: members.names if name in told else without_her for name in members.names}
    signed = {}
    for name, listed in lists.items():
        message = pack({"stage": "consistency", "session": session, "survivors": listed})
        _, arrays = unpack(members.clients[name].consistency(message)[64:], most_bytes=10**6)
        signed[name] = arrays["signature"]
    got = {KEY_SHARE: [], SELF_SHARE: []}
    for name, listed in lists.items():
        signers = [other for other in lists if lists[other] == listed]
        header = {"stage": "unmask", "session": session, "signers": signers}
        proof = pack(header, {"signatures": np.stack([signed[other] for other in signers])})
        if len(signers) < threshold:
            with pytest.raises(Refused, match=f"only {len(signers)} signatures"):
                members.clients[name].unmask(proof)
            continue
        _, arrays = unpack(members.clients[name].unmask(proof)[64:], most_bytes=10**6)
        row = arrays["shares"][members.names.index(VICTIM)].tobytes()
        kind = SELF_SHARE if name in told else KEY_SHARE
        got[kind].append(Share.from_bytes(roster.index(name), row))
    return members, roster, got


def test_a_low_threshold_lets_a_lying_server_split_the_participants(group):
    """2 t = 4 is not above n = 5: two open one secret, two the other."""
    members, roster, got = split_attack(group, 2, {"p0", "p1"})
    seed, masking = (join(got[kind], threshold=2) for kind in (SELF_SHARE, KEY_SHARE))
    others = [name for name in members.names if name != VICTIM]
    shown = without(roster, masked(members, VICTIM), seed=seed, masking=masking, partners=others)
    assert (shown == 7).all()


@pytest.mark.parametrize("number", range(5))
def test_a_threshold_above_half_does_not(group, number):
    """2 t = 6 is above n = 5: however it splits them, one of the two secrets stays shut."""
    others = ["p0", "p1", "p3", "p4"]
    for told_survived in itertools.combinations(others, number):
        _, _, got = split_attack(group, 3, set(told_survived))
        assert min(len(got[KEY_SHARE]), len(got[SELF_SHARE])) == 0


def with_order(message, order):
    header, arrays = unpack(message, most_bytes=10**7)
    return pack(header, {**arrays, "order": np.frombuffer(order, np.uint8)})


def test_another_model_for_one_participant_is_found_out(group):
    members = group(4, 3)
    values = members.values()

    def twist(stage, name, message):
        chosen = stage == "masked-input" and name == VICTIM
        return with_order(message, b"a model made for her") if chosen else message

    result = members.run(values, order=b"the model", twist=twist)
    assert VICTIM not in result.survivors
    assert "another order" in result.refused[VICTIM]
    np.testing.assert_array_equal(result.total, members.plain_sum(values, result.survivors))


def test_another_model_for_one_participant_leaves_masks_on_if_the_server_looks_away(
    group, monkeypatch
):
    from sfumato.federated.secure import masking_server

    def add(self, total, arrays, told_all):
        total += unpack_residues(arrays["masked"], self.settings.length, self.settings.bits)

    monkeypatch.setattr(masking_server._Session, "add", add)
    members = group(4, 3, length=LENGTH, bits=8)

    def twist(stage, name, message):
        chosen = stage == "masked-input" and name == VICTIM
        return with_order(message, b"a model made for her") if chosen else message

    result = members.run(sevens(members), order=b"the model", twist=twist)
    assert VICTIM in result.survivors  # the server insists; three others have signed
    assert looks_uniform(result.total)
