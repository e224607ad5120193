"""Scores alone and a prior: recognisable digits, and every query counted."""

import numpy as np
import pytest
from torch import nn

from sfumato.attacks.inversion.priors import LearnedPrior
from sfumato.attacks.inversion.score_prior import coded_target, invert_by_scores
from sfumato.attacks.inversion.scoring import recognition
from sfumato.attacks.targets import BudgetSpent, NotSeen, Target


def test_others_recognise_what_comes_out(digits, mlp, judge, prior):
    target = Target.of_module(mlp, "digits", view="scores")
    found = invert_by_scores(
        target, digits.classes, prior, generator=np.random.default_rng(3), iterations=100
    )
    assert recognition(found.images, found.labels, judge).accuracy >= 0.9
    assert found.probability.mean() > 0.95
    assert found.probability == pytest.approx(
        target.probabilities(found.images)[digits.classes, digits.classes], abs=1e-6
    )
    assert found.queries == 200 + 10 + found.iterations.sum() * (1 + 2 * 16)
    assert str(found).startswith("MI-Face on codes on digits: 10 images")


def test_each_image_begins_at_the_surest_code_that_is_left(digits, mlp, prior):
    target = Target.of_module(mlp, view="scores")
    options = {"tries": 30, "rate": 1e-9, "iterations": 1, "probability": 1 - 1e-12}
    found = invert_by_scores(
        target, [4, 7, 4], prior, generator=np.random.default_rng(3), **options
    )
    drawn = prior.decoded(np.random.default_rng(3).standard_normal((30, 12)).clip(-3, 3))
    order = np.argsort(-target.probabilities(drawn), axis=0)
    expected = drawn[[order[0, 4], order[0, 7], order[1, 4]]]
    assert found.images == pytest.approx(expected, abs=1e-5)


def test_images_and_queries_stay_within_the_bounds():
    seen = []

    def answer(x):
        seen.append((x.min(), x.max()))
        p = 1 / (1 + np.exp(-x.sum(axis=1)))
        return np.stack([p, 1 - p], axis=1)

    prior = LearnedPrior(nn.Linear(2, 4), (2,))
    found = invert_by_scores(
        Target.of_scores(answer), [0, 1], prior, generator=np.random.default_rng(1),
        bounds=(-0.1, 0.2), iterations=20,
    )  # fmt: skip
    assert min(low for low, _ in seen) >= np.float32(-0.1)
    assert max(high for _, high in seen) <= np.float32(0.2)
    assert found.images.shape == (2, 4)
    assert found.bounds == (-0.1, 0.2)


def test_a_target_of_codes_counts_for_the_target_behind_it(mlp, prior):
    target = Target.of_module(mlp, view="scores")
    coded = coded_target(target, prior)
    codes = np.zeros((3, 12))
    assert np.array_equal(coded.probabilities(codes), target.probabilities(prior.decoded(codes)))
    assert (coded.queries, target.queries) == (3, 6)


def test_a_budget_ends_the_attack_with_what_there_is(digits, mlp, prior):
    target = Target.of_module(mlp, view="scores").limited(200 + 10 + 3 * 330 + 5)
    found = invert_by_scores(
        target, digits.classes, prior, generator=np.random.default_rng(3), probability=1 - 1e-12
    )
    assert found.iterations.tolist() == [3] * 10
    with pytest.raises(BudgetSpent):
        invert_by_scores(target.limited(100), [0], prior, generator=np.random.default_rng(3))


def test_labels_are_too_little_and_bad_parameters_are_refused(mlp, prior):
    target = Target.of_module(mlp)
    with pytest.raises(NotSeen):
        invert_by_scores(target.showing("labels"), [0], prior, generator=np.random.default_rng(1))
    assert target.queries == 0
    for wrong, message in [
        ({"tries": 0}, "tries must be"),
        ({"labels": [10]}, "below the target"),
    ]:
        good = {"labels": [0], "generator": np.random.default_rng(1)}
        with pytest.raises(ValueError, match=message):
            invert_by_scores(target, prior=prior, **(good | wrong))
