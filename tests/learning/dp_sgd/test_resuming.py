"""Resuming: exactly where it was, with fresh coins, nothing run twice, nothing charged twice."""

import json
import pickle
import shutil

import numpy as np
import pytest
import torch
from safetensors import safe_open
from torch import nn
from torch.nn import functional as F

from sfumato.core.randomness import SeededCoins
from sfumato.learning.dp_sgd import (
    DPSGD,
    Adaptive,
    Flat,
    PoissonLots,
    ShuffledLots,
    TorchNoise,
    TrainingPlan,
)
from sfumato.learning.dp_sgd.checkpoints import Checkpoints

pytestmark = pytest.mark.usefixtures("singles")

ROWS = 20
generator = torch.Generator().manual_seed(6)
X = torch.randn(ROWS, 3, generator=generator)
Y = torch.randint(0, 2, (ROWS,), generator=generator)


class NoNoise:
    name, private = "none", False

    def normal(self, like, std):
        return torch.zeros_like(like)


def plan_for(steps=10, clip=None, **more):
    return TrainingPlan(PoissonLots(ROWS, ROWS), clip or Flat(1.0), 5.0, steps, 1e-5, **more)


def trainer_for(folder, plan=None, *, optimizer=None, seed=0, every=3, **more):
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    made = (optimizer or torch.optim.Adam)(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(made, 2, gamma=0.7)
    return DPSGD(
        model, made, (X, Y), plan=plan or plan_for(), scheduler=scheduler, ema_decay=0.9,
        checkpoints=folder, checkpoint_every=every, progress=False, **more,
    )  # fmt: skip


def train(trainer, until=None):
    """The loop, left after ``until`` steps if given."""
    for x, y in trainer:
        trainer.backward(F.cross_entropy(trainer.model(x), y, reduction="none"))
        if trainer.steps_taken == until and not trainer.rehearsing:
            break
    return trainer


def state(trainer):
    with trainer.averaged() as model:
        average = {n: p.detach().clone() for n, p in model.named_parameters()}
    return {
        "weights": {n: p.detach().clone() for n, p in trainer.model.named_parameters()},
        "average": average,
        "optimizer": trainer.optimizer.state_dict(),
        "scheduler": trainer._step.scheduler.state_dict(),
        "clip": trainer._step.sum.bounds,
    }


def equal(one, two):
    if isinstance(one, torch.Tensor):  # rows of a lot come in another order, with other coins
        return torch.allclose(one, two, rtol=1e-4, atol=1e-6)
    if isinstance(one, float):
        return one == pytest.approx(two, rel=1e-6)
    if isinstance(one, dict):
        return one.keys() == two.keys() and all(equal(one[k], two[k]) for k in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(two) and all(map(equal, one, two))
    return one == two


# --- exactly where it was -------------------------------------------------------------------------


@pytest.mark.parametrize("clip", [Flat(0.5), Adaptive(0.5, count_noise=9.0, learning_rate=1.0)])
@pytest.mark.parametrize("kind", ["adam", "momentum"])
def test_a_resumed_run_ends_where_an_uninterrupted_one_does(tmp_path, clip, kind):
    """Without noise, on lots of everyone: up to rounding."""

    def momentum(parameters, lr):
        return torch.optim.SGD(parameters, lr=lr, momentum=0.9, nesterov=True)

    options = {
        "plan": plan_for(clip=clip),
        "noise": NoNoise(),
        "optimizer": momentum if kind == "momentum" else None,
    }
    whole = train(trainer_for(tmp_path / "whole", **options))
    train(trainer_for(tmp_path / "cut", **options), until=6)
    again = trainer_for(tmp_path / "cut", seed=1, **options)  # other weights at first
    again.resume()
    assert again.steps_taken == 6
    train(again)
    assert again.steps_taken == 10
    assert equal(state(whole), state(again))


def test_a_run_can_be_resumed_again_and_again(tmp_path):
    options = {"noise": NoNoise(), "every": 1}
    whole = train(trainer_for(tmp_path / "whole", **options))
    train(trainer_for(tmp_path / "cut", **options), until=1)
    for done in range(1, 10):
        again = trainer_for(tmp_path / "cut", seed=done, **options).resume()
        assert again.steps_taken == done
        train(again, until=done + 1)
    assert equal(state(whole), state(again))
    finished = trainer_for(tmp_path / "cut", seed=99, **options).resume()
    assert finished.steps_taken == 10
    train(finished)
    assert equal(state(whole), state(finished))


def test_steps_after_the_last_checkpoint_count_as_taken(tmp_path):
    train(trainer_for(tmp_path / "run"), until=8)  # saved at 0, 3, 6
    again = trainer_for(tmp_path / "run", seed=1).resume()
    assert again.steps_taken == 8
    stored = Checkpoints(tmp_path / "run", again.plan.digest).load()
    assert stored is not None
    assert stored.step == 6
    name = next(n for n in stored.tensors if n.endswith("0.weight") and n.startswith("model/"))
    assert torch.equal(stored.tensors[name], again.model[0].weight)
    train(again)
    assert again.steps_taken == 10


def test_a_run_cut_off_before_its_first_step_ended_can_go_on(tmp_path):
    trainer = trainer_for(tmp_path / "run")
    for x, y in trainer:
        if not trainer.rehearsing:  # the first lot is out, its losses never come
            break
        trainer.backward(F.cross_entropy(trainer.model(x), y, reduction="none"))
    again = trainer_for(tmp_path / "run", seed=1).resume()
    assert again.steps_taken == 1
    first = trainer_for(None)
    assert equal(
        [p.detach() for p in again.model.parameters()],
        [p.detach() for p in first.model.parameters()],
    )
    train(again)
    assert again.steps_taken == 10


def test_shuffled_lots_go_on_at_an_epoch(tmp_path):
    """Another permutation within the epoch would show some units twice."""
    plan = TrainingPlan(ShuffledLots(5, ROWS), Flat(1.0), 5.0, 12, 1e-5, neighbours="zero-out")
    seen = []
    trainer = trainer_for(tmp_path / "run", plan, every=1)
    train(trainer, until=6)
    again = trainer_for(tmp_path / "run", plan, every=1).resume()
    assert again.steps_taken == 8
    for x, y in again:
        if not again.rehearsing:
            seen += [int((row == X).all(1).nonzero()) for row in x]
        again.backward(F.cross_entropy(again.model(x), y, reduction="none"))
    assert sorted(seen) == list(range(ROWS))  # the last epoch, whole
    assert again.steps_taken == 12


def test_what_a_lot_left_in_the_sum_does_not_reach_the_next(tmp_path):
    """A lot cut short by an error: its part of the sum is lost, not added to the next lot's."""
    sums = []
    trainer = trainer_for(None, plan_for(steps=3), noise=NoNoise(), batch_size=7)
    apply = trainer._step.apply

    def watched(step):
        sums.append((trainer._step.sum.facts.units, step))
        apply(step)

    trainer._step.apply = watched
    for x, y in trainer:
        trainer.backward(F.cross_entropy(trainer.model(x), y, reduction="none"))
        if not trainer.rehearsing and trainer._step.sum.facts.units:
            break  # within the first lot
    assert trainer._step.sum.facts.units in (6, 7)
    train(trainer)
    assert sums == [(ROWS, 1), (ROWS, 2)]


# --- coins ----------------------------------------------------------------------------------------


def test_a_resumed_run_draws_fresh_coins(tmp_path):
    """From the same folder twice: the noise of the two has nothing in common."""
    train(trainer_for(tmp_path / "one"), until=6)
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    ends = []
    for name in ("one", "two"):
        again = train(trainer_for(tmp_path / name).resume())
        ends.append(torch.cat([p.detach().flatten() for p in again.model.parameters()]))
    assert (ends[0] == ends[1]).sum() < 3  # of 26: by chance one in a few 10^5 times


def test_no_file_holds_coins(tmp_path):
    """Neither a generator's state, at any time, nor a seed."""
    noise_source = torch.Generator().manual_seed(4_242_424_242)
    secrets = {b"4242424242", b"987654321987654321", (987654321987654321).to_bytes(8, "little")}
    trainer = trainer_for(
        tmp_path / "run", plan_for(steps=6), noise=TorchNoise(noise_source), every=1,
        coins=SeededCoins(987654321987654321),
    )  # fmt: skip

    def note():
        words = noise_source.get_state().numpy().tobytes()
        secrets.update(words[at : at + 16] for at in range(24, 1000, 8) if any(words[at : at + 16]))

    note()
    held = b""
    for x, y in trainer:
        trainer.backward(F.cross_entropy(trainer.model(x), y, reduction="none"))
        note()
        held += b"".join(path.read_bytes() for path in (tmp_path / "run").iterdir())
    assert len(secrets) > 100
    assert not [secret for secret in secrets if secret in held]
    for path in (tmp_path / "run").glob("*.safetensors"):
        with safe_open(path, framework="pt") as file:
            header = dict(file.metadata())
            names = set(file.keys())
        assert set(header) == {"format", "digest", "step", "facts", "started", "sha256"}
        facts = json.loads(header["facts"])
        assert set(facts) == {
            "plan", "charge", "private", "lost", "kinds",
            "model", "optimizer", "scheduler", "average",
        }  # fmt: skip
        assert {n.partition("/")[0] for n in names} <= {"model", "optimizer", "average"}


# --- refusals -------------------------------------------------------------------------------------


def test_a_folder_of_another_plan_is_refused(tmp_path):
    train(trainer_for(tmp_path / "run"), until=3)
    with pytest.raises(ValueError, match="another plan"):
        trainer_for(tmp_path / "run", plan_for(steps=11))


def test_resuming_needs_a_folder(tmp_path):
    with pytest.raises(ValueError, match="checkpoints="):
        trainer_for(None).resume()
    assert trainer_for(tmp_path / "new").resume().steps_taken == 0


def test_another_make_of_trainer_is_refused_and_changes_nothing(tmp_path):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    plain = DPSGD(
        model, optimizer, (X, Y), plan=plan_for(), checkpoints=tmp_path / "run", progress=False
    )
    train(plain, until=2)
    with pytest.raises(ValueError, match="as it was when the run began"):
        trainer_for(tmp_path / "run").resume()


def test_what_cannot_be_stored_is_said_before_anything_is_spent(tmp_path):
    class Odd:
        def step(self):
            pass

        def state_dict(self):
            return {"coins": torch.Generator()}

    model = nn.Linear(3, 2)
    with pytest.raises(ValueError, match="no random state"):
        DPSGD(
            model, torch.optim.SGD(model.parameters(), lr=0.1), (X, Y), plan=plan_for(),
            scheduler=Odd(), checkpoints=tmp_path / "run",
        )  # fmt: skip
    assert not (tmp_path / "run").exists()


# --- damage ---------------------------------------------------------------------------------------


def test_a_damaged_checkpoint_falls_back_and_its_steps_count(tmp_path):
    train(trainer_for(tmp_path / "run"), until=7)  # saved at 0, 3, 6; two are kept
    newest = max((tmp_path / "run").glob("*.safetensors"))
    data = bytearray(newest.read_bytes())
    data[-3] ^= 0xFF
    newest.write_bytes(data)
    again = trainer_for(tmp_path / "run", seed=1)
    with pytest.warns(UserWarning, match="damaged and passed over"):
        again.resume()
    assert again.steps_taken == 7
    train(again)
    assert again.steps_taken == 10
    assert int(again._step.scheduler.state_dict()["last_epoch"]) == 3 + 3  # of 3, and 7 to 9


def test_nothing_is_unpickled(tmp_path, monkeypatch):
    def refuse(*args, **kwargs):
        raise AssertionError("something was unpickled")

    train(trainer_for(tmp_path / "run"), until=6)
    monkeypatch.setattr(pickle, "load", refuse)
    monkeypatch.setattr(pickle, "loads", refuse)
    monkeypatch.setattr(pickle, "Unpickler", refuse)
    monkeypatch.setattr(torch, "load", refuse)
    monkeypatch.setattr(np, "load", refuse)
    train(trainer_for(tmp_path / "run").resume())


def test_another_kind_of_optimizer_is_refused(tmp_path):
    train(trainer_for(tmp_path / "run"), until=4)
    other = trainer_for(tmp_path / "run", optimizer=torch.optim.SGD)
    with pytest.raises(ValueError, match=r"optimizer Adam.*optimizer SGD.*as it was"):
        other.resume()
    assert trainer_for(tmp_path / "run").resume().steps_taken == 4  # the folder was let go


def test_steps_that_count_but_are_lost_are_in_the_record(tmp_path):
    first = train(trainer_for(tmp_path / "run", every=3), until=5)
    assert first.record.facts["steps_lost"] == 0
    again = trainer_for(tmp_path / "run", every=3).resume()
    assert again.record.facts["steps_lost"] == 2  # saved after the third
    train(again)
    assert trainer_for(tmp_path / "run", every=3).resume().record.facts["steps_lost"] == 2


def test_a_finished_run_holds_no_folder(tmp_path):
    train(trainer_for(tmp_path / "run"))
    one, two = (trainer_for(tmp_path / "run").resume() for _ in range(2))
    assert one.steps_taken == two.steps_taken == one.plan.steps
