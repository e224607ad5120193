"""Labels spread over a graph of near neighbours: a first guess for every public input.

On fixed public features, centred and cut to their main directions, each row is joined to its k
nearest by cosine c, with weight max(c, 0)^4, both ways: W. With S = D^(-1/2) W D^(-1/2), D the
degrees, and Y the released labels, one row an input, each class scaled to sum 1,

    F <- a S F + (1 - a) Y        (a = 0.99, 60 times)

and each class of F is scaled to sum 1 again, for classes are about as frequent. A row's guess is
its largest entry; its certainty 1 - H / log K, with H the entropy of the row scaled to sum 1. One
wrong label is outvoted by its surroundings.

References: Zhou, Bousquet, Lal, Weston and Schölkopf, "Learning with local and global consistency",
NIPS 2003; Iscen, Tolias, Avrithis and Chum, "Label propagation for deep semi-supervised learning",
arXiv:1904.04717, section 4, for the weights and the certainty.
"""

from __future__ import annotations

import math
import warnings

import torch
from torch import Tensor
from torch.nn import functional as F

from sfumato.learning.features import ScatteringFeatures, transform

__all__ = ["neighbour_graph", "public_features", "spread_labels"]

_DIRECTIONS, _MEMORY, _TIMES, _POWER = 300, 0.99, 60, 4
_TINY = 1e-12
_ROWS = 1000  # rows whose neighbours are looked for at a time


def public_features(inputs: Tensor) -> Tensor:
    """Scattering coefficients of images whose sides are multiples of 4; others as they are."""
    if inputs.ndim == 4 and not inputs.shape[2] % 4 and not inputs.shape[3] % 4:
        module = ScatteringFeatures().build(tuple(inputs.shape[1:])).to(inputs.device)
        return transform(module, inputs).flatten(1)
    return inputs.flatten(1)


def neighbour_graph(features: Tensor, neighbours: int) -> Tensor:
    """S, (n, n), sparse, from rows of features. Draws from torch's generator."""
    rows = F.normalize(_main_directions(features), dim=1)
    near = [_nearest(rows, start, neighbours) for start in range(0, len(rows), _ROWS)]
    weights, ends = (torch.cat(part).flatten() for part in zip(*near, strict=True))
    starts = torch.arange(len(rows), device=rows.device)
    starts = starts.repeat_interleave(len(ends) // len(rows))
    places = torch.stack([torch.cat([starts, ends]), torch.cat([ends, starts])])
    values = torch.cat([weights, weights])
    degrees = torch.zeros(len(rows), device=rows.device).index_add_(0, places[0], values)
    scale = degrees.clamp_min(_TINY).rsqrt()
    values = values * scale[places[0]] * scale[places[1]]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # unchecked places, and that CSR is in beta
        graph = torch.sparse_coo_tensor(places, values, (len(rows),) * 2).coalesce()
        return graph.to_sparse_csr()


def spread_labels(graph: Tensor, labels: Tensor, classes: int) -> tuple[Tensor, Tensor]:
    """A guess for every row, and how certain it is, from 0 to 1.

    Args:
        graph: from :func:`neighbour_graph`.
        labels: (n,), -1 where there is none.
        classes: how many.
    """
    known = (labels >= 0).nonzero().squeeze(1)
    given = torch.zeros(len(labels), classes, device=labels.device)
    given[known, labels[known]] = 1.0
    given = _classes_alike(given)
    found = given
    for _ in range(_TIMES):
        found = _MEMORY * (graph @ found) + (1 - _MEMORY) * given
    found = _classes_alike(found)
    total = found.sum(1, keepdim=True)
    # A row that no label reaches is as likely to be of any class.
    shares = torch.where(total > 0, found / total.clamp_min(1e-38), 1 / classes)
    entropy = -(shares * shares.clamp_min(1e-38).log()).sum(1)
    certainty = 1 - entropy / math.log(max(2, classes))
    return shares.argmax(1), certainty.clamp(0.0, 1.0)


def _main_directions(features: Tensor) -> Tensor:
    centred = features - features.mean(0)
    most = min(_DIRECTIONS, *centred.shape)
    if most >= centred.shape[1]:
        return centred
    left, sizes, _ = torch.pca_lowrank(centred, most, center=False, niter=2)
    return left * sizes


def _nearest(rows: Tensor, start: int, neighbours: int) -> tuple[Tensor, Tensor]:
    """Weights and numbers of the nearest to some rows, themselves left out."""
    some = rows[start : start + _ROWS]
    cosines = some @ rows.T
    own = torch.arange(len(some), device=rows.device)
    cosines[own, start + own] = -torch.inf
    found = cosines.topk(min(neighbours, len(rows) - 1), dim=1)
    return found.values.clamp_min(0.0) ** _POWER, found.indices


def _classes_alike(found: Tensor) -> Tensor:
    return found / found.sum(0).clamp_min(_TINY)
