"""Runs and ledgers: charged before a private row is read, once, in full, or not at all."""

import json

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import Dataset

from sfumato.accounting import account
from sfumato.core.neighbours import Neighbours
from sfumato.core.randomness import SeededCoins
from sfumato.learning.dp_sgd import (
    DPSGD,
    FixedSizeLots,
    Flat,
    PoissonLots,
    TrainingError,
    TrainingPlan,
)
from sfumato.ledger import Budget, BudgetExceeded, Ledger, LedgerError

pytestmark = pytest.mark.usefixtures("singles")

ROWS = 40
generator = torch.Generator().manual_seed(3)
X = torch.randn(ROWS, 3, generator=generator)
Y = torch.randint(0, 2, (ROWS,), generator=generator)
BUDGET = Budget(10.0, 1e-4)


def plan_for(steps=5, z=2.0, **more):
    return TrainingPlan(PoissonLots(8, ROWS), Flat(1.0), z, steps, 1e-5, **more)


def trainer_for(ledger, data=(X, Y), plan=None, model=None, **more):
    model = model or nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return DPSGD(
        model, optimizer, data, plan=plan or plan_for(), coins=SeededCoins(1), ledger=ledger,
        dataset="people", analyst="ann", progress=False, **more,
    )  # fmt: skip


def loss(model, x, y):
    return F.cross_entropy(model(x), y, reduction="none")


@pytest.fixture
def ledger(url):
    made = Ledger(url)
    made.create("people", BUDGET)
    yield made
    made.close()


@pytest.fixture
def book(sqlite_url):
    """As ``ledger``, in SQLite alone."""
    made = Ledger(sqlite_url)
    made.create("people", BUDGET)
    yield made
    made.close()


def kinds(ledger):
    return [entry.kind for entry in ledger.history("people")]


def spent(ledger):
    return ledger.status("people").reading


def nothing_spent(ledger):
    return kinds(ledger) == ["open"] and spent(ledger) == 0


# --- what is charged ------------------------------------------------------------------------------


def test_a_run_is_charged_as_a_whole_by_its_exact_composition(ledger):
    trainer = trainer_for(ledger).fit(loss)
    assert kinds(ledger) == ["open", "plan", "reserve", "commit"]
    _, plan, reserve, commit = ledger.history("people")
    by_pld = account(trainer.plan.event, 1e-5, neighbours="add-remove").epsilon
    assert plan.data["epsilon"] == by_pld == trainer.guarantee.epsilon
    assert plan.data["delta"] == 1e-5
    assert plan.data["analyst"] == reserve.data["analyst"] == "ann"
    assert ledger.status("people").left == pytest.approx(BUDGET.epsilon - by_pld, abs=1e-6)
    assert reserve.data["request"] == json.loads(json.dumps(trainer.plan.to_dict()))
    assert commit.data["reserve"] == reserve.sequence
    assert ledger.verify("people")


def test_a_run_in_rdp_is_charged_step_by_step(ledger):
    plan = plan_for(accountant="rdp")
    trainer_for(ledger, plan=plan).fit(loss)
    assert kinds(ledger) == ["open", "reserve", "commit"]
    reading = ledger.status("people").reading
    delta = BUDGET.conversion_delta
    # The gate splits its delta over a grid of orders, so its reading is somewhat larger.
    lower = account(plan.event, delta, neighbours="add-remove", accountant="rdp").epsilon
    assert lower <= reading <= 1.3 * lower


def test_each_run_is_charged_again(book):
    first = trainer_for(book).fit(loss)
    trainer_for(book).fit(loss)
    left = book.status("people").left
    assert left == pytest.approx(BUDGET.epsilon - 2 * first.guarantee.epsilon, abs=1e-6)


def test_iterating_again_charges_nothing(book):
    trainer = trainer_for(book).fit(loss)
    for _ in trainer:
        pytest.fail("all steps were taken")
    trainer.fit(loss)
    assert kinds(book) == ["open", "plan", "reserve", "commit"]


def test_a_path_is_a_ledger(sqlite_url, book):
    trainer_for(sqlite_url).fit(loss)
    assert kinds(book) == ["open", "plan", "reserve", "commit"]


def test_a_ledger_that_does_not_exist_is_not_made(tmp_path):
    with pytest.raises((LedgerError, ValueError)):
        trainer_for(tmp_path / "none.db")
    assert not (tmp_path / "none.db").exists()


# --- before the data is read ----------------------------------------------------------------------


class Guarded(Dataset):
    """Rows that may be read only after the charge; those read before are noted."""

    def __init__(self, ledger):
        self.ledger, self.early, self.late = ledger, [], []

    def __len__(self):
        return ROWS

    def __getitem__(self, index):
        (self.late if "reserve" in kinds(self.ledger) else self.early).append(index)
        return X[index], Y[index]


def test_no_row_is_read_before_the_charge(book):
    data = Guarded(book)
    example = [(torch.zeros(3), torch.tensor(0)), (torch.ones(3), torch.tensor(1))]
    trainer_for(book, data, example=example).fit(loss)
    assert data.early == []
    assert data.late


def test_without_an_example_the_first_nine_rows_alone_show_their_structure(book):
    """Shapes and types are public; the rehearsal replaces every value by a made-up one."""
    data = Guarded(book)
    trainer = trainer_for(book, data)
    assert data.early == []
    shown = []
    for x, y in trainer:
        if trainer.rehearsing:
            shown.append(x)
        trainer.backward(loss(trainer.model, x, y))
    assert set(data.early) == set(range(9))
    assert not any((row == own).all() for batch in shown for row in batch for own in X)


def test_tensors_are_not_read_before_the_charge(book):
    """A tensor that refuses to be indexed until the ledger holds the charge."""

    class Sealed(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            if func in (torch.index_select, torch.Tensor.index_select):
                assert "reserve" in kinds(book)
                opened.append(True)
            return super().__torch_function__(func, types, args, kwargs or {})

    opened = []
    trainer = trainer_for(book, (X.as_subclass(Sealed), Y))
    for x, y in trainer:
        plain = x.as_subclass(torch.Tensor)
        trainer.backward(loss(trainer.model, plain, y))
    assert opened


# --- refusals -------------------------------------------------------------------------------------


def test_a_run_beyond_the_budget_is_refused_and_spends_nothing(ledger):
    data = Guarded(ledger)
    trainer = trainer_for(ledger, data, plan=plan_for(steps=2000, z=0.7))
    assert trainer.guarantee.epsilon > BUDGET.epsilon
    with pytest.raises(BudgetExceeded, match="Nothing was spent"):
        trainer.fit(loss)
    assert nothing_spent(ledger)
    assert trainer.steps_taken == 0
    assert set(data.early) <= set(range(9))
    assert data.late == []


def test_what_is_left_decides(book):
    plan = plan_for(steps=60, z=1.2)
    epsilon = plan.guarantee.epsilon
    assert BUDGET.epsilon / 2 < epsilon < BUDGET.epsilon
    trainer_for(book, plan=plan).fit(loss)
    before = kinds(book)
    with pytest.raises(BudgetExceeded):
        trainer_for(book, plan=plan).fit(loss)
    assert kinds(book) == before


def test_a_delta_beyond_the_budget_is_refused(book):
    plan = TrainingPlan(PoissonLots(8, ROWS), Flat(1.0), 4.0, 2, 1e-3)
    with pytest.raises(BudgetExceeded, match="delta"):
        trainer_for(book, plan=plan).fit(loss)
    assert nothing_spent(book)


def test_another_unit_is_refused_with_the_remedy(sqlite_url):
    ledger = Ledger(sqlite_url)
    ledger.create("people", BUDGET, unit="person")
    with pytest.raises(LedgerError, match=r"unit='person'.*records_per_unit, group_unit"):
        trainer_for(ledger)
    assert nothing_spent(ledger)
    trainer_for(ledger, plan=plan_for(unit="person")).fit(loss)
    ledger.close()


def test_people_are_charged_for_all_their_records(sqlite_url):
    ledger = Ledger(sqlite_url)
    ledger.create("people", BUDGET, unit="person")
    alone = plan_for(unit="person")
    plan = plan_for(records_per_unit=3, group_unit="person")
    assert plan.guarantee.epsilon > 2 * alone.guarantee.epsilon
    trainer = trainer_for(ledger, plan=plan).fit(loss)
    charged = next(e for e in ledger.history("people") if e.kind == "plan").data["epsilon"]
    assert charged == plan.guarantee.epsilon == trainer.record.guarantee.epsilon
    assert trainer.record.guarantee.unit == "person"
    ledger.close()


def test_owners_are_charged_as_owners(sqlite_url):
    ledger = Ledger(sqlite_url)
    ledger.create("people", BUDGET, unit="owner")
    model = nn.Linear(3, 2)
    trainer = DPSGD(
        model, torch.optim.SGD(model.parameters(), lr=0.1), (X, Y), public_size=10, lot_size=4,
        delta=1e-5, noise_multiplier=2.0, steps=3, owners=torch.arange(ROWS) % 10,
        rows_per_owner=2, coins=SeededCoins(1), ledger=ledger, dataset="people", progress=False,
    ).fit(loss)  # fmt: skip
    assert trainer.record.guarantee.unit == "owner"
    assert kinds(ledger)[-1] == "commit"
    ledger.close()


def test_a_stricter_relation_is_charged_at_its_own_price(sqlite_url):
    ledger = Ledger(sqlite_url)
    ledger.create("people", BUDGET, neighbours="replace-one")
    plan = plan_for()
    trainer_for(ledger, plan=plan).fit(loss)
    charged = next(e for e in ledger.history("people") if e.kind == "plan").data["epsilon"]
    by_pld = account(plan.event, 1e-5, neighbours=Neighbours.REPLACE_ONE).epsilon
    assert charged == by_pld > plan.guarantee.epsilon
    ledger.close()


def test_a_weaker_relation_is_refused(book):
    """What protects those who are replaced says nothing about those who are added."""
    plan = TrainingPlan(FixedSizeLots(8, ROWS), Flat(1.0), 2.0, 3, 1e-5, neighbours="replace-one")
    with pytest.raises((LedgerError, ValueError), match=r"replace-one|add-remove|zero-out"):
        trainer_for(book, plan=plan).fit(loss)
    assert nothing_spent(book)


def test_an_unknown_dataset_is_refused_at_once(book):
    model = nn.Linear(3, 2)
    with pytest.raises(LedgerError, match="nobody"):
        DPSGD(
            model, torch.optim.SGD(model.parameters(), lr=0.1), (X, Y), plan=plan_for(),
            ledger=book, dataset="nobody",
        )  # fmt: skip


# --- what goes wrong ------------------------------------------------------------------------------


def test_an_error_in_the_rehearsal_spends_nothing(book):
    class Mixing(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(3, 2)

        def forward(self, x):
            return self.inner(x - x.mean(0))

    with pytest.raises(TrainingError, match="depends on the other examples"):
        trainer_for(book, model=Mixing()).fit(loss)
    with pytest.raises(TrainingError, match="one number for the whole batch"):
        trainer_for(book).fit(lambda model, x, y: F.cross_entropy(model(x), y))
    with pytest.raises(KeyError):
        trainer_for(book).fit(lambda model, x, y: {}["missing"])
    assert nothing_spent(book)


def test_leaving_during_the_rehearsal_spends_nothing(book):
    for _ in trainer_for(book):
        break
    assert nothing_spent(book)


def test_an_error_in_the_loop_stays_charged_and_the_run_goes_on(book):
    trainer = trainer_for(book)

    def failing(model, x, y):
        if trainer.steps_taken == 3:
            raise RuntimeError("out of memory")
        return loss(model, x, y)

    with pytest.raises(RuntimeError, match="out of memory"):
        trainer.fit(failing)
    left = BUDGET.epsilon - trainer.guarantee.epsilon
    assert kinds(book) == ["open", "plan", "reserve"]
    assert book.status("people").left == pytest.approx(left, abs=1e-6)
    assert trainer.steps_taken == 3  # the third was begun
    trainer.fit(loss)
    assert trainer.steps_taken == 5
    assert kinds(book) == ["open", "plan", "reserve", "commit"]
    assert book.status("people").left == pytest.approx(left, abs=1e-6)


def test_stopping_early_gives_nothing_back(book):
    """A run of a declared plan is charged as a whole."""
    trainer = trainer_for(book, plan=plan_for(steps=50))
    for x, y in trainer:
        trainer.backward(loss(trainer.model, x, y))
        if trainer.steps_taken == 2 and not trainer.rehearsing:
            break
    left = BUDGET.epsilon - trainer.guarantee.epsilon
    assert book.status("people").left == pytest.approx(left, abs=1e-6)


# --- what is written ------------------------------------------------------------------------------


def test_the_committed_answer_is_the_public_record_alone(book):
    trainer = trainer_for(book).fit(loss)
    answer = book.history("people")[-1].data["answer"]
    assert answer == json.loads(json.dumps(trainer.record.to_dict()))
    assert answer["facts"]["ledger"] == {"dataset": "people", "entry": 3}
    assert answer["private"] is False  # seeded coins
    text = json.dumps([entry.data for entry in book.history("people")]).lower()
    for word in ("loss", "clipped", "norm", "gradient", "seed", "weight"):
        assert f'"{word}' not in text
    allowed = {
        "arithmetic", "rounding_allowance", "noise_source", "coins_of_the_model", "parameters",
        "optimizer", "averaged",
        "steps_lost",
        "ledger",
    }  # fmt: skip
    assert set(answer["facts"]) <= allowed
