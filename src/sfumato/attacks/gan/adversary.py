"""The GAN adversary: a participant of collaborative learning who draws what only others have.

What she sees: the shared model in every round, weights and all, as each participant does. What she
does besides: she trains on examples of her own making. The server and the victim see nothing wrong.

The victim has examples of class a; the adversary wants to know what they look like, and has a label
c that is hers alone. In every round she takes the shared model D as the discriminator of a GAN:

1. train the generator G to minimise the mean over codes z ~ N(0, 1) of -log D(G(z))_a
2. train the model, as a participant, on examples (G(z), c) among her own rows

After 2 the model takes for c what it took for a, until the victim, who sees her pictures called c,
teaches it where real ones differ. So she tells the next round what was still wrong with G.

    >>> from torch import nn
    >>> model = nn.Sequential(nn.Flatten(), nn.Linear(16, 3))  # class 1: bright on the left
    >>> left = torch.tensor([1.0, 1.0, -1.0, -1.0]).repeat(4)
    >>> _ = model[1].weight.data.copy_(torch.stack([-left, left, 0 * left]))
    >>> adversary = GanAdversary((1, 4, 4), victim_class=1, fake_class=2, seed=1)
    >>> print(adversary.round(model))
    256 generated examples labelled 2; the shared model is 9...% sure that they are of the ...
    >>> adversary.images(9).mean(axis=(0, 1, 2)).round().tolist()
    [1.0, 1.0, 0.0, 0.0]

Her random choices follow a ``seed``: in this package a generator is a network. Pictures of private
classes are the curator's.

Reference: Hitaj, Ateniese and Perez-Cruz, "Deep models under the GAN: information leakage from
collaborative deep learning", CCS 2017, arXiv:1702.07464.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from sfumato.attacks.gan.networks import make_network
from sfumato.attacks.gan.results import GanAttack, Poison
from sfumato.attacks.inversion.results import checked_shape
from sfumato.core import validation

__all__ = ["GanAdversary", "GanSettings"]


@final
@dataclass(frozen=True)
class GanSettings:
    """How the adversary works.

    Attributes:
        steps: of the generator's training in every round.
        batch_size: pictures in each step.
        rate: Adam's learning rate.
        momentum: Adam's first; its second is 0.999.
        fakes: so many generated examples are trained on in every round.
        share: of generated examples among all she trains on; the others are her own rows.
        poisoning: False for a passive adversary, who trains on as many of her own rows instead and
            does nothing that an honest participant would not do.
        pictures: how many are kept for the result.
        every: they are kept after every so many rounds, and after the last.
    """

    steps: int = 20
    batch_size: int = 64
    rate: float = 1e-3
    momentum: float = 0.5
    fakes: int = 256
    share: float = 0.5
    poisoning: bool = True
    pictures: int = 16
    every: int = 1

    def __post_init__(self) -> None:
        for name in ("steps", "batch_size", "fakes", "pictures", "every"):
            object.__setattr__(self, name, validation.count(name, getattr(self, name)))
        validation.positive("rate", self.rate)
        validation.delta("momentum", self.momentum)
        validation.sample_rate("share", self.share)


_SETTINGS = GanSettings()


@final
class GanAdversary:
    """Holds a generator from round to round. In every round, call :meth:`examples`.

    Args:
        shape: of one input of the shared model, such as (1, 28, 28).
        victim_class: the class whose pictures she wants.
        fake_class: the label she trains on them with; honest participants must not use it.
        network: makes a generator, from codes (a batch of rows) to inputs; by default
            :func:`~sfumato.attacks.gan.networks.make_network`, for square pictures.
        code: how many random numbers a code has.
        bounds: the least and the greatest value of a pixel.
        settings: how she works.
        seed: for initial weights, codes and rows; on a CPU, the same gives the same pictures.
        device: where she works; the shared model is copied there.
    """

    def __init__(
        self,
        shape: Sequence[int],
        victim_class: int,
        fake_class: int,
        *,
        network: Callable[[], nn.Module] | None = None,
        code: int = 64,
        bounds: tuple[float, float] = (0.0, 1.0),
        settings: GanSettings = _SETTINGS,
        seed: int = 0,
        device: str | torch.device = "cpu",
    ) -> None:
        self.shape = checked_shape(shape)
        self.victim_class = validation.at_least("victim_class", victim_class, 0)
        self.fake_class = validation.at_least("fake_class", fake_class, 0)
        if self.fake_class == self.victim_class:
            validation.fail("fake_class", "another than the victim's", fake_class)
        self.code = validation.count("code", code)
        self.bounds = validation.interval("bounds", *bounds)
        self.settings, self.device = settings, torch.device(device)
        self.seed = validation.at_least("seed", seed, 0)
        self._random = np.random.default_rng([self.seed, 0])
        self._generator = self._started(network)
        self._optimizer = torch.optim.Adam(
            self._generator.parameters(), lr=settings.rate, betas=(settings.momentum, 0.999)
        )
        self._probability: list[float] = []
        self._kept: dict[int, NDArray[np.float32]] = {}
        self._skipped = 0

    # --- every round ----------------------------------------------------------------------------

    def round(self, model: nn.Module) -> Poison:
        """Trains the generator against the shared model; generated examples to train on.

        The model is copied and used in evaluation mode, in float32: it stays as it was. A model
        whose answers are no numbers any more teaches nothing: the generator stays as it was, too.

        Args:
            model: from a batch of inputs to a row of logits each, two at least.
        """
        target = copy.deepcopy(model).to(self.device, torch.float32)
        target.eval().requires_grad_(False)
        self._check_answers(target)
        self._learn(target)
        images = self._made(self._codes(self._random, self.settings.fakes))
        probability = self._sure(target, images)
        self._probability.append(probability)
        if len(self._probability) % self.settings.every == 0:
            self._kept[len(self._probability)] = self.images(self.settings.pictures)
        labels = np.full(len(images), self.fake_class, dtype=np.int64)
        return Poison(_array(images), labels, probability)

    def examples(
        self, model: nn.Module, inputs: ArrayLike, labels: ArrayLike
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """A round, and all that she trains on in it: generated examples among rows of her own.

        Args:
            model: the shared one.
            inputs: her own, of which some are drawn; a share of 1 needs none.
            labels: their classes.
        """
        rows, classes = np.asarray(inputs, dtype=np.float32), np.asarray(labels, dtype=np.int64)
        if len(rows) != len(classes):
            validation.fail("labels", f"one for each of {len(rows)} inputs", len(classes))
        fakes = self.settings.fakes if self.settings.poisoning else 0
        wanted = round(self.settings.fakes / self.settings.share) - fakes
        if wanted and (not len(rows) or rows.shape[1:] != self.shape):
            needed = f"rows of shape {self.shape} of her own, unless she has fakes alone"
            validation.fail("inputs", needed, rows.shape)
        poison = self.round(model)
        if not wanted:
            return poison.inputs, poison.labels
        drawn = self._random.choice(len(rows), wanted, replace=wanted > len(rows))
        both = np.concatenate([rows[drawn], poison.inputs[:fakes]])
        return both, np.concatenate([classes[drawn], poison.labels[:fakes]])

    # --- what she has ---------------------------------------------------------------------------

    def images(self, count: int) -> NDArray[np.float32]:
        """Pictures as the generator makes them now, from the same codes whenever it is asked."""
        random = np.random.default_rng([self.seed, 1])
        return _array(self._made(self._codes(random, validation.count("count", count))))

    def result(self) -> GanAttack:
        """Pictures over the rounds so far."""
        done = len(self._probability)
        if not done:
            raise ValueError("there is no result before the first round")
        kept = self._kept | {done: self._kept.get(done, self.images(self.settings.pictures))}
        return GanAttack(
            self.victim_class,
            self.fake_class,
            np.array(list(kept), dtype=np.int64),
            np.stack(list(kept.values())),
            np.array(self._probability),
            self._skipped,
            self.bounds,
        )

    # --- inside ---------------------------------------------------------------------------------

    def _started(self, network: Callable[[], nn.Module] | None) -> nn.Module:
        """The generator with weights from the seed; torch's own coins are for others."""
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(int(self._random.integers(2**63)))
            if network is None:
                made = make_network(self.shape, code=self.code, bounds=self.bounds)
            else:
                made = network()
        made = made.to(self.device)
        with torch.no_grad():
            found = tuple(made.eval()(torch.zeros(2, self.code, device=self.device)).shape)
        if found != (2, *self.shape):
            wanted = f"from rows of {self.code} numbers to inputs of shape {self.shape}"
            validation.fail("network", f"a generator {wanted}", found)
        return made

    def _learn(self, target: nn.Module) -> None:
        """Step 1 of the module."""
        self._generator.train()
        wanted = torch.full((self.settings.batch_size,), self.victim_class, device=self.device)
        for _ in range(self.settings.steps):
            codes = self._codes(self._random, self.settings.batch_size)
            loss = F.cross_entropy(target(self._generator(codes)), wanted)
            self._optimizer.zero_grad()
            loss.backward()
            slopes = [weight.grad for weight in self._generator.parameters()]
            length = torch.nn.utils.get_total_norm([one for one in slopes if one is not None])
            if not bool(torch.isfinite(loss + length)):
                self._skipped += 1
                return
            self._optimizer.step()

    def _codes(self, random: np.random.Generator, count: int) -> Tensor:
        drawn = random.standard_normal((count, self.code), dtype=np.float32)
        return torch.from_numpy(drawn).to(self.device)

    def _made(self, codes: Tensor) -> Tensor:
        self._generator.eval()
        with torch.no_grad():
            return self._generator(codes)

    def _sure(self, target: nn.Module, images: Tensor) -> float:
        """The model's mean probability of the victim's class; 0 if it answers no number."""
        with torch.no_grad():
            shown = target(images).double().softmax(dim=1)[:, self.victim_class]
        return float(torch.nan_to_num(shown).mean())

    def _check_answers(self, target: nn.Module) -> None:
        with torch.no_grad():
            shape = tuple(target(torch.zeros(2, *self.shape, device=self.device)).shape)
        if len(shape) != 2 or shape[0] != 2 or shape[1] < 2:
            validation.fail("the model's output", "a row of logits an input", shape)
        for name in ("victim_class", "fake_class"):
            if getattr(self, name) >= shape[1]:
                wanted = f"one of the model's {shape[1]} classes"
                validation.fail(name, wanted, getattr(self, name))


def _array(images: Tensor) -> NDArray[np.float32]:
    return images.cpu().numpy().astype(np.float32)
