"""Wrong loops and arguments: the remedy is named, before a row is read where it can be known."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import TensorDataset

from sfumato.core.randomness import SeededCoins
from sfumato.learning.dp_sgd import DPSGD, Flat, PoissonLots, TrainingError, TrainingPlan
from sfumato.ledger import LedgerError

PLAN = TrainingPlan(PoissonLots(8, 24), Flat(1.0), 1.0, 3, 1e-5)

pytestmark = pytest.mark.usefixtures("singles")


# --- the loop -----------------------------------------------------------------------------------


def test_a_second_backward(wrong):
    model = nn.Linear(5, 3)
    trainer = wrong.start(model)
    own = wrong.classify(model)

    def twice(*batch):
        trainer.backward(own(*batch))
        return own(*batch)

    with pytest.raises(TrainingError, match="once for each batch"):
        wrong.loop(trainer, twice)
    assert wrong.charges == []


def test_a_backward_outside_the_loop(wrong):
    model = nn.Linear(5, 3)
    trainer = wrong.start(model)
    losses = wrong.classify(model)(*wrong.data())
    with pytest.raises(TrainingError, match="inside its loop"):
        trainer.backward(losses)
    wrong.loop(trainer, wrong.classify(model))
    with pytest.raises(TrainingError, match="inside its loop"):
        trainer.backward(losses)


def test_a_batch_without_backward(wrong):
    model = nn.Linear(5, 3)
    with pytest.raises(TrainingError, match=r"got no backward: call trainer\.backward"):
        list(wrong.start(model))
    assert wrong.charges == []


@pytest.mark.parametrize("seed", range(4))
def test_a_gradient_of_ones_own_before_an_empty_lot(seed):
    """It is refused there as before any other lot: neither applied nor a sign that it was empty."""
    torch.manual_seed(0)
    x, y = torch.randn(50, 5), torch.randint(3, (50,))
    model = nn.Linear(5, 3)
    trainer = DPSGD(
        model, torch.optim.SGD(model.parameters(), lr=1e-3), (x, y), public_size=50, lot_size=0.4,
        steps=200, noise_multiplier=1.0, delta=1e-4, coins=SeededCoins(seed), progress=False,
    )  # fmt: skip
    held = []

    def loop():
        for a, b in trainer:
            assert not held, "the gradient went unseen"
            trainer.backward(F.cross_entropy(model(a), b, reduction="none"))
            if not trainer.rehearsing:
                held.append(model.weight.detach().clone())
                (1e4 * F.cross_entropy(model(a), b)).backward()

    with pytest.raises(TrainingError, match="a gradient that the trainer did not form"):
        loop()
    assert torch.equal(model.weight, held[0])


def test_loss_backward(wrong):
    model = nn.Linear(5, 3)
    own = wrong.classify(model)
    trainer = wrong.start(model)

    def both(*batch):
        losses = own(*batch)
        losses.mean().backward(retain_graph=True)
        return losses

    with pytest.raises(TrainingError, match=r"call trainer\.backward\(losses\) instead of loss"):
        wrong.loop(trainer, both)
    assert wrong.charges == []


def private(trainer, loss, act, model):
    """``act`` before the second private batch's backward."""
    count = 0
    for batch in trainer:
        count += not trainer.rehearsing
        losses = loss(*batch)
        if count == 2:
            act(model)
        trainer.backward(losses)


def _edit(model):
    with torch.no_grad():
        model[0].weight.mul_(0.5)


def _swap(model):
    model[0].weight.data = model[0].weight.data * 0.5


ACTS = {
    "edited": (_edit, "'0.weight' was edited between two steps"),
    "swapped": (_swap, "'0.weight' was edited between two steps"),
    "frozen": (lambda m: m[0].weight.requires_grad_(False), "'0.weight' was frozen during the run"),
    "unfrozen": (lambda m: m[1].weight.requires_grad_(True), "'1.weight' became trainable"),
    "buffer": (lambda m: m[2].seen.add_(1), "'2.seen' changed during the run"),
    "new buffer": (lambda m: m[2].register_buffer("b", torch.ones(1)), "'2.b' changed"),
}


@pytest.mark.parametrize("act", ACTS)
def test_what_only_the_trainer_may_change(wrong, act):
    model = nn.Sequential(nn.Linear(5, 3), nn.Linear(3, 3), nn.Identity())
    model[1].requires_grad_(False)
    model[2].register_buffer("seen", torch.zeros(3))
    change, message = ACTS[act]
    before = copy.deepcopy(model[1].state_dict())
    with pytest.raises(TrainingError, match=message):
        private(wrong.start(model), wrong.classify(model), change, model)
    assert all(torch.equal(v, before[k]) for k, v in model[1].state_dict().items())


@pytest.mark.parametrize("how", ["in place", "assigned", "registered", "instance norm", "grown"])
def test_running_statistics(wrong, how):
    class Counts(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Linear(5, 3)
            self.norm = nn.InstanceNorm1d(5, affine=False, track_running_stats=True)
            if how != "registered":
                self.register_buffer("seen", torch.zeros(5))

        def forward(self, x):
            if how == "in place":
                self.seen.lerp_(x.detach().mean(0), 0.1)
            elif how == "assigned":
                self.seen = 0.9 * self.seen + x.detach().mean(0)
            elif how == "registered":
                self.register_buffer("seen", x.detach().mean(0))
            elif how == "grown":
                self.seen = torch.cat([self.seen, x.detach().mean(0)])
            else:
                x = self.norm(x.unsqueeze(2).expand(-1, -1, 2))[:, :, 0]
            return self.a(x)

    model = Counts()
    message = "(seen|running_mean)' changed.*without running statistics"
    wrong.refused(model, wrong.classify(model), message)


# --- arguments ----------------------------------------------------------------------------------


def test_an_optimizer_over_something_else(wrong):
    model, other = nn.Sequential(nn.Linear(5, 3), nn.Linear(3, 3)), nn.Linear(5, 3)
    with pytest.raises(TrainingError, match=r"'1.weight' is trainable but not in the optimizer"):
        wrong.start(model, optimizer=torch.optim.SGD(model[0].parameters(), lr=0.1))
    both = [*model.parameters(), *other.parameters()]
    with pytest.raises(TrainingError, match=r"make it over model\.parameters"):
        wrong.start(model, optimizer=torch.optim.SGD(both, lr=0.1))
    model.requires_grad_(False)
    with pytest.raises(TrainingError, match="no trainable parameter"):
        wrong.start(model)


def test_an_optimizer_that_looks_at_the_loss_again(wrong):
    model = nn.Linear(5, 3)
    with pytest.raises(TrainingError, match=r"LBFGS.*use SGD or Adam"):
        wrong.start(model, optimizer=torch.optim.LBFGS(model.parameters()))


def test_an_optimizer_of_sparse_gradients(wrong):
    model = nn.Linear(5, 3)
    with pytest.raises(TrainingError, match=r"SparseAdam.*use Adam"):
        wrong.start(model, optimizer=torch.optim.SparseAdam(model.parameters()))


def test_a_lazy_layer(wrong):
    model = nn.Sequential(nn.LazyLinear(4), nn.Linear(4, 3))
    with pytest.raises(TrainingError, match=r"'0.weight' has no shape yet.*made-up inputs"):
        wrong.start(model)


@pytest.mark.parametrize(
    "schedule", ["cosine", torch.optim.lr_scheduler.CosineAnnealingLR, lambda step: 0.9]
)
def test_a_schedule_that_has_no_step(wrong, schedule):
    with pytest.raises(TrainingError, match=r"scheduler must be a schedule of torch's"):
        wrong.start(nn.Linear(5, 3), scheduler=schedule)
    assert wrong.charges == []


class Experts(nn.Module):
    """Each takes the six rows of the batch that suit it best."""

    def __init__(self):
        super().__init__()
        self.route = nn.Linear(5, 2)
        self.experts = nn.ModuleList(nn.Linear(5, 3) for _ in range(2))

    def forward(self, x):
        shares, rows = self.route(x).softmax(-1).topk(6, dim=0)
        out = x.new_zeros(len(x), 3)
        for k, expert in enumerate(self.experts):
            part = shares[:, k, None] * expert(x[rows[:, k]])
            out = out.index_add(0, rows[:, k], part)
        return out


def test_experts_that_choose_their_rows(wrong):
    model = Experts()
    trainer = wrong.start(model)
    with pytest.raises(TrainingError, match=r"could not be formed.*mixes"):
        wrong.loop(trainer, wrong.classify(model))
    assert wrong.charges == []


def test_sparse_embeddings_are_trained_with_dense_gradients():
    model = nn.Sequential(nn.Embedding(9, 4, sparse=True), nn.Flatten(), nn.Linear(12, 3))
    data = TensorDataset(torch.randint(0, 9, (24, 3)), torch.randint(0, 3, (24,)))
    trainer = DPSGD(
        model, torch.optim.Adam(model.parameters()), data, plan=PLAN, coins=SeededCoins(1),
        progress=False,
    )  # fmt: skip
    trainer.fit(lambda m, x, y: F.cross_entropy(m(x), y, reduction="none"))
    assert trainer.steps_taken == 3


def test_a_compiled_model(wrong):
    model = nn.Linear(5, 3)
    with pytest.raises(TrainingError, match=r"compiled already.*fit\(loss, compile=True\)"):
        wrong.start(torch.compile(model, backend="eager"))
    model.compile(backend="eager")
    with pytest.raises(TrainingError, match="compiled already"):
        wrong.start(nn.Sequential(model))


N = 24
BASE = {"public_size": N, "lot_size": 8, "delta": 1e-5, "noise_multiplier": 1.0, "steps": 3}
BAD = {
    "negative epsilon": ({"epsilon": -1.0, "steps": None}, "epsilon must be"),
    "all three": ({"epsilon": 1.0}, "exactly two of epsilon"),
    "one only": ({"steps": None}, "exactly two of epsilon"),
    "steps and epochs": ({"epochs": 1.0}, "steps or epochs"),
    "lot larger than population": ({"lot_size": 25}, "lot_size must be at most public_size"),
    "no population": ({"public_size": None}, "public_size and lot_size must be given"),
    "no delta": ({"delta": None}, "delta must be given"),
    "delta of one": ({"delta": 1.0}, "delta must be"),
    "no noise": ({"noise_multiplier": 1e-9}, "noise_multiplier must be at least 0.01"),
    "negative clip": ({"clip": -1.0}, "clip must be"),
    "no rows at a time": ({"batch_size": 0}, "batch_size must be"),
    "unknown neighbours": ({"neighbours": "twins"}, "neighbours must be"),
    "rows without owners": ({"rows_per_owner": 2}, "rows_per_owner must be 1"),
    "owners of other rows": ({"owners": [1, 2]}, "one for each row of the data"),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_arguments(wrong, what):
    change, message = BAD[what]
    with pytest.raises(ValueError, match=message):
        wrong.start(nn.Linear(5, 3), plan=None, **{**BASE, **change})
    assert wrong.charges == []


def test_a_budget_for_another_unit(wrong):
    with pytest.raises(LedgerError, match="protects one record, the run one owner"):
        wrong.start(nn.Linear(5, 3), plan=wrong.plan(unit="owner"), owners=range(N))


def test_a_budget_that_is_too_small_is_found_before_a_row_is_read(wrong):
    class Untouched(TensorDataset):
        def __getitem__(self, index):
            raise AssertionError("a private row was read")

    small = {"public_size": N, "lot_size": 24, "delta": 1e-5, "noise_multiplier": 0.02, "steps": 9}
    model = nn.Linear(5, 3)
    example = [(torch.zeros(5), torch.tensor(0))]
    trainer = wrong.start(model, Untouched(*wrong.data()), plan=None, example=example, **small)
    with pytest.raises(LedgerError):
        wrong.loop(trainer, wrong.classify(model))
    assert wrong.charges == []
    assert trainer.steps_taken == 0


CONTRADICTIONS = {
    "a plan and its parts": ({"plan": PLAN, "delta": 1e-5}, "leave out delta, or the plan"),
    "a plan and a clip": ({"plan": PLAN, "clip": 3.0}, "leave out clip, or the plan"),
    "lots and their size": (
        {"lots": PoissonLots(5, 24), "lot_size": 8, "steps": 3, "noise_multiplier": 1.0,
         "delta": 1e-5},
        "leave out lot_size and public_size",
    ),
    "a dataset without a ledger": ({"plan": PLAN, "dataset": "people"}, "belong together"),
    "a large delta": (
        {"lot_size": 8, "public_size": 24, "steps": 3, "noise_multiplier": 1.0, "delta": 0.1},
        "delta must be well below 1 over the declared size",
    ),
    "an average of nothing": ({"plan": PLAN, "ema_decay": 2.0}, "ema_decay must be"),
}  # fmt: skip


@pytest.mark.parametrize("case", CONTRADICTIONS)
def test_arguments_that_contradict_each_other(case):
    options, message = CONTRADICTIONS[case]
    model = nn.Linear(5, 3)
    data = (torch.randn(24, 5), torch.zeros(24, dtype=torch.long))
    with pytest.raises(ValueError, match=message):
        DPSGD(model, torch.optim.SGD(model.parameters(), lr=0.1), data, **options)


def small_trainer(model, **options):
    data = (torch.randn(24, 5), torch.zeros(24, dtype=torch.long))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return DPSGD(model, optimizer, data, plan=PLAN, progress=False, **options)


def test_gradients_from_before_the_loop_are_forgotten():
    model = nn.Linear(5, 3)
    model(torch.randn(2, 5)).sum().backward()  # public pre-training, say
    trainer = small_trainer(model)
    trainer.fit(lambda m, x, y: F.cross_entropy(m(x), y, reduction="none"))
    assert trainer.steps_taken == PLAN.steps


def test_evaluating_after_backward_with_gradients_on():
    model = nn.Linear(5, 3)
    trainer = small_trainer(model, ema_decay=0.9)
    for x, y in trainer:
        trainer.backward(F.cross_entropy(model(x), y, reduction="none"))
        model(torch.randn(40, 5))
        with trainer.averaged():
            model(torch.randn(7, 5))
    assert trainer.steps_taken == PLAN.steps


def test_a_schedule_stepped_by_hand_is_refused():
    model = nn.Linear(5, 3)
    trainer = small_trainer(model)
    schedule = torch.optim.lr_scheduler.StepLR(trainer.optimizer, 1, gamma=0.5)

    def run():
        for x, y in trainer:
            trainer.backward(F.cross_entropy(model(x), y, reduction="none"))
            trainer.optimizer.step()  # does nothing, and lets the schedule step without a warning
            schedule.step()

    with pytest.raises(TrainingError, match="scheduler="):
        run()


def test_an_error_on_made_up_rows_says_so():
    model = nn.Sequential(nn.Linear(5, 3), nn.Softmax(1))

    def loss(m, x, y):
        hot = F.one_hot(y, 3).float()
        return F.binary_cross_entropy(m(x), hot, reduction="none").sum(1)

    with pytest.raises(RuntimeError) as caught:
        small_trainer(model).fit(loss)
    assert "made-up rows" in caught.value.__notes__[0]
