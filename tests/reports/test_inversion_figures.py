"""The figure of inversions draws the images it is given, in the right places."""

import numpy as np
import pytest
from matplotlib.colors import to_hex

from sfumato.reports.inversion_figures import inversion_figure
from sfumato.reports.style import COLOURS, PALE, save


def shown(axes):
    return np.asarray(axes.images[0].get_array())


def test_a_row_a_model_and_a_column_a_class(tmp_path):
    random = np.random.default_rng(1)
    means, found = random.random((3, 1, 5, 5)), random.random((3, 5, 5))
    figure = inversion_figure(
        [("class means", means, None), ("no privacy", found, [True, False, True])],
        ["zero", "one", "two"],
        title="digits",
    )
    assert len(figure.axes) == 6
    for place in range(3):
        assert np.array_equal(shown(figure.axes[place]), means[place, 0])
        assert np.array_equal(shown(figure.axes[3 + place]), found[place])
    assert [axes.get_title() for axes in figure.axes[:3]] == ["zero", "one", "two"]
    labels = [axes.get_ylabel() for axes in figure.axes]
    assert labels == ["class means", "", "", "no privacy", "", ""]
    frames = [to_hex(axes.spines["left"].get_edgecolor()) for axes in figure.axes[3:]]
    assert frames == [COLOURS[1], PALE, COLOURS[1]]
    assert not figure.axes[0].spines["left"].get_visible()
    assert save(figure, tmp_path / "inversion.png").stat().st_size > 5000


def test_values_are_shown_between_the_bounds():
    faint = np.array([[[0.0, 0.2], [0.1, 0.2]]])
    (axes,) = inversion_figure([("a", faint, None)], ["x"], bounds=(-1.0, 1.0)).axes
    assert shown(axes) == pytest.approx((faint[0] + 1) / 2)
    (axes,) = inversion_figure([("a", faint, None)], ["x"], bounds=None).axes
    assert shown(axes) == pytest.approx(faint[0] / 0.2)


@pytest.mark.parametrize("shape", [(2, 3, 6, 6), (2, 6, 6, 3)])
def test_colours_may_come_first_or_last(shape):
    images = np.random.default_rng(1).random(shape)
    figure = inversion_figure([("a", images, None)], ["x", "y"])
    last = images if shape[-1] == 3 else np.moveaxis(images, 1, -1)
    assert np.array_equal(shown(figure.axes[1]), last[1])


def test_a_row_must_have_an_image_for_every_class():
    with pytest.raises(ValueError, match="'a' must have one image for each class"):
        inversion_figure([("a", np.zeros((2, 4, 4)), None)], ["x", "y", "z"])
