"""Float32 products of norms and sums, kept whole while the model's own may be shortened.

Settings such as TF32 hold for a whole program. Where a compiled step contains both the model's
products, for which the user allows them, and products of norms and sums, for which the allowance
for rounding does not, the latter become operations of their own: each switches shortened products
off while it runs, and back on.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.fx import Graph, GraphModule, Node

from sfumato.learning.dp_sgd.compiled.roles import operation, products_in_norms
from sfumato.learning.dp_sgd.gradients.precision import full_precision

__all__ = ["keep_whole"]

_aten = torch.ops.aten


@torch.library.custom_op("sfumato::whole_mm", mutates_args=())
def _mm(left: Tensor, right: Tensor) -> Tensor:
    with full_precision():
        return torch.mm(left, right)


@torch.library.custom_op("sfumato::whole_bmm", mutates_args=())
def _bmm(left: Tensor, right: Tensor) -> Tensor:
    with full_precision():
        return torch.bmm(left, right)


@torch.library.custom_op("sfumato::whole_kernel_gradient", mutates_args=())
def _kernel_gradient(
    outputs: Tensor,
    inputs: Tensor,
    kernel: Tensor,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> Tensor:
    rest = stride, padding, dilation, False, [0] * len(stride), groups, [False, True, False]
    with full_precision():
        found = _aten.convolution_backward(outputs, inputs, kernel, None, *rest)[1]
    return found.contiguous()


@_mm.register_fake
@_bmm.register_fake
def _(left: Tensor, right: Tensor) -> Tensor:
    return left.new_empty((*left.shape[:-1], right.shape[-1]))


@_kernel_gradient.register_fake
def _(
    outputs: Tensor,
    inputs: Tensor,
    kernel: Tensor,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> Tensor:
    return outputs.new_empty(kernel.shape)


def keep_whole(module: GraphModule) -> None:
    """Replaces products of norms and sums in a graph whose roles are noted, where known how.

    Products of other kinds stay, and ``products_in_norms`` still lists them.
    """
    graph, listed = module.graph, set(products_in_norms(module))
    for node in [n for n in graph.nodes if n.name in listed]:
        if operation(node) in (_aten.mm, _aten.bmm):
            name = "whole_mm" if operation(node) is _aten.mm else "whole_bmm"
            _replace(graph, node, name, node.args[:2], node)
        elif operation(node) is _aten.convolution_backward:
            _replace_kernel_gradient(graph, node)
    graph.lint()
    module.recompile()


def _replace(graph: Graph, node: Node, name: str, args: tuple[object, ...], used: Node) -> None:
    """Puts the operation where ``node`` is, its result in place of ``used``."""
    with graph.inserting_after(node):
        whole = graph.call_function(getattr(torch.ops.sfumato, name).default, args)  # pyright: ignore[reportArgumentType]
    whole.meta = {**used.meta}
    used.replace_all_uses_with(whole)
    graph.erase_node(used)


def _replace_kernel_gradient(graph: Graph, node: Node) -> None:
    outputs, inputs, kernel, _, stride, padding, dilation, transposed, _, groups, mask = node.args
    users = list(node.users)
    single = len(users) == 1 and users[0].target is operator.getitem
    if transposed or list(mask) != [False, True, False] or not single:  # pyright: ignore[reportArgumentType]
        return
    args = outputs, inputs, kernel, stride, padding, dilation, groups
    _replace(graph, node, "whole_kernel_gradient", args, users[0])
    graph.erase_node(node)
