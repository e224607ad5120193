"""``sfumato attack differencing | linkage``: real people, exact statistics beside private ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Group

from sfumato.cli.options import AsJson, Plot
from sfumato.cli.output import number, plain_table, working
from sfumato.cli.statistics_attacks import CURATOR, Epsilon, below, show

if TYPE_CHECKING:
    import numpy as np

    from sfumato.attacks.differencing import Ask, Difference, Filter, Guesses
    from sfumato.attacks.linkage import Linkage
    from sfumato.core.guarantee import Guarantee
    from sfumato.core.randomness import Coins

__all__ = ["differencing", "linkage"]

KNOWN = {
    "census2000": ("state", "puma", "educ", "exper"),
    "labsup": ("age", "agefstm", "kids", "boy1st", "boy2nd", "educ", "black", "hispan"),
}
"""What a neighbour might know of the people in each table."""


@dataclass(frozen=True)
class DifferencingRun:
    """Two counts and two sums about one person, exact and private, and many private rounds."""

    person: dict[str, int]
    worked: bool
    income: float
    exact: dict[str, Difference]
    private: dict[str, Difference]
    guesses: Guesses
    most: float
    typical_error: float
    guarantee: Guarantee
    differences: dict[bool, list[float]]

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready, without the single rounds."""
        pairs = {"exact": self.exact, "private": self.private}
        return {
            "person": self.person,
            "truth": {"worked": self.worked, "income": self.income},
            **{
                name: {about: pair.to_dict() for about, pair in found.items()}
                for name, found in pairs.items()
            },
            "guesses": self.guesses.to_dict(),
            "most_accuracy": self.most,
            "typical_error_of_income": self.typical_error,
        } | self.guarantee.to_dict()


def run_differencing(
    person_id: int | None, epsilon: float, rounds: int, coins: Coins
) -> DifferencingRun:
    """Singles one mother out of ``labsup``: did she work, and what did she earn?

    Each pair of questions costs ``epsilon`` in all, half of it a question. The private rounds are
    played on the table as it would be if she had worked, and as often as if she had not.
    """
    from statistics import median

    from sfumato.attacks.differencing import Guesses, best_accuracy, count_attack, sum_attack
    from sfumato.core import validation

    validation.positive("epsilon", epsilon)
    half = validation.at_least("rounds", rounds, 2) // 2
    mothers, place, person = _single_out(person_id)
    worked, income = bool(mothers["worked"].iloc[place]), float(mothers["labinc"].iloc[place])
    counts, total = _exact_answers(mothers, place)
    noisy_count, noisy_sum, guarantee = _noise(epsilon, coins)
    secret = {"worked": 1}

    def round_of(yes: bool) -> Difference:
        return count_attack(lambda who: noisy_count(counts[yes](who)), person, secret)

    played = {yes: [round_of(yes) for _ in range(half)] for yes in (True, False)}
    sums = [sum_attack(lambda who: noisy_sum(total(who)), person) for _ in range(half)]
    right = {yes: sum(pair.holds is yes for pair in pairs) for yes, pairs in played.items()}
    return DifferencingRun(
        person=person,
        worked=worked,
        income=income,
        exact={
            "worked": count_attack(counts[worked], person, secret),
            "income": sum_attack(total, person),
        },
        private={"worked": played[worked][0], "income": sums[0]},
        guesses=Guesses(half, right[True], half, right[False]),
        most=best_accuracy(guarantee.epsilon),
        typical_error=median(abs(pair.difference - income) for pair in sums),
        guarantee=guarantee,
        differences={yes: [pair.difference for pair in pairs] for yes, pairs in played.items()},
    )


def _exact_answers(mothers: Any, place: int) -> tuple[dict[bool, Ask], Ask]:
    """Exact counts if she worked and if she did not, and exact sums of incomes."""
    tables = {}
    for yes in (True, False):
        tables[yes] = mothers.copy()
        tables[yes].loc[place, "worked"] = int(yes)
    counts = {
        yes: _remembered(lambda who, table=table: float(who.mask(table).sum()))
        for yes, table in tables.items()
    }
    return counts, _remembered(lambda who: float(mothers["labinc"][who.mask(mothers)].sum()))


def _single_out(person_id: int | None) -> tuple[Any, int, dict[str, int]]:
    """The table, the place of a mother whose facts are hers alone, and the facts."""
    import numpy as np

    from sfumato.attacks.linkage import group_sizes
    from sfumato.core import validation
    from sfumato.data import load_table

    mothers, facts = load_table("labsup"), KNOWN["labsup"]
    alone = np.flatnonzero(group_sizes(mothers, facts) == 1)
    place = int(alone[0]) if person_id is None else person_id - 1
    if place not in alone:
        some = ", ".join(str(int(row) + 1) for row in alone[:5])
        validation.fail("person", f"one whose facts are hers alone, such as {some}", person_id)
    return mothers, place, {fact: int(mothers[fact].iloc[place]) for fact in facts}


def _noise(
    epsilon: float, coins: Coins
) -> tuple[Callable[[float], float], Callable[[float], float], Guarantee]:
    """A noisy count and a noisy sum of half of ``epsilon`` each, and what two of them promise."""
    from sfumato.accounting import account
    from sfumato.core import Neighbours, Sensitivity
    from sfumato.core.events import repeat
    from sfumato.data import table_facts
    from sfumato.mechanisms.discrete_laplace import DiscreteLaplace
    from sfumato.mechanisms.laplace import Laplace

    bounds = table_facts("labsup").column("labinc").bounds
    assert bounds is not None
    one, all_of_it = (
        Sensitivity(bound, neighbours=Neighbours.REPLACE_ONE, unit="person")
        for bound in (1.0, bounds[1] - bounds[0])
    )
    count = DiscreteLaplace.calibrate(one, epsilon=epsilon / 2)
    total = Laplace.calibrate(all_of_it, epsilon=epsilon / 2)
    return (
        lambda value: float(count.perturb([value], coins=coins)[0]),
        lambda value: float(total.perturb([value], coins=coins)[0]),
        account(repeat(count.event, 2), 0.0),
    )


def _remembered(ask: Ask) -> Ask:
    """The same answers without reading the table again."""
    known: dict[str, float] = {}

    def answer(who: Filter) -> float:
        question = str(who)
        if question not in known:
            known[question] = ask(who)
        return known[question]

    return answer


def verdict(guesses: Guesses, most: float) -> str:
    """Whether guesses are right more often, beyond chance, than an epsilon allows."""
    beyond = guesses.interval()[0] > most
    return "the attack succeeds" if beyond else "no more than epsilon allows"


def differencing_table(run: DifferencingRun) -> Group:
    """The two pairs of answers, exact beside private, and how often the private guess is right."""
    facts = ", ".join(f"{name} {value}" for name, value in run.person.items())
    table = plain_table(f"One mother among 31,857: {facts}")
    for heading in ("question", "release", "all", "all but her", "difference", "truth"):
        left = heading in ("question", "release")
        table.add_column(heading, justify="left" if left else "right")
    truth = {"worked": f"{int(run.worked)}", "income": f"{run.income:,.3f}"}
    asked = {"worked": "how many worked", "income": "sum of incomes"}
    for release, pairs in (("exact", run.exact), ("private", run.private)):
        for about, pair in pairs.items():
            digits = 0 if about == "worked" else 3
            cells = (pair.everyone, pair.but_one, pair.difference)
            shown = (f"{cell:,.{digits}f}" for cell in cells)
            table.add_row(asked[about], release, *shown, truth[about])
    epsilon = number(run.guarantee.epsilon)
    return Group(
        table,
        *below(
            "Did she work? Exact counts: the attack succeeds. Private counts: "
            f"{verdict(run.guesses, run.most)}: {run.guesses}; epsilon {epsilon} allows "
            f"{run.most:.1%}, a coin has 50%.",
            "Her income? Exact sums: to the dollar. Private sums: in half of the rounds off by "
            f"{run.typical_error:,.0f} thousand dollars or more.",
            CURATOR,
        ),
    )


def differencing(
    person: Annotated[int | None, typer.Option(help="Whom to single out: a person_id.")] = None,
    epsilon: Epsilon = 1.0,
    rounds: Annotated[int, typer.Option(help="How often to play it on private answers.")] = 2000,
    plot: Plot = None,
    as_json: AsJson = False,
) -> None:
    """Subtract two harmless totals, and be left with one person.

    On the table labsup (extra "tables"): eight everyday facts single a mother out. Did she work
    last year, and what did she earn?

    Example: sfumato attack differencing --epsilon 1 --rounds 2000 --plot differencing.png
    """
    from sfumato.core.randomness import SYSTEM

    with working("Asking"):
        run = run_differencing(person, epsilon, rounds, SYSTEM)
        if plot is not None:
            _plot_differencing(run, plot)
    show(differencing_table(run), run.to_dict(), as_json, {"plot": plot})


def _plot_differencing(run: DifferencingRun, plot: Path) -> None:
    from sfumato.reports.attack_figures import score_figure
    from sfumato.reports.style import save

    private = f"private counts, epsilon {number(run.guarantee.epsilon)}"
    panels = [
        ("exact counts", [1.0], [0.0]),
        (private, run.differences[True], run.differences[False]),
    ]
    names = ("she worked", "she did not")
    save(score_figure(panels, names, "all minus all but her", "share of rounds"), plot)


@dataclass(frozen=True)
class LinkageRun:
    """Names put back to a table without names, and presence guessed from counts."""

    table: str
    register: int
    unique: list[float]
    linked: list[Linkage]
    exact: Guesses
    private: Guesses
    most: float
    guarantee: Guarantee

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return {
            "table": self.table,
            "register": self.register,
            "linked": [
                found.to_dict() | {"unique_in_register": share}
                for found, share in zip(self.linked, self.unique, strict=True)
            ],
            "presence_exact": self.exact.to_dict(),
            "presence_private": self.private.to_dict(),
            "most_accuracy": self.most,
        } | self.guarantee.to_dict()


def run_linkage(
    table: str,
    known: list[str],
    epsilon: float,
    coins: Coins,
    random: np.random.Generator | None = None,
) -> LinkageRun:
    """A register of everyone with names; a survey of about half of them, published without.

    The private release is a count for each combination of facts that the register has. One person
    is in one cell, so that adding or removing her moves one count by 1.
    """
    import numpy as np

    from sfumato.attacks import linkage as attacks
    from sfumato.attacks.differencing import Guesses, best_accuracy
    from sfumato.core import Sensitivity
    from sfumato.data import load_table
    from sfumato.mechanisms.discrete_laplace import DiscreteLaplace

    register = load_table(table)
    register["name"] = "Person " + register["person_id"].astype(str)
    random = random or np.random.default_rng()  # for who is surveyed, never for noise
    present = random.random(len(register)) < 0.5
    survey = register[present].drop(columns=["name", "person_id"])
    linked = attacks.attack(survey, register, known, truth=register["name"][present])
    prefixes = [known[: size + 1] for size in range(len(known))]
    unique = [float((attacks.group_sizes(register, facts) == 1).mean()) for facts in prefixes]
    cells = register.groupby(known, sort=False).ngroup().to_numpy()
    counts = np.bincount(cells, weights=present).astype(int)
    declared = Sensitivity(1, unit="person", dimension=len(counts))
    noise = DiscreteLaplace.calibrate(declared, epsilon=epsilon, one_coordinate=True)
    alone = attacks.group_sizes(register, known) == 1
    exact, private = (
        Guesses.compare(attacks.guess_presence(seen[cells[alone]]), present[alone])
        for seen in (counts, noise.perturb(counts, coins=coins))
    )
    guarantee = noise.guarantee()
    most = best_accuracy(guarantee.epsilon)
    return LinkageRun(table, len(register), unique, linked, exact, private, most, guarantee)


def linkage_table(run: LinkageRun) -> Group:
    """Fact by fact, how many people are unique and named; then presence, exact and private."""
    table = plain_table(
        f"{run.table}: {run.linked[-1].people:,} people without names, beside a register of "
        f"{run.register:,}"
    )
    table.add_column("the attacker knows")
    for heading in ("unique in register", "rows named", "rightly", "re-identified"):
        table.add_column(heading, justify="right")
    for place, (found, share) in enumerate(zip(run.linked, run.unique, strict=True)):
        fact = found.attributes[-1]
        counts = (f"{found.matched:,}", f"{found.correct:,}", f"{found.share:.1%}")
        table.add_row(fact if place == 0 else f"+ {fact}", f"{share:.1%}", *counts)
    epsilon = number(run.guarantee.epsilon)
    return Group(
        table,
        *below(
            "Is someone whom these facts single out in the table? Exact counts: "
            f"{verdict(run.exact, run.most)}: {run.exact}. Private counts: "
            f"{verdict(run.private, run.most)}: {run.private}; epsilon {epsilon} allows "
            f"{run.most:.1%}, a coin has 50%.",
            CURATOR,
        ),
    )


def linkage(
    table: Annotated[str, typer.Option(help="census2000 or labsup.")] = "census2000",
    known: Annotated[
        str, typer.Option(help="Columns the attacker knows, in order, with commas.")
    ] = "",
    epsilon: Epsilon = 1.0,
    plot: Plot = None,
    as_json: AsJson = False,
) -> None:
    """Put the names back to an "anonymised" table of real people, with a register.

    Half of the people of a census table (extra "tables") are published without names, beside made
    up names for all of them. Then the same facts as private counts.

    Example: sfumato attack linkage --table census2000 --epsilon 1 --plot linkage.png
    """
    from sfumato.core import validation
    from sfumato.core.randomness import SYSTEM

    if table not in KNOWN:
        validation.fail("table", " or ".join(KNOWN), table)
    facts = [part.strip() for part in known.split(",")] if known else list(KNOWN[table])
    with working("Linking"):
        run = run_linkage(table, facts, epsilon, SYSTEM)
        if plot is not None:
            _plot_linkage(run, plot)
    show(linkage_table(run), run.to_dict(), as_json, {"plot": plot})


def _plot_linkage(run: LinkageRun, plot: Path) -> None:
    from sfumato.reports.attack_figures import linkage_figure
    from sfumato.reports.style import save

    named = [found.share for found in run.linked]
    accuracies = (run.exact.accuracy, run.private.accuracy)
    save(linkage_figure(run.linked[-1].attributes, named, accuracies, run.most), plot)
