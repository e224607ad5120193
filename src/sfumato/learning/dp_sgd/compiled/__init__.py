"""The private step as one graph, for ``torch.compile`` and CUDA graphs.

Read in this order: ``whole_step`` (forward, backward, norms and sums traced into one graph),
``together`` (one pass for all the small parameters), ``roles`` (which part of the graph is chain
rule, norm or sum), ``exact_products`` (no shortened products in norms and sums), ``rematerialised``
(what is computed twice to save memory), ``captured`` (recorded once on a GPU, then replayed).
"""

from sfumato.learning.dp_sgd.compiled.whole_step import CompiledSum

__all__ = ["CompiledSum"]
