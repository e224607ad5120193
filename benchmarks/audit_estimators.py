"""How much audits of labels and of noise in linear models see, and how often faults are caught.

    python benchmarks/audit_estimators.py labels    # MNIST's labels, told honestly and too loudly
    python benchmarks/audit_estimators.py noise     # "noise as of", with noise that is too small

Labels: the mean bound on epsilon from a run's reports at 95 % confidence, twenty audits each, and
how many refute the claim where labels were told at one and a half times epsilon.
Noise: normal noise on one number, 20,000 draws at 99.8 % confidence, as ``sfumato audit erm`` has
by default; how many of fifty audits refute the claim.
"""

from __future__ import annotations

import argparse

import numpy as np

from sfumato.audit.label_reports import audit_reports
from sfumato.audit.mechanism import audit_mechanism
from sfumato.core.gaussian_profile import least_multiplier
from sfumato.core.guarantee import Guarantee
from sfumato.core.neighbours import Neighbours
from sfumato.data import load_dataset
from sfumato.mechanisms.randomized_response import RandomizedResponse


def labels() -> None:
    """Bounds from reports of MNIST's labels."""
    known = load_dataset("mnist").train.labels
    print("| rows | epsilon | found, mean | most | of 20 told at 1.5 epsilon, caught |")
    print("|---:|---:|---:|---:|---:|")
    for rows in (36_000, 60_000):
        for epsilon in (1.0, 2.0, 4.0):
            honest = [shown(known[:rows], epsilon) for _ in range(20)]
            loud = sum(shown(known[:rows], 1.5 * epsilon) > epsilon for _ in range(20))
            print(
                f"| {rows:,} | {epsilon:g} | {np.mean(honest):.2f} | {max(honest):.2f} | {loud} |"
            )


def shown(known: np.ndarray, epsilon: float) -> float:
    """What one audit finds."""
    told = RandomizedResponse(epsilon, 10).perturb(known)
    return audit_reports(known, told, confidence=0.95).epsilon


def noise() -> None:
    """Power against normal noise that is too small."""
    generator = np.random.default_rng(0)
    print("| epsilon | noise | refuted, of 50 |")
    print("|---:|---:|---:|")
    for epsilon in (1.0, 4.0):
        least, claim = (
            least_multiplier(epsilon, 1e-5),
            Guarantee(epsilon, 1e-5, Neighbours.REPLACE_ONE),
        )
        for share in (1.0, 0.9, 0.8, 0.7):
            spread = least * share

            def draw(value: float, count: int, spread: float = spread) -> np.ndarray:
                return np.round(value + generator.normal(0, spread, count), 4)

            caught = sum(
                audit_mechanism(
                    draw, [(0.0, 1.0)], claim=claim, samples=20_000, confidence=0.998, gaussian=True
                ).refuted
                for _ in range(50)
            )
            print(f"| {epsilon:g} | {share:.0%} | {caught} |", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["labels", "noise"])
    {"labels": labels, "noise": noise}[parser.parse_args().what]()
