"""Exact samplers: every released noise value of the product is drawn here.

Each function's result has *exactly* the law its docstring states, given ideal coins: it does not
approximate a real-valued formula in floating point and hope. Draws are decided from 64 random bits
wherever a certified margin allows, and with as many more bits as it takes otherwise
(:mod:`.lazy` has the argument). A scale, sigma, weight or score given as a float is taken as the
exact dyadic rational it is.

=====================================  =======================================================
law                                    function
=====================================  =======================================================
∝ exp(-abs(k) / scale) on integers     :func:`discrete_laplace`
∝ exp(-k^2 / (2 sigma^2)) on integers  :func:`discrete_gaussian`
Poisson less Poisson, of equal means   :func:`skellam`
real noise, rounded to a public grid   :func:`add_gaussian`, :func:`add_laplace`
coin flips                             :func:`bernoulli`, :func:`bernoulli_exp`
uniform                                :func:`uniform_integers`, :func:`permutation`
∝ exp(log-weight); largest noisy score :func:`choose`, :func:`choose_many`, :func:`noisy_argmax`
=====================================  =======================================================

Running time is not constant: about one draw in a hundred thousand takes some 0.1 ms longer, and
which one may depend on the value it is added to. See the threat model for what that means.

    >>> from sfumato.core.randomness import SeededCoins
    >>> discrete_gaussian(2.0, 5, SeededCoins(1)).dtype
    dtype('int64')
"""

from sfumato.mechanisms.sampling.choice import choose, choose_many, noisy_argmax
from sfumato.mechanisms.sampling.flips import (
    bernoulli,
    bernoulli_exp,
    permutation,
    uniform_integers,
)
from sfumato.mechanisms.sampling.gaussian import discrete_gaussian
from sfumato.mechanisms.sampling.laplace import discrete_laplace
from sfumato.mechanisms.sampling.rounded import add_gaussian, add_laplace, grid_for
from sfumato.mechanisms.sampling.skellam import skellam

__all__ = [
    "EXACT_STATEMENT",
    "add_gaussian",
    "add_laplace",
    "bernoulli",
    "bernoulli_exp",
    "choose",
    "choose_many",
    "discrete_gaussian",
    "discrete_laplace",
    "grid_for",
    "noisy_argmax",
    "permutation",
    "skellam",
    "uniform_integers",
]

EXACT_STATEMENT = (
    "Noise has total variation distance 0 from its stated law, given independent uniform random "
    "bits, IEEE-754 doubles, elementary functions of NumPy and SciPy accurate to 2^-40 (they are "
    "to about 2^-50), and mpmath's exp, log and pi accurate to its working precision less 16 bits."
)
"""What may be claimed of every draw, and on which assumptions."""
