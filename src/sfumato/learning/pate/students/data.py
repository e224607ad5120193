"""The public inputs and released labels of one student, checked and on their device."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any, final

import torch
from numpy.typing import NDArray
from torch import Tensor

from sfumato.core import validation

__all__ = ["PublicData", "as_inputs", "public_data"]


@final
@dataclass(frozen=True, eq=False)
class PublicData:
    """What a student sees.

    Attributes:
        unlabelled: (n, *shape), float32.
        labelled: (m, *shape), float32.
        labels: (m,), int64.
    """

    unlabelled: Tensor
    labelled: Tensor
    labels: Tensor

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one input."""
        return tuple(self.labelled.shape[1:])

    @property
    def device(self) -> torch.device:
        """Where all of it is."""
        return self.labelled.device

    @property
    def digest(self) -> str:
        """Of every value, so that a folder is not continued with other data."""
        found = hashlib.blake2b(digest_size=16)
        for tensor in (self.unlabelled, self.labelled, self.labels):
            found.update(str(tuple(tensor.shape)).encode())
            found.update(tensor.cpu().contiguous().numpy().tobytes())
        return found.hexdigest()


def public_data(
    unlabelled: Tensor | NDArray[Any] | None,
    labelled: Tensor | NDArray[Any],
    labels: Tensor | NDArray[Any],
    classes: int,
    device: str | torch.device,
) -> PublicData:
    """Checks that all of it fits, and moves it to the device."""
    asked = as_inputs("inputs_labelled", labelled)
    if not len(asked):
        validation.fail("inputs_labelled", "at least one input with its label", 0)
    rest = asked[:0] if unlabelled is None else as_inputs("inputs_unlabelled", unlabelled)
    if rest.shape[1:] != asked.shape[1:]:
        wanted = f"inputs of the labelled ones' shape {tuple(asked.shape[1:])}"
        validation.fail("inputs_unlabelled", wanted, tuple(rest.shape))
    answers = _labels(labels, len(asked), classes)
    return PublicData(rest.to(device), asked.to(device), answers.to(device))


def as_inputs(name: str, inputs: Tensor | NDArray[Any]) -> Tensor:
    """Float32 with one input a row; bytes are divided by 255.

    >>> as_inputs("inputs", torch.tensor([[0, 255]], dtype=torch.uint8))
    tensor([[0., 1.]])
    """
    rows = torch.as_tensor(inputs)
    if rows.ndim < 2:
        validation.fail(name, "(n, *shape): one input a row", tuple(rows.shape))
    found = rows.to(torch.float32)
    found = found / 255 if rows.dtype == torch.uint8 else found
    if not bool(found.isfinite().all()):
        validation.fail(name, "finite: leave out public inputs with NaN or infinities", "others")
    return found


def _labels(labels: Tensor | NDArray[Any], rows: int, classes: int) -> Tensor:
    found = torch.as_tensor(labels)
    if found.is_floating_point() or found.is_complex() or found.dtype == torch.bool:
        validation.fail("labels", "whole numbers, the classes answered", found.dtype)
    found = found.to(torch.int64)
    if tuple(found.shape) != (rows,):
        validation.fail("labels", f"one for each of the {rows} labelled inputs", tuple(found.shape))
    low, high = int(found.min()), int(found.max())
    if low < 0 or high >= classes:
        wanted = f"from 0 to {classes - 1}: leave out inputs that got no answer"
        validation.fail("labels", wanted, low if low < 0 else high)
    return found
