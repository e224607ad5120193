"""Calibration: the noise, the steps or the sample rate that meet a target, and never exceed it.

    >>> noise_multiplier = calibrate_noise(epsilon=2, delta=1e-5, sample_rate=0.01, steps=6000)
    >>> round(noise_multiplier, 2)
    1.71

Each search is over a public function of public numbers. The result is rounded to the safe side and
then accounted once more: what is returned was evaluated and found within the target. With a
ledger, calibrate in its currency (``accountant="rdp"``): noise that costs 2.00 by PLD costs 2.18 by
RDP.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress

from scipy import optimize

from sfumato.accounting.account import Accountant, account
from sfumato.accounting.support import UnsupportedError
from sfumato.core import validation
from sfumato.core.events import Event, compose, dp_sgd
from sfumato.core.neighbours import Neighbours

__all__ = ["calibrate", "calibrate_noise", "calibrate_sample_rate", "calibrate_steps"]

_LARGEST_NOISE = 1e7
_MOST_STEPS = 10**9


class _OutOfReachError(ValueError):
    """No noise meets the target."""


def calibrate(
    make_event: Callable[[float], Event],
    epsilon: float,
    delta: float,
    *,
    neighbours: Neighbours | str | None = None,
    accountant: Accountant | str = Accountant.PLD,
    lowest: float = 1e-2,
    digits: int = 5,
) -> float:
    """The least x, to ``digits`` digits, at which ``make_event(x)`` costs ``epsilon`` or less.

    For any event whose epsilon falls as x grows: x is a noise multiplier, a scale, a sigma.

    Raises:
        ValueError: if no x up to 10^7 meets the target.
    """
    epsilon = validation.positive("epsilon", epsilon)
    delta = validation.delta("delta", delta)

    def excess_by(name: Accountant | str) -> Callable[[float], float]:
        def excess(x: float) -> float:
            found = account(make_event(x), delta, neighbours=neighbours, accountant=name)
            return min(found.epsilon, 1e6 * epsilon) - epsilon

        return excess

    excess = excess_by(accountant)
    lowest = validation.positive("lowest", lowest)
    guess, factor = max(1.0, lowest), 2.0
    if accountant == Accountant.PLD:
        # RDP is quick and always above: its noise is a little more than PLD will need. Where it
        # has none, exact composition may still have.
        with suppress(UnsupportedError, _OutOfReachError):
            guess, factor = _root(excess_by(Accountant.RDP), guess, 2.0, lowest, 1e-3), 1.15
    return _tidy(_root(excess, guess, factor, lowest, 10.0 ** (-digits - 1)), digits, excess)


def _root(
    excess: Callable[[float], float], guess: float, factor: float, lowest: float, tolerance: float
) -> float:
    """An x at which ``excess`` is about 0, or ``lowest`` if it is below 0 there already."""
    low, high = _bracket(excess, guess, factor, lowest)
    if low < lowest:
        return high
    root = optimize.brentq(
        lambda log_x: excess(math.exp(log_x)), math.log(low), math.log(high), xtol=tolerance
    )
    return math.exp(root)


def _bracket(
    excess: Callable[[float], float], guess: float, factor: float, lowest: float
) -> tuple[float, float]:
    low, high = guess, guess
    while excess(high) > 0:
        low, high = high, high * factor
        if high > _LARGEST_NOISE:
            raise _OutOfReachError(
                f"no noise up to {_LARGEST_NOISE:g} meets the target: raise epsilon or delta, or "
                "release less"
            )
    while low == high or (low >= lowest and excess(low) <= 0):
        low, high = low / factor, low
    return low, high


def _between(low: float, high: float) -> float:
    """The geometric middle: the search is over orders of magnitude."""
    return math.sqrt(low * high)


def _tidy(x: float, digits: int, excess: Callable[[float], float]) -> float:
    """The least number of ``digits`` significant digits near ``x`` that meets the target."""
    step = 10.0 ** (math.floor(math.log10(x)) - digits + 1)
    rounded = round(math.floor(x / step) * step, 12)
    while excess(rounded) > 0:
        rounded = round(rounded + step, 12)
    return rounded


def calibrate_noise(
    *,
    epsilon: float,
    delta: float,
    sample_rate: float,
    steps: int,
    neighbours: Neighbours | str | None = None,
    accountant: Accountant | str = Accountant.PLD,
    besides: Event | None = None,
    unit: str = "record",
) -> float:
    """The least noise multiplier of DP-SGD that fits, with what is released ``besides``."""
    validation.open_probability("delta", delta)
    _check_besides(besides, epsilon, delta, neighbours, accountant)
    return calibrate(
        lambda noise: _with(dp_sgd(noise, sample_rate, steps, unit), besides),
        epsilon,
        delta,
        neighbours=neighbours,
        accountant=accountant,
    )


def calibrate_steps(
    *,
    epsilon: float,
    delta: float,
    noise_multiplier: float,
    sample_rate: float,
    neighbours: Neighbours | str | None = None,
    accountant: Accountant | str = Accountant.PLD,
    besides: Event | None = None,
    unit: str = "record",
) -> int:
    """The most steps of DP-SGD whose epsilon fits.

    Raises:
        ValueError: if not even one step does.
    """
    epsilon = validation.positive("epsilon", epsilon)
    validation.open_probability("delta", delta)

    def fits(steps: int) -> bool:
        event = _with(dp_sgd(noise_multiplier, sample_rate, steps, unit), besides)
        found = account(event, delta, neighbours=neighbours, accountant=accountant)
        return found.epsilon <= epsilon

    if not fits(1):
        raise ValueError(
            f"noise_multiplier {noise_multiplier!r} exceeds epsilon {epsilon!r} in one step: raise "
            "the noise or epsilon"
        )
    low, high = 1, 2
    while high <= _MOST_STEPS and fits(high):
        low, high = high, high * 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def calibrate_sample_rate(
    *,
    epsilon: float,
    delta: float,
    noise_multiplier: float,
    steps: int,
    neighbours: Neighbours | str | None = None,
    accountant: Accountant | str = Accountant.PLD,
    besides: Event | None = None,
    unit: str = "record",
    digits: int = 4,
) -> float:
    """The largest sample rate, to ``digits`` significant digits, whose epsilon fits."""
    epsilon = validation.positive("epsilon", epsilon)
    validation.open_probability("delta", delta)

    def fits(rate: float) -> bool:
        event = _with(dp_sgd(noise_multiplier, rate, steps, unit), besides)
        found = account(event, delta, neighbours=neighbours, accountant=accountant)
        return found.epsilon <= epsilon

    if fits(1.0):
        return 1.0
    low, high = 0.5, 1.0
    while not fits(low):
        low, high = low / 2, low
        if low < 1e-9:
            raise ValueError(
                f"no sample rate meets epsilon {epsilon!r} with {steps} steps of noise multiplier "
                f"{noise_multiplier!r}: raise the noise or take fewer steps"
            )
    while high - low > 10.0 ** (-digits - 1) * high:
        middle = _between(low, high)
        low, high = (middle, high) if fits(middle) else (low, middle)
    step = 10.0 ** (math.floor(math.log10(low)) - digits + 1)
    rounded = round(math.floor(low / step) * step, 15)
    return rounded if fits(rounded) else low


def _with(event: Event, besides: Event | None) -> Event:
    return event if besides is None else compose(event, besides)


def _check_besides(
    besides: Event | None,
    epsilon: float,
    delta: float,
    neighbours: Neighbours | str | None,
    accountant: Accountant | str,
) -> None:
    if besides is None:
        return
    alone = account(besides, delta, neighbours=neighbours, accountant=accountant)
    if alone.epsilon >= epsilon:
        raise ValueError(
            f"epsilon must exceed what is released besides, {alone.epsilon:.4g}, got {epsilon!r}"
        )
