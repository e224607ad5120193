"""Membership inference: was this example trained on? One file an attack.

=====================  ========================================================================
``thresholds``         one model, one number an example: its loss, its largest probability, ...
``label_only``         hard labels alone: is it right, and does it stay right when it is moved?
``shadow_attack``      models trained alike teach an attack model what members look like
``lira``               a likelihood ratio for each example, from models with it and without it
``rmia``               an example against the population, from few reference models
``white_box``          gradients and weights in the attacker's hands
``learned_gradients``  an attack model learns from known members what gradients look like
``whitened``           members' own gradients in the weights, less what all examples share

``reports``            what scores are worth: one report for every attack
``shadow_outputs``     shadow models, trained and asked
``small_network``      the attack model that learns from shadows
``synthesis``          inputs for shadow models, made up by asking the target alone
``record_features``    what is public of records, from which they are made up
``gradient_features``  norms of gradients, layer by layer, and an attack that learns from them
``logit_scale``        the logit of the label's probability, on which LiRA compares models
=====================  ========================================================================

An attack takes a target and candidates, gives scores, higher for members, and returns a
:class:`~sfumato.attacks.membership.reports.MembershipReport`. The functions that end in ``_scores``
are for answers that are at hand as arrays.

What an attack learns, and how well, is for the curator only.
"""
