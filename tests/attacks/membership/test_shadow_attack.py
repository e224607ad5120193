"""Shadow models: exact on trees that know their members by heart, blind where there is nothing."""

import json
import math
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeClassifier

from sfumato.attacks.candidates import Candidates
from sfumato.attacks.membership.shadow_attack import (
    Arrangement,
    ShadowAttack,
    ShadowOutputs,
    _features,
    shadow_attack,
    train_shadows,
)
from sfumato.attacks.targets import NotSeen, Target
from sfumato.attacks.tracing import Roc


def purchases(random, rows, rates):
    """What people bought: classes differ in how common each of many goods is."""
    labels = random.integers(0, len(rates), rows)
    return (random.random((rows, rates.shape[1])) < rates[labels]).astype(float), labels


def trainer(make):
    return lambda x, y: Target.of_scores(make().fit(x, y).predict_proba)


def logistic(seed):
    return LogisticRegression(max_iter=500)


def stage(make, shadows, rows=400, goods=60, classes=4):
    """A target, its candidates, and outputs of shadows trained on other data."""
    random = np.random.default_rng(7)
    rates = random.uniform(0.25, 0.75, (classes, goods))
    (inside, in_labels), (outside, out_labels) = (purchases(random, rows, rates) for _ in "ab")
    more, more_labels = purchases(random, 4 * rows, rates)
    train = trainer(make)
    outputs = train_shadows(train, more, more_labels, shadows=shadows, size=rows, generator=random)
    candidates = Candidates.of((inside, in_labels), (outside, out_labels))
    return train(inside, in_labels), candidates, outputs, random


def test_of_a_tree_that_knows_its_members_by_heart_the_calls_are_exact():
    """Every member has probability 1; of the others just those that the tree classifies rightly."""
    target, candidates, outputs, random = stage(
        lambda: DecisionTreeClassifier(random_state=0), shadows=4
    )
    report = shadow_attack(target, candidates, outputs, generator=random, classifier=logistic)
    right = target.labels(candidates.inputs) == candidates.labels
    assert right[candidates.members].all()
    total = report.calls[0]
    assert (total.found, total.members, total.others) == (400, 400, 400)
    assert total.false_alarms == right[~candidates.members].sum()
    accuracy = right[~candidates.members].mean()
    assert total.precision == pytest.approx(1 / (1 + accuracy))
    for calls in report.calls[1:]:
        mine = candidates.labels == calls.label
        assert calls.found == (mine & candidates.members).sum()
        assert calls.false_alarms == (mine & right & ~candidates.members).sum()
    assert report.queries == 800


def test_an_overfit_forest_gives_its_members_away_and_fresh_people_are_not_told_apart():
    target, candidates, outputs, random = stage(
        lambda: RandomForestClassifier(25, random_state=0), shadows=3
    )
    attack = ShadowAttack.fit(outputs, generator=random)
    report = shadow_attack(target, candidates, attack)
    assert report.calls[0].precision > 0.9
    assert report.calls[0].recall > 0.9
    assert report.auc_interval[0] > 0.95
    assert report.own_threshold
    fresh = candidates.inputs[~candidates.members]
    labels, half = candidates.labels[~candidates.members], len(fresh) // 2
    null = Candidates.of((fresh[:half], labels[:half]), (fresh[half:], labels[half:]))
    nothing = shadow_attack(target, null, attack)
    assert nothing.auc == pytest.approx(0.5, abs=4 * math.sqrt(400 / (12 * 200 * 200)))


def normal_outputs(random, rows, shift, share=0.5):
    """Two classes; the logit of one's own is N(0, 1), for seen ones N(shift, 1)."""
    inside, labels = random.random(rows) < share, random.integers(0, 2, rows)
    logit = random.normal(0, 1, rows) + shift * inside
    own = expit(logit)
    answers = np.where(labels[:, None] == [0, 1], own[:, None], 1 - own[:, None])
    return ShadowOutputs(answers, labels, inside), logit


@pytest.mark.parametrize("share", [0.5, 0.8])
def test_scores_are_the_posterior_at_even_odds_whatever_the_share_of_seen_answers(share):
    """The exact one is 1 / (1 + exp(-shift (logit - shift / 2))). Without the correction for a
    share of 0.8, scores would be 0.2 too high on average."""
    random, shift = np.random.default_rng(2), 1.5
    attack = ShadowAttack.fit(normal_outputs(random, 20_000, shift, share)[0], generator=random)
    fresh, logit = normal_outputs(random, 10_000, shift)
    found = attack.scores(fresh.probabilities, fresh.labels)
    exact = expit(shift * (logit - shift / 2))
    assert np.abs(found - exact).mean() < 0.04
    assert (found - exact).mean() == pytest.approx(0, abs=0.03)
    area = Roc.from_scores(found[fresh.inside], found[~fresh.inside]).auc
    assert area == pytest.approx(NormalDist().cdf(shift / math.sqrt(2)), abs=0.015)
    called = attack.decide(fresh.probabilities, fresh.labels)
    assert np.array_equal(called, found >= 0.5)
    assert (called == fresh.inside).mean() == pytest.approx(NormalDist().cdf(0.75), abs=0.02)


def opposite_classes(random, rows, classes):
    """Seen examples of class 0 are answered more surely, those of other classes less surely."""
    inside, labels = random.random(rows) < 0.5, random.integers(0, classes, rows)
    own = np.where(inside == (labels == 0), 0.9, 0.6) + random.uniform(-0.05, 0.05, rows)
    rest = (1 - own) / (classes - 1)
    answers = np.where(labels[:, None] == np.arange(classes), own[:, None], rest[:, None])
    return ShadowOutputs(answers, labels, inside)


def test_each_class_has_its_own_attack_model():
    random = np.random.default_rng(3)
    attack = ShadowAttack.fit(opposite_classes(random, 2000, 3), generator=random)
    fresh = opposite_classes(random, 900, 3)
    assert np.array_equal(attack.decide(fresh.probabilities, fresh.labels), fresh.inside)
    assert attack.pooled_classes == ()


def test_a_class_without_shadow_answers_is_judged_by_all_classes_together():
    random = np.random.default_rng(4)
    every = opposite_classes(random, 3000, 3)
    some = (every.labels != 2) | (np.cumsum(every.labels == 2) <= 5)
    known = ShadowOutputs(every.probabilities[some], every.labels[some], every.inside[some])
    no_zero = known.labels != 0
    two = ShadowOutputs(known.probabilities[no_zero], known.labels[no_zero], known.inside[no_zero])
    attack = ShadowAttack.fit(two, generator=random)
    assert attack.pooled_classes == (0, 2)
    fresh = opposite_classes(random, 600, 3)
    called = attack.decide(fresh.probabilities, fresh.labels)
    # Class 2 behaves as class 1, from which the pooled model learned; class 0 the other way round.
    assert (called == fresh.inside)[fresh.labels == 2].mean() > 0.99
    assert (called == fresh.inside)[fresh.labels == 0].mean() < 0.01


@pytest.fixture(scope="module")
def fitted():
    random = np.random.default_rng(5)
    answers = random.dirichlet(np.ones(5), 600)
    outputs = ShadowOutputs(answers, random.integers(0, 5, 600), random.random(600) < 0.5)
    return {
        kind: ShadowAttack.fit(outputs, generator=random, arrangement=kind, classifier=logistic)
        for kind in Arrangement
    }


@given(seed=st.integers(0, 2**32 - 1), label=st.integers(0, 4))
def test_what_the_order_of_classes_changes(fitted, seed, label):
    random = np.random.default_rng(seed)
    row = random.dirichlet(np.ones(5))
    others = [place for place in range(5) if place != label]
    mixed = row.copy()
    mixed[others] = random.permutation(row[others])
    both, labels = np.stack([row, mixed]), [label, label]
    for kind in (Arrangement.OWN_FIRST, Arrangement.SORTED):
        one, two = fitted[kind].scores(both, labels)
        assert one == pytest.approx(two)
    turned = np.roll(row, 1)
    one, two = fitted[Arrangement.SORTED].scores(np.stack([row, turned]), labels)
    assert one == pytest.approx(two)


def test_the_three_orders_by_hand():
    rows, labels = np.array([[0.1, 0.3, 0.6], [0.5, 0.5, 0.0]]), np.array([1, 2])
    read = {kind: np.exp(_features(rows, labels, kind)) for kind in Arrangement}
    assert read[Arrangement.BY_CLASS] == pytest.approx(rows, abs=1e-11)
    own_first = np.array([[0.3, 0.6, 0.1], [0.0, 0.5, 0.5]])
    assert read[Arrangement.OWN_FIRST] == pytest.approx(own_first, abs=1e-11)
    in_order = np.array([[0.6, 0.3, 0.1], [0.5, 0.5, 0.0]])
    assert read[Arrangement.SORTED] == pytest.approx(in_order, abs=1e-11)


def test_the_truth_about_the_candidates_changes_no_score():
    target, candidates, outputs, _ = stage(
        lambda: RandomForestClassifier(10, random_state=0), shadows=1, rows=100
    )
    attack = ShadowAttack.fit(outputs, generator=np.random.default_rng(1), fewest=10)
    swapped = Candidates(candidates.inputs, candidates.labels, ~candidates.members)
    one, two = (shadow_attack(target, both, attack) for both in (candidates, swapped))
    assert np.array_equal(one.scores, two.scores)
    assert one.auc == pytest.approx(1 - two.auc)
    assert json.loads(json.dumps(one.to_dict()))["channel"] == "curator"


def test_a_target_that_rounds_and_hides_is_attacked_through_the_same_defence():
    random = np.random.default_rng(6)

    def defended(x, y):
        forest = RandomForestClassifier(10, random_state=0).fit(x, y)
        return Target.of_scores(forest.predict_proba).rounded(1).top(2)

    rates = random.uniform(0.2, 0.8, (3, 40))
    (x, y), (outside, out_labels) = purchases(random, 600, rates), purchases(random, 150, rates)
    outputs = train_shadows(defended, x, y, shadows=2, size=150, generator=random)
    inside, in_labels = purchases(random, 150, rates)
    both = Candidates.of((inside, in_labels), (outside, out_labels))
    report = shadow_attack(defended(inside, in_labels), both, outputs, generator=random)
    assert report.auc_interval[0] > 0.7
    assert np.isfinite(report.scores).all()


def test_bad_parameters_are_refused():
    random = np.random.default_rng(8)
    outputs = opposite_classes(random, 200, 3)
    target = Target.of_labels(lambda x: np.zeros(len(x)))
    both = Candidates.of((np.zeros((1, 2)), [0]), (np.ones((1, 2)), [0]))
    with pytest.raises(NotSeen, match="needs scores"):
        shadow_attack(target, both, outputs, generator=random)
    with pytest.raises(ValueError, match="generator must be given"):
        shadow_attack(Target.of_scores(lambda x: x), both, outputs)
    with pytest.raises(ValueError, match="arrangement must be 'by-class', 'own-first' or 'sorted'"):
        ShadowAttack.fit(outputs, generator=random, arrangement="random")
    with pytest.raises(ValueError, match="fewest must be"):
        ShadowAttack.fit(outputs, generator=random, fewest=1)
    attack = ShadowAttack.fit(outputs, generator=random, classifier=logistic)
    with pytest.raises(ValueError, match="rows of 3 classes"):
        attack.scores([[0.5, 0.5]], [0])
    with pytest.raises(ValueError, match="classes from 0 to 2"):
        attack.scores([[0.5, 0.3, 0.2]], [3])
