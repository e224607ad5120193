"""Correlated noise: DP-FTRL, tree aggregation and banded matrix factorisation.

Read in this order: ``strategies`` (the frozen objects, and what C x + z is), ``toeplitz``,
``buffers`` and ``tree`` (their mathematics), ``costs`` (what a plan may combine), ``errors`` (how
noisy prefix sums come out), ``drawing`` (noise, step by step).

===================  ==============================================
here                 Choquette-Choo et al., arXiv:2306.08153
===================  ==============================================
``matrix``           C, the encoder (its columns scaled to norm 1)
prefix sums          A x; B = A C^-1, the decoder
``bands``            b-hat
``separation``       b, the minimum separation
``count``            k, the most participations
``groups``           b, the parts in turn
===================  ==============================================
"""
