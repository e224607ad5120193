"""Columns and pictures as plain keys and values, as a declaration's file holds them, and back.

Errors name the key, what it must be, and what it is; all of it is public.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Any

from sfumato.core import validation
from sfumato.data.declared import Features, Pictures
from sfumato.data.facts import Column
from sfumato.data.values import category

__all__ = ["OTHER_KEYS", "declared_from_dict", "declared_to_dict"]

OTHER_KEYS = ("records", "owner", "unit", "rows_per_owner", "owners", "public_test")
"""What a declaration says beside its columns or pictures and its labels."""


_COLUMN = ("lower", "upper", "categories", "default", "meaning")
_CLASSES = ("classes", "default_class")
_NUMBERS = ("label_bounds", "default_label")
_FEATURES = ("label", "columns", *_CLASSES, *_NUMBERS)
_PICTURES = ("shape", "default_value", *_CLASSES)


def declared_from_dict(said: Mapping[str, Any]) -> Features | Pictures:
    """The columns or pictures that these keys declare; other keys are only looked at as such.

    Raises:
        ValueError: for a key that is unknown or missing, or a value that cannot be.
    """
    if ("shape" in said) == ("columns" in said):
        raise ValueError(
            "a declaration must have columns, a table [columns.NAME] for each, or shape for "
            f"pictures, got {'both' if 'shape' in said else 'neither'}"
        )
    known = _PICTURES if "shape" in said else _FEATURES
    _check_keys("", said, (*known, *OTHER_KEYS))
    parts: dict[str, Any] = {key: said[key] for key in known if key in said}
    _check_labels(said)
    if "classes" in said:
        parts["classes"] = _values("classes", said["classes"])
    if "shape" in said:
        return Pictures(**parts)
    parts["columns"] = _columns(said["columns"])
    return Features(**parts)


def _check_labels(said: Mapping[str, Any]) -> None:
    """Raises unless it is said what the labels are, in one way."""
    if "shape" in said:
        if "classes" not in said:
            raise ValueError("a declaration must have classes, got none")
        return
    if "label" not in said:
        raise ValueError("a declaration must have label, got none")
    if ("classes" in said) == ("label_bounds" in said):
        raise ValueError(
            "a declaration must have classes, or label_bounds = [LOWER, UPPER] for a label that is "
            f"a number, got {'both' if 'classes' in said else 'neither'}"
        )


def declared_to_dict(declared: Features | Pictures) -> dict[str, Any]:
    """The keys and values that :func:`declared_from_dict` reads back."""
    said = _labels_to_dict(declared)
    if isinstance(declared, Pictures):
        return said | {"shape": list(declared.shape), "default_value": declared.default_value}
    columns = {column.name: _column_to_dict(column) for column in declared.columns}
    return said | {"label": declared.label, "columns": columns}


def _labels_to_dict(declared: Features | Pictures) -> dict[str, Any]:
    if isinstance(declared, Features) and declared.label_bounds is not None:
        said: dict[str, Any] = {"label_bounds": list(declared.label_bounds)}
        if declared.default_label is not None:
            said["default_label"] = declared.default_label
        return said
    said = {"classes": [_written(c) for c in declared.classes]}
    if declared.default_class is not None:
        said["default_class"] = _written(declared.default_class)
    return said


def _columns(said: object) -> tuple[Column, ...]:
    if not isinstance(said, Mapping):
        validation.fail("columns", "a table [columns.NAME] for each column", said)
    return tuple(_column(str(name), keys) for name, keys in said.items())


def _column(name: str, said: object) -> Column:
    where = f"columns.{name}"
    if not isinstance(said, Mapping):
        validation.fail(where, "a table with lower and upper, or with categories", said)
    _check_keys(where, said, _COLUMN)
    keys = dict(said)
    if "categories" in keys:
        keys["categories"] = _values(f"{where}.categories", keys["categories"])
    if not isinstance(keys.get("meaning", ""), str):
        validation.fail(f"{where}.meaning", "text", keys["meaning"])
    return Column(name, **keys)


def _column_to_dict(column: Column) -> dict[str, Any]:
    said: dict[str, Any] = {"meaning": column.meaning} if column.meaning else {}
    if column.categories is not None:
        said["categories"] = [_written(value) for value in column.categories]
    for key in ("lower", "upper", "default"):
        if getattr(column, key) is not None:
            said[key] = _written(getattr(column, key))
    return said


def _written(value: Any) -> str | int | float:
    """The value as JSON can hold it: what is no number is the text by which it is matched."""
    value = value.item() if getattr(value, "shape", None) == () else value
    return value if _is_plain(value) else category(value)


def _check_keys(where: str, said: Mapping[str, Any], known: Collection[str]) -> None:
    for key in said:
        if key in known:
            continue
        place = f"{where}.{key}" if where else str(key)
        remedy = f"use {', '.join(known)}"
        if where and key in (*_FEATURES, *_PICTURES, *OTHER_KEYS):
            remedy = f"write {key} above the first [columns...]"
        raise ValueError(f"key {place!r} of the declaration is unknown: {remedy}")


def _is_plain(value: object) -> bool:
    return isinstance(value, str | int) or (isinstance(value, float) and math.isfinite(value))


def _values(name: str, values: object) -> tuple[Any, ...]:
    """Words, numbers or truth values, which a table can hold and JSON can write."""
    if not isinstance(values, list | tuple) or not values:
        validation.fail(name, "a list of values", values)
    for value in values:
        if not _is_plain(value):
            validation.fail(name, "text, numbers, true or false (write dates as text)", value)
    return tuple(values)
