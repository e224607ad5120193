"""Whose rows they are: the same owners from every kind of file, and a missing one is no error."""

import math
import sys
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfumato.data import Column, Declaration, Features, load_own
from sfumato.data.own_tables import columns_of
from sfumato.data.values import identities

VISITS = Declaration(
    Features((Column("age", lower=0, upper=100),), "ill", (0, 1)), owner="who", unit="patient"
)
AGES, ILL = [20.0, 50.0, 70.0, 80.0], [0, 1, 1, 0]
WORDS = ["ann", None, "bob", "ann"]


def write(folder, suffix, who):
    """The visits with these owners, as a file of that kind."""
    path = folder / f"visits{suffix}"
    if suffix == ".parquet":
        arrow = pytest.importorskip("pyarrow")
        from pyarrow import parquet

        parquet.write_table(arrow.table({"age": AGES, "ill": ILL, "who": who}), path)
    elif suffix == ".csv":
        rows = zip(["" if w is None else w for w in who], ILL, AGES, strict=True)
        lines = ["who,ill,age", *(",".join(map(str, row)) for row in rows)]
        path.write_text("\n".join(lines))
    else:
        np.savez(path, age=AGES, ill=ILL, who=np.array(["" if w is None else w for w in who]))
    return path


@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".npz"])
def test_owners_are_the_same_from_every_file(suffix, tmp_path):
    data = load_own(write(tmp_path, suffix, WORDS), VISITS)
    assert data.owners.tolist() == WORDS
    assert data.train.labels.tolist() == ILL
    assert data.train.inputs.shape == (4, 1)
    plain = load_own(write(tmp_path, suffix, WORDS), VISITS.declared)
    assert plain.owners is None


@pytest.mark.parametrize("suffix", [".parquet", ".csv"])
def test_a_missing_number_does_not_change_the_others(suffix, tmp_path):
    large = 2**60
    data = load_own(write(tmp_path, suffix, [large, large + 1, None, large]), VISITS)
    assert data.owners.tolist() == [str(large), str(large + 1), None, str(large)]


def test_a_plain_array_has_the_owner_last(tmp_path):
    np.save(tmp_path / "a.npy", np.array([[20, 1, 7], [30, 0, np.nan]]))
    data = load_own(tmp_path / "a.npy", VISITS)
    assert data.train.labels.tolist() == [1, 0]
    assert data.owners[0] == 7
    assert math.isnan(data.owners[1])


def test_a_column_of_owners_must_be_there(tmp_path):
    path = write(tmp_path, ".csv", WORDS)
    with pytest.raises(ValueError, match="got patient, which are not"):
        load_own(path, Declaration(VISITS.declared, owner="patient"))
    load_own(path, VISITS, test=lambda: {"age": [1], "ill": [0]})  # not to test on


def test_names_in_another_encoding_are_missing_in_text_and_stay_apart_elsewhere(tmp_path):
    lines = ["who,age,ill", "M\xfcller,1,0", "M\xf6ller,1,0", "ann,1,0"]
    (tmp_path / "t.csv").write_bytes("\n".join(lines).encode("latin-1"))
    assert load_own(tmp_path / "t.csv", VISITS).owners.tolist() == [None, None, "ann"]
    first, second = identities([b"M\xfcller", b"M\xf6ller"])
    assert first != second


def test_frames_with_gaps():
    polars, pandas = pytest.importorskip("polars"), pytest.importorskip("pandas")
    who = [2**60 + 1, None, 7]
    for frame in (
        polars.DataFrame({"who": who}),
        pandas.DataFrame({"who": pandas.array(who, dtype="Int64")}),
        {"who": np.ma.array([2**60 + 1, 3, 7], mask=[False, True, False])},
    ):
        found = identities(columns_of(frame, ("who",))["who"])
        assert [found[0], found[2]] == [str(2**60 + 1), "7"]
        assert found[1] is None or found[1] is pandas.NA


@pytest.mark.parametrize(
    "missing", [None, "", "  ", "nan", "NaN", "NA", "n/a", "<NA>", "NaT", "None", "NULL", b"null"]
)
def test_what_counts_as_missing(missing):
    assert identities(["ann", missing]).tolist() == ["ann", None]


def test_one_owner_stays_one():
    same = [7, 7.0, "7", " 7 ", "7.0", b"7", np.int8(7), np.float32(7), Decimal("7.00")]
    assert set(identities(same)) == {"7"}
    assert len(set(identities(["7", "07", "7.5", "-7", 8, math.inf, "ann", "Ann"]))) == 8
    assert identities([math.nan, Decimal("NaN"), np.float64("nan")]).tolist() == [None] * 3


class Odd:
    """Raises at whatever is done with it."""

    def __getattr__(self, name):
        raise RuntimeError(name)

    __str__ = __eq__ = __hash__ = None  # type: ignore[assignment]


@given(
    st.lists(
        st.one_of(
            st.none(), st.text(), st.binary(), st.integers(), st.floats(), st.booleans(),
            st.decimals(), st.dates(), st.uuids(), st.lists(st.integers()), st.builds(Odd),
        )
    )
)  # fmt: skip
def test_no_owner_is_an_error(values):
    found = identities(values)
    assert found.shape == (len(values),)
    for value, one in zip(values, found, strict=True):  # each by itself
        alone = identities([value])[0]
        assert alone is one or alone == one or alone != alone


def test_training_by_owner_leaves_out_the_rows_without_one(tmp_path):
    pytest.importorskip("torch")
    from sfumato.learning.dp_sgd.owners import Owners

    for suffix in (".parquet", ".csv", ".npz"):
        owners = Owners(load_own(write(tmp_path, suffix, WORDS), VISITS).owners, rows_per_unit=2)
        assert (len(owners), owners.rows) == (2, 4)
    odd = [Odd(), None, "ann", [1], math.nan, "nan", 10**5000, sys.maxsize, "ann"]
    assert len(Owners(identities(odd), rows_per_unit=1)) == 2
