"""The network under attack and what the server sees of a batch.

    f(x) = sum_j a_j sigma(w_j.x),        loss = 1/2 sum_i (f(x_i) - y_i)^2

The hidden weights w_j ~ N(0, I) are public: the server chose them, or knows them as everybody in
federated learning does. The output weights a_j are small, so that the residual r_i = f(x_i) - y_i
is about -y_i. Of a client's batch the server sees the gradient by the output weights,

    g_j = sum_i r_i sigma(w_j.x_i),

one number a hidden unit. That by the hidden weights, a_j sum_i r_i sigma'(w_j.x_i) x_i, is here
for context; the attack does without it.

    >>> random = np.random.default_rng(0)
    >>> network = TwoLayerNetwork.draw(3, 1000, CUBIC, generator=random)
    >>> inputs, labels = unit_inputs(2, 3, generator=random), np.array([1.0, -1.0])
    >>> network.gradient(inputs, labels).shape, network.hidden_gradient(inputs, labels).shape
    ((1000,), (1000, 3))
    >>> bool(np.abs(network.residuals(inputs, labels) + labels).max() < 0.1)
    True
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sfumato.attacks.gradients.tensor.activations import CUBIC, Activation
from sfumato.core import validation

__all__ = ["TwoLayerNetwork", "unit_inputs"]


@final
@dataclass(frozen=True, eq=False)
class TwoLayerNetwork:
    """One hidden layer, one output, squared loss.

    Attributes:
        hidden: the w_j, one a row.
        output: the a_j.
        activation: sigma.
    """

    hidden: NDArray[np.float64]
    output: NDArray[np.float64]
    activation: Activation

    def __post_init__(self) -> None:
        if self.hidden.ndim != 2 or self.output.shape != self.hidden.shape[:1]:
            validation.fail("output", f"one weight for each of {len(self.hidden)} units",
                            self.output.shape)  # fmt: skip

    @classmethod
    def draw(
        cls,
        dimension: int,
        width: int,
        activation: Activation = CUBIC,
        *,
        generator: np.random.Generator,
        output_scale: float = 1e-3,
    ) -> TwoLayerNetwork:
        """A network as it is before training.

        Args:
            dimension: d, of the inputs.
            width: m, how many hidden units.
            activation: sigma.
            generator: draws w_j ~ N(0, I) and a_j ~ N(0, output_scale^2 / m).
            output_scale: of the output weights: f(x) is about as large, times sigma's own size.
        """
        m, d = validation.count("width", width), validation.count("dimension", dimension)
        small = validation.non_negative("output_scale", output_scale) / np.sqrt(m)
        return cls(generator.normal(size=(m, d)), small * generator.normal(size=m), activation)

    @property
    def width(self) -> int:
        """How many hidden units: m."""
        return len(self.hidden)

    @property
    def dimension(self) -> int:
        """Of an input: d."""
        return self.hidden.shape[1]

    def features(self, inputs: ArrayLike) -> NDArray[np.float64]:
        """sigma(w_j.x_i), one row a hidden unit, one column an input."""
        return np.asarray(self.activation.value(self.hidden @ self._rows(inputs).T), np.float64)

    def residuals(self, inputs: ArrayLike, labels: ArrayLike) -> NDArray[np.float64]:
        """f(x_i) - y_i."""
        return self._residuals(self.features(inputs), labels)

    def gradient(self, inputs: ArrayLike, labels: ArrayLike) -> NDArray[np.float64]:
        """By the output weights: what the server sees."""
        features = self.features(inputs)
        return features @ self._residuals(features, labels)

    def example_gradients(self, inputs: ArrayLike, labels: ArrayLike) -> NDArray[np.float64]:
        """The gradient of each example's loss by the output weights, one a row."""
        features = self.features(inputs)
        return features.T * self._residuals(features, labels)[:, None]

    def hidden_gradient(self, inputs: ArrayLike, labels: ArrayLike) -> NDArray[np.float64]:
        """By the hidden weights, one row a unit."""
        rows = self._rows(inputs)
        slopes = np.asarray(self.activation.slope(self.hidden @ rows.T), np.float64)
        return self.output[:, None] * ((slopes * self.residuals(rows, labels)) @ rows)

    def with_output(self, output: NDArray[np.float64]) -> TwoLayerNetwork:
        """The same hidden layer under other output weights."""
        return TwoLayerNetwork(self.hidden, output, self.activation)

    def _residuals(self, features: NDArray[Any], labels: ArrayLike) -> NDArray[np.float64]:
        wanted = np.asarray(labels, dtype=np.float64)
        if wanted.shape != (features.shape[1],):
            validation.fail("labels", f"one for each of {features.shape[1]} inputs", wanted.shape)
        return self.output @ features - wanted

    def _rows(self, inputs: ArrayLike) -> NDArray[np.float64]:
        rows = np.asarray(inputs, dtype=np.float64)
        if rows.ndim != 2 or rows.shape[1] != self.dimension or len(rows) == 0:
            validation.fail("inputs", f"a table with {self.dimension} columns", rows.shape)
        return rows


def unit_inputs(
    count: int, dimension: int, *, generator: np.random.Generator
) -> NDArray[np.float64]:
    """So many inputs of length 1, their directions uniform."""
    size = validation.count("count", count), validation.count("dimension", dimension)
    rows = generator.normal(size=size)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)
