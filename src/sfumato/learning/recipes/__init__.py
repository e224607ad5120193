"""Private training by a recipe: data, features, model, plan and run folder as one method.

import sfumato as sf

data = sf.load_dataset("mnist")
trained = sf.train(sf.preset("scattering-linear", data, epsilon=3), data, out="runs/mnist")
print(trained.record.guarantee, trained.accuracy)
"""

from sfumato.learning.recipes.canaries import Canaries, CanaryKind, CanaryScores
from sfumato.learning.recipes.loading import Run, load_run
from sfumato.learning.recipes.observing import Point
from sfumato.learning.recipes.plain import plain_schedule, train_plain
from sfumato.learning.recipes.presets import preset, preset_names
from sfumato.learning.recipes.rates import Rate
from sfumato.learning.recipes.recipe import Recipe
from sfumato.learning.recipes.training import Trained, train

__all__ = [
    "Canaries",
    "CanaryKind",
    "CanaryScores",
    "Point",
    "Rate",
    "Recipe",
    "Run",
    "Trained",
    "load_run",
    "plain_schedule",
    "preset",
    "preset_names",
    "train",
    "train_plain",
]
