from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pytest
from scipy import special

SPREAD = [180, 30, 20, 10, 10, 0, 0, 0, 0, 0]
AGREED = [240, 5, 5, 0, 0, 0, 0, 0, 0, 0]


class Exact:
    """The law of noisy argmax and Rényi divergences, by quadrature written for the tests alone."""

    spread = SPREAD
    agreed = AGREED

    @staticmethod
    def neighbours(votes: list[int]) -> Iterator[list[int]]:
        for i in range(len(votes)):
            for j in range(len(votes)):
                if i != j and votes[i] > 0:
                    moved = list(votes)
                    moved[i] -= 1
                    moved[j] += 1
                    yield moved

    @staticmethod
    def log_law(votes: list[int], scale: float, noise: str = "gaussian") -> np.ndarray:
        """ln Pr[class i wins]; the range reaches every place where a far class might win."""
        reach = 14 + max(votes) / scale
        z = np.linspace(-reach, reach, 2 * int(reach * (12 if noise == "gaussian" else 400)) + 1)
        weight = math.log(z[1] - z[0])
        logs = []
        for i, own in enumerate(votes):
            if noise == "gaussian":
                total = -(z**2) / 2 - math.log(2 * math.pi) / 2 + weight
                cdf = special.log_ndtr
            else:
                total = -np.abs(z) - math.log(2) + weight

                def cdf(x: np.ndarray) -> np.ndarray:
                    half = np.exp(-np.abs(x)) / 2
                    return np.where(x < 0, -np.abs(x) - math.log(2), np.log1p(-half))

            for j, other in enumerate(votes):
                if j != i:
                    total = total + cdf(z + (own - other) / scale)
            logs.append(special.logsumexp(total))
        found = np.array(logs)
        assert abs(special.logsumexp(found)) < (1e-9 if noise == "gaussian" else 1e-4)
        return found - special.logsumexp(found)

    @staticmethod
    def divergence(p: np.ndarray, q: np.ndarray, order: float) -> float:
        return float(special.logsumexp(order * p + (1 - order) * q)) / (order - 1)


@pytest.fixture(scope="session")
def exact() -> Exact:
    return Exact()
