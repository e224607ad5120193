"""The naive ways to a private network, kept as honest comparisons: why DP-SGD is needed.

Each has a guarantee that truly holds and is known before data is read, and pays for it with far
more noise than DP-SGD. With d parameters, in one step on a lot of L examples, or in the one release
of the weights, noise over signal in L2 norm is about

=====================  =========================  ============================================
way                    sensitivity                noise over signal
=====================  =========================  ============================================
``sfumato.DPSGD``      C in L2, of one example    z sqrt(d) / L
:class:`LaplaceSGD`    C in L1, of one example    z d / L, z = 1 / epsilon of a step
:class:`NoisyWeights`  2R in L2, of everything    2 m sqrt(d), whatever L: data does not help
=====================  =========================  ============================================

because a gradient of L1 norm C whose entries are about alike has an L2 norm of about C / sqrt(d).
m is the noise multiplier of one Gaussian release: 3.73 at epsilon 1, delta 1e-5. In short, Laplace
noise needs sqrt(d) times as large lots, and noisy weights an epsilon of the order of d.
"""

from sfumato.learning.naive.laplace_sgd import LaplaceSGD
from sfumato.learning.naive.noisy_weights import Centre, NoisyWeights

__all__ = ["Centre", "LaplaceSGD", "NoisyWeights"]
