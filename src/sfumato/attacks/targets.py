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
views as well: :meth:`Target.rounded`, :meth:`Target.top`, :meth:`Target.limited`. A view of a view
never shows more than either.

Every example asked about counts as one query. All views of a target count together: who asks
through one of them spends what another is limited to. What is refused is not counted.

A model may answer with NaN, or with 1.2. Such an answer is read as one that knows nothing, with a
warning, and counted in ``target.unreadable``: see :mod:`sfumato.attacks.target_answers`. A function
that gives logits is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sfumato.attacks.target_answers import (
    LEAST,
    Tally,
    class_numbers,
    read_losses,
    read_probabilities,
)
from sfumato.core import validation

__all__ = ["BudgetSpent", "NotSeen", "Scorer", "Target", "View"]

Scorer = Callable[[NDArray[Any]], NDArray[Any]]
"""From a batch of inputs to a row for each."""


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
    _tally: Tally = field(default_factory=Tally)
    _start: int = 0

    # --- making one -----------------------------------------------------------------------------

    @classmethod
    def of_labels(cls, answer: Scorer, name: str = "model") -> Target:
        """From a function that gives a class number, from 0 up, for each input."""
        return cls(View.LABELS, name, _answer=answer)

    @classmethod
    def of_scores(cls, answer: Scorer, name: str = "model") -> Target:
        """From a function that gives a row of probabilities, one a class, for each input."""
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

        Inputs arrive as tensors of the type of the module's parameters (float32, mostly), on their
        device.
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
        """Probabilities rounded to so many decimals, or fewer if they are rounded already.

        Rows need not add up to 1 any more. Derivatives and weights would tell the exact ones: a
        target that shows these is reduced to scores. Labels are those of the exact ones.
        """
        wanted = validation.at_least("digits", digits, 0)
        return replace(self._hiding(), digits=_fewer(wanted, self.digits))

    def top(self, count: int) -> Target:
        """Only so many of the largest probabilities, or fewer; the others are shown as 0.

        Of equal ones the first are shown. A target that shows derivatives or weights is reduced to
        scores. The loss of a label that is not shown is that of a probability of 0.
        """
        wanted = validation.count("top", count)
        return replace(self._hiding(), kept=_fewer(wanted, self.kept))

    def limited(self, budget: int) -> Target:
        """Answers about so many further examples, or what is left of an earlier limit, no more."""
        wanted = validation.at_least("budget", budget, 0)
        left = None if self.budget is None else max(0, self.budget - self.queries)
        return replace(self, budget=_fewer(wanted, left), _start=self._tally.asked)

    def _hiding(self) -> Target:
        """The same, showing scores at most."""
        if self._answer is None:
            raise ValueError("this target gives losses alone: it has no probabilities to hide")
        return replace(self, view=View.SCORES) if self.shows(View.GRADIENTS) else self

    # --- asking ---------------------------------------------------------------------------------

    @property
    def queries(self) -> int:
        """About how many examples it was asked, through any view, since it was limited, or ever."""
        return self._tally.asked - self._start

    @property
    def unreadable(self) -> int:
        """How many answers were replaced, through any view, ever; see the module."""
        return self._tally.unreadable

    def shows(self, view: View | str) -> bool:
        """Whether ``view`` is part of what it shows."""
        return validation.choice("view", view, View) in _INCLUDES[self.view]

    def require(self, view: View | str) -> None:
        """Raises :class:`NotSeen` unless it shows ``view``."""
        if not self.shows(view):
            raise NotSeen(View(view), self.view)

    def labels(self, inputs: ArrayLike) -> NDArray[np.int64]:
        """The class of each input; of equally likely ones the first."""
        self.require(View.LABELS)
        found = self._asked(self._counted(inputs))
        if found.ndim == 1:
            return class_numbers("a target's labels", found)
        return read_probabilities(found, self._tally, self.name).argmax(axis=1).astype(np.int64)

    def probabilities(self, inputs: ArrayLike) -> NDArray[np.float64]:
        """A row of probabilities for each input, as far as they are shown."""
        self.require(View.SCORES)
        return self._shown(self._counted(inputs))

    def losses(self, inputs: ArrayLike, labels: ArrayLike) -> NDArray[np.float64]:
        """The cross entropy of each input with its label, by what is shown.

        Where that is a probability of 0, it is the cross entropy of 1e-300, about 691.
        """
        self.require(View.LOSSES)
        rows, wanted = _labelled(inputs, labels)
        self._count(len(rows))
        if self._losses is not None:
            found = np.asarray(self._losses(rows, wanted), dtype=np.float64)
            if found.shape != wanted.shape:
                validation.fail("a target's losses", f"{len(wanted)} numbers", found.shape)
            return read_losses(found, self._tally, self.name)
        shown = self._shown(rows)
        if wanted.size and wanted.max() >= shown.shape[1]:
            validation.fail("labels", f"classes below {shown.shape[1]}", int(wanted.max()))
        own = shown[np.arange(len(wanted)), wanted]
        return 0.0 - np.log(np.maximum(own, LEAST))

    def input_gradients(self, inputs: ArrayLike, labels: ArrayLike) -> NDArray[np.float64]:
        """Derivatives of the log-probability of ``labels`` by the inputs."""
        from sfumato.attacks.torch_models import input_gradients

        self.require(View.GRADIENTS)
        module, (rows, wanted) = self._modelled(), _labelled(inputs, labels)
        self._count(len(rows))
        return input_gradients(module, rows, wanted)

    def gradients(self, inputs: ArrayLike, labels: ArrayLike) -> NDArray[np.float32]:
        """Each example's own derivative of its loss by the weights, a flat row each."""
        from sfumato.attacks.torch_models import weight_gradients

        self.require(View.GRADIENTS)
        module, (rows, wanted) = self._modelled(), _labelled(inputs, labels)
        self._count(len(rows))
        return weight_gradients(module, rows, wanted)

    @property
    def module(self) -> Any:
        """The torch module itself: weights and all."""
        self.require(View.WEIGHTS)
        return self._modelled()

    def _modelled(self) -> Any:
        if self._module is None:
            raise ValueError("derivatives need a target made with Target.of_module")
        return self._module

    def _shown(self, rows: NDArray[Any]) -> NDArray[np.float64]:
        """Probabilities after all that hides some of them."""
        shown = read_probabilities(self._asked(rows), self._tally, self.name)
        if self.kept is not None and self.kept < shown.shape[1]:
            largest = np.argsort(-shown, axis=1, kind="stable")[:, : self.kept]
            every = np.zeros_like(shown)
            np.put_along_axis(every, largest, np.take_along_axis(shown, largest, axis=1), axis=1)
            shown = every
        return shown if self.digits is None else np.round(shown, self.digits)

    def _asked(self, rows: NDArray[Any]) -> NDArray[Any]:
        assert self._answer is not None  # a target of losses alone shows nothing that gets here
        found = np.asarray(self._answer(rows))
        if found.ndim == 0 or len(found) != len(rows):
            validation.fail("a target's answers", f"one for each of {len(rows)}", found.shape)
        return found

    def _counted(self, inputs: ArrayLike) -> NDArray[Any]:
        rows = _rows(inputs)
        self._count(len(rows))
        return rows

    def _count(self, examples: int) -> None:
        if self.budget is not None and self.queries + examples > self.budget:
            raise BudgetSpent(
                f"{self.name} answers {self.budget} queries, of which {self.queries} are spent; "
                f"{examples} more were asked for"
            )
        self._tally.asked += examples


def _fewer(wanted: int, before: int | None) -> int:
    return wanted if before is None else min(wanted, before)


def _rows(inputs: ArrayLike) -> NDArray[Any]:
    rows = np.asarray(inputs)
    if rows.ndim == 0:
        validation.fail("inputs", "a batch, one example a row", inputs)
    return rows


def _labelled(inputs: ArrayLike, labels: ArrayLike) -> tuple[NDArray[Any], NDArray[np.int64]]:
    rows, wanted = _rows(inputs), class_numbers("labels", labels)
    if len(rows) != len(wanted):
        validation.fail("labels", f"one for each of {len(rows)} inputs", len(wanted))
    return rows, wanted
