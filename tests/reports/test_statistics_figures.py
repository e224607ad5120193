"""Figures of released statistics show what was released."""

import matplotlib

from sfumato.reports.statistics_figures import bars_figure, heat_map_figure


def test_bars_have_the_values_and_intervals():
    figure = bars_figure(["a", "b"], [10, -2], [(7, 13), (-5, 1)], "key", "rows", "Title", 0.9)
    axes = figure.axes[0]
    assert [bar.get_height() for bar in axes.patches] == [10, -2]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["a", "b"]
    (lines,) = axes.collections
    assert [segment[:, 1].tolist() for segment in lines.get_segments()] == [[7, 13], [-5, 1]]
    assert axes.get_legend().get_texts()[0].get_text() == "90% interval"


def test_a_choice_has_no_error_bars():
    axes = bars_figure(["a"], [1.0], [(None, None)], "key", "rows", "Title").axes[0]
    assert not axes.collections


def test_a_heat_map_has_every_cell_in_its_place():
    rows = [
        {"x": x, "y": y, "value": 10 * i + j, "low": 0, "high": 10 * i + j + 3}
        for i, x in enumerate(["p", "q"])
        for j, y in enumerate([True, False])
    ]
    axes = heat_map_figure(rows, "x", "y", "rows", "Title").axes[0]
    assert axes.images[0].get_array().tolist() == [[0, 1], [10, 11]]
    texts = {child.get_text() for child in axes.get_children() if _is_text(child)}
    assert {"0\n±3", "11\n±3"} <= texts


def _is_text(child):
    return isinstance(child, matplotlib.text.Text)
