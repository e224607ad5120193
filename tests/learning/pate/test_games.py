"""PATE as a game: the plan's end, no answers, a student made of the labels."""

import numpy as np
import pytest
import torch

from sfumato.core.randomness import SeededCoins
from sfumato.learning.pate import AnswerPlan, ConfidentMax, GaussianMax, InteractiveMax
from sfumato.learning.pate.games import (
    released_labels,
    single_answers,
    student_probabilities,
    vote_splits,
)
from sfumato.learning.pate.students import make_student

CLEAR = np.tile([[100, 0], [0, 100]], (5, 1))


def test_labels_follow_the_votes_until_the_plan_is_used_up():
    plan = AnswerPlan(GaussianMax(0.5), answers=7)
    assert released_labels(CLEAR, plan) == [0, 1, 0, 1, 0, 1, 0]


def test_without_a_majority_there_is_no_label():
    plan = AnswerPlan(ConfidentMax(0.5, threshold=80, sigma_check=0.5), answers=2, questions=10)
    tied = CLEAR.copy()
    tied[::2] = 50
    assert released_labels(tied, plan) == [None, 1, None, 1]


def test_a_student_that_agrees_is_not_an_answer_by_the_teachers():
    plan = AnswerPlan(InteractiveMax(0.5, 30, 0.5, 100), answers=4)
    thought = np.array([1.0, 0.0])
    assert released_labels(CLEAR[:4], plan, opinion=thought) == [None, 1, None, 1]


def test_noise_is_drawn_anew_each_time():
    plan = AnswerPlan(GaussianMax(50.0), answers=10)
    coins = SeededCoins(1)
    one, other = (released_labels(np.full((10, 2), 50), plan, coins) for _ in range(2))
    assert one != other


def test_single_answers_are_as_many_as_asked_for():
    assert single_answers((100, 0), GaussianMax(0.5), 30) == [0] * 30
    checked = ConfidentMax(0.5, threshold=200, sigma_check=0.5)
    assert single_answers((100, 0), checked, 30) == [None] * 30
    thought = np.array([0.0, 1.0])
    asks = InteractiveMax(0.5, 30, 0.5, 100)
    assert single_answers((100, 0), asks, 3, opinion=thought) == [0] * 3


def test_a_student_says_what_it_was_told():
    torch.manual_seed(0)
    inputs = torch.rand(6, 1, 8, 8)
    student = make_student(
        "supervised", classes=2, features="scattering", steps=40, rate=0.05, average=0.5
    )
    labels: list[int | None] = [0, 1, None, 1, 0, 0]
    said = student_probabilities(student, inputs, labels)
    assert said is not None
    assert said.shape == (6, 2)
    for row, label in zip(said, labels, strict=True):
        assert label is None or row.argmax() == label
    again = student_probabilities(student, inputs, labels)
    assert again is not None
    assert np.array_equal(said, again)
    assert student_probabilities(student, inputs, [None] * 6) is None


@pytest.mark.parametrize("teachers", [2, 3, 50, 251])
def test_splits_from_a_tie_to_all_for_one(teachers):
    found = vote_splits(teachers)
    assert found[0] == (teachers - teachers // 2, teachers // 2)
    assert found[-1] == (teachers, 0)
    assert all(sum(split) == teachers for split in found)
