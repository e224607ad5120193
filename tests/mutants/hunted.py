"""Does the neighbours' fuzzer notice? ``python -m tests.mutants.hunted --minutes 5``.

``hunted.toml`` lists mutants that break a law of neighbours: a bound is dropped, an equality is
loosened, an error is made to depend on a row. For each of them the fuzzer looks, in the kinds of
cases that reach its file, until it finds something or its minutes are over. ``--results`` keeps
what was found, and a later call goes on from there.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Any

from tests.mutants.making import Mutant, code_of
from tests.mutants.rooms import SOURCE
from tests.mutants.running import module_of, serve

__all__ = ["hunted", "kinds_of", "main"]

LIST = Path(__file__).with_name("hunted.toml")
_FIELDS = ("file", "function", "operator", "mark", "change")
_KINDS = {
    "queries/lines": "lines",
    "queries/": "tables,postgres,lines",
    "data/delimited": "lines",
    "data/values": "declared",
    "core/odd_values": "declared,objects",
    "learning/": "loops",
    "federated/": "federations",
}


def hunted() -> list[tuple[Mutant, str]]:
    """The mutants, each with what it breaks."""
    lines = tomllib.loads(LIST.read_text("utf-8"))["mutants"]
    return [(Mutant(**{name: line[name] for name in _FIELDS}), line["breaks"]) for line in lines]


def kinds_of(file: str) -> str:
    """The kinds of cases that reach a file, with commas."""
    return next(kinds for start, kinds in _KINDS.items() if file.startswith(start))


def hunt(mutant: Mutant, minutes: float) -> dict[str, Any]:
    """What the fuzzer finds of a mutant: a law, and after how many minutes; or nothing."""
    path = SOURCE / mutant.file
    code = code_of(mutant, path.read_text("utf-8"), path)
    with tempfile.TemporaryDirectory() as folder:
        command = [
            sys.executable, "-W", "ignore", "-m", "tests.neighbours.fuzz", "--stop-at", "1",
            "--minutes", str(minutes), "--cases", "25", "--seed", "1", "--findings", folder,
            "--kinds", kinds_of(mutant.file),
        ]  # fmt: skip
        _, text, taken = serve(module_of(mutant.file), code, command, 60 * minutes + 300)
    if not taken:
        raise LookupError(f"the fuzzer never imports {mutant.file}")
    found = re.search(r"^after ([\d.]+) minutes .*?, (\w+), .*\n((?:  .*\n?)*)", text, re.MULTILINE)
    if found is None:
        return {"found": False, "minutes": minutes, "law": "", "said": text[-300:]}
    after, kind, laws = found.groups()
    return {"found": True, "minutes": float(after), "law": f"{kind}: {laws.strip()[:300]}"}


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=5.0, help="for one mutant")
    parser.add_argument("--only", default="", help="marks, or parts of a file's name, with commas")
    parser.add_argument("--results", type=Path, default=Path("hunted.jsonl"))
    asked = parser.parse_args()
    known = {}
    if asked.results.exists():
        lines = map(json.loads, asked.results.read_text("utf-8").splitlines())
        known = {line["mark"]: line for line in lines}
    only = asked.only.split(",")
    for mutant, breaks in hunted():
        if not any(o == mutant.mark or o in mutant.file for o in only):
            continue
        if known.get(mutant.mark, {}).get("found"):
            continue
        line = vars(mutant) | {"breaks": breaks} | hunt(mutant, asked.minutes)
        known[mutant.mark] = line
        with asked.results.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line, ensure_ascii=False) + "\n")
        said = f"after {line['minutes']} minutes: {line['law']}" if line["found"] else "not found"
        print(f"{mutant.mark} {mutant.file}: {mutant.change}: {said}", flush=True)
    marks = [mutant.mark for mutant, _ in hunted()]
    found = sum(bool(known.get(mark, {}).get("found")) for mark in marks)
    print(f"{found} of {len(marks)} are found, {len({*marks} - {*known})} not tried")


if __name__ == "__main__":
    main()
