"""Recipes that work, by name: hyper-parameters from the literature, or chosen on public data.

None of them was chosen on the data set that its figures are reported for, unless that is said
beside the figure; each says where it comes from, and a run's record repeats it.

    >>> preset_names()[:4]
    ('abadi-mnist', 'pca-mlp', 'scattering-linear', 'tramer-mnist')
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from sfumato.core import validation
from sfumato.data import Dataset
from sfumato.learning.dp_sgd.clipping import Flat, PerLayer
from sfumato.learning.features import PrivatePCA, ScatteringFeatures, StandardizedScattering
from sfumato.learning.recipes.inputs import input_shape
from sfumato.learning.recipes.rates import Rate
from sfumato.learning.recipes.recipe import Recipe

__all__ = ["Preset", "default_preset", "describe_preset", "preset", "preset_names"]


@dataclass(frozen=True)
class Preset:
    """A recipe for any epsilon and declared size.

    Attributes:
        about: one line.
        make: the recipe for a target, a declared number of units, and inputs of one shape.
    """

    about: str
    make: Callable[[float, int, tuple[int, ...]], Recipe]


def preset_names() -> tuple[str, ...]:
    """The names there are."""
    return tuple(_PRESETS)


def describe_preset(name: str) -> str:
    """One line about it."""
    return _known(name).about


def default_preset(shape: tuple[int, ...]) -> str:
    """What to take for inputs of one shape, channels first, if nothing is said."""
    if len(shape) != 3:
        return "table"
    divisible = all(n % 4 == 0 and n >= 8 for n in shape[1:])
    return "scattering-linear" if divisible else "cnn"


def preset(
    name: str | None, data: Dataset, *, epsilon: float, public_size: int | None = None
) -> Recipe:
    """The recipe called ``name`` (or what suits the data) for a data set's public facts.

    Args:
        name: one of :func:`preset_names`; None chooses by the shape of the inputs.
        data: of which only public facts are looked at.
        epsilon: the guarantee to meet.
        public_size: the declared number of units; by default the data set's.
    """
    shape = input_shape(data.shape)
    size = data.public_size if public_size is None else public_size
    if size is None:
        raise ValueError("public_size must be declared: roughly how many records there are")
    chosen = _known(default_preset(shape) if name is None else name)
    return chosen.make(validation.positive("epsilon", epsilon), size, shape)


def _known(name: str) -> Preset:
    if name not in _PRESETS:
        validation.fail("preset", f"one of {', '.join(_PRESETS)}", name)
    return _PRESETS[name]


# --- the recipes --------------------------------------------------------------------------------

_AVERAGED = "averaging as De et al., arXiv:2204.13650"
_TRAMER = f"Tramèr and Boneh, arXiv:2011.11660; {_AVERAGED}"
_OPPONENT = "colours as Ohta et al. 1980"
_MIRRORED = "mirror images as in De et al."
_ABADI = {0.5: (8.0, 16.0), 2.0: (4.0, 7.0), 8.0: (2.0, 4.0)}


def _abadi_mnist(epsilon: float, size: int, shape: tuple[int, ...]) -> Recipe:
    """The paper's network and noise, as many steps as epsilon allows, and averaged weights.

    The noise sigma is on each of two layers, clipped to 4 each: together one release with the
    multiplier sigma / sqrt(2). (Accounted as two sampled releases, as the paper's code does, a run
    would be 4 to 18 % longer than it may.)
    """
    if epsilon not in _ABADI:
        known = ", ".join(f"{value:g}" for value in _ABADI)
        validation.fail("epsilon", f"one of {known}, for which the paper states noise", epsilon)
    noise, pca_noise = _ABADI[epsilon]
    return Recipe(
        model="mlp",
        model_options={"hidden": 1000},
        features=PrivatePCA(60, pca_noise),
        epsilon=epsilon,
        delta=_delta(size),
        noise_multiplier=noise / math.sqrt(2),
        lot_size=min(600, size),
        clip=PerLayer(4 * math.sqrt(2)),  # of both layers together: 4 each
        rate=Rate(0.1, end=0.052, epochs=10),
        momentum=0.0,
        ema_decay=0.999,
        origin=f"Abadi et al., arXiv:1607.00133, section 5.2; {_AVERAGED}",
    )


def _pca_mlp(epsilon: float, size: int, shape: tuple[int, ...]) -> Recipe:
    """The network of Abadi et al. with settings chosen on Fashion-MNIST, at epsilon 0.5, 2 and 8.

    As for linear models, the best learning rates are inversely proportional to the noise of a
    step's mean. Bounded activations do better under noise (Papernot et al., arXiv:2007.14191).
    """
    pca_noise = _ABADI[epsilon][1] if epsilon in _ABADI else 10 / math.sqrt(epsilon)
    recipe = Recipe(
        model="mlp",
        model_options={"hidden": 1000, "activation": "tanh"},
        features=PrivatePCA(min(60, math.prod(shape)), pca_noise),
        epsilon=epsilon,
        delta=_delta(size),
        epochs=80,
        lot_size=_lot(2048 / 60_000, size),
        clip=Flat(0.1),
        rate=Rate(8.0),
        ema_decay=0.99,
        origin="chosen on Fashion-MNIST; network of Abadi et al., arXiv:1607.00133",
    )
    return _slowed(recipe, size, 0.0065)


def _scattering_linear(epsilon: float, size: int, shape: tuple[int, ...]) -> Recipe:
    """Softmax regression on scattering features.

    Grey images: lots, length, rate and averaging were chosen on Fashion-MNIST, at epsilon 0.5, 2
    and 3. There the best learning rates are inversely proportional to the noise of a step's mean,
    which is the noise multiplier over the lot size. Colours: the settings published for CIFAR-10.
    """
    grey = shape[0] == 1
    steepest, factor = (8.0, 0.0046) if grey else (4.0, 0.00225)
    recipe = Recipe(
        model="linear",
        features=ScatteringFeatures() if grey else _of_photographs(shape, mirrored=True),
        epsilon=epsilon,
        delta=_delta(size),
        epochs=120 if grey else 60,
        lot_size=_lot(8192 / 60_000 if grey else 8192 / 50_000, size),
        clip=Flat(0.1),
        rate=Rate(steepest),
        ema_decay=0.99 if grey else 0.98,
        origin="chosen on Fashion-MNIST" if grey else f"{_TRAMER}; {_MIRRORED}; {_OPPONENT}",
    )
    return _slowed(recipe, size, factor)


def _tramer_mnist(epsilon: float, size: int, shape: tuple[int, ...]) -> Recipe:
    """Softmax regression on scattering features, with the settings published for MNIST.

    Lots of 4096, 40 epochs, learning rate 8, momentum 0.9, clip norm 0.1 at epsilon 3. Two things
    are otherwise: features are normalised within one image (27 groups), as the paper does for
    Fashion-MNIST, where for MNIST it has private statistics; and weights are averaged, as of the
    other recipes. With more noise the learning rate is lower, as of the other linear models.
    """
    recipe = Recipe(
        model="linear",
        features=ScatteringFeatures(),
        epsilon=epsilon,
        delta=_delta(size),
        epochs=40,
        lot_size=_lot(4096 / 60_000, size),
        clip=Flat(0.1),
        rate=Rate(8.0),
        ema_decay=0.99,
        origin=(
            "Tramèr and Boneh, arXiv:2011.11660: as published for MNIST, normalised as for "
            f"Fashion-MNIST; {_AVERAGED}"
        ),
    )
    return _slowed(recipe, size, 0.0049)


def _slowed(recipe: Recipe, size: int, factor: float) -> Recipe:
    """Its learning rate, or ``factor`` over the noise of a step's mean if that is less."""
    noise = recipe.plan(size).noise_multiplier
    return recipe.changed(rate=Rate(min(recipe.rate.start, factor * recipe.lot_size / noise)))


def _scattering_cnn(epsilon: float, size: int, shape: tuple[int, ...]) -> Recipe:
    """A small convolutional network on scattering features."""
    grey = shape[0] == 1
    return Recipe(
        model="feature-cnn",
        features=ScatteringFeatures() if grey else _of_photographs(shape, mirrored=False),
        epsilon=epsilon,
        delta=_delta(size),
        epochs=40 if grey else 60,
        lot_size=_lot(2048 / 60_000 if grey else 8192 / 50_000, size),
        clip=Flat(0.1),
        rate=Rate(4.0),
        ema_decay=0.98,
        batch_size=1024,
        origin=_TRAMER if grey else f"{_TRAMER}; {_OPPONENT}",
    )


def _of_photographs(shape: tuple[int, ...], mirrored: bool) -> StandardizedScattering:
    return StandardizedScattering(12.0, opponent=shape[0] == 3, mirrored=mirrored)


def _delta(size: int) -> float:
    """1e-5 as everybody states it, or a tenth of 1 / N for large tables."""
    return 1e-5 if size < 100_000 else 0.1 / size


def _lot(fraction: float, size: int) -> int:
    """The same sample rate for every size."""
    return max(1, round(fraction * size))


def _cnn(epsilon: float, size: int, shape: tuple[int, ...]) -> Recipe:
    """A convolutional network on pixels."""
    return Recipe(
        model="cnn",
        epsilon=epsilon,
        delta=_delta(size),
        epochs=40,
        lot_size=_lot(2048 / 60_000, size),
        clip=Flat(0.1),
        rate=Rate(4.0),
        origin="Tramèr and Boneh, arXiv:2011.11660 (Fashion-MNIST)",
    )


def _wrn(epsilon: float, size: int, shape: tuple[int, ...]) -> Recipe:
    """WRN-16-4 on pixels, eight augmented copies of each record; for a GPU.

    Longer runs pay where noise is small: what T steps of expected lot L tell together is
    sqrt(T) L / z, which hardly grows with T at epsilon 1. So lengths are by reckoning, and one run
    each was made at epsilon 1 and 8. The last layer is faster than public weights that a run begins
    with: four times by trials on Fashion-MNIST's garments before random images, at epsilon 1; twice
    without a trial where there is more time.
    """
    tried = epsilon <= 1.5
    rates = "learning rates chosen on Fashion-MNIST" if tried else "the last layer's rate untried"
    return Recipe(
        model="wrn",
        epsilon=epsilon,
        delta=_delta(size),
        epochs=20 if tried else 65 if epsilon <= 4 else 131.072,  # 244, 793, 1,600 steps
        lot_size=_lot(4096 / 50_000, size),
        clip=Flat(1.0),
        rate=Rate(2.0),
        head_rate=4.0 if tried else 2.0,
        momentum=0.0,
        ema_decay=0.999,
        augment="flip-shift",
        augmentations=8,
        batch_size=4096,
        precision="bfloat16",
        origin=f"De et al., arXiv:2204.13650; {rates}",
    )


def _table(epsilon: float, size: int, shape: tuple[int, ...]) -> Recipe:
    """Softmax regression on a table's columns."""
    return Recipe(
        model="linear",
        epsilon=epsilon,
        delta=_delta(size),
        epochs=20,
        lot_size=_lot(0.1, size),
        clip=Flat(1.0),
        rate=Rate(1.0, end=0.0),
        origin="rules of thumb: large lots, a small model",
    )


_PRESETS = {
    "abadi-mnist": Preset("private PCA and a hidden layer, as Abadi et al. 2016", _abadi_mnist),
    "pca-mlp": Preset("images: the same network with today's settings", _pca_mlp),
    "scattering-linear": Preset("images: a linear model on scattering", _scattering_linear),
    "tramer-mnist": Preset("images: the same, as published for MNIST", _tramer_mnist),
    "scattering-cnn": Preset("images: a small CNN on scattering", _scattering_cnn),
    "cnn": Preset("images: a small CNN on pixels", _cnn),
    "wrn": Preset("images: a wide residual network on pixels, on a GPU; see --start", _wrn),
    "table": Preset("rows of a table: a linear model", _table),
}
