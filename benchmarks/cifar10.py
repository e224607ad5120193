"""CIFAR-10 with differential privacy from nothing public but random images: accuracy, and time.

    sfumato pretrain --out random.safetensors --half --compile
    python benchmarks/cifar10.py choose --start random.safetensors
    sfumato train dp-sgd --data cifar10 --preset wrn --start random.safetensors --epsilon 1 ...
    python benchmarks/cifar10.py steps --steps 20
    python benchmarks/cifar10.py noise --run runs/c1 --start random.safetensors

``choose`` compares learning rates on Fashion-MNIST's garments before random images, which are
declared public here: nothing about CIFAR-10 is chosen on CIFAR-10. ``steps`` times the same steps
of the same network here and by Opacus, whose physical batches are as large as fit. ``noise`` tells
from released weights how much noise went into them.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import time
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file
from torch import nn
from torch.nn import functional as F

import sfumato as sf
from sfumato.learning.clock import OutOfTime
from sfumato.learning.models import make_model
from sfumato.learning.pretraining import random_images
from sfumato.learning.recipes.augments import flip_and_shift
from sfumato.learning.recipes.rates import Rate
from sfumato.learning.recipes.start import PublicStart

_LARGE = 30_000  # numbers of a filter bank that is looked at


def garments(size: int, device: str):
    """Fashion-MNIST's garments in random colours before random images.

    Everything but the garments is drawn from a seed; nothing of it is CIFAR-10.
    """
    data = sf.load_dataset("fashion-mnist")

    def changed(examples, most: int, seed: int):
        grey = torch.from_numpy(examples.inputs[:most].reshape(-1, 28, 28) / 255.0).float()
        generator = torch.Generator().manual_seed(seed)
        places = torch.randint(0, 5, (2, len(grey)), generator=generator)
        canvas = torch.zeros(len(grey), 32, 32)
        for top in range(5):
            for left in range(5):
                here = (places[0] == top) & (places[1] == left)
                canvas[here, top : top + 28, left : left + 28] = grey[here]
        cover = (4 * canvas).clamp(max=1).unsqueeze(1)
        colours = torch.rand(len(grey), 3, 1, 1, generator=generator)
        behind = random_images("mixed", len(grey), 32, seed=seed, device=device).cpu() / 255
        images = behind + cover * (colours * (0.3 + 0.7 * canvas.unsqueeze(1)) - behind)
        inputs = (255 * images).byte().permute(0, 2, 3, 1).contiguous().numpy()
        return type(examples)(inputs, examples.labels[:most])

    return dataclasses.replace(
        data, name="garments before random images", shape=(32, 32, 3),
        train=changed(data.train, size, 1), test=changed(data.test, 10_000, 2), rows=None,
        public_size=size,
    )  # fmt: skip


def choose(options: argparse.Namespace) -> None:
    """Trains on the garments by one learning rate after the other, and says how far each came."""
    data = garments(50_000, options.device)
    recipe = sf.preset("wrn", data, epsilon=options.epsilon)
    if options.run_steps is not None:
        recipe = dataclasses.replace(recipe, epochs=None, steps=options.run_steps)
    start = None if options.start is None else PublicStart(options.start)
    for rate, head_rate in itertools.product(options.rates, options.head_rates):
        one = dataclasses.replace(
            recipe, start=start, rate=Rate(rate), head_rate=head_rate, seed=0,
            augmentations=options.augmentations, batch_size=options.batch_size,
        )  # fmt: skip
        begun = time.monotonic()
        found = sf.train(one, data, device=options.device, compile=True, evaluations=4)
        told = {
            "epsilon": options.epsilon, "rate": rate, "head_rate": head_rate,
            "accuracy": found.accuracy, "curve": [point.accuracy for point in found.points],
            "seconds": time.monotonic() - begun,
        }  # fmt: skip
        print(json.dumps(told), flush=True)


def steps(options: argparse.Namespace) -> None:
    """Whole steps on made-up rows of CIFAR-10's shape: time does not depend on what they show."""
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(50_000, 3, 32, 32, generator=generator).to(options.device)
    y = torch.randint(0, 10, (50_000,), generator=generator).to(options.device)
    for name in options.engines:
        run = {"sfumato": _ours, "opacus": _opacus}[name]
        seconds = run(x, y, options)
        found = {"engine": name, "seconds_a_step": seconds, "steps": options.steps}
        print(json.dumps(found), flush=True)


def _losses(model: nn.Module, inputs, labels):
    with torch.autocast(inputs.device.type, torch.bfloat16):
        return F.cross_entropy(model(inputs), labels, reduction="none")


def _ours(x, y, options: argparse.Namespace) -> float:
    model = make_model("wrn", (3, 32, 32), 10).to(options.device)
    times: list[float] = []
    trainer = sf.DPSGD(
        model, torch.optim.SGD(model.parameters(), lr=2.0), (x, y), public_size=50_000,
        lot_size=options.lot_size, steps=options.steps + 5, noise_multiplier=3.0, delta=1e-5,
        augment=flip_and_shift, augmentations=options.augmentations,
        batch_size=options.batch_size,
    )  # fmt: skip

    def after(step: int) -> None:
        if options.device == "cuda":
            torch.cuda.synchronize()
        times.append(time.monotonic())

    trainer.fit(_losses, compile=options.device == "cuda", after=after)
    return (times[-1] - times[4]) / (len(times) - 5)


def _opacus(x, y, options: argparse.Namespace) -> float:
    """The same lots with Opacus' hooks: copies are averaged before clipping by hand."""
    from opacus.grad_sample import GradSampleModule

    whole = _standardised(make_model("wrn", (3, 32, 32), 10)).to(options.device)
    model = GradSampleModule(whole)
    optimizer = torch.optim.SGD(whole.parameters(), lr=2.0)
    copies, most = options.augmentations, options.opacus_batch // options.augmentations
    times: list[float] = []
    for _ in range(options.steps + 1):
        lot = torch.nonzero(torch.rand(50_000) < options.lot_size / 50_000).flatten()
        total = [torch.zeros_like(p) for p in whole.parameters()]
        for part in lot.to(options.device).split(most):
            rows = part.repeat_interleave(copies)
            _losses(model, flip_and_shift(x[rows]), y[rows]).sum().backward()
            each = [
                p.grad_sample.float().view(len(part), copies, -1).mean(1)
                for p in whole.parameters()
            ]
            norms = torch.stack([g.square().sum(1) for g in each]).sum(0).sqrt()
            scale = (1.0 / norms).clamp(max=1.0)
            for t, g in zip(total, each, strict=True):
                t += (scale @ g).view_as(t)
            for p in whole.parameters():
                p.grad_sample = None
                p.grad = None
        for p, t in zip(whole.parameters(), total, strict=True):
            p.grad = (t + 3.0 * torch.randn_like(t)) / options.lot_size
        optimizer.step()
        if options.device == "cuda":
            torch.cuda.synchronize()
        times.append(time.monotonic())
    return (times[-1] - times[0]) / options.steps


def _standardised(model: nn.Module) -> nn.Module:
    """Plain convolutions in place of standardised ones, which Opacus has no rule for."""
    for name, child in model.named_children():
        if type(child).__name__ == "StandardizedConv":
            after, before, side, _ = child.weight.shape
            plain = nn.Conv2d(before, after, side, child.stride, child.padding)
            setattr(model, name, plain)
        else:
            _standardised(child)
    return model


def train_in_pieces(options: argparse.Namespace) -> None:
    """One run by the preset, in pieces of so many minutes, as the command line does it."""
    data = sf.load_dataset("cifar10")
    recipe = sf.preset("wrn", data, epsilon=options.epsilon)
    start = None if options.start is None else PublicStart(options.start)
    recipe = dataclasses.replace(recipe, start=start)
    out = Path(options.out)
    try:
        found = sf.train(
            recipe, data, out=out, resume=out.exists(), device=options.device, compile=True,
            minutes=options.minutes, small_checkpoints=True,
        )  # fmt: skip
        print(json.dumps({"epsilon": options.epsilon, "accuracy": found.accuracy}))
    except OutOfTime as stopped:
        print(stopped)


def noise(options: argparse.Namespace) -> None:
    """How much noise the weights of a finished run hold, from what is public of it.

    Large filters hardly move but by noise. By plain descent with the rate r, noise of the
    deviation z C / L a step and an average with the shares a_t of the weights after step t, their
    change has the deviation

        r z C / L sqrt( sum_i A_i^2 ),   A_i = a_i + a_{i+1} + ... + a_T

    to about one part in sqrt(2 n) for n weights. What filters learnt adds to it; a ratio below 1 by
    more than that would tell that a run had less noise than its record says.
    """
    run = sf.load_run(options.run)
    recipe, plan = run.recipe, run.record.parameters["plan"]
    others = (
        recipe.optimizer != "sgd", recipe.momentum, recipe.weight_decay, recipe.rate.end,
        recipe.noise_schedule != type(recipe.noise_schedule).constant(),
        recipe.clip.kind != "flat", recipe.correlation.kind != "independent",
        run.record.facts["steps_lost"],
    )  # fmt: skip
    if any(others):
        raise SystemExit("noise is told of whole runs by plain descent, constant in every respect")
    shares = np.ones(1)
    for step in range(plan["steps"]):
        kept = 0.0 if recipe.ema_decay is None else min(recipe.ema_decay, (1 + step) / (10 + step))
        shares = np.append(kept * shares, 1 - kept)
    later = np.cumsum(shares[::-1])[::-1][1:]
    a_step = plan["noise_multiplier"] * plan["clipping"]["clip"] / plan["lots"]["size"]
    expected = recipe.rate.start * a_step * float(np.sqrt(np.square(later).sum()))
    print(f"expected deviation {expected:.6f}")
    weights = run.model[1].state_dict()
    for name, value in load_file(options.start).items():
        if value.numel() >= _LARGE:
            found = float((weights[name] - value).double().std())
            print(f"{name:24} {value.numel():9,} {found:.6f}  ratio {found / expected:.4f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("choose", "steps", "train", "noise"))
    parser.add_argument("--start", default=None)
    parser.add_argument("--run", default=None)
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--rates", type=float, nargs="+", default=[1.0, 2.0, 4.0])
    parser.add_argument("--head-rates", type=float, nargs="+", default=[1.0])
    parser.add_argument("--run-steps", type=int, default=None)
    parser.add_argument("--augmentations", type=int, default=8)
    parser.add_argument("--batch-size", type=int, default=4096)
    parser.add_argument("--opacus-batch", type=int, default=2048)
    parser.add_argument("--lot-size", type=int, default=4096)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--minutes", type=float, default=None)
    parser.add_argument("--out", default="runs/cifar10")
    parser.add_argument("--engines", nargs="+", default=["sfumato", "opacus"])
    parser.add_argument("--device", default="cuda")
    options = parser.parse_args()
    known = {"choose": choose, "steps": steps, "train": train_in_pieces, "noise": noise}
    known[options.what](options)


if __name__ == "__main__":
    main()
