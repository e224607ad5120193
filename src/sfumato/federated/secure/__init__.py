"""Sums that nobody can open: the server learns the total and no participant's part.

Two ways, behind the same kind of server (a generator that yields messages and is sent replies):
masks that cancel (:mod:`~sfumato.federated.secure.masking`) and homomorphic encryption
(:mod:`~sfumato.federated.secure.ckks`). Neither is differential privacy: a total still tells of its
parts, and noise must be inside of them.
"""
