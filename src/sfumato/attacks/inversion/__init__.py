"""Model inversion: from a model, a picture of each class it was trained on. One file an attack.

=====================  ========================================================================
``mi_face``            descent on 1 - p_c, from gradients or from scores alone
``gradient_prior``     descent on logits, with what is known of pictures in general
``score_prior``        the same knowledge, with scores alone

``results``            the pictures, and what they cost: what an attack returns
``priors``             what pictures look like in general, learned from public ones
``slopes``             derivatives of a probability, exact or estimated from scores
``processing``         what a picture goes through after a step
``scoring``            does another classifier see the class? is it a record, or a prototype?
``likeness``           how alike two pictures are
=====================  ========================================================================

An attack takes a target and the labels of which pictures are wanted, begins with ``invert_``, and
returns an :class:`~sfumato.attacks.inversion.results.Inversion`.

What comes out shows a class, and often says nothing of a single person in it: a model with a good
accuracy must know what its classes look like, privately trained or not.
:func:`~sfumato.attacks.inversion.scoring.closeness` tells the two apart.

What an attack learns, and how well, is for the curator only.
"""
