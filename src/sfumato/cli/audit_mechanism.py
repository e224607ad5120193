"""``sfumato audit mechanism``: every mechanism against its claim, or code of one's own."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sfumato.cli.options import AsJson
from sfumato.cli.output import console, plain_table, print_json, working
from sfumato.core.guarantee import round_down

if TYPE_CHECKING:
    from sfumato.audit.findings import Finding

__all__ = ["NAMES", "mechanism"]


def _laplace(epsilon: float, delta: float) -> Any:
    from sfumato import Laplace, Sensitivity

    return Laplace.calibrate(Sensitivity(1.0), epsilon=epsilon)


def _gaussian(epsilon: float, delta: float) -> Any:
    from sfumato import Gaussian, Sensitivity

    return Gaussian.calibrate(Sensitivity(1.0), epsilon=epsilon, delta=delta)


def _discrete_laplace(epsilon: float, delta: float) -> Any:
    from sfumato import DiscreteLaplace, Sensitivity

    return DiscreteLaplace.calibrate(Sensitivity(1), epsilon=epsilon)


def _discrete_gaussian(epsilon: float, delta: float) -> Any:
    from sfumato import DiscreteGaussian, Sensitivity

    return DiscreteGaussian.calibrate(Sensitivity(1), epsilon=epsilon, delta=delta)


def _of(name: str) -> Callable[[float, float], Any]:
    """A mechanism whose first arguments are epsilon and a sensitivity of 1."""

    def make(epsilon: float, delta: float) -> Any:
        import sfumato

        return getattr(sfumato, name)(epsilon, sfumato.Sensitivity(1.0))

    return make


def _randomized_response(epsilon: float, delta: float) -> Any:
    from sfumato import RandomizedResponse

    return RandomizedResponse(epsilon, categories=4)


def _skellam(epsilon: float, delta: float) -> Any:
    from sfumato import Sensitivity, Skellam

    return Skellam.calibrate(Sensitivity(1), epsilon=epsilon, delta=delta)


def _local_laplace(epsilon: float, delta: float) -> Any:
    from sfumato import LocalLaplace

    return LocalLaplace(epsilon, 0.0, 1.0)


def _sparse_vector(epsilon: float, delta: float) -> Any:
    from sfumato import Sensitivity, SparseVector

    return SparseVector(epsilon, Sensitivity(1.0), 10.0, 2)


NAMES: dict[str, Callable[[float, float], Any]] = {
    "laplace": _laplace,
    "gaussian": _gaussian,
    "discrete-laplace": _discrete_laplace,
    "discrete-gaussian": _discrete_gaussian,
    "skellam": _skellam,
    "exponential": _of("Exponential"),
    "noisy-max": _of("ReportNoisyMax"),
    "permute-and-flip": _of("PermuteAndFlip"),
    "randomized-response": _randomized_response,
    "local-laplace": _local_laplace,
    "sparse-vector": _sparse_vector,
}
_APPROXIMATE = ("gaussian", "discrete-gaussian", "skellam")


def mechanism(
    names: Annotated[
        list[str] | None,
        typer.Argument(help=f"Of {', '.join(NAMES)}, or module:function of your own; all of ours."),
    ] = None,
    epsilon: Annotated[float, typer.Option(help="What is claimed.")] = 1.0,
    delta: Annotated[
        float | None, typer.Option(help="1e-5 for Gaussian noise, otherwise 0.")
    ] = None,
    samples: Annotated[int | None, typer.Option(help="Draws from each input; seconds.")] = None,
    confidence: Annotated[float, typer.Option(help="Of the whole procedure.")] = 0.99,
    pair: Annotated[
        list[str] | None,
        typer.Option(help="For your own function: two neighbouring inputs, FIRST;SECOND, as JSON."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Audits mechanisms: by their exact law where they have one, and by sampling.

    A function of your own takes (value, count) and returns so many independent outputs.

    Examples:
    sfumato audit mechanism

    sfumato audit mechanism laplace gaussian --epsilon 2

    sfumato audit mechanism mycode:noisy_mean --pair "[0, 1];[0]" --epsilon 1
    """
    with working("auditing"):
        found = {
            name: _own(name, pair, epsilon, delta or 0.0, samples, confidence)
            if ":" in name
            else _ours(name, epsilon, delta, samples, confidence)
            for name in names or NAMES
        }
    if as_json:
        shown = {name: [f.to_dict() for f in both] for name, both in found.items()}
        print_json({"mechanisms": shown})
        return
    table = plain_table(f"At least, of the claimed epsilon {epsilon:g}")
    for name in ("mechanism", "exact", "sampled", "verdict"):
        table.add_column(name)
    for name, both in found.items():
        shown = {f.confidence == 1: f"{round_down(f.epsilon):.10g}" for f in both}
        refuted = "REFUTED" if any(f.refuted for f in both) else "consistent"
        table.add_row(name, shown.get(True, ""), shown.get(False, ""), refuted)
    console().print(table)


def _ours(
    name: str, epsilon: float, delta: float | None, samples: int | None, confidence: float
) -> list[Finding]:
    from sfumato.audit.mechanism import audit_mechanism
    from sfumato.audit.pairs import audit_law
    from sfumato.core import validation

    if name not in NAMES:
        validation.fail("mechanism", f"one of {', '.join(NAMES)}, or module:function", name)
    at = (1e-5 if name in _APPROXIMATE else 0.0) if delta is None else delta
    made = NAMES[name](epsilon, at)
    return [
        audit_law(made, delta=at),
        audit_mechanism(made, delta=at, samples=samples, confidence=confidence),
    ]


def _own(
    name: str,
    pairs: list[str] | None,
    epsilon: float,
    delta: float,
    samples: int | None,
    confidence: float,
) -> list[Finding]:
    from sfumato.audit.mechanism import audit_mechanism
    from sfumato.core.functions import function_named
    from sfumato.core.guarantee import Guarantee
    from sfumato.core.neighbours import Neighbours

    if not pairs:
        raise ValueError(f"pair must be given for {name}: two neighbouring inputs, FIRST;SECOND")
    claim = Guarantee(epsilon, delta, Neighbours.ADD_REMOVE)
    draw = function_named("mechanism", name)
    inputs = [_pair(text) for text in pairs]
    return [audit_mechanism(draw, inputs, claim=claim, samples=samples, confidence=confidence)]


def _pair(text: str) -> tuple[Any, Any]:
    first, semicolon, second = text.partition(";")
    try:
        if not semicolon:
            raise ValueError
        return json.loads(first), json.loads(second)
    except ValueError:
        raise ValueError(
            f"pair must be FIRST;SECOND, each JSON, such as 0;1, got {text!r}"
        ) from None
