"""A small network that tells two kinds of rows apart: the attack model of a shadow attack.

One hidden layer of rectified units, trained by Adam on the cross entropy. A fifth of the rows is
held back; training ends when the cross entropy of these no longer falls, and the weights that were
best on them are kept. So the network's probabilities mean what they say even where there is nothing
to learn: they are then the share of each kind.

Cost is bounded by steps, not by rounds through the data: a fit takes the same time, well below a
second, for a thousand rows and for a hundred thousand.

    >>> random = np.random.default_rng(1)
    >>> rows = random.normal(size=(2000, 2))
    >>> inside = (rows**2).sum(axis=1) < 1.4
    >>> network = SmallNetwork(seed=1)
    >>> network.fit(rows, inside)
    >>> network.predict_proba([[0.0, 0.0], [2.0, 0.0]])[:, 1].round(1).tolist()
    [1.0, 0.0]
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sfumato.core import validation

__all__ = ["SmallNetwork"]

_Floats = NDArray[np.float64]
_CHECK = 50  # steps between looks at the rows held back
_ENOUGH = 1e-4  # an improvement of the cross entropy that is worth going on for


class SmallNetwork:
    """Fit with :meth:`fit`, ask with :meth:`predict_proba`, as in scikit-learn.

    Args:
        seed: for the initial weights, the rows held back and the batches.
        hidden: how many hidden units.
        steps: at most so many steps.
        rate: the learning rate at first; it falls to 0 along a cosine.
        decay: pulls weights towards 0, by this share of the rate each step.
        patience: how many looks without an improvement end the training.
    """

    def __init__(
        self,
        seed: int,
        *,
        hidden: int = 64,
        steps: int = 3000,
        rate: float = 0.01,
        decay: float = 0.01,
        patience: int = 8,
    ) -> None:
        self.seed = validation.at_least("seed", seed, 0)
        self.hidden = validation.count("hidden", hidden)
        self.steps = validation.count("steps", steps)
        self.rate = validation.positive("rate", rate)
        self.decay = validation.non_negative("decay", decay)
        self.patience = validation.count("patience", patience)
        self._weights: list[_Floats] = []

    def fit(self, rows: ArrayLike, kinds: ArrayLike) -> None:
        """Learns from rows of features, best of mean 0 and spread 1, and their kinds, 0 or 1."""
        x, y = np.asarray(rows, dtype=np.float64), np.asarray(kinds, dtype=np.float64).ravel()
        if x.ndim != 2 or len(x) != len(y) or len(x) < 10:
            validation.fail("rows", "10 or more, one kind for each", (x.shape, y.shape))
        random = np.random.default_rng(self.seed)
        order = random.permutation(len(x))
        held, learned = order[: len(x) // 5], order[len(x) // 5 :]
        weights = self._initial(x.shape[1], float(y[learned].mean()), random)
        best, least, misses = [part.copy() for part in weights], math.inf, 0
        adam = _Adam(weights)
        batch = int(np.clip(len(learned) // 8, 16, 512))
        for step in range(self.steps):
            if step % _CHECK == 0:
                loss = _cross_entropy(_logits(weights, x[held]), y[held])
                misses = 0 if loss < least - _ENOUGH else misses + 1
                if misses > self.patience:
                    break
                if loss < least:
                    best, least = [part.copy() for part in weights], loss
            picked = learned[random.integers(0, len(learned), batch)]
            rate = self.rate * (1 + math.cos(math.pi * step / self.steps)) / 2
            adam.step(_gradients(weights, x[picked], y[picked]), rate, self.decay)
        self._weights = best

    def predict_proba(self, rows: ArrayLike) -> _Floats:
        """Two probabilities a row: of kind 0 and of kind 1."""
        from scipy.special import expit

        if not self._weights:
            raise ValueError("fit the network before asking it")
        likely = np.asarray(expit(_logits(self._weights, np.asarray(rows, dtype=np.float64))))
        return np.stack([1 - likely, likely], axis=1)

    def _initial(self, features: int, share: float, random: np.random.Generator) -> list[_Floats]:
        """He's weights; the last layer starts at 0 and says the share of kind 1."""
        share = min(max(share, 1e-3), 1 - 1e-3)
        return [
            random.normal(0, math.sqrt(2 / features), (features, self.hidden)),
            np.zeros(self.hidden),
            np.zeros(self.hidden),
            np.array([math.log(share / (1 - share))]),
        ]


class _Adam:
    """Adam with decoupled decay of the two weight matrices."""

    def __init__(self, weights: list[_Floats]) -> None:
        self.weights, self.count = weights, 0
        self.first = [np.zeros_like(part) for part in weights]
        self.second = [np.zeros_like(part) for part in weights]

    def step(self, slopes: list[_Floats], rate: float, decay: float) -> None:
        self.count += 1
        scale = rate * math.sqrt(1 - 0.999**self.count) / (1 - 0.9**self.count)
        for place, (part, slope) in enumerate(zip(self.weights, slopes, strict=True)):
            first, second = self.first[place], self.second[place]
            first += 0.1 * (slope - first)
            second += 0.001 * (slope**2 - second)
            if place in (0, 2):
                part *= 1 - rate * decay
            part -= scale * first / (np.sqrt(second) + 1e-8)


def _logits(weights: list[_Floats], x: _Floats) -> _Floats:
    inner, shift, outer, offset = weights
    return np.maximum(x @ inner + shift, 0) @ outer + offset[0]


def _gradients(weights: list[_Floats], x: _Floats, y: _Floats) -> list[_Floats]:
    from scipy.special import expit

    inner, shift, outer, offset = weights
    before = x @ inner + shift
    active = np.maximum(before, 0)
    error = (np.asarray(expit(active @ outer + offset[0])) - y) / len(y)
    back = np.outer(error, outer) * (before > 0)
    return [x.T @ back, back.sum(axis=0), active.T @ error, np.array([error.sum()])]


def _cross_entropy(logits: _Floats, y: _Floats) -> float:
    return float((np.logaddexp(0, logits) - y * logits).mean())
