"""A run that a coordinator leads in a process of its own, as whoever started it sees it.

The process tells of itself by files in the coordinator's folder, named by the run: ``started``,
``present`` (how many participants are there), ``began``, and at the end ``result``, ``none`` or
``error``.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import final

from sfumato.federated.flower.apps import is_led
from sfumato.federated.flower.processes import Started

__all__ = ["LeadFailed", "Leading"]


@final
class LeadFailed(RuntimeError):  # noqa: N818 - the name operators read
    """The coordinator's part raised an exception, in its own process.

    Attributes:
        kind: "budget" where the ledger refused, "value" for what can be mended from outside (a
            ValueError or an OSError), "other" for the rest.
        said: the exception's own words.
    """

    def __init__(self, kind: str, said: str, trace: str) -> None:
        super().__init__(f"lead failed: {trace}")
        self.kind, self.said = kind, said


@final
class Leading:
    """A run that has been started.

    Args:
        folder: the coordinator's.
        identifier: the run's, in our files.
        superlink: on which it depends.
    """

    def __init__(self, folder: Path, identifier: str, superlink: Started) -> None:
        self._folder, self._id, self._superlink = folder, identifier, superlink

    def wait(self, timeout: float = 86_400.0) -> bytes | None:
        """What ``lead`` returned.

        Raises:
            LeadFailed: if it raised an exception.
            RuntimeError: if it was killed, or the SuperLink was.
            TimeoutError: if it goes on for longer.
        """
        end = time.monotonic() + timeout
        while True:
            died = not self._superlink.alive or (self.started and not is_led(self._folder))
            for kind in ("result", "none", "error"):  # looked for after it was seen to have ended
                path = self._path(kind)
                if path.exists():
                    return self._outcome(kind, path.read_bytes())
            if died:
                raise RuntimeError(
                    f"the coordinator's run ended without a result: {self._superlink.last_words()}"
                )
            if time.monotonic() > end:
                raise TimeoutError(f"the run goes on after {timeout:g} s")
            time.sleep(0.1)

    @property
    def started(self) -> bool:
        """Whether its process is, or was, at work."""
        return self._path("started").exists()

    @property
    def began(self) -> bool:
        """Whether enough participants were there, so that ``lead`` was called."""
        return self._path("began").exists()

    @property
    def present(self) -> int | None:
        """How many participants are there, while it waits for them; None if that is not known."""
        path = self._path("present")
        return int(path.read_text()) if path.exists() else None

    @property
    def errors(self) -> Path:
        """Where the whole story of a failure is."""
        return self._path("error")

    def _path(self, kind: str) -> Path:
        return self._folder / f"{self._id}.{kind}"

    @staticmethod
    def _outcome(kind: str, data: bytes) -> bytes | None:
        if kind == "error":
            told = json.loads(data)
            raise LeadFailed(told["kind"], told["said"], told["trace"])
        return data if kind == "result" else None
