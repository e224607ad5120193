"""How far one record moves a minimiser, and the last weights of stochastic descent.

    >>> from sfumato.learning.erm.losses import HuberHinge
    >>> round(minimiser_bound(HuberHinge(), 50, 0.2, Neighbours.REPLACE_ONE), 9)
    0.2

In print there are several times this (4 G / (n lambda) for a regulariser lambda ||w||^2, which has
a strong convexity of 2 lambda): valid, and two or four times too noisy.
"""

from __future__ import annotations

import numpy as np

from sfumato.core.neighbours import Neighbours
from sfumato.learning.erm.losses import Loss

__all__ = ["minimiser_bound", "one_step", "stochastic_bound", "stochastic_rates"]


def one_step(neighbours: Neighbours) -> int:
    """How many records' gradients one neighbour step changes: one, or two for a replacement.

    To blank a record is a replacement too: a blank one has a loss like any other.
    """
    return 1 if neighbours is Neighbours.ADD_REMOVE else 2


def minimiser_bound(
    loss: Loss, records: int, convexity: float, neighbours: Neighbours, distance: float = 0.0
) -> float:
    """The L2 sensitivity of argmin J: 2 G / (N mu) for a replacement, G / (N mu) otherwise.

    J and J' differ by at most two records' losses over N, so that grad J' at the minimiser of J is
    at most 2 G / N long (one record's, G / N, where it is there or not and N does not change with
    it). J' is mu-strongly convex: the minimiser of J' is within that over mu. Tight for a linear
    loss.

    Args:
        loss: of a record.
        records: N, the public normaliser.
        convexity: mu, that of J.
        neighbours: the relation.
        distance: from the minimiser at which a solver stops at most; counted once for each side.

    Reference: Chaudhuri, Monteleoni and Sarwate (2011), corollary 8, for replacements.
    """
    moved = one_step(neighbours) * loss.lipschitz / (records * convexity)
    return (moved + 2 * distance) * (1 + 2.0**-40)


def stochastic_rates(loss: Loss, regularisation: float, steps: int) -> np.ndarray:
    """Learning rates min(1 / (beta + lambda), 1 / (lambda t)) of the steps t = 1, 2, ..."""
    highest = 1 / (loss.smoothness + regularisation)
    return np.minimum(highest, 1 / (regularisation * np.arange(1, steps + 1)))


def stochastic_bound(
    loss: Loss, records: int, regularisation: float, batch: int, passes: int, columns: int
) -> float:
    """The L2 sensitivity of the last weights of descent in one public order, for a replacement.

    A step W - eta (mean slope of a batch + lambda W) brings two sets of weights nearer by the
    factor 1 - eta lambda, because eta <= 1 / (beta + lambda); the step whose batch holds the
    replaced record adds at most 2 G eta / b. The record is in one batch of each pass, the same one:
    the bound is the worst over batches of the sum over passes, each shrunk by the steps that
    follow. It does not depend on the rows and is computed as it stands.

    Rounding adds to each step, in each of the two runs, at most some units in the last place: of
    the weights, which are G / lambda long at most, and by the learning rate of a slope (the sum
    over ``columns`` in it, ``loss.rounding``) and of the sum over a batch. Later steps bring what
    was added nearer, so that it is counted in full for all steps.

    Reference: Wu, Li, Kumar, Chaudhuri, Jha and Naughton, "Bolt-on differential privacy for
    scalable stochastic gradient descent-based analytics", arXiv:1606.04722, section 3.2: their
    lemma bounds the sum by 2 G / (lambda n) for such rates.
    """
    each = -(-records // batch)
    steps = each * passes
    rates = stochastic_rates(loss, regularisation, steps)
    shrinking = np.log1p(-rates * regularisation)
    after = np.concatenate([np.cumsum(shrinking[::-1])[::-1][1:], [0.0]])
    added = 2 * loss.lipschitz / batch * rates * np.exp(after)
    worst = float(added.reshape(passes, each).sum(axis=0).max())
    longest = loss.lipschitz / regularisation
    slope = loss.rounding(columns, 2 * longest) + (batch + 8) * loss.lipschitz
    each_step = float(rates[0]) * (slope + 8 * loss.lipschitz) + 8 * longest
    rounded = 2 * 2.0**-52 * steps * each_step
    return worst * (1 + 2.0**-30 + 2.0**-46 * steps) + rounded
