"""Features of gradients: their parts add up, and a learned attack reads them."""

import itertools
import json

import numpy as np
import pytest
import torch

from sfumato.attacks.membership.gradient_features import (
    GradientFeatures,
    gradient_batches,
    gradient_features,
    learned_scores,
)
from sfumato.attacks.targets import Target
from sfumato.attacks.tracing import Roc


@pytest.fixture(scope="module")
def network():
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.ReLU(), torch.nn.Linear(5, 3))


def test_parts_are_those_of_the_weights_and_add_up(network):
    random = np.random.default_rng(1)
    x, y = random.normal(size=(20, 6)), random.integers(0, 3, 20)
    target = Target.of_module(network)
    found = gradient_features(target, x, y, numbers=200)
    gradients = target.gradients(x, y)
    assert found.norms == pytest.approx(np.linalg.norm(gradients, axis=1), rel=1e-4)
    starts = [0, 30, 35, 50, 53]
    for place, (first, last) in enumerate(itertools.pairwise(starts)):
        part = np.linalg.norm(gradients[:, first:last], axis=1)
        assert found.part_norms[:, place] == pytest.approx(part, rel=1e-4)
    assert (found.part_norms**2).sum(axis=1) == pytest.approx(found.norms**2)
    assert found.losses == pytest.approx(target.losses(x, y))


def test_without_the_weights_there_is_one_part(network):
    x, y = np.ones((3, 6)), [0, 1, 2]
    found = gradient_features(Target.of_module(network, view="gradients"), x, y)
    assert found.parts == ("all",)
    assert found.part_norms[:, 0] == pytest.approx(found.norms)


def test_batches_cover_every_row_once(network):
    x, y = np.random.default_rng(2).normal(size=(23, 6)), np.arange(23) % 3
    target = Target.of_module(network)
    places, parts = zip(*gradient_batches(target, x, y, 53 * 4), strict=True)
    assert [len(part) for part in parts] == [1, 4, 4, 4, 4, 4, 2]
    assert list(places) == [0, 1, 5, 9, 13, 17, 21]
    assert np.concatenate(parts) == pytest.approx(target.gradients(x, y), abs=1e-6)


def features(random, inside):
    """Only the second part's norms differ, by a factor, where ``inside``."""
    rows = len(inside)
    parts = np.exp(random.normal(0, 1, (rows, 2)))
    parts[inside, 1] *= np.exp(-2.0)
    return GradientFeatures(np.ones(rows), np.full(rows, 9.0), parts, ("one", "two"))


def test_a_learned_attack_finds_the_part_that_tells():
    """Log norms are N(0, 1) and N(-2, 1): the best AUC is Phi(sqrt(2)) = 0.9214."""
    random = np.random.default_rng(3)
    known, asked = (random.random(3000) < share for share in (0.2, 0.5))
    scores = learned_scores(features(random, known), known, features(random, asked))
    assert Roc.from_scores(scores[asked], scores[~asked]).auc == pytest.approx(0.9214, abs=0.02)
    assert ((scores > 0) == asked).mean() == pytest.approx(0.8413, abs=0.03)  # Phi(1)


def test_the_result_is_for_the_curator(network):
    found = gradient_features(Target.of_module(network), np.ones((2, 6)), [0, 1])
    data = json.loads(json.dumps(found.to_dict()))
    assert data["channel"] == "curator"
    assert set(data["parts"]) == {"0.weight", "0.bias", "2.weight", "2.bias"}
    assert str(found).startswith("gradients of 2 examples in 4 parts")


def test_bad_parameters_are_refused(network):
    random = np.random.default_rng(4)
    inside = random.random(10) < 0.5
    one, other = features(random, inside), features(random, inside)
    with pytest.raises(ValueError, match="inside must be marks of either kind"):
        learned_scores(one, np.ones(10), other)
    smaller = gradient_features(Target.of_module(network), np.ones((2, 6)), [0, 1])
    with pytest.raises(ValueError, match="features of the same model"):
        learned_scores(one, inside, smaller)
