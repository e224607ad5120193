"""Parts by a keyed hash: one unit more or less moves no other, and never raises."""

import datetime
import hashlib
import stat
import uuid

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from tests.odd_objects import FAILURES, odd_object

from sfumato.core.randomness import SYSTEM, SeededCoins
from sfumato.learning.pate.teachers import (
    Parts,
    assign_records,
    assign_units,
    kept_salt,
    new_salt,
)
from sfumato.learning.pate.teachers.assigning import canonical_bytes

SALT = new_salt(SeededCoins(5))


def test_the_formula():
    digest = hashlib.blake2b(b"ann", digest_size=16, key=SALT).digest()
    expected = int.from_bytes(digest, "big") % 7
    assert assign_units(["ann"], 7, SALT).teacher_of.tolist() == [expected]
    row = np.array([[1.5, 2.0]])
    digest = hashlib.blake2b(row.tobytes(), digest_size=16, key=SALT).digest()
    assert assign_records(row, 7, SALT).teacher_of[0] == int.from_bytes(digest, "big") % 7


@given(st.lists(st.integers(0, 20), min_size=1, max_size=40), st.data())
def test_removing_a_unit_moves_no_other(ids, data):
    gone = data.draw(st.sampled_from(ids))
    left = np.array([i for i in ids if i != gone], dtype=np.int64)
    before, after = assign_units(ids, 5, SALT), assign_units(left, 5, SALT)
    stayed = before.teacher_of[np.array(ids) != gone]
    assert (stayed == after.teacher_of).all()
    assert len(set(before.teacher_of[np.array(ids) == gone])) == 1, "a unit in two parts"
    assert int((before.sizes() != after.sizes()).sum()) == 1


def changed_teachers(assign, ids):
    """How many teachers have other units once the first row is gone."""
    before, after = assign(ids), assign(ids[1:])
    whose = [
        {t: set(np.asarray(i)[np.asarray(a) == t]) for t in range(10)}
        for i, a in ((ids, before), (ids[1:], after))
    ]
    return sum(whose[0][t] != whose[1][t] for t in range(10))


def test_what_goes_by_row_numbers_changes_many_teachers():
    ids = np.arange(1000)
    hashed = changed_teachers(lambda i: assign_units(i, 10, SALT).teacher_of, ids)
    slices = changed_teachers(lambda i: np.arange(len(i)) // 100, ids)
    permuted = changed_teachers(
        lambda i: np.random.default_rng(0).permutation(len(i)) % 10, ids
    )  # fmt: skip
    drawn = changed_teachers(lambda i: np.random.default_rng(0).integers(10, size=len(i)), ids)
    assert (hashed, slices, permuted, drawn) == (1, 10, 10, 10)


def test_parts_are_even_and_salts_independent():
    ids = np.arange(100_000)
    first = assign_units(ids, 50, SALT)
    assert stats.chisquare(first.sizes()).pvalue > 0.001
    second = assign_units(ids, 50, new_salt(SeededCoins(6)))
    same = float((first.teacher_of == second.teacher_of).mean())
    assert abs(same - 1 / 50) < 5 * np.sqrt(0.02 * 0.98 / 100_000)


@given(st.integers(-(2**31), 2**31 - 1))
def test_equal_numbers_have_equal_bytes(number):
    forms = [
        number, float(number), np.int32(number), np.int64(number), np.float64(number),
        str(number), torch.tensor(number), np.array(number), str(number).encode(),
    ]  # fmt: skip
    assert {canonical_bytes(form) for form in forms} == {str(number).encode()}
    columns = [[number, 7], np.array([number, 7]), np.array([number, 7.0]), pd.Series([number, 7])]
    parts = [assign_units(column, 1000, SALT).teacher_of.tolist() for column in columns]
    assert all(part == parts[0] for part in parts)


def test_equal_words_and_dates_have_equal_bytes():
    assert canonical_bytes("é") == canonical_bytes("e\N{COMBINING ACUTE ACCENT}")
    assert canonical_bytes(np.str_("a")) == canonical_bytes("a") == canonical_bytes(np.bytes_("a"))
    noon = datetime.datetime(2020, 1, 2, 12, tzinfo=datetime.UTC)
    east = noon.astimezone(datetime.timezone(datetime.timedelta(hours=3)))
    assert canonical_bytes(noon) == canonical_bytes(east) == b"2020-01-02T12:00:00.000000"
    day = datetime.date(2020, 1, 2)
    days = [day, np.datetime64(day), np.datetime64(day, "ns"), pd.Timestamp(day)]
    assert len({canonical_bytes(one) for one in days}) == 1
    assert canonical_bytes(True) == canonical_bytes(np.True_) == b"1"
    assert canonical_bytes(-0.0) == b"0"
    assert canonical_bytes(0.5) == canonical_bytes(np.float32(0.5)) == b"0.5"
    one = uuid.UUID(int=5)
    assert canonical_bytes(one) == canonical_bytes(str(one))
    assert canonical_bytes(b"ab") == canonical_bytes(bytearray(b"ab"))


def test_missing_ids_belong_to_nobody():
    missing = [None, float("nan"), np.nan, pd.NA, pd.NaT, np.datetime64("NaT"), object(), [1], 1j]
    assert assign_units(missing, 3, SALT).teacher_of.tolist() == [-1] * len(missing)
    masked = np.ma.MaskedArray([1, 2], mask=[True, False])
    assert assign_units(masked, 3, SALT).teacher_of.tolist()[0] == -1
    assert assign_units([], 3, SALT).sizes().tolist() == [0, 0, 0]
    assert assign_units(np.array(["2020", "NaT"], "datetime64[D]"), 3, SALT).teacher_of[1] == -1
    assert assign_units(pd.Series([1, None]), 3, SALT).teacher_of.tolist()[1] == -1


ANYTHING = st.one_of(
    st.none(), st.floats(), st.integers(), st.text(st.characters()), st.binary(), st.uuids(),
    st.datetimes(timezones=st.timezones()), st.dates(), st.fractions(), st.decimals(),
    st.complex_numbers(), st.lists(st.integers()), st.just("\ud800"), st.just(10**6000),
    st.just(float("inf")), st.just(pd.Timestamp.max), st.timedeltas(),
)  # fmt: skip


@given(st.lists(ANYTHING))
def test_no_id_raises(ids):
    found = assign_units(ids, 4, SALT).teacher_of
    assert len(found) == len(ids)
    assert ((found >= -1) & (found < 4)).all()


def test_salts_are_secret_and_kept(tmp_path):
    assert new_salt(SYSTEM) != new_salt()
    path = tmp_path / "curator" / "salt"
    salt = kept_salt(path)
    assert kept_salt(path) == salt
    assert len(salt) == 32
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    path.write_bytes(b"short")
    with pytest.raises(ValueError, match=r"32 secret bytes.*5 bytes"):
        kept_salt(path)


def test_records_go_by_their_own_bytes():
    rows = np.random.default_rng(0).integers(0, 255, (200, 4, 4), dtype=np.uint8)
    rows[7] = rows[3]
    found = assign_records(rows, 10, SALT).teacher_of
    assert found[7] == found[3]
    assert (assign_records(np.delete(rows, 5, 0), 10, SALT).teacher_of == np.delete(found, 5)).all()
    assert (assign_records(rows[:, ::-1][:, ::-1], 10, SALT).teacher_of == found).all()
    assert len(assign_records(np.full((3, 2), np.nan), 10, SALT).teacher_of) == 3


def test_parts_know_their_rows():
    parts = Parts(3, np.array([2, 0, -1, 2]))
    assert [parts.rows_of(t).tolist() for t in range(3)] == [[1], [], [0, 3]]
    assert parts.sizes().tolist() == [1, 0, 2]
    assert len(parts) == 3
    with pytest.raises(ValueError, match="between 0 and 2"):
        parts.rows_of(3)


def test_mistakes():
    for wrong in (np.array([0, 3]), np.array([-2]), np.array([[0]]), np.array([0.0])):
        with pytest.raises(ValueError, match="a teacher for each row"):
            Parts(3, wrong)
    with pytest.raises(ValueError, match="teachers"):
        assign_units([1], 0, SALT)
    with pytest.raises(ValueError, match="secret bytes"):
        assign_units([1], 2, "word")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="a sequence with one id"):
        assign_units("word", 2, SALT)
    with pytest.raises(ValueError, match="one dimension"):
        assign_units(np.zeros((2, 2)), 2, SALT)
    with pytest.raises(ValueError, match="an array of numbers"):
        assign_records(np.array([object()]), 2, SALT)


def test_odd_ids_are_nobodys():
    class Endless:
        ndim = 0

        def item(self):
            return self

    last = datetime.datetime.max.replace(tzinfo=datetime.timezone(datetime.timedelta(hours=-5)))
    for value in (last, Endless(), np.timedelta64("NaT"), object()):
        assert canonical_bytes(value) is None
    assert canonical_bytes(np.timedelta64(3, "s")) == canonical_bytes(datetime.timedelta(seconds=3))


@pytest.mark.parametrize("what", FAILURES)
def test_an_id_of_any_class_moves_no_other(what):
    salt = bytes(32)
    alone = assign_units(["ann", "bob"], 50, salt).teacher_of
    beside = assign_units(["ann", odd_object(what), "bob"], 50, salt).teacher_of
    assert beside[[0, 2]].tolist() == alone.tolist()
