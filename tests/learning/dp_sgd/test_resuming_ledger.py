"""Resumed runs and their ledger: charged once, never less, and by the ledger they began with."""

import shutil

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from sfumato.learning.dp_sgd import DPSGD, Flat, PoissonLots, TrainingPlan
from sfumato.ledger import Budget, BudgetExceeded, Ledger, LedgerError

pytestmark = pytest.mark.usefixtures("singles")

ROWS = 20
generator = torch.Generator().manual_seed(6)
X = torch.randn(ROWS, 3, generator=generator)
Y = torch.randint(0, 2, (ROWS,), generator=generator)


def plan_for(**more):
    return TrainingPlan(PoissonLots(ROWS, ROWS), Flat(1.0), 5.0, 10, 1e-5, **more)


def trainer_for(folder, plan=None, *, seed=0, **more):
    torch.manual_seed(seed)
    model = nn.Linear(3, 2)
    return DPSGD(
        model, torch.optim.Adam(model.parameters(), lr=0.1), (X, Y), plan=plan or plan_for(),
        checkpoints=folder, checkpoint_every=3, progress=False, **more,
    )  # fmt: skip


def train(trainer, until=None):
    """The loop, left after ``until`` steps if given."""
    for x, y in trainer:
        trainer.backward(F.cross_entropy(trainer.model(x), y, reduction="none"))
        if trainer.steps_taken == until and not trainer.rehearsing:
            break
    return trainer


@pytest.fixture
def ledger(tmp_path):
    made = Ledger(tmp_path / "privacy.db")
    made.create("people", Budget(100.0, 1e-3))
    yield made
    made.close()


def kinds(ledger):
    """Of all entries but turns."""
    return [entry.kind for entry in ledger.history("people") if entry.kind != "resume"]


def test_a_run_cut_off_between_its_plan_and_its_charge_pays_for_one_plan(
    tmp_path, ledger, monkeypatch
):
    def dies(*_, **__):
        raise KeyboardInterrupt

    options = {"ledger": ledger, "dataset": "people", "plan": plan_for()}
    with monkeypatch.context() as patched:
        patched.setattr(Ledger, "spend", dies)
        with pytest.raises(KeyboardInterrupt):
            train(trainer_for(tmp_path / "run", **options))
    assert kinds(ledger) == ["open", "plan"]
    left = ledger.status("people").left
    assert train(trainer_for(tmp_path / "run", **options).resume()).steps_taken == 10
    assert kinds(ledger) == ["open", "plan", "reserve", "commit"]
    assert ledger.status("people").left == left


@pytest.mark.parametrize("accountant", ["pld", "rdp"])
@pytest.mark.parametrize("until", [1, 4, 9])
def test_a_resumed_run_is_charged_once(tmp_path, ledger, until, accountant):
    options = {
        "ledger": ledger,
        "dataset": "people",
        "plan": plan_for(accountant=accountant),
    }
    train(trainer_for(tmp_path / "run", **options), until=until)
    left = ledger.status("people").left
    charges = kinds(ledger)
    again = train(trainer_for(tmp_path / "run", **options).resume())
    assert again.steps_taken == 10
    assert kinds(ledger) == [*charges, "commit"]
    turns = [entry.data for entry in ledger.history("people") if entry.kind == "resume"]
    assert [turn["turn"] for turn in turns] == list(range(1, 12))  # a step each, and resume()
    assert turns[-1]["lots"] == 10
    assert ledger.verify("people").ok
    assert ledger.status("people").left == left
    assert again.record.facts["ledger"]["entry"] == charges.index("reserve") + 1


def test_a_budget_that_the_run_itself_used_up_does_not_stop_it(tmp_path):
    plan = plan_for()
    made = Ledger(tmp_path / "privacy.db")
    made.create("people", Budget(plan.guarantee.epsilon * 1.01, 1e-4))
    options = {"ledger": made, "dataset": "people", "plan": plan}
    train(trainer_for(tmp_path / "run", **options), until=4)
    assert train(trainer_for(tmp_path / "run", **options).resume()).steps_taken == 10
    made.close()


def test_another_ledger_is_refused_and_nothing_is_loaded(tmp_path, ledger):
    train(trainer_for(tmp_path / "run", ledger=ledger, dataset="people"), until=6)
    other = Ledger(tmp_path / "other.db")
    other.create("people", Budget(100.0, 1e-3))
    again = trainer_for(tmp_path / "run", ledger=other, dataset="people", seed=5)
    before = [p.detach().clone() for p in again.model.parameters()]
    with pytest.raises(LedgerError, match="is no reservation of this event"):
        again.resume()
    after = [p.detach() for p in again.model.parameters()]
    assert all(map(torch.equal, before, after))
    other.close()


def test_a_run_that_began_without_a_ledger_does_not_go_on_with_one(tmp_path, ledger):
    train(trainer_for(tmp_path / "run"), until=6)
    with pytest.raises(LedgerError, match="no charge for this run"):
        trainer_for(tmp_path / "run", ledger=ledger, dataset="people").resume()
    assert kinds(ledger) == ["open"]


@pytest.mark.parametrize("after", ["the journal", "the checkpoint", "the charge"])
def test_cut_off_before_the_first_lot(tmp_path, ledger, after):
    """Nothing was read; the run is charged once, whether it was before or not."""
    options = {"ledger": ledger, "dataset": "people"}
    first = trainer_for(tmp_path / "run", **options)

    def cut(*_):
        raise KeyboardInterrupt

    if after == "the journal":
        first._resuming._store.save = cut
    elif after == "the checkpoint":
        first._charge.make = cut
    else:
        first._resuming._store.note_started = cut
    with pytest.raises(KeyboardInterrupt):
        train(first)
    assert kinds(ledger).count("reserve") == (after == "the charge")
    again = train(trainer_for(tmp_path / "run", **options).resume())
    assert again.steps_taken == 10
    assert kinds(ledger).count("reserve") == kinds(ledger).count("commit") == 1


def test_a_folder_that_takes_no_checkpoint_is_refused_before_the_charge(tmp_path, ledger):
    options = {"ledger": ledger, "dataset": "people"}
    trainer = trainer_for(tmp_path / "run", **options)
    (tmp_path / "run" / ".checkpoint-00000001.safetensors.new").mkdir()  # in a checkpoint's way
    with pytest.raises(OSError, match="Is a directory"):
        train(trainer)
    assert kinds(ledger) == ["open"]


def test_a_run_that_is_refused_leaves_its_folder_free(tmp_path, ledger):
    ledger.create("small", Budget(1e-3, 1e-4))
    for _ in range(2):
        with pytest.raises(BudgetExceeded):
            train(trainer_for(tmp_path / "run", ledger=ledger, dataset="small"))
    assert train(trainer_for(tmp_path / "run", ledger=ledger, dataset="people")).steps_taken == 10


def test_an_older_copy_of_a_finished_run_is_not_run_a_second_time(tmp_path, ledger):
    options = {"ledger": ledger, "dataset": "people"}
    trainer = train(trainer_for(tmp_path / "run", **options), until=6)
    shutil.copytree(tmp_path / "run", tmp_path / "copy")
    train(trainer)
    assert kinds(ledger)[-1] == "commit"
    with pytest.raises(LedgerError, match="has ended"):
        trainer_for(tmp_path / "copy", **options).resume()
    train(trainer_for(tmp_path / "run", **options).resume())  # nothing is left to do: its weights


@pytest.mark.parametrize("until", [0, 2, 10])
def test_starting_anew_over_a_run_is_refused_and_costs_nothing(tmp_path, ledger, until):
    options = {"ledger": ledger, "dataset": "people"}
    if until:
        train(trainer_for(tmp_path / "run", **options), until=until)
    else:  # charged, and cut off before the first lot was noted
        first = trainer_for(tmp_path / "run", **options)
        first._resuming._store.note_started = lambda step: (_ for _ in ()).throw(KeyError)
        with pytest.raises(KeyError):
            train(first)
    before = kinds(ledger)
    with pytest.raises(ValueError, match=r"resume\(\)"):
        train(trainer_for(tmp_path / "run", **options))
    assert kinds(ledger) == before


@pytest.mark.parametrize("relation", ["add-remove", "replace-one", "zero-out"])
def test_without_neighbours_a_run_takes_the_ledgers(tmp_path, relation):
    """And what is charged is what the run promises, under that relation."""
    made = Ledger(tmp_path / f"{relation}.db")
    made.create("people", Budget(50.0, 1e-3), neighbours=relation)
    model = torch.nn.Linear(3, 2)
    trainer = DPSGD(
        model, torch.optim.SGD(model.parameters(), lr=0.1), (X, Y), public_size=len(X), lot_size=8,
        steps=2, noise_multiplier=2.0, delta=1e-5, ledger=made, dataset="people", progress=False,
    )  # fmt: skip
    assert trainer.plan.neighbours == relation
    assert trainer.guarantee.neighbours == relation
    train(trainer)
    plan = next(e for e in made.history("people") if e.kind == "plan")
    assert plan.data["epsilon"] == pytest.approx(trainer.guarantee.epsilon, rel=1e-9)
    made.close()


@pytest.mark.parametrize("other", ["shape", "names", "groups"])
def test_a_copy_that_cannot_be_loaded_leaves_the_folder_it_was_copied_from_free(
    tmp_path, ledger, other
):
    """It fails before it takes a turn, whatever of the model is another."""
    options = {"ledger": ledger, "dataset": "people"}
    train(trainer_for(tmp_path / "run", **options), until=4)
    shutil.copytree(tmp_path / "run", tmp_path / "copy")
    entries = len(ledger.history("people"))
    model = {
        "shape": nn.Linear(4, 2),
        "names": nn.Linear(3, 2, bias=False),
        "groups": nn.Linear(3, 2),
    }
    parameters = [*model[other].parameters()]
    groups = [{"params": [p]} for p in parameters] if other == "groups" else parameters
    trainer = DPSGD(
        model[other], torch.optim.Adam(groups, lr=0.1), (X, Y), plan=plan_for(),
        checkpoints=tmp_path / "copy", checkpoint_every=3, progress=False, **options,
    )  # fmt: skip
    with pytest.raises(ValueError, match="checkpoint was made"):
        trainer.resume()
    assert len(ledger.history("people")) == entries
    assert train(trainer_for(tmp_path / "run", **options).resume()).steps_taken == 10
