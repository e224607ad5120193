"""One lot for any number of ranks: every unit once, equal turns, filling that weighs nothing."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sfumato.learning.dp_sgd.distributed.shares import largest_share, share_in_parts


@given(
    units=st.integers(0, 40),
    per_unit=st.integers(1, 3),
    count=st.integers(1, 7),
    copies=st.integers(1, 3),
    most=st.none() | st.integers(1, 30),
)
def test_ranks_share_a_lot(units, per_unit, count, copies, most):
    rows = np.arange(units * per_unit).reshape(units, per_unit)
    weights = np.full(rows.shape, 1 / per_unit)
    shares = [
        list(
            share_in_parts(
                rows, weights, step=3, copies=copies, most_rows=most, rank=rank, count=count
            )
        )
        for rank in range(count)
    ]
    # What every row counts over all ranks is what it counts in the lot.
    total = np.zeros(rows.size)
    for part in (part for share in shares for part in share):
        np.add.at(total, part.rows, part.weights)
        assert len(part.rows) == len(part.weights) == part.units * per_unit * copies
        assert (part.weights[part.present * per_unit * copies :] == 0).all()
        assert (part.weights[: part.present * per_unit * copies] > 0).all()
        assert part.step == 3
    assert np.allclose(total, 1 / per_unit)
    assert sum(part.present for share in shares for part in share) == units
    # All ranks take the same turns, so that none waits.
    turns = [[(part.units, part.last) for part in share] for share in shares]
    assert all(turn == turns[0] for turn in turns)
    assert [last for _, last in turns[0]] == [False] * (len(turns[0]) - 1) + [True]
    assert sum(units for units, _ in turns[0]) == largest_share(units, count)
    # No more at a time than asked, unless a single unit is.
    room = max(1, (most or 10**9) // (per_unit * copies))
    assert all(part.units <= room for share in shares for part in share)
    # A unit's rows stay together, on one rank.
    for share in shares:
        for part in share:
            together = part.rows.reshape(part.units, per_unit * copies) // per_unit
            assert (together == together[:, :1]).all()


def test_one_rank_has_the_lot_as_it_is():
    rows = np.array([[5], [2], [9]])
    (part,) = share_in_parts(rows, np.ones((3, 1)), step=0, copies=1, most_rows=None)
    assert part.rows.tolist() == [5, 2, 9]
    assert part.padded == 0
