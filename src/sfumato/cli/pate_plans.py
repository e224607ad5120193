"""Plans of PATE on the command line: what answers cost, and which choice is best for an epsilon."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, final

from sfumato.accounting import Accountant, account
from sfumato.cli.output import console, plain_table, print_json
from sfumato.core import validation
from sfumato.core.json_files import read_json
from sfumato.learning.pate.aggregators import Aggregator
from sfumato.learning.pate.named import AGGREGATORS, CHECK_RATIO, aggregator_called
from sfumato.learning.pate.plan import AnswerPlan
from sfumato.learning.pate.privacy.assumed import (
    Assumed,
    as_assumed,
    mnist_agreement,
    two_classes,
)
from sfumato.learning.pate.privacy.choosing import best_of, chance, for_answers, for_certainty
from sfumato.learning.pate.privacy.planning import Forecast, explore, planned_cost

__all__ = [
    "Wanted",
    "as_data",
    "by_each_accountant",
    "choices",
    "in_words",
    "plan_of",
    "plot_costs",
    "show_choices",
]

_QUESTIONS_PER_ANSWER = 2.0  # where there are checks, and it is not said


# --- what answers cost ----------------------------------------------------------------------------


def plan_of(
    name: str,
    noise: float,
    answers: int,
    questions: int | None,
    sigma_check: float | None,
    delta: float,
    unit: str,
) -> AnswerPlan:
    """A plan whose cost is asked for; how many teachers there are does not matter to it.

    Args:
        name: of the aggregator.
        noise: sigma, or gamma of lnmax.
        answers: how many.
        questions: how many are checked; by default twice the answers.
        sigma_check: noise of checks.
        delta: of the guarantee.
        unit: whose data one neighbour step changes.
    """
    scale = 1 / validation.positive("gamma", noise) if name == "lnmax" else noise
    aggregator = aggregator_called(name, scale, 1, sigma_check=sigma_check)
    if questions is None and aggregator.asks_first:
        questions = int(_QUESTIONS_PER_ANSWER * validation.count("answers", answers))
    return AnswerPlan(aggregator, answers, questions, delta, unit)


def by_each_accountant(plan: AnswerPlan) -> dict[str, float]:
    """Epsilon of the same plan by each theorem."""
    return {
        one.value: account(plan.event, plan.delta, accountant=one).epsilon for one in Accountant
    }


def plot_costs(
    plan: AnswerPlan,
    sigma: float,
    gamma: float,
    sigma_check: float | None,
    accountant: str,
    path: Path,
) -> None:
    """Draws epsilon against the number of answers for each aggregator into ``path``."""
    from sfumato.plots import plot

    ratio = plan.most_questions / plan.answers
    if not plan.aggregator.asks_first:
        ratio = _QUESTIONS_PER_ANSWER
    check = CHECK_RATIO * sigma if sigma_check is None else sigma_check
    several = {
        f"lnmax, gamma {gamma:g}": aggregator_called("lnmax", 1 / gamma, 1),
        f"gnmax, sigma {sigma:g}": aggregator_called("gnmax", sigma, 1),
        f"confident or interactive, sigma {sigma:g},\nchecks with {check:g} for {ratio:.3g} "
        "questions an answer": aggregator_called("confident", sigma, 1, sigma_check=check),
    }
    costs = {
        name: planned_cost(
            one, plan.answers, plan.delta, questions_per_answer=ratio, accountant=accountant
        )
        for name, one in several.items()
    }
    plot(costs).save(path)


def as_data(plan: AnswerPlan) -> dict[str, Any]:
    """What its cost depends on."""
    aggregator = {"kind": plan.aggregator.kind} | _noises(plan.aggregator)
    return {"aggregator": aggregator, "answers": plan.answers, "questions": plan.questions}


def in_words(aggregator: Aggregator) -> str:
    """Its name and its noise."""
    noise = [f"{name.replace('_', ' ')} {x:.5g}" for name, x in _noises(aggregator).items()]
    return ", ".join([aggregator.kind, *noise])


def _noises(aggregator: Aggregator) -> dict[str, float]:
    held = aggregator.to_dict()
    return {name: held[name] for name in ("gamma", "sigma", "sigma_check") if name in held}


# --- which choice ---------------------------------------------------------------------------------


@final
@dataclass(frozen=True)
class Wanted:
    """What the choices must meet.

    Attributes:
        epsilon: the whole budget.
        delta: its delta.
        answers: numbers of answers that are wanted; empty for as many as fit.
        noise: noises that are thought of; empty for the least or the most.
        sure: how often answers must be right, with neither.
        accountant: which theorem.
        unit: whose data one neighbour step changes.
    """

    epsilon: float
    delta: float
    answers: tuple[int, ...]
    noise: tuple[float, ...]
    sure: float
    accountant: str
    unit: str

    @classmethod
    def said(
        cls,
        epsilon: float,
        delta: float,
        answers: str | None,
        noise: str | None,
        sure: float,
        accountant: str,
        unit: str,
    ) -> Wanted:
        """As it was typed."""
        if answers is not None and noise is not None:
            raise ValueError("give --answers or --noise, not both: each follows from the other")
        return cls(
            validation.positive("epsilon", epsilon),
            validation.open_probability("delta", delta),
            tuple(int(one) for one in _numbers("answers", answers, whole=True)),
            tuple(_numbers("noise", noise)),
            validation.open_probability("sure", sure),
            validation.choice("accountant", accountant, Accountant).value,
            validation.name("unit", unit),
        )

    def forecasts(self, name: str, teachers: int, assumed: Assumed) -> list[Forecast | None]:
        """One for each number of answers, or for each noise, or one."""
        make = partial(aggregator_called, name, teachers=teachers)
        budget: dict[str, Any] = {
            "epsilon": self.epsilon, "delta": self.delta, "accountant": self.accountant,
        }  # fmt: skip
        if self.answers:
            return [for_answers(make, teachers, assumed, answers=n, **budget) for n in self.answers]
        if self.noise:
            return [*explore([(teachers, make(x)) for x in self.noise], assumed, **budget)]
        return [for_certainty(make, teachers, assumed, sure=self.sure, **budget)]

    def best(self, rows: list[Choice]) -> set[int]:
        """The places of the best: for each number of answers the surest; or that with the most."""
        if not self.answers:
            fine = [one.forecast if self._right(one.forecast) else None for one in rows]
            return {place for place in [best_of(fine, by_answers=True)] if place is not None}
        found = [
            best_of([row.forecast if row.wanted == n else None for row in rows], by_answers=False)
            for n in self.answers
        ]
        return {place for place in found if place is not None}

    def _right(self, forecast: Forecast | None) -> bool:
        return forecast is not None and chance(forecast) >= self.sure


@final
@dataclass(frozen=True)
class Choice:
    """One row: a number of teachers, an aggregator, and what they would give.

    Attributes:
        teachers: how many.
        aggregator: its name.
        wanted: the number of answers asked for; None for as many as fit.
        forecast: None where no noise leaves answers right as often as wanted.
    """

    teachers: int
    aggregator: str
    wanted: int | None
    forecast: Forecast | None


def choices(
    wanted: Wanted, teachers: str, aggregator: str, agreement: str, rows: int
) -> list[Choice]:
    """A forecast for each number of teachers and each aggregator.

    Args:
        wanted: what they must meet.
        teachers: numbers, with commas between.
        aggregator: names, with commas between.
        agreement: "mnist", shares with commas between, or a file.
        rows: of the private data.
    """
    names = [_checked_name(part.strip()) for part in aggregator.split(",")]
    assumed = assumed_agreement(agreement, rows)
    found: list[Choice] = []
    for n in _numbers("teachers", teachers, whole=True):
        count = validation.at_least("teachers", n, 2)
        for name in names:
            given = wanted.forecasts(name, count, assumed(count))
            asked = wanted.answers or (None,) * len(given)
            found += [Choice(count, name, *pair) for pair in zip(asked, given, strict=True)]
    return found


def _checked_name(name: str) -> str:
    if name == "interactive":
        raise ValueError(
            "aggregator must not be 'interactive' here: how often it asks depends on the student. "
            "Plan with 'confident', whose checks and answers cost the same"
        )
    if name not in AGGREGATORS:
        validation.fail("aggregator", f"among {', '.join(AGGREGATORS[:3])}", name)
    return name


def _numbers(name: str, text: str | None, whole: bool = False) -> list[float]:
    """Numbers with commas between; none for None."""
    if text is None:
        return []
    try:
        found = [float(part) for part in text.split(",")]
    except ValueError:
        validation.fail(name, "numbers with commas between", text)
    return [
        float(validation.count(name, one)) if whole else validation.positive(name, one)
        for one in found
    ]


def assumed_agreement(text: str, rows: int) -> Callable[[int], Assumed]:
    """From what was typed to what is assumed for a number of teachers."""
    if text == "mnist":
        return mnist_agreement(rows)
    try:
        shares = [float(part) for part in text.split(",")]
    except ValueError:
        return _from_file(Path(text))
    everywhere = two_classes(shares)
    return lambda teachers: everywhere


def _from_file(path: Path) -> Callable[[int], Assumed]:
    try:
        held = read_json(path)
    except OSError as error:
        raise ValueError(
            f"agreement must be mnist, shares with commas between (0.95,0.8) or a JSON file, and "
            f"{str(path)!r} cannot be read: {error.strerror}"
        ) from error
    if not isinstance(held, dict):
        everywhere = _rows_of(held, path)
        return lambda teachers: everywhere

    def assumed(teachers: int) -> Assumed:
        if str(teachers) not in held:
            known = ", ".join(held)
            validation.fail("teachers", f"one of those in {path} ({known})", teachers)
        return _rows_of(held[str(teachers)], path)

    return assumed


def _rows_of(value: object, path: Path) -> Assumed:
    try:
        return as_assumed(value)  # pyright: ignore[reportArgumentType]
    except (TypeError, ValueError) as error:
        raise ValueError(f"{str(path)!r} must hold rows of shares of the votes: {error}") from error


# --- what is said ---------------------------------------------------------------------------------


def show_choices(wanted: Wanted, found: list[Choice], agreement: str, as_json: bool) -> None:
    """A table with the best marked, and how to train by it; or JSON."""
    best = wanted.best(found)
    if as_json:
        print_json(_as_data(wanted, found, agreement, best))
        return
    table = plain_table(
        f"Within epsilon {wanted.epsilon:g}, delta {wanted.delta:g}, add or remove one "
        f"{wanted.unit}, by {wanted.accountant}"
    )
    headings = "teachers", "aggregator", "noise", "answers", "answered", "plurality", "right"
    for heading in ("", *headings):
        table.add_column(heading, justify="left" if heading in ("", "aggregator") else "right")
    for place, one in enumerate(found):
        table.add_row("best" if place in best else "", *_cells(one))
    console().print(table)
    console().print(_remark(agreement), markup=False)
    for line in _conclusion(wanted, found, best):
        console().print(line, soft_wrap=True, markup=False)


def _cells(one: Choice) -> tuple[str, ...]:
    forecast = one.forecast
    if forecast is None:
        return (f"{one.teachers:,}", one.aggregator, "none", *[""] * 4)
    return (
        f"{one.teachers:,}",
        one.aggregator,
        f"{_noise(forecast):.4g}",
        f"{forecast.answers:,}",
        f"{forecast.answered_share:.0%}",
        f"{forecast.plurality:.1%}",
        "" if forecast.right is None else f"{forecast.right:.1%}",
    )


def _noise(forecast: Forecast) -> float:
    """Sigma, or 1 / gamma."""
    held = forecast.aggregator
    return 1 / held["gamma"] if "gamma" in held else held["sigma"]


def _remark(agreement: str) -> str:
    return (
        f"Epsilon holds for all data. The rest is if teachers agree as assumed ({agreement}): "
        "answered, of the questions; plurality, how often an answer is the class with most votes; "
        "right, how often it is the right one."
    )


def _conclusion(wanted: Wanted, found: list[Choice], best: set[int]) -> list[str]:
    if best:
        return [f"Best: {_command(wanted, found[place])}" for place in sorted(best)]
    return [
        f"None is right {100 * wanted.sure:g} % of the time within this epsilon: raise epsilon, "
        "lower --sure, or try other numbers of teachers."
    ]


def _command(wanted: Wanted, one: Choice) -> str:
    """How to train by a choice."""
    assert one.forecast is not None
    held = one.forecast.aggregator
    words = [
        f"sfumato train pate --data ... --teachers {one.teachers} --aggregator {one.aggregator}"
    ]
    noise = "gamma" if "gamma" in held else "sigma"
    words.append(f"--{noise} {held[noise]:.12g} --answers {one.forecast.answers}")
    if "sigma_check" in held:
        check, threshold = held["sigma_check"], held["threshold"]
        words.append(f"--sigma-check {check:.12g} --threshold {threshold:.12g}")
        words.append(f"--questions {one.forecast.questions}")
    return " ".join([*words, f"--delta {wanted.delta:g}"])


def _as_data(wanted: Wanted, found: list[Choice], agreement: str, best: set[int]) -> dict[str, Any]:
    return {
        "epsilon": wanted.epsilon,
        "delta": wanted.delta,
        "neighbours": "add-remove",
        "unit": wanted.unit,
        "accountant": wanted.accountant,
        "agreement": agreement,
        "choices": [
            {
                "teachers": one.teachers,
                "aggregator": one.aggregator,
                "best": place in best,
                "forecast": None if one.forecast is None else one.forecast.to_dict(),
            }
            for place, one in enumerate(found)
        ],
    }
