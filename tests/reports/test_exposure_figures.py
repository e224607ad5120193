"""The figure of planted secrets: dots and lines are where the numbers are."""

import math

import numpy as np
import pytest

from sfumato.reports.exposure_figures import exposure_figure
from sfumato.reports.style import save

SURPRISES = np.linspace(10, 20, 1024)
CANARIES = [("code $4$519", 4.0, 10.0), ("code 7302", 15.0, 1.0)]


def test_canaries_are_marked_in_both_panels(tmp_path):
    figure = exposure_figure(SURPRISES, CANARIES)
    upper, lower = figure.axes
    assert [line.get_xdata()[0] for line in upper.lines] == [4.0, 15.0]
    assert sum(bar.get_height() for bar in upper.patches) == 1024
    curve, *dots = lower.lines
    assert [(dot.get_xdata()[0], dot.get_ydata()[0]) for dot in dots] == [(4.0, 10.0), (15.0, 1.0)]
    x, y = curve.get_data()
    assert (x[0], y[0], y[-1]) == (10.0, 10.0, 0.0)
    half = int(np.searchsorted(x, 15.0)) - 1  # the last of those below the middle
    assert y[half] == 1.0
    assert [text.get_text() for text in lower.texts] == ["code $4$519", "code 7302"]
    low, high = lower.get_xlim()
    assert low < 4 < 20 < high
    assert lower.get_ylim()[1] > 10
    assert save(figure, tmp_path / "exposure.png").stat().st_size > 10_000


def test_chances_are_written_beside_bits():
    figure = exposure_figure(SURPRISES, CANARIES)
    (right,) = figure.axes[1].child_axes
    write = right.yaxis.get_major_formatter()
    assert [write(bits, None) for bits in (-1, 0, 3, 12, 40, 100)] == [
        "",
        "1 in 1",
        "1 in 8",
        "1 in 4,096",
        "1 in 1e+12",
        "2^-100",
    ]


def test_the_most_exposed_are_named_and_long_names_cut():
    many = [(f"{'x' * 40}{place}", 10.0 + place, float(place)) for place in range(9)]
    lower = exposure_figure(SURPRISES, many).axes[1]
    assert len(lower.lines) == 10
    assert len(lower.texts) == 6
    assert all(len(text.get_text()) == 28 for text in lower.texts)
    assert {text.xy[1] for text in lower.texts} == {3.0, 4.0, 5.0, 6.0, 7.0, 8.0}


def test_what_is_infinite_counts_but_is_not_drawn():
    values = [1.0, 2.0, math.inf, math.inf]
    upper, lower = exposure_figure(values, [("a", math.inf, 0.4), ("b", 1.0, 2.0)]).axes
    assert len(upper.lines) == 1
    assert list(lower.lines[0].get_ydata()) == [2.0, 1.0]


@pytest.mark.parametrize("values", [[5.0], [5.0, 5.0, 5.0]])
def test_candidates_that_are_all_alike(values, tmp_path):
    figure = exposure_figure(values, [("a", 5.0, 0.0)])
    assert save(figure, tmp_path / "alike.png").stat().st_size > 5000


def test_bad_numbers_are_refused():
    for values in ([], [math.inf], [1.0, math.nan]):
        with pytest.raises(ValueError, match="candidates must be numbers"):
            exposure_figure(values, CANARIES)
