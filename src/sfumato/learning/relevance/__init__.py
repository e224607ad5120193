"""Relevance of inputs: layer by layer, and released with privacy.

=====================================================  =============================================
:func:`explain`                                        relevance of each record's inputs; private
:class:`PrivateRelevance`                              its sum over records, with Laplace noise
:class:`KnownModel`                                    the network, and where it comes from
:func:`feature_shares`                                 weights of inputs that add up to their number
:class:`~sfumato.learning.relevance.scaling.RelevanceScaling`  inputs scaled by them, before DP-SGD
:func:`~sfumato.learning.relevance.pictures.draw_relevance`    as a heat map
=====================================================  =============================================
"""

from sfumato.learning.relevance.known import KnownModel
from sfumato.learning.relevance.private import PrivateRelevance, RelevanceRelease
from sfumato.learning.relevance.propagation import Explained, explain
from sfumato.learning.relevance.rules import (
    AlphaBetaRule,
    EpsilonRule,
    RelevanceRule,
    ZRule,
    rule_names,
)
from sfumato.learning.relevance.shares import feature_shares

__all__ = [
    "AlphaBetaRule",
    "EpsilonRule",
    "Explained",
    "KnownModel",
    "PrivateRelevance",
    "RelevanceRelease",
    "RelevanceRule",
    "ZRule",
    "explain",
    "feature_shares",
    "rule_names",
]
