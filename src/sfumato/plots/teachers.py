"""Teachers who vote: how far they agree, what their answers cost, what more of them do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from matplotlib.figure import Figure

from sfumato.plots.naming import Things, names_of, plain
from sfumato.reports.pate_figures import costs_figure, teachers_figure, votes_figure

if TYPE_CHECKING:
    from sfumato.learning.pate.privacy.curator import CuratorView
    from sfumato.learning.pate.privacy.effect import TeachersEffect
    from sfumato.learning.pate.privacy.planning import PlannedCost

__all__ = ["costs", "effects", "views"]


def views(
    things: Things, *, title: str = "Teachers' agreement, and what their answers cost"
) -> Figure:
    """The histogram of agreement, and epsilon against questions for each view. Curator's."""
    shown: list[CuratorView] = [one for _, one in things]
    first = shown[0]
    if any((one.agreement, one.curve.delta) != (first.agreement, first.curve.delta)
           for one in shown):  # fmt: skip
        raise ValueError("views drawn together must be of the same votes, at the same delta")
    labels = names_of(things, lambda one: one.aggregator["kind"])
    lines = [
        (label, one.curve.questions, one.curve.independent, one.curve.dependent)
        for label, one in zip(labels, shown, strict=True)
    ]
    edges, counts = first.agreement.edges, first.agreement.counts
    return votes_figure(edges, counts, lines, first.curve.delta, plain(title))


def costs(things: Things, *, title: str = "What answers cost, whatever the votes") -> Figure:
    """Epsilon against the number of answers, a line for each aggregator."""
    planned: list[PlannedCost] = [one for _, one in things]
    delta = planned[0].delta
    if any(one.delta != delta for one in planned):
        raise ValueError("costs drawn together must be stated at the same delta")
    labels = names_of(things, lambda one: one.aggregator["kind"])
    lines = [
        (label, one.answers, one.epsilons, None) for label, one in zip(labels, planned, strict=True)
    ]
    return costs_figure(lines, delta, plain(title))


def effects(things: Things, *, title: str = "More teachers, more privacy, less accuracy") -> Figure:
    """Accuracies and epsilons against the number of teachers."""
    found: list[TeachersEffect] = sorted((one for _, one in things), key=lambda one: one.teachers)
    first = found[0]
    if any(_settings(one) != _settings(first) for one in found):
        raise ValueError("effects drawn together must be of the same answers, epsilons and loss")
    accuracies = {
        "one teacher": [one.mean_teacher for one in found],
        "plurality, no noise": [one.plurality for one in found],
    }
    for place, (epsilon, _) in enumerate(first.at_epsilon):
        name = f"noisy answers, epsilon {epsilon:g} for {first.answers}"
        accuracies[name] = [one.at_epsilon[place][1] for one in found]
    loss = f"{100 * first.loss:g} %"
    epsilons = {
        "for all data": [one.epsilon for one in found],
        "for these votes (curator's)": [one.epsilon_dependent for one in found],
    }
    label = f"epsilon of {first.answers} answers, {loss} lost to noise"
    return teachers_figure([one.teachers for one in found], accuracies, epsilons, plain(title),
                           label)  # fmt: skip


def _settings(one: TeachersEffect) -> tuple[object, ...]:
    return one.answers, one.loss, one.delta, tuple(epsilon for epsilon, _ in one.at_epsilon)
