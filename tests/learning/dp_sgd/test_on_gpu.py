"""The whole step on a GPU: eager and compiled, in every precision, recorded and replayed."""

import contextlib

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from sfumato.core.randomness import SYSTEM, SeededCoins
from sfumato.learning.dp_sgd import DPSGD, ChaChaNoise, Flat, PerLayer, PoissonLots, TrainingPlan
from sfumato.learning.dp_sgd.clipped_sum import ClippedSum
from sfumato.learning.dp_sgd.compiled import CompiledSum
from sfumato.learning.dp_sgd.compiled.captured import AFTER
from sfumato.learning.dp_sgd.gradients.tape import Tape
from sfumato.learning.dp_sgd.physical import Part
from sfumato.learning.dp_sgd.stepping import NoisyStep
from sfumato.learning.models import make_model

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
    pytest.mark.filterwarnings("ignore"),  # about torch's own compiler
]

ROWS = 32
PRECISIONS = ["float32", "tf32", "bfloat16", "float16"]


class Words(nn.Module):
    def __init__(self, words=19, width=32, length=12):
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
        self.norm, self.body = nn.LayerNorm(width), nn.Linear(width, width)
        self.head = nn.Linear(width, words)

    def forward(self, tokens):
        place = torch.arange(tokens.shape[1], device=tokens.device).expand_as(tokens).contiguous()
        h = self.words(tokens) + self.places(place)
        return self.head(h + F.gelu(self.body(self.norm(h)))).transpose(1, 2)


def case(kind):
    torch.manual_seed(0)
    if kind == "words":
        x, y = torch.randint(0, 19, (2, ROWS, 12))
        return Words().cuda(), x.cuda(), y.cuda()
    if kind == "wrn":
        model = make_model("wrn", (3, 8, 8), 10, depth=10, width=1)
    else:
        model = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1), nn.GroupNorm(2, 8), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(8, 16, 3), nn.ReLU(), nn.Flatten(), nn.Linear(64, 10),
        )  # fmt: skip
    return model.cuda(), torch.randn(ROWS, 3, 8, 8).cuda(), torch.randint(0, 10, (ROWS,)).cuda()


@contextlib.contextmanager
def allowing(precision):
    before = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
    torch.backends.cudnn.allow_tf32 = precision == "tf32"
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before[0])
        torch.backends.cudnn.allow_tf32 = before[1]


def losses(precision):
    half = {"bfloat16": torch.bfloat16, "float16": torch.float16}.get(precision)

    def loss(model, x, y):
        with torch.autocast("cuda", half or torch.bfloat16, enabled=half is not None):
            each = F.cross_entropy(model(x), y, reduction="none")
        return each.flatten(1).mean(1) if each.ndim > 1 else each

    return loss


def made(kind, precision, clip):
    model, x, y = case(kind)
    parameters = dict(model.named_parameters())
    tape, total, loss = Tape(parameters), ClippedSum(parameters, Flat(clip)), losses(precision)
    with tape.recording(11, 11, learning=True):
        each = loss(model, x[:11], y[:11])
    tape.gradients(each.sum())
    return model, x, y, tape, total, loss


def by_loop(model, x, y, clip):
    """The clipped sum in float64."""
    exact = x.double() if x.is_floating_point() else x
    twin = model.double()
    total, norms = [0.0] * len(list(twin.parameters())), []
    for i in range(len(x)):
        value = F.cross_entropy(twin(exact[i : i + 1]), y[i : i + 1])
        found = torch.autograd.grad(value, list(twin.parameters()))
        norms.append(float(torch.sqrt(sum(g.square().sum() for g in found))))
        factor = min(1.0, clip / norms[-1])
        total = [t + factor * g for t, g in zip(total, found, strict=True)]
    return total, norms


def apart(found, right):
    off = sum(float((f.double() - r).square().sum()) for f, r in zip(found, right, strict=True))
    return (off / sum(float(r.square().sum()) for r in right)) ** 0.5


@pytest.mark.parametrize("kind", ["cnn", "wrn", "words"])
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("compiled", [False, True])
def test_sums_are_those_of_a_loop(kind, precision, compiled):
    clip = 1.0
    with allowing(precision):
        model, x, y, tape, total, loss = made(kind, precision, clip)
        part = Part(0, np.arange(ROWS), np.ones(ROWS), ROWS, last=True)
        if compiled:
            step = CompiledSum(model, loss, tape, total, room=ROWS)
            for _ in range(AFTER + 3):  # the last ones replayed
                total.start()
                step((x, y), part, 1.0)
            (graph,) = step._graphs.values()
            assert graph.rearranged
            assert not graph.call.refused
        else:
            with tape.recording(ROWS, ROWS):
                each = loss(model, x, y)
            total.add(tape.gradients(each.sum()), each.detach())
        found = [total.sums[name].clone() for name, _ in model.named_parameters()]
    right, _ = by_loop(model, x, y, clip * (1 - total.eta))
    tolerance = {"float32": 2e-4, "tf32": 4e-2, "bfloat16": 0.3, "float16": 0.1}[precision]
    assert apart(found, right) <= tolerance


@pytest.mark.parametrize("kind", ["cnn", "wrn", "words"])
@pytest.mark.parametrize("precision", PRECISIONS)
def test_no_unit_alone_is_longer_than_the_clip_norm(kind, precision):
    clip = 1e-3
    with allowing(precision):
        model, x, y, tape, total, loss = made(kind, precision, clip)
        step = CompiledSum(model, loss, tape, total, room=ROWS)
        for unit in range(ROWS):
            weights = np.zeros(ROWS)
            weights[unit] = 1
            total.start()
            step((x, y), Part(0, np.arange(ROWS), weights, ROWS, last=True), 1.0)
            squares = sum(float(s.double().square().sum()) for s in total.sums.values())
            assert 0.9 * clip <= squares**0.5 <= clip


@pytest.mark.parametrize("kind", ["cnn", "words"])
@pytest.mark.parametrize("compiled", [False, True])
def test_groups_have_their_own_factors(kind, compiled):
    """Clip factors of several groups lie in columns; kernels must not take the next unit's."""
    bounds = {"0": 2e-3, "": 1e-3} if kind == "cnn" else {"body": 2e-3, "": 1e-3}
    model, x, y, tape, _, loss = made(kind, "bfloat16", 1.0)
    x = x * torch.logspace(-1, 1, ROWS).cuda().view(-1, 1, 1, 1) if kind == "cnn" else x
    total = ClippedSum(dict(model.named_parameters()), PerLayer(bounds))
    step = CompiledSum(model, loss, tape, total, room=ROWS, capture=False)
    for unit in range(0, ROWS, 5):
        weights = np.zeros(ROWS)
        weights[unit] = 1
        total.start()
        if compiled:
            step((x, y), Part(0, np.arange(ROWS), weights, ROWS, last=True), 1.0)
        else:
            counted = torch.as_tensor(weights).float().cuda()
            with tape.recording(ROWS, ROWS):
                each = loss(model, x, y)
            total.add(tape.gradients((each * counted).sum()), each.detach())
        for group, bound in zip(total.groups, total.bounds, strict=True):
            squares = sum(float(total.sums[n].double().square().sum()) for n in group)
            assert 0.9 * bound <= squares**0.5 <= bound


@pytest.mark.parametrize("precision", ["tf32", "bfloat16"])
def test_a_bad_row_spoils_nothing(precision):
    with allowing(precision):
        model, x, y, tape, total, loss = made("cnn", precision, 1.0)
        part = Part(0, np.arange(ROWS), np.ones(ROWS), ROWS, last=True)
        without = np.ones(ROWS)
        without[3] = 0
        step = CompiledSum(model, loss, tape, total, room=ROWS)
        step((x, y), Part(0, np.arange(ROWS), without, ROWS, last=True), 1.0)
        clean = {name: s.clone() for name, s in total.sums.items()}
        for bad in (torch.nan, torch.inf):
            x[3] = bad
            total.start()
            step((x, y), part, 1.0)
            for name, s in total.sums.items():
                assert torch.allclose(s, clean[name], rtol=1e-3, atol=1e-4), (name, bad)


def test_steps_do_not_wait_for_the_gpu():
    model, x, y, tape, _, loss = made("cnn", "bfloat16", 1.0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    plan = TrainingPlan(PoissonLots(ROWS, 1000), Flat(1.0), 1.0, 50, 1e-5)
    parameters = dict(model.named_parameters())
    step = NoisyStep(plan, parameters, optimizer, None, ChaChaNoise(), 1.0)
    step.compile(model, loss, tape, room=ROWS)
    part = Part(0, np.arange(ROWS), np.ones(ROWS), ROWS, last=True)
    for number in range(AFTER + 3):
        step.add_compiled((x, y), part)
        step.apply(number)
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        for number in range(10, 15):
            step.add_compiled((x, y), part)
            step.apply(number)
    finally:
        torch.cuda.set_sync_debug_mode("default")


class Keeps(torch.optim.SGD):
    """An optimizer that holds on to its gradients."""

    def step(self, closure=None):
        self.kept = [p.grad for group in self.param_groups for p in group["params"]]
        return super().step(closure)


def test_a_gradient_that_is_kept_stays_noisy():
    model, x, y, _, _, loss = made("cnn", "bfloat16", 1.0)
    optimizer = Keeps(model.parameters(), lr=0.0)
    trainer = DPSGD(
        model, optimizer, (x.cpu(), y.cpu()), public_size=ROWS, lot_size=8, steps=12,
        noise_multiplier=1000.0, delta=1e-5, progress=False,
    )  # fmt: skip

    def on_gpu(m, a, b):
        return loss(m, a.cuda(), b.cuda())

    lengths = []
    trainer.fit(
        on_gpu, compile=True, after=lambda _: lengths.append(float(optimizer.kept[0].norm()))
    )
    assert min(lengths) > 10  # the noise's own length, of 216 numbers: about 1800


def test_training_on_a_gpu_has_chacha_noise_of_the_right_size():
    model = nn.Linear(200, 100, bias=False).cuda()
    torch.nn.init.zeros_(model.weight)
    x, y = torch.zeros(64, 200).cuda(), torch.zeros(64, dtype=torch.long).cuda()
    trainer = DPSGD(
        model, torch.optim.SGD(model.parameters(), lr=1.0), (x, y), public_size=64, lot_size=16,
        steps=1, noise_multiplier=4.0, clip=0.5, delta=1e-5, progress=False,
    )  # fmt: skip
    trainer.fit(lambda m, a, b: F.cross_entropy(m(a), b, reduction="none"))
    assert trainer._step.noise.name == "chacha20"
    noise = model.weight.detach() * 16 / (4.0 * 0.5)
    assert abs(float(noise.mean())) < 0.03
    assert 0.98 < float(noise.std()) < 1.02


class Shown:
    """No noise; keeps what the sums show of one row's mask."""

    name, private = "shown", False

    def __init__(self):
        self.masks = []

    def normal(self, like, std):
        if like.shape[-1] == 512:
            self.masks.append(tuple((like != 0).any(0).tolist()))
        return torch.zeros_like(like)


@pytest.mark.parametrize("compiled", [False, True])
def test_every_step_has_masks_of_its_own_that_no_seed_tells(compiled):
    """Also the steps that are replayed."""
    found = []
    for coins in (SYSTEM, SYSTEM, SeededCoins(1), SeededCoins(1)):
        torch.manual_seed(0)
        before = torch.cuda.get_rng_state()
        model, noise = nn.Sequential(nn.Dropout(0.5), nn.Linear(512, 2)).cuda(), Shown()
        data = torch.ones(1, 512).cuda(), torch.zeros(1).long().cuda()
        DPSGD(
            model, torch.optim.SGD(model.parameters(), lr=1e-3), data, public_size=1, lot_size=1,
            steps=AFTER + 20, noise_multiplier=1.0, delta=1e-5, noise=noise, coins=coins,
        ).fit(losses("float32"), compile=compiled)  # fmt: skip
        assert torch.equal(torch.cuda.get_rng_state(), before)
        assert len(set(noise.masks)) == len(noise.masks) == AFTER + 20
        found.append(noise.masks)
    assert not set(found[0]) & set(found[1])
    assert found[2] == found[3]
