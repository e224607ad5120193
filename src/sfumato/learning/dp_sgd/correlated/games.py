"""Whole runs with correlated noise as games, for :func:`sfumato.audit.audit_step`.

Each game is one coordinate of a model that consists of nothing else. A canary that is in pushes its
coordinate by the whole clip norm whenever its lot comes, one that is out is a blank; all canaries
are in the same lot of each epoch. The attacker sees every step's noisy sum y, knows C, and forms
C y = C x + z: a row of it for each step, in which the audit looks along the way in which canaries
move it. If noise is as claimed, that is the best test that there is; if the noise of two rows is
the same, the audit finds that, too.

    >>> import numpy as np
    >>> from sfumato.learning.dp_sgd.correlated.strategies import BandedNoise
    >>> runs = StreamedRuns(BandedNoise(2), noise_multiplier=1.0, lots=3, epochs=2)
    >>> runs(np.array([True, False, True])).shape
    (3, 6)
    >>> round(runs.multiplier, 4)
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

from sfumato.core import validation
from sfumato.core.neighbours import Neighbours
from sfumato.core.randomness import SYSTEM, Coins
from sfumato.learning.dp_sgd.clipping import Flat
from sfumato.learning.dp_sgd.correlated.strategies import Correlation
from sfumato.learning.dp_sgd.games import Coordinates
from sfumato.learning.dp_sgd.noise import NoiseSource
from sfumato.learning.dp_sgd.plan import TrainingPlan
from sfumato.learning.dp_sgd.streamed_lots import StreamedLots
from sfumato.learning.dp_sgd.trainer import DPSGD

__all__ = ["StreamedRuns"]

_PUSH = 1000.0  # clip norms


@final
class StreamedRuns:
    """Runs of :class:`DPSGD` over streamed lots: which canaries are in, to what a game shows.

    Args:
        correlation: of the noise.
        noise_multiplier: of the plan.
        lots: how many an epoch has.
        epochs: how often each canary takes part.
        place: which of an epoch's lots holds the canaries.
        noise: where noise comes from, as for a trainer.
        coins: as for a trainer.
    """

    def __init__(
        self,
        correlation: Correlation,
        noise_multiplier: float = 1.0,
        lots: int = 4,
        epochs: int = 1,
        place: int = 0,
        noise: NoiseSource | None = None,
        coins: Coins = SYSTEM,
    ) -> None:
        self.correlation = correlation
        self.noise_multiplier = validation.positive("noise_multiplier", noise_multiplier)
        self.lots, self.epochs = validation.count("lots", lots), validation.count("epochs", epochs)
        if not 0 <= place < self.lots:
            validation.fail("place", f"from 0 to {self.lots - 1}", place)
        self.place, self.noise, self.coins = place, noise, coins

    @property
    def multiplier(self) -> float:
        """The noise over a game's push, of the whole run, as claimed: what the plan accounts."""
        steps = self.lots * self.epochs
        cost = self.correlation.cost(steps, self.epochs, self.lots)
        return self.noise_multiplier / math.sqrt(cost)

    def __call__(self, included: NDArray[np.bool_]) -> NDArray[np.float64]:
        """Plays: one row a game, one column a step, in clip norms."""
        games, steps = len(included), self.lots * self.epochs
        rows = self.lots * games
        push = torch.zeros(rows)
        push[self.place * games : (self.place + 1) * games] = _PUSH * torch.as_tensor(included)
        model = Coordinates(games)
        plan = TrainingPlan(
            StreamedLots(games, rows), Flat(1.0), self.noise_multiplier, steps,
            delta=0.1 / max(rows, 2), neighbours=Neighbours.ZERO_OUT, correlation=self.correlation,
        )  # fmt: skip
        trainer = DPSGD(
            model, torch.optim.SGD(model.parameters(), lr=1.0), (torch.arange(rows) % games, push),
            plan=plan, noise=self.noise, coins=self.coins, progress=False,
        )  # fmt: skip
        seen = [model.weights.detach().clone()]
        trainer.fit(_pushed, after=lambda _: seen.append(model.weights.detach().clone()))
        sums = torch.stack([before - after for before, after in pairwise(seen)]).double().numpy()
        return (self.correlation.matrix(steps) @ (sums[:, :, 0] * games)).T


def _pushed(model: nn.Module, ids: Tensor, pushes: Tensor) -> Tensor:
    return pushes * model(ids)
