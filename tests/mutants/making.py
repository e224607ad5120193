"""From a module's source to all its mutants, each known by a mark that outlives unrelated edits."""

from __future__ import annotations

import ast
import hashlib
import marshal
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.mutants.operators import OPERATORS
from tests.mutants.syntax import Place, places, put, short

__all__ = ["Mutant", "code_of", "mutants_of"]


@dataclass(frozen=True)
class Mutant:
    """One change of one file.

    Attributes:
        file: below ``src/sfumato``.
        function: where in it.
        operator: what kind of mistake.
        mark: a fingerprint of the statement, of the change and of its number among equal ones, not
            of the line's number nor of anything around it.
        change: for people: what stands there, and what stands there instead.
    """

    file: str
    function: str
    operator: str
    mark: str
    change: str


def mutants_of(file: str, source: str) -> list[Mutant]:
    """All mutants of a module, in the order of its lines."""
    return [mutant for mutant, _, _ in _made(file, ast.parse(source))]


def code_of(mutant: Mutant, source: str, path: Path) -> bytes:
    """The mutated module, compiled, as it is handed to the process that runs the tests.

    Raises:
        LookupError: if the source has no such place any more.
    """
    tree = ast.parse(source)
    for found, place, new in _made(mutant.file, tree):
        if (found.operator, found.mark) == (mutant.operator, mutant.mark):
            if isinstance(new, list):
                block = getattr(place.parent, place.field)
                block[place.index : place.index + len(new)] = new
            else:
                put(place, new)
            return marshal.dumps(compile(tree, str(path), "exec", dont_inherit=True))
    raise LookupError(f"{mutant.file} has no place for {mutant.mark} ({mutant.change})")


def _made(file: str, tree: ast.Module) -> Iterator[tuple[Mutant, Place, ast.AST | list[ast.stmt]]]:
    seen: Counter[str] = Counter()
    # All places first: what an operator returns shares nodes with the tree.
    for place in list(places(tree)):
        for operator, changes in OPERATORS.items():
            for new in changes(place):
                swapped = isinstance(new, list)
                now = "; ".join(map(_dump, new)) if swapped else ast.dump(new)
                told = "|".join((file, place.function, operator, place.line(), _was(place), now))
                seen[told] += 1
                mark = hashlib.sha256(f"{told}|{seen[told]}".encode()).hexdigest()[:10]
                was = [new[1], new[0]] if swapped else place.node
                change = f"{short(was)} -> {short(new)}"
                yield Mutant(file, place.function, operator, mark, change), place, new


def _was(place: Place) -> str:
    return "" if place.node is place.statement else ast.dump(place.node)


def _dump(statement: ast.stmt) -> str:
    """Of two statements that are swapped, the first lines."""
    return ast.dump(statement)[:400]
