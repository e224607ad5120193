"""Fetching an image data set: one source after the other, until the checksums are right.

The caller holds the lock of the folder. What a download has got so far is kept in the folder's
``.fetch``, to go on from there the next time; all of that goes when the files are there.
"""

from __future__ import annotations

import hashlib
import http.client
import shutil
import tarfile
import zlib
from collections.abc import Sequence
from pathlib import Path

from sfumato.data.cache import DataUnavailable
from sfumato.data.image_facts import ImageFacts, ImageFile
from sfumato.data.image_sources import IMAGE_SOURCES, Source

__all__ = ["fetch"]

_UNFINISHED = ".fetch"
_FAILURES = (
    OSError,
    ValueError,
    EOFError,
    KeyError,
    http.client.HTTPException,
    tarfile.TarError,
    zlib.error,
)


def fetch(facts: ImageFacts, folder: Path) -> None:
    """Puts the files of a data set into ``folder``, from the first source that has them right.

    Raises:
        DataUnavailable: if none has; says what was tried and what to do.
    """
    sources = IMAGE_SOURCES[facts.name]
    tried: list[str] = []
    for source in (*_by_hand(folder, sources), *sources):
        place = folder / _UNFINISHED / hashlib.sha256(source.where.encode()).hexdigest()[:8]
        try:
            if not source.public:  # a client's half-done work is of no use; a download's is
                shutil.rmtree(place, ignore_errors=True)
            place.mkdir(parents=True, exist_ok=True)
            start = source.fetch(place)
            try:
                files = source.unpack(facts, start)
                _check(facts.files, files)
            except _FAILURES:
                shutil.rmtree(place, ignore_errors=True)  # never to be resumed from
                raise
            for name, content in files.items():  # written beside, then renamed: never half a file
                (place / name).write_bytes(content)
                (place / name).replace(folder / name)
        except _FAILURES as error:
            tried.append(f"{source.where}: {error}")
        else:
            shutil.rmtree(folder / _UNFINISHED, ignore_errors=True)
            return
    raise DataUnavailable(_unavailable(facts, folder, sources, tried))


def _by_hand(folder: Path, sources: Sequence[Source]) -> list[Source]:
    """The published files, if a person put them into the folder."""
    return [
        Source(f"the files in {folder}", lambda _: folder, source.unpack)
        for source in sources[:1]
        if source.by_hand and all((folder / name).is_file() for name in source.by_hand)
    ]


def _check(expected: Sequence[ImageFile], files: dict[str, bytes]) -> None:
    for file in expected:
        found = hashlib.sha256(files[file.name]).hexdigest()
        if found != file.sha256:
            raise ValueError(f"{file.name} must have SHA-256 {file.sha256}, got {found}")


def _unavailable(
    facts: ImageFacts, folder: Path, sources: Sequence[Source], tried: Sequence[str]
) -> str:
    by_hand = next((source.by_hand for source in sources if source.by_hand), ())
    remedy = "install what is missing, and try again"
    if by_hand:
        remedy = (
            f"try again with a network, or put {', '.join(by_hand)} into {folder} by hand "
            f"(from {sources[0].where})"
        )
    attempts = "".join(f"\n  {attempt}" for attempt in tried)
    return f"{facts.name} could not be had. Tried:{attempts}\nRemedy: {remedy}"
