"""A private image classifier, in a PyTorch loop of one's own, beside the same one without privacy.

    python examples/private_images.py --out images

MNIST is trained on with DP-SGD out of a budget, and without privacy; both are tested on the public
test set and attacked. Among the candidates of the attack are pictures with a wrong label: the odd
ones are who a model without privacy learns by heart. ``--small`` takes scikit-learn's digits.

FOLDER gets the private model, its record and its privacy card, which may be published. All that
was read from private pictures without being charged, attacks and the plain model's accuracy, goes
to the screen and to FOLDER-curator.
"""

import argparse
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional as F

import sfumato as sf
from sfumato.attacks import Candidates, MembershipReport, Target, loss_attack
from sfumato.learning.recipes.inputs import inputs_of, labels_of
from sfumato.reports.card import PublicRun, privacy_card
from sfumato.reports.facts import Sources
from sfumato.reports.writing import write_document


@dataclass(frozen=True)
class Setting:
    """What is public about a run; nothing here was measured on private pictures.

    Lots, epochs and rate for MNIST are one entry of the grid that benchmarks/naive.py tries on
    Fashion-MNIST.
    """

    data: str
    public_size: int  # declared: how many pictures there really are is private
    candidates: int  # pictures whose place in the training set is decided by coins
    odd: int  # of which so many get a wrong label
    epochs: int
    lot_size: int
    plain_epochs: int
    epsilon: float = 3.0
    delta: float = 1e-5
    rate: float = 4.0
    tuning: str = "lots, epochs and rate: one of a grid tried on Fashion-MNIST"


FULL = Setting("mnist", 60_000, 4_000, 1_000, epochs=20, lot_size=2048, plain_epochs=30)
SMALL = Setting(
    "digits", 1_437, 400, 200, epochs=20, lot_size=200, plain_epochs=80, rate=0.5,
    tuning="tried on these pictures, which are public",
)  # fmt: skip


def network(pixels: int) -> nn.Module:
    """One hidden layer; the same initial weights every time, which are public."""
    torch.manual_seed(1)
    return nn.Sequential(nn.Flatten(), nn.Linear(pixels, 100), nn.ReLU(), nn.Linear(100, 10))


def accuracy(model: nn.Module, x: Tensor, y: Tensor) -> float:
    """The share of pictures that it is right on."""
    with torch.no_grad():
        return float((model(x).argmax(1) == y).float().mean())


def split(x: Tensor, y: Tensor, how: Setting) -> tuple[Any, Any, np.ndarray]:
    """Training rows, candidates, and who of the candidates is in: a fair coin for each."""
    random = np.random.default_rng()  # from the system's entropy: coins of an audit are secret
    order = torch.from_numpy(random.permutation(len(y)))
    asked, rest = order[: how.candidates], order[how.candidates :]
    labels = y[asked].clone()
    labels[: how.odd] = (labels[: how.odd] + torch.randint(1, 10, (how.odd,))) % 10
    inside = random.random(how.candidates) < 0.5
    chosen = torch.from_numpy(inside)
    rows = torch.cat([x[rest], x[asked][chosen]]), torch.cat([y[rest], labels[chosen]])
    return rows, (x[asked], labels), inside


def train_privately(
    rows: Any, test: Any, how: Setting, ledger: sf.Ledger
) -> tuple[nn.Module, sf.Record]:
    """DP-SGD: the usual loop, with losses that are not averaged."""
    model = network(rows[0][0].numel())
    trainer = sf.DPSGD(
        model,
        torch.optim.SGD(model.parameters(), lr=how.rate),
        rows,
        public_size=how.public_size,
        lot_size=how.lot_size,
        epochs=how.epochs,
        clip=1.0,
        epsilon=how.epsilon,
        delta=how.delta,
        ledger=ledger,  # charged before the first picture is read
        dataset=how.data,
    )
    tested, every = [], max(1, trainer.plan.steps // 10)
    for x, y in trainer:
        trainer.backward(F.cross_entropy(model(x), y, reduction="none"))
        if not trainer.rehearsing and trainer.steps_taken % every == 0:
            tested.append((trainer.steps_taken, accuracy(model, *test)))  # public pictures: free
    record, steps = trainer.record, [step for step, _ in tested]
    spent = trainer.plan.epsilon_after(steps)
    record.facts |= {
        "data": {"name": how.data, "public_size": how.public_size},
        "accuracy": accuracy(model, *test),
        "test_set": "public",
        "tuning": how.tuning,
        "public_features": "none",
        "curve": [
            {"step": step, "accuracy": right, "epsilon": float(epsilon)}
            for (step, right), epsilon in zip(tested, spent, strict=True)
        ],
    }
    return model, record


def train_plainly(rows: Any, how: Setting, screen: Console) -> nn.Module:
    """The same network without privacy: for the curator, to see what privacy changes."""
    model = network(rows[0][0].numel())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for _ in track(
        range(how.plain_epochs), "without privacy", console=screen, disable=not screen.is_terminal
    ):
        for batch in torch.randperm(len(rows[1])).split(100):
            optimizer.zero_grad()
            F.cross_entropy(model(rows[0][batch]), rows[1][batch]).backward()
            optimizer.step()
    return model


def attacked(model: nn.Module, asked: Any, inside: np.ndarray, odd: int) -> list[MembershipReport]:
    """Who was trained on? Guessed from the loss: first the odd candidates, then the others."""
    x, y = asked[0].numpy(), asked[1].numpy()
    target = Target.of_module(model, view="scores")
    groups = np.arange(len(y)) < odd, np.arange(len(y)) >= odd
    return [loss_attack(target, Candidates(x[who], y[who], inside[who])) for who in groups]


def main(out: Path, small: bool = False) -> dict[str, Any]:
    """Trains twice, attacks twice, publishes one of them."""
    how = SMALL if small else FULL
    screen, own = Console(highlight=False), out.with_name(f"{out.name}-curator")
    if out.exists() or own.exists():
        sys.exit(f"{out} holds an earlier run. A budget is never reset: give another --out")
    out.mkdir(parents=True)
    own.mkdir(mode=0o700)
    data = sf.load_dataset(how.data)
    x, y = inputs_of(data.train.inputs, data.bounds), labels_of(data.train.labels, 10)
    test = inputs_of(data.test.inputs, data.bounds), labels_of(data.test.labels, 10)
    rows, asked, inside = split(x, y, how)
    ledger = sf.Ledger(own / "privacy.db")
    ledger.create(how.data, sf.Budget(epsilon=4.0, delta=4 * how.delta))

    screen.print(f"[bold]Training on {how.data}[/bold], with privacy and without")
    private, record = train_privately(rows, test, how, ledger)
    plain = train_plainly(rows, how, screen)
    reports = {"without privacy": attacked(plain, asked, inside, how.odd)}
    reports[f"epsilon {how.epsilon:g}"] = attacked(private, asked, inside, how.odd)
    screen.print(f"Guarantee of the private model: {record.guarantee}")
    screen.print(f"Ledger: {ledger.status(how.data).left:.3g} of 4 left\n")

    models = {"without privacy": plain, f"epsilon {how.epsilon:g}": private}
    shown = Table("model", "test accuracy", "attack on odd pictures", "on others", box=None)
    for name, model in models.items():
        aucs = [f"AUC {r.auc:.3f} ({r.auc_interval[0]:.3f} to {r.auc_interval[1]:.3f})"
                for r in reports[name]]  # fmt: skip
        mark = "" if model is private else " (curator only)"
        shown.add_row(name, f"{accuracy(model, *test):.2%}{mark}", *aucs)
    screen.print(shown, "Attacks are read off private pictures: curator only. 0.500 is guessing.")
    scores = reports[f"epsilon {how.epsilon:g}"][0].scores
    finding = sf.audit_scores(scores, inside[: how.odd], claim=record.guarantee)
    screen.print(f"Audit of the private model: {finding}", markup=False)

    (out / "record.json").write_text(json.dumps(record.to_dict(), indent=1))
    save_file(private.state_dict(), out / "model.safetensors")
    budget = Sources({"status": ledger.status(how.data).to_dict()}, "ledger")
    write_document(privacy_card([PublicRun.read(out, how.data)], [budget]), out / "card.html")
    curves = {name: found[0] for name, found in reports.items()}
    sf.plot(curves, claim=record.guarantee, title="Who was trained on?").save(own / "attacks.png")
    screen.print(f"\nMay be published, {out}: card.html, model.safetensors, record.json.")
    screen.print(f"For the curator, {own}: attacks.png, and the ledger.")
    return {
        "how": how, "record": record, "ledger": ledger, "reports": reports, "finding": finding,
        "private": private, "test": test,
    }  # fmt: skip


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="A private image classifier, and its like.")
    parser.add_argument("--out", type=Path, default=Path("images"), metavar="FOLDER")
    parser.add_argument("--small", action="store_true", help="digits of 8 x 8 pixels, not MNIST")
    arguments = parser.parse_args()
    main(arguments.out, arguments.small)
