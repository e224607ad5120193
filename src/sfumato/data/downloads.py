"""A file from a public address: gives up soon where there is no network, goes on where it broke.

What has arrived stays in ``FILE.part``. If the connection breaks, or the process is killed, the
next attempt asks for the rest only. Whether the content is right is for the caller to check.
"""

from __future__ import annotations

import http.client
import queue
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from sfumato.data.progress import Advance

__all__ = ["download"]

CONNECT_SECONDS = 5.0  # until the answer begins: a machine may be offline
STALL_SECONDS = 20.0  # without a byte
ATTEMPTS = 3  # in a row without a byte gained
PAUSE_SECONDS = 0.5
_BLOCK = 1 << 18
_PASSING = {408, 425, 429, 500, 502, 503, 504}


def download(url: str, path: Path, advance: Advance, most_bytes: int) -> Path:
    """Fetches ``url`` into ``path``.

    Raises:
        OSError: if nothing answers, if the answer is an error, or if it is over ``most_bytes``.
    """
    part = path.with_name(f"{path.name}.part")
    failures = 0
    while True:
        before = part.stat().st_size if part.exists() else 0
        try:
            _rest(url, part, advance, most_bytes)
        except urllib.error.HTTPError as error:
            error.close()
            if error.code == 416:  # what is there is not the beginning of this file
                part.unlink(missing_ok=True)
            elif error.code not in _PASSING:
                raise OSError(f"the answer was {error.code} {error.reason}") from None
            reason: Exception = OSError(f"the answer was {error.code} {error.reason}")
        except urllib.error.URLError as error:
            raise OSError(f"no connection: {error.reason}") from None
        except (http.client.HTTPException, ConnectionError, TimeoutError) as error:
            reason = error
        else:
            part.replace(path)
            return path
        gained = (part.stat().st_size if part.exists() else 0) > before
        failures = 0 if gained else failures + 1
        if failures >= ATTEMPTS:
            raise OSError(f"gave up after {ATTEMPTS} attempts: {reason}") from None
        time.sleep(PAUSE_SECONDS)


def _rest(url: str, part: Path, advance: Advance, most_bytes: int) -> None:
    """Appends to ``part`` what it lacks."""
    have = part.stat().st_size if part.exists() else 0
    request = urllib.request.Request(url, headers={"User-Agent": "sfumato"})
    if have:
        request.add_header("Range", f"bytes={have}-")
    with _opened(request) as response:
        resumed = have > 0 and response.status == 206
        have = have if resumed else 0
        length = response.headers.get("Content-Length")
        total = have + int(length) if length and length.isdigit() else None
        with part.open("ab" if resumed else "wb") as file:
            while block := response.read(_BLOCK):
                have += len(block)
                if have > most_bytes:
                    part.unlink()
                    raise OSError(f"the answer is longer than {most_bytes:,} bytes")
                file.write(block)
                advance(have, total)
        if total is not None and have < total:
            raise http.client.IncompleteRead(b"", total - have)


def _opened(request: urllib.request.Request) -> Any:
    """The answer, if it begins in time.

    A socket's own time limit does not cover the look-up of a name, and counts anew for each
    address of a host, so another thread does the waiting.
    """
    answers: queue.SimpleQueue[Any] = queue.SimpleQueue()
    late = threading.Event()

    def ask() -> None:
        try:
            answer: Any = urllib.request.urlopen(request, timeout=STALL_SECONDS)
        except Exception as error:
            answer = error
        answers.put(answer)
        if late.is_set() and not isinstance(answer, Exception):
            answer.close()

    threading.Thread(target=ask, daemon=True).start()
    try:
        answer = answers.get(timeout=CONNECT_SECONDS)
    except queue.Empty:
        late.set()
        raise urllib.error.URLError(f"nothing within {CONNECT_SECONDS:g} seconds") from None
    if isinstance(answer, Exception):
        raise answer
    return answer
