"""A traced private step, rearranged so that it holds no more than plain training does.

The step is one graph: losses, their gradients by the chain rule, norms, clip factors, sums. Left as
it was traced, whatever a layer computed on the way (under autocast: normalised activations in
float32) waits for the backward pass in memory. Three things are done about it.

*Recomputed.* The graph is cut in two where the row weights enter, as torch cuts forward from
backward: a minimum cut over bytes decides what is kept, and cheap elementwise work is done again in
the second half. Then both halves are put back together as one graph.

*Stored once.* What the sums read is what the norms read, bit for bit. A compiler that fuses would
otherwise be free to round a value to bfloat16 in one place and not in another, and a contribution
could be longer than the norm it was clipped by. So these values are made real buffers, in the
narrowest type that holds them exactly; the sums repeat only what is exact (views, casts to a
wider type).

*In time.* Each layer's norm is computed as soon as its output gradient is there, each copy just
before it is needed.

Nothing random is ever computed twice: a graph in which that would happen, one that writes into its
inputs, or a torch without these tools, runs as it was traced.

Reference: He and Yu, "Transcending runtime-memory tradeoffs in checkpointing by being fusion
aware", MLSys 2023, for the cut; Bu et al., "Differentially private optimization on large model at
small cost", arXiv:2210.00038, for what must stay until the end.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable

import torch
from torch import Tensor
from torch.fx import Graph, GraphModule, Node

from sfumato.learning.dp_sgd.compiled.roles import (
    ALLOWANCE,
    BACKWARD,
    CHAIN,
    NORM,
    ROLE,
    SUM,
    UNAVAILABLE,
    dtype_of,
    has_role,
    inputs_of,
    operation,
    output_of,
    results_of,
)

__all__ = ["as_traced", "reads_short_numbers", "rematerialised"]

_aten, _prims = torch.ops.aten, torch.ops.prims
_VIEWS = {
    _aten.view, _aten._unsafe_view, _aten.reshape, _aten.permute, _aten.transpose, _aten.t,
    _aten.squeeze, _aten.unsqueeze, _aten.expand, _aten.slice, _aten.select, _aten.as_strided,
    _aten.diagonal, _aten.unfold,
}  # fmt: skip


def as_traced(module: GraphModule, weights: int, scale: float, extra: int = 0) -> GraphModule:
    """The same graph without its last input and its last results.

    Args:
        module: its last input is the tangent.
        weights: the position of the row weights among the inputs.
        scale: what they are multiplied with to give the tangent.
        extra: how many results to drop.
    """

    def fill(graph: Graph) -> None:
        places = inputs_of(graph)
        value = source = places[weights]
        if scale != 1:
            with graph.inserting_after(places[-1]):
                value = graph.call_function(_aten.mul.Tensor, (source, scale))
            value.meta = {**places[-1].meta}
        places[-1].replace_all_uses_with(value)
        graph.erase_node(places[-1])
        results = results_of(graph)
        output_of(graph).args = (tuple(results[: len(results) - extra]),)

    return _changed(module, fill)


def rematerialised(module: GraphModule, weights: int, scale: float) -> GraphModule | None:
    """One graph that holds little: as the given one, without its last input.

    Args:
        module: from :func:`~sfumato.learning.dp_sgd.compiled.roles.simplified`.
        weights: the position of the row weights among the inputs.
        scale: what they are multiplied with to give the tangent.

    Returns:
        None where it must run as it was traced.
    """
    if any(_writes(node) for node in module.graph.nodes):
        return None
    try:
        importlib.import_module("torch._inductor.inductor_prims")  # the operation that stores
        first, second = _cut(_changed(module, _store_what_sums_read))
    except UNAVAILABLE:
        return None
    joined = _joined(first, second)
    if joined is None or _random_steps(joined.graph) > _random_steps(module.graph):
        return None
    joined = as_traced(joined, weights, scale)
    _repeat(joined.graph, {SUM}, SUM)  # a factor widened for a norm need not wait for the sum
    return GraphModule(joined, _in_time(joined.graph))


def _changed(module: GraphModule, change: Callable[[Graph], None]) -> GraphModule:
    """A copy of the graph, changed."""
    graph, copies = Graph(), dict[Node, Node]()
    for node in module.graph.nodes:
        copies[node] = graph.node_copy(node, copies.__getitem__)
    change(graph)
    graph.lint()
    return GraphModule(module, graph)


def _writes(node: Node) -> bool:
    schema = getattr(node.target, "_schema", None)
    return bool(schema is not None and schema.is_mutable)


def _random_steps(graph: Graph) -> int:
    return sum(_is_random(node) for node in graph.nodes)


def _is_random(node: Node) -> bool:
    return torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())


# --- stored once ----------------------------------------------------------------------------------


def _store_what_sums_read(graph: Graph) -> None:
    """Makes every value that sums read a buffer, which norms then read as well."""
    _repeat(graph, {NORM, SUM}, NORM)
    read = {n for node in graph.nodes if has_role(node, SUM) for n in node.all_input_nodes}
    sources = {_source(node) for node in read if not has_role(node, SUM)}
    for node in [n for n in graph.nodes if n in sources]:
        users = [user for user in node.users if not has_role(user, CHAIN)]
        with graph.inserting_after(node):
            stored = _stored(graph, node, NORM)
        for user in users if stored is not node else ():
            user.replace_input_with(node, stored)


def reads_short_numbers(module: GraphModule) -> bool:
    """Whether a norm is left to the compiler that is made of 16-bit numbers which sums read again.

    A compiler may see such numbers before they are rounded, even where it stores them. Operations
    of our own read them from memory.
    """
    nodes = list(module.graph.nodes)
    read = {n for node in nodes if has_role(node, SUM) for n in node.all_input_nodes}
    short = {n for n in map(_source, read) if (dtype_of(n) or torch.bool).itemsize == 2}
    return any(
        _source(n) in short
        for node in nodes
        if has_role(node, NORM) and not node.meta[ALLOWANCE] and not _reads_memory(node)
        for n in node.all_input_nodes
    )


def _reads_memory(node: Node) -> bool:
    """Operations of our own do; views and wider copies are seen through to their users."""
    return str(operation(node)).startswith("sfumato.") or _is_exact(node)


def _stored(graph: Graph, node: Node, role: str) -> Node:
    """The same value, which the compiler may then not fuse away or leave in another type."""
    store = _prims.inductor_force_stride_order
    if node.op != "call_function" or operation(node) is store or not _fills_its_memory(node):
        return node
    stored = graph.call_function(store.default, (node, node.meta["val"].stride()))
    stored.meta = {**node.meta, ROLE: role}
    return stored


def _fills_its_memory(node: Node) -> bool:
    value = node.meta.get("val")
    if not isinstance(value, Tensor) or not value.is_floating_point() or not value.numel():
        return False
    reach = sum((size - 1) * step for size, step in zip(value.shape, value.stride(), strict=True))
    return reach + 1 == value.numel()


def _source(node: Node) -> Node:
    """What ``node`` is a view of, or holds the same numbers as in a wider type."""
    while _is_exact(node):
        node = node.all_input_nodes[0]
    return node


def _is_exact(node: Node) -> bool:
    if len(node.all_input_nodes) != 1:
        return False
    found = operation(node)
    if found in (_prims.convert_element_type, _aten._to_copy):
        short, wide = dtype_of(node.all_input_nodes[0]), dtype_of(node)
        if short is None or wide is None or not short.is_floating_point:
            return False
        return torch.promote_types(short, wide) == wide
    return found in _VIEWS


def _repeat(graph: Graph, roles: set[str], role: str) -> None:
    """Views and wider copies that these roles share with others are made once more for them."""
    for node in reversed(list(graph.nodes)):
        theirs = [user for user in node.users if user.meta.get(ROLE) in roles]
        if node.meta.get(ROLE) in roles or not theirs or not _is_exact(node):
            continue
        with graph.inserting_after(node):
            again = graph.node_copy(node)
        again.meta = {**node.meta, ROLE: role}
        for user in theirs:
            user.replace_input_with(node, again)


# --- recomputed -----------------------------------------------------------------------------------


def _cut(module: GraphModule) -> tuple[GraphModule, GraphModule]:
    from torch._functorch.partitioners import min_cut_rematerialization_partition

    return min_cut_rematerialization_partition(module, None, num_fwd_outputs=1)


def _joined(first: GraphModule, second: GraphModule) -> GraphModule | None:
    """Both halves one after the other: what the first keeps, the second takes."""
    graph, copies = Graph(), dict[Node, Node]()
    for node in first.graph.nodes:
        if node.op != "output":
            copies[node] = graph.node_copy(node, copies.__getitem__)
    losses, *kept = (copies[n] for n in results_of(first.graph))
    taken = inputs_of(second.graph)
    tangents = [node for node in taken if "tangents" in str(node.target)]
    if len(tangents) != 1 or len(taken) != len(kept) + 1:
        return None
    for node, value in zip([n for n in taken if n is not tangents[0]], kept, strict=True):
        copies[node] = _stored(graph, value, CHAIN)
    with graph.inserting_after(inputs_of(graph)[-1]):
        copies[tangents[0]] = graph.node_copy(tangents[0])
    for node in second.graph.nodes:
        if node.op not in ("placeholder", "output"):
            copies[node] = graph.node_copy(node, copies.__getitem__)
    graph.output((losses, *(copies[n] for n in results_of(second.graph))))
    graph.lint()
    return GraphModule({**_constants(second), **_constants(first)}, graph)


def _constants(module: GraphModule) -> dict[str, object]:
    names = [node.target for node in module.graph.nodes if node.op == "get_attr"]
    return {str(name): getattr(module, str(name)) for name in names}


# --- in time --------------------------------------------------------------------------------------


def _in_time(graph: Graph) -> Graph:
    """The chain rule in its order; norms as soon as they can be, all else when it is needed."""
    ordered, copies = Graph(), dict[Node, Node]()
    waiting = {
        node: sum(bool(n.meta.get(BACKWARD)) for n in node.all_input_nodes)
        for node in graph.nodes
        if has_role(node, NORM) and node.meta.get(BACKWARD)
    }

    def ready(node: Node) -> list[Node]:
        """Parts of norms that waited for this gradient last."""
        if not node.meta.get(BACKWARD):
            return []
        users = [user for user in node.users if user in waiting]
        for user in users:
            waiting[user] -= 1
        return [user for user in users if not waiting[user]]

    def place(node: Node) -> None:
        """After everything it needs, and before the norms that needed nothing else."""
        stack = [node]
        while stack:
            top = stack[-1]
            needed = [n for n in top.all_input_nodes if n not in copies]
            if top in copies:
                stack.pop()
            elif needed:
                stack.extend(reversed(needed))
            else:
                stack.pop()
                copies[top] = ordered.node_copy(top, copies.__getitem__)
                stack.extend(reversed(ready(top)))

    for node in inputs_of(graph):
        place(node)
    for node in graph.nodes:
        if has_role(node, CHAIN) and node.op != "output":
            place(node)
    place(output_of(graph))
    ordered.lint()
    return ordered
