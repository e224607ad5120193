"""Private training on many processes: one lot, one noise, one guarantee.

Read in this order: ``ranks`` (who leads, and how ranks talk), ``shares`` (one lot for all),
``noisy_sum`` (replicas: noise once in total), ``shards`` (FSDP2), ``agreement`` (what is compared
before anything is spent), ``state`` (checkpoints for any number of ranks).
"""

from sfumato.learning.dp_sgd.distributed.ranks import Alone, Ranks, TorchRanks, find_ranks

__all__ = ["Alone", "Ranks", "TorchRanks", "find_ranks"]
