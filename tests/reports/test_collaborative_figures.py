"""The matrix of attacks and defences as a figure."""

import numpy as np
import pytest

from sfumato.reports.collaborative_figures import MatrixLine, collaborative_figure


def test_a_row_for_each_defence_and_a_column_for_each_attack():
    grey, colour = np.zeros((3, 1, 8, 8)), np.zeros((2, 3, 8, 8))
    lines = [
        MatrixLine("original", "", (grey, colour), ("", ""), ("",)),
        MatrixLine("none", "no guarantee", (grey, None), ("44.0 dB", "-"), ("92 %",)),
    ]
    figure = collaborative_figure(lines, ("one", "gan"), ("accuracy",), title="Attacks")
    one, gan, words = figure.axes
    assert [len(axes.images) for axes in (one, gan, words)] == [2, 1, 0]
    assert "44.0 dB" in [text.get_text() for text in one.texts]
    assert "92 %" in [text.get_text() for text in words.texts]
    said = [text.get_text() for text in figure.texts]
    assert said[0] == "Attacks"
    assert {"original", "none", "no guarantee"} <= set(said)
    figure.canvas.draw()


def test_pictures_stand_side_by_side_and_are_cut_to_the_range():
    line = MatrixLine("none", "", (np.full((2, 28, 28), 3.0),), ("",), ())
    (axes,) = collaborative_figure([line], ("one",), ()).axes
    shown = np.asarray(axes.images[0].get_array())
    assert shown.shape == (28, 28 + 2 + 28)
    assert shown.max() == 1


def test_rows_of_numbers_are_no_pictures():
    line = MatrixLine("none", "", (np.zeros((2, 5)),), ("",), ())
    with pytest.raises(ValueError, match="images"):
        collaborative_figure([line], ("one",), ())
