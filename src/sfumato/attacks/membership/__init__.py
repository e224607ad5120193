"""Was this example trained on? One file an attack; each says what its attacker must see.

=================  ============================================================================
thresholds         one model, one number an example: its loss, its confidence, its entropy
label_only         hard labels alone: is it right, and does it stay right when the input moves?
shadow_attack      models trained alike teach an attack model what members look like
synthesis          inputs for shadow models, made up by asking the target alone
lira               a likelihood ratio for each example, from models with it and without it
rmia               an example against the population, ratio by ratio, from few reference models
white_box          gradients and weights in the attacker's hands
=================  ============================================================================

All give scores, higher for members. ``reports`` turns scores and the truth into a
:class:`~sfumato.attacks.membership.reports.MembershipReport`, which is for the curator only.
"""
