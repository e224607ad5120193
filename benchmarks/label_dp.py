"""Private labels, public inputs: accuracy at each epsilon, in one stage and in two.

    python benchmarks/label_dp.py --data mnist --folder /tmp/labels
    python benchmarks/label_dp.py --folder /tmp/labels --epsilons 2 --stages 2 --seeds 0 1 2
    python benchmarks/label_dp.py --folder /tmp/c --data cifar10 --device cuda --half --compile
    python benchmarks/label_dp.py --folder /tmp/c --data cifar10 --device cuda --half --compile \
        --preset contrastive --epsilons 1 2 --stages 2 --change pretraining_epochs=200
    python benchmarks/label_dp.py --folder /tmp/labels --table

Each row is a run of ``sfumato train label-dp`` with the preset for the data, in a folder of its
own; one that was cut off goes on, so a long table can be had in pieces (``--minutes``). Reports are
drawn by the operating system's coins, as in a release. ``--dp-sgd`` adds DP-SGD at the same epsilon
(delta 1e-5), which protects inputs as well: more is promised there, and more is paid.

``--change KEY=JSON`` changes fields of the recipe; such runs have folders of their own. A preset
that pre-trains does so once: the other runs of a command take the body of the first that has one,
or ``--pretrained FILE``, if inputs and settings are the same.

Published: Ghazi et al., arXiv:2102.06062, tables 1 and 2.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
from pathlib import Path
from typing import Any

from sfumato.data import Dataset, load_dataset
from sfumato.learning.label_dp import LabelRecipe, OutOfTime, label_preset, train_label_dp
from sfumato.learning.label_dp.fitting import Clock
from sfumato.learning.label_dp.pretrained import Pretrained, pretraining_facts
from sfumato.learning.runs.folder import RunFolder

PUBLISHED = {
    ("mnist", 1): {1: 95.34, 2: 98.16, 3: 98.81, 4: 99.08},
    ("mnist", 2): {1: 95.82, 2: 98.78, 3: 99.14, 4: 99.24},
    ("fashion-mnist", 2): {1: 83.26, 2: 91.24, 3: 93.18, 4: 94.10},
    ("cifar10", 1): {1: 59.96, 2: 82.38, 3: 89.89, 4: 92.58, 8: 94.70},
    ("cifar10", 2): {1: 63.67, 2: 86.05, 3: 92.19, 4: 93.37, 8: 94.52},
    ("cifar10", "pre-trained, two stages"): {1: 70.16, 2: 87.22, 3: 92.12, 4: 93.53},
}


def run_row(
    data: Dataset, epsilon: float, stages: int, seed: int, asked: Any, clock: Clock
) -> None:
    """One run, begun or gone on with; nothing if it is finished."""
    folder = asked.folder / f"{data.name}-{epsilon:g}-{stages}-{seed}{_suffix(asked)}"
    kept = RunFolder(folder)
    if kept.finished:
        return
    if kept.begun:
        recipe = LabelRecipe.from_dict(kept.request()["label_dp"])
    else:
        recipe = label_preset(data, epsilon, stages, asked.preset, seed=seed, **_changes(asked))
    lent = _lent(recipe, data, asked)
    trained = train_label_dp(
        recipe, data, out=folder, resume=kept.begun, device=asked.device, half=asked.half,
        compile=asked.compile, minutes=clock.minutes_left, pretrained=lent,
    )  # fmt: skip
    print(f"{folder.name}: {trained.accuracy:.4f}", flush=True)


def _changes(asked: Any) -> dict[str, Any]:
    """Of the preset's recipe."""
    found = {} if asked.epochs is None else {"epochs": asked.epochs}
    for change in asked.change:
        key, _, value = change.partition("=")
        try:
            found[key] = json.loads(value)
        except ValueError:
            raise SystemExit(f"--change must be KEY=JSON, got {change!r}") from None
    if asked.change:
        found.setdefault("origin", f"the preset's, with {', '.join(asked.change)}")
    return found


def _suffix(asked: Any) -> str:
    """Of the folder: whether networks are pre-trained, and what was changed."""
    parts = (["contrastive"] if asked.preset == "contrastive" else []) + asked.change
    return "".join("-" + re.sub(r"[^A-Za-z0-9.=_]+", "_", part).strip("_") for part in parts)


def _lent(recipe: LabelRecipe, data: Dataset, asked: Any) -> Path | None:
    """The body of another run on the same inputs, if there is one."""
    if recipe.pretraining == "none":
        return None
    if asked.pretrained is not None:
        return asked.pretrained
    facts = pretraining_facts(recipe, data)
    for file in sorted(asked.folder.glob("*/curator/pretrained.safetensors")):
        if Pretrained.read(file).facts == facts:
            return file
    return None


def run_dp_sgd(data: Dataset, epsilon: float, asked: Any) -> None:
    """The usual recipe of DP-SGD for the data."""
    from sfumato.learning.recipes import preset, train

    folder = asked.folder / f"{data.name}-{epsilon:g}-dpsgd-0"
    if not RunFolder(folder).finished:
        recipe = preset(None, data, epsilon=epsilon)
        train(recipe, data, out=folder, resume=RunFolder(folder).begun, device=asked.device)


def table(folder: Path) -> str:
    """Markdown, from the records in the folder."""
    found: dict[tuple[str, float], dict[str, list[float]]] = {}
    for file in sorted(folder.glob("*/record.json")):
        record = json.loads(file.read_text())
        stages = len(record["facts"].get("labels_of_each_stage", ()))
        name = {1: "one stage", 2: "two stages"}.get(stages, "DP-SGD")
        if "pretraining" in record["facts"]:
            name = f"pre-trained, {name}"
        place = record["facts"]["data"]["name"], round(record["guarantee"]["epsilon"], 2)
        found.setdefault(place, {}).setdefault(name, []).append(100 * record["facts"]["accuracy"])
    columns: dict[str, int | str] = {"one stage": 1, "two stages": 2}
    columns |= {name: name for name in (f"pre-trained, {stages}" for stages in list(columns))}
    heads = ["data", "epsilon", *(f"{name} | published" for name in columns), "DP-SGD"]
    lines = ["| " + " | ".join(heads) + " |", "| --- " * 11 + "|"]
    for (data, epsilon), rows in sorted(found.items()):
        cells = [data, f"{epsilon:g}"]
        for name, kind in columns.items():
            known = PUBLISHED.get((data, kind), {}).get(round(epsilon), "")
            cells += [_shown(rows.get(name, [])), str(known)]
        lines.append("| " + " | ".join([*cells, _shown(rows.get("DP-SGD", []))]) + " |")
    return "\n".join(lines)


def _shown(values: list[float]) -> str:
    """The mean, and the least of several."""
    if not values:
        return ""
    mean = f"{statistics.mean(values):.2f}"
    return mean if len(values) == 1 else f"{mean} (least of {len(values)}: {min(values):.2f})"


def main() -> None:
    """Runs what is asked for, then prints the table."""
    parser = argparse.ArgumentParser(description="Accuracy with private labels.")
    parser.add_argument("--data", default="mnist")
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--epsilons", type=float, nargs="+", default=[1, 2, 3, 4])
    parser.add_argument("--stages", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--preset")
    parser.add_argument("--epochs", type=float)
    parser.add_argument("--change", nargs="+", default=[], metavar="KEY=JSON")
    parser.add_argument("--pretrained", type=Path, help="a body of another run on the same inputs")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--half", action="store_true")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--minutes", type=float, help="stop after so many; run again to go on")
    parser.add_argument("--dp-sgd", action="store_true")
    parser.add_argument("--table", action="store_true", help="only print what there is")
    asked = parser.parse_args()
    if not asked.table:
        data, clock = load_dataset(asked.data), Clock(asked.minutes)
        try:
            for seed in asked.seeds:
                for epsilon in asked.epsilons:
                    for stages in asked.stages:
                        run_row(data, epsilon, stages, seed, asked, clock)
            for epsilon in asked.epsilons if asked.dp_sgd else ():
                run_dp_sgd(data, epsilon, asked)
        except OutOfTime as stopped:
            print(f"{stopped}: run the same command again to go on", flush=True)
    print(table(asked.folder))


if __name__ == "__main__":
    main()
