"""What a card says of a model that several trained together, from the record alone.

A guarantee of collaborative training is one against an observer: the card names all of them.
"""

from __future__ import annotations

import math

from sfumato.reports.documents import Block, Code, Paragraph
from sfumato.reports.facts import Sources, number_text
from sfumato.reports.promises import RECORD
from sfumato.reports.rows import Rows, in_words

__all__ = ["attacked_together", "federated_rows", "is_federated", "like_it"]

_METHOD, _PARAMETERS, _FACTS = f"{RECORD}#/method", f"{RECORD}#/parameters", f"{RECORD}#/facts"
_WORKS = {
    "updates": "the change that local training made, clipped",
    "gradients": "the sum of clipped gradients of records drawn by its owner",
    "selected": "a few noisy numbers of a gradient",
}
_NOISES = {
    "none": "none",
    "central": "the server, to the sum",
    "local": "each participant, in full",
    "shared": "each participant, a share, in whole numbers",
}
_SUMS = {
    "plain": "by the server, which sees every contribution",
    "masked": "under masks: the server sees the sum",
    "hidden": "of ciphertexts: participants hold the key",
}


def is_federated(sources: Sources) -> bool:
    """Whether it is such a run."""
    return sources.has(_METHOD) and sources.raw(_METHOD) == "federated"


def federated_rows(rows: Rows) -> None:
    """What a reader may ask of it; one row for each observer."""
    add = rows.add
    add("the observer of the guarantee above", f"{_FACTS}/observer")
    place = f"{_FACTS}/views"
    if rows.sources.has(place):
        with rows.sources.reading(place):
            observers = [str(view["observer"]) for view in rows.sources.raw(place)]
        for number, observer in enumerate(observers):
            add(f"epsilon against: {observer}", f"{place}/{number}/epsilon", _epsilon)
            rows.add_if_there("given that", f"{place}/{number}/given")
    add("participants, as declared", f"{_PARAMETERS}/participants")
    add("chance to be asked in a round", f"{_PARAMETERS}/participation", number_text)
    add("rounds sent", f"{_FACTS}/rounds_sent")
    add("of them used", f"{_FACTS}/rounds_used")
    add("a participant contributes", f"{_PARAMETERS}/work/kind", in_words(_WORKS))
    rows.add_if_there("clip norm", f"{_PARAMETERS}/work/clip", number_text)
    add("noise is added by", f"{_PARAMETERS}/noise/kind", in_words(_NOISES))
    rows.add_if_there("noise multiplier", f"{_PARAMETERS}/noise/multiplier", number_text)
    rows.add_if_there("participants whose noise counts, at least", f"{_PARAMETERS}/noise/least")
    add("sums are made", f"{_PARAMETERS}/sums/kind", in_words(_SUMS))
    rows.add_if_there("who must stay for a sum", f"{_PARAMETERS}/sums/threshold")
    add("network", f"{_PARAMETERS}/model")


def _epsilon(value: object) -> str:
    found = math.inf if value in (None, "inf") else float(str(value))
    return "no guarantee" if math.isinf(found) else number_text(found)


def like_it(sources: Sources) -> list[Block]:
    """Commands that make the same federation again, on any data of its shape."""
    place = f"{_PARAMETERS}/model"
    sources.fact(place)
    made = (
        'python -c "import json, sfumato; sfumato.Federation.from_dict('
        f"json.load(open('{RECORD}'))['parameters']).save('federation.json')\"\n"
        "sfumato federate simulate --federation federation.json --data NAME --out again"
    )
    return [Code(sources.computed(made, place))]


def attacked_together() -> list[Block]:
    """Where attacks on what participants send are found: they need the protocol, not the run."""
    words = (
        "What a server, a participant or an outsider could make of such a run is tried inside the "
        "protocol, by defence: sfumato federate attack."
    )
    return [Paragraph((words,))]
