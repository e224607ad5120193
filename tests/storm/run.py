"""Crash storms: ``python -m tests.storm.run --minutes 20``.

Processes that are at work on a ledger are killed, and what they told before is held against it:
nothing overspent, nothing lost, nothing wrong, nothing double. Kinds take turns, each in pieces
with a seed of its own; what breaks a law is written to ``--findings`` with its seed. With ``--table
FILE`` a log is added up; with ``--list`` the kinds are listed.

SIGKILL is not a power cut: what a dead process wrote the kernel keeps. That a disk has what
``fsync`` said it has is the disk's word.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.storm.kinds import KINDS
from tests.storm.storm import LAWS, Storm, Tally
from tests.storm.table import table

__all__ = ["apart", "main", "piece"]


def piece(kind: str, seed: int, kills: int, **shares: float) -> Tally:
    """One piece of a storm, in folders that are gone afterwards."""
    place = None if (seed % 2 and KINDS[kind].disk) or not _MEMORY.is_dir() else _MEMORY
    folder = Path(tempfile.mkdtemp(prefix="storm", dir=place))
    storm = Storm(seed, kills, folder, **shares)
    try:
        KINDS[kind].load()(storm)
    except Exception:  # of the parent: a finding, too
        storm.find("wrong", f"the storm itself ended: {traceback.format_exc()[-1500:]}")
    finally:
        storm.end_all()
        storm.afterwards.close()
        shutil.rmtree(folder, ignore_errors=True)
    return storm.tally


_MEMORY = Path("/dev/shm")


def apart(
    kind: str, seed: int, kills: int, shares: dict[str, float],
    before: Callable[[], None] = lambda: None,
) -> Tally:  # fmt: skip
    """A piece in a process of its own, so that none inherits what another one loaded."""
    readable, writable = os.pipe()
    child = os.fork()
    if not child:
        os.close(readable)
        try:
            before()
            with os.fdopen(writable, "w") as file:
                json.dump(vars(piece(kind, seed, kills, **shares)), file)
        finally:
            os._exit(0)
    os.close(writable)
    with os.fdopen(readable) as file:
        said = file.read()
    os.waitpid(child, 0)
    if said:
        return Tally(**json.loads(said))
    ended = Tally()
    ended.find("wrong", "the storm's own process ended")
    return ended


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--kills", type=int, help="of a piece; each kind has its own number")
    parser.add_argument("--pieces", type=int, default=0, help="of each kind; until time is over")
    parser.add_argument("--seed", type=int, help="of the first piece; a random one without")
    parser.add_argument("--fresh", type=float, default=0.02, help="share of fresh processes")
    parser.add_argument("--calls", type=float, default=0.3, help="share killed at a system call")
    parser.add_argument("--findings", type=Path, default=Path("findings"))
    parser.add_argument("--log", type=Path, help="adds a line of JSON for each piece")
    parser.add_argument("--table", type=Path, help="adds a log up, and ends")
    parser.add_argument("--list", action="store_true", help="the kinds")
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    if asked.list:
        print("\n".join(KINDS))
    elif asked.table:
        print(table([json.loads(line) for line in asked.table.read_text().splitlines()]))
    else:
        sys.exit(bool(_storms(asked)))


def _storms(asked: argparse.Namespace) -> int:
    began, found = time.monotonic(), 0
    seed = random.SystemRandom().randrange(2**32) if asked.seed is None else asked.seed
    first = seed
    KINDS["spenders"].load()  # what all kinds need is loaded once
    while True:
        for kind in asked.kinds.split(","):
            if time.monotonic() - began >= 60 * asked.minutes and not asked.pieces:
                return found
            found += _one(kind, seed, asked)
        seed += 1
        if asked.pieces and seed - first >= asked.pieces:
            return found


def _one(kind: str, seed: int, asked: argparse.Namespace) -> int:
    began = time.monotonic()
    kills = asked.kills or KINDS[kind].kills
    tally = apart(kind, seed, kills, {"fresh": asked.fresh, "calls": asked.calls})
    line: dict[str, Any] = {
        "kind": kind, "seed": seed, "kills": tally.kills, "late": tally.late, "how": tally.how,
        "others": tally.others, **{law: len(tally.broken[law]) for law in LAWS},
        "minutes": round((time.monotonic() - began) / 60, 2),
    }  # fmt: skip
    print(json.dumps(line), flush=True)
    if asked.log:
        with asked.log.open("a") as file:
            file.write(json.dumps(line) + "\n")
    if tally.found:
        asked.findings.mkdir(parents=True, exist_ok=True)
        path = asked.findings / f"storm-{kind.replace(' ', '-')}-{seed}.md"
        path.write_text(_finding(kind, seed, kills, asked, tally))
        print(path, flush=True)
    return tally.found


def _finding(kind: str, seed: int, kills: int, asked: argparse.Namespace, tally: Tally) -> str:
    again = (
        f"python -m tests.storm.run --kinds '{kind}' --seed {seed} --kills {kills} --pieces 1 "
        f"--fresh {asked.fresh} --calls {asked.calls}"
    )
    parts = [f"# {kind}, seed {seed}", f"`{again}`: the choices are the same, moments are not."]
    for law, words in tally.broken.items():
        parts += [f"## {law}: {len(words)}", *(f"- {what}" for what in words[:20])] if words else []
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    main()
