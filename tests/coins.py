"""Secret coins that are the same every time, for tests of code that has no argument for others."""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from typing import Any
from unittest import mock

import numpy as np

__all__ = ["same_coins"]


@contextlib.contextmanager
def same_coins(seed: int) -> Generator[None]:
    """Whatever asks the operating system for secret numbers gets those of a seed."""
    from sfumato.core.randomness import SystemCoins

    generator = np.random.Generator(np.random.PCG64(seed))

    def words(self: object, count: int) -> Any:
        return generator.integers(0, 2**64, count, dtype=np.uint64)

    with mock.patch.object(SystemCoins, "words", words):
        yield
