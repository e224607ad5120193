"""A finished student at work: logits and classes of many inputs, and students from a folder."""

from __future__ import annotations

from itertools import chain
from pathlib import Path
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from sfumato.core import validation
from sfumato.learning.pate.students.base import Student
from sfumato.learning.pate.students.data import as_inputs
from sfumato.learning.pate.students.store import Store

__all__ = ["accuracy_of", "load_student", "logits_of"]


def logits_of(student: nn.Module, inputs: Tensor | NDArray[Any], batch: int = 500) -> Tensor:
    """(n, classes), on the CPU, computed ``batch`` rows at a time, in eval mode.

    Args:
        student: as :meth:`Student.fit` returns it; left in the mode it was in.
        inputs: (n, *shape), floats from 0 to 1 or bytes.
        batch: rows at a time.
    """
    rows = as_inputs("inputs", inputs)
    own = next(chain(student.parameters(), student.buffers()), None)
    device = rows.device if own is None else own.device
    training = student.training
    student.eval()
    with torch.no_grad():
        parts = rows.split(validation.count("batch", batch))
        found = [student(part.to(device)).cpu() for part in parts]
    student.train(training)
    return torch.cat(found)


def accuracy_of(
    student: nn.Module, inputs: Tensor | NDArray[Any], labels: Tensor | NDArray[Any]
) -> float:
    """The share of inputs whose most probable class is their label.

    Free of charge on public inputs with public labels; on private ones it is a release.
    """
    found = logits_of(student, inputs).argmax(1)
    return float((found == torch.as_tensor(labels).cpu()).double().mean())


def load_student(folder: str | Path, device: str | torch.device = "cpu") -> nn.Module:
    """The finished network from the folder of :meth:`Student.fit`.

    Raises:
        ValueError: if the folder holds none, or one that is not finished.
    """
    store = Store(Path(folder))
    weights = store.finished()
    if weights is None:
        wanted = "a folder with a finished student: call fit again to finish it"
        validation.fail("folder", wanted, str(folder))
    facts = store.facts()
    network = Student.from_dict(facts["student"]).network(tuple(facts["shape"]))
    network.load_state_dict(weights)
    return network.to(device).eval()
