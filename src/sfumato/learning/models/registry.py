"""From a model's name to the model."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from torch import nn

from sfumato.core import validation
from sfumato.core.functions import names_function
from sfumato.learning.models.abadi_cnn import abadi_cnn
from sfumato.learning.models.cnn import cnn
from sfumato.learning.models.dense import linear, mlp
from sfumato.learning.models.feature_cnn import feature_cnn
from sfumato.learning.models.own import make_own
from sfumato.learning.models.transformer import transformer
from sfumato.learning.models.wrn import wrn

__all__ = ["describe_model", "make_model", "model_names"]

_MODELS: dict[str, tuple[Callable[..., nn.Module], str]] = {
    "abadi-cnn": (abadi_cnn, "two 5x5 convolutions, two hidden layers (arXiv:1607.00133)"),
    "cnn": (cnn, "small convolutional network for images (arXiv:2007.14191)"),
    "feature-cnn": (feature_cnn, "two 3x3 convolutions on maps of features (arXiv:2011.11660)"),
    "linear": (linear, "one linear layer"),
    "mlp": (mlp, "hidden layers on flattened inputs"),
    "transformer": (transformer, "small vision transformer (arXiv:2010.11929)"),
    "wrn": (wrn, "wide residual network with group normalisation (arXiv:2204.13650)"),
}


def model_names() -> tuple[str, ...]:
    """The names that :func:`make_model` knows, in alphabetical order."""
    return tuple(sorted(_MODELS))


def describe_model(name: str) -> str:
    """One line about a model, with its options and their defaults.

    >>> describe_model("mlp")
    "hidden layers on flattened inputs; options hidden=1000, activation='relu'"
    """
    if names_function(name):
        return f"your own: function {name.partition(':')[2]} of {name.partition(':')[0]}"
    function, text = _MODELS[_known(name)]
    options = ", ".join(f"{key}={value!r}" for key, value in _options(function).items())
    return f"{text}; options {options}" if options else text


def make_model(name: str, shape: tuple[int, ...], classes: int, **options: Any) -> nn.Module:
    """A fresh model from inputs (n, *shape) to logits (n, classes).

    Args:
        name: one of :func:`model_names`, or ``"package.module:function"`` for one's own, called
            as ``function(shape=..., classes=..., **options)``.
        shape: of one input: (channels, height, width) of images, (d,) of rows.
        classes: how many logits.
        options: of that model; see :func:`describe_model`.

    Raises:
        ValueError: for an unknown name or option, or a shape that the model is not for.
    """
    if not shape:
        validation.fail("shape", "(channels, height, width) of images or (d,) of rows", shape)
    shape = tuple(validation.count("shape", n) for n in shape)
    classes = validation.count("classes", classes)
    if isinstance(name, str) and names_function(name):
        return make_own(name, shape, classes, options)
    function, _ = _MODELS[_known(name)]
    known = _options(function)
    unknown = [option for option in options if option not in known]
    if unknown:
        there = f"one of {', '.join(known)}" if known else "left out: there are none"
        validation.fail(f"option of {name!r}", there, unknown[0])
    return function(shape, classes, **options)


def _known(name: str) -> str:
    if name not in _MODELS:
        wanted = f"one of {', '.join(model_names())}, or 'package.module:function'"
        validation.fail("model", wanted, name)
    return name


def _options(function: Callable[..., nn.Module]) -> dict[str, Any]:
    """The options and their defaults: all but shape and classes."""
    known = inspect.signature(function).parameters.values()
    return {p.name: p.default for p in known if p.name not in ("shape", "classes")}
