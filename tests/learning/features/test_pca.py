"""Private principal components: sensitivity, noise, cost, and rows of every kind."""

import math

import numpy as np
import pytest
import torch

from sfumato.accounting import account
from sfumato.core.neighbours import Neighbours
from sfumato.core.randomness import SYSTEM, SeededCoins
from sfumato.learning.features import PrivatePCA
from sfumato.learning.features.pca import noisy, second_moments


def rows_of(n, size, seed=1):
    return torch.randn(n, size, generator=torch.Generator().manual_seed(seed))


# --- cost ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("noise", "epsilon"), [(16, 0.2041), (7, 0.5025), (4, 0.9263)])
def test_the_price_in_the_paper_s_settings(noise, epsilon):
    event = PrivatePCA(60, noise).event(Neighbours.ADD_REMOVE, "record")
    assert account(event, delta=1e-5).epsilon == pytest.approx(epsilon, abs=6e-5)


def test_each_relation_has_its_own_multiplier():
    features = PrivatePCA(3, 8.0)
    for relation in (Neighbours.ADD_REMOVE, Neighbours.ZERO_OUT):
        event = features.event(relation, "person")
        assert (event.noise_multiplier, event.neighbours, event.unit) == (8.0, relation, "person")
    event = features.event(Neighbours.REPLACE_ONE, "person")
    assert event.neighbours is Neighbours.REPLACE_ONE
    assert event.noise_multiplier == pytest.approx(8 / math.sqrt(2), rel=1e-12)
    assert event.noise_multiplier**2 <= 32


# --- sensitivity --------------------------------------------------------------------------------


def extremes():
    """Rows on which rounding could go wrong: on the grid, near it, huge, tiny, all alike."""
    generator = torch.Generator().manual_seed(5)
    rows = [torch.randn(6, generator=generator) * 10.0**k for k in range(-30, 31, 3)]
    rows += list(torch.eye(6)) + [-row for row in torch.eye(6)]
    rows += [torch.tensor([1.0, 1, 1, 1, 0, 0]), torch.full((6,), 1 / 3), torch.full((6,), 7.0)]
    rows += [torch.tensor([0.6, 0.8, 0, 0, 0, 0]), torch.tensor([1.0, 1e-20, 0, 0, 0, 0])]
    rows += [torch.tensor([3.4e38] * 6), torch.tensor([1e-45] * 6), torch.zeros(6)]
    rows += [torch.tensor([math.nan] + [1.0] * 5), torch.tensor([math.inf] + [1.0] * 5)]
    return torch.stack(rows)


def test_one_row_more_moves_the_matrix_by_at_most_one_exactly():
    company, rows = rows_of(2000, 6), extremes()
    without, greatest = second_moments(company), 0.0
    for row in rows:
        moved = second_moments(torch.cat([company, row[None]])) - without
        greatest = max(greatest, float(np.sum(moved**2)))  # every term is exact
    assert greatest == 1.0


def test_a_replaced_row_moves_it_by_at_most_the_root_of_two():
    rows = extremes()
    own = np.stack([second_moments(row[None]) for row in rows])
    apart = ((own[:, None] - own[None]) ** 2).sum((2, 3))
    assert apart.max() == 2.0  # orthogonal rows


def test_the_sum_is_exact_in_any_order():
    rows = rows_of(3000, 20)
    order = torch.randperm(3000, generator=torch.Generator().manual_seed(2))
    total = second_moments(rows)
    assert np.array_equal(second_moments(rows[order]), total)
    assert np.array_equal(second_moments(rows[:7]) + second_moments(rows[7:]), total)
    unit = rows.double() / rows.double().norm(dim=1, keepdim=True)
    assert np.allclose(total, (unit.T @ unit).numpy(), atol=3000 * 2.0**-13)
    assert np.array_equal(total * 2.0**28, np.rint(total * 2.0**28))


def test_a_longer_row_counts_no_more():
    rows = rows_of(50, 6)
    assert np.array_equal(second_moments(rows * 4096), second_moments(rows))


# --- noise --------------------------------------------------------------------------------------


def test_the_noise_on_the_matrix_is_right_to_a_few_per_cent():
    """A scale wrong by ten per cent would be eight standard errors off, and more."""
    s, size, times = 3.0, 80, 50
    moments = second_moments(rows_of(100, size))
    noise = np.stack([noisy(moments, s, SYSTEM) - moments for _ in range(times)])
    assert np.array_equal(noise, noise.transpose(0, 2, 1))
    diagonal = noise[:, np.arange(size), np.arange(size)].ravel()
    above = noise[:, *np.triu_indices(size, 1)].ravel()
    for found, variance in ((diagonal, s**2), (above, s**2 / 2)):
        error = math.sqrt(2 / len(found))  # of the mean square, relative
        assert np.mean(found**2) / variance == pytest.approx(1, abs=6 * error)
        assert abs(np.mean(found)) < 6 * math.sqrt(variance / len(found))
    assert 6 * math.sqrt(2 / len(diagonal)) < 0.19  # 1.1^2 = 1.21 and 0.9^2 = 0.81 would fail


def test_noise_is_fresh_for_every_fit():
    features, rows = PrivatePCA(2, 1.0), rows_of(20, 5)
    modules = [features.build((5,)) for _ in range(2)]
    for module in modules:
        features.fit(module, rows, SYSTEM)
    assert not torch.equal(modules[0].basis, modules[1].basis)


# --- the basis ----------------------------------------------------------------------------------


def test_with_little_noise_it_is_plain_pca_without_centring():
    scales = torch.tensor([9.0, 6.0, 4.0, 2.5, 1.0, 0.5, 0.2, 0.1])
    rows = rows_of(4000, 8) * scales
    features = PrivatePCA(3, 1e-3)
    module = features.build((2, 2, 2))
    features.fit(module, rows.reshape(-1, 2, 2, 2), SeededCoins(1))
    unit = rows.double() / rows.double().norm(dim=1, keepdim=True)
    _, vectors = torch.linalg.eigh(unit.T @ unit)
    exact = vectors.flip(1)[:, :3]
    overlap = (exact.T @ module.basis.double()).abs()
    assert torch.allclose(overlap, torch.eye(3, dtype=torch.float64), atol=1e-3)
    assert torch.allclose(module(rows), rows @ module.basis)
    assert torch.allclose(module.basis.T @ module.basis, torch.eye(3), atol=1e-6)


def test_much_noise_hides_the_directions():
    rows = torch.zeros(5, 40)
    rows[:, 0] = 1
    hits = 0
    for seed in range(20):
        module = PrivatePCA(1, 100.0).build((40,))
        PrivatePCA(1, 100.0).fit(module, rows, SeededCoins(seed))
        hits += bool(module.basis[0].abs() > 0.9)
    assert hits == 0


class Counted:
    """Coins that remember how they were asked."""

    private = False

    def __init__(self):
        self._coins, self.asked = SeededCoins(1), []

    def words(self, count):
        self.asked.append(count)
        return self._coins.words(count)


def test_bad_rows_change_neither_coins_nor_result():
    """Rows that count as zero are as if they were not there."""
    rows = rows_of(30, 5)
    bad = torch.tensor([[math.nan] * 5, [math.inf] * 5, [0.0] * 5, [1, 2, math.nan, 3, 4]])
    found = []
    for table in (rows, torch.cat([bad, rows]), torch.cat([rows, bad[:1]])):
        coins, module = Counted(), PrivatePCA(2, 1.0).build((5,))
        PrivatePCA(2, 1.0).fit(module, table, coins)
        found.append((coins.asked, module.basis))
    for asked, basis in found[1:]:
        assert asked == found[0][0]
        assert torch.equal(basis, found[0][1])


def test_neighbours_ask_for_the_same_coins():
    asked = []
    for table in (rows_of(30, 5), rows_of(29, 5), rows_of(0, 5), rows_of(2000, 5) * 1e30):
        coins, module = Counted(), PrivatePCA(2, 1.0).build((5,))
        PrivatePCA(2, 1.0).fit(module, table, coins)
        assert module.basis.isfinite().all()
        asked.append(coins.asked[0])
    assert len(set(asked)) == 1


# --- bad parameters -----------------------------------------------------------------------------


def test_bad_parameters_are_errors():
    with pytest.raises(ValueError, match="at most the 5 numbers"):
        PrivatePCA(6).build((5,))
    with pytest.raises(ValueError, match="components"):
        PrivatePCA(0)
    for noise in (0, -1.0, math.nan, math.inf, 1e300):
        with pytest.raises(ValueError, match=r"noise_multiplier|scale"):
            PrivatePCA(2, noise)
    with pytest.raises(ValueError, match="rows of 5 numbers"):
        PrivatePCA(2).fit(PrivatePCA(2).build((5,)), torch.rand(3, 4), SYSTEM)
    with pytest.raises(ValueError, match="what build"):
        PrivatePCA(2).fit(torch.nn.Identity(), torch.rand(3, 4), SYSTEM)
