"""Run folders: what a training run leaves behind, for the public and for its curator."""

from sfumato.learning.runs.folder import RunFolder

__all__ = ["RunFolder"]
