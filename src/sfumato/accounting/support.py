"""What an accountant says of an event it has no theorem for."""

from __future__ import annotations

__all__ = ["UnsupportedError"]


class UnsupportedError(ValueError):
    """This accountant has no theorem for this event; the message is the reason users see."""
