"""The published version: what it promises in truth, and how each fault is caught."""

import numpy as np
import pytest
import torch
from torch import nn

from sfumato.audit.mechanism import audit_mechanism
from sfumato.core.guarantee import Guarantee
from sfumato.core.randomness import SeededCoins
from sfumato.learning.adaptive_laplace import printed
from sfumato.learning.adaptive_laplace.inputs import NoisyInputs
from sfumato.learning.relevance import KnownModel, PrivateRelevance, feature_shares
from sfumato.learning.relevance.private import relevance_sum

CLAIM = Guarantee(1.0, 0.0, "replace-one")


def test_published_figures():
    assert printed.printed_relevance_scale(784, 60_000, 0.075) == pytest.approx(0.3484, abs=5e-5)
    assert printed.corrected_relevance_scale(60_000, 0.075) == pytest.approx(4.44e-4, abs=5e-7)
    way = PrivateRelevance(0.075)
    assert way.scale / 60_000 == pytest.approx(printed.corrected_relevance_scale(60_000, 0.075))
    released = {"lot": 1800, "sensitivity": 9800.0}
    assert printed.inputs_epsilon(0.075, shares=784, **released) == pytest.approx(10.8)
    assert printed.inputs_epsilon(0.075, shares=847, **released) == pytest.approx(11.67, abs=0.01)
    labels = printed.labels_epsilon(0.15, lot=1800, hidden=25, outputs=10)
    assert labels == pytest.approx(7.448, abs=5e-4)
    assert printed.relevance_epsilon_of_part(0.075, 2000, 60_000)[1] == pytest.approx(
        0.249, abs=5e-4
    )


def test_the_formula_for_inputs_is_that_of_the_noise():
    """Equal shares, D = 2 d |h_0|: the noise that is printed, as the corrected mechanism has it."""
    d, lot, first_layer, epsilon = 20, 30, 6, 0.2
    sensitivity = 2 * d * first_layer
    true = printed.inputs_epsilon(epsilon, lot=lot, sensitivity=sensitivity, shares=d)
    assert true == pytest.approx(lot * epsilon / (2 * first_layer))
    scale = sensitivity / epsilon / lot
    assert NoisyInputs(true, np.ones(d)).scales[0] == pytest.approx(scale)


def rows(count=40):
    generator = torch.Generator().manual_seed(1)
    x = 0.05 * torch.rand(count, 4, generator=generator)
    x[: count // 2, 0] += 0.1
    return x, (torch.arange(count) >= count // 2).long()


def test_relevance_by_a_network_of_the_same_records_moves_beyond_its_sensitivity():
    x, y = rows()
    other = x.clone()
    other[0] = torch.tensor([-60.0, 60.0, 60.0, 0.0])  # one record, which turns the whole network
    before, after = (printed.relevance_by_own_network(part, y, 2) for part in (x, other))
    moved = np.abs(before - after).sum()
    bound = PrivateRelevance(1.0).sensitivity.bound
    assert moved > 1.5 * bound

    torch.manual_seed(0)
    known = KnownModel.public(nn.Sequential(nn.Linear(4, 2)), "drawn at random")
    sums = [relevance_sum(known, part) for part in (x, other)]
    assert np.abs(sums[0] - sums[1]).sum() <= bound


def test_noise_divided_by_the_batch_is_caught():
    coins, specimen = SeededCoins(1), printed.DividedNoise(1.0, lot=5)

    def draw(record, count):
        return specimen.perturb(np.tile(record, (count, 1)), coins=coins)

    pair = (np.zeros(2), np.ones(2))
    shown = audit_mechanism(draw, [pair], claim=CLAIM, samples=4000, confidence=0.999)
    assert shown.refuted
    assert shown.epsilon > 2  # of 5


def test_noise_shared_by_a_batch_cancels_and_is_caught():
    coins, specimen = SeededCoins(1), printed.SharedNoise(1.0)
    batch = np.array([[0.2, 0.9], [0.7, 0.1], [0.3, 0.3]])
    told = specimen.perturb(batch, coins=coins)
    assert told - told[2] + batch[2] == pytest.approx(batch)  # who knows one row knows all

    def draw(record, count):
        others = [specimen.perturb([record, [0, 0]], coins=coins) for _ in range(count)]
        return np.array([pair[0] - pair[1] for pair in others])

    pair = (np.zeros(2), np.ones(2))
    shown = audit_mechanism(draw, [pair], claim=CLAIM, samples=2000, confidence=0.999)
    assert shown.refuted
    assert shown.epsilon > 4


def test_the_corrected_mechanism_passes_the_same_audits():
    coins, way = SeededCoins(1), NoisyInputs(1.0, (1.0, 1.0))

    def draw(record, count):
        return way.perturb(np.tile(record, (count, 1)), coins=coins).astype(float)

    def differences(record, count):
        return draw(record, count) - draw(np.zeros(2), count)

    pair = (np.zeros(2), np.ones(2))
    for drawn in (draw, differences):
        shown = audit_mechanism(drawn, [pair], claim=CLAIM, samples=4000, confidence=0.999)
        assert not shown.refuted


def test_a_floor_after_scaling_would_cost_more_and_is_refused():
    relevance = np.concatenate([np.full(10, 50.0), np.ones(90)])
    late = np.maximum(feature_shares(relevance, floor=0.0), 0.5)
    assert late.sum() > 100 * 1.2
    with pytest.raises(ValueError, match="add up to 100"):
        NoisyInputs(1.0, late)
    NoisyInputs(1.0, feature_shares(relevance, floor=0.5))
