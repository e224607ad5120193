"""Filters: which rows a statistic is about, as SQL text or as an Ibis expression.

    >>> import ibis
    >>> people = ibis.memtable({"age": [61, 35], "city": ["Rome", "Bari"]})
    >>> isinstance(row_filter("age > 60 and city in ('Rome', 'Milan')", people), ir.BooleanValue)
    True
    >>> row_filter("age > (select max(age) from people)", people)
    Traceback (most recent call last):
    ...
    ValueError: a filter may not contain a subquery: (SELECT MAX(age) FROM people)

The text never reaches an engine. It is parsed, every part is looked up in a short list of what is
known to be defined on every row (see :mod:`sfumato.queries.total`), and an expression is built from
those parts; what is not on the list is refused before anything is spent. An Ibis expression is
taken apart and rebuilt in the same way. NULL logic is SQL's own, and a row on which the filter is
NULL is left out. NaN and the infinities are missing, and -0 is 0.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import ibis
import ibis.expr.operations as ops
import ibis.expr.types as ir
import sqlglot
import sqlglot.errors
from ibis.common.exceptions import IbisError
from sqlglot import exp

from sfumato.queries.engine import Value
from sfumato.queries.total import Total

__all__ = ["Expression", "Where", "describe_filter", "named_filter", "row_filter"]

Where = Any
"""SQL text, an Ibis expression, a function of the table, or several of them (all must hold)."""


_LONGEST, _DEEPEST = 100_000, 100
_CLASS = re.compile(r" for <class [^>]*>")  # where the parser names its own


def row_filter(where: Where, table: ir.Table, source: ir.Table | None = None) -> Value:
    """A filter that is true or false, and never fails, on every row of ``table``.

    Args:
        where: the filter.
        table: what to filter.
        source: the table that an Ibis expression speaks of, with the same columns; ``table`` itself
            unless given.

    Raises:
        ValueError: for anything that is not a filter on this table's columns.
    """
    total = Total(table)
    result: Value = ibis.literal(True)
    try:
        for part in _parts(where):
            if isinstance(part, str):
                built = _from_sql(part, total)
            else:
                built = _ibis(_resolved(part, table if source is None else source), total)
            result = result & total.truth(built)
    except RecursionError:
        raise ValueError(f"a filter may be nested {_DEEPEST} deep, this one is deeper") from None
    return result.fill_null(False)


def named_filter(
    where: Where, source: ir.Table, given: ir.Table | None = None
) -> tuple[str | Expression, ...]:
    """The same filter, every part of it with a text that tells it apart from others.

    An expression may speak of ``source`` or of the table ``given`` that it was made from: columns
    are called the same in both.
    """
    return tuple(
        part if isinstance(part, str) else Expression(_resolved(part, source, given))
        for part in _parts(where)
    )


def describe_filter(where: Where) -> str:
    """The filter in words, for records."""
    return " and ".join(
        f"({part})" if isinstance(part, str | Expression) else "(an expression)"
        for part in _parts(where)
    )


@dataclass(frozen=True)
class Expression:
    """An Ibis expression whose text is what it says, so that a request can be told by it."""

    node: Any

    def __str__(self) -> str:
        return _words(self.node)


def _words(node: Any) -> str:
    if isinstance(node, ops.Field):
        return str(node.name)
    if isinstance(node, ops.Literal):
        return repr(node.value)
    if isinstance(node, tuple):
        return f"[{', '.join(_words(item) for item in node)}]"
    if not isinstance(node, ops.Node):
        return str(node)
    return f"{type(node).__name__.lower()}({', '.join(_words(part) for part in node.args)})"


def _parts(where: Where) -> list[Any]:
    if where is None:
        return []
    if isinstance(where, tuple | list):
        return [part for item in where for part in _parts(item)]
    return [where]


# --- SQL ----------------------------------------------------------------------------------------


def _from_sql(text: str, total: Total) -> Value:
    if len(text) > _LONGEST:
        raise ValueError(f"a filter may have {_LONGEST:,} characters, this one has {len(text):,}")
    try:
        parsed = sqlglot.parse(text, read="duckdb")
    except sqlglot.errors.SqlglotError as error:
        reason = _CLASS.sub("", str(error).splitlines()[0])
        raise ValueError(
            f'the filter {text!r} is not a condition such as "age > 60": {reason}'
        ) from None
    if len(parsed) != 1 or parsed[0] is None:
        raise ValueError(
            f"a filter must be one condition, got {len(parsed)} statements in {text!r}"
        )
    if max(node.depth for node in parsed[0].walk()) > _DEEPEST:
        raise ValueError(f"a filter may be nested {_DEEPEST} deep, this one is deeper")
    return _sql(parsed[0], total)


def _sql(node: Any, total: Total) -> Value:
    if isinstance(node, exp.Query | exp.Subquery | exp.Exists) or node.args.get("query"):
        raise ValueError(f"a filter may not contain a subquery: {node.sql()}")
    build = _SQL.get(type(node))
    if build is None or any(value for name, value in node.args.items() if name not in _UNDERSTOOD):
        raise ValueError(
            f"a filter may not contain {node.sql()!r} ({type(node).__name__.lower()}): use "
            "comparisons, AND, OR, NOT, IN, BETWEEN, LIKE, IS NULL, arithmetic, ABS, LOWER, UPPER, "
            "LENGTH, COALESCE and TRY_CAST"
        )
    return build(node, total)


def _sql_pair(node: Any, total: Total) -> tuple[Value, Value]:
    return _sql(node.this, total), _sql(node.expression, total)


def _sql_literal(node: Any, total: Total) -> Value:
    if node.is_string:
        return total.literal(node.this)
    text = str(node.this)
    try:
        number = int(text) if text.isdigit() else float(text)
    except ValueError:
        raise ValueError(f"a filter's number must be one, got {text[:50]!r}") from None
    return total.literal(number)


def _sql_column(node: Any, total: Total) -> Value:
    if node.args.get("table"):
        raise ValueError(f"a filter uses the table's own columns by name alone, got {node.sql()!r}")
    return total.column(node.name)


def _sql_is(node: Any, total: Total) -> Value:
    value = _sql(node.this, total)
    if isinstance(node.expression, exp.Null):
        return _known(value, total).isnull()
    if isinstance(node.expression, exp.Boolean):
        return total.truth(value).fill_null(not node.expression.this) == node.expression.this
    raise ValueError(f"IS takes NULL, TRUE or FALSE, got {node.sql()!r}")


def _sql_negative(node: Any, total: Total) -> Value:
    value = _sql(node.this, total)
    constant = getattr(value.op(), "value", None)
    if isinstance(constant, int | float) and not isinstance(constant, bool):
        return total.literal(-constant)
    return total.negate(value)


def _sql_in(node: Any, total: Total) -> Value:
    return total.member(_sql(node.this, total), [_sql(item, total) for item in node.expressions])


def _sql_like(node: Any, total: Total) -> Value:
    pattern = node.expression
    if not isinstance(pattern, exp.Literal) or not pattern.is_string:
        raise ValueError(f"LIKE takes a pattern in quotes, got {node.sql()!r}")
    found = _like(total.text(_sql(node.this, total)), pattern.this, isinstance(node, exp.ILike))
    return ~found if node.args.get("negate") else found


def _like(value: Value, pattern: str, any_case: bool) -> Value:
    if "\\" in pattern:
        raise ValueError(f"a LIKE pattern may hold % and _ but no backslash, got {pattern!r}")
    return value.lower().like(pattern.lower()) if any_case else value.like(pattern)


def _sql_cast(node: Any, total: Total) -> Value:
    target, value = node.to.this, _sql(node.this, total)
    constant = isinstance(node.this, exp.Literal) and node.this.is_string
    if constant and target in _MOMENTS:
        total.moment(value, ibis.dtype("date" if target is exp.DType.DATE else "timestamp"))
        return value  # a constant in quotes is read as what it is compared with
    if target is exp.DType.DOUBLE:
        return total.number(value)
    if target in (exp.DType.VARCHAR, exp.DType.TEXT):
        return total.as_text(value)
    raise ValueError(f"a filter casts to DOUBLE or VARCHAR, got {node.sql()!r}")


_UNDERSTOOD = {
    *("this", "expression", "expressions", "low", "high", "table"),  # of the node's own builder
    *("is_string", "negate", "to", "_type", "safe", "typed"),
}
_MOMENTS = {exp.DType.DATE, exp.DType.TIMESTAMP, exp.DType.TIMESTAMPNTZ}

_SQL: dict[type, Callable[[Any, Total], Value]] = {
    exp.Column: _sql_column,
    exp.Literal: _sql_literal,
    exp.Boolean: lambda n, t: t.literal(bool(n.this)),
    exp.Null: lambda n, t: t.literal(None),
    exp.Paren: lambda n, t: _sql(n.this, t),
    exp.And: lambda n, t: t.truth(_sql(n.this, t)) & t.truth(_sql(n.expression, t)),
    exp.Or: lambda n, t: t.truth(_sql(n.this, t)) | t.truth(_sql(n.expression, t)),
    exp.Not: lambda n, t: ~t.truth(_sql(n.this, t)),
    exp.EQ: lambda n, t: t.compare("=", *_sql_pair(n, t)),
    exp.NEQ: lambda n, t: t.compare("<>", *_sql_pair(n, t)),
    exp.LT: lambda n, t: t.compare("<", *_sql_pair(n, t)),
    exp.LTE: lambda n, t: t.compare("<=", *_sql_pair(n, t)),
    exp.GT: lambda n, t: t.compare(">", *_sql_pair(n, t)),
    exp.GTE: lambda n, t: t.compare(">=", *_sql_pair(n, t)),
    exp.Between: lambda n, t: t.between(
        _sql(n.this, t), _sql(n.args["low"], t), _sql(n.args["high"], t)
    ),
    exp.In: _sql_in,
    exp.Is: _sql_is,
    exp.Like: _sql_like,
    exp.ILike: _sql_like,
    exp.Add: lambda n, t: t.add(*_sql_pair(n, t)),
    exp.Sub: lambda n, t: t.add(*_sql_pair(n, t), sign=-1),
    exp.Mul: lambda n, t: t.multiply(*_sql_pair(n, t)),
    exp.Div: lambda n, t: t.divide(*_sql_pair(n, t)),
    exp.Mod: lambda n, t: t.modulo(*_sql_pair(n, t)),
    exp.Neg: _sql_negative,
    exp.Abs: lambda n, t: t.absolute(_sql(n.this, t)),
    exp.Lower: lambda n, t: t.text(_sql(n.this, t)).lower(),
    exp.Upper: lambda n, t: t.text(_sql(n.this, t)).upper(),
    exp.Length: lambda n, t: t.text(_sql(n.this, t)).length(),
    exp.Coalesce: lambda n, t: _coalesce(
        [_sql(n.this, t), *(_sql(e, t) for e in n.expressions)], t
    ),
    exp.Cast: _sql_cast,
    exp.TryCast: _sql_cast,
}


def _known(value: Value, total: Total) -> Value:
    """The value, with NaN and the infinities missing as everywhere."""
    kind = value.type()
    return total.number(value) if kind.is_floating() or kind.is_decimal() else value


def _coalesce(values: Iterable[Value], total: Total) -> Value:
    items = list(values)
    if any(item.type().is_numeric() for item in items):
        items = [total.number(item) for item in items]
    kinds = {item.type().copy(nullable=True) for item in items if not item.type().is_null()}
    if len(kinds) > 1:
        raise ValueError(f"COALESCE takes values of one type, got {', '.join(map(str, kinds))}")
    return ibis.coalesce(*items)


# --- Ibis ---------------------------------------------------------------------------------------


def _resolved(where: Any, source: ir.Table, given: ir.Table | None = None) -> Any:
    """The node of an Ibis expression on the columns of the source, or of what it was made from."""
    if isinstance(where, Expression):
        return where.node
    try:
        if hasattr(where, "resolve"):
            where = where.resolve(source)
        elif callable(where) and not isinstance(where, ir.Value):
            where = where(source)
    except (AttributeError, TypeError, IbisError) as error:
        raise ValueError(f"the filter does not fit the table: {error}") from None
    if not isinstance(where, ir.Value):
        raise ValueError(
            "a filter must be SQL text, an Ibis expression or a function of the table, got "
            f"{type(where).__name__}"
        )
    known = [table.op() for table in (source, given) if table is not None]
    fields: Any = where.op().find(ops.Field, filter=ops.Value)  # not those inside the tables
    for field in fields:
        if field.rel not in known:
            raise ValueError(
                f"a filter uses the protected table's own columns, got {field.name!r} of another "
                "table: write it as text, as a function of the table, or with ibis._"
            )
    return where.op()


def _ibis(node: Any, total: Total) -> Value:
    build = _IBIS.get(type(node))
    if build is None:
        raise ValueError(
            f"a filter may not contain {type(node).__name__}: use comparisons, logic, isin, "
            "between, like, isnull, arithmetic, abs, lower, upper, length and coalesce on the "
            "columns of the protected table"
        )
    return build(node, total)


def _ibis_pair(node: Any, total: Total) -> tuple[Value, Value]:
    return _ibis(node.left, total), _ibis(node.right, total)


def _ibis_like(node: Any, total: Total) -> Value:
    pattern = getattr(node.pattern, "value", None)
    if not isinstance(pattern, str) or node.escape is not None:
        raise ValueError("like() takes a constant pattern and no escape character")
    any_case = isinstance(node, ops.StringSQLILike)
    return _like(total.text(_ibis(node.arg, total)), pattern, any_case)


def _ibis_cast(node: Any, total: Total) -> Value:
    value, target = _ibis(node.arg, total), node.to
    if target == value.type() or (target.is_integer() and value.type().is_integer()):
        return value
    if target.is_float64():
        return total.number(value)
    if target.is_string():
        return total.as_text(value)
    raise ValueError(f"a filter casts to float64 or to text, got {target}")


_IBIS: dict[type, Callable[[Any, Total], Value]] = {
    ops.Field: lambda n, t: t.column(n.name),
    ops.Literal: lambda n, t: t.literal(n.value),
    ops.And: lambda n, t: t.truth(_ibis(n.left, t)) & t.truth(_ibis(n.right, t)),
    ops.Or: lambda n, t: t.truth(_ibis(n.left, t)) | t.truth(_ibis(n.right, t)),
    ops.Not: lambda n, t: ~t.truth(_ibis(n.arg, t)),
    ops.Equals: lambda n, t: t.compare("=", *_ibis_pair(n, t)),
    ops.NotEquals: lambda n, t: t.compare("<>", *_ibis_pair(n, t)),
    ops.Less: lambda n, t: t.compare("<", *_ibis_pair(n, t)),
    ops.LessEqual: lambda n, t: t.compare("<=", *_ibis_pair(n, t)),
    ops.Greater: lambda n, t: t.compare(">", *_ibis_pair(n, t)),
    ops.GreaterEqual: lambda n, t: t.compare(">=", *_ibis_pair(n, t)),
    ops.Between: lambda n, t: t.between(
        _ibis(n.arg, t), _ibis(n.lower_bound, t), _ibis(n.upper_bound, t)
    ),
    ops.InValues: lambda n, t: t.member(_ibis(n.value, t), [_ibis(o, t) for o in n.options]),
    ops.IsNull: lambda n, t: _known(_ibis(n.arg, t), t).isnull(),
    ops.NotNull: lambda n, t: _known(_ibis(n.arg, t), t).notnull(),
    ops.StringSQLLike: _ibis_like,
    ops.StringSQLILike: _ibis_like,
    ops.Add: lambda n, t: t.add(*_ibis_pair(n, t)),
    ops.Subtract: lambda n, t: t.add(*_ibis_pair(n, t), sign=-1),
    ops.Multiply: lambda n, t: t.multiply(*_ibis_pair(n, t)),
    ops.Divide: lambda n, t: t.divide(*_ibis_pair(n, t)),
    ops.Modulus: lambda n, t: t.modulo(*_ibis_pair(n, t)),
    ops.Negate: lambda n, t: t.negate(_ibis(n.arg, t)),
    ops.Abs: lambda n, t: t.absolute(_ibis(n.arg, t)),
    ops.Lowercase: lambda n, t: t.text(_ibis(n.arg, t)).lower(),
    ops.Uppercase: lambda n, t: t.text(_ibis(n.arg, t)).upper(),
    ops.StringLength: lambda n, t: t.text(_ibis(n.arg, t)).length(),
    ops.Coalesce: lambda n, t: _coalesce([_ibis(arg, t) for arg in n.arg], t),
    ops.Cast: _ibis_cast,
    ops.TryCast: _ibis_cast,
}
