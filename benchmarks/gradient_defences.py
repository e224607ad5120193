"""Defences of shared gradients at equal cost: what is left of accuracy, what is left of the images.

    python benchmarks/gradient_defences.py --folder F                         # an hour on one core
    python benchmarks/gradient_defences.py --folder F --network relu --device cuda --processes 4
    python benchmarks/gradient_defences.py --folder F --table --plot docs/defences.png
    python benchmarks/gradient_defences.py --folder F --quick                 # a rehearsal

CIFAR-10. For every defence and strength a network is trained on the defended updates of sixty-four
images a round (``--rounds``, several rates, the best counts), and updates of the first round are
inverted with total variation at several weights, of which the best on average counts: the
attacker's strongest. Labels are told. *smooth*: ``leaky_cnn``, one image a participant, squared
distance and L-BFGS; *relu*: ``relu_cnn``, four images a participant, by the angle. A line a setting
is appended to F/results.jsonl; what it holds is not run again. The table is read off at equal
losses of accuracy, by interpolation between strengths.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

Result = dict[str, Any]
LADDERS: dict[str, list[str]] = {
    "none": ["none"],
    "local steps": ["local=2", "local=4"],
    "clipping": ["clip=1"],
    "noise": ["noise=0.01", "noise=0.1", "noise=0.3", "noise=1"],
    "DP-SGD": ["dp-sgd=300", "dp-sgd=30", "dp-sgd=8", "dp-sgd=3"],
    "dropout": ["dropout=0.1", "dropout=0.3", "dropout=0.6"],
    "pruning": ["prune=0.9", "prune=0.99", "prune=0.999"],
}
LOSSES = (0.01, 0.05)
DELTA = 1e-5


@dataclass(frozen=True)
class Setting:
    """A network, what participants hold, and what is tried."""

    make: str
    batch: int
    people: int
    rates: tuple[float, ...]
    variations: tuple[float, ...]


SETTINGS = {
    "smooth": Setting("leaky_cnn", 1, 64, (0.003, 0.01, 0.03), (0.001, 0.1)),
    "relu": Setting("relu_cnn", 4, 16, (0.01, 0.03, 0.1), (0.003, 0.03, 0.3)),
}


def setting(given: argparse.Namespace) -> tuple[Any, ...]:
    """Data and the untrained network."""
    import torch

    from sfumato.attacks.gradients.networks import leaky_cnn, relu_cnn
    from sfumato.data import load_dataset
    from sfumato.learning.recipes.inputs import inputs_of

    torch.backends.cudnn.allow_tf32 = False
    data = load_dataset("cifar10")
    parts = []
    for examples, most in ((data.train, given.rows), (data.test, 2000 if given.quick else 10_000)):
        parts.append(inputs_of(examples.inputs[:most], data.bounds).to(given.device))
        parts.append(
            torch.from_numpy(np.asarray(examples.labels[:most], np.int64)).to(given.device)
        )
    torch.manual_seed(0)
    known = SETTINGS[given.network]
    made = (
        leaky_cnn((3, 32, 32), 10) if known.make == "leaky_cnn" else relu_cnn((3, 32, 32), 10, 16)
    )
    return made.to(given.device), *parts


def utility(defence: str, rate: float, given: argparse.Namespace) -> Result:
    """Test accuracy after training on defended updates."""
    from sfumato.attacks.gradients.utility import accuracy, train_on_updates
    from sfumato.cli.defence_options import parsed_defences

    model, x, y, test_x, test_y = setting(given)
    trained = train_on_updates(
        model, x, y, rounds=given.rounds, rate=rate, batch=SETTINGS[given.network].batch,
        participants=SETTINGS[given.network].people,
        generator=np.random.default_rng(1), defences=parsed_defences(defence, DELTA),
    )  # fmt: skip
    return {"kind": "utility", "rate": rate, "accuracy": accuracy(trained, test_x, test_y)}


def attack(defence: str, variation: float, given: argparse.Namespace) -> Result:
    """PSNR and SSIM of images from updates of the first round."""
    from sfumato.attacks.gradients.matching import Matching, invert_gradient
    from sfumato.attacks.gradients.sharing import share_gradient
    from sfumato.cli.defence_options import parsed_defences

    model, x, y, _, _ = setting(given)
    how = Matching(iterations=given.iterations, rate=0.05, variation=variation)
    if given.network == "smooth":
        how = Matching.dlg(given.iterations, variation=variation)
    batch = SETTINGS[given.network].batch
    psnr, ssim = [], []
    for number in range(given.updates):
        rows = slice(batch * number, batch * (number + 1))
        sent = share_gradient(
            model, x[rows], y[rows], defences=parsed_defences(defence, DELTA),
            generator=np.random.default_rng(number),
        )  # fmt: skip
        found = invert_gradient(
            model, sent, (3, 32, 32), generator=np.random.default_rng([number, 1]), matching=how,
            labels=y[rows].cpu().numpy(),
        )  # fmt: skip
        alike = found.compared(x[rows].cpu().numpy())
        psnr += alike.psnr.tolist()
        ssim += alike.ssim.tolist()
    return {"kind": "attack", "variation": variation, "psnr": psnr, "ssim": ssim}


def jobs(
    known: Setting, held: set[tuple[str, str, float]]
) -> Iterator[tuple[str, str, list[float]]]:
    """Kind, defence, and the rates or weights of variation that are still to be run."""
    for kind, values in (("attack", known.variations), ("utility", known.rates)):
        for defence in (each for ladder in LADDERS.values() for each in ladder):
            left = [value for value in values if (kind, defence, value) not in held]
            if left:
                yield kind, defence, left


def run_all(given: argparse.Namespace) -> None:
    """Each kind and defence in a process of its own, some at a time."""
    given.folder.mkdir(parents=True, exist_ok=True)
    file = given.folder / "results.jsonl"

    def one(job: tuple[str, str, list[float]]) -> None:
        kind, defence, values = job
        command = [
            sys.executable, __file__, "--folder", str(given.folder), "--device", given.device,
            "--rounds", str(given.rounds), "--iterations", str(given.iterations),
            "--updates", str(given.updates), "--rows", str(given.rows), "--network", given.network,
            "--one", kind, defence,
            ",".join(map(str, values)), *["--quick"] * given.quick,
        ]  # fmt: skip
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            for line in process.stdout:
                with file.open("a") as out:
                    out.write(line)
                said = json.loads(line)
                print(defence, said.get("accuracy", np.mean(said.get("psnr", 0))), flush=True)

    held = {(r["kind"], r["defence"], r["value"]) for r in read(file)}
    with ThreadPoolExecutor(given.processes) as pool:
        list(pool.map(one, list(jobs(SETTINGS[given.network], held))))


def run_one(given: argparse.Namespace) -> None:
    """Prints a line of JSON for each value."""
    kind, defence, values = given.one
    for value in map(float, values.split(",")):
        found = (utility if kind == "utility" else attack)(defence, value, given)
        print(json.dumps(found | {"defence": defence, "value": value}), flush=True)


def read(file: Path) -> list[Result]:
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def summary(results: list[Result]) -> dict[str, Result]:
    """Of each defence and strength: the best accuracy, and the strongest attack."""
    found: dict[str, Result] = {}
    for r in results:
        row = found.setdefault(r["defence"], {"accuracy": 0.0, "psnr": -np.inf})
        if r["kind"] == "utility":
            row["accuracy"] = max(row["accuracy"], r["accuracy"])
        elif np.mean(r["psnr"]) > row["psnr"]:
            row |= {"psnr": float(np.mean(r["psnr"])), "ssim": float(np.mean(r["ssim"]))}
            row["variation"] = r["variation"]
    return found


def at_loss(ladder: list[str], rows: dict[str, Result], loss: float) -> tuple[float, float] | None:
    """PSNR and SSIM where a ladder has lost so much accuracy; None if it never has."""
    steps = ["none", *ladder]
    lost = [rows["none"]["accuracy"] - rows[name]["accuracy"] for name in steps]
    for i in range(1, len(steps)):
        if lost[i] >= loss:
            share = (
                0.0 if lost[i] == lost[i - 1] else (loss - lost[i - 1]) / (lost[i] - lost[i - 1])
            )
            share = min(1.0, max(0.0, share))
            first, second = rows[steps[i - 1]], rows[steps[i]]
            mixed = [(1 - share) * first[k] + share * second[k] for k in ("psnr", "ssim")]
            return mixed[0], mixed[1]
    return None


def print_table(results: list[Result], blank: float) -> None:
    rows = summary(results)
    print("| defence | accuracy | loss | PSNR, dB | SSIM |\n|---|---:|---:|---:|---:|")
    for name in (n for ladder in LADDERS.values() for n in ladder if "ssim" in rows.get(n, {})):
        r = rows[name]
        lost = rows["none"]["accuracy"] - r["accuracy"]
        print(
            f"| `{name}` | {r['accuracy']:.1%} | {lost:.1%} | {r['psnr']:.1f} | {r['ssim']:.2f} |"
        )
    print(f"\nOne flat colour, the mean of the image: {blank:.1f} dB\n")
    heads = [f"PSNR at a loss of {loss:.0%} (SSIM)" for loss in LOSSES]
    print(f"| defence | {' | '.join(heads)} |\n|---|{'---:|' * len(LOSSES)}")
    for name, ladder in LADDERS.items():
        found = [at_loss(ladder, rows, loss) for loss in LOSSES]
        cells = ["costs less" if f is None else f"{f[0]:.1f} ({f[1]:.2f})" for f in found]
        if name != "none":
            print(f"| {name} | {' | '.join(cells)} |")


def blank_psnr(given: argparse.Namespace) -> float:
    """Of each image's own mean colour: more than is known without a gradient."""
    _, x, _, _, _ = setting(given)
    images = x[: SETTINGS[given.network].batch * given.updates].cpu().numpy()
    errors = np.square(images - images.mean(axis=(2, 3), keepdims=True)).mean(axis=(1, 2, 3))
    return float((-10 * np.log10(errors)).mean())


def draw(results: list[Result], path: Path) -> None:
    """PSNR against the loss of accuracy, a line a defence."""
    from sfumato.reports.style import COLOURS, new_figure, save

    rows = summary(results)
    figure, axes = new_figure(
        "What is left of the images at what cost", "accuracy lost, points", "PSNR, dB", (7.2, 4.4)
    )
    for colour, (name, ladder) in zip(COLOURS * 2, list(LADDERS.items())[1:], strict=False):
        known = [n for n in ["none", *ladder] if n in rows]
        lost = [100 * (rows["none"]["accuracy"] - rows[n]["accuracy"]) for n in known]
        axes.plot(lost, [rows[n]["psnr"] for n in known], "o-", color=colour, label=name)
    axes.legend()
    save(figure, path)


def main() -> None:
    parser = argparse.ArgumentParser(description="Defences of shared gradients at equal cost.")
    add = parser.add_argument
    add("--folder", type=Path, required=True)
    add("--device", default="cpu")
    add("--network", default="smooth", choices=list(SETTINGS))
    add("--rounds", type=int, default=800)
    add("--iterations", type=int, default=400)
    add("--updates", type=int, default=3, help="that are inverted")
    add("--rows", type=int, default=50_000)
    add("--processes", type=int, default=1)
    add("--quick", action="store_true", help="a rehearsal: few rounds, few steps")
    add("--table", action="store_true", help="only the table")
    add("--plot", type=Path)
    add("--one", nargs=3, metavar=("KIND", "DEFENCE", "VALUES"))
    given = parser.parse_args()
    if given.quick:
        given.rounds, given.iterations, given.updates, given.rows = 40, 20, 1, 1000
    if given.one:
        run_one(given)
        return
    if not given.table:
        run_all(given)
    results = read(given.folder / "results.jsonl")
    print_table(results, blank_psnr(given))
    if given.plot is not None:
        draw(results, given.plot)


if __name__ == "__main__":
    main()
