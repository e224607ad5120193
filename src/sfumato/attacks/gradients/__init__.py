"""What a shared gradient tells about the examples it was computed from. One file an attack.

In collaborative learning a participant sends gradients, or weights after a few steps, and keeps her
examples. Who receives them knows the model and can ask: which examples would have given just this?

=====================  ========================================================================
``sharing``            what a participant sends: one gradient, or the sum of several local steps
``defences``           what she may do to it before: noise, clipping, DP-SGD, dropout, pruning
``matching``           images whose gradients match, by descent: DLG, inverting gradients
``label_recovery``     which classes were in the batch, from the last layer alone
``first_layer``        an input as the quotient of two gradients: exact for one example
``linear_networks``    linear networks: exact for one example, independent components for more
``tensor``             two-layer networks: inputs by the decomposition of a tensor, provably
``likeness``           how alike the images are, each with its own original
``results``            what an attack returns
``searching``          the two searches behind ``matching``
``networks``           networks on which these attacks are at their best
``utility``            what defences cost: a network trained on defended updates
=====================  ========================================================================

The attacker is an honest but curious server, or whoever listens: she sees one participant's update
and the weights it was computed at. What she reconstructs is for the curator only.
"""
