"""Rules by which a layer hands relevance down: how what arrives at an output is shared by inputs.

    >>> RelevanceRule.named("z-plus")
    AlphaBetaRule(alpha=1.0)
    >>> RelevanceRule.from_dict(EpsilonRule(0.1).to_dict())
    EpsilonRule(stabiliser=0.1)

Notation. An affine layer has z_k = sum_j z_jk + b_k with z_jk = a_j w_jk; R_k arrives at output k,
and R_j leaves for input j. Whatever is not handed to an input was taken by biases, or by what keeps
a quotient finite; both are returned, so that nothing is lost without being counted.

Reference: Bach et al., "On pixel-wise explanations for non-linear classifier decisions by
layer-wise relevance propagation", PLOS ONE 10(7), 2015, equations 56 to 60; Montavon et al.,
"Layer-wise relevance propagation: an overview", 2019 (z-plus).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor

from sfumato.core import validation
from sfumato.core.kinds import ByKind

__all__ = ["Affine", "AlphaBetaRule", "EpsilonRule", "RelevanceRule", "ZRule", "rule_names"]


@final
@dataclass(frozen=True, eq=False)
class Affine:
    """An affine layer, taken apart.

    Attributes:
        apply: from inputs and weights to outputs, without a bias; linear in either.
        weight: its weights.
        bias: one for each output, in a shape that can be added to all; None for none.
    """

    apply: Callable[[Tensor, Tensor], Tensor]
    weight: Tensor
    bias: Tensor | None


class RelevanceRule(ByKind, ABC, family=True):
    """How an affine layer shares relevance. Subclasses are frozen dataclasses."""

    @abstractmethod
    def share(self, layer: Affine, inputs: Tensor, arriving: Tensor) -> tuple[Tensor, Tensor]:
        """Relevance of a layer's inputs.

        Args:
            layer: the layer.
            inputs: (n, ...) what went in.
            arriving: (n, ...) relevance of what came out.

        Returns:
            (n, ...) of each input, and (n,) what biases and stabilisers took of each record.
        """

    @staticmethod
    def named(name: str) -> RelevanceRule:
        """A rule with its usual numbers; see :func:`rule_names`.

        Raises:
            ValueError: for another name.
        """
        if name not in _NAMED:
            validation.fail("rule", f"one of {', '.join(_NAMED)}", name)
        return _NAMED[name]


@final
@dataclass(frozen=True)
class EpsilonRule(RelevanceRule):
    """R_j = sum_k z_jk / (z_k + e sign(z_k)) R_k: by contribution, weak outputs losing some.

    Attributes:
        stabiliser: e, above 0.
    """

    kind: ClassVar[str] = "epsilon"
    stabiliser: float = 1e-6

    def __post_init__(self) -> None:
        value = validation.positive("stabiliser", self.stabiliser)
        object.__setattr__(self, "stabiliser", value)

    def share(self, layer: Affine, inputs: Tensor, arriving: Tensor) -> tuple[Tensor, Tensor]:
        """By contribution."""
        return _by_contribution(layer, inputs, arriving, self.stabiliser)


@final
@dataclass(frozen=True)
class ZRule(RelevanceRule):
    """R_j = sum_k z_jk / z_k R_k: by contribution. An output of exactly 0 hands nothing down."""

    kind: ClassVar[str] = "z"

    def share(self, layer: Affine, inputs: Tensor, arriving: Tensor) -> tuple[Tensor, Tensor]:
        """By contribution."""
        return _by_contribution(layer, inputs, arriving, 0.0)


@final
@dataclass(frozen=True)
class AlphaBetaRule(RelevanceRule):
    """R_j = sum_k (alpha z_jk+ / z_k+ - beta z_jk- / z_k-) R_k with alpha - beta = 1.

    Positive and negative contributions, biases among them, are shared apart. Where an output has
    contributions of one sign only, these take all of it, so that alpha - beta = 1 still adds up.
    With alpha 1 it is called z-plus.

    Attributes:
        alpha: at least 1.
    """

    kind: ClassVar[str] = "alpha-beta"
    alpha: float = 2.0

    def __post_init__(self) -> None:
        value = validation.finite("alpha", self.alpha)
        if value < 1:
            validation.fail("alpha", "1 or above (beta is alpha - 1)", self.alpha)
        object.__setattr__(self, "alpha", value)

    @property
    def beta(self) -> float:
        """The weight of what speaks against: alpha - 1."""
        return self.alpha - 1

    def share(self, layer: Affine, inputs: Tensor, arriving: Tensor) -> tuple[Tensor, Tensor]:
        """Positive and negative contributions apart."""
        sides = [_Side(layer, inputs, sign) for sign in (1, -1)]
        plus, minus = (side.total for side in sides)
        for_plus = torch.where(minus == 0, 1.0, self.alpha)
        for_minus = torch.where(plus == 0, 1.0, -self.beta)
        found, taken = torch.zeros_like(inputs), inputs.new_zeros(len(inputs))
        for side, weight in zip(sides, (for_plus, for_minus), strict=True):
            handed, kept = side.share(weight * arriving)
            found, taken = found + handed, taken + kept
        lost = torch.where((plus == 0) & (minus == 0), arriving, 0.0)
        return found, taken + lost.flatten(1).sum(1)


@final
class _Side:
    """The contributions of one sign to an affine layer: a+ w+ and a- w-, or a+ w- and a- w+."""

    def __init__(self, layer: Affine, inputs: Tensor, sign: int) -> None:
        self._apply = layer.apply
        high, low = layer.weight.clamp(min=0), layer.weight.clamp(max=0)
        self._weights = (high, low) if sign > 0 else (low, high)
        self._inputs = (inputs.clamp(min=0), inputs.clamp(max=0))
        bias = torch.zeros((), dtype=inputs.dtype) if layer.bias is None else layer.bias
        self._bias = bias.clamp(min=0) if sign > 0 else bias.clamp(max=0)
        parts = zip(self._inputs, self._weights, strict=True)
        self.total = sum(self._apply(a, w) for a, w in parts) + self._bias

    def share(self, arriving: Tensor) -> tuple[Tensor, Tensor]:
        """What each input gets of what arrives, and what biases take."""
        quotients = _divided(arriving, self.total)
        found = [
            part * _pulled(self._apply, part, weight, quotients)
            for part, weight in zip(self._inputs, self._weights, strict=True)
        ]
        return found[0] + found[1], (self._bias * quotients).flatten(1).sum(1)


def _by_contribution(
    layer: Affine, inputs: Tensor, arriving: Tensor, stabiliser: float
) -> tuple[Tensor, Tensor]:
    outputs = layer.apply(inputs, layer.weight)
    if layer.bias is not None:
        outputs = outputs + layer.bias
    push = stabiliser * torch.where(outputs < 0, -1.0, 1.0).to(outputs.dtype)
    quotients = _divided(arriving, outputs + push)
    taken = push if layer.bias is None else push + layer.bias
    lost = torch.where(outputs + push == 0, arriving, 0.0)
    found = inputs * _pulled(layer.apply, inputs, layer.weight, quotients)
    return found, (taken * quotients + lost).flatten(1).sum(1)


def _pulled(
    apply: Callable[[Tensor, Tensor], Tensor], inputs: Tensor, weight: Tensor, back: Tensor
) -> Tensor:
    """The transposed layer: sum_k w_jk s_k, as the gradient of sum_k s_k z_k."""
    with torch.enable_grad():
        free = inputs.detach().requires_grad_(True)
        return torch.autograd.grad(apply(free, weight), free, back)[0]


def _divided(over: Tensor, under: Tensor) -> Tensor:
    """The quotient; 0 where there is nothing to divide by."""
    return torch.where(under == 0, 0.0, over / torch.where(under == 0, 1.0, under))


_NAMED: dict[str, RelevanceRule] = {
    "epsilon": EpsilonRule(),
    "z": ZRule(),
    "alpha-beta": AlphaBetaRule(),
    "z-plus": AlphaBetaRule(1.0),
}


def rule_names() -> tuple[str, ...]:
    """The names that :meth:`RelevanceRule.named` knows.

    >>> rule_names()
    ('epsilon', 'z', 'alpha-beta', 'z-plus')
    """
    return tuple(_NAMED)
