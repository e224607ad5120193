"""Teachers of one run for another, so that they are trained once.

Teachers do not depend on how their votes are noised, and never leave: what each run releases is
answers with noise of its own, private for every way of dealing the rows. So runs that share
teachers compose as if each had its own.
"""

from __future__ import annotations

import shutil

from sfumato.learning.durable import write_whole
from sfumato.learning.runs.folder import RunFolder

__all__ = ["borrow_teachers", "forget_half_borrowed"]

_HALF = "teachers.new"


def borrow_teachers(lender: RunFolder, borrower: RunFolder) -> None:
    """Copies the teachers of a finished run, and how rows were dealt to them, into a begun one.

    The salt comes first, and teachers all at once: whenever this is cut off, what is there, and
    what is trained beside it later, goes by one way of dealing the rows. (With two, a record could
    have taught two teachers, and twice the sensitivity.)
    """
    write_whole(borrower.curator / "salt", (lender.curator / "salt").read_bytes())
    half = borrower.curator / _HALF
    shutil.copytree(lender.curator / "teachers", half)
    half.replace(borrower.curator / "teachers")


def forget_half_borrowed(borrower: RunFolder) -> None:
    """Removes what a copy that was cut off left."""
    shutil.rmtree(borrower.curator / _HALF, ignore_errors=True)
