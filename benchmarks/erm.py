"""Private linear models of tables: every way against epsilon, with diffprivlib beside them.

    python benchmarks/erm.py                                   # labsup, a minute
    python benchmarks/erm.py --data census2000 --seeds 20
    python benchmarks/erm.py --peer-python /tmp/dpl/bin/python  # with diffprivlib

diffprivlib needs an older scikit-learn than ours, so it runs in an environment of its own:

    python3 -m venv /tmp/dpl && /tmp/dpl/bin/pip install diffprivlib 'scikit-learn<1.8'

Accuracy is on the public test set, the mean over seeds with its standard deviation. All are for
replace-one neighbours, and diffprivlib's, which has pure guarantees only, on the same scaled rows:
with its default C, and with the best of several C, chosen on the test set in its favour.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
from pathlib import Path

import numpy as np
from sklearn.linear_model import LogisticRegression

from sfumato.core.randomness import SeededCoins
from sfumato.data import load_dataset
from sfumato.learning.erm import PrivateLogisticRegression, way_names
from sfumato.learning.erm.recipe import ErmRecipe
from sfumato.learning.erm.training import declared_bounds

PEER = """
import json, sys, warnings
import numpy as np
warnings.simplefilter("ignore")
import diffprivlib
from diffprivlib.models import LogisticRegression
from sklearn.utils import check_random_state
with np.load(sys.argv[1]) as f:
    rows, labels, test, wanted = (f[n] for n in ("rows", "labels", "test", "wanted"))
found = {"version": diffprivlib.__version__}
for epsilon in json.loads(sys.argv[2]):
    for c in json.loads(sys.argv[4]):
        scores = []
        for seed in range(int(sys.argv[3])):
            model = LogisticRegression(
                epsilon=epsilon, data_norm=1.0, C=c, fit_intercept=False, max_iter=1000,
                random_state=check_random_state(seed),
            )
            scores.append(float((model.fit(rows, labels).predict(test) == wanted).mean()))
        found[f"{epsilon} {c}"] = scores
print(json.dumps(found))
"""
TRIED = [1e-3, 1e-2, 0.1, 1.0, 10.0]


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default="labsup")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--epsilons", type=float, nargs="*", default=[0.1, 0.3, 1, 3, 10])
    parser.add_argument("--peer-python", type=Path)
    given = parser.parse_args()
    data = load_dataset(given.data)
    flat = [part.inputs.reshape(len(part.inputs), -1) for part in (data.train, data.test)]
    rows, test = (values / data.bounds[1] for values in flat)
    labels, wanted = data.train.labels, data.test.labels
    plain = LogisticRegression(C=100.0, max_iter=1000).fit(rows, labels).score(test, wanted)
    print(f"{given.data}: {len(rows):,} rows, {rows.shape[1]} columns; not private {plain:.2%}\n")
    print("| way | delta | " + " | ".join(f"epsilon {e:g}" for e in given.epsilons) + " |")
    print("|---|---|" + "---|" * len(given.epsilons))
    bounds = declared_bounds(ErmRecipe(), data, None)
    for delta in (1e-5, 0.0):
        for way in way_names():
            cells = [
                ours(way, epsilon, delta, bounds, (rows, labels, test, wanted), given.seeds)
                for epsilon in given.epsilons
            ]
            print(f"| {way} | {delta:g} | " + " | ".join(cells) + " |", flush=True)
    if given.peer_python is not None:
        scaling = PrivateLogisticRegression(bounds=bounds).scaling(rows.shape[1])
        peers(given, scaling.rows(rows), labels, scaling.rows(test), wanted)


def ours(way: str, epsilon: float, delta: float, bounds, tables, seeds: int) -> str:
    rows, labels, test, wanted = tables
    classes = tuple(range(int(wanted.max()) + 1))
    scores = [
        PrivateLogisticRegression(
            epsilon=epsilon, delta=delta, way=way, bounds=bounds, classes=classes,
            coins=SeededCoins(seed),
        ).fit(rows, labels).score(test, wanted)
        for seed in range(seeds)
    ]  # fmt: skip
    return shown(scores)


def peers(given: argparse.Namespace, rows, labels, test, wanted) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "rows.npz"
        np.savez(file, rows=rows, labels=labels, test=test, wanted=wanted)
        arguments = [json.dumps(given.epsilons), str(given.seeds), json.dumps(TRIED)]
        command = [str(given.peer_python), "-c", PEER, str(file), *arguments]
        found = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    name = f"diffprivlib {found['version']}"
    usual = [shown(found[f"{e} 1.0"]) for e in given.epsilons]
    print(f"| {name}, default C | 0 | " + " | ".join(usual) + " |")
    best = [
        shown(max((found[f"{e} {c}"] for c in TRIED), key=lambda scores: float(np.mean(scores))))
        for e in given.epsilons
    ]
    print(f"| {name}, best C on test | 0 | " + " | ".join(best) + " |")


def shown(scores: list[float]) -> str:
    return f"{100 * np.mean(scores):.2f} ± {100 * np.std(scores):.2f}"


if __name__ == "__main__":
    main()
