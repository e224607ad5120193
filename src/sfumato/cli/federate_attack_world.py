"""Who has what, in the attacks on a federation: private rows, the public's rows, and a judge.

The training set is the participants'; the test set is public, half of it for attackers and a judge
to learn from, half of it to measure with. Everything follows a seed.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from sfumato.attacks.torch_models import probabilities
from sfumato.cli.federate_attack_networks import smooth_cnn
from sfumato.core import validation
from sfumato.data import Dataset
from sfumato.learning.recipes.inputs import input_shape, inputs_of, labels_of

__all__ = ["World", "world_of"]

Images = NDArray[np.float32]


@final
@dataclass(frozen=True, eq=False)
class World:
    """Rows as tensors; pictures in [0, 1].

    Attributes:
        name: of the data.
        shape: of an input.
        classes: their names.
        private: participants' inputs and labels.
        known: public ones, to learn from.
        test: public ones, to measure with.
        seed: of all choices.
    """

    name: str
    shape: tuple[int, ...]
    classes: tuple[str, ...]
    private: tuple[Tensor, Tensor]
    known: tuple[Tensor, Tensor]
    test: tuple[Tensor, Tensor]
    seed: int

    @cached_property
    def judge(self) -> nn.Module:
        """Trained on public rows to name classes, or to say "nothing": one answer more."""
        return _judge(*self.known, len(self.classes), self.shape, self.seed)

    def judged(self, images: Images) -> NDArray[np.float64]:
        """The judge's probabilities."""
        return probabilities(self.judge, images)


def world_of(data: Dataset, seed: int, rows: int) -> World:
    """From a data set of square pictures.

    Args:
        data: with a training and a test set.
        seed: of the choice of rows.
        rows: how many the participants have together, at most.

    Raises:
        ValueError: for rows of numbers, or pictures whose side is no multiple of 4.
    """
    shape = input_shape(data.shape)
    if len(shape) != 3 or shape[1] != shape[2] or shape[1] % 4:
        validation.fail("data", "square pictures with a side that is a multiple of 4", data.shape)
    random = np.random.default_rng(seed)
    classes = len(data.classes)
    order = random.permutation(len(data.train.labels))[:rows]
    x, y = (
        inputs_of(data.train.inputs[order], data.bounds),
        labels_of(data.train.labels[order], classes),
    )
    shuffled = random.permutation(len(data.test.labels))
    known, test = np.array_split(shuffled, 2)
    public = [
        (inputs_of(data.test.inputs[part], data.bounds), labels_of(data.test.labels[part], classes))
        for part in (known, test)
    ]
    return World(data.name, shape, tuple(data.classes), (x, y), public[0], public[1], seed)


def _judge(x: Tensor, y: Tensor, classes: int, shape: tuple[int, ...], seed: int) -> nn.Module:
    """It has seen pictures dim and noisy, and much that is no picture, so that it must look."""
    random = np.random.default_rng([seed, 5])
    dim = x.numpy() * random.uniform(0.3, 1, (len(x), 1, 1, 1))
    noisy = np.clip(dim + 0.1 * random.standard_normal(dim.shape), 0, 1).astype(np.float32)
    seen = torch.from_numpy(np.concatenate([x.numpy(), noisy, _nothing(x.numpy(), random)]))
    named = torch.cat([y, y, torch.full_like(y, classes)])
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed + 11)
        judge = smooth_cnn(shape, classes + 1)
    optimizer = torch.optim.Adam(judge.parameters(), lr=2e-3)
    for _ in range(max(4, 2_000 * 64 // len(named))):
        for rows in torch.from_numpy(random.permutation(len(named))).split(64):
            optimizer.zero_grad()
            F.cross_entropy(judge(seen[rows]), named[rows]).backward()
            optimizer.step()
    return judge.eval()


def _nothing(pictures: Images, random: np.random.Generator) -> Images:
    """Blocks out of place, blots and specks, more or less dim."""
    made = pictures.copy()
    blocks, blots, specks = np.array_split(random.permutation(len(made)), 3)
    side = made.shape[-1]
    cut = side // 4
    for row in blocks:
        parts = [
            made[row, :, i : i + cut, j : j + cut].copy()
            for i in range(0, side, cut)
            for j in range(0, side, cut)
        ]
        mixed = [parts[i] for i in random.permutation(len(parts))]
        made[row] = np.block([[mixed[4 * i + j] for j in range(4)] for i in range(4)])
    coarse = torch.from_numpy(random.random((len(blots), made.shape[1], 4, 4)).astype(np.float32))
    smooth = F.interpolate(coarse, size=(side, side), mode="bilinear").numpy()
    made[blots] = np.clip(3 * smooth - 1, 0, 1)
    made[specks] = random.random((len(specks), *made.shape[1:])) ** 4
    return (made * random.uniform(0.3, 1, (len(made), 1, 1, 1))).astype(np.float32)
