"""What attacks and audits found, run by run: blocks of the curator's edition.

Every block is made from files that the run's own commands wrote into its curator's folder:
``membership.json``, ``inversion.json`` and ``audit.json``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sfumato.core.pictures import unpack_pictures
from sfumato.reports.audit_figures import gauge_figure
from sfumato.reports.documents import Block, Cell, Missing, Paragraph, Picture, Table
from sfumato.reports.facts import (
    NotOnRecord,
    Sources,
    epsilon_text,
    number_text,
    per_cent_text,
)
from sfumato.reports.inversion_figures import inversion_figure
from sfumato.reports.membership_figures import membership_roc_figure, most_exposed_figure

__all__ = [
    "AUDIT", "INVERSION", "MEMBERSHIP", "audits", "best_attack", "inversions", "memberships",
    "most_exposed", "power",
]  # fmt: skip

AUDIT, INVERSION, MEMBERSHIP = (
    "curator/audit.json", "curator/inversion.json", "curator/membership.json",
)  # fmt: skip
_RECORD = "record.json#/guarantee"
Named = Mapping[str, Sources]


def best_attack(sources: Sources) -> str:
    """Where the strongest attack on a run is on record: that with the largest AUC.

    Raises:
        NotOnRecord: if it was not attacked.
    """
    attacks = sources.raw(f"{MEMBERSHIP}#/attacks")
    best = max(range(len(attacks)), key=lambda place: attacks[place]["auc"])
    return f"{MEMBERSHIP}#/attacks/{best}"


def memberships(runs: Named) -> list[Block]:
    """The strongest attack on each run on one plot, then every attack in a table."""
    blocks: list[Block] = []
    attacked = {name: run for name, run in runs.items() if run.has(MEMBERSHIP)}
    if attacked:
        blocks.append(_curves(attacked))
    for name, run in runs.items():
        if name in attacked:
            blocks.append(_attacks(name, run))
        else:
            blocks.append(Missing(f"{name}/{MEMBERSHIP}", _remedy("attack membership", name)))
    return blocks


def _curves(runs: Named) -> Picture:
    """Every run's strongest attack, on log axes."""
    curves: list[tuple[str, Any, Any]] = []
    others = min(run.raw(f"{best_attack(run)}/others") for run in runs.values())
    claims = [float(run.raw(f"{_RECORD}/epsilon")) for run in runs.values() if run.has(_RECORD)]
    for name, run in runs.items():
        roc = run.raw(f"{best_attack(run)}/roc")
        curves.append((name, roc["false_positive_rates"], roc["true_positive_rates"]))
    strictest = min((e for e in claims if math.isfinite(e)), default=None)
    figure = membership_roc_figure(
        curves, epsilon=strictest, lowest=0.5 / others, others=others,
        title="Members found by the strongest attack",
    )  # fmt: skip
    figure.set_size_inches(5.8, 5.0)
    caption = (
        "On log axes."
        if strictest is None
        else (
            "On log axes; shaded is what the smallest of the claims forbids to attacks on that run."
        )
    )
    alt = "Members found against false alarms, one curve a run"
    return Picture(figure, alt, f"*/{MEMBERSHIP}#/attacks/*/roc", caption)


def _attacks(name: str, run: Sources) -> Table:
    rows: list[Sequence[Cell]] = []
    for place, _ in enumerate(run.raw(f"{MEMBERSHIP}#/attacks")):
        at = f"{MEMBERSHIP}#/attacks/{place}"
        rows.append(
            (
                run.fact(f"{at}/attack"),
                run.fact(f"{at}/auc", lambda auc: f"{auc:.3f}"),
                (run.fact(f"{at}/auc_interval/0", lambda x: f"{x:.3f}"), " to ",
                 run.fact(f"{at}/auc_interval/1", lambda x: f"{x:.3f}")),
                power(run, at, 0),
                power(run, at, 1),
                run.fact(f"{at}/exceeds_claim") if run.has(f"{at}/exceeds_claim") else "",
            )
        )  # fmt: skip
    headings = (
        "attack", "AUC", "limits", "found at one false alarm in a hundred", "in a thousand",
        "above the claim",
    )  # fmt: skip
    return Table(headings, rows, f"Who was trained on? {name}")


def power(run: Sources, at: str, place: int) -> Cell:
    """What is found at a low rate of false alarms, if there were others enough to tell."""
    where = f"{at}/power/{place}"
    if not run.has(where) or not run.raw(where).get("measurable", True):
        return "too few others"
    return run.fact(f"{where}/members_found", per_cent_text)


def most_exposed(runs: Named) -> list[Block]:
    """The members that the strongest attack is surest of: pictures, or rows."""
    blocks: list[Block] = []
    for name, run in runs.items():
        try:
            at = best_attack(run)
            exposed = run.raw(f"{at}/most_exposed")
            scores = [float(one["score"]) for one in exposed]
            if run.has(f"{at}/pictures"):
                images = unpack_pictures(run.raw(f"{at}/pictures"))[: len(scores)]
                words = [str(one.get("class", "")) for one in exposed][: len(images)]
                figure = most_exposed_figure(
                    _channels_last(images), scores[: len(images)], words,
                    title=f"Most exposed, {name}",
                )  # fmt: skip
                alt = f"The members of {name} that the strongest attack is surest of"
                blocks.append(Picture(figure, alt, f"{name}/{at}/pictures"))
            else:
                rows = [
                    (run.fact(f"{at}/most_exposed/{place}/candidate"),
                     run.fact(f"{at}/most_exposed/{place}/score", number_text))
                    for place, _ in enumerate(exposed)
                ]  # fmt: skip
                blocks.append(Table(("candidate", "score"), rows, f"Most exposed, {name}"))
        except NotOnRecord as missing:
            blocks.append(Missing(str(missing), _remedy("attack membership", name)))
    return blocks


def inversions(runs: Named) -> list[Block]:
    """Pictures of classes, one row a run, and what an independent judge said of them."""
    blocks: list[Block] = []
    rows: list[tuple[str, Any, Any]] = []
    table: list[Sequence[Cell]] = []
    classes: list[str] = []
    for name, run in runs.items():
        try:
            images = unpack_pictures(run.raw(f"{INVERSION}#/pictures"))
            judged: dict[str, Any] = run.raw(f"{INVERSION}#/recognition/by_class")
            classes = run.raw(f"{INVERSION}#/names")
            seen = [bool(one["first"]) for one in judged.values()]
            rows.append((name, images, seen))
            table.append(
                (name, run.fact(f"{INVERSION}#/recognition/accuracy", per_cent_text),
                 (run.fact(f"{INVERSION}#/recognition/accuracy_interval/0", per_cent_text), " to ",
                  run.fact(f"{INVERSION}#/recognition/accuracy_interval/1", per_cent_text)))
            )  # fmt: skip
        except NotOnRecord as missing:
            blocks.append(Missing(str(missing), _remedy("attack inversion", name)))
    if rows:
        same = [row for row in rows if len(row[1]) == len(classes)]
        figure = inversion_figure(same, classes)
        alt = "A picture of each class, read off each model; recognised ones are framed"
        caption = (
            "Framed: an independent network recognised the class. These are prototypes of a class, "
            "not records."
        )
        blocks.insert(0, Picture(figure, alt, f"*/{INVERSION}#/pictures", caption))
        blocks.append(Table(("run", "recognised", "limits"), table))
    return blocks


def audits(runs: Named) -> list[Block]:
    """One gauge: what audits found at least, against what was claimed."""
    blocks: list[Block] = []
    lines: list[tuple[str, float, float]] = []
    for name, run in runs.items():
        if run.has(f"{_RECORD}/epsilon") and math.isinf(float(run.raw(f"{_RECORD}/epsilon"))):
            continue
        try:
            found = run.fact(f"{AUDIT}#/epsilon_at_least", epsilon_text)
            claim = run.fact(f"{AUDIT}#/claim/epsilon", epsilon_text)
        except NotOnRecord as missing:
            remedy = "Only runs with canaries can be audited: train with --canaries."
            blocks.append(Missing(str(missing), remedy))
            continue
        lines.append((name, float(found.value), float(claim.value)))
        blocks.append(
            Paragraph(
                (name, ": at least epsilon ", found, " of ", claim, " claimed, with confidence ",
                 run.fact(f"{AUDIT}#/confidence", per_cent_text), "; ",
                 run.fact(f"{AUDIT}#/facts/canaries"), " canaries, ",
                 run.fact(f"{AUDIT}#/verdict"), ".")
            )
        )  # fmt: skip
    if lines:
        alt = "What audits found at least, against what was claimed"
        blocks.insert(0, Picture(gauge_figure(lines), alt, f"*/{AUDIT}"))
        note = (
            "An audit can refute a claim and cannot prove one: an attacker may do better than "
            "the canaries show."
        )
        blocks.append(Paragraph(note, "note"))
    return blocks


def _channels_last(images: Any) -> Any:
    values = np.asarray(images)
    return np.moveaxis(values, 1, 3) if values.ndim == 4 and values.shape[1] in (1, 3) else values


def _remedy(command: str, name: str) -> str:
    return f"Make it with: sfumato {command} --run {name}"
