"""Figures of membership inference: they draw what they are given, and say what cannot be seen."""

import math

import numpy as np
import pytest
from matplotlib.collections import PathCollection, PolyCollection

from sfumato.reports.membership_figures import (
    gap_figure,
    membership_roc_figure,
    membership_score_figure,
    most_exposed_figure,
)
from sfumato.reports.style import COLOURS, save

CURVE = ("loss", [0.0, 0.0, 0.01, 1.0], [0.0, 0.2, 0.6, 1.0])


def line(axes, label):
    (found,) = [line for line in axes.lines if line.get_label() == label]
    return found


def words(legend):
    return [text.get_text() for text in legend.get_texts()]


def test_the_bound_has_its_delta_and_its_mirror_image():
    (axes,) = membership_roc_figure([CURVE], epsilon=1.0, delta=0.01).axes
    x, y = line(axes, "bound at epsilon 1, delta 0.01").get_data()
    assert y[0] == pytest.approx(math.e * 1e-4 + 0.01)
    expected = np.minimum(math.e * x + 0.01, np.minimum(1 - (0.99 - x) / math.e, 1))
    assert y == pytest.approx(expected)
    assert y[-1] == 1
    (axes,) = membership_roc_figure([CURVE], epsilon=1000.0).axes
    assert line(axes, "bound at epsilon 1000").get_ydata().tolist() == [1.0] * 200


def test_a_band_has_the_colour_of_its_curve_and_its_limits(tmp_path):
    rates = np.array([0.001, 0.01, 1.0])
    figure = membership_roc_figure(
        [("other", [0, 1], [0, 1]), CURVE], [("loss", rates, [0.0, 0.5, 1.0], [0.3, 0.7, 1.0])]
    )
    (axes,) = figure.axes
    (band,) = [one for one in axes.collections if isinstance(one, PolyCollection)]
    assert band.get_facecolor()[0, :3] == pytest.approx(_rgb(line(axes, "loss").get_color()))
    corners = {tuple(point) for point in band.get_paths()[0].vertices.round(9).tolist()}
    assert {(0.01, 0.5), (0.01, 0.7), (0.001, 0.3), (0.001, 1e-5)} <= corners
    assert words(figure.legends[0])[-1] == "limits, each at its rate"
    assert save(figure, tmp_path / "roc.png").stat().st_size > 5000
    with pytest.raises(ValueError, match="a band's label must be one of"):
        membership_roc_figure([CURVE], [("gone", rates, rates, rates)])


def _rgb(colour):
    return [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]


def test_rates_below_one_false_alarm_are_marked():
    (axes,) = membership_roc_figure([CURVE], others=1000).axes
    assert [text.get_text() for text in axes.texts] == ["less than one false alarm"]
    (span,) = axes.patches
    assert (span.get_x(), span.get_x() + span.get_width()) == pytest.approx((1e-4, 1e-3))
    (axes,) = membership_roc_figure([CURVE], others=100_000).axes
    assert not axes.texts


def test_many_curves_are_told_apart():
    """Names do not lie on the curves, and no two curves look the same."""
    names = [f"attack {number}" for number in range(8)]
    figure = membership_roc_figure([(name, *CURVE[1:]) for name in names], epsilon=1.0)
    (axes,), (legend,) = figure.axes, figure.legends
    assert axes.get_legend() is None
    assert words(legend)[-8:] == names
    looks = {(line.get_color(), line.get_linestyle()) for line in axes.lines[-8:]}
    assert len(looks) == 8


def test_a_claim_is_drawn_for_its_own_curve_alone():
    """What epsilon 1 forbids says nothing about a run of epsilon 3 on the same axes."""
    curves = [(name, *CURVE[1:]) for name in ("one", "three", "plain")]
    (axes,) = membership_roc_figure(curves, claims={"one": (1.0, 0.0), "three": (3.0, 0.0)}).axes
    assert not [one for one in axes.collections if isinstance(one, PolyCollection)]  # no shade
    for name, epsilon in (("one", 1.0), ("three", 3.0)):
        bound = line(axes, f"most for {name}")
        assert bound.get_color() == line(axes, name).get_color()
        assert bound.get_linestyle() == "--"
        assert bound.get_ydata()[0] == pytest.approx(math.exp(epsilon) * 1e-4)
    assert "most for plain" not in [one.get_label() for one in axes.lines]


def test_scores_on_log_shares_with_their_threshold(tmp_path):
    random = np.random.default_rng(1)
    panels = [
        ("loss", random.normal(1, 1, 500), random.normal(0, 1, 400)),
        ("gap", [1, 1, 0], [0, 0]),
    ]
    figure = membership_score_figure(panels, [0.5, None])
    first, second = figure.axes
    assert (first.get_yscale(), second.get_yscale()) == ("log", "log")
    for axes in figure.axes:
        assert sum(bar.get_height() for bar in axes.patches) == pytest.approx(2)
        tallest = max(bar.get_height() for bar in axes.patches)
        assert axes.get_ylim()[0] < 1 / 500 or axes is second
        assert axes.get_ylim()[1] > tallest
    assert list(line(first, "called a member from").get_xdata()) == [0.5, 0.5]
    assert not second.lines
    (legend,) = figure.legends
    assert words(legend) == ["member", "not a member", "called a member from"]
    save(figure, tmp_path / "scores.svg")
    plain = membership_score_figure(panels[:1], log=False)
    assert plain.axes[0].get_yscale() == "linear"
    assert words(plain.legends[0]) == ["member", "not a member"]
    with pytest.raises(ValueError, match="thresholds must be one for each of 2 panels"):
        membership_score_figure(panels, [0.5])


def shown(figure):
    return [np.asarray(axes.get_images()[0].get_array()) for axes in figure.axes]


def test_the_most_exposed_with_their_scores(tmp_path):
    pictures = np.arange(7 * 4).reshape(7, 2, 2) / 27
    figure = most_exposed_figure(pictures, np.arange(7.0), [f"a {n}" for n in range(7)])
    assert len(figure.axes) == 7
    assert figure.axes[6].get_xlabel() == "a 6\nscore 6"
    assert shown(figure)[6] == pytest.approx(pictures[6])
    assert figure.axes[5].get_position().x0 == pytest.approx(figure.axes[0].get_position().x0)
    assert save(figure, tmp_path / "exposed.png").stat().st_size > 5000


def test_pictures_of_whole_numbers_and_of_colours():
    grey = np.full((1, 3, 3), 51, dtype=np.uint8)
    assert shown(most_exposed_figure(grey, [1.0]))[0] == pytest.approx(np.full((3, 3), 0.2))
    colours = np.zeros((2, 3, 3, 3))
    colours[1, ..., 0] = 4.0
    figure = most_exposed_figure(colours, [2.5, 1.0])
    assert shown(figure)[1][0, 0].tolist() == [1.0, 0.0, 0.0]
    assert figure.axes[0].get_xlabel() == "score 2.5"
    one_channel = most_exposed_figure(np.zeros((1, 3, 3, 1)), [0.0])
    assert shown(one_channel)[0].shape == (3, 3)


def test_success_against_the_gap(tmp_path):
    figure = gap_figure(
        [0.3, 0.1, 0.02], [0.7, 0.6, 0.51], [False, False, True], names=["a", "", ""]
    )
    (axes,) = figure.axes
    dots = [one for one in axes.collections if isinstance(one, PathCollection)]
    assert [np.asarray(one.get_offsets()).tolist() for one in dots] == [
        [[0.3, 0.7], [0.1, 0.6]],
        [[0.02, 0.51]],
    ]
    assert dots[0].get_facecolor()[0, :3] == pytest.approx(_rgb(COLOURS[1]))
    assert dots[1].get_facecolor()[0, :3] == pytest.approx(_rgb(COLOURS[0]))
    assert words(axes.get_legend()) == ["guessing", "not private", "private"]
    assert list(line(axes, "guessing").get_ydata()) == [0.5, 0.5]
    assert [text.get_text() for text in axes.texts if text.get_text()] == ["a"]
    save(figure, tmp_path / "gap.pdf")
    (axes,) = gap_figure([0.1], [0.2], [True], guessing=0.0, ylabel="advantage").axes
    assert words(axes.get_legend()) == ["guessing", "private"]
    assert axes.get_ylabel() == "advantage"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: most_exposed_figure(np.zeros((2, 2)), [1.0]), "pictures must be of shape"),
        (lambda: most_exposed_figure(np.zeros((1, 2, 2, 2)), [1.0]), "pictures must be of shape"),
        (lambda: most_exposed_figure(np.zeros((0, 2, 2)), []), "pictures must be of shape"),
        (lambda: most_exposed_figure(np.zeros((101, 2, 2)), [1.0] * 101), "100 at most"),
        (lambda: most_exposed_figure(np.zeros((2, 2, 2)), [1.0]), "of the same number"),
        (lambda: most_exposed_figure(np.zeros((1, 2, 2)), [1.0], columns=0), "columns must be"),
        (lambda: gap_figure([0.1], [0.5, 0.6], [True]), "lists of the same length"),
        (lambda: gap_figure([0.1], [0.5], [True], names=["a", "b"]), "names must be one for"),
    ],
)
def test_bad_numbers_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
