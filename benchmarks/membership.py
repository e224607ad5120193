"""Membership inference measured: shadow models, LiRA, and what privacy changes.

python benchmarks/membership.py lira --device cuda          # CIFAR-10, 16 shadows, 2 targets
python benchmarks/membership.py shadow --device cuda        # 15,000 records, as Shokri et al.
python benchmarks/membership.py private --device cuda       # CIFAR-10 at epsilon 2
python benchmarks/membership.py gap                         # success against overfitting
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import nn

from sfumato.attacks.membership.reports import MembershipReport
from sfumato.attacks.membership.shadow_attack import ShadowAttack
from sfumato.attacks.membership.shadow_outputs import ShadowOutputs
from sfumato.attacks.roc import Roc
from sfumato.cli.populations import Pool, attack_population, plain_answers, private_answers
from sfumato.data import load_dataset
from sfumato.learning.ensembles import Schedule, train_ensemble
from sfumato.learning.recipes import preset
from sfumato.learning.recipes.inputs import inputs_of
from sfumato.reports.membership_figures import gap_figure
from sfumato.reports.style import save


def vgg(width: int = 64, channels: int = 3) -> nn.Module:
    """Four convolutions and a linear layer, for 32 x 32."""
    return nn.Sequential(
        nn.Conv2d(channels, width, 3, padding=1), nn.ReLU(),
        nn.Conv2d(width, width, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(width, 2 * width, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(2 * width, 4 * width, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(64 * width, 10),
    )  # fmt: skip


def tanh_cnn() -> nn.Module:
    """Two convolutions with maxima, 128 hidden units, tanh: as in Shokri et al."""
    return nn.Sequential(
        nn.Conv2d(3, 32, 5, padding=2), nn.Tanh(), nn.MaxPool2d(2),
        nn.Conv2d(32, 32, 5, padding=2), nn.Tanh(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(2048, 128), nn.Tanh(), nn.Linear(128, 10),
    )  # fmt: skip


def tell(title: str, reports: dict[str, MembershipReport], facts: dict) -> None:
    """A table."""
    print(f"\n### {title}\n\n{json.dumps(facts)}\n")
    print("| attack | AUC | 95 % | TPR at 1 % | at 0.1 % | at 0.01 % | precision |")
    print("|---|---:|---|---:|---:|---:|---:|")
    for name, report in reports.items():
        low, high = report.auc_interval
        powers = " | ".join(f"{100 * p.found:.2f} %" for p in report.power)
        print(f"| {name} | {report.auc:.3f} | {low:.3f} to {high:.3f} | {powers} | "
              f"{report.calls[0].precision or 0:.3f} |", flush=True)  # fmt: skip


def pooled(given: argparse.Namespace, data) -> Pool:
    """The pool of this run."""
    return Pool.draw(data, given.rows, given.shadows, given.targets, given.seed)


def lira(given: argparse.Namespace) -> None:
    """All attacks on models without privacy."""
    pool = pooled(given, load_dataset(given.data))
    schedule = Schedule(given.epochs, 128, rate=given.rate)
    found = plain_answers(
        pool, lambda: vgg(given.width), schedule, device=given.device, half=given.half,
        augment=None if given.augment == "none" else given.augment, seed=given.seed,
    )  # fmt: skip
    inside, fresh = found.accuracies(pool)
    began = time.monotonic()
    reports = attack_population(pool, found)
    facts = {"train": inside, "test": fresh, "seconds": found.seconds,
             "attack_seconds": time.monotonic() - began}  # fmt: skip
    tell(f"{given.data}: {given.shadows} shadows, {given.targets} targets", reports, facts)
    if given.out:
        np.savez(
            given.out / "lira.npz", truth=reports["loss"].members,
            **{name.replace(" ", "_"): report.scores for name, report in reports.items()},
        )  # fmt: skip


def shadow(given: argparse.Namespace) -> None:
    """The target has 15,000 records; shadows share 30,000 others."""
    data = load_dataset("cifar10")
    both = [np.concatenate(pair) for pair in zip(data.train, data.test, strict=True)]
    order = np.random.default_rng(given.seed).permutation(len(both[1]))
    inputs, labels = inputs_of(both[0][order], data.bounds), both[1][order]
    subsets = np.zeros((given.shadows + 1, len(labels)), bool)
    subsets[0, :15000] = True
    for number in range(1, given.shadows + 1):
        chosen = np.random.default_rng([given.seed, number]).permutation(30000)[:15000]
        subsets[number, 30000 + chosen] = True
    began = time.monotonic()
    models = train_ensemble(
        tanh_cnn, inputs, labels, subsets, Schedule(given.epochs, 128, rate=given.rate),
        device=given.device, half=given.half, seed=given.seed,
    )  # fmt: skip
    seconds = time.monotonic() - began
    probabilities = models.probabilities(inputs)
    outputs = ShadowOutputs.pooled(
        [
            ShadowOutputs(probabilities[k, 30000:], labels[30000:], subsets[k, 30000:])
            for k in range(1, given.shadows + 1)
        ]
    )
    began = time.monotonic()
    judge = ShadowAttack.fit(outputs, generator=np.random.default_rng(given.seed))
    own = probabilities[0, :30000]
    report = MembershipReport.from_scores(
        judge.scores(own, labels[:30000]), subsets[0, :30000], labels=labels[:30000],
        attack="shadow models", threshold=0.5,
    )  # fmt: skip
    right = own.argmax(1) == labels[:30000]
    facts = {
        "train": right[:15000].mean(), "test": right[15000:].mean(), "shadows": given.shadows,
        "seconds": seconds, "attack_seconds": time.monotonic() - began,
        "recall": report.calls[0].recall,
        "precision_by_class": [round(c.precision or 0, 3) for c in report.calls[1:]],
    }  # fmt: skip
    tell("CIFAR-10, 15,000 records", {"shadow models": report}, facts)


def private(given: argparse.Namespace) -> None:
    """The same attacks on private models, with private shadows."""
    data = load_dataset(given.data)
    pool = pooled(given, data)
    half = replace(pool.data, public_size=len(pool.labels) // 2)
    recipe = preset(given.preset, half, epsilon=given.epsilon)
    found = private_answers(pool, recipe, device=given.device)
    inside, fresh = found.accuracies(pool)
    reports = attack_population(pool, found)
    facts = {"train": inside, "test": fresh, "seconds": found.seconds}
    facts["exceeds"] = {
        name: report.exceeds(given.epsilon, recipe.delta) for name, report in reports.items()
    }
    tell(f"{given.data} at epsilon {given.epsilon:g}", reports, facts)


def gap(given: argparse.Namespace) -> None:
    """Attack success against the generalisation gap, one dot a model, private or not."""
    data = load_dataset(given.data)
    pixels = int(np.prod(data.shape))
    dots = []
    for size in (500, 1000, 2000, 4000, 8000):
        pool = Pool.draw(data, size, 4, 4, given.seed)
        for epochs in (2, 5, 15, 40):
            found = plain_answers(
                pool, lambda: nn.Sequential(nn.Flatten(), nn.Linear(pixels, 100), nn.ReLU(),
                                            nn.Linear(100, 10)),
                Schedule(epochs, 32, rate=0.05), device=given.device, seed=epochs,
            )  # fmt: skip
            dots += dots_of(pool, found, None)
        for epsilon in (1.0, 2.0, 8.0):
            half = size // 2
            recipe = preset("cnn", replace(pool.data, public_size=half), epsilon=epsilon)
            recipe = recipe.changed(model="mlp", model_options={"hidden": 100}, lot_size=half // 4)
            dots += dots_of(pool, private_answers(pool, recipe, device=given.device), epsilon)
    if given.out:
        given.out.mkdir(parents=True, exist_ok=True)
        (given.out / "gap.json").write_text(json.dumps(dots))
        columns = [[dot[name] for dot in dots] for name in ("gap", "auc", "private")]
        save(gap_figure(*columns, ylabel="AUC of LiRA, offline"), given.out / "gap.png")


def dots_of(pool: Pool, found, epsilon: float | None) -> list[dict]:
    """Each target's gap, and how well it is attacked."""
    report = attack_population(pool, found)["LiRA, offline"]
    truth = pool.subsets[pool.shadows :]
    dots = []
    for place, (scores, mine) in enumerate(
        zip(report.scores.reshape(truth.shape), truth, strict=True)
    ):
        target = pool.shadows + place
        right = found.logits[target, 0].argmax(axis=1) == pool.labels
        fresh = found.fresh[target, 0].argmax(axis=1) == pool.data.test.labels
        auc = Roc.from_scores(scores[mine], scores[~mine]).auc
        dots.append({
            "rows": int(mine.sum()), "epsilon": epsilon, "private": epsilon is not None,
            "gap": float(right[mine].mean() - fresh.mean()), "auc": auc,
            "accuracy": float(fresh.mean()),
        })  # fmt: skip
        print(json.dumps(dots[-1]), flush=True)
    return dots


def main() -> None:
    """One of four measurements."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["lira", "shadow", "private", "gap"])
    parser.add_argument("--data", default="cifar10")
    parser.add_argument("--rows", type=int)
    parser.add_argument("--shadows", type=int, default=16)
    parser.add_argument("--targets", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=50)
    parser.add_argument("--rate", type=float, default=0.05)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--augment", default="flip-shift")
    parser.add_argument("--epsilon", type=float, default=2.0)
    parser.add_argument("--preset", default="scattering-linear")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--half", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    torch.backends.cudnn.benchmark = True
    {"lira": lira, "shadow": shadow, "private": private, "gap": gap}[given.what](given)


if __name__ == "__main__":
    main()
