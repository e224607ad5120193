"""Features that stand before a model: public ones cost no privacy, fitted ones are charged.

===============================  ============================================================
:class:`Plain`                   the inputs as they are
:class:`MeanPool`                means over squares of pixels, public
:class:`ScatteringFeatures`      wavelets, public
:class:`StandardizedScattering`  the same on a common scale: public, or charged
:class:`PublicNetwork`           a network that was trained on public data
:class:`PrivatePCA`              principal components of the private rows: a Gaussian release
``RelevanceScaling``             inputs scaled by their private relevance (``learning.relevance``)
===============================  ============================================================
"""

import sfumato.learning.relevance.scaling  # noqa: F401  # registers the kind "relevance"
from sfumato.learning.features.applying import transform
from sfumato.learning.features.base import FeatureMap
from sfumato.learning.features.network import PublicNetwork
from sfumato.learning.features.pca import PrivatePCA
from sfumato.learning.features.plain import Plain
from sfumato.learning.features.pooling import MeanPool
from sfumato.learning.features.scattering_features import ScatteringFeatures
from sfumato.learning.features.standardized import StandardizedScattering

__all__ = [
    "FeatureMap",
    "MeanPool",
    "Plain",
    "PrivatePCA",
    "PublicNetwork",
    "ScatteringFeatures",
    "StandardizedScattering",
    "transform",
]
