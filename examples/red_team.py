"""Red-teaming somebody's model: two vendors claim epsilon 1, and one of them tells the truth.

    python examples/red_team.py --out red-team

All that is seen of a model is a function from pictures to probabilities. What makes the verdict
sound is prepared beforehand: of the rows handed to the vendor, some are canaries, pictures with a
wrong label, each handed over or kept back by a fair coin. Whoever guesses the coins from the
model's answers shows a lower bound on epsilon, with a confidence. If it is above the claim, the
claim is false. If it is below, nothing is proved.

What attacks find is about the people in the data: FOLDER is for its owner's eyes, all of it.
"""

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from sklearn.linear_model import LogisticRegression
from torch import nn
from torch.nn import functional as F

import sfumato as sf
from sfumato.attacks import (
    Candidates,
    CoordinateDifferences,
    Exam,
    Target,
    closeness,
    extract_by_retraining,
    gap_attack,
    invert_with_mi_face,
    lira_attack,
    loss_attack,
    recognition,
)
from sfumato.core.pictures import pack_pictures
from sfumato.reports.curator import CuratorRun, curator_report
from sfumato.reports.writing import write_document

Service = Callable[[np.ndarray], np.ndarray]  # pictures in, probabilities out: all that is seen
CLAIM = sf.Guarantee(1.0, 1e-5, sf.Neighbours.ADD_REMOVE)  # both vendors', for one picture
CONFIDENCE = 0.99  # an honest vendor is accused with probability 1 % at most


def served(model: nn.Module) -> Service:
    """A model behind a counter."""

    def answer(pictures: np.ndarray) -> np.ndarray:
        with torch.no_grad():
            x = torch.from_numpy(np.asarray(pictures, np.float32)).reshape(-1, 64)
            return model(x).double().softmax(1).numpy()

    return answer


def honest_vendor(x: np.ndarray, y: np.ndarray) -> Service:
    """Trains as it says: DP-SGD at epsilon 1."""
    model = nn.Linear(64, 10)
    trainer = sf.DPSGD(
        model, torch.optim.SGD(model.parameters(), lr=1.0),
        (torch.from_numpy(x).reshape(-1, 64), torch.from_numpy(y)),
        public_size=1_400, lot_size=280, steps=60, epsilon=CLAIM.epsilon, delta=CLAIM.delta,
        progress=False,
    )  # fmt: skip
    trainer.fit(lambda model, x, y: F.cross_entropy(model(x), y, reduction="none"))
    return served(model)


def other_vendor(x: np.ndarray, y: np.ndarray, epochs: int = 150) -> Service:
    """Says epsilon 1, and trains without privacy. The red team's own shadows are made alike."""
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    rows = torch.from_numpy(x).reshape(-1, 64), torch.from_numpy(y)
    for _ in range(epochs):
        for batch in torch.randperm(len(y)).split(128):
            optimizer.zero_grad()
            F.cross_entropy(model(rows[0][batch]), rows[1][batch]).backward()
            optimizer.step()
    return served(model)


class RedTeam:
    """What the red team holds: rows, canaries and their coins, and pictures nobody trained on."""

    def __init__(self, canaries: int, shadows: int, tell: Callable[[], object]) -> None:
        data, random = sf.load_dataset("digits"), np.random.default_rng()  # the system's entropy
        scale = np.float32(data.bounds[1])
        x, self.true = data.train.inputs.reshape(-1, 8, 8) / scale, data.train.labels
        order = random.permutation(len(x))
        self.canaries, rest = order[:canaries], order[canaries:]
        self.coins = random.random(canaries) < 0.5
        wrong = (self.true[self.canaries] + random.integers(1, 10, canaries)) % 10
        self.rest = x[rest], self.true[rest].astype(np.int64)
        self.own = x[self.canaries], wrong.astype(np.int64)
        self.outside = data.test.inputs.reshape(-1, 8, 8) / scale, data.test.labels
        self.random, self.candidates = random, Candidates(*self.own, self.coins)
        # Each shadow is trained on its own half of the canaries, and asked about all of them.
        halves = np.arange(shadows)[:, None] % 2 == np.zeros(canaries)
        self.halves = random.permuted(halves, axis=0)
        answers = []
        for half in self.halves:
            answers.append(other_vendor(*self.handed_over(half))(self.own[0]))
            tell()
        self.shadows = np.stack(answers)

    def handed_over(self, coins: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The rows that a vendor gets."""
        return tuple(
            np.concatenate([most, some[coins]])
            for most, some in zip(self.rest, self.own, strict=True)
        )

    def attack(self, service: Service, name: str, folder: Path) -> dict[str, Any]:
        """Everything there is, on one service; what was found goes to the folder as records."""
        target, half = Target.of_scores(service, name=name), len(self.outside[1]) // 2
        members = {
            "label right or wrong": gap_attack(target.showing("labels"), self.candidates),
            "loss": loss_attack(target, self.candidates),
            "LiRA, own shadows": lira_attack(target, self.candidates, self.shadows, self.halves),
        }
        # One score was fixed beforehand, the loss, so that the confidence is that of one audit.
        audit = sf.audit_scores(
            members["loss"].scores, self.coins, claim=CLAIM, confidence=CONFIDENCE
        )
        asked, exam = self.outside[0][:half], Exam.of(target, *(s[half:] for s in self.outside))
        copied = extract_by_retraining(
            target.limited(half), asked, nn.Sequential(nn.Flatten(), nn.Linear(64, 10)),
            generator=self.random,
        )  # fmt: skip
        judge = LogisticRegression(max_iter=2000).fit(asked.reshape(-1, 64), self.outside[1][:half])
        pictures = invert_with_mi_face(
            target, np.arange(10), (8, 8), rate=0.5, slopes=CoordinateDifferences()
        )
        seen = recognition(
            pictures.images, pictures.labels, lambda x: judge.predict_proba(x.reshape(-1, 64))
        )
        known = Candidates(self.own[0], self.true[self.canaries], self.coins)
        near = closeness(pictures.images, pictures.labels, known, generator=self.random)

        said = sf.events.EpsilonDeltaEvent(CLAIM.epsilon, CLAIM.delta)  # all that is known of it
        told = sf.Record("the vendor's claim", {}, said, CLAIM).to_dict()
        attacks = [
            report.to_dict()
            | {"attack": what, "exceeds_claim": report.exceeds(CLAIM.epsilon, CLAIM.delta)}
            for what, report in members.items()
        ]
        inverted = pictures.to_dict() | {"recognition": seen.to_dict(), "closeness": near.to_dict()}
        inverted |= {"names": list("0123456789"), "pictures": pack_pictures(pictures.images)}
        (folder / "curator").mkdir(parents=True)
        for file, found in (
            ("record", told), ("curator/membership", {"channel": "curator", "attacks": attacks}),
            ("curator/inversion", inverted), ("curator/audit", audit.to_dict()),
        ):  # fmt: skip
            (folder / f"{file}.json").write_text(json.dumps(found))
        return {"members": members, "audit": audit, "copy": exam.measure(copied.predict),
                "pictures": seen, "near": near, "asked": copied.queries}  # fmt: skip


def main(out: Path, small: bool = False) -> dict[str, Any]:
    """Prepares canaries, has two models made, attacks both, and passes a verdict."""
    screen = Console(highlight=False)
    if out.exists():
        sys.exit(f"{out} is there already: give another --out")
    out.mkdir(parents=True, mode=0o700)
    shadows = 8 if small else 32
    with Progress(console=screen, transient=True, disable=not screen.is_terminal) as bar:
        task = bar.add_task("shadow models, then two vendors", total=shadows + 2)
        team = RedTeam(400, shadows, lambda: bar.advance(task))
        results = {}
        for name, vendor in (("vendor-a", honest_vendor), ("vendor-b", other_vendor)):
            service = vendor(*team.handed_over(team.coins))
            results[name] = team.attack(service, name, out / name)
            bar.advance(task)

    screen.print(f"[bold]Both vendors claim[/bold] {CLAIM}\n")
    for name, found in results.items():
        shown = Table(name, "found (for the red team only)", box=None)
        for what, report in found["members"].items():
            low, high = report.auc_interval
            shown.add_row(f"members, by {what}", f"AUC {report.auc:.3f} ({low:.3f} to {high:.3f})")
        agreed = found["copy"].agreement.value
        shown.add_row("a copy of the model", f"{found['asked']} questions, agrees in {agreed:.1%}")
        shown.add_row("a picture of each class", f"{found['pictures'].accuracy:.0%} recognised, "
                      f"{found['near'].verdict}")  # fmt: skip
        shown.add_row("[bold]verdict[/bold]", str(found["audit"]))
        screen.print(shown, "")
    report = curator_report([CuratorRun.read(out / name) for name in results], title="Red team")
    write_document(report, out / "report.html")
    screen.print("AUC 0.5 is guessing. Copies and class pictures come from any useful model.")
    screen.print(
        f"Written: {out / 'report.html'}. It is about the people in the data: not to publish."
    )
    return {"results": results, "team": team}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Two vendors claim epsilon 1. Is it true?")
    parser.add_argument("--out", type=Path, default=Path("red-team"), metavar="FOLDER")
    parser.add_argument("--small", action="store_true", help="8 shadow models instead of 32")
    arguments = parser.parse_args()
    main(arguments.out, arguments.small)
