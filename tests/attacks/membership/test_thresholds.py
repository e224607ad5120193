"""Threshold attacks: formulas, Yeom's threshold on known laws, and a real network that overfits."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import entropy
from torch import nn

from sfumato.attacks.candidates import Candidates
from sfumato.attacks.membership.thresholds import (
    Statistic,
    class_thresholds,
    entropy_scores,
    loss_attack,
    loss_scores,
    modified_entropy_scores,
    statistic_scores,
    threshold_attack,
    top_probability_scores,
)
from sfumato.attacks.targets import NotSeen, Target, View

SHARES = st.lists(st.floats(0.01, 1), min_size=2, max_size=6)


def as_target(probabilities):
    """A target that answers about example i with row i."""
    return Target.of_scores(lambda inputs: probabilities[inputs[:, 0].astype(int)])


def numbered(labels, members):
    inputs = np.arange(len(labels), dtype=float).reshape(-1, 1)
    return Candidates(inputs, np.asarray(labels), np.asarray(members, dtype=bool))


# Formulas.


@given(SHARES, st.data())
def test_scores_by_their_formulas(shares, data):
    p = np.array(shares) / sum(shares)
    y = data.draw(st.integers(0, len(p) - 1))
    assert loss_scores([p], [y])[0] == pytest.approx(math.log(p[y]))
    assert top_probability_scores([p])[0] == p.max()
    assert entropy_scores([p])[0] == pytest.approx(-entropy(p))
    others = sum(p[c] * math.log(1 - p[c]) for c in range(len(p)) if c != y)
    expected = (1 - p[y]) * math.log(p[y]) + others
    assert modified_entropy_scores([p], [y])[0] == pytest.approx(expected)


@given(st.floats(0.001, 0.999), st.floats(0.001, 0.999))
def test_the_modified_entropy_rises_with_the_label_and_the_plain_one_does_not(a, b):
    low, high = sorted((a, b))
    p = np.array([[low, 1 - low], [high, 1 - high]])
    less, more = modified_entropy_scores(p, [0, 0])
    assert less <= more
    assert entropy_scores(p[:1])[0] == pytest.approx(entropy_scores(1 - p[:1])[0])
    # With two classes it is 2 (1 - p) log p: half of it is below the loss's size.
    assert less == pytest.approx(2 * (1 - low) * math.log(low))


def test_certainty_gives_finite_scores():
    p, y = np.array([[1.0, 0.0], [0.0, 1.0]]), np.array([0, 0])
    for scores in (loss_scores(p, y), entropy_scores(p), modified_entropy_scores(p, y)):
        assert np.isfinite(scores).all()
    assert modified_entropy_scores(p, y)[0] == 0
    assert entropy_scores(p).tolist() == [0, 0]
    assert loss_scores(p, y)[1] < -600
    assert modified_entropy_scores(p, y)[1] < -1200


# Attacks.


def test_yeoms_threshold_on_exponential_losses():
    """Mean losses 1/2 and 1: a loss up to 1/2 has probability 1 - e^-1, and 1 - e^-1/2."""
    random, size = np.random.default_rng(1), 40_000
    losses = np.concatenate([random.exponential(0.5, size), random.exponential(1.0, size)])
    target = Target.of_losses(lambda inputs, labels: losses[inputs[:, 0].astype(int)])
    candidates = numbered(np.zeros(2 * size, int), np.repeat([1, 0], size))
    report = loss_attack(target, candidates, training_loss=0.5)
    (every, _) = report.calls
    error = 4 * 0.5 / math.sqrt(size)
    assert every.recall == pytest.approx(1 - math.exp(-1), abs=error)
    assert every.false_alarms / every.others == pytest.approx(1 - math.exp(-0.5), abs=error)
    assert report.own_threshold
    assert report.auc == pytest.approx(2 / 3, abs=error)  # 1 / (1 + 0.5): rates 2 and 1
    # The best threshold is where the densities cross: 2 e^-2x = e^-x, x = log 2.
    unaided = loss_attack(target, candidates, generator=random)
    assert not unaided.own_threshold
    assert unaided.threshold == pytest.approx(-math.log(2), abs=0.12)
    assert unaided.calls[0].balanced_accuracy == pytest.approx(0.5 + 0.125, abs=error)
    assert report.queries == unaided.queries == 2 * size


def test_each_statistic_asks_for_the_view_it_needs():
    p = np.array([[0.9, 0.1], [0.6, 0.4], [0.3, 0.7]])
    candidates = numbered([0, 0, 0], [1, 0, 0])
    target = as_target(p)
    for kind in Statistic:
        scores = statistic_scores(target, candidates.inputs, candidates.labels, kind)
        assert scores.argmax() == 0
        report = threshold_attack(target, candidates, kind)
        assert report.attack == f"{kind} threshold"
        assert report.queries == 3
        with pytest.raises(NotSeen, match=f"needs {kind.needs}"):
            threshold_attack(target.showing("labels"), candidates, kind)
    assert Statistic.LOSS.needs is View.LOSSES
    alone = Target.of_losses(lambda inputs, labels: -np.log(p[inputs[:, 0].astype(int), labels]))
    assert loss_attack(alone, candidates).scores == pytest.approx(loss_scores(p, [0, 0, 0]))
    with pytest.raises(NotSeen, match="needs scores"):
        threshold_attack(alone, candidates, "entropy")


def test_thresholds_for_classes_tell_hard_classes_from_easy_ones():
    """In class 1 everything is surer by 0.3. One threshold errs, one for each class does not."""
    labels, members = np.tile([0, 1], 200), np.repeat([1, 0], 200)
    random = np.random.default_rng(2)

    def model():
        right = 0.4 + 0.3 * labels + 0.15 * members + random.uniform(0, 0.05, 400)
        return as_target(
            np.stack([np.where(labels, 1 - right, right), np.where(labels, right, 1 - right)], 1)
        )

    target, shadow = model(), model()
    candidates = numbered(labels, members)
    alone = threshold_attack(target, candidates, "loss")
    helped = threshold_attack(target, candidates, "loss", shadow=(shadow, candidates))
    assert alone.calls[0].balanced_accuracy <= 0.76
    assert helped.calls[0].balanced_accuracy == 1
    assert (helped.threshold, helped.own_threshold, helped.queries) == (0, True, 400)
    assert helped.attack == "loss threshold for each class"


def test_class_thresholds_lie_half_way_and_fall_back_to_all():
    scores, members = [5.0, 3.0, 1.0, 8.0, 9.0], [1, 1, 0, 1, 0]
    found = class_thresholds(scores, [0, 0, 0, 1, 2], members, 4)
    assert found.tolist() == [2.0, 2.0, 2.0, 2.0]
    found = class_thresholds([5.0, 1.0, 9.0, 8.0], [0, 0, 1, 1], [1, 0, 1, 0], 2)
    assert found.tolist() == [3.0, 8.5]
    # Where members score lower, nobody is called.
    assert class_thresholds([1.0, 2.0], [0, 0], [1, 0], 1)[0] > 2
    with pytest.raises(ValueError, match="of the same length"):
        class_thresholds([1.0], [0, 0], [1, 0], 1)


def test_a_network_that_learnt_random_labels_by_heart_gives_its_members_away():
    torch.manual_seed(3)
    random = np.random.default_rng(3)
    inputs, labels = random.normal(size=(240, 20)), random.integers(0, 4, 240)
    net = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 4))
    optimizer = torch.optim.Adam(net.parameters(), 0.01)
    x, y = torch.tensor(inputs[:120], dtype=torch.float32), torch.tensor(labels[:120])
    for _ in range(150):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
    candidates = Candidates.of((inputs[:120], labels[:120]), (inputs[120:], labels[120:]))
    target = Target.of_module(net)
    reports = {kind: threshold_attack(target, candidates, kind) for kind in Statistic}
    assert reports[Statistic.LOSS].auc > 0.85
    assert reports[Statistic.MODIFIED_ENTROPY].auc > 0.85
    assert reports[Statistic.TOP_PROBABILITY].auc < reports[Statistic.LOSS].auc
    assert reports[Statistic.LOSS].exceeds(0.5)
    yeom = loss_attack(target, candidates, training_loss=float(loss.detach()))
    assert yeom.calls[0].recall > 0.5
    assert yeom.calls[0].precision > 0.7


@pytest.mark.parametrize(
    ("probabilities", "labels", "message"),
    [
        ([0.5, 0.5], [0], "probabilities must be one row an example"),
        ([[0.5, 0.5]], [2], "labels must be one of 2 classes"),
        ([[0.5, 0.5]], [-1], "labels must be one of 2 classes"),
        ([[0.5, 0.5]], [0, 1], "labels must be one of 2 classes"),
    ],
)
def test_bad_arrays_are_refused(probabilities, labels, message):
    with pytest.raises(ValueError, match=message):
        loss_scores(probabilities, labels)
    with pytest.raises(ValueError, match=message):
        modified_entropy_scores(probabilities, labels)


def test_bad_parameters_are_refused():
    candidates = numbered([0, 0], [1, 0])
    target = as_target(np.full((2, 2), 0.5))
    with pytest.raises(ValueError, match="statistic must be 'loss'"):
        threshold_attack(target, candidates, "guess")
    with pytest.raises(ValueError, match="training_loss must be"):
        loss_attack(target, candidates, training_loss=-1.0)
