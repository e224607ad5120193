"""Refusals of uses of scikit-learn that would release what nobody pays for.

Much of scikit-learn fits an estimator many times and then chooses, shows, weighs or calibrates by
what private rows say of the fits: searches and cross-validation, feature selection, ensembles,
calibration. The fits may be private; scores, choices, and rows or targets that were made from
others, are not. So a private estimator refuses to be fitted from within scikit-learn, except

* by nothing else, or as the last step of pipelines whose steps before learn nothing of the rows;
* by a ``GridSearchCV``, a ``RandomizedSearchCV`` or a ``cross_val_score`` that pays: a ledger for
  every fit, a :class:`~sfumato.learning.erm.scoring.ChargedAccuracy` on the same budget for every
  score. Its folds must depend on the number of rows alone, and that number be public. Folds that
  are stratified by label move many rows when one label changes, and so does every fold when a row
  is added or removed: then one person would count in more than one place of a fit.

All look at who is calling, up the whole stack: clones, workers and scorers cannot lose it on their
way. A worker's stack does not reach up to its search, which is why one that pays must have
``n_jobs=None``. Code outside of scikit-learn that loops over fits is not caught; a ledger charges
it as it charges everything.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from types import FrameType
from typing import Any

from sfumato.core.neighbours import Neighbours

__all__ = ["refuse_unpaid_search", "refuse_unsafe_steps"]

_SEARCH, _WORK = "sklearn.model_selection", "sklearn.utils.parallel"
_PLAIN = ("sklearn.base", "sklearn.utils")
"""Modules that only pass a call on."""

_PAY = (
    "a search over private rows must be paid for: its scores are read from them, and so is its "
    "choice. Choose on public data; or give the estimator a ledger, and a GridSearchCV, "
    "RandomizedSearchCV or cross_val_score, by itself and with n_jobs=None, "
    "scoring=ChargedAccuracy(epsilon=..., ledger=..., dataset=...) and cv=KFold(...), so that "
    "every fit and every score is charged"
)


def refuse_unpaid_search(estimator: Any) -> None:
    """Raises if scikit-learn is fitting for a purpose that nobody pays for.

    Raises:
        PermissionError: with the remedy.
    """
    inside: list[FrameType] = []
    for frame in _callers():
        module = _module(frame)
        if _is_under(module, _SEARCH) or _is_under(module, _WORK):
            inside.append(frame)
        elif _is_under(module, "sklearn") and not _passes_on(frame, module):
            raise PermissionError(
                f"{'.'.join(module.split('.')[:2])} must not fit a private estimator: it fits "
                "several times, or on rows and targets that it makes from private ones, and what "
                "it learns from them itself is not covered by any guarantee. Fit the estimator by "
                "itself, or as the last step of a Pipeline"
            )
    if inside:
        _check_search(estimator, inside)


def _check_search(estimator: Any, inside: list[FrameType]) -> None:
    """Raises unless these frames, innermost first, are of one search that pays."""
    from sfumato.learning.erm.charging import same_ledger
    from sfumato.learning.erm.scoring import ChargedAccuracy

    found = _one_search(inside)
    if found is None:
        raise PermissionError(_PAY)
    scoring, cv = found
    if type(scoring) is not ChargedAccuracy or estimator.ledger is None:
        raise PermissionError(_PAY)
    same = same_ledger(scoring.ledger, estimator.ledger)
    if not same or scoring.dataset != estimator.dataset:
        raise PermissionError(
            "a search over private rows must be paid for from one budget: give ChargedAccuracy "
            "the ledger and the dataset that the estimator has"
        )
    if Neighbours.parse(estimator.neighbours) is not Neighbours.REPLACE_ONE:
        raise PermissionError(
            "a search over private rows can be paid for with neighbours='replace-one' only: "
            "otherwise one row more or less moves others from fold to fold"
        )
    if not _counts_only(cv):
        raise PermissionError(
            "a search over private rows must split them by their number alone, or one label moves "
            "other rows from fold to fold: give it cv=KFold(...), RepeatedKFold(...) or "
            "ShuffleSplit(test_size=...) with a whole number; a number as cv stratifies by label"
        )


def _one_search(inside: list[FrameType]) -> tuple[Any, Any] | None:
    """(scoring, cv) as they were given to the one search that all frames belong to, or None.

    They are taken from the outermost frame: further in, a ``cv`` may have been made by looking at
    the labels.
    """
    from sklearn.model_selection import GridSearchCV, RandomizedSearchCV

    outer = inside[-1]
    search: Any = outer.f_locals.get("self")
    names = [f.f_code.co_name for f in inside if not _is_under(_module(f), _WORK)]
    if type(search) in (GridSearchCV, RandomizedSearchCV):
        others = [
            f for f in inside
            if not _is_under(_module(f), _WORK) and f.f_locals.get("self") is not search
        ]  # fmt: skip
        alone = [f.f_code.co_name for f in others] in ([], ["_fit_and_score"])
        return (search.scoring, search.cv) if alone and names.count("fit") == 1 else None
    if names == ["_fit_and_score", "cross_validate", "cross_val_score"]:
        return outer.f_locals.get("scoring"), outer.f_locals.get("cv")
    return None


def _counts_only(cv: Any) -> bool:
    """Whether folds are a function of the number of rows and of public parameters."""
    from sklearn.model_selection import KFold, RepeatedKFold, ShuffleSplit

    if type(cv) is RepeatedKFold:
        return cv.cv is KFold
    if type(cv) is ShuffleSplit:
        sizes = {type(size) for size in (cv.test_size, cv.train_size)}
        return int in sizes and sizes <= {int, type(None)}
    return type(cv) is KFold


def refuse_unsafe_steps(estimator: Any) -> None:
    """Raises if a pipeline is fitting in which a step before learnt from the same rows.

    Raises:
        PermissionError: with the remedy.
    """
    for frame in _callers():
        holder: Any = frame.f_locals.get("self")
        if not _is_pipeline(holder):
            continue
        for name, step in holder.steps[:-1]:
            if _learns(step):
                raise PermissionError(
                    f"step {name!r} ({type(step).__name__}) before a private estimator learns from "
                    "private rows, or may, which no guarantee covers: declare bounds instead, or "
                    "fit it on public rows and put FrozenEstimator(...) in the pipeline. Steps "
                    "that treat each row by itself are let through if they are known: Normalizer, "
                    "Binarizer, PolynomialFeatures, PolynomialCountSketch, RBFSampler with a "
                    "number as gamma, random projections with a number as n_components"
                )


def _learns(step: Any) -> bool:
    """Whether a step may learn more of rows than how many columns they have, or mix them."""
    from sklearn import kernel_approximation, preprocessing, random_projection
    from sklearn.frozen import FrozenEstimator
    from sklearn.pipeline import Pipeline

    kind = type(step)
    if step is None or (kind is str and step == "passthrough"):
        return False
    if kind is Pipeline:
        return any(_learns(inner) for _, inner in step.steps)
    if kind is kernel_approximation.RBFSampler:
        return isinstance(step.gamma, str)
    if kind in (
        random_projection.GaussianRandomProjection,
        random_projection.SparseRandomProjection,
    ):
        return isinstance(step.n_components, str)
    return kind not in (
        FrozenEstimator,
        preprocessing.Normalizer,
        preprocessing.Binarizer,
        preprocessing.PolynomialFeatures,
        kernel_approximation.PolynomialCountSketch,
    )


def _passes_on(frame: FrameType, module: str) -> bool:
    if _is_under(module, "sklearn.pipeline"):  # not what fits one of a pipeline's transformers
        return _is_pipeline(frame.f_locals.get("self"))
    return any(_is_under(module, plain) for plain in _PLAIN)


def _is_pipeline(thing: Any) -> bool:
    from sklearn.pipeline import Pipeline

    return issubclass(type(thing), Pipeline)


def _callers() -> Iterator[FrameType]:
    frame = inspect.currentframe()
    while frame is not None:
        yield frame
        frame = frame.f_back


def _module(frame: FrameType) -> str:
    return frame.f_globals.get("__name__") or ""


def _is_under(module: str, package: str) -> bool:
    return module == package or module.startswith(package + ".")
