"""A small federation in one process, for tests of its parts."""

import numpy as np
import pytest
import torch

from sfumato.core.randomness import SeededCoins
from sfumato.federated.coordinator import Coordinator
from sfumato.federated.federation import Federation
from sfumato.federated.in_process import InProcess
from sfumato.federated.local import LocalData, LocalModel
from sfumato.federated.member import Member
from sfumato.federated.noises import NoNoise
from sfumato.federated.works import ClientUpdates

CLASSES, WIDTH = 3, 4


class Small:
    """Makes small federations, their members and coordinators."""

    def __init__(self):
        random = np.random.default_rng(3)
        centres = 2 * random.standard_normal((CLASSES, WIDTH))
        labels = random.integers(0, CLASSES, 400)
        rows = centres[labels] + 0.5 * random.standard_normal((400, WIDTH))
        self.inputs = torch.tensor(rows, dtype=torch.float32)
        self.labels = torch.tensor(labels)

    def federation(self, **changes):
        settings = {
            "model": "linear", "shape": (WIDTH,), "classes": CLASSES, "participants": 5,
            "rounds": 4, "work": ClientUpdates(steps=2, rate=0.2), "noise": NoNoise(),
        }  # fmt: skip
        return Federation(**settings | changes)

    def member(self, federation, number=0, coins=None, **options):
        model = LocalModel(federation.make_model())
        rows = slice(60 * number, 60 * (number + 1))
        local = LocalData(model, self.inputs[rows], self.labels[rows])
        coins = SeededCoins(100 + number) if coins is None else coins
        return Member(federation, local, name=f"p{number}", coins=coins, **options)

    def members(self, federation, **options):
        count = federation.participants
        return {f"p{i}": self.member(federation, i, **options) for i in range(count)}

    def coordinator(self, federation, members=None, **options):
        engine = InProcess(self.members(federation) if members is None else members)
        options = {"coins": SeededCoins(7), "test": (self.inputs, self.labels)} | options
        return Coordinator(federation, engine, **options)


@pytest.fixture(scope="session")
def small():
    torch.set_num_threads(1)
    return Small()
