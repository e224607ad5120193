"""The journal of questions and answers: each on disk before anything goes on.

One JSON object a line. A line that was torn says nothing: what it would have said was told to no
one. A question that was begun and has no outcome counts as answered.
"""

from __future__ import annotations

import secrets
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast, final

from sfumato.learning.durable import JsonLines
from sfumato.learning.pate.plan import AnswerPlan
from sfumato.learning.pate.privacy.smooth import PublishedCost

__all__ = ["Answer", "Journal"]


@final
@dataclass(frozen=True)
class Answer:
    """What came of one question; all of it is released.

    Attributes:
        question: which input it was about.
        label: the class, or None for no answer.
        by: "teachers", "student" (its own answer, confirmed) or "nobody".
    """

    question: int
    label: int | None
    by: str


@final
class Journal:
    """Questions and outcomes, one JSON object a line, each on disk before anything goes on."""

    def __init__(
        self, path: Path | None, plan: AnswerPlan, charged: str | None, private: bool
    ) -> None:
        self.begun: dict[int, bool] = {}  # question: whether its answer may have been seen
        self.answers: dict[int, Answer] = {}
        self.publishing, self.published = False, cast("PublishedCost | None", None)
        self._lines: JsonLines | None = None
        self.name, self.private = secrets.token_hex(8), private
        if path is not None:
            self._open(path, {"plan": plan.to_dict(), "charged": charged})

    @property
    def answered(self) -> int:
        """Answers that may have been seen; a question without any outcome counts."""
        return sum(self.begun.values())

    def _open(self, path: Path, begun: dict[str, Any]) -> None:
        self._lines = JsonLines(
            path, f"journal must not be in use, but another process asks by {path}: end it first"
        )  # two would each give the plan's answers
        if not self._lines.entries:
            self._write(begun | {"name": self.name, "private": self.private})
            return
        self._replay(path, self._lines.entries, begun)
        self._write({"private": self.private})

    def _replay(self, path: Path, lines: list[Any], begun: dict[str, Any]) -> None:
        first = lines[0]
        if first is None or first.get("plan") != begun["plan"]:
            raise ValueError(
                f"{path} must hold answers of this plan, but holds those of another: go on with "
                "the plan it began with, or begin anew with another file"
            )
        if first["charged"] != begun["charged"]:
            raise ValueError(
                f"{path} began with the budget of {first['charged']!r}, not of "
                f"{begun['charged']!r}: go on with the ledger and the dataset it began with"
            )
        self.name = first["name"]
        self._take({"private": first["private"]})
        for entry in lines[1:]:
            self._take(entry)

    def _take(self, entry: dict[str, Any] | None) -> None:
        if entry is None:
            return  # torn: what it says was never told to anyone, and the question stands as begun
        if "private" in entry:
            self.private = self.private and entry["private"]
        elif "begin" in entry:
            self.begun[entry["begin"]] = True
        elif "publish" in entry:
            self.publishing = True
            stored = entry["publish"]
            self.published = None if stored is None else PublishedCost(**stored)
            if self.published is not None:
                self.private = self.private and self.published.private
        else:
            answer = Answer(**entry)
            self.answers[answer.question] = answer
            self.begun[answer.question] = answer.by == "teachers"

    def begin(self, question: int) -> None:
        """Its votes may be read from now on, for a check or for an answer."""
        if question not in self.begun:
            self.begun[question] = True
            self._write({"begin": question})

    def publish(self, found: PublishedCost | None = None) -> PublishedCost | None:
        """The data-dependent cost may be drawn from now on; given one, it is the one."""
        self.publishing, self.published = True, found
        self._write({"publish": None if found is None else asdict(found)})
        return found

    def finish(self, answer: Answer) -> Answer:
        """The same answer, on disk."""
        self._write(asdict(answer))
        self.answers[answer.question] = answer
        self.begun[answer.question] = answer.by == "teachers"
        return answer

    def _write(self, entry: dict[str, Any]) -> None:
        if self._lines is not None:
            self._lines.write(entry)
