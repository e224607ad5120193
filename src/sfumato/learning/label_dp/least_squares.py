"""A first guess without training: least squares on unbiased targets.

The ridge regression W = (X'X / n + r I)^-1 X'T / n of debiased targets T on features X costs one
solve, and stands noise well: its predictions vary by about d s^2 / n for d features and targets of
variance s^2. How many of the features to take, the first ones, is chosen by the squared error on a
tenth of the reports. All of it is post-processing of reports.

Out of fold, the rows are dealt to folds by a public seed, and a row's scores come from the fit to
the other folds: then its own report has no part in them, and may be weighed against them.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

__all__ = ["least_squares_scores", "out_of_fold_scores"]

_RIDGE = 0.03
_EVERY = 10

Learnt = Callable[[Tensor], Tensor]
"""From numbers of rows to their targets."""


def least_squares_scores(features: Tensor, targets: Tensor, wanted: Tensor) -> Tensor:
    """(m, classes): what the regression expects for other features.

    Args:
        features: (n, d), the most important ones first.
        targets: (n, classes), unbiased.
        wanted: (m, d) to predict for.
    """
    x, t = _with_constant(features.double()), targets.double()
    held = torch.arange(len(x), device=x.device) % _EVERY == 0
    size = features.shape[1]
    sizes = sorted({min(size, max(10, size // part)) for part in (1, 2, 4, 8)})
    errors = {d: _error(x[~held], t[~held], x[held], t[held], d) for d in sizes}
    best = min(sizes, key=errors.__getitem__)
    weights = _solved(x[:, : best + 1], t)
    return (_with_constant(wanted.double())[:, : best + 1] @ weights).float()


def out_of_fold_scores(
    features: Tensor, targets: Tensor, folds: int, seed: int, learnt: Learnt | None = None
) -> Tensor:
    """(n, classes): of each row, by the regression on the rows of other folds.

    Args:
        features: (n, d), the most important ones first.
        targets: (n, classes).
        folds: how many; fewer if there are not two rows for each, and none for fewer than four.
        seed: of who is in which fold.
        learnt: makes the targets of some rows, given as their numbers, of those rows' reports
            alone; None for ``targets`` as they are.
    """
    folds, rows = min(folds, len(features) // 2), torch.arange(len(features))
    learnt = learnt or (lambda some: targets[some.to(targets.device)])
    if folds < 2:
        return least_squares_scores(features, learnt(rows), features)
    fold = torch.randperm(len(features), generator=torch.Generator().manual_seed(seed)) % folds
    found = targets.new_empty(targets.shape)
    for number in range(folds):
        held, kept = (rows[chosen] for chosen in (fold == number, fold != number))
        there, here = features[kept.to(features.device)], held.to(features.device)
        found[here] = least_squares_scores(there, learnt(kept), features[here])
    return found


def _with_constant(x: Tensor) -> Tensor:
    return torch.cat([x.new_ones(len(x), 1), x], dim=1)


def _error(x: Tensor, t: Tensor, other_x: Tensor, other_t: Tensor, size: int) -> float:
    weights = _solved(x[:, : size + 1], t)
    return float((other_x[:, : size + 1] @ weights - other_t).square().mean())


def _solved(x: Tensor, t: Tensor) -> Tensor:
    gram = x.T @ x / len(x)
    ridge = _RIDGE * torch.eye(len(gram), dtype=x.dtype, device=x.device)
    return torch.linalg.solve(gram + ridge, x.T @ t / len(x))
