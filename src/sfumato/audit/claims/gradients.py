"""Claims about gradients that participants share, printed in a lecture on two-layer networks.

That the norm of one record's gradient is what is printed, and that a linear network gives away
"only a linear combination" of the data. Both are exact: Laplace noise of known scale on numbers
that are known for either table, or no noise at all. (That private gradients need noise of order
m sqrt(d) / epsilon is not false but needless; see :func:`sfumato.mechanisms.sensitivity
.gradient_noise`.)
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from sfumato.attacks.gradients.linear_networks import combinations_from_gradient
from sfumato.audit.claims.network_specimens import clipped_sum
from sfumato.audit.claims.networks import corner_law
from sfumato.audit.claims.registry import Claim, Kind, register
from sfumato.audit.exact import audit_finite
from sfumato.audit.findings import Finding
from sfumato.core.guarantee import Guarantee
from sfumato.core.neighbours import Neighbours
from sfumato.mechanisms.sensitivity import PrintedTwoLayerGradient, TwoLayerGradient

__all__ = ["linear_gradient", "seen_of_one_example"]

_Floats = NDArray[np.float64]
_ONE: Final = Guarantee(1.0, 0.0, Neighbours.REPLACE_ONE)
_LECTURE: Final = "Lecture notes on differential privacy (Lei, 2024)"


@register
def gradient_norm_as_printed() -> Claim:
    """One record whose label is turned around: gradients of opposite directions, both clipped.

    As printed, the norm lacks the 2 of the squared loss, so that what is "clipped to C" has 2 C.
    """
    correct = TwoLayerGradient([[0.6, 0.8], [1.0, 0.0]], [1.0, -1.0], clip=0.01)
    records = [((0.6, 0.8), 1.0), ((0.6, 0.8), -1.0)]

    def audit(function: TwoLayerGradient | PrintedTwoLayerGradient) -> Finding:
        first, second = (np.asarray(function([record])) for record in records)
        facts = {"apart": float(np.abs(first - second).sum()), "scale": 2 * correct.clip}
        law = corner_law(first, second, 2 * correct.clip)
        return audit_finite(*law, claim=_ONE, facts=facts)

    return Claim(
        name="gradient-norm-as-printed",
        title="A gradient's norm without its factors",
        statement="One record's gradient of a two-layer network with residual r has an L1 norm of "
        "|r| (‖σ(Wx)‖₁ + Σ |σ′(wⱼ·x)| ‖x‖₁); clipped to C by it, noise of scale 2C / ε on each "
        "number is ε-DP. (Here two units, two inputs, output weights of 1 and −1.)",
        source=f"{_LECTURE}, equations 4.8 to 4.10, for a squared loss",
        claimed=_ONE,
        audit=lambda: audit(PrintedTwoLayerGradient(correct)),
        corrected="2 |r| (‖σ(Wx)‖₁ + Σ |aⱼ σ′(wⱼ·x)| ‖x‖₁), and clipped by that:",
        holds=_ONE,
        corrected_audit=lambda: audit(correct),
        kind=Kind.EXACT,
    )


def linear_gradient(inputs: _Floats, labels: _Floats, hidden: _Floats, output: _Floats) -> _Floats:
    """A specimen: the gradient by the hidden weights of sum_i (a W x_i - y_i)^2, without noise."""
    residuals = 2 * (inputs @ hidden.T @ output - labels)
    return np.outer(output, residuals @ inputs)


def seen_of_one_example(gradient: _Floats, output: _Floats) -> _Floats:
    """What the attacker sees: the direction of the only example, its sign by its largest number."""
    found = combinations_from_gradient(gradient, output[None])[0]
    return found / found[np.abs(found).argmax()]


@register
def only_a_linear_combination() -> Claim:
    """A table of one example; the attacker names it, and is right on either table."""
    random = np.random.default_rng(2024)
    hidden, output = random.standard_normal((8, 5)), random.standard_normal(8)
    tables = [np.array([[0.1, 0.9, 0.4, 0.4, 0.2]]), np.array([[0.7, 0.2, 0.6, 0.1, 1.0]])]
    label, clip = np.ones(1), 1.0

    def audit() -> Finding:
        shown = [
            seen_of_one_example(linear_gradient(x, label, hidden, output), output) for x in tables
        ]
        right = [[np.allclose(s, x[0] / x.max(), atol=1e-9) for x in tables] for s in shown]
        law = np.asarray(right, np.float64)
        return audit_finite(law[0], law[1], claim=_ONE, facts={"named": "the example itself"})

    def corrected_audit() -> Finding:
        sums = [clipped_sum(sign * 100 * tables[0], clip) for sign in (1, -1)]
        return audit_finite(*corner_law(sums[0], sums[1], 2 * clip), claim=_ONE)

    return Claim(
        name="only-a-linear-combination",
        title="A linear network tells only a linear combination",
        statement="The gradients of a linear two-layer network are made of Σ rᵢ xᵢ alone; so only "
        "a linear combination of the data can be recovered, and data are safe without noise. "
        "(Here one example; “safe” is read as ε = 1, and no other number would hold.)",
        source=f"{_LECTURE}, section 4.4",
        claimed=_ONE,
        audit=audit,
        corrected="r x clipped to an L1 norm of C, and Laplace noise of scale 2C / ε:",
        holds=_ONE,
        corrected_audit=corrected_audit,
        kind=Kind.EXACT,
    )
