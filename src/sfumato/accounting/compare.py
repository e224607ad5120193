"""Every composition theorem side by side, next to what a well-known lecture printed.

The example is DP-SGD with sigma 4, one per cent lots, ten thousand steps and delta 1e-5. The slides
claim (12,000, .1) by naive composition, (360, .1) by strong composition, (10, .001) with sampling
and (1.25, 1e-5) by the moments accountant. For any numbers, each row here gives the theorem done
right, the slide's formula, whether that formula is a theorem at all, and whether what it claims
happens to be true by exact accounting: three different questions.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from sfumato.accounting import theorems
from sfumato.accounting.account import account
from sfumato.core import validation
from sfumato.core.events import dp_sgd
from sfumato.core.gaussian_profile import gaussian_delta, gaussian_epsilon
from sfumato.core.neighbours import Neighbours

__all__ = ["Claim", "Comparison", "Row", "compare"]

_SLIDE = (4.0, 0.01, 10_000, 1e-5)


@dataclass(frozen=True)
class Claim:
    """What was printed for one row, and what is true of it.

    Attributes:
        formula: as printed.
        formula_epsilon: its value for these numbers.
        delta: the delta it was printed with.
        printed_epsilon: the number printed, for the lecture's own numbers only.
        formula_is_theorem: whether the formula follows from what it cites.
        true_epsilon: the exact epsilon of the process it speaks of, at that delta.
        reason: in a few words.
    """

    formula: str
    formula_epsilon: float
    delta: float
    printed_epsilon: float | None
    formula_is_theorem: bool
    true_epsilon: float
    reason: str

    @property
    def holds(self) -> bool:
        """Whether what was printed (else the formula's value) is true, however it was found."""
        claimed = self.formula_epsilon if self.printed_epsilon is None else self.printed_epsilon
        return self.true_epsilon <= claimed


@dataclass(frozen=True)
class Row:
    """One theorem: the (epsilon, delta) it proves, and the claim beside it, if any was printed."""

    name: str
    theorem: str
    epsilon: float
    delta: float
    claim: Claim | None = None
    neighbours: Neighbours = Neighbours.ADD_REMOVE


@dataclass(frozen=True)
class Comparison:
    """All rows for one DP-SGD run."""

    noise_multiplier: float
    sample_rate: float
    steps: int
    delta: float
    step_epsilon: float
    rows: tuple[Row, ...]

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        data: dict[str, Any] = asdict(self) | {"unit": "record"}
        for row, plain in zip(self.rows, data["rows"], strict=True):
            plain["neighbours"] = row.neighbours.value
            plain["unit"] = "record"
            if row.claim is not None:
                plain["claim"]["holds"] = row.claim.holds
        return data


def compare(noise_multiplier: float, sample_rate: float, steps: int, delta: float) -> Comparison:
    """Naive, strong, sampled, moments, RDP and PLD for one DP-SGD run, add/remove.

    Raises:
        ValueError: also where the step's own formula, sigma = sqrt(2 ln(1/delta)) / epsilon, does
            not hold, so that there is nothing to compose.
    """
    sigma = validation.positive("noise_multiplier", noise_multiplier)
    q = validation.sample_rate("sample_rate", sample_rate)
    T = validation.count("steps", steps)
    delta = validation.open_probability("delta", delta)
    eps = _step_epsilon(sigma, delta)
    printed = dict(zip(_ROWS, (12_000, 360, 10, 1.25), strict=True))
    if (sigma, q, T, delta) != _SLIDE:
        printed = dict.fromkeys(_ROWS)
    rows = (
        _naive(sigma, T, delta, eps, printed["naive"]),
        *_strong(sigma, T, delta, eps, printed["strong"]),
        *_sampled(sigma, q, T, delta, eps, printed["sampled"]),
        *_modern(sigma, q, T, delta, eps, printed["moments"]),
    )
    return Comparison(sigma, q, T, delta, eps, rows)


_ROWS = ("naive", "strong", "sampled", "moments")


def _step_epsilon(sigma: float, delta: float) -> float:
    """The printed epsilon of one step, sqrt(2 ln(1/delta)) / sigma, where it is true."""
    eps = math.sqrt(2 * math.log(1 / delta)) / sigma
    if gaussian_delta(sigma, eps) > delta:
        raise ValueError(
            f"noise_multiplier must be larger for the printed formulas to hold even for one step, "
            f"got {sigma!r} at delta {delta!r}: use 'account', which needs no such formula"
        )
    return eps


def _unsampled_truth(sigma: float, steps: int, delta: float) -> float:
    return gaussian_epsilon(sigma / math.sqrt(steps), delta) if delta < 1 else 0.0


def _sampled_truth(sigma: float, q: float, steps: int, delta: float) -> float:
    return account(dp_sgd(sigma, q, steps), delta).epsilon if delta < 1 else 0.0


def _naive(sigma: float, T: int, delta: float, eps: float, printed: float | None) -> Row:
    epsilon, total = theorems.basic(eps, delta, T)
    truth = _unsampled_truth(sigma, T, total)
    claim = Claim("T eps", T * eps, total, printed, True, truth, "Basic composition, valid.")
    return Row("naive", "basic composition: T eps", epsilon, total, claim)


def _strong(
    sigma: float, T: int, delta: float, eps: float, printed: float | None
) -> tuple[Row, Row]:
    drv, total = theorems.strong(eps, delta, T, slack=delta)
    formula = eps * math.sqrt(T * math.log(1 / delta))
    at = min(1.0, T * delta)
    claim = Claim(
        "eps sqrt(T ln 1/delta)",
        formula,
        at,
        printed,
        False,
        _unsampled_truth(sigma, T, at),
        "It drops sqrt 2 and the term T eps (e^eps - 1).",
    )
    best = theorems.optimal(eps, delta, T, min(total, math.nextafter(1.0, 0.0)))
    return (
        Row("strong", "Dwork-Rothblum-Vadhan, all terms", drv, total, claim),
        Row("strong, best", "Kairouz-Oh-Viswanath, exact", best, total),
    )


def _sampled(
    sigma: float, q: float, T: int, delta: float, eps: float, printed: float | None
) -> tuple[Row, Row]:
    step, step_delta = theorems.amplify(eps, q), q * delta
    drv, total = theorems.strong(step, step_delta, T, slack=delta)
    at = min(1.0, q * T * delta)
    claim = Claim(
        "2 q eps sqrt(T ln 1/delta)",
        2 * q * eps * math.sqrt(T * math.log(1 / delta)),
        at,
        printed,
        False,
        _sampled_truth(sigma, q, T, at),
        "The same terms are dropped; eps' <= 2 q eps needs eps <= 1.256.",
    )
    best = theorems.optimal(step, step_delta, T, min(total, math.nextafter(1.0, 0.0)))
    return (
        Row("sampled", "amplification, then Dwork-Rothblum-Vadhan", drv, total, claim),
        Row("sampled, best", "amplification, then Kairouz-Oh-Viswanath", best, total),
    )


def _modern(
    sigma: float, q: float, T: int, delta: float, eps: float, printed: float | None
) -> tuple[Row, ...]:
    event = dp_sgd(sigma, q, T)
    exact = account(event, delta).epsilon
    claim = Claim(
        "2 q eps sqrt(T)",
        2 * q * eps * math.sqrt(T),
        delta,
        printed,
        False,
        exact,
        "Only O(q eps sqrt T) is proved; the number came from the accountant, not from this.",
    )
    replaced = account(event, delta, neighbours="replace-one").epsilon
    found = {name: account(event, delta, accountant=name).epsilon for name in ("moments", "rdp")}
    return (
        Row("moments", "moments accountant, whole orders to 32", found["moments"], delta, claim),
        Row("RDP", "Renyi accountant", found["rdp"], delta),
        Row("PLD", "privacy loss distribution, exact", exact, delta),
        Row(
            "PLD, replaced",
            "the same for a replaced record",
            replaced,
            delta,
            neighbours=Neighbours.REPLACE_ONE,
        ),
    )
