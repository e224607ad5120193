"""The vocabulary: guarantees, events, neighbours, sensitivities, records, validation, randomness.

No I/O, and nothing heavier than NumPy.
"""

from sfumato.core.events import Event
from sfumato.core.guarantee import Guarantee
from sfumato.core.neighbours import Neighbours
from sfumato.core.randomness import SYSTEM, Coins, SeededCoins
from sfumato.core.records import Record, Release
from sfumato.core.sensitivity import Norm, Sensitivity

__all__ = [
    "SYSTEM",
    "Coins",
    "Event",
    "Guarantee",
    "Neighbours",
    "Norm",
    "Record",
    "Release",
    "SeededCoins",
    "Sensitivity",
]
