"""What a participant computes in a round, before any noise: its contribution to the sum.

=============================  ========  =======================================================
work                           protects  one round's contribution
=============================  ========  =======================================================
:class:`ClientUpdates`         client    the change that local training made, norm at most C
:class:`LotGradients`          record    the sum over a random lot of gradients of norm at most C
:class:`SelectedGradients`     client    a few noisy numbers of one gradient (Shokri, Shmatikov)
=============================  ========  =======================================================

Sensitivity. *Client*: whatever all her rows are, a contribution has an L2 norm of at most C, so
leaving her out of the sum (or putting nothing in its place, *zero-out*) moves it by at most C.
*Record*: one row more or less moves its owner's contribution, and so the sum, by at most C.

A contribution that is not finite counts as zeros: nothing in a row can raise an error or escape
its bound. How many rows a participant has changes no step, no message and no denominator.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, final

import numpy as np
from numpy.typing import NDArray

from sfumato.core import validation
from sfumato.core.events import EpsilonDeltaEvent
from sfumato.core.kinds import ByKind
from sfumato.core.neighbours import Neighbours
from sfumato.core.randomness import Coins
from sfumato.federated.selective import SelectiveSharing
from sfumato.learning.dp_sgd.clipping import ROUNDING, Adaptive
from sfumato.learning.dp_sgd.draws import bernoulli

if TYPE_CHECKING:
    import torch

    from sfumato.federated.layout import Vector
    from sfumato.federated.local import LocalData

__all__ = ["ClientUpdates", "LotGradients", "SelectedGradients", "Work", "clipped_to"]

_ETA = ROUNDING["float32"]


class Work(ByKind, ABC, family=True):
    """One round's contribution. Subclasses are frozen dataclasses named by ``kind`` in JSON.

    Attributes:
        unit: whom the clip bounds.
        clip: C, at first.
        direction: 1 if contributions are changes to add to the weights, -1 if gradients.
        extra: numbers behind the parameters in a contribution.
    """

    unit: ClassVar[str]
    direction: ClassVar[int] = 1
    clip: Any

    @property
    def extra(self) -> int:
        """How many numbers follow the parameters."""
        return 0

    @property
    def sample_rate(self) -> float:
        """With what probability a unit of a participant who is asked enters the round."""
        return 1.0

    @abstractmethod
    def contribution(
        self, local: LocalData, weights: Vector, clip: float, coins: Coins
    ) -> NDArray[np.float64]:
        """What goes into the sum, noise not included.

        Args:
            local: the participant's data and model.
            weights: the shared ones.
            clip: C, as it stands in this round.
            coins: of lots and of the order of rows.
        """

    def again_clipped(self, received: NDArray[np.float64], clip: float) -> NDArray[np.float64]:
        """What a server makes of a contribution that it sees, trusting nobody."""
        return received


@final
@dataclass(frozen=True)
class ClientUpdates(Work):
    """Federated averaging: steps of SGD on her own rows, and the change they made, clipped.

    With a ``quantile`` the clip norm follows that quantile of the norms: behind the parameters
    stands +1/2 if the change was within C, -1/2 if not, which one participant moves by 1/2
    (Andrew et al., arXiv:1905.03871; :class:`~sfumato.learning.dp_sgd.clipping.Adaptive`).

    Attributes:
        steps: of local training, the same for everyone.
        batch_size: rows of each.
        rate: the learning rate.
        clip: C; the first one, if it adapts.
        quantile: the share of changes that should be within C; None keeps C as it is.
        clip_rate: how quickly C adapts.

    Reference: McMahan, Ramage, Talwar and Zhang, "Learning differentially private recurrent
    language models", arXiv:1710.06963.
    """

    kind: ClassVar[str] = "updates"
    unit: ClassVar[str] = "client"
    steps: int = 10
    batch_size: int = 32
    rate: float = 0.1
    clip: float = 1.0
    quantile: float | None = None
    clip_rate: float = 0.2

    def __post_init__(self) -> None:
        validation.count("steps", self.steps)
        validation.count("batch_size", self.batch_size)
        for name in ("rate", "clip", "clip_rate"):
            validation.positive(name, getattr(self, name))
        if self.quantile is not None:
            validation.open_probability("quantile", self.quantile)

    @property
    def extra(self) -> int:
        """One where C adapts."""
        return 0 if self.quantile is None else 1

    def adaptive(self, expected: float) -> Adaptive | None:
        """How C adapts, if it does, with ``expected`` participants in a round."""
        if self.quantile is None:
            return None
        return Adaptive(self.clip, self.quantile, self.clip_rate).resolved(expected)

    def contribution(
        self, local: LocalData, weights: Vector, clip: float, coins: Coins
    ) -> NDArray[np.float64]:
        """The clipped change, and which side of C its norm was on."""
        changed = local.trained(weights, self.train, coins).astype(np.float64) - weights
        scaled, norm = _shrunk(changed, clip)
        side = [] if self.quantile is None else [0.5 if norm <= clip else -0.5]
        return np.concatenate([scaled, side])

    def train(self, local: LocalData, generator: torch.Generator) -> None:
        """Local training, in place; without rows there is nothing to do."""
        import torch

        if not local.rows:
            return
        optimizer = torch.optim.SGD(local.parameters.values(), lr=self.rate)
        for _ in range(self.steps):
            drawn = torch.randint(local.rows, (self.batch_size,), generator=generator)
            x, y = local.inputs[drawn], local.labels[drawn]
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(local.model(x), y).backward()
            optimizer.step()

    def again_clipped(self, received: NDArray[np.float64], clip: float) -> NDArray[np.float64]:
        """The change clipped once more; the side made one of the two there are."""
        size = len(received) - self.extra
        scaled, _ = _shrunk(received[:size], clip)
        side = np.where(received[size:] > 0, 0.5, -0.5)
        return np.concatenate([scaled, side])


@final
@dataclass(frozen=True)
class LotGradients(Work):
    """DP-SGD at the participant: each of her records enters by its own coin, gradients are clipped.

    Attributes:
        lot_rate: the probability with which each record enters a round.
        clip: C, of each record's gradient.
        records: how many records all participants have together: declared, public, need not be
            exact.

    Reference: Abadi et al., arXiv:1607.00133, algorithm 1, its sum cut into participants' parts.
    """

    kind: ClassVar[str] = "gradients"
    unit: ClassVar[str] = "record"
    direction: ClassVar[int] = -1
    lot_rate: float = 0.1
    clip: float = 1.0
    records: int = 1

    def __post_init__(self) -> None:
        validation.sample_rate("lot_rate", self.lot_rate)
        validation.positive("clip", self.clip)
        validation.count("records", self.records)

    @property
    def sample_rate(self) -> float:
        """The lot rate: the participant's own secret coins, which the server does not see."""
        return self.lot_rate

    def contribution(
        self, local: LocalData, weights: Vector, clip: float, coins: Coins
    ) -> NDArray[np.float64]:
        """The clipped sum over a fresh Poisson lot."""
        from sfumato.learning.dp_sgd.lot_sums import rows_of

        chosen = bernoulli(local.rows, math.floor(self.lot_rate * 2**64), coins)
        lot = rows_of(chosen, (local.inputs, local.labels))
        found = local.clipped_sum(weights, lot, clip, coins)
        return np.nan_to_num(found, nan=0.0, posinf=0.0, neginf=0.0)


@final
@dataclass(frozen=True)
class SelectedGradients(Work):
    """Distributed selective SGD: a few numbers of one step's change, chosen and told with noise.

    The noise is part of the work; see :class:`~sfumato.federated.selective.SelectiveSharing` for
    the guarantee, which is participant-level and of every upload, not of every number.

    Attributes:
        epsilon: of one upload, all its numbers together.
        share: of the parameters, that is uploaded.
        bound: gamma, on every number of the change; declared.
        threshold: tau: changes below it are not worth telling.
        steps: of local training before each upload.
        batch_size: rows of each.
        rate: the learning rate.
    """

    kind: ClassVar[str] = "selected"
    unit: ClassVar[str] = "client"
    epsilon: float = 1.0
    share: float = 0.01
    bound: float = 0.001
    threshold: float = 0.0001
    steps: int = 10
    batch_size: int = 32
    rate: float = 0.1

    def __post_init__(self) -> None:
        for name in ("epsilon", "bound", "rate"):
            validation.positive(name, getattr(self, name))
        validation.sample_rate("share", self.share)
        if not 0 <= self.threshold <= self.bound:
            validation.fail("threshold", f"between 0 and the bound, {self.bound}", self.threshold)
        validation.count("steps", self.steps)
        validation.count("batch_size", self.batch_size)

    @property
    def clip(self) -> float:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Not in L2: the bound on every number."""
        return self.bound

    @property
    def event(self) -> EpsilonDeltaEvent:
        """Of one upload, to whoever sees it."""
        return EpsilonDeltaEvent(self.epsilon, 0.0, Neighbours.REPLACE_ONE, self.unit)

    def sharing(self, size: int) -> SelectiveSharing:
        """The mechanism for so many parameters."""
        return SelectiveSharing(
            self.epsilon, size, self.share, self.bound, self.threshold, unit=self.unit
        )

    def contribution(
        self, local: LocalData, weights: Vector, clip: float, coins: Coins
    ) -> NDArray[np.float64]:
        """Zero but for the numbers that are told."""
        training = ClientUpdates(self.steps, self.batch_size, self.rate)
        changed = local.trained(weights, training.train, coins).astype(np.float64) - weights
        told = np.zeros(len(weights))
        places, values = self.sharing(len(weights)).select_and_perturb(changed, coins)
        told[places] = values
        return told

    def again_clipped(self, received: NDArray[np.float64], clip: float) -> NDArray[np.float64]:
        """Each number bounded once more."""
        return np.clip(received, -self.bound, self.bound)


def clipped_to(vector: NDArray[np.float64], clip: float) -> NDArray[np.float64]:
    """The vector scaled down to a norm of at most ``clip``; zeros if it is not finite."""
    return _shrunk(vector, clip)[0]


def _shrunk(vector: NDArray[np.float64], clip: float) -> tuple[NDArray[np.float64], float]:
    """C (1 - eta) at most, and the norm before; what is not finite becomes zeros."""
    with np.errstate(over="ignore", invalid="ignore"):
        norm = float(np.linalg.norm(vector))
    if not math.isfinite(norm):
        return np.zeros_like(vector), math.inf
    most = clip * (1 - _ETA)
    return (vector if norm <= most else vector * (most / norm)), norm
