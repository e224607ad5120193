"""The engine's own steps as games, for :func:`sfumato.audit.audit_step`.

Each game is one coordinate of a model that consists of nothing else. A canary that is in pushes its
coordinate by the whole clip norm, up at one step and down at the next; one that is out leaves it to
the noise. Lots hold everybody, so there is no sampling to hide behind.

    >>> import numpy as np
    >>> steps = EngineSteps(noise_multiplier=1.0, steps=2)
    >>> steps(np.array([True, False, True])).shape
    (3, 2)
    >>> round(steps.multiplier, 4)
    0.7071
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from sfumato.core import validation
from sfumato.core.neighbours import Neighbours
from sfumato.core.randomness import SYSTEM, Coins
from sfumato.learning.dp_sgd.clipping import Clipping, Flat
from sfumato.learning.dp_sgd.lots import PoissonLots
from sfumato.learning.dp_sgd.noise import NoiseSource
from sfumato.learning.dp_sgd.plan import TrainingPlan
from sfumato.learning.dp_sgd.trainer import DPSGD

__all__ = ["Coordinates", "EngineSteps"]

_PUSH = 1000.0  # clip norms


@final
class EngineSteps:
    """Steps of :class:`DPSGD`: which canaries are in, to what each coordinate shows at each step.

    Args:
        noise_multiplier: of each step.
        clip: how a canary's gradient is bounded.
        steps: in a row.
        copies: how many equal canaries a game has, all in or all out; by default as many as make
            their push about as large as the noise, where an audit sees most.
        batch_size: the most rows in memory at a time; several batches make a lot.
        noise: where noise comes from, as for a trainer.
        coins: as for a trainer.
    """

    def __init__(
        self,
        noise_multiplier: float = 1.0,
        clip: Clipping | None = None,
        steps: int = 1,
        copies: int | None = None,
        batch_size: int | None = None,
        noise: NoiseSource | None = None,
        coins: Coins = SYSTEM,
    ) -> None:
        self.noise_multiplier = validation.positive("noise_multiplier", noise_multiplier)
        self.clip, self.steps = clip or Flat(1.0), validation.count("steps", steps)
        usual = max(1, round(self.noise_multiplier))
        self.copies = usual if copies is None else validation.count("copies", copies)
        self.batch_size, self.noise, self.coins = batch_size, noise, coins

    @property
    def multiplier(self) -> float:
        """The noise over a game's push, of all steps together, as claimed.

        A group of k canaries is k steps away, and Gaussian noise protects it with m / k.
        """
        return self.noise_multiplier / (self.copies * math.sqrt(self.steps))

    def __call__(self, included: NDArray[np.bool_]) -> NDArray[np.float64]:
        """Plays: one row a game, one column a step, in clip norms."""
        games = len(included)
        rows = torch.as_tensor(np.flatnonzero(included)).repeat(self.copies)
        model, push = Coordinates(games), [_PUSH]
        optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
        trainer = DPSGD(
            model, optimizer, rows, plan=self._plan(games), batch_size=self.batch_size,
            noise=self.noise, coins=self.coins, progress=False,
        )  # fmt: skip
        seen = [model.weights.detach().clone()]

        def after(step: int) -> None:
            seen.append(model.weights.detach().clone())
            push[0] = -push[0]

        trainer.fit(lambda network, ids: push[0] * network(ids), after=after)
        moved = torch.cat([a - b for a, b in pairwise(seen)], 1)
        unit = games / (getattr(self.clip, "clip", 1.0) * self.copies)
        return moved.double().numpy() * unit * (-1.0) ** np.arange(self.steps)

    def _plan(self, games: int) -> TrainingPlan:
        return TrainingPlan(
            PoissonLots(games, games), self.clip, self.noise_multiplier, self.steps,
            delta=0.1 / max(games, 2), neighbours=Neighbours.ADD_REMOVE,
        )  # fmt: skip


class Coordinates(nn.Module):
    """A number for each game, which its canary's loss is, or is a multiple of."""

    def __init__(self, games: int) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.zeros(games, 1))

    def forward(self, ids: Tensor) -> Tensor:
        """The number of each canary."""
        return F.embedding(ids, self.weights).squeeze(1)
