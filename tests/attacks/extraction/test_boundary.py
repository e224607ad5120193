"""Boundaries from labels: to so many binary digits, for so many queries."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.attacks.extraction.boundary import extract_by_boundary
from sfumato.attacks.extraction.fidelity import Exam
from sfumato.attacks.targets import NotSeen, Target


def halfspace(weights, intercept):
    return Target.of_labels(
        lambda inputs: (np.asarray(inputs) @ weights + intercept > 0).astype(int)
    )


def gap(found, weights, intercept):
    """Between the two hyperplanes, as unit vectors: with a sign, so that sides count."""
    mine, b = found.model.logistic()
    one, other = np.append(mine, b), np.append(weights, intercept)
    return np.linalg.norm(one / np.linalg.norm(one) - other / np.linalg.norm(other))


@settings(max_examples=40)
@given(st.integers(1, 12), st.floats(-0.7, 0.7), st.integers(0, 2**32 - 1))
def test_any_hyperplane_is_found(features, offset, seed):
    random = np.random.default_rng(seed)
    weights = random.normal(size=features)
    intercept = offset * np.linalg.norm(weights)
    target = halfspace(weights, intercept)
    found = extract_by_boundary(target, features, (-1, 1), generator=random, halvings=40)
    assert gap(found, weights, intercept) < 4 * features * 2**-40 * found.facts["condition"]
    drawn = found.queries - 40 * features
    assert drawn % (features + 1) == 0
    assert drawn > 0
    assert target.queries == found.queries


def test_each_halving_halves_the_error():
    random = np.random.default_rng(1)
    weights = random.normal(size=20)
    errors = []
    for halvings in (8, 16):
        gaps = [
            gap(
                extract_by_boundary(
                    halfspace(weights, 0.3), 20, (-1, 1), generator=np.random.default_rng(seed),
                    halvings=halvings, ways=40,
                ),
                weights,
                0.3,
            )
            for seed in range(30)
        ]  # fmt: skip
        errors.append(np.median(gaps))
    assert errors[0] / errors[1] == pytest.approx(2**8, rel=0.3)


def test_more_ways_determine_it_better():
    random = np.random.default_rng(2)
    weights = random.normal(size=30)
    conditions = [
        extract_by_boundary(
            halfspace(weights, 0.1), 30, (-1, 1), generator=np.random.default_rng(3), ways=ways
        ).facts["condition"]
        for ways in (30, 60)
    ]
    assert conditions[0] > 5 * conditions[1]


def test_a_real_logistic_regression_from_its_labels(cancer):
    target = cancer.target.showing("labels")
    found = extract_by_boundary(target, 30, cancer.bounds, generator=np.random.default_rng(4))
    assert found.queries == 31 + 30 * 40
    weights, intercept = found.model.logistic()
    assert weights / intercept == pytest.approx(cancer.weights / cancer.intercept, rel=1e-6)
    fidelity = Exam.of(cancer.target, cancer.inputs).measure(found.predict)
    assert fidelity.agreement.value == 1
    assert fidelity.total_variation > 0.05  # the scale is not to be had from labels


def test_inputs_of_very_different_ranges():
    low, high = np.array([0.0, -1e6, 5.0]), np.array([1e-3, 1e6, 6.0])
    weights = np.array([2e3, 1e-6, -1.0])
    intercept = 4.5
    asked = []

    def answer(inputs):
        asked.append(inputs)
        return (inputs @ weights + intercept > 0).astype(int)

    found = extract_by_boundary(
        Target.of_labels(answer), 3, (low, high), generator=np.random.default_rng(5)
    )
    mine, b = found.model.logistic()
    assert mine / b == pytest.approx(weights / intercept, rel=1e-8)
    every = np.concatenate(asked)
    assert (every >= low).all()
    assert (every <= high).all()


def test_halving_beyond_the_last_digit_is_harmless():
    weights = np.array([1.0, -2.0, 0.5])
    found = extract_by_boundary(
        halfspace(weights, 0.25), 3, (-1, 1), generator=np.random.default_rng(1), halvings=80
    )
    assert gap(found, weights, 0.25) < 1e-13 * found.facts["condition"]


# What a budget leaves.


def test_the_budget_stops_it_between_halvings(cancer):
    target = cancer.target.showing("labels").limited(31 + 30 * 12 + 7)
    found = extract_by_boundary(target, 30, cancer.bounds, generator=np.random.default_rng(4))
    assert found.stopped
    assert found.facts["halvings"] == 12
    assert found.queries == target.queries == 31 + 30 * 12
    fidelity = Exam.of(cancer.target, cancer.inputs).measure(found.predict)
    assert fidelity.agreement.value > 0.8


@pytest.mark.parametrize("budget", [2, 5, 20, 31, 45])
def test_even_a_small_budget_ends_with_a_copy(cancer, budget):
    target = cancer.target.showing("labels").limited(budget)
    found = extract_by_boundary(target, 30, cancer.bounds, generator=np.random.default_rng(6))
    assert found.stopped
    assert 0 < found.queries <= budget
    assert np.isfinite(found.predict(cancer.inputs)).all()


def test_few_points_are_better_than_none(cancer):
    """Half as many points as unknowns, unhalved: the plane between what was seen."""
    found = [
        extract_by_boundary(
            cancer.target.showing("labels").limited(16),
            30,
            (-3, 3),
            generator=np.random.default_rng(seed),
        )
        for seed in range(20)
    ]
    exam = Exam.of(cancer.target, np.random.default_rng(7).uniform(-3, 3, (2000, 30)))
    rates = [exam.measure(one.predict).agreement.value for one in found]
    assert np.mean(rates) > 0.6


def test_a_class_that_is_never_seen():
    found = extract_by_boundary(
        halfspace(np.ones(3), 10.0), 3, (-1, 1), generator=np.random.default_rng(8), draws=50
    )
    assert found.queries == 50
    assert found.predict(np.zeros((2, 3))).argmax(axis=1).tolist() == [1, 1]
    assert not found.stopped
    never = extract_by_boundary(
        halfspace(np.ones(3), -10.0), 3, (-1, 1), generator=np.random.default_rng(8), draws=50
    )
    assert never.predict(np.zeros((2, 3))).argmax(axis=1).tolist() == [0, 0]


def test_a_rare_class_is_looked_for():
    weights, intercept = np.ones(4), 3.0  # about one input in 400 is of class 0
    found = extract_by_boundary(
        halfspace(weights, intercept), 4, (-1, 1), generator=np.random.default_rng(9)
    )
    assert found.queries > 5 * 5 + 40 * 4
    assert gap(found, weights, intercept) < 1e-8


def test_bad_parameters_are_refused():
    target = halfspace(np.ones(2), 0.0)
    random = np.random.default_rng(1)
    with pytest.raises(ValueError, match="ways must be a whole number, 2 or above"):
        extract_by_boundary(target, 2, (-1, 1), generator=random, ways=1)
    with pytest.raises(ValueError, match="draws must be a whole number, 3 or above"):
        extract_by_boundary(target, 2, (-1, 1), generator=random, draws=2)
    with pytest.raises(ValueError, match="halvings"):
        extract_by_boundary(target, 2, (-1, 1), generator=random, halvings=0)
    with pytest.raises(ValueError, match="budget must allow one"):
        extract_by_boundary(target.limited(0), 2, (-1, 1), generator=random)
    with pytest.raises(ValueError, match="between classes 0 and 1 alone"):
        extract_by_boundary(
            Target.of_labels(lambda inputs: np.full(len(inputs), 2)), 2, (-1, 1), generator=random
        )
    with pytest.raises(NotSeen):
        extract_by_boundary(
            Target.of_losses(lambda inputs, labels: labels), 2, (-1, 1), generator=random
        )
