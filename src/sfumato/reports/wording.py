"""The words of a promise, by what is compared and by what one unit is.

Only where the data are compared with and without somebody is anything promised about being among
them. Where one is replaced, the promise is about what stands in one place; where it is a label,
about that label alone: inputs, and who takes part, are not hidden at all.

A pair of texts goes around the number that stands between them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sfumato.core.neighbours import Neighbours

__all__ = ["LABEL", "Words", "words_for"]

LABEL = "label"
_OWN = {"record": "your record", "person": "everything of yours", LABEL: "your label"}


@dataclass(frozen=True)
class Words:
    """How a promise is put.

    Attributes:
        own: what is protected, to its owner.
        subject: what of, behind "any one" and the unit.
        promised: heading of what is promised.
        rebuilt: heading of what can be guessed.
        coin: what a coin decides, around ``own``.
        knows: what an attacker knows.
        found: how many are found, around the share.
        at_random: how many are found by guessing.
        general: what may be learned of everybody.
        several: what is said before the guarantees of several units together.
        many: who has still less.
        not_hidden: what else is not promised.
        accused: of the picture, the axis along.
        missed: of the picture, the axis up.
        alt: of the picture, in a sentence.
        priors: chances of guessing without the release.
    """

    own: str
    subject: str
    promised: str
    rebuilt: str
    coin: tuple[str, str]
    knows: str
    found: tuple[str, str]
    at_random: str
    general: str
    several: str
    many: str
    not_hidden: Sequence[str]
    accused: str
    missed: str
    alt: str
    priors: tuple[float, ...] = (0.1, 0.01, 0.001, 1e-6)


def words_for(unit: str, relation: Neighbours) -> Words:
    """For one unit under one relation."""
    if unit == LABEL:
        return _of_labels(relation)
    own = _OWN.get(unit, f"everything of one {unit}")
    return _of_members(own) if relation is Neighbours.ADD_REMOVE else _of_places(own, relation)


def _of_members(own: str) -> Words:
    """With somebody, and without."""
    return Words(
        own=own,
        subject=" in the data",
        promised="what it promises to somebody in the data",
        rebuilt=f"could {own} be reconstructed?",
        coin=("A coin decides whether the data contain ", ""),
        knows="all other data",
        found=(
            "If a coin decided for each whether they are in the data, then whoever looks for those "
            "in the data, and wrongly accuses one in a hundred of those who are not, finds at most "
            , " of those who are, whatever else they know.",
        ),
        at_random="Accusing at random finds one in a hundred.",
        general="What is true of people in general may be learned from the release, and used to "
        "guess about you. That is so whether you are in the data or not.",
        several="Several of them together are protected less: ",
        many="a family or the patients of one hospital still less.",
        not_hidden=(),
        accused="share of others who are wrongly accused",
        missed="share of members missed, at least",
        alt="The least share of members that any attacker misses, at each share of others who are "
        "wrongly accused",
    )  # fmt: skip


def _of_places(own: str, relation: Neighbours) -> Words:
    """With what is somebody's, and with something else, or a blank, in its place."""
    blank = relation is Neighbours.ZERO_OUT
    other = "a blank" if blank else "something else"
    shown = (
        "How many places there are in the data is not hidden: a blank is compared, not a gap."
        if blank
        else "What stands in your place is protected. That there is such a place, and how many "
        "there are, is not hidden: nothing is promised about taking part or not."
    )
    return Words(
        own=own,
        subject=" in the data",
        promised="what it promises to somebody in the data",
        rebuilt=f"could {own} be reconstructed?",
        coin=("A coin decides whether the data contain ", f", or {other} in its place"),
        knows="all other data",
        found=(
            f"If a coin decided for each whether the data contain what is theirs, or {other} in "
            "its place, then whoever looks for those whose own was used, and wrongly accuses one "
            "in a hundred of those whose own was not, finds at most ",
            " of those whose own was used, whatever else they know.",
        ),
        at_random="Accusing at random finds one in a hundred.",
        general="What is true of people in general may be learned from the release, and used to "
        f"guess about you. That is so whether what is yours was used, or {other} in its place.",
        several="Several of them together are protected less: ",
        many="a family or the patients of one hospital still less.",
        not_hidden=(shown,),
        accused="share of those replaced, wrongly accused",
        missed="share of those kept, missed, at least",
        alt="The least share of those whose own was used that any attacker misses, at each share "
        "of those with something else in its place who are wrongly accused",
    )


def _of_labels(relation: Neighbours) -> Words:
    """With somebody's label, and with another, a blank or none in its place."""
    other = {Neighbours.REPLACE_ONE: "another", Neighbours.ZERO_OUT: "a blank"}.get(
        relation, "none"
    )
    return Words(
        own=_OWN[LABEL],
        subject="",
        promised="what it promises about your label",
        rebuilt="could your label be guessed?",
        coin=("A coin decides whether what is used is ", f", or {other} in its place"),
        knows="all inputs, yours among them, and all other labels",
        found=(
            f"If a coin decided for each label whether it is used, or {other} in its place, then "
            "whoever looks for labels that were used, and wrongly names one in a hundred of those "
            "that were not, finds at most ",
            " of those that were, whatever else they know.",
        ),
        at_random="Naming at random finds one in a hundred.",
        general="What is true in general, such as which inputs have which labels, may be learned "
        "from the release, and used to guess your label from your input. That is so whether your "
        f"label was used, or {other} in its place.",
        several="Several labels together are protected less: ",
        many="all those of a family or of one hospital still less.",
        not_hidden=(
            "Nothing is promised about inputs: all that was used of you besides your label may be "
            "learned from the release.",
            "Nothing is promised about taking part: whether an input of yours was used at all, "
            "with whatever label, is not hidden.",
        ),
        accused="share of labels not used, wrongly named",
        missed="share of labels used, missed, at least",
        alt="The least share of the labels used that any attacker misses, at each share of labels "
        "not used that are wrongly named",
        priors=(0.5, 0.1, 0.01, 0.001),
    )
