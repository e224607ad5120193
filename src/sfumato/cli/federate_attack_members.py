"""Participants of attacks on a federation: one who defends herself in her own way, one with a GAN.

Both speak the federation's wire format: orders come in, contributions go out, and the coordinator
notices nothing. Their coins are seeded: they play in simulations, and nothing they send is private.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from sfumato.attacks.gan.adversary import GanAdversary
from sfumato.attacks.gradients.defences import Defence, LocalSteps
from sfumato.attacks.gradients.sharing import SharedUpdate, share_gradient
from sfumato.federated.federation import Federation
from sfumato.federated.local import LocalData, LocalModel
from sfumato.federated.orders import Contribution, Order
from sfumato.federated.works import ClientUpdates, clipped_to

__all__ = ["DefendedMember", "GanMember"]


@final
class DefendedMember:
    """A participant who does to her updates what she believes in, guarantee or not.

    Her contribution is -r k G for the average gradient G of k local steps of rate r, as
    :func:`~sfumato.attacks.gradients.sharing.share_gradient` makes it with her defences: the change
    of the weights that :class:`~sfumato.federated.works.ClientUpdates` calls for.

    Args:
        federation: of client updates.
        local: her data.
        defences: hers. Local steps are the federation's, unless one of these says otherwise.
        whole: whether each step takes all her rows; otherwise batches that are drawn.
        seed: of rows, masks and noise.

    Attributes:
        sent: her last update with all that an attacker is told of it, such as masks of dropout.
    """

    def __init__(
        self,
        federation: Federation,
        local: LocalData,
        defences: Sequence[Defence] = (),
        *,
        whole: bool = False,
        seed: int = 0,
    ) -> None:
        if not isinstance(federation.work, ClientUpdates):
            raise ValueError(
                f"federation must have client updates, got work {federation.work.kind!r}"
            )
        self.federation, self.work, self.local = federation, federation.work, local
        self._defences, self._whole = tuple(defences), whole
        self._random = np.random.default_rng(seed)
        self.sent: SharedUpdate | None = None

    def answer(self, message: bytes) -> bytes:
        """Her contribution to the order."""
        order = Order.from_bytes(message, self.local.layout.size)
        self.local.layout.write(self.local.model, order.weights)
        inputs, labels = self._rows()
        self.sent = share_gradient(
            self.local.model,
            inputs,
            labels,
            defences=(self._steps(), *self._defences),
            generator=self._random,
        )
        flat = self.local.layout.flat(self.sent.gradient).astype(np.float64)
        changed = clipped_to(-self.work.rate * self.work.steps * flat, self.work.clip)
        return Contribution(order.run, order.attempt, changed).to_bytes()

    def _steps(self) -> LocalSteps:
        batch = None if self._whole else self.work.batch_size
        return LocalSteps(self.work.steps, self.work.rate, batch)

    def _rows(self) -> tuple[Tensor, Tensor]:
        if self._whole:
            return self.local.inputs, self.local.labels
        size = self.work.steps * self.work.batch_size
        drawn = torch.from_numpy(self._random.integers(0, self.local.rows, size))
        return self.local.inputs[drawn], self.local.labels[drawn]


@final
class GanMember:
    """A participant with a GAN: trains on pictures that she makes, and hands in what comes of it.

    She keeps to no rule that nobody can check. Where nobody clips her contribution she makes it as
    large as the whole sum would have to be for the shared model to become hers (Bagdasaryan et al.,
    "How to backdoor federated learning", arXiv:1807.00459, model replacement); where the server
    clips it, it is clipped.

    Args:
        federation: that she has joined.
        adversary: her GAN.
        own: her own inputs and labels.
        model: to train in; she may share it with other participants of this process.
        steps: of her local training in a round.
        batch_size: rows of each.
        rate: the learning rate.
        seed: of the choice of rows.
    """

    def __init__(
        self,
        federation: Federation,
        adversary: GanAdversary,
        own: tuple[NDArray[np.float32], NDArray[np.int64]],
        model: LocalModel,
        *,
        steps: int = 20,
        batch_size: int = 64,
        rate: float = 0.05,
        seed: int = 0,
    ) -> None:
        self.federation, self.adversary, self._own, self._model = federation, adversary, own, model
        self._steps, self._batch, self._rate = steps, batch_size, rate
        self._coins = torch.Generator().manual_seed(seed)

    def answer(self, message: bytes) -> bytes:
        """Sees the order's weights, as everyone does, and answers with her own change of them."""
        order = Order.from_bytes(message, self._model.layout.size)
        self._model.layout.write(self._model.model, order.weights)
        inputs, labels = self.adversary.examples(self._model.model, *self._own)
        self._train(torch.from_numpy(inputs), torch.from_numpy(labels))
        after = self._model.layout.read(self._model.model).astype(np.float64)
        change = np.nan_to_num(after - order.weights)
        federation = self.federation
        alone = federation.work.direction * federation.denominator / federation.server_rate
        return Contribution(order.run, order.attempt, alone * change).to_bytes()

    def _train(self, inputs: Tensor, labels: Tensor) -> None:
        self._model.model.train()
        optimizer = torch.optim.SGD(self._model.parameters.values(), lr=self._rate)
        for _ in range(self._steps):
            drawn = torch.randint(len(labels), (self._batch,), generator=self._coins)
            optimizer.zero_grad()
            F.cross_entropy(self._model.model(inputs[drawn]), labels[drawn]).backward()
            optimizer.step()
