"""Records: two channels that never mix, and a stamp that never comes off."""

import dataclasses
import json

import pytest

from sfumato.core import SYSTEM, Guarantee, Neighbours, Record, Release, SeededCoins
from sfumato.core.events import LaplaceEvent, NotPrivateEvent, repeat
from sfumato.core.records import NOT_PRIVATE, UNPROTECTED

PROMISE = Guarantee(1.0, 0.0, Neighbours.ADD_REMOVE)


def record(**options):
    return Record("count", {"epsilon": 1.0}, LaplaceEvent(1.0), PROMISE, **options)


def test_the_public_record_round_trips_through_json():
    made = record(facts={"public_size": 60_000})
    read = Record.from_dict(json.loads(json.dumps(made.to_dict())))
    assert read == made
    assert read.software["sfumato"]


def test_what_the_curator_is_told_never_leaves_by_the_public_door():
    told, untold = record(), record()
    told.tell_curator("training loss", 0.123456789)
    told.tell_curator("votes", [7, 1, 2])
    assert told.to_dict() == untold.to_dict()
    assert "0.123456789" not in json.dumps(told.to_dict()) + repr(told)
    assert "0.123456789" not in str(dataclasses.asdict(told))
    assert told.curator_view() == {"training loss": 0.123456789, "votes": [7, 1, 2]}


def test_the_curators_view_is_a_copy():
    made = record()
    made.curator_view()["x"] = 1
    assert made.curator_view() == {}
    with pytest.raises(ValueError, match="name"):
        made.tell_curator("", 1)


def test_seeded_coins_stamp_a_record_for_good():
    made = record()
    made.touch(SYSTEM)
    assert made.private
    assert "warning" not in made.to_dict()
    made.touch(SeededCoins(1))
    made.touch(SYSTEM)
    assert not made.private
    assert "NOT PRIVATE" in made.to_dict()["warning"]
    assert not Record.from_dict(made.to_dict()).private


def test_a_release_shows_its_cost_its_error_and_its_stamp():
    release = Release(1204, LaplaceEvent(10.0), PROMISE, 30.0, 0.95)
    assert str(release).startswith("1204 +/- 30 (95%), epsilon 1, delta 0")
    assert (int(release), float(release)) == (1204, 1204.0)
    assert release.to_dict()["epsilon"] == 1.0
    stamped = dataclasses.replace(release, private=False)
    assert "NOT PRIVATE" in str(stamped)
    assert "NOT PRIVATE" in stamped.to_dict()["warning"]
    json.dumps(stamped.to_dict())


NOTHING = Guarantee(float("inf"), 0.0, Neighbours.ADD_REMOVE)


def test_what_promises_nothing_is_never_private_and_says_why():
    for event in (NotPrivateEvent(), repeat(NotPrivateEvent(), 3)):
        made = Record("plain", {}, event, NOTHING, private=True)
        assert not made.private
        assert made.to_dict()["warning"] == UNPROTECTED
        assert not Record.from_dict(made.to_dict() | {"private": True}).private
        shown = Release(0.9, event, NOTHING)
        assert shown.to_dict()["private"] is False
        assert shown.to_dict()["warning"] == UNPROTECTED
        assert UNPROTECTED in str(shown)


def test_seeded_coins_keep_a_warning_of_their_own():
    made = record()
    made.touch(SeededCoins(1))
    assert made.to_dict()["warning"] == NOT_PRIVATE != UNPROTECTED
