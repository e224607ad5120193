"""Defences of a two-layer network's gradients at equal cost: what is lost, what is reconstructed.

    python benchmarks/two_layer_defences.py --folder F           # what F lacks, then the tables
    python benchmarks/two_layer_defences.py --folder F --only noise --seeds 1
    python benchmarks/two_layer_defences.py --folder F --table --plot docs/defences-two-layer.png
    python benchmarks/two_layer_defences.py --folder F --quick   # a rehearsal

MNIST, even digits against odd, on 50 principal components of Fashion-MNIST: a public projection,
whitened by public variances, each image then scaled to length 1. f(x) = sum_j a_j sigma(w_j.x),
sigma(z) = z^2 + z^3, hidden weights random, public and fixed, output weights trained from nearly 0.
Sixteen participants a round send a defended gradient of four images each, by the output weights;
the server steps along their mean, at a rate that falls linearly to 0.

Every level is a public constant, in units of what any one image of length 1 and label +-1 gives on
average over networks: numbers of size u = sqrt(E sigma^2), a gradient of norm G = u sqrt(m).

- *Utility*: test accuracy at the best of several rates, a mean over seeds (network, batches,
  noise). The rate is chosen on the test set, for every defence alike.
- *Attack*: on updates of the first round; the server sees each of them, knows the network, the
  defence and B. "Tensor" is the tensor attack alone. "Polished" is the strongest: least squares
  from there and from some random starts, the best fit of which counts; under noise once more with
  residuals of the size that labels have. Errors are roots of mean squared distances of unit
  vectors, means over updates; "found" is the share of images nearer than 0.3, a cosine of 0.955.
- *Picked*: another attacker has a thousand images, four of which are those of the update, and
  takes the four that explain it best (matching pursuit); the share that is right.
- *Bound*: the formula of ``bounds``, constants left out; *least*: that of Cramér and Rao, where
  there is noise, for an attacker who knows residuals.

Lines are appended to F/results.jsonl; what it holds is not run again. Equal losses are read off by
interpolation between strengths.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato.attacks.gradients.tensor import bounds, observing
from sfumato.attacks.gradients.tensor.activations import CUBIC
from sfumato.attacks.gradients.tensor.network import TwoLayerNetwork, unit_inputs
from sfumato.attacks.gradients.tensor.polishing import fit_cost, polish, polished_error
from sfumato.attacks.gradients.tensor.reconstructing import reconstruct_by_tensor
from sfumato.attacks.gradients.tensor.results import TensorReconstruction
from sfumato.attacks.gradients.tensor.scoring import match_inputs

Array = NDArray[np.float64]
Row = dict[str, Any]

SIGMA = replace(CUBIC, value=lambda z: z * z * (1 + z))  # without a power: thirty times as fast
UNIT = math.sqrt(sum(s * s / math.factorial(p) for p, s in enumerate(SIGMA.means)))  # E sigma^2
BATCH, PEOPLE, DIMENSION, CANDIDATES = 4, 16, 50, 1000
RATES = (0.1, 0.3, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)  # by G^2, and by what a defence shrinks
LOCAL_RATE = 0.2  # by G^2
SHARE = 0.5  # DP-SGD clips an example's gradient to this share of G
LADDERS: dict[str, list[float]] = {
    "none": [0],
    "local steps": [2, 4, 16],
    "clipping": [1, 0.1, 0.01],
    "noise": [1, 3, 6, 12, 24, 48, 96],
    "DP-SGD": [0.01, 0.03, 0.06, 0.12, 0.25, 0.5, 1],
    "dropout": [0.5, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995],
    "pruning": [0.9, 0.98, 0.99, 0.995, 0.998, 0.999, 0.9995],
}
WORDS = {
    "none": "no defence",
    "local steps": "{:g} local steps",
    "clipping": "clipping to {:g} G",
    "noise": "noise of {:g} u",
    "DP-SGD": "DP-SGD, 0.5 G, multiplier {:g}",
    "dropout": "dropout of {:g}",
    "pruning": "pruning of {:g}",
}
LOSSES = (0.5, 1, 2, 5)  # points of accuracy
NEAR, DELTA = 0.3, 1e-5

# --- data -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Data:
    """Unit vectors and signs."""

    inputs: Array
    labels: Array
    test_inputs: Array
    test_labels: Array


def prepared() -> Data:
    from sfumato.data import load_dataset

    public, private = load_dataset("fashion-mnist"), load_dataset("mnist")
    images = pixels(public.train.inputs[:20_000])
    middle = images.mean(axis=0)
    variances, vectors = np.linalg.eigh(np.cov(images.T))
    project = vectors[:, -DIMENSION:] / np.sqrt(variances[-DIMENSION:])
    parts = []
    for examples in (private.train, private.test):
        rows = (pixels(examples.inputs) - middle) @ project
        parts.append(rows / np.linalg.norm(rows, axis=1, keepdims=True))
        parts.append(1.0 - 2.0 * (np.asarray(examples.labels) % 2))
    return Data(*parts)


def pixels(images: Any) -> Array:
    return np.asarray(images, np.float64).reshape(len(images), -1) / 255


# --- defences -------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Seen:
    """What a participant computes from: features (a row a unit, a column an image) and labels."""

    features: Array
    output: Array
    labels: Array
    random: np.random.Generator

    @property
    def residuals(self) -> Array:
        """One an image."""
        return self.output @ self.features - self.labels

    @property
    def gradient(self) -> Array:
        """Without a defence."""
        return self.features @ self.residuals

    @property
    def norm(self) -> float:
        """G: public, as the width is."""
        return UNIT * math.sqrt(len(self.features))


def local(one: Seen, steps: float) -> Array:
    """As ``observing.locally_summed``; residuals are followed by themselves."""
    gram = one.features.T @ one.features * (LOCAL_RATE / one.norm**2)
    now, total = one.residuals, np.zeros(len(one.labels))
    for _ in range(int(steps)):
        total, now = total + now, now - gram @ now
    return one.features @ total


def private(one: Seen, multiplier: float) -> Array:
    rows = one.features.T * one.residuals[:, None]
    return observing.privatised(rows, SHARE * one.norm, multiplier, generator=one.random)


def dropout(one: Seen, share: float) -> Array:
    """Units are left out of the forward pass, too, as layers of dropout do."""
    kept = one.random.random(len(one.features)) >= share
    left = replace(one, features=one.features[kept] / (1 - share), output=one.output[kept])
    sent = np.zeros(len(kept))
    sent[kept] = left.gradient
    return sent


DEFENCES: dict[str, Callable[[Seen, float], Array]] = {
    "none": lambda one, _: one.gradient,
    "local steps": local,
    "clipping": lambda one, share: observing.clipped(one.gradient, share * one.norm),
    "noise": lambda one, many: one.gradient + many * UNIT * one.random.normal(
        size=len(one.features)
    ),
    "DP-SGD": private,
    "dropout": dropout,
    "pruning": lambda one, share: observing.pruned(one.gradient, share),
}  # fmt: skip


def shrinks(name: str, strength: float) -> float:
    """By how much a defence changes the size of updates, as a public constant: for the rates."""
    if name == "local steps":
        return (1 - (1 - LOCAL_RATE) ** strength) / LOCAL_RATE
    if name == "clipping":
        return min(1.0, strength / math.sqrt(BATCH))
    return SHARE if name == "DP-SGD" else 1.0


def bound(name: str, strength: float, width: int) -> float | None:
    """The formula; None where there is none. One image's share of a number is the unit."""
    sizes, size = (BATCH, DIMENSION, width), math.sqrt(width)
    if name == "noise":
        return bounds.gradient_noise(*sizes, deviation=strength)
    if name == "DP-SGD":
        norm = SHARE * size
        return bounds.dp_sgd(*sizes, deviation=strength * norm, gradient_norm=size, norm=norm)
    if name == "dropout":
        return bounds.dropout(*sizes, share=strength)
    return None if name == "pruning" else bounds.no_defence(*sizes)


def least(name: str, strength: float, network: TwoLayerNetwork, x: Array, y: Array) -> float | None:
    """The error of Cramér and Rao on what is sent first; None where nothing is random."""
    residuals, noise = network.residuals(x, y), strength * UNIT
    if name == "DP-SGD":
        norm = SHARE * UNIT * math.sqrt(network.width)
        sizes = np.linalg.norm(network.example_gradients(x, y), axis=1)
        residuals, noise = residuals * np.minimum(1, norm / sizes), strength * norm
    elif name != "noise":
        return None
    return polished_error(network.hidden, SIGMA, x, residuals, noise, known=True)


# --- utility --------------------------------------------------------------------------------------


@dataclass(eq=False)
class Run:
    """One training."""

    strength: float
    rate: float
    pace: float
    output: Array
    random: np.random.Generator

    def step(self, name: str, people: list[tuple[Array, Array]], share: float) -> None:
        """One round, at this share of the rate."""
        if not np.abs(self.output).max() < 1e3:
            return  # has diverged
        seen = (Seen(features, self.output, labels, self.random) for features, labels in people)
        sent = [DEFENCES[name](one, self.strength) for one in seen]
        self.output = self.output - self.pace * share * np.mean(sent, axis=0)


def utilities(name: str, seed: int, data: Data, given: argparse.Namespace) -> Iterator[Row]:
    """Test accuracy of each strength and rate, all on the same batches."""
    random, network, runs = np.random.default_rng([seed, 1]), drawn(seed, given.width), []
    for strength, rate in ((strength, rate) for strength in LADDERS[name] for rate in RATES):
        pace = rate / (UNIT**2 * given.width * shrinks(name, strength))
        own = np.random.default_rng([seed, 2, len(runs)])
        runs.append(Run(strength, rate, pace, network.output, own))
    for number in range(given.rounds):
        rows = random.choice(len(data.inputs), (PEOPLE, BATCH), replace=False)
        people = [(network.features(data.inputs[some]), data.labels[some]) for some in rows]
        for run in runs:
            run.step(name, people, 1 - number / given.rounds)
    right = accuracies(network, np.stack([run.output for run in runs], axis=1), data)
    for run, share in zip(runs, right, strict=True):
        yield {"strength": run.strength, "rate": run.rate, "accuracy": float(share)}


def accuracies(network: TwoLayerNetwork, outputs: Array, data: Data) -> Array:
    right = np.zeros(outputs.shape[1])
    for start in range(0, len(data.test_inputs), 500):
        rows = slice(start, start + 500)
        told = np.sign(network.features(data.test_inputs[rows]).T @ outputs)
        right += (told == data.test_labels[rows, None]).sum(axis=0)
    return right / len(data.test_inputs)


def drawn(seed: int, width: int) -> TwoLayerNetwork:
    random = np.random.default_rng([seed, 0])
    return TwoLayerNetwork.draw(DIMENSION, width, SIGMA, generator=random)


# --- attacks --------------------------------------------------------------------------------------


def attacks(
    name: str, strength: float, seed: int, data: Data, given: argparse.Namespace
) -> Iterator[Row]:
    """On updates of the first round."""
    network = drawn(seed, given.width)
    picks = np.random.default_rng([seed, 3]).permutation(len(data.inputs))[:CANDIDATES]
    candidates = network.features(data.inputs[picks])
    for number in range(given.updates):
        mine = slice(BATCH * number, BATCH * (number + 1))
        x, y = data.inputs[picks[mine]], data.labels[picks[mine]]
        random = np.random.default_rng([seed, 4, number])
        sent = DEFENCES[name](Seen(candidates[:, mine], network.output, y, random), strength)
        first, last = strongest(name, sent, network.hidden, given, random)
        found = match_inputs(last, x)
        seen = sent != 0
        if name == "pruning" and seen.sum() < 10 * BATCH:
            seen[:] = True  # where so few are left, that others are small says more
        named = set(pursued(sent[seen], candidates[seen])) & set(range(mine.start, mine.stop))
        yield {
            "strength": strength,
            "tensor": match_inputs(first, x).error,
            "polished": found.error,
            "distances": found.distances.tolist(),
            "picked": len(named) / BATCH,
            "least": least(name, strength, network, x, y),
        }


def strongest(
    name: str, sent: Array, hidden: Array, given: argparse.Namespace, random: np.random.Generator
) -> tuple[TensorReconstruction, TensorReconstruction]:
    """The tensor attack's result, and the best fit from there or from some random starts."""
    seen = sent != 0 if name == "dropout" else np.ones(len(sent), dtype=bool)
    values, weights, pruned = sent[seen], hidden[seen], name == "pruning"
    few = len(values) < 2 * DIMENSION  # too few for a regression: zeros have to do as values
    shown = (sent, hidden) if few else (values, weights)
    first = reconstruct_by_tensor(*shown, SIGMA, BATCH, generator=random)
    size = {"noise": 1.0, "DP-SGD": SHARE}.get(name)
    fit = partial(polish, gradient=values, hidden=weights, activation=SIGMA, pruned=pruned)
    best, least_cost = first, math.inf
    for number in range(1 + (given.starts if size is None else given.noisy_starts)):
        other = replace(first, inputs=unit_inputs(BATCH, DIMENSION, generator=random))
        found = fit(first if number == 0 else other, steps=100)
        if size is not None:
            found = fit(found, size=size, steps=100)
        cost = fit_cost(found, values, weights, SIGMA, pruned=pruned)
        if cost < least_cost:
            best, least_cost = found, cost
        if least_cost <= 1e-16 * (values @ values):
            break  # fits exactly
    return first, best


def pursued(values: Array, columns: Array) -> list[int]:
    """The columns that explain values best: one after the other, then each exchanged once more."""
    sizes = np.linalg.norm(columns, axis=0)
    taken: list[int] = []
    for turn in range(3 * BATCH):
        others = taken[turn % BATCH + 1 :] + taken[: turn % BATCH] if turn >= BATCH else taken
        kept = columns[:, others]
        rest = values - kept @ np.linalg.lstsq(kept, values, rcond=None)[0] if others else values
        along = np.linalg.qr(kept)[0]  # gains are by what is new in a column
        new = np.sqrt(np.maximum(sizes**2 - np.square(along.T @ columns).sum(axis=0), 0))
        gains = np.where(new > 1e-6 * sizes, np.abs(rest @ columns) / np.maximum(new, 1e-300), 0)
        chosen = int(gains.argmax())
        taken = [*taken, chosen] if turn < BATCH else [chosen if i == turn % BATCH else taken[i]
                                                       for i in range(BATCH)]  # fmt: skip
    return taken


# --- results --------------------------------------------------------------------------------------


def run_all(given: argparse.Namespace) -> None:
    given.folder.mkdir(parents=True, exist_ok=True)
    file = given.folder / "results.jsonl"
    held = {(row["kind"], row["defence"], row["seed"], row["strength"]) for row in read(file)}
    data = prepared()
    for name, seed, strength in jobs(given):
        began = time.perf_counter()
        if strength is None:
            kind, made = "utility", partial(utilities, name, seed, data, given)
        else:
            kind, made = "attack", partial(attacks, name, strength, seed, data, given)
        if (kind, name, seed, LADDERS[name][0] if strength is None else strength) in held:
            continue
        whose = {"kind": kind, "defence": name, "seed": seed}
        lines = [json.dumps(whose | row) + "\n" for row in made()]
        with file.open("a") as out:
            out.writelines(lines)
        print(kind, name, seed, strength, f"{time.perf_counter() - began:.0f} s", flush=True)


def jobs(given: argparse.Namespace) -> Iterator[tuple[str, int, float | None]]:
    """Defence, seed, and the strength that is attacked; None to train, all strengths at once."""
    # Losses of accuracy are against training without a defence, which is run in any case.
    for name in LADDERS if given.only is None else dict.fromkeys(["none", *given.only]):
        for seed in range(given.seeds):
            yield name, seed, None
            yield from ((name, seed, strength) for strength in LADDERS[name])


def read(file: Path) -> list[Row]:
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def summary(rows: list[Row]) -> dict[tuple[str, float], Row]:
    """Of each defence and strength."""
    found: dict[tuple[str, float], Row] = {}
    for name, strength in ((name, one) for name, ladder in LADDERS.items() for one in ladder):
        mine = [r for r in rows if (r["defence"], r["strength"]) == (name, strength)]
        trained = [r for r in mine if r["kind"] == "utility"]
        attacked = [r for r in mine if r["kind"] == "attack"]
        if trained and attacked:
            found[name, strength] = trained_best(trained) | attacked_mean(attacked)
    if ("none", 0) not in found:
        raise SystemExit("there are no results without a defence to compare with: run it first")
    for row in found.values():
        row["loss"] = 100 * (found["none", 0]["accuracy"] - row["accuracy"])
    return found


def trained_best(rows: list[Row]) -> Row:
    """At the rate that is best on average."""
    by_rate = {rate: [r["accuracy"] for r in rows if r["rate"] == rate] for rate in RATES}
    rate, shares = max(by_rate.items(), key=lambda one: float(np.mean(one[1])))
    return {"rate": rate, "accuracy": float(np.mean(shares)), "spread": float(np.std(shares))}


def attacked_mean(rows: list[Row]) -> Row:
    keys = [k for k in ("tensor", "polished", "picked", "least") if rows[0][k] is not None]
    means: Row = {key: float(np.mean([r[key] for r in rows])) for key in keys}
    return means | {"found": float(np.mean(np.ravel([r["distances"] for r in rows]) < NEAR))}


def ran(found: dict[tuple[str, float], Row]) -> list[str]:
    """The defences of which there are results."""
    return [name for name in LADDERS if name != "none" and any(name == key[0] for key in found)]


def climbed(name: str, found: dict[tuple[str, float], Row]) -> list[Row]:
    """The rows of a ladder, that without a defence first."""
    return [found["none", 0], *(found[name, s] for s in LADDERS[name] if (name, s) in found)]


def at_loss(steps: list[Row], loss: float) -> Row | None:
    """Where a ladder has lost so much accuracy; None if it never has."""
    for one, other in pairwise(steps):
        if other["loss"] >= loss:
            share = (loss - one["loss"]) / (other["loss"] - one["loss"])
            keys = ("tensor", "polished", "found", "picked")
            return {key: (1 - share) * one[key] + share * other[key] for key in keys}
    return None


def print_tables(rows: list[Row], given: argparse.Namespace) -> None:
    found = summary(rows)
    print("| defence | accuracy | loss, points | rate | bound | tensor | polished | least | found |"
          f" picked |\n|---|{'---:|' * 9}")  # fmt: skip
    for (name, strength), r in found.items():
        formula = bound(name, strength, given.width)
        words = WORDS[name].format(strength) + (epsilon(strength) if name == "DP-SGD" else "")
        print(
            f"| {words} | {r['accuracy']:.1%} ± {r['spread']:.1%} | {r['loss']:.1f} | "
            f"{r['rate']:g} | {'none proven' if formula is None else f'{formula:.2f}'} | "
            f"{r['tensor']:.2f} | {number(r['polished'])} | "
            f"{number(r['least']) if 'least' in r else '-'} | {r['found']:.0%} | "
            f"{r['picked']:.0%} |"
        )
    print(f"\n| defence | {' | '.join(f'at a loss of {loss:g}' for loss in LOSSES)} |")
    print(f"|---|{'---:|' * len(LOSSES)}")
    for name in ran(found):
        steps = climbed(name, found)
        cells = [(at_loss(steps, loss), "") for loss in LOSSES]
        cells = [(steps[-1], "costs less: ") if r is None else (r, words) for r, words in cells]
        print(f"| {name} | {' | '.join(words + cell(r) for r, words in cells)} |")
    middle = math.sqrt(1 - np.square(prepared().inputs.mean(axis=0)).sum())
    print(f"\nThe mean of all images instead of each: error {middle:.2f}")


def cell(r: Row) -> str:
    return f"{number(r['polished'])} (tensor {r['tensor']:.2f}), picked {r['picked']:.0%}"


def number(value: float) -> str:
    return "0" if value < 1e-6 else f"{value:.2f}"


def epsilon(multiplier: float) -> str:
    from sfumato.accounting import account
    from sfumato.core.events import GaussianEvent

    return f" (epsilon {account(GaussianEvent(multiplier), DELTA).epsilon:.3g} an update)"


def draw(rows: list[Row], path: Path) -> None:
    """Errors against the loss of accuracy, a line a defence."""
    from sfumato.reports.style import COLOURS, INK, new_figure, save

    found = summary(rows)
    figure, axes = new_figure(
        "What a defence buys at what cost", "test accuracy lost, points",
        "reconstruction error of the strongest attack",
    )  # fmt: skip
    colours = dict(zip(list(LADDERS)[1:], COLOURS, strict=True))
    for name in ran(found):
        steps, colour = climbed(name, found), colours[name]
        lost = [one["loss"] for one in steps]
        axes.plot(lost, [one["polished"] for one in steps], "o-", color=colour, label=name)
    axes.axhline(1.0, color=INK, linewidth=0.8, linestyle=":")
    axes.legend()
    save(figure, path)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add = parser.add_argument
    add("--folder", type=Path, required=True)
    add("--only", nargs="+", choices=list(LADDERS), help="and none; all by default")
    add("--seeds", type=int, default=3)
    add("--width", type=int, default=20_000)
    add("--rounds", type=int, default=300)
    add("--updates", type=int, default=4, help="that are attacked, for each seed")
    add("--starts", type=int, default=9, help="besides the tensor's, until one fits exactly")
    add("--noisy-starts", type=int, default=2, help="the same under noise, where none does")
    add("--quick", action="store_true", help="a rehearsal: narrow, few rounds")
    add("--table", action="store_true", help="only the tables")
    add("--plot", type=Path)
    given = parser.parse_args()
    if given.quick:
        given.seeds, given.width, given.rounds, given.updates = 1, 2000, 20, 1
    if not given.table:
        run_all(given)
    rows = read(given.folder / "results.jsonl")
    print_tables(rows, given)
    if given.plot is not None:
        draw(rows, given.plot)


if __name__ == "__main__":
    main()
