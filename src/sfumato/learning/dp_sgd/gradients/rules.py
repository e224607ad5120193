"""Rules: for one function each, how parameters' per-example gradients follow from the output's.

A rule has the function's own signature after ``use``, and says for each parameter how its gradients
are built from ``grad``, the gradient of the output. Rules are exact: nothing is approximated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from sfumato.learning.dp_sgd.gradients.convolution import Convolution, Geometry, resolve_padding
from sfumato.learning.dp_sgd.gradients.pieces import Direct, Outer, Piece, exact
from sfumato.learning.dp_sgd.gradients.settling import as_factors
from sfumato.learning.dp_sgd.gradients.standardised import StandardisedKernel, standardised_kernel
from sfumato.learning.dp_sgd.gradients.uses import NotCovered, Use
from sfumato.learning.functions import standardised_conv2d

__all__ = ["RULES", "reduce_to"]

Rule = Callable[..., None]
RULES: dict[Any, Rule] = {}
"""The rule of each function that has one."""


def rule(*functions: Any) -> Callable[[Rule], Rule]:
    """Registers a rule."""

    def register(function: Rule) -> Rule:
        RULES.update(dict.fromkeys(functions, function))
        return function

    return register


def reduce_to(gradients: Tensor, shape: Sequence[int]) -> Tensor:
    """(U, *broadcast shape) summed over broadcast dimensions: (U, *shape)."""
    summed = gradients
    while summed.ndim - 1 > len(shape):
        summed = summed.sum(1)
    stretched = [d + 1 for d, n in enumerate(shape) if n == 1 and summed.shape[d + 1] != 1]
    return summed.sum(stretched, keepdim=True) if stretched else summed


def _kept_for(use: Use, target: Tensor | None, activation: Tensor) -> Tensor:
    """The activation, held only if ``target``'s gradients need it: frozen weights hold nothing."""
    return use.keep(activation) if use.tracks(target) else activation.detach()


# --- matrices -----------------------------------------------------------------------------------


@rule(F.linear)
def _(use: Use, input: Tensor, weight: Tensor, bias: Tensor | None = None) -> None:
    if weight.ndim != 2 or (bias is not None and bias.shape != weight.shape[:1]):
        raise NotCovered("only a matrix and one shift for each of its rows are known")
    x = _kept_for(use, weight, input)

    def build(grad: Tensor) -> Piece:
        return Outer(use.factor(grad), use.factor(x), weight.shape, finite=use.finite)

    use.give(weight, build)
    use.give(bias, lambda grad: Direct(use.places(grad).sum(1)))


@rule(torch.matmul, torch.mm, Tensor.matmul, Tensor.mm, Tensor.__matmul__)
def _(use: Use, input: Tensor, other: Tensor) -> None:
    if other.ndim != 2 or use.tracks(input):
        raise NotCovered("only a matrix on the right of the data is known")
    x = use.keep(input)
    use.give(other, lambda grad: Outer(use.factor(x), use.factor(grad), other.shape))


@rule(torch.addmm, Tensor.addmm)
def _(
    use: Use, input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: float = 1, alpha: float = 1
) -> None:
    if input.shape != mat2.shape[1:] or use.tracks(mat1):
        raise NotCovered("only a bias and a matrix on the right of the data are known")
    x = _kept_for(use, mat2, mat1)
    use.give(input, lambda grad: Direct(beta * use.places(grad).sum(1)))

    def build(grad: Tensor) -> Piece:
        if use.finite and alpha == 1:  # of the transpose, whose left factor is the finite one
            factors = use.factor(grad), use.factor(x)
            return Outer(*factors, tuple(reversed(mat2.shape)), transposed=True, finite=True)
        left = use.factor(x) if alpha == 1 else alpha * use.places(x)
        return Outer(left, use.factor(grad), mat2.shape)

    use.give(mat2, build)


@rule(F.embedding)
def _(
    use: Use,
    input: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> None:
    if max_norm is not None:
        raise NotCovered("max_norm edits the weights in place: leave it out")
    if scale_grad_by_freq:
        raise NotCovered("scale_grad_by_freq mixes the examples of a batch: leave it out")
    index = use.keep(input)

    def build(grad: Tensor) -> Piece:
        right = use.places(grad)
        left = index.movedim(use.layout.dim, 0).reshape(right.shape[:2])
        if padding_idx is not None:
            padding = padding_idx % weight.shape[0]
            right = right.masked_fill((left == padding).unsqueeze(2), 0)
        return Outer(left, right, weight.shape)

    use.give(weight, build)


# --- convolutions -------------------------------------------------------------------------------


def _each(value: Any, dims: int) -> tuple[int, ...]:
    if not isinstance(value, Sequence):
        return (int(value),) * dims
    return tuple(int(v) for v in value) * (dims if len(value) == 1 else 1)


def _bias(use: Use, bias: Tensor | None) -> None:
    def build(grad: Tensor) -> Piece:
        return Direct(use.sum_rows(use.rows(grad).flatten(2).sum(2)))

    use.give(bias, build)


def _geometry(weight: Tensor, stride: Any, padding: Any, dilation: Any, groups: int) -> Geometry:
    kernel = tuple(weight.shape[2:])
    steps, spread = _each(stride, len(kernel)), _each(dilation, len(kernel))
    pads = padding if isinstance(padding, str) else _each(padding, len(kernel))
    return Geometry(kernel, steps, resolve_padding(pads, kernel, spread), spread, groups)


def _kernel(use: Use, weight: Tensor, image: Tensor, geometry: Geometry, swap: bool) -> None:
    if use.layout.dim != 0 or image.ndim != weight.ndim:
        raise NotCovered("a convolution needs its batch as the first dimension")
    if use.tracks(image):
        raise NotCovered("a parameter is the image of a convolution")
    x = _kept_for(use, weight, image)

    def build(grad: Tensor) -> Piece:
        inputs, outputs = use.rows_as_they_are(x), use.rows_as_they_are(grad)
        if swap:
            inputs, outputs = outputs, inputs
        return Convolution(inputs, outputs, use.units, geometry, use.scratch, str(use.name(weight)))

    use.give(weight, build)


@rule(F.conv1d, F.conv2d, F.conv3d, torch.conv1d, torch.conv2d, torch.conv3d)
def _(
    use: Use,
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> None:
    geometry = _geometry(weight, stride, padding, dilation, groups)
    _kernel(use, weight, input, geometry, swap=False)
    _bias(use, bias)


@rule(standardised_conv2d)
def _(
    use: Use,
    input: Tensor,
    weight: Tensor,
    gain: Tensor,
    bias: Tensor | None,
    stride: int,
    padding: int,
) -> None:
    if use.layout.dim != 0 or use.tracks(input):
        raise NotCovered("a convolution needs its batch as the first dimension")
    needed = weight if use.tracks(weight) else gain
    x, geometry = _kept_for(use, needed, input), _geometry(weight, stride, padding, 1, 1)
    made: list[StandardisedKernel] = []

    def kernel(grad: Tensor) -> StandardisedKernel:
        if not made:  # weights and gains share it
            rows = use.rows_as_they_are(x), use.rows_as_they_are(grad)
            source = as_factors(Convolution(*rows, use.units, geometry))
            made.append(standardised_kernel(source, weight, gain))
        return made[0]

    use.give(weight, kernel)
    use.give(gain, lambda grad: kernel(grad).of_gains())
    _bias(use, bias)


@rule(F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)
def _(
    use: Use,
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
) -> None:
    geometry = _geometry(weight, stride, padding, dilation, groups)
    _kernel(use, weight, input, geometry, swap=True)
    _bias(use, bias)


# --- normalisation ------------------------------------------------------------------------------


def _affine(
    use: Use,
    weight: Tensor | None,
    bias: Tensor | None,
    normalised: Callable[[], Tensor],
    dims: int,
) -> None:
    """Scale and shift over the last ``dims`` dimensions."""

    def scale(grad: Tensor) -> Piece:
        product = exact(grad) * normalised()
        return Direct(use.places(product, dims).sum(1))

    use.give(weight, scale)
    use.give(bias, lambda grad: Direct(use.places(grad, dims).sum(1)))


@rule(F.layer_norm)
def _(
    use: Use,
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> None:
    x, shape = _kept_for(use, weight, input), tuple(normalized_shape)
    _affine(use, weight, bias, lambda: F.layer_norm(exact(x), shape, eps=eps), len(shape))


@rule(F.rms_norm)
def _(
    use: Use,
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    eps: float | None = None,
) -> None:
    x, shape = use.keep(input), tuple(normalized_shape)
    # Without eps torch takes the machine epsilon of the input's own type.
    small = torch.finfo(input.dtype).eps if eps is None else eps
    _affine(use, weight, None, lambda: F.rms_norm(exact(x), shape, eps=small), len(shape))


def _affine_channels(
    use: Use, weight: Tensor | None, bias: Tensor | None, scale: Callable[[Tensor], Tensor]
) -> None:
    """Scale and shift of the second dimension; ``scale`` gives each row's gradient of the first."""
    if use.layout.dim != 0:
        raise NotCovered("a normalisation of channels needs its batch as the first dimension")
    use.give(weight, lambda grad: Direct(use.sum_rows(scale(exact(grad)))))
    use.give(bias, lambda grad: Direct(use.sum_rows(_over_places(exact(grad)))))


@rule(F.group_norm)
def _(
    use: Use,
    input: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> None:
    x = _kept_for(use, weight, input)

    def scale(grad: Tensor) -> Tensor:
        return _over_places(grad * F.group_norm(exact(x), num_groups, eps=eps))

    _affine_channels(use, weight, bias, scale)


def _over_places(grad: Tensor) -> Tensor:
    """(rows, channels)."""
    return grad.flatten(2).sum(2) if grad.ndim > 2 else grad


@rule(F.instance_norm)
def _(
    use: Use,
    input: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> None:
    x = _kept_for(use, weight, input)
    means = running_mean, running_var
    if use_input_stats and running_mean is not None:
        raise NotCovered(
            "running statistics are read off the data without noise: do not track them"
        )

    def scale(grad: Tensor) -> Tensor:
        made = F.instance_norm(exact(x), *means, use_input_stats=use_input_stats, eps=eps)
        return _over_places(grad * made)

    _affine_channels(use, weight, bias, scale)


@rule(F.batch_norm)
def _(
    use: Use,
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> None:
    if training or running_mean is None or running_var is None:
        raise NotCovered("batch normalisation mixes the examples of a batch: use GroupNorm")
    x = _kept_for(use, weight, input)

    def scale(grad: Tensor) -> Tensor:
        return _over_places(grad * F.batch_norm(exact(x), running_mean, running_var, eps=eps))

    _affine_channels(use, weight, bias, scale)


# --- scales and shifts: parameters of a user's own modules ---------------------------------------


def _aligned(use: Use, gradient: Tensor, shape: Sequence[int]) -> Tensor:
    """(U, *shape) from a gradient of the output's shape, which ``shape`` was broadcast to."""
    d, ndim = use.layout.dim, gradient.ndim
    own = d - (ndim - len(shape))  # the parameter's dimension that lies along the batch, if any
    if own >= 0 and shape[own] != 1:
        raise NotCovered("a parameter lies along the batch: each example would have its own part")
    first = exact(gradient).movedim(d, 0)
    rest = [n for i, n in enumerate(shape) if i != own] if own >= 0 else list(shape)
    reduced = reduce_to(use.sum_rows(first), rest)
    return reduced.unsqueeze(own + 1) if own >= 0 else reduced


@rule(torch.add, Tensor.add, Tensor.add_, Tensor.__add__, Tensor.__radd__, Tensor.__iadd__)
def _plus(use: Use, input: Any, other: Any, *, alpha: float = 1) -> None:
    if isinstance(input, Tensor):
        use.give(input, lambda grad: Direct(_aligned(use, grad, input.shape)))
    if isinstance(other, Tensor):
        use.give(other, lambda grad: Direct(alpha * _aligned(use, grad, other.shape)))


@rule(torch.sub, Tensor.sub, Tensor.sub_, Tensor.__sub__, Tensor.__isub__)
def _(use: Use, input: Any, other: Any, *, alpha: float = 1) -> None:
    _plus(use, input, other, alpha=-alpha)


@rule(torch.mul, Tensor.mul, Tensor.__mul__, Tensor.__rmul__)
def _(use: Use, input: Any, other: Any) -> None:
    for target, factor in ((input, other), (other, input)):
        if isinstance(target, Tensor) and use.tracks(target):
            held = use.keep(factor) if isinstance(factor, Tensor) else factor

            def build(grad: Tensor, held: Any = held, target: Tensor = target) -> Piece:
                times = exact(held) if isinstance(held, Tensor) else held
                return Direct(_aligned(use, exact(grad) * times, target.shape))

            use.give(target, build)


@rule(Tensor.expand, Tensor.expand_as, torch.broadcast_to, Tensor.broadcast_to)
def _(use: Use, input: Tensor, *sizes: Any, **more: Any) -> None:
    """One copy for each example: a class token, an initial state."""
    use.give(input, lambda grad: Direct(_aligned(use, grad, input.shape)))


@rule(Tensor.repeat)
def _(use: Use, input: Tensor, *sizes: Any) -> None:
    times = sizes[0] if len(sizes) == 1 and isinstance(sizes[0], Sequence) else sizes
    shape = (1,) * (len(times) - input.ndim) + tuple(input.shape)
    along = use.layout.dim
    if shape[along] != 1:
        raise NotCovered("a parameter of several rows is repeated along the batch: use expand")

    def build(grad: Tensor) -> Piece:
        for dim, (copies, size) in enumerate(zip(times, shape, strict=True)):
            if dim != along and copies != 1:
                grad = grad.unflatten(dim, (copies, size)).sum(dim)
        return Direct(_aligned(use, grad, input.shape))

    use.give(input, build)
