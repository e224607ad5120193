"""How far one record moves the coefficients of a reconstruction objective.

    >>> layer_bound(784, 25, Norm.L1, Neighbours.REPLACE_ONE)
    19600.0
    >>> layer_bound(784, 25, Norm.L2, Neighbours.REPLACE_ONE)
    140.0
    >>> whole_bound(784, 25), whole_bound(784, 25, Neighbours.ADD_REMOVE)
    (19756.25, 9878.125)

Inputs x are in [0, 1]^d, codes h in [0, 1]^b, and h is a function of x that was fixed before the
data are read. Per record the coefficients are u h' with u = 1/2 - x, whose entries are within 1/2
of 0, and h h' / 8, which all d reconstructed inputs have in common and which is released once, its
upper triangle only.

Weighing the two. Noise has one scale for everything that is released together, so that h h' / 8,
whose entries are at most 1/8, may be multiplied by a public w first and divided by it after. Two
records (u, h) and (u', h') with m_k <= M_k the smaller and the larger of h_k and h'_k have

    |u_j h_k - u'_j h'_k| <= (M_k + m_k) / 2,      |h_k h_l - h'_k h'_l| <= M_k M_l - m_k m_l,

both increasing in M, so that M = 1 is the worst. What is left is a function of m:

    L1:  (d/2) sum (1 + m_k) + (w/8) sum over k <= l of (1 - m_k m_l),
         whose derivatives are at least d/2 - w (b + 1) / 8;
    L2:  (d/4) sum (1 + m_k)^2 + (w^2/64) sum over all k, l of (1 - m_k m_l)^2   (squared),
         whose derivatives are at least d/2 - w^2 b / 16.

For w = 4 d / (b + 1), and w = sqrt(8 d / b), these are not negative: m = 1 is the worst, where the
second part vanishes. **The squares then cost a replacement nothing**: its sensitivity is d b, and
sqrt(d b), reached by x = 0 against x = 1 with all codes 1, and least possible for the linear part
alone. One record that is added or removed moves both parts: d b / 2 + w b (b + 1) / 16 = 3 d b / 4,
and sqrt(d b / 4 + w^2 b^2 / 64) = sqrt(3 d b / 8), reached by any x in {0, 1}^d with codes 1. (Off
the diagonal the L2 form has the weight sqrt 2 besides, because the triangle stands for both.)

In print there is d (b + b^2 / 4): the squares counted once for each of the d reconstructed inputs,
though they are the same (:mod:`~sfumato.learning.autoencoder.printed`).

Reference: Phan, Wang, Wu and Dou, "Differential privacy preservation for deep auto-encoders: an
application of human behavior prediction", AAAI 2016, lemma 2.
"""

from __future__ import annotations

import math

from sfumato.core import validation
from sfumato.core.neighbours import Neighbours
from sfumato.core.sensitivity import Norm

__all__ = ["check_relation", "layer_bound", "square_weight", "whole_bound"]


def check_relation(neighbours: Neighbours) -> None:
    """Raises ``ValueError`` for neighbours of which nothing is said here."""
    if neighbours is Neighbours.ZERO_OUT:
        raise ValueError(
            "neighbours must be 'replace-one' or 'add-remove': a row that is blanked out still has "
            "a code and counts, so that blanking is a replacement. neighbours='replace-one' covers "
            "it"
        )


def square_weight(columns: int, width: int, norm: Norm) -> float:
    """w, by which h h' / 8 is multiplied before it is noised: 4 d / (b + 1), or sqrt(8 d / b)."""
    d, b = validation.count("columns", columns), validation.count("width", width)
    return 4 * d / (b + 1) if norm is Norm.L1 else math.sqrt(8 * d / b)


def layer_bound(columns: int, width: int, norm: Norm, neighbours: Neighbours) -> float:
    """The sensitivity of (u h', w h h' / 8), exact in real numbers.

    Args:
        columns: d, how many inputs there are.
        width: b, how many codes.
        norm: L1 for Laplace noise, L2 for normal noise.
        neighbours: add-remove or replace-one.
    """
    d, b = validation.count("columns", columns), validation.count("width", width)
    check_relation(neighbours)
    replaced = neighbours is Neighbours.REPLACE_ONE
    if norm is Norm.L1:
        return float(d * b) if replaced else 3 * d * b / 4
    if norm is not Norm.L2:
        validation.fail("norm", "'l1' or 'l2'", norm)
    return math.sqrt(d * b) if replaced else math.sqrt(3 * d * b / 8)


def whole_bound(columns: int, width: int, neighbours: Neighbours = Neighbours.REPLACE_ONE) -> float:
    """The simpler L1 bound without weights, d b + b^2 / 4: twice that of one record.

    The triangle inequality for (u h', h h' / 8), the whole matrix. Valid, and not tight: entries of
    h h' are never negative, so that a replacement moves them by b^2 / 8 at most, and not while the
    linear part moves by all of d b.
    """
    check_relation(neighbours)
    one = columns * width / 2 + width**2 / 8
    return 2 * one if neighbours is Neighbours.REPLACE_ONE else one
