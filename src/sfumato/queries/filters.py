"""Filters: which rows a statistic is about, as SQL text or as an Ibis expression.

    >>> import ibis
    >>> people = ibis.table({"age": "int64", "city": "string"}, name="people")
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
NULL is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import ibis
import ibis.expr.operations as ops
import ibis.expr.types as ir
import sqlglot
import sqlglot.errors
from sqlglot import exp

from sfumato.queries.engine import Value
from sfumato.queries.total import Total

__all__ = ["Where", "describe_filter", "row_filter"]

Where = Any
"""SQL text, an Ibis expression, a function of the table, or several of them (all must hold)."""


def row_filter(where: Where, table: ir.Table) -> Value:
    """A filter that is true or false, and never fails, on every row of ``table``.

    Raises:
        ValueError: for anything that is not a filter on this table's columns.
    """
    total = Total(table)
    result: Value = ibis.literal(True)
    for part in _parts(where):
        built = _from_sql(part, total) if isinstance(part, str) else _from_ibis(part, total)
        result = result & total.truth(built)
    return result.fill_null(False)


def describe_filter(where: Where) -> str:
    """The filter in words, for records."""
    return " and ".join(
        f"({part})" if isinstance(part, str) else "(an expression)" for part in _parts(where)
    )


def _parts(where: Where) -> list[Any]:
    if where is None:
        return []
    if isinstance(where, tuple | list):
        return [part for item in where for part in _parts(item)]
    return [where]


# --- SQL ----------------------------------------------------------------------------------------


def _from_sql(text: str, total: Total) -> Value:
    try:
        parsed = sqlglot.parse(text, read="duckdb")
    except sqlglot.errors.SqlglotError as error:
        reason = str(error).splitlines()[0]
        raise ValueError(
            f'the filter {text!r} is not a condition such as "age > 60": {reason}'
        ) from None
    if len(parsed) != 1 or parsed[0] is None:
        raise ValueError(
            f"a filter must be one condition, got {len(parsed)} statements in {text!r}"
        )
    return _sql(parsed[0], total)


def _sql(node: Any, total: Total) -> Value:
    if isinstance(node, exp.Query | exp.Subquery | exp.Exists) or node.args.get("query"):
        raise ValueError(f"a filter may not contain a subquery: {node.sql()}")
    build = _SQL.get(type(node))
    if build is None:
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
        return total.literal(int(text) if text.isdigit() else float(text))
    except ValueError:
        raise ValueError(f"a filter's number must be finite, got {text!r}") from None


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


def _sql_in(node: Any, total: Total) -> Value:
    return total.member(_sql(node.this, total), [_sql(item, total) for item in node.expressions])


def _sql_like(node: Any, total: Total) -> Value:
    pattern = node.expression
    if not isinstance(pattern, exp.Literal) or not pattern.is_string:
        raise ValueError(f"LIKE takes a pattern in quotes, got {node.sql()!r}")
    return _like(total.text(_sql(node.this, total)), pattern.this, isinstance(node, exp.ILike))


def _like(value: Value, pattern: str, any_case: bool) -> Value:
    if "\\" in pattern:
        raise ValueError(f"a LIKE pattern may hold % and _ but no backslash, got {pattern!r}")
    return value.lower().like(pattern.lower()) if any_case else value.like(pattern)


def _sql_cast(node: Any, total: Total) -> Value:
    target, value = node.to.this, _sql(node.this, total)
    constant = isinstance(node.this, exp.Literal) and node.this.is_string
    if constant and target in (exp.DType.DATE, exp.DType.TIMESTAMP):
        return total.moment(value, ibis.dtype("date" if target is exp.DType.DATE else "timestamp"))
    if target in _NUMERIC_CASTS:
        return total.number(value)
    if target in (exp.DType.VARCHAR, exp.DType.TEXT):
        return value.cast("string")
    raise ValueError(f"a filter casts to DOUBLE or VARCHAR, got {node.sql()!r}")


_NUMERIC_CASTS = {exp.DType.DOUBLE, exp.DType.FLOAT, exp.DType.INT, exp.DType.BIGINT}

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
    exp.Neg: lambda n, t: t.negate(_sql(n.this, t)),
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
    return total.number(value) if value.type().is_floating() else value


def _coalesce(values: Iterable[Value], total: Total) -> Value:
    items = list(values)
    if any(item.type().is_numeric() for item in items):
        items = [total.number(item) for item in items]
    return ibis.coalesce(*items)


# --- Ibis ---------------------------------------------------------------------------------------


def _from_ibis(where: Any, total: Total) -> Value:
    if hasattr(where, "resolve"):
        where = where.resolve(total.table)
    elif callable(where) and not isinstance(where, ir.Value):
        where = where(total.table)
    if not isinstance(where, ir.Value):
        raise ValueError(
            "a filter must be SQL text, an Ibis expression or a function of the table, got "
            f"{type(where).__name__}"
        )
    return _ibis(where.op(), total)


def _ibis(node: Any, total: Total) -> Value:
    build = _IBIS.get(type(node))
    if build is None:
        raise ValueError(
            f"a filter may not contain {type(node).__name__}: use comparisons, logic, isin, "
            "between, like, isnull, arithmetic, abs, lower, upper, length and coalesce on the "
            "columns of the protected table"
        )
    return build(node, total)


def _ibis_field(node: Any, total: Total) -> Value:
    if node.rel != total.table.op():
        raise ValueError(
            f"a filter uses the protected table's own columns, got {node.name!r} of another table: "
            "write it as text, as a function of the table, or with ibis._"
        )
    return total.column(node.name)


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
    if target.is_numeric():
        return total.number(value)
    if target.is_string():
        return value.cast("string")
    if target == value.type():
        return value
    raise ValueError(f"a filter casts to a number or to text, got {target}")


_IBIS: dict[type, Callable[[Any, Total], Value]] = {
    ops.Field: _ibis_field,
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
