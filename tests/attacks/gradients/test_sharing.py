"""What is sent is the gradient, or the average over local steps; the model stays what it was."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from sfumato.accounting import account
from sfumato.attacks.gradients.defences import (
    Clipping,
    Dropout,
    GaussianNoise,
    LocalSteps,
    PrivateSteps,
    Pruning,
)
from sfumato.attacks.gradients.sharing import share_gradient, share_gradients
from sfumato.core.events import GaussianEvent, RepeatedEvent


@pytest.fixture
def task():
    torch.manual_seed(3)
    model = nn.Sequential(nn.Flatten(), nn.Linear(16, 12), nn.ReLU(), nn.Linear(12, 4))
    return model, torch.rand(6, 1, 4, 4), torch.tensor([0, 1, 2, 3, 1, 1])


def coins(seed=0):
    return np.random.default_rng(seed)


def norm_of(parts):
    return torch.cat([part.flatten() for part in parts.values()]).double().norm()


def close(found, wanted, tolerance=1e-6):
    assert found.keys() == wanted.keys()
    for name in wanted:
        assert torch.allclose(found[name], wanted[name], atol=tolerance), name


def by_autograd(model, x, y):
    loss = F.cross_entropy(model(x), y)
    slopes = torch.autograd.grad(loss, list(model.parameters()))
    return dict(zip((name for name, _ in model.named_parameters()), slopes, strict=True))


def test_it_is_the_gradient_of_the_mean_loss(task):
    model, x, y = task
    sent = share_gradient(model, x, y)
    close(sent.gradient, by_autograd(model, x, y))
    assert (sent.batch, sent.defence, sent.event, sent.masks) == (6, "none", None, None)


def test_local_steps_are_those_of_plain_descent(task):
    model, x, y = task
    sent = share_gradient(model, x, y, defences=[LocalSteps(3, rate=0.2, batch=2)])
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
    for rows in ([0, 1], [2, 3], [4, 5]):
        optimizer.zero_grad()
        F.cross_entropy(model(x[rows]), y[rows]).backward()
        optimizer.step()
    moved = {n: (before[n] - p.detach()) / (0.2 * 3) for n, p in model.named_parameters()}
    close(sent.gradient, moved)


def test_local_steps_go_round_again():
    rows = [LocalSteps(4, batch=4).rows(step, 6).tolist() for step in range(3)]
    assert rows == [[0, 1, 2, 3], [4, 5, 0, 1], [2, 3, 4, 5]]
    assert LocalSteps(2).rows(1, 3).tolist() == LocalSteps(2, batch=9).rows(1, 3).tolist()


def test_private_steps_without_noise_and_clip_are_plain_ones(task):
    model, x, y = task
    loose = PrivateSteps(clip=1e6, noise_multiplier=1e-12)
    sent = share_gradient(model, x, y, defences=[LocalSteps(2), loose], generator=coins())
    close(sent.gradient, share_gradient(model, x, y, defences=[LocalSteps(2)]).gradient)


def test_an_update_is_as_private_as_its_steps(task):
    model, x, y = task
    private = PrivateSteps(1.0, 2.0)
    sent = share_gradient(model, x, y, defences=[private, Pruning(0.5)], generator=coins())
    assert sent.event == GaussianEvent(2.0)
    sent = share_gradient(model, x, y, defences=[LocalSteps(3), private], generator=coins())
    assert sent.event == RepeatedEvent(GaussianEvent(2.0), 3)
    same = account(GaussianEvent(2.0 / 3**0.5), 1e-5)
    assert account(sent.event, 1e-5).epsilon == pytest.approx(same.epsilon, rel=1e-3)
    assert share_gradient(model, x, y, defences=[Clipping(0.1)]).event is None


def test_one_example_moves_a_private_sum_by_the_clip_at_most(task):
    """With the same coins, whatever the example is: also one without a gradient."""
    model, x, y = task
    private = [PrivateSteps(0.3, 1.0)]
    large = 100 * torch.ones(1, 1, 4, 4)
    for odd in (x[5:], large, -large, large * torch.nan, large * torch.inf):
        rows = torch.cat([x[:5], odd])
        with_it = share_gradient(model, rows, y, defences=private, generator=coins())
        rows = torch.cat([x[:5], torch.nan * x[5:]])  # what has no gradient is left out
        without = share_gradient(model, rows, y, defences=private, generator=coins())
        difference = {n: with_it.gradient[n] - without.gradient[n] for n in with_it.gradient}
        assert float(norm_of(difference)) * 6 <= 0.3 * (1 + 1e-4)
    assert all(torch.isfinite(part).all() for part in with_it.gradient.values())


def test_defences_are_applied_in_their_order(task):
    model, x, y = task
    first = share_gradient(
        model, x, y, defences=[Clipping(0.01), GaussianNoise(1.0)], generator=coins()
    )
    last = share_gradient(
        model, x, y, defences=[GaussianNoise(1.0), Clipping(0.01)], generator=coins()
    )
    assert float(norm_of(first.gradient)) > 1
    assert float(norm_of(last.gradient)) == pytest.approx(0.01, rel=1e-5)


def test_dropout_leaves_out_what_its_masks_say(task):
    model, x, y = task
    sent = share_gradient(model, x[:1], y[:1], defences=[Dropout(0.5)], generator=coins())
    (mask,) = sent.masks.values()
    assert mask.shape == (1, 12)
    gone = mask[0] == 0
    assert gone.any()
    assert not gone.all()
    assert torch.all(sent.gradient["1.weight"][gone] == 0)
    assert set(mask[0][~gone].tolist()) == {2.0}
    close(share_gradient(model, x, y).gradient, by_autograd(model, x, y))  # no hook is left


def test_the_model_is_left_as_it_was(task):
    model, x, y = task
    model.train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    share_gradient(
        model, x, y, defences=[LocalSteps(4), PrivateSteps(1.0, 1.0), Dropout(0.1)],
        generator=coins(),
    )  # fmt: skip
    close(model.state_dict(), before, 0.0)
    assert model.training
    assert all(p.grad is None for p in model.parameters())


def test_participants_at_once_are_participants_one_by_one(task):
    model, x, y = task
    inputs, labels = x.reshape(3, 2, 1, 4, 4), y.reshape(3, 2)
    defences = [LocalSteps(3, rate=0.5), Clipping(0.2), Pruning(0.3)]
    found, _ = share_gradients(model, inputs, labels, defences=defences)
    for row in range(3):
        alone = share_gradient(model, inputs[row], labels[row], defences=defences).gradient
        close({name: part[row] for name, part in found.items()}, alone)


def test_participants_have_masks_and_noise_of_their_own(task):
    model, x, y = task
    same = x[:1].expand(3, 2, 1, 4, 4), y[:1].expand(3, 2)
    for defence in (Dropout(0.5), GaussianNoise(1.0), PrivateSteps(1.0, 1.0)):
        found, _ = share_gradients(model, *same, defences=[defence], generator=coins())
        assert not torch.allclose(found["3.weight"][0], found["3.weight"][1], atol=1e-3)


def test_frozen_parameters_are_not_sent(task):
    model, x, y = task
    model[1].weight.requires_grad_(False)
    assert list(share_gradient(model, x, y).gradient) == ["1.bias", "3.weight", "3.bias"]


@pytest.mark.parametrize(
    ("defences", "words"),
    [
        ([GaussianNoise(1.0)], "generator must be given"),
        ([Dropout(0.5)], "generator must be given"),
        ([PrivateSteps(1.0, 1.0)], "generator must be given"),
        ([LocalSteps(2), LocalSteps(3)], "defences must be at most one LocalSteps, got 2"),
        ([Dropout(0.5), Dropout(0.1)], "defences must be at most one Dropout, got 2"),
    ],
)
def test_defences_that_do_not_go_together(task, defences, words):
    with pytest.raises(ValueError, match=words):
        share_gradient(*task, defences=defences)


def test_wrong_examples_are_refused(task):
    model, x, y = task
    with pytest.raises(ValueError, match="labels must be one for each of 6 inputs"):
        share_gradient(model, x, y[:2])
    with pytest.raises(ValueError, match="at least one, got 0"):
        share_gradient(model, x[:0], y[:0])
    with pytest.raises(ValueError, match="a parameter that is trained"):
        share_gradient(nn.Flatten(), x, y)
    linear = nn.Sequential(nn.Flatten(), nn.Linear(16, 4))
    with pytest.raises(ValueError, match="activation functions are layers, for dropout"):
        share_gradient(linear, x, y, defences=[Dropout(0.5)], generator=coins())
