"""What audits of several releases have in common: a product law, draws, a table of findings."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from sfumato.cli.output import console, plain_table, print_json
from sfumato.core.guarantee import round_down, round_up

if TYPE_CHECKING:
    from sfumato.audit.findings import Finding
    from sfumato.core.guarantee import Guarantee

__all__ = [
    "ReleaseGame",
    "audit_draws",
    "audit_product",
    "findings_of",
    "show_findings",
    "tell_assumptions",
]

_COLUMNS = {"exact": "exact", "sampling": "sampled", "sampling, gaussian": "noise as of"}


class ReleaseGame(Protocol):
    """Releases with independent noise, and two neighbouring tables on which they show most."""

    @property
    def claim(self) -> Guarantee:
        """What is promised of all of them."""
        ...

    @property
    def first(self) -> Any:
        """One table."""
        ...

    @property
    def second(self) -> Any:
        """Its neighbour."""
        ...

    @property
    def log_ratios(self) -> tuple[float, ...]:
        """Of pure guarantees: each release's largest log ratio, all of them reached together."""
        ...

    @property
    def mus(self) -> tuple[float, ...]:
        """Of normal noise: how many standard deviations each release moves."""
        ...

    @property
    def normal(self) -> bool:
        """Whether all that is drawn has normal noise of one size, and nothing else is random."""
        ...

    def __call__(self, table: Any, count: int) -> Any:
        """So many independent draws of all releases."""
        ...


def audit_product(game: ReleaseGame) -> Finding:
    """What the declared noise of all releases shows together: computed, nothing is drawn.

    Ratios of independent releases multiply. Of pure ones each is largest on a half-line or for one
    report, so that their logarithms add up, as if one Laplace release had moved by the sum. Normal
    noise is the same in every direction: squares of mu add up.
    """
    from sfumato.audit.pairs import audit_law
    from sfumato.core.sensitivity import Sensitivity
    from sfumato.mechanisms.gaussian import Gaussian
    from sfumato.mechanisms.laplace import Laplace

    claim = game.claim
    if claim.delta == 0:
        loss = math.fsum(game.log_ratios) * (1 - 2.0**-50)
        one: Any = Laplace(1.0, Sensitivity(loss))
        found = audit_law(one, claim=claim, pairs=[(0.0, loss)])
        known = {"log_ratios": list(game.log_ratios)}
    else:
        mu = math.hypot(*game.mus) * (1 - 2.0**-50)
        one = Gaussian(1 / mu, Sensitivity(1.0), claim.delta)
        found = audit_law(one, claim=claim, pairs=[(0.0, 1.0)])
        known = {"mus": list(game.mus)}
    return replace(found, method="exact", facts=known | tables_of(game))


def audit_draws(game: ReleaseGame, samples: int, confidence: float) -> list[Finding]:
    """What the code's own releases show, whatever their law; and, if normal, of their noise.

    The event is chosen on one half of the draws and counted on the other. Where noise is normal it
    is chosen for a bound on mu, and its two counts give two bounds that hold together.

    Args:
        game: what is played.
        samples: draws on either table, half of which choose the event.
        confidence: of all that is found.
    """
    from sfumato.audit.findings import Finding
    from sfumato.audit.intervals import epsilon_from_counts
    from sfumato.audit.mechanism import audit_mechanism

    claim, delta = game.claim, game.claim.delta
    found = audit_mechanism(
        game, [(game.first, game.second)], claim=claim, samples=samples, confidence=confidence,
        gaussian=game.normal,
    )  # fmt: skip
    facts = {name: value for name, value in found.facts.items() if name != "pair"}
    facts |= tables_of(game)
    if not game.normal:  # what bounds mu would say nothing about epsilon
        return [replace(found, facts=facts)]
    mu = facts.pop("mu_at_least")
    inside, outside = facts["inside"], facts["outside"]
    epsilon = epsilon_from_counts(
        (inside[0], inside[1]), (outside[0], outside[1]), delta, confidence
    )
    plain = Finding(epsilon, delta, confidence, "sampling", claim, facts)
    return [plain, replace(found, facts=facts | {"mu_at_least": mu})]


def tables_of(game: ReleaseGame) -> dict[str, Any]:
    """Both tables, for a record."""
    from sfumato.audit.pairs import plain

    return {"tables": [plain(game.first), plain(game.second)]}


def findings_of(
    games: Mapping[str, ReleaseGame], samples: int, confidence: float
) -> dict[str, list[Finding]]:
    """By the law and by draws, of each game; the confidence is that of all together."""
    from sfumato.core import validation

    each = 1 - (1 - validation.open_probability("confidence", confidence)) / len(games)
    return {
        name: [audit_product(game), *audit_draws(game, samples, each)]
        for name, game in games.items()
    }


def show_findings(
    found: Mapping[str, list[Finding]], key: str, title: str, *, as_json: bool, note: str = ""
) -> None:
    """As a table, or as JSON under ``key``."""
    if as_json:
        print_json({key: {name: [f.to_dict() for f in several] for name, several in found.items()}})
        return
    table = plain_table(title)
    table.add_column(key, no_wrap=True)
    methods = {finding.method for several in found.values() for finding in several}
    shown = [method for method in _COLUMNS if method in methods]
    for name in ("claimed", *(_COLUMNS[method] for method in shown), "verdict"):
        table.add_column(name, no_wrap=True)
    for name, several in found.items():
        known = {f.method: f"{round_down(f.epsilon):.4g}" for f in several}
        claim = several[0].claim
        assert claim is not None
        refuted = any(f.refuted for f in several)
        table.add_row(
            name, f"{round_up(claim.epsilon):.4g}", *(known.get(method, "-") for method in shown),
            "REFUTED" if refuted else "consistent",
        )  # fmt: skip
    console().print(table)
    tell_assumptions(finding for several in found.values() for finding in several)
    if note:
        console().print(note)


def tell_assumptions(findings: Iterable[Finding]) -> None:
    """What bounds in a table take for granted, if they do."""
    for assumption in sorted({one.assumption for one in findings if one.assumption}):
        console().print(f"Bounds by way of mu ('noise as of') are valid if {assumption}.")
