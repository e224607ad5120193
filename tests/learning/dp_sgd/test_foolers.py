"""Models, losses, collates and augmentations that try to pass the rehearsal; and some that should.

Whatever is refused has cost nothing, whoever it was.
"""

# ruff: noqa: NPY002
import random
from collections import deque

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import Dataset, default_collate

from sfumato.learning.dp_sgd import DPSGD, FixedSizeLots, Flat, PoissonLots, TrainingError
from sfumato.learning.dp_sgd.owners import Owners
from sfumato.learning.dp_sgd.plan import TrainingPlan

pytestmark = pytest.mark.usefixtures("singles")
N = 40
generator = torch.Generator().manual_seed(1)
X = torch.randn(N, 6, generator=generator)
Y = torch.randint(0, 2, (N,), generator=generator)
MIXED = "depends on the other examples|could not be confirmed"


def classify(m, x, y, *_):
    return F.cross_entropy(m(x), y, reduction="none")


def run(ledger, model, data=(X, Y), loss=classify, steps=2, lot=N, fit=None, **more):
    plan = more.pop("plan", None) or TrainingPlan(PoissonLots(lot, N), Flat(0.1), 1.0, steps, 1e-5)
    trainer = DPSGD(
        model, torch.optim.SGD(model.parameters(), lr=0.1), data, plan=plan, ledger=ledger,
        dataset="people", progress=False, **more,
    )  # fmt: skip
    return trainer.fit(loss, **(fit or {}))


def refused(ledger, message, model, **more):
    with pytest.raises(TrainingError, match=message):
        run(ledger, model, **more)
    assert [entry.kind for entry in ledger.history("people")] == ["open"]


class Net(nn.Module):
    """A small network; ``mix`` is what a fooler adds."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(6, 8), nn.Linear(8, 2)

    def mix(self, x):
        return x

    def forward(self, x):
        return self.b(torch.tanh(self.a(self.mix(x))))


def by(mix, **attributes):
    """A network that mixes its input so."""
    model = type("Fooler", (Net,), {"mix": mix})()
    for name, value in attributes.items():
        setattr(model, name, value() if callable(value) else value)
    return model


def test_the_honest_network_passes(ledger):
    run(ledger, Net())
    assert [e.kind for e in ledger.history("people")] == ["open", "plan", "reserve", "commit"]


# --- behind zeros ---------------------------------------------------------------------------------


def at_zero(model):
    """Its last layer begins at zero: every loss is the same, every gradient before it zero."""
    for parameter in model.b.parameters():
        nn.init.zeros_(parameter)
    return model


def test_an_honest_network_begins_where_it_was(ledger):
    model, seen = at_zero(Net()), []

    def loss(m, x, y):
        seen.append([bool(p.any()) for p in m.b.parameters()])
        return classify(m, x, y)

    run(ledger, model, loss=loss, steps=1)
    assert [True, True] in seen  # in the rehearsal
    assert seen[-1] == [False, False]  # on private rows


def places(self, x):
    """Two experts with six places each in a batch: later rows go without."""
    which = F.one_hot((x[:, 2] > 0.5).long(), 2)
    place = (which.cumsum(0) * which).sum(1, keepdim=True)
    return torch.where(place <= 6, x, torch.zeros_like(x))


class Limited(Net):
    """Its backward pass limits the gradient of a batch as a whole."""

    def forward(self, x):
        hidden = torch.tanh(self.a(x))
        if hidden.requires_grad:
            hidden.register_hook(lambda g: torch.where(g.norm() > 0, 5 * g / g.norm(), g))
        return self.b(hidden)


class Adapted(Net):
    """An adapter in two factors, the second of them zero, behind what mixes."""

    def __init__(self):
        super().__init__()
        self.down, self.up = nn.Linear(6, 2, bias=False), nn.Linear(2, 8, bias=False)
        self.a.requires_grad_(False)
        nn.init.zeros_(self.up.weight)

    def forward(self, x):
        low = self.down(x)
        low.register_hook(lambda g: torch.where(g.norm() > 0, 5 * g / g.norm(), g))
        return self.b(torch.tanh(self.a(x) + self.up(low)))


@pytest.mark.parametrize("how", ["places", "limited", "adapted"])
def test_a_last_layer_at_zero_hides_nobody(ledger, how):
    made = {"places": lambda: by(places), "limited": Limited, "adapted": Adapted}[how]()
    refused(ledger, f"{MIXED}|gradient", made if how == "adapted" else at_zero(made))
    assert not (made.up.weight if how == "adapted" else made.b.weight).any()


# --- mixing ---------------------------------------------------------------------------------------


def rolled(x, share=0.5):
    return (1 - share) * x + share * x.roll(1, 0)


def quantised(bits):
    def mix(self, x):
        scale = x.detach().abs().max() / (2 ** (bits - 1) - 1)
        return (x / scale).round() * scale

    return mix


def experts(self, x, least=8):
    """Each of two experts takes half of the batch at most, and a few at least."""
    chosen, keep = self.route(x.detach()).argmax(1), torch.zeros(len(x), 1)
    for expert in (0, 1):
        keep[(chosen == expert).nonzero().flatten()[: max(least, len(x) // 2)]] = 1
    return x * keep


MIXERS = {
    "centred if large": lambda m, x: x - x.mean(0) if len(x) > 20 else x,
    "a little, if large": lambda m, x: x - 1e-3 * x.mean(0) if len(x) > 20 else x,
    "a little, if large, around NaN": lambda m, x: x - 1e-3 * x.nanmean(0) if len(x) > 20 else x,
    "by nan_to_num, if large": lambda m, x: x - x.nan_to_num().mean(0) if len(x) > 20 else x,
    "largest entry": lambda m, x: x / x.abs().amax() if len(x) > 20 else x,
    "by a coin below 0.4": lambda m, x: rolled(x) if torch.rand(()) < 0.4 else x,
    "by a coin above 0.9": lambda m, x: rolled(x) if torch.rand(1).item() > 0.9 else x,
    "by bernoulli": lambda m, x: rolled(x) if torch.bernoulli(torch.tensor(0.3)) else x,
    "8 bits": quantised(8),
    "12 bits": quantised(12),
}


@pytest.mark.parametrize("zero", [False, True])
@pytest.mark.parametrize("how", MIXERS)
def test_mixing_models(ledger, how, zero):
    made = by(MIXERS[how])
    refused(ledger, MIXED, at_zero(made) if zero else made)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("order", ["first come", "last come"])
def test_experts_with_few_places(ledger, seed, order):
    def backwards(self, x):
        return experts(self, x.flip(0)).flip(0)

    torch.manual_seed(seed)
    mix = experts if order == "first come" else backwards
    model = by(mix, route=lambda: nn.Linear(6, 2).requires_grad_(False))
    refused(ledger, MIXED, model)


def test_a_gate_that_is_zero_at_first(ledger):
    class Gate(Net):
        def __init__(self):
            super().__init__()
            self.gate, self.inner = nn.Parameter(torch.zeros(())), nn.Linear(6, 6)
            nn.init.zeros_(self.inner.weight)
            nn.init.zeros_(self.inner.bias)

        def mix(self, x):
            return x + self.gate * self.inner(x.mean(0, keepdim=True).expand_as(x))

    refused(ledger, f"{MIXED}|batch", Gate())


def test_a_gradient_that_is_scaled_by_the_batchs(ledger):
    class Hooked(Net):
        def forward(self, x):
            h = torch.tanh(self.a(x))
            if len(x) > 20:
                h.register_hook(lambda g: g / g.norm())
            return self.b(h)

    refused(ledger, MIXED, Hooked())


def test_a_batch_that_moves_with_its_size(ledger):
    class Moves(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Linear(4, 3, bias=False)

        def forward(self, x):
            if len(x) > 15:
                return self.a(x.transpose(0, 1)).transpose(0, 1).sum((1, 2))
            return self.a(x).sum((1, 2))

    for length, message in ((6, "has its batch in another place"), (N, MIXED)):
        rows = torch.randn(N, length, 4)
        refused(ledger, message, Moves(), data=(rows,), loss=lambda m, x: m(x))


def scaled_by_the_largest(x, largest=20):
    """As code does that does not know whether pictures are in bytes."""
    return x / x.abs().max() if x.abs().max() > largest else x


@pytest.mark.parametrize("where", ["collate", "augment"])
def test_a_batch_that_is_scaled_once_somebody_is_large(ledger, where):
    model, more = Net(), {}
    if where == "augment":
        more["augment"] = scaled_by_the_largest
    if where == "collate":

        def collate(items):
            x, y = default_collate(items)
            return scaled_by_the_largest(x), y

        more = {"data": Rows(), "collate": collate}
    refused(ledger, f"{MIXED}|mixes the", model, **more)


@pytest.mark.parametrize("where", ["model", "collate", "augment"])
def test_pictures_in_bytes_that_are_scaled_once_somebody_is_large(ledger, where):
    x = torch.randint(0, 2, (N, 1, 2, 3), dtype=torch.uint8)

    def scaled(x):
        return (x / 255 if x.max() > 1 else x.float()).flatten(1)

    model = by(lambda self, x: scaled(x)) if where == "model" else Net()
    more = {"data": (x, Y)}
    if where == "augment":
        more["augment"] = scaled
    if where == "collate":

        def collate(items):
            x, y = default_collate(items)
            return scaled(x), y

        more = {"data": Rows(x), "collate": collate}
    refused(ledger, f"{MIXED}|mixes the", model, **more)


def test_a_batch_that_is_turned_if_its_size_is_even(ledger):
    def loss(m, x, y):
        return classify(m, x, y) * (1 if len(x) % 2 else -1)

    for lot in (N, N - 1):
        refused(ledger, MIXED, Net(), loss=loss, lot=lot, batch_size=lot)


def test_an_augment_that_raises_on_a_row_that_is_not_finite(ledger):
    def strict(x):
        if not x.isfinite().all():
            raise ValueError("not finite")
        return x

    refused(ledger, "augment raised ValueError when one row", Net(), augment=strict)


def test_a_loss_over_the_batchs_size(ledger):
    loss = lambda m, x, y: classify(m, x, y) * 1000 / max(len(x), 32)  # noqa: E731
    refused(ledger, MIXED, Net(), loss=loss)


def test_small_mixing_in_mixed_precision(ledger):
    def loss(m, x, y):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            out = m(x)
        return F.cross_entropy(out.float(), y, reduction="none")

    refused(ledger, MIXED, by(lambda m, x: rolled(x, 0.02)), loss=loss)
    run(ledger, Net(), loss=loss)


@pytest.mark.parametrize("rows", [X[:1], X[:1].expand(5, 6), X[:2]])
def test_an_example_of_equal_rows_does_not_blind_the_check(ledger, rows):
    example = (rows.clone(), Y[: len(rows)])
    refused(ledger, MIXED, by(lambda m, x: x - x.mean(0)), example=example)
    run(ledger, Net(), example=example)


def test_coins_that_cannot_be_held_still(ledger):
    """What they decide might not happen in a rehearsal."""
    refused(
        ledger, "Python's random draws", by(lambda m, x: rolled(x) if random.random() < 0 else x)
    )
    refused(ledger, "NumPy's", by(lambda m, x: rolled(x) if np.random.random() < 0 else x))


def test_what_is_dealt_out_among_rows(ledger):
    mixed = by(lambda m, x: 0.9 * x + 0.1 * x[torch.randperm(len(x))])
    refused(ledger, "deals something out", mixed)


# --- remembering ----------------------------------------------------------------------------------


def bank(self, x):
    out = x if self.bank is None else x - self.bank
    if len(x) >= 16:
        self.bank = x.detach().mean(0)
    return out


def centre(self, x):
    self.centre = 0.999 * self.centre + 0.001 * x.detach().mean(0)
    return x - self.centre


def hidden(self, x):
    self._last = x.detach().mean(0)
    return x


def queue(self, x):
    self.seen.append(x.detach().mean(0))
    return x


def nested(self, x):
    self.seen = {"last": [x.detach().mean(0)]}
    return x


def frozen(self, x):
    with torch.no_grad():
        self.mean.copy_(x.nan_to_num().mean(0))
    return x


MEMORIES = {
    "bank": (bank, {"bank": None}),
    "centre": (centre, {"centre": torch.zeros(6)}),
    "hidden": (hidden, {}),
    "queue": (queue, {"seen": lambda: deque(maxlen=3)}),
    "nested": (nested, {}),
    "frozen": (frozen, {"mean": lambda: nn.Parameter(torch.zeros(6), requires_grad=False)}),
}


@pytest.mark.parametrize("how", MEMORIES)
def test_models_that_remember(ledger, how):
    mix, attributes = MEMORIES[how]
    refused(ledger, "changed during the run", by(mix, **attributes))


def test_a_memory_of_numbers_is_seen(ledger):
    def mix(self, x):
        before, self.mean = self.mean, float(x.nan_to_num().mean())
        return x + before

    refused(ledger, "'mean' changed while the losses", by(mix, mean=0.0))


def test_weights_may_be_listed_on_the_model(ledger):
    model = Net()
    model.weights = [model.a.weight, {"head": model.b.weight}]
    run(ledger, model, steps=3)


# --- modes ----------------------------------------------------------------------------------------


class Moody(Net):
    def mix(self, x):
        return x - x.mean(0) if self.training else x


def test_a_mode_that_changes_after_the_check(kit):
    model = Moody().eval()
    trainer = kit.trainer(model, (X, Y), plan=kit.plan(n=N, lot=20.0))

    def loss(m, x, y):
        if not trainer.rehearsing:
            m.train()
        return classify(m, x, y)

    with pytest.raises(TrainingError, match=r"train\(\) to eval\(\) mode, or back"):
        trainer.fit(loss)


def test_a_mode_that_changes_while_the_average_is_looked_at(kit):
    model = Moody().eval()
    trainer = kit.trainer(model, (X, Y), plan=kit.plan(n=N, lot=20.0), ema_decay=0.9)

    def look(trainer, batch):
        with trainer.averaged() as averaged:
            averaged.train()

    with pytest.raises(TrainingError, match=r"train\(\) to eval\(\) mode, or back"):
        kit.run(trainer, classify, after=look)


def test_validation_between_the_steps_is_fine(kit):
    model = Net().eval()  # from an earlier validation
    trainer = kit.trainer(model, (X, Y), plan=kit.plan(n=N, lot=20.0), ema_decay=0.9)
    for x, y in trainer:
        model.train()
        trainer.backward(classify(model, x, y))
        model.eval()
        with torch.no_grad():
            model(X)
        with pytest.raises(KeyError), trainer.averaged():
            raise KeyError  # leaves the run as it was
    assert trainer.steps_taken == 3


# --- collate and augment --------------------------------------------------------------------------


class Rows(Dataset):
    def __init__(self, x=X):
        self.x = x

    def __len__(self):
        return N

    def __getitem__(self, row):
        return self.x[row], Y[row]


def mixup(items, share=1.0, coin=random.random):
    x, y = default_collate(items)
    return (rolled(x) if coin() < share else x), y


COLLATES = {
    "always": mixup,
    "now and then": lambda items: mixup(items, 0.2),
    "by numpy": lambda items: mixup(items, 0.2, np.random.rand),
    "by torch": lambda items: mixup(items, 0.2, lambda: torch.rand(())),
    "labels": lambda items: (lambda x, y: (x, y.roll(1)))(*default_collate(items)),
}


@pytest.mark.parametrize("how", COLLATES)
@pytest.mark.parametrize("example", [None, [(X[i], Y[i]) for i in range(4)]], ids=["", "example"])
def test_mixing_collates(ledger, how, example):
    refused(
        ledger, "collate mixes the items", Net(), data=Rows(), collate=COLLATES[how],
        example=example,
    )  # fmt: skip


def test_a_collate_that_changes_each_item_is_fine(ledger):
    def jitter(items):
        x, y = default_collate(items)
        return x + torch.randn_like(x), y

    run(ledger, Net(), data=Rows(), collate=jitter)


@pytest.mark.parametrize("coin", [random.random, lambda: float(torch.rand(()))])
def test_an_augmentation_that_mixes_now_and_then(ledger, coin):
    refused(
        ledger, "augment mixes the rows", Net(),
        augment=lambda x: rolled(x) if coin() < 0.1 else x,
    )  # fmt: skip


def rolled_among_many(x):
    """Mixed only where there are more rows than a few."""
    return rolled(x) if len(x) > 5 else x


def test_what_mixes_rows_among_many_alone(ledger):
    """It is tried at the size of a physical batch."""
    refused(ledger, "augment mixes the rows", Net(), augment=rolled_among_many)

    def collate(items):
        x, y = default_collate(items)
        return rolled_among_many(x), y

    refused(ledger, "collate mixes the items", Net(), data=Rows(), collate=collate)


@pytest.mark.parametrize("fit", [{}, {"compile": True}], ids=["eager", "compiled"])
@pytest.mark.parametrize("extra", [lambda x: 3.0, lambda x: "a", lambda x: x.mean()])
def test_parts_of_a_batch_without_rows(ledger, extra, fit):
    def collate(items):
        x, y = default_collate(items)
        return x, y, extra(x)

    refused(ledger, "one row for each example, got a", Net(), data=Rows(), collate=collate, fit=fit)


# --- owners ---------------------------------------------------------------------------------------


class Plain:
    def __init__(self, number):
        self.number = number


def test_ids_that_hash_by_identity():
    assert len(Owners([torch.tensor(7) for _ in range(6)], 1)) == 1
    assert len(Owners([np.array(7) for _ in range(6)], 1)) == 1
    assert len(Owners([np.int64(7)] * 6, 1)) == 1
    assert len(Owners([Plain(1) for _ in range(6)], 1)) == 0  # as missing: never used
    assert len(Owners([torch.tensor([7]) for _ in range(6)], 1)) == 0
    assert len(Owners([Plain(1), "ann", Plain(1), "ann"], 2)) == 1


def test_owners_are_not_records(ledger):
    owners = np.arange(N) // 4
    with pytest.raises(ValueError, match=r"unit must name whom the owners are.*got 'record'"):
        run(ledger, Net(), owners=owners, rows_per_owner=4)
    with pytest.raises(ValueError, match="unit must name"):
        DPSGD(
            (model := Net()), torch.optim.SGD(model.parameters()), (X, Y), owners=owners,
            unit="record", public_size=10, lot_size=5, steps=1, noise_multiplier=1.0, delta=1e-3,
        )  # fmt: skip
    assert [entry.kind for entry in ledger.history("people")] == ["open"]


# --- charged, then refused; what one row can do ---------------------------------------------------


def test_lots_of_another_number_of_units_are_refused_before_the_charge(ledger):
    ledger.create("fixed", ledger.terms("people").budget, neighbours="zero-out")
    model = Net()
    with pytest.raises(ValueError, match="declared population 50"):
        DPSGD(
            model, torch.optim.SGD(model.parameters()), (X, Y), lots=FixedSizeLots(5, 50),
            neighbours="zero-out", steps=2, noise_multiplier=2.0, delta=1e-4, ledger=ledger,
            dataset="fixed", progress=False,
        )  # fmt: skip
    assert [entry.kind for entry in ledger.history("fixed")] == ["open"]


def test_a_lot_of_one_row_is_tried_before_the_charge(ledger):
    class Squeezes(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Linear(6, 2)

        def forward(self, x):
            return self.a(x.squeeze()).reshape(len(x), -1)

    refused(ledger, "cannot be trained privately", Squeezes(), data=(X[:, None], Y))


def test_no_private_statistics_are_left_after_an_error(kit):
    norm = nn.BatchNorm1d(6, affine=False)
    model = nn.Sequential(norm, nn.Linear(6, 2)).eval()
    trainer = kit.trainer(model, (X + 7, Y), plan=kit.plan(n=N, lot=20.0))

    def in_train_mode(m, x, y):
        norm.train(not trainer.rehearsing)
        return classify(m, x, y)

    with pytest.raises(TrainingError, match="changed during the run"):
        trainer.fit(in_train_mode)
    assert torch.equal(norm.running_mean, torch.zeros(6))
    assert int(norm.num_batches_tracked) == 0


def test_no_private_gradient_is_left_after_an_error(kit):
    model = Net()
    trainer = kit.trainer(model, (X, Y), plan=kit.plan(n=N, lot=20.0))

    def with_backward(m, x, y):
        losses = classify(m, x, y)
        if not trainer.rehearsing:
            losses.sum().backward(retain_graph=True)
        return losses

    with pytest.raises(TrainingError, match="gradient that the trainer did not form"):
        trainer.fit(with_backward)
    assert all(p.grad is None for p in model.parameters())


# --- no false alarms ------------------------------------------------------------------------------


class Block(nn.Module):
    def __init__(self, inside, outside, stride):
        super().__init__()
        self.one = nn.Conv2d(inside, outside, 3, stride, 1, bias=False)
        self.two = nn.Conv2d(outside, outside, 3, 1, 1, bias=False)
        self.norms = nn.ModuleList(nn.GroupNorm(2, outside) for _ in range(2))
        self.short = nn.Conv2d(inside, outside, 1, stride)

    def forward(self, x):
        h = self.norms[0](self.one(x)).relu()
        return (self.norms[1](self.two(h)) + self.short(x)).relu()


def resnet():
    return nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1), Block(4, 4, 1), Block(4, 8, 2), Block(8, 8, 2),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.2), nn.Linear(8, 2),
    )  # fmt: skip


class Writer(nn.Module):
    """A causal language model, with dropout everywhere."""

    def __init__(self, words=12, width=8, length=6):
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
        layer = nn.TransformerEncoderLayer(width, 2, 16, dropout=0.3, batch_first=True)
        self.body = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(width, words)

    def forward(self, tokens):
        length = tokens.shape[1]
        mask = nn.Transformer.generate_square_subsequent_mask(length)
        h = self.words(tokens) + self.places(torch.arange(length))
        return self.head(F.dropout(self.body(h, mask=mask, is_causal=True), 0.5, self.training))


def next_word(m, x):
    out = m(x[:, :-1])
    return F.cross_entropy(out.mT, x[:, 1:], reduction="none").mean(1)


class Depth(Net):
    """Leaves a layer out now and then, row by row, as stochastic depth does."""

    def forward(self, x):
        keep = torch.rand(len(x), 1) < 0.7
        return self.b(torch.tanh(self.a(x)) * keep + torch.bernoulli(torch.full((len(x), 8), 0.5)))


def in_bfloat(m, x, y):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return F.cross_entropy(m(x), y, reduction="none").float()


def labels(m, x, y):
    wanted = F.one_hot(y, 2).float()
    return F.binary_cross_entropy_with_logits(m(x), wanted, reduction="none").mean(1)


IMAGES = torch.randn(N, 3, 8, 8, generator=generator)
TOKENS = torch.randint(0, 12, (N, 7), generator=generator)
HONEST = {
    "resnet": (resnet, (IMAGES, Y), classify),
    "resnet in bfloat16": (resnet, (IMAGES, Y), in_bfloat),
    "language model": (Writer, (TOKENS,), next_word),
    "stochastic depth": (Depth, (X, Y), classify),
    "labels with logits": (Net, (X, Y), labels),
    "bfloat16": (Net, (X, Y), in_bfloat),
}


@pytest.mark.parametrize("how", HONEST)
def test_honest_models_pass(ledger, how):
    make, data, loss = HONEST[how]
    torch.manual_seed(0)
    assert run(ledger, make(), data=data, loss=loss).steps_taken == 2


@pytest.mark.parametrize("name", ["lstm", "unet", "transformer", "cnn"])
def test_honest_models_of_other_tests_pass_at_a_physical_size(kit, name):
    model, data, loss = kit.case(name, n=N)
    trainer = kit.trainer(model, data, plan=kit.plan(n=N, lot=N, steps=1))
    assert kit.run(trainer, loss).steps_taken == 1


def test_a_loss_that_raises_on_nan_does_so_before_anything_is_read_or_spent(ledger):
    """On a private row it would raise, too, and so tell of it."""
    loss = lambda m, x, y: F.binary_cross_entropy(  # noqa: E731
        m(x).sigmoid(), F.one_hot(y, 2).float(), reduction="none"
    ).mean(1)
    with pytest.raises(RuntimeError, match="between 0 and 1"):
        run(ledger, Net(), loss=loss)
    assert [entry.kind for entry in ledger.history("people")] == ["open"]
