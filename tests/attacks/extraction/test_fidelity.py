"""Fidelity: counts by hand, exact intervals, curves that charge the attack alone."""

import json

import numpy as np
import pytest

from sfumato.attacks.extraction.equations import axis_points, extract_by_equations
from sfumato.attacks.extraction.fidelity import Exam, FidelityCurve, Share, fidelity_curve
from sfumato.attacks.extraction.likelihood import extract_by_likelihood
from sfumato.attacks.targets import Target
from sfumato.core.rates import rate_interval

MODEL = np.array([[0.9, 0.1], [0.6, 0.4], [0.3, 0.7], [0.2, 0.8]])
COPY = np.array([[0.8, 0.2], [0.4, 0.6], [0.3, 0.7], [0.0, 1.0]])
ROWS = np.arange(4)[:, None]


def picking(table):
    return lambda inputs: table[np.asarray(inputs)[:, 0]]


def test_measures_by_hand():
    exam = Exam.of(Target.of_scores(picking(MODEL)), ROWS, [0, 1, 0, 1], uniform=ROWS[:2])
    found = exam.measure(picking(COPY))
    assert found.agreement.value == 0.75
    assert found.on_uniform.value == 0.5
    assert found.total_variation == pytest.approx((0.1 + 0.2 + 0 + 0.2) / 4)
    assert found.accuracy.value == 0.75  # right where the model is wrong: accuracy, not fidelity
    assert found.target_accuracy.value == 0.5


def test_a_model_is_its_own_best_copy():
    target = Target.of_scores(picking(MODEL))
    found = Exam.of(target, ROWS, [0, 0, 1, 1], uniform=ROWS).measure(picking(MODEL))
    assert found.agreement == found.on_uniform == found.accuracy == Share(4, 4)
    assert found.total_variation == 0


def test_labels_are_enough_but_for_distances():
    exam = Exam.of(Target.of_labels(picking(MODEL.argmax(axis=1))), ROWS)
    found = exam.measure(picking(COPY))
    assert found.agreement == Share(3, 4)
    assert found.total_variation is None
    by_label = Exam.of(Target.of_scores(picking(MODEL)), ROWS).measure(picking(COPY.argmax(axis=1)))
    assert by_label.agreement == Share(3, 4)
    assert by_label.total_variation is None
    assert by_label.accuracy is None


def test_intervals_are_exact():
    share = Share(30, 40, confidence=0.9)
    assert share.interval == rate_interval(30, 40, 0.9)
    data = share.to_dict()
    assert data["interval"] == list(share.interval)
    assert data["value"] == 0.75
    exam = Exam.of(Target.of_scores(picking(MODEL)), ROWS, confidence=0.5)
    assert exam.measure(picking(COPY)).agreement.confidence == 0.5
    assert str(Share(1, 2)) == "50.0% (1.3% to 98.7%)"


def test_intervals_cover_the_rate_of_fresh_inputs():
    """A copy that agrees on 90 % of inputs: at least 95 % of 95 % intervals say so."""
    random = np.random.default_rng(1)
    target = Target.of_labels(lambda inputs: np.zeros(len(inputs), int))
    covered = 0
    for _ in range(400):
        exam = Exam.of(target, random.random((100, 1)))
        low, high = exam.measure(lambda x: (x[:, 0] > 0.9).astype(int)).agreement.interval
        covered += low <= 0.9 <= high
    assert covered >= 0.93 * 400


def test_a_curve_charges_the_attack_and_not_the_exam(cancer):
    target = Target.of_scores(cancer.target.probabilities)
    exam = Exam.of(target, cancer.inputs, cancer.truth)
    asked = target.queries
    points = axis_points(30, cancer.bounds)
    found = fidelity_curve(
        target, [8, 20, 31, 100], lambda limited: extract_by_equations(limited, points), exam
    )
    assert found.budgets == (8, 20, 31, 100)
    assert found.queries == (8, 20, 31, 31)
    assert target.queries - asked == 8 + 20 + 31 + 31
    rates = [result.agreement.value for result in found.results]
    assert rates[2] == rates[3] == 1
    assert rates[0] < 0.99
    assert found.results[2].accuracy == found.results[2].target_accuracy


def test_curves_of_defences_rise_and_keep_their_order(digits):
    exam = Exam.of(digits.target, digits.uniform[:5000])
    queries = np.random.default_rng(2).uniform(0, 1, (800, 52))

    def curve(target):
        found = fidelity_curve(
            target,
            (110, 300, 800),
            lambda limited: extract_by_likelihood(limited, queries, classes=10),
            exam,
        )
        return [result.agreement.value for result in found.results]

    exact, rounded, labels = map(
        curve, (digits.target, digits.target.rounded(2), digits.target.showing("labels"))
    )
    for rates in (exact, rounded, labels):
        assert rates == sorted(rates)
    assert exact[1] > rounded[1] > labels[1] + 0.1
    assert exact[2] > rounded[2] > labels[2] + 0.05


def test_results_are_for_the_curator():
    exam = Exam.of(Target.of_scores(picking(MODEL)), ROWS, [0, 1, 0, 1], uniform=ROWS)
    fidelity = exam.measure(picking(COPY))
    data = json.loads(json.dumps(fidelity.to_dict()))
    assert data["channel"] == "curator"
    assert data["agreement"]["trials"] == 4
    curve = FidelityCurve("retraining", "labels", (5, 9), (5, 7), (fidelity, fidelity))
    data = json.loads(json.dumps(curve.to_dict()))
    assert data["channel"] == "curator"
    assert [point["queries"] for point in data["points"]] == [5, 7]
    assert data["points"][0]["fidelity"]["total_variation"] == pytest.approx(0.125)
    assert str(curve) == (
        "retraining from labels: 75.0% agreement after 5 queries, 75.0% after 7; "
        "accuracy 75.0% of 50.0%"
    )
    first, second = str(fidelity).splitlines()
    assert first.startswith("agreement 75.0% (19.4% to 99.4%) on 4 test inputs, 75.0%")
    assert first.endswith("total variation 0.12")
    assert second.startswith("accuracy 75.0%")
    plain = Exam.of(Target.of_scores(picking(MODEL)), ROWS).measure(picking(COPY)).to_dict()
    assert plain["on_uniform"] is plain["accuracy"] is None


def test_bad_parameters_are_refused():
    target = Target.of_scores(picking(MODEL))
    with pytest.raises(ValueError, match="the number of inputs must be"):
        Exam.of(target, np.zeros((0, 1)))
    with pytest.raises(ValueError, match="truth must be 4 classes"):
        Exam.of(target, ROWS, [0])
    with pytest.raises(ValueError, match="confidence must be"):
        Exam.of(target, ROWS, confidence=1)
    with pytest.raises(ValueError, match="the number of uniform inputs must be"):
        Exam.of(target, ROWS, uniform=ROWS[:0])
    exam = Exam.of(target, ROWS)
    with pytest.raises(ValueError, match="the copy's probabilities must be of shape"):
        exam.measure(lambda inputs: np.ones((len(inputs), 1)))
    with pytest.raises(ValueError, match="budgets must be one or more"):
        fidelity_curve(target, [], lambda limited: extract_by_equations(limited, ROWS), exam)
    with pytest.raises(ValueError, match="budget must be"):
        fidelity_curve(target, [0], lambda limited: extract_by_equations(limited, ROWS), exam)
