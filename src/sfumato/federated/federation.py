"""A federation: everything that all of its members agree on before the first round.

    >>> federation = Federation(
    ...     model="linear", shape=(784,), classes=10, participants=10_000, participation=0.01,
    ...     rounds=1_000, work=ClientUpdates(clip=0.5), noise=CentralNoise(1.0), delta=1e-5,
    ... )
    >>> print(federation.guarantee("released models"))
    epsilon 1.829, delta 1e-05, add or remove one client
    >>> Federation.from_dict(federation.to_dict()) == federation
    True

Each member holds a copy. Orders carry its :attr:`~Federation.digest`, and a participant answers no
order of another federation: a server cannot talk her into less noise.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from sfumato.core import validation
from sfumato.core.guarantee import Guarantee
from sfumato.core.json_files import parsed, read_text
from sfumato.federated import views
from sfumato.federated.noises import CentralNoise, LocalNoise, Noise, NoNoise, SharedNoise
from sfumato.federated.sums import HiddenSum, MaskedSum, PlainSum, Sums
from sfumato.federated.views import View
from sfumato.federated.works import ClientUpdates, LotGradients, SelectedGradients, Work

if TYPE_CHECKING:
    from torch import nn

__all__ = ["Federation"]


@final
@dataclass(frozen=True)
class Federation:
    """What is trained, by whom, for how long, and what each observer can learn.

    Attributes:
        model: by name; see :func:`~sfumato.learning.models.make_model`.
        shape: of one input.
        classes: of labels.
        participants: N, declared.
        rounds: T. No more are ever sent, repeated ones included.
        work: what a participant contributes.
        noise: who adds it.
        sums: who sees contributions.
        participation: q, the probability with which each participant is asked in a round.
        delta: at which epsilons are stated.
        server_rate: what the mean of contributions is multiplied with.
        server_momentum: of the server's steps.
        model_options: of the model.
        seed: of the initial weights, which are public.
        name: for people.
    """

    model: str
    shape: tuple[int, ...]
    classes: int
    participants: int
    rounds: int
    work: Work
    noise: Noise = field(default_factory=NoNoise)
    sums: Sums = field(default_factory=PlainSum)
    participation: float = 1.0
    delta: float = 1e-5
    server_rate: float = 1.0
    server_momentum: float = 0.0
    model_options: dict[str, Any] = field(default_factory=dict[str, Any])
    seed: int = 0
    name: str = "federation"

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", tuple(self.shape))
        validation.count("participants", self.participants)
        validation.count("rounds", self.rounds)
        validation.sample_rate("participation", self.participation)
        validation.open_probability("delta", self.delta)
        validation.positive("server_rate", self.server_rate)
        if not 0 <= self.server_momentum < 1:
            validation.fail("server_momentum", "0 or above, and below 1", self.server_momentum)
        validation.name("name", self.name)
        _check_parts(self)

    # --- public facts ---------------------------------------------------------------------------

    @property
    def expected(self) -> float:
        """How many participants a round is expected to have."""
        return self.participation * self.participants

    @property
    def denominator(self) -> float:
        """What a sum is divided by: fixed, so that who drops out costs utility and not privacy."""
        if isinstance(self.work, LotGradients):
            return self.participation * self.work.lot_rate * self.work.records
        return self.expected

    @property
    def least(self) -> int:
        """The fewest survivors with whom a round is used.

        None at all where the server adds the noise: a round in which nobody was drawn must look
        like any other.
        """
        noise = 0
        if isinstance(self.noise, LocalNoise | SharedNoise):
            noise = self.noise.least + self.noise.colluders
        return max(noise, self.sums.threshold) if isinstance(self.sums, MaskedSum) else noise

    @property
    def digest(self) -> str:
        """A name that two federations share only if they agree on everything."""
        text = json.dumps(self.to_dict(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:32]

    def make_model(self) -> nn.Module:
        """The model with its initial weights."""
        import torch

        from sfumato.learning.models import make_model

        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(self.seed)
            return make_model(self.model, self.shape, self.classes, **self.model_options)

    # --- what it promises -----------------------------------------------------------------------

    @property
    def views(self) -> tuple[View, ...]:
        """Every observer, with what she sees and what that amounts to over all rounds."""
        return views.views_of(self)

    def view(self, observer: str) -> View:
        """One of them.

        Raises:
            ValueError: if there is no such observer.
        """
        found = {each.observer: each for each in self.views}
        if observer not in found:
            validation.fail("observer", f"one of {', '.join(map(repr, found))}", observer)
        return found[observer]

    def guarantee(self, observer: str) -> Guarantee:
        """What is promised against an observer, at this federation's delta."""
        return self.view(observer).guarantee(self.delta)

    # --- JSON -----------------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        parts = {name: values[name].to_dict() for name in ("work", "noise", "sums")}
        return values | {"shape": list(self.shape)} | parts

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Federation:
        """The inverse of :meth:`to_dict`."""
        known = {f.name for f in fields(cls)}
        unknown = sorted(set(data) - known)
        if unknown:
            validation.fail("federation", f"made of {', '.join(sorted(known))}", unknown[0])
        parts: dict[str, Any] = {
            name: family.from_dict(data[name])
            for name, family in (("work", Work), ("noise", Noise), ("sums", Sums))
            if name in data
        }
        return cls(**{**data, **parts})

    @classmethod
    def read(cls, path: str | Path) -> Federation:
        """From a file.

        Raises:
            ValueError: if it holds none.
        """
        try:
            text = read_text(path)
        except FileNotFoundError:
            raise ValueError(
                f"there is no federation file at {path}: sfumato federate plan {path} makes one, "
                "and every member gets a copy"
            ) from None
        try:
            held = parsed(text)
        except ValueError as error:
            raise ValueError(f"{path} must hold a federation, but does not: {error}") from None
        try:
            return cls.from_dict(held)
        except (TypeError, KeyError, AttributeError) as error:
            raise ValueError(f"{path} must hold a federation, but does not: {error}") from None

    def save(self, path: str | Path) -> None:
        """To a file that every member gets a copy of."""
        Path(path).write_text(json.dumps(self.to_dict(), indent=2) + "\n")


def _check_parts(federation: Federation) -> None:
    """Refuses parts that do not go together."""
    work, noise, sums = federation.work, federation.noise, federation.sums
    if isinstance(noise, SharedNoise) and not isinstance(sums, MaskedSum):
        raise ValueError(
            "noise in shares needs a masked sum: a share alone protects nobody whose message is "
            "seen. Give sums=MaskedSum(threshold=...) (--sum masked --threshold T), or LocalNoise "
            "(--noise local)"
        )
    if isinstance(sums, HiddenSum) and isinstance(noise, CentralNoise):
        raise ValueError(
            "a server that sees ciphertexts cannot add noise: give LocalNoise (--noise local), "
            "whose noise is in the contributions, or a masked sum with SharedNoise (--sum masked "
            "--noise shared)"
        )
    if isinstance(sums, HiddenSum) and federation.server_momentum:
        validation.fail(
            "server_momentum",
            "0 with hidden sums: a server that only adds has none",
            federation.server_momentum,
        )
    if isinstance(work, SelectedGradients) and not isinstance(noise, NoNoise):
        raise ValueError(
            "selected gradients carry noise of their own: give noise=NoNoise() (--noise none)"
        )
    if isinstance(work, ClientUpdates) and work.quantile is not None:
        _check_quantile(federation, work)
    if isinstance(noise, LocalNoise | SharedNoise):
        _check_least(federation.participants, noise)
    if isinstance(sums, MaskedSum):
        _check_masks(federation, sums)


def _check_quantile(federation: Federation, work: ClientUpdates) -> None:
    """A clip norm that adapts counts norms, with noise of their own."""
    noise = federation.noise
    if isinstance(noise, NoNoise):
        return
    if not isinstance(noise, CentralNoise):
        raise ValueError(
            "a clip norm that adapts needs CentralNoise (--noise central): give that, or "
            "quantile=None (no --quantile)"
        )
    adaptive = work.adaptive(federation.expected)
    assert adaptive is not None
    assert adaptive.count_noise is not None
    needed = noise.multiplier * federation.expected / (2 * adaptive.count_noise)
    if federation.expected <= needed:
        raise ValueError(
            f"quantile needs more than {needed:.4g} participants in a round at a noise multiplier "
            f"of {noise.multiplier:.4g}, got {federation.expected:.4g}: counting norms would cost "
            "more than the round may. Give more participants (--participants), less noise, or "
            "quantile=None (no --quantile)"
        )
    adaptive.noise_scales(noise.multiplier, (work.clip,))  # or says why not


def _check_least(participants: int, noise: LocalNoise | SharedNoise) -> None:
    """As many as are promised, and those who may look besides, must be there at all."""
    colluders, most = noise.colluders, participants - noise.colluders
    if most < 1:
        validation.fail(
            "participants",
            f"at least {1 + colluders} with {noise.kind} noise: {colluders} may look and know "
            "their own",
            participants,
        )
    if noise.least > most:
        validation.fail(
            "least",
            f"at most {most} of {participants} participants, besides whom {colluders} may look "
            "(colluders)",
            noise.least,
        )


def _check_masks(federation: Federation, sums: MaskedSum) -> None:
    """What a masked sum promises must hold against a server that lies, too."""
    noise = federation.noise
    if isinstance(noise, LocalNoise):
        raise ValueError(
            "local noise under a masked sum is noise in shares: give SharedNoise (--noise shared), "
            "whose integers are exact, with a multiplier of sqrt(least) times as much"
        )
    if federation.participation < 1:
        raise ValueError(
            "masked sums need to know who takes part: give participation=1 (--participation 1); "
            "participants who are drawn at random would be on the list that all of them see"
        )
    if sums.threshold > federation.participants:
        validation.fail(
            "threshold",
            f"at most the {federation.participants} participants, or no sum would ever open",
            sums.threshold,
        )
    colluders = noise.colluders if isinstance(noise, SharedNoise) else 0
    if 2 * sums.threshold <= federation.participants + colluders:
        validation.fail(
            "threshold",
            f"above half of {federation.participants} participants and {colluders} "
            "colluders: a server that lies could open two sums of one round",
            sums.threshold,
        )
    if not isinstance(noise, SharedNoise):
        return
    promised = noise.least + noise.colluders
    if promised > sums.threshold:
        validation.fail(
            "threshold",
            f"at least the {noise.least} whose noise is promised and the {noise.colluders} who may "
            "look: a masked sum opens for that many, and who opens it has seen it",
            sums.threshold,
        )
