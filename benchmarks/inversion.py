"""Model inversion measured: what class images give away, without privacy and with it.

    python benchmarks/inversion.py [--data mnist fashion-mnist] [--models linear mlp cnn]
                                   [--epsilon 2] [--rows 50000] [--out inversion]

For each data set and network (softmax regression, 784-128-10, the small CNN of the preset "cnn"),
trained on the same private rows once by Adam and once by DP-SGD:

- MI-Face from blank and faint images, with gradients;
- the same, where an autoencoder rebuilds the image at every step;
- MI-Face on the autoencoder's codes, with scores alone;
- inversion with the autoencoder as a prior, with gradients; of an untrained network, too, which
  shows what the prior does by itself.

The autoencoder is trained on half of the test set's pictures, without labels. A judge, a CNN that
is trained on the other half and may also answer "nothing", says what it sees. Distances are to
members against training rows that were held out by lot. Prints a Markdown table for each data set
and draws what was found: ``--out`` is the figures' stem.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from sfumato.attacks import (
    Candidates,
    Inversion,
    Target,
    closeness,
    invert_by_scores,
    invert_with_mi_face,
    invert_with_prior,
    recognition,
    train_autoencoder_prior,
)
from sfumato.attacks.candidates import shared_rows
from sfumato.attacks.inversion.scoring import class_means
from sfumato.attacks.torch_models import probabilities
from sfumato.data import Examples, load_dataset
from sfumato.learning.models import make_model
from sfumato.learning.recipes import preset, train
from sfumato.learning.recipes.observing import Shown
from sfumato.reports.inversion_figures import inversion_figure
from sfumato.reports.style import save

SHAPE, CLASSES = (1, 28, 28), np.arange(10)
OPTIONS = {"linear": {}, "mlp": {"hidden": 128}, "cnn": {}}
FACE, REBUILT, SCORES, PRIOR = "MI-Face", "MI-Face, rebuilt", "scores, prior", "prior"
UNTRAINED = "untrained"
HELD_OUT = 50_000  # training rows may be private; the others are held out


@dataclass(frozen=True)
class World:
    """A data set, divided: who is private, who is public."""

    data: object
    private: tuple
    examples: Candidates
    test: tuple
    judge: nn.Module
    prior: object


def pictures(examples):
    return examples.inputs.transpose(0, 3, 1, 2).astype(np.float32) / 255, examples.labels


def fit(model, inputs, labels, epochs, seed, rate=1e-3):
    """Without privacy."""
    x, y = torch.as_tensor(inputs), torch.as_tensor(labels)
    coins = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    for _ in range(epochs):
        for batch in torch.randperm(len(x), generator=coins).split(128):
            optimizer.zero_grad()
            F.cross_entropy(model(x[batch]), y[batch]).backward()
            optimizer.step()
    return model.eval()


def nothing(inputs, generator):
    """No picture of anything: pixels or blocks out of place, blots and noise, more or less dim."""
    x = inputs.copy()
    kinds = np.array_split(generator.permutation(len(x)), 4)
    flat = x[kinds[0]].reshape(len(kinds[0]), -1)
    x[kinds[0]] = generator.permuted(flat, axis=1).reshape(-1, *SHAPE)
    blocks = x[kinds[1]].reshape(-1, 4, 7, 4, 7).transpose(0, 1, 3, 2, 4).reshape(-1, 16, 49)
    blocks = np.stack([one[generator.permutation(16)] for one in blocks])
    x[kinds[1]] = blocks.reshape(-1, 4, 4, 7, 7).transpose(0, 1, 3, 2, 4).reshape(-1, *SHAPE)
    coarse = generator.random((len(kinds[2]), 1, 7, 7)).astype(np.float32)
    smooth = F.interpolate(torch.from_numpy(coarse), size=(28, 28), mode="bilinear").numpy()
    x[kinds[2]] = np.clip(3 * smooth - 1, 0, 1)
    x[kinds[3]] = generator.random((len(kinds[3]), *SHAPE)) ** 4
    return (x * generator.uniform(0.1, 1, (len(x), 1, 1, 1))).astype(np.float32)


def train_judge(inputs, labels, epochs, generator):
    """Ten classes and nothing; it has seen pictures dim and noisy, so that it must look."""
    torch.manual_seed(11)
    dim = inputs * generator.uniform(0.3, 1, (len(inputs), 1, 1, 1))
    noisy = np.clip(dim + 0.1 * generator.standard_normal(dim.shape), 0, 1).astype(np.float32)
    everything = np.concatenate([inputs, noisy, nothing(inputs, generator)])
    answers = np.concatenate([labels, labels, np.full(len(labels), 10)])
    return fit(
        make_model("abadi-cnn", SHAPE, 11, width=16, hidden=64), everything, answers, epochs, 1
    )


def world(name, given, generator):
    data = load_dataset(name)
    x, y = pictures(data.train)
    tx, ty = pictures(data.test)
    half, order = len(tx) // 2, generator.permutation(len(x))  # rows are not in a random order
    chosen, rest = order[: given.rows], order[HELD_OUT:]
    judge = train_judge(tx[:half], ty[:half], given.epochs, generator)
    prior = train_autoencoder_prior(tx[half:], generator=generator)
    train_rows = Examples(data.train.inputs[chosen], data.train.labels[chosen])
    few = replace(data, train=train_rows, public_size=given.rows)
    private = x[chosen], y[chosen]
    examples = Candidates.of(private, without(private[0], x[rest], y[rest]))
    return World(few, private, examples, (tx, ty), judge, prior)


def without(known, inputs, labels):
    """Those that are not among ``known``: pictures that are there twice are nobody's own."""
    fresh = ~shared_rows(inputs, known)
    return inputs[fresh], labels[fresh]


def trained_models(name, here, given):
    """Untrained, without privacy, and with it."""
    torch.manual_seed(3)
    yield UNTRAINED, make_model(name, SHAPE, 10, **OPTIONS[name]).eval()
    torch.manual_seed(4)
    model = make_model(name, SHAPE, 10, **OPTIONS[name])
    yield "no privacy", fit(model, *here.private, given.epochs, 2)
    recipe = preset("cnn", here.data, epsilon=given.epsilon)
    recipe = recipe.changed(model=name, model_options=OPTIONS[name], epochs=2 * given.epochs)
    private = train(recipe, here.data, evaluations=0, observer=Shown(False))
    yield f"epsilon {given.epsilon:g}", private.model.eval()


def attacks(target, how, here, given, generator):
    """Each attack's images."""
    seen = target.showing("gradients")
    if how != UNTRAINED:
        many = np.repeat(CLASSES, given.images)
        start = 0.1 * generator.random((len(many), *SHAPE), dtype=np.float32)
        start[:: given.images] = 0
        walk = {"start": start, "iterations": 1000}
        yield FACE, invert_with_mi_face(seen, many, SHAPE, rate=0.5, **walk)
        yield (
            REBUILT,
            invert_with_mi_face(seen, many, SHAPE, rate=5.0, process=here.prior.rebuilt, **walk),
        )
        yield (
            SCORES,
            invert_by_scores(target.showing("scores"), many, here.prior, generator=generator),
        )
    yield PRIOR, invert_with_prior(
        seen, CLASSES, SHAPE, generator=generator, prior=here.prior,
        restarts=2 * given.images, kept=given.images,
    )  # fmt: skip


def measured(found: Inversion, here, generator):
    judged = recognition(found.images, found.labels, lambda x: probabilities(here.judge, x))
    near = closeness(found.images, found.labels, here.examples, generator=generator)
    return judged, near


def print_row(labels, accuracy, found, judged, near, seconds):
    low, high = judged.accuracy_interval
    print(
        f"| {' | '.join(labels)} | {accuracy:.1%} | {found.probability.mean():.2f} | "
        f"{judged.accuracy:.0%} ({low:.0%} to {high:.0%}) | {judged.accuracy_among_three:.0%} | "
        f"{judged.probability:.2f} | {near.similarity.mean():.2f} | {near.structure.mean():.2f} | "
        f"{np.median(near.ratio):.3f} | {near.p_value:.2f} | {found.queries:,} | "
        f"{seconds:.0f} |",
        flush=True,
    )


def bench(name, given):
    generator = np.random.default_rng(given.seed)
    here = world(name, given, generator)
    judge = Target.of_module(here.judge)
    half = len(here.test[1]) // 2
    right = (judge.labels(here.test[0][half:]) == here.test[1][half:]).mean()
    print(f"\n{name}: {given.rows:,} private rows; the judge is right on {right:.1%} of others\n")
    print(
        "| model | trained | attack | accuracy | target's confidence | judge right | in first 3 | "
        "judge's confidence | similarity | SSIM | member / other | p | queries | s |"
    )
    print("|---|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|")
    lines = [("class means", class_means(*here.private, CLASSES), None)]
    for network in given.models:
        for how, model in trained_models(network, here, given):
            target = Target.of_module(model, f"{network}, {how}")
            accuracy = (target.labels(here.test[0]) == here.test[1]).mean()
            began = time.perf_counter()
            for attack, found in attacks(target, how, here, given, generator):
                judged, near = measured(found, here, generator)
                seconds = time.perf_counter() - began
                print_row((network, how, attack), accuracy, found, judged, near, seconds)
                first = found.images[:: given.images]
                seen = recognition(first, CLASSES, lambda x: probabilities(here.judge, x))
                recognised = [bool(seen.by_class[label].first) for label in CLASSES]
                if attack in (FACE, PRIOR):
                    lines.append((f"{network}, {how}\n{attack}", first, recognised))
                began = time.perf_counter()
    names = [text.split("/")[0] for text in here.data.classes]
    title = f"{name}: class images read off models, each stretched from black to white"
    figure = inversion_figure(lines, names, title=title, bounds=None)
    print(f"figure in {save(figure, f'{given.out}-{name}.png')}", file=sys.stderr)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", nargs="+", default=["mnist", "fashion-mnist"])
    parser.add_argument("--models", nargs="+", default=list(OPTIONS), choices=list(OPTIONS))
    parser.add_argument("--epsilon", type=float, default=2.0)
    parser.add_argument("--rows", type=int, default=HELD_OUT, help="private rows, at most so many")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--images", type=int, default=2, help="images of each class")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", default="inversion", help="the figures' stem")
    given = parser.parse_args()
    if not 0 < given.rows <= HELD_OUT:
        parser.error(f"--rows must be at most {HELD_OUT:,}: the rest is held out")
    for name in given.data:
        bench(name, given)


if __name__ == "__main__":
    main()
