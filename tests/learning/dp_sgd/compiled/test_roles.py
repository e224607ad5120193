"""Products in norms and sums are told from the model's own; layouts change nothing."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from sfumato.learning.dp_sgd.compiled import whole_step as compiling
from sfumato.learning.dp_sgd.compiled.roles import CHAIN, has_role, products_in_norms

pytestmark = pytest.mark.usefixtures("singles")


def mlp():
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 10))


def cnn():
    return nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1), nn.GroupNorm(2, 4), nn.ReLU(),
        nn.Conv2d(4, 4, 3, padding=1), nn.Flatten(), nn.Linear(144, 10),
    )  # fmt: skip


class Product(nn.Module):
    """A matrix whose rule multiplies in torch."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(10, 10) / 3)

    def forward(self, x):
        return x @ self.weight


def loss(model, x, y):
    return F.cross_entropy(model(x), y, reduction="none")


def batch(*shape, rows=12):
    generator = torch.Generator().manual_seed(5)
    x = torch.randn(rows, *shape, generator=generator)
    return x, torch.randint(0, 10, (rows,), generator=generator)


def test_products_of_norms_and_sums_are_told_from_the_models_own(graph_of):
    traced, _ = graph_of(nn.Sequential(mlp(), Product()), loss, batch(4))
    products = products_in_norms(traced)
    assert products
    by_name = {node.name: node for node in traced.graph.nodes}
    assert all(not has_role(by_name[name], CHAIN) for name in products)
    # The model's own: three forward, two backward to the inputs of layers; none of them is listed.
    own = [n for n in traced.graph.nodes if has_role(n, CHAIN) and "mm." in str(n.target)]
    assert len(own) == 5


def test_doubles_are_never_shortened(graph_of):
    x, y = batch(4)
    assert products_in_norms(graph_of(mlp().double(), loss, (x.double(), y))[0]) == []


def test_a_graph_that_runs_as_it_was_traced_shortens_nothing(setting, sums_of, monkeypatch):
    """Its products were not made whole one by one."""
    monkeypatch.setattr(compiling, "rematerialised", lambda *_: None)
    step, _ = sums_of(cnn(), loss, batch(3, 6, 6))
    assert step.exactly
    assert not step.rearranged


@pytest.fixture
def setting():
    """Shortened products, as the user of a GPU allows them."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    yield "high"
    torch.set_float32_matmul_precision(before)


def test_the_users_setting_reaches_the_model(stand_ins, setting, sums_of):
    """Kernels that round by themselves run under it."""
    step, _ = sums_of(mlp(), loss, batch(4))
    assert torch.get_float32_matmul_precision() == setting
    assert not step.exactly
    assert set(stand_ins) == {setting}


@pytest.mark.parametrize(("make", "shape"), [(mlp, (4,)), (cnn, (3, 6, 6))])
@pytest.mark.slow
def test_products_of_norms_are_kept_whole(make, shape, setting, sums_of, graph_of, monkeypatch):
    model, data = make(), batch(*shape)
    step, found = sums_of(model, loss, data)
    assert not step.exactly
    traced, _ = graph_of(model, loss, data)
    assert products_in_norms(traced) == []
    whole = {str(n.target).split(".")[1] for n in traced.graph.nodes if "whole_" in str(n.target)}
    assert whole >= {"whole_mm"} if make is mlp else whole >= {"whole_mm", "whole_bmm"}
    torch.set_float32_matmul_precision("highest")
    for name, value in sums_of(model, loss, data)[1].items():
        assert torch.allclose(value, found[name], rtol=1e-4, atol=1e-6), name


def test_they_run_with_the_setting_switched_off(setting, monkeypatch):
    seen = []
    for name in ("mm", "bmm"):
        monkeypatch.setattr(torch, name, lambda *_: seen.append(_now()) or torch.zeros(1))
    one = torch.zeros(2, 2)
    torch.ops.sfumato.whole_mm(one, one)
    torch.ops.sfumato.whole_bmm(one[None], one[None])
    assert seen == ["highest", "highest"]
    assert _now() == setting


def _now():
    return torch.get_float32_matmul_precision()


def test_where_one_cannot_be_kept_whole_nothing_is_shortened(
    stand_ins, setting, sums_of, monkeypatch
):
    monkeypatch.setattr(compiling, "keep_whole", lambda module: None)
    step, _ = sums_of(nn.Sequential(mlp(), Product()), loss, batch(4))
    assert step.exactly
    assert set(stand_ins) == {"highest"}


def test_a_kernels_gradient_is_kept_whole(setting):
    """Written as an ordinary weight gradient: stride, padding and groups included."""
    outputs, inputs = torch.randn(3, 4, 5, 5), torch.randn(3, 6, 9, 9)
    kernel = torch.zeros(4, 3, 3, 3)
    expected = torch.nn.grad.conv2d_weight(inputs, kernel.shape, outputs, 2, 1, 1, 2)
    found = torch.ops.sfumato.whole_kernel_gradient(
        outputs, inputs, kernel, [2, 2], [1, 1], [1, 1], 2
    )
    assert torch.allclose(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.slow
def test_channels_last_changes_nothing_but_the_layout(stand_ins, sums_of, graph_of):
    model, data = cnn(), batch(3, 6, 6)
    expected = sums_of(model, loss, data, channels_last=False)[1]
    found = sums_of(model, loss, data, channels_last=True)[1]
    for name, value in expected.items():
        assert torch.allclose(value, found[name], rtol=1e-4, atol=1e-6), name
    _, module = graph_of(model, loss, data, channels_last=True)
    inputs = [
        argument.meta["val"]
        for node in module.graph.nodes
        if "aten.convolution.default" in str(node.target)
        for argument in node.args[:2]
    ]
    assert len(inputs) == 4
    assert all(t.is_contiguous(memory_format=torch.channels_last) for t in inputs)
