"""Answers that can be no probabilities: replaced, counted, told of, and never in silence."""

import math
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from torch import nn

from sfumato.attacks.candidates import Candidates
from sfumato.attacks.membership.thresholds import Statistic, loss_attack, threshold_attack
from sfumato.attacks.target_answers import Tally, Unreadable, read_probabilities
from sfumato.attacks.targets import Target

BAD = [[math.nan, 0.5], [math.inf, 0.0], [0.2, -math.inf], [1.2, -0.2]]


def answering(rows):
    return Target.of_scores(lambda inputs: np.asarray(rows)[inputs[:, 0].astype(int)], "toy")


def places(count):
    return np.arange(float(count))[:, None]


@pytest.mark.parametrize("bad", BAD)
def test_a_bad_answer_counts_as_all_classes_alike(bad):
    target = answering([[0.9, 0.1], bad, [0.3, 0.7]])
    with pytest.warns(Unreadable, match="toy: 1 of 3 answers.* as 1/2 for every class"):
        shown = target.probabilities(places(3))
    assert shown.tolist() == [[0.9, 0.1], [0.5, 0.5], [0.3, 0.7]]
    with pytest.warns(Unreadable):
        assert target.losses(places(3), [0, 0, 1])[1] == pytest.approx(math.log(2))
    with pytest.warns(Unreadable):
        assert target.showing("labels").labels(places(3)).tolist() == [0, 0, 1]
    assert (target.unreadable, target.queries) == (3, 9)


@given(arrays(np.float64, (6, 3), elements=st.floats(allow_nan=True, allow_infinity=True)))
def test_what_is_read_is_always_within_0_and_1(rows):
    """Whatever comes is refused as logits or read as probabilities, good rows as they are."""
    good = np.isfinite(rows).all(axis=1) & (rows >= 0).all(axis=1) & (rows <= 1).all(axis=1)
    tally = Tally()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Unreadable)
        finite = np.isfinite(rows).all(axis=1)
        beyond = finite & ((rows < -1e-3) | (rows > 1.001)).any(axis=1)
        if 2 * beyond.sum() > 6:
            with pytest.raises(ValueError, match="softmax of logits"):
                read_probabilities(rows, tally, "toy")
            return
        found = read_probabilities(rows, tally, "toy")
    assert ((found >= 0) & (found <= 1)).all()
    assert np.array_equal(found[good], rows[good])
    assert tally.unreadable <= (~good).sum()


def test_rounding_in_half_precision_is_no_fault():
    rows = [[1.0005, -0.0005], [0.9995, 0.0005]]
    target = answering(rows)
    assert target.probabilities(places(2)).tolist() == [[1.0, 0.0], rows[1]]
    assert target.unreadable == 0


def test_logits_are_refused_however_many_good_answers_came_before():
    """A few bad answers in between are borne; from more than one half on they are logits."""
    target = answering([[0.5, 0.5]] * 4 + [[3.0, -2.0]] * 6)
    target.probabilities(places(4))
    with pytest.warns(Unreadable):
        target.probabilities(places(8)[4:])  # 4 of 8
    with pytest.raises(ValueError, match=r"softmax of logits\), got \[3.0, -2.0\]"):
        target.probabilities(places(9)[8:])  # 5 of 9


def test_a_model_that_says_nan_alone_is_not_refused_and_tells_nothing():
    target = answering([[math.nan, math.nan]] * 40)
    people = Candidates(places(40), np.zeros(40, int), np.arange(40) < 20)
    for statistic in Statistic:
        with pytest.warns(Unreadable):
            assert threshold_attack(target, people, statistic).auc == 0.5


def test_losses_that_are_no_numbers_count_as_those_of_a_probability_of_0():
    told = np.array([0.5, math.nan, math.inf, -math.inf, -3.0])
    target = Target.of_losses(lambda inputs, labels: told, "toy")
    with pytest.warns(Unreadable, match="3 of 5 answers.* as a loss of 691"):
        found = target.losses(places(5), [0] * 5)
    assert found == pytest.approx([0.5, 690.776, 690.776, 690.776, -3.0], abs=1e-3)
    assert target.unreadable == 3


def test_an_attack_goes_on_past_a_bad_answer_and_is_bent_by_that_one_alone():
    random = np.random.default_rng(1)
    own = np.concatenate([random.uniform(0.6, 1, 200), random.uniform(0.3, 0.9, 200)])
    rows = np.stack([own, 1 - own], axis=1)
    people = Candidates(places(400), np.zeros(400, int), np.arange(400) < 200)
    clean = loss_attack(answering(rows), people).auc
    rows[0] = math.nan
    with pytest.warns(Unreadable):
        found = loss_attack(answering(rows), people)
    assert abs(found.auc - clean) <= 1 / 200
    assert found.scores[0] == pytest.approx(-math.log(2))


def test_a_network_that_overflows_is_read_as_well():
    module = nn.Linear(1, 2)
    with torch.no_grad():
        module.weight.copy_(torch.tensor([[3e38], [-3e38]]))
        module.bias.zero_()
    target = Target.of_module(module)
    with pytest.warns(Unreadable, match="1 of 2 answers"):
        shown = target.probabilities(np.array([[0.0], [10.0]]))
    assert shown.tolist() == [[0.5, 0.5], [0.5, 0.5]]
    assert target.unreadable == 1
