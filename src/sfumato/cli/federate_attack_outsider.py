"""The outsider's attack: a copy of the served model, from its answers to public pictures.

What she sees: probabilities for inputs that she has. Nothing of the training: neither messages nor
weights. The federation is played to its end first, so the cell also says what a defence costs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from sfumato.attacks.extraction.fidelity import Exam
from sfumato.attacks.extraction.retraining import Training, extract_by_retraining
from sfumato.attacks.targets import Target, View
from sfumato.cli.federate_attack_gan import LOT, honest_member
from sfumato.cli.federate_attack_networks import SMOOTH, smooth_cnn
from sfumato.cli.federate_attack_rows import Row, Setting, federation_for, promises
from sfumato.cli.federate_attack_world import World
from sfumato.core.randomness import SeededCoins
from sfumato.federated.coordinator import Coordinator
from sfumato.federated.exchange import Participant
from sfumato.federated.in_process import InProcess
from sfumato.federated.layout import Layout
from sfumato.federated.local import LocalData, LocalModel
from sfumato.federated.partitions import evenly
from sfumato.federated.watching import RoundFacts, nobody

__all__ = ["copy_model"]

_EXAM = 1_000


def copy_model(
    world: World,
    row: Row,
    *,
    rounds: int,
    members: int,
    queries: int,
    delta: float = 1e-5,
    told: Callable[[RoundFacts], None] = nobody,
) -> dict[str, Any]:
    """One cell of the matrix: all rounds, then the copy.

    Args:
        world: who has what.
        row: the defence.
        rounds: of the federation.
        members: of it.
        queries: that the outsider may ask.
        delta: of guarantees.
        told: of every round.
    """
    inputs, labels = world.private
    setting = Setting(
        SMOOTH, world.shape, len(world.classes), members, rounds, len(labels),
        min(1.0, 2 * LOT / len(labels)), 2, 64, 0.1, delta=delta, seed=world.seed,
    )  # fmt: skip
    federation = federation_for(row, setting)
    model = LocalModel(federation.make_model())
    people: dict[str, Participant] = {}
    for place, part in enumerate(evenly(len(labels), members, seed=world.seed)):
        local = LocalData(model, inputs[part], labels[part])
        people[str(place)] = honest_member(row, federation, local, world.seed, place)
    trained = Coordinator(
        federation, InProcess(people), test=world.test, test_every=rounds,
        coins=SeededCoins(world.seed), watch=told,
    ).train()  # fmt: skip
    served = federation.make_model()
    Layout.of(served).write(served, trained.weights)
    target = Target.of_module(served.eval(), "the federation's model", View.SCORES)
    x, y = (part[:_EXAM].numpy() for part in world.test)
    exam = Exam.of(target, x, y)
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(world.seed + 7)
        substitute = smooth_cnn(world.shape, len(world.classes))
    stolen = extract_by_retraining(
        target.limited(queries), world.known[0][:queries].numpy(), substitute,
        training=Training(epochs=10), generator=np.random.default_rng([world.seed, 3]),
    )  # fmt: skip
    fidelity = exam.measure(stolen.predict)
    assert fidelity.accuracy is not None
    return {
        "value": fidelity.agreement.value,
        "interval": list(fidelity.agreement.interval),
        "queries": stolen.queries,
        "copy_accuracy": fidelity.accuracy.value,
        "accuracy": trained.accuracy,
        "constant": float(np.bincount(exam.labels).max() / len(exam.labels)),
        "promises": promises(federation),
    }
