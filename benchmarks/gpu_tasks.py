"""Models, made-up data and losses for the GPU benchmark: see dp_sgd_gpu.py.

Every loss gives one number for each example; a language model's is the mean over its tokens. The
models are plain modules (Linear, Conv2d, Embedding, LayerNorm, GroupNorm), so that every engine can
work on them; position numbers are given for each example, as Opacus needs. Values do not change
the time, so images are normal numbers and labels uniform.

========  ==================================================================================
cnn       the CNN of Opacus' MNIST example, 28x28, batch 2048
wrn       WRN-16-4 with group normalisation, 32x32, batch 512
wrn4096   the same, batch 4096
wrnstd    the same with standardised weights, for which the peers have no rules; batch 512
vit       ViT-small: 12 layers, 384 wide, 6 heads, patches of 4 at 32x32, batch 512
gpt       12 layers, 768 wide, 12 heads, 8192 words, 256 tokens, batch 32
gpt1024   the same with 1024 tokens, batch 8
lora      gpt frozen, rank-16 adapters on its attention's matrices, batch 32
========  ==================================================================================
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn import functional as F

Loss = Callable[[nn.Module, Tensor, Tensor], Tensor]
Batch = tuple[Tensor, Tensor]


class Attention(nn.Module):
    """Self-attention within one example."""

    def __init__(self, width: int, heads: int, causal: bool) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.asked = nn.Linear(width, 3 * width)
        self.told = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        """(n, tokens, width) to the same."""
        rows, tokens, width = x.shape
        parts = self.asked(x).split(width, 2)
        q, k, v = (p.view(rows, tokens, self.heads, -1).transpose(1, 2) for p in parts)
        found = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return self.told(found.transpose(1, 2).reshape(rows, tokens, width))


class Block(nn.Module):
    """Attention, then a perceptron for each token; each normalised first, beside a shortcut."""

    def __init__(self, width: int, heads: int, causal: bool) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads, causal)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        """Both."""
        x = x + self.attention(self.first(x))
        return x + self.narrow(F.gelu(self.wide(self.second(x))))


def _positions(x: Tensor, tokens: int) -> Tensor:
    return torch.arange(tokens, device=x.device).repeat(len(x), 1)


class Gpt(nn.Module):
    """A language model with learned positions and an output layer of its own."""

    def __init__(self, words: int, tokens: int, layers: int, width: int, heads: int) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(tokens, width)
        self.blocks = nn.Sequential(*(Block(width, heads, causal=True) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)
        for embedding in (self.words, self.places):
            nn.init.normal_(embedding.weight, std=0.02)

    def forward(self, x: Tensor) -> Tensor:
        """(n, tokens) numbers of words to (n, tokens, words) logits."""
        found = self.words(x) + self.places(_positions(x, x.shape[1]))
        return self.head(self.norm(self.blocks(found)))


class Vit(nn.Module):
    """A vision transformer with learned positions, pooled by the mean."""

    def __init__(self, side: int, patch: int, layers: int, width: int, heads: int) -> None:
        super().__init__()
        self.tokens = (side // patch) ** 2
        self.patches = nn.Conv2d(3, width, patch, patch)
        self.places = nn.Embedding(self.tokens, width)
        self.blocks = nn.Sequential(*(Block(width, heads, causal=False) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 10)
        nn.init.normal_(self.places.weight, std=0.02)

    def forward(self, x: Tensor) -> Tensor:
        """(n, 3, side, side) to (n, 10) logits."""
        found = self.patches(x).flatten(2).transpose(1, 2)
        found = found + self.places(_positions(x, self.tokens))
        return self.head(self.norm(self.blocks(found)).mean(1))


class Adapted(nn.Module):
    """A frozen matrix and a trained one of low rank beside it.

    Hu et al., "LoRA: low-rank adaptation of large language models", arXiv:2106.09685. Both factors
    start at random: with the usual zeros the first step would have no gradients to check.
    """

    def __init__(self, base: nn.Linear, rank: int) -> None:
        super().__init__()
        self.base = base
        self.down = nn.Linear(base.in_features, rank, bias=False)
        self.up = nn.Linear(rank, base.out_features, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """The sum."""
        return self.base(x) + self.up(self.down(x))


def cnn() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 16, 8, 2, padding=3), nn.ReLU(), nn.MaxPool2d(2, 1),
        nn.Conv2d(16, 32, 4, 2), nn.ReLU(), nn.MaxPool2d(2, 1),
        nn.Flatten(), nn.Linear(32 * 4 * 4, 32), nn.ReLU(), nn.Linear(32, 10),
    )  # fmt: skip


def wrn(tiny: bool, standardised: bool) -> nn.Module:
    from sfumato.learning.models import make_model

    options = {"depth": 10, "width": 1} if tiny else {"depth": 16, "width": 4}
    model = make_model("wrn", (3, 8, 8) if tiny else (3, 32, 32), 10, **options)
    return model if standardised else _ordinary(model)


def _ordinary(module: nn.Module) -> nn.Module:
    """The same network, its standardised convolutions replaced by ordinary ones."""
    from sfumato.learning.models.wrn import StandardizedConv

    for name, child in module.named_children():
        if isinstance(child, StandardizedConv):
            after, before, side, _ = child.weight.shape
            conv = nn.Conv2d(before, after, side, child.stride, child.padding)
            module.register_module(name, conv)
        else:
            _ordinary(child)
    return module


def vit(tiny: bool) -> nn.Module:
    return Vit(8, 4, 2, 32, 2) if tiny else Vit(32, 4, 12, 384, 6)


def gpt(tiny: bool, tokens: int) -> nn.Module:
    return Gpt(64, tokens, 2, 32, 2) if tiny else Gpt(8192, tokens, 12, 768, 12)


def lora(tiny: bool, tokens: int) -> nn.Module:
    model = gpt(tiny, tokens).requires_grad_(False)
    for part in [m for m in model.modules() if isinstance(m, Attention)]:
        rank = 4 if tiny else 16
        part.asked, part.told = Adapted(part.asked, rank), Adapted(part.told, rank)  # type: ignore[assignment]
    return model


@dataclass(frozen=True)
class Task:
    """One row of the benchmark.

    Attributes:
        make: a fresh model.
        inputs: shape of an example; of one number, tokens.
        classes: labels, or words.
        rows: the batch.
        adam: AdamW instead of SGD with momentum.
        images: whether channels-last is worth a try.
        origin: parts of names of the first trained layers, for fastDP's shortcut.
    """

    name: str
    make: Callable[[], nn.Module]
    inputs: tuple[int, ...]
    classes: int
    rows: int
    adam: bool = True
    images: bool = False
    origin: tuple[str, ...] = ()

    def model(self, device: str) -> nn.Module:
        """The model with the same start in every process."""
        torch.manual_seed(0)
        return self.make().to(device)

    def batch(self, rows: int, device: str) -> Batch:
        """Fresh random examples."""
        if len(self.inputs) == 1:
            shape = (2, rows, *self.inputs)
            x, y = torch.randint(0, self.classes, shape, device=device).unbind(0)
            return x.clone(), y.clone()
        x = torch.randn(rows, *self.inputs, device=device)
        return x, torch.randint(0, self.classes, (rows,), device=device)

    def spread(self, rows: int, device: str) -> Batch:
        """Examples whose gradients differ in length where the model allows it.

        Images of different contrast and brightness; texts of 1, 2, 4, ... different words.
        """
        x, y = self.batch(rows, device)
        levels = torch.arange(rows, device=device)
        if len(self.inputs) == 1:
            words = (2**levels).clamp(max=self.classes).view(-1, 1)
            return x % words, y % words
        levels = levels.view(-1, 1, 1, 1) / rows
        return x * 2 ** (4 * levels - 2) + 2 * levels, y

    def loss(self, precision: str, device: str) -> Loss:
        """``loss(model, x, y)``: one number for each example."""
        half = precision == "bf16"

        def losses(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
            with torch.autocast(device, torch.bfloat16, enabled=half):
                out = model(x)
                if out.ndim == 2:
                    return F.cross_entropy(out, y, reduction="none")
                each = F.cross_entropy(out.flatten(0, 1), y.flatten(), reduction="none")
                return each.view(y.shape).mean(1)

        return losses

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        """With one fused kernel where torch has it. Steps are small, so that norms stay alike."""
        trained = [p for p in model.parameters() if p.requires_grad]
        if self.adam:
            return torch.optim.AdamW(trained, lr=1e-6, fused=True)
        return torch.optim.SGD(trained, lr=1e-4, momentum=0.9, fused=True)


@dataclass
class Setting:
    """What every engine is made from."""

    task: Task
    model: nn.Module
    loss: Loss
    device: str
    rows: int
    clip: float
    fastdp: str = ""

    def __post_init__(self) -> None:
        self.optimizer = self.task.optimizer(self.model)

    @property
    def trained(self) -> dict[str, Tensor]:
        """The trained parameters by name."""
        return {n: p for n, p in self.model.named_parameters() if p.requires_grad}


def tasks(tiny: bool = False) -> dict[str, Task]:
    """All of them by name, or all of them small enough for a processor and a minute."""
    picture = (3, 8, 8) if tiny else (3, 32, 32)
    short, long = (16, 32) if tiny else (256, 1024)
    words = 64 if tiny else 8192
    first = ("words", "places")
    listed = (
        Task("cnn", cnn, (1, 28, 28), 10, 2048, False, True, ("0.bias",)),
        Task("wrn", lambda: wrn(tiny, False), picture, 10, 512, False, True, ("0.bias",)),
        Task("wrn4096", lambda: wrn(tiny, False), picture, 10, 4096, False, True, ("0.bias",)),
        Task("wrnstd", lambda: wrn(tiny, True), picture, 10, 512, False, True),
        Task("vit", lambda: vit(tiny), picture, 10, 512, origin=("patches.bias", "places")),
        Task("gpt", lambda: gpt(tiny, short), (short,), words, 32, origin=first),
        Task("gpt1024", lambda: gpt(tiny, long), (long,), words, 8, origin=first),
        Task("lora", lambda: lora(tiny, short), (short,), words, 32),
    )
    return {t.name: replace(t, rows=min(t.rows, 16)) if tiny else t for t in listed}


def reference(
    loss: Loss, model: nn.Module, x: Tensor, y: Tensor, counts: Sequence[float], clip: float
) -> tuple[dict[str, Tensor], list[float]]:
    """The clipped sum by a loop, example i counted ``counts[i]`` times, and all norms; float64."""
    trained = {n: p for n, p in model.named_parameters() if p.requires_grad}
    total = {n: torch.zeros_like(p, dtype=torch.float64) for n, p in trained.items()}
    norms: list[float] = []
    for i, count in enumerate(counts):
        value = loss(model, x[i : i + 1], y[i : i + 1]).sum()
        found = torch.autograd.grad(value, list(trained.values()))
        norms.append(math.sqrt(sum(float(g.double().square().sum()) for g in found)))
        for name, g in zip(trained, found, strict=True):
            total[name].add_(g.double(), alpha=count * min(1.0, clip / norms[-1]))
    return total, norms


def weighted_sum(
    loss: Loss, model: nn.Module, x: Tensor, y: Tensor, weights: Tensor
) -> dict[str, Tensor]:
    """The gradient of the weighted losses of a batch: what plain training makes of the same."""
    trained = {n: p for n, p in model.named_parameters() if p.requires_grad}
    total = (loss(model, x, y) * weights).sum()
    found = torch.autograd.grad(total, list(trained.values()))
    return dict(zip(trained, found, strict=True))


def length(sums: Mapping[str, Tensor]) -> float:
    """The L2 norm of all parameters together."""
    return math.sqrt(sum(float(s.double().square().sum()) for s in sums.values()))


def distance(found: Mapping[str, Tensor], right: Mapping[str, Tensor]) -> float:
    """Relative L2 distance of all parameters together; what is missing counts as 0."""
    off = {n: (found[n].double() if n in found else 0) - r for n, r in right.items()}
    return length(off) / length(right)
