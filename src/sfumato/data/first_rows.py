"""The first records of a data set, as a smaller data set.

    small = first_rows(load_dataset("mnist"), 6000)

The choice is public and by position alone. What is promised about the smaller set is promised about
its own records: that they are the first is taken as given. Seen from the larger set, whoever leaves
one of the first places makes room for the next in line, so that adding or removing one record of
the larger set *replaces* one of the smaller. Replacing or blanking out a record changes one record
in both.
"""

from __future__ import annotations

from dataclasses import replace

from sfumato.core import validation
from sfumato.data.examples import Dataset, Examples

__all__ = ["first_rows"]


def first_rows(data: Dataset, rows: int | None) -> Dataset:
    """``data`` with only the first ``rows`` of its records to train on; all of it for None.

    The declared public size becomes ``rows``, and the test set stays. Where there are fewer records
    than that, which may be private, all of them are taken and nothing is said.

    Args:
        data: of which to take the first records.
        rows: how many.

    Raises:
        ValueError: if rows are no whole number above 0, are more than were declared, or belong to
            owners, of whom nobody knows how many the first rows have.
    """
    if rows is None:
        return data
    wanted = validation.count("rows", rows)
    if data.owners is not None:
        raise ValueError(
            "rows must be left out where rows have owners: how many owners the first rows have is "
            "private"
        )
    if data.public_size is not None and wanted > data.public_size:
        validation.fail("rows", f"at most the declared size ({data.public_size:,})", rows)
    inputs, labels = data.train
    train = Examples(inputs[:wanted], labels[:wanted])
    return replace(data, train=train, public_size=wanted, rows=wanted)
