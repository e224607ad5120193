"""The list of mutants that are run: drawn by a seed, kept in ``listed/``, one file a room.

A mutant is listed by the mark of its line, so that edits elsewhere do not touch it. One whose line
is gone is an error: ``python -m tests.mutants.listed --renew`` drops it and draws another. Those
that remain keep their place and their excuses.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import tomllib
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

from tests.mutants.making import Mutant, mutants_of
from tests.mutants.operators import OPERATORS
from tests.mutants.rooms import ROOMS, SOURCE, files_of

__all__ = ["Listed", "listed", "missing", "renew"]

LISTS = Path(__file__).with_name("listed")
_SEED = "sfumato"
_MOST_IN_A_FUNCTION = 3
_FIELDS = ("file", "function", "operator", "mark", "change")
_RENEW = "renew the list: python -m tests.mutants.listed --renew"


@dataclass(frozen=True)
class Listed:
    """A mutant of the list.

    Attributes:
        mutant: which.
        room: where its file lies.
        excuse: why it breaks no law, if it breaks none; empty for all others.
        fixed: asked for by name, not drawn.
    """

    mutant: Mutant
    room: str
    excuse: str = ""
    fixed: bool = False


def listed(rooms: Iterable[str] = ROOMS) -> list[Listed]:
    """The list, in the order of its files."""
    found: list[Listed] = []
    for room in rooms:
        path = LISTS / f"{room}.toml"
        data = tomllib.loads(path.read_text("utf-8")) if path.exists() else {"mutants": []}
        for line in data["mutants"]:
            fields = {name: line[name] for name in _FIELDS}
            excuse = data.get("excused", {}).get(line["mark"], "")
            found.append(Listed(Mutant(**fields), room, excuse, line.get("fixed", False)))
    return found


def missing(entries: Iterable[Listed]) -> list[str]:
    """What is wrong with the list: lines that are gone, and excuses for nobody."""
    marks: dict[str, set[tuple[str, str]]] = {}
    wrong: list[str] = []
    for entry in entries:
        mutant = entry.mutant
        if mutant.file not in marks:
            marks[mutant.file] = {(m.operator, m.mark) for m in _mutants(mutant.file)}
        if (mutant.operator, mutant.mark) not in marks[mutant.file]:
            where = f"{mutant.file}, {mutant.function or 'module'}"
            wrong.append(f"{mutant.mark} ({where}: {mutant.change}) cannot be applied: {_RENEW}")
    return wrong


def _mutants(file: str) -> list[Mutant]:
    path = SOURCE / file
    return mutants_of(file, path.read_text("utf-8")) if path.exists() else []


def renew(room: str, wished: Collection[str] = ()) -> list[Listed]:
    """The room's list: what still applies, what is wished for, and draws up to its number."""
    every = {m.mark: m for file in files_of(room) for m in _mutants(file)}
    kept = [e for e in listed([room]) if e.mutant.mark in every]
    kept = [Listed(every[e.mutant.mark], room, e.excuse, e.fixed) for e in kept]
    there = {e.mutant.mark for e in kept}
    kept += [Listed(every[mark], room, fixed=True) for mark in wished if mark in {*every} - there]
    _, wanted = ROOMS[room]
    drawn = [e.mutant for e in kept if not e.fixed]
    drawn += _draw([m for m in every.values() if m not in drawn], drawn, wanted - len(drawn))
    by_mark = {e.mutant.mark: e for e in kept}
    both = {m.mark: by_mark.get(m.mark, Listed(m, room)) for m in drawn} | by_mark
    return [both[mark] for mark in every if mark in both]


def _draw(every: list[Mutant], before: list[Mutant], number: int) -> list[Mutant]:
    """By turns of each operator, and in it of the file that has fewest so far."""
    queue = sorted(every, key=lambda m: hashlib.sha256(f"{_SEED}{m.mark}".encode()).digest())
    files, functions = (
        Counter(m.file for m in before), Counter((m.file, m.function) for m in before),
    )  # fmt: skip
    operators = Counter(m.operator for m in before)
    found: list[Mutant] = []
    while len(found) < number:
        free = [m for m in queue if functions[m.file, m.function] < _MOST_IN_A_FUNCTION]
        if not free:
            break
        order = list(OPERATORS)
        chosen = min(
            free,
            key=lambda m: (operators[m.operator], files[m.file], order.index(m.operator)),
        )
        queue.remove(chosen)
        found.append(chosen)
        operators[chosen.operator] += 1
        files[chosen.file] += 1
        functions[chosen.file, chosen.function] += 1
    return found


def written(entries: Iterable[Listed]) -> str:
    """The text of a room's list."""
    entries = list(entries)
    lines = [
        "# Made by python -m tests.mutants.listed --renew; excuses are by hand.",
        "mutants = [",
    ]
    for entry in entries:
        mutant = entry.mutant
        fields = [f"{name} = {_quoted(getattr(mutant, name))}" for name in _FIELDS]
        fields += ["fixed = true"] if entry.fixed else []
        lines.append(f"  {{ {', '.join(fields)} }},")
    lines += ["]", "", "[excused]"]
    lines += [f"{_quoted(e.mutant.mark)} = {_quoted(e.excuse)}" for e in entries if e.excuse]
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--renew", action="store_true", help="draws anew where lines are gone")
    parser.add_argument("--add", default="", help="marks that are listed, too, with commas")
    parser.add_argument("--all", metavar="FILE", help="every mutant of a file below src/sfumato")
    asked = parser.parse_args()
    if asked.all:
        for mutant in _mutants(asked.all):
            print(mutant.mark, mutant.operator, mutant.function, mutant.change, sep=" | ")
    if asked.renew or asked.add:
        for room in ROOMS:
            (LISTS / f"{room}.toml").write_text(written(renew(room, asked.add.split(","))), "utf-8")
    wrong = missing(listed())
    print("\n".join(wrong) or f"{len(listed())} mutants, all of which can be applied")


if __name__ == "__main__":
    main()
