"""What went wrong inside a compiled call, instead of what the compiler makes of it."""

from __future__ import annotations

from types import TracebackType

from torch._dynamo.exc import Unsupported

__all__ = ["RealErrors"]


class RealErrors:
    """A context in which errors of kernels come out as they are.

    An error on its way out of a kernel (too little memory, mostly) passes context managers that are
    generators. ``torch.compile``, which looks at every frame that Python begins while a compiled
    call is on its way, takes those for functions to be compiled, refuses, and what is seen is
    "attempt to trace generator", with the error itself as its hidden context.

    >>> with RealErrors():
    ...     try:
    ...         raise MemoryError("too little")
    ...     except MemoryError:
    ...         raise Unsupported("Attempt to trace generator")
    Traceback (most recent call last):
        ...
    MemoryError: too little
    """

    def __enter__(self) -> None:
        """Nothing to be done."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Raises what the compiler's refusal hides, if it hides something."""
        if not isinstance(error, Unsupported):
            return
        hidden = error.__context__
        while isinstance(hidden, Unsupported):
            hidden = hidden.__context__
        if hidden is not None and isinstance(hidden, Exception):
            raise hidden from None
