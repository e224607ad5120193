"""Numbers that a model or a loss keeps from batch to batch stop the run."""

from collections import deque

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import sfumato as sf
from sfumato.learning.dp_sgd.remembering import Remembered

X = torch.randn(20, 4, generator=torch.Generator().manual_seed(1))
Y = torch.zeros(20, dtype=torch.long)


class Meter:
    """As many training scripts have one."""

    def __init__(self):
        self.sum = 0.0

    def update(self, value):
        self.sum += value


def fit(model, loss):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    trainer = sf.DPSGD(
        model, optimizer, (X, Y), public_size=20, lot_size=5, steps=2, noise_multiplier=1.0,
        delta=1e-5, progress=False,
    )  # fmt: skip
    return trainer.fit(loss)


def each(model, x, y):
    return F.cross_entropy(model(x), y, reduction="none")


KEEPING = {
    "a number": lambda m, now: setattr(m, "kept", now),
    "a NumPy number": lambda m, now: setattr(m, "kept", np.float32(now)),
    "a list": lambda m, now: m.list.append(now),
    "the last few": lambda m, now: m.few.append(now),
    "the last thousands": lambda m, now: m.many.append(now),
    "by name": lambda m, now: m.names.update(loss=now),
    "an array": lambda m, now: m.array.fill(now),
    "a meter": lambda m, now: m.meter.update(now),
    "deep in lists": lambda m, now: m.names.update(a=[[now]]),
}


@pytest.mark.parametrize("how", KEEPING)
def test_a_model_that_keeps_numbers_of_losses_is_refused(how):
    model = nn.Linear(4, 3)
    model.kept, model.list, model.few, model.names = 1.0, [], deque(maxlen=2), {}
    model.many = deque([0.0] * 3000, maxlen=3000)
    model.array, model.meter = np.zeros(2), Meter()

    def loss(model, x, y):
        losses = each(model, x, y)
        KEEPING[how](model, float(losses.detach().mean()) + len(x))
        return losses

    with pytest.raises(sf.TrainingError, match="changed while the losses of a batch"):
        fit(model, loss)


def test_a_loss_that_keeps_numbers_is_refused():
    seen = []

    def loss(model, x, y):
        losses = each(model, x, y)
        seen.append(float(losses.detach().max()))
        return losses

    with pytest.raises(sf.TrainingError, match="the loss's 'seen'"):
        fit(nn.Linear(4, 3), loss)


def test_what_begins_after_the_rehearsal_stops_the_run():
    model, private = nn.Linear(4, 3), []

    def loss(model, x, y):
        if model.weight[0, 0] != model.begun:  # after the first private step
            private.append(float(x.sum()))
        return each(model, x, y)

    model.begun = model.weight[0, 0].item()
    with pytest.raises(sf.TrainingError, match="the loss's 'private'"):
        fit(model, loss)
    assert len(private) == 1


def test_counters_settings_and_what_is_set_between_batches_may_change():
    model = nn.Linear(4, 3)
    model.calls, model.mode, model.temperature = 0, "a", 1.0

    def loss(model, x, y):
        model.calls, model.mode = model.calls + 1, "b"
        return each(model, x, y) * model.temperature

    def after(step):
        model.temperature = 1.0 / step

    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sf.DPSGD(
        model, optimizer, (X, Y), public_size=20, lot_size=5, steps=3, noise_multiplier=1.0,
        delta=1e-5, progress=False,
    ).fit(loss, after=after)  # fmt: skip
    assert model.temperature == 1 / 3


def test_numbers_that_are_not_equal_to_themselves_are_the_same():
    model = nn.Linear(2, 2)
    model.unknown = float("nan")
    remembered = Remembered(model, each)
    remembered.note()
    remembered.check()
