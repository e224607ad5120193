"""Mixing that sets in with numbers that made-up rows do not hold; and losses that only look so."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import Dataset, default_collate

from sfumato.learning.dp_sgd import DPSGD, Flat, PoissonLots, TrainingError
from sfumato.learning.dp_sgd.plan import TrainingPlan

pytestmark = pytest.mark.usefixtures("singles")
N, WIDTH, WORDS = 30, 6, 30
generator = torch.Generator().manual_seed(4)
X = torch.randn(N, WIDTH, generator=generator)
COUNTS = torch.randint(0, 100, (N, WIDTH), generator=generator)
TOKENS = torch.randint(0, WORDS, (N, WIDTH), generator=generator)
Y = torch.randint(0, 3, (N,), generator=generator)
TAGS = torch.randint(0, 4, (N, WIDTH), generator=generator)
MIXED = "depends on the other examples"


def classify(model, x, y):
    return F.cross_entropy(model(x), y, reduction="none")


class Net(nn.Module):
    """One layer behind what a case does to its input."""

    def __init__(self, change=lambda x: x.float()):
        super().__init__()
        self.change, self.head = change, nn.Linear(WIDTH, 3)

    def forward(self, x):
        return self.head(self.change(x))


class Words(nn.Module):
    def __init__(self, change=lambda t: t, wide=3):
        super().__init__()
        self.change, self.words, self.head = change, nn.Embedding(WORDS, 4), nn.Linear(4, wide)

    def forward(self, tokens):
        return self.head(self.words(self.change(tokens)).mean(1))


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.head = nn.Embedding(WORDS, 4), nn.Linear(4, 4)

    def forward(self, tokens):
        return self.head(self.words(tokens)).mT


def trained(kit, model, data, loss=classify, own_loop=False, ledger=None, **more):
    plan = TrainingPlan(PoissonLots(N, N), Flat(1.0), 1.0, 1, 1e-5)
    trainer = DPSGD(
        model, torch.optim.SGD(model.parameters(), lr=0.1), data, plan=plan, progress=False,
        ledger=ledger, dataset="people" if ledger else "", **more,
    )  # fmt: skip
    if own_loop:
        kit.run(trainer, loss)
    else:
        trainer.fit(loss)
    assert trainer.steps_taken == 1


def by_range(x):
    return (x - x.min()).float() / (x.max() - x.min()).clamp(min=1)


def imputed(x):
    mean = x.nanmean(0).nan_to_num()
    return torch.where(x.isnan(), mean, x)


def marked(mark, how=torch.eq):
    """The mean of the batch in the place of a mark."""

    def change(x):
        gone = how(x, mark)
        mean = torch.where(gone, 0.0, x).sum(0) / (~gone).sum(0).clamp(min=1)
        return torch.where(gone, mean, x)

    return change


def marked_in_numpy(x):
    rows = x.numpy().copy()
    gone = rows == -999
    if gone.any():
        mean = np.where(gone, 0, rows).sum(0) / np.maximum(1, (~gone).sum(0))
        rows[gone] = np.broadcast_to(mean, rows.shape)[gone]
    return torch.from_numpy(rows)


def cut_where_all_end(x):
    there = (x != -1.0).any(0)
    return torch.where(there, x, 0.0) / there.float().sum().clamp(min=1)


def balanced(model, x, y):
    counts = torch.bincount(y, minlength=3).float()
    weight = counts.sum() / counts / 3 if counts.min() >= 5 else torch.ones(3)
    return F.cross_entropy(model(x), y, weight=weight, reduction="none")


def hard_ones(model, x, y):
    """Three others for each that is there."""
    losses = F.binary_cross_entropy_with_logits(model(x)[:, 0], y, reduction="none")
    k = int(3 * (y == 1).sum())
    if k in range(1, len(y)):
        others = losses.detach().masked_fill(y == 1, -1e9)
        return losses * ((y == 1) | (others >= others.topk(k).values[-1]))
    return losses


def beside_infinity(x):
    finite = x[x.isfinite()]
    return torch.where(x.isinf(), finite.max() if len(finite) else x.new_zeros(()), x)


def squares(model, x, y):
    return (model(x)[:, 0] - y) ** 2


def unless_infinite(model, x, y):
    losses = squares(model, x, y)
    return losses * 0 if losses.isinf().any() else losses


def tagged(model, tokens, tags):
    return F.cross_entropy(model(tokens), tags, reduction="none").sum(1)


def over_the_mean(model, tokens, tags):
    return tagged(model, tokens, tags) / (tags != -100).float().sum(1).mean()


def cut_to_the_longest(tokens):
    return tokens[:, : max(1, int((tokens != WORDS - 1).sum(1).max()))]


def by_classes_there(model, x, y):
    return classify(model, x, torch.unique(y, return_inverse=True)[1])


def over_the_largest_label(model, x, y):
    return (model(x)[:, 0] - y / y.max().clamp(min=1)) ** 2


MIXERS = {
    "the largest": (Net(lambda x: x / x.max()), (COUNTS, Y), classify),
    "the range": (Net(by_range), (COUNTS, Y), classify),
    "the range of short ones": (Net(by_range), (COUNTS.short(), Y), classify),
    "the range of bytes": (Net(by_range), (COUNTS.byte(), Y), classify),
    "in the loss": (Net(), (COUNTS, Y), lambda m, x, y: classify(m, x / x.max(), y)),
    "the largest label": (Net(), (X, Y), over_the_largest_label),
    "labels that are there": (Net(), (X, Y), by_classes_there),
    "labels from the least on": (Net(), (X, Y), lambda m, x, y: classify(m, x, y - y.min())),
    "tokens from the least on": (Words(lambda t: t - t.min()), (TOKENS, Y), classify),
    "tokens that are there": (
        Words(lambda t: torch.unique(t, return_inverse=True)[1]), (TOKENS, Y), classify
    ),
    "cut to the longest": (Words(cut_to_the_longest), (TOKENS, Y), classify),
    "the mean number of labels": (Tagger(), (TOKENS, TAGS), over_the_mean),
    "missing ones": (Net(imputed), (X, Y), classify),
    "infinite ones": (Net(beside_infinity), (X, Y), classify),
    "-999 in place of a number": (Net(marked(-999.0)), (X, Y), classify),
    "a mark of one's own": (Net(marked(-77.5)), (X, Y), classify),
    "numbers far below": (Net(marked(-900.0, torch.lt)), (X, Y), classify),
    "in NumPy": (Net(), (X, Y), lambda m, x, y: classify(m, marked_in_numpy(x), y)),
    "numbers that end in marks": (Net(cut_where_all_end), (X, Y), classify),
    "weights of classes": (Net(), (X, Y), balanced),
    "hard ones": (Net(), (X, (Y == 0).float()), hard_ones),
    "if large": (Net(lambda x: x / 9 if x.nan_to_num().max() > 99 else x), (X, Y), classify),
    "skipped if infinite": (Net(), (X, Y.float()), unless_infinite),
}  # fmt: skip


@pytest.mark.parametrize("own_loop", [False, True], ids=["fit", "own loop"])
@pytest.mark.parametrize("how", MIXERS)
def test_mixing_by_numbers_of_other_sizes(kit, ledger, how, own_loop):
    model, data, loss = MIXERS[how]
    with pytest.raises(TrainingError, match=MIXED):
        trained(kit, model, data, loss, own_loop, ledger)
    assert [entry.kind for entry in ledger.history("people")] == ["open"]


def test_a_batch_that_is_skipped_by_an_except(kit):
    def careful(model, x, y):
        try:
            return classify(model, x, y)
        except IndexError:
            return classify(model, x, 0 * y) * 0

    with pytest.raises(TrainingError, match=MIXED):
        trained(kit, Net(), (X, Y), careful)


class Rows(Dataset):
    def __init__(self, x):
        self.x = x

    def __len__(self):
        return N

    def __getitem__(self, row):
        return self.x[row], Y[row]


@pytest.mark.parametrize(
    ("x", "change"),
    [(COUNTS, by_range), (COUNTS.int(), by_range), (X, imputed), (X, beside_infinity)],
)
@pytest.mark.parametrize("where", ["augment", "collate", "lists"])
def test_before_the_model(kit, where, x, change):
    def collate(items):
        inputs, labels = default_collate([(torch.as_tensor(i), y) for i, y in items])
        return change(inputs), labels

    data = Rows(x.tolist() if where == "lists" else x)
    more = {"augment": change} if where == "augment" else {"collate": collate}
    with pytest.raises(TrainingError, match="mixes the"):
        trained(kit, Net(), (x, Y) if where == "augment" else data, **more)


def nll(model, x, y):
    return -model(x).log_softmax(1).gather(1, y[:, None])[:, 0]


def indexed(model, x, y):
    return -model(x).log_softmax(1)[torch.arange(len(y)), y]


def one_hot(model, x, y):
    return -(model(x).log_softmax(1) * F.one_hot(y, 3)).sum(1)


def by_a_table(model, x, y):
    weights = [1.0, 2.0, 0.5]
    return classify(model, x, y) * torch.tensor([weights[int(each)] for each in y])


def by_a_tensor(model, x, y):
    return classify(model, x, y) * torch.tensor([1.0, 2.0, 0.5])[y]


def masked(tokens):
    return torch.where(tokens == WORDS - 1, 0, tokens)


HONEST = {
    "gather": (Net(), (COUNTS, Y), nll),
    "an index": (Net(), (COUNTS, Y), indexed),
    "one_hot": (Net(), (COUNTS, Y), one_hot),
    "a list": (Net(), (COUNTS, Y), by_a_table),
    "a tensor": (Net(), (COUNTS, Y), by_a_tensor),
    "bytes": (Net(lambda x: x / 255), (COUNTS.byte(), Y), classify),
    "a declared range": (Net(lambda x: (x - 50) / 50), (COUNTS, Y), classify),
    "words": (Words(), (TOKENS, Y), classify),
    "words that are masked": (Words(masked), (TOKENS, Y), classify),
    "words from one on": (Words(lambda t: (t + 1).clamp(max=WORDS - 1)), (TOKENS, Y), classify),
    "tags": (Tagger(), (TOKENS, TAGS), tagged),
    "binary": (Net(), (X, Y), lambda m, x, y: F.binary_cross_entropy_with_logits(
        m(x)[:, 0], y.float(), reduction="none")),
    "squares": (Net(), (X, Y.float()), squares),
    "imputed by zero": (Net(lambda x: x.nan_to_num()), (X, Y), classify),
    "clamped": (Net(lambda x: x.clamp(-9, 9)), (X, Y), classify),
    "by the row's own largest": (
        Net(lambda x: x / x.amax(1, keepdim=True).clamp(min=1)), (COUNTS, Y), classify
    ),
}  # fmt: skip


@pytest.mark.parametrize("own_loop", [False, True], ids=["fit", "own loop"])
@pytest.mark.parametrize("how", HONEST)
def test_honest_losses_pass(kit, how, own_loop):
    model, data, loss = HONEST[how]
    trained(kit, model, data, loss, own_loop)


def test_numbers_that_nobody_checks_are_not_tried(kit):
    """CTC's loss looks beyond its scores, where a label is larger: no error, but other memory."""
    seen = set()

    class Reading(nn.Module):
        def __init__(self):
            super().__init__()
            self.read = nn.GRU(WIDTH, 8, batch_first=True)

        def forward(self, x):
            return self.read(x[:, None].expand(-1, 12, -1))[0].log_softmax(2).transpose(0, 1)

    def loss(model, x, y):
        seen.update(y.flatten().tolist())
        lengths = torch.full((len(x),), 12), torch.full((len(x),), 3)
        return F.ctc_loss(model(x), y, *lengths, reduction="none", zero_infinity=True)

    trained(kit, Reading(), (X, 1 + torch.randint(0, 7, (N, 3), generator=generator)), loss)
    assert seen <= {*range(8)}


def test_many_columns_are_tried_in_groups(kit):
    """One of them makes every loss NaN when it is missing, and must not hide the others."""
    columns = {f"x{i}": X[:, i % WIDTH].clone() for i in range(9)}
    model = nn.Linear(9, 1)

    def loss(model, *values):
        rows = torch.stack([*values[:-1]], 1)
        return (model(imputed(rows))[:, 0] - values[-1]) ** 2

    data = (*columns.values(), Y.float())
    with pytest.raises(TrainingError, match=MIXED):
        trained(kit, model, data, loss)


class OtherRows(Dataset):
    """Items that are made of more than their own row, in one way or another."""

    def __init__(self, how):
        self.how, self.last = how, torch.zeros(WIDTH)

    def __len__(self):
        return N

    def __getitem__(self, row):
        if self.how == "each":
            return X[row] + (self[(row + 1) % N][0] if row % 2 else 0), Y[row]
        if self.how == "remembers":
            self.last, last = X[row], self.last
            return X[row] + last, Y[row]
        if 0 < row < 20:
            return self[(row + 1) % N]
        return X[row], Y[row]


@pytest.mark.parametrize(
    ("how", "said"), [("bad ones", "made of another item"), ("remembers", "or remembers")]
)
def test_a_data_set_whose_items_are_made_of_others(kit, how, said):
    with pytest.raises(TrainingError, match=said):
        trained(kit, Net(), OtherRows(how))


def test_an_item_that_is_made_of_another_is_left_out(kit):
    """As one is that cannot be read; for everybody else the data set is as it was."""

    class Next(OtherRows):
        def __getitem__(self, row):
            return self[row + 1] if row in (20, 21) else (X[row], Y[row])

    class Raising(OtherRows):
        def __getitem__(self, row):
            if row in (20, 21):
                raise OSError
            return X[row], Y[row]

    sums = []
    for data in (Next(""), Raising("")):
        torch.manual_seed(0)
        model = Net()
        trained(kit, model, data, noise=kit.Spy())
        sums.append(torch.cat([p.detach().flatten() for p in model.parameters()]))
    assert torch.allclose(*sums, atol=1e-5)
    assert torch.equal(Next("")[20][0], X[22])


def test_a_class_that_numbers_the_rows_of_another_is_left_alone(kit):
    """Whether or not that other one was trained on before, in the same process."""

    class Base(OtherRows):
        def __getitem__(self, row):
            return X[row], Y[row]

    class Backwards(Base):
        def __getitem__(self, row):
            return super().__getitem__(N - 1 - row)

    trained(kit, Net(), Base(""))
    sums = []
    for data in (Backwards(""), (X.flip(0), Y.flip(0))):
        torch.manual_seed(0)
        model = Net()
        trained(kit, model, data, noise=kit.Spy())
        sums.append(torch.cat([p.detach().flatten() for p in model.parameters()]))
    assert torch.allclose(*sums, atol=1e-5)


def half_of_them(x):
    coins = torch.rand(len(x), 1)
    return x * torch.where(coins <= coins.kthvalue(max(1, len(x) // 2), 0).values, 1.0, -1.0)


COINS_OF_ALL = {
    "half of them": half_of_them,
    "the mean": lambda x: x * (1.0 if torch.rand(len(x)).mean() < 0.5 else -1.0),
    "the first": lambda x: x * (1.0 if torch.rand(len(x))[0] < 0.5 else -1.0),
    "less the mean": lambda x: x + (t := torch.randn(len(x), 1)) - t.mean(),
}


@pytest.mark.parametrize("how", COINS_OF_ALL)
def test_what_follows_from_everybodys_coins(kit, how):
    with pytest.raises(TrainingError, match=MIXED):
        trained(kit, Net(COINS_OF_ALL[how]), (X, Y))


@pytest.mark.parametrize(
    "change",
    [
        lambda x: x * torch.where(torch.rand(len(x), 1) < 0.5, 1.0, -1.0),
        lambda x: x + torch.randn_like(x),
        lambda x: x * (torch.rand(1) < 0.5),
    ],
)
def test_each_rows_own_coins_pass_and_one_for_a_lot_that_is_a_batch(kit, change):
    trained(kit, Net(change), (X, Y))


@pytest.mark.parametrize("where", ["augment", "the loss"])
def test_rare_choices_among_several(kit, where):
    def mixed(x):
        rare = torch.multinomial(torch.tensor([0.999, 0.001]), 1).item()
        return x.flip(0) if rare else x

    more = {"augment": mixed} if where == "augment" else {}
    loss = classify if more else lambda m, x, y: classify(m, mixed(x), y)
    with pytest.raises(TrainingError, match=r"mixes|keeps something|depends"):
        trained(kit, Net(), (X, Y), loss, **more)


def test_rare_mixing_in_the_loss(kit):
    def rare(model, x, y):
        return classify(model, x.flip(0) if torch.rand(()) < 0.001 else x, y)

    for own_loop in (False, True):
        with pytest.raises(TrainingError, match=r"keeps something|depends"):
            trained(kit, Net(), (X, Y), rare, own_loop)


def test_rare_mixing_in_the_model(kit):
    model = Net(lambda x: x.flip(0) if torch.rand(()) < 0.001 else x)
    with pytest.raises(TrainingError, match=MIXED):
        trained(kit, model, (X, Y))
