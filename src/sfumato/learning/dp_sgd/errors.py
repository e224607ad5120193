"""Errors of private training. All of them are found before more budget is spent."""

from __future__ import annotations

__all__ = ["StreamError", "TrainingError"]


class TrainingError(ValueError):
    """The model, the loss or the loop is not one that can be trained privately; says the remedy."""


class StreamError(TrainingError):
    """A stream has not the rows that were declared; never taken for one bad row."""
