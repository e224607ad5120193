"""Answers: one form for all a target may show."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfumato.attacks.extraction.answers import (
    affordable,
    ask,
    box,
    described,
    uniform_inputs,
)
from sfumato.attacks.target_answers import Unreadable
from sfumato.attacks.targets import BudgetSpent, NotSeen, Target

ROWS = np.array([[0.624, 0.2665, 0.1095], [0.004, 0.006, 0.99]])


def target(rows=ROWS):
    return Target.of_scores(lambda inputs: np.asarray(rows)[np.asarray(inputs)[:, 0].astype(int)])


def queries(rows=ROWS):
    return np.arange(len(rows))[:, None]


def test_exact_answers_stay_as_they_are():
    found = ask(target(), queries())
    assert found.shown == pytest.approx(ROWS)
    assert not found.hidden.any()
    assert not found.hard
    assert found.labels.tolist() == [0, 2]
    assert (found.classes, len(found)) == (3, 2)


def test_rounded_answers_add_up_again():
    found = ask(target([[0.335, 0.335, 0.33]]).rounded(1), queries([0]))
    assert found.shown[0] == pytest.approx([1 / 3] * 3)  # 0.3 each


def test_what_is_cut_has_a_known_total():
    found = ask(target().top(1), queries())
    assert found.hidden.tolist() == [[False, True, True], [True, True, False]]
    assert found.rest == pytest.approx([0.376, 0.01])
    assert found.spread()[1] == pytest.approx([0.005, 0.005, 0.99])


def test_a_single_hidden_probability_is_not_hidden():
    """Two of three, or one of two, tell all."""
    found = ask(target().top(2), queries())
    assert found.shown == pytest.approx(ROWS)
    assert not found.hidden.any()
    assert found.rest.tolist() == [0, 0]
    pair = ask(target([[0.3, 0.7]]).top(1), queries([0]))
    assert pair.shown == pytest.approx(np.array([[0.3, 0.7]]))


def test_an_answer_that_is_rounded_away_says_nothing():
    found = ask(target([[0.25] * 4, [0.7, 0.1, 0.1, 0.1]]).rounded(0), queries([0, 1]))
    assert found.hidden.tolist() == [[True] * 4, [False] * 4]
    assert found.rest.tolist() == [1, 0]
    assert found.spread().tolist() == [[0.25] * 4, [1, 0, 0, 0]]


def test_labels_are_rows_with_a_single_one():
    found = ask(target().showing("labels"), queries(), classes=4)
    assert found.shown.tolist() == [[1, 0, 0, 0], [0, 0, 1, 0]]
    assert found.hard
    assert found.labels.tolist() == [0, 2]


def test_answers_are_joined_in_order():
    first, second = ask(target(), queries()[:1]), ask(target().top(1), queries()[1:])
    both = first.joined(second)
    assert both.spread() == pytest.approx(np.array([ROWS[0], [0.005, 0.005, 0.99]]))
    assert both.rest == pytest.approx([0, 0.01])
    assert not both.hard


@given(
    st.integers(2, 6),
    st.integers(1, 6),
    st.none() | st.integers(0, 3),
    st.integers(0, 2**32 - 1),
)
def test_every_row_adds_up_to_one(classes, kept, digits, seed):
    rows = np.random.default_rng(seed).dirichlet(np.full(classes, 0.5), 5)
    seen = target(rows).top(kept)
    found = ask(seen if digits is None else seen.rounded(digits), queries(rows))
    assert found.shown.sum(axis=1) + found.rest == pytest.approx(1)
    assert found.spread().sum(axis=1) == pytest.approx(1)
    assert (found.shown[found.hidden] == 0).all()
    assert (found.rest[~found.hidden.any(axis=1)] == 0).all()
    if digits is None:
        assert (found.hidden.sum(axis=1) == (classes - kept if classes - kept > 1 else 0)).all()
        assert (found.labels == rows.argmax(axis=1)).all()


def test_what_can_be_asked_is_known_before():
    limited = target().limited(3)
    assert [affordable(limited, wanted) for wanted in (2, 3, 4)] == [2, 3, 3]
    ask(limited, queries())
    assert affordable(limited, 2) == 1
    with pytest.raises(BudgetSpent):
        ask(limited, queries())
    assert affordable(target(), 10**9) == 10**9


def test_in_words():
    assert described(target()) == "scores"
    assert described(target().rounded(2)) == "scores to 2 digits"
    assert described(target().top(1).rounded(3)) == "top 1 scores to 3 digits"
    assert described(target().showing("labels")) == "labels"


def test_uniform_inputs_fill_the_box():
    found = uniform_inputs(
        20_000, (2, 1), ([[0], [-4]], [[1], [4]]), generator=np.random.default_rng(1)
    )
    assert found.shape == (20_000, 2, 1)
    first, second = found[:, 0, 0], found[:, 1, 0]
    assert 0 <= first.min() < 0.001
    assert 0.999 < first.max() <= 1
    assert first.mean() == pytest.approx(0.5, abs=0.01)
    assert first.std() == pytest.approx(12**-0.5, rel=0.02)
    assert second.std() == pytest.approx(8 * 12**-0.5, rel=0.02)
    assert abs(np.corrcoef(first, second)[0, 1]) < 0.03


def test_an_answer_of_nan_tells_nothing():
    with pytest.warns(Unreadable):
        found = ask(target([[np.nan, 1], [0.9, 0.1]]), queries([0, 1]))
    assert found.spread().tolist() == [[0.5, 0.5], [0.9, 0.1]]


def test_bad_parameters_are_refused():
    with pytest.raises(ValueError, match="classes must be given"):
        ask(target().showing("labels"), queries())
    with pytest.raises(ValueError, match="classes must be above every label, up to 2, got 2"):
        ask(target().showing("labels"), queries(), classes=2)
    with pytest.raises(ValueError, match="classes must be 3, as the target's answers have, got 4"):
        ask(target(), queries(), classes=4)
    with pytest.raises(ValueError, match="probabilities"):
        ask(target([[-0.1, 1.1]]), queries([0]))
    with pytest.raises(NotSeen):
        ask(Target.of_losses(lambda inputs, labels: labels), queries(), classes=3)
    with pytest.raises(ValueError, match="bounds must be finite, each lower one below"):
        box((0, [1, 0]), (2,))
    with pytest.raises(ValueError, match="bounds must be numbers, or arrays that fit"):
        box((0, [1, 2]), (3,))
    with pytest.raises(ValueError, match="count must be"):
        uniform_inputs(0, (1,), (0, 1), generator=np.random.default_rng(1))
