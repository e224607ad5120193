"""Many models trained as one: shadow models for attacks, teachers for PATE.

A small network leaves most of a machine idle: a step is a few dozen small operations, and starting
them costs more than computing them. So the weights of all models are stacked, and each operation is
done for all of them at once (``torch.func``), or, on a GPU, all models' operations are recorded
once and replayed side by side. Each model has its own rows, its own order, its own changes of
images and its own initial weights, as if it had been trained alone.

    shadows = train_ensemble(make, inputs, labels, half_each(16, len(labels), seed=1))
    shadows.probabilities(images)      # (16, n, classes)

NOT PRIVATE: nothing here adds noise. Who trains teachers on private rows releases nothing of them
but what a private aggregation gives.
"""

from sfumato.learning.ensembles.ensemble import Ensemble, load_ensemble
from sfumato.learning.ensembles.schedule import Schedule
from sfumato.learning.ensembles.subsets import disjoint, half_each
from sfumato.learning.ensembles.training import train_ensemble

__all__ = ["Ensemble", "Schedule", "disjoint", "half_each", "load_ensemble", "train_ensemble"]
