"""Retraining: ask about many inputs, and train a substitute on the answers.

What the attacker sees: any answers, to inputs she has (natural ones, or uniform noise where she has
none). She need not know what kind of model it is. The substitute is trained to diverge least from
the answers as she sees them; of probabilities that are hidden she uses their total, as
:mod:`~sfumato.attacks.extraction.likelihood` explains.

    >>> from sklearn.tree import DecisionTreeClassifier
    >>> def model(inputs):
    ...     return (inputs[:, 0] > 0.3).astype(int)
    >>> def tree(inputs, labels):
    ...     return DecisionTreeClassifier().fit(inputs, labels).predict
    >>> queries = np.random.default_rng(1).uniform(-1, 1, (200, 2))
    >>> target = Target.of_labels(model).limited(100)
    >>> found = extract_by_retraining(target, queries, tree, classes=2)
    >>> print(found)
    retraining from labels: 100 queries; stopped by the budget

The copy is for the curator only.

References: Tramèr, Zhang, Juels, Reiter and Ristenpart, "Stealing machine learning models via
prediction APIs", USENIX Security 2016, arXiv:1609.02943; Orekondy, Schiele and Fritz, "Knockoff
nets: stealing functionality of black-box models", CVPR 2019, arXiv:1812.02766; Jagielski, Carlini,
Berthelot, Kurakin and Papernot, "High accuracy and high fidelity extraction of neural networks",
USENIX Security 2020, arXiv:1909.01838.
"""

from __future__ import annotations

import contextlib
import copy
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from sfumato.attacks.extraction.answers import Answers, affordable, ask, described
from sfumato.attacks.extraction.stolen import Round, Stolen
from sfumato.attacks.targets import Scorer, Target
from sfumato.attacks.torch_models import probabilities
from sfumato.core import validation

__all__ = [
    "Fit",
    "Training",
    "divergence",
    "extract_by_retraining",
    "module_scorer",
    "train_substitute",
]

Fit = Callable[[NDArray[Any], NDArray[Any]], Scorer]
"""From inputs and answers to a copy. Answers are a row of probabilities each, what is hidden shared
evenly; where a target shows labels alone, they are class numbers. The copy gives a row of
probabilities for each input, or its class number."""


@dataclass(frozen=True)
class Training:
    """How a torch module is trained on answers: Adam, with a rate that falls to 0 as a cosine.

    Attributes:
        epochs: how often all answers are gone through ...
        least_steps: ... but so many steps are taken at least, where answers are few.
        batch_size: answers in a step.
        rate: the learning rate, Adam's, at the start.
        weight_decay: of the weights at each step, decoupled from the gradient (AdamW).
    """

    epochs: int = 20
    least_steps: int = 400
    batch_size: int = 64
    rate: float = 2e-3
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        for name in ("epochs", "least_steps", "batch_size"):
            validation.count(name, getattr(self, name))
        validation.positive("rate", self.rate)
        validation.non_negative("weight_decay", self.weight_decay)

    def steps(self, answers: int) -> int:
        """How many are taken."""
        return max(self.least_steps, self.epochs * -(-answers // self.batch_size))


def extract_by_retraining(
    target: Target,
    inputs: ArrayLike,
    substitute: Fit | nn.Module,
    *,
    classes: int | None = None,
    training: Training | None = None,
    generator: np.random.Generator | None = None,
) -> Stolen:
    """A substitute trained on the target's answers about ``inputs``.

    Args:
        target: shows scores or labels.
        inputs: queries, one a row. If a budget does not allow all, the first are asked.
        substitute: a function that fits one; or a torch module that maps inputs to logits, of which
            a copy is trained from the weights it has.
        classes: how many there are; needed where only labels are shown.
        training: how a module is trained.
        generator: of the order in which a module sees answers; needed if there is a module.
    """
    if isinstance(substitute, nn.Module) and generator is None:
        validation.fail("generator", "given where a module is to be trained", None)
    queries = np.asarray(inputs)
    allowed = affordable(target, len(queries))
    if allowed == 0:
        raise ValueError("inputs must be one or more, and the target's budget must allow one")
    asked = queries[:allowed]
    answers = ask(target, asked, classes)
    history: tuple[Round, ...] = ()
    if isinstance(substitute, nn.Module):
        assert generator is not None
        model = copy.deepcopy(substitute)
        plan = training or Training()
        loss = train_substitute(model, asked, answers, plan, generator=generator)
        predict, history = module_scorer(model), (Round(allowed, loss),)
    else:
        model = None
        predict = substitute(asked, answers.labels if answers.hard else answers.spread())
    return Stolen(
        predict,
        "retraining",
        described(target),
        allowed,
        stopped=allowed < len(queries),
        history=history,
        model=model,
    )


def module_scorer(module: nn.Module) -> Scorer:
    """The module as a function from inputs to probabilities."""
    return lambda inputs: probabilities(module, inputs)


def train_substitute(
    module: nn.Module,
    inputs: NDArray[Any],
    answers: Answers,
    training: Training,
    *,
    generator: np.random.Generator,
) -> float:
    """Trains the module, as it is, on answers; returns its mean divergence in the last epoch.

    What the module itself draws (dropout) follows the generator, too; torch's own is left as it is.
    """
    coins = torch.Generator().manual_seed(int(generator.integers(2**63)))
    seen, *answered = _tensors(module, inputs, answers)
    optimiser = torch.optim.AdamW(
        module.parameters(), lr=training.rate, weight_decay=training.weight_decay
    )
    steps, epoch = training.steps(len(seen)), math.ceil(len(seen) / training.batch_size)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    losses: list[float] = []
    with _training(module, seen.device, coins):
        for rows in _batches(len(seen), training.batch_size, steps, coins):
            optimiser.zero_grad()
            loss = divergence(module(seen[rows]), *(part[rows] for part in answered)).mean()
            loss.backward()
            optimiser.step()
            schedule.step()
            losses.append(loss.item())
    return float(np.mean(losses[-epoch:]))


def _tensors(module: nn.Module, inputs: NDArray[Any], answers: Answers) -> list[Tensor]:
    """Inputs, what is shown, what is hidden and its total, where the module is."""
    device = next(module.parameters()).device
    parts = (
        inputs.astype(np.float32),
        answers.shown.astype(np.float32),
        answers.hidden,
        answers.rest.astype(np.float32),
    )
    return [torch.from_numpy(np.ascontiguousarray(part)).to(device) for part in parts]


@contextlib.contextmanager
def _training(
    module: nn.Module, device: torch.device, generator: torch.Generator
) -> Iterator[None]:
    """The module in training mode, its own draws seeded, and all put back in the end."""
    was = module.training
    module.train()
    try:
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            torch.manual_seed(int(torch.randint(2**62, (1,), generator=generator)))
            yield
    finally:
        module.train(was)


def divergence(logits: Tensor, shown: Tensor, hidden: Tensor, rest: Tensor) -> Tensor:
    """How far a copy is from each answer as it is seen: 0 where it would be seen to be the same.

    That is sum p log(p / q) over what is shown, and r log(r / sum q) over what is hidden.
    """
    logs = logits.log_softmax(dim=1)
    shown_part = (torch.special.entr(shown) + shown * logs).sum(dim=1)
    some = hidden.any(dim=1)
    # Where nothing is hidden, anything finite does: it is multiplied by 0, and so is its slope.
    masked = logs.masked_fill(~hidden & some[:, None], -torch.inf)
    hidden_part = torch.special.entr(rest) + rest * masked.logsumexp(dim=1)
    return -(shown_part + torch.where(some, hidden_part, torch.zeros_like(rest)))


def _batches(count: int, size: int, steps: int, generator: torch.Generator) -> Iterator[Tensor]:
    """So many batches: all rows in a random order, then again in another."""
    taken = 0
    while True:
        for rows in torch.randperm(count, generator=generator).split(size):
            if taken == steps:
                return
            yield rows
            taken += 1
