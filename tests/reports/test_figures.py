"""Figures: drawn without pyplot, saved in the format asked for, showing the numbers given."""

import subprocess
import sys

import numpy as np
import pytest

from sfumato.reports import figures
from sfumato.reports.style import save


def drawn(figure):
    axes = figure.axes[0]
    return " ".join(text.get_text() for text in axes.texts), axes


def test_the_comparison_shows_every_epsilon_and_only_printed_claims(tmp_path):
    figure = figures.comparison_figure(["a", "b"], [0.94699, 28_394.0], [None, 360.0])
    words, axes = drawn(figure)
    assert "0.947" in words
    assert "28,400" in words
    (claims,) = [line for line in axes.lines if line.get_marker() == "D"]
    assert list(claims.get_xdata()) == [360.0]
    assert save(figure, tmp_path / "deep" / "c.png").stat().st_size > 5000


def test_the_averaging_figure_marks_the_budget(tmp_path):
    figure = figures.averaging_figure([5, 50], [2.9, 3.1], [1.5, 0.5], 3.0, [3.5, 35.0], 4)
    words, axes = drawn(figure)
    assert "epsilon 3.5" in words
    assert any("after 4 queries" in text.get_text() for text in axes.get_legend().get_texts())
    save(figure, tmp_path / "a.svg")


def test_the_other_figures_draw(tmp_path):
    k = np.array([1, 10, 100])
    save(figures.crossover_figure(k, k * 1.4, np.sqrt(k) * 3.7, 7, 1.0, 1e-5), tmp_path / "x.pdf")
    save(figures.trade_off_figure([0, 0.5, 1], [1, 0.3, 0], "run"), tmp_path / "t.png")
    save(figures.epsilon_curve_figure([0, 10], [0, 1], 1e-5), tmp_path / "e.png")


def test_an_unknown_format_is_refused_before_anything_is_written(tmp_path):
    figure = figures.epsilon_curve_figure([0, 10], [0, 1], 1e-5)
    with pytest.raises(ValueError, match="plot file must end in"):
        save(figure, tmp_path / "plot.docx")
    assert not list(tmp_path.iterdir())


def test_pyplot_and_its_global_state_are_not_used():
    code = (
        "import sys\n"
        "from sfumato.reports import attack_figures, budget_figures, figures, statistics_figures\n"
        "figures.epsilon_curve_figure([1, 2], [0.1, 0.2], 1e-5)\n"
        "assert 'matplotlib.pyplot' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
