"""Options of a federation that were given and would do nothing: errors, instead of silence."""

from __future__ import annotations

from typing import Any

import typer
from click.core import ParameterSource

__all__ = ["check_choices", "check_given", "given_options", "refuse_beside_file"]

_WORKS = ("updates", "gradients", "selected")
_NOISES = ("central", "local", "shared", "none")
_SUMS = ("plain", "masked", "hidden")
_DECIDED = (
    "declared", "participants", "rounds", "participation", "work", "noise", "sum",
    "noise_multiplier", "epsilon", "observer", "delta", "least", "law", "threshold", "model",
    "model_option", "clip", "quantile", "steps", "batch_size", "rate", "lot_rate", "records",
    "share", "server_rate", "server_momentum", "seed", "name",
)  # fmt: skip
_OF_WORK = {
    "steps": ("updates", "selected"),
    "batch_size": ("updates", "selected"),
    "rate": ("updates", "selected"),
    "quantile": ("updates",),
    "lot_rate": ("gradients",),
    "records": ("gradients",),
    "share": ("selected",),
}  # what each option is for


def given_options(context: typer.Context) -> frozenset[str]:
    """Names of the parameters that were really given, not those that have their defaults."""
    default = (ParameterSource.DEFAULT, ParameterSource.DEFAULT_MAP, None)
    return frozenset(
        name for name in context.params if context.get_parameter_source(name) not in default
    )


def refuse_beside_file(file: object, given: frozenset[str]) -> None:
    """Refuses options that a federation file decides already."""
    found = [_option(name) for name in _DECIDED if name in given]
    if found:
        raise ValueError(
            f"{', '.join(found)} must be left out: {file} decides that already (sfumato federate "
            "plan writes another file)"
        )


def check_choices(said: dict[str, Any]) -> None:
    """Refuses a work, a noise or a sum that there is not."""
    for name, known in (("work", _WORKS), ("noise", _NOISES), ("sum", _SUMS)):
        if said[name] not in known:
            *others, last = known
            raise ValueError(f"--{name} must be {', '.join(others)} or {last}, got {said[name]!r}")


def check_given(said: dict[str, Any], given: frozenset[str]) -> None:
    """Refuses options that contradict each other, or that nothing would come of.

    Args:
        said: by the options' names.
        given: which of them were given.
    """
    check_choices(said)
    work, noise = said["work"], said["noise"]
    for name, works in _OF_WORK.items():
        if name in given and work not in works:
            _refuse(name, f"--work {work}", f"it is for --work {' or '.join(works)}")
    if work == "selected":
        _check_selected(said, given)
    elif noise == "none":
        for name in ("epsilon", "noise_multiplier"):
            if name in given:
                _refuse(name, "--noise none", "without noise no epsilon holds")
    if {"epsilon", "noise_multiplier"} <= given:
        _refuse("noise_multiplier", "--epsilon", "the noise is made to meet that; give one of them")
    if "observer" in given and "epsilon" not in given:
        raise ValueError("--observer must come with --epsilon: it says whom that is against")
    _check_sums(said, given)


def _check_selected(said: dict[str, Any], given: frozenset[str]) -> None:
    own = "selected gradients carry noise of their own, by --epsilon"
    if "noise" in given and said["noise"] != "none":
        _refuse("noise", "--work selected", own, said["noise"])
    if "noise_multiplier" in given:
        _refuse("noise_multiplier", "--work selected", own)


def _check_sums(said: dict[str, Any], given: frozenset[str]) -> None:
    noise = "none" if said["work"] == "selected" else said["noise"]
    if noise == "shared" and "sum" in given and said["sum"] != "masked":
        raise ValueError(
            f"--noise shared needs --sum masked, got --sum {said['sum']}: a share of noise alone "
            "protects nobody whose message is seen; or give --noise local"
        )
    if "least" in given and noise not in ("local", "shared"):
        _refuse("least", f"--noise {noise}", "it is for noise by participants (local, shared)")
    if "law" in given and noise != "shared":
        _refuse("law", f"--noise {noise}", "it is for --noise shared")
    if "threshold" in given and said["sum"] != "masked" and noise != "shared":
        _refuse("threshold", f"--sum {said['sum']}", "it is for --sum masked")


def _refuse(name: str, beside: str, why: str, value: object = None) -> None:
    shown = _option(name) if value is None else f"{_option(name)} {value}"
    raise ValueError(f"{shown} must be left out with {beside}: {why}")


def _option(name: str) -> str:
    return "--" + name.replace("_", "-")
