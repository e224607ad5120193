"""Where hyper-parameters come from, for the record of a run that was asked for in options."""

from __future__ import annotations

from collections.abc import Collection, Iterable

__all__ = ["origin_of"]

_DEFAULTS = "sfumato's defaults, chosen on public data"


def origin_of(
    given: Iterable[str], shaping: Collection[str], tuned_on: str | None = None
) -> str | None:
    """What is known of it; None where nothing is, which recipes have words for.

    Args:
        given: names of options that were given and that a better score could have led to.
        shaping: those of them that say what is learnt, and not how: named, beside defaults for all
            others.
        tuned_on: what the operator says.

    >>> origin_of([], ("pool",))
    "sfumato's defaults, chosen on public data"
    >>> origin_of(["pool"], ("hidden", "pool"))
    "sfumato's defaults, chosen on public data; as given by the operator: pool"
    >>> origin_of(["pool", "clip"], ("hidden", "pool")) is None
    True
    """
    if tuned_on is not None:
        return tuned_on
    names = sorted(set(given))
    if not set(names) <= set(shaping):
        return None
    own = ", ".join(name.replace("_", "-") for name in names)
    return f"{_DEFAULTS}; as given by the operator: {own}" if own else _DEFAULTS
