"""What a defence costs: the same network trained on defended updates, and how well it does.

Defences can only be compared where they cost the same. Each round some participants with B examples
each, drawn afresh, send their updates; the server takes a step of the mean, with momentum. With k
local steps at the server's rate an update is k gradients long, as in federated averaging.

    >>> import torch
    >>> inputs = torch.rand(200, 4, generator=torch.Generator().manual_seed(0))
    >>> labels = (inputs[:, 0] > 0.5).long()
    >>> model = nn.Linear(4, 2)
    >>> found = train_on_updates(model, inputs, labels, rounds=200, batch=8, rate=0.5,
    ...                          participants=2, generator=np.random.default_rng(0))
    >>> accuracy(found, inputs, labels) > 0.9
    True

Nothing here is a release: it is a simulation with noise from a generator that is given.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from sfumato.attacks.gradients.defences import Defence, LocalSteps
from sfumato.attacks.gradients.searching import Told
from sfumato.attacks.gradients.sharing import share_gradients
from sfumato.attacks.torch_models import evaluating
from sfumato.core import validation

__all__ = ["accuracy", "train_on_updates"]

_BATCH = 2000
_TELL = 100


def train_on_updates(
    module: nn.Module,
    inputs: Tensor,
    labels: Tensor,
    *,
    rounds: int,
    batch: int,
    rate: float,
    generator: np.random.Generator,
    participants: int = 1,
    defences: Sequence[Defence] = (),
    momentum: float = 0.9,
    told: Told | None = None,
) -> nn.Module:
    """A copy of the model after so many rounds; the rate falls to zero like a cosine.

    Args:
        module: the model at its beginning; left as it is.
        inputs: all examples, on its device.
        labels: their classes.
        rounds: steps of the server.
        batch: B, examples of each participant.
        rate: the first; local steps have the same rate as long as it lasts.
        generator: of examples, masks and noise.
        participants: of a round.
        defences: between examples and updates; local steps take the server's rate.
        momentum: of the server.
        told: how many rounds are done, of how many.
    """
    rounds, batch = validation.count("rounds", rounds), validation.count("batch", batch)
    rate = validation.positive("rate", rate)
    model = copy.deepcopy(module)
    weights = {name: p for name, p in model.named_parameters() if p.requires_grad}
    speed = {name: torch.zeros_like(p) for name, p in weights.items()}
    people = validation.count("participants", participants)
    rows = generator.integers(0, len(labels), (rounds, people, batch))
    for number in range(rounds):
        now = rate * 0.5 * (1 + np.cos(np.pi * number / rounds))
        chosen = torch.from_numpy(rows[number]).to(inputs.device)
        local = [_at_rate(each, now) for each in defences]
        sent, _ = share_gradients(
            model, inputs[chosen], labels[chosen], defences=local, generator=generator
        )
        with torch.no_grad():
            for name, p in weights.items():
                speed[name].mul_(momentum).add_(sent[name].mean(dim=0), alpha=_steps(local))
                p.sub_(now * speed[name])
        if told is not None and (number % _TELL == 0 or number + 1 == rounds):
            told(number + 1, rounds)
    return model


def accuracy(module: nn.Module, inputs: Tensor, labels: Tensor) -> float:
    """The share of examples whose class has the largest logit; NaN is never right."""
    right = 0
    with evaluating(module), torch.no_grad():
        for start in range(0, len(labels), _BATCH):
            part = slice(start, start + _BATCH)
            logits = module(inputs[part])
            good = torch.isfinite(logits).all(dim=1)
            right += int(((logits.argmax(dim=1) == labels[part]) & good).sum())
    return right / max(1, len(labels))


def _at_rate(defence: Defence, rate: float) -> Defence:
    if isinstance(defence, LocalSteps):
        return LocalSteps(defence.steps, max(rate, 1e-12), defence.batch)
    return defence


def _steps(defences: Sequence[Defence]) -> int:
    return next((each.steps for each in defences if isinstance(each, LocalSteps)), 1)
