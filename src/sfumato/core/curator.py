"""The log for the curator: what was read from private data and is nobody else's business."""

from __future__ import annotations

import logging

__all__ = ["CURATOR"]

CURATOR = logging.getLogger("sfumato.curator")
"""What engines and readers say of private data, for the operator; silent unless configured."""
CURATOR.addHandler(logging.NullHandler())
CURATOR.propagate = False
