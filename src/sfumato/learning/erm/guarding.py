"""Refusals of uses of scikit-learn that would release what nobody pays for.

A search (``GridSearchCV``, ``cross_val_score``, ``learning_curve`` and everything else in
``sklearn.model_selection``) fits many times and then chooses, or shows, by scores on private rows.
The fits may be private; the scores, and the choice that is made by them, are not. So a private
estimator that is fitted by one of them refuses, unless its ledger pays for every fit *and* a
:class:`~sfumato.learning.erm.scoring.ChargedAccuracy` for every score.

A transformer that was fitted on the same private rows (``StandardScaler``, ``PCA``, an imputer)
tells of them through the model behind it. In a pipeline, a private estimator refuses to be fitted
behind one that learns anything of the rows.

Both look at who is calling, up the stack: it is the one thing that clones, worker processes and
scorers cannot lose on their way. Code that loops over fits by itself is not caught; a ledger
charges it as it charges everything.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from types import FrameType
from typing import Any

__all__ = ["refuse_unpaid_search", "refuse_unsafe_steps"]

_SEARCH, _PIPELINE = "sklearn.model_selection", "sklearn.pipeline"
_OF_SHAPE_ALONE = frozenset({
    "PolynomialFeatures", "GaussianRandomProjection", "SparseRandomProjection", "RBFSampler",
    "PolynomialCountSketch", "SkewedChi2Sampler", "AdditiveChi2Sampler", "FrozenEstimator",
    "FunctionTransformer",
})  # fmt: skip
"""Transformers that learn how many columns there are, at most."""


def refuse_unpaid_search(estimator: Any) -> None:
    """Raises if a search is fitting whose scores nobody pays for.

    Raises:
        PermissionError: with the remedy.
    """
    from sfumato.learning.erm.scoring import ChargedAccuracy

    frame = next((f for f in _callers() if _module(f).startswith(_SEARCH)), None)
    if frame is None:
        return
    scorer = frame.f_locals.get("scorer")
    if scorer is None:
        scorer = getattr(frame.f_locals.get("self"), "scoring", None)
    if isinstance(scorer, ChargedAccuracy) and estimator.ledger is not None:
        return
    raise PermissionError(
        "a search over private rows must be paid for: its scores are read from them, and so is its "
        "choice. Choose on public data; or give the estimator a ledger, and the search "
        "scoring=ChargedAccuracy(epsilon=..., ledger=..., dataset=...), so that every fit and "
        "every score is charged"
    )


def refuse_unsafe_steps(estimator: Any) -> None:
    """Raises if a pipeline is fitting in which a step before learnt from the same rows.

    Raises:
        PermissionError: with the remedy.
    """
    for frame in _callers():
        steps = getattr(frame.f_locals.get("self"), "steps", None)
        if not _module(frame).startswith(_PIPELINE) or steps is None:
            continue
        for name, step in steps:
            if step is estimator:
                return
            if _learns(step):
                raise PermissionError(
                    f"step {name!r} ({type(step).__name__}) before a private estimator learns from "
                    "private rows, which no guarantee covers: declare bounds instead, or fit it on "
                    "public rows and put FrozenEstimator(...) in the pipeline"
                )


def _learns(step: Any) -> bool:
    if step is None or step == "passthrough" or type(step).__name__ in _OF_SHAPE_ALONE:
        return False
    from sklearn.utils import get_tags

    return bool(get_tags(step).requires_fit)


def _callers() -> Iterator[FrameType]:
    frame = inspect.currentframe()
    while frame is not None:
        yield frame
        frame = frame.f_back


def _module(frame: FrameType) -> str:
    return frame.f_globals.get("__name__") or ""
