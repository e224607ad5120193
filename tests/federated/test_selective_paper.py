"""The paper's models, and the order of magnitude that others found for them."""

import pytest

from sfumato.federated.selective_paper import MODELS, paper_row, paper_table


def convolution(inputs, outputs, width):
    return inputs * outputs * width**2 + outputs


def linear(inputs, outputs):
    return inputs * outputs + outputs


def test_the_models_have_as_many_parameters_as_reported():
    mnist = (
        convolution(1, 32, 5) + convolution(32, 64, 5) + linear(64 * 2 * 2, 200) + linear(200, 10)
    )
    svhn = (
        convolution(3, 64, 5) + convolution(64, 64, 5) + linear(64 * 5 * 5, 128) + linear(128, 10)
    )
    assert {"MNIST": mnist, "SVHN": svhn} == MODELS


def test_mnist_costs_several_thousand():
    for share, each, epochs in ((0.1, 0.5, 1), (0.01, 1.0, 10)):
        row = paper_row("MNIST", share, each, epochs)
        assert 2_000 < row.closer_epsilon < row.true_epsilon < 20_000
        assert row.paper_epsilon <= 1


def test_svhn_costs_more_than_six_hundred_thousand():
    row = paper_row("SVHN", 1.0, 2.0, 1)
    assert row.true_epsilon == pytest.approx(627_092)
    assert row.true_epsilon > 600_000
    assert row.closer_epsilon == pytest.approx(row.true_epsilon / 2)


def test_truth_is_the_number_times_parameters_times_epochs_at_most():
    for row in paper_table():
        assert row.true_epsilon <= row.paper_epsilon * row.uploaded * row.epochs * (1 + 1e-12)
        assert row.true_epsilon > 0.9 * row.paper_epsilon * row.uploaded * row.epochs


def test_another_model_is_refused():
    with pytest.raises(ValueError, match="SVHN"):
        paper_row("ImageNet", 1.0, 1.0, 1)
