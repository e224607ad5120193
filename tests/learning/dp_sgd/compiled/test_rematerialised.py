"""The rearranged step computes what the traced one does, holds little, and stores what it sums."""

import shutil
import subprocess
import sys

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from sfumato.learning.dp_sgd.compiled import rematerialised as rearranging
from sfumato.learning.dp_sgd.compiled import whole_step as compiling
from sfumato.learning.dp_sgd.compiled.roles import NORM, SUM, has_role, results_of

pytestmark = pytest.mark.usefixtures("singles")


class Norm(nn.GroupNorm):
    """In float32, as autocast has it on a GPU."""

    def forward(self, input):
        return super().forward(input.float())


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norms = nn.ModuleList(Norm(4, width) for _ in range(2))
        self.convolutions = nn.ModuleList(
            nn.Conv2d(width, width, 3, padding=1, bias=False) for _ in range(2)
        )

    def forward(self, x):
        h = x
        for norm, convolution in zip(self.norms, self.convolutions, strict=True):
            h = convolution(norm(h).relu())
        return x + h


class ResNet(nn.Module):
    def __init__(self, blocks=1, width=8):
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, padding=1)
        self.body = nn.Sequential(*[Residual(width) for _ in range(blocks)])
        self.norm, self.head = Norm(4, width), nn.Linear(width, 10)

    def forward(self, x):
        return self.head(self.norm(self.body(self.stem(x))).relu().mean((2, 3)))


class Layer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.inputs, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        rows, places, width = x.shape
        parts = self.inputs(self.norms[0](x)).view(rows, places, 3, 4, width // 4)
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        h = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(h.transpose(1, 2).reshape(rows, places, width))
        return x + self.down(F.gelu(self.up(self.norms[1](x))))


class Transformer(nn.Module):
    def __init__(self, layers=1, width=64):
        super().__init__()
        self.first = nn.Linear(16, width)
        self.body = nn.Sequential(*[Layer(width) for _ in range(layers)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 10)

    def forward(self, x):
        return self.head(self.norm(self.body(self.first(x))).mean(1))


def mlp():
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 10))


def in_bfloat16(model, x, y):
    with torch.autocast("cpu", torch.bfloat16):
        return F.cross_entropy(model(x).float(), y, reduction="none")


def in_float32(model, x, y):
    return F.cross_entropy(model(x), y, reduction="none")


ROWS = 32
CASES = {
    "resnet": (ResNet, (3, 16, 16)),
    "transformer": (Transformer, (32, 16)),
}


def batch(shape, rows=ROWS):
    generator = torch.Generator().manual_seed(5)
    x = torch.randn(rows, *shape, generator=generator)
    return x, torch.randint(0, 10, (rows,), generator=generator)


def assert_close(one, two, tolerance=1e-5):
    for name, value in one.items():
        gap = torch.linalg.vector_norm(value - two[name])
        assert gap <= tolerance * torch.linalg.vector_norm(value), name


# --- the same numbers -----------------------------------------------------------------------------


def without_cut(monkeypatch, error=TypeError):
    def fail(*args, **kwargs):
        raise error("another version")

    monkeypatch.setattr(rearranging, "_cut", fail)


@pytest.mark.parametrize(("kind", "scale"), [("resnet", 8.0), ("transformer", 1.0)])
@pytest.mark.slow
def test_the_rearranged_step_is_the_traced_step(kind, scale, monkeypatch, stand_ins, sums_of):
    make, shape = CASES[kind]
    model, data = make(), batch(shape, 12)
    step, rearranged = sums_of(model, in_float32, data, scale)
    assert step.rearranged
    without_cut(monkeypatch)
    step, traced = sums_of(model, in_float32, data, scale)
    assert not step.rearranged
    assert_close(traced, rearranged)


class InPlace(nn.Module):
    """Writes into its own activations, and keeps a count if asked to."""

    def __init__(self, counts):
        super().__init__()
        self.inner, self.head = nn.Linear(4, 6), nn.Linear(6, 10)
        self.register_buffer("calls", torch.zeros(()))
        self.counts = counts

    def forward(self, x):
        if self.counts:
            self.calls += 1
        h = self.inner(x)
        h = F.relu(h + 0, inplace=True)
        h = h * 0.5
        return self.head(h.add_(1.0))


@pytest.mark.parametrize("counts", [False, True])
@pytest.mark.slow
def test_writing_in_place_changes_nothing(counts, monkeypatch, sums_of):
    model, data = InPlace(counts), batch((4,), 12)
    step, found = sums_of(model, in_float32, data)
    assert step.rearranged == (not counts)  # a graph that writes into its inputs stays as it is
    without_cut(monkeypatch)
    assert_close(sums_of(model, in_float32, data)[1], found, 1e-6)


class Dropping(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))
        self.head = nn.Linear(4, 10)

    def forward(self, x):
        for layer in self.layers:
            x = F.dropout(layer(x).tanh(), 0.5)
        return self.head(x)


def test_nothing_random_is_drawn_twice(graph_of):
    """Norms of one mask and sums of another would not be bounded by each other."""
    model, data = Dropping(), batch((4,), 12)
    traced, rearranged = graph_of(model, in_float32, data)
    assert rearranged is not None
    count = rearranging._random_steps
    assert count(rearranged.graph) == count(traced.graph) == 3


def test_a_graph_that_would_draw_twice_stays_as_it_was_traced(monkeypatch, sums_of):
    join = rearranging._joined

    def twice(*halves):
        joined = join(*halves)
        node = next(n for n in joined.graph.nodes if rearranging._is_random(n))
        with joined.graph.inserting_after(node):
            joined.graph.node_copy(node)
        return joined

    monkeypatch.setattr(rearranging, "_joined", twice)
    step, _ = sums_of(Dropping(), in_float32, batch((4,), 12))
    assert not step.rearranged


# --- torch without its private tools --------------------------------------------------------------


@pytest.mark.parametrize(
    ("what", "error"), [("_cut", ImportError), ("_cut", TypeError), ("simplified", ImportError)]
)
@pytest.mark.slow
def test_without_torchs_tools_the_traced_graph_runs(error, what, monkeypatch, sums_of):
    model, data = mlp(), batch((4,), 12)
    expected = sums_of(model, in_float32, data)[1]

    def fail(*args):
        raise error("another version")

    monkeypatch.setattr(rearranging if what == "_cut" else compiling, what, fail)
    step, found = sums_of(model, in_float32, data)
    assert not step.rearranged
    assert step.exactly
    assert_close(expected, found)


# --- what is kept ---------------------------------------------------------------------------------


def large(node):
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and value.numel() >= ROWS * 8 * 256


@pytest.mark.slow
def test_no_activation_is_kept_in_float32(monkeypatch, stand_ins, sums_of):
    """Normalised in float32, kept in bfloat16: what crosses from forward to backward."""
    cut, kept = rearranging._cut, []

    def noted(module):
        halves = cut(module)
        kept.extend(results_of(halves[0].graph)[1:])
        return halves

    monkeypatch.setattr(rearranging, "_cut", noted)
    step, _ = sums_of(ResNet(2), in_bfloat16, batch((3, 16, 16)))
    assert step.rearranged
    types = [node.meta["val"].dtype for node in kept if large(node)]
    assert set(types) == {torch.bfloat16}
    assert len(types) == 4 + 5  # convolutions' inputs (the image is smaller) and outputs


@pytest.mark.slow
def test_what_sums_read_is_stored_and_read_by_norms(stand_ins, graph_of):
    for kind, (make, shape) in CASES.items():
        _, module = graph_of(make(), in_bfloat16, batch(shape, 12))
        store = torch.ops.prims.inductor_force_stride_order.default
        read = {n for node in module.graph.nodes if has_role(node, SUM) for n in node.args}
        read = {n for n in read if isinstance(n, torch.fx.Node) and not has_role(n, SUM)}
        sources = {rearranging._source(n) for n in read}
        floats = {n for n in sources if n.op == "call_function" and n.meta["val"].ndim > 1}
        floats = {n for n in floats if n.meta["val"].is_floating_point()}
        assert len(floats) >= 5, kind
        scales = {n for n in floats if n.meta["val"].shape == (12, 1)}
        assert all(n.target is store for n in floats - scales), kind


@pytest.mark.slow
def test_norms_come_with_their_gradients(stand_ins, graph_of):
    """The last layer's norm is found before the first layer's gradient, not at the end."""
    _, module = graph_of(ResNet(2), in_bfloat16, batch((3, 8, 8), 12))
    nodes = list(module.graph.nodes)
    norms = [i for i, n in enumerate(nodes) if "sfumato_test.norms" in str(n.target)]
    chain = [i for i, n in enumerate(nodes) if "convolution_backward" in str(n.target)]
    sums = [i for i, n in enumerate(nodes) if "sfumato_test.total" in str(n.target)]
    assert len(norms) == len(sums) == 6
    assert sum(i < chain[-1] for i in norms) == 5  # all but the first
    assert min(sums) > max(chain)


def test_casts_are_repeated_for_the_sums():
    """A factor widened for a norm is not held until the sum."""
    graph = torch.fx.Graph()
    narrow = graph.placeholder("x")
    narrow.meta = {"val": torch.zeros(2, 2, dtype=torch.bfloat16)}
    wide = graph.call_function(
        torch.ops.prims.convert_element_type.default, (narrow, torch.float32)
    )
    wide.meta = {"val": torch.zeros(2, 2), "sfumato_role": NORM}
    norm = graph.call_function(torch.ops.aten.abs.default, (wide,))
    norm.meta = {"val": torch.zeros(2, 2), "sfumato_role": NORM}
    total = graph.call_function(torch.ops.aten.neg.default, (wide,))
    total.meta = {"val": torch.zeros(2, 2), "sfumato_role": SUM}
    graph.output((norm, total))
    rearranging._repeat(graph, {SUM}, SUM)
    assert total.args[0] is not wide
    assert total.args[0].args[0] is narrow
    assert norm.args[0] is wide


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # about torch's own compiler
@pytest.mark.skipif(shutil.which("g++") is None, reason="inductor needs a C++ compiler")
@pytest.mark.parametrize("kind", CASES)
def test_private_training_holds_little_more_than_plain(kind, stand_ins, private, held):
    """At most 1.2 times plain compiled training, both measured."""
    make, shape = CASES[kind]
    model, data = make(8 if kind == "resnet" else 6), batch(shape)
    plain = torch.compile(lambda *rows: in_bfloat16(model, *rows).sum(), dynamic=False)

    def step():
        plain(*data).backward()
        model.zero_grad()

    _, _, add = private(model, in_bfloat16, data, "inductor")
    for _ in range(2):
        step()
        add()
    assert held(add) <= 1.2 * held(step)


@pytest.mark.slow
def test_in_a_fresh_process_a_network_with_pooling_is_rearranged_too():
    """Some of torch's decompositions need more of its compiler than they import."""
    code = """
import numpy as np, torch
from torch import nn
from torch.nn import functional as F
from sfumato.learning.dp_sgd.clipped_sum import ClippedSum
from sfumato.learning.dp_sgd.clipping import Flat
from sfumato.learning.dp_sgd.compiled import CompiledSum
from sfumato.learning.dp_sgd.gradients.tape import Tape
from sfumato.learning.dp_sgd.physical import Part

def loss(m, x, y):
    return F.cross_entropy(m(x), y, reduction="none")

model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(18, 3))
x, y = torch.randn(16, 1, 8, 8), torch.zeros(16, dtype=torch.long)
held = dict(model.named_parameters())
tape, total = Tape(held), ClippedSum(held, Flat(1.0))
with tape.recording(11, 11, learning=True):
    losses = loss(model, x[:11], y[:11])
tape.gradients(losses.sum())
step = CompiledSum(model, loss, tape, total, "eager")
step((x, y), Part(0, np.arange(16), np.ones(16), 16, last=True), 1.0)
print([graph.rearranged for graph in step._graphs.values()])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[True]"
