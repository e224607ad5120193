"""What a run does besides its steps: forms of data, loops that break, a model left as it was."""

import contextlib
import copy
import io
import pickle
import random

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import Dataset, TensorDataset

from sfumato.core.randomness import SeededCoins
from sfumato.learning.dp_sgd import (
    CoinNoise,
    Flat,
    PoissonLots,
    ShuffledLots,
    TorchNoise,
    TrainingError,
)

pytestmark = pytest.mark.usefixtures("doubles")


class Rows(Dataset):
    """A map-style data set of pairs."""

    def __init__(self, data):
        self.data = data

    def __len__(self):
        return len(self.data[0])

    def __getitem__(self, row):
        return tuple(leaf[row] for leaf in self.data)


def sums_in_order(kit, model, data, loss, **more):
    found = kit.watched(copy.deepcopy(model), data, loss, **more)
    return found.spy.sums


# --- forms of data ------------------------------------------------------------------------------


def test_all_forms_of_the_same_data_give_the_same_steps(kit):
    model, (x, y, _), _ = kit.case("mlp")
    pair = [lambda m, a, b: F.cross_entropy(m(a), b, reduction="none")] * 4
    reference = sums_in_order(kit, model, (x, y), pair[0])
    for form in ([x, y], TensorDataset(x, y), Rows((x, y)), (x.numpy(), y.numpy())):
        for one, two in zip(reference, sums_in_order(kit, model, form, pair[0]), strict=True):
            assert torch.equal(one, two)


def test_batches_are_dictionaries_where_the_data_is_one(kit):
    model, (x, y, _), _ = kit.case("mlp")
    reference = sums_in_order(kit, model, (x, y), kit.classify)
    spy, own = kit.Spy(), copy.deepcopy(model)
    trainer = kit.trainer(own, {"x": x, "y": y}, noise=spy)
    trainer.fit(lambda m, batch: F.cross_entropy(m(batch["x"]), batch["y"], reduction="none"))
    assert all(map(torch.equal, reference, spy.sums))


def test_a_single_tensor(kit):
    model, (x, _, _), _ = kit.case("mlp")
    trainer = kit.trainer(model, x)
    for batch in trainer:
        assert isinstance(batch, torch.Tensor)
        trainer.backward(model(batch).square().sum(1))
    assert trainer.steps_taken == 3


def test_fit_is_the_loop(kit):
    model, data, loss = kit.case("cnn")
    reference = sums_in_order(kit, model, data, loss)
    spy = kit.Spy()
    trainer = kit.trainer(model, data, noise=spy)
    assert trainer.fit(loss) is trainer
    assert all(map(torch.equal, reference, spy.sums))


@pytest.mark.parametrize("scale", [1.0, 8.0, 2.0**20])
def test_a_loss_scale_changes_nothing_but_the_range(kit, scale):
    model, data, loss = kit.case("cnn")
    reference = sums_in_order(kit, model, data, loss, plan=kit.plan(clipping=Flat(0.2)))
    scaled = sums_in_order(
        kit, model, data, loss, plan=kit.plan(clipping=Flat(0.2)), loss_scale=scale
    )
    for one, two in zip(reference, scaled, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("scale", [0.0, -1.0, float("nan"), 1e-30])
def test_a_loss_scale_that_would_lose_gradients(kit, scale):
    """Scaled down so far, squares are 0 in float32, and a norm of 0 passes for short."""
    model, data, _ = kit.case("mlp")
    with pytest.raises(ValueError, match="loss_scale must be"):
        kit.trainer(model, data, loss_scale=scale)


# --- the operator's display ---------------------------------------------------------------------


def test_progress_can_be_forced_and_goes_to_the_screen_alone(kit, capsys):
    model, data, loss = kit.case("mlp")
    trainer = kit.trainer(model, data)
    trainer._wanted_progress = True
    kit.run(trainer, loss)
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "3/3" in shown.err
    assert "loss" in shown.err
    text = str(trainer.record.to_dict())
    assert "clipped" not in text
    assert "signal" not in text


def test_progress_of_empty_lots(kit, capsys):
    model = nn.Linear(5, 3)
    data = (torch.randn(0, 5), torch.zeros(0, dtype=torch.long))
    trainer = kit.trainer(model, data, plan=kit.plan(n=1000, lot=1, steps=2))
    trainer._wanted_progress = True
    kit.run(trainer, kit.classify)
    assert "2/2" in capsys.readouterr().err


# --- loops that break ---------------------------------------------------------------------------


class TroubleError(Exception):
    pass


def until(trainer, loss, batches, seen=None):
    """Runs so many private batches, and is then interrupted before the next backward."""
    with contextlib.suppress(TroubleError):
        for batch in trainer:
            if not trainer.rehearsing:
                if batches == 0:
                    raise TroubleError
                batches -= 1
                if seen is not None:
                    seen.append((trainer.steps_taken, batch[2].tolist()))
            trainer.backward(loss(trainer.model, *batch))


def test_after_an_exception_the_broken_lot_counts_and_the_rest_follows(kit):
    model, data, loss = kit.case("mlp")
    trainer = kit.trainer(model, data, plan=kit.plan(steps=5))
    until(trainer, loss, 2)
    assert trainer.steps_taken == 3
    rest = []
    kit.run(trainer, loss, lambda t, _: rest.append(t.steps_taken))
    assert rest == [4, 5]
    assert trainer.steps_taken == 5
    assert list(trainer) == []


@pytest.mark.parametrize("stop", ["exception", "break", "caught"])
def test_a_broken_lot_is_forgotten_and_never_summed_with_the_next(kit, stop):
    """Otherwise somebody who is in both lots counts twice."""
    model, data, loss = kit.case("mlp", n=6)
    everybody = kit.plan(lots=PoissonLots(6, 6), steps=2, clipping=Flat(0.1))
    clean, _ = kit.sums(data, model, loss, Flat(0.1))
    spy = kit.Spy()
    trainer = kit.trainer(model, data, plan=everybody, noise=spy, batch_size=2)
    batches = 0
    try:
        for batch in trainer:
            batches += not trainer.rehearsing
            if batches < 3:
                trainer.backward(loss(model, *batch))
            elif stop == "exception":
                raise TroubleError
            elif stop == "break":
                break
            else:
                with pytest.raises(TrainingError, match="one number for the whole batch"):
                    trainer.backward(loss(model, *batch).sum())
    except (TroubleError, TrainingError):
        pass
    assert spy.sums == []
    kit.run(trainer, loss)
    assert trainer.steps_taken == 2
    assert len(spy.sums) == 4
    for one, two in zip(clean.values(), spy.sums, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-12, atol=1e-14)


def stubborn(trainer, loss):
    """A loop that swallows every error, as some do."""
    for batch in trainer:
        with contextlib.suppress(Exception):
            trainer.backward(loss(*batch))


def test_after_a_failed_backward_the_loop_cannot_go_on(kit):
    model, data, loss = kit.case("mlp")
    trainer = kit.trainer(model, data)
    with pytest.raises(TrainingError, match="no backward"):
        stubborn(
            trainer, lambda *b: loss(model, *b) if trainer.rehearsing else loss(model, *b).sum()
        )


def test_within_an_epoch_of_shuffled_lots_a_new_loop_waits_for_the_next(kit):
    """Another permutation would show a unit twice in an epoch that is charged once."""
    model, data, loss = kit.case("mlp")
    lots = ShuffledLots(6, 24)  # four an epoch
    trainer = kit.trainer(model, data, plan=kit.plan(lots=lots, steps=12, neighbours="zero-out"))
    seen = []
    until(trainer, loss, 2, seen)
    kit.run(trainer, loss, lambda t, batch: seen.append((t.steps_taken, batch[2].tolist())))
    assert [step for step, _ in seen] == [1, 2, *range(5, 13)]
    for epoch in range(3):
        rows = [row for step, lot in seen if (step - 1) // 4 == epoch for row in lot]
        assert len(rows) == len(set(rows))


def test_a_run_broken_in_its_last_epoch_of_shuffled_lots_is_over(kit):
    model, data, loss = kit.case("mlp")
    lots = ShuffledLots(6, 24)
    trainer = kit.trainer(model, data, plan=kit.plan(lots=lots, steps=8, neighbours="zero-out"))
    until(trainer, loss, 5)
    kit.run(trainer, loss, lambda *_: pytest.fail("a unit is shown twice"))
    assert trainer.steps_taken == 8


def test_two_loops_at_once_never_take_more_steps_than_planned(kit):
    model, data, loss = kit.case("mlp")
    spy = kit.Spy()
    trainer = kit.trainer(model, data, noise=spy)
    first = iter(trainer)
    for batch in first:
        rehearsing = trainer.rehearsing
        trainer.backward(loss(model, *batch))
        if not rehearsing:
            break
    with pytest.raises(TrainingError, match="another loop"):
        kit.run(trainer, loss)
    for batch in first:
        trainer.backward(loss(model, *batch))
    assert list(trainer) == []
    assert trainer.steps_taken == 3
    assert len(spy.stds) == 3 * 4


def test_a_rehearsal_that_failed_is_held_again(kit):
    model, data, _ = kit.case("mlp")
    trainer = kit.trainer(model, data)

    def mixing(x, *_):
        return model(x - x.mean(0)).square().sum(1)

    for _ in range(2):
        with pytest.raises(TrainingError, match="no backward"):
            stubborn(trainer, mixing)
        assert trainer.steps_taken == 0


# --- one after the other ------------------------------------------------------------------------


def test_two_trainers_one_after_the_other(kit):
    model, data, loss = kit.case("mlp")
    both = [kit.trainer(model, data, coins=i) for i in range(2)]  # the second made before the first
    for trainer in both:
        before = model[0].weight.detach().clone()
        kit.run(trainer, loss)
        assert trainer.steps_taken == 3
        assert not torch.equal(before, model[0].weight)


def test_pretrained_weights_may_be_loaded_before_the_loop(kit):
    model, data, loss = kit.case("mlp")
    trainer = kit.trainer(model, data)
    model.load_state_dict({k: v * 0.5 for k, v in model.state_dict().items()})
    assert kit.run(trainer, loss).steps_taken == 3


# --- the model is left as it was ----------------------------------------------------------------


@pytest.mark.parametrize("end", ["whole", "broken", "refused"])
def test_no_hook_remains(kit, end):
    model, data, loss = kit.case("transformer")
    keys = list(model.state_dict())
    parameters = list(model.parameters())
    trainer = kit.trainer(model, data)
    if end == "whole":
        kit.run(trainer, loss)
    elif end == "broken":
        until(trainer, loss, 1)
    else:
        with pytest.raises(TrainingError):
            kit.run(trainer, lambda m, x, *_: loss(m, x).mean())
    assert list(model.state_dict()) == keys
    assert all(a is b for a, b in zip(parameters, model.parameters(), strict=True))
    for module in model.modules():
        assert not module._forward_hooks
        assert not module._forward_pre_hooks
        assert not module._backward_hooks
    for p in model.parameters():
        assert p.grad is None
        assert not p._backward_hooks
    assert type(model).__name__ == "Tied"
    twin = copy.deepcopy(model)
    assert torch.equal(twin(data[0]), model(data[0]))
    stored = io.BytesIO()
    torch.save(model.state_dict(), stored)
    pickle.dumps(nn.Sequential(nn.Linear(2, 2)))
    # Trained without privacy afterwards, it is an ordinary model.
    model(data[0]).sum().backward()
    assert parameters[0].grad is not None


def test_a_model_of_torchs_own_can_be_pickled_afterwards(kit):
    model, data, loss = kit.case("cnn")
    kit.run(kit.trainer(model, data), loss)
    again = pickle.loads(pickle.dumps(model))
    assert torch.equal(again(data[0]), model(data[0]))


@pytest.mark.parametrize(
    "noise", [lambda: CoinNoise(SeededCoins(1)), TorchNoise], ids=["coins", "torch"]
)
def test_sampling_and_noise_leave_the_global_generators_alone(kit, noise):
    """Dropout draws as it would have, and nobody's seed decides the noise."""
    model, data, loss = kit.case("cnn")
    trainer = kit.trainer(
        model, data, noise=noise(), augment=lambda x: x * 2, augmentations=2, batch_size=5
    )
    torch.manual_seed(7)
    np.random.seed(7)  # noqa: NPY002
    random.seed(7)
    states = torch.get_rng_state(), np.random.get_state(), random.getstate()  # noqa: NPY002
    kit.run(trainer, loss)
    assert torch.equal(torch.get_rng_state(), states[0])
    assert np.array_equal(np.random.get_state()[1], states[1][1])  # noqa: NPY002
    assert random.getstate() == states[2]


def test_a_global_seed_does_not_decide_noise_or_lots(kit):
    runs = []
    for _ in range(2):
        torch.manual_seed(7)
        model, data, _ = kit.case("mlp")
        spy_free = kit.trainer(model, data, noise=TorchNoise())
        kit.run(spy_free, kit.classify)
        runs.append(model[0].weight.detach().clone())
    assert not torch.equal(*runs)


class Attends(nn.Module):
    """Every argument of the attention by its place."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(5, 8), nn.Linear(8, 3)

    def forward(self, x):
        h = self.a(x).view(len(x), 1, 4, 2)
        return self.b(F.scaled_dot_product_attention(h, h, h, None, 0.1, True).reshape(len(x), 8))


@pytest.mark.parametrize(
    "make",
    [
        lambda: nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(5, 3))),
        lambda: nn.Sequential(nn.utils.parametrizations.orthogonal(nn.Linear(5, 3))),
        Attends,
    ],
    ids=["weight norm", "orthogonal", "attention"],
)
def test_weights_made_of_weights_and_other_unusual_models_train(kit, make):
    model, (_, data, _) = make(), kit.case("mlp")
    before = copy.deepcopy(model.state_dict())
    assert kit.run(kit.trainer(model, data), kit.classify).steps_taken == 3
    assert any(not torch.equal(v, before[k]) for k, v in model.state_dict().items())


def test_dropout_and_a_mask_of_noise_train(kit):
    class Noisy(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.drop = nn.Linear(5, 8), nn.Linear(8, 3), nn.Dropout(0.5)

        def forward(self, x):
            h = self.a(x)
            return self.b(self.drop(h + torch.randn_like(h)))

    for training in (True, False):
        model = Noisy().train(training)
        _, data, _ = kit.case("mlp")
        assert kit.run(kit.trainer(model, data), kit.classify).steps_taken == 3
        assert model.training is training
