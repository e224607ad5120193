"""Methods side by side: a colour a group, dashes and hollow marks for other promises."""

import subprocess
import sys

import pytest
from matplotlib.colors import to_hex

from sfumato.reports.method_figures import MethodLine, methods_figure
from sfumato.reports.style import COLOURS, save

LINES = [
    MethodLine("erm-input", "input", [(4.0, 0.12, None), (1.0, 0.11, None)], hollow=True),
    MethodLine("erm-output", "output", [(1.0, 0.86, 0.01), (4.0, 0.92, 0.01)]),
    MethodLine("erm-sgd", "output", [(1.0, 0.85, None), (4.0, 0.91, None)]),
    MethodLine("label-dp", "labels", [(1.0, 0.978, None), (4.0, 1.0, None)], dashed=True),
]


def drawn(lines=LINES, **options):
    figure = methods_figure(lines, title="digits", **options)
    return figure, figure.axes[0]


def parts(axes):
    """By the name in the legend: the line of each method."""
    return {bars.get_label(): bars.lines[0] for bars in axes.containers}


def words(axes):
    return [text.get_text() for text in axes.texts]


def test_each_method_at_each_epsilon(tmp_path):
    figure, axes = drawn()
    lines = parts(axes)
    assert list(lines) == [line.name for line in LINES]
    assert list(lines["erm-input"].get_xdata()) == [1.0, 4.0]  # in order
    assert list(lines["erm-output"].get_ydata()) == [0.86, 0.92]
    assert [text.get_text() for text in axes.get_legend().get_texts()] == list(lines)
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["1", "4"]
    assert save(figure, tmp_path / "f.png").stat().st_size > 5000
    assert save(figure, tmp_path / "f.svg").stat().st_size > 5000


def test_groups_have_colours_and_other_promises_look_otherwise():
    lines = parts(drawn()[1])
    colours = {name: to_hex(line.get_color()) for name, line in lines.items()}
    assert colours["erm-output"] == colours["erm-sgd"] == COLOURS[1]
    assert len(set(colours.values())) == 3
    assert lines["erm-output"].get_marker() != lines["erm-sgd"].get_marker()
    assert not lines["erm-output"].is_dashed()
    assert lines["label-dp"].is_dashed()
    assert [name for name, line in lines.items() if line.get_markerfacecolor() == "white"] == [
        "erm-input"
    ]


def test_spread_is_drawn_where_there_is_one():
    containers = {bars.get_label(): bars for bars in drawn()[1].containers}
    assert containers["erm-output"].has_yerr
    assert not containers["erm-sgd"].has_yerr


def test_the_line_without_privacy():
    _, axes = drawn(baseline=0.985)
    assert "without privacy, 98.5 %" in words(axes)
    assert any(set(line.get_ydata()) == {0.985} for line in axes.lines)
    low, high = axes.get_ylim()
    assert low < 0.11 < 0.985 < high


@pytest.mark.parametrize("perfect", [0.0, 1.0])
def test_accuracies_near_100_percent_are_stretched_and_perfect_ones_are_drawn(perfect):
    line = MethodLine("dp-sgd", "gradient", [(1.0, perfect, None), (2.0, 0.95, None)])
    figure, axes = drawn([line], baseline=1.0)
    assert axes.get_yscale() == "logit"
    figure.canvas.draw()
    low, high = axes.get_ylim()
    assert all(low < y < high for y in parts(axes)["dp-sgd"].get_ydata())


def test_below_that_the_axis_is_even():
    line = MethodLine("dp-sgd", "gradient", [(1.0, 0.6, None), (2.0, 0.65, None)])
    figure, axes = drawn([line], baseline=0.66)
    assert axes.get_yscale() == "linear"
    figure.canvas.draw()
    assert all(tick.get_text().endswith("%") for tick in axes.get_yticklabels())


def test_it_says_what_is_measured_and_whom_it_is_for():
    _, axes = drawn(delta=1e-5, tested_on="private rows", curator=True)
    assert "delta 1e-05" in axes.get_xlabel()
    assert "private rows" in axes.get_ylabel()
    assert "for the curator" in words(axes)
    assert "for the curator" not in words(drawn()[1])


def test_nothing_to_draw_is_an_error():
    for lines in ([], [MethodLine("dp-sgd", "gradient", [])]):
        with pytest.raises(ValueError, match="must have points"):
            methods_figure(lines, title="digits")


def test_it_loads_no_pyplot():
    code = "import sys, sfumato.reports.method_figures; print('matplotlib.pyplot' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "False"
