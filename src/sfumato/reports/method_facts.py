"""How a release was made: the rows of a card's table, from the record alone."""

from __future__ import annotations

import shlex

from sfumato.reports.documents import Block, Code, Table
from sfumato.reports.erm_facts import erm_rows, is_erm
from sfumato.reports.facts import Sources, number_text, pointer
from sfumato.reports.federated_facts import federated_rows, is_federated, like_it
from sfumato.reports.label_facts import is_label_dp, label_rows
from sfumato.reports.pate_facts import is_pate, pate_extras, pate_rows, student_rows
from sfumato.reports.promises import RECORD, protects_labels_alone, recomputed
from sfumato.reports.rows import Rows, in_words

__all__ = ["method", "reproduction", "software"]

_PLAN, _RECIPE, _FACTS = (
    f"{RECORD}#/parameters/plan", f"{RECORD}#/parameters/recipe", f"{RECORD}#/facts",
)  # fmt: skip
_METHOD, _UNIT = f"{RECORD}#/method", f"{RECORD}#/guarantee/unit"
_NEIGHBOURS_AT = f"{RECORD}#/guarantee/neighbours"
_TRAINING = ("dp-sgd", "pate")
_LOTS = {
    "poisson": "Poisson: every {one} by a coin of its own, anew for each step",
    "fixed-size": "of fixed size, drawn anew for each step",
    "shuffled": "shuffled once an epoch, without gain by sampling",
    "streamed": "in the order of the table, without gain by sampling",
    "cyclic-poisson": "Poisson in turns: each {one} belongs to one part of the data, by a coin",
}
_OBSERVERS = {
    "poisson": "sees the model after every step, and not which {many} a step used",
    "fixed-size": "sees the model after every step, and not which {many} a step used",
    "shuffled": "sees the model after every step, and the order of the {many}",
    "streamed": "sees the model after every step, and the order of the {many}",
    "cyclic-poisson": "sees the model after every step, and not which {many} a step used",
}
_CORRELATIONS = {
    "tree": "correlated over steps, by tree aggregation",
    "banded": "correlated over steps, by a banded matrix",
    "buffered": "correlated over steps, by a buffered Toeplitz matrix",
}
_NOISE = {
    "coins": "the operating system's randomness",
    "generator": "a keyed generator",
    "chacha20": "a cryptographic generator on the GPU, keyed by the operating system",
}
_NEIGHBOURS = {
    "add-remove": "add-remove: the data with it, and without",
    "replace-one": "replace-one: the data with it, and with another in its place",
    "zero-out": "zero-out: the data with it, and with a blank in its place",
}
_ALWAYS = {_METHOD, _UNIT, _NEIGHBOURS_AT}
"""What every record says; those of training say the rest of what is in the table, but for this:"""
_SOMETIMES = {
    f"{_PLAN}/lots/max_size", f"{_PLAN}/clipping/clip",
    f"{_RECIPE}/canaries/count", f"{RECORD}#/guarantee/note", f"{_FACTS}/data/rows",
}  # fmt: skip


def method(sources: Sources) -> list[Block]:
    """One row for everything that a reader may ask; what this method does not have is left out."""
    sources.raw(RECORD)  # says what is missing where there is no record at all
    training = sources.has(_METHOD) and sources.raw(_METHOD) in _TRAINING
    rows = Rows(sources, lambda at: at in _ALWAYS or (training and at not in _SOMETIMES))
    rows.add("method", _METHOD)
    rows.add("data", f"{_FACTS}/data/name")
    labels = protects_labels_alone(sources)
    taken = "rows taken, the first" if labels else "records taken, the first"
    rows.add(taken, f"{_FACTS}/data/rows")
    rows.add(
        "what it protects" if labels else "whom it protects", _UNIT, lambda unit: f"one {unit}"
    )
    if is_federated(sources):
        rows.add("what is compared", _NEIGHBOURS_AT, in_words(_NEIGHBOURS))
        federated_rows(rows)
        _accounted(rows)
    elif is_pate(sources):
        rows.add("what is compared", _NEIGHBOURS_AT, in_words(_NEIGHBOURS))
        pate_rows(rows)
        _accounted(rows)
        student_rows(rows)
    else:
        _dp_sgd_rows(rows)
        if is_label_dp(sources):
            label_rows(rows)
        _accounted(rows)
        (erm_rows if is_erm(sources) else _network_rows)(rows)
    rows.add("hyper-parameters", f"{_FACTS}/tuning")
    rows.add("test set", f"{_FACTS}/test_set")
    if not is_pate(sources) and not is_federated(sources):
        rows.add("canaries offered for an audit", f"{_RECIPE}/canaries/count")
        rows.add("steps lost, and charged", f"{_FACTS}/steps_lost")
    return rows.blocks()


def _dp_sgd_rows(rows: Rows) -> None:
    """What gradient descent with noise has; other methods have some of it."""
    sources, add = rows.sources, rows.add
    one, many = _sampled(sources)
    lots, observers = (
        {kind: text.format(one=one, many=many) for kind, text in words.items()}
        for words in (_LOTS, _OBSERVERS)
    )
    if sources.has(f"{_PLAN}/group_unit"):
        add(f"{many} of each, at most", f"{_PLAN}/records_per_unit")
    elif one != "record" and _more_than_one(sources, f"{_RECIPE}/rows_per_owner"):
        add("rows of each in a lot, at most", f"{_RECIPE}/rows_per_owner")
    add("what is compared", _NEIGHBOURS_AT, in_words(_NEIGHBOURS))
    add("the observer", f"{_PLAN}/lots/kind", in_words(observers))
    add("size of the data, as declared", f"{_FACTS}/data/public_size")
    add("lots", f"{_PLAN}/lots/kind", in_words(lots))
    add(f"{many} in a lot, expected", f"{_PLAN}/lots/size")
    add(f"{many} in a lot, at most", f"{_PLAN}/lots/max_size")
    add("steps", f"{_PLAN}/steps")
    add("noise multiplier", f"{_PLAN}/noise_multiplier", number_text)
    rows.add_if_there("noise", f"{_PLAN}/correlation/kind", in_words(_CORRELATIONS))
    rows.add_if_there("bands of the noise", f"{_PLAN}/correlation/bands")
    add("clipping", f"{_PLAN}/clipping/kind")
    add("clip norm", f"{_PLAN}/clipping/clip", number_text)
    add("noise from", f"{_FACTS}/noise_source", in_words(_NOISE))


def _network_rows(rows: Rows) -> None:
    rows.add("network", f"{_RECIPE}/model")
    rows.add("weights of the network", f"{_FACTS}/parameters")
    rows.add("public data and features", f"{_FACTS}/public_features")


def _accounted(rows: Rows) -> None:
    """By whom, and what comes out if it is done again."""
    rows.add("accountant", f"{RECORD}#/guarantee/accountant")
    rows.add("noted beside the guarantee", f"{RECORD}#/guarantee/note")
    again = recomputed(rows.sources)
    if again is not None:
        rows.put("epsilon, computed again from the event", again)


def software(sources: Sources) -> list[Block]:
    """Versions."""
    place = f"{RECORD}#/software"
    with sources.reading(place):
        names = sorted(dict(sources.raw(place)))
    rows = [(name, sources.fact(f"{place}/{pointer(name)}")) for name in names]
    return [Table(("software", "version"), rows)]


def reproduction(sources: Sources) -> list[Block]:
    """A command that trains by the same recipe; its noise is drawn anew, so its weights differ."""
    if is_federated(sources):
        return like_it(sources)
    sources.fact(_RECIPE)
    name, data = sources.fact(_METHOD).value, sources.fact(f"{_FACTS}/data/name").value
    command = shlex.join(
        ["sfumato", "train", str(name), "--like", RECORD, "--data", str(data)]
        + (pate_extras(sources) if is_pate(sources) else [])
        + ["--out", "again"]
    )
    return [Code(sources.computed(command, _RECIPE))]


def _sampled(sources: Sources) -> tuple[str, str]:
    """What is drawn into lots, one of them and several: the plan's unit."""
    place = f"{_PLAN}/unit"
    one = str(sources.raw(place)) if sources.has(place) else "record"
    return one, _plural(one)


def _plural(word: str) -> str:
    """Of a unit's name.

    >>> [_plural(word) for word in ("record", "person", "family", "branch", "day")]
    ['records', 'people', 'families', 'branches', 'days']
    """
    if word == "person":
        return "people"
    if word.endswith("y") and word[-2:-1] not in "aeiou":
        return f"{word[:-1]}ies"
    return f"{word}es" if word.endswith(("s", "x", "ch", "sh")) else f"{word}s"


def _more_than_one(sources: Sources, place: str) -> bool:
    value = sources.raw(place) if sources.has(place) else 1
    return isinstance(value, int) and value > 1
