"""Identities, the directory, session keys."""

import pytest

from sfumato.federated.secure.keys import Advert, Directory, IdentityKey, SessionKeys, encode
from sfumato.federated.wire import Malformed

ANN, BOB = IdentityKey.generate(), IdentityKey.generate()
SESSION = bytes(32)


def directory():
    return Directory({"ann": ANN.public, "bob": BOB.public})


def test_signatures_hold_for_one_name_purpose_and_text():
    signature = ANN.sign("purpose", b"a", b"bc")
    assert directory().verify("ann", signature, "purpose", b"a", b"bc")
    assert not directory().verify("bob", signature, "purpose", b"a", b"bc")
    assert not directory().verify("eve", signature, "purpose", b"a", b"bc")
    assert not directory().verify("ann", signature, "another", b"a", b"bc")
    assert not directory().verify("ann", signature, "purpose", b"ab", b"c")
    assert not directory().verify("ann", signature[:-1], "purpose", b"a", b"bc")
    assert not directory().verify("ann", bytes(64), "purpose", b"a", b"bc")


def test_parts_are_told_apart():
    assert len({encode("ab", "c"), encode("a", "bc"), encode("abc"), encode("abc", "")}) == 4


def test_keys_through_bytes():
    again = IdentityKey.from_bytes(ANN.to_bytes())
    assert again.public == ANN.public
    assert ANN.to_bytes().hex() not in repr(again)
    with pytest.raises(ValueError, match="32 bytes"):
        IdentityKey.from_bytes(b"short")


def test_a_directory_is_the_same_in_any_order_and_signed():
    other = Directory({"bob": BOB.public, "ann": ANN.public})
    assert other == directory()
    assert other.fingerprint == directory().fingerprint
    assert Directory({"ann": ANN.public}).fingerprint != other.fingerprint
    operator = IdentityKey.generate()
    signed = directory().signed_by(operator)
    assert Directory.from_signed(signed, operator.public) == directory()
    for bad in (signed[:-1], b"", signed.replace(b"ann", b"eve")):
        with pytest.raises(Malformed, match="did not sign"):
            Directory.from_signed(bad, operator.public)
    with pytest.raises(Malformed, match="did not sign"):
        Directory.from_signed(signed, ANN.public)
    with pytest.raises(Malformed, match="no directory"):
        Directory.from_signed(operator.sign("directory", b"[1]") + b"[1]", operator.public)


def test_directories_that_are_none():
    with pytest.raises(ValueError, match="twice"):
        Directory({"ann": ANN.public, "bob": ANN.public})
    with pytest.raises(ValueError, match="identity key of ann"):
        Directory({"ann": b"short"})
    with pytest.raises(ValueError, match="participant"):
        Directory({" ann": ANN.public})


def test_session_keys_agree_and_are_signed():
    first, second = SessionKeys.generate(), SessionKeys.generate()
    ann, bob = first.advert(ANN, SESSION, "ann"), second.advert(BOB, SESSION, "bob")
    for masking, key in [(True, "masking"), (False, "sealing")]:
        there = first.shared(getattr(bob, key), masking=masking)
        assert there == second.shared(getattr(ann, key), masking=masking)
    assert first.shared(bob.sealing, masking=False) != first.shared(bob.masking, masking=True)
    assert ann.fault(directory(), SESSION) == ""
    assert "bad signature" in ann.fault(directory(), b"\1" * 32)
    swapped = Advert("ann", ann.masking, ann.sealing, ann.signature)
    assert "bad signature" in swapped.fault(directory(), SESSION)
    stolen = Advert("bob", ann.sealing, ann.masking, ann.signature)
    assert "bad signature" in stolen.fault(directory(), SESSION)
    stranger = Advert("eve", ann.sealing, ann.masking, ann.signature)
    assert "not in the directory" in stranger.fault(directory(), SESSION)
    assert first.sealing.hex() not in repr(first)


@pytest.mark.parametrize("point", [bytes(32), b"\1" + bytes(31)])
def test_points_of_small_order_are_no_keys(point):
    good = SessionKeys.generate().advert(ANN, SESSION, "ann")
    signature = ANN.sign("session keys", SESSION, "ann", good.sealing, point)
    assert "small order" in Advert("ann", good.sealing, point, signature).fault(
        directory(), SESSION
    )
    with pytest.raises(Malformed):
        SessionKeys.generate().shared(point, masking=True)
