"""Figures of attacks: they draw what they are given, low rates included."""

import numpy as np
import pytest

from sfumato.reports.attack_figures import linkage_figure, roc_figure, score_figure
from sfumato.reports.style import save


def line(axes, label):
    (found,) = [line for line in axes.lines if line.get_label() == label]
    return found


def test_the_roc_shows_low_rates_and_the_bound(tmp_path):
    alarms, found = [0.0, 0.0, 0.01, 1.0], [0.0, 0.2, 0.6, 1.0]
    figure = roc_figure([("exact", alarms, found), ("private", [0, 1], [0, 1])], epsilon=1.0)
    (axes,) = figure.axes
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
    x, y = line(axes, "exact").get_data()
    assert y[0] == 0.2  # what is found without a false alarm holds up to the first one
    assert y[np.searchsorted(x, 0.02)] == 0.6
    x, y = line(axes, "bound at epsilon 1").get_data()
    assert y[0] == pytest.approx(np.e * x[0])
    assert max(y) == 1
    assert save(figure, tmp_path / "roc.png").stat().st_size > 5000


def test_scores_are_drawn_as_shares_of_their_kind(tmp_path):
    random = np.random.default_rng(1)
    panels = [
        ("exact", [1.0], [0.0]),
        ("private", random.normal(1, 1, 500), random.normal(0, 1, 300)),
    ]
    figure = score_figure(panels, ("yes", "no"), "difference", "share of rounds")
    for axes in figure.axes:
        total = sum(patch.get_height() for patch in axes.patches)
        assert total == pytest.approx(2)  # each kind adds up to one
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["exact", "private"]
    labels = [text.get_text() for text in figure.axes[-1].get_legend().get_texts()]
    assert labels == ["yes", "no"]
    save(figure, tmp_path / "scores.svg")


def test_the_linkage_figure_names_every_share(tmp_path):
    figure = linkage_figure(["state", "puma"], [0.0, 0.862], (1.0, 0.73), 0.7311)
    left, right = figure.axes
    assert [text.get_text() for text in left.texts] == ["0.0%", "86.2%"]
    assert [text.get_text() for text in right.texts] == ["100.0%", "73.0%"]
    assert [label.get_text() for label in left.get_yticklabels()] == ["state", "+ puma"]
    assert list(line(right, "epsilon allows").get_xdata()) == [0.7311, 0.7311]
    save(figure, tmp_path / "linkage.pdf")
