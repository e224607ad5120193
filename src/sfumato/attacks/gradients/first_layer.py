"""One example from the first layer's gradient, exactly: a quotient, no search.

If a model's first layer is linear with a bias, z = W x + b, then for one example

    dL/dW_j = (dL/dz_j) x,        dL/db_j = dL/dz_j,

and the input is the quotient of the two, in every row j where the second is not zero. It is exact
for B = 1 whatever follows the layer. For B examples the quotient of row j is the weighted mean of
those that have unit j active: a single one's, now and then.

    >>> from sfumato.attacks.gradients.sharing import share_gradient
    >>> import torch
    >>> model, secret = torch.nn.Linear(3, 2), torch.tensor([[0.25, 0.5, 1.0]])
    >>> sent = share_gradient(model, secret, torch.tensor([1]))
    >>> read_first_layer(sent, "", (3,)).round(4).tolist()
    [0.25, 0.5, 1.0]

Reference: Phong, Aono, Hayashi, Wang and Moriai, "Privacy-preserving deep learning via additively
homomorphic encryption", IEEE TIFS 13 (2018), section 3.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from sfumato.attacks.gradients.sharing import SharedUpdate
from sfumato.attacks.inversion.results import checked_shape
from sfumato.core import validation

__all__ = ["read_first_layer"]


def read_first_layer(shared: SharedUpdate, layer: str, shape: Sequence[int]) -> NDArray[np.float64]:
    """The input of a linear layer, by the row with the largest gradient of the bias.

    Rows are weighed by the squares of their gradients, which is least squares: with noise of equal
    size on all numbers nothing linear is better.

    Args:
        shared: an update.
        layer: the first layer's name in the model, such as "1"; "" if it is the model itself.
        shape: of one example.

    Raises:
        ValueError: if the update has no such layer with a bias, or another number of inputs.
    """
    names = [f"{layer}.{part}".lstrip(".") for part in ("weight", "bias")]
    if any(name not in shared.gradient for name in names):
        validation.fail("layer", f"one of the update's, with a bias: {[*shared.gradient]}", layer)
    weight, bias = (shared.gradient[name].double().cpu().numpy() for name in names)
    size = checked_shape(shape)
    if weight.ndim != 2 or weight.shape[1] != np.prod(size):
        validation.fail("shape", f"that of {weight.shape[1:]} inputs", size)
    power = float(bias @ bias)
    return (bias @ weight / (power if power > 0 else 1.0)).reshape(size)
