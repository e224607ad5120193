"""What tests of whole recipes share: small data sets made by hand, runs, and what they leave."""

import json
import stat
from dataclasses import replace

import numpy as np
import pytest

from sfumato.core.randomness import SeededCoins
from sfumato.data import Dataset, Examples
from sfumato.learning.dp_sgd import CoinNoise
from sfumato.learning.features import PrivatePCA
from sfumato.learning.recipes import Rate, Recipe, train
from sfumato.ledger import Budget, Ledger

DECLARED = 150  # records, as is said in public


@pytest.fixture(autouse=True)
def on_one_thread(one_thread):
    """All tests of this room."""


class Noted:
    """Repeatable noise that notes what was asked of it; ``stop`` cuts the run off at a call."""

    name, private = "noted", False

    def __init__(self, seed=2, stop=None):
        self._inner, self.stop = CoinNoise(SeededCoins(seed)), stop
        self.asked = []

    def normal(self, like, std):
        self.asked.append((tuple(like.shape), std))
        if len(self.asked) == self.stop:
            raise KeyboardInterrupt
        return self._inner.normal(like, std)


class Watcher:
    """Notes what an operator is told."""

    def __init__(self, stop=None):
        self.prepared, self.points, self.stop = [], [], stop

    def preparing(self, what, done, total):
        self.prepared.append((what, done, total))

    def evaluated(self, point):
        self.points.append(point)
        if point.step == self.stop:
            raise KeyboardInterrupt

    def steps(self):
        return False


class Toy:
    """Data sets, recipes and runs, all small. Class 1 has large values in its first places."""

    Noted, Watcher, declared = Noted, Watcher, DECLARED

    def rows(self, n, seed=0, shape=(6,)):
        generator = np.random.default_rng(seed)
        labels = generator.integers(0, 2, n)
        inputs = generator.random((n, *shape), dtype=np.float32)
        if len(shape) == 3:
            inputs[:, :2] = labels[:, None, None, None]
            return Examples((255 * inputs).astype(np.uint8), labels)
        inputs[:, :2] = labels[:, None]
        return Examples(inputs, labels)

    def data(self, n=137, test=40, *, shape=(6,), train=None, **more):
        bounds = (0.0, 255.0) if len(shape) == 3 else (0.0, 1.0)
        own = {"public_size": DECLARED, "test_is_public": True} | more
        return Dataset(
            "toy", self.rows(n, 1, shape) if train is None else train,
            self.rows(test, 2, shape), ("no", "yes"), shape, bounds, "made by hand", **own,
        )  # fmt: skip

    def recipe(self, **more):
        """Noise and steps are given: nothing to calibrate."""
        own = {"noise_multiplier": 1.0, "steps": 6, "delta": 1e-3, "seed": 7, "lot_size": 15}
        return Recipe(**({"model": "linear", "rate": Rate(0.5)} | own | more))

    def pca(self, **more):
        return self.recipe(features=PrivatePCA(3, 8.0), **more)

    def train(self, recipe=None, data=None, **more):
        """With repeatable coins and little to see."""
        own = {"coins": SeededCoins(1), "noise": Noted(), "observer": Watcher(), "evaluations": 3}
        return train(recipe or self.recipe(), data or self.data(), **(own | more))

    def cut_off(self, out, recipe=None, data=None, **more):
        """A run that a signal ends: by default after its third step."""
        with pytest.raises(KeyboardInterrupt):
            self.train(recipe, data, out=out, **({"noise": Noted(stop=7)} | more))

    def without_released(self, record):
        """A record but for what was measured by released weights on public rows."""
        shown = json.loads(json.dumps(record))
        shown["facts"].pop("accuracy", None)
        for point in shown["facts"].get("curve", ()):
            del point["accuracy"]
        return shown

    def files(self, folder):
        """Every file and folder there is, with its rights."""
        return {
            str(path.relative_to(folder)): oct(stat.S_IMODE(path.stat().st_mode))
            for path in sorted(folder.rglob("*"))
        }

    def with_owners(self, owners, **more):
        return replace(self.data(**more), owners=np.asarray(owners))


@pytest.fixture
def toy():
    return Toy()


@pytest.fixture
def ledger(tmp_path):
    opened = Ledger(tmp_path / "privacy.db")
    opened.create("people", Budget(50.0, 1e-2))
    yield opened
    opened.close()


@pytest.fixture
def small_ledger(tmp_path):
    """Of a budget that no run fits."""
    opened = Ledger(tmp_path / "small.db")
    opened.create("people", Budget(0.01, 1e-2))
    yield opened
    opened.close()
