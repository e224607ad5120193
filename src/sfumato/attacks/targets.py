"""Targets: what an attacker sees of a model. The threat model is a type.

=============  ================================================================================
labels         the class a model answers with, nothing else
scores         a probability for every class
losses         the cross entropy of an example with its label
gradients      also derivatives: of an answer by its input, of a loss by the weights
weights        everything: the model is in the attacker's hands
=============  ================================================================================

Whoever sees more sees what is above it in the table, too, but for losses, which tell no classes.
An attack asks its target for a view; a target that does not have it refuses, before any query.

    >>> def always_first(inputs):
    ...     return np.tile([0.9, 0.1], (len(inputs), 1))
    >>> target = Target.of_scores(always_first)
    >>> target.labels(np.zeros((3, 2))).tolist(), target.queries
    ([0, 0, 0], 3)
    >>> target.showing("labels").probabilities(np.zeros((3, 2)))
    Traceback (most recent call last):
        ...
    sfumato.attacks.targets.NotSeen: the attack needs scores, but this target shows labels

Anything can be a target: a function from NumPy arrays to NumPy arrays is enough. Defences are
views as well: :meth:`Target.rounded`, :meth:`Target.top`, :meth:`Target.limited`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sfumato.core import validation

__all__ = ["BudgetSpent", "NotSeen", "Scorer", "Target", "View"]

Scorer = Callable[[NDArray[Any]], NDArray[Any]]
"""From a batch of inputs to a row for each."""

_LEAST = 1e-300  # a probability of 0 has a finite logarithm


class View(StrEnum):
    """What a target shows; see the module."""

    LABELS = "labels"
    SCORES = "scores"
    LOSSES = "losses"
    GRADIENTS = "gradients"
    WEIGHTS = "weights"


_INCLUDES = {
    View.LABELS: {View.LABELS},
    View.SCORES: {View.LABELS, View.SCORES, View.LOSSES},
    View.LOSSES: {View.LOSSES},
    View.GRADIENTS: {View.LABELS, View.SCORES, View.LOSSES, View.GRADIENTS},
    View.WEIGHTS: set(View),
}


class NotSeen(ValueError):  # noqa: N818
    """The attack needs to see more than the target shows."""

    def __init__(self, needed: View, shown: View) -> None:
        super().__init__(f"the attack needs {needed.value}, but this target shows {shown.value}")


class BudgetSpent(ValueError):  # noqa: N818
    """The target answers no more queries."""


@dataclass
class _Counter:
    asked: int = 0


@final
@dataclass(frozen=True, eq=False)
class Target:
    """A model as its attacker sees it. Make one with :meth:`of_scores` and its siblings.

    Attributes:
        view: what it shows.
        name: for records.
        budget: how many examples may be asked about; None for any number.
        digits: to how many decimals probabilities are rounded; None for all.
        kept: only so many of the largest probabilities are shown; None for all.
    """

    view: View
    name: str = "model"
    budget: int | None = None
    digits: int | None = None
    kept: int | None = None
    _answer: Scorer | None = None
    _losses: Callable[[NDArray[Any], NDArray[Any]], NDArray[Any]] | None = None
    _module: Any = None
    _counter: _Counter = field(default_factory=_Counter)
    _start: int = 0

    # --- making one -----------------------------------------------------------------------------

    @classmethod
    def of_labels(cls, answer: Scorer, name: str = "model") -> Target:
        """From a function that gives a class number for each input."""
        return cls(View.LABELS, name, _answer=answer)

    @classmethod
    def of_scores(cls, answer: Scorer, name: str = "model") -> Target:
        """From a function that gives a row of probabilities for each input."""
        return cls(View.SCORES, name, _answer=answer)

    @classmethod
    def of_losses(
        cls, answer: Callable[[NDArray[Any], NDArray[Any]], NDArray[Any]], name: str = "model"
    ) -> Target:
        """From a function of inputs and labels that gives a loss for each."""
        return cls(View.LOSSES, name, _losses=answer)

    @classmethod
    def of_module(cls, module: Any, name: str = "model", view: View | str = View.WEIGHTS) -> Target:
        """From a torch module that maps a batch of inputs to logits, in evaluation mode.

        Inputs arrive as float32 tensors on the device of the module's parameters.
        """
        from sfumato.attacks.torch_models import probabilities

        seen = validation.choice("view", view, View)
        return cls(seen, name, _answer=lambda x: probabilities(module, x), _module=module)

    # --- showing less ---------------------------------------------------------------------------

    def showing(self, view: View | str) -> Target:
        """The same, showing no more than ``view``.

        Raises:
            NotSeen: if it does not show that.
        """
        seen = validation.choice("view", view, View)
        self.require(seen)
        return replace(self, view=seen)

    def rounded(self, digits: int) -> Target:
        """Probabilities rounded to so many decimals."""
        return replace(self, digits=validation.at_least("digits", digits, 0))

    def top(self, count: int) -> Target:
        """Only the largest probabilities; the others are shown as 0."""
        return replace(self, kept=validation.count("top", count))

    def limited(self, budget: int) -> Target:
        """Answers about so many further examples, then refuses."""
        total = validation.at_least("budget", budget, 0)
        return replace(self, budget=total, _start=self._counter.asked)

    # --- asking ---------------------------------------------------------------------------------

    @property
    def queries(self) -> int:
        """About how many examples it was asked, through this view since it was limited, or ever."""
        return self._counter.asked - self._start

    def shows(self, view: View) -> bool:
        """Whether ``view`` is part of what it shows."""
        return view in _INCLUDES[self.view]

    def require(self, view: View) -> None:
        """Raises :class:`NotSeen` unless it shows ``view``."""
        if not self.shows(view):
            raise NotSeen(view, self.view)

    def labels(self, inputs: ArrayLike) -> NDArray[np.int64]:
        """The class of each input."""
        self.require(View.LABELS)
        found = np.asarray(self._asked(inputs))
        if found.ndim == 1:
            return found.astype(np.int64)
        return found.argmax(axis=1).astype(np.int64)

    def probabilities(self, inputs: ArrayLike) -> NDArray[np.float64]:
        """A row of probabilities for each input, as far as they are shown."""
        self.require(View.SCORES)
        return self._scores(inputs)

    def _scores(self, inputs: ArrayLike) -> NDArray[np.float64]:
        shown = np.asarray(self._asked(inputs), dtype=np.float64)
        if shown.ndim != 2:
            validation.fail("a target's scores", "one row of probabilities an input", shown.shape)
        if self.kept is not None and self.kept < shown.shape[1]:
            least = -np.partition(-shown, self.kept - 1, axis=1)[:, self.kept - 1 : self.kept]
            shown = np.where(shown >= least, shown, 0.0)
        return shown if self.digits is None else np.round(shown, self.digits)

    def losses(self, inputs: ArrayLike, labels: ArrayLike) -> NDArray[np.float64]:
        """The cross entropy of each input with its label."""
        self.require(View.LOSSES)
        wanted = np.asarray(labels, dtype=np.int64)
        if self._losses is not None:
            rows = self._counted(inputs)
            return np.asarray(self._losses(rows, wanted), dtype=np.float64)
        shown = self._scores(inputs)
        return -np.log(np.maximum(shown[np.arange(len(wanted)), wanted], _LEAST))

    def input_gradients(self, inputs: ArrayLike, classes: ArrayLike) -> NDArray[np.float64]:
        """Derivatives of the log-probability of ``classes`` by the inputs."""
        from sfumato.attacks.torch_models import input_gradients

        self.require(View.GRADIENTS)
        return input_gradients(self.module_behind(), self._counted(inputs), np.asarray(classes))

    def gradients(self, inputs: ArrayLike, labels: ArrayLike) -> NDArray[np.float32]:
        """Each example's own derivative of its loss by the weights, a flat row each."""
        from sfumato.attacks.torch_models import weight_gradients

        self.require(View.GRADIENTS)
        return weight_gradients(self.module_behind(), self._counted(inputs), np.asarray(labels))

    @property
    def module(self) -> Any:
        """The torch module itself: weights and all."""
        self.require(View.WEIGHTS)
        return self.module_behind()

    def module_behind(self) -> Any:
        """What derivatives are taken of."""
        if self._module is None:
            raise ValueError("derivatives need a target made with Target.of_module")
        return self._module

    def _asked(self, inputs: ArrayLike) -> NDArray[Any]:
        if self._answer is None:
            raise ValueError("this target gives losses alone")
        return self._answer(self._counted(inputs))

    def _counted(self, inputs: ArrayLike) -> NDArray[Any]:
        rows = np.asarray(inputs)
        if self.budget is not None and self.queries + len(rows) > self.budget:
            raise BudgetSpent(
                f"{self.name} answers {self.budget} queries, of which {self.queries} are spent; "
                f"{len(rows)} more were asked for"
            )
        self._counter.asked += len(rows)
        return rows
