import torch
from torch import nn

from sfumato.learning.pate.students.weight_norm import WeightNormLinear, start_from


def test_rows_of_the_weight_have_the_scale_as_their_length():
    torch.manual_seed(0)
    layer = WeightNormLinear(7, 3)
    layer.scale.data = torch.tensor([1.0, 2.0, 0.5])
    torch.testing.assert_close(layer.weight().norm(dim=1), layer.scale)


def test_longer_directions_change_nothing():
    torch.manual_seed(0)
    layer, rows = WeightNormLinear(7, 3), torch.randn(4, 7)
    before = layer(rows)
    layer.direction.data *= 5
    torch.testing.assert_close(layer(rows), before)


def test_the_first_batch_gives_every_layer_mean_0_and_variance_1():
    torch.manual_seed(0)
    first, second = WeightNormLinear(5, 6), WeightNormLinear(6, 4)
    rows = 3 + 2 * torch.randn(200, 5)
    start_from(nn.Sequential(first, nn.ReLU(), second), rows)
    for outputs in (first(rows), second(first(rows).relu())):
        torch.testing.assert_close(
            outputs.mean(0), torch.zeros(outputs.shape[1]), atol=1e-4, rtol=0
        )
        torch.testing.assert_close(
            outputs.var(0, unbiased=False), torch.ones(outputs.shape[1]), atol=1e-3, rtol=0
        )


def test_an_input_that_never_changes_does_not_divide_by_zero():
    layer = WeightNormLinear(2, 2)
    layer.start(torch.zeros(5, 2))
    assert layer(torch.zeros(5, 2)).isfinite().all()


def test_the_scale_is_trained_only_where_asked():
    assert not WeightNormLinear(2, 2).scale.requires_grad
    assert WeightNormLinear(2, 2, trained_scale=True).scale.requires_grad
