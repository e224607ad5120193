"""What was charged once cannot be copied: two copies would take twice the steps."""

from __future__ import annotations

from typing import Any, NoReturn

__all__ = ["ChargedOnce"]


class ChargedOnce:
    """A run that refuses copying and pickling."""

    def __copy__(self, *_: Any) -> NoReturn:
        raise TypeError("a trainer cannot be copied: its run was charged once")

    __deepcopy__ = __reduce__ = __copy__
