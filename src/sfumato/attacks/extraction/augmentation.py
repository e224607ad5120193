"""Jacobian-based augmentation: a substitute that looks for the inputs worth asking about.

What the attacker sees: any answers, to inputs of her choice; she has a few natural inputs. The
idea: ask along the directions in which the substitute's own answers change fastest. With O(x) the
class the model gave to x, F the substitute and J_F its derivative by its input, each round asks
about

    S <- S + { x + lambda sgn(J_F[O(x)](x)) : x in S },

then trains the substitute further on all answers. The queries double each round. A reservoir keeps
them to so many new ones a round, picked at random.

With lambda above 0, as in the paper, an input moves further into its class. With lambda below 0 it
moves towards the boundary, about which labels tell more. A period turns the sign every so many
rounds, so that both are asked about.

    >>> weights = np.array([[2.0, -1.0], [-2.0, 1.0]])
    >>> def model(inputs):
    ...     return (inputs @ weights.T).argmax(axis=1)
    >>> start = np.random.default_rng(1).uniform(-1, 1, (10, 2))
    >>> target, quick = Target.of_labels(model).limited(70), Training(least_steps=20)
    >>> found = extract_by_augmentation(
    ...     target, start, nn.Linear(2, 2), (-1, 1), classes=2, training=quick,
    ...     generator=np.random.default_rng(1),
    ... )
    >>> [one.queries for one in found.history], found.stopped
    ([10, 20, 40, 70], True)

The copy is for the curator only.

References: Papernot, McDaniel, Goodfellow, Jha, Celik and Swami, "Practical black-box attacks
against machine learning", ASIA CCS 2017, arXiv:1602.02697; the reservoir and the period: Papernot,
McDaniel and Goodfellow, "Transferability in machine learning", arXiv:1605.07277.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from torch import nn

from sfumato.attacks.extraction.answers import (
    Answers,
    Bounds,
    affordable,
    ask,
    box,
    described,
)
from sfumato.attacks.extraction.retraining import Training, module_scorer, train_substitute
from sfumato.attacks.extraction.stolen import Round, Stolen
from sfumato.attacks.targets import Target
from sfumato.attacks.torch_models import input_gradients
from sfumato.core import validation

__all__ = ["extract_by_augmentation", "stepped"]


def extract_by_augmentation(
    target: Target,
    start: ArrayLike,
    substitute: nn.Module,
    bounds: Bounds,
    *,
    generator: np.random.Generator,
    classes: int | None = None,
    step: float = 0.1,
    rounds: int = 6,
    reservoir: int | None = None,
    period: int | None = None,
    training: Training | None = None,
) -> Stolen:
    """A substitute that is trained, makes new queries, and is trained again.

    It stops when the rounds are done or before a budget is overdrawn: the last round asks as much
    as is left, picked at random, and the substitute is trained on it.

    Args:
        target: shows scores or labels.
        start: the inputs to start from, one a row.
        substitute: a torch module that maps inputs to logits; a copy of it is trained.
        bounds: what inputs the target takes; new queries are moved back into them.
        generator: of what is picked and shuffled.
        classes: how many there are; needed where only labels are shown.
        step: lambda, in the units of the inputs; below 0 it leads towards the boundary.
        rounds: how often queries are added.
        reservoir: at most so many are added in a round; None for all.
        period: the sign of the step turns every so many rounds; None for never.
        training: how the substitute is trained, in each round.
    """
    taken = np.asarray(start)
    if taken.dtype.kind != "f":
        taken = taken.astype(np.float64)
    lambda_ = validation.finite("step", step)
    if lambda_ == 0:
        validation.fail("step", "a number other than 0", step)
    limits = box(bounds, taken.shape[1:])
    plan = validation.at_least("rounds", rounds, 0)
    most = None if reservoir is None else validation.count("reservoir", reservoir)
    turn = None if period is None else validation.count("period", period)
    allowed = affordable(target, len(taken))
    if allowed == 0:
        raise ValueError("start must be one or more inputs, and the budget must allow one query")
    growing = _Growing(target, substitute, classes, training or Training(), generator)
    growing.add(taken[:allowed])
    stopped = allowed < len(taken)
    for number in range(plan):
        if stopped or affordable(target, 1) == 0:
            stopped = True
            break
        sign = 1 if turn is None or (number // turn) % 2 == 0 else -1
        new = stepped(
            growing.module, growing.inputs, growing.answers.labels, sign * lambda_, limits
        )
        wanted = len(new) if most is None else min(len(new), most)
        size = affordable(target, wanted)
        growing.add(growing.picked(new, size))
        stopped = size < wanted
    return Stolen(
        module_scorer(growing.module),
        "Jacobian augmentation",
        described(target),
        len(growing.inputs),
        stopped=stopped,
        history=tuple(growing.history),
        model=growing.module,
    )


def stepped(
    module: nn.Module,
    inputs: NDArray[Any],
    labels: NDArray[np.int64],
    step: float,
    limits: tuple[NDArray[np.float64], NDArray[np.float64]],
) -> NDArray[Any]:
    """Each input x moved to x + step sgn(J_F[label](x)), within the limits.

    The derivative of a probability and that of its logarithm have the same sign.
    """
    slopes = input_gradients(module, inputs, labels)
    return np.clip(inputs + step * np.sign(slopes), *limits).astype(inputs.dtype)


class _Growing:
    """A substitute, and all it was trained on."""

    def __init__(
        self,
        target: Target,
        substitute: nn.Module,
        classes: int | None,
        training: Training,
        generator: np.random.Generator,
    ) -> None:
        self.target, self.classes, self.training = target, classes, training
        self.module = copy.deepcopy(substitute)
        self.generator = generator
        self.inputs: NDArray[Any] = np.zeros(0)
        self.answers: Answers
        self.history: list[Round] = []

    def add(self, inputs: NDArray[Any]) -> None:
        """Asks about ``inputs`` and trains on all answers so far."""
        new = ask(self.target, inputs, self.classes)
        if not self.history:
            self.inputs, self.answers = inputs, new
        else:
            self.inputs = np.concatenate([self.inputs, inputs])
            self.answers = self.answers.joined(new)
        loss = train_substitute(
            self.module, self.inputs, self.answers, self.training, generator=self.generator
        )
        self.history.append(Round(len(self.inputs), loss))

    def picked(self, inputs: NDArray[Any], size: int) -> NDArray[Any]:
        """So many of the inputs, at random, each at most once."""
        if size == len(inputs):
            return inputs
        return inputs[np.sort(self.generator.choice(len(inputs), size, replace=False))]
