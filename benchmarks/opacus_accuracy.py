"""The same private training with sfumato and with Opacus, in one run: accuracy, time and noise.

    python benchmarks/opacus_accuracy.py [--runs 5] [--epochs 40] [--tasks cnn,mlp] [--quick]

Task: MNIST at (epsilon, delta) = (3, 1e-5). The CNN is the tanh network of Papernot et al.,
arXiv:2007.14191 (26,010 parameters), with the lot, clip norm and learning rate that Tramèr and
Boneh, arXiv:2011.11660, state for Fashion-MNIST; the MLP is 784-100-10 with ReLU, clip norm 1. SGD
with momentum 0.9. Both engines get the same initial weights, rows, clip norm, learning rate,
number of steps and lots: Opacus samples at one over the number of batches, so that batches of 2048
make a rate of 1/30 and 2000 expected rows; sfumato is told that rate. Rows are fetched by index, a
whole lot at a time, on both sides.

Each engine calibrates its own noise to the target, Opacus with its "prv" accountant; epsilon is
then stated for both by sfumato's exact accountant. Time is that of the training loop alone. Ours
includes its rehearsal and noise from the operating system's cryptographic generator; Opacus' noise
is from torch's. Runs alternate between the engines, and so does which of them goes first; times are
medians, ratios are taken within a run. Accuracy is on the test set: mean and standard deviation.

Opacus 1.6.0 unfolds a convolution's input as if it lay row by row in memory. Where it does not, as
behind the first convolution here, per-example gradients are wrong: without :class:`RowByRow`, which
both engines get, the second convolution's clipped sum has a cosine of 0.07 with the exact one.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
import warnings

import torch
from torch import nn
from torch.nn import functional as F

import sfumato as sf

ENGINES = ("sfumato", "opacus")


class RowByRow(nn.Module):
    """Brings what it is given into the usual layout in memory."""

    def forward(self, x):
        """A copy, if need be."""
        return x.contiguous()


def cnn():
    return nn.Sequential(
        nn.Conv2d(1, 16, 8, 2, padding=2), nn.Tanh(), nn.MaxPool2d(2, 1), RowByRow(),
        nn.Conv2d(16, 32, 4, 2), nn.Tanh(), nn.MaxPool2d(2, 1),
        nn.Flatten(), nn.Linear(32 * 4 * 4, 32), nn.Tanh(), nn.Linear(32, 10),
    )  # fmt: skip


def mlp():
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 100), nn.ReLU(), nn.Linear(100, 10))


TASKS = {
    "cnn": {"make": cnn, "clip": 0.1, "lr": 4.0},
    "mlp": {"make": mlp, "clip": 1.0, "lr": 0.4},
}


def load(most=None):
    """Training and test rows as tensors."""
    data = sf.load_images("mnist")

    def tensors(examples):
        images = torch.as_tensor(examples.inputs[:most]).permute(0, 3, 1, 2)
        return images.float().contiguous() / 255, torch.as_tensor(examples.labels[:most])

    return tensors(data.train), tensors(data.test)


class Rows(torch.utils.data.Dataset):
    """Rows for Opacus' loader, which fetches a whole lot with one index."""

    def __init__(self, inputs, labels):
        self.inputs, self.labels = inputs, labels

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        return self.inputs[i], self.labels[i]

    def __getitems__(self, rows):
        rows = torch.as_tensor(rows)
        return self.inputs[rows], self.labels[rows]


class Setting:
    """What both engines are given."""

    def __init__(self, task, train, given):
        self.name, self.train, self.given = task, train, given
        self.make, self.clip = TASKS[task]["make"], given.clip or TASKS[task]["clip"]
        self.lr = given.lr or TASKS[task]["lr"]
        self.rows = len(train[1])
        self.batches = math.ceil(self.rows / given.lot)  # in an epoch: one over the sample rate
        self.steps = self.batches * given.epochs
        self.target = given.epsilon, given.delta

    def start(self, seed):
        """Initial weights that depend on the seed alone."""
        torch.manual_seed(seed)
        model = self.make()
        return model, torch.optim.SGD(model.parameters(), lr=self.lr, momentum=self.given.momentum)

    def loader(self):
        """For Opacus, which samples from it at one over its length."""
        rows = Rows(*self.train)
        return torch.utils.data.DataLoader(rows, batch_size=self.given.lot, collate_fn=list)

    def epsilon(self, noise):
        """What that noise costs, by the exact accountant."""
        event = sf.dp_sgd(noise, 1 / self.batches, self.steps)
        return sf.account(event, self.given.delta).epsilon


def find_noise(engine, setting):
    """Each engine's own noise multiplier for the target, and the seconds it took."""
    (epsilon, delta), start = setting.target, time.perf_counter()
    rate = 1 / setting.batches
    if engine == "sfumato":
        noise = sf.calibrate_noise(
            epsilon=epsilon, delta=delta, sample_rate=rate, steps=setting.steps
        )
    else:
        from opacus.accountants.utils import get_noise_multiplier

        noise = get_noise_multiplier(
            target_epsilon=epsilon, target_delta=delta, sample_rate=rate, steps=setting.steps,
            accountant="prv",
        )  # fmt: skip
    return noise, time.perf_counter() - start


def ours(setting, noise, seed):
    model, optimizer = setting.start(seed)
    trainer = sf.DPSGD(
        model, optimizer, setting.train, public_size=setting.rows,
        lot_size=setting.rows / setting.batches, steps=setting.steps, noise_multiplier=noise,
        delta=setting.given.delta, clip=setting.clip, progress=False,
    )  # fmt: skip
    start = time.perf_counter()
    for x, y in trainer:
        trainer.backward(F.cross_entropy(model(x), y, reduction="none"))
    return model, time.perf_counter() - start


def theirs(setting, noise, seed):
    from opacus import PrivacyEngine

    model, optimizer = setting.start(seed)
    wrapped, optimizer, loader = PrivacyEngine(accountant="prv").make_private(
        module=model, optimizer=optimizer, data_loader=setting.loader(), noise_multiplier=noise,
        max_grad_norm=setting.clip,
    )  # fmt: skip
    criterion, taken = nn.CrossEntropyLoss(), 0
    start = time.perf_counter()
    for _ in range(setting.given.epochs):
        for x, y in loader:
            optimizer.zero_grad()
            criterion(wrapped(x), y).backward()
            optimizer.step()
            taken += 1
    seconds = time.perf_counter() - start
    assert taken == setting.steps, (taken, setting.steps)
    assert optimizer.expected_batch_size == int(setting.rows / setting.batches)
    return model, seconds


TRAIN = {"sfumato": ours, "opacus": theirs}


@torch.no_grad()
def accuracy(model, test):
    inputs, labels = test
    return float((model(inputs).argmax(1) == labels).float().mean())


def compare(setting, test):
    """For each engine its noise, and the accuracy and seconds of each run."""
    noise = {engine: find_noise(engine, setting) for engine in ENGINES}
    results = {engine: [] for engine in ENGINES}
    for run in range(setting.given.runs):
        for engine in ENGINES if run % 2 == 0 else reversed(ENGINES):
            model, seconds = TRAIN[engine](setting, noise[engine][0], seed=run)
            results[engine].append((accuracy(model, test), seconds))
            print(f"<!-- {setting.name} run {run} {engine}: {results[engine][-1]} -->", flush=True)
    return noise, results


def warm_up(setting):
    """One short run of each engine: what is loaded or built on first use is not timed."""
    few = argparse.Namespace(**{**vars(setting.given), "lot": 256, "epochs": 1})
    small = Setting(setting.name, tuple(part[:512] for part in setting.train), few)
    for engine in ENGINES:
        TRAIN[engine](small, 1.0, seed=0)


def spread(values):
    return f"{statistics.stdev(values):.2%}" if len(values) > 1 else "one run"


def rows_of(setting, noise, results):
    paired = zip(results["sfumato"], results["opacus"], strict=True)
    ratio = statistics.median(a[1] / b[1] for a, b in paired)
    for engine in ENGINES:
        z, calibration = noise[engine]
        accuracies = [a for a, _ in results[engine]]
        seconds = statistics.median(s for _, s in results[engine])
        cells = (
            setting.name, engine, f"{z:.4f}", f"{calibration:.2f}", f"{setting.epsilon(z):.4f}",
            f"{statistics.mean(accuracies):.2%}", spread(accuracies), f"{seconds:.1f}",
            f"{ratio if engine == 'sfumato' else 1:.2f}x",
        )  # fmt: skip
        yield f"| {' | '.join(cells)} |"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tasks", default="cnn,mlp")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--lot", type=int, default=2048)
    parser.add_argument("--epsilon", type=float, default=3.0)
    parser.add_argument("--delta", type=float, default=1e-5)
    parser.add_argument("--clip", type=float, help="for every task; by default each its own")
    parser.add_argument("--lr", type=float, help="for every task; by default each its own")
    parser.add_argument("--momentum", type=float, default=0.9)
    parser.add_argument("--quick", action="store_true", help="one short run on few rows")
    given = parser.parse_args()
    if given.quick:
        given.runs, given.epochs, given.lot = 1, 2, 512
    warnings.filterwarnings("ignore", module="opacus")
    warnings.filterwarnings("ignore", message=".*hook.*")
    train, test = load(4096 if given.quick else None)
    settings = [Setting(task, train, given) for task in given.tasks.split(",")]
    lines = []
    for setting in settings:
        warm_up(setting)
        lines += rows_of(setting, *compare(setting, test))
    first = settings[0]
    print(
        f"\nMNIST, {first.rows:,} rows, {first.steps} steps of {first.rows / first.batches:.0f} "
        f"expected rows, epsilon {given.epsilon:g}, delta {given.delta:g}, {given.runs} runs, "
        f"torch {torch.__version__} on {torch.get_num_threads()} threads\n"
    )
    print(
        "| task | engine | noise multiplier | s to find it | its epsilon, exactly | accuracy "
        "| spread | s to train | of Opacus |"
    )
    print("| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
