"""Fidelity: how far a copy answers as its model does, and what that costs in queries.

With f the model, c the copy, and inputs x of a test set or uniform ones:

=====================  =========================================================================
agreement              share of x with f(x) = c(x): 1 - R_test, or 1 - R_unif on uniform inputs
total variation        mean of half the sum over classes of |f_i(x) - c_i(x)|: R_TV
accuracy               share of x whose true class c names; beside it, that of f
=====================  =========================================================================

Agreement on a test set says that a copy is as useful as the model where it is used; agreement on
uniform inputs says that it is the model. Rates come with exact (Clopper-Pearson) intervals.

    >>> def model(inputs):
    ...     return np.stack([inputs[:, 0], 1 - inputs[:, 0]], axis=1)
    >>> exam = Exam.of(Target.of_scores(model), np.linspace(0.05, 0.95, 10)[:, None])
    >>> found = exam.measure(lambda inputs: np.tile([0.4, 0.6], (len(inputs), 1)))
    >>> print(found)
    agreement 50.0% (18.7% to 81.3%) on 10 test inputs; total variation 0.26

The model is asked by its owner here, without any limit; an attacker's budget is not touched if the
attack is over. Results are for the curator only.

References: Tramèr, Zhang, Juels, Reiter and Ristenpart, "Stealing machine learning models via
prediction APIs", USENIX Security 2016, arXiv:1609.02943, section 2, for the measures; Jagielski,
Carlini, Berthelot, Kurakin and Papernot, "High accuracy and high fidelity extraction of neural
networks", USENIX Security 2020, arXiv:1909.01838, for the difference of accuracy and fidelity.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sfumato.attacks.extraction.answers import described
from sfumato.attacks.extraction.stolen import Stolen
from sfumato.attacks.targets import Scorer, Target, View
from sfumato.core import rates, validation

__all__ = ["Exam", "Fidelity", "FidelityCurve", "Share", "fidelity_curve"]

Attack = Callable[[Target], Stolen]
"""From a target with a budget to a copy."""


@final
@dataclass(frozen=True)
class Share:
    """So many of so many, with the interval in which the rate lies.

    Attributes:
        successes, trials: the counts.
        confidence: of the interval.
    """

    successes: int
    trials: int
    confidence: float = 0.95

    @property
    def value(self) -> float:
        """The measured rate."""
        return self.successes / self.trials

    @property
    def interval(self) -> tuple[float, float]:
        """The true rate lies between these."""
        return rates.rate_interval(self.successes, self.trials, self.confidence)

    def __str__(self) -> str:
        low, high = self.interval
        return f"{self.value:.1%} ({low:.1%} to {high:.1%})"

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready, with the interval's ends."""
        return {
            "value": self.value,
            "interval": list(self.interval),
            "confidence": self.confidence,
            "trials": self.trials,
        }


@final
@dataclass(frozen=True)
class Fidelity:
    """How good a copy is. For the curator only.

    Attributes:
        agreement: with the model's labels on the test inputs.
        on_uniform: the same on uniform inputs, where they were given.
        total_variation: from the model's probabilities on the test inputs; None where either gives
            labels alone.
        accuracy: the copy's, where true labels were given.
        target_accuracy: the model's.
    """

    agreement: Share
    on_uniform: Share | None = None
    total_variation: float | None = None
    accuracy: Share | None = None
    target_accuracy: Share | None = None

    def __str__(self) -> str:
        text = f"agreement {self.agreement} on {self.agreement.trials:,} test inputs"
        if self.on_uniform is not None:
            text += f", {self.on_uniform} on {self.on_uniform.trials:,} uniform ones"
        if self.total_variation is not None:
            text += f"; total variation {self.total_variation:.2g}"
        if self.accuracy is not None and self.target_accuracy is not None:
            text += f"\naccuracy {self.accuracy}, the model's {self.target_accuracy}"
        return text

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready; ``channel`` says who may read it."""
        shares = {
            "agreement": self.agreement,
            "on_uniform": self.on_uniform,
            "accuracy": self.accuracy,
            "target_accuracy": self.target_accuracy,
        }
        found = {name: None if one is None else one.to_dict() for name, one in shares.items()}
        return {"channel": "curator", **found, "total_variation": self.total_variation}


@final
@dataclass(frozen=True, eq=False)
class Exam:
    """Inputs with the model's answers about them, on which copies are measured.

    Attributes:
        inputs: of a test set.
        labels: the model's.
        probabilities: the model's, or None if it gives none.
        truth: the true classes, or None if they are not known.
        uniform: uniform inputs and the model's labels of them, or None.
        confidence: of the intervals.
    """

    inputs: NDArray[Any]
    labels: NDArray[np.int64]
    probabilities: NDArray[np.float64] | None
    truth: NDArray[np.int64] | None
    uniform: tuple[NDArray[Any], NDArray[np.int64]] | None
    confidence: float

    @classmethod
    def of(
        cls,
        target: Target,
        inputs: ArrayLike,
        truth: ArrayLike | None = None,
        *,
        uniform: ArrayLike | None = None,
        confidence: float = 0.95,
    ) -> Exam:
        """Asks the model once, for all copies.

        Args:
            target: the model as its owner sees it: without a budget, rounding or cutting.
            inputs: of a test set, one a row.
            truth: their true classes.
            uniform: uniform inputs; see :func:`~sfumato.attacks.extraction.answers.uniform_inputs`.
            confidence: of the intervals.
        """
        rows = np.asarray(inputs)
        validation.count("the number of inputs", len(rows))
        labels, scores = _asked(target, rows)
        known = None if truth is None else np.asarray(truth, dtype=np.int64)
        if known is not None and known.shape != labels.shape:
            validation.fail("truth", f"{len(labels)} classes, one an input", known.shape)
        both = None
        if uniform is not None:
            drawn = np.asarray(uniform)
            validation.count("the number of uniform inputs", len(drawn))
            both = drawn, _asked(target, drawn)[0]
        level = validation.open_probability("confidence", confidence)
        return cls(rows, labels, scores, known, both, level)

    def measure(self, predict: Scorer) -> Fidelity:
        """How good the copy ``predict`` is: from inputs to probabilities, or to classes."""
        answered = np.asarray(predict(self.inputs))
        labels = _labels(answered)
        uniform = None
        if self.uniform is not None:
            drawn, expected = self.uniform
            uniform = self._share(_labels(np.asarray(predict(drawn))), expected)
        distance = None
        if answered.ndim == 2 and self.probabilities is not None:
            if answered.shape != self.probabilities.shape:
                wanted = f"of shape {self.probabilities.shape}, as the model's are"
                validation.fail("the copy's probabilities", wanted, answered.shape)
            distance = float(np.abs(answered - self.probabilities).sum(axis=1).mean() / 2)
        return Fidelity(
            self._share(labels, self.labels),
            uniform,
            distance,
            None if self.truth is None else self._share(labels, self.truth),
            None if self.truth is None else self._share(self.labels, self.truth),
        )

    def _share(self, found: NDArray[np.int64], expected: NDArray[np.int64]) -> Share:
        return Share(int((found == expected).sum()), len(expected), self.confidence)


@final
@dataclass(frozen=True)
class FidelityCurve:
    """Fidelity against the number of queries. For the curator only.

    Attributes:
        attack: its name.
        shown: what the target showed, in words.
        budgets: how many queries were allowed.
        queries: how many were made.
        results: how good each copy is.
    """

    attack: str
    shown: str
    budgets: tuple[int, ...]
    queries: tuple[int, ...]
    results: tuple[Fidelity, ...]

    def __str__(self) -> str:
        last = self.results[-1]
        text = (
            f"{self.attack} from {self.shown}: {self.results[0].agreement.value:.1%} agreement "
            f"after {self.queries[0]:,} queries, {last.agreement.value:.1%} after "
            f"{self.queries[-1]:,}"
        )
        if last.accuracy is not None and last.target_accuracy is not None:
            text += f"; accuracy {last.accuracy.value:.1%} of {last.target_accuracy.value:.1%}"
        return text

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready; ``channel`` says who may read it."""
        points = zip(self.budgets, self.queries, self.results, strict=True)
        return {
            "channel": "curator",
            "attack": self.attack,
            "shown": self.shown,
            "points": [
                {"budget": budget, "queries": queries, "fidelity": result.to_dict()}
                for budget, queries, result in points
            ],
        }


def fidelity_curve(
    target: Target, budgets: Sequence[int], attack: Attack, exam: Exam
) -> FidelityCurve:
    """Runs an attack afresh with each budget, and measures its copy.

    Args:
        target: the model as the attacker sees it.
        budgets: how many queries it answers.
        attack: gets the target with its budget, for instance
            ``lambda limited: extract_by_equations(limited, inputs)``.
        exam: made with the model as its owner sees it.
    """
    if not budgets:
        validation.fail("budgets", "one or more", budgets)
    allowed = [validation.count("budget", budget) for budget in budgets]
    made = [attack(target.limited(budget)) for budget in allowed]
    return FidelityCurve(
        made[0].attack,
        described(target),
        tuple(allowed),
        tuple(stolen.queries for stolen in made),
        tuple(exam.measure(stolen.predict) for stolen in made),
    )


def _asked(
    target: Target, inputs: NDArray[Any]
) -> tuple[NDArray[np.int64], NDArray[np.float64] | None]:
    if not target.shows(View.SCORES):
        return target.labels(inputs), None
    scores = target.probabilities(inputs)
    return scores.argmax(axis=1).astype(np.int64), scores


def _labels(answered: NDArray[Any]) -> NDArray[np.int64]:
    return (answered if answered.ndim == 1 else answered.argmax(axis=1)).astype(np.int64)
