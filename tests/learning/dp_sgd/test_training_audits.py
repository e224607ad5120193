"""The engine end to end, attacked: whole runs show no more than their plan claims, and nearly it.

A model that is one weight for each canary; a canary that is in pushes its own with the whole clip
norm, through sampling, clipping, noise and optimizer. What the engine released after every step is
scored by the likelihood ratio of its law with and without the canary, which no attacker betters.
Two audits read the scores:

- of one run, every canary in by the toss of a coin (``audit_training``), at the plan's delta. It
  assumes nothing, and sees gross faults;
- of runs with all canaries and runs with none (``audit_mechanism``), each canary a game of its own,
  at a delta at which thousands of games see a fifth too little noise.
"""

import itertools
import math
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from sfumato.accounting import account
from sfumato.audit import audit_training
from sfumato.audit.mechanism import audit_mechanism
from sfumato.core.randomness import SeededCoins
from sfumato.learning.dp_sgd import (
    DPSGD,
    Adaptive,
    Automatic,
    CoinNoise,
    FixedSizeLots,
    Flat,
    NoiseSchedule,
    PoissonLots,
    ShuffledLots,
    TrainingPlan,
    clipping,
    trainer,
)
from sfumato.learning.dp_sgd.owners import RowsAreUnits
from sfumato.learning.recipes.canaries import Canaries, Planted, WithCanaries, canary_losses

pytestmark = pytest.mark.usefixtures("singles", "short_rehearsals")

PUSH = 1000.0
CANARIES, GAMES = 1000, 8000  # of a run in which half are in; of one in which all or none are
SIGHT = 0.05  # the delta at which games are counted


# --- runs of canaries -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Way:
    """How to train; ``share`` of the claim at ``SIGHT`` is what games must show."""

    share: float
    kind: Any = PoissonLots
    rate: float = 0.3
    noise_multiplier: float = 1.0
    steps: int = 10
    clip: Any = field(default_factory=Flat)
    neighbours: str = "add-remove"
    rows: int = 1
    plan: dict = field(default_factory=dict)
    options: dict = field(default_factory=dict)
    games: int = GAMES

    def plan_for(self, canaries):
        size = self.rate * canaries if self.kind is PoissonLots else round(self.rate * canaries)
        return TrainingPlan(
            self.kind(size, canaries), self.clip, self.noise_multiplier, self.steps, 1e-5,
            neighbours=self.neighbours, **self.plan,
        )  # fmt: skip


class OneEach(nn.Module):
    """A weight for each canary."""

    def __init__(self, count):
        super().__init__()
        self.weights = nn.Parameter(torch.zeros(count, 1))

    def forward(self, ids):
        return F.embedding(ids, self.weights).squeeze(1)


def table(way, included):
    """Canaries that are out are not there, push nothing, or push the other way."""
    bits = torch.as_tensor(included)
    ids = torch.arange(len(bits))
    if way.neighbours == "add-remove":
        ids, pushes = ids[bits], torch.full((int(bits.sum()),), PUSH)
    else:
        pushes = torch.where(bits, PUSH, -PUSH if way.neighbours == "replace-one" else 0.0)
    return ids.repeat(way.rows), pushes.repeat(way.rows)


def run(way, included, seed):
    """Trains; what each step did to each canary's weight, in clip norms, and the engine."""
    model = OneEach(len(included))
    data, plan = table(way, included), way.plan_for(len(included))
    owners = {"owners": data[0].numpy(), "rows_per_owner": 2} if way.rows > 1 else {}
    engine = DPSGD(
        model, torch.optim.SGD(model.parameters(), lr=1.0), data, plan=plan,
        coins=SeededCoins(seed), progress=False, **owners, **way.options,
    )  # fmt: skip
    seen, clips = [torch.zeros(len(included), dtype=torch.float64)], []

    def after(step):
        seen.append(model.weights.detach().double().squeeze(1))
        clips.append(engine._step.sum.clipping.clip)

    first = engine._step.sum.clipping.clip
    engine.fit(lambda model, ids, pushes: pushes * model(ids), after=after)
    moved = -torch.stack(seen).diff(dim=0) * plan.lots.expected_size
    return (moved.T / torch.tensor([first, *clips[:-1]])).numpy(), engine


def log_ratio(plan, losses):
    """Of a run with the canary, ``losses`` those of its steps if the canary is in their lot."""
    if plan.lots.whole_epochs:  # in one of each epoch's lots
        epochs = losses.reshape(len(losses), -1, plan.lots.steps_per_epoch)
        return (np.logaddexp.reduce(epochs, axis=2) - math.log(epochs.shape[2])).sum(1)
    rate = plan.lots.sample_rate
    absent = math.log1p(-rate) if rate < 1 else -math.inf
    return np.logaddexp(absent, math.log(rate) + losses).sum(1)


def scores(way, included, seed):
    """Higher where a canary seems to be in."""
    moved, engine = run(way, included, seed)
    if "ema_decay" in way.options:
        with engine.averaged() as model:
            return -model.weights.detach().squeeze(1).double().numpy()
    plan = engine.plan
    variance = np.array([plan.noise_at(step) ** 2 for step in range(plan.steps)])
    there = log_ratio(plan, (moved - 0.5) / variance)
    if way.neighbours == "replace-one":
        return there - log_ratio(plan, (-moved - 0.5) / variance)
    return there


# --- audits ---------------------------------------------------------------------------------------


def audit_run(way, claimed=None, runs=1):
    """One run, half of its canaries in."""
    claim = (claimed or way).plan_for(CANARIES).guarantee
    seeds = itertools.count(100)
    return audit_training(
        lambda included: scores(way, included, next(seeds)), CANARIES, claim=claim, runs=runs,
        coins=SeededCoins(5), neighbours=claim.neighbours,
    )  # fmt: skip


def audit_games(way, claimed=None, delta=SIGHT):
    """Four runs, all canaries in or none: two learn what to look for, two count."""
    plan = (claimed or way).plan_for(way.games)
    claim = account(plan.event, delta, neighbours=plan.neighbours)
    seeds = itertools.count(10)

    def draw(present, count):
        return scores(way, np.full(count, present), next(seeds))

    return audit_mechanism(draw, [(True, False)], claim=claim, samples=2 * way.games)


HALVES = NoiseSchedule.linear(1.5, 0.5, phases=5)
REPLACED, BLANKED = {"neighbours": "replace-one"}, {"neighbours": "zero-out"}
WAYS = {
    "Poisson": Way(0.7),
    "small Poisson lots": Way(0.65, rate=0.1, steps=40),
    "Poisson, blanked": Way(0.65, **BLANKED),
    "Poisson, replaced": Way(0.65, noise_multiplier=2.0, **REPLACED),
    "everybody": Way(0.65, rate=1.0, noise_multiplier=2.0, steps=4),
    "fixed size, blanked": Way(0.05, FixedSizeLots, noise_multiplier=1.5, **BLANKED),
    "fixed size, replaced": Way(0.25, FixedSizeLots, noise_multiplier=1.5, **REPLACED),
    "shuffled, blanked": Way(0.35, ShuffledLots, 0.5, 1.5, 8, **BLANKED),
    "shuffled, replaced": Way(0.3, ShuffledLots, 0.5, 2.0, 4, **REPLACED),
    "one shuffled lot": Way(0.65, ShuffledLots, 1.0, 2.0, 4, **BLANKED),
    "automatic clipping": Way(0.7, clip=Automatic()),
    "adaptive clipping": Way(0.6, clip=Adaptive()),
    "owners": Way(0.5, rows=3, plan={"unit": "owner"}, games=2000),
    "noise that falls": Way(0.65, plan={"schedule": HALVES}),
    "shuffled, noise that falls": Way(
        0.3, ShuffledLots, 0.5, 1.5, 8, plan={"schedule": HALVES}, **BLANKED
    ),
    "averaged weights": Way(0.5, options={"ema_decay": 0.9}),
    "physical batches": Way(0.7, options={"batch_size": 256}),
}


@pytest.mark.parametrize("name", WAYS)
def test_one_run_shows_no_more_than_its_plan_claims(name):
    found = audit_run(WAYS[name])
    assert not found.refuted
    assert found.epsilon > 0.05 * found.claim.epsilon


@pytest.mark.parametrize("name", WAYS)
def test_games_show_no_more_than_the_plan_claims_and_nearly_that(name):
    found = audit_games(WAYS[name])
    assert not found.refuted
    assert found.epsilon >= WAYS[name].share * found.claim.epsilon


# --- wrong engines --------------------------------------------------------------------------------


class Weaker:
    """Noise smaller than asked for."""

    name, private = "weaker", False

    def __init__(self, factor):
        self._inner, self._factor = CoinNoise(SeededCoins(77)), factor

    def normal(self, like, std):
        return self._inner.normal(like, self._factor * std)


def weak(name, factor=0.75):
    return replace(WAYS[name], options={**WAYS[name].options, "noise": Weaker(factor)})


def everyone(patch):
    """Every row in every lot, whatever the rate."""

    def draw(self, available, coins):
        while True:
            yield np.arange(available)

    patch.setattr(PoissonLots, "_draw", draw)


@pytest.mark.parametrize("audit", [audit_run, audit_games])
def test_lots_that_hold_everybody_are_refuted(monkeypatch, audit):
    """Claimed: a tenth."""
    way = Way(0.0, rate=0.1, noise_multiplier=2.0, steps=20)
    assert not audit(way).refuted
    everyone(monkeypatch)
    assert audit(way).refuted


WEAK = ["Poisson", "Poisson, replaced", "everybody", "one shuffled lot", "automatic clipping",
        "adaptive clipping", "noise that falls", "physical batches"]  # fmt: skip


@pytest.mark.parametrize("name", WEAK)
def test_noise_a_quarter_too_small_is_refuted(name):
    assert audit_games(weak(name), WAYS[name]).refuted


def test_noise_two_thirds_too_small_is_refuted_by_one_run():
    assert audit_run(weak("everybody", 1 / 3), WAYS["everybody"]).refuted


@pytest.mark.parametrize("name", ["Poisson", "adaptive clipping", "one shuffled lot"])
def test_clipping_to_a_third_too_much_is_refuted(monkeypatch, name):
    usual = clipping._limit
    monkeypatch.setattr(clipping, "_limit", lambda *arguments: 4 / 3 * usual(*arguments))
    assert audit_games(WAYS[name]).refuted


def test_rows_sampled_and_clipped_one_by_one_are_refuted_for_owners(monkeypatch):
    """An owner of three rows then pushes three times."""
    monkeypatch.setattr(trainer, "units", lambda rows, *_: RowsAreUnits(rows))
    assert audit_games(WAYS["owners"]).refuted


def test_a_schedule_that_is_accounted_and_not_followed_is_refuted(monkeypatch):
    """The least noise at every step."""
    least = 0.6  # the last phase's, on the line from 1.5 to 0.5
    assert HALVES.least == pytest.approx(least)
    monkeypatch.setattr(TrainingPlan, "noise_at", lambda self, _: self.noise_multiplier * least)
    assert audit_games(WAYS["noise that falls"]).refuted


@pytest.mark.parametrize("name", ["Poisson, replaced", "fixed size, replaced"])
def test_a_replaced_canary_shows_more_than_one_that_comes_or_goes(name):
    """Twice as far: accounted as one clip norm it is refuted."""
    added = replace(WAYS[name], kind=PoissonLots, neighbours="add-remove")
    assert audit_games(WAYS[name], added).refuted


def test_shuffled_lots_accounted_as_poisson_ones_are_refuted():
    """With little noise a canary always shows in an epoch; a Poisson lot leaves out a third."""
    shuffled = Way(0.0, ShuffledLots, 0.1, 0.3, 10, **BLANKED)
    assert audit_games(shuffled, replace(shuffled, kind=PoissonLots), delta=0.7).refuted
    assert not audit_games(shuffled, delta=0.7).refuted


# --- beside a model's own rows --------------------------------------------------------------------


def planned(size):
    return TrainingPlan(PoissonLots(0.5 * size, size), Flat(1.0), 3.0, 8, 1e-5)


def scores_beside_a_network(included, factor):
    """Canaries planted among rows of a small network; how far its last weights say they went."""
    generator = torch.Generator().manual_seed(3)
    rows = torch.randn(200, 5, generator=generator), torch.arange(200) % 3
    planted = Planted.draw(Canaries(len(included)), 200, 3, SeededCoins(1), included)
    inner = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 3))
    model = WithCanaries(inner, len(included), 1.0)
    DPSGD(
        model, torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.5), planted.extended(*rows),
        plan=planned(700), noise=Weaker(factor), coins=SeededCoins(4), progress=False,
    ).fit(canary_losses)  # fmt: skip
    return model.scores


@pytest.mark.parametrize(("factor", "refuted"), [(1.0, False), (0.2, True)])
def test_canaries_beside_a_network(factor, refuted):
    found = audit_training(
        lambda included: scores_beside_a_network(included, factor), CANARIES,
        claim=planned(700).guarantee, coins=SeededCoins(5),
    )  # fmt: skip
    assert found.refuted is refuted
    assert found.epsilon > 0.1 * found.claim.epsilon


# --- at length ------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("name", WAYS)
def test_many_games(name):
    games = 10_000 if name == "owners" else 50_000
    found = audit_games(replace(WAYS[name], games=games))
    assert not found.refuted
    assert found.epsilon >= WAYS[name].share * found.claim.epsilon


@pytest.mark.slow
@pytest.mark.parametrize("name", WEAK)
def test_noise_an_eighth_too_small_is_refuted_by_many_games(name):
    assert audit_games(replace(weak(name, 0.875), games=100_000), WAYS[name]).refuted
