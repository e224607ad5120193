"""The GAN attack: a participant turns the model that all train together into a discriminator.

=====================  ========================================================================
``adversary``          the attacker herself: give her the shared model every round, and train on
                       what she hands out
``networks``           generators of square pictures, from codes of random numbers
``results``            the pictures, round by round: what the attack returns
``collaboration``      participants and a server in one process, to try the attack and defences
=====================  ========================================================================

Any protocol of collaborative learning can drive the attack: all that it needs is
:meth:`~sfumato.attacks.gan.adversary.GanAdversary.examples`, once a round, where an honest
participant would take her own rows.

What comes out shows what a class looks like, mostly not a record of it. Score it with
:func:`~sfumato.attacks.inversion.scoring.recognition` and
:func:`~sfumato.attacks.inversion.scoring.closeness`. All of it is for the curator only.
"""
