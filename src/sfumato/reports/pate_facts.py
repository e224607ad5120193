"""How a student of PATE was made: the rows of its card's table, from the record alone."""

from __future__ import annotations

from sfumato.core.guarantee import round_down
from sfumato.reports.documents import Block, Paragraph
from sfumato.reports.facts import NotOnRecord, Sources, delta_text, epsilon_text, number_text
from sfumato.reports.promises import RECORD
from sfumato.reports.rows import Rows, in_words

__all__ = ["is_pate", "pate_extras", "pate_rows", "published_cost", "student_rows"]

_PLAN, _RECIPE, _FACTS = (
    f"{RECORD}#/parameters/plan", f"{RECORD}#/parameters/recipe", f"{RECORD}#/facts",
)  # fmt: skip
_METHOD, _AGGREGATOR = f"{RECORD}#/method", f"{_PLAN}/aggregator"
_COST, _DISJOINT = f"{_FACTS}/data_dependent", f"{_FACTS}/parts_made_disjoint_by"
_AGGREGATORS = {
    "lnmax": "LNMax: the class with the most votes, Laplace noise added to each count",
    "gnmax": "GNMax: the class with the most votes, Gaussian noise added to each count",
    "confident": "Confident-GNMax: as GNMax, if a noisy check finds that enough teachers agree",
    "interactive": (
        "interactive GNMax: as GNMax, if a noisy check finds that teachers differ from the student"
    ),
}
_SEES = "sees every answer and the student, its weights included; no teacher, and no count of votes"
_OBSERVERS = {
    "lnmax": _SEES,
    "gnmax": _SEES,
    "confident": f"{_SEES}; also which questions were not answered",
    "interactive": f"{_SEES}; also where the student's own answer was confirmed",
}
_TEACHERS = {
    "linear": "linear: softmax regression on fixed wavelets of images, or on a table's columns",
    "cnn-small": "cnn-small: a small convolutional network each",
    "pate-cnn": "pate-cnn: the published convolutional network each",
    "own": "own: trained elsewhere, their votes brought along",
}
_STUDENTS = {
    "fixmatch": "fixmatch: labels the other public inputs by itself, where it is sure",
    "gan": "gan: the discriminator of a semi-supervised GAN",
    "supervised": "supervised: learns from the answered inputs alone",
}
_RULES = {
    "random": "at random",
    "spread": "far from each other, at random",
    "centres": "each the farthest from those chosen",
}


def is_pate(sources: Sources) -> bool:
    """Whether a record is of teachers and a student."""
    return sources.has(_METHOD) and sources.raw(_METHOD) == "pate"


def pate_rows(rows: Rows) -> None:
    """What a reader may ask of the teachers and their answers."""
    add, sometimes = rows.add, rows.add_if_there
    add("the observer", f"{_AGGREGATOR}/kind", in_words(_OBSERVERS))
    sometimes("size of the data, as declared", f"{_FACTS}/data/public_size")
    add("teachers", f"{_FACTS}/teachers")
    add("what they are", f"{_RECIPE}/kind", in_words(_TEACHERS))
    add("who kept the teachers' parts disjoint", _DISJOINT)
    add("aggregator", f"{_AGGREGATOR}/kind", in_words(_AGGREGATORS))
    sometimes("noise of answers, standard deviation", f"{_AGGREGATOR}/sigma", number_text)
    sometimes("noise of answers, inverse scale", f"{_AGGREGATOR}/gamma", number_text)
    sometimes("noise of checks, standard deviation", f"{_AGGREGATOR}/sigma_check", number_text)
    sometimes("votes to pass a check", f"{_AGGREGATOR}/threshold", number_text)
    add("questions planned, at most", f"{_PLAN}/questions")
    add("answers planned, at most", f"{_PLAN}/answers")
    add("questions asked", f"{_FACTS}/questions")
    add("answers given by the teachers", f"{_FACTS}/answers")
    if rows.sources.has(f"{_AGGREGATOR}/sure"):
        add("answers of the student that were confirmed", f"{_FACTS}/confirmed")
    add("questions cut off, and counted as answered", f"{_FACTS}/lost")
    add("stopped early by a budget", f"{_FACTS}/stopped_by_the_ledger")


def student_rows(rows: Rows) -> None:
    """What a reader may ask of the student and of what is public."""
    add = rows.add
    add("public inputs without labels", f"{_FACTS}/public_inputs")
    add("where they come from", f"{_FACTS}/public_inputs_are")
    add("questions among them, chosen", f"{_RECIPE}/rule", in_words(_RULES))
    add("student", f"{_RECIPE}/student/kind", in_words(_STUDENTS))
    add("steps of its training", f"{_RECIPE}/student/steps")


def pate_extras(sources: Sources) -> list[str]:
    """Options for what a record does not hold: files to be put in their place."""
    extras: list[str] = []
    given = f"{_FACTS}/public_inputs_are"
    if sources.has(given) and str(sources.raw(given)).startswith("given"):
        extras += ["--unlabelled", "inputs.npy"]
    if sources.has(f"{_RECIPE}/kind") and sources.raw(f"{_RECIPE}/kind") == "own":
        extras += ["--teacher-labels", "labels.npy"]
    return extras


def published_cost(sources: Sources) -> list[Block]:
    """What the answers cost for these data, where a noisy number was published; else nothing."""
    if not sources.has(_COST):
        return []
    if sources.raw(f"{_COST}/private") is not True:  # seeded noise can be subtracted
        raise NotOnRecord(f"{sources.full(f'{_COST}/private')} (as true)")
    text = (
        "If teachers agree, an answer tells less about anyone than the guarantee allows for. For "
        "the data at hand, and with a confidence of ",
        sources.fact(f"{_COST}/confidence", _confidence_text), ", what was released amounts to "
        "epsilon ", sources.fact(f"{_COST}/epsilon", epsilon_text), " at delta ",
        sources.fact(f"{_PLAN}/delta", delta_text), ", the cost of telling this number included.",
    )  # fmt: skip
    note = (
        "The number has noise of its own, which is part of the guarantee above. It speaks of these "
        "data and of no others, and no budget is charged by it: the guarantee is what is promised."
    )
    if not sources.has(f"{_COST}/checked") or sources.raw(f"{_COST}/checked") is not False:
        note += (
            " Checks decided which questions were answered, so it is a reading of this run: on the "
            "same data another run may answer other questions, and more of them."
        )
    return [Paragraph(text), Paragraph(note, "note")]


def _confidence_text(value: float) -> str:
    """Per cent, never above the value.

    >>> _confidence_text(0.999), _confidence_text(0.99996), _confidence_text(0.5)
    ('99.9 %', '99.99 %', '50 %')
    """
    return f"{round_down(100 * value, 4):g} %"
