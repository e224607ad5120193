"""What a run says of itself in public: facts for its record."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato.data import Dataset
from sfumato.learning.adaptive_laplace.recipe import AdaptiveLaplaceRecipe
from sfumato.learning.relevance.known import KnownModel

__all__ = ["public_facts"]

_NOT_PUBLIC = "none that is public: results on other rows stay with the curator"


def public_facts(
    recipe: AdaptiveLaplaceRecipe,
    data: Dataset,
    known: KnownModel,
    shares: NDArray[np.float64],
    accuracy: float | None,
) -> dict[str, Any]:
    """Nothing of it is read off private rows, but for the shares, which were charged for.

    Args:
        recipe: how.
        data: of which only what is declared is told, and how many rows there are.
        known: the network of relevance.
        shares: released.
        accuracy: on the test set; told only if that is public.
    """
    classes = len(data.classes)
    parts = recipe.parts(classes)
    scales = recipe.noisy_inputs(classes, shares).scales
    relevance = "none: all inputs have equal shares" if parts.relevance == 0 else known.to_dict()
    facts: dict[str, Any] = {
        "data": {
            "name": data.name,
            "classes": list(data.classes),
            "shape": list(data.shape),
            "bounds": list(data.bounds),
            "public_size": len(data.train.labels),  # public under replacements
            "citation": data.citation,
        }
        | ({} if data.rows is None else {"rows": data.rows}),
        "epsilons": parts._asdict(),
        "local_guarantee": recipe.local_guarantee(classes).to_dict(),
        "relevance_by": relevance,
        "shares": np.asarray(shares).ravel().round(6).tolist(),
        "noise_scales": {"least": float(scales.min()), "of_equal_shares": len(shares.ravel())
                         / parts.inputs},
        "tuning": recipe.origin,
        "test_set": _test_set(data, accuracy),
    }  # fmt: skip
    public = accuracy is not None and data.test_is_public
    return facts | {"accuracy": accuracy} if public else facts


def _test_set(data: Dataset, accuracy: float | None) -> str:
    if not data.test_is_public:
        return _NOT_PUBLIC
    return "none" if accuracy is None else "public"
