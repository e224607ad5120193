"""Audits by sampling: what a mechanism's outputs show about its epsilon.

    >>> from sfumato.core import Sensitivity
    >>> from sfumato.core.randomness import SeededCoins
    >>> from sfumato.mechanisms.laplace import Laplace
    >>> survey = Laplace.calibrate(Sensitivity(1.0), epsilon=1.0)
    >>> print(audit_mechanism(survey, coins=SeededCoins(1)))
    at least epsilon 0.9... at delta 0 (0.99 confidence): consistent with the claimed epsilon 1

Any code can be audited, as a function that draws:

    >>> rng = np.random.default_rng(1)
    >>> def noisy(value, count):  # the usual mistake: noise that is added in floating point
    ...     return value + rng.laplace(size=count)
    >>> found = audit_mechanism(noisy, [(0.0, 1.0)], claim=survey.guarantee())
    >>> found.refuted, found.facts["event"]
    (True, 'output an odd multiple of 2^k, k in {...}')

The procedure
    Half of the draws learn: for every pair of neighbouring inputs an event is sought
    (:mod:`~sfumato.audit.events`), and the pair, the event and the direction that show most are
    kept. Then the other half is drawn, afresh and for that pair only, and

        epsilon >= ln((lower limit of Pr[event] - delta) / upper limit of Pr'[event])

    by Clopper and Pearson's limits of these draws alone. However long the search, the event does
    not depend on the draws that are counted, so the confidence is that of two binomial counts.

References: Ding, Wang, Wang, Zhang and Kifer, "Detecting violations of differential privacy", CCS
2018; Bichsel, Steffen, Bogunovic and Vechev, "DP-Sniper: black-box discovery of differential
privacy violations using classifiers", S&P 2021 (learned events, counted apart).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, cast

import numpy as np

from sfumato.audit.events import LearnedEvent, as_outputs, learn_event
from sfumato.audit.exact import at_delta
from sfumato.audit.findings import GAUSSIAN_NOISE, Finding, require_gaussian
from sfumato.audit.intervals import (
    Rates,
    epsilon_from_counts,
    gaussian_epsilon_from_counts,
    mu_from_counts,
)
from sfumato.audit.pairs import Pair, claim_of, plain, worst_pairs
from sfumato.core import validation
from sfumato.core.events import GaussianEvent
from sfumato.core.guarantee import Guarantee
from sfumato.core.randomness import SYSTEM, Coins
from sfumato.mechanisms.base import Mechanism

__all__ = ["Draw", "MechanismDraws", "audit_mechanism", "draws_of", "searched_pairs"]

Draw = Callable[[Any, int], Any]
"""``draw(value, count)``: so many independent outputs on one input, as an array or a list."""

_IN_BULK, _ONE_BY_ONE = 100_000, 10_000
_FEWEST = 64


@dataclass(frozen=True)
class MechanismDraws:
    """Draws of one of this package's mechanisms; made by :func:`draws_of`."""

    mechanism: Mechanism
    coins: Coins = SYSTEM

    @property
    def in_bulk(self) -> bool:
        """Whether the mechanism has a ``perturb`` that draws many at once."""
        return hasattr(self.mechanism, "perturb")

    def __call__(self, value: Any, count: int) -> Any:
        """``count`` independent releases of ``value``."""
        if not self.in_bulk:
            return [self.mechanism.release(value, coins=self.coins).value for _ in range(count)]
        cells = np.asarray(value)
        perturb: Callable[..., Any] = getattr(self.mechanism, "perturb")  # noqa: B009
        return perturb(np.broadcast_to(cells, (count, *cells.shape)), coins=self.coins)


def draws_of(mechanism: Mechanism, coins: Coins = SYSTEM) -> MechanismDraws:
    """A ``draw`` for ``mechanism``: by ``perturb`` where it has one, else by ``release``."""
    return MechanismDraws(mechanism, coins)


def searched_pairs(
    inputs: Iterable[Any], neighbours: Callable[[Any], Iterable[Any]], *, most: int = 64
) -> Iterator[Pair]:
    """Pairs to search among: every input with each of its neighbours, ``most`` of them at most.

    >>> list(searched_pairs([0, 10], lambda count: [count + 1, max(count - 1, 0)], most=3))
    [(0, 1), (0, 0), (10, 11)]
    """
    pairs = ((value, other) for value in inputs for other in neighbours(value))
    return islice(pairs, validation.count("most", most))


def audit_mechanism(
    draw: Draw | Mechanism,
    pairs: Iterable[Pair] | None = None,
    *,
    delta: float | None = None,
    claim: Guarantee | None = None,
    samples: int | None = None,
    confidence: float = 0.99,
    gaussian: bool = False,
    shortlist: int = 3,
    private: bool = False,
    coins: Coins = SYSTEM,
) -> Finding:
    """A lower bound on epsilon from a mechanism's outputs on neighbouring inputs.

    Args:
        draw: a function that draws independent outputs, or a mechanism of this package.
        pairs: neighbouring inputs, as many as are worth a search; the one that shows most is
            found by the learning draws. By default the mechanism's :func:`worst_pairs`.
        delta: at which; by default the claim's, or what the mechanism states, or 0.
        claim: what was promised; by default, the mechanism's own guarantee.
        samples: draws on each input of a pair, half of them for learning. By default 100,000, or
            10,000 where a mechanism draws one at a time.
        confidence: of the whole procedure, searches included.
        gaussian: whether to bound mu and report the epsilon that Gaussian noise of it has: tighter,
            a refutation of claims that come from Gaussian noise, and a bound on epsilon only where
            the trade-off curve is Gaussian, which the finding says. It needs a delta above 0.
        shortlist: of more pairs than this, a tenth of the draws picks so many to learn from.
        private: whether the inputs are private rows rather than made up; then so is the finding.
        coins: for a mechanism of this package.

    Returns:
        The finding; its facts name the pair, the event and the counts.
    """
    if callable(draw):
        source, at = draw, at_delta(delta, claim)
        number = _IN_BULK if samples is None else samples
    else:
        if not hasattr(draw, "release"):
            validation.fail("draw", "a function draw(value, count), or a mechanism", draw)
        if gaussian and not isinstance(draw.event, GaussianEvent):
            validation.fail("gaussian", "False where the noise is not Gaussian", draw)
        at, claim = claim_of(draw, delta, claim)
        source = draws_of(draw, coins)
        number = (_IN_BULK if source.in_bulk else _ONE_BY_ONE) if samples is None else samples
        pairs = worst_pairs(draw) if pairs is None else pairs
    if gaussian:
        require_gaussian(at, "take gaussian=False")
    half = validation.at_least("samples", number, 2 * _FEWEST) // 2
    validation.open_probability("confidence", confidence)
    tried = list(pairs or ())
    if not tried:
        validation.fail("pairs", "at least one pair of neighbouring inputs", pairs)
    learner = _Learner(source, at, confidence, gaussian)
    pair, event = learner.best(tried, half, validation.count("shortlist", shortlist))
    inside, outside = _counts(source, pair, event, half)
    bound = gaussian_epsilon_from_counts if gaussian else epsilon_from_counts
    facts = {
        "pair": plain(pair), "pairs_tried": len(tried), "event": event.description,
        "likelier_on": "first" if event.on_first else "second",
        "inside": list(inside), "outside": list(outside), "samples": 2 * half,
    }  # fmt: skip
    if gaussian:
        facts["mu_at_least"] = mu_from_counts(inside, outside, confidence)
    method = "sampling, gaussian" if gaussian else "sampling"
    epsilon = bound(inside, outside, at, confidence)
    supposed = GAUSSIAN_NOISE if gaussian else ""
    return Finding(epsilon, at, confidence, method, claim, facts, private, supposed)


@dataclass(frozen=True)
class _Learner:
    """Finds the pair and the event that show most, on draws that are not counted."""

    draw: Draw
    delta: float
    confidence: float
    gaussian: bool

    def best(self, pairs: list[Pair], number: int, shortlist: int) -> tuple[Pair, LearnedEvent]:
        """The best of ``pairs``: by few draws down to a shortlist, by ``number`` draws from it."""
        if len(pairs) > shortlist:
            pairs = self._ranked(pairs, max(_FEWEST, number // 5))[:shortlist]
        events = [self._event(pair, number) for pair in pairs]
        place = max(range(len(pairs)), key=lambda i: events[i].shown)
        return pairs[place], events[place]

    def _ranked(self, pairs: list[Pair], number: int) -> list[Pair]:
        shown = [self._event(pair, number).shown for pair in pairs]
        return [pairs[i] for i in sorted(range(len(pairs)), key=lambda i: -shown[i])]

    def _event(self, pair: Pair, number: int) -> LearnedEvent:
        first, second = (_drawn(self.draw, value, number) for value in pair)
        return learn_event(
            first, second, delta=self.delta, confidence=self.confidence, gaussian=self.gaussian
        )


def _drawn(draw: Draw, value: Any, number: int) -> Any:
    drawn: Any = draw(value, number)
    drawn = cast(Any, drawn) if isinstance(drawn, np.ndarray) else list(drawn)
    outputs = as_outputs(drawn)
    if len(outputs) != number:
        validation.fail("draw", f"a function that returns {number} outputs if asked", len(outputs))
    if outputs.dtype != object and bool(np.isnan(outputs).all()):
        validation.fail("draw", "a function that returns numbers or outcomes", "NaN in every draw")
    return drawn  # as it was drawn: an event reads whole numbers exactly


def _counts(draw: Draw, pair: Pair, event: LearnedEvent, number: int) -> tuple[Rates, Rates]:
    """How often the event happens in fresh draws: where it is likelier, and on the other input."""
    rates = [(int(event.contains(_drawn(draw, value, number)).sum()), number) for value in pair]
    return (rates[0], rates[1]) if event.on_first else (rates[1], rates[0])
