"""What a student is: settings that JSON can hold, and a way from released labels to a network.

    >>> from sfumato.learning.pate.students import Student, Supervised
    >>> student = Supervised(steps=100)
    >>> Student.from_dict(student.to_dict()) == student
    True

Guarantee: a student reads public inputs and labels that were already released, and nothing else.
Whatever it does with them is post-processing and costs no privacy; its seed may be public.

Reference: Papernot, Abadi, Erlingsson, Goodfellow and Talwar, "Semi-supervised knowledge transfer
for deep learning from private training data", arXiv:1610.05755, section 2.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from sfumato.core import validation
from sfumato.core.kinds import ByKind
from sfumato.learning.pate.students.data import PublicData, public_data
from sfumato.learning.pate.students.learners import Learner, run
from sfumato.learning.pate.students.store import Store

__all__ = ["Student"]

Told = Callable[[int, int], object]
"""Told how many steps are done, of how many."""


@dataclass(frozen=True)
class Student(ByKind, ABC, family=True):
    """A way to learn from a few released labels. Members are final frozen dataclasses.

    Attributes:
        classes: how many there are; the labels need not show all of them.
        steps: of training.
    """

    classes: int = 10
    steps: int = 1000

    @abstractmethod
    def network(self, shape: tuple[int, ...]) -> nn.Module:
        """The network that :meth:`fit` returns, untrained: from inputs (n, *shape) to logits."""

    @abstractmethod
    def learner(self, data: PublicData, seed: int) -> Learner:
        """What is trained, at its start; it draws its first weights from torch's generator."""

    def fit(
        self,
        inputs_unlabelled: Tensor | NDArray[Any] | None,
        inputs_labelled: Tensor | NDArray[Any],
        labels: Tensor | NDArray[Any],
        *,
        folder: str | Path | None = None,
        keep_every: int = 250,
        progress: Told | None = None,
        device: str | torch.device = "cpu",
        seed: int = 0,
    ) -> nn.Module:
        """Learns from public inputs and released labels.

        Args:
            inputs_unlabelled: public inputs without labels, (n, *shape): floats from 0 to 1, or
                bytes, which are divided by 255. Images have their channels first. None for none.
            inputs_labelled: public inputs that were asked about and answered.
            labels: the answers, whole numbers from 0 to ``classes`` - 1.
            folder: keeps a checkpoint and the finished network here. A run that was cut off goes
                on from there when called again with the same arguments, and ends with the same
                weights, to the bit on a CPU with as many threads.
            keep_every: steps between checkpoints.
            progress: told of every step that is done.
            device: such as "cuda".
            seed: of first weights, batches and augmentation. Public.

        Returns:
            A network from inputs, floats from 0 to 1, to logits, on the device, in eval mode.

        Raises:
            ValueError: for shapes or labels that do not fit, or a folder with another student.
        """
        keep_every, seed = validation.count("keep_every", keep_every), _checked_seed(seed)
        data = public_data(inputs_unlabelled, inputs_labelled, labels, self.classes, device)
        store = Store(None if folder is None else Path(folder))
        store.claim(self.to_dict(), data, seed)
        finished = store.finished()
        if finished is not None:
            network = self.network(data.shape)
            network.load_state_dict(finished)
            return network.to(device).eval()
        told = progress or _nobody
        learned = run(lambda: self.learner(data, seed), self.steps, seed, store, keep_every, told)
        store.finish(learned)
        return learned.eval()

    def check(self, **values: float) -> None:
        """Puts checked values into the fields of a frozen record, with those all students have."""
        common = {
            name: validation.count(name, getattr(self, name)) for name in ("classes", "steps")
        }
        for name, value in (common | values).items():
            object.__setattr__(self, name, value)


def _checked_seed(seed: int) -> int:
    return validation.at_least("seed", seed, 0)


def _nobody(done: int, total: int) -> None:
    """Without anybody to tell."""
