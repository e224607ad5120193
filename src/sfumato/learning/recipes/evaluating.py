"""Testing a model while it is trained.

Weights between steps are part of what a run releases, so testing them costs nothing by itself; what
the *test set* says is public only if its rows are. Points go to the curator's folder as they come,
so that a run that is killed keeps its curve.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from sfumato.core import validation
from sfumato.core.json_files import as_written
from sfumato.data import Dataset
from sfumato.learning.dp_sgd.trainer import DPSGD
from sfumato.learning.recipes.inputs import labels_of
from sfumato.learning.recipes.observing import Observer, Point
from sfumato.learning.recipes.preparing import Prepared
from sfumato.learning.runs.folder import RunFolder

__all__ = ["Evaluation", "accuracy_of", "minus_losses"]

_CURVE = "curve.json"


class Evaluation:
    """The learning curve of one run."""

    def __init__(
        self,
        data: Dataset,
        prepared: Prepared,
        trainer: DPSGD,
        folder: RunFolder | None,
        observer: Observer,
    ) -> None:
        self.data, self.points = data, list[Point]()
        self._prepared, self._trainer = prepared, trainer
        self._folder, self._observer = folder, observer
        self._features: Tensor | None = None
        self._labels: Tensor | None = None
        self._epsilons: dict[int, float] = {}

    @property
    def possible(self) -> bool:
        """Whether there is anything to test on."""
        return len(self.data.test.labels) > 0

    def plan(self, evaluations: int) -> None:
        """Chooses the steps, evenly, the last one included, and takes up points of before."""
        count = validation.at_least("evaluations", evaluations, 0)
        plan, done = self._trainer.plan, self._trainer.steps_taken
        steps = {-(-plan.steps * i // count) for i in range(1, count + 1)} | {plan.steps}
        chosen = sorted(steps) if self.possible else []
        whole = plan.guarantee.epsilon  # the curve is a little above the exact value
        spent = [min(epsilon, whole) for epsilon in plan.epsilon_after(chosen)]
        self._epsilons = dict(zip(chosen, spent, strict=True))
        if self._folder is not None and (self._folder.curator / _CURVE).exists():
            with as_written(self._folder.curator / _CURVE):
                earlier = [_point(held) for held in self._folder.read_curator(_CURVE)]
            self.points = [p for p in earlier if p.step <= done]

    def after(self, step: int) -> None:
        """Tests the model if it is time."""
        if step not in self._epsilons or any(p.step == step for p in self.points):
            return
        point = Point(step, self._epsilons[step], self._measured())
        self.points.append(point)
        self._observer.evaluated(point)
        if self._folder is not None:
            self._folder.write_curator(_CURVE, [p.to_dict() for p in self.points])

    def final(self) -> float | None:
        """The accuracy at the end."""
        if not self.possible:
            return None
        self.after(self._trainer.plan.steps)
        return self.points[-1].accuracy

    def _measured(self) -> float:
        if self._features is None or self._labels is None:
            inputs, labels = self.data.test
            self._features = self._prepared.applied(inputs, self.data.bounds)
            self._labels = labels_of(labels, len(self.data.classes)).to(self._features.device)
        averaged = self._trainer.record.facts["averaged"]
        weights = self._trainer.averaged() if averaged else contextlib.nullcontext()
        with weights:
            return accuracy_of(self._trainer.model, self._features, self._labels)


def accuracy_of(model: nn.Module, inputs: Tensor, labels: Tensor, batch: int = 2048) -> float:
    """The fraction of rows whose largest logit is the label's, in eval mode."""
    if len(labels) == 0:
        raise ValueError("there must be rows to test on, got none")
    right = 0
    with torch.no_grad(), evaluating(model):
        for rows, wanted in zip(inputs.split(batch), labels.split(batch), strict=True):
            right += int((model(rows).argmax(1) == wanted).sum())
    return right / len(labels)


def minus_losses(
    model: nn.Module, inputs: Tensor, labels: Tensor, batch: int = 2048
) -> NDArray[np.float64]:
    """How well the model knows each row: minus its loss, in eval mode, in float64."""
    found: list[Tensor] = []
    with torch.no_grad(), evaluating(model):
        for rows, wanted in zip(inputs.split(batch), labels.split(batch), strict=True):
            logits = model(rows).double()
            found.append(-F.cross_entropy(logits, wanted, reduction="none"))
    return torch.cat(found).cpu().numpy()


@contextlib.contextmanager
def evaluating(model: nn.Module) -> Generator[None]:
    """Eval mode for the time of the block; every module's own mode afterwards."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode


def _point(held: Any) -> Point:
    """As it is written.

    Raises:
        Exception: of any kind, for anything else.
    """
    step = validation.at_least("step", held["step"], 0)
    numbers = (validation.finite(name, held[name]) for name in ("epsilon", "accuracy"))
    return Point(step, *numbers)
