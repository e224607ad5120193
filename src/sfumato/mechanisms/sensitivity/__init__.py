"""Functions with declared sensitivities, and a search that tries to refute a declared one.

How far one neighbour step can move each function (M = max(|l|, |u|); one number unless L1, L2 and
Linf are given apart):

==============================  ======================  ======================  ==================
function                        add-remove              replace-one             zero-out
==============================  ======================  ======================  ==================
``Count()``                     1                       0                       1
``Count(predicate)``            1                       1                       1
``RoundedCount(m)``             m                       0; m with a predicate   m
``Histogram(categories)``       1                       2, sqrt 2, 1            1
``BoundedSum(l, u)``            M                       u - l                   M
``Mean(l, u, n)``               refused: n is private   (u - l) / n             M / n
``SumAndCount(l, u)``           M+1, sqrt(M^2+1),       u - l                   as add-remove
                                max(M, 1)
``GroupSum(u, k)``, a group     k u                     k u                     k u
``VectorSum(k, norm, B)``       B in its norm           2 B                     B
``TwoLayerGradient(clip=C)``    C in L1                 2 C                     C
``NetworkExpansion(weights)``   B in L1, by recursion   2 B                     B
==============================  ======================  ======================  ==================

Bad rows (NaN, text, a wrong length) become declared defaults inside the functions, so these hold
for every table. ``NULL`` marks a row blanked out under zero-out.

    >>> from sfumato.mechanisms import sensitivity
    >>> total = sensitivity.BoundedSum(0, 50_000)
    >>> claim = total.sensitivity("add-remove")
    >>> claim.bound
    50000.0
    >>> sensitivity.falsify(total, sensitivity.Interval(0, 50_000, raw=True), claim) is None
    True

``printed_network_bound``, ``printed_two_layer_bound`` and ``PrintedTwoLayerGradient`` are specimens
of what lecture notes print and the search refutes; use ``network_bound``, ``two_layer_bound`` and
``TwoLayerGradient``. ``gradient_noise`` compares the noise that either norm asks for.
"""

from sfumato.mechanisms.sensitivity.counts import Count, Histogram, RoundedCount
from sfumato.mechanisms.sensitivity.declared import DeclaredFunction
from sfumato.mechanisms.sensitivity.domains import (
    Ball,
    Box,
    Categories,
    Domain,
    Groups,
    Interval,
    Product,
)
from sfumato.mechanisms.sensitivity.falsifier import Witness, falsify, largest_found
from sfumato.mechanisms.sensitivity.gradient_noise import GradientNoise, gradient_noise
from sfumato.mechanisms.sensitivity.network import (
    NetworkExpansion,
    network_bound,
    printed_network_bound,
)
from sfumato.mechanisms.sensitivity.sums import BoundedSum, GroupSum, Mean, SumAndCount, VectorSum
from sfumato.mechanisms.sensitivity.two_layer import (
    Activation,
    PrintedTwoLayerGradient,
    TwoLayerGradient,
    printed_two_layer_bound,
    two_layer_bound,
)
from sfumato.mechanisms.sensitivity.values import NULL

__all__ = [
    "NULL",
    "Activation",
    "Ball",
    "BoundedSum",
    "Box",
    "Categories",
    "Count",
    "DeclaredFunction",
    "Domain",
    "GradientNoise",
    "GroupSum",
    "Groups",
    "Histogram",
    "Interval",
    "Mean",
    "NetworkExpansion",
    "PrintedTwoLayerGradient",
    "Product",
    "RoundedCount",
    "SumAndCount",
    "TwoLayerGradient",
    "VectorSum",
    "Witness",
    "falsify",
    "gradient_noise",
    "largest_found",
    "network_bound",
    "printed_network_bound",
    "printed_two_layer_bound",
    "two_layer_bound",
]
