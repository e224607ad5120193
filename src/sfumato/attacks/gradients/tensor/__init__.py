"""Tensor reconstruction: a batch from one gradient of a two-layer network. NumPy alone will do.

===================  ==========================================================================
``reconstructing``   the attack: ``reconstruct_by_tensor`` gives a :class:`Reconstruction`
``polishing``        least squares from there: exact without noise, as good as can be with
``scoring``          how far it is from the truth: ``match_inputs`` gives a :class:`Match`

``network``          the network under attack and what its server sees
``activations``      activations, and their derivatives' means over normal inputs
``observing``        what is left to see behind a defence: noise, clipping, dropout, ...
``bounds``           how the error should grow, as papers state it, and who has shown it
``predicting``       how large it is to leading order, constants included

``hermite``          the statistics: means of the gradient times Hermite tensors
``decomposing``      a symmetric tensor as a sum of powers of vectors
``results``          what the attack returns
===================  ==========================================================================

    >>> import numpy as np
    >>> from sfumato.attacks.gradients.tensor.activations import CUBIC
    >>> from sfumato.attacks.gradients.tensor.network import TwoLayerNetwork, unit_inputs
    >>> from sfumato.attacks.gradients.tensor.reconstructing import reconstruct_by_tensor
    >>> from sfumato.attacks.gradients.tensor.scoring import match_inputs
    >>> random = np.random.default_rng(1)
    >>> inputs, labels = unit_inputs(2, 10, generator=random), [1.0, -1.0]
    >>> network = TwoLayerNetwork.draw(10, 40_000, CUBIC, generator=random)
    >>> seen = network.gradient(inputs, labels)
    >>> found = reconstruct_by_tensor(seen, network.hidden, CUBIC, batch=2, generator=random)
    >>> match_inputs(found, inputs).error < 0.1
    True

Inputs are taken to have length 1; their directions come out whatever their lengths are. What is
found may be private records: for the curator only.

Reference: Wang, Lee and Lei, "Reconstructing training data from model gradient, provably",
AISTATS 2023, arXiv:2212.03714.
"""
