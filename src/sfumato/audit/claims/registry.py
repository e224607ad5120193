"""Privacy statements as printed, each with the audit that tells whether it is true.

A claim here was printed somewhere: in lecture slides, in a paper, in the code of a known project.
It can be run, and what comes back is a lower bound on epsilon at the setting it was printed for.
Above what was claimed, that is a refutation. Beside every claim stands what does hold, which is
audited in the same way and survives.

    >>> result = claim("exponential-without-the-2").run()
    >>> print(result.found)
    at least epsilon 1.997 at delta 0 (exact): REFUTES the claimed epsilon 1
    >>> print(result.corrected)
    at least epsilon 0.9989 at delta 0 (exact): consistent with the claimed epsilon 1

Another room adds its own by registering a function that returns a claim. The function's name, with
hyphens, must be the claim's:

    @register
    def noise_forgotten() -> Claim:
        return Claim(name="noise-forgotten", ...)
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import Any

from sfumato.audit.findings import Finding
from sfumato.core import validation
from sfumato.core.guarantee import Guarantee

__all__ = ["Claim", "Kind", "Result", "claim", "claims", "register", "run_claims"]

_TOPICS = (
    "mechanisms",
    "composition",
    "training",
    "estimators",
    "networks",
    "gradients",
    "collaborative",
    "implementation",
)
"""The modules beside this one that register claims, in the order in which they are read."""


class Kind(StrEnum):
    """What the refutation rests on."""

    EXACT = "exact"
    """An event whose probabilities are computed: there is nothing to doubt but the arithmetic."""
    SAMPLED = "99 %"
    """An event that was counted while the code ran; wrong for one audit in a hundred at most."""


@dataclass(frozen=True)
class Claim:
    """One statement as printed, and what became of it.

    Attributes:
        name: a slug, for the command line and for links.
        title: a few words for a table.
        statement: what is claimed, in a sentence or a formula.
        source: where it was printed.
        claimed: what follows from the statement at the concrete setting that ``audit`` runs.
        audit: runs the version as printed, in seconds.
        corrected: what holds instead, in a sentence with its formula.
        holds: the guarantee that does hold at the same setting.
        corrected_audit: runs the corrected version; its finding is at or below ``holds``.
        kind: what the refutation rests on.
    """

    name: str
    title: str
    statement: str
    source: str
    claimed: Guarantee
    audit: Callable[[], Finding]
    corrected: str
    holds: Guarantee
    corrected_audit: Callable[[], Finding]
    kind: Kind

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", self.name):
            validation.fail("name", "lower-case words joined by hyphens", self.name)

    def run(self) -> Result:
        """Both audits."""
        return Result(self, self.audit(), self.corrected_audit())


@dataclass(frozen=True)
class Result:
    """What the audits of one claim found, as printed and as corrected."""

    claim: Claim
    found: Finding
    corrected: Finding

    @property
    def refuted(self) -> bool:
        """Whether the claim as printed is false."""
        return self.found.epsilon > self.claim.claimed.epsilon

    @property
    def repaired(self) -> bool:
        """Whether nothing was found against the corrected version."""
        return self.corrected.epsilon <= self.claim.holds.epsilon

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready: the claim, and both findings."""
        words = ("name", "title", "statement", "source", "corrected")
        return {
            **{word: getattr(self.claim, word) for word in words},
            "kind": self.claim.kind.value,
            "claimed": self.claim.claimed.to_dict(),
            "found": self.found.to_dict(),
            "refuted": self.refuted,
            "holds": self.claim.holds.to_dict(),
            "corrected_found": self.corrected.to_dict(),
        }


_BUILDERS: dict[str, Callable[[], Claim]] = {}


def register(build: Callable[[], Claim]) -> Callable[[], Claim]:
    """Adds a claim to the registry; it is built when somebody first asks for it."""
    name = build.__name__.replace("_", "-")
    if name in _BUILDERS:
        validation.fail("build", "a function whose name is not registered yet", name)
    built = cache(build)
    _BUILDERS[name] = built
    return built


def claims() -> tuple[Claim, ...]:
    """All registered claims, topic by topic."""
    return tuple(claim(name) for name in _names())


def claim(name: str) -> Claim:
    """The claim of that name."""
    if name not in _names():
        validation.fail("name", f"one of {', '.join(_BUILDERS)}", name)
    found = _BUILDERS[name]()
    if found.name != name:
        validation.fail("name", f"{name!r}, as the function that returns the claim", found.name)
    return found


def run_claims(names: Iterable[str] | None = None) -> tuple[Result, ...]:
    """Audits the claims of those names, by default all of them: a few seconds each at most."""
    chosen = claims() if names is None else [claim(name) for name in names]
    return tuple(found.run() for found in chosen)


def _names() -> tuple[str, ...]:
    """Topics in their order, whichever was imported first; then what other rooms registered."""
    topics = [f"{__package__}.{topic}" for topic in _TOPICS]
    for topic in topics:
        importlib.import_module(topic)
    ranks = {topic: rank for rank, topic in enumerate(topics)}
    return tuple(sorted(_BUILDERS, key=lambda name: ranks.get(_BUILDERS[name].__module__, 99)))
