"""What each operation of a traced private step is for: the chain rule, norms, or sums.

The step is traced with three kinds of results more than it needs: the clip factors, the output
gradients that the chain rule delivered to each layer, and the allowances for rounding in norms.
What these gradients and the losses are made from is the model's own work (*chain*); what is made
from the clip factors is *sums*; all else is *norms*, of which allowances are the part that need not
be exact. So it is known, not guessed, which matrix products belong to norms and sums, where a
setting that shortens float32 factors (TF32) must not reach.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.fx import Graph, GraphModule, Node
from torch.fx.experimental.proxy_tensor import make_fx

__all__ = [
    "ALLOWANCE",
    "BACKWARD",
    "CHAIN",
    "NORM",
    "ROLE",
    "SUM",
    "UNAVAILABLE",
    "dtype_of",
    "has_role",
    "inputs_of",
    "operation",
    "output_of",
    "products_in_norms",
    "results_of",
    "simplified",
]

ROLE, BACKWARD, ALLOWANCE = "sfumato_role", "sfumato_backward", "sfumato_allowance"
"""Keys in a node's ``meta``: its role, whether it depends on the tangent, and whether norms need it
as an allowance for rounding only."""

CHAIN, NORM, SUM = "chain", "norm", "sum"

UNAVAILABLE = (
    ImportError, AttributeError, TypeError, ValueError, LookupError, RuntimeError, AssertionError,
)  # fmt: skip
"""What torch's private tools raise where another version lacks or changed them."""

_aten = torch.ops.aten
_PRODUCTS = {
    _aten.mm, _aten.bmm, _aten.addmm, _aten.baddbmm, _aten.addbmm, _aten.mv, _aten.addmv, _aten.dot,
    _aten.vdot, _aten.matmul, _aten.linear, _aten.einsum, _aten.convolution,
    _aten.convolution_backward,
}  # fmt: skip
_PRODUCTS_INSIDE = ("attention", "lstm", "gru", "rnn")


def simplified(graph: GraphModule, inputs: Sequence[Tensor], extra: tuple[int, int]) -> GraphModule:
    """The graph in the compiler's own basic operations, none of which writes in place.

    Args:
        graph: takes ``inputs``, the last of them the tangent; returns losses, norms and sums, then
            the clip factors, the output gradients that the chain rule delivered, and allowances.
        inputs: as for a call.
        extra: how many output gradients there are, and how many allowances.

    Returns:
        The same without clip factors, gradients and allowances among its results, each operation's
        role noted, inputs named as torch's partitioner wants them.

    Raises:
        Exception: one of :data:`UNAVAILABLE`, if this torch cannot do it.
    """
    from torch._functorch.compile_utils import fx_graph_cse
    from torch._inductor.decomposition import select_decomp_table

    importlib.import_module(
        "torch._inductor.lowering"
    )  # which some decompositions take for granted
    with torch.no_grad():
        module = make_fx(
            torch.func.functionalize(graph, remove="mutations"),
            decomposition_table=select_decomp_table(),
            tracing_mode="fake",
            _allow_non_fake_inputs=True,
        )(*inputs)
    _drop_aliases(module.graph)
    module.graph.eliminate_dead_code()
    module.graph = fx_graph_cse(module.graph)
    _rename(module.graph)
    _mark(module.graph, extra)
    module.graph.eliminate_dead_code()
    module.recompile()
    return module


def products_in_norms(module: GraphModule) -> list[str]:
    """Names of the float32 matrix products and convolutions in norms or sums.

    Where the list is empty, a setting that shortens float32 products touches the model alone.
    """
    return [
        node.name
        for node in module.graph.nodes
        if (has_role(node, NORM) or has_role(node, SUM))
        and _multiplies(node)
        and any(dtype_of(n) == torch.float32 for n in node.all_input_nodes)
    ]


def _multiplies(node: Node) -> bool:
    found = operation(node)
    if found in _PRODUCTS:
        return True
    return str(found).startswith("aten.") and any(part in str(found) for part in _PRODUCTS_INSIDE)


# --- looking at nodes -----------------------------------------------------------------------------


def has_role(node: Node, role: str) -> bool:
    """Whether the node was marked so."""
    return node.meta.get(ROLE) == role


def operation(node: Node) -> Any:
    """The torch operation, whatever its overload; None for inputs, results and the like."""
    return getattr(node.target, "overloadpacket", None)


def dtype_of(node: Node) -> torch.dtype | None:
    """Of the tensor that the node computes, if it is one."""
    value = node.meta.get("val")
    return value.dtype if isinstance(value, Tensor) else None


def inputs_of(graph: Graph) -> list[Node]:
    """The graph's placeholders."""
    return [node for node in graph.nodes if node.op == "placeholder"]


def output_of(graph: Graph) -> Node:
    """The node that returns."""
    return next(iter(graph.find_nodes(op="output")))


def results_of(graph: Graph) -> list[Any]:
    """What is returned."""
    found = output_of(graph).args[0]
    assert isinstance(found, (tuple, list))
    return list(found)


# --- preparing ------------------------------------------------------------------------------------


def _drop_aliases(graph: Graph) -> None:
    """Other names for the same tensor mean nothing in a graph that never writes."""
    for node in list(graph.nodes):
        if operation(node) in (_aten.alias, _aten.detach):
            node.replace_all_uses_with(node.all_input_nodes[0])
            graph.erase_node(node)


def _rename(graph: Graph) -> None:
    places = inputs_of(graph)
    for number, node in enumerate(places, 1):
        name = "tangents_1" if node is places[-1] else f"primals_{number}"
        node.name = node.target = name


def _mark(graph: Graph, extra: tuple[int, int]) -> None:
    """Notes every node's role, and drops the results that only served to tell."""
    results = results_of(graph)
    kept = results[: len(results) - sum(extra) - 1]
    scales, *more = results[len(kept) :]
    delivered, allowances = more[: extra[0]], set(more[extra[0] :])
    chain, exact = _before([results[0], *delivered]), _before(kept, allowances)
    sums, backward = _after(graph, scales), _after(graph, inputs_of(graph)[-1])
    for node in graph.nodes:
        node.meta[ROLE] = CHAIN if node in chain else SUM if node in sums else NORM
        node.meta[BACKWARD] = node in backward
        node.meta[ALLOWANCE] = node not in exact
    output_of(graph).args = (tuple(kept),)


def _before(nodes: Iterable[Any], beyond: set[Any] | None = None) -> set[Node]:
    """These and all that they are computed from, but for what lies beyond some."""
    found: set[Node] = set()
    stack = [node for node in nodes if isinstance(node, Node)]
    while stack:
        node = stack.pop()
        if node not in found and node not in (beyond or ()):
            found.add(node)
            stack.extend(node.all_input_nodes)
    return found


def _after(graph: Graph, start: Any) -> set[Node]:
    """Everything computed from ``start``, itself left out."""
    found: set[Node] = set()
    for node in graph.nodes:
        if node.op != "output" and any(n in found or n is start for n in node.all_input_nodes):
            found.add(node)
    return found
