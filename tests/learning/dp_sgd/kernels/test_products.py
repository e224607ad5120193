"""The operators against autograd, their kernels against their twins, and the rounding bound."""

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from sfumato.learning.dp_sgd.clipping import ROUNDING, Flat
from sfumato.learning.dp_sgd.gradients import settling
from sfumato.learning.dp_sgd.gradients.products import Product
from sfumato.learning.dp_sgd.gradients.tape import Tape
from sfumato.learning.dp_sgd.kernels import launches, products

on_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
HALVES = [torch.bfloat16, torch.float16]
MATRIX = [1, 1, 1, 1, 0, 0, 1, 1]


def lengths(length, kernel, stride, padding, dilation):
    return (length + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1


def factors(n, h, w, c, r, geometry, dtype, device="cpu", seed=0):
    kh, kw, sh, sw, ph, pw, dh, dw = geometry
    torch.manual_seed(seed)
    out = lengths(h, kh, sh, ph, dh), lengths(w, kw, sw, pw, dw)
    x = torch.randn(n, h, w, c, device=device)
    g = torch.randn(n, *out, r, device=device)
    return x.to(dtype), g.to(dtype)


def by_autograd(x, g, geometry, units):
    """(U, rows, columns) in float64: the gradient of a convolution's kernel, unit by unit."""
    kh, kw, sh, sw, ph, pw, dh, dw = geometry
    kernel = torch.zeros(g.shape[3], x.shape[3], kh, kw, dtype=torch.float64, requires_grad=True)
    found = []
    for one, two in zip(x.double().cpu().chunk(units), g.double().cpu().chunk(units), strict=True):
        y = F.conv2d(one.permute(0, 3, 1, 2), kernel, None, (sh, sw), (ph, pw), (dh, dw))
        (grad,) = torch.autograd.grad((y * two.permute(0, 3, 1, 2)).sum(), kernel)
        found.append(grad.permute(0, 2, 3, 1).reshape(g.shape[3], -1))
    return torch.stack(found)


GEOMETRIES = [
    MATRIX,
    [3, 3, 1, 1, 1, 1, 1, 1],
    [3, 2, 2, 1, 1, 0, 1, 2],
    [1, 1, 2, 2, 0, 0, 1, 1],
    [5, 3, 1, 2, 0, 2, 2, 1],
]


@pytest.mark.parametrize("geometry", GEOMETRIES, ids=str)
@pytest.mark.parametrize("dtype", [*HALVES, torch.float32])
def test_twins_are_autograds_gradients(geometry, dtype):
    x, g = factors(6, 11, 9, 3, 5, geometry, dtype)
    for units in (6, 3):
        exact = by_autograd(x, g, geometry, units)
        norms, every = products.written(x, g, geometry, units)
        weights = torch.rand(units)
        weighted = products.weighted_sum(x, g, weights, geometry, units)
        squares = exact.square().sum((1, 2))
        assert torch.allclose(every.double(), exact, rtol=1e-4, atol=1e-4)
        for found in (norms, products.direct_norms(x, g, geometry, units)):
            assert torch.allclose(found.double(), squares, rtol=1e-5)
        gram = products.gram_norms(x, g, geometry, units).double()
        assert (gram >= squares).all()
        assert torch.allclose(gram, squares, rtol=1e-3)
        assert torch.allclose(
            weighted.double(), torch.tensordot(weights.double(), exact, 1), rtol=1e-4, atol=1e-4
        )


def test_a_unit_of_weight_0_contributes_nothing_whatever_its_numbers():
    x, g = factors(3, 4, 1, 5, 6, MATRIX, torch.bfloat16)
    clean = products.weighted_sum(x, g, torch.tensor([1.0, 0.0, 2.0]), MATRIX, 3)
    x[1], g[1] = math.inf, math.nan
    dirty = products.weighted_sum(x, g, torch.tensor([1.0, 0.0, 2.0]), MATRIX, 3)
    assert torch.equal(clean, dirty)
    rows = products.weighted_rows(x[:, 0, 0], g[:, 0, 0], torch.tensor([1.0, 0.0, 2.0]))
    assert rows.isfinite().all()
    assert products.direct_norms(x, g, MATRIX, 3).isnan().tolist() == [False, True, False]


@on_gpu
@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("geometry", GEOMETRIES, ids=str)
@pytest.mark.parametrize(("c", "r"), [(1, 1), (3, 16), (16, 10), (33, 70), (64, 64), (130, 129)])
def test_kernels_are_their_twins(dtype, geometry, c, r):
    for n, units, side in ((4, 4, 9), (6, 3, 13), (5, 5, 32)):
        x, g = factors(n, side, side - 1, c, r, geometry, dtype, "cuda")
        cpu = x.cpu(), g.cpu()
        weights = torch.rand(units)
        weights[0] = 0
        norms, every = products.written(x, g, geometry, units)
        expected_norms, expected = products.written(*cpu, geometry, units)
        slack = 1e-6 * lengths_of(*cpu, geometry, units)
        assert (every.cpu() - expected).flatten(1).norm(dim=1).le(slack).all()
        for found in (norms, products.direct_norms(x, g, geometry, units)):
            assert (found.cpu().sqrt() - expected_norms.sqrt()).abs().le(slack).all()
        near_gram(products.gram_norms(x, g, geometry, units), *cpu, geometry, units)
        found = products.weighted_sum(x, g, weights.cuda(), geometry, units)
        error = found.cpu() - products.weighted_sum(*cpu, weights, geometry, units)
        assert float(error.norm()) <= float((weights * slack).sum())


@on_gpu
@pytest.mark.parametrize("dtype", HALVES)
def test_kernels_of_single_places_are_their_twins(dtype):
    for units, c, r in itertools.product((1, 7, 64, 200), (1, 17, 128, 300), (3, 64, 130)):
        torch.manual_seed(1)
        x, g = torch.randn(units, c).to(dtype), torch.randn(units, r).to(dtype)
        g[-1] = math.nan
        for small in (1.0, 2.0**-45, 2.0**-80):  # as float32 factors that were shortened call for
            weights = (torch.rand(units) + 0.1) * small
            weights[-1] = 0
            found = products.weighted_rows(x.cuda(), g.cuda(), weights.cuda()).cpu()
            error = (found - products.weighted_rows(x, g, weights)) / small
            assert error.norm() <= 1e-4 * (units * c * r) ** 0.5


def lengths_of(x, g, geometry, units):
    """sum_t |g_t| |x_t|: what rounding is relative to, whatever cancels."""
    return products._product_gram(x, g, geometry, units)[1][:, 0]


def near_gram(found, x, g, geometry, units):
    """As large as the truth at least, and within the bound that was added."""
    exact = by_autograd(x, g, geometry, units).square().sum((1, 2))
    lengths = lengths_of(x, g, geometry, units).double()
    assert (found.cpu().double() >= exact).all()
    assert (found.cpu().double() <= exact * (1 + 1e-5) + 1e-4 * lengths.square()).all()


def near(found, expected, tolerance=1e-5):
    found, expected = found.cpu().double(), expected.cpu().double()
    assert (found - expected).norm() <= tolerance * expected.norm() + 1e-30


# --- by an ordinary matrix product, what is rounded charged to the norms ------------------------


def test_a_scaled_sum_is_that_of_rounded_activations():
    x, g = factors(5, 12, 1, 40, 48, MATRIX, torch.bfloat16)
    weights = torch.tensor([0.3, 0.0, 1.0, 1e-20, 0.7])
    exact = by_autograd(x, g, MATRIX, 5)
    x[1] = math.nan
    found = products.scaled_sum(x, g, weights, 5).double()
    wanted = torch.tensordot(weights.double(), exact, 1)
    error = (found - wanted).norm()
    assert error <= 2**-8 * (weights[:, None, None] * exact).norm(dim=(1, 2)).sum()
    assert error >= 2**-14 * wanted.norm()  # it is rounded


def settled(x, g):
    units, rows, columns = len(x), g.shape[3], x.shape[3]
    piece = Product.of(x, g, MATRIX, units, (rows, columns), finite=True).settle()
    norms = piece.squared_norms().sqrt().view(-1, 1)
    scales = Flat(1.0).scales(norms, (1.0,), ROUNDING["float32"])[:, 0]
    return piece, norms[:, 0].double(), scales


def longest(piece, scales):
    """Of the units' contributions, each alone."""
    alone = [torch.where(torch.arange(len(scales)) == u, scales, 0.0) for u in range(len(scales))]
    return max(float(piece.weighted_sum(one).double().norm()) for one in alone)


def nearly_cancelling(seed, places, columns=24, rows=40):
    """Places in pairs whose activations differ in their last bit, with opposite gradients."""
    torch.manual_seed(seed)
    x = (torch.rand(4, places, 1, columns) + 1).bfloat16()
    x[:, 1::2] = (x[:, 0::2].float() * (1 + 2**-7)).bfloat16()
    g = torch.randn(4, places, 1, rows).bfloat16()
    g[:, 1::2] = -g[:, 0::2]
    return x, g


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10**6), pairs=st.integers(1, 6), exponent=st.integers(-30, 30),
    cancelling=st.booleans(),
)  # fmt: skip
def test_what_a_scaled_sum_rounds_is_in_the_norms(seed, pairs, exponent, cancelling):
    x, g = nearly_cancelling(seed, 2 * pairs)
    if not cancelling:
        g = torch.randn(g.shape).bfloat16()
    piece, norms, scales = settled(x * 2.0**exponent, g)
    assert piece._by_matrix_product
    assert longest(piece, scales) <= 1.0
    exact = by_autograd(x * 2.0**exponent, g, MATRIX, 4).flatten(1).norm(dim=1)
    lengths = x.double().norm(dim=3) * 2.0**exponent * g.double().norm(dim=3)
    assert (norms >= exact).all()
    assert (norms <= exact * (1 + 1e-3) + (2**-8 + 3e-3) * lengths.sum((1, 2))).all()


@pytest.mark.parametrize("allowed", [products.ROUNDED, 0.0])
def test_without_its_allowance_a_contribution_would_be_too_long(monkeypatch, allowed):
    """All activations alike, so that all are rounded in the same direction."""
    monkeypatch.setattr(products, "ROUNDED", allowed)
    x = torch.ones(64, 2, 1, 24)
    x[:, 1] += 2**-5
    g = torch.linspace(1, 2, 64).view(64, 1, 1, 1).expand(64, 2, 1, 40).clone()
    g[:, 1] *= -1
    piece, _, scales = settled(x.bfloat16(), g.bfloat16())
    assert longest(piece, scales) <= 1.0 if allowed else longest(piece, scales) > 1.05


@pytest.mark.parametrize("share", [1.0, 0.9])
def test_a_tenth_less_allowance_would_be_too_little(monkeypatch, share):
    """The worst case there is: one place rounded up, the other down, by half a step each.

    1 and 1 + 2^-7 times a factor just below 1 + 2^-8 become 1 and 1 + 2^-6: twice as far apart.
    """
    monkeypatch.setattr(products, "ROUNDED", share * 2.0**-8)
    x = torch.ones(1, 2, 1, 4)
    x[:, 1] += 2.0**-7
    g = torch.ones(1, 2, 1, 4)
    g[:, 1] = -1
    piece = Product.of(x.bfloat16(), g.bfloat16(), MATRIX, 1, (4, 4), finite=True).settle()
    assert piece._by_matrix_product
    weight = 1 + 2.0**-8 - 2.0**-20
    bound = weight * float(piece.squared_norms().sqrt())  # the clip norm that leads to this weight
    length = float(piece.weighted_sum(torch.tensor([weight])).double().norm())
    assert length == 4 * 2.0**-6
    assert 0.95 * bound <= length <= bound if share == 1 else length > 1.02 * bound


def test_the_allowance_is_small_where_places_have_nothing_to_do_with_each_other():
    """The spectral bound: places that do not cohere cannot add up their errors."""
    torch.manual_seed(0)
    x, g = torch.randn(2, 128, 1, 256).bfloat16(), torch.randn(2, 128, 1, 512).bfloat16()
    _, norms, _ = settled(x, g)
    exact = by_autograd(x, g, MATRIX, 2).flatten(1).norm(dim=1)
    assert (norms / exact <= 1.02).all()  # by lengths alone it would be 1.044


@on_gpu
@pytest.mark.parametrize(("t", "c", "r"), [(2, 8, 16), (16, 100, 37), (200, 768, 2304)])
def test_kernels_of_scaled_sums_are_their_twins(t, c, r):
    x, g = factors(6, t, 1, c, r, MATRIX, torch.bfloat16, "cuda")
    weights = torch.rand(6, device="cuda")
    weights[2] = 0
    x[2] = math.inf
    expected = products.scaled_sum(x.cpu(), g.cpu(), weights.cpu(), 6)
    near(products.scaled_sum(x, g, weights, 6), expected)
    near(products.row_lengths(x[3, :, 0]), products.row_lengths(x[3, :, 0].cpu()))


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=on_gpu)])
@pytest.mark.parametrize("dtype", HALVES)
def test_weights_may_lie_in_columns(device, dtype):
    """As clip factors of several groups do."""
    x, g = factors(6, 12, 1, 24, 40, MATRIX, dtype, device)
    many = torch.rand(6, 3, device=device)
    column = many[:, 1]
    assert not column.is_contiguous()
    calls = [
        lambda w: products.weighted_sum(x, g, w, MATRIX, 6),
        lambda w: products.weighted_rows(x[:, 0, 0].contiguous(), g[:, 0, 0].contiguous(), w),
    ]
    if dtype == torch.bfloat16:
        calls.append(lambda w: products.scaled_sum(x, g, w, 6))
    for call in calls:
        near(call(column), call(column.contiguous()), 1e-6)


def test_kernels_refuse_what_does_not_lie_in_a_row():
    column = torch.rand(6, 3)[:, 1]
    with pytest.raises(ValueError, match=r"in a row, got strides \(3,\)"):
        launches._in_a_row(torch.rand(6), column)


def test_unless_gradients_are_known_to_be_finite_products_are_finished_first():
    x, g = factors(3, 8, 1, 24, 40, MATRIX, torch.bfloat16)
    x[0], g[1, 2] = math.inf, math.nan
    piece = Product.of(x, g, MATRIX, 3, (40, 24)).settle()
    assert piece._way == "gram"
    assert not piece._by_matrix_product
    assert piece.squared_norms().isfinite().tolist() == [False, False, True]
    total = piece.weighted_sum(torch.tensor([0.0, 0.0, 1.0]))
    near(total, by_autograd(x, g, MATRIX, 3)[2])


# --- the piece ----------------------------------------------------------------------------------


@pytest.fixture
def everywhere(monkeypatch):
    """Kernels' twins take over on a CPU, too."""

    def usable(tensor, convolution=False):
        return tensor.numel() > 0

    monkeypatch.setattr(settling, "by_kernels", usable)


def networks():
    nn = torch.nn
    yield (
        nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 3, stride=2, padding=1),
            nn.Flatten(), nn.Linear(8 * 16, 10),
        ), (3, 8, 8),
    )  # fmt: skip
    yield (
        nn.Sequential(
            nn.Conv1d(3, 8, 5, padding=2), nn.ReLU(), nn.Conv1d(8, 4, 3, stride=2, dilation=2),
            nn.Flatten(), nn.Linear(4 * 6, 10),
        ), (3, 16),
    )  # fmt: skip
    yield (
        nn.Sequential(
            nn.Linear(5, 6), nn.ReLU(), nn.Unflatten(1, (1, 12)),
            nn.ConvTranspose2d(1, 2, 3, stride=2), nn.Flatten(), nn.Linear(2 * 25 * 13, 10),
        ), (12, 5),
    )  # fmt: skip


@pytest.mark.parametrize("which", range(3))
@pytest.mark.parametrize("copies", [1, 2])
def test_a_networks_gradients(everywhere, which, copies):
    torch.manual_seed(which)
    model, shape = list(networks())[which]
    units = 11
    rows = units * copies
    x, y = torch.randn(rows, *shape), torch.randint(10, (rows,))
    tape = Tape(dict(model.named_parameters()))
    with tape.recording(rows, units, True):
        losses = F.cross_entropy(model(x), y, reduction="none")
    pieces = tape.gradients(losses.sum()).pieces
    assert sum(isinstance(p, Product) for p in pieces.values()) == 3
    weights = torch.rand(units)
    for name, p in model.named_parameters():
        exact = torch.stack([
            torch.autograd.grad(F.cross_entropy(model(one), two, reduction="sum"), p)[0]
            for one, two in zip(x.chunk(units), y.chunk(units), strict=True)
        ])  # fmt: skip
        piece = pieces[name]
        near(piece.squared_norms(), exact.detach().flatten(1).square().sum(1), 2e-3)
        near(piece.weighted_sum(weights), torch.tensordot(weights, exact, 1), 2e-3)
        near(piece.written(), exact, 2e-3)
        # Norms and sums speak of the same, shortened vectors.
        near(piece.squared_norms(), piece.written().flatten(1).square().sum(1), 1e-4)


@settings(max_examples=60, deadline=None)
@given(
    exponent=st.integers(-60, 60),
    seed=st.integers(0, 10**6),
    places=st.integers(1, 9),
    cancelling=st.booleans(),
)
def test_no_contribution_is_longer_than_the_clip_norm(exponent, seed, places, cancelling):
    """Float32 factors of any size, also where places cancel but for a remainder."""
    torch.manual_seed(seed)
    x = torch.randn(3, places, 1, 6)
    g = torch.randn(3, places, 1, 5)
    if cancelling and places > 1:
        x[:, 1:2], g[:, 1:2] = x[:, :1], -g[:, :1] * (1 + 2**-9)
    piece = Product.of(x * 2.0**exponent, g, MATRIX, 3, (5, 6)).settle()
    norms = piece.squared_norms().sqrt().view(-1, 1)
    scales = Flat(1.0).scales(norms, (1.0,), ROUNDING["float32"])[:, 0]
    for unit in range(3):
        alone = torch.zeros(3)
        alone[unit] = scales[unit]
        assert float(piece.weighted_sum(alone).double().norm()) <= 1.0


@pytest.mark.parametrize("places", [1, 4])
def test_a_unit_that_is_not_finite_stays_so_and_spoils_no_other(places):
    x, g = torch.randn(3, places, 1, 6), torch.randn(3, places, 1, 5)
    x[0, 0, 0, 2], g[0, 0, 0, 1], g[2, 0, 0, 0] = math.inf, math.nan, math.nan
    piece = Product.of(x, g, MATRIX, 3, (5, 6)).settle()
    assert piece.squared_norms().isfinite().tolist() == [False, True, False]
    total = piece.weighted_sum(torch.tensor([0.0, 1.0, 0.0]))
    near(total, g[1, :, 0].T @ x[1, :, 0], 2e-3)


def test_one_factor_may_be_short_already():
    torch.manual_seed(3)
    x, g = torch.randn(3, 4, 1, 6).half(), torch.randn(3, 4, 1, 5) * 1e-3
    piece = Product.of(x, g, MATRIX, 3, (5, 6)).settle()
    exact = by_autograd(x, g, MATRIX, 3)
    near(piece.squared_norms(), exact.square().sum((1, 2)), 2e-3)
    near(piece.weighted_sum(torch.ones(3)), exact.sum(0), 2e-3)


def test_huge_and_tiny_units_stay_apart():
    sizes = torch.tensor([2.0**-100, 1.0, 2.0**100]).view(3, 1, 1, 1)
    x, g = torch.randn(3, 4, 1, 6) * sizes, torch.randn(3, 4, 1, 5) * sizes
    piece = Product.of(x, g, MATRIX, 3, (5, 6)).settle()
    norms = piece.squared_norms().sqrt().view(-1, 1)
    scales = Flat(1.0).scales(norms, (1.0,), ROUNDING["float32"])[:, 0]
    assert scales[1] > 0
    total = piece.weighted_sum(scales)
    assert total.isfinite().all()
    near(total, scales[1] * (g[1, :, 0].T @ x[1, :, 0]), 2e-3)


@on_gpu
def test_a_kernel_of_one_tap_may_be_padded_on_one_side():
    """As a transposed convolution with an output padding has it: x is larger than g."""
    torch.manual_seed(2)
    x, g = torch.randn(3, 5, 5, 16).half(), torch.randn(3, 4, 4, 16).half()
    near(
        products.direct_norms(x.cuda(), g.cuda(), MATRIX, 3),
        products.direct_norms(x, g, MATRIX, 3),
    )


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=on_gpu)])
@pytest.mark.parametrize("geometry", [MATRIX, [3, 3, 1, 1, 1, 1, 1, 1]], ids=str)
@pytest.mark.parametrize(("c", "r"), [(16, 16), (64, 128), (8, 200)])
def test_where_places_cancel_no_contribution_is_too_long_either(device, geometry, c, r):
    """Huge gradients that add up to almost nothing: norm and sum differ by rounding alone."""
    torch.manual_seed(c)
    x, g = torch.randn(4, 16, 16, c), torch.randn(4, 16, 16, r)
    x[:, 8:], g[:, 8:] = x[:, :8], -g[:, :8]
    if geometry != MATRIX:  # both halves see the same surroundings
        x[:, [0, 7, 8, 15]] = 0
    x, g = (f.to(torch.bfloat16).to(device) * 2.0**20 for f in (x, g))
    piece = Product.of(x, g, geometry, 4, (r, c, *geometry[:2])).settle()
    norms = piece.squared_norms().sqrt().view(-1, 1)
    scales = Flat(1.0).scales(norms, (1.0,), ROUNDING["float32"])[:, 0]
    for unit in range(4):
        alone = torch.zeros(4, device=device)
        alone[unit] = scales[unit]
        assert float(piece.weighted_sum(alone).double().norm()) <= 1.0
