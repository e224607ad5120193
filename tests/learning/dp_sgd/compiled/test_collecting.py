"""Garbage that holds a generator must not be collected while a compiled call looks at frames."""

import gc

import pytest
import torch
from torch.nn import functional as F

from sfumato.core.randomness import SeededCoins
from sfumato.learning.dp_sgd import DPSGD, Flat, PoissonLots, TrainingPlan
from sfumato.learning.dp_sgd.compiled import whole_step
from sfumato.learning.dp_sgd.compiled.collecting import without_collection


@pytest.fixture(autouse=True)
def collector_put_back():
    before = gc.isenabled()
    yield
    gc.enable() if before else gc.disable()


@pytest.mark.parametrize("on", [True, False])
def test_the_collector_is_as_it_was_afterwards(on):
    gc.enable() if on else gc.disable()
    seen = []

    def fails():
        with without_collection():
            seen.append(gc.isenabled())
            raise KeyError

    with pytest.raises(KeyError):
        fails()
    assert seen == [False]
    assert gc.isenabled() == on


def test_what_is_garbage_goes_before_the_first_call():
    left = []

    def half_way():
        try:
            yield
        finally:
            left.append(gc.isenabled())

    class Holder:
        pass

    gc.collect()
    gc.disable()
    holder = Holder()
    holder.itself, holder.generator = holder, half_way()
    next(holder.generator)
    del holder
    with without_collection():
        assert not left
    with without_collection(first=True):
        assert left == [False]  # closed before the block, by a collection that was asked for


def test_no_compiled_step_is_called_while_garbage_may_be_collected(monkeypatch):
    seen = []

    def watched(self, graph, rounds):
        def call(*inputs):
            seen.append(gc.isenabled())
            return graph(*inputs)

        return call

    monkeypatch.setattr(whole_step.CompiledSum, "_optimised", watched)
    gc.enable()
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 2)
    x, y = torch.randn(40, 3), torch.randint(0, 2, (40,))
    plan = TrainingPlan(PoissonLots(20, 40), Flat(1.0), 1.0, 3, 1e-5)
    trainer = DPSGD(
        model, torch.optim.SGD(model.parameters(), 0.1), (x, y), plan=plan, coins=SeededCoins(1),
        progress=False,
    )  # fmt: skip
    trainer.fit(lambda m, x, y: F.cross_entropy(m(x), y, reduction="none"), compile=True)
    assert seen
    assert not any(seen)
    assert gc.isenabled()
