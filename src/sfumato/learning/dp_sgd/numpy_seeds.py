"""Seeds of NumPy's generators, by whatever name their classes are called.

``from numpy.random import default_rng`` binds the function itself, and libraries such as SciPy make
generators from a ``random_state=``. To look at ``numpy.random``'s attributes alone would miss them.
But all of NumPy's bit generators hash their seed by two functions that are looked up in the module
``numpy.random.bit_generator`` at each call, and ``RandomState`` looks its twister up in
``numpy.random.mtrand``. What stands there while code is watched sees every seed. These names are
NumPy's own affair: a test says if a later NumPy has others.

Not seen is what takes no seed: ``Philox(key=...)`` under an imported name, and a ``state`` that is
set on a generator that was made without one.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np

from sfumato.learning.dp_sgd.callers import is_own_affair

__all__ = ["NUMPYS"]

_MADE = "made a generator of its own while a batch was out"


def _randbits(real: Any, watched: Any) -> Any:
    """For the operating system's entropy, which a generator without a seed begins from."""

    def randbits(bits: int) -> int:
        value = real(bits)
        watched.entropy.add(value)
        return value

    return randbits


def _coerced(real: Any, watched: Any) -> Any:
    """For the function that reads a seed, then what tells it from its siblings, in turn."""
    depth, seed_is_read = 0, False

    def coerced(value: Any) -> Any:
        nonlocal depth, seed_is_read
        is_seed, depth = depth == 0 and not seed_is_read, depth + 1
        if depth == 1:
            seed_is_read = False
        try:
            if is_seed and not _is_entropy(value, watched) and not is_own_affair():
                watched.refuse(f"a seed of NumPy's {_MADE}")
            found = real(value)
        finally:
            depth -= 1
        if depth == 0:
            seed_is_read = is_seed
        return found

    return coerced


def _is_entropy(value: Any, watched: Any) -> bool:
    return isinstance(value, int) and value in watched.entropy


def _twister(real: Any, watched: Any) -> Any:
    """For the class of ``RandomState``'s twister, which is seeded after it was made."""

    def is_one(_: Any, instance: Any) -> bool:
        return isinstance(instance, real)  # those that were made before, too

    kind: Any = type("Kind", (type(real),), {"__instancecheck__": is_one})

    class MT19937(real, metaclass=kind):
        """NumPy's own, looked at."""

        def _legacy_seeding(self, seed: Any) -> Any:
            if seed is not None and not is_own_affair():
                watched.refuse(f"numpy.random.RandomState {_MADE}")
            return super()._legacy_seeding(seed)

    return MT19937


def _found() -> list[tuple[Any, str, Callable[[Any, Any], Any]]]:
    hashing = importlib.import_module("numpy.random.bit_generator")
    made = [
        (hashing, "randbits", _randbits),
        (hashing, "_coerce_to_uint32_array", _coerced),
        (np.random.mtrand, "_MT19937", _twister),
    ]
    return [(holder, name, stand) for holder, name, stand in made if hasattr(holder, name)]


NUMPYS = _found()
"""Modules, names in them, and what stands there while code is watched."""
