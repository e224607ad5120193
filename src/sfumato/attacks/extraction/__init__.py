"""Model extraction: a copy of a model from its answers. One file an attack.

=====================  ========================================================================
``equations``          logistic and softmax regression from d + 1 answers, exact to rounding
``likelihood``         the same by minimising cross entropy, for answers rounded or cut
``boundary``           a linear model of two classes from labels alone, by bisection
``retraining``         any substitute, trained on the answers
``augmentation``       a substitute that finds its own queries (Jacobian-based augmentation)

``stolen``             the copy, its price in queries, how it came about: what an attack returns
``fidelity``           how far a copy agrees with its model, and what it costs in queries
``answers``            what a target answers, in one form, whatever it shows
``linear``             softmax regression as an attacker rebuilds it
=====================  ========================================================================

An attack takes a target, is called ``extract_by_`` and its file's name, and returns a
:class:`~sfumato.attacks.extraction.stolen.Stolen`.

A copy is good in two senses. *Accuracy*: it solves the task as well as the model does. *Fidelity*:
it answers as the model does, mistakes included. A copy can have one without the other.

What an attack learns, and how well, is for the curator only.
"""
