"""Model inversion: from a model, a picture of each class it was trained on.

===============================  ==================================================================
:func:`mi_face`                  descent on 1 - p_c, from gradients or from scores alone
:func:`invert_with_prior`        descent on logits, with what is known of pictures in general
:func:`invert_by_scores`         the same knowledge, with scores alone
:func:`train_autoencoder_prior`  that knowledge, learned from public pictures
:func:`recognition`              does somebody else's classifier see the class?
:func:`closeness`                a record of the training set, or only what a class looks like?
===============================  ==================================================================

What comes out shows a class, and often says nothing of a single person in it: a model with a good
accuracy must know what its classes look like, privately trained or not. :func:`closeness` tells
the two apart. Everything here is for the curator.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from sfumato.attacks.inversion.mi_face import mi_face
from sfumato.attacks.inversion.processing import denoise_and_sharpen
from sfumato.attacks.inversion.results import Inversion
from sfumato.attacks.inversion.scoring import Closeness, Recognition, closeness, recognition
from sfumato.attacks.inversion.slopes import CoordinateDifferences, ExactSlopes, RandomDirections

if TYPE_CHECKING:
    from sfumato.attacks.inversion.gradient_prior import Loss, Objective, Views, invert_with_prior
    from sfumato.attacks.inversion.priors import LearnedPrior, train_autoencoder_prior
    from sfumato.attacks.inversion.score_prior import coded_target, invert_by_scores

__all__ = [
    "Closeness",
    "CoordinateDifferences",
    "ExactSlopes",
    "Inversion",
    "LearnedPrior",
    "Loss",
    "Objective",
    "RandomDirections",
    "Recognition",
    "Views",
    "closeness",
    "coded_target",
    "denoise_and_sharpen",
    "invert_by_scores",
    "invert_with_prior",
    "mi_face",
    "recognition",
    "train_autoencoder_prior",
]

_NEED_TORCH = {
    "LearnedPrior": "priors",
    "Loss": "gradient_prior",
    "Objective": "gradient_prior",
    "Views": "gradient_prior",
    "coded_target": "score_prior",
    "invert_by_scores": "score_prior",
    "invert_with_prior": "gradient_prior",
    "train_autoencoder_prior": "priors",
}


def __getattr__(name: str) -> Any:
    """What needs torch is loaded when it is first used."""
    if name not in _NEED_TORCH:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_NEED_TORCH[name]}"), name)
