"""Do the tests notice? ``python -m tests.mutants.run --room ledger --minutes 20``.

Every listed mutant is run against the tests of its file and is killed, alive, or excused: then the
list says in a sentence why it breaks no law. ``--results`` keeps what was found, and a later call
goes on from there; mutants that lived are tried again, since they are what one works on. Remove
the file to begin anew. The status is 1 if any is alive.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from tests.mutants.listed import Listed, listed, missing
from tests.mutants.operators import OPERATORS
from tests.mutants.rooms import ROOMS
from tests.mutants.running import LIMIT, run

__all__ = ["main", "run_all", "table"]

Results = dict[str, dict[str, Any]]


def read(path: Path) -> Results:
    """What earlier calls found: the last verdict of each mutant, by its mark."""
    lines = path.read_text("utf-8").splitlines() if path.exists() else []
    return {found["mark"]: found for found in map(json.loads, lines)}


def run_all(
    entries: Iterable[Listed],
    path: Path,
    *,
    minutes: float = float("inf"),
    workers: int = 1,
    limit: float = LIMIT,
    say: Callable[[str], None] = lambda text: None,
) -> Results:
    """Runs what has no verdict yet, or lived, and writes each verdict as it comes.

    Returns:
        The last verdict of each of ``entries`` that has one.
    """
    entries = list(entries)
    wrong = missing(entries)
    if wrong:
        raise LookupError("\n".join(wrong))
    known = read(path)
    until = time.monotonic() + 60 * minutes
    kept = {e.mutant.mark: known[e.mutant.mark] for e in entries if e.mutant.mark in known}
    left = [e for e in entries if kept.get(e.mutant.mark, {}).get("verdict") != "killed"]

    def one(entry: Listed) -> dict[str, Any] | None:
        mutant = entry.mutant
        if entry.excuse:
            found = {"verdict": "excused", "by": entry.excuse, "seconds": 0.0}
        elif time.monotonic() > until:
            return None
        else:
            found = vars(run(mutant, limit))
        return {"mark": mutant.mark, "room": entry.room} | vars(mutant) | found

    with ThreadPoolExecutor(workers) as pool, path.open("a", encoding="utf-8") as file:
        for ended in as_completed([pool.submit(one, entry) for entry in left]):
            found = ended.result()
            if found is None:
                continue
            file.write(json.dumps(found, ensure_ascii=False) + "\n")
            file.flush()
            kept[found["mark"]] = found
            say(
                f"{found['verdict']:8} {found['mark']} {found['file']} {found['function']}: "
                f"{found['operator']}: {found['change']}  [{found['by']}, {found['seconds']} s]"
            )
    return kept


def table(entries: Iterable[Listed], results: Results) -> str:
    """How many mutants of each room are killed, excused, alive, and not yet run."""
    counts: dict[str, Counter[str]] = {}
    for entry in entries:
        verdict = results.get(entry.mutant.mark, {}).get("verdict", "not run")
        verdict = "excused" if entry.excuse and verdict != "killed" else verdict
        counts.setdefault(entry.room, Counter())[verdict] += 1
    columns = ["killed", "excused", "alive", "error", "not run"]
    lines = [" ".join([f"{'room':12}", *(f"{name:>8}" for name in (*columns, "all"))])]
    for room, found in [*counts.items(), ("all", sum(counts.values(), Counter()))]:
        numbers = [*(found[name] for name in columns), found.total()]
        lines.append(" ".join([f"{room:12}", *(f"{n:8}" for n in numbers)]))
    return "\n".join(lines)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--room", choices=list(ROOMS), action="append")
    parser.add_argument("--operator", choices=list(OPERATORS), action="append")
    parser.add_argument("--only", help="marks, or parts of a file's name, with commas")
    parser.add_argument("--minutes", type=float, default=float("inf"))
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--limit", type=float, default=LIMIT, help="seconds for one mutant")
    parser.add_argument("--results", type=Path, default=Path("mutants.jsonl"))
    parser.add_argument("--table", action="store_true", help="runs nothing")
    asked = parser.parse_args()
    entries = [e for e in listed(asked.room or ROOMS) if _is_asked(e, asked)]
    if not asked.table:
        run_all(
            entries, asked.results, minutes=asked.minutes, workers=asked.workers,
            limit=asked.limit, say=lambda text: print(text, flush=True),
        )  # fmt: skip
    results = read(asked.results)
    print(table(entries, results))
    ran = [results.get(e.mutant.mark, {}).get("verdict") for e in entries if not e.excuse]
    sys.exit("alive" in ran or "error" in ran)


def _is_asked(entry: Listed, asked: argparse.Namespace) -> bool:
    if asked.operator and entry.mutant.operator not in asked.operator:
        return False
    only = asked.only.split(",") if asked.only else []
    return not only or any(o == entry.mutant.mark or o in entry.mutant.file for o in only)


if __name__ == "__main__":
    main()
