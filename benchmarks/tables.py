"""Accuracy at a given epsilon on MNIST and CIFAR-10: several runs of one command each.

    python benchmarks/tables.py --out tables                  # everything, some hours
    python benchmarks/tables.py --out tables --only mnist-3 --runs 1

Every run is ``sfumato train dp-sgd ...`` in a process of its own, into a folder of its own. What is
there already is not run again, so that the table can be made in pieces. Times are wall times of
whole commands, features included; run it on an idle machine.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROWS = {
    "abadi-0.5": "--data mnist --preset abadi-mnist --epsilon 0.5",
    "abadi-2": "--data mnist --preset abadi-mnist --epsilon 2",
    "abadi-8": "--data mnist --preset abadi-mnist --epsilon 8",
    "pca-0.5": "--data mnist --preset pca-mlp --epsilon 0.5",
    "pca-2": "--data mnist --preset pca-mlp --epsilon 2",
    "pca-8": "--data mnist --preset pca-mlp --epsilon 8",
    "mnist-0.5": "--data mnist --preset scattering-linear --epsilon 0.5",
    "mnist-2": "--data mnist --preset scattering-linear --epsilon 2",
    "mnist-3": "--data mnist --preset scattering-linear --epsilon 3",
    "cifar10-linear-3": "--data cifar10 --preset scattering-linear --epsilon 3",
    "cifar10-cnn-3": "--data cifar10 --preset scattering-cnn --epsilon 3",
}


def main() -> None:
    """Runs what is missing, then prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("tables"))
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--only", nargs="*", choices=sorted(ROWS), default=list(ROWS))
    parser.add_argument("--device", default="auto")
    parser.add_argument("--untimed", action="store_true", help="the machine has other work")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    for number in range(arguments.runs):
        for name in arguments.only:
            folder = arguments.out / f"{name}-run{number + 1}"
            run(name, folder, arguments.device, timed=not arguments.untimed)
    print(table(arguments.out))


def run(name: str, folder: Path, device: str, timed: bool) -> None:
    """One command, unless it ran before."""
    if (folder / "record.json").exists():
        return
    if folder.exists():
        arguments, timed = ["resume", str(folder)], False
    else:
        arguments = ["dp-sgd", *ROWS[name].split(), "--out", str(folder)]
    program = [sys.executable, "-m", "sfumato.cli.main", "train", *arguments]
    began = time.monotonic()
    subprocess.run([*program, "--device", device, "--json"], check=True, stdout=subprocess.DEVNULL)
    took = time.monotonic() - began
    facts = {"seconds": took, "command": f"sfumato train dp-sgd {ROWS[name]}", "device": device}
    if timed:
        (folder / "timing.json").write_text(json.dumps(facts))
    accuracy = json.loads((folder / "record.json").read_text())["facts"]["accuracy"]
    print(f"{folder.name}: {100 * accuracy:.2f} % in {took:.0f} s", flush=True)


def table(out: Path) -> str:
    """All finished runs, as Markdown."""
    lines = ["| command | epsilon | runs | accuracy | spread | time |", "|---|---|---|---|---|---|"]
    for name, command in ROWS.items():
        folders = sorted(out.glob(f"{name}-run*/record.json"))
        if not folders:
            continue
        records = [json.loads(path.read_text()) for path in folders]
        found = [100 * record["facts"]["accuracy"] for record in records]
        spread = f"{statistics.stdev(found):.2f}" if len(found) > 1 else ""
        timed = out.glob(f"{name}-run*/timing.json")
        times = [json.loads(path.read_text())["seconds"] for path in timed]
        epsilon = max(record["guarantee"]["epsilon"] for record in records)
        lines.append(
            f"| `{command}` | {epsilon:.4g} | {len(found)} | {statistics.mean(found):.2f} % | "
            f"{spread} | {_shown(times)} |"
        )
    return "\n".join(lines)


def _shown(times: list[float]) -> str:
    """The median, of runs that had the machine to themselves."""
    return f"{statistics.median(times):.0f} s" if times else ""


if __name__ == "__main__":
    main()
