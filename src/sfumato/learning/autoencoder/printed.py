"""The deep private auto-encoder as it was printed and as code of it runs: for comparison only.

    >>> printed_bound(784, 25), round(code_noise_scale(784, 25, epsilon=8.0, records=50_000), 5)
    (142100.0, 0.35525)

Three things that look like the functional mechanism and are not private, or not as private as said:

- :func:`shared_noise_codes`: one vector of noise for all codes. Differences between two rows' codes
  have no noise in them.
- :func:`spent_thrice`: epsilon for each of three releases, and epsilon claimed. It is 3 epsilon.
- :func:`retrained_steps`: the coefficients' sensitivity is that of fixed codes, and the noise is
  drawn once; but codes are sigmoid(x W) of the weights W that are being learnt. Each step computes
  the coefficients anew, from the rows: the same noise, other coefficients. Who sees several
  steps' weights subtracts it; for the last weights alone, nothing is proved.

Nothing here may be called on private rows.

Reference: Phan, Wang, Wu and Dou, "Differential privacy preservation for deep auto-encoders: an
application of human behavior prediction", AAAI 2016.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from sfumato.core.randomness import Coins
from sfumato.learning.autoencoder.encoding import Encoder, Floats
from sfumato.learning.autoencoder.releases import Coefficients, LayerRelease
from sfumato.mechanisms.sampling import add_laplace, grid_for

__all__ = [
    "code_noise_scale",
    "printed_bound",
    "retrained_steps",
    "shared_noise_codes",
    "spent_thrice",
    "subtracted",
]


def printed_bound(columns: int, width: int) -> float:
    """The printed d (b + b^2 / 4) for a replacement: valid for fixed codes, and 7 times too large.

    The squares h h' / 8 are the same for all d reconstructed inputs and are counted d times.
    """
    return columns * (width + width**2 / 4)


def code_noise_scale(columns: int, width: int, epsilon: float, records: int) -> float:
    """The scale of Laplace noise that such code adds to codes: the bound over epsilon N.

    Dividing by N is right for coefficients of a *mean* over N rows; a row's own code is no mean.
    """
    return printed_bound(columns, width) / (epsilon * records)


def shared_noise_codes(codes: Floats, scale: float, coins: Coins) -> Floats:
    """All rows' codes with one and the same vector of Laplace noise: **not private**.

    h_i - h_j is exact whatever the scale, so that who knows one row knows all.
    """
    noise = add_laplace(np.zeros(codes.shape[1]), scale, grid_for(scale), coins)
    return codes + noise


def spent_thrice(
    release: LayerRelease, inputs: Floats, encoder: Encoder, coins: Coins
) -> tuple[Coefficients, Coefficients, Coefficients]:
    """Three releases of one table at ``release``'s epsilon each: **3 epsilon, not epsilon**."""
    first, second, third = (release.release(inputs, encoder, coins) for _ in range(3))
    return first, second, third


def retrained_steps(
    inputs: Floats, start: Floats, noise: Coefficients, rate: float, steps: int
) -> list[Floats]:
    """Weights after each step of descent on an objective perturbed once: **not private**.

    At each step h = sigmoid(x W) for the weights at hand, A and B are computed from the rows, the
    same ``noise`` is added to them, and W goes against A + 2 W B.

    Args:
        inputs: (n, columns) in [0, 1].
        start: (columns, width), public.
        noise: drawn once, for the sensitivity of fixed codes.
        rate: of descent, public.
        steps: how many.
    """
    found, weights = [start], start
    for _ in range(steps):
        linear, squares = _moving(inputs, weights)
        slope = linear + noise.linear + 2 * weights @ (squares + noise.squares)
        weights = weights - rate * slope
        found.append(weights)
    return found


def subtracted(shown: list[Floats], inputs: Floats, rate: float) -> float:
    """How badly a table explains three steps' weights: 0 for the right one, whatever the noise.

    The slope that was taken at W is A(W) + 2 W B(W) + noise, of which all but the noise is known to
    who guesses the table. The noise on A is the same at each step, that on B is multiplied by a
    known W: one such noise fits all slopes if the guess is right, and none does if it is wrong.
    """
    slopes = [(one - two) / rate - _slope(inputs, one) for one, two in pairwise(shown)]
    columns, width = shown[0].shape
    # Side by side for each step: the unknown noise on A, and that on B times 2 W.
    system = np.vstack([np.hstack([np.eye(columns), 2 * weights]) for weights in shown[:-1]])
    wanted = np.vstack(slopes)
    assert len(system) > columns + width
    solved = np.linalg.lstsq(system, wanted, rcond=None)[0]
    return float(np.abs(system @ solved - wanted).max())


def _moving(inputs: Floats, weights: Floats) -> tuple[Floats, Floats]:
    codes = 1 / (1 + np.exp(-inputs @ weights))
    return (0.5 - inputs).T @ codes, codes.T @ codes / 8


def _slope(inputs: Floats, weights: Floats) -> Floats:
    linear, squares = _moving(inputs, weights)
    return linear + 2 * weights @ squares
