"""Weights, and an optimizer's or schedule's state, as tensors and JSON: exactly there and back.

A ``state_dict()`` is a tree of tensors, numbers, words, lists, tuples and dictionaries whose keys
may be whole numbers. Its tensors go into one flat dictionary, its shape into JSON, and nothing is
ever pickled, so reading a stranger's checkpoint runs none of their code.

    >>> state = {"state": {0: {"step": torch.tensor(3.0)}}, "betas": (0.9, 0.99)}
    >>> tensors, facts = flatten_state(state)
    >>> list(tensors)
    ['0:state.0.step']
    >>> restore_state(tensors, facts) == state
    True

In JSON a list, a word, a finite number, true, false and null stand for themselves. Everything else
is an object with one entry that names what it is: ``{"tuple": [...]}``, ``{"dict": [[key, value],
...]}``, ``{"tensor": name}``.
"""

from __future__ import annotations

import math
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

__all__ = [
    "check_groups",
    "check_weights",
    "flatten_state",
    "load_weights",
    "restore_state",
    "weights_of",
]

_MAPPINGS: dict[str, type[dict[Any, Any]]] = {
    "dict": dict,
    "ordered": OrderedDict,
    "counter": Counter,
}
_LISTED = 5  # names in an error


def flatten_state(state: Any) -> tuple[dict[str, Tensor], Any]:
    """Takes a ``state_dict()`` apart.

    Args:
        state: what an optimizer's or a schedule's ``state_dict()`` returned.

    Returns:
        The tensors, by names that tell where they stood, sharing memory with ``state``; and all the
        rest, JSON-ready.

    Raises:
        ValueError: if it holds something that is neither a tensor nor plain: a function, an object,
            a random generator.
    """
    tensors: dict[str, Tensor] = {}
    return tensors, _pack(state, "", tensors)


def restore_state(tensors: Mapping[str, Tensor], facts: Any) -> Any:
    """The inverse of :func:`flatten_state`; tensors are copied, types and keys as they were.

    Args:
        tensors: at least those that :func:`flatten_state` returned.
        facts: what it returned beside them.

    Raises:
        ValueError: if a tensor is missing or ``facts`` was not made by :func:`flatten_state`.
    """
    if isinstance(facts, list):
        return [restore_state(tensors, value) for value in facts]
    if not isinstance(facts, dict):
        return facts
    kind: str
    content: Any
    ((kind, content),) = facts.items() if len(facts) == 1 else (("", None),)
    if kind == "tensor":
        if content not in tensors:
            raise ValueError(f"tensors must hold {content!r}, which the state names, but do not")
        return tensors[content].detach().clone()
    if kind == "float":
        return float(content)
    if kind == "tuple":
        return tuple(restore_state(tensors, value) for value in content)
    if kind in _MAPPINGS:
        pairs = ((restore_state(tensors, k), restore_state(tensors, v)) for k, v in content)
        return _MAPPINGS[kind](dict(pairs))
    raise ValueError(f"facts must come from flatten_state, got an object with {sorted(facts)!r}")


def _pack(value: Any, path: str, tensors: dict[str, Tensor]) -> Any:
    if isinstance(value, Tensor):
        name = f"{len(tensors)}:{path}"
        tensors[name] = value.detach()
        return {"tensor": name}
    # Plain Python values of a subclass too: np.float64 is a float and comes back as one.
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else {"float": repr(float(value))}
    if isinstance(value, int):
        return int(value)
    if isinstance(value, str):
        return str(value)
    if type(value) is list:
        return [_pack(v, _join(path, i), tensors) for i, v in enumerate(value)]
    if type(value) is tuple:
        return {"tuple": [_pack(v, _join(path, i), tensors) for i, v in enumerate(value)]}
    for kind, mapping in _MAPPINGS.items():
        if type(value) is mapping:
            return {kind: [_pair(k, v, path, tensors) for k, v in value.items()]}
    return _refuse(value, path)


def _pair(key: Any, value: Any, path: str, tensors: dict[str, Tensor]) -> list[Any]:
    if isinstance(key, Tensor):
        _refuse(key, f"{path} (a key)")
    return [_pack(key, f"{path} (a key)", tensors), _pack(value, _join(path, key), tensors)]


def _join(path: str, key: object) -> str:
    return f"{path}.{key}" if path else str(key)


def _refuse(value: object, path: str) -> Any:
    what = f"{type(value).__module__}.{type(value).__qualname__}"
    remedy = "keep tensors, numbers, words, lists, tuples and dictionaries in it"
    if isinstance(value, torch.Generator):
        remedy = "a checkpoint holds no random state: a resumed run draws fresh coins"
    elif isinstance(value, Callable):
        remedy = "functions are not stored: leave it out and build it again before resuming"
    raise ValueError(f"state cannot be stored: {path or 'it'} is a {what}; {remedy}")


def weights_of(model: nn.Module) -> dict[str, Tensor]:
    """Every parameter and lasting buffer by name, sharing memory with the model.

    Raises:
        ValueError: if the model adds something else than tensors to its ``state_dict()``.
    """
    weights = dict(model.state_dict())
    for name, value in weights.items():
        if not isinstance(value, Tensor):
            _refuse(value, name)
    return weights


def load_weights(model: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Copies weights into the model in place: same parameters, the stored values to the bit.

    Raises:
        ValueError: unless names, shapes and types are exactly the model's; nothing is changed then.
    """
    check_weights(model, tensors)
    with torch.no_grad():
        for name, weight in weights_of(model).items():
            weight.copy_(tensors[name])


def check_weights(model: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Changes nothing.

    Raises:
        ValueError: unless names, shapes and types are exactly the model's.
    """
    own = weights_of(model)
    missing, unknown = own.keys() - tensors.keys(), tensors.keys() - own.keys()
    if missing or unknown:
        raise ValueError(
            f"tensors must be this model's weights: {_names(missing)} missing, {_names(unknown)} "
            "unknown to the model; build the model as it was when the checkpoint was made"
        )
    for name, weight in own.items():
        stored = tensors[name]
        if (stored.shape, stored.dtype) != (weight.shape, weight.dtype):
            raise ValueError(
                f"{name} must have shape {tuple(weight.shape)} and type {weight.dtype} as in the "
                f"model, got {tuple(stored.shape)} and {stored.dtype}; build the model as it was "
                "when the checkpoint was made"
            )


def check_groups(optimizer: Any, state: Any) -> None:
    """Changes nothing.

    Raises:
        ValueError: unless the stored groups have as many parameters each as the optimizer's.
    """
    held = [len(group["params"]) for group in optimizer.param_groups]
    stored = [len(group["params"]) for group in state["param_groups"]]
    if held != stored:
        raise ValueError(
            f"the optimizer must have groups of {stored} parameters, as when the checkpoint was "
            f"made, got {held}"
        )


def _names(names: Iterable[str]) -> str:
    listed = sorted(names)
    if not listed:
        return "none"
    more = len(listed) - _LISTED
    return ", ".join(listed[:_LISTED]) + (f" and {more} more" if more > 0 else "")
