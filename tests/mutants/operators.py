"""The operators: how a line of privacy code is got wrong, each as a change of the syntax tree.

An operator looks at one place of a tree and says what might stand there instead. It does not know
which lines matter; which of all its mutants are run is drawn by a seed (``choosing.py``).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator

from tests.mutants.syntax import Place, called, short

__all__ = ["OPERATORS", "Operator"]

Operator = Callable[[Place], Iterator[ast.AST | list[ast.stmt]]]

_CHECKS = re.compile(
    r"refuse|require|valid|check|guard|bound|charge|spend|commit|verify|limit|never|reserve|"
    r"^positive$|^finite$|^at_least$|^count$|^mark|advance|take"
)
_SPENDS = re.compile(
    r"^_?(spend|charge|commit|reserve|admit|advance|refund|take|make$|end$|go_on|begin|identify)"
)
_BOUNDS = {"min", "max", "minimum", "maximum", "clip", "clamp"}
_OWN_BOUNDS = {"as_bounded", "bound_groups", "bound_rows", "_clamp", "clamped", "clipped"}
_READINGS = {
    "_exact", "_alike", "_printed", "_plain_number", "_term", "_factor", "in_our_years", "presence",
    "text_of_bytes",
}  # fmt: skip
_GUARDS = {"_finite", "_moderate", "nan_to_num", "finite_number"}
_EVERYTHING = ("Exception", "BaseException")
_MODULES = {"np", "numpy", "torch", "math"}
_COUNTED = re.compile(
    r"alpha|bits|bound|cells|clip|count|delta|distance|eps|factor|group|half|length|most|n\b|"
    r"norm|noise|order|parts|people|probab|radius|rate|reach|record|rows|sample|scale|sensitiv|"
    r"share|sigma|size|sqrt|step|teacher|times|total|unit|weight|width"
)
_SWAPS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.Gt),
    ast.LtE: (ast.Lt, ast.GtE),
    ast.Gt: (ast.GtE, ast.Lt),
    ast.GtE: (ast.Gt, ast.LtE),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
}
_DEFAULTS = {"float": (0.0,), "int": (0,), "bool": (True, False), "Fraction": (0,)}


def constant(place: Place) -> Iterator[ast.AST]:
    """A number is a tenth too large, or too small."""
    node = place.node
    if not isinstance(node, ast.Constant) or isinstance(node.value, bool) or place.field == "slice":
        return
    value = node.value
    if isinstance(value, float) and value != 0:
        yield ast.Constant(value * 1.1)
        yield ast.Constant(value * 0.9)
    elif isinstance(value, int) and abs(value) >= 10:
        yield ast.Constant(value + max(1, abs(value) // 10))
        yield ast.Constant(value - max(1, abs(value) // 10))
    elif isinstance(value, int) and value and _is_arithmetic(place.parent):
        yield ast.Constant(value * 1.1)
        yield ast.Constant(value * 0.9)


def _is_arithmetic(node: ast.AST) -> bool:
    kinds = ast.Mult | ast.Div | ast.Pow | ast.Add | ast.Sub
    return isinstance(node, ast.BinOp) and isinstance(node.op, kinds)


def bound_dropped(place: Place) -> Iterator[ast.AST]:
    """What was held between limits is not."""
    node, name = place.node, called(place.node)
    if not isinstance(node, ast.Call) or any(isinstance(a, ast.Starred) for a in node.args):
        return
    if name in _OWN_BOUNDS and node.args:
        yield node.args[0]
    elif name in _BOUNDS:
        of = node.func.value if isinstance(node.func, ast.Attribute) else None
        if of is not None and not (isinstance(of, ast.Name) and of.id in _MODULES):
            if node.args or node.keywords:
                yield of  # x.clip(low, high)
        elif name in ("clip", "clamp"):
            yield node.args[0]
        elif of is None or name in ("minimum", "maximum"):
            yield from node.args if len(node.args) > 1 else []


def equality_loosened(place: Place) -> Iterator[ast.AST]:
    """What is compared is compared as it comes, not in the one form in which it means one thing."""
    node, name = place.node, called(place.node)
    if not isinstance(node, ast.Call) or any(isinstance(a, ast.Starred) for a in node.args):
        return
    of = node.func.value if isinstance(node.func, ast.Attribute) else None
    if name == "built_in" and len(node.args) > 2:
        yield node.args[2]
    elif name in _READINGS and node.args:
        yield node.args[0]
    elif name in ("cast", "try_cast") and of is not None:
        yield of
    elif name == "identical_to" and of is not None:
        yield ast.Compare(of, [ast.Eq()], node.args)


def guard_dropped(place: Place) -> Iterator[ast.AST | list[ast.stmt]]:
    """A row that cannot be computed with is, and fails, or is not a number."""
    node, name = place.node, called(place.node)
    if isinstance(node, ast.Try) and node.handlers and not node.finalbody and not node.orelse:
        always: ast.expr = ast.Constant(True)
        yield ast.If(always, node.body, [])
    if not isinstance(node, ast.Call) or any(isinstance(a, ast.Starred) for a in node.args):
        return
    of = node.func.value if isinstance(node.func, ast.Attribute) else None
    if name in ("either", "where") and len(node.args) == 3:
        yield from node.args[1:]
    elif name in _GUARDS and node.args:
        yield node.args[0]
    elif name == "nullif" and of is not None:
        yield of
    elif name == "try_cast" and of is not None:
        yield ast.Call(ast.Attribute(of, "cast", ast.Load()), node.args, node.keywords)


def call_skipped(place: Place) -> Iterator[ast.AST]:
    """A check, a charge or a bound that is called for its effect is not called."""
    name = called(place.node) if isinstance(place.node, ast.Expr) else ""
    if name not in ("fail", "_fail") and _CHECKS.search(name):
        yield ast.Pass()


def comparison_swapped(place: Place) -> Iterator[ast.AST]:
    """Less is less or equal, equal is different, more is less."""
    node = place.node
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        for other in _SWAPS.get(type(node.ops[0]), ()):
            yield ast.Compare(node.left, [other()], node.comparators)


def factor_lost(place: Place) -> Iterator[ast.AST]:
    """A product or a quotient without one of its parts."""
    node = place.node
    if not isinstance(node, ast.BinOp):
        return
    if isinstance(node.op, ast.Mult):
        pairs = [(node.left, node.right), (node.right, node.left)]
    elif isinstance(node.op, ast.Div | ast.FloorDiv):
        pairs = [(node.left, node.right)]
    else:
        return
    for kept, lost in pairs:
        number = isinstance(lost, ast.Constant) and isinstance(lost.value, int | float)
        if number or _COUNTED.search(ast.unparse(lost)):
            yield kept


def order_swapped(place: Place) -> Iterator[list[ast.stmt]]:
    """Of two neighbouring statements one spends, and it comes after instead of before."""
    first = place.node
    if place.index is None or place.field not in ("body", "orelse", "finalbody"):
        return
    block = getattr(place.parent, place.field)
    if place.index + 1 >= len(block):
        return
    second = block[place.index + 1]
    plain = ast.Expr | ast.Assign | ast.AugAssign | ast.If | ast.With | ast.For | ast.Delete
    if not isinstance(first, plain) or not isinstance(second, plain):
        return
    if any(_spends(one) for one in (first, second)) and not _depends(first, second):
        yield [second, first]


def _spends(statement: ast.stmt) -> bool:
    told = statement.value if isinstance(statement, ast.Expr | ast.Assign) else statement
    if isinstance(statement, ast.If | ast.For):
        return False
    calls = [node for node in ast.walk(told) if isinstance(node, ast.Call)]
    return any(_SPENDS.search(called(c)) or ast.unparse(c.func) == "store.append" for c in calls)


def _depends(first: ast.stmt, second: ast.stmt) -> bool:
    """Whether the second uses a name that the first makes: swapped, it would not even run."""
    names = [n for n in ast.walk(first) if isinstance(n, ast.Name)]
    made = {n.id for n in names if isinstance(n.ctx, ast.Store)}
    used = {n.id for n in ast.walk(second) if isinstance(n, ast.Name)}
    return bool(made & used)


def rounding_turned(place: Place) -> Iterator[ast.AST]:
    """Rounded the other way, or not at all."""
    node, name = place.node, called(place.node)
    if not isinstance(node, ast.Call):
        return
    other = {"ceil": "floor", "floor": "ceil"}.get(name)
    if other and isinstance(node.func, ast.Attribute):
        yield ast.Call(ast.Attribute(node.func.value, other, ast.Load()), node.args, node.keywords)
    elif name == "rint":
        yield node.args[0]
    elif name == "nextafter" and len(node.args) == 2:
        yield node.args[0]
        up = "inf" in ast.unparse(node.args[1]) and "-" not in ast.unparse(node.args[1])
        towards = "-inf" if up else "inf"
        yield ast.Call(node.func, [node.args[0], _float_call(towards)], [])


def _float_call(text: str) -> ast.Call:
    return ast.Call(ast.Name("float", ast.Load()), [ast.Constant(text)], [])


def except_broadened(place: Place) -> Iterator[ast.AST]:
    """Every error is taken for the one that was expected, and swallowed."""
    node = place.node
    if isinstance(node, ast.ExceptHandler):
        everything = ast.Name("Exception", ast.Load())
        narrow = node.type is not None and ast.unparse(node.type) not in _EVERYTHING
        if narrow and not (isinstance(node.body[0], ast.Raise) and node.body[0].exc is None):
            yield ast.ExceptHandler(everything, node.name, node.body)
        if not all(isinstance(one, ast.Pass | ast.Continue) for one in node.body):
            yield ast.ExceptHandler(everything, node.name, [ast.Pass()])
    if isinstance(node, ast.Call) and called(node) == "suppress":
        yield ast.Call(node.func, [ast.Name("Exception", ast.Load())], [])


def logic_swapped(place: Place) -> Iterator[ast.AST]:
    """``and`` is ``or``."""
    if isinstance(place.node, ast.BoolOp):
        other = ast.Or() if isinstance(place.node.op, ast.And) else ast.And()
        yield ast.BoolOp(other, place.node.values)


def raise_removed(place: Place) -> Iterator[ast.AST]:
    """What was refused goes on."""
    refuses = isinstance(place.node, ast.Expr) and called(place.node) in ("fail", "_fail")
    if isinstance(place.node, ast.Raise) or refuses:
        yield ast.Pass()


def default_returned(place: Place) -> Iterator[ast.AST]:
    """A function gives a default in place of what it found."""
    node = place.node
    if not isinstance(node, ast.Return) or node.value is None or place.around is None:
        return
    kind = ast.unparse(place.around.returns) if place.around.returns else ""
    defaults = _DEFAULTS.get(kind, (None,) if kind.endswith("| None") else ())
    for default in defaults:
        if short(node.value) not in (repr(default), str(default)):
            yield ast.Return(ast.Constant(default))


OPERATORS: dict[str, Operator] = {
    "constant": constant,
    "bound dropped": bound_dropped,
    "call skipped": call_skipped,
    "comparison": comparison_swapped,
    "factor lost": factor_lost,
    "order": order_swapped,
    "rounding": rounding_turned,
    "except": except_broadened,
    "logic": logic_swapped,
    "raise removed": raise_removed,
    "default returned": default_returned,
    "equality loosened": equality_loosened,
    "guard dropped": guard_dropped,
}
