"""Neighbour relations: which two data sets a guarantee makes hard to tell apart.

Every sensitivity, event and guarantee names one, because the same noise protects differently under
each: epsilon 0.947 when one record may be added or removed is 1.993 when one may be replaced.

Which relation implies which, by how many steps:

=============  ===========  ==========  =============================================
from / to      add-remove   zero-out    replace-one
=============  ===========  ==========  =============================================
add-remove     0            same        two steps (remove the old, add the new)
zero-out       never        0           two steps (through the null record)
replace-one    never        never       0
=============  ===========  ==========  =============================================

Add/remove gives zero-out at the same cost where a null record counts as absent, which is what the
null of this relation is. A row of missing values need not be one: where missing values take a
declared default, they contribute, and blanking a row is a replacement. Questions of tables price
blank rows that stay (:mod:`sfumato.queries.measures`). In training the null is a record whose
contribution to every sum is zero, not one at the defaults.

Replace-one says nothing about the number of records, hence never converts back; nor does it give
zero-out, because the null record need not lie in the domain (values in [10, 20] differ by at most
10 from each other, and by 20 from nothing).
"""

from __future__ import annotations

from enum import StrEnum

from sfumato.core import validation

__all__ = ["Neighbours", "require_conversion"]


_ITSELF_DATA = {"record", "row", "label", "example", "document", "cell", "visit"}


class Neighbours(StrEnum):
    """What one step between neighbouring data sets may do."""

    ADD_REMOVE = "add-remove"
    """One unit is present in one data set and absent from the other. The size is private."""
    REPLACE_ONE = "replace-one"
    """One unit's data is changed to anything else in the domain. The size is public."""
    ZERO_OUT = "zero-out"
    """One unit's data is replaced by a null that contributes nothing. The size is public.

    Kairouz et al., "Practical and private (deep) learning without sampling or shuffling",
    arXiv:2103.00039, definition 1.1.
    """

    @classmethod
    def parse(cls, value: object, name: str = "neighbours") -> Neighbours:
        """The relation given as itself or as text (``"replace-one"``)."""
        return validation.choice(name, value, cls)

    def describe(self, unit: str) -> str:
        """The relation in plain words, for one ``unit``.

        A record is blanked out; of a person, or whatever else holds data, the data are.

        >>> Neighbours.ZERO_OUT.describe("record"), Neighbours.ZERO_OUT.describe("patient")
        ('blank out one record', 'blank out the data of one patient')
        """
        data = "" if unit in _ITSELF_DATA else "the data of "
        return {
            Neighbours.ADD_REMOVE: f"add or remove one {unit}",
            Neighbours.REPLACE_ONE: f"replace one {unit}",
            Neighbours.ZERO_OUT: f"blank out {data}one {unit}",
        }[self]


_STEPS: dict[tuple[Neighbours, Neighbours], int] = {
    (Neighbours.ADD_REMOVE, Neighbours.ZERO_OUT): 1,
    (Neighbours.ADD_REMOVE, Neighbours.REPLACE_ONE): 2,
    (Neighbours.ZERO_OUT, Neighbours.REPLACE_ONE): 2,
}


def require_conversion(source: Neighbours, target: Neighbours) -> int:
    """How many ``source`` steps make one ``target`` step.

    Raises:
        ValueError: where no number of steps does (see the table above).
    """
    if source is target:
        return 1
    steps = _STEPS.get((source, target))
    if steps is None:
        raise ValueError(
            f"a {source} guarantee says nothing about {target} neighbours: "
            f"state the sensitivity under {target}, or ask for {source}"
        )
    return steps
