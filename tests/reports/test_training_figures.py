"""Training figures: two axes told apart by colour, error bars where there were several runs."""

import subprocess
import sys

import pytest
from matplotlib.colors import to_hex

from sfumato.reports.style import COLOURS, save
from sfumato.reports.training_figures import accuracy_by_epsilon_figure, learning_curve_figure

STEPS, ACCURACY, EPSILON = [0, 10, 20], [0.1, 0.8, 0.95], [0.0, 1.0, 1.5]


def curve(**options):
    return learning_curve_figure(STEPS, ACCURACY, EPSILON, title="digits", **options)


def words(axes):
    return [text.get_text() for text in axes.texts]


def test_accuracy_is_on_the_left_and_epsilon_on_the_right(tmp_path):
    figure = curve()
    left, right = figure.axes
    assert list(left.lines[0].get_ydata()) == ACCURACY
    assert list(right.lines[0].get_ydata()) == EPSILON
    assert "95.00%" in words(left)
    assert "digits" in left.get_title(loc="left")
    assert right.get_ylabel() == "epsilon spent"
    assert save(figure, tmp_path / "c.png").stat().st_size > 5000


def test_each_axis_has_its_curves_colour():
    for axes, colour in zip(curve().axes, COLOURS, strict=False):
        assert to_hex(axes.lines[0].get_color()) == colour
        assert to_hex(axes.yaxis.label.get_color()) == colour
        assert to_hex(axes.get_yticklabels()[0].get_color()) == colour


def test_the_kept_model_and_the_plan_are_marked(tmp_path):
    left, right = curve(target=2.0, final=0.96).axes
    assert "96.00%" in words(left)
    (mark,) = [line for line in left.lines if line.get_marker() == "D"]
    assert list(mark.get_ydata()) == [0.96]
    assert list(right.lines[1].get_ydata()) == [2.0, 2.0]
    assert words(right) == ["planned: epsilon 2"]


def test_the_training_loss_is_a_panel_that_says_whose_it_is(tmp_path):
    figure = curve(loss=[2.3, 1.0, 0.5])
    (panel,) = [axes for axes in figure.axes if axes.get_ylabel() == "training loss"]
    assert list(panel.lines[0].get_ydata()) == [2.3, 1.0, 0.5]
    assert "curator" in panel.get_title(loc="left")
    assert len(curve().axes) == 2
    save(figure, tmp_path / "c.svg")


def test_one_point_or_none_is_drawn_too(tmp_path):
    save(learning_curve_figure([5], [0.5], [0.1], title="one"), tmp_path / "a.png")
    save(learning_curve_figure([], [], [], title="none", loss=[]), tmp_path / "b.png")


def test_lengths_that_differ_are_refused():
    with pytest.raises(ValueError, match="one length"):
        learning_curve_figure(STEPS, ACCURACY[:2], EPSILON, title="x")
    with pytest.raises(ValueError, match="loss must have 3 values"):
        curve(loss=[1.0])


def by_epsilon(**options):
    series = {
        "one way": [(8.0, 0.9, 0.01), (0.5, 0.7, 0.02)],
        "another": [(0.5, 0.1, None), (8.0, 0.2, None)],
    }
    return accuracy_by_epsilon_figure(series, title="ways", **options)


def test_every_method_is_a_line_by_rising_epsilon(tmp_path):
    figure = by_epsilon(delta=1e-5)
    axes = figure.axes[0]
    assert axes.get_xscale() == "log"
    assert "delta 1e-05" in axes.get_xlabel()
    first, second = (line for line in axes.lines if line.get_linestyle() == "-")
    assert list(first.get_xdata()) == [0.5, 8.0]
    assert list(first.get_ydata()) == [0.7, 0.9]
    assert list(second.get_ydata()) == [0.1, 0.2]
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["one way", "another"]
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["0.5", "8"]
    assert save(figure, tmp_path / "e.png").stat().st_size > 5000


def test_error_bars_are_there_where_there_were_several_runs():
    bars = by_epsilon().axes[0].containers
    assert [bar.has_yerr for bar in bars] == [True, False]


def test_chance_the_baseline_and_published_results_are_shown(tmp_path):
    figure = by_epsilon(chance=0.1, baseline=0.981, published={"a paper": [(2.0, 0.95)]})
    axes = figure.axes[0]
    assert {"guessing, 10%", "without privacy, 98.1%"} == set(words(axes))
    assert axes.get_legend().get_texts()[-1].get_text() == "a paper"
    save(figure, tmp_path / "e.pdf")


def test_many_epsilons_are_labelled_by_powers_of_ten(tmp_path):
    points = [(2.0**i, 0.5, None) for i in range(-1, 20)]
    save(accuracy_by_epsilon_figure({"way": points}, title="ways"), tmp_path / "e.png")


def test_pyplot_and_its_global_state_are_not_used():
    code = (
        "import sys\n"
        "from sfumato.reports.training_figures import learning_curve_figure\n"
        "learning_curve_figure([1, 2], [0.1, 0.2], [0.1, 0.2], title='x')\n"
        "assert 'matplotlib.pyplot' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
