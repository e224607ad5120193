"""``sfumato attack membership``: who was trained on?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Group

from sfumato.cli.attacked import Attacked, attacked
from sfumato.cli.attacked_options import Data, Declared, Model, Run, Seed, Test, Trust
from sfumato.cli.options import AsJson, Plot
from sfumato.cli.output import plain_table, working
from sfumato.cli.statistics_attacks import CURATOR, below, show

if TYPE_CHECKING:
    from sfumato.attacks.candidates import Candidates
    from sfumato.attacks.membership.reports import MembershipReport
    from sfumato.core.guarantee import Guarantee

__all__ = ["draw_curves", "membership", "report_with_claim", "reports_table"]

_RESULT = "membership.json"
_TITLE = "Members found at each rate of false alarms"
_BY_SHADOWS = ("shadow models", "LiRA, online", "LiRA, offline", "RMIA")
_GRADIENTS = 500  # members and others whose own gradients are computed, at most
_FEWEST_KNOWN = 40  # candidates, for an attack model to learn from half of them


def membership(
    run: Run = None,
    model: Model = None,
    data: Data = None,
    declared: Declared = None,
    test: Test = None,
    trust: Trust = False,
    rows: Annotated[int, typer.Option(help="Members that are tried, and as many others.")] = 2000,
    shadows: Annotated[
        int, typer.Option(help="Also train so many shadow models (even), for stronger attacks.")
    ] = 0,
    epochs: Annotated[int, typer.Option(help="Of each shadow model.")] = 30,
    seed: Seed = 0,
    plot: Plot = None,
    as_json: AsJson = False,
) -> None:
    """Tells members of the training set from others, by each attack in turn.

    Examples:
    sfumato attack membership --run runs/a

    sfumato attack membership --run runs/a --shadows 16 --plot curves.png

    sfumato attack membership --model my.py:load --data digits
    """
    if shadows:
        from sfumato.cli.shadowed import FEWEST_SHADOWS
        from sfumato.core import validation

        validation.at_least("shadows", shadows, FEWEST_SHADOWS)
    with working("attacking"):
        what = attacked(run, model, data, declared, test, trust)
        candidates = what.candidates(rows, seed)
        reports, asked = _alone(what, candidates, seed)
        if shadows:
            reports |= _with_shadows(what, candidates, shadows, epochs, seed)
    if plot is not None:
        draw_curves(reports, what.claim, plot)
    found = {
        "attacks": [
            report_with_claim(report, what.claim) | _exposed(what, report, asked[name])
            for name, report in reports.items()
        ]
    }
    kept = what.keep(_RESULT, {"channel": "curator"} | found)
    notes = [CURATOR] + ([] if kept is None else [f"Kept in {kept}"])
    table = reports_table(what.target.name, reports, what.claim)
    show(Group(table, *below(*notes)), found, as_json, {"plot": plot})


def report_with_claim(report: MembershipReport, claim: Guarantee | None) -> dict[str, Any]:
    """JSON-ready, with whether it found more than the claim allows."""
    exceeds = None if claim is None else report.exceeds(claim.epsilon, claim.delta)
    return report.to_dict() | {"exceeds_claim": exceeds}


def _exposed(what: Attacked, report: MembershipReport, candidates: Candidates) -> dict[str, Any]:
    """The most exposed members with their classes, and as pictures where they are images."""
    from sfumato.core.pictures import pack_pictures

    places = report.most_exposed()
    listed = [
        one | {"class": what.data.classes[int(candidates.labels[place])]}
        for one, place in zip(report.to_dict()["most_exposed"], places, strict=True)
    ]
    found: dict[str, Any] = {"most_exposed": listed}
    if candidates.inputs.ndim == 4:
        found["pictures"] = pack_pictures(candidates.inputs[places])
    return found


def _alone(
    what: Attacked, candidates: Candidates, seed: int
) -> tuple[dict[str, MembershipReport], dict[str, Candidates]]:
    """What needs no other model, from the least that is seen to the most; and who was asked."""
    from collections import defaultdict

    import numpy as np

    from sfumato.attacks.membership.label_only import gap_attack, robustness_attack, shifts
    from sfumato.attacks.membership.learned_gradients import (
        known_and_asked,
        learned_gradient_attack,
    )
    from sfumato.attacks.membership.thresholds import loss_attack, threshold_attack
    from sfumato.attacks.membership.white_box import gradient_norm_attack
    from sfumato.attacks.targets import View

    target, generator = what.target, np.random.default_rng(seed)
    asked = defaultdict[str, "Candidates"](lambda: candidates)
    found = {"labels": gap_attack(target.showing(View.LABELS), candidates)}
    if candidates.inputs.ndim == 4:
        found["labels, shifted"] = robustness_attack(
            target.showing(View.LABELS), candidates, shifts(1), generator=generator
        )
    if target.shows(View.SCORES):
        scored = target.showing(View.SCORES)
        found["loss"] = loss_attack(scored, candidates, generator=generator)
        found["modified entropy"] = threshold_attack(
            scored, candidates, "modified-entropy", generator=generator
        )
    if target.shows(View.GRADIENTS):
        asked["gradient norm"] = candidates.balanced(_GRADIENTS, generator=generator)
        found["gradient norm"] = gradient_norm_attack(target, asked["gradient norm"])
        if len(asked["gradient norm"]) >= _FEWEST_KNOWN:
            known, unknown = known_and_asked(asked["gradient norm"], generator)
            asked["learned"] = unknown
            found["learned"] = learned_gradient_attack(target, unknown, known)
    return found, asked


def _with_shadows(
    what: Attacked, candidates: Candidates, shadows: int, epochs: int, seed: int
) -> dict[str, MembershipReport]:
    from sfumato.attacks.candidates import shared_rows
    from sfumato.cli.retrained import retrained_attacks

    if what.taught:
        raise ValueError(
            "shadows must be left out for a run of PATE: they learn from labelled rows, and its "
            "student never does"
        )
    try:
        module = what.target.module
    except ValueError:
        raise ValueError("shadow models need a torch module, to train its like") from None
    features = None
    if what.folder is not None:
        features, module = module[0], module[1]
    outside, labels = what.data.test
    inputs = what.inputs(outside)
    fresh = ~shared_rows(inputs, candidates.inputs)
    reports = retrained_attacks(
        module, candidates, (inputs[fresh][:5000], labels[fresh][:5000]), features=features,
        shadows=shadows, epochs=epochs, seed=seed,
    )  # fmt: skip
    return {name: reports[name] for name in _BY_SHADOWS if name in reports}


# --- what is shown ------------------------------------------------------------------------------


def reports_table(title: str, reports: dict[str, MembershipReport], claim: Guarantee | None) -> Any:
    """One line an attack."""
    claimed = "" if claim is None else f"; claimed epsilon {claim.epsilon:.3g}"
    table = plain_table(f"Who was trained on? {title}{claimed}")
    table.add_column("attack", no_wrap=True)
    for name in ("AUC", "limits", "at 1 %", "0.1 %", "precision", *(["above"] * bool(claimed))):
        table.add_column(name, no_wrap=True, justify="right")
    for name, report in reports.items():
        low, high = report.auc_interval
        powers = [f"{p.found:.1%}" if p.measurable else "-" for p in report.power[:2]]
        precision = report.calls[0].precision
        line = [
            name, f"{report.auc:.3f}", f"{low:.3f}-{high:.3f}", *powers,
            "-" if precision is None else f"{precision:.2f}",
        ]  # fmt: skip
        if claim is not None:
            line.append("YES" if report.exceeds(claim.epsilon, claim.delta) else "no")
        table.add_row(*line)
    return table


def draw_curves(
    reports: dict[str, MembershipReport], claim: Guarantee | None, path: Path, title: str = _TITLE
) -> None:
    """Members found against false alarms, on log axes, with what the claim forbids."""
    from sfumato.reports.membership_figures import membership_roc_figure
    from sfumato.reports.style import save

    curves = [
        (name, report.roc.false_positive_rates, report.roc.true_positive_rates)
        for name, report in reports.items()
    ]
    others = min(report.roc.others for report in reports.values())
    figure = membership_roc_figure(
        curves, epsilon=None if claim is None else claim.epsilon,
        delta=0.0 if claim is None else claim.delta, lowest=0.5 / others, others=others,
        title=title,
    )  # fmt: skip
    save(figure, path)
