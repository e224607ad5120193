"""Any other function: one vector-Jacobian product for each example, by ``torch.func``.

Exact for every function that treats the rows of its batch independently, and slower than a rule:
the function is run once more, for all examples side by side.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from sfumato.learning.dp_sgd.gradients.layout import Layout
from sfumato.learning.dp_sgd.gradients.pieces import Direct, Piece, exact
from sfumato.learning.dp_sgd.gradients.uses import NotCovered, Use, function_name

__all__ = ["give_fallback", "pull_back"]


def _one_row(tensor: Tensor, layout: Layout, rows: int) -> Tensor:
    """(rows, ...): each row as the function saw it, with its batch dimension in place."""
    first = tensor.movedim(layout.dim, 0)
    split = first.reshape(rows, -1, *first.shape[1:])
    return split.movedim(1, layout.dim + 1)


def _as_constant(tensor: Tensor) -> Tensor:
    """Without a graph; numbers in the precision of sums, so that autocast leaves no mixture."""
    return exact(tensor.detach()) if tensor.is_floating_point() else tensor.detach()


@contextlib.contextmanager
def _quietly() -> Generator[None]:
    """Without torch's warning that a function is run row by row: that is known, and right."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "There is a performance drop", UserWarning)
        yield


def give_fallback(
    use: Use,
    function: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    rows: int,
) -> None:
    """Fills ``use`` for every tracked argument that has no build yet."""
    leaves, spec = pytree.tree_flatten((tuple(args), dict(kwargs)))
    tensors = [i for i, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]
    targets = [i for i in tensors if use.tracks(leaves[i]) and id(leaves[i]) not in use.builds]
    batched = {
        i: layout
        for i, layout in zip(tensors, use.site.inputs, strict=True)
        if layout is not None and not use.tracks(leaves[i])
    }
    name = function_name(function)
    if not batched:
        raise NotCovered(f"{name} makes a batch out of a parameter alone")
    if len({id(leaves[i]) for i in targets}) != len(targets):
        raise NotCovered(f"a parameter is passed twice to {name}")
    held = {i: use.keep(leaves[i]) for i in batched}
    fixed = [
        None if i in held else _as_constant(leaf) if isinstance(leaf, Tensor) else leaf
        for i, leaf in enumerate(leaves)
    ]

    def each(*values: Tensor) -> tuple[Tensor, ...]:
        """One row's gradients of the targets."""
        *own, grad = values
        filled = list(fixed)
        for i, value in zip(held, own, strict=True):
            filled[i] = value

        def forward(*parameters: Tensor) -> Tensor:
            for i, parameter in zip(targets, parameters, strict=True):
                filled[i] = parameter
            positional, named = pytree.tree_unflatten(filled, spec)
            return function(*positional, **named)

        out, pull, *_ = torch.func.vjp(forward, *(exact(leaves[i].detach()) for i in targets))
        return pull(grad.to(out.dtype))

    found: list[tuple[Tensor, ...]] = []

    def gradients(grad: Tensor) -> tuple[Tensor, ...]:
        if not found:
            if not rows:
                found.append(
                    tuple(exact(leaves[i].new_zeros(0, *leaves[i].shape)) for i in targets)
                )
                return found[0]
            own = [_one_row(_as_constant(t), batched[i], rows) for i, t in held.items()]
            out = _one_row(exact(grad), use.layout, rows)
            try:
                with _quietly():
                    found.append(torch.func.vmap(each)(*own, out))
            except (RuntimeError, ValueError) as error:
                raise NotCovered(f"{name} cannot be run one example at a time ({error})") from error
        return found[0]

    for position, i in enumerate(targets):

        def build(grad: Tensor, position: int = position) -> Piece:
            return Direct(use.sum_rows(exact(gradients(grad)[position])))

        use.give(leaves[i], build)


def pull_back(
    function: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    parents: Sequence[Tensor],
    gradients: Mapping[int, Tensor],
) -> list[Tensor]:
    """(U, *shape) for each of ``parents`` from gradients (U, ...) of outputs by their position.

    For a function of parameters alone: a transposed, sliced, cast or normalised weight.
    """
    leaves, spec = pytree.tree_flatten((tuple(args), dict(kwargs)))

    def forward(*values: Tensor) -> tuple[Tensor, ...]:
        filled = list(leaves)
        for i, leaf in enumerate(leaves):
            for parent, value in zip(parents, values, strict=True):
                if leaf is parent:
                    filled[i] = value
        positional, named = pytree.tree_unflatten(filled, spec)
        out = function(*positional, **named)
        flat = [out] if isinstance(out, Tensor) else list(out)
        return tuple(flat[i] for i in gradients)

    with torch.no_grad():
        outs, pull, *_ = torch.func.vjp(forward, *(parent.detach() for parent in parents))
    cast = tuple(g.to(out.dtype) for g, out in zip(gradients.values(), outs, strict=True))
    if not next(iter(gradients.values())).shape[0]:
        return [exact(parent.new_zeros(0, *parent.shape)) for parent in parents]
    try:
        with _quietly():
            found = torch.func.vmap(lambda *g: pull(g))(*cast)
    except (RuntimeError, ValueError) as error:
        name = function_name(function)
        raise NotCovered(f"{name} of parameters cannot be traced back ({error})") from error
    if len(found) == 1:
        return [exact(found[0]).contiguous()]
    # Parents may be handed the same gradient: each gets memory of its own.
    return [exact(g).clone(memory_format=torch.contiguous_format) for g in found]
