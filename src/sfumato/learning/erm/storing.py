"""Estimators as files: JSON and plain arrays."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from sfumato.core.json_files import read_json
from sfumato.core.records import Record
from sfumato.learning.erm.rows import RowScaling

if TYPE_CHECKING:
    from sfumato.learning.erm.base import PrivateLinear

__all__ = ["load", "save"]

_FACTS, _WEIGHTS = "estimator.json", "weights.npz"
_OURS_ALONE = ("coins", "ledger", "dataset", "analyst")  # of the place where it was fitted
_Estimator = TypeVar("_Estimator", bound="PrivateLinear")


def save(estimator: PrivateLinear, folder: str | Path) -> None:
    """Writes a fitted estimator.

    Raises:
        ValueError: if it is not fitted, the folder is not empty, or a parameter is no JSON.
    """
    if not hasattr(estimator, "weights_"):
        raise ValueError("an estimator must be fitted to be saved: call fit(X, y) first")
    path = Path(folder)
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise ValueError(f"folder must be new or empty, but {path} is neither")
    parameters = {
        name: _plain(value)
        for name, value in estimator.get_params(deep=False).items()
        if name not in _OURS_ALONE
    }
    facts = {
        "estimator": type(estimator).__name__,
        "parameters": parameters,
        "scaling": estimator.scaling_.to_dict(),
        "columns": estimator.n_features_in_,
        "classes": _plain(getattr(estimator, "classes_", None)),
        "record": estimator.record_.to_dict(),
    }
    text = json.dumps(facts, indent=2, allow_nan=False)
    path.mkdir(parents=True, exist_ok=True)
    np.savez(path / _WEIGHTS, weights=estimator.weights_)
    (path / _FACTS).write_text(text + "\n", encoding="utf-8")


def load(kind: type[_Estimator], folder: str | Path) -> _Estimator:
    """Reads a fitted estimator of one kind.

    Raises:
        ValueError: if there is none.
    """
    path = Path(folder)
    if not (path / _FACTS).is_file():
        raise ValueError(f"folder must hold an estimator ({_FACTS}), got {str(path)!r}")
    facts = read_json(path / _FACTS)
    if facts["estimator"] != kind.__name__:
        raise ValueError(
            f"folder must hold a {kind.__name__}, got a {facts['estimator']} in {str(path)!r}"
        )
    made = kind(**facts["parameters"])
    made.scaling_ = RowScaling.from_dict(facts["scaling"])
    made.n_features_in_ = facts["columns"]
    if facts["classes"] is not None:
        setattr(made, "classes_", np.array(facts["classes"]))  # noqa: B010
    made.record_ = Record.from_dict(facts["record"])
    made.guarantee_ = made.record_.guarantee
    with np.load(path / _WEIGHTS, allow_pickle=False) as arrays:
        made.weights_ = arrays["weights"]
    return made


def _plain(value: Any) -> Any:
    """JSON-ready."""
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return value
