"""What attacks and audits found, run by run: blocks of the curator's edition.

Every block is made from files that the run's own commands wrote into its curator's folder:
``membership.json``, ``inversion.json`` and ``audit.json``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import NormalDist
from typing import Any

import numpy as np

from sfumato.core.guarantee import Guarantee, round_up
from sfumato.core.pictures import unpack_pictures
from sfumato.reports.audit_figures import gauge_figure
from sfumato.reports.documents import Block, Cell, Missing, Paragraph, Picture, Table
from sfumato.reports.drawing import as_label
from sfumato.reports.facts import (
    Fact,
    NotOnRecord,
    Sources,
    at_least_text,
    epsilon_text,
    number_text,
    per_cent_text,
)
from sfumato.reports.inversion_figures import inversion_figure
from sfumato.reports.membership_figures import membership_roc_figure, most_exposed_figure
from sfumato.reports.promises import is_sound, promises_something, protects_labels_alone

__all__ = [
    "AUDIT", "INVERSION", "MEMBERSHIP", "audits", "best_attack", "inversions", "memberships",
    "most_exposed", "power", "rate_text", "surely", "with_limits",
]  # fmt: skip

AUDIT, INVERSION, MEMBERSHIP = (
    "curator/audit.json", "curator/inversion.json", "curator/membership.json",
)  # fmt: skip
_RECORD = "record.json#/guarantee"
_LOW_RATES = (0.01, 0.001)  # of false alarms, as the columns of a table say in words
Named = Mapping[str, Sources]


def rate_text(value: float) -> str:
    """An AUC, or a limit of one."""
    return f"{value:.3f}"


# --- membership ---------------------------------------------------------------------------------


def best_attack(sources: Sources) -> str:
    """Where the strongest attack on a run is on record.

    That which surely finds the most members (by the lower limit) at one false alarm in a hundred,
    where that was measured; of several, and where it was not, the one with the largest AUC. To
    find a few members for sure is more than to guess a little better about everybody.

    Raises:
        NotOnRecord: if it was not attacked.
    """
    places = [
        f"{MEMBERSHIP}#/attacks/{place}"
        for place in range(_count(sources, f"{MEMBERSHIP}#/attacks"))
    ]
    known = [
        (_found(sources, at), sources.raw(f"{at}/auc"), at)
        for at in places
        if _is_number(sources, f"{at}/auc")
    ]
    if not known:
        raise NotOnRecord(sources.full(f"{MEMBERSHIP}#/attacks/*/auc"))
    return max(known, key=lambda one: one[:2])[2]


def _found(sources: Sources, at: str) -> float:
    """The share of members found at one false alarm in a hundred, at least; 0 where unknown."""
    try:
        where = _power_place(sources, at, _LOW_RATES[0])
        return float(sources.fact(f"{where}/interval/0").value)
    except (NotOnRecord, TypeError, ValueError):
        return 0.0


def _tells(run: Sources, at: str) -> bool:
    """Whether an attack surely does better than guessing, over all or at few false alarms.

    It is the best of several, each of which beats guessing by luck now and then: their limits are
    widened so that they hold for all attacks at once.
    """
    attacks = _count(run, f"{MEMBERSHIP}#/attacks")
    try:
        where = _power_place(run, at, _LOW_RATES[0])
        found, least = (float(run.raw(f"{where}/{it}")) for it in ("members_found", "interval/0"))
        if _lower(run, at, found, least, attacks) > _LOW_RATES[0]:
            return True
    except (NotOnRecord, TypeError, ValueError):
        pass
    if not _is_number(run, f"{at}/auc_interval/0"):  # a file without limits: what it has, is shown
        return True
    auc, low = (float(run.raw(f"{at}/{place}")) for place in ("auc", "auc_interval/0"))
    return _lower(run, at, auc, low, attacks) > 0.5


def _lower(run: Sources, at: str, value: float, low: float, attacks: int) -> float:
    """A lower limit that holds for so many attacks at once, by the normal law of large samples."""
    place = f"{at}/confidence"
    sure = float(run.raw(place)) if _is_number(run, place) else 0.95
    one, all_of_them = (NormalDist().inv_cdf(1 - (1 - sure) / 2 / n) for n in (1, attacks))
    return value - (value - low) * all_of_them / one


def _count(sources: Sources, place: str) -> int:
    found = sources.raw(place)
    if not isinstance(found, list):
        raise NotOnRecord(sources.full(place))
    return len(found)  # pyright: ignore[reportUnknownArgumentType]


def _is_number(sources: Sources, place: str) -> bool:
    return sources.has(place) and isinstance(sources.raw(place), int | float)


def memberships(runs: Named) -> list[Block]:
    """The strongest attack on each run on one plot, then every attack in a table."""
    blocks: list[Block] = []
    curves: dict[str, tuple[Sequence[float], Sequence[float], int]] = {}
    for name, run in runs.items():
        try:
            blocks += _attacks(name, run)
            curves[name] = _curve(run)
        except NotOnRecord as missing:
            blocks.append(_absent(missing, "attack membership", name))
    if curves:
        blocks.insert(0, _curves(runs, curves))
    return blocks


def _curve(run: Sources) -> tuple[Sequence[float], Sequence[float], int]:
    """Of the strongest attack: false alarms, members found, and how many others were scored."""
    at = best_attack(run)
    roc = f"{at}/roc"
    with run.reading(roc):
        alarms, found = (
            [float(rate) for rate in run.raw(f"{roc}/{name}_positive_rates")]
            for name in ("false", "true")
        )
        if len(alarms) != len(found):
            raise ValueError("as many of either")
    with run.reading(f"{at}/others"):
        return alarms, found, max(1, int(run.fact(f"{at}/others").value))


def _curves(
    runs: Named, curves: Mapping[str, tuple[Sequence[float], Sequence[float], int]]
) -> Picture:
    """Every run's strongest attack, on log axes, and what each run's own claim forbids."""
    others = min(count for *_, count in curves.values())
    claims = {name: claim for name in curves if (claim := _claim(runs[name])) is not None}
    alone = next(iter(claims.values())) if len(curves) == len(claims) == 1 else None
    figure = membership_roc_figure(
        [(as_label(name), alarms, found) for name, (alarms, found, _) in curves.items()],
        epsilon=None if alone is None else alone[0], delta=0.0 if alone is None else alone[1],
        claims=None if alone else {as_label(name): claim for name, claim in claims.items()},
        lowest=0.5 / others, others=others, title="Members found by the strongest attack",
    )  # fmt: skip
    figure.set_size_inches(5.0, 4.4 + 0.09 * len(curves))
    caption = "On log axes."
    if alone is not None:
        caption = "On log axes. Shaded: what the claim forbids to any attack."
    elif claims:
        caption = "On log axes. Dashed, in a run's colour: what its claim forbids lies above. A "
        caption += "claim says nothing about other runs."
    alt = "Members found against false alarms, one curve a run"
    used = ", ".join(runs[name].full(f"{best_attack(runs[name])}/roc") for name in curves)
    return Picture(figure, alt, used, caption)


def _claim(run: Sources) -> tuple[float, float] | None:
    """Epsilon and delta as they are shown, never smaller than they are; None if none holds.

    Private labels forbid no attack that finds out who was trained on.
    """
    if not promises_something(run) or not is_sound(run) or protects_labels_alone(run):
        return None
    try:
        with run.reading(_RECORD):
            claim = Guarantee.from_dict(run.raw(_RECORD))
    except NotOnRecord:
        return None
    return round_up(claim.epsilon, 3), round_up(claim.delta, 3)


def _attacks(name: str, run: Sources) -> list[Block]:
    rows: list[Sequence[Cell]] = []
    above: list[Block] = []
    for place in range(_count(run, f"{MEMBERSHIP}#/attacks")):
        at = f"{MEMBERSHIP}#/attacks/{place}"
        attack = run.fact(f"{at}/attack")
        rows.append(
            (
                attack, _cell(run, f"{at}/auc", rate_text),
                _limits(run, f"{at}/auc_interval", rate_text),
                *(power(run, at, rate) for rate in _LOW_RATES),
            )
        )  # fmt: skip
        if run.has(f"{at}/exceeds_claim") and run.raw(f"{at}/exceeds_claim") is True:
            text = (
                name, ": the attack ", attack, " finds more than the claim allows. The claim does "
                "not hold, or the attack knows more than a release tells.",
            )  # fmt: skip
            above.append(Paragraph(text, "warning"))
    headings = (
        "attack", "AUC", "its limits", "members found at one false alarm in a hundred",
        "at one in a thousand",
    )  # fmt: skip
    places = [f"{MEMBERSHIP}#/attacks/{place}/confidence" for place in range(len(rows))]
    sure = surely([(run, place) for place in places if run.has(place)])
    return [*above, Table(headings, rows, f"Attacks on {name}"), *sure]


def surely(places: Sequence[tuple[Sources, str]], what: str = "Limits hold") -> list[Block]:
    """The confidence of a table's limits, said once where it is one."""
    facts = {fact.text: fact for run, at in places for fact in [run.fact(at, per_cent_text)]}
    pieces: list[str | Fact] = []
    for fact in facts.values():
        pieces += [", or " if pieces else "", fact]
    return [Paragraph((f"{what} with a confidence of ", *pieces, "."), "note")] if facts else []


def _cell(run: Sources, place: str, shown: Any = None) -> Cell:
    try:
        return run.fact(place, shown)
    except NotOnRecord:
        return "not on record"


def with_limits(run: Sources, place: str) -> Cell:
    """A rate with its limits behind it, where they are on record."""
    found = _cell(run, place, rate_text)
    if isinstance(found, Fact):
        return _with(found, _limits(run, f"{place}_interval", rate_text))
    return found


def _with(found: Fact, limits: Cell) -> Cell:
    return (found, " (", *limits, ")") if isinstance(limits, tuple) else found


def _limits(run: Sources, place: str, shown: Any) -> Cell:
    try:
        return run.fact(f"{place}/0", shown), " to ", run.fact(f"{place}/1", shown)
    except NotOnRecord:
        return "not on record"


def power(run: Sources, at: str, rate: float = _LOW_RATES[0], *, limits: bool = False) -> Cell:
    """What is found at a low rate of false alarms, if there were others enough to tell."""
    try:
        where = _power_place(run, at, rate)
        if run.fact(f"{where}/measurable").value is not True:
            return "too few others to tell"
        found = run.fact(f"{where}/members_found", per_cent_text)
        return _with(found, _limits(run, f"{where}/interval", per_cent_text)) if limits else found
    except NotOnRecord:
        return "not on record"


def _power_place(run: Sources, at: str, rate: float) -> str:
    """Where what is found at this rate is on record.

    Raises:
        NotOnRecord: if it is not.
    """
    for place in range(_count(run, f"{at}/power")):
        where = f"{at}/power/{place}"
        if run.fact(f"{where}/false_alarms").value == rate:
            return where
    raise NotOnRecord(run.full(f"{at}/power"))


def most_exposed(runs: Named) -> list[Block]:
    """The members that the strongest attack is surest of: pictures, or rows."""
    blocks: list[Block] = []
    for name, run in runs.items():
        try:
            at = best_attack(run)
            if not _tells(run, at):
                text = f"{name}: no attack tells its members from others, as far as these results "
                text += "can show. So nobody stands out, and nobody is shown."
                blocks.append(Paragraph(text))
                continue
            pictured = run.has(f"{at}/pictures")
            blocks.append(_pictured(name, run, at) if pictured else _listed(name, run, at))
        except NotOnRecord as missing:
            blocks.append(_absent(missing, "attack membership", name))
    return blocks


def _pictured(name: str, run: Sources, at: str) -> Picture:
    exposed = run.raw(f"{at}/most_exposed")
    with run.reading(f"{at}/most_exposed"):
        scores = [float(one["score"]) for one in exposed]
        words = [as_label(str(one.get("class", ""))) for one in exposed]
    with run.reading(f"{at}/pictures"):
        images = _channels_last(unpack_pictures(run.raw(f"{at}/pictures")))
        shown = min(len(images), len(scores))
        title = f"Most exposed, {as_label(name)}"
        figure = most_exposed_figure(images[:shown], scores[:shown], words[:shown], title=title)
    alt = f"The members of {name} that the strongest attack is surest of"
    return Picture(figure, alt, run.full(f"{at}/pictures"))


def _listed(name: str, run: Sources, at: str) -> Table:
    rows: list[Sequence[Cell]] = []
    for place in range(_count(run, f"{at}/most_exposed")):
        where = f"{at}/most_exposed/{place}"
        label = run.fact(f"{where}/class") if run.has(f"{where}/class") else ""
        score = run.fact(f"{where}/score", number_text)
        rows.append((run.fact(f"{where}/candidate"), label, score))
    return Table(("candidate", "class", "score"), rows, f"Most exposed, {name}")


# --- inversion ----------------------------------------------------------------------------------


def inversions(runs: Named) -> list[Block]:
    """Pictures of classes, one row a run, and what an independent judge said of them."""
    blocks: list[Block] = []
    alike: dict[tuple[str, ...], list[tuple[str, Any, list[bool]]]] = {}
    table: list[Sequence[Cell]] = []
    for name, run in runs.items():
        try:
            classes, images, seen = _inverted(run)
            accuracy = f"{INVERSION}#/recognition/accuracy"
            told = (
                name, run.fact(accuracy, per_cent_text),
                _limits(run, f"{accuracy}_interval", per_cent_text),
                _cell(run, f"{INVERSION}#/closeness/verdict"),
            )  # fmt: skip
        except NotOnRecord as missing:
            blocks.append(_absent(missing, "attack inversion", name))
            continue
        alike.setdefault(classes, []).append((name, images, seen))
        table.append(told)
    pictures = [_prototypes(runs, classes, rows) for classes, rows in alike.items()]
    if table:
        headings = ("run", "recognised", "its limits", "what they are")
        sure = f"{INVERSION}#/recognition/confidence"
        known = [(run, sure) for run in runs.values() if run.has(sure)]
        blocks = [Table(headings, table), *surely(known), *blocks]
    return [*pictures, *blocks]


def _inverted(run: Sources) -> tuple[tuple[str, ...], Any, list[bool]]:
    """The names of classes, a picture of each, and whether it was recognised."""
    judged = run.raw(f"{INVERSION}#/recognition/by_class")
    with run.reading(f"{INVERSION}#/pictures"):
        images = unpack_pictures(run.raw(f"{INVERSION}#/pictures"))
        if images.ndim not in (3, 4) or not images.size:
            raise ValueError("pictures have a height and a width")
    with run.reading(f"{INVERSION}#/names"):
        classes = tuple(str(name) for name in run.raw(f"{INVERSION}#/names"))
        if len(classes) != len(images):
            raise ValueError("a name for each picture")
    with run.reading(f"{INVERSION}#/recognition/by_class"):
        labels = [str(label) for label in run.raw(f"{INVERSION}#/classes")]
        seen = [bool(judged[label]["first"]) for label in labels]
        if len(seen) != len(images):
            raise ValueError("a judgement for each picture")
    return classes, images, seen


def _prototypes(
    runs: Named, classes: tuple[str, ...], rows: Sequence[tuple[str, Any, list[bool]]]
) -> Picture:
    figure = inversion_figure(
        [(as_label(name), images, seen) for name, images, seen in rows],
        [as_label(name) for name in classes],
    )
    alt = "A picture of each class, read off each model; recognised ones are framed"
    caption = "Framed in orange: an independent network recognised the class."
    used = ", ".join(runs[name].full(f"{INVERSION}#/pictures") for name, *_ in rows)
    return Picture(figure, alt, used, caption)


# --- audits -------------------------------------------------------------------------------------


def audits(runs: Named) -> list[Block]:
    """One gauge: what audits found at least, against what was claimed."""
    blocks: list[Block] = []
    lines: list[tuple[str, float, float]] = []
    used: list[str] = []
    for name, run in runs.items():
        if promises_something(run) is False:
            continue
        try:
            found = run.fact(f"{AUDIT}#/epsilon_at_least", at_least_text)
            claim = run.fact(f"{AUDIT}#/claim/epsilon", epsilon_text)
            blocks += _audited(name, run, found, claim)
        except NotOnRecord as missing:
            remedy = "Runs of DP-SGD need canaries to be audited (sfumato train ... --canaries)."
            blocks.append(_absent(missing, "audit", name, remedy))
            continue
        at_least, at_most = float(found.value), float(claim.value)
        if at_least > -math.inf and math.isfinite(at_most):
            lines.append((as_label(name), at_least, at_most))
            used.append(run.full(AUDIT))
    if lines:
        figure = gauge_figure(lines)
        figure.set_size_inches(5.0, 1.3 + 0.6 * len(lines))
        alt = "What audits found at least, against what was claimed"
        blocks.insert(0, Picture(figure, alt, ", ".join(used)))
        note = (
            "An audit can refute a claim and cannot prove one: an attacker may do better than "
            "was tried."
        )
        blocks.append(Paragraph(note, "note"))
    return blocks


def _audited(name: str, run: Sources, found: Fact, claim: Fact) -> list[Block]:
    verdict = run.fact(f"{AUDIT}#/verdict")
    said = (
        name, ": epsilon is at least ", found, *_supposed(run), ", and ", claim,
        " is claimed (confidence ", run.fact(f"{AUDIT}#/confidence", number_text),
        *_by_what(run), "). Verdict: ", verdict, *_reach(run), ".",
    )  # fmt: skip
    blocks: list[Block] = [Paragraph(said, "plain" if verdict.value == "consistent" else "warning")]
    recorded, audited = f"{_RECORD}/epsilon", f"{AUDIT}#/claim/epsilon"
    if run.has(recorded) and run.raw(recorded) != run.raw(audited):
        text = (
            name, ": what was audited is not what the record claims now, which is epsilon ",
            run.fact(recorded, epsilon_text), ". Audit it again.",
        )  # fmt: skip
        blocks.append(Paragraph(text, "warning"))
    return blocks


def _supposed(run: Sources) -> tuple[str | Fact, ...]:
    """What the bound takes for granted."""
    at = f"{AUDIT}#/assumption"
    return (" if ", run.fact(at)) if run.has(at) and run.raw(at) else ()


def _reach(run: Sources) -> tuple[str | Fact, ...]:
    """What is wrong with the scores, and what could have been found at most."""
    remark, most = f"{AUDIT}#/remark", f"{AUDIT}#/most_that_could_be_shown"
    said: tuple[str | Fact, ...] = ()
    if run.has(remark) and run.raw(remark):
        said = "; ", run.fact(remark)
    if run.has(most):
        said += "; at most epsilon ", run.fact(most, at_least_text), " could have been shown"
    return said


def _by_what(run: Sources) -> tuple[str | Fact, ...]:
    """What an audit went by: a run's canaries, or what else its method leaves."""
    for fact, words in (("canaries", " canaries"), ("games", " games"), ("rows", " reports")):
        if run.has(f"{AUDIT}#/facts/{fact}"):
            return ", ", run.fact(f"{AUDIT}#/facts/{fact}"), words
    if run.has(f"{AUDIT}#/facts/what"):
        return "; ", run.fact(f"{AUDIT}#/facts/what")
    return ()


def _channels_last(images: Any) -> Any:
    values = np.asarray(images)
    return np.moveaxis(values, 1, 3) if values.ndim == 4 and values.shape[1] in (1, 3) else values


def _absent(missing: NotOnRecord, command: str, name: str, remedy: str = "") -> Missing:
    words = f"{remedy} Beside the run, make it with:".strip()
    return Missing(str(missing), words, f"sfumato {command} --run {name}")
