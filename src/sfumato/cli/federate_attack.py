"""``sfumato federate attack``: what a server, a participant and an outsider get, by defence."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, final

import typer
from rich.console import Group

from sfumato.cli.options import AsJson
from sfumato.cli.output import console, kept_for_later
from sfumato.cli.statistics_attacks import CURATOR, below, show
from sfumato.core import validation

if TYPE_CHECKING:
    from sfumato.cli.federate_attack_rows import Row
    from sfumato.cli.federate_attack_world import World

__all__ = ["attack"]

_MATRIX, _PAGE, _FIGURE = "matrix.json", "page.html", "matrix.png"
_WHO = ("server", "gan", "outsider")
_OF = {"one": "server", "four": "server", "gan": "gan", "outsider": "outsider"}
_ROWS, _MEMBERS, _OUTSIDE = 10_000, 10, 5
_VERSION = 1
_EPSILONS = {False: (8.0, 3.0, 1.0), True: (8.0,)}  # by whether it is to be quick
_SUMS = {False: (1, 10, 100), True: (1, 10)}


def attack(
    data: Annotated[str, typer.Option(help="Pictures: mnist, digits, cifar10, ...")] = "mnist",
    network: Annotated[
        str,
        typer.Option(help="Whose messages the server inverts: leaky-cnn, relu-cnn, cnn, ..."),
    ] = "leaky-cnn",
    iterations: Annotated[int, typer.Option(help="Of a search of the server.")] = 300,
    rounds: Annotated[int, typer.Option(help="With a GAN among members, or to be copied.")] = 100,
    epsilon: Annotated[
        list[float] | None, typer.Option(help="Once for each; 8, 3 and 1 by default.")
    ] = None,
    members: Annotated[
        list[int] | None,
        typer.Option(help="Of a secure sum, once for each; 1, 10 and 100 by default."),
    ] = None,
    queries: Annotated[
        int, typer.Option(help="That the outsider may ask, at most all public pictures.")
    ] = 2000,
    delta: Annotated[float, typer.Option(help="At which epsilon is stated.")] = 1e-5,
    only: Annotated[
        list[str] | None, typer.Option(help="server, gan or outsider; all by default.")
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Few rounds and steps, to see that it works.")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(help="A folder for matrix.json, matrix.png and page.html, the owner's alone."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Of everything: the same gives the same.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Attacks a federation from three sides, under every defence: one page, for the curator.

    The server inverts messages, a participant trains a GAN against the shared model, an outsider
    copies the served one. Finished cells are kept in --out: the same command goes on from there.

    Examples:
    sfumato federate attack --data mnist --out attacks

    sfumato federate attack --data digits --quick --only server
    """
    asked: dict[str, Any] = {
        "version": _VERSION, "data": data, "network": network,
        "iterations": validation.count("iterations", 20 if quick else iterations),
        "rounds": validation.count("rounds", 3 if quick else rounds),
        "epsilon": [validation.positive("epsilon", each) for each in epsilon or _EPSILONS[quick]],
        "members": [validation.count("members", n) for n in members or _SUMS[quick]],
        "queries": validation.count("queries", queries),
        "delta": validation.open_probability("delta", delta),
        "quick": quick, "seed": validation.at_least("seed", seed, 0),
    }  # fmt: skip
    wanted = _wanted(only)
    from sfumato.cli.compared_folder import comparison_in

    with (
        comparison_in(out, asked) if out is not None else nullcontext(),
        kept_for_later(out) if out is not None else nullcontext(),
    ):
        matrix = _Matrix.begun(asked, out)
        matrix.fill(wanted)
        drawn = matrix.draw()
    _tell(matrix, drawn, as_json)


def _wanted(only: list[str] | None) -> tuple[str, ...]:
    for each in only or ():
        if each not in _WHO:
            validation.fail("only", f"one of {', '.join(_WHO)}", each)
    return tuple(each for each in _WHO if not only or each in only)


@final
@dataclass
class _Matrix:
    """The cells, as they come.

    Attributes:
        asked: all that they depend on.
        folder: where they are kept, if anywhere.
        rows: the defences.
        cells: by name.
        floors: by attack: what who saw nothing would get.
    """

    asked: dict[str, Any]
    folder: Path | None
    rows: list[Row]
    cells: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    floors: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])

    @classmethod
    def begun(cls, asked: dict[str, Any], folder: Path | None) -> _Matrix:
        """With what an earlier call has left in the folder."""
        from sfumato.cli.federate_attack_rows import all_rows

        made = cls(asked, folder, all_rows(asked["epsilon"], asked["members"]))
        if folder is not None and (folder / _MATRIX).exists():
            there = json.loads((folder / _MATRIX).read_text())
            made.cells, made.floors = there["cells"], there["floors"]
        return made

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready, with the pictures."""
        return {
            "channel": "curator", "asked": self.asked, "floors": self.floors, "cells": self.cells
        }  # fmt: skip

    # --- computing ------------------------------------------------------------------------------

    def fill(self, wanted: tuple[str, ...]) -> None:
        """Computes what is missing, cell by cell, each kept at once."""
        due = [each for each in self._due(wanted) if each[0] not in each[1]]
        if not due:
            return
        said = console(stderr=True)
        with said.status("reading ...") as status:
            world = self._world()
            for done, (name, where, work) in enumerate(due):
                heading = f"{done + 1} of {len(due)}: {name}"

                def told(facts: Any, heading: str = heading) -> None:
                    status.update(f"{heading}, round {facts.number} of {facts.rounds} ...")

                status.update(f"{heading} ...")
                where[name] = work(world, told)
                self._keep()

    def _due(self, wanted: tuple[str, ...]) -> Iterator[tuple[str, dict[str, Any], _Work]]:
        """Every cell: its name, where it belongs, and what makes it."""
        from sfumato.cli.federate_attack_page import cell_name
        from sfumato.cli.federate_attack_rows import Row

        for kind in (each for each, who in _OF.items() if who in wanted):
            if kind != "outsider":
                yield kind, self.floors, self._floor(kind)
            for row in self.rows:
                plain = row.kind == "secure" and kind not in ("one", "four")
                name = cell_name(kind, row.name)
                if plain:
                    same = cell_name(kind, Row("none").name)
                    yield (
                        name,
                        self.cells,
                        lambda _w, _t, same=same: self.cells[same] | {"as": same},
                    )
                else:
                    yield name, self.cells, self._attack(kind, row)

    def _attack(self, kind: str, row: Row) -> _Work:
        asked = self.asked

        def work(world: World, told: Any) -> dict[str, Any]:
            from sfumato.cli.federate_attack_gan import run_gan
            from sfumato.cli.federate_attack_networks import named_network
            from sfumato.cli.federate_attack_outsider import copy_model
            from sfumato.cli.federate_attack_server import invert_round

            if kind == "gan":
                return run_gan(world, row, rounds=asked["rounds"], delta=asked["delta"], told=told)
            if kind == "outsider":
                return copy_model(
                    world, row, rounds=asked["rounds"], members=_OUTSIDE,
                    queries=asked["queries"], delta=asked["delta"], told=told,
                )  # fmt: skip
            return invert_round(
                world, row, 4 if kind == "four" else 1, network=named_network(asked["network"]),
                members=_MEMBERS, victims=_victims(kind, asked["quick"]),
                iterations=asked["iterations"], delta=asked["delta"],
            )  # fmt: skip

        return work

    def _floor(self, kind: str) -> _Work:
        def work(world: World, told: Any) -> dict[str, Any]:
            from sfumato.cli.federate_attack_gan import run_gan
            from sfumato.cli.federate_attack_rows import Row
            from sfumato.cli.federate_attack_server import server_floor

            if kind == "gan":
                asked = self.asked
                return run_gan(
                    world, Row("none"), rounds=asked["rounds"], delta=asked["delta"],
                    control=True, told=told,
                )  # fmt: skip
            victims = _victims(kind, self.asked["quick"])
            return {"value": server_floor(world, 4 if kind == "four" else 1, victims)}

        return work

    def _world(self) -> World:
        from sfumato.cli.federate_attack_world import world_of
        from sfumato.data import load_dataset

        return world_of(load_dataset(self.asked["data"]), self.asked["seed"], _ROWS)

    # --- keeping --------------------------------------------------------------------------------

    def _keep(self) -> None:
        if self.folder is not None:
            from sfumato.learning.durable import write_whole

            write_whole(self.folder / _MATRIX, json.dumps(self.to_dict()).encode())

    def draw(self) -> list[str]:
        """The page and its main figure, in the folder."""
        if self.folder is None:
            return []
        from sfumato.cli.federate_attack_page import matrix_figure, matrix_page
        from sfumato.learning.durable import write_whole
        from sfumato.reports.style import save

        shown = matrix_page(self.rows, self.cells, self.asked["data"], self.asked, self.floors)
        write_whole(self.folder / _PAGE, shown.encode())
        picture = self.folder / _FIGURE
        picture.touch(mode=0o600)
        save(matrix_figure(self.rows, self.cells, self.asked["data"]), picture)
        return [str(self.folder / name) for name in (_MATRIX, _FIGURE, _PAGE)]


_Work = Callable[["World", Any], dict[str, Any]]


def _victims(kind: str, quick: bool) -> int:
    """How many members' messages are inverted."""
    return 3 if kind == "one" and not quick else 1


def _tell(matrix: _Matrix, drawn: list[str], as_json: bool) -> None:
    from sfumato.cli.federate_attack_page import cautions, matrix_table

    table = matrix_table(matrix.rows, matrix.cells, matrix.asked["data"])
    floors = [
        f"{said}: {matrix.floors[kind]['value']:{how}}"
        for kind, said, how in (
            ("one", "One image, the public's mean picture, dB", ".1f"),
            ("four", "Four images, the public's mean picture, dB", ".1f"),
            ("gan", "GAN, where nobody has the class", ".0%"),
        )
        if kind in matrix.floors
    ]
    notes = [
        *floors,
        "dB: images from messages. GAN: the judge sees the class. Copy: as the model says.",
        *cautions(matrix.cells, matrix.asked["queries"]),
        "Eps: against the server, and who sees models. Right: the shared model, unattacked.",
        "A secure sum changes nothing for those who see models. Coins are seeded: simulations.",
        CURATOR,
        *(f"Kept in {path}" for path in drawn),
    ]
    show(Group(table, *below(*notes)), matrix.to_dict(), as_json, {})
