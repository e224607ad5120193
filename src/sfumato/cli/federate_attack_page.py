"""What ``sfumato federate attack`` found: as a table, a figure and a page. For the curator only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from sfumato.cli.output import number, plain_table
from sfumato.core.pictures import unpack_pictures

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.table import Table as RichTable

    from sfumato.cli.federate_attack_rows import Row

__all__ = ["ATTACKS", "cautions", "cell_name", "matrix_figure", "matrix_page", "matrix_table"]

ATTACKS = {
    "one": "server, one image",
    "four": "server, four images",
    "gan": "participant, GAN",
    "outsider": "outsider, copy",
}
_NAMES = 20  # the width of defences on a terminal
_PICTURED = ("one", "four", "gan")
_FEW = {"one": 3, "four": 4, "gan": 5}

Cells = Mapping[str, Mapping[str, Any]]


def cell_name(attack: str, row: str) -> str:
    """Of a cell in ``matrix.json``."""
    return f"{attack}: {row}"


def matrix_table(rows: Sequence[Row], cells: Cells, data: str) -> RichTable:
    """On the terminal."""
    table = plain_table(f"Attacks inside a federation, {data}")
    for place, head in enumerate(_SHORT):
        if place:
            table.add_column(head, justify="right")
        else:
            table.add_column(head, width=_NAMES)
    for row in rows:
        table.add_row(*_line(row, cells))
    return table


_HEADINGS = (
    "defence", "epsilon, server", "epsilon, released", "one image, dB", "four images, dB",
    "GAN: judge sees it", "copy agrees", "accuracy",
)  # fmt: skip


_SHORT = (
    "defence", "eps, server", "eps, models", "one, dB", "four, dB", "GAN", "copy", "right",
)  # fmt: skip


def _line(row: Row, cells: Cells) -> list[str]:
    found = {attack: cells.get(cell_name(attack, row.name)) for attack in ATTACKS}
    some = next((one for one in found.values() if one is not None), None)
    promised = ["-", "-"] if some is None else [_epsilon(some["promises"][o]) for o in _OBSERVERS]
    return [row.name, *promised, *(_score(a, c, False) for a, c in found.items()), _accuracy(found)]


_OBSERVERS = ("server", "released models")


def _epsilon(promise: Mapping[str, Any] | None) -> str:
    return "none" if promise is None else number(float(promise["epsilon"]))


def _score(attack: str, cell: Mapping[str, Any] | None, unit: bool = True) -> str:
    if cell is None:
        return "-"
    value = float(cell["value"])
    if attack in ("one", "four"):
        return f"{value:.1f}" + " dB" * unit
    mark = "*" if has_learnt_little(cell) else ""
    beside = f" ({100 * cell['constant']:.0f})" if "constant" in cell else ""
    return f"{100 * value:.0f}{beside} %{mark}"


def has_learnt_little(cell: Mapping[str, Any]) -> bool:
    """Whether the model that was attacked is wrong more often than right."""
    return cell.get("accuracy") is not None and cell["accuracy"] < 0.5


def cautions(cells: Cells, queries: int) -> list[str]:
    """What a reader of the scores must know besides, as it came out."""
    found: list[str] = []
    if any(has_learnt_little(cell) for cell in cells.values()):
        found.append(
            "* The model under attack is right in less than half of the cases. There is little to "
            "copy or to draw: give the federation more rounds before comparing defences."
        )
    copies = [cell for cell in cells.values() if "constant" in cell]
    if copies:
        found.append(
            "Copy, in brackets: the agreement of what always answers the model's commonest class."
        )
    asked = {int(cell["queries"]) for cell in copies if cell["queries"] < queries}
    if asked:
        numbers = ", ".join(map(str, sorted(asked)))
        found.append(
            f"The outsider asked {numbers} of {queries} questions: there are no more public "
            "pictures."
        )
    return found


def _accuracy(found: Mapping[str, Mapping[str, Any] | None]) -> str:
    cell = found["outsider"] or found["gan"]
    return "-" if cell is None or cell.get("accuracy") is None else f"{cell['accuracy']:.1%}"


# --- pictures -----------------------------------------------------------------------------------


def matrix_figure(rows: Sequence[Row], cells: Cells, data: str) -> Figure:
    """Everything at a glance."""
    from sfumato.reports.collaborative_figures import MatrixLine, collaborative_figure

    shown = [a for a in _PICTURED if any(cell_name(a, row.name) in cells for row in rows)]
    firsts = [_pictures(_first(attack, rows, cells), "originals", attack) for attack in shown]
    lines = [
        MatrixLine("original", "", firsts, [""] * len(shown), ["", ""]),
    ]
    for row in rows:
        found = {attack: cells.get(cell_name(attack, row.name)) for attack in ATTACKS}
        lines.append(
            MatrixLine(
                row.name,
                _promised(row, found),
                [_pictures(found[attack], "pictures", attack) for attack in shown],
                [_score(attack, found[attack]) for attack in shown],
                [_score("outsider", found["outsider"]), _accuracy(found)],
            )
        )
    return collaborative_figure(
        lines,
        [ATTACKS[attack] for attack in shown],
        ("outsider,\ncopy agrees", "model's\naccuracy"),
        title=f"What attackers get out of a federation, {data}",
    )


def _promised(row: Row, found: Mapping[str, Mapping[str, Any] | None]) -> str:
    some = next((one for one in found.values() if one is not None), None)
    if some is None or row.epsilon is None:
        return "no guarantee"
    server, released = (_epsilon(some["promises"][name]) for name in _OBSERVERS)
    if server == "none":
        return f"epsilon {released} for released models; server: nothing"
    return f"epsilon {server} against the server"


def _first(attack: str, rows: Sequence[Row], cells: Cells) -> Mapping[str, Any] | None:
    return next((c for row in rows if (c := cells.get(cell_name(attack, row.name)))), None)


def _pictures(cell: Mapping[str, Any] | None, which: str, attack: str) -> Any:
    if cell is None or which not in cell:
        return None
    return unpack_pictures(cell[which])[: _FEW[attack]]


def _attack_figure(attack: str, rows: Sequence[Row], cells: Cells) -> Figure | None:
    """The originals, then a row for each defence."""
    from sfumato.reports.inversion_figures import inversion_figure

    first = _first(attack, rows, cells)
    if first is None:
        return None
    few = min(_FEW[attack], len(unpack_pictures(first["originals"])))
    lines: list[Any] = [("original", unpack_pictures(first["originals"])[:few], None)]
    for row in rows:
        cell = cells.get(cell_name(attack, row.name))
        if cell is None:
            continue
        images = unpack_pictures(cell["pictures"])[:few]
        blank = np.ones((few - len(images), *images.shape[1:]))
        seen = cell.get("seen")
        lines.append(
            (
                f"{row.name}\n{_score(attack, cell)}",
                np.concatenate([images, blank]),
                None if seen is None else seen[:few],
            )
        )
    return inversion_figure(lines, [""] * few, title=ATTACKS[attack].capitalize())


# --- the page -----------------------------------------------------------------------------------


def matrix_page(
    rows: Sequence[Row], cells: Cells, data: str, asked: Mapping[str, Any], floors: Cells
) -> str:
    """Everything, as one file of HTML that asks no other machine for anything."""
    from sfumato.reports.pages import Picture, Table, Text, page

    parts: list[Any] = [
        Text("Curator's edition: made from private records, some of which are on it. Not for "
             "publication."),
        Table(_HEADINGS, [_line(row, cells) for row in rows], "Attack by defence"),
        *(Text(line, "note") for line in _notes(asked, floors, cells)),
        Picture(matrix_figure(rows, cells, data), "Reconstructed pictures by attack and defence"),
    ]  # fmt: skip
    for attack in _PICTURED:
        drawn = _attack_figure(attack, rows, cells)
        if drawn is not None:
            parts += [Text(ATTACKS[attack].capitalize(), "h2"), Text(_ABOUT[attack])]
            parts.append(Picture(drawn, f"{ATTACKS[attack]}: original, then by defence"))
    parts += [Text(ATTACKS["outsider"].capitalize(), "h2"), Text(_ABOUT["outsider"])]
    return page(f"Attacks inside a federation, {data}", parts)


def _notes(asked: Mapping[str, Any], floors: Cells, cells: Cells) -> list[str]:
    return [
        "dB: likeness of reconstructed pictures to the originals (PSNR), in the mean, of the "
        "strongest of several searches. "
        + "".join(
            f"Who saw nothing and answers the public's mean picture has {cell['value']:.1f} dB "
            f"({ATTACKS[name]}). "
            for name, cell in floors.items()
            if name in ("one", "four")
        ),
        "GAN: how often an independent judge, who may say that it is nothing, sees the victim's "
        "class in what the participant draws."
        + (
            f" Where nobody has the class: {100 * floors['gan']['value']:.0f} %."
            if "gan" in floors
            else ""
        ),
        "Copy agrees: with the served model on public pictures. A model that always answers the "
        "same is copied perfectly. Accuracy: of the shared model, without attackers.",
        *cautions(cells, asked["queries"]),
        "Epsilon is of all rounds of the run in question, calibrated for it, delta "
        f"{asked['delta']:g}. The server's attack is on a run of one round: all of epsilon is in "
        "one message. 'none': no guarantee against that observer.",
        "Coins are seeded, so that the page can be made again: these are simulations of attacks, "
        "and nothing here is a private release. Epsilon is what fresh coins would promise.",
        "A secure sum changes nothing for those who see models: its row repeats what no defence "
        "gives them.",
    ]


_ABOUT = {
    "one": "Each member has one image. The server inverts the messages of single members, as it "
    "received them; under a secure sum, the sum.",
    "four": "Each member has four images, all of them in her message.",
    "gan": "One of the participants trains a generator against the shared model, and poisons it. "
    "Orange frames: the judge sees the class. What comes out are prototypes of a class and no "
    "records, so that privacy of records does not promise to stop it.",
    "outsider": "Who may ask the served model for probabilities trains a copy on the answers. "
    "Differential privacy protects records, not the model: it does not promise to stop that.",
}
