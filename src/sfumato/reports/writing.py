"""A document into a file, in the format that its name ends in."""

from __future__ import annotations

import json
import os
from pathlib import Path

from sfumato.reports.documents import Document
from sfumato.reports.html import to_html
from sfumato.reports.markdown import to_json, to_markdown

__all__ = ["FORMATS", "check_format", "write_document"]

FORMATS = {
    ".html": to_html,
    ".md": to_markdown,
    ".json": lambda document: json.dumps(to_json(document), indent=2, allow_nan=False) + "\n",
}
"""How each ending is written."""


def check_format(path: Path) -> None:
    """Raises for an ending that is no format.

    Raises:
        ValueError: naming those there are.
    """
    if path.suffix.lower() not in FORMATS:
        raise ValueError(f"a report must end in {', '.join(FORMATS)}, got {str(path)!r}")


def write_document(document: Document, path: str | Path) -> Path:
    """Writes it, whole or not at all; the curator's edition is readable by its owner alone.

    Raises:
        ValueError: for an ending that is no format, or a folder of that name.
    """
    out = Path(path)
    check_format(out)
    if out.is_dir():
        raise ValueError(f"a report must be a file, but {str(out)!r} is a folder")
    text = FORMATS[out.suffix.lower()](document).encode("utf-8", errors="replace")
    out.parent.mkdir(parents=True, exist_ok=True)
    mode = 0o644 if document.edition == "publishable" else 0o600
    part = out.with_name(f".{out.name}.part")
    try:
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(file.fileno(), mode)  # a part left by a killed process may have another
            file.write(text)
        part.replace(out)
    finally:
        part.unlink(missing_ok=True)
    return out
