import numpy as np
import pytest

from sfumato.reports.pate_figures import (
    agreement_figure,
    costs_figure,
    teachers_figure,
    votes_figure,
)

EDGES, COUNTS = (0.0, 0.5, 1.0), (3, 7)
PLANNED = ("gnmax", (1, 10, 20), (0.1, 0.5, 0.8), None)
REAL = ("lnmax", (1, 10, 20), (0.2, 0.6, 0.9), (0.1, 0.2, 0.3))


def written(figure):
    return " ".join(text.get_text() for axes in figure.axes for text in axes.texts)


def legend(axes):
    return [text.get_text() for text in axes.get_legend().get_texts()]


def test_a_bar_for_each_bin_and_whom_it_is_for() -> None:
    figure = agreement_figure(EDGES, COUNTS)
    bars = figure.axes[0].patches
    assert [bar.get_height() for bar in bars] == [3, 7]
    assert [bar.get_x() for bar in bars] == [0.0, 0.5]
    assert "for the curator" in written(figure)


def test_only_costs_read_from_votes_are_the_curators() -> None:
    planned = costs_figure([PLANNED], 1e-5, "planned")
    assert written(planned) == ""
    assert legend(planned.axes[0]) == ["gnmax"]
    assert list(planned.axes[0].lines[0].get_ydata()) == [0.1, 0.5, 0.8]
    real = costs_figure([PLANNED, REAL], 1e-5, "real", "questions")
    assert "for the curator" in written(real)
    assert legend(real.axes[0]) == ["gnmax", "lnmax, for all data", "lnmax, for these votes"]
    assert real.axes[0].get_xlabel() == "questions"


def test_agreement_above_costs() -> None:
    figure = votes_figure(EDGES, COUNTS, [REAL], 1e-6)
    above, below = figure.axes
    assert len(above.patches) == 2
    assert [list(line.get_ydata()) for line in below.lines] == [[0.2, 0.6, 0.9], [0.1, 0.2, 0.3]]
    assert below.get_ylabel() == "epsilon at delta 1e-06"
    assert "for the curator" in written(figure)


def test_what_more_teachers_do(tmp_path) -> None:
    figure = teachers_figure([10, 100], {"one": [0.9, 0.8]}, {"all": [5.0, 1.0], "these": [4, 0.5]})
    above, below = figure.axes
    assert legend(above) == ["one"]
    assert legend(below) == ["all", "these"]
    assert below.get_yscale() == above.get_xscale() == below.get_xscale() == "log"
    assert np.asarray(above.get_xticks()) == pytest.approx([10, 100])
    figure.savefig(tmp_path / "figure.png")
