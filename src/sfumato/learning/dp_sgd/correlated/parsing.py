"""Strategies by name, as they are written on a command line.

>>> parse_correlation("banded:16")
BandedNoise(bands=16, coefficients=None)
>>> parse_correlation("tree")
TreeNoise(restart=None)
"""

from __future__ import annotations

from sfumato.learning.dp_sgd.correlated.strategies import (
    BandedNoise,
    BufferedNoise,
    Correlation,
    IndependentNoise,
    TreeNoise,
)

__all__ = ["CORRELATIONS", "parse_correlation"]

CORRELATIONS = "independent, banded:BANDS, tree, tree:RESTART, buffered or buffered:BUFFERS"


def parse_correlation(text: str) -> Correlation:
    """A strategy from its name and its number, if it has one.

    Raises:
        ValueError: for anything else than :data:`CORRELATIONS`.
    """
    name, colon, number = text.partition(":")
    if number.isdecimal() == bool(colon):
        if name == "independent" and not colon:
            return IndependentNoise()
        if name == "banded" and colon:
            return BandedNoise(int(number))
        if name == "tree":
            return TreeNoise(int(number) if colon else None)
        if name == "buffered":
            return BufferedNoise(int(number)) if colon else BufferedNoise()
    raise ValueError(f"correlation must be one of {CORRELATIONS}, got {text!r}")
