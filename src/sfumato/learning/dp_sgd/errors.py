"""Errors of private training. All of them are found before more budget is spent."""

from __future__ import annotations

__all__ = ["TrainingError"]


class TrainingError(ValueError):
    """The model, the loss or the loop is not one that can be trained privately; says the remedy."""
