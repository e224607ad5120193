"""Looks for neighbours that can be told apart: ``python -m tests.neighbours.fuzz --minutes 20``.

Kinds of cases take turns, each in pieces with a seed of its own. What breaks a law is made as
small as it goes and written to ``--findings`` as a script that shows it. With ``--script FILE``
such a script is run again; with ``--list`` the kinds are listed.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import random
import runpy
import sys
import time
import warnings
from collections.abc import Sequence
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import seed as seeded
from tests.neighbours.harness import Case, Finding, UnusableError, script
from tests.neighbours.kinds import KINDS, cases_of

__all__ = ["hunt", "main"]

_ALL = (HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much)


class BrokenError(AssertionError):
    """A case that breaks a law."""


def hunt(
    kind: str, seed: int, cases: int, shrink: bool = True, known: Sequence[Finding] = ()
) -> tuple[int, int, Case | None]:
    """Some cases of a kind, from a seed; what is like a known finding is passed over.

    Returns:
        How many were tried, how many could not be made, and the smallest that breaks a law.
    """
    tried, unusable = 0, 0
    worst: list[Case] = []

    phases = (Phase.generate, Phase.shrink) if shrink else (Phase.generate,)

    @seeded(seed)
    @settings(
        max_examples=cases, database=None, deadline=None, suppress_health_check=_ALL,
        phases=phases, print_blob=False, report_multiple_bugs=False, derandomize=False,
    )  # fmt: skip
    @given(cases_of(kind))
    def look(case: Case) -> None:
        nonlocal tried, unusable
        tried += 1
        try:
            broken = case.broken()
        except UnusableError:
            unusable += 1
            return
        this = Finding.of(case, broken)
        if broken and not any(finding.covers(this) for finding in known):
            worst.append(case)
            raise BrokenError

    try:
        look()
    except BrokenError:
        return tried, unusable, worst[-1]
    return tried, unusable, None


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--kinds", default=",".join(k for k in KINDS if "GPU" not in k))
    parser.add_argument("--cases", type=int, default=40, help="of a piece")
    parser.add_argument("--seed", type=int, help="of the first piece; a random one without")
    parser.add_argument("--findings", type=Path, default=Path("findings"))
    parser.add_argument("--log", type=Path, help="adds a line of JSON for what was tried")
    parser.add_argument("--stop-at", type=int, default=0, help="ends after so many findings")
    parser.add_argument("--script", type=Path, help="runs a finding again")
    parser.add_argument("--list", action="store_true", help="the kinds")
    given_ = parser.parse_args()
    warnings.simplefilter("ignore")
    if given_.list:
        print("\n".join(KINDS))
        return
    if given_.script:
        broken = runpy.run_path(str(given_.script))["case"].broken()
        print("\n".join(broken) or "no law is broken")
        sys.exit(bool(broken))
    sys.exit(bool(_search(given_)))


def _search(asked: argparse.Namespace) -> int:
    began, found = time.monotonic(), 0
    seed = random.SystemRandom().randrange(2**32) if asked.seed is None else asked.seed
    tried: collections.Counter[str] = collections.Counter()
    unusable: collections.Counter[str] = collections.Counter()
    kinds = asked.kinds.split(",")
    known: dict[str, list[Finding]] = {kind: [] for kind in kinds}
    while not _over(asked, began, found):
        for kind in kinds:
            some, useless, case = hunt(kind, seed, asked.cases, known=known[kind])
            tried[kind] += some
            unusable[kind] += useless
            if case is not None:
                found += 1
                minutes, worked = (time.monotonic() - began) / 60, _worked()
                broken = case.broken()
                known[kind].append(Finding.of(case, broken))
                name, text = script(case, broken)
                asked.findings.mkdir(parents=True, exist_ok=True)
                (asked.findings / name).write_text(text)
                where = f"{kind}, seed {seed}: {asked.findings / name}"
                print(f"after {minutes:.1f} minutes ({worked:.1f} of a core), {where}")
                print("\n".join(f"  {law[:400]}" for law in broken), flush=True)
            if _over(asked, began, found):
                break
        seed += 1
    minutes = (time.monotonic() - began) / 60
    line = {
        "minutes": round(minutes, 1), "of a core": round(_worked(), 1), "tried": dict(tried),
        "unusable": dict(unusable), "found": found, "last seed": seed,
    }  # fmt: skip
    print(json.dumps(line))
    if asked.log:
        with asked.log.open("a") as file:
            file.write(json.dumps(line) + "\n")
    return found


def _over(asked: argparse.Namespace, began: float, found: int) -> bool:
    enough = asked.stop_at and found >= asked.stop_at
    return bool(enough) or time.monotonic() - began >= 60 * asked.minutes


def _worked() -> float:
    """Minutes that this process and those it waited for have worked."""
    return sum(os.times()[:4]) / 60


if __name__ == "__main__":
    main()
