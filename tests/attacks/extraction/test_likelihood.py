"""Cross entropy: the paper's route, and what each defence leaves of it."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.attacks.extraction.fidelity import Exam
from sfumato.attacks.extraction.likelihood import extract_by_likelihood
from sfumato.attacks.extraction.linear import LinearModel
from sfumato.attacks.targets import Target


@pytest.fixture(scope="module")
def exam(digits):
    return Exam.of(digits.target, digits.inputs, digits.truth, uniform=digits.uniform)


def queries(count, seed=1):
    return np.random.default_rng(seed).uniform(0, 1, (count, 52))


def test_530_unknowns_from_265_and_530_answers(digits, exam):
    """Published for another softmax of 530 unknowns: 99.96 % and 99.75 %, then 100 % and 100 %."""
    half = exam.measure(extract_by_likelihood(digits.target, queries(265)).predict)
    assert half.agreement.value >= 0.9996
    assert half.on_uniform.value >= 0.9975
    found = extract_by_likelihood(digits.target, queries(530))
    whole = exam.measure(found.predict)
    assert whole.agreement.value == whole.on_uniform.value == 1
    assert whole.total_variation < 1e-6
    assert found.model.distance(digits.model) < 1e-5
    assert found.facts["divergence"] < 1e-12


def test_defences_at_265_answers_come_in_their_order(digits, exam):
    """Gaps of a few percent on 20,000 uniform inputs, whose standard error is 0.3 %."""
    exact = digits.target
    shown = [exact, exact.rounded(2), exact.top(1), exact.showing("labels")]
    found = [
        exam.measure(
            extract_by_likelihood(target, queries(265), classes=10).predict
        ).on_uniform.value
        for target in shown
    ]
    assert found[0] > 0.9995
    assert 0.97 < found[1] < 0.995
    assert 0.7 < found[2] < 0.85
    assert 0.55 < found[3] < found[2] - 0.04


def test_the_top_probability_alone_tells_all_after_530_answers(digits, exam):
    """One equation an answer: fewer than unknowns do not do, as many do."""
    found = extract_by_likelihood(digits.target.top(1), queries(530))
    assert found.model.distance(digits.model) < 1e-3
    assert exam.measure(found.predict).on_uniform.value > 0.9995
    rounded = exam.measure(
        extract_by_likelihood(digits.target.top(1).rounded(2), queries(530), iterations=500).predict
    )
    assert rounded.on_uniform.value < 0.98


def test_labels_need_many_more(digits, exam):
    labels = digits.target.showing("labels")
    few, many = (
        exam.measure(extract_by_likelihood(labels, queries(count), classes=10).predict).on_uniform
        for count in (530, 4240)
    )
    assert few.interval[1] < 0.85
    assert many.value > 0.935  # a penalty a hundred times as large leaves 0.92
    assert many.value < 0.98


@settings(max_examples=20)
@given(st.integers(2, 4), st.integers(1, 4), st.integers(1, 4), st.integers(0, 2**32 - 1))
def test_many_exact_answers_tell_everything_however_few_classes_are_shown(
    classes, features, kept, seed
):
    random = np.random.default_rng(seed)
    truth = LinearModel(random.normal(size=(classes, features)), random.normal(size=classes))
    target = Target.of_scores(truth.probabilities).top(kept)
    found = extract_by_likelihood(
        target, random.uniform(-3, 3, (40 * classes * (features + 1), features))
    )
    assert found.model.distance(truth) < 1e-3


def test_labels_tell_the_direction_of_a_logistic_regression(cancer):
    points = np.random.default_rng(2).uniform(-3, 3, (3000, 30))
    found = extract_by_likelihood(cancer.target.showing("labels"), points, classes=2)
    weights, _ = found.model.logistic()
    cosine = weights @ cancer.weights
    cosine /= np.linalg.norm(weights) * np.linalg.norm(cancer.weights)
    assert 0.99 < cosine < 0.99999


def test_a_penalty_keeps_weights_small_and_its_minimum_is_exact():
    """One feature, two labels: the slope s solves 2 m = s / (1 + e^s) for penalty m."""
    target = Target.of_labels(lambda inputs: (inputs[:, 0] > 0).astype(int))
    points = np.array([[-1.0], [1.0]])
    slopes = {}
    for penalty in (0.001, 0.01, 0.1):
        weights, intercept = extract_by_likelihood(
            target, points, classes=2, penalty=penalty
        ).model.logistic()
        assert intercept == pytest.approx(0, abs=1e-6)
        slopes[penalty] = weights[0]
        # Loss log(1 + e^-s) + penalty s^2 / 4, since the two classes share s evenly.
        assert 1 / (1 + np.exp(weights[0])) == pytest.approx(penalty * weights[0] / 2, rel=1e-5)
    assert slopes[0.001] > slopes[0.01] > slopes[0.1]


def test_the_budget_stops_it_with_what_it_has(digits):
    target = digits.target.limited(200)
    found = extract_by_likelihood(target, queries(530))
    assert found.stopped
    assert found.queries == target.queries == 200
    again = extract_by_likelihood(digits.target, queries(530)[:200])
    assert not again.stopped
    assert (again.model.weights == found.model.weights).all()
    with pytest.raises(ValueError, match="budget must allow one"):
        extract_by_likelihood(target, queries(1))


def test_the_result_in_words(digits):
    found = extract_by_likelihood(digits.target.rounded(2), queries(60), iterations=5)
    assert "cross entropy from scores to 2 digits: 60 queries, unknowns 530" in str(found)
    assert found.facts["iterations"] <= 5
    assert found.history[0].loss == found.facts["divergence"] > 0


def test_bad_parameters_are_refused(digits):
    with pytest.raises(ValueError, match="inputs must be a table"):
        extract_by_likelihood(digits.target, np.zeros(52))
    with pytest.raises(ValueError, match="penalty must be"):
        extract_by_likelihood(digits.target, queries(2), penalty=-1)
    with pytest.raises(ValueError, match="iterations must be"):
        extract_by_likelihood(digits.target, queries(2), iterations=0)
    with pytest.raises(ValueError, match="classes must be given"):
        extract_by_likelihood(digits.target.showing("labels"), queries(2))
