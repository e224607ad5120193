"""Python's garbage collector, kept out of compiled calls."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Generator

__all__ = ["without_collection"]


@contextlib.contextmanager
def without_collection(first: bool = False) -> Generator[None]:
    """No garbage is collected in the block, unless somebody asks for it.

    While a compiled call is on its way, ``torch.compile`` looks at every frame that Python begins.
    If the collector runs just then and closes a generator that somebody dropped half-way (an
    iteration, a context that was never left), the compiler takes it for the function it is to
    compile and ends the run: "attempt to trace generator".

    Args:
        first: whether the call will be compiled now, which takes long: what is garbage goes before.

    >>> with without_collection():
    ...     gc.isenabled()
    False
    """
    before = gc.isenabled()
    if first:
        gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if before:
            gc.enable()
