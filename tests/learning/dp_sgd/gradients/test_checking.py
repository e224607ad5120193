"""Kernels are believed once they have been compared with PyTorch, and one term too few shows."""

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from sfumato.learning.dp_sgd.gradients import checking
from sfumato.learning.dp_sgd.gradients import products as gradients
from sfumato.learning.dp_sgd.gradients.checking import believed
from sfumato.learning.dp_sgd.gradients.products import Product
from sfumato.learning.dp_sgd.gradients.standardised import standardised_kernel
from sfumato.learning.dp_sgd.kernels import products

MATRIX = [1, 1, 1, 1, 0, 0, 1, 1]
SQUARE = [3, 3, 2, 1, 1, 1, 1, 1]
USES = ["written", "gram", "gram, scaled", "direct", "one place", "row facts"]

pytestmark = pytest.mark.filterwarnings("error")


@pytest.fixture(autouse=True)
def nothing_known():
    checking.forget()
    yield
    checking.forget()


def factors(use, dtype=torch.bfloat16, units=7, copies=2):
    """Sizes for which a use is meant, and the geometry."""
    if use == "one place":
        return torch.ones(units, 1, 1, 40).to(dtype), torch.ones(units, 1, 1, 24).to(dtype), MATRIX
    n = units * copies
    if use == "gram, scaled":
        return torch.ones(n, 9, 5, 12).to(dtype), torch.ones(n, 9, 5, 10).to(dtype), MATRIX
    return torch.ones(n, 9, 8, 5).to(dtype), torch.ones(n, 5, 8, 10).to(dtype), SQUARE


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("numbers", [1 << 26, 1])  # at once
def test_what_is_right_is_believed(use, dtype, numbers, monkeypatch):
    monkeypatch.setattr(checking, "_AT_ONCE", numbers)
    assert believed(use, *factors(use, dtype), 7, everywhere=True)


def one_less(found):
    """A single term is missing from one number, or 1 % of a norm."""
    found = found.clone()
    found.view(-1)[-1] -= max(1.0, 0.01 * float(found.view(-1)[-1].abs()))
    return found


WRONG = [
    ("written", "_product_norms", 0),
    ("written", "_product_norms", 1),
    ("direct", "_product_norms", 0),
    ("direct", "_product_sum", None),
    ("gram", "_product_gram", 0),
    ("gram", "_product_gram", 1),
    ("gram", "_product_sum", None),
    ("gram, scaled", "_product_gram", 0),
    ("gram, scaled", "_product_scaled", None),
    ("one place", "_product_lengths", None),
    ("one place", "_product_rows", None),
    ("row facts", "_product_row_facts", None),
    ("row facts", "_product_sum", None),
]


@pytest.mark.parametrize(("use", "operator", "which"), WRONG)
def test_what_is_wrong_is_not(use, operator, which, monkeypatch):
    right = getattr(products, operator)

    def wrong(*args):
        found = right(*args)
        if which is None:
            return one_less(found)
        return tuple(one_less(part) if i == which else part for i, part in enumerate(found))

    monkeypatch.setattr(products, operator, wrong)
    with pytest.warns(RuntimeWarning, match="differ from PyTorch for inputs of"):
        assert not believed(use, *factors(use), 7, everywhere=True)
    assert not believed(use, *factors(use), 7, everywhere=True)  # said once
    monkeypatch.setattr(products, operator, right)
    other = factors(use, torch.float16)
    assert believed(use, *other, 7, everywhere=True)


def test_one_place_of_a_large_image_shows_in_its_norm(monkeypatch):
    right = products._product_norms

    def all_but_one(x, *others):
        x = x.clone()
        x[:, -1, -1] = 0
        return right(x, *others)

    monkeypatch.setattr(products, "_product_norms", all_but_one)
    x, g = torch.ones(7, 210, 210, 3).bfloat16(), torch.ones(7, 210, 210, 4).bfloat16()
    with pytest.warns(RuntimeWarning, match="differ from PyTorch"):
        assert not believed("direct", x, g, MATRIX, 7, everywhere=True)


def test_each_size_is_compared_once(monkeypatch):
    calls, right = [], products._product_sum
    monkeypatch.setattr(products, "_product_sum", lambda *a: calls.append(a) or right(*a))
    x, g, geometry = factors("direct")
    for _ in range(3):
        believed("direct", x, g, geometry, 7, everywhere=True)
    assert len(calls) == 1
    assert not torch.equal(calls[0][0], x)  # numbers are made up
    believed("direct", x[2:], g[2:], geometry, 6, everywhere=True)  # another lot
    assert len(calls) == 1
    believed("direct", x[:, 2:], g[:, 1:], geometry, 7, everywhere=True)
    assert len(calls) == 2


def test_nothing_is_compared_where_no_kernels_run(monkeypatch):
    monkeypatch.setattr(checking, "_CHECKS", {})
    assert believed("direct", *factors("direct"), 7)


def test_real_tensors_are_compared_while_a_graph_is_traced():
    def traced(x, g):
        assert believed("direct", x, g, SQUARE, 7, everywhere=True)
        return x.sum() + g.sum()

    x, g, _ = factors("direct")
    make_fx(traced, tracing_mode="fake")(x, g)
    assert len(checking._believed) == 1


def test_also_under_autocast():
    x, g, geometry = factors("direct")
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert believed("direct", x, g, geometry, 7, everywhere=True)


@pytest.mark.parametrize("use", ["written", "gram", "gram, scaled", "direct", "one place"])
def test_without_belief_gradients_are_formed_by_pytorch(use, monkeypatch):
    x, g, geometry = factors(use)
    torch.manual_seed(0)
    x, g = torch.randn_like(x), torch.randn_like(g)
    shape = (g.shape[3], x.shape[3], *geometry[:2])[: 2 if geometry == MATRIX else 4]

    def product():
        made = Product.of(x, g, geometry, 7, shape, finite=True)
        monkeypatch.setattr(gradients, "confirmed_way", lambda *_, **__: use.split(",")[0])
        return made.settle()

    usual, weights = product(), torch.rand(7, dtype=torch.float32)
    usual_sum = usual.weighted_sum(weights)
    monkeypatch.setattr(gradients, "believed", lambda *_: False)
    for operator in ("_product_norms", "_product_gram", "_product_sum", "_product_scaled"):
        monkeypatch.setattr(products, operator, None)  # none of them is called
    made = product()
    assert torch.allclose(made.squared_norms(), usual.squared_norms(), rtol=0.05)
    assert torch.allclose(made.weighted_sum(weights), usual_sum, rtol=0.02, atol=0.1)
    total = torch.tensordot(weights, made.written(), 1).double()
    assert torch.allclose(total, made.weighted_sum(weights))


def test_without_belief_standardised_kernels_take_pytorchs_gradients(monkeypatch):
    x, g, geometry = factors("row facts")
    x, g = torch.randn_like(x), torch.randn_like(g)
    weight, gain = torch.randn(10, 5, 3, 3), torch.rand(10)

    def made():
        return standardised_kernel(Product.of(x, g, geometry, 7, weight.shape), weight, gain)

    usual = made()
    monkeypatch.setattr(gradients, "believed", lambda *_: False)
    monkeypatch.setattr(products, "row_facts", None)
    monkeypatch.setattr(products, "written", None)
    found = made()
    assert torch.allclose(found.squared_norms(), usual.squared_norms(), rtol=1e-3)
    weights = torch.rand(7)
    assert torch.allclose(found.weighted_sum(weights), usual.weighted_sum(weights), atol=1e-3)
