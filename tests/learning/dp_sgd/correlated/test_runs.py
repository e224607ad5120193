"""Whole runs: the noise that a trainer adds, what a killed run leaves, and what is left of it."""

import json

import numpy as np
import pytest
import torch
from safetensors import safe_open
from torch import nn

import sfumato as sf
from sfumato.core.randomness import SeededCoins
from sfumato.learning.dp_sgd import DPSGD, ChaChaNoise, CoinNoise, TrainingPlan

pytestmark = pytest.mark.usefixtures("singles")

SIZE, LOTS = 4, 5
ROWS = SIZE * LOTS
STEPS = 2 * LOTS
WIDE = 20_000  # coordinates: as many draws of the noise
ALL = [sf.BandedNoise(4), sf.BandedNoise(8), sf.BufferedNoise(2), sf.TreeNoise(),
       sf.TreeNoise(restart=LOTS)]  # fmt: skip


class Two(nn.Module):
    """Two parameters, whose gradients are the row's number, in one coordinate alone."""

    def __init__(self, wide=WIDE):
        super().__init__()
        self.one = nn.Parameter(torch.zeros(wide))
        self.two = nn.Parameter(torch.zeros(3))

    def forward(self, x):
        return x * self.one[:1] + 0 * x * self.two[:1]


class Keep(torch.optim.SGD):
    """SGD that keeps the gradients it is handed."""

    def __init__(self, parameters):
        super().__init__(parameters, lr=1.0)
        self.kept = []

    def step(self, closure=None):
        self.kept.append([p.grad.clone() for group in self.param_groups for p in group["params"]])
        return super().step(closure)


def plan_of(correlation, steps=STEPS, z=1.5, lots=None, **more):
    return TrainingPlan(
        lots or sf.StreamedLots(SIZE, ROWS), more.pop("clip", None) or sf.Flat(2.0), z, steps, 1e-5,
        sf.Neighbours.ZERO_OUT, correlation=correlation, **more,
    )  # fmt: skip


def trainer_of(plan, seed=1, rows=None, wide=WIDE, noise=None, **more):
    model, coins = Two(wide), SeededCoins(seed)
    data = torch.zeros(ROWS) if rows is None else rows
    return DPSGD(
        model, Keep(model.parameters()), (data,), plan=plan, coins=coins, progress=False,
        noise=noise or CoinNoise(coins), **more,
    )  # fmt: skip


def run(trainer, until=None):
    for (rows,) in trainer:
        trainer.backward(trainer.model(rows))
        if until == trainer.steps_taken and not trainer.rehearsing:
            break
    return np.array([grads[0].numpy() for grads in trainer.optimizer.kept])


def check_covariance(seen, wanted):
    count = seen.shape[1]
    spread = np.sqrt(np.outer(np.diag(wanted), np.diag(wanted)) + wanted**2) / np.sqrt(count)
    assert (np.abs(np.cov(seen) - wanted) < 5 * spread).all()  # one is 1 % of a variance


@pytest.mark.parametrize("correlation", ALL)
@pytest.mark.parametrize("source", [CoinNoise, ChaChaNoise])  # the second adds and updates at once
def test_covariance_of_what_a_trainer_releases(correlation, source):
    trainer = trainer_of(plan_of(correlation), noise=source(SeededCoins(3)))
    seen = run(trainer)
    inverse = np.linalg.inv(correlation.matrix(STEPS))
    check_covariance(seen, (1.5 * 2.0 / SIZE) ** 2 * inverse @ inverse.T)


def test_one_band_is_dp_sgd_to_the_bit():
    one, plain = (run(trainer_of(plan_of(c))) for c in (sf.BandedNoise(1), sf.IndependentNoise()))
    assert (one == plain).all()


def test_layers_have_noise_of_their_own_size():
    clip = sf.PerLayer({"one": 1.0, "two": 3.0})
    trainer = trainer_of(plan_of(sf.BandedNoise(3), clip=clip))
    seen = run(trainer)
    inverse = np.linalg.inv(sf.BandedNoise(3).matrix(STEPS))
    check_covariance(seen, 2 * (1.5 * 1.0 / SIZE) ** 2 * inverse @ inverse.T)


def test_without_noise_a_stream_is_mini_batches_in_order():
    class Silent:
        name, private = "none", False

        def normal(self, like, std):
            return torch.zeros_like(like)

    rows = torch.arange(ROWS) / ROWS  # below the clip norm
    seen = run(trainer_of(plan_of(sf.TreeNoise()), rows=rows, wide=2, noise=Silent()))
    wanted = rows.reshape(LOTS, SIZE).mean(1).repeat(2)
    assert seen[:, 0] == pytest.approx(wanted.numpy(), abs=1e-5)


# --- cut off, and gone on with --------------------------------------------------------------------


@pytest.mark.parametrize("correlation", ALL)
def test_a_resumed_run_begins_a_new_block_at_the_next_lot(tmp_path, correlation):
    plan, rows = plan_of(correlation), torch.zeros(ROWS)
    first = trainer_of(plan, seed=1, rows=rows, checkpoints=tmp_path, checkpoint_every=1)
    before = run(first, until=7)
    again = trainer_of(plan, seed=2, rows=rows, checkpoints=tmp_path, checkpoint_every=1).resume()
    assert again.steps_taken == 7  # in the middle of the second epoch
    seen = np.concatenate([before, run(again)])
    assert len(seen) == STEPS
    whole = correlation.matrix(STEPS)
    blocks = np.zeros_like(whole)
    blocks[:7, :7], blocks[7:, 7:] = whole[:7, :7], whole[: STEPS - 7, : STEPS - 7]
    inverse = np.linalg.inv(blocks)
    check_covariance(seen, (1.5 * 2.0 / SIZE) ** 2 * inverse @ inverse.T)


def test_a_resumed_stream_shows_every_unit_once_an_epoch(tmp_path):
    shown = []

    def follow(trainer, until=None):
        for (rows,) in trainer:
            if not trainer.rehearsing:
                shown.append((trainer.steps_taken - 1, rows.tolist()))
            trainer.backward(trainer.model(rows))
            if until == trainer.steps_taken and not trainer.rehearsing:
                break

    rows = torch.arange(1.0, ROWS + 1)
    options = {"rows": rows, "wide": 2, "checkpoints": tmp_path, "checkpoint_every": 1}
    plan = plan_of(sf.BandedNoise(4))
    follow(trainer_of(plan, **options), until=3)
    follow(trainer_of(plan, **options).resume(), until=8)
    follow(trainer_of(plan, **options).resume())
    assert [step for step, _ in shown] == list(range(STEPS))
    for step, seen in shown:
        start = step % LOTS * SIZE
        assert seen == rows[start : start + SIZE].tolist()


def test_cyclic_lots_go_on_with_the_next_turn(tmp_path):
    lots = sf.CyclicPoissonLots(2, ROWS, groups=4)
    plan = plan_of(sf.BandedNoise(4), lots=lots)
    options = {"wide": 2, "checkpoints": tmp_path, "checkpoint_every": 1}
    run(trainer_of(plan, **options), until=5)
    again = trainer_of(plan, **options).resume()
    assert again.steps_taken == 8
    run(again)
    assert again.steps_taken == STEPS
    assert again.record.facts["steps_lost"] == 3


def test_a_loop_that_was_left_begins_a_new_block_too():
    trainer = trainer_of(plan_of(sf.BandedNoise(8)), wide=WIDE)
    run(trainer, until=4)
    seen = run(trainer)
    whole = sf.BandedNoise(8).matrix(STEPS)
    blocks = np.zeros_like(whole)
    blocks[:4, :4], blocks[4:, 4:] = whole[:4, :4], whole[:6, :6]
    inverse = np.linalg.inv(blocks)
    check_covariance(seen, (1.5 * 2.0 / SIZE) ** 2 * inverse @ inverse.T)


@pytest.mark.parametrize("correlation", ALL)
def test_a_checkpoint_holds_no_noise(tmp_path, correlation):
    """Nothing beyond weights and the like: no vector that noise could be taken off with."""
    names = {}
    for kind, chosen in (("correlated", correlation), ("plain", sf.IndependentNoise())):
        folder = tmp_path / kind
        trainer = trainer_of(plan_of(chosen), wide=50, checkpoints=folder, checkpoint_every=1)
        run(trainer, until=6)
        states = trainer._step.correlated._states if trainer._step.correlated else {}
        kept = []
        for state, _ in states.values():
            for value in vars(state).values():
                kept += list(value) if isinstance(value, (list, torch.Tensor)) else []
        kept = [vector for vector in kept if isinstance(vector, torch.Tensor) and vector.any()]
        assert len(kept) > 1 or chosen == sf.IndependentNoise()
        names[kind] = set()
        for path in folder.rglob("*.safetensors"):
            with safe_open(path, "pt") as held:
                for name in held.keys():  # noqa: SIM118
                    names[kind].add(name)
                    stored = held.get_tensor(name).flatten().double()
                    for vector in kept:
                        short = stored.shape == vector.shape and torch.allclose(
                            stored, vector.double()
                        )
                        assert not short, name
    assert names["correlated"] == names["plain"]


def test_the_record_says_how(tmp_path):
    trainer = trainer_of(plan_of(sf.BandedNoise(4)), wide=2)
    run(trainer)
    record = json.loads(json.dumps(trainer.record.to_dict()))
    assert record["parameters"]["plan"]["correlation"]["kind"] == "banded"
    assert record["parameters"]["plan"]["lots"]["kind"] == "streamed"


# --- what is refused before anything is spent -----------------------------------------------------


def test_owners_in_order_cannot_be_replaced(ledger):
    options = {"lots": sf.StreamedLots(2, 6), "steps": 3, "noise_multiplier": 1.0, "delta": 1e-4}
    model = Two(2)
    more = {"owners": list("aabbccddeeff"), "unit": "person", "correlation": sf.BandedNoise(2)}
    data = (torch.zeros(12),)
    with pytest.raises(ValueError, match="neighbours must be 'zero-out' for owners in streamed"):
        DPSGD(
            model, Keep(model.parameters()), data, neighbours="replace-one", **options, **more
        )  # fmt: skip
    trainer = DPSGD(
        model, Keep(model.parameters()), data, neighbours="zero-out", progress=False, **options,
        **more,
    )  # fmt: skip
    assert run(trainer).shape == (3, 2)


def test_arguments_and_errors_before_a_charge(wrong):
    model = wrong.model()
    given = {"plan": None, "lots": sf.StreamedLots(8, 24), "epochs": 1, "epsilon": 3, "delta": 1e-5}
    with pytest.raises(ValueError, match="clipping must not adapt"):
        wrong.start(
            model, neighbours="zero-out", correlation=sf.TreeNoise(), clip=sf.Adaptive(), **given
        )
    with pytest.raises(ValueError, match="leave out correlation"):
        wrong.start(model, correlation=sf.TreeNoise())
    assert wrong.charges == []
    alone = DPSGD(
        model, torch.optim.SGD(model.parameters(), lr=0.1), wrong.data(), neighbours="zero-out",
        correlation=sf.TreeNoise(), progress=False, **given,
    )  # fmt: skip
    wrong.loop(alone, wrong.classify(model))
    assert alone.steps_taken == 3
    assert alone.guarantee.epsilon <= 3
