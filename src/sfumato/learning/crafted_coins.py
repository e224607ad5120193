"""States of the Mersenne Twister whose next numbers are chosen, for rehearsals.

What happens with a probability of one in a hundred does not happen in a rehearsal with ordinary
coins. So a rehearsal is also held under coins whose next numbers are all near 0, or all near 1:
then ``u < p`` comes true for every p above 1e-4, and so does ``u > 1 - p``.

The twister's output is an invertible function of one word of its key (:func:`untempered`), so a key
can be made for any 624 outputs. After them the twist gives other words, so that no rejection
sampler runs for ever. A key of zeros would give zeros for ever, and is not made.

Torch on the CPU, NumPy's global generator and Python's ``random`` can be crafted so. Philox on a
GPU cannot.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["EVEN", "KEY", "RARE", "Level", "crafted", "untempered"]

KEY = 624  # 32-bit words of a state
_FIRST = 2  # words of one number with 53 bits
_NEAR = 1e-5


class Level(NamedTuple):
    """What uniform numbers between 0 and 1 are next.

    Attributes:
        torch: of torch's generator on the CPU.
        numpy: of NumPy's.
        plain: of Python's.
        first: whether only the first number is; those that follow are ordinary.
    """

    torch: float
    numpy: float
    plain: float
    first: bool = False


RARE = tuple(
    Level(near, near, near, first) for near in (_NEAR, 1 - _NEAR) for first in (True, False)
)
"""Coins under which rare things happen."""

# At 1/8 cosine and sine are equal, and so are the normal numbers that Python makes of them in
# pairs. NumPy's pairs are equal wherever they are not rejected, as at 1/8 they are.
EVEN = Level(0.3, 0.3, 0.125)
"""Coins of which every draw is the same, whoever comes before or after."""


def crafted(keys: NDArray[np.uint32], level: Level) -> NDArray[np.uint32]:
    """Keys for torch, NumPy and Python in turn, to be read from their first word on.

    Args:
        keys: (3, 624) words, kept where a level says nothing.
        level: what comes out.
    """
    made = keys.copy()
    count = _FIRST if level.first else KEY
    # Torch takes the low bits of a word, the others take the high ones.
    words = (
        0x55000000 | int(level.torch * 2**24), int(level.numpy * 2**32), int(level.plain * 2**32)
    )  # fmt: skip
    for key, word in zip(made, words, strict=True):
        key[:count] = untempered(word)
    return made


def untempered(word: int) -> int:
    """The word of a key whose output is ``word``."""
    word ^= word >> 18
    word ^= (word << 15) & 0xEFC60000
    found = word
    for _ in range(4):
        found = word ^ ((found << 7) & 0x9D2C5680)
    word = found & 0xFFFFFFFF
    found = word
    for _ in range(2):
        found = word ^ (found >> 11)
    return found
