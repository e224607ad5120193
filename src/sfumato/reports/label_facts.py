"""What a card says of a run with private labels, from the record alone."""

from __future__ import annotations

from sfumato.reports.facts import Sources
from sfumato.reports.promises import RECORD
from sfumato.reports.rows import Rows, in_words

__all__ = ["is_label_dp", "label_rows"]

_RECIPE, _FACTS = f"{RECORD}#/parameters/recipe", f"{RECORD}#/facts"
_METHOD = f"{RECORD}#/method"
_MECHANISMS = {
    "response": "randomised response, from the second stage on within what the last model expects",
    "alibi": "a vector with Laplace noise",
}
_TARGETS = {
    "hard": "reports as they are",
    "soft": "what reports say together with the model before",
    "debiased": "reports made unbiased",
}


def is_label_dp(sources: Sources) -> bool:
    """Whether labels alone are private."""
    return sources.has(_METHOD) and sources.raw(_METHOD) == "label-dp"


def label_rows(rows: Rows) -> None:
    """What a reader may ask of private labels."""
    rows.add("inputs", f"{_FACTS}/inputs_are")
    rows.add("each label is told once, as", f"{_RECIPE}/mechanism", in_words(_MECHANISMS))
    rows.add("labels of each stage", f"{_FACTS}/labels_of_each_stage")
    rows.add("labels lost, and told", f"{_FACTS}/labels_lost")
    rows.add("networks learn from", f"{_RECIPE}/targets", in_words(_TARGETS))
    rows.add("network", f"{_RECIPE}/network")
