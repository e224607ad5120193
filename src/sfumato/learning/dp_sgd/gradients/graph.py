"""Where a backward pass must begin to meet every recorded call."""

from __future__ import annotations

from collections.abc import Sequence

from torch.autograd.graph import Node

__all__ = ["first_nodes"]


def first_nodes(recorded: Sequence[Node]) -> list[int]:
    """Positions of nodes that depend on no other of them, found by walking the autograd graph."""
    nodes = set(recorded)
    reaches: dict[Node, bool] = {}

    def below(start: Node) -> bool:
        """Whether a recorded node lies beyond ``start``."""
        stack: list[Node] = [start]
        while stack:
            node = stack[-1]
            if node in reaches:
                stack.pop()
                continue
            nexts = [n for n, _ in node.next_functions if n is not None]
            waiting = [n for n in nexts if n not in nodes and n not in reaches]
            if any(n in nodes or reaches.get(n, False) for n in nexts):
                reaches[node] = True
                stack.pop()
            elif waiting:
                stack.extend(waiting)
            else:
                reaches[node] = False
                stack.pop()
        return reaches[start]

    return [i for i, node in enumerate(recorded) if not below(node)]
