"""Equation solving: d + 1 answers tell a linear model, and what rounding leaves of that."""

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfumato.attacks.extraction.equations import LinearModel, axis_points, extract_by_equations
from sfumato.attacks.extraction.fidelity import Exam
from sfumato.attacks.targets import NotSeen, Target


def random_model(classes, features, random, scale=1.0):
    return LinearModel(scale * random.normal(size=(classes, features)), random.normal(size=classes))


def test_a_real_logistic_regression_from_31_answers(cancer):
    target = cancer.target.limited(31)
    found = extract_by_equations(target, axis_points(30, cancer.bounds))
    assert target.queries == found.queries == 31
    weights, intercept = found.model.logistic()
    assert weights == pytest.approx(cancer.weights, rel=1e-9)
    assert intercept == pytest.approx(cancer.intercept, rel=1e-9)
    assert found.facts["unknowns"] == 31
    uniform = np.random.default_rng(1).uniform(-3, 3, (10_000, 30))
    fidelity = Exam.of(cancer.target, cancer.inputs, uniform=uniform).measure(found.predict)
    assert fidelity.agreement.value == fidelity.on_uniform.value == 1
    assert fidelity.total_variation < 1e-12


def test_a_softmax_of_530_unknowns_from_53_answers(digits):
    found = extract_by_equations(digits.target, axis_points(52, digits.bounds))
    assert (found.queries, found.facts["unknowns"]) == (53, 530)
    assert found.model.distance(digits.model) < 1e-9
    exam = Exam.of(digits.target, digits.inputs, digits.truth, uniform=digits.uniform)
    fidelity = exam.measure(found.predict)
    assert fidelity.agreement.value == fidelity.on_uniform.value == 1
    assert fidelity.accuracy == fidelity.target_accuracy


@given(st.integers(2, 5), st.integers(1, 8), st.booleans(), st.integers(0, 2**32 - 1))
def test_d_plus_1_answers_tell_everything(classes, features, on_axes, seed):
    random = np.random.default_rng(seed)
    truth = random_model(classes, features, random)
    points = (
        axis_points(features, (-2, 1))
        if on_axes
        else random.normal(size=(features + 1, features)) + 0.1
    )
    found = extract_by_equations(Target.of_scores(truth.probabilities), points)
    assert found.facts["undetermined"] == 0
    assert found.model.distance(truth) < 1e-13 * found.facts["condition"] ** 2
    if on_axes and features > 1:
        assert found.facts["condition"] == pytest.approx(math.sqrt(features + 1))


@pytest.mark.parametrize("bounds", [(-1, 1), (0, 0.2), (7.3, 8.6)])
def test_one_answer_less_leaves_one_direction_open(bounds):
    random = np.random.default_rng(2)
    truth = random_model(3, 10, random)
    target = Target.of_scores(truth.probabilities)
    found = extract_by_equations(target, axis_points(10, bounds)[:-1])
    assert found.facts["undetermined"] == 1
    gap = (found.model.weights - truth.centred().weights).T
    assert np.abs(gap[:9]).max() < 1e-12  # all features but the one that was never moved
    assert found.model.weights[:, 9] == pytest.approx(np.zeros(3), abs=1e-12)


def test_the_budget_stops_it_with_what_it_has(cancer):
    target = cancer.target.limited(10)
    found = extract_by_equations(target, axis_points(30, cancer.bounds))
    assert found.stopped
    assert found.queries == target.queries == 10
    assert found.facts["undetermined"] == 21
    weights, _ = found.model.logistic()
    assert weights[:9] == pytest.approx(cancer.weights[:9], rel=1e-9)
    with pytest.raises(ValueError, match="budget must allow one"):
        extract_by_equations(target, axis_points(30))


def test_models_are_equal_up_to_what_softmax_cannot_tell():
    random = np.random.default_rng(3)
    truth = random_model(4, 6, random)
    shifted = LinearModel(truth.weights + random.normal(size=6), truth.intercepts - 5)
    points = random.normal(size=(50, 6))
    assert shifted.probabilities(points) == pytest.approx(truth.probabilities(points))
    assert shifted.distance(truth) < 1e-14
    assert LinearModel(1.1 * truth.weights, 1.1 * truth.intercepts).distance(
        truth
    ) == pytest.approx(0.1)


def test_the_model_by_hand():
    model = LinearModel(np.array([[1.0], [3.0]]), np.array([0.5, 0.0]))
    assert model.probabilities([[1.0]])[0, 1] == pytest.approx(1 / (1 + math.exp(-1.5)))
    weights, intercept = model.logistic()
    assert (weights.tolist(), intercept) == ([2.0], -0.5)
    with pytest.raises(ValueError, match="classes must be 2"):
        LinearModel(np.zeros((3, 1)), np.zeros(3)).logistic()


# Answers that show less.


def rounding_error(cancer, digits, queries, rounds=12):
    """The median distance of the copy from the model over fresh queries."""
    truth = LinearModel(
        np.stack([-cancer.weights, cancer.weights]) / 2,
        np.array([-cancer.intercept, cancer.intercept]) / 2,
    )
    random = np.random.default_rng(4)
    return np.median(
        [
            extract_by_equations(
                cancer.target.rounded(digits), random.uniform(-2, 2, (queries, 30))
            ).model.distance(truth)
            for _ in range(rounds)
        ]
    )


def test_errors_follow_the_last_digit_and_fall_with_the_root_of_the_queries(cancer):
    few, more = rounding_error(cancer, 3, 400), rounding_error(cancer, 3, 1600)
    assert few / more == pytest.approx(2, rel=0.3)
    assert rounding_error(cancer, 2, 400) / few == pytest.approx(10, rel=0.3)
    assert few == pytest.approx(2.2e-4, rel=0.3)
    assert rounding_error(cancer, 3, 40) > 4 * few  # barely more answers than unknowns
    assert rounding_error(cancer, 2, 6400) > 0.1 * 10**-2  # the floor


def test_the_larger_of_two_probabilities_tells_all(cancer):
    points = axis_points(30, cancer.bounds)
    found = extract_by_equations(cancer.target.top(1), points)
    weights, _ = found.model.logistic()
    assert weights == pytest.approx(cancer.weights, rel=1e-6)
    assert found.shown == "top 1 scores"


def test_answers_without_all_classes_are_left_out(digits):
    points = np.random.default_rng(5).uniform(0, 1, (200, 52))
    whole = (digits.target.rounded(2).probabilities(points) > 0).all(axis=1).sum()
    assert 0 < whole < 100
    found = extract_by_equations(digits.target.rounded(2), points)
    assert found.facts["equations_used"] == whole
    with pytest.raises(ValueError, match="no answer has all probabilities above 0"):
        extract_by_equations(digits.target.top(1), points)


def test_saturated_answers_ask_for_a_smaller_step():
    """Where the middle is answered with 1 and 0, nothing can be solved."""
    truth = LinearModel(np.array([[0.0], [1.0]]), np.array([0.0, 1000.0]))
    target = Target.of_scores(truth.probabilities)
    with pytest.raises(ValueError, match="smaller step"):
        extract_by_equations(target, axis_points(1, (-1, 1)))
    steep = LinearModel(np.array([[0.0], [1000.0]]), np.array([0.0, 1.0]))
    target = Target.of_scores(steep.probabilities)
    assert (
        extract_by_equations(target, axis_points(1, (-1, 1), step=1.0)).facts["undetermined"] == 1
    )
    assert (
        extract_by_equations(target, axis_points(1, (-1, 1), step=0.01)).model.distance(steep)
        < 1e-10
    )


def test_labels_alone_are_not_enough(cancer):
    before = cancer.target.queries
    with pytest.raises(NotSeen, match="needs scores"):
        extract_by_equations(cancer.target.showing("labels"), axis_points(30))
    assert cancer.target.queries == before


def test_axis_points_by_hand():
    assert axis_points(2, ([0, -4], [2, 4]), step=0.25).tolist() == [[1, 0], [1.25, 0], [1, 1]]


def test_the_result_says_it_is_for_the_curator(cancer):
    found = extract_by_equations(cancer.target, axis_points(30, cancer.bounds))
    data = json.loads(json.dumps(found.to_dict()))
    assert data["channel"] == "curator"
    assert data["queries"] == 31
    assert data["facts"]["equations_used"] == 31
    assert "equation solving from scores: 31 queries, unknowns 31" in str(found)
    assert "stopped" not in str(found)


def test_bad_parameters_are_refused(cancer):
    with pytest.raises(ValueError, match="inputs must be a table"):
        extract_by_equations(cancer.target, np.zeros(30))
    with pytest.raises(ValueError, match="inputs must be a table of finite"):
        extract_by_equations(cancer.target, np.full((2, 30), np.nan))
    with pytest.raises(ValueError, match="step must be"):
        axis_points(3, step=1.5)
    with pytest.raises(ValueError, match="dimension must be"):
        axis_points(0)
