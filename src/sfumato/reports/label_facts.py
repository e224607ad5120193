"""What a card says of a run with private labels, from the record alone."""

from __future__ import annotations

from sfumato.reports.erm_facts import add_bounds, tells_numbers
from sfumato.reports.facts import Sources, number_text
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
_NETWORKS = {"none": "none: least squares alone"}


def is_label_dp(sources: Sources) -> bool:
    """Whether labels alone are private."""
    return sources.has(_METHOD) and sources.raw(_METHOD) == "label-dp"


def label_rows(rows: Rows) -> None:
    """What a reader may ask of private labels."""
    rows.add("inputs", f"{_FACTS}/inputs_are")
    if tells_numbers(rows.sources):
        add_bounds(rows)
        rows.add("each label is told once, as", f"{_FACTS}/bins/count", _bins_text)
        rows.add("a report is true with probability", f"{_FACTS}/bins/keep", number_text)
        rows.add("bins are the best for", f"{_FACTS}/prior")
        rows.add("of epsilon, for a histogram", f"{_RECIPE}/histogram_share", number_text)
    else:
        rows.add("each label is told once, as", f"{_RECIPE}/mechanism", in_words(_MECHANISMS))
    rows.add("labels of each stage", f"{_FACTS}/labels_of_each_stage")
    rows.add("labels lost, and told", f"{_FACTS}/labels_lost")
    rows.add("networks learn from", f"{_RECIPE}/targets", in_words(_TARGETS))
    rows.add("network", f"{_RECIPE}/network", in_words(_NETWORKS))


def _bins_text(count: int) -> str:
    return f"one of {count} intervals, by randomised response"
