"""Collaborative learning in one process, with a GAN adversary among the participants.

What each participant sees: the shared model. What the server sees: everybody's update, the change
that local training made to the parameters. In a round the adversary goes first, then the others:

- *turns*: each takes the latest model, trains it on rows of its own and hands in the update, which
  is added at once (as in the paper, and in Shokri and Shmatikov's system).
- *average*: all take the same model, and the mean of all updates is added (federated averaging).

Defences go to honest participants alone: the adversary keeps to no rule that nobody can check.
``update`` changes what they hand in; ``honest`` replaces how they train, for DP-SGD and its like.

    >>> from torch import nn
    >>> random = np.random.default_rng(1)
    >>> left = np.repeat([[1.0, 1, 0, 0]], 4, axis=0)
    >>> pictures = np.stack([left, 1 - left, left.T])[:, None].repeat(30, axis=0)
    >>> pictures = np.clip(pictures + 0.3 * random.standard_normal(pictures.shape), 0, 1)
    >>> labels = np.arange(3).repeat(30)
    >>> adversary = GanAdversary((1, 4, 4), victim_class=0, fake_class=3, seed=1)
    >>> found = simulate_collaboration(
    ...     lambda: nn.Sequential(nn.Flatten(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 4)),
    ...     [(pictures[:60], labels[:60])], adversary, (pictures[60:], labels[60:]), rounds=10,
    ... )
    >>> print(found)
    2 participants, 10 rounds in turns. GAN attack on class 0 under label 3: 10 rounds, ...
    >>> adversary.images(9).mean(axis=0)[0].mean(axis=0).round().tolist()
    [1.0, 1.0, 0.0, 0.0]

This is a simulation of the attack and no private training: its coins are seeded.

References: Hitaj, Ateniese and Perez-Cruz, arXiv:1702.07464; Shokri and Shmatikov,
"Privacy-preserving deep learning", CCS 2015; McMahan et al., "Communication-efficient learning of
deep networks from decentralized data", arXiv:1602.05629.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, final

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn
from torch.nn import functional as F

from sfumato.attacks.gan.adversary import GanAdversary
from sfumato.attacks.gan.results import GanAttack
from sfumato.core import validation

__all__ = ["Collaboration", "LocalTraining", "Server", "Train", "Update", "simulate_collaboration"]

Train = Callable[[nn.Module, Tensor, Tensor, np.random.Generator], None]
"""Trains a model in place on inputs and labels, with coins for the choice of rows."""

Update = Callable[[dict[str, Tensor]], Mapping[str, Tensor]]
"""From the change of each parameter, by name, to what is handed in instead."""

Rows = tuple[ArrayLike, ArrayLike]
"""Inputs and labels."""


class Server(StrEnum):
    """How updates become a model; see the module."""

    TURNS = "turns"
    AVERAGE = "average"


@final
@dataclass(frozen=True)
class LocalTraining:
    """Plain SGD on the cross entropy, on batches drawn at random.

    Attributes:
        steps: in every round.
        batch_size: rows in each.
        rate: the learning rate.
    """

    steps: int = 20
    batch_size: int = 64
    rate: float = 0.05

    def __post_init__(self) -> None:
        for name in ("steps", "batch_size"):
            object.__setattr__(self, name, validation.count(name, getattr(self, name)))
        validation.positive("rate", self.rate)

    def __call__(
        self, model: nn.Module, inputs: Tensor, labels: Tensor, random: np.random.Generator
    ) -> None:
        """Changes the model in place."""
        optimizer = torch.optim.SGD(model.parameters(), lr=self.rate)
        for _ in range(self.steps):
            drawn = torch.from_numpy(random.integers(0, len(inputs), self.batch_size))
            rows = drawn.to(inputs.device)
            optimizer.zero_grad()
            F.cross_entropy(model(inputs[rows]), labels[rows]).backward()
            optimizer.step()


@final
@dataclass(frozen=True, eq=False)
class Collaboration:
    """What came of it. For the curator only.

    Attributes:
        model: the shared one after the last round.
        attack: what the adversary saw.
        participants: how many there were, she among them.
        server: how updates became a model.
    """

    model: nn.Module
    attack: GanAttack
    participants: int
    server: Server

    def __str__(self) -> str:
        how = {Server.TURNS: "in turns", Server.AVERAGE: "with averaged updates"}[self.server]
        return f"{self.participants} participants, {self.attack.rounds} rounds {how}. {self.attack}"

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready, without the model; ``channel`` says who may read it."""
        return {
            "channel": "curator",
            "participants": self.participants,
            "server": self.server.value,
            "attack": self.attack.to_dict(),
        }


_PLAIN = LocalTraining()


def simulate_collaboration(
    make_model: Callable[[], nn.Module],
    victims: Sequence[Rows],
    adversary: GanAdversary,
    own: Rows,
    *,
    rounds: int,
    train: Train = _PLAIN,
    honest: Train | None = None,
    update: Update | None = None,
    server: Server | str = Server.TURNS,
    watch: Callable[[int, nn.Module], object] | None = None,
    seed: int = 0,
    device: str | torch.device = "cpu",
) -> Collaboration:
    """Rounds of collaborative learning in which one participant attacks the others.

    Args:
        make_model: the model at first, with weights from torch's own coins, which are seeded here.
            It gives logits and has an output for the adversary's fake class, too.
        victims: each honest participant's inputs and labels.
        adversary: hers to keep: ask her for pictures afterwards.
        own: the adversary's honest inputs and labels; may be empty if her ``share`` is 1.
        rounds: how often each participant trains.
        train: how a participant trains.
        honest: how the honest ones train, if otherwise: a defence such as DP-SGD.
        update: what the honest ones do to their updates before handing them in.
        server: how updates become a model.
        watch: is given each round's number, from 1 up, and the model at its end, to look at.
        seed: for initial weights and the choice of rows.
        device: where honest participants train.
    """
    if not victims:
        validation.fail("victims", "one or more participants", list(victims))
    how = validation.choice("server", server, Server)
    random = np.random.default_rng([validation.at_least("seed", seed, 0), 0])
    model = _initial(make_model, random).to(device)
    fitted = [_tensors("victims", rows, device) for rows in victims]

    def attack(local: nn.Module) -> None:
        train(local, *_tensors("own", adversary.examples(local, *own), device), random)

    def honestly(rows: tuple[Tensor, Tensor]) -> Callable[[nn.Module], None]:
        return lambda local: (honest or train)(local, *rows, random)

    for number in range(1, validation.count("rounds", rounds) + 1):
        changes: list[Mapping[str, Tensor]] = []
        for place, work in enumerate([attack, *map(honestly, fitted)]):
            changes.append(_change(model, work, update if place else None))
            if how is Server.TURNS:
                _add(model, changes[-1:])
        if how is Server.AVERAGE:
            _add(model, changes)
        if watch is not None:
            watch(number, model)
    return Collaboration(model, adversary.result(), len(victims) + 1, how)


def _initial(make_model: Callable[[], nn.Module], random: np.random.Generator) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(int(random.integers(2**63)))
        model = make_model()
    kept = [name for name, buffer in model.named_buffers() if buffer.is_floating_point()]
    if kept:
        wanted = "a model without running statistics, which pass by every defence (use GroupNorm)"
        validation.fail("make_model", wanted, kept)
    return model


def _tensors(name: str, rows: Rows, device: str | torch.device) -> tuple[Tensor, Tensor]:
    inputs, labels = np.array(rows[0], dtype=np.float32), np.array(rows[1], dtype=np.int64)
    if labels.ndim != 1 or len(inputs) != len(labels) or not len(labels):
        validation.fail(name, "inputs and as many labels, one or more", (len(inputs), len(labels)))
    return torch.from_numpy(inputs).to(device), torch.from_numpy(labels).to(device)


def _change(
    model: nn.Module, work: Callable[[nn.Module], None], update: Update | None
) -> Mapping[str, Tensor]:
    """What local training makes of a copy of the model, less the model."""
    local = copy.deepcopy(model).train()
    work(local)
    with torch.no_grad():
        before = dict(model.named_parameters())
        changed = {name: new.detach() - before[name] for name, new in local.named_parameters()}
    if update is None:
        return changed
    shapes = {name: one.shape for name, one in changed.items()}
    handed = update(changed)
    if {name: one.shape for name, one in handed.items()} != shapes:
        validation.fail("update", "a change of each parameter, of its shape", sorted(handed))
    return handed


def _add(model: nn.Module, changes: Sequence[Mapping[str, Tensor]]) -> None:
    """The mean of the changes to the model."""
    with torch.no_grad():
        for name, weight in model.named_parameters():
            weight += torch.stack([each[name].to(weight) for each in changes]).mean(dim=0)
