"""Collates of rows of several lengths: what depends on company is refused, all else bounded."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import Dataset

import sfumato as sf
from sfumato.learning.dp_sgd.company import PublicItems
from sfumato.learning.dp_sgd.made_up import resized, sizes_of

pytestmark = pytest.mark.usefixtures("singles")
N = 20


class Rows(Dataset):
    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, row):
        return self.rows[row]


FORMS = {
    "tensors": lambda t, y: (t, y),
    "arrays": lambda t, y: (t.numpy(), int(y)),
    "lists": lambda t, y: (t.tolist(), int(y)),
    "texts": lambda t, y: (" ".join(f"w{n}" for n in t.tolist()), int(y)),
    "mappings": lambda t, y: {"t": {"ids": t}, "y": y},
    "lists of tensors": lambda t, y: (list(t[:, None]), y),
}


def rows(lengths, form="tensors", seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [
        FORMS[form](
            torch.randint(1, 30, (n,), generator=generator),
            torch.randint(0, 2, (), generator=generator),
        )
        for n in lengths
    ]


def plain(item):
    """Tokens and label of an item in any form."""
    tokens, label = (item["t"]["ids"], item["y"]) if isinstance(item, dict) else item
    if isinstance(tokens, str):
        tokens = [1 + sum(map(ord, word)) % 29 for word in tokens.split()]
    if isinstance(tokens, list) and isinstance(tokens[0], torch.Tensor):
        tokens = torch.cat(tokens)
    return torch.as_tensor(tokens), torch.as_tensor(label)


def longest(items):
    tokens, labels = zip(*map(plain, items), strict=True)
    return pad_sequence(tokens, batch_first=True), torch.stack(labels)


def by_sixty_fours(items):
    tokens, labels = longest(items)
    return F.pad(tokens, (0, -tokens.shape[1] % 64)), labels


def on_the_left(items):
    tokens, labels = longest([(t.flip(0), y) for t, y in items])
    return tokens.flip(1), labels


def shortest(items):
    n = min(len(tokens) for tokens, _ in items)
    return longest([(tokens[:n], label) for tokens, label in items])


def as_the_first(items):
    n = len(items[0][0])
    tokens, labels = longest([(tokens[:n], label) for tokens, label in items])
    return F.pad(tokens, (0, n - tokens.shape[1])), labels


def with_mask(items):
    tokens, labels = longest(items)
    return tokens, labels, tokens != 0


def with_lengths(items):
    return *longest(items), torch.tensor([len(tokens) for tokens, _ in items])


class Mean(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.head = nn.Embedding(30, 4), nn.Linear(4, 2)

    def body(self, tokens, mask):
        return self.words(tokens)

    def forward(self, tokens, mask=None):
        each = self.body(tokens, mask)
        if mask is None:
            return self.head(each.mean(1))
        counted = mask[..., None].float()
        return self.head((each * counted).sum(1) / counted.sum(1))


class Attention(Mean):
    masked = True

    def __init__(self):
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True)

    def body(self, tokens, mask):
        return self.layer(self.words(tokens), src_key_padding_mask=~mask if self.masked else None)


class Blind(Attention):
    masked = False


class Last(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.head = nn.Embedding(30, 4), nn.Linear(4, 2)
        self.body = nn.LSTM(4, 4, batch_first=True)

    def forward(self, tokens, lengths=None):
        out = self.body(self.words(tokens))[0]
        return self.head(
            out[:, -1] if lengths is None else out[torch.arange(len(out)), lengths - 1]
        )


def loss(model, tokens, labels, *more):
    return F.cross_entropy(model(tokens, *more), labels, reduction="none")


def clipped_sum(kit, model, data, collate, own_loop=False, **more):
    """Of a lot that holds everybody."""
    torch.manual_seed(0)
    own, spy = model(), kit.Spy()
    plan = kit.plan(lots=sf.PoissonLots(N + 1, N + 1), steps=1)
    trainer = kit.trainer(own, Rows(data), plan=plan, noise=spy, collate=collate, **more)
    if own_loop:
        kit.run(trainer, loss)
    else:
        trainer.fit(loss)
    return torch.cat([part.flatten() for part in spy.sums])


def moved(kit, model, data, other, collate, **more):
    """How far one row more moves the sum, at the end and at the beginning."""
    usual = clipped_sum(kit, model, data, collate, **more)
    assert float(usual.norm()) > 1
    tables = ([*data, other], [other, *data])
    return max(float((clipped_sum(kit, model, t, collate, **more) - usual).norm()) for t in tables)


REFUSED = {
    "mean": (Mean, longest, "tensors"),
    "mean of arrays": (Mean, longest, "arrays"),
    "mean of lists": (Mean, longest, "lists"),
    "mean of texts": (Mean, longest, "texts"),
    "mean of nested mappings": (Mean, longest, "mappings"),
    "mean of lists of tensors": (Mean, longest, "lists of tensors"),
    "last step": (Last, longest, "tensors"),
    "in multiples": (Mean, by_sixty_fours, "tensors"),
    "on the left": (Mean, on_the_left, "tensors"),
    "cut to the shortest": (Mean, shortest, "tensors"),
    "as long as the first": (Mean, as_the_first, "tensors"),
    "attention to padding": (Blind, with_mask, "tensors"),
}


@pytest.mark.parametrize("lengths", [[4] * N, range(3, 3 + N)], ids=["of one length", "of many"])
@pytest.mark.parametrize("how", REFUSED)
def test_what_depends_on_the_longest_row_is_refused_before_the_charge(kit, ledger, how, lengths):
    model, collate, form = REFUSED[how]
    own = model()
    trainer = kit.trainer(
        own, Rows(rows(lengths, form)), plan=kit.plan(n=N), collate=collate, ledger=ledger,
        dataset="people",
    )  # fmt: skip
    with pytest.raises(sf.TrainingError, match=r"longer or shorter row.*collate=sf\.PadTo"):
        trainer.fit(loss)
    assert [entry.kind for entry in ledger.history("people")] == ["open"]


def to_the_mean(items):
    n = sum(len(tokens) for tokens, _ in items) // len(items)
    return with_mask([(tokens[:n], label) for tokens, label in items])


def to_the_shortest(items):
    n = min(len(tokens) for tokens, _ in items)
    return with_mask([(tokens[:n], label) for tokens, label in items])


def to_a_sum(items, most=2_000):
    """No more tokens in a batch than so many."""
    return with_mask([(tokens[: most // len(items)], label) for tokens, label in items])


@pytest.mark.parametrize("cut", [to_the_mean, to_the_shortest, to_a_sum])
def test_what_is_cut_with_its_company_is_refused_though_the_model_masks(kit, cut):
    """A mean over made-up tokens, which are all alike, is the same however many are left."""
    with pytest.raises(sf.TrainingError, match=r"rows of others.*collate=sf\.PadTo"):
        clipped_sum(kit, Mean, rows([20] * N), cut)


LETTERS = ["a", "bb", "cc bb", "abc d", "d", "ccc aa b"]
TABLE = [torch.arange(1, 3 + n % 7) for n in range(N)]


def by_letters(items):
    return with_mask([(torch.tensor([1 + ord(c) % 29 for c in text]), y) for text, y in items])


def from_a_table(items):
    return with_mask([(TABLE[number], y) for number, y in items])


BY_VALUES = {
    "letters": (by_letters, [(LETTERS[i % 6], torch.tensor(i % 2)) for i in range(N)], {}),
    "a table": (from_a_table, [(i, torch.tensor(i % 2)) for i in range(N)], {}),
    "public rows": (with_mask, rows(range(2, 2 + N)), {"example": rows([3, 9, 5], seed=1)}),
}


@pytest.mark.parametrize("how", BY_VALUES)
def test_lengths_that_follow_from_values_are_bounded_or_refused(kit, how):
    collate, data, more = BY_VALUES[how]
    assert moved(kit, Mean, data[:-1], data[-1], collate, **more) <= 1 + 1e-4

    def unmasked(items):
        return collate(items)[:2]

    with pytest.raises(sf.TrainingError, match="longer or shorter row"):
        clipped_sum(kit, Mean, data, unmasked, **more)


def by_mean_length(model, tokens, labels, mask):
    """A mean over the tokens of all rows, as far as one can tell from rows of one length."""
    return loss(model, tokens, labels, mask) * mask.sum(1) / mask.float().sum(1).mean()


@pytest.mark.parametrize("collate", [sf.PadTo(6, mask=True), with_mask], ids=["PadTo", "longest"])
def test_a_loss_that_counts_the_lengths_of_others_is_refused(kit, collate):
    trainer = kit.trainer(Mean(), Rows(rows([4] * N)), plan=kit.plan(n=N), collate=collate)
    with pytest.raises(sf.TrainingError, match=r"longer or shorter row|depends on the other"):
        trainer.fit(by_mean_length)


def cut(model, tokens, labels, *more):
    """To the longest row of the batch, although all were padded to one length."""
    longest = int((tokens != 0).sum(1).max()) if not more else int(more[0].max())
    return loss(model, tokens[:, : max(1, longest)], labels)


@pytest.mark.parametrize("own_loop", [False, True], ids=["fit", "own loop"])
@pytest.mark.parametrize("example", [False, True], ids=["", "example"])
@pytest.mark.parametrize("told", [False, True], ids=["by zeros", "by lengths"])
def test_a_loss_that_cuts_padded_rows_to_the_longest_is_refused(kit, example, told, own_loop):
    lengths = torch.tensor([2 + n % 5 for n in range(N)])
    tokens = torch.where(torch.arange(9) < lengths[:, None], 1 + torch.arange(9), 0)
    data = (tokens, torch.arange(N) % 2, *((lengths,) if told else ()))
    public = tuple(part[:6] if told else part[:1] for part in data) if example else None
    trainer = kit.trainer(Mean(), data, plan=kit.plan(n=N), example=public)
    train = trainer.fit if not own_loop else lambda loss: kit.run(trainer, loss)
    with pytest.raises(sf.TrainingError, match=r"longer or shorter row|depends on the other"):
        train(cut)


def test_in_a_loop_of_ones_own_it_is_refused_too(kit):
    with pytest.raises(sf.TrainingError, match=r"longer or shorter row"):
        clipped_sum(kit, Mean, rows([4] * N), longest, own_loop=True)


ACCEPTED = {
    "masked mean": (Mean, with_mask),
    "masked attention": (Attention, with_mask),
    "last step by length": (Last, with_lengths),
    "declared length": (Mean, sf.PadTo(6)),
    "declared length, cut": (Last, sf.PadTo(3, keep="end")),
    "declared length and mask": (Attention, sf.PadTo(6, mask=True)),
}


@pytest.mark.parametrize("other", [0, 1, 60], ids=["empty", "shorter", "longer"])
@pytest.mark.parametrize("how", ACCEPTED)
def test_what_does_not_moves_by_one_row_at_most(kit, how, other):
    model, collate = ACCEPTED[how]
    assert moved(kit, model, rows([4] * N), rows([other], seed=1)[0], collate) <= 1 + 1e-4


def test_lengths_that_vary_are_accepted_too(kit):
    data = rows([2 + n % 5 for n in range(N)])
    for model, collate in ACCEPTED.values():
        assert moved(kit, model, data, rows([30], seed=1)[0], collate) <= 1 + 1e-4


def stacked(items):
    images, labels = zip(*items, strict=True)
    return torch.stack(images), torch.stack(labels)


class Pooled(nn.Module):
    def __init__(self):
        super().__init__()
        self.convolution, self.head = nn.Conv2d(1, 3, 3), nn.Linear(3, 2)

    def forward(self, images):
        return self.head(self.convolution(images).relu().mean((2, 3)))


@pytest.mark.parametrize("collate", [None, stacked], ids=["usual", "own"])
def test_images_of_one_shape_pass_and_others_among_them_contribute_nothing(kit, collate):
    def image(size, seed):
        generator = torch.Generator().manual_seed(seed)
        return torch.randn(1, size, size, generator=generator), torch.tensor(seed % 2)

    data = [image(6, seed) for seed in range(N)]
    odd_ones = [image(9, 1), image(0, 1), (image(6, 1)[0].double(), torch.tensor(1)), None]
    for odd in odd_ones if collate else odd_ones[:2]:
        assert moved(kit, Pooled, data, odd, collate) < 1e-6
    assert 0.1 < moved(kit, Pooled, data, image(6, 99), collate) <= 1 + 1e-4


def test_rows_too_long_for_the_model_are_refused_with_the_remedy(kit):
    """One of them would raise in the middle of a run."""

    class Places(Mean):
        def __init__(self):
            super().__init__()
            self.places = nn.Embedding(32, 4)

        def body(self, tokens, mask):
            return self.words(tokens) + self.places(torch.arange(tokens.shape[1]))

    with pytest.raises(IndexError) as caught:
        clipped_sum(kit, Places, rows([20] * N), with_mask)
    assert "sf.PadTo(length)" in caught.value.__notes__[0]
    assert moved(kit, Places, rows([20] * N), rows([60])[0], sf.PadTo(32, mask=True)) <= 1 + 1e-4


def test_jitter_behind_a_mask_is_accepted(kit):
    """A collate that draws coins draws more of them behind a longer row."""

    def jittered(items):
        tokens, labels, mask = with_mask(items)
        noise = torch.stack([torch.randn(1) for _ in items])
        return tokens, labels, mask.float() + 0 * noise

    assert clipped_sum(kit, Mean, rows([4] * N), jittered).isfinite().all()


def test_an_example_of_ones_own_is_made_longer_and_shorter(kit):
    vocabulary = {"w1": 1, "w2": 2}

    def looked_up(items):
        return longest([(torch.tensor([vocabulary[w] for w in t.split()]), y) for t, y in items])

    data = [("w1 w2 w1", 0)] * N
    with pytest.raises(KeyError) as caught:
        clipped_sum(kit, Mean, data, looked_up)
    assert "example=" in caught.value.__notes__[0]
    with pytest.raises(sf.TrainingError, match="longer or shorter row"):
        clipped_sum(kit, Mean, data, looked_up, example=[("w2 w1", 1)])


# --- places, and what is tried at them ------------------------------------------------------------


def tried(collate, item):
    return PublicItems(collate, [item], public=False, any_shape=True)


def test_lengths_that_go_together_are_tried_together():
    def both(items):
        return torch.stack(
            [F.pad(torch.stack([i["a"], i["b"]]), (0, 50 - len(i["a"]))) for i in items]
        ), torch.stack([i["x"] for i in items])

    item = {"a": torch.zeros(4), "b": torch.zeros(4), "x": torch.zeros(4)}
    assert tried(both, item).open_places == {("a", 0), ("b", 0)}


def test_what_lets_nothing_vary_declares_every_length():
    form = tried(stacked, (torch.zeros(1, 4, 4), torch.tensor(0))).form
    assert not form.is_open
    assert form.holds((torch.zeros(5, 1, 4, 4), torch.zeros(5, dtype=torch.long)), 5)
    for wrong in (
        (torch.zeros(5, 1, 4, 5), torch.zeros(5, dtype=torch.long)),
        (torch.zeros(4, 1, 4, 4), torch.zeros(5, dtype=torch.long)),
        (torch.zeros(5, 1, 4, 4).double(), torch.zeros(5, dtype=torch.long)),
        (torch.zeros(5, 1, 4, 4),),
    ):
        assert not form.holds(wrong, 5)
    assert tried(longest, (torch.ones(4, dtype=torch.long), torch.tensor(0))).form.is_open


def test_items_are_made_longer_and_shorter_at_every_place():
    item = {"t": [1, 2, 3], "x": (torch.arange(2.0), "by the river"), "n": 5, "deep": [[1], [2, 3]]}
    sizes = sizes_of(item)
    assert sizes == {
        ("t", "elements"): 3, ("x", 0, 0): 2, ("x", 1, "words"): 3, ("deep", "elements"): 2,
        ("deep", "each", "elements"): 2,
    }  # fmt: skip
    longer = resized(item, {place: size + 1 for place, size in sizes.items()})
    assert longer == {
        "t": [1, 2, 3, 1], "x": longer["x"], "n": 5,
        "deep": [[1, 1, 1], [2, 3, 2], [1, 1, 1]],
    }  # fmt: skip
    assert longer["x"][0].tolist() == [0, 1, 0]
    assert longer["x"][1] == "by the river by"
    assert resized(item, dict.fromkeys(sizes, 0))["t"] == []
