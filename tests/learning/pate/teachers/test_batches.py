"""Batches: functions of a teacher's own number of rows, and fair."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sfumato.learning.pate.teachers.batches import drawn_places, places_of_all


@given(st.integers(0, 200), st.integers(0, 50), st.integers(0, 5))
def test_whole_passes_are_permutations(count, size, seed):
    places = drawn_places(count, size, (seed, 1, 2))
    assert places.shape == (count,)
    if size == 0:
        assert not places.any()
        return
    assert ((places >= 0) & (places < size)).all()
    whole = places[: count // size * size].reshape(-1, size)
    assert (np.sort(whole, axis=1) == np.arange(size)).all()


def test_draws_beyond_the_last_pass_are_uniform():
    counts = np.bincount(drawn_places(100_000, 100_001, (0, 0)) // 10_001, minlength=10)
    assert (abs(counts - 10_000) < 5 * np.sqrt(9000)).all()
    firsts = np.array([drawn_places(10, 5, (seed,))[0] for seed in range(4000)])
    assert (abs(np.bincount(firsts, minlength=5) - 800) < 5 * np.sqrt(640)).all()


@given(st.lists(st.integers(0, 30), min_size=2, max_size=5), st.data())
def test_anothers_size_changes_nothing(sizes, data):
    changed = data.draw(st.integers(0, len(sizes) - 1))
    other = [size + (place == changed) for place, size in enumerate(sizes)]
    teachers = range(3, 3 + len(sizes))
    before, after = (places_of_all(4, 6, teachers, some, 9, 2) for some in (sizes, other))
    assert before.shape == (4, len(sizes), 6)
    same = np.arange(len(sizes)) != changed
    assert (before[:, same] == after[:, same]).all()


def test_teachers_chunks_and_seeds_draw_their_own():
    sizes = [100, 100]
    one = places_of_all(3, 10, range(2), sizes, 0, 0)
    assert (one[:, 0] != one[:, 1]).any()
    assert (one != places_of_all(3, 10, range(2), sizes, 0, 1)).any()
    assert (one != places_of_all(3, 10, range(2), sizes, 1, 0)).any()
    assert (one[:, 1] == places_of_all(3, 10, range(1, 2), [100], 0, 0)[:, 0]).all()
