"""One's own teachers: whatever they answer, they vote and never raise."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sfumato.learning.pate.teachers import (
    OwnTeachers,
    checked_votes,
    read_labels,
    read_votes,
    teachers_in,
    votes_of,
)

QUERIES = np.arange(4.0)[:, None]


def crash(queries):
    raise RuntimeError("a part without rows")


def test_labels_scores_and_bad_answers():
    teachers = OwnTeachers(
        [
            lambda q: q[:, 0] % 3,
            lambda q: torch.eye(3, dtype=torch.bfloat16, requires_grad=True)[[0, 1, 2, 0]],
            lambda q: [0, 1, 2, 7],
            lambda q: np.array([[0, 1, np.nan]] * 4),
            lambda q: np.zeros((4, 2)),
            lambda q: ["a"] * 4,
            lambda q: None,
            lambda q: [0.5, np.nan, 2.0, -1],
            crash,
        ],
        classes=3,
        default_class=1,
    )
    assert teachers.labels(QUERIES).T.tolist() == [
        [0, 1, 2, 0], [0, 1, 2, 0], [0, 1, 2, 1], [1] * 4, [1] * 4, [1] * 4, [1] * 4,
        [1, 1, 2, 1], [1] * 4,
    ]  # fmt: skip
    assert teachers.bad_answers(QUERIES).tolist() == [0, 0, 1, 4, 4, 4, 4, 3, 4]
    assert votes_of(teachers, QUERIES, 3).sum(axis=1).tolist() == [9] * 4
    assert len(teachers) == 9


def test_as_many_queries_as_classes():
    """A square of scores is scores; labels are in one dimension."""
    teachers = OwnTeachers([lambda q: np.eye(4), lambda q: np.arange(4)], classes=4)
    assert teachers.labels(QUERIES).tolist() == [[0, 0], [1, 1], [2, 2], [3, 3]]


@given(
    st.lists(
        st.one_of(st.none(), st.floats(), st.integers(-3, 5), st.text(max_size=3), st.binary()),
        max_size=6,
    )
)
def test_no_answer_raises(answer):
    found = OwnTeachers([lambda q: answer], classes=3).labels(QUERIES)
    assert found.shape == (4, 1)
    assert set(found.ravel()) <= {0, 1, 2}


def test_files_of_labels(tmp_path):
    np.save(tmp_path / "a.npy", np.array([[0, 2], [1, 9]]))
    assert read_labels(tmp_path / "a.npy", 3, teachers=2).tolist() == [[0, 2], [1, 0]]
    (tmp_path / "b.csv").write_text('\ufeffann,bob\r\n0,"2"\r\n,x\r\n1.5,nan\r\n', "utf-8")
    found = read_labels(tmp_path / "b.csv", 3, default_class=1, header=True)
    assert found.tolist() == [[0, 2], [1, 1], [1, 1]]
    (tmp_path / "c.csv").write_text("1\n\n2\n")
    assert read_labels(tmp_path / "c.csv", 3).tolist() == [[1], [0], [2]], "an empty cell is a row"


@given(st.lists(st.text(st.characters(exclude_characters=",\n")), min_size=2, max_size=6))
def test_no_cell_raises(tmp_path_factory, cells):
    path = tmp_path_factory.mktemp("cells") / "a.csv"
    path.write_bytes((",".join(cells) + "\n").encode("utf-8", "surrogatepass"))
    assert read_labels(path, 3).shape == (1, len(cells))


def test_files_of_votes(tmp_path):
    rows = [[3, 7, 0], [3, 6, 0], [-1, 11, 0], [2.5, 7.5, 0], [np.nan, 10, 0], [0, 0, 10]]
    np.save(tmp_path / "a.npy", np.array(rows))
    bad = [0, 0, 10]
    found = read_votes(tmp_path / "a.npy", 10, classes=3, default_class=2)
    assert found.tolist() == [[3, 7, 0], [3, 6, 1], bad, bad, [0, 10, 0], bad]
    assert found.dtype == np.int64
    (tmp_path / "b.csv").write_text("4,6\n5,5\n")
    assert read_votes(tmp_path / "b.csv", 10).tolist() == [[4, 6], [5, 5]]


def test_mistakes(tmp_path):
    np.save(tmp_path / "a.npy", np.zeros((2, 3)))
    with pytest.raises(ValueError, match="4 columns, one for each teacher"):
        read_labels(tmp_path / "a.npy", 3, teachers=4)
    with pytest.raises(ValueError, match="4 columns, one for each class"):
        read_votes(tmp_path / "a.npy", 9, classes=4)
    with pytest.raises(ValueError, match=r"\.npy or \.csv"):
        read_labels(tmp_path / "a.txt", 3)
    np.save(tmp_path / "b.npy", np.zeros(3))
    with pytest.raises(ValueError, match="a table of numbers"):
        read_labels(tmp_path / "b.npy", 3)
    (tmp_path / "c.csv").write_text("1,2\n1\n")
    with pytest.raises(ValueError, match="equally many cells"):
        read_labels(tmp_path / "c.csv", 3)
    np.save(tmp_path / "d.npy", np.array([[{}]], dtype=object))
    with pytest.raises(ValueError, match="pickle"):
        read_labels(tmp_path / "d.npy", 3)
    with pytest.raises(ValueError, match="one function or more"):
        OwnTeachers([], 3)
    with pytest.raises(ValueError, match="functions of queries"):
        OwnTeachers([3], 3)  # type: ignore[list-item]
    with pytest.raises(ValueError, match="default_class"):
        OwnTeachers([crash], 3, default_class=3)


def test_one_vote_that_is_missing_moves_one_vote(tmp_path):
    np.save(tmp_path / "a.npy", np.array([[200, 50, 0], [199, 50, 0], [201, 50, 0]]))
    found = read_votes(tmp_path / "a.npy", 250, default_class=2)
    assert found.tolist() == [[200, 50, 0], [199, 50, 1], [201, 49, 0]]


@given(st.lists(st.floats(-3, 12) | st.just(float("nan")), min_size=3, max_size=3))
def test_counts_always_sum_to_the_teachers_and_good_ones_stay(cells):
    votes = np.array([cells])
    found = checked_votes(votes, 10, default_class=1)
    assert found.sum() == 10
    assert (found >= 0).all()
    if (votes == np.rint(votes)).all() and (votes >= 0).all() and votes.sum() == 10:
        assert found.tolist() == votes.astype(int).tolist()


def test_a_file_of_labels_says_how_many_teachers(tmp_path):
    np.save(tmp_path / "a.npy", np.zeros((4, 7)))
    (tmp_path / "a.csv").write_text("0,1,2\n1,1,1\n")
    assert teachers_in(tmp_path / "a.npy") == 7
    assert teachers_in(tmp_path / "a.csv") == 3
    with pytest.raises(ValueError, match=r"ends in \.npy or \.csv"):
        teachers_in(tmp_path / "a.txt")


def test_a_teacher_that_changes_its_queries_changes_no_other():
    def greedy(queries):
        queries -= 5
        return (queries[:, 0] > 0).astype(int)

    def honest(queries):
        return (queries[:, 0] > 0).astype(int)

    queries = np.array([[1.0], [-1.0]])
    found = OwnTeachers([greedy, honest], classes=2).labels(queries)
    assert found[:, 1].tolist() == [1, 0]
    assert queries.tolist() == [[1.0], [-1.0]]
