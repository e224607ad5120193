"""Which classes were in the batch: read off the last layer's gradient.

With cross entropy and logits z the gradient by the last layer's bias is, averaged over B examples,

    G_c = (1/B) sum_i (p_c(x_i) - [y_i = c]),

so class c has n_c = B (mean of p_c - G_c) examples. The mean of p_c is not known, but the model is:
for a model that is not sure of anything yet p_c is nearly the same for all inputs, and is taken
from random ones. For one example no estimate is needed: G_c is negative for its class alone (iDLG,
Zhao, Mopuri and Bilen, arXiv:2001.02610). Without a bias, sums over the rows of the weight's
gradient stand in for it: the same sum with each example weighted by the sum of its inputs to the
last layer, which after a ReLU is positive, and whose mean is taken from random inputs, too.

Counts are rounded so that they add up to B: classes are given one after the other to where most is
left (LLG, Wainakh et al., arXiv:2105.09369).

    >>> from sfumato.attacks.gradients.sharing import share_gradient
    >>> torch.manual_seed(0) and None
    >>> model, x = nn.Linear(4, 5), torch.rand(6, 4)
    >>> sent = share_gradient(model, x, torch.tensor([0, 3, 3, 1, 4, 4]))
    >>> recover_labels(model, sent, (4,)).tolist()
    [0, 1, 3, 3, 4, 4]
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from sfumato.attacks.gradients.sharing import SharedUpdate
from sfumato.attacks.torch_models import evaluating
from sfumato.core import validation

__all__ = ["recover_labels"]

_GUESSES = 64  # random inputs, for what the model answers to anything


def recover_labels(
    module: nn.Module,
    shared: SharedUpdate,
    shape: tuple[int, ...],
    *,
    bounds: tuple[float, float] = (0.0, 1.0),
) -> NDArray[np.int64]:
    """The classes of the examples, in rising order.

    Args:
        module: the model at the weights that the update was computed at; its last linear layer
            makes the logits.
        shared: the update.
        shape: of one example.
        bounds: of a pixel.

    Raises:
        ValueError: for a model without a linear layer.
    """
    last = _last_linear(module)
    weight, bias = (
        shared.gradient.get(f"{last}.{part}".lstrip(".")) for part in ("weight", "bias")
    )
    if bias is None and weight is None:
        validation.fail("shared", f"an update with gradients of {last or 'the layer'}", "none")
    with evaluating(module), torch.no_grad():
        likely, size = _answers(module, module.get_submodule(last), shape, bounds)
    if bias is None:
        assert weight is not None
        bias = weight.flatten(1).sum(dim=1) / size
    if shared.batch == 1:
        return np.array([int(bias.argmin())])
    return _dealt((shared.batch * (likely - bias)).cpu().double().numpy(), shared.batch)


def _answers(
    module: nn.Module, last: nn.Module, shape: tuple[int, ...], bounds: tuple[float, float]
) -> tuple[Tensor, float]:
    """The mean probability of each class, and the mean sum of the last layer's inputs."""
    seen: list[Tensor] = []
    hook = last.register_forward_pre_hook(lambda _layer, given: seen.append(given[0]))
    try:
        likely = module(_random_inputs(module, shape, bounds)).softmax(dim=1).mean(dim=0)
    finally:
        hook.remove()
    size = float(seen[0].flatten(1).sum(dim=1).mean())
    return likely, size if size != 0 else 1.0


def _dealt(counts: NDArray[np.float64], batch: int) -> NDArray[np.int64]:
    """So many labels, each time of the class of which most is left."""
    left, labels = np.nan_to_num(counts), []
    for _ in range(batch):
        labels.append(int(left.argmax()))
        left[labels[-1]] -= 1
    return np.array(sorted(labels))


def _last_linear(module: nn.Module) -> str:
    names = [name for name, part in module.named_modules() if isinstance(part, nn.Linear)]
    if not names:
        validation.fail("module", "a model that ends with a linear layer", type(module).__name__)
    return names[-1]


def _random_inputs(
    module: nn.Module, shape: tuple[int, ...], bounds: tuple[float, float]
) -> Tensor:
    low, high = bounds
    first = next(module.parameters())
    coins = torch.Generator().manual_seed(0)
    drawn = torch.rand((_GUESSES, *shape), generator=coins)
    return (low + (high - low) * drawn).to(first)
