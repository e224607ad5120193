"""Sums under CKKS: right to the stated error, readable by key holders alone."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from sfumato.federated.secure.masking import Refused, SecureSumFailed
from sfumato.federated.wire import pack, unpack

tenseal = pytest.importorskip("tenseal")

from sfumato.federated.secure.ckks import (  # noqa: E402
    CkksClient,
    CkksKeys,
    CkksPublic,
    CkksServer,
    CkksSettings,
)

KEYS, OTHER = CkksKeys.generate(), CkksKeys.generate()
NAMES = ("ann", "bob", "eve")
AGREED = CkksSettings(length=5, participants=3, bound=100.0)
VALUES = {name: np.arange(5) * (i + 0.5) for i, name in enumerate(NAMES)}


def run(values, *, agreed=AGREED, change=None, keys=KEYS, least=2, order=b"", server_key=KEYS):
    names = list(values)
    server = CkksServer(server_key.public(), agreed).collect(names, order, least=least)
    messages = next(server)
    clients = {name: CkksClient(name, keys, agreed) for name in names}
    replies = {n: clients[n].answer(m, lambda order, n=n: values[n]) for n, m in messages.items()}
    for name, changed in (change or {}).items():
        replies[name] = changed(replies[name])
    try:
        server.send({name: reply for name, reply in replies.items() if reply is not None})
    except StopIteration as ended:
        return ended.value
    raise AssertionError


@settings(max_examples=15)
@given(
    length=some.sampled_from([1, 2047, 2048, 2049, 5000]),
    size=some.integers(2, 5),
    bound=some.sampled_from([1e-3, 1.0, 50_000.0]),
    seed=some.integers(0, 2**32),
)
def test_the_error_is_below_what_is_stated_whatever_the_size(length, size, bound, seed):
    random = np.random.default_rng(seed)
    values = {f"p{i}": random.uniform(-bound, bound, length) for i in range(size)}
    agreed = CkksSettings(length, size, bound)
    encrypted = run(values, agreed=agreed)
    total = CkksClient("p0", KEYS, agreed).open(encrypted.data)
    assert total.shape == (length,)
    assert np.abs(total - sum(values.values())).max() < 1e-7


def test_every_holder_opens_the_same_sum_and_the_order_arrives():
    encrypted = run(VALUES, order=b"model")
    assert encrypted.survivors == NAMES
    for name in NAMES:
        opened = CkksClient(name, KEYS, AGREED).open(encrypted.data)
        np.testing.assert_allclose(opened, sum(VALUES.values()), atol=1e-7)


def test_keys_travel_as_bytes():
    again = CkksKeys(KEYS.to_bytes())
    assert again.fingerprint == KEYS.fingerprint == KEYS.public().fingerprint
    assert OTHER.fingerprint != KEYS.fingerprint
    public = CkksPublic(KEYS.public().to_bytes())
    assert public.fingerprint == KEYS.fingerprint
    encrypted = run(VALUES, keys=again)
    opened = CkksClient("eve", KEYS, AGREED).open(encrypted.data)
    np.testing.assert_allclose(opened, sum(VALUES.values()), atol=1e-7)


def test_the_server_cannot_decrypt():
    public = KEYS.public()
    assert not hasattr(public, "decrypt")
    vector = public.load(KEYS.encrypt(np.ones(3)), 3)
    with pytest.raises(ValueError, match="secret_key"):
        vector.decrypt()
    with pytest.raises(TypeError, match="never holds the secret key"):
        CkksServer(KEYS, AGREED)
    with pytest.raises(ValueError, match="no secret key"):
        CkksPublic(KEYS.to_bytes())
    with pytest.raises(ValueError, match="public half"):
        CkksKeys(KEYS.public().to_bytes())
    assert KEYS.to_bytes() != KEYS.public().to_bytes()


def test_one_participant_who_shows_her_key_opens_each_part():
    """The limit that the page states: one key for all."""
    seen = {}
    run(VALUES, change={"ann": lambda reply: seen.setdefault("ann", reply)})
    _, arrays = unpack(seen["ann"], most_bytes=10**6)
    opened = KEYS.decrypt(arrays["chunk0"].tobytes(), 5)
    np.testing.assert_allclose(opened, VALUES["ann"], atol=1e-7)


def test_encryption_is_randomised():
    assert KEYS.encrypt(np.ones(3)) != KEYS.encrypt(np.ones(3))


def test_a_wrong_key_gives_rubbish_and_is_refused_before():
    rubbish = OTHER.decrypt(KEYS.encrypt(np.ones(5)), 5)
    assert np.abs(rubbish).min() > 1e3
    encrypted = run(VALUES)
    with pytest.raises(Refused, match="another key"):
        CkksClient("ann", OTHER, AGREED).open(encrypted.data)
    with pytest.raises(Refused, match="another key"):
        run(VALUES, keys=OTHER)

    def foreign(reply):
        header, _ = unpack(reply, most_bytes=10**6)
        chunk = np.frombuffer(OTHER.encrypt(np.ones(5)), np.uint8)
        return pack({**header, "key": OTHER.fingerprint}, {"chunk0": chunk})

    encrypted = run(VALUES, change={"bob": foreign})
    assert encrypted.refused == {"bob": "encrypt: encrypted under another key"}
    opened = CkksClient("ann", KEYS, AGREED).open(encrypted.data)
    np.testing.assert_allclose(opened, VALUES["ann"] + VALUES["eve"], atol=1e-7)


def replaced(**arrays):
    return lambda reply: pack(unpack(reply, most_bytes=10**6)[0], arrays)


def octets(data):
    return np.frombuffer(data, np.uint8)


def scaled_otherwise():
    context = tenseal.context_from(KEYS.to_bytes())
    return tenseal.ckks_vector(context, [1.0] * 5, scale=2.0**30).serialize()


def of_another_ring():
    context = tenseal.context(tenseal.SCHEME_TYPE.CKKS, 8192, coeff_mod_bit_sizes=[60, 40, 60])
    context.global_scale = 2.0**40
    return tenseal.ckks_vector(context, [1.0] * 5).serialize()


def changed_header(**fields):
    def change(reply):
        header, arrays = unpack(reply, most_bytes=10**6)
        return pack({**header, **fields}, arrays)

    return change


FAULTS = {
    "junk": lambda reply: b"junk",
    "empty": lambda reply: b"",
    "cut off": lambda reply: reply[:-100],
    "too long": lambda reply: reply + bytes(10**6),
    "no ciphertext": replaced(chunk0=octets(b"junk")),
    "a ciphertext cut off": replaced(chunk0=octets(KEYS.encrypt(np.ones(5))[:30_000])),
    "other numbers of numbers": replaced(chunk0=octets(KEYS.encrypt(np.ones(4)))),
    "too many": replaced(**{f"chunk{i}": octets(KEYS.encrypt(np.ones(5))) for i in range(2)}),
    "none": replaced(other=octets(b"junk")),
    "floats": replaced(chunk0=np.full(9, np.nan)),
    "another scale": replaced(chunk0=octets(scaled_otherwise())),
    "another ring": replaced(chunk0=octets(of_another_ring())),
    "another session": changed_header(session="00"),
    "another name": changed_header(name="ann"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_costs_her_alone(fault):
    encrypted = run(VALUES, change={"bob": FAULTS[fault]})
    assert encrypted.survivors == ("ann", "eve")
    assert list(encrypted.refused) == ["bob"]
    opened = CkksClient("ann", KEYS, AGREED).open(encrypted.data)
    np.testing.assert_allclose(opened, VALUES["ann"] + VALUES["eve"], atol=1e-7)


def test_flipped_bits_are_refused_or_stay_hers():
    """SEAL refuses coefficients that are out of range; others only change her part."""
    random = np.random.default_rng(0)
    for _ in range(20):
        sent = bytearray(KEYS.encrypt(np.ones(5)))
        sent[random.integers(0, 120)] ^= 1 << random.integers(0, 8)
        encrypted = run(VALUES, change={"bob": replaced(chunk0=octets(bytes(sent)))})
        assert {"ann", "eve"} <= set(encrypted.survivors)


def test_who_does_not_answer():
    encrypted = run(VALUES, change={"bob": lambda reply: None})
    assert encrypted.dropped == {"bob": "encrypt"}
    gone = {"bob": lambda reply: None, "eve": lambda reply: b"junk"}
    with pytest.raises(SecureSumFailed, match="only 1 participants remain, 2 are needed"):
        run(VALUES, change=gone)
    with pytest.raises(SecureSumFailed, match="3 are needed"):
        run(VALUES, change={"bob": lambda reply: None}, least=3)


def test_bad_numbers_count_as_zero_and_large_ones_are_clamped():
    values = {
        "ann": np.array([np.nan, np.inf, -np.inf, 1e9, -1e9]),
        "bob": np.array([1.0, 2.0, 3.0, 4.0, 5.0]),
    }
    opened = CkksClient("ann", KEYS, AGREED).open(run(values).data)
    np.testing.assert_allclose(opened, [1, 2, 3, 104, -95], atol=1e-7)


def test_the_client_refuses():
    client = CkksClient("ann", KEYS, AGREED)
    message = next(CkksServer(KEYS.public(), AGREED).collect(["ann", "bob"]))["ann"]
    header, arrays = unpack(message, most_bytes=10**6)
    for wrong, match in [
        (b"junk", "no message"),
        (pack({**header, "stage": "dance"}, arrays), "no message"),
        (pack(header), "no message"),
        (pack({**header, "settings": {}}, arrays), "not those that were agreed"),
        (pack({**header, "key": "0"}, arrays), "another key"),
    ]:
        with pytest.raises(Refused, match=match):
            client.answer(wrong, lambda order: np.zeros(5))
    with pytest.raises(ValueError, match="5 numbers"):
        client.answer(message, lambda order: np.zeros(4))
    for wrong in (b"junk", pack({"key": KEYS.fingerprint})):
        with pytest.raises(Refused):
            client.open(wrong)


@pytest.mark.parametrize(
    ("changed", "match"),
    [
        ({"length": 0}, "length"),
        ({"participants": 1}, "participants"),
        ({"bound": 0.0}, "bound"),
        ({"bound": 1e6}, "2\\^18"),
        ({"most_order": -1}, "most_order"),
    ],
)
def test_settings_that_cannot_work(changed, match):
    with pytest.raises(ValueError, match=match):
        CkksSettings(**{"length": 5, "participants": 3, "bound": 1.0, **changed})


def test_contexts_that_are_none():
    for data in (b"junk", b"", bytes(2**21)):
        with pytest.raises(ValueError, match="data must"):
            CkksPublic(data)
    foreign = tenseal.context(tenseal.SCHEME_TYPE.CKKS, 8192, coeff_mod_bit_sizes=[60, 40, 60])
    foreign.global_scale = 2.0**30
    flags = {"save_secret_key": False, "save_galois_keys": False, "save_relin_keys": False}
    with pytest.raises(ValueError, match="made by CkksKeys"):
        CkksPublic(foreign.serialize(**flags))


def test_who_may_be_asked():
    server = CkksServer(KEYS.public(), AGREED)
    for names in (["ann", "ann"], ["a", "b", "c", "d"]):
        with pytest.raises(ValueError, match="participants"):
            server.collect(names)
    with pytest.raises(ValueError, match="least"):
        server.collect(["ann", "bob"], least=1)
