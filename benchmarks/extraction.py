"""Model extraction measured: linear models, a small MLP, a CNN on MNIST.

    python benchmarks/extraction.py linear        # 530 unknowns: seconds
    python benchmarks/extraction.py mlp           # 2,225 unknowns: a minute or two
    python benchmarks/extraction.py mnist         # a CNN: minutes on two cores
    python benchmarks/extraction.py mnist --budgets 150 1000 5000 20000 --epochs 20 --plot cnn.png

Every table gives the share of inputs on which a copy answers as its model does. Of MNIST, the model
is trained on one half of the training set; the attacker asks about images of the other half, about
steps from 150 of them (Jacobian augmentation), or about uniform noise.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn

from sfumato.attacks.extraction.answers import Answers, uniform_inputs
from sfumato.attacks.extraction.augmentation import extract_by_augmentation
from sfumato.attacks.extraction.equations import LinearModel, axis_points, extract_by_equations
from sfumato.attacks.extraction.fidelity import Exam, FidelityCurve, fidelity_curve
from sfumato.attacks.extraction.likelihood import extract_by_likelihood
from sfumato.attacks.extraction.retraining import Training, extract_by_retraining, train_substitute
from sfumato.attacks.targets import Target
from sfumato.data import load_dataset
from sfumato.reports.extraction_figures import fidelity_figure
from sfumato.reports.style import save

KINDS = ("natural", "Jacobian", "noise")


def shown(target: Target) -> dict[str, Target]:
    """The same model, answering less and less."""
    return {
        "exact scores": target.showing("scores"),
        "2 digits": target.showing("scores").rounded(2),
        "top probability": target.showing("scores").top(1),
        "labels": target.showing("labels"),
    }


# --- a softmax regression -------------------------------------------------------------------------


def linear(arguments: argparse.Namespace) -> None:
    """A softmax regression of 530 unknowns: random weights, uniform inputs."""
    random = np.random.default_rng(arguments.seed)
    print("| classes | features | answers | queries | agreement | seconds |")
    print("|---:|---:|---|---:|---:|---:|")
    for classes, features in ((10, 52), (5, 105)):
        truth = LinearModel(
            0.5 * random.normal(size=(classes, features)), random.normal(size=classes)
        )
        target = Target.of_scores(truth.probabilities)
        exam = Exam.of(target, random.uniform(-1, 1, (20_000, features)))
        points = random.uniform(-1, 1, (5300, features))
        began = time.monotonic()
        exact = extract_by_equations(target, axis_points(features))
        row = f"| {classes} | {features} | exact scores, solved | {exact.queries} | "
        print(row + f"{_rate(exam, exact)} | {time.monotonic() - began:.1f} |")
        for name, seen in shown(target).items():
            for count in (265, 530, 1060, 5300):
                began = time.monotonic()
                found = extract_by_likelihood(seen, points[:count], classes=classes)
                row = f"| {classes} | {features} | {name} | {count:,} | {_rate(exam, found)} | "
                print(row + f"{time.monotonic() - began:.1f} |", flush=True)


def _rate(exam: Exam, found) -> str:
    return f"{exam.measure(found.predict).agreement.value:.2%}"


# --- a multi-layer perceptron ---------------------------------------------------------------------


def mlp(arguments: argparse.Namespace) -> None:
    """105 features, 20 hidden units, 5 classes: 2,225 unknowns, as Tramèr's."""
    random = np.random.default_rng(arguments.seed)
    model = _perceptron(arguments.seed, spread=3.0)
    target = Target.of_module(model)
    exam = Exam.of(target, random.uniform(-1, 1, (20_000, 105)))
    points = random.uniform(-1, 1, (11_125, 105))
    print("| answers | queries | agreement | total variation | seconds |")
    print("|---|---:|---:|---:|---:|")
    training = Training(epochs=arguments.epochs or 150, least_steps=4000, rate=1e-2)
    for name, seen in shown(target).items():
        for count in arguments.budgets or (1112, 2225, 4450, 11_125):
            began = time.monotonic()
            blank = _perceptron(arguments.seed + 1)
            found = extract_by_retraining(
                seen, points[:count], blank, classes=5, training=training,
                generator=np.random.default_rng(arguments.seed),
            )  # fmt: skip
            result = exam.measure(found.predict)
            print(
                f"| {name} | {count:,} | {result.agreement.value:.2%} | "
                f"{result.total_variation:.2g} | {time.monotonic() - began:.0f} |",
                flush=True,
            )


def _perceptron(seed: int, spread: float = 1.0) -> nn.Module:
    """Weights three times as large make a model whose classes are not all alike."""
    torch.manual_seed(seed)
    module = nn.Sequential(nn.Linear(105, 20), nn.Tanh(), nn.Linear(20, 5))
    with torch.no_grad():
        for weight in module.parameters():
            weight.mul_(spread)
    return module


# --- a convolutional network ----------------------------------------------------------------------


def network(seed: int, width: int = 16) -> nn.Module:
    """Two convolutions and two dense layers."""
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Conv2d(1, width, 5, stride=2, padding=2),
        nn.ReLU(),
        nn.Conv2d(width, 2 * width, 5, stride=2, padding=2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(2 * width * 49, 64),
        nn.ReLU(),
        nn.Linear(64, 10),
    )


def mnist(arguments: argparse.Namespace) -> None:
    """Natural images, Jacobian augmentation and noise, against four ways of answering."""
    budgets = tuple(arguments.budgets or (150, 600, 2400, 9600))
    (inputs, labels), (test, truth) = _images(arguments.seed)
    half = len(inputs) // 2
    model = _trained(inputs[:half], labels[:half], arguments.seed)
    target = Target.of_module(model, "cnn")
    noise = uniform_inputs(
        max(budgets), inputs.shape[1:], (0, 1), generator=np.random.default_rng(arguments.seed)
    ).astype(np.float32)
    exam = Exam.of(target, test, truth, uniform=noise[:5000])
    accuracy = exam.measure(target.probabilities).accuracy
    print(f"model: accuracy {accuracy} on {len(test):,} test images\n")
    training = Training(epochs=arguments.epochs or 10, least_steps=arguments.least_steps)
    blank = network(arguments.seed + 1, width=12)
    natural = inputs[half:]

    def asking(queries):
        return lambda seen: extract_by_retraining(
            seen, queries, blank, classes=10, training=training,
            generator=np.random.default_rng(arguments.seed),
        )  # fmt: skip

    def growing(seen: Target):
        return extract_by_augmentation(
            seen, natural[:150], blank, (0, 1), classes=10, rounds=30, step=arguments.step,
            period=arguments.period, training=training,
            generator=np.random.default_rng(arguments.seed),
        )  # fmt: skip

    attacks = dict(zip(KINDS, (asking(natural), growing, asking(noise)), strict=True))
    print("agreement with the model (accuracy) on test images\n")
    print("| queries | answers | " + " | ".join(f"{budget:,}" for budget in budgets) + " | s |")
    print("|---|---|" + "---:|" * (len(budgets) + 1))
    drawn: list[tuple[str, FidelityCurve]] = []
    for kind, attack in attacks.items():
        if kind not in arguments.only:
            continue
        for name, seen in shown(target).items():
            began = time.monotonic()
            curve = fidelity_curve(seen, budgets, attack, exam)
            cells = " | ".join(map(_cell, curve.results))
            print(f"| {kind} | {name} | {cells} | {time.monotonic() - began:.0f} |", flush=True)
            if kind == "natural":
                drawn.append((name, curve))
    if arguments.plot is not None and drawn:
        title = "A copy of a CNN on MNIST, by what its answers show"
        save(fidelity_figure([_line(*one) for one in drawn], title=title), arguments.plot)


def _images(seed: int):
    """Pixels from 0 to 1, shuffled, channels first."""
    data = load_dataset("mnist")
    order = np.random.default_rng(seed).permutation(len(data.train[1]))
    parts = [(data.train[0][order], data.train[1][order]), data.test]
    return [
        (np.moveaxis(images, -1, 1).astype(np.float32) / 255, labels) for images, labels in parts
    ]


def _trained(inputs, labels, seed: int) -> nn.Module:
    model = network(seed)
    rows = np.eye(10)[labels]
    answers = Answers(rows, np.zeros(rows.shape, bool), np.zeros(len(rows)), hard=True)
    train_substitute(
        model, inputs, answers, Training(epochs=4), generator=np.random.default_rng(seed)
    )
    return model


def _cell(result) -> str:
    return f"{result.agreement.value:.1%} ({result.accuracy.value:.1%})"


def _line(name: str, curve: FidelityCurve):
    shares = [result.agreement for result in curve.results]
    values, limits = [one.value for one in shares], [one.interval for one in shares]
    return name, curve.queries, values, limits


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=("linear", "mlp", "mnist"))
    parser.add_argument("--budgets", type=int, nargs="+", help="numbers of queries")
    parser.add_argument("--epochs", type=int, help="of a substitute's training")
    parser.add_argument("--least-steps", type=int, default=400, help="of it, where queries are few")
    parser.add_argument("--only", nargs="+", default=KINDS, choices=KINDS, help="queries (mnist)")
    parser.add_argument("--step", type=float, default=0.1, help="of Jacobian augmentation")
    parser.add_argument("--period", type=int, help="turn its sign every so many rounds")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--plot", type=Path, help="a figure of natural queries (mnist)")
    arguments = parser.parse_args()
    {"linear": linear, "mlp": mlp, "mnist": mnist}[arguments.what](arguments)


if __name__ == "__main__":
    main()
