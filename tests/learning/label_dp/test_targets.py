"""Targets made of reports: unbiased ones, and posteriors."""

import math

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from sfumato.learning.label_dp.targets import (
    best_sharpness,
    cross_entropy,
    debiased_loss,
    debiased_targets,
    soft_targets,
)
from sfumato.mechanisms.randomized_response import RandomizedResponse


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 4.0])
@pytest.mark.parametrize("classes", [2, 10])
def test_debiased_targets_are_unbiased(epsilon, classes) -> None:
    """Their mean over the reports of each label is the label's one-hot vector, exactly."""
    survey = RandomizedResponse(epsilon, classes)
    chances = np.full((classes, classes), survey.switch)
    np.fill_diagonal(chances, survey.keep)
    means = chances @ debiased_targets(np.arange(classes), epsilon, classes)
    assert means == pytest.approx(np.eye(classes), abs=1e-9)


def test_the_loss_is_the_formula() -> None:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(7, 5, generator=generator)
    reports, e = torch.tensor([0, 4, 2, 2, 1, 3, 0]), math.exp(1.3)
    each = -F.log_softmax(logits, dim=1)
    own = each.gather(1, reports[:, None])[:, 0]
    formula = ((e + 4) * own - each.sum(dim=1)) / (e - 1)
    assert debiased_loss(logits, reports, 1.3) == pytest.approx(float(formula.mean()), rel=1e-5)


def test_much_privacy_lost_is_plain_cross_entropy() -> None:
    logits, labels = torch.randn(6, 3), torch.tensor([0, 1, 2, 0, 1, 2])
    plain = F.cross_entropy(logits, labels)
    assert debiased_loss(logits, labels, 40.0) == pytest.approx(float(plain), rel=1e-5)
    targets = F.one_hot(labels).float()
    assert cross_entropy(logits, targets) == pytest.approx(float(plain), rel=1e-6)


def test_soft_targets_are_posteriors() -> None:
    prior = np.array([[0.7, 0.2, 0.1], [0.1, 0.1, 0.8]])
    likelihood = np.array([[0.1, 0.8, 0.1], [0.3, 0.3, 0.4]])
    joint = prior * likelihood
    expected = joint / joint.sum(axis=1, keepdims=True)
    assert soft_targets(prior, likelihood) == pytest.approx(expected, abs=1e-5)


def test_a_prior_that_is_too_sure_is_no_end() -> None:
    found = soft_targets([[1.0, 0.0]], [[0.0, 1.0]])
    assert np.isfinite(found).all()
    assert found.argmax() == 1


def test_sharpness_is_found_by_reports() -> None:
    """Logits made 4 times too large are softened to about a quarter, by reports alone."""
    generator = np.random.default_rng(0)
    true = torch.from_numpy(generator.normal(size=(20_000, 4)) * 2)
    chances = F.softmax(true, dim=1).numpy()
    labels = (generator.random(len(true))[:, None] > chances.cumsum(axis=1)).sum(axis=1).clip(0, 3)
    survey = RandomizedResponse(2.0, 4)
    lies = generator.random(len(labels)) > survey.keep
    reports = np.where(lies, (labels + generator.integers(1, 4, len(labels))) % 4, labels)
    likelihood = np.full((len(labels), 4), survey.switch)
    likelihood[np.arange(len(labels)), reports] = survey.keep
    found = best_sharpness(4 * true, torch.from_numpy(likelihood))
    assert 0.2 <= found <= 0.3
