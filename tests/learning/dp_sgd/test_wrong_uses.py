"""Wrong uses are refused with the remedy, before anything is spent where that can be known."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from sfumato.learning.dp_sgd import DPSGD, Flat, PoissonLots, TrainingError, TrainingPlan
from sfumato.ledger import LedgerError

pytestmark = pytest.mark.usefixtures("singles")

N = 24


def data(n=N):
    generator = torch.Generator().manual_seed(1)
    return (
        torch.randn(n, 5, generator=generator),
        torch.randint(0, 3, (n,), generator=generator),
    )


def plan(**more):
    return TrainingPlan(PoissonLots(8, N), Flat(1.0), 1.0, 3, 1e-5, **more)


@pytest.fixture
def start(ledger):
    """A trainer on a real ledger; everything after it must leave the ledger as it is."""

    def make(model, rows=None, optimizer=None, **more):
        chosen = optimizer or torch.optim.SGD(model.parameters(), lr=0.1)
        own = {"plan": plan(), **more}
        return DPSGD(
            model, chosen, data() if rows is None else rows, ledger=ledger, dataset="people",
            progress=False, **own,
        )  # fmt: skip

    return make


def kinds(ledger):
    return [entry.kind for entry in ledger.history("people")]


def loop(trainer, loss):
    for batch in trainer:
        trainer.backward(loss(*batch))


def refused(ledger, start, model, loss, message, rows=None, **more):
    with pytest.raises(TrainingError, match=message):
        loop(start(model, rows, **more), loss)
    assert kinds(ledger) == ["open"]


def linear():
    return nn.Linear(5, 3)


def classify(model):
    return lambda x, y: F.cross_entropy(model(x), y, reduction="none")


def test_the_right_use_is_charged(ledger, start):
    model = linear()
    trainer = start(model)
    loop(trainer, classify(model))
    assert kinds(ledger) == ["open", "plan", "reserve", "commit"]
    assert trainer.record.facts["ledger"]["entry"] == 3


# --- models that mix examples -------------------------------------------------------------------


@pytest.mark.parametrize("kind", [nn.BatchNorm1d, nn.SyncBatchNorm, nn.LazyBatchNorm1d])
def test_batch_norm(ledger, start, kind):
    norm = kind() if kind is nn.LazyBatchNorm1d else kind(6)
    model = nn.Sequential(nn.Linear(5, 6), norm, nn.Linear(6, 3))
    if kind is nn.LazyBatchNorm1d:
        model(torch.zeros(2, 5))
    refused(ledger, start, model, classify(model), r"mixes the examples.*GroupNorm\(6, 6\)")


def test_batch_norm_put_in_training_mode_after_the_trainer_was_made(ledger, start):
    model = nn.Sequential(nn.Linear(5, 6), nn.BatchNorm1d(6), nn.Linear(6, 3)).eval()
    trainer = start(model)
    model.train()
    with pytest.raises(TrainingError, match="GroupNorm"):
        loop(trainer, classify(model))
    assert kinds(ledger) == ["open"]


def test_batch_norm_with_statistics_of_public_data_is_fine(start):
    model = nn.Sequential(nn.Linear(5, 6), nn.BatchNorm1d(6), nn.Linear(6, 3)).eval()
    loop(start(model), classify(model))


class Forward(nn.Module):
    def __init__(self, expression, **parts):
        super().__init__()
        for name, part in parts.items():
            setattr(self, name, part)
        self.expression = expression

    def forward(self, x):
        return self.expression(self, x)


def across(m, x):
    scores = torch.softmax(x @ x.T, -1)
    return m.a(scores @ x)


MIXERS = {
    "centred": lambda m, x: m.a(x - x.mean(0)),
    "scaled": lambda m, x: m.a(x / x.norm()),
    "sorted": lambda m, x: m.a(x.sort(0).values),
    "cumulated": lambda m, x: m.a(x.cumsum(0)),
    "shifted": lambda m, x: m.a(x + x.roll(1, 0)),
    "attention": across,
    "a little": lambda m, x: m.a(x + 0.05 * x.mean(0)),
}


@pytest.mark.parametrize("how", MIXERS)
def test_examples_mixed_in_the_model(ledger, start, how):
    model = Forward(MIXERS[how], a=linear())
    refused(ledger, start, model, classify(model), "depends on the other examples|mixes|two dimen")


def test_attention_that_takes_the_batch_for_time(ledger, start):
    attention = nn.MultiheadAttention(6, 2)  # not batch_first
    model = Forward(lambda m, x: m.b(m.a(x, x, x)[0])[:, 0], a=attention, b=nn.Linear(6, 3))
    rows = (torch.randn(N, 4, 6), data()[1])
    refused(ledger, start, model, classify(model), "depends on the other examples", rows)


def test_a_contrastive_loss(ledger, start):
    model = linear()

    def contrast(x, _):
        z = F.normalize(model(x), dim=1)
        return F.cross_entropy(z @ z.T, torch.arange(len(x)), reduction="none")

    refused(ledger, start, model, contrast, "contrastive loss.*that example alone")


def test_a_memory_of_earlier_batches(ledger, start):
    class Remembers(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.last = linear(), torch.zeros(3)

        def forward(self, x):
            out = self.a(x) + self.last
            self.last = out.detach().mean(0)
            return out

    model = Remembers()
    refused(ledger, start, model, classify(model), "depends on the other examples")


# --- losses -------------------------------------------------------------------------------------


def test_a_mean_loss(ledger, start):
    model = linear()
    refused(ledger, start, model, lambda x, y: F.cross_entropy(model(x), y), 'reduction="none"')


@pytest.mark.parametrize(
    "shape",
    [
        lambda v: v.unsqueeze(1),
        lambda v: v.expand(2, -1),
        lambda v: v[:-1],
        lambda v: torch.cat([v, v]),
        lambda v: v.mean().expand(1),
    ],
)
def test_losses_of_a_wrong_shape(ledger, start, shape):
    model = linear()
    own = classify(model)
    refused(ledger, start, model, lambda x, y: shape(own(x, y)), "losses must have the shape")


def test_a_mean_in_the_shape_of_losses(ledger, start):
    model = linear()
    own = classify(model)
    message = "depends on the other examples"
    refused(ledger, start, model, lambda x, y: own(x, y).mean().expand(len(x)), message)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda v: v.detach(), "no gradient.*without no_grad"),
        (lambda v: v.tolist(), "must be a tensor"),
        (lambda v: v.detach().long(), "must be a tensor of numbers"),
        (lambda v: v / 0, "not finite.*example="),
    ],
)
def test_losses_that_are_none(ledger, start, change, message):
    model = linear()
    own = classify(model)
    refused(ledger, start, model, lambda x, y: change(own(x, y)), message)


@pytest.mark.parametrize("strength", [1.0, 0.05])
def test_a_penalty_on_the_weights(ledger, start, strength):
    model = linear()
    own = classify(model)

    def penalised(x, y):
        return own(x, y) + strength * model.weight.square().sum()

    refused(ledger, start, model, penalised, "'weight'.*penalty on the weights.*weight_decay")


def test_a_layer_called_outside_the_models_forward(ledger, start):
    model = Forward(lambda m, x: m.a(x), a=nn.Linear(5, 6), head=nn.Linear(6, 3))

    def outside(x, y):
        return F.cross_entropy(model.head(model(x)), y, reduction="none")

    refused(ledger, start, model, outside, "'head.*could not be confirmed.*inside forward")


def test_a_model_run_around_its_call(ledger, start):
    model = linear()
    refused(
        ledger, start, model,
        lambda x, y: F.cross_entropy(model.forward(x), y, reduction="none"), "inside forward",
    )  # fmt: skip


def test_an_unsupported_use_of_a_parameter(ledger, start):
    model = Forward(lambda m, x: m.a(x) + m.b[: len(x)], a=linear())
    model.b = nn.Parameter(torch.randn(500, 3))
    refused(ledger, start, model, classify(model), "cannot be trained privately.*freeze")


# --- batches ------------------------------------------------------------------------------------


def test_data_that_is_not_the_trainers(ledger, start):
    model = linear()
    x, y = data()
    own = classify(model)
    refused(ledger, start, model, lambda *_: own(x, y), "use the batch as it was handed out")


def test_part_of_a_batch(ledger, start):
    model = linear()
    own = classify(model)
    refused(ledger, start, model, lambda x, y: own(x[:2], y[:2]), "as it was handed out")


def test_a_loader_as_data(start):
    loader = DataLoader(TensorDataset(*data()), batch_size=4)
    with pytest.raises(ValueError, match=r"DataLoader: pass its \.dataset"):
        start(linear(), loader)


def test_labels_of_another_length(start):
    x, y = data()
    with pytest.raises(ValueError, match="as many rows"):
        start(linear(), (x, y[:-1]))


@pytest.mark.parametrize("form", ["tuple", "dict", "thin", "whole numbers"])
def test_mixup(ledger, start, form):
    x, y = data()
    if form == "thin":
        x = x[:, :1]
    if form == "whole numbers":
        x = (x > 0).to(torch.uint8)
    rows = {"x": x, "y": y} if form == "dict" else (x, y)

    def mixup(batch):
        if isinstance(batch, dict):
            return {**batch, "x": mixup(batch["x"])}
        return 2 * batch + batch[torch.randperm(len(batch))]

    trainer = start(nn.Linear(x.shape[1], 3), rows, augment=mixup)
    with pytest.raises(TrainingError, match="mixes the rows.*each row by itself"):
        next(iter(trainer))
    assert kinds(ledger) == ["open"]


def test_an_augmentation_that_changes_the_number_of_rows(ledger, start):
    trainer = start(linear(), augment=lambda x: torch.cat([x, x]))
    with pytest.raises(TrainingError, match="augment must keep the rows"):
        next(iter(trainer))
    with pytest.raises(ValueError, match="there is no augment"):
        start(linear(), augmentations=4)


def test_an_augmentation_by_other_generators_and_to_other_shapes_is_fine(start):
    import random

    import numpy as np

    def crop(x):
        at = random.randrange(2)
        return x[:, at : at + 4] + float(np.random.rand())  # noqa: NPY002

    model = nn.Linear(4, 3)
    loop(start(model, augment=crop, augmentations=2), classify(model))


# --- the loop -----------------------------------------------------------------------------------


def test_a_second_backward(ledger, start):
    model = linear()
    trainer = start(model)
    own = classify(model)
    with pytest.raises(TrainingError, match="once for each batch"):
        for batch in trainer:
            trainer.backward(own(*batch))
            trainer.backward(own(*batch))
    assert kinds(ledger) == ["open"]


def test_a_backward_outside_the_loop(ledger, start):
    model = linear()
    trainer = start(model)
    losses = classify(model)(*data())
    with pytest.raises(TrainingError, match="inside its loop"):
        trainer.backward(losses)
    loop(trainer, classify(model))
    with pytest.raises(TrainingError, match="inside its loop"):
        trainer.backward(losses)


def test_a_batch_without_backward(ledger, start):
    model = linear()
    with pytest.raises(TrainingError, match=r"got no backward: call trainer\.backward"):
        for _ in start(model):
            pass
    assert kinds(ledger) == ["open"]


def test_loss_backward(ledger, start):
    model = linear()
    own = classify(model)
    trainer = start(model)
    with pytest.raises(TrainingError, match=r"call trainer\.backward\(losses\) instead of loss"):
        for batch in trainer:
            losses = own(*batch)
            losses.mean().backward(retain_graph=True)
            trainer.backward(losses)
    assert kinds(ledger) == ["open"]


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
def test_what_only_the_trainer_may_change(start, act):
    model = nn.Sequential(linear(), nn.Linear(3, 3), nn.Identity())
    model[1].requires_grad_(False)
    model[2].register_buffer("seen", torch.zeros(3))
    change, message = ACTS[act]
    before = copy.deepcopy(model[1].state_dict())
    with pytest.raises(TrainingError, match=message):
        private(start(model), classify(model), change, model)
    assert all(torch.equal(v, before[k]) for k, v in model[1].state_dict().items())


@pytest.mark.parametrize("how", ["in place", "assigned", "registered", "instance norm", "grown"])
def test_running_statistics(ledger, start, how):
    class Counts(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = linear()
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
    refused(ledger, start, model, classify(model), message)


# --- arguments ----------------------------------------------------------------------------------


def test_an_optimizer_over_something_else(start):
    model, other = nn.Sequential(linear(), nn.Linear(3, 3)), linear()
    with pytest.raises(TrainingError, match=r"'1.weight' is trainable but not in the optimizer"):
        start(model, optimizer=torch.optim.SGD(model[0].parameters(), lr=0.1))
    both = [*model.parameters(), *other.parameters()]
    with pytest.raises(TrainingError, match=r"make it over model\.parameters"):
        start(model, optimizer=torch.optim.SGD(both, lr=0.1))
    model.requires_grad_(False)
    with pytest.raises(TrainingError, match="no trainable parameter"):
        start(model)


def test_a_compiled_model(start):
    model = linear()
    with pytest.raises(TrainingError, match=r"compiled already.*fit\(loss, compile=True\)"):
        start(torch.compile(model, backend="eager"))
    model.compile(backend="eager")
    with pytest.raises(TrainingError, match="compiled already"):
        start(nn.Sequential(model))


BASE = {"public_size": N, "lot_size": 8, "delta": 1e-5, "noise_multiplier": 1.0, "steps": 3}
BAD = {
    "negative epsilon": ({"epsilon": -1.0, "steps": None}, "epsilon must be"),
    "all three": ({"epsilon": 1.0}, "exactly two of epsilon"),
    "one only": ({"steps": None}, "exactly two of epsilon"),
    "steps and epochs": ({"epochs": 1.0}, "steps or epochs"),
    "lot larger than population": ({"lot_size": 25}, "size must be at most the population"),
    "no population": ({"public_size": None}, "public_size and lot_size must be given"),
    "no delta": ({"delta": None}, "delta must be given"),
    "delta of one": ({"delta": 1.0}, "delta must be"),
    "no noise": ({"noise_multiplier": 1e-9}, "noise_multiplier must be at least 0.01"),
    "negative clip": ({"clip": -1.0}, "clip must be"),
    "no rows at a time": ({"batch_size": 0}, "batch_size must be"),
    "unknown neighbours": ({"neighbours": "twins"}, "neighbours must be"),
    "rows without owners": ({"rows_per_owner": 2}, "rows_per_owner must be 1"),
    "owners of other rows": ({"owners": [1, 2]}, "one for each of 24 rows"),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_arguments(ledger, start, what):
    change, message = BAD[what]
    with pytest.raises(ValueError, match=message):
        start(linear(), plan=None, **{**BASE, **change})
    assert kinds(ledger) == ["open"]


def test_a_budget_for_another_unit(ledger, start):
    with pytest.raises(LedgerError, match="protects one record, the run one owner"):
        start(linear(), plan=plan(unit="owner"), owners=range(N))


def test_a_budget_that_is_too_small_is_found_before_a_row_is_read(ledger, start):
    class Untouched(TensorDataset):
        def __getitem__(self, index):
            raise AssertionError("a private row was read")

    small = {"public_size": N, "lot_size": 24, "delta": 1e-5, "noise_multiplier": 0.02, "steps": 9}
    model = linear()
    example = [(torch.zeros(5), torch.tensor(0))]
    trainer = start(model, Untouched(*data()), plan=None, example=example, **small)
    with pytest.raises(LedgerError):
        loop(trainer, classify(model))
    assert kinds(ledger) == ["open"]
    assert trainer.steps_taken == 0
