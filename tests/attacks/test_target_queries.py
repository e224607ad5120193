"""Questions are counted, all views of a target together; what is refused is not."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from sfumato.attacks.targets import BudgetSpent, NotSeen, Target

ROWS = np.array([[0.55, 0.3, 0.15], [0.0, 0.25, 0.75], [1.0, 0.0, 0.0], [0.4, 0.2, 0.4]])
PLACES = np.arange(4)[:, None]


def table():
    """Answers about example i with row i."""
    return Target.of_scores(lambda inputs: ROWS[inputs[:, 0].astype(int)])


def module():
    return nn.Linear(3, 3)


def test_all_views_of_a_target_count_together():
    target = table()
    target.probabilities(PLACES)
    views = [target.showing("labels"), target.rounded(1), target.top(1).showing("losses")]
    views[0].labels(PLACES)
    views[1].probabilities(PLACES[:1])
    views[2].losses(PLACES[:2], [0, 1])
    assert [one.queries for one in (target, *views)] == [11] * 4
    assert table().queries == 0


def test_gradients_and_losses_of_a_module_are_counted():
    target = Target.of_module(module())
    inputs, labels = np.zeros((5, 3)), np.zeros(5, int)
    target.losses(inputs, labels)
    target.gradients(inputs, labels)
    target.input_gradients(inputs, labels)
    assert target.queries == 15
    _ = target.module
    assert target.queries == 15


def test_a_limit_counts_from_its_making():
    target = table()
    target.probabilities(PLACES)
    limited = target.limited(5)
    assert (limited.queries, limited.budget) == (0, 5)
    limited.probabilities(PLACES)
    limited.labels(PLACES[:1])
    with pytest.raises(BudgetSpent, match="model answers 5 queries, of which 5 are spent; 1 more"):
        limited.labels(PLACES[:1])
    limited.labels(PLACES[:0])  # nothing asked, nothing refused
    assert (limited.queries, target.queries) == (5, 9)
    target.labels(PLACES)  # the whole target has no limit


def test_what_is_refused_is_not_counted_and_may_be_asked_in_part():
    limited = table().limited(3)
    with pytest.raises(BudgetSpent, match="of which 0 are spent; 4 more"):
        limited.probabilities(PLACES)
    assert limited.queries == 0
    limited.probabilities(PLACES[:3])
    with pytest.raises(NotSeen):
        limited.gradients(PLACES, [0] * 4)
    with pytest.raises(ValueError, match="a batch, one example a row"):
        limited.probabilities(3.0)
    assert limited.queries == 3


def test_the_model_is_not_asked_what_is_refused():
    asked = []

    def answer(inputs):
        asked.append(len(inputs))
        return ROWS[: len(inputs)]

    target = Target.of_scores(answer).limited(2)
    with pytest.raises(BudgetSpent):
        target.labels(PLACES)
    with pytest.raises(NotSeen):
        target.gradients(PLACES, [0] * 4)
    assert asked == []
    target.labels(PLACES[:2])
    assert asked == [2]


def test_every_kind_of_question_is_limited():
    target = Target.of_module(module()).limited(1)
    inputs, labels = np.zeros((2, 3)), [0, 1]
    questions = [
        lambda: target.labels(inputs),
        lambda: target.probabilities(inputs),
        lambda: target.losses(inputs, labels),
        lambda: target.gradients(inputs, labels),
        lambda: target.input_gradients(inputs, labels),
        lambda: Target.of_losses(lambda x, y: y, "alone").limited(1).losses(inputs, labels),
    ]
    for ask in questions:
        with pytest.raises(BudgetSpent):
            ask()
    assert target.queries == 0


def test_a_limit_of_a_limit_never_lifts_it():
    target = table().limited(6)
    target.labels(PLACES)
    assert target.limited(100).budget == 2
    again = target.limited(1)
    again.labels(PLACES[:1])
    with pytest.raises(BudgetSpent):
        again.labels(PLACES[:1])
    target.labels(PLACES[:1])
    assert target.limited(100).budget == 0
    # A narrower view that others have outspent has nothing left, rather than less than nothing.
    outspent = table()
    narrow = outspent.limited(1)
    outspent.labels(PLACES)
    assert narrow.limited(3).budget == 0


@given(st.lists(st.integers(0, 4), max_size=12), st.integers(0, 20))
def test_never_more_answers_than_the_limit(sizes, budget):
    limited, answered = table().limited(budget), 0
    for size in sizes:
        try:
            answered += len(limited.labels(PLACES[:size]))
        except BudgetSpent:
            assert answered + size > budget
    assert answered == limited.queries <= budget
