"""Rows that are made later: after the rehearsal and the charge, once, and as was announced."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from sfumato.accounting import account
from sfumato.core.randomness import SeededCoins
from sfumato.learning.dp_sgd import TrainingError
from sfumato.learning.dp_sgd.deferred import Deferred
from sfumato.learning.dp_sgd.noise import CoinNoise
from sfumato.learning.features import PrivatePCA
from sfumato.ledger import Budget, BudgetExceeded, Ledger

pytestmark = pytest.mark.usefixtures("singles")

ROWS = 24
LIKE = (torch.empty(0, 5), torch.empty(0, dtype=torch.int64))


class Later:
    """Rows whose making is counted, and which note what the ledger held at the time."""

    def __init__(self, data, ledger=None):
        self.data, self.ledger = data, ledger
        self.calls, self.gradients = [], None

    def __call__(self):
        self.calls.append([e.kind for e in self.ledger.history("people")] if self.ledger else [])
        self.gradients = torch.is_grad_enabled()
        return self.data

    def rows(self, like=LIKE, rows=ROWS):
        return Deferred(self, like, rows)


@pytest.fixture
def later(kit):
    _, (x, y, _), _ = kit.case("mlp", ROWS)
    return Later((x, y))


# --- when -----------------------------------------------------------------------------------------


def test_it_is_made_after_the_charge_by_the_first_lot(kit, later, ledger):
    later.ledger = ledger
    data = later.rows()
    trainer = kit.trainer(kit.mlp(), data, ledger=ledger, dataset="people")
    turns = []
    for x, y in trainer:
        turns.append((trainer.rehearsing, len(later.calls)))
        trainer.backward(kit.classify(trainer.model, x, y))
    assert all(made == (0 if rehearsing else 1) for rehearsing, made in turns)
    assert later.calls == [["open", "plan", "reserve"]]
    assert data.is_made
    assert later.gradients is False


@pytest.mark.parametrize("accountant", ["pld", "rdp"])
def test_what_it_costs_is_charged_with_the_steps(kit, later, ledger, accountant):
    event = PrivatePCA(2, 3.0).event("add-remove", "record")
    plan = kit.plan(before=event, accountant=accountant)
    trainer = kit.trainer(kit.mlp(), later.rows(), plan=plan, ledger=ledger, dataset="people")
    trainer.fit(kit.classify)
    kinds = [entry.kind for entry in ledger.history("people")]
    assert kinds == ["open", *["plan"] * (accountant == "pld"), "reserve", "commit"]
    left, steps = ledger.status("people").left, replace(plan, before=None).guarantee
    assert plan.guarantee.epsilon > steps.epsilon + 0.1
    if accountant == "pld":
        assert left == pytest.approx(1000 - plan.guarantee.epsilon, abs=1e-6)
    else:  # at the ledger's own, larger delta
        both = account(plan.event, 1e-3, accountant="rdp").epsilon
        assert left < 1000 - both < 1000 - account(steps_of(plan), 1e-3, accountant="rdp").epsilon


def steps_of(plan):
    return plan.event_between(0, plan.steps)


def test_a_ledger_that_refuses_has_read_nothing(kit, later, tmp_path):
    ledger = Ledger(tmp_path / "small.db")
    ledger.create("people", Budget(0.01, 1e-3))
    trainer = kit.trainer(kit.mlp(), later.rows(), ledger=ledger, dataset="people")
    with pytest.raises(BudgetExceeded):
        trainer.fit(kit.classify)
    assert later.calls == []
    assert [entry.kind for entry in ledger.history("people")] == ["open"]
    ledger.close()


def test_a_rehearsal_that_fails_has_read_nothing(kit, later, ledger):
    class Mixing(nn.Module):
        def __init__(self):
            super().__init__()
            self.own = kit.mlp()

        def forward(self, x):
            return self.own(x - x.mean(0))

    later.ledger = ledger
    trainer = kit.trainer(Mixing(), later.rows(), ledger=ledger, dataset="people")
    with pytest.raises(TrainingError, match="depends on the other examples"):
        trainer.fit(kit.classify)
    assert later.calls == []
    assert [entry.kind for entry in ledger.history("people")] == ["open"]


def test_it_is_made_also_if_every_lot_is_empty(kit, later):
    plan = kit.plan(10**9, 1e-3, steps=4)
    trainer = kit.trainer(kit.mlp(), later.rows(), plan=plan).fit(kit.classify)
    assert trainer.steps_taken == 4
    assert len(later.calls) == 1


def test_a_table_without_rows(kit):
    later = Later((torch.empty(0, 5), torch.empty(0, dtype=torch.int64)))
    trainer = kit.trainer(kit.mlp(), later.rows(rows=0)).fit(kit.classify)
    assert (trainer.steps_taken, len(later.calls)) == (3, 1)


# --- how often ------------------------------------------------------------------------------------


def test_it_is_made_once_and_the_run_is_that_of_rows_which_were_there(kit, later):
    ends = []
    for data in (later.rows(), later.data):
        torch.manual_seed(0)
        model = kit.mlp()
        noise = CoinNoise(SeededCoins(2))
        kit.trainer(model, data, noise=noise, batch_size=3).fit(kit.classify)
        ends.append(torch.cat([p.detach().flatten() for p in model.parameters()]))
    assert len(later.calls) == 1
    assert torch.equal(*ends)


def test_a_make_that_fails_is_not_tried_again(kit):
    """It may have drawn the noise of a release already."""
    calls = []

    def fail():
        calls.append(1)
        raise MemoryError

    trainer = kit.trainer(kit.mlp(), Deferred(fail, LIKE, ROWS))
    with pytest.raises(MemoryError):
        trainer.fit(kit.classify)
    assert trainer.steps_taken == 1  # counted as taken
    with pytest.raises(ValueError, match="not made again"):
        trainer.fit(kit.classify)
    assert calls == [1]


# --- what -----------------------------------------------------------------------------------------


def test_its_length_is_what_was_announced(later):
    data = later.rows()
    assert len(data) == ROWS
    assert not data.is_made
    assert data.made() is later.data
    assert data.made() is later.data
    assert len(later.calls) == 1


X, Y = torch.zeros(7, 5), torch.zeros(7, dtype=torch.int64)


@pytest.mark.parametrize(
    "made",
    [
        (X.double(), Y),
        (X, Y.int()),
        (torch.zeros(7, 4), Y),
        (X, torch.zeros(7, 1, dtype=torch.int64)),
        (X,),
        (X, Y, Y),
        X,
        {"x": X, "y": Y},
        (X.numpy(), Y.numpy()),
    ],
)
def test_another_structure_is_refused(made):
    data = Deferred(lambda: made, LIKE, 7)
    with pytest.raises(ValueError, match=r"what make\(\) returns must have the structure of like"):
        data.made()
    assert not data.is_made


@pytest.mark.parametrize("made", [(X[:6], Y[:6]), (X[:0], Y[:0]), (X, Y[:6])])
def test_by_how_many_rows_it_is_wrong_is_not_told(made):
    with pytest.raises(ValueError, match="rows") as error:
        Deferred(lambda: made, LIKE, 7).made()
    assert not any(digit in str(error.value) for digit in "67")


def test_like_must_have_rows_and_a_number_of_them():
    for like in ((), torch.tensor(1.0), (X, Y[:3]), "x", np.array(["a"])):
        with pytest.raises(ValueError, match="like"):
            Deferred(lambda: (X, Y), like, 7)
    for rows in (-1, 1.5, math.nan):
        with pytest.raises(ValueError, match="rows must be"):
            Deferred(lambda: (X, Y), LIKE, rows)  # type: ignore[arg-type]


def test_the_rehearsal_may_have_an_example(kit, later):
    example = (torch.ones(2, 5), torch.ones(2, dtype=torch.int64))
    kit.trainer(kit.mlp(), later.rows(), example=example).fit(kit.classify)
    assert len(later.calls) == 1
    with pytest.raises(ValueError, match="example must have the structure of data"):
        kit.trainer(kit.mlp(), later.rows(), example=(torch.ones(2, 4), example[1]))


# --- after every step -----------------------------------------------------------------------------


@pytest.mark.parametrize(("population", "lot"), [(ROWS, 8), (10**9, 1e-3)])
def test_after_is_told_of_every_step_and_of_no_rehearsal(kit, later, population, lot):
    """Also of empty lots, when the weights have been stepped."""
    model, seen = kit.mlp(), []
    trainer = kit.trainer(
        model, later.rows(), plan=kit.plan(population, lot, steps=5),
        noise=CoinNoise(SeededCoins(1)),
    )  # fmt: skip

    def after(step):
        seen.append((step, trainer.steps_taken, float(model[0].weight.detach().sum())))

    trainer.fit(kit.classify, after=after)
    assert [step for step, _, _ in seen] == [taken for _, taken, _ in seen] == [1, 2, 3, 4, 5]
    assert len({weight for *_, weight in seen}) == 5
