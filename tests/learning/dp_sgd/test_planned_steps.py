"""Optimizers and schedules that would fail in the middle of a run: refused before the charge."""

import pytest
import torch
from torch import optim
from torch.optim import lr_scheduler as schedules

from sfumato.learning.dp_sgd import TrainingError
from sfumato.learning.dp_sgd.planned_steps import refuse_failing_steps

pytestmark = pytest.mark.usefixtures("singles")
STEPS = 3  # of the plan

OPTIMIZERS = {
    "capturable": lambda p: optim.Adam(p, capturable=True),
    "differentiable": lambda p: optim.SGD(p, lr=0.1, differentiable=True),
}
SCHEDULES = {
    "one cycle": lambda o: schedules.OneCycleLR(o, 0.1, total_steps=2),
    "a part of one": lambda o: schedules.SequentialLR(
        o, [schedules.ConstantLR(o), schedules.OneCycleLR(o, 0.1, total_steps=1)], [1]
    ),
    "a table": lambda o: schedules.LambdaLR(o, lambda step: [1.0, 0.5, 0.2][step]),
}


@pytest.mark.parametrize("how", OPTIMIZERS)
def test_an_optimizer_that_takes_no_step(wrong, how):
    model = wrong.model()
    optimizer = OPTIMIZERS[how](model.parameters())
    wrong.refused(model, wrong.classify(model), "cannot take a step", optimizer=optimizer)


@pytest.mark.parametrize("how", SCHEDULES)
def test_a_schedule_that_ends_before_the_plan(wrong, how):
    model = wrong.model()
    optimizer = optim.SGD(model.parameters(), lr=0.1)
    scheduler = SCHEDULES[how](optimizer)
    wrong.refused(
        model, wrong.classify(model), f"fails after [12] of the {STEPS} steps",
        optimizer=optimizer, scheduler=scheduler,
    )  # fmt: skip


def test_a_schedule_over_another_optimizer(wrong):
    model = wrong.model()
    other = schedules.StepLR(optim.SGD(wrong.model().parameters(), lr=0.1), 1)
    wrong.refused(model, wrong.classify(model), "over another optimizer", scheduler=other)


@pytest.mark.parametrize(
    "make",
    [
        lambda p: optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
        lambda p: optim.AdamW(p, amsgrad=True, fused=True),
        lambda p: optim.Adam([{"params": list(p), "lr": torch.tensor(0.1)}], foreach=False),
        optim.Adafactor, optim.Rprop, optim.ASGD, optim.Adagrad, optim.RMSprop,
    ],
)  # fmt: skip
def test_a_trial_leaves_everything_as_it_was(wrong, make):
    model = wrong.model()
    optimizer = make(model.parameters())
    scheduler = schedules.StepLR(optimizer, 1)
    before = [p.clone() for p in model.parameters()], str(optimizer.state_dict())
    refuse_failing_steps(optimizer, scheduler, 50)
    assert all(map(torch.equal, before[0], model.parameters()))
    assert str(optimizer.state_dict()) == before[1]
    assert scheduler.last_epoch == 0
    wrong.loop(wrong.start(model, optimizer=optimizer, scheduler=scheduler), wrong.classify(model))
    assert scheduler.last_epoch == STEPS


def test_an_optimizer_of_ones_own_is_not_tried(wrong):
    class Counting(optim.SGD):
        taken = 0

        def step(self, closure=None):
            Counting.taken += 1
            return super().step(closure)

    model = wrong.model()
    wrong.loop(
        wrong.start(model, optimizer=Counting(model.parameters(), lr=0.1)), wrong.classify(model)
    )
    assert Counting.taken == STEPS


def test_hooks_of_an_optimizer_are_not_called_in_a_trial(wrong):
    model, seen = wrong.model(), []
    optimizer = optim.SGD(model.parameters(), lr=0.1)
    optimizer.register_step_post_hook(lambda *_: seen.append(1))
    wrong.loop(wrong.start(model, optimizer=optimizer), wrong.classify(model))
    assert len(seen) == STEPS


def test_the_error_names_its_cause(wrong):
    with pytest.raises(TrainingError, match="capturable") as caught:
        refuse_failing_steps(optim.Adam(wrong.model().parameters(), capturable=True), None, 1)
    assert caught.value.__cause__ is not None
