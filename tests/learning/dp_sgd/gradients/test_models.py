"""Whole models, as they are trained: every parameter against the loop over single examples."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F


class Block(nn.Module):
    def __init__(self, ins, outs, stride):
        super().__init__()
        self.one = nn.Conv2d(ins, outs, 3, stride, 1, bias=False)
        self.two = nn.Conv2d(outs, outs, 3, 1, 1, bias=False)
        self.norms = nn.ModuleList(nn.GroupNorm(2, outs) for _ in range(2))
        self.cut = nn.Conv2d(ins, outs, 1, stride) if stride > 1 else nn.Identity()
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x):
        y = self.relu(self.norms[0](self.one(x)))
        y = self.norms[1](self.two(y))
        y += self.cut(x)
        return self.relu(y)


class ResNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.GroupNorm(2, 4), nn.ReLU(True))
        self.blocks = nn.Sequential(Block(4, 4, 1), Block(4, 8, 2))
        self.head = nn.Linear(8, 5)

    def forward(self, x):
        x = F.max_pool2d(self.stem(x), 2)
        return self.head(F.adaptive_avg_pool2d(self.blocks(x), 1).flatten(1))


class Decoder(nn.Module):
    """Decoder only, head tied to the embedding, positions by an embedding of arange."""

    def __init__(self, tied_by_turning=False):
        super().__init__()
        self.tokens, self.places = nn.Embedding(13, 8), nn.Embedding(10, 8)
        layer = nn.TransformerEncoderLayer(
            8, 2, 16, dropout=0.0, batch_first=True, norm_first=True, activation="gelu"
        )
        self.layers = nn.TransformerEncoder(layer, 2, nn.LayerNorm(8), enable_nested_tensor=False)
        self.head = nn.Linear(8, 13, bias=False)
        self.turning = tied_by_turning
        self.head.weight = self.tokens.weight

    def forward(self, tokens):
        x = self.tokens(tokens) + self.places(torch.arange(tokens.shape[1]))
        mask = nn.Transformer.generate_square_subsequent_mask(tokens.shape[1])
        x = self.layers(x, mask, is_causal=True)
        return x @ self.tokens.weight.T if self.turning else self.head(x)


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.down = nn.ModuleList([nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(4, 6, 3, 2, 1)])
        self.middle = nn.Sequential(nn.Conv2d(6, 6, 3, padding="same", dilation=2), nn.ReLU(True))
        self.up = nn.ConvTranspose2d(6, 4, 2, stride=2)
        self.out = nn.Sequential(nn.GroupNorm(4, 8), nn.Conv2d(8, 2, 1))

    def forward(self, x):
        first = F.silu(self.down[0](x))
        deep = self.middle(F.silu(self.down[1](first)))
        return self.out(torch.cat([first, self.up(deep)], 1))


class LanguageModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(9, 5, padding_idx=0)
        self.rnn = nn.LSTM(5, 6, num_layers=2, batch_first=True)
        self.head = nn.Linear(6, 9)

    def forward(self, tokens):
        return self.head(self.rnn(self.tokens(tokens))[0])


class ViT(nn.Module):
    def __init__(self):
        super().__init__()
        self.patches = nn.Conv2d(3, 8, 4, stride=4)
        self.token = nn.Parameter(torch.randn(1, 1, 8))
        self.places = nn.Parameter(torch.randn(1, 5, 8))
        layer = nn.TransformerEncoderLayer(8, 2, 12, dropout=0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
        self.head = nn.Linear(8, 3)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(len(x), -1, -1), x], 1) + self.places
        return self.head(self.layers(x)[:, 0])


class Mixer(nn.Module):
    """Mixes places, then channels, with the batch as the second dimension throughout."""

    def __init__(self):
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(6) for _ in range(2))
        self.places, self.channels = nn.Linear(5, 5), nn.Sequential(nn.Linear(6, 9), nn.GELU())
        self.back, self.scale = nn.Linear(9, 6), nn.Parameter(torch.randn(6))

    def forward(self, x):
        x = x.transpose(0, 1)
        x = x + self.places(self.norms[0](x).permute(1, 2, 0)).permute(2, 0, 1)
        x = x + self.scale * self.back(self.channels(self.norms[1](x)))
        return x.transpose(0, 1)


def images(batch):
    return torch.randn(batch, 3, 8, 8), torch.randint(0, 3, (batch,))


def texts(batch):
    tokens = torch.randint(1, 9, (batch, 7))
    return tokens[:, :-1], tokens[:, 1:]


def vectors(batch):
    return torch.randn(batch, 5, 6), torch.randint(0, 6, (batch, 5))


def cross_entropy(model, x, target):
    scores = model(x)
    if target.ndim == 1:
        return F.cross_entropy(
            scores.flatten(2).sum(2) if scores.ndim == 4 else scores, target, reduction="none"
        )
    return F.cross_entropy(scores.movedim(-1, 1), target, reduction="none").mean(1)


MODELS = {
    "resnet": (ResNet, images),
    "decoder": (Decoder, texts),
    "decoder, turned": (lambda: Decoder(tied_by_turning=True), texts),
    "unet": (UNet, lambda b: (torch.randn(b, 3, 8, 8), torch.randint(0, 2, (b,)))),
    "lstm": (LanguageModel, texts),
    "vit": (ViT, images),
    "mixer": (Mixer, vectors),
}


@pytest.mark.parametrize(("build", "make"), MODELS.values(), ids=MODELS.keys())
@pytest.mark.parametrize("copies", [1, 2, 3])
def test_models(harness, build, make, copies):
    harness(build(), make, cross_entropy, sizes=(5, 2, 1) if copies == 1 else (2, 1), copies=copies)


# torch pools no empty batch, so that the first model is left out
@pytest.mark.parametrize(("build", "make"), list(MODELS.values())[1:], ids=list(MODELS)[1:])
def test_an_empty_batch_gives_nothing(harness, build, make):
    model = build()
    tape = harness.learn(model, make, cross_entropy)
    for ghost in (None, True, False):
        with harness.choosing(ghost):
            gradients = harness.record(tape, model, make(0), cross_entropy)
        for name, piece in gradients.pieces.items():
            shape = dict(model.named_parameters())[name].shape
            assert piece.squared_norms().shape == (0,)
            assert piece.written().shape == (0, *shape)
            assert torch.equal(piece.weighted_sum(torch.ones(0)), torch.zeros(shape))


def test_batches_of_changing_size_on_one_tape(harness):
    model = ViT()
    tape = harness.learn(model, images, cross_entropy)
    for size in (3, 7, 1, 7, 2):
        x = images(size)
        expected = harness.loop(model, x, cross_entropy)
        harness.compare(harness.record(tape, model, x, cross_entropy), expected)
