import math

import pytest
import torch

from sfumato.learning.pate.students.spreading import (
    neighbour_graph,
    public_features,
    spread_labels,
)


def two_heaps(each, seed=0):
    """Rows around two directions."""
    coins = torch.Generator().manual_seed(seed)
    heaps = torch.eye(2).repeat_interleave(each, 0) * 5
    return heaps + 0.3 * torch.randn(2 * each, 2, generator=coins)


def test_the_graph_is_the_formula():
    """Against a dense computation, row by row."""
    coins = torch.Generator().manual_seed(0)
    features = torch.randn(12, 5, generator=coins)
    rows = torch.nn.functional.normalize(features - features.mean(0), dim=1)
    cosines = (rows @ rows.T).fill_diagonal_(-2)
    weights = torch.zeros(12, 12)
    for i in range(12):
        for j in cosines[i].topk(3).indices.tolist():
            weights[i, j] += max(0.0, float(cosines[i, j])) ** 4
            weights[j, i] += max(0.0, float(cosines[i, j])) ** 4
    scale = weights.sum(1).clamp_min(1e-12).rsqrt()
    expected = weights * scale[:, None] * scale[None]
    torch.testing.assert_close(neighbour_graph(features, 3).to_dense(), expected)


def test_spreading_converges_to_the_closed_form():
    """A graph of three in a row: F = (1 - a) (I - a S)^-1 Y, each class scaled, to 0.99^60."""
    graph = torch.tensor([[0.0, 0.5, 0.0], [0.5, 0.0, 0.25], [0.0, 0.25, 0.0]])
    labels = torch.tensor([0, -1, 1])
    given = torch.tensor([[1.0, 0], [0, 0], [0, 1]])
    found = 0.01 * torch.linalg.inv(torch.eye(3) - 0.99 * graph) @ given
    shares = found / found.sum(0)
    shares = shares / shares.sum(1, keepdim=True)
    entropy = -(shares * shares.log()).sum(1)
    guesses, certainty = spread_labels(graph.to_sparse_coo(), labels, 2)
    assert guesses.tolist() == shares.argmax(1).tolist() == [0, 0, 1]
    torch.testing.assert_close(certainty, 1 - entropy / math.log(2), atol=1e-5, rtol=1e-4)


def test_one_label_each_is_enough_for_two_heaps_and_a_wrong_one_is_outvoted():
    graph = neighbour_graph(two_heaps(40), 6)
    labels = torch.full((80,), -1)
    labels[[0, 40]] = torch.tensor([0, 1])
    truth = torch.tensor([0, 1]).repeat_interleave(40)
    assert torch.equal(spread_labels(graph, labels, 2)[0], truth)
    labels[:8], labels[40:48] = 0, 1
    labels[3] = 1  # wrong
    guesses, _ = spread_labels(graph, labels, 2)
    wrong = (guesses != truth).nonzero().squeeze(1)
    assert len(wrong) <= 1  # at most the row itself


def test_a_row_that_no_label_reaches_is_of_no_certainty():
    graph = torch.zeros(3, 3).to_sparse_coo()
    _, certainty = spread_labels(graph, torch.tensor([1, -1, -1]), 4)
    assert certainty.tolist() == pytest.approx([1, 0, 0], abs=1e-6)


def test_rows_that_are_all_alike_lead_to_no_error():
    guesses, certainty = spread_labels(
        neighbour_graph(torch.ones(5, 3), 2), torch.tensor([0, 1, -1, -1, -1]), 2
    )
    assert len(guesses) == 5
    assert certainty.isfinite().all()


def test_features_are_wavelets_where_they_fit():
    assert public_features(torch.rand(2, 1, 28, 28)).shape == (2, 81 * 49)
    assert public_features(torch.rand(2, 1, 9, 9)).shape == (2, 81)
    assert public_features(torch.rand(2, 6)).shape == (2, 6)


def test_many_features_are_cut_to_main_directions():
    """Rows that lie in few directions keep their cosines, so the graph is the same."""
    coins = torch.Generator().manual_seed(0)
    few = torch.randn(40, 4, generator=coins)
    turned, _ = torch.linalg.qr(torch.randn(500, 4, generator=coins))
    torch.manual_seed(0)
    cut = neighbour_graph(few @ turned.T, 5).to_dense()
    torch.testing.assert_close(cut, neighbour_graph(few, 5).to_dense(), atol=1e-4, rtol=1e-3)
