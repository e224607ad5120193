"""Exposure: how far a sequence model has memorised a secret that was planted in its training data.

What the attacker sees: a number for any sequence, how surprising the model finds it (its
log-perplexity, -log Pr[sequence]; any base, any callable).

The idea: plant a canary, such as "the code is 4519", its secret drawn at random from a space R of
all that fit the format. Rank the canary among all of R by how little it surprises the model:

    exposure = log2 |R| - log2 rank.

A canary that was never planted has a rank that is uniform over 1 ... |R|: its exposure is 1 / ln 2
= 1.44 on average and at least b with probability 2^-b. One that was memorised ranks first and has
log2 |R|. Three ways to the rank, and one for those who have the numbers already:

=============================  =================================================================
:func:`exact_exposure`         asks about the whole space
:func:`sampled_exposure`       asks about a sample, and says between which limits the exposure is
:func:`extrapolated_exposure`  fits a law to a sample, for ranks lower than any sample reaches
:func:`exposure_from_scores`   does any of the three with numbers that a model gave elsewhere
=============================  =================================================================

    >>> secrets = Secrets("code ####", "0123456789")
    >>> secrets.size, round(expected_exposure(secrets.size), 3)
    (10000, 1.442)
    >>> def surprise(sequences):  # a model that knows one code by heart
    ...     return [1.0 if text == "code 4519" else 9.0 + hash_of(text) for text in sequences]
    >>> def hash_of(text):
    ...     return sum(ord(letter) * 31**place for place, letter in enumerate(text)) % 997 / 997
    >>> print(exact_exposure(surprise, ["code 4519"], secrets)[0])
    exposure 13.29 of at most 13.29 bits, rank 1 of 10,000 (exact); by chance: 0.0001

Results tell what a model holds of its training data: they are for the curator.

Reference: Carlini, Liu, Erlingsson, Kos and Song, "The Secret Sharer: evaluating and testing
unintended memorization in neural networks", USENIX Security 2019, arXiv:1802.08232, sections 4.2
to 4.4.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sfumato.attacks.secret_formats import Secrets
from sfumato.attacks.skew_normal import SkewNormal
from sfumato.core import validation
from sfumato.core.rates import rate_interval

__all__ = [
    "Exposure",
    "Secrets",
    "ask_everything",
    "ask_sample",
    "exact_exposure",
    "expected_exposure",
    "exposure_from_scores",
    "extrapolated_exposure",
    "sampled_exposure",
]

Surprise = Callable[[Sequence[Any]], ArrayLike]
"""From sequences to their log-perplexities, one number each."""

Numbers = NDArray[np.float64]

_BATCH = 4096


@final
@dataclass(frozen=True)
class Exposure:
    """The exposure of one canary. For the curator only.

    Attributes:
        bits: the exposure.
        most: log2 |R|, the exposure of a canary that ranks first.
        rank: the canary's place in R, from 1, as measured or estimated.
        method: "exact", "sampled" or "extrapolated".
        interval: the exposure lies between these with confidence ``confidence``; None if exact or
            extrapolated.
        confidence: of the interval.
        samples: how many sequences were asked about.
        law: the fitted law, of an extrapolation.
    """

    bits: float
    most: float
    rank: float
    method: str
    interval: tuple[float, float] | None = None
    confidence: float | None = None
    samples: int = 0
    law: SkewNormal | None = None

    @property
    def chance(self) -> float:
        """How likely a canary that was never planted has this exposure or more: 2^-bits."""
        return min(1.0, 2.0**-self.bits)

    def __str__(self) -> str:
        limits = ""
        if self.interval is not None and self.confidence is not None:
            low, high = self.interval
            limits = f" ({low:.2f} to {high:.2f}, {self.confidence:.0%})"
        fit = "" if self.law is None else f"; fit: p {self.law.p_value:.2g}"
        return (
            f"exposure {self.bits:.2f}{limits} of at most {self.most:.2f} bits, rank "
            f"{self.rank:,.6g} of {_power(self.most):,.6g} ({self.method}); by chance: "
            f"{self.chance:.2g}{fit}"
        )

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready; ``channel`` says who may read it."""
        low, high = self.interval or (None, None)
        return {
            "channel": "curator",
            "bits": self.bits,
            "most": self.most,
            "rank": self.rank if math.isfinite(self.rank) else "inf",
            "method": self.method,
            "lower": low,
            "upper": high,
            "confidence": self.confidence,
            "samples": self.samples,
            "chance": self.chance,
            "law": None if self.law is None else self.law.to_dict(),
        }


def expected_exposure(size: int) -> float:
    """The mean exposure of a canary that was never planted: log2 n - log2(n!) / n.

    It is 0 for n = 1 and grows to 1 / ln 2 = 1.4427 bits.
    """
    n = validation.count("size", size)
    return math.log2(n) - math.lgamma(n + 1) / (n * math.log(2))


def exact_exposure(
    surprise: Surprise, canaries: Sequence[Any], secrets: Secrets, *, largest: int = 10**7
) -> tuple[Exposure, ...]:
    """The exposure of each canary by its rank among all sequences of the format.

    Sequences as surprising as the canary count half: a model that finds all of them alike ranks
    every canary in the middle, an exposure of about 1 bit.

    Args:
        surprise: the model.
        canaries: sequences of the format.
        secrets: the format.
        largest: larger spaces are refused.
    """
    return exposure_from_scores(*ask_everything(surprise, canaries, secrets, largest=largest))


def sampled_exposure(
    surprise: Surprise,
    canaries: Sequence[Any],
    secrets: Secrets,
    *,
    generator: np.random.Generator,
    samples: int = 10_000,
    confidence: float = 0.95,
) -> tuple[Exposure, ...]:
    """The exposure of each canary by its rank among a random sample of the format.

    With k of n below it, the estimate is -log2((k + 1) / (n + 1)): at most log2(n + 1) bits, and
    reached by chance no more often than the bits say. The limits are Clopper and Pearson's, for
    each canary by itself.

    Args:
        surprise: the model.
        canaries: sequences of the format.
        secrets: the format.
        generator: draws the sample.
        samples: how many sequences are drawn.
        confidence: that the limits hold with.
    """
    told = ask_sample(surprise, canaries, secrets, generator=generator, samples=samples)
    return exposure_from_scores(*told, size=secrets.size, confidence=confidence)


def extrapolated_exposure(
    surprise: Surprise,
    canaries: Sequence[Any],
    secrets: Secrets,
    *,
    generator: np.random.Generator,
    samples: int = 10_000,
) -> tuple[Exposure, ...]:
    """The exposure of each canary by a skew normal law fitted to a random sample of the format.

    The exposure is -log2 of the law's share below the canary, at most log2 |R|. How far it can be
    trusted is seen in ``law.p_value``; far beyond the sample no test sees whether the law holds. A
    sum over few blanks has a shorter tail than the law, and the exposure then comes out too low.

    Args:
        surprise: the model.
        canaries: sequences of the format.
        secrets: the format.
        generator: draws the sample.
        samples: how many sequences are drawn, 20 or more.
    """
    told = ask_sample(surprise, canaries, secrets, generator=generator, samples=samples)
    return exposure_from_scores(*told, size=secrets.size, extrapolate=True)


def exposure_from_scores(
    canaries: ArrayLike,
    candidates: ArrayLike,
    *,
    size: int | None = None,
    confidence: float = 0.95,
    extrapolate: bool = False,
) -> tuple[Exposure, ...]:
    """The exposure of each canary from numbers alone, for a model that lives elsewhere.

    Args:
        canaries: how surprising each canary is.
        candidates: how surprising each sequence of the format is, canaries included; or, if
            ``size`` is given, each of a random sample of them, in the order they were drawn.
        size: |R|, where the candidates are a sample.
        confidence: that the limits of a sample hold with.
        extrapolate: fit a law to the sample, as :func:`extrapolated_exposure` does.

    Raises:
        ValueError: for no numbers or NaN; without ``size``, for a canary not among the candidates.
    """
    values, found = _numbers("canaries", canaries), _numbers("candidates", candidates)
    validation.open_probability("confidence", confidence)
    if size is None:
        if extrapolate:
            validation.fail("size", "given, to extrapolate from a sample of that many", size)
        return _by_rank(values, np.sort(found))
    validation.at_least("size", min(size, 2**53), 2)  # it may be beyond floating point
    if extrapolate:
        return _by_law(values, found, math.log2(size))
    return _by_sample(values, np.sort(found), size, confidence)


def ask_everything(
    surprise: Surprise, canaries: Sequence[Any], secrets: Secrets, *, largest: int = 10**7
) -> tuple[Numbers, Numbers]:
    """How surprising the canaries are, and all sequences of the format (at most ``largest``)."""
    secrets.require(canaries)
    if secrets.size > validation.count("largest", largest):
        validation.fail(
            "secrets", f"at most {largest:,} sequences (use sampled_exposure)", secrets.size
        )
    found = np.concatenate([_asked(surprise, batch) for batch in secrets.everything()])
    return found[[secrets.place(canary) for canary in canaries]], found


def ask_sample(
    surprise: Surprise,
    canaries: Sequence[Any],
    secrets: Secrets,
    *,
    generator: np.random.Generator,
    samples: int = 10_000,
) -> tuple[Numbers, Numbers]:
    """How surprising the canaries are, and so many sequences of the format, drawn at random."""
    secrets.require(canaries)
    drawn = secrets.draw(samples, generator)
    parts = [_asked(surprise, drawn[at : at + _BATCH]) for at in range(0, len(drawn), _BATCH)]
    return _asked(surprise, canaries), np.concatenate(parts)


def _by_rank(values: Numbers, ordered: Numbers) -> tuple[Exposure, ...]:
    most, results = math.log2(len(ordered)), list[Exposure]()
    for value in values.tolist():
        below, upto = _places(value, ordered)
        if below == upto:
            validation.fail("canaries", "among the candidates, to the last digit", value)
        rank = below + (upto - below + 1) / 2
        bits = most - math.log2(rank)
        results.append(Exposure(bits, most, rank, "exact", samples=len(ordered)))
    return tuple(results)


def _by_sample(
    values: Numbers, ordered: Numbers, size: int, confidence: float
) -> tuple[Exposure, ...]:
    most, samples, results = math.log2(size), len(ordered), list[Exposure]()
    for value in values.tolist():
        below, upto = _places(value, ordered)
        share = ((below + upto) / 2 + 1) / (samples + 1)
        limits = _limits(below, upto, samples, confidence, size)
        bits = min(max(-math.log2(share), limits[0]), limits[1])
        rank = _power(most - bits)
        results.append(Exposure(bits, most, rank, "sampled", limits, confidence, samples))
    return tuple(results)


def _by_law(values: Numbers, sample: Numbers, most: float) -> tuple[Exposure, ...]:
    law, results = SkewNormal.fit(sample), list[Exposure]()
    for value in values.tolist():
        bits = min(most, -law.log2_below(value))
        rank = _power(most - bits)
        results.append(Exposure(bits, most, rank, "extrapolated", samples=len(sample), law=law))
    return tuple(results)


def _places(value: float, ordered: Numbers) -> tuple[int, int]:
    """How many are below the value, and how many not above it."""
    below, upto = (np.searchsorted(ordered, value, side) for side in ("left", "right"))
    return int(below), int(upto)


def _power(bits: float) -> float:
    """2^bits, infinite where floating point ends."""
    return 2.0**bits if bits < 1024 else math.inf


def _limits(
    below: int, upto: int, samples: int, confidence: float, size: int
) -> tuple[float, float]:
    """Limits of the exposure; below and up to the canary's value lie so many of the sample."""
    fewest = rate_interval(below, samples, confidence)[0]
    largest = rate_interval(upto, samples, confidence)[1]
    # A rank is one more than the number below it. 1 / size is 0 for a space beyond floating point.
    lower, upper = min(1.0, largest + 1 / size), min(1.0, fewest + 1 / size)
    return -math.log2(lower), -math.log2(upper) if upper > 0 else math.log2(size)


def _numbers(name: str, values: ArrayLike) -> Numbers:
    found = np.asarray(values, dtype=np.float64)
    if found.ndim != 1 or not len(found) or np.isnan(found).any():
        validation.fail(name, "one or more numbers, none of them NaN", values)
    return found


def _asked(surprise: Surprise, sequences: Sequence[Any]) -> Numbers:
    told = np.asarray(surprise(sequences), dtype=np.float64).ravel()
    if len(told) != len(sequences) or np.isnan(told).any():
        wanted = f"a number for each of {len(sequences)} sequences"
        validation.fail("what surprise returns", wanted, f"{len(told)} numbers")
    return told
