"""Tensor reconstruction measured: errors over sizes, batches and activations, and behind defences.

    python benchmarks/tensor_reconstruction.py                  # all four tables: a minute or two
    python benchmarks/tensor_reconstruction.py grid --seeds 20
    python benchmarks/tensor_reconstruction.py defences --dimension 50 --width 40000
    python benchmarks/tensor_reconstruction.py grid batches --device cuda

Inputs are random directions, labels random signs (all 1 where the activation is odd, so that signs
can be told). Errors are means over seeds of the root mean squared distance, their standard
deviations behind; "scaled" is by sqrt(d/m), "leading" the term that is derived. Defences are *not*
matched by what they cost in utility. Seconds are of one attack, on the device.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sfumato.attacks.gradients.tensor import bounds, observing
from sfumato.attacks.gradients.tensor.activations import ACTIVATIONS, CUBIC, Activation
from sfumato.attacks.gradients.tensor.network import TwoLayerNetwork, unit_inputs
from sfumato.attacks.gradients.tensor.predicting import predicted_error
from sfumato.attacks.gradients.tensor.reconstructing import reconstruct_by_tensor
from sfumato.attacks.gradients.tensor.scoring import match_inputs

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Case:
    """A network and a batch."""

    network: TwoLayerNetwork
    inputs: Array
    labels: Array
    random: np.random.Generator

    @classmethod
    def drawn(cls, activation: Activation, d: int, m: int, batch: int, seed: int) -> Case:
        """At random."""
        random = np.random.default_rng(seed)
        network = TwoLayerNetwork.draw(d, m, activation, generator=random)
        inputs = unit_inputs(batch, d, generator=random)
        labels = np.ones(batch) if activation.odd else random.choice([-1.0, 1.0], batch)
        return cls(network, inputs, labels, random)

    @property
    def gradient(self) -> Array:
        """Without a defence."""
        return self.network.gradient(self.inputs, self.labels)

    @property
    def leading(self) -> float:
        """The error to leading order."""
        residuals = self.network.residuals(self.inputs, self.labels)
        return predicted_error(self.network.hidden, self.network.activation, self.inputs, residuals)


@dataclass(frozen=True)
class Outcome:
    """Of one attack."""

    error: float
    scaled: float
    signs: float
    seconds: float


def attacked(case: Case, seen: Array, hidden: Array, device: str | None) -> Outcome:
    activation, began = case.network.activation, time.perf_counter()
    found = reconstruct_by_tensor(
        seen, hidden, activation, len(case.inputs), labels=case.labels, device=device,
        generator=np.random.default_rng(0),
    )  # fmt: skip
    seconds = time.perf_counter() - began
    match = match_inputs(found, case.inputs)
    return Outcome(match.error, match.scaled_error, match.signs_right, seconds)


def row(sizes: tuple[Activation, int, int, int], arguments: argparse.Namespace) -> str:
    """The cells of one setting without defence."""
    results, leading = [], []
    for seed in range(arguments.seeds):
        case = Case.drawn(*sizes, seed)
        leading.append(case.leading)
        results.append(attacked(case, case.gradient, case.network.hidden, arguments.device))
    errors = np.array([one.error for one in results])
    return (
        f"{errors.mean():.4f} ± {errors.std():.4f} | {np.mean(leading):.4f} | "
        f"{np.mean([one.scaled for one in results]):.2f} | "
        f"{np.mean([one.signs for one in results]):.0%} | "
        f"{np.median([one.seconds for one in results]):.2f} |"
    )


HEAD = "error | leading | scaled | signs right | s |"
RULE = "---:|---:|---:|---:|---:|"


def grid(arguments: argparse.Namespace) -> None:
    print(f"\nz^2 + z^3, B = 3, {arguments.seeds} seeds\n\n| d | m | {HEAD}\n|---:|---:|{RULE}")
    for dimension in (25, 50, 100):
        for width in (10_000, 40_000):
            cells = row((CUBIC, dimension, width, 3), arguments)
            print(f"| {dimension} | {width:,} | {cells}", flush=True)


def batches(arguments: argparse.Namespace) -> None:
    print(f"\nz^2 + z^3, d = 50, m = 80,000, {arguments.seeds} seeds\n\n| B | {HEAD}\n|---:|{RULE}")
    for batch in (1, 2, 4, 8, 16):
        print(f"| {batch} | {row((CUBIC, 50, 80_000, batch), arguments)}", flush=True)


def activations(arguments: argparse.Namespace) -> None:
    print(f"\nd = 50, m = 20,000, {arguments.seeds} seeds\n\n| activation | B | {HEAD}")
    print(f"|---|---:|{RULE}")
    for activation in ACTIVATIONS.values():
        for batch in (2, 4):
            cells = row((activation, 50, 20_000, batch), arguments)
            print(f"| {activation.name} | {batch} | {cells}", flush=True)


# --- defences -------------------------------------------------------------------------------------

Seen = tuple[Array, Array]
"""A gradient, and the hidden weights of the units it is of."""


def all_units(see: Callable[[Case], Array]) -> Callable[[Case], Seen]:
    return lambda case: (see(case), case.network.hidden)


def noise(multiple: float) -> Callable[[Case], Seen]:
    return all_units(lambda case: observing.noisy(case.gradient, multiple, generator=case.random))


def clip(share: float) -> Callable[[Case], Seen]:
    return all_units(
        lambda case: observing.clipped(case.gradient, share * float(np.linalg.norm(case.gradient)))
    )


def private(share: float, multiplier: float) -> Callable[[Case], Seen]:
    """Clipped at a share of the median norm of an example's gradient."""

    def see(case: Case) -> Array:
        rows = case.network.example_gradients(case.inputs, case.labels)
        norm = share * float(np.median(np.linalg.norm(rows, axis=1)))
        return observing.privatised(rows, norm, multiplier, generator=case.random)

    return all_units(see)


def dropout(share: float, known: bool) -> Callable[[Case], Seen]:
    def see(case: Case) -> Seen:
        seen, kept = observing.dropped(case.gradient, share, generator=case.random)
        used = kept if known else np.ones_like(kept)
        return seen[used], case.network.hidden[used]

    return see


def prune(share: float) -> Callable[[Case], Seen]:
    return all_units(lambda case: observing.pruned(case.gradient, share))


def steps(count: int, pace: float) -> Callable[[Case], Seen]:
    """At a rate of ``pace`` by the largest that is stable for one example, 1 / |features|^2."""

    def see(case: Case) -> Array:
        size = float(np.square(case.network.features(case.inputs)).sum(axis=0).max())
        return observing.locally_summed(case.network, case.inputs, case.labels, count, pace / size)

    return all_units(see)


def defended(batch: int, d: int, m: int) -> Iterator[tuple[str, Callable[[Case], Seen], str]]:
    """Names, what is seen, and the upper bound by that without defence."""
    plain = bounds.no_defence(batch, d, m)

    def by(value: float) -> str:
        return f"{value / plain:.2f}"

    yield "none", all_units(lambda case: case.gradient), by(plain)
    for multiple in (0.5, 1, 2):
        # the gradient's own spread is about sqrt(B) times that of one input's share
        grown = bounds.gradient_noise(batch, d, m, deviation=multiple * batch**0.5)
        yield f"noise {multiple} x sd(g)", noise(multiple), by(grown)
    yield "clipping to 1/10 of its norm", clip(0.1), by(bounds.clipping(batch, d, m, norm=1))
    for share, multiplier in ((0.5, 0.0), (0.5, 0.005), (0.5, 0.02), (0.5, 1.0)):
        # in units of one input's share of a number, |g_i| is sqrt(m)
        size = m**0.5
        grown = bounds.dp_sgd(
            batch, d, m, deviation=multiplier * share * size, gradient_norm=size, norm=share * size
        )
        yield (
            f"DP-SGD, norm {share:g}, multiplier {multiplier:g}",
            private(share, multiplier),
            by(grown),
        )
    for share in (0.3, 0.5):
        grown = by(bounds.dropout(batch, d, m, share=share))
        yield f"dropout {share:g}, units left out", dropout(share, known=True), grown
        yield f"dropout {share:g}, units taken for 0", dropout(share, known=False), "-"
    for share in (0.5, 0.9, 0.99):
        yield f"pruning {share:g}", prune(share), "none known"
    for count, pace in ((4, 0.01), (16, 0.01), (16, 0.1)):
        same = by(bounds.local_steps(batch, d, m, steps=count))
        lectured = by(bounds.local_steps_as_lectured(batch, d, m, steps=count))
        yield f"{count} local steps, rate {pace:g}", steps(count, pace), f"{same} ({lectured})"


def defences(arguments: argparse.Namespace) -> None:
    batch, d, m = 3, arguments.dimension, arguments.width
    print(f"\nz^2 + z^3, B = {batch}, d = {d}, m = {m:,}, {arguments.seeds} seeds; the bound's ")
    print("growth is without constants, in brackets a lecture's for local steps\n")
    print("| defence | error | grows by | bound grows by | signs right | s |")
    print("|---|---:|---:|---:|---:|---:|")
    plain = None
    for name, see, bound in defended(batch, d, m):
        results = []
        for seed in range(arguments.seeds):
            case = Case.drawn(CUBIC, d, m, batch, seed)
            results.append(attacked(case, *see(case), arguments.device))
        errors = np.array([one.error for one in results])
        plain = errors.mean() if plain is None else plain
        print(
            f"| {name} | {errors.mean():.3f} ± {errors.std():.3f} | {errors.mean() / plain:.2f} | "
            f"{bound} | {np.mean([one.signs for one in results]):.0%} | "
            f"{np.median([one.seconds for one in results]):.2f} |",
            flush=True,
        )


TABLES = {"grid": grid, "batches": batches, "activations": activations, "defences": defences}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("tables", nargs="*", choices=[[], *TABLES], help="all by default")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--device", help="of torch, such as cuda; NumPy without")
    parser.add_argument("--dimension", type=int, default=50, help="d (defences)")
    parser.add_argument("--width", type=int, default=40_000, help="m (defences)")
    arguments = parser.parse_args()
    began = time.perf_counter()
    for name in arguments.tables or TABLES:
        TABLES[name](arguments)
    where = arguments.device or "NumPy"
    print(f"\n{where}; all of it in {time.perf_counter() - began:.0f} s")


if __name__ == "__main__":
    main()
