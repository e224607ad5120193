"""The small networks that students train: minutes on two cores, and a fast answer afterwards."""

from __future__ import annotations

from torch import nn

from sfumato.core import validation

__all__ = ["on_columns", "small_cnn"]


def small_cnn(shape: tuple[int, ...], classes: int, width: int = 16) -> nn.Sequential:
    """Four convolutions with batch normalisation, then the mean over places and a linear layer.

    Args:
        shape: (channels, height, width), at least 8x8.
        classes: outputs.
        width: channels of the first convolution; the others have two, four and four times as many.
    """
    if len(shape) == 1:
        raise ValueError(
            f"this student takes images, got rows of {shape[0]} columns: choose the student "
            "'supervised', or 'gan', which take a table's columns"
        )
    if len(shape) != 3 or min(shape[1:]) < 8:
        validation.fail("shape of an input", "(channels, height, width), at least 8x8", shape)
    w = validation.count("width", width)
    return nn.Sequential(
        *_block(shape[0], w, 5, 2),
        *_block(w, 2 * w, 3, 1),
        *_block(2 * w, 4 * w, 3, 2),
        *_block(4 * w, 4 * w, 3, 1),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4 * w, classes),
    )  # fmt: skip


def on_columns(columns: int, classes: int, hidden: int = 0) -> nn.Sequential:
    """A linear layer on a table's columns, or one hidden layer between.

    Args:
        columns: numbers from 0 to 1 in a row.
        classes: outputs.
        hidden: units of the hidden layer; 0 for none, which few labels bear best.
    """
    if not validation.at_least("hidden", hidden, 0):
        return nn.Sequential(nn.Linear(columns, classes))
    return nn.Sequential(nn.Linear(columns, hidden), nn.ReLU(), nn.Linear(hidden, classes))


def _block(before: int, after: int, size: int, stride: int) -> list[nn.Module]:
    convolution = nn.Conv2d(before, after, size, stride, size // 2, bias=False)
    return [convolution, nn.BatchNorm2d(after), nn.ReLU(inplace=True)]
