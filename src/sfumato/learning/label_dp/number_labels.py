"""Private numbers as the bins they are in: a noisy histogram once, then one report of each label.

Labels are moved to between -1 and 1 by their declared bounds. What is outside counts as the nearer
bound, and what is no finite number as the middle: a fixed rule for one label by itself.

Formal guarantee. The noisy histogram is a piece of the journal like any other: begun on disk, drawn
at most once, in this process and in all that go on with the journal. If the process is killed
meanwhile it counts as told and is lost, and bins are made for an even prior. Bins are a function of
it and of what is public. Given the bins, which of them a label is in is one of so many classes, and
is told as classes are (:mod:`~sfumato.learning.label_dp.randomising`): each label once, by
randomised response with what epsilon is left. The two compose to epsilon for replacing one label.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sfumato.core.json_files import as_written
from sfumato.core.randomness import Coins
from sfumato.learning.label_dp.bins import BinnedResponse
from sfumato.learning.label_dp.journal import LabelJournal
from sfumato.learning.label_dp.number_recipe import NumberRecipe
from sfumato.learning.runs.folder import RunFolder
from sfumato.mechanisms.private_values import as_bounded

__all__ = ["BinnedLabels", "Response", "bins_of_run", "halves", "noisy_prior", "read_bins"]

_HISTOGRAM = -1  # its place among the journal's stages
_BINS = "bins.json"

Bounds = tuple[float, float]


def halves(labels: ArrayLike, bounds: Bounds) -> NDArray[np.float64]:
    """Labels in halves of their declared range, from its middle: between -1 and 1, all of them.

    >>> halves([0, 30.0, 60, 1e9, float("nan"), float("inf"), None], (0, 60)).tolist()
    [-1.0, 0.0, 1.0, 1.0, 0.0, 0.0, 0.0]
    """
    low, high = bounds
    middle = low / 2 + high / 2
    found = (as_bounded(labels, low, high, middle) - middle) / ((high - low) / 2)
    return np.clip(found, -1.0, 1.0)


@final
@dataclass(frozen=True)
class Response:
    """How a bin is told: randomised response among all of them.

    Attributes:
        epsilon: of a report.
        mechanism: "response".
    """

    epsilon: float
    mechanism: str = "response"


@final
@dataclass(frozen=True, eq=False)
class BinnedLabels:
    """Private numbers that are read as the numbers of their bins, where they are asked for.

    Attributes:
        labels: private.
        bounds: declared.
        bins: released before, in halves of the range.
    """

    labels: NDArray[Any]
    bounds: Bounds
    bins: BinnedResponse

    def __getitem__(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """The bin of each; a label on an edge is in the upper one."""
        numbers = halves(self.labels[places], self.bounds)
        return np.searchsorted(np.array(self.bins.edges), numbers, side="right").astype(np.int64)


def noisy_prior(
    recipe: NumberRecipe,
    labels: NDArray[Any],
    bounds: Bounds,
    journal: LabelJournal,
    coins: Coins,
) -> NDArray[np.float64] | None:
    """The noisy histogram of a run: drawn now, drawn before, or None if it was lost.

    Args:
        recipe: which has a share of epsilon for it.
        labels: private; read only if the histogram was not begun before.
        bounds: declared.
        journal: of the run.
        coins: where the noise comes from.
    """
    if journal.begin(_HISTOGRAM, 0):
        made = recipe.method.noisy_histogram(halves(labels, bounds), coins=coins)
        journal.finish(_HISTOGRAM, 0, made.tolist())
    found = journal.reports.get((_HISTOGRAM, 0))
    return None if found is None else np.array(found, dtype=np.float64)


def bins_of_run(
    recipe: NumberRecipe, prior: NDArray[np.float64] | None, folder: RunFolder
) -> BinnedResponse:
    """The bins that a run reports by: made once, and on disk before a label is told by them."""
    if not (folder.curator / _BINS).exists():
        made = recipe.expected_bins if prior is None else recipe.method.bins_for(prior)
        folder.write_curator(_BINS, asdict(made))
    return read_bins(folder)


def read_bins(folder: RunFolder) -> BinnedResponse:
    """The bins of a run, in halves of the labels' range.

    Raises:
        ValueError: if the curator's folder has none.
    """
    if not (folder.curator / _BINS).exists():
        raise ValueError(
            f"the run in {folder.path} must have its curator's folder, where the bins are that "
            f"labels were told by, and {_BINS} was not found there"
        )
    with as_written(folder.curator / _BINS):
        stored = folder.read_curator(_BINS)
        lists = {name: tuple(stored[name]) for name in ("edges", "values", "means")}
        return BinnedResponse(**(stored | lists))
