"""How a release was made: the rows of a card's table, from the record alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sfumato.reports.documents import Block, Cell, Code, Table
from sfumato.reports.facts import Sources, number_text, plain_text
from sfumato.reports.promises import RECORD

__all__ = ["method", "reproduction", "software"]

_PLAN, _RECIPE, _FACTS = (
    f"{RECORD}#/parameters/plan", f"{RECORD}#/parameters/recipe", f"{RECORD}#/facts",
)  # fmt: skip
_LOTS = {
    "poisson": "Poisson: every record by a coin of its own, anew for each step",
    "fixed-size": "of fixed size, drawn anew for each step",
    "shuffled": "shuffled once an epoch, without gain by sampling",
}
_OBSERVERS = {
    "poisson": "sees the model after every step, and not which records a step used",
    "fixed-size": "sees the model after every step, and not which records a step used",
    "shuffled": "sees the model after every step, and the order of the records",
}
_NOISE = {"coins": "the operating system's randomness", "generator": "a keyed generator"}


def method(sources: Sources) -> list[Block]:
    """One row for everything that a reader may ask; what this method does not have is left out."""
    rows: list[tuple[Cell, ...]] = []

    def add(label: str, place: str, shown: Callable[[Any], str] | None = None) -> None:
        if sources.has(place):
            rows.append((label, sources.fact(place, shown)))

    add("method", f"{RECORD}#/method")
    add("data", f"{_FACTS}/data/name")
    add("whom it protects", f"{RECORD}#/guarantee/unit", lambda unit: f"one {unit}")
    add("neighbours", f"{RECORD}#/guarantee/neighbours")
    add("observer", f"{_PLAN}/lots/kind", _or_itself(_OBSERVERS))
    add("records, as declared", f"{_FACTS}/data/public_size")
    add("lots", f"{_PLAN}/lots/kind", _or_itself(_LOTS))
    add("records in a lot, expected", f"{_PLAN}/lots/size")
    add("steps", f"{_PLAN}/steps")
    add("noise multiplier", f"{_PLAN}/noise_multiplier", number_text)
    add("clipping", f"{_PLAN}/clipping/kind")
    add("clip norm", f"{_PLAN}/clipping/clip", number_text)
    add("noise from", f"{_FACTS}/noise_source", _or_itself(_NOISE))
    add("accountant", f"{RECORD}#/guarantee/accountant")
    add("network", f"{_RECIPE}/model")
    add("parameters", f"{_FACTS}/parameters")
    add("public data and features", f"{_FACTS}/public_features")
    add("hyper-parameters", f"{_FACTS}/tuning")
    add("test set", f"{_FACTS}/test_set")
    add("steps lost and charged", f"{_FACTS}/steps_lost")
    sources.raw(RECORD)  # says what is missing where there is no record at all
    return [Table(("", ""), rows)]


def software(sources: Sources) -> list[Block]:
    """Versions."""
    place = f"{RECORD}#/software"
    rows = [(name, sources.fact(f"{place}/{name}")) for name in sources.raw(place)]
    return [Table(("software", "version"), rows)]


def reproduction(sources: Sources) -> list[Block]:
    """A command that trains by the same recipe; its noise is drawn anew, so its weights differ."""
    name, data = sources.raw(f"{RECORD}#/method"), sources.raw(f"{_FACTS}/data/name")
    sources.raw(_RECIPE)
    command = f"sfumato train {name} --like record.json --data {data} --out again"
    return [Code(sources.computed(command, _RECIPE, plain_text))]


def _or_itself(words: dict[str, str]) -> Callable[[Any], str]:
    return lambda value: words.get(str(value), str(value))
