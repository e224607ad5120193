"""Images from gradients: CIFAR-10, several networks, batches and defences, with pictures.

    python benchmarks/gradient_inversion.py --folder F --device cuda --iterations 24000 --trials 4
    python benchmarks/gradient_inversion.py --folder F --only smooth           # minutes on one core
    python benchmarks/gradient_inversion.py --folder F --table --plot docs/gradient-inversion.png

The first test images of CIFAR-10, untrained networks. *smooth*: ``leaky_cnn``, squared distance and
L-BFGS (DLG); *relu*: ``relu_cnn`` of width 64, by the angle, signs and total variation; with four
local steps, and batches of four and eight. Labels are recovered, but told for batches. DP-SGD clips
to 1 and has the epsilon stated for this one update at delta 1e-5. What is in F is not run again.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

DELTA = 1e-5


@dataclass(frozen=True)
class Case:
    """What is run: a network, a batch, a defence."""

    name: str
    network: str
    defence: str
    batch: int = 1
    updates: int = 4
    variation: float = 0.0


CASES = [
    Case("smooth", "smooth", "none"),
    Case("smooth, 4 local steps", "smooth", "local=4"),
    Case("smooth, batch 4", "smooth", "none", 4, 1),
    *(Case(f"smooth, DP-SGD {e}", "smooth", f"dp-sgd={e}") for e in (1000, 100, 8)),
    Case("relu", "relu", "none", variation=0.01),
    Case("relu, 4 local steps", "relu", "local=4", variation=0.01),
    Case("relu, batch 4", "relu", "none", 4, 1, 0.01),
    Case("relu, batch 8", "relu", "none", 8, 1, 0.01),
    *(Case(f"relu, DP-SGD {e}", "relu", f"dp-sgd={e}", variation=0.01) for e in (1000, 100, 8)),
]


def run_case(case: Case, given: argparse.Namespace) -> dict[str, Any]:
    """Images, originals and what they have in common."""
    import torch

    from sfumato.attacks.gradients.matching import Matching, invert_gradient
    from sfumato.attacks.gradients.networks import leaky_cnn, relu_cnn
    from sfumato.attacks.gradients.sharing import share_gradient
    from sfumato.cli.defence_options import parsed_defences
    from sfumato.data import load_dataset
    from sfumato.learning.recipes.inputs import inputs_of

    torch.backends.cudnn.allow_tf32 = False
    data = load_dataset("cifar10")
    x = inputs_of(data.test.inputs[:64], data.bounds).to(given.device)
    y = torch.from_numpy(np.asarray(data.test.labels[:64], np.int64)).to(given.device)
    torch.manual_seed(0)
    made = leaky_cnn((3, 32, 32), 10) if case.network == "smooth" else relu_cnn((3, 32, 32), 10, 64)
    model = made.to(given.device)
    how = Matching.dlg(given.smooth_iterations, given.trials, case.variation)
    if case.network == "relu":
        how = Matching(
            iterations=given.iterations, trials=given.trials, rate=0.05, variation=case.variation
        )
    found: dict[str, list[Any]] = {"psnr": [], "ssim": [], "images": [], "originals": []}
    begin = time.perf_counter()
    for number in range(case.updates):
        rows = slice(case.batch * number, case.batch * (number + 1))
        sent = share_gradient(
            model, x[rows], y[rows], defences=parsed_defences(case.defence, DELTA),
            generator=np.random.default_rng(number),
        )  # fmt: skip
        back = invert_gradient(
            model, sent, (3, 32, 32), generator=np.random.default_rng([number, 1]), matching=how,
            labels=y[rows].cpu().numpy() if case.batch > 1 else None,
        )  # fmt: skip
        originals = x[rows].cpu().numpy()
        alike = back.compared(originals)
        found["psnr"].append(alike.psnr)
        found["ssim"].append(alike.ssim)
        found["images"].append(back.images[alike.order])
        found["originals"].append(originals)
    seconds = (time.perf_counter() - begin) / case.updates
    return {k: np.concatenate(v) for k, v in found.items()} | {"seconds": np.array(seconds)}


def file_of(folder: Path, case: Case) -> Path:
    return folder / f"{case.name.replace(', ', '-').replace(' ', '_')}.npz"


def print_table(folder: Path) -> None:
    print("| | PSNR, dB: each | mean | SSIM | seconds an update |\n|---|---|---:|---:|---:|")
    for case in CASES:
        if file_of(folder, case).exists():
            r = np.load(file_of(folder, case))
            each = ", ".join(f"{p:.1f}" for p in r["psnr"])
            print(
                f"| {case.name} | {each} | {r['psnr'].mean():.1f} | {r['ssim'].mean():.2f} | "
                f"{float(r['seconds']):.0f} |"
            )


def draw(folder: Path, path: Path) -> None:
    """The first four images of single updates, a row a case."""
    from sfumato.reports.inversion_figures import inversion_figure
    from sfumato.reports.style import save

    shown = [c for c in CASES if c.batch == 1 and file_of(folder, c).exists()]
    kept = {c: np.load(file_of(folder, c)) for c in shown}
    rows: list[Any] = [("originals", kept[shown[0]]["originals"], None)]
    for case in shown:
        text = f"{case.name}\n{kept[case]['psnr'].mean():.1f} dB"
        rows.append((text, kept[case]["images"], None))
    save(inversion_figure(rows, ["", "", "", ""], title="Images from a shared gradient"), path)


def main() -> None:
    parser = argparse.ArgumentParser(description="Images from gradients.")
    add = parser.add_argument
    add("--folder", type=Path, required=True)
    add("--device", default="cpu")
    add("--iterations", type=int, default=4800, help="of inverting gradients")
    add("--smooth-iterations", type=int, default=1500, help="of DLG")
    add("--trials", type=int, default=2)
    add("--only", default="", help="cases whose name begins so")
    add("--exactly", default="", help="the case of that name")
    add("--table", action="store_true")
    add("--plot", type=Path)
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    for case in [] if given.table else CASES:
        wanted = case.name.startswith(given.only) and given.exactly in ("", case.name)
        if wanted and not file_of(given.folder, case).exists():
            found = run_case(case, given)
            np.savez_compressed(file_of(given.folder, case), **found)
            print(f"{case.name}: {found['psnr'].round(1)}", flush=True)
    print_table(given.folder)
    if given.plot is not None:
        draw(given.folder, given.plot)


if __name__ == "__main__":
    main()
