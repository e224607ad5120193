"""Pre-training on random processes: a network that has learnt to see before it sees any data.

Read in this order: ``leaves``, ``oriented`` and ``scenes`` (random processes), ``processes`` (their
names), ``pretraining`` (what is learnt from them, and the file that holds it).

Nothing here reads a data set: images are drawn from a seed. So the weights are public, whatever
they are used for afterwards.
"""

from sfumato.learning.pretraining.pretraining import Pretraining, pretrain
from sfumato.learning.pretraining.processes import PROCESSES, random_images, random_pairs

__all__ = ["PROCESSES", "Pretraining", "pretrain", "random_images", "random_pairs"]
