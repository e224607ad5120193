"""The burn-down: steps under the cap, analysts on top of each other."""

import pytest

from sfumato.reports.budget_figures import burn_down_figure
from sfumato.reports.style import save


def labels(figure):
    return [text.get_text() for text in figure.axes[0].get_legend().get_texts()]


def test_the_reading_climbs_in_steps_and_the_cap_is_a_line(tmp_path):
    figure = burn_down_figure([0.5, 1.5, 1.2], 3.0, "census")
    reading, cap = figure.axes[0].lines
    assert list(reading.get_ydata()) == [0.0, 0.5, 1.5, 1.2, 1.2]
    assert list(cap.get_ydata()) == [3.0, 3.0]
    assert "cap 3: the guarantee" in labels(figure)
    assert "census" in figure.axes[0].get_title(loc="left")
    assert save(figure, tmp_path / "b.png").stat().st_size > 5000


def test_analysts_are_stacked_up_to_the_reading(tmp_path):
    parts = {"ann": [0.5, 0.5], "": [0.0, 0.25]}
    figure = burn_down_figure([0.5, 0.75], 1.0, "census", parts)
    assert {"ann", "no analyst named"} <= set(labels(figure))
    tops = [area.get_paths()[0].vertices[:, 1].max() for area in figure.axes[0].collections]
    assert max(tops) == pytest.approx(0.75)
    save(figure, tmp_path / "b.svg")


def test_nothing_spent_is_drawn_too(tmp_path):
    save(burn_down_figure([], 1.0, "census"), tmp_path / "b.pdf")
