"""The naive ways, attacked: trained weights show what was claimed of them and no more.

Laplace SGD: models in which every canary has weights of its own, and the gradient of its row is
about these alone. One run plays as many games as there are canaries, since noise and sampling are
independent from one to the other. Noisy weights: two tables whose one row pulls the weights to
opposite ends of the ball.
"""

from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from sfumato.audit.mechanism import audit_mechanism
from sfumato.core.randomness import SeededCoins
from sfumato.learning.dp_sgd.lots import PoissonLots
from sfumato.learning.naive import LaplaceSGD, NoisyWeights, gradients, noisy_weights
from sfumato.learning.naive.examples import vector_of
from sfumato.mechanisms import gaussian, laplace

# --- Laplace SGD ----------------------------------------------------------------------------------


class OneEach(nn.Module):
    """Two scores for a canary, which differ by 2000 times its own weight."""

    def __init__(self, count):
        super().__init__()
        self.weights = nn.Parameter(torch.zeros(count, 1))

    def forward(self, rows):
        own = 1000 * F.embedding(rows[:, 0].long(), self.weights)
        return torch.cat([-own, own], 1)


def one_each(count):
    """A number for each canary: gradients are written out, one example at a time."""
    return OneEach(count), torch.arange(count, dtype=torch.float32)[:, None]


def dense(count):
    """Two weights of a dense layer for each: gradients stay factored."""
    model = nn.Sequential(nn.Linear(count, 2, bias=False))
    nn.init.zeros_(model[0].weight)
    return model, 1000 * torch.eye(count)


def audit_laplace(way, made=one_each, samples=6000, seed=1):
    """Everybody's canary in, or nobody's: a run each."""
    coins = SeededCoins(seed)

    def draw(present, count):
        model, rows = made(count)
        labels = torch.ones(count, dtype=torch.long)
        if not present:
            rows, labels = rows[:0], labels[:0]
        trained, _ = way.run(model, rows, labels, coins=coins)
        return vector_of(trained).view(-1, count).T.numpy()

    return audit_mechanism(draw, [(True, False)], claim=way.guarantee, samples=samples)


def steps(multiplier=0.5, rate=1.0, number=1, **more):
    return LaplaceSGD(1000 * rate, 1000, number, multiplier, batch_size=256, **more)


WAYS = {
    "one step": (steps(), 0.85),
    "another clip norm": (steps(clip=3.0), 0.85),
    "a sampled step": (steps(rate=0.3), 0.77),
    "three steps": (steps(1.5, number=3), 0.4),
    "momentum": (steps(1.5, number=3, momentum=0.9), 0.35),
    "sampled steps at a delta": (steps(rate=0.3, number=5, delta=1e-5), 0.2),
}


@pytest.mark.parametrize("name", WAYS)
def test_laplace_sgd_shows_no_more_than_it_claims(name):
    way, share = WAYS[name]
    found = audit_laplace(way)
    assert not found.refuted
    assert found.epsilon >= share * found.claim.epsilon


@pytest.mark.parametrize("clip", [1.0, 3.0])
def test_dense_layers_show_no_more_than_they_claim(clip):
    found = audit_laplace(steps(clip=clip), dense)
    assert not found.refuted
    assert found.epsilon >= 0.7 * found.claim.epsilon


def weak_noise(patch, factor=0.8):
    """A fifth too little."""
    for module, name in ((laplace, "add_laplace"), (gaussian, "add_gaussian")):
        usual = getattr(module, name)

        def weaker(values, scale, *rest, usual=usual):
            return usual(values, factor * scale, *rest)

        patch.setattr(module, name, weaker)


def weaker_noise(patch):
    """A third too little."""
    weak_noise(patch, 0.67)


def long_gradients(patch):
    """To 1.5 clip norms."""
    usual = gradients._factors
    patch.setattr(gradients, "_factors", lambda norms, clip: usual(norms, 1.5 * clip))


def clipped_in_l2(patch):
    """As DP-SGD does, for noise that is Gaussian."""

    def norms(self, error):
        return error.norm(dim=1) * self.seen.norm(dim=1)

    patch.setattr(gradients._Dense, "norms", norms)


def everybody(patch):
    """Sampling claimed, and none done."""

    def draw(self, available, coins):
        while True:
            yield torch.arange(available).numpy()

    patch.setattr(PoissonLots, "_draw", draw)


@pytest.mark.parametrize(
    ("wrong", "way", "made"),
    [
        (weak_noise, steps(), one_each),
        (weaker_noise, steps(), dense),
        (long_gradients, steps(), one_each),
        (long_gradients, steps(), dense),
        (clipped_in_l2, steps(), dense),
        (everybody, steps(rate=0.3), one_each),
        (everybody, steps(rate=0.1, number=3), one_each),
    ],
)
def test_wrong_laplace_sgd_is_refuted(monkeypatch, wrong, way, made):
    wrong(monkeypatch)
    assert audit_laplace(way, made).refuted


# --- noisy weights --------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def quick_records(monkeypatch):
    """A record's list of versions takes longer to read than a release takes."""
    monkeypatch.setattr(noisy_weights, "versions", lambda *_: {})


FIELDS = {"radius": 2.0, "epsilon": 15.0, "delta": 1e-5, "steps": 3, "learning_rate": 100.0}


def pulled(label):
    """A table of one row."""
    return torch.ones(1, 1), torch.tensor([label])


def audit_weights(way, samples=1200, whole=False):
    """A row of the one class in, or of the other; trained once, or for every release."""
    model, coins = nn.Linear(1, 2, bias=False), SeededCoins(1)
    nn.init.constant_(model.weight, 0.1)

    def draw(label, count):
        if whole:
            found = [way.run(model, *pulled(label), coins=coins)[0] for _ in range(count)]
        else:
            trained = way.train(model, *pulled(label), coins=coins)
            found = [way.release(model, trained, coins=coins)[0] for _ in range(count)]
        return torch.stack([vector_of(out) for out in found]).numpy()

    return audit_mechanism(draw, [(0, 1)], claim=way.guarantee, samples=samples, gaussian=True)


@pytest.mark.parametrize("centre", ["initial", "origin"])
def test_noisy_weights_show_their_claim_and_no_more(centre):
    found = audit_weights(NoisyWeights(**FIELDS, centre=centre, neighbours="replace-one"))
    assert not found.refuted
    assert found.epsilon >= 0.7 * found.claim.epsilon


def test_the_whole_way_to_noisy_weights():
    found = audit_weights(NoisyWeights(**FIELDS), samples=200, whole=True)
    assert not found.refuted
    assert found.epsilon >= 0.3 * found.claim.epsilon


def far(patch):
    """Weights on a ball a quarter larger than was promised."""
    usual = noisy_weights.projected
    patch.setattr(noisy_weights, "projected", lambda v, radius: usual(v, 1.25 * radius))


@pytest.mark.parametrize("wrong", [weak_noise, far])
def test_wrong_noisy_weights_are_refuted(monkeypatch, wrong):
    wrong(monkeypatch)
    assert audit_weights(NoisyWeights(**FIELDS)).refuted


@pytest.mark.slow
def test_claims_of_a_tenth_more_noise_are_refuted_at_length():
    found = audit_laplace(steps(), samples=60_000)
    assert not found.refuted
    assert found.epsilon > steps(0.5 / 0.9).guarantee.epsilon
    weights = audit_weights(NoisyWeights(**FIELDS), samples=20_000)
    assert not weights.refuted
    more = replace(NoisyWeights(**FIELDS)._mechanism, sigma=NoisyWeights(**FIELDS).sigma / 0.9)
    assert weights.epsilon > more.guarantee(1e-5).epsilon
