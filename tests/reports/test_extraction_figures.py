"""Figures of stolen models: they draw what they are given."""

import numpy as np
import pytest

from sfumato.reports.extraction_figures import fidelity_figure
from sfumato.reports.style import save

LINES = [
    ("exact scores", [53, 265, 530], [0.98, 1.0, 1.0]),
    ("labels", [53, 265, 530], [0.4, 0.66, 0.75], [(0.39, 0.41), (0.65, 0.67), (0.74, 0.76)]),
]


def line(axes, label):
    (found,) = [line for line in axes.lines if line.get_label() == label]
    return found


def test_lines_bands_and_marks_are_where_the_numbers_are(tmp_path):
    figure = fidelity_figure(LINES, unknowns=530, chance=0.1)
    (axes,) = figure.axes
    assert axes.get_xscale() == "log"
    x, y = line(axes, "exact scores").get_data()
    assert (list(x), list(y)) == ([53, 265, 530], [0.98, 1.0, 1.0])
    (band,) = axes.collections  # of labels alone
    edges = band.get_paths()[0].vertices
    at = {place: edges[edges[:, 0] == place, 1] for place in (53, 265)}
    assert (at[53].min(), at[53].max(), at[265].min()) == (0.39, 0.41, 0.65)
    assert list(line(axes, "guessing").get_ydata()) == [0.1, 0.1]
    assert [text.get_text() for text in axes.texts] == ["530 unknowns"]
    assert axes.get_ylim()[0] <= 0.1
    assert axes.get_ylim()[1] > 1
    labels = [text.get_text() for text in axes.get_legend().get_texts()]
    assert labels == ["exact scores", "labels", "guessing"]
    assert save(figure, tmp_path / "fidelity.png").stat().st_size > 5000


def test_lines_differ_without_colour():
    figure = fidelity_figure([(str(place), [1, 2], [0.1, 0.2]) for place in range(4)])
    drawn = figure.axes[0].lines
    assert len({(one.get_color(), one.get_marker()) for one in drawn}) == 4
    assert len({one.get_marker() for one in drawn}) == 4


def test_queries_are_written_as_whole_numbers():
    figure = fidelity_figure([("one", [100, 20_000], [0.5, 0.9])])
    axis = figure.axes[0].xaxis
    assert axis.get_major_formatter()(10_000, None) == "10,000"
    assert figure.axes[0].yaxis.get_major_formatter()(0.905, None) == "90.5%"


def test_bad_numbers_are_refused():
    with pytest.raises(ValueError, match="lines must be one or more"):
        fidelity_figure([])
    with pytest.raises(ValueError, match="line 'one' must be"):
        fidelity_figure([("one", [1, 2], [0.5])])
    with pytest.raises(ValueError, match="line 'one' must be"):
        fidelity_figure([("one", [0, 2], [0.5, 0.6])])
    with pytest.raises(ValueError, match="limits of 'one' must be 2 pairs"):
        fidelity_figure([("one", [1, 2], [0.5, 0.6], np.zeros((2, 3)))])
    with pytest.raises(ValueError, match="unknowns must be"):
        fidelity_figure(LINES, unknowns=0)
