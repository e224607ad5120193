"""Attribute inference: Bayes' rule to the digit, and no leak where imputation does as well."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.tree import DecisionTreeClassifier

from sfumato.attacks.attributes import (
    Attribute,
    attribute_attack,
    confusion_of_accuracy,
    infer_attribute,
)
from sfumato.attacks.candidates import Candidates
from sfumato.attacks.targets import NotSeen, Target


def looked_up(table):
    """A model that knows the law: row v of ``table`` is Pr[y | v], v in the second column."""
    return Target.of_scores(lambda x: table[x[:, 1].astype(int)])


def people(random, rows, prior, table, start=0):
    """Records (number, v) with v from the prior and y from the law."""
    v = random.choice(len(prior), rows, p=prior)
    y = (random.random(rows)[:, None] > np.cumsum(table, axis=1)[v]).sum(axis=1)
    return np.stack([np.arange(start, start + rows), v], axis=1).astype(float), y


def two_groups(random, rows, prior, table):
    return Candidates.of(
        people(random, rows, prior, table), people(random, rows, prior, table, start=rows)
    )


@given(
    seed=st.integers(0, 2**32 - 1),
    values=st.integers(2, 6),
    classes=st.integers(2, 4),
)
def test_weights_are_bayes_rule(seed, values, classes):
    random = np.random.default_rng(seed)
    prior, table = random.dirichlet(np.ones(values)), random.dirichlet(np.ones(classes), values)
    records = np.stack([np.arange(classes), np.full(classes, np.nan)], axis=1)
    attribute = Attribute.categorical(1, range(values))
    found = infer_attribute(looked_up(table), records, np.arange(classes), attribute, prior=prior)
    for y in range(classes):
        posterior = prior * table[:, y] / (prior @ table[:, y])
        assert found.weights[y] == pytest.approx(posterior)
        assert found.values[y] == posterior.argmax()
    assert found.queries == values * classes


def test_success_is_that_of_the_best_guess_and_no_leak():
    """Right for a share sum_y max_v prior(v) Pr[y | v] of people, members or not."""
    random = np.random.default_rng(1)
    prior = np.array([0.5, 0.3, 0.2])
    table = np.array([[0.8, 0.1, 0.1], [0.1, 0.8, 0.1], [0.15, 0.15, 0.7]])
    both = two_groups(random, 20_000, prior, table)
    attribute = Attribute.categorical(1, [0, 1, 2])
    result = attribute_attack(looked_up(table), both, attribute, prior=prior, confidence=0.9999)
    best = (prior[:, None] * table).max(axis=0).sum()
    assert best == pytest.approx(0.78)
    error = 4 * math.sqrt(0.25 / 20_000)
    for group in (result.members, result.others):
        assert group.success == pytest.approx(best, abs=error)
        assert group.imputation == pytest.approx(0.5, abs=error)
        assert group.gain == pytest.approx(0.28, abs=2 * error)
    low, high = result.advantage_interval
    assert low <= 0 <= high
    assert high - low < 0.05
    assert result.members.confidence == result.confidence == 0.9999
    assert result.queries == 3 * 40_000


def test_a_model_that_knows_its_members_by_heart_leaks_and_others_are_only_imputed():
    random = np.random.default_rng(2)
    prior, law = np.array([0.6, 0.4]), np.full((2, 2), 0.5)
    both = two_groups(random, 1000, prior, law)
    inside = {tuple(row) for row in both.inputs[both.members].tolist()}

    def answer(inputs):
        known = np.array([tuple(row) in inside for row in inputs.tolist()])
        labels = both.labels[inputs[:, 0].astype(int)]
        sure = np.where(labels[:, None] == [0, 1], 0.9, 0.1)
        return np.where(known[:, None], sure, 0.5)

    attribute = Attribute.categorical(1, [0, 1])
    result = attribute_attack(Target.of_scores(answer), both, attribute, prior=prior)
    assert result.members.success == 1
    assert result.others.gain == 0
    assert result.others.right == (both.inputs[~both.members, 1] == 0).sum()
    assert result.advantage == pytest.approx(1 - result.others.success)
    assert result.advantage_interval[0] > 0.35
    assert result.members.gain_interval[0] > 0.3


def test_an_overfit_tree_tells_more_of_its_members():
    """The label is the attribute but for some; of members the tree knows for whom it is not."""
    random = np.random.default_rng(3)
    x = np.concatenate([random.normal(size=(2000, 3)), random.integers(0, 2, (2000, 1))], axis=1)
    y = (x[:, 3].astype(int) + (random.random(2000) < 0.25)) % 2
    tree = DecisionTreeClassifier(random_state=0).fit(x[:1000], y[:1000])
    both = Candidates.of((x[:1000], y[:1000]), (x[1000:], y[1000:]))
    target = Target.of_scores(tree.predict_proba)
    result = attribute_attack(target, both, Attribute.categorical(3, [0, 1]))
    assert result.advantage_interval[0] > 0.03
    assert result.others.gain_interval[0] > 0  # which the model adds for everyone
    assert result.members.imputation == pytest.approx(0.5, abs=4 * math.sqrt(0.25 / 1000))


def test_with_labels_alone_the_confusion_matrix_is_the_likelihood():
    table = np.array([[0.9, 0.1], [0.2, 0.8]])
    target = looked_up(table).showing("labels")
    confusion = confusion_of_accuracy(0.75, 2)
    assert confusion.tolist() == [[0.75, 0.25], [0.25, 0.75]]
    attribute = Attribute.categorical(1, [0, 1])
    found = infer_attribute(
        target, [[0, np.nan]] * 2, [0, 1], attribute, prior=[0.4, 0.6], confusion=confusion
    )
    one = 0.4 * 0.75 / (0.4 * 0.75 + 0.6 * 0.25)
    two = 0.4 * 0.25 / (0.4 * 0.25 + 0.6 * 0.75)
    assert found.weights == pytest.approx(np.array([[one, 1 - one], [two, 1 - two]]))
    assert found.values.tolist() == [0, 1]
    thirds = confusion_of_accuracy(0.6, 3)
    assert thirds.sum(axis=1) == pytest.approx(1)
    assert thirds[0].tolist() == pytest.approx([0.6, 0.2, 0.2])


def test_a_continuous_attribute_in_closed_form():
    """v uniform on [0, 1] and Pr[y = 1 | v] = v. Given y = 1, v has the density 2v, and the best
    window of 2t is the last one: right for a share 1 - (1 - 2t)^2 = 0.36 of people at t = 0.1, and
    by imputation for 2t = 0.2."""
    random = np.random.default_rng(4)
    v = random.random(20_000)
    y = (random.random(20_000) < v).astype(int)
    x = np.stack([v, np.arange(20_000)], axis=1)
    target = Target.of_scores(lambda x: np.stack([1 - x[:, 0], x[:, 0]], axis=1))
    attribute = Attribute.continuous(0, 0.0, 1.0, tolerance=0.1, points=101)
    both = Candidates.of((x[:10_000], y[:10_000]), (x[10_000:], y[10_000:]))
    result = attribute_attack(target, both, attribute)
    error = 4 * math.sqrt(0.23 / 10_000)
    for group in (result.members, result.others):
        assert group.success == pytest.approx(0.36, abs=error)
        assert group.imputation == pytest.approx(0.2, abs=error)
        # The guess is 0.9 given y = 1: E|v - 0.9| = 2 int v |v - 0.9| dv = 0.252.
        assert group.error == pytest.approx(0.252, abs=0.01)
    guess = infer_attribute(target, [[np.nan, 0]] * 2, [0, 1], attribute)
    assert guess.values.tolist() == pytest.approx([0.1, 0.9])


def test_one_hot_columns():
    def answer(inputs):
        assert np.array_equal(inputs[:, 1:].sum(axis=1), np.ones(len(inputs)))
        return inputs[:, 1:] @ np.array([[0.7, 0.3], [0.2, 0.8], [0.4, 0.6]])

    attribute = Attribute.one_hot([1, 2, 3])
    found = infer_attribute(Target.of_scores(answer), [[9, 0, 0, 0]], [1], attribute)
    assert found.weights[0] == pytest.approx(np.array([0.3, 0.8, 0.6]) / 1.7)
    assert found.values.tolist() == [1]
    assert attribute.truth([[9, 0, 0, 1], [9, 1, 0, 0]]).tolist() == [2, 0]


@given(seed=st.integers(0, 2**32 - 1))
def test_the_attack_does_not_see_what_it_guesses(seed):
    random = np.random.default_rng(seed)
    table = random.dirichlet(np.ones(3), 4)
    records = np.stack([np.arange(6), random.integers(0, 4, 6)], axis=1).astype(float)
    blanked = records.copy()
    blanked[:, 1] = np.nan
    labels, attribute = random.integers(0, 3, 6), Attribute.categorical(1, range(4))
    one, two = (infer_attribute(looked_up(table), x, labels, attribute) for x in (records, blanked))
    assert np.array_equal(one.weights, two.weights)


def test_a_prior_for_each_person_and_of_public_values():
    table = np.full((2, 2), 0.5)
    attribute = Attribute.categorical(1, [0, 1])
    found = infer_attribute(
        looked_up(table), [[0, 0]] * 2, [0, 0], attribute, prior=[[0.9, 0.1], [0.0, 3.0]]
    )
    assert found.weights == pytest.approx(np.array([[0.9, 0.1], [0.0, 1.0]]))
    assert attribute.frequencies([0, 0, 0, 1, 0.9]).tolist() == pytest.approx([4 / 7, 3 / 7])


def test_many_records_are_asked_about_in_parts(monkeypatch):
    sizes = []

    def answer(inputs):
        sizes.append(len(inputs))
        return np.tile([0.5, 0.5], (len(inputs), 1))

    monkeypatch.setattr("sfumato.attacks.attributes._AT_ONCE", 40)
    attribute = Attribute.categorical(1, [0, 1])
    infer_attribute(Target.of_scores(answer), np.zeros((25, 2)), np.zeros(25), attribute)
    assert sizes == [20, 20, 10]


def test_a_target_of_losses_is_enough_and_guesses_are_for_the_curator():
    target = Target.of_losses(lambda x, y: np.where(x[:, 1] == 1, 0.1, 2.0))
    attribute = Attribute.categorical(1, [0, 1])
    found = infer_attribute(target, [[0, 0]], [5], attribute)
    assert found.weights[0, 1] == pytest.approx(1 / (1 + math.exp(-1.9)))
    assert found.to_dict()["channel"] == "curator"
    assert str(found).startswith("1 guesses from 2 queries")


def test_bad_parameters_are_refused():
    attribute, target = Attribute.categorical(1, [0, 1]), looked_up(np.full((2, 2), 0.5))
    with pytest.raises(NotSeen, match="needs losses"):
        infer_attribute(target.showing("labels"), [[0, 0]], [0], attribute)
    for prior in ([0.5, 0.3, 0.2], [[0.5, 0.5]] * 3):
        with pytest.raises(ValueError, match="prior must be 2 numbers"):
            infer_attribute(target, [[0, 0]] * 2, [0, 0], attribute, prior=prior)
    for prior in ([-1.0, 2.0], [0.0, 0.0], [np.nan, 1.0]):
        with pytest.raises(ValueError, match="prior must be numbers from 0 up"):
            infer_attribute(target, [[0, 0]], [0], attribute, prior=prior)
    with pytest.raises(ValueError, match="labels must be one for each"):
        infer_attribute(target, [[0, 0]], [0, 1], attribute)
    with pytest.raises(ValueError, match="confusion must be a square"):
        infer_attribute(target, [[0, 0]], [0], attribute, confusion=[[1.0, 0.0]])
    with pytest.raises(ValueError, match="classes from 0 to 1"):
        infer_attribute(target, [[0, 0]], [2], attribute, confusion=np.eye(2))
    with pytest.raises(ValueError, match="number of values"):
        Attribute.categorical(0, [1])
    with pytest.raises(ValueError, match="different from each other"):
        Attribute.categorical(0, [1, 1])
    with pytest.raises(ValueError, match="tolerance must be"):
        Attribute.continuous(0, 0.0, 1.0, tolerance=0)
    with pytest.raises(ValueError, match="lower bound below"):
        Attribute.continuous(0, 1.0, 0.0, tolerance=0.1)
    with pytest.raises(ValueError, match="accuracy must be"):
        confusion_of_accuracy(1.0, 2)
    alone = Candidates(np.zeros((2, 2)), np.zeros(2, int), np.ones(2, bool))
    with pytest.raises(ValueError, match="some members and some others"):
        attribute_attack(target, alone, attribute)


@pytest.mark.parametrize(
    ("attribute", "held"),
    [
        (Attribute.categorical(1, [1, 2]), [0.0, 1.0]),  # counted from 1, held from 0
        (Attribute.categorical(1, [0, 1]), [0.0, math.nan]),
        (Attribute.continuous(1, 18, 90, tolerance=5), [0.2, 0.7]),  # years, and scaled
        (Attribute.one_hot([0, 1]), [0.0, 2.0]),
    ],
)
def test_values_that_the_columns_do_not_hold_are_refused(attribute, held):
    """No guess could be right, and the attack would read as if it had found nothing."""
    target = Target.of_scores(lambda x: np.full((len(x), 2), 0.5))
    rows = np.array([[5.0, held[0]], [6.0, held[1]]])
    with pytest.raises(ValueError, match=r"values must be all that .* with another"):
        attribute_attack(target, Candidates(rows, [0, 1], [True, False]), attribute)


def test_columns_that_records_do_not_have_are_refused():
    target = Target.of_scores(lambda x: np.full((len(x), 2), 0.5))
    rows = Candidates(np.eye(2), [0, 1], [True, False])
    with pytest.raises(ValueError, match="columns must be columns of records of width 2"):
        attribute_attack(target, rows, Attribute.categorical(2, [0, 1]))
    with pytest.raises(ValueError, match="columns must be columns of records of width 2"):
        infer_attribute(target, np.eye(2), [0, 1], Attribute.categorical(5, [0, 1]))
