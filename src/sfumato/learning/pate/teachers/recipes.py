"""Kinds of teachers: a model, what stands before it, and how it is trained.

=========  ========================================================================================
linear     softmax regression: on an image's scattering features, or on a table's columns
cnn-small  a network of 26,010 weights (for 28x28) on the images
pate-cnn   two 5x5 convolutions with 64 and 128 filters, 384 and 192 hidden units; 3000 steps
=========  ========================================================================================

Nothing in a recipe is learnt from private rows: a model, features and a schedule are public.

Reference for "pate-cnn": Papernot, Abadi, Erlingsson, Goodfellow and Talwar, "Semi-supervised
knowledge transfer for deep learning from private training data", arXiv:1610.05755, appendix, and
Papernot et al., "Scalable private learning with PATE", arXiv:1802.08908. Left out here are its
local response normalisation, which hardly changes its inputs, and its averages of weights. Its rate
falls in stairs by an estimate of the parts' size; here it falls along a cosine. For the features of
"linear": Tramèr and Boneh, arXiv:2011.11660. The schedules of the other two were chosen on MNIST.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor, nn

from sfumato.core import validation
from sfumato.learning.ensembles.stacking import untrained
from sfumato.learning.features import ScatteringFeatures
from sfumato.learning.models import make_model
from sfumato.learning.models.parts import image, out_size
from sfumato.learning.pate.teachers.schedule import TeacherSchedule

__all__ = ["TeacherRecipe", "pate_cnn", "recipe_names", "teacher_recipe"]


@dataclass(frozen=True, eq=False)
class TeacherRecipe:
    """What all teachers have in common. Public.

    Attributes:
        name: of the kind.
        make: a new model, from features to logits, without buffers and without dropout.
        classes: how many logits.
        schedule: how it is trained.
        prepare: from a batch of float rows to features, each row by itself; None for the rows.
        together: how many teachers are trained at once, by default; None for all.
        engine: of :mod:`sfumato.learning.ensembles.engines`; None for what suits the device.
    """

    name: str
    make: Callable[[], nn.Module]
    classes: int
    schedule: TeacherSchedule
    prepare: Callable[[Tensor], Tensor] | None = None
    together: int | None = None
    engine: str | None = None

    def __post_init__(self) -> None:
        validation.count("classes", self.classes)
        if self.together is not None:
            validation.count("together", self.together)


def recipe_names() -> tuple[str, ...]:
    """The kinds that :func:`teacher_recipe` knows."""
    return tuple(sorted(_RECIPES))


def teacher_recipe(name: str, shape: tuple[int, ...], classes: int) -> TeacherRecipe:
    """A kind of teachers, for inputs with values in [0, 1].

    Args:
        name: one of :func:`recipe_names`.
        shape: of one input: (channels, height, width), or (columns,) of a table.
        classes: how many there are.

    >>> teacher_recipe("pate-cnn", (1, 28, 28), 10).schedule.steps
    3000
    """
    if name not in _RECIPES:
        validation.fail("kind of teachers", f"one of {', '.join(recipe_names())}", name)
    shape = tuple(validation.count("shape", n) for n in shape)
    found = _RECIPES[name](shape, validation.count("classes", classes))
    untrained(found.make)  # or says why not
    return found


def _linear(shape: tuple[int, ...], classes: int) -> TeacherRecipe:
    if len(shape) == 1:  # a table's columns, as they are
        schedule = TeacherSchedule(steps=200, batch_size=64, rate=0.1, weight_decay=1e-3)
        return TeacherRecipe(
            "linear", lambda: make_model("linear", shape, classes), classes, schedule,
            together=50, engine="stacked",
        )  # fmt: skip
    features = ScatteringFeatures()
    seen = features.out_shape(shape)
    schedule = TeacherSchedule(steps=150, batch_size=64, rate=0.01, weight_decay=0.01)
    return TeacherRecipe(
        "linear", lambda: make_model("linear", seen, classes), classes, schedule,
        prepare=features.build(shape), together=50, engine="stacked",
    )  # fmt: skip


def _cnn_small(shape: tuple[int, ...], classes: int) -> TeacherRecipe:
    schedule = TeacherSchedule(steps=400, batch_size=32, rate=0.1)
    return TeacherRecipe(
        "cnn-small", lambda: make_model("cnn", shape, classes, style="two"), classes, schedule,
        together=50,
    )  # fmt: skip


def _pate_cnn(shape: tuple[int, ...], classes: int) -> TeacherRecipe:
    schedule = TeacherSchedule(steps=3000, batch_size=128, rate=0.05, momentum=0.0, warm_up=0.0)
    return TeacherRecipe(
        "pate-cnn", lambda: pate_cnn(shape, classes), classes, schedule, together=25
    )


_RECIPES: dict[str, Callable[[tuple[int, ...], int], TeacherRecipe]] = {
    "cnn-small": _cnn_small,
    "linear": _linear,
    "pate-cnn": _pate_cnn,
}


def pate_cnn(shape: tuple[int, ...], classes: int) -> nn.Sequential:
    """The published teachers' network; see the module.

    Args:
        shape: (channels, height, width), at least 4x4.
        classes: outputs.
    """
    channels, _, _ = image("pate-cnn", shape, 4)
    body = [
        nn.Conv2d(channels, 64, 5, padding=2), nn.ReLU(), nn.MaxPool2d(3, 2, 1),
        nn.Conv2d(64, 128, 5, padding=2), nn.ReLU(), nn.MaxPool2d(3, 2, 1), nn.Flatten(),
    ]  # fmt: skip
    size = out_size(nn.Sequential(*body), shape)
    return nn.Sequential(
        *body, nn.Linear(size, 384), nn.ReLU(), nn.Linear(384, 192), nn.ReLU(),
        nn.Linear(192, classes),
    )  # fmt: skip
