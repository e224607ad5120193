"""Five hospitals train one model, keep their pictures, and know what each observer could learn.

    python examples/federated_hospitals.py --out hospitals

Handwritten digits stand for scans. Each hospital sees some digits often and others never, so that
none can train a good model alone. They train together in two ways, with noise in shares under a
masked sum and with noise of their own, and one of them drops out on the way. Each hospital has a
ledger of its own, charged for every message before a picture is read.

FOLDER gets what may be published and nothing else. Ledgers and the run are in FOLDER-curator.
"""

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from torch import Tensor, optim
from torch.nn import functional as F

import sfumato as sf
from sfumato import federated
from sfumato.federated.masked import MaskedMember
from sfumato.federated.secure.keys import Directory, IdentityKey
from sfumato.learning.recipes.inputs import inputs_of, labels_of
from sfumato.reports.card import PublicRun, privacy_card
from sfumato.reports.writing import write_document

NAMES = ["Aldbury", "Brent", "Corfe", "Dunster", "Eyam"]
GONE = "Brent"  # drops out
DELTA, PICTURES = 1e-5, 1437  # how many pictures there are in all is declared, and public
BUDGET = sf.Budget(epsilon=4.0, delta=4e-5)  # of each hospital, for everything together
Rows = tuple[Tensor, Tensor]


class DropsOut:
    """A hospital whose line is cut after so many messages."""

    def __init__(self, member: MaskedMember, messages: int) -> None:
        self.member, self.left = member, messages

    def answer(self, message: bytes) -> bytes:
        """Her answer, while there is a line."""
        if self.left == 0:
            raise OSError("the line is cut")
        self.left -= 1
        return self.member.answer(message)


def federations(epsilon: float, rounds: int) -> dict[str, sf.Federation]:
    """The same work three ways: who adds the noise, and who sees what."""
    local = sf.Federation(
        model="linear",
        shape=(1, 8, 8),
        classes=10,
        participants=len(NAMES),
        rounds=rounds,
        work=federated.LotGradients(lot_rate=0.2, clip=1.0, records=PICTURES),
        noise=federated.LocalNoise(1.0, least=3),
        delta=DELTA,
        server_rate=2.0,
        name="digits of five hospitals",
    )
    # A masked sum opens for 4 of 5 at least: the noise of 3, unknown to a curious fourth.
    shares = replace(
        local, noise=federated.SharedNoise(1.0, least=3), sums=federated.MaskedSum(threshold=4)
    )
    central = replace(local, noise=federated.CentralNoise(1.0))
    return {
        "noise in shares, masked sum": federated.calibrated(shares, epsilon, "server"),
        "noise by each hospital": federated.calibrated(local, epsilon, "server"),
        "noise by the server": federated.calibrated(central, epsilon),  # the server sees everything
    }


def together(
    federation: sf.Federation,
    hospitals: dict[str, Rows],
    ledgers: dict[str, sf.Ledger],
    messages: int | None = None,
    **options: Any,
) -> Any:
    """All rounds, in this process; Brent drops out after so many messages."""
    model = federated.LocalModel(federation.make_model())
    members: dict[str, Any] = {
        name: federated.Member(
            federation,
            federated.LocalData(model, *rows),
            name=name,
            ledger=ledgers[name],
            dataset="scans",
        )
        for name, rows in hospitals.items()
    }
    if isinstance(federation.sums, federated.MaskedSum):
        keys = {name: IdentityKey.generate() for name in members}
        options["directory"] = Directory({name: key.public for name, key in keys.items()})
        members = {
            name: MaskedMember(member, keys[name], options["directory"])
            for name, member in members.items()
        }
    if messages is not None:
        members[GONE] = DropsOut(members[GONE], messages)
    return federated.Coordinator(federation, federated.InProcess(members), **options).train()


def alone(
    federation: sf.Federation, rows: Rows, epsilon: float, ledger: sf.Ledger, test: Rows
) -> float:
    """One hospital by itself: DP-SGD at the same epsilon, right on so many test pictures."""
    model, count = federation.make_model(), PICTURES // len(NAMES)  # what it declares of itself
    trainer = sf.DPSGD(
        model, optim.SGD(model.parameters(), lr=federation.server_rate), rows, public_size=count,
        lot_size=0.2 * count, steps=federation.rounds, epsilon=epsilon, delta=DELTA, ledger=ledger,
        dataset="scans", progress=False,
    )  # fmt: skip
    trainer.fit(lambda model, x, y: F.cross_entropy(model(x), y, reduction="none"))
    return float((model(test[0]).argmax(1) == test[1]).float().mean())


def main(out: Path, small: bool = False) -> dict[str, Any]:
    """Agrees, trains, drops out, and publishes."""
    screen, own = Console(highlight=False), out.with_name(f"{out.name}-curator")
    if out.exists() or own.exists():
        sys.exit(f"{out} holds an earlier run. A budget is never reset: give another --out")
    out.mkdir(parents=True)
    own.mkdir(mode=0o700)
    epsilon, rounds = 1.0, 6 if small else 60
    data = sf.load_dataset("digits")
    x, y = inputs_of(data.train.inputs, data.bounds), labels_of(data.train.labels, 10)
    test = inputs_of(data.test.inputs, data.bounds), labels_of(data.test.labels, 10)
    parts = federated.partition(data.train.labels, len(NAMES), "dirichlet", seed=1)
    hospitals = {name: (x[rows], y[rows]) for name, rows in zip(NAMES, parts, strict=True)}

    ways = federations(epsilon, rounds)
    views = Table("way", "observer", "sees", "one picture", box=None)
    for way, federation in ways.items():
        for view in federation.views:
            views.add_row(way, view.observer, view.sees, str(view.guarantee(DELTA)).split(",")[0])
    screen.print(f"[bold]Who could learn what[/bold], over all rounds, delta {DELTA:g}:", views)

    ledgers = {name: sf.Ledger(own / f"{name}.db") for name in NAMES}
    for ledger in ledgers.values():
        ledger.create("scans", BUDGET, unit="record")
    shares, by_each, _ = ways.values()
    drops_after = (
        rounds // 2 * 5 + 2
    )  # a round under masks takes five messages: in the midst of one
    watched: list[Any] = []
    with Progress(console=screen, transient=True, disable=not screen.is_terminal) as bar:
        first, second = bar.add_task("in shares", total=rounds), bar.add_task("alone", total=6)

        def watch(facts: Any) -> None:
            watched.append(facts)
            bar.advance(first)

        trained = together(
            shares, hospitals, ledgers, drops_after, folder=own / "run", test=test,
            test_every=max(1, rounds // 10), watch=watch,
        )  # fmt: skip
        noisier = together(by_each, hospitals, ledgers, test=test, test_every=rounds)
        bar.advance(second)
        by_itself = {}
        for name, rows in hospitals.items():
            by_itself[name] = alone(by_each, rows, epsilon, ledgers[name], test)
            bar.advance(second)

    gone = next(facts for facts in watched if facts.survivors < len(NAMES))
    screen.print(
        f"\n{GONE} drops out in round {gone.number}: {gone.survivors} of {len(NAMES)} remain, "
        f"and {sum(facts.used for facts in watched)} of {rounds} rounds moved the model."
    )
    found = Table("who trains", "right on the public test set", box=None)
    found.add_row("together, noise in shares", f"{trained.accuracy:.1%}")
    found.add_row("together, noise by each", f"{noisier.accuracy:.1%}")
    for name, accuracy in by_itself.items():
        found.add_row(f"{name} alone", f"{accuracy:.1%}")
    screen.print(f"\n[bold]All at epsilon {epsilon:g}, delta {DELTA:g}, one picture[/bold]", found)

    spent = Table("ledger of", "pictures (hers alone)", "releases", "reading", "cap", box=None)
    for name, ledger in ledgers.items():
        status = ledger.status("scans")
        spent.add_row(
            name, str(len(hospitals[name][1])), str(status.releases), f"{status.reading:.3f}", "4"
        )
    screen.print("\n[bold]Charged[/bold] for all three ways, message by message:", spent)

    trained.record.facts["tuning"] = "tried on these pictures, which are public"
    trained.record.facts["data"] = {"name": "digits"}
    (out / "record.json").write_text(json.dumps(trained.record.to_dict(), indent=1))
    write_document(privacy_card([PublicRun.read(out, "digits")]), out / "card.html")
    (own / "run" / "model.safetensors").rename(out / "model.safetensors")
    screen.print(f"\nMay be published, {out}: card.html, model.safetensors, record.json.")
    return {
        "ways": ways, "epsilon": epsilon, "trained": trained, "noisier": noisier,
        "watched": watched, "by_itself": by_itself, "ledgers": ledgers, "hospitals": hospitals,
    }  # fmt: skip


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Five hospitals train one model.")
    parser.add_argument("--out", type=Path, default=Path("hospitals"), metavar="FOLDER")
    parser.add_argument("--small", action="store_true", help="6 rounds instead of 60")
    arguments = parser.parse_args()
    main(arguments.out, arguments.small)
