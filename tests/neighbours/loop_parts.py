# ruff: noqa: NPY002 - NumPy's global generator is what is tried
"""Parts that people put into training loops, right ones and such as let rows meet.

Each part is a function by name: what is done to a batch in ``augment``, in the model or in the
loss. Which of them may pass is not said here: a loop that is
accepted must keep the law, whatever it is made of.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy.random as legacy
import torch
from tests.neighbours.loop_rows import CLASSES, MARK, TOKENS, WIDTH
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import lr_scheduler as schedules

__all__ = [
    "AUGMENTS", "DROPOUTS", "FILLS", "LOSSES", "MIDDLES", "OWN", "SCHEDULES", "network",
]  # fmt: skip


def _mixed(p: float) -> Callable[[Tensor], Tensor]:
    return lambda x: x.flip(0) if legacy.rand() < p else x


AUGMENTS: dict[str, Callable[[Tensor], Tensor] | None] = {
    "none": None,
    "noise": lambda x: x + torch.randn_like(x.float()),
    "numpy": lambda x: x + torch.from_numpy(legacy.normal(size=x.shape)).float().to(x.device),
    "python": lambda x: x * torch.tensor([[random.choice([1.0, -1.0])] for _ in x]).to(x.device),
    "generator of its own": lambda x: x + torch.randn(x.shape, generator=OWN).to(x.device),
    "mixup": _mixed(1.0),
    "mixup, seldom": _mixed(0.05),
    "largest": lambda x: x.float() / x.abs().amax().clamp(min=1),
    "by place": lambda x: x * torch.linspace(-1, 1, len(x), device=x.device)[:, None],
    "by size": lambda x: x if len(x) % 2 else -x,
}  # fmt: skip
"""What is done to a batch before the model."""
OWN = torch.Generator().manual_seed(1)


FILLS: dict[str, Callable[[Tensor], Tensor]] = {
    "none": lambda x: x,
    "mean": lambda x: torch.where(x.isnan(), x.nanmean(0), x),
    "marks by zero": lambda x: torch.where(x == MARK, 0.0, x),
    "marks by mean": lambda x: torch.where(x == MARK, x[x != MARK].mean(), x),
    "marks by all": lambda x: torch.where((x == MARK).any(), 0.0, x),
    "extremes by largest": lambda x: x.clamp(-1e4, float(x[x.abs() < 1e4].abs().max())),
}
"""What is done about missing numbers."""


def _by_rank_of_draws(h: Tensor) -> Tensor:
    """The row of the largest draw is left out: which it is depends on how many draw."""
    drawn = torch.rand(len(h), device=h.device)
    return h * (drawn < drawn.max())[:, None]


def _one_of_all(h: Tensor) -> Tensor:
    chosen = torch.multinomial(torch.ones(len(h), device=h.device), 1)
    return h + h[chosen]


DROPOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "none": lambda h: h,
    "half": lambda h: F.dropout(h, 0.5),
    "alpha": lambda h: F.alpha_dropout(h, 0.1, training=True),
    "features": lambda h: F.dropout1d(h[..., None], 0.3)[..., 0],
    "rows": lambda h: h * torch.bernoulli(torch.full((len(h), 1), 0.5, device=h.device)),
    "noise": lambda h: h + torch.randn_like(h),
    "all or none": lambda h: h * float(torch.rand(()) < 0.5),
    "by rank of draws": _by_rank_of_draws,
    "one row for all": _one_of_all,
    "shuffled": lambda h: h[torch.randperm(len(h), device=h.device)],
    "features shuffled": lambda h: h[:, torch.randperm(h.shape[1], device=h.device)],
    "classes drawn": lambda h: h * torch.multinomial(F.softmax(h.float(), 1), 1),
    "as many as rows": lambda h: h * torch.randint(1, len(h) + 1, (len(h), 1), device=h.device),
}
"""What is drawn in the model."""


MIDDLES: dict[str, Callable[[Tensor], Tensor]] = {
    "none": lambda h: h,
    "minus mean": lambda h: h - h.mean(0),
    "minus a little of the mean": lambda h: h - 1e-3 * h.mean(0),
    "largest": lambda h: h / h.abs().amax().clamp(min=1e-6),
    "least": lambda h: h - h.amin(0),
    "median": lambda h: h - h.median(0).values,
    "softmax": lambda h: F.softmax(h, 0),
    "by place": lambda h: h * torch.arange(1, len(h) + 1, device=h.device)[:, None],
    "neighbour": lambda h: h + h.roll(1, 0),
    "attention": lambda h: F.softmax(h @ h.T, 1) @ h,
    "sorted": lambda h: h[h[:, 0].argsort()],
    "only if not finite": lambda h: h * 0 if bool(torch.isnan(h).any()) else h,
    "size": lambda h: h / len(h),
    "cumulated": lambda h: h.cumsum(0),
    "largest so far": lambda h: h.cummax(0).values,
    "distances": lambda h: h / torch.cdist(h, h).amax(1, keepdim=True).clamp(min=1e-3),
    "how many alike": lambda h: h / (h[:, :1] == h[:, 0]).sum(1, keepdim=True),
    "if any is large": lambda h: h * 0 if bool((h.abs() > 0.999).all()) else h,
    "rounded by the largest": lambda h: (h / (s := h.detach().abs().amax().clamp(min=1e-6))) * s,
}
"""What is done inside of the model to all rows' features."""


def _each(scores: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(scores, y, reduction="none")


def _by_frequency(scores: Tensor, y: Tensor) -> Tensor:
    counts = torch.bincount(y.clamp(0, CLASSES - 1), minlength=CLASSES).float()
    return _each(scores, y) / counts[y.clamp(0, CLASSES - 1)]


def _to_class_means(scores: Tensor, y: Tensor) -> Tensor:
    mine = F.one_hot(y.clamp(0, CLASSES - 1), CLASSES).to(scores.dtype)
    means = (mine.T @ scores.detach()) / mine.sum(0)[:, None].clamp(min=1)
    return (scores - mine @ means).square().sum(1)


def _hardest(scores: Tensor, y: Tensor) -> Tensor:
    losses = _each(scores, y)
    return losses * (losses >= losses.detach().median())


LOSSES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "each": _each,
    "by the mean": lambda s, y: _each(s, y) / _each(s, y).detach().mean().clamp(min=1e-3),
    "by frequency": _by_frequency,
    "by counted labels": lambda s, y: _each(s, y) / (y != -100).float().mean().clamp(min=1e-3),
    "none if any is bad": lambda s, y: _each(s, y) * float(torch.isfinite(_each(s, y)).all()),
    "to class means": _to_class_means,
    "hardest half": _hardest,
    "of those that are wrong": lambda s, y: _each(s, y) / (s.argmax(1) != y).sum().clamp(min=1),
    "contrast": lambda s, y: _each(s @ s.T, torch.arange(len(s), device=s.device)),
}
"""Losses, a number a row."""


SCHEDULES: dict[str, Callable[[torch.optim.Optimizer], Any]] = {
    "steps": lambda o: schedules.StepLR(o, 1),
    "cosine": lambda o: schedules.CosineAnnealingLR(o, 4),
    "one cycle": lambda o: schedules.OneCycleLR(o, 0.1, total_steps=3),
    "a function": lambda o: schedules.LambdaLR(o, lambda step: 0.5**step),
    "by the loss": lambda o: schedules.ReduceLROnPlateau(o),
}
"""Learning rates over a run."""


class network(nn.Module):  # noqa: N801 - a function in all but name
    """Whatever rows there are, features, a part in the middle, and scores."""

    def __init__(self, kind: str, norm: str, *functions: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.kind = kind
        self.fill, self.middle, self.drop = functions
        self.precision = ""
        self.first: nn.Module = (
            nn.Embedding(TOKENS, 8) if kind.startswith("words") else nn.Linear(WIDTH, 8)
        )
        norms = {"none": nn.Identity, "batch": lambda: nn.BatchNorm1d(8)}
        norms |= {"layer": lambda: nn.LayerNorm(8), "group": lambda: nn.GroupNorm(2, 8)}
        self.recurrent = nn.LSTM(8, 8, batch_first=True) if kind == "words, last" else None
        self.rest = nn.Sequential(norms[norm](), nn.Tanh())
        self.head = nn.Linear(8, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        """Scores."""
        if self.precision == "autocast":
            with torch.autocast(x.device.type, torch.bfloat16):
                return self._scores(x).float()
        return self._scores(x)

    def _scores(self, x: Tensor) -> Tensor:
        if self.kind.startswith("words"):
            found = self.first(x)
            if self.recurrent is not None:
                h = self.recurrent(found)[0][:, -1]
            elif self.kind == "words, masked":
                used = (x != 0).float()[..., None]
                h = (found * used).sum(1) / used.sum(1).clamp(min=1)
            else:
                h = found.mean(1)
        else:
            x = x.to(self.head.weight.dtype)
            h = self.first(self.fill(x))
        return self.head(self.middle(self.drop(self.rest(h))))
