"""A run's own votes, read back from its folder: for the curator alone.

    votes = read_run_votes("runs/pate")
    views = votes.views()            # what answers cost by each aggregator, for all data and these

Nothing here is charged and nothing of it may be published: see
:mod:`~sfumato.learning.pate.privacy.curator`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from sfumato.core import validation
from sfumato.core.json_files import as_written
from sfumato.learning.pate.aggregators import Aggregator
from sfumato.learning.pate.ballots import Ballots
from sfumato.learning.pate.journal import Answer
from sfumato.learning.pate.named import of_equal_noise, spread
from sfumato.learning.pate.plan import AnswerPlan
from sfumato.learning.pate.privacy.costs import passing
from sfumato.learning.pate.privacy.curator import CuratorView, agreement, curator_view
from sfumato.learning.runs.folder import RunFolder

__all__ = ["RunVotes", "read_run_votes"]

_NO_DELTA = 1e-5  # data-dependent costs are stated at some delta, also where a plan is pure


@final
@dataclass(frozen=True, repr=False)
class RunVotes:
    """What teachers said in one run. Private.

    Attributes:
        counts: (questions, classes) votes, in the order asked.
        answers: what was released of each.
        plan: of the run.
        teachers: how many.
        stored: the run's own view, as it was kept at its end; None before.
    """

    counts: NDArray[np.int64]
    answers: tuple[Answer, ...]
    plan: AnswerPlan
    teachers: int
    stored: CuratorView | None

    def __repr__(self) -> str:
        return f"RunVotes({len(self.counts)} questions; votes are private)"

    def views(self, points: int = 50, bins: int = 20) -> dict[str, CuratorView]:
        """What the questions cost by the run's own aggregator, and what by others of equal noise.

        Others: LNMax, GNMax and Confident-GNMax whose noisy counts have the same standard
        deviation. A check that was not made passes with the probability that it would have, so
        that its answers and their cost are those to be expected.

        Raises:
            ValueError: for an interactive run that was cut off: what its student thought was not
                kept.
        """
        own = self.plan.aggregator
        found = {own.kind: self._own(own, points, bins)}
        for other in of_equal_noise(spread(own), self.teachers):
            if other.kind != own.kind:
                answered = passing(other, self.counts)
                found[other.kind] = self._view(other, answered, points, bins)
        return found

    def _own(self, aggregator: Aggregator, points: int, bins: int) -> CuratorView:
        if not aggregator.needs_opinion:
            answered = np.array([answer.by == "teachers" for answer in self.answers], dtype=bool)
            return self._view(aggregator, answered, points, bins)
        if self.stored is None:
            raise ValueError(
                "the run must have come to its end: what the student of an interactive run thought "
                "of each question is only known then. Go on with it (sfumato train resume)"
            )
        return replace(self.stored, agreement=agreement(self.counts, bins))

    def _view(
        self, aggregator: Aggregator, answered: NDArray[Any], points: int, bins: int
    ) -> CuratorView:
        delta = self.plan.delta or _NO_DELTA
        return curator_view(
            self.counts, aggregator, delta, answered=answered, points=points, bins=bins
        )


def read_run_votes(path: str | Path) -> RunVotes:
    """The votes on all questions that have an outcome, from the curator's part of a run's folder.

    Args:
        path: of the run's folder; it may have been cut off.

    Raises:
        ValueError: if there is no PATE run, or no question has an outcome yet.
    """
    folder = RunFolder(path)
    recipe = folder.request().get("pate")
    if recipe is None:
        validation.fail("run", "a folder of sfumato train pate, with teachers who vote", str(path))
    with as_written(folder.request_file):
        plan = AnswerPlan.from_dict(recipe["plan"])
        teachers = validation.count("teachers", recipe["teachers"])
    answers = _answers(folder.curator / "answers.jsonl")
    if not answers:
        raise ValueError(f"the run in {path} has no answers yet: there is nothing to look at")
    votes = _ballots(folder.curator)
    with as_written(folder.curator / "votes-*"):
        counts = np.stack([votes.of(answer.question) for answer in answers])
    return RunVotes(counts, answers, plan, teachers, _stored(folder) if folder.finished else None)


def _stored(folder: RunFolder) -> CuratorView | None:
    """What the curator was told at the end."""
    with as_written(folder.curator / "results.json"):
        stored = folder.read_curator("results.json")
        return CuratorView.from_dict(stored) if stored else None


def _ballots(curator: Path) -> Ballots:
    """Of all rounds."""
    first, *others = sorted(curator.glob("votes-*"))
    found = Ballots.load(first)
    for file in others:
        found = found.and_those(Ballots.load(file))
    return found


def _answers(file: Path) -> tuple[Answer, ...]:
    """Without opening the journal: another process may be writing it."""
    lines = file.read_bytes().splitlines() if file.exists() else []
    found: dict[int, Answer] = {}
    for line in lines:
        try:
            entry = json.loads(line)
        except ValueError:
            continue  # torn: it says nothing
        if isinstance(entry, dict) and "label" in entry:
            with as_written(file):
                answer = Answer(**entry)
                found[answer.question] = answer
    return tuple(found.values())
