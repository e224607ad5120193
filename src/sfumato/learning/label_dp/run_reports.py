"""The reports of a finished run beside the labels they were made of: for the curator alone."""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from sfumato.data import Dataset
from sfumato.learning.label_dp.number_labels import BinnedLabels, read_bins
from sfumato.learning.label_dp.number_recipe import read_recipe
from sfumato.learning.label_dp.ordering import digest_of
from sfumato.learning.label_dp.randomising import split
from sfumato.learning.label_dp.recording import bin_facts
from sfumato.learning.runs.folder import RunFolder
from sfumato.mechanisms.private_values import as_codes

__all__ = ["FirstReports", "read_first_reports"]

_JOURNAL = "reports.jsonl"


@final
@dataclass(frozen=True, eq=False)
class FirstReports:
    """What a run's first stage told, and of what. Private.

    In the first stage any class may be reported of every label, so that reports of equal labels
    have equal laws and are independent.

    Attributes:
        labels: (n,) the class that each report was made of; of numbers, the bin.
        told: (n,) classes, or (n, classes) noisy vectors.
        names: of the classes, or the bins.
        later: how many labels later stages told, whose laws differ from row to row.
    """

    labels: NDArray[np.int64]
    told: NDArray[Any]
    names: tuple[str, ...]
    later: int


def read_first_reports(folder: RunFolder, data: Dataset) -> FirstReports:
    """The first stage of the run in ``folder``.

    Args:
        folder: of a finished run.
        data: what it was trained on; its rows must be the run's own, in the order of then.

    Raises:
        ValueError: if they are not, or the curator's part of the folder is missing.
    """
    recipe = read_recipe(folder.record()["parameters"]["recipe"])
    stored, path = folder.read_curator_tensors("order"), folder.curator / _JOURNAL
    if stored is None or not path.exists():
        raise ValueError(
            f"the run in {folder.path} must have its curator's folder to be audited: the order of "
            "the rows and the reports are there, and were not found"
        )
    order = stored["order"].numpy()
    facts, pieces = _read(path)
    parts = split(len(order), recipe.shares, recipe.seed)
    _check(folder, data, order, parts, facts)
    size = int(facts["piece"])
    places = [np.arange(n * size, min((n + 1) * size, len(parts[0]))) for n in sorted(pieces)]
    have = np.concatenate([np.zeros(0, dtype=np.int64), *places])
    told = np.array([report for n in sorted(pieces) for report in pieces[n]])
    labels, names = _labels(folder, data, order[parts[0][have]])
    return FirstReports(labels, told, names, len(order) - len(parts[0]))


def _labels(
    folder: RunFolder, data: Dataset, places: NDArray[np.int64]
) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """The class of each row, or the bin of its number; and what these are called."""
    if data.target_bounds is None:
        return as_codes(data.train.labels[places], len(data.classes), 0), tuple(data.classes)
    bins = read_bins(folder)
    edges = bin_facts(bins, data.target_bounds)["edges"]
    low, high = data.target_bounds
    names = tuple(f"from {a:.6g} to {b:.6g}" for a, b in pairwise([low, *edges, high]))
    return BinnedLabels(data.train.labels, data.target_bounds, bins)[places], names


def _read(path: Path) -> tuple[dict[str, Any], dict[int, list[Any]]]:
    """What the journal is about, and the reports of each piece of the first stage."""
    facts: dict[str, Any] = {}
    pieces: dict[int, list[Any]] = {}
    for line in path.read_bytes().splitlines():
        try:
            entry = json.loads(line)
        except ValueError:
            continue  # torn by a crash: what it was to say is lost
        facts = entry.get("facts", facts)
        if entry.get("stage") == 0 and "reports" in entry:
            pieces[int(entry["piece"])] = entry["reports"]
    return facts, pieces


def _check(
    folder: RunFolder,
    data: Dataset,
    order: NDArray[np.int64],
    parts: list[NDArray[np.int64]],
    facts: dict[str, Any],
) -> None:
    """Whether reports, order and inputs are of one run."""
    inputs = data.train.inputs
    same = len(order) == len(inputs) and facts.get("rows") == digest_of(order, *parts)
    if not same or facts.get("inputs") != digest_of(inputs[order]):
        raise ValueError(
            f"data must be what the run in {folder.path} was trained on, row by row, and its rows "
            "are others: name it with --data"
        )
