"""Small parameters side by side: the same norms and sums as one by one."""

import pytest
import torch

from sfumato.learning.dp_sgd.clipped_sum import clip_and_sum, group_norms
from sfumato.learning.dp_sgd.compiled.together import LARGEST, SideBySide, apart, together
from sfumato.learning.dp_sgd.gradients.pieces import Direct, Outer
from sfumato.learning.dp_sgd.gradients.tape import Gradients

UNITS = 7
SHAPES = {"a": (5,), "b": (3, 2), "c": (), "d": (1030,)}
GROUPS = (("a", "c", "e"), ("b", "d"))


def gradients(**changed):
    generator = torch.Generator().manual_seed(2)
    pieces = {
        name: Direct(torch.randn(UNITS, *shape, generator=generator))
        for name, shape in SHAPES.items()
    }
    left, right = (torch.randn(UNITS, 2, n, generator=generator) for n in (4, 3))
    pieces["e"] = Outer(left, right, (4, 3))  # pyright: ignore[reportArgumentType]
    pieces.update(changed)
    return Gradients(UNITS, pieces)


def both(found, weights):
    """Norms and sums, one by one and side by side."""
    like = torch.zeros(1)
    joined, groups = together(found, GROUPS)
    scales = torch.stack([weights, weights.flip(0)], 1)
    one_by_one = group_norms(found, GROUPS, like), clip_and_sum(found, GROUPS, scales)
    sums = apart(clip_and_sum(joined, groups, scales), joined)
    return one_by_one, (group_norms(joined, groups, like), sums)


def test_norms_and_sums_are_the_same():
    found = gradients()
    (norms, sums), (joined_norms, joined_sums) = both(found, torch.linspace(0.1, 2, UNITS))
    assert torch.allclose(norms, joined_norms, rtol=1e-6)
    assert set(sums) == set(joined_sums) == {*SHAPES, "e"}
    for name, value in sums.items():
        assert joined_sums[name].shape == value.shape
        assert torch.allclose(value, joined_sums[name], rtol=1e-5, atol=1e-6), name


def test_each_group_is_joined_by_itself():
    joined, groups = together(gradients(), GROUPS)
    small = [piece for piece in joined.pieces.values() if isinstance(piece, SideBySide)]
    assert [list(piece.shapes) for piece in small] == [["a", "c"], ["b", "d"]]
    assert [len(group) for group in groups] == [2, 1]


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
def test_a_unit_of_weight_0_contributes_exactly_nothing(bad):
    found = gradients()
    clean = gradients()
    for piece, other in zip(found.pieces.values(), clean.pieces.values(), strict=True):
        if isinstance(piece, Direct) and isinstance(other, Direct):
            piece.gradients[[0, -1]] = bad
            other.gradients[[0, -1]] = 0
    weights = torch.ones(UNITS)
    weights[[0, -1]] = 0
    _, (norms, sums) = both(found, weights)
    assert not norms[0].isfinite().any()
    _, (_, expected) = both(clean, weights)
    assert all(torch.equal(sums[name], expected[name]) for name in SHAPES)


def test_only_small_ones_are_joined():
    """Large ones would be copied for nothing; what is not written is left alone; one is enough."""
    large = Direct(torch.zeros(UNITS, LARGEST + 1))
    joined, groups = together(gradients(d=large), GROUPS)
    assert groups[1] == ["b", "d"]
    assert joined.pieces["d"] is large
    just = Direct(torch.zeros(UNITS, LARGEST))
    assert len(together(gradients(d=just), GROUPS)[1][1]) == 1
    assert together(gradients(), GROUPS)[1][0][0] == "e"


def test_types_are_not_mixed():
    doubles = Direct(torch.ones(UNITS, 3, dtype=torch.float64) / 3)
    joined, _ = together(gradients(b=doubles), GROUPS)
    assert joined.pieces["b"] is doubles


def test_a_parameter_without_a_part_in_the_loss_stays_out():
    found = gradients()
    del found.pieces["a"], found.pieces["b"]
    _, (_, sums) = both(found, torch.ones(UNITS))
    assert set(sums) == {"c", "d", "e"}


def test_long_rows_keep_their_small_terms():
    """Norms are summed in blocks: a running sum in float32 would be 1, 0.4 % too short."""
    pieces = {str(i): Direct(torch.full((1, LARGEST), 2.0**-13)) for i in range(64)}
    pieces["0"].gradients[0, 0] = 1.0
    joined, _ = together(Gradients(1, dict(pieces)), [tuple(pieces)])
    (side_by_side,) = joined.pieces.values()
    exact = 1 + (64 * LARGEST - 1) * 2.0**-26
    assert float(side_by_side.squared_norms()) == pytest.approx(exact, rel=2**-14)
