"""Walks a module's syntax tree: every place that an operator may change, and where it stands."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

__all__ = ["Place", "called", "places", "put", "short"]

_UNTOLD = ("annotation", "returns", "decorator_list", "type_params", "keywords_of_class")
_BODIES = ("body", "orelse", "handlers", "finalbody", "cases")
_WORDS = re.compile(r"^(__repr__|__str__|describe|_?shown|_?wording|.*_text)")
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Place:
    """A node of a tree, with what is around it.

    Attributes:
        parent, field, index: where it hangs; no index where the field holds one node.
        node: what hangs there.
        function: the qualified name of the function or class around it; empty for the module's.
        statement: the statement it belongs to.
        around: the function itself; None outside of any.
    """

    parent: ast.AST
    field: str
    index: int | None
    node: ast.AST
    function: str
    statement: ast.stmt | ast.ExceptHandler
    around: Function | None

    def line(self) -> str:
        """The statement it belongs to, without those inside: no edit elsewhere moves it."""
        told = [
            f"{name}={ast.dump(value) if isinstance(value, ast.AST) else _dumped(value)}"
            for name, value in ast.iter_fields(self.statement)
            if name not in _BODIES and name not in _UNTOLD
        ]
        return f"{type(self.statement).__name__}({', '.join(told)})"


def _dumped(value: Any) -> str:
    if isinstance(value, list):
        return repr([ast.dump(v) if isinstance(v, ast.AST) else v for v in value])
    return repr(value)


def places(tree: ast.Module) -> Iterator[Place]:
    """Every node in its order, but for annotations, docstrings, texts and what only errors say."""
    for index, statement in enumerate(tree.body):
        if not isinstance(statement, ast.Import | ast.ImportFrom):
            yield from _within(Place(tree, "body", index, statement, "", statement, None))


def _within(place: Place) -> Iterator[Place]:
    node = place.node
    if _is_told_to_people(node):
        return
    yield place
    if isinstance(node, ast.Raise) or called(node) in ("fail", "_fail"):
        return  # the message
    function, around = place.function, place.around
    if isinstance(node, ast.ClassDef | Function):
        function = f"{function}.{_name(node)}".lstrip(".")
        around = node if isinstance(node, Function) else None
    for field, value in ast.iter_fields(node):
        if field in _UNTOLD:
            continue
        children = value if isinstance(value, list) else [value]
        for index, child in enumerate(children):
            if not isinstance(child, ast.AST):
                continue
            at = index if isinstance(value, list) else None
            opens = isinstance(child, ast.stmt | ast.ExceptHandler)
            statement = child if opens else place.statement
            yield from _within(Place(node, field, at, child, function, statement, around))


def _is_told_to_people(node: ast.AST) -> bool:
    """Texts, names of modules, and what shows things: no privacy hangs on them."""
    if isinstance(node, ast.JoinedStr):
        return True
    if isinstance(node, Function):
        return bool(_WORDS.match(node.name))
    if isinstance(node, ast.Assign):
        return any(isinstance(t, ast.Name) and t.id == "__all__" for t in node.targets)
    text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    return text or (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test))


def _name(node: ast.ClassDef | Function) -> str:
    """Its name; for one of many ``_``, with the type of what it takes."""
    if isinstance(node, Function) and node.name == "_" and node.args.args:
        taken = node.args.args[0].annotation
        return f"_[{ast.unparse(taken) if taken else ''}]"
    return node.name


def called(node: ast.AST | None) -> str:
    """The last name of what a call, or a statement that is one, calls; else nothing."""
    if isinstance(node, ast.Expr):
        node = node.value
    if not isinstance(node, ast.Call):
        return ""
    if isinstance(node.func, ast.Attribute):
        return node.func.attr
    return node.func.id if isinstance(node.func, ast.Name) else ""


def put(place: Place, new: ast.AST) -> None:
    """Hangs another node there."""
    ast.copy_location(new, place.node)
    if place.index is None:
        setattr(place.parent, place.field, new)
    else:
        getattr(place.parent, place.field)[place.index] = new
    ast.fix_missing_locations(place.parent)


def short(node: ast.AST | list[ast.stmt], most: int = 70) -> str:
    """The code of a node on one line, cut where it is long."""
    text = "; ".join(ast.unparse(n) for n in (node if isinstance(node, list) else [node]))
    text = " ".join(text.split())
    return text if len(text) <= most else text[: most - 3] + "..."
