"""Classes from the sign, or the largest, of private linear scores."""

from __future__ import annotations

from abc import abstractmethod
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets

from sfumato.core import validation
from sfumato.core.randomness import Coins
from sfumato.learning.erm.base import Floats, PrivateLinear
from sfumato.learning.erm.cells import Column, class_numbers
from sfumato.learning.erm.losses import HuberHinge, Loss, SimplexLogistic
from sfumato.learning.erm.tasks import Quadratic

__all__ = ["FROM_LABELS", "PrivateLinearSVC", "PrivateLogisticRegression"]

FROM_LABELS = "from-labels"
"""For ``classes``: that the set of labels in y is public, whatever it is, and may be read off."""


class _PrivateClassifier(ClassifierMixin, PrivateLinear):
    """Declared classes, and labels as their numbers."""

    classes: Any

    def _declare_targets(self, y: Column) -> None:
        if self.classes is None:
            raise ValueError(
                "classes must be declared, as the set of labels in a table tells of its rows: "
                "classes=(0, 1); or classes='from-labels' if that set is public"
            )
        self.classes_ = self._read_off(y) if self._reads_off else self._declared()

    @property
    def _reads_off(self) -> bool:
        if isinstance(self.classes, str) and self.classes != FROM_LABELS:
            validation.fail("classes", "a list of labels, or 'from-labels'", self.classes)
        return isinstance(self.classes, str)

    def _read_off(self, y: Column) -> NDArray[Any]:
        if self.ledger is not None:
            raise ValueError(
                "classes must be declared with a ledger, which is charged before a label is read: "
                "classes=(0, 1)"
            )
        try:
            labels = np.array(y.read().tolist())
        except Exception:  # of lists of several lengths, and of labels' own methods
            labels = np.array(None)
        if labels.ndim != 1 or labels.dtype.kind == "O":
            raise ValueError("classes must be declared, for labels that are of no one kind")
        check_classification_targets(labels)
        return _distinct(np.unique(labels))

    def _declared(self) -> NDArray[Any]:
        try:
            return _distinct(np.array(list(self.classes)))
        except TypeError:
            validation.fail("classes", "a list of labels, or 'from-labels'", self.classes)

    def _numbers(self, y: NDArray[Any]) -> NDArray[np.int64]:
        """The number of each label's class; what is none of them counts as the first."""
        return class_numbers(y, self.classes_)

    @property
    def _count(self) -> int:
        """The number of classes of a fit to come."""
        if self.classes is None or (self._reads_off and not hasattr(self, "classes_")):
            raise ValueError("classes must be declared for a plan: classes=(0, 1)")
        return len(self.classes_ if self._reads_off else self._declared())

    def _public_facts(self) -> dict[str, Any]:
        read = isinstance(self.classes, str)
        return {"classes": self.classes_.tolist()} | (
            {"classes_are": "read off the labels, taken to be public"} if read else {}
        )

    @abstractmethod
    def _codes(self) -> Floats:
        """(classes, outputs): a class's score is its code times the outputs."""

    def decision_function(self, X: Any) -> Floats:
        """Scores: (n,) for two classes, above 0 for the second; else (n, classes)."""
        outputs = self._outputs(X)
        scores = outputs @ self._codes().T
        return outputs[:, 0] if len(self.classes_) == 2 else scores

    def predict(self, X: Any) -> NDArray[Any]:
        """The class of the largest score."""
        scores = self.decision_function(X)
        best = (scores > 0).astype(int) if scores.ndim == 1 else scores.argmax(axis=1)
        return self.classes_[best]

    @property
    def coef_(self) -> Floats:
        """Of the scores, in the units of X: (1, columns) or (classes, columns).

        Right for rows within the norm; longer ones have their whole score shortened.
        """
        return self._unscaled()[0]

    @property
    def intercept_(self) -> Floats:
        """Of the scores; the constant that goes with :attr:`coef_`."""
        return self._unscaled()[1]

    def _unscaled(self) -> tuple[Floats, Floats]:
        if not hasattr(self, "weights_"):
            raise AttributeError("weights are there once the estimator is fitted")
        slopes, constant = self.scaling_.unscaled(self.weights_)
        if len(self.classes_) == 2:
            return slopes.T, constant
        return (slopes @ self._codes().T).T, constant @ self._codes().T

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.poor_score = True  # of a few dozen rows, at epsilon 1
        return tags


def _distinct(classes: NDArray[Any]) -> NDArray[Any]:
    if classes.ndim != 1 or len(classes) < 2 or len(set(classes.tolist())) < len(classes):
        raise ValueError(
            f"classes must be two or more different ones, got {len(classes)} class(es)"
        )
    return classes


class PrivateLogisticRegression(_PrivateClassifier):
    """Logistic regression, of two classes or jointly of many, as one private release.

    >>> from sfumato.core.randomness import SeededCoins
    >>> rows = np.random.default_rng(0).random((5000, 3))
    >>> labels = (rows.sum(axis=1) > 1.5).astype(int)
    >>> model = PrivateLogisticRegression(
    ...     epsilon=1.0, classes=(0, 1), bounds=(0, 1), coins=SeededCoins(1)
    ... )
    >>> model.fit(rows, labels).guarantee_
    Guarantee: epsilon 1, delta 1e-05, replace one record
    >>> bool(model.score(rows, labels) > 0.95)  # for the curator: these rows are private
    True

    All classes are learnt together, by one loss whose gradient is bounded by 1 whatever their
    number (:class:`~sfumato.learning.erm.losses.SimplexLogistic`): one model for each class against
    the others would need a share of epsilon each.

    Args:
        classes: the labels there can be, declared; or :data:`FROM_LABELS`. A label that is none of
            them counts as the first.

    The others are those of :class:`~sfumato.learning.erm.base.PrivateLinear`.
    """

    def __init__(
        self,
        *,
        classes: Any = None,
        epsilon: float = 1.0,
        delta: float = 1e-5,
        way: str = "objective",
        bounds: Any = None,
        norm: float | None = None,
        regularisation: float | None = None,
        fit_intercept: bool = True,
        neighbours: str = "replace-one",
        public_size: int | None = None,
        unit: str = "record",
        ledger: str | Path | None = None,
        dataset: str = "",
        analyst: str = "",
        coins: Coins | None = None,
    ) -> None:
        super().__init__(
            epsilon=epsilon, delta=delta, way=way, bounds=bounds, norm=norm,
            regularisation=regularisation, fit_intercept=fit_intercept, neighbours=neighbours,
            public_size=public_size, unit=unit, ledger=ledger, dataset=dataset, analyst=analyst,
            coins=coins,
        )  # fmt: skip
        self.classes = classes

    def _loss(self) -> Loss:
        return SimplexLogistic(self._count)

    def _quadratic(self) -> Quadratic:
        codes = SimplexLogistic(self._count).codes
        return Quadratic(
            1 / (2 * self._count),
            float(np.linalg.norm(codes, axis=1).max()),
            float(np.abs(codes).sum(axis=1).max()),
            1.0,
        )

    def _codes(self) -> Floats:
        return SimplexLogistic(len(self.classes_)).codes

    def _targets(self, y: NDArray[Any]) -> tuple[NDArray[Any], Floats]:
        numbers = self._numbers(y)
        return numbers, self._codes()[numbers]

    def predict_proba(self, X: Any) -> Floats:
        """(n, classes)."""
        outputs = self._outputs(X)
        return SimplexLogistic(len(self.classes_)).probabilities(outputs)

    def predict_log_proba(self, X: Any) -> Floats:
        """(n, classes) logarithms."""
        with np.errstate(divide="ignore"):
            return np.log(self.predict_proba(X))


class PrivateLinearSVC(_PrivateClassifier):
    """A linear support vector machine with a rounded hinge, as one private release.

    Of more than two classes, one machine for each against the others, all of them noised together:
    the gradient's bound grows like the root of their number. Ways: objective, output, sgd.

    Args:
        classes: the labels there can be, declared; or :data:`FROM_LABELS`.
        width: h, of the hinge's round part; from 0.01 to 1.

    The others are those of :class:`~sfumato.learning.erm.base.PrivateLinear`.
    """

    _most: ClassVar[int] = 100

    def __init__(
        self,
        *,
        classes: Any = None,
        width: float = 0.5,
        epsilon: float = 1.0,
        delta: float = 1e-5,
        way: str = "objective",
        bounds: Any = None,
        norm: float | None = None,
        regularisation: float | None = None,
        fit_intercept: bool = True,
        neighbours: str = "replace-one",
        public_size: int | None = None,
        unit: str = "record",
        ledger: str | Path | None = None,
        dataset: str = "",
        analyst: str = "",
        coins: Coins | None = None,
    ) -> None:
        super().__init__(
            epsilon=epsilon, delta=delta, way=way, bounds=bounds, norm=norm,
            regularisation=regularisation, fit_intercept=fit_intercept, neighbours=neighbours,
            public_size=public_size, unit=unit, ledger=ledger, dataset=dataset, analyst=analyst,
            coins=coins,
        )  # fmt: skip
        self.classes, self.width = classes, width

    def _loss(self) -> Loss:
        if not 0 < validation.finite("width", self.width) <= 1:
            validation.fail("width", "above 0, at most 1", self.width)
        if self._count > self._most:
            validation.fail("classes", f"at most {self._most}", self._count)
        return HuberHinge(1 if self._count == 2 else self._count, self.width)

    def _quadratic(self) -> None:
        return None

    def _codes(self) -> Floats:
        count = len(self.classes_)
        return np.array([[-1.0], [1.0]]) if count == 2 else np.eye(count)

    def _targets(self, y: NDArray[Any]) -> tuple[NDArray[Any], Floats]:
        numbers, count = self._numbers(y), len(self.classes_)
        if count == 2:
            signs = np.where(numbers == 1, 1.0, -1.0)[:, None]
        else:
            signs = np.where(numbers[:, None] == np.arange(count), 1.0, -1.0)
        return signs, signs
