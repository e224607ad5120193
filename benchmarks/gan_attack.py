"""The GAN attack measured: what a participant sees of another's digits, defended and not.

    python benchmarks/gan_attack.py [--classes 0 3] [--rounds 30] [--device cpu] [--out gan.png]

Two participants train one network on MNIST in turns. The victim owns the digits 0 to 4, the
adversary 5 to 9 and an eleventh label. For each of the victim's digits asked for, and each defence,
the attack runs once:

- control: the victim has none of those digits, so that whatever shows up is not hers;
- passive: no defence, and the adversary trains on her own digits alone, as honest people do;
- none: no defence;
- DP-SGD: the victim's training is private by record, at several noise multipliers; its rate is
  lower where noise is so strong that training would diverge;
- noisy update: a round's update is clipped as a whole, and noise added: private by participant.

A judge, a CNN that is trained on half of the test set and may also answer "nothing", says what it
sees in pictures of several rounds. Distances are to the victim's digits against training rows that
nobody had. Accuracy is of the shared model on the other half of the test set, after the victim's
turn; that of the one digit also after the adversary's. Prints a Markdown table, and draws pictures:
``--out``. Coins are seeded: epsilon is what a run with fresh ones would promise.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import sfumato as sf
from sfumato.attacks import Candidates, closeness, recognition
from sfumato.attacks.candidates import shared_rows
from sfumato.attacks.gan.adversary import GanAdversary, GanSettings
from sfumato.attacks.gan.collaboration import LocalTraining, simulate_collaboration
from sfumato.attacks.inversion.scoring import class_means
from sfumato.attacks.torch_models import probabilities
from sfumato.core.events import GaussianEvent
from sfumato.core.randomness import SeededCoins
from sfumato.data import load_dataset
from sfumato.learning.dp_sgd import DPSGD, TorchNoise, TrainingError
from sfumato.reports.inversion_figures import inversion_figure
from sfumato.reports.style import save

SHAPE, FAKE, DELTA = (1, 28, 28), 10, 1e-5
VICTIMS, ADVERSARYS = range(5), range(5, 10)
CONTROL, PASSIVE, PLAIN = "control", "passive", "none"
Pair = tuple[np.ndarray, np.ndarray]
STRONG = 4.0  # the noise multiplier from which on DP-SGD takes smaller steps


class Centred(nn.Module):
    """From [0, 1] to [-1, 1]."""

    def forward(self, images: Tensor) -> Tensor:
        """Of each pixel."""
        return 2 * images - 1


def make_shared() -> nn.Module:
    """A small network without kinks or maxima that would hide slopes from the generator."""
    return nn.Sequential(
        Centred(),
        nn.Conv2d(1, 16, 5), nn.LeakyReLU(0.2), nn.AvgPool2d(2),
        nn.Conv2d(16, 32, 5), nn.LeakyReLU(0.2), nn.AvgPool2d(2),
        nn.Flatten(), nn.Linear(512, 128), nn.LeakyReLU(0.2), nn.Linear(128, 11),
    )  # fmt: skip


@dataclass(frozen=True)
class World:
    """Who has what, all pictures in [0, 1]."""

    private: Pair
    own: Pair
    others: Pair
    test: Pair
    judge: nn.Module


@dataclass(frozen=True)
class PrivateTraining:
    """DP-SGD for one round, by record; the rounds compose."""

    noise: float
    steps: int
    lot: int
    rate: float
    clip: float

    def __call__(self, model, inputs, labels, random):
        """Changes the model in place; one that has diverged stays as it is."""
        with contextlib.suppress(TrainingError):
            self._train(model, inputs, labels, random)

    def _train(self, model, inputs, labels, random):
        seed = int(random.integers(2**62))
        trainer = DPSGD(
            model, torch.optim.SGD(model.parameters(), lr=self.rate), (inputs, labels),
            public_size=len(labels), lot_size=self.lot, steps=self.steps, clip=self.clip,
            noise_multiplier=self.noise, delta=DELTA, coins=SeededCoins(seed), progress=False,
            noise=TorchNoise(torch.Generator(inputs.device).manual_seed(seed)),
        )  # fmt: skip
        for x, y in trainer:
            trainer.backward(F.cross_entropy(model(x), y, reduction="none"))

    def epsilon(self, rows, rounds):
        """Of all rounds together."""
        event = sf.dp_sgd(self.noise, self.lot / rows, self.steps * rounds)
        return sf.account(event, DELTA).epsilon


@dataclass(frozen=True)
class NoisyUpdate:
    """A round's update, clipped as a whole, with noise: private by participant."""

    noise: float
    clip: float
    coins: torch.Generator

    def __call__(self, changes: dict[str, Tensor]) -> Mapping[str, Tensor]:
        """What is handed in."""
        length = torch.stack([one.norm() for one in changes.values()]).norm()
        shrunk = (self.clip / length).clamp(max=1)
        spread = self.noise * self.clip
        return {
            name: one * shrunk + spread * torch.randn(one.shape, generator=self.coins).to(one)
            for name, one in changes.items()
        }

    def epsilon(self, rounds):
        """Of all rounds together."""
        return sf.account(
            sf.repeat(GaussianEvent(self.noise, unit="participant"), rounds), DELTA
        ).epsilon


def pictures(examples):
    return examples.inputs.transpose(0, 3, 1, 2).astype(np.float32) / 255, examples.labels


def nothing(inputs, generator):
    """No picture of anything: blocks out of place, blots, stripes and noise, more or less dim."""
    x = inputs.copy()
    kinds = np.array_split(generator.permutation(len(x)), 4)
    blocks = x[kinds[0]].reshape(-1, 4, 7, 4, 7).transpose(0, 1, 3, 2, 4).reshape(-1, 16, 49)
    blocks = np.stack([one[generator.permutation(16)] for one in blocks])
    x[kinds[0]] = blocks.reshape(-1, 4, 4, 7, 7).transpose(0, 1, 3, 2, 4).reshape(-1, *SHAPE)
    coarse = generator.random((len(kinds[1]), 1, 7, 7)).astype(np.float32)
    smooth = F.interpolate(torch.from_numpy(coarse), size=(28, 28), mode="bilinear").numpy()
    x[kinds[1]] = np.clip(3 * smooth - 1, 0, 1)
    lines = generator.random((len(kinds[2]), 1, 28, 1)) < 0.4
    x[kinds[2]] = np.maximum(lines, 0.7 * x[kinds[2]] * (generator.random(lines.shape) < 0.5))
    x[kinds[3]] = generator.random((len(kinds[3]), *SHAPE)) ** 4
    return (x * generator.uniform(0.3, 1, (len(x), 1, 1, 1))).astype(np.float32)


def train_judge(inputs, labels, given, generator):
    """Ten digits and nothing; it has seen pictures dim and noisy, so that it must look."""
    dim = inputs * generator.uniform(0.3, 1, (len(inputs), 1, 1, 1))
    noisy = np.clip(dim + 0.1 * generator.standard_normal(dim.shape), 0, 1).astype(np.float32)
    x = torch.as_tensor(np.concatenate([inputs, noisy, nothing(inputs, generator)]))
    y = torch.as_tensor(np.concatenate([labels, labels, np.full(len(labels), 10)]))
    x, y = x.to(given.device), y.to(given.device)
    torch.manual_seed(11)
    judge = nn.Sequential(
        nn.Conv2d(1, 16, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 5), nn.ReLU(),
        nn.MaxPool2d(2), nn.Flatten(), nn.Linear(512, 128), nn.ReLU(), nn.Linear(128, 11),
    ).to(given.device)  # fmt: skip
    optimizer = torch.optim.Adam(judge.parameters())
    for _ in range(given.epochs):
        for batch in torch.from_numpy(generator.permutation(len(x))).split(128):
            optimizer.zero_grad()
            F.cross_entropy(judge(x[batch]), y[batch]).backward()
            optimizer.step()
    return judge.eval()


def world(given):
    data, generator = load_dataset("mnist"), np.random.default_rng(given.seed)
    x, y = pictures(data.train)
    tx, ty = pictures(data.test)
    half, order = len(tx) // 2, generator.permutation(len(x))
    inside, outside = order[: given.rows], order[given.rows :]
    fresh = outside[~shared_rows(x[outside], x[inside])]
    theirs = np.isin(y[inside], VICTIMS)
    return World(
        (x[inside[theirs]], y[inside[theirs]]),
        (x[inside[~theirs]], y[inside[~theirs]]),
        (x[fresh], y[fresh]),
        (tx[half:], ty[half:]),
        train_judge(tx[:half], ty[:half], given, generator),
    )


def defences(given, rows):
    """A name, what it promises, how the victim trains, what it does to its update."""
    for name in (CONTROL, PASSIVE, PLAIN):
        yield name, "", None, None
    for noise in given.noise:
        rate = given.private_rate * min(1.0, STRONG / noise)
        private = PrivateTraining(noise, given.steps, given.lot, rate, given.clip)
        promise = f"epsilon {private.epsilon(rows, given.rounds):.3g} (record)"
        yield f"DP-SGD, noise {noise:g}", promise, private, None
    for noise in given.update_noise:
        coins = torch.Generator().manual_seed(given.seed)
        update = NoisyUpdate(noise, given.update_clip, coins)
        promise = f"epsilon {update.epsilon(given.rounds):.3g} (participant)"
        yield f"noisy update, {noise:g}", promise, None, update


def attacked(here, label, name, honest, update, given):
    """The collaboration under one defence; the adversary, for a look at what her next turn does."""
    x, y = here.private
    if name == CONTROL:
        x, y = x[y != label], y[y != label]
    settings = GanSettings(
        steps=given.generator_steps, share=given.share, fakes=given.fakes,
        every=max(1, given.rounds // 12), poisoning=name != PASSIVE,
    )  # fmt: skip
    adversary = GanAdversary(
        SHAPE, label, FAKE, settings=settings, seed=given.seed, device=given.device
    )
    plain = LocalTraining(given.steps, given.batch_size, given.rate)
    found = simulate_collaboration(
        make_shared, [(x, y)], adversary, here.own, rounds=given.rounds, train=plain,
        honest=honest, update=update, server=given.server, seed=given.seed, device=given.device,
    )  # fmt: skip
    return found, adversary, plain


def accuracies(model, here, label):
    """On all digits, and on the victim's."""
    x, y = here.test
    right = probabilities(model, x).argmax(axis=1) == y
    return float(right.mean()), float(right[y == label].mean())


def after_her_turn(found, adversary, plain, here, given):
    """The shared model once the adversary has trained it again."""
    x, y = adversary.examples(found.model, *here.own)
    rows = torch.from_numpy(x).to(given.device), torch.from_numpy(y).to(given.device)
    plain(found.model, *rows, np.random.default_rng(given.seed))
    return found.model


def bench(given):
    here = world(given)
    right = probabilities(here.judge, here.test[0]).argmax(axis=1) == here.test[1]
    print(f"the victim has {len(here.private[1]):,} rows; the judge is right on {right.mean():.1%}")
    print(
        "\n| digit | defence | promise | accuracy | of the digit | after her turn | judge right | "
        "judge's confidence | similarity | member / other | p | s |\n"
        "|---|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|"
    )
    lines = {}
    for name, promise, honest, update in defences(given, len(here.private[1])):
        for label in given.classes:
            began = time.perf_counter()
            found, adversary, plain = attacked(here, label, name, honest, update, given)
            seconds = time.perf_counter() - began
            cells = [str(label), name, promise, *measured(found, label, here, given)]
            model = after_her_turn(found, adversary, plain, here, given)
            cells.insert(5, f"{accuracies(model, here, label)[1]:.1%}")
            print("| " + " | ".join([*cells, f"{seconds:.0f}"]) + " |", flush=True)
            lines.setdefault(f"{name}\n{promise}", []).append(found.attack)
    figure = drawn(lines, here, given)
    print(f"figure in {save(figure, given.out)}", file=sys.stderr)


def measured(found, label, here, given):
    images, wanted = found.attack.last(min(4, len(found.attack.kept)))
    judged = recognition(images, wanted, lambda x: probabilities(here.judge, x))
    examples = Candidates.of(of_class(here.private, label), of_class(here.others, label))
    near = closeness(images, wanted, examples, generator=np.random.default_rng(given.seed))
    every, own = accuracies(found.model, here, label)
    low, high = judged.accuracy_interval
    return [
        f"{every:.1%}", f"{own:.1%}", f"{judged.accuracy:.0%} ({low:.0%} to {high:.0%})",
        f"{judged.probability:.2f}", f"{near.similarity.mean():.2f}",
        f"{np.median(near.ratio):.3f}", f"{near.p_value:.2f}",
    ]  # fmt: skip


def of_class(examples, label):
    x, y = examples
    return x[y == label], y[y == label]


def drawn(lines, here, given):
    """A row a defence; of each digit a few pictures of the last round."""
    few = max(2, 8 // len(given.classes))
    names = [f"{label}" for label in given.classes for _ in range(few)]
    means = class_means(here.private[0], here.private[1], given.classes)
    rows = [("the victim's mean", np.repeat(means, few, axis=0), None)]
    for name, found in lines.items():
        images = np.concatenate([one.pictures[-1][:few] for one in found])
        labels = np.repeat(given.classes, few)
        seen = probabilities(here.judge, images).argmax(axis=1) == labels
        rows.append((name, images, seen.tolist()))
    return inversion_figure(rows, names, title="What the GAN draws; orange: the judge sees it")


def main():
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--classes", type=int, nargs="+", default=[0, 3], choices=list(VICTIMS))
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--rows", type=int, default=40_000, help="of both; the rest is held out")
    parser.add_argument("--server", default="turns", choices=["turns", "average"])
    parser.add_argument("--steps", type=int, default=20, help="of local training, each round")
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--rate", type=float, default=0.05)
    parser.add_argument("--generator-steps", type=int, default=20)
    parser.add_argument("--fakes", type=int, default=256)
    parser.add_argument("--share", type=float, default=0.5, help="of fakes in her training")
    parser.add_argument("--noise", type=float, nargs="*", default=[1.0, 4.0, 8.0, 32.0])
    parser.add_argument("--lot", type=int, default=256, help="of DP-SGD")
    parser.add_argument("--clip", type=float, default=1.0)
    parser.add_argument("--private-rate", type=float, default=0.3)
    parser.add_argument("--update-noise", type=float, nargs="*", default=[0.01, 1.0])
    parser.add_argument("--update-clip", type=float, default=1.0)
    parser.add_argument("--epochs", type=int, default=5, help="of the judge")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", default="gan.png")
    bench(parser.parse_args())


if __name__ == "__main__":
    main()
