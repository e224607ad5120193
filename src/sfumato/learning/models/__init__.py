"""Models by name, each made for one shape of inputs and one number of classes.

    >>> model_names()
    ('abadi-cnn', 'cnn', 'feature-cnn', 'linear', 'mlp', 'transformer', 'wrn')
    >>> model = make_model("mlp", (60,), 10, hidden=1000)
    >>> sum(p.numel() for p in model.parameters())
    71010

All of them treat each example by itself (no batch normalisation, no dropout), as private training
needs. One's own is ``"package.module:function"``, called with ``shape`` and ``classes``.
"""

from sfumato.learning.models.registry import describe_model, make_model, model_names

__all__ = ["describe_model", "make_model", "model_names"]
