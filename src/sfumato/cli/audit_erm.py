"""``sfumato audit erm``: do private linear models keep what they promise of one row?"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sfumato.cli.audit_games import tell_assumptions
from sfumato.cli.options import AsJson
from sfumato.cli.output import console, plain_table, print_json, working
from sfumato.core.guarantee import round_down, round_up

if TYPE_CHECKING:
    from sfumato.audit.findings import Finding
    from sfumato.core.guarantee import Guarantee
    from sfumato.learning.erm.games import WayGame
    from sfumato.learning.erm.recipe import ErmRecipe
    from sfumato.learning.runs import RunFolder

__all__ = ["audit_erm_run", "audit_fits", "audit_law_of_way", "erm"]

_SAMPLES = 20_000
_RUN_ROWS = 4
_COLUMNS = {"exact": "exact", "sampling": "sampled", "sampling, gaussian": "noise as of"}


def erm(
    ways: Annotated[
        list[str] | None,
        typer.Argument(help="Of objective, output, functional, sgd, input; all by default."),
    ] = None,
    epsilon: Annotated[float, typer.Option(help="What is claimed.")] = 1.0,
    delta: Annotated[float, typer.Option(help="Of the claim; 0 for pure guarantees.")] = 1e-5,
    neighbours: Annotated[
        str, typer.Option(help="replace-one or add-remove; sgd and input know the first alone.")
    ] = "replace-one",
    rows: Annotated[int, typer.Option(help="Of the table, from 2 to 50.")] = 4,
    samples: Annotated[
        int, typer.Option(help="Fits on either table, half of them for choosing an event.")
    ] = _SAMPLES,
    confidence: Annotated[float, typer.Option(help="Of all lines together.")] = 0.99,
    as_json: AsJson = False,
) -> None:
    """Audits private linear models: each way is fitted again and again, with one row or another.

    Tables of a few rows are made up so that one row matters most, and no data is read. Exact: what
    the declared noise shows of it, computed. Sampled: what the code's own releases show, whatever
    their law. Noise as of: the epsilon at which Gaussian noise would be told apart as easily.

    It sees a wrong sensitivity, and noise that is a third too small (at epsilon 4, or with more
    samples, a tenth). It sees one column and one strong regularisation: no determinants, no larger
    tables, nothing of what is done to rows and labels before a fit. Half a minute or more.

    Examples:
    sfumato audit erm

    sfumato audit erm output objective --epsilon 2 --delta 0

    sfumato audit erm --neighbours add-remove --samples 5000
    """
    from sfumato.core import validation
    from sfumato.core.neighbours import Neighbours
    from sfumato.learning.erm.games import way_game, ways_for

    relation = Neighbours.parse(neighbours)
    games = {
        name: way_game(name, epsilon=epsilon, delta=delta, neighbours=relation, rows=rows)
        for name in ways or ways_for(relation)
    }
    each = 1 - (1 - validation.open_probability("confidence", confidence)) / len(games)
    with working("fitting"):
        found = {
            name: [audit_law_of_way(game), *audit_fits(game, samples, each)]
            for name, game in games.items()
        }
    if as_json:
        shown = {name: [f.to_dict() for f in several] for name, several in found.items()}
        print_json({"ways": shown})
    else:
        _tell(found, f"At least, of one row of {rows}, delta {delta:g}")


# --- the audits ---------------------------------------------------------------------------------


def audit_law_of_way(game: WayGame, claim: Guarantee | None = None) -> Finding:
    """What a way's declared noise shows on the game's tables: computed, nothing is drawn.

    Normal noise is the same in every direction, so that of numbers which move together their
    distance is all that counts. Of Laplace noise for a pure guarantee it is the sum of distances:
    ratios of independent numbers multiply, and each is largest on a half-line. Of the objective way
    it is the law of the exact minimiser.

    Args:
        game: the way, and two tables.
        claim: what was promised; by default what the way promises.
    """
    from sfumato.audit.exact import audit_density
    from sfumato.audit.pairs import audit_law
    from sfumato.core.sensitivity import Sensitivity
    from sfumato.mechanisms.gaussian import Gaussian
    from sfumato.mechanisms.laplace import Laplace

    claim, noise = claim or game.way.guarantee, game.noise
    if noise is None:
        law = game.law
        found = audit_density(law.first, law.second, law.support, claim=claim, breaks=law.breaks)
    else:
        apart = game.centres[0] - game.centres[1]
        if isinstance(noise, Gaussian):
            moved = float((apart**2).sum() ** 0.5)
            one: Any = Gaussian(noise.sigma, Sensitivity(moved), noise.delta)
        else:  # on one number, or on several that are independent
            moved = float(abs(apart).sum())
            one = Laplace(noise.scale, Sensitivity(moved))
        found = audit_law(one, claim=claim, pairs=[(0.0, moved)])
    facts = {name: value for name, value in found.facts.items() if name not in ("pair", "cells")}
    return replace(found, method="exact", facts=facts | _tables(game))


def audit_fits(
    game: WayGame, samples: int, confidence: float, claim: Guarantee | None = None
) -> list[Finding]:
    """What the code's own releases show.

    Where noise is normal, the event is chosen for a bound on mu, and its two counts give two
    bounds that hold together: one on epsilon, whatever the law of a release; and one on the noise.
    The latter refutes the claims of ways whose noise is normal, since weights are computed from
    noisy numbers; and of the objective way, because on these tables its release is the tilt's own
    noise on a sum.

    Args:
        game: the way, and two tables.
        samples: fits on either table, half of which choose the event.
        confidence: of all that is found.
        claim: what was promised; by default what the way promises.
    """
    from sfumato.audit.findings import Finding
    from sfumato.audit.intervals import epsilon_from_counts
    from sfumato.audit.mechanism import audit_mechanism

    claim, delta = claim or game.way.guarantee, game.way.task.delta
    found = audit_mechanism(
        game, [(game.first, game.second)], claim=claim, samples=samples, confidence=confidence,
        gaussian=delta > 0,
    )  # fmt: skip
    facts = {name: value for name, value in found.facts.items() if name != "pair"} | _tables(game)
    if not delta:
        return [replace(found, facts=facts)]
    mu = facts.pop("mu_at_least")
    epsilon = epsilon_from_counts(
        (facts["inside"][0], facts["inside"][1]), (facts["outside"][0], facts["outside"][1]),
        delta, confidence,
    )  # fmt: skip
    plain = Finding(epsilon, delta, confidence, "sampling", claim, facts)
    return [plain, replace(found, facts=facts | {"mu_at_least": mu})]


def _tables(game: WayGame) -> dict[str, Any]:
    tables = [[list(row) for row in table] for table in (game.first, game.second)]
    return {"way": game.way.name, "tables": tables}


def audit_erm_run(folder: RunFolder, confidence: float, analysis: str | None) -> Finding:
    """The way of a run, at its own price, on tables that are made up: no row of its data is read.

    The finding is the bound on epsilon whatever the law, or, if the noise itself is too small, the
    bound that says so.
    """
    from sfumato.learning.erm.games import way_game
    from sfumato.learning.erm.recipe import ErmRecipe

    if analysis is not None:
        raise ValueError(f"analysis must be left out for a run of erm, got {analysis!r}")
    recipe = ErmRecipe.from_dict(folder.record()["parameters"]["recipe"])
    game = way_game(
        recipe.way, epsilon=recipe.epsilon, delta=recipe.delta, neighbours=recipe.neighbours,
        rows=_RUN_ROWS, unit=recipe.unit, numbers=recipe.of_numbers,
    )  # fmt: skip
    exact, *sampled = audit_law_of_way(game), *audit_fits(game, _SAMPLES, confidence)
    shown = next((found for found in sampled if found.refuted), sampled[0])
    said = {
        "what": f"the same way on a table of {_RUN_ROWS} rows: a single release cannot be audited "
        f"from itself{_hinge(recipe)}",
        "epsilon_by_law": exact.epsilon,
    }
    if len(sampled) > 1:
        said["noise_as_of_epsilon"] = sampled[1].epsilon
    return replace(shown, facts=said | dict(shown.facts))


def _hinge(recipe: ErmRecipe) -> str:
    """Of numbers, the ways that take any loss are played with one of the same slope."""
    if not recipe.of_numbers or recipe.way in ("functional", "input"):
        return ""
    return "; with a rounded hinge in place of Huber's loss"


# --- what is said -------------------------------------------------------------------------------


def _tell(found: dict[str, list[Finding]], title: str) -> None:
    table = plain_table(title)
    table.add_column("way", no_wrap=True)
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
            name, f"{round_up(claim.epsilon):.4g}", *(known[method] for method in shown),
            "REFUTED" if refuted else "consistent",
        )  # fmt: skip
    console().print(table)
    tell_assumptions(finding for several in found.values() for finding in several)
