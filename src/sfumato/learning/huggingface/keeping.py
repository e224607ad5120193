"""What lands where: weights and the record may be published, losses are the curator's.

=================================  =================================================================
``<output_dir>``                   what ``save_model`` writes: weights, configuration, tokenizer,
                                   and ``record.json``, the public record
``<output_dir>/checkpoint-<n>``    the same after n steps
``<curator_dir>``                  readable by its owner only
``<curator_dir>/run``              sfumato's checkpoints and journal, to go on from
``<curator_dir>/*.json``           the log: losses, the fraction clipped, metrics on private data
=================================  =================================================================

Weights of every step are part of what the guarantee covers: ``checkpoint-<n>`` may be shown, too.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path
from typing import Any, final

from sfumato.core.records import Record
from sfumato.learning.durable import create

__all__ = ["CuratorFolder", "drop_older", "write_record"]

_CHECKPOINT = re.compile(r"checkpoint-(\d+)")


@final
class CuratorFolder:
    """A folder for its owner's eyes.

    Args:
        path: made when something is written to it.
        published: a folder that may be shown, in which it must not lie.
    """

    def __init__(self, path: str | Path, published: str | Path) -> None:
        self.path = Path(path)
        inside, outside = self.path.resolve(), Path(published).resolve()
        if inside == outside or outside in inside.parents:
            raise ValueError(
                f"curator_dir must lie outside output_dir, which may be published, got "
                f"{str(path)!r}: leave it out, or name a folder beside it"
            )

    @property
    def run(self) -> Path:
        """Where a run is taken up again from."""
        return self.path / "run"

    def write(self, name: str, content: Any) -> Path:
        """JSON, readable by the owner only."""
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.path.chmod(0o700)
        os.close(create(self.path / name, json.dumps(content, indent=2).encode()))
        return self.path / name

    def read(self, name: str) -> Any:
        """What was written, or None."""
        path = self.path / name
        return json.loads(path.read_text()) if path.exists() else None


def write_record(folder: Path, record: Record) -> None:
    """Beside the weights that it is about."""
    text = json.dumps(record.to_dict(), indent=2)
    (folder / "record.json").write_text(text + "\n", encoding="utf-8")


def drop_older(folder: Path, kept: int | None, best: str | None) -> None:
    """Deletes ``checkpoint-<n>`` folders but for the newest ``kept``, and the best."""
    if kept is None or kept <= 0:
        return
    found = [p for p in folder.iterdir() if p.is_dir() and _CHECKPOINT.fullmatch(p.name)]
    found.sort(key=lambda path: int(path.name.rpartition("-")[2]))
    for path in found[:-kept]:
        if best is None or path.resolve() != Path(best).resolve():
            shutil.rmtree(path)
