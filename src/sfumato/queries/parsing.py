"""Questions from JSON: a file of them, or a ledger's record of one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sfumato.core import validation
from sfumato.queries import kinds
from sfumato.queries.base import PRICE, Query

__all__ = ["query_from_dict"]

_KINDS: dict[str, type[Query]] = {name.lower(): getattr(kinds, name) for name in kinds.__all__}
_OF_GROUPS = ("keys", "private_keys", "key_share")


def query_from_dict(data: Mapping[str, Any]) -> Query:
    """A question from JSON, as :meth:`Query.to_dict` writes it; names like "most-common" do too.

    >>> query_from_dict({"query": "count", "epsilon": 0.1, "where": "age > 60"}).where
    'age > 60'
    >>> query_from_dict({"query": "count", "by": "ward", "epsilon": 0.1}).columns
    ['ward']
    """
    if "by" in data:
        return query_from_dict(_grouped(data))
    name = str(data.get("query", "")).replace("-", "").replace("_", "").lower()
    if name not in _KINDS:
        validation.fail("query", f"one of {', '.join(sorted(_KINDS))}", data.get("query"))
    kind = _KINDS[name]
    rest = {key: value for key, value in data.items() if key != "query"}
    if isinstance(rest.get("of"), Mapping):
        rest = _with_question(rest)
    try:
        return kind(**rest)
    except TypeError as error:
        reason = str(error).split(") ", 1)[-1].removeprefix("__init__() ")
        raise ValueError(f"the question {kind.__name__} is not well formed: {reason}") from None


def _grouped(data: Mapping[str, Any]) -> dict[str, Any]:
    """A question "by" some columns as the group-by that it is."""
    by = data["by"]
    columns = [by] if isinstance(by, str) else list(by)
    grouped = {name: data[name] for name in _OF_GROUPS if name in data}
    of = {name: value for name, value in data.items() if name not in ("by", *grouped)}
    return {"query": "groupby", "columns": columns, "of": of} | grouped


def _with_question(data: Mapping[str, Any]) -> dict[str, Any]:
    """A group-by whose question is one; a price that stands beside the question is its price."""
    beside = {name: data[name] for name in PRICE if name in data}
    of = query_from_dict(beside | data["of"])
    for name, value in beside.items():
        if getattr(of, name) != value:
            validation.fail(
                f"the {name} of a group-by", f"that of its question, {getattr(of, name)!r}", value
            )
    return {name: value for name, value in data.items() if name not in beside} | {"of": of}
