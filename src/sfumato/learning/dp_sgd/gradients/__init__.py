"""Per-example gradients from one backward pass: norms first, then one weighted sum.

The idea. A layer's weight gradient is a sum over examples of small products of what went in (the
activation) and what came back (the output gradient). One backward pass that records both, and
skips the sum autograd would have formed, holds everything that clipping needs: each example's norm,
and afterwards the sum of all examples with the weights that clipping chose. No per-example gradient
need be stored where that would cost more ("ghost" norms, book-keeping: Li et al., arXiv:2110.05679;
Bu et al., arXiv:2210.00038).

This package knows nothing of privacy. It knows functions, not modules: a
:class:`~sfumato.learning.dp_sgd.gradients.tape.Tape` sees every torch function that a forward pass
calls with a trainable parameter, so a user's own module, a weight used twice, or
``F.linear(h, embedding.weight)`` are covered like ``nn.Linear``.

Read in this order: ``layout`` (where the batch is), ``pieces`` (a gradient in factors), ``rules``
(one function each), ``tape`` (recording), ``derived`` (what is made of parameters alone).

============  =====================================================================================
symbol        meaning
============  =====================================================================================
``rows``      examples in the physical batch, copies included
``units``     U: what is clipped; ``rows = units * copies``
``places``    T: positions of one unit at which a weight is used (tokens, pixels, copies)
============  =====================================================================================
"""
