"""The recipe that the options of ``sfumato train`` say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sfumato.cli.train_options import CLIPPINGS, named_values

if TYPE_CHECKING:
    from sfumato.data import Dataset, Declaration
    from sfumato.learning.dp_sgd import Clipping, NoiseSchedule
    from sfumato.learning.features import FeatureMap
    from sfumato.learning.recipes import Rate, Recipe

__all__ = ["make_recipe"]

# Of what may be said, what is no choice that a better score could have led to.
_UNTUNED = ("unit", "rows_per_owner", "neighbours", "delta", "batch_size", "canaries", "start")


def make_recipe(
    data: Dataset, declared: Declaration | None, size: int | None, said: Mapping[str, Any]
) -> Recipe:
    """The preset's recipe with what was said otherwise."""
    from sfumato.learning.recipes.inputs import input_shape
    from sfumato.learning.recipes.presets import default_preset, preset

    epsilon, name = said["epsilon"], said["preset"]
    length = said["steps"] if said["epochs"] is None else said["epochs"]
    if epsilon is None and (said["noise_multiplier"] is None or length is None):
        raise ValueError(
            "epsilon must be given (--epsilon 3), or both --noise-multiplier and --epochs"
        )
    shown = name or default_preset(input_shape(data.shape))
    base = preset(name, data, epsilon=8.0 if epsilon is None else epsilon, public_size=size)
    changes = _changes(said, base)
    if declared is not None:
        changes["rows_per_owner"] = declared.rows_per_owner
        changes["unit"] = said["unit"] or declared.unit
    recipe = _without(base.changed(**changes), said)
    tuned = [key for key in changes if key not in _UNTUNED]
    if tuned or said["tuned_on"]:
        from sfumato.learning.recipes.recipe import NOT_STATED

        own = f", with {', '.join(sorted(tuned))} given" if tuned else ""
        origin = f"preset {shown}{own}: {said['tuned_on'] or NOT_STATED}"
        recipe = recipe.changed(origin=origin)
    return recipe


def _changes(said: Mapping[str, Any], base: Recipe) -> dict[str, Any]:
    """Everything that was said, as a recipe's fields."""
    plain = (
        "model", "delta", "lot_size", "lots", "max_lot", "neighbours", "unit", "optimizer",
        "momentum", "weight_decay", "ema_decay", "augment", "augmentations", "batch_size", "seed",
        "noise_multiplier", "epochs", "steps", "precision", "head_rate",
    )  # fmt: skip
    found = {name: said[name] for name in plain if said[name] is not None}
    if said["ema_decay"] == 0:
        found["ema_decay"] = None  # the change is made at the end: None leaves a value as it is
    if said["model"] is not None or said["model_option"]:
        own = base.model_options if said["model"] in (None, base.model) else {}
        found["model_options"] = {**own, **named_values("model-option", said["model_option"])}
    if said["features"] is not None or said["feature_option"]:
        found["features"] = _features(said["features"] or base.features.kind, said, base)
    if said["clip"] is not None or said["clipping"] is not None:
        found["clip"] = _clip(said["clipping"], said["clip"], base)
    if said["learning_rate"] is not None or said["last_learning_rate"] is not None:
        found["rate"] = _rate(said, base)
    if said["start"] is not None:
        from sfumato.learning.recipes.start import PublicStart

        found["start"] = PublicStart(str(said["start"].resolve()), said["start_source"] or "")
    elif said["start_source"] is not None:
        raise ValueError("--start-source says where the weights of --start come from: give both")
    elif said["head_rate"] is not None:
        raise ValueError("--head-rate is of weights that are not in --start: give both")
    if said["canaries"] is not None:
        from sfumato.learning.recipes.canaries import Canaries

        found["canaries"] = Canaries(said["canaries"], said["canary_kind"])
    if said["noise_schedule"] is not None:
        found["noise_schedule"] = _schedule(said["noise_schedule"])
    if said["correlation"] is not None:
        from sfumato.learning.dp_sgd.correlated.parsing import parse_correlation

        found["correlation"] = parse_correlation(said["correlation"])
    return found


def _without(recipe: Recipe, said: Mapping[str, Any]) -> Recipe:
    """Without what was switched off, and with two of epsilon, noise and length.

    Those that were said, and the preset's where one is missing.
    """
    from dataclasses import replace

    if said["ema_decay"] == 0:
        recipe = replace(recipe, ema_decay=None)
    length = said["epochs"] is not None or said["steps"] is not None
    if said["steps"] is not None and said["epochs"] is None:
        recipe = replace(recipe, epochs=None)
    if said["noise_multiplier"] is not None and not length:
        return replace(recipe, epochs=None, steps=None)
    if said["noise_multiplier"] is not None and said["epsilon"] is None:
        return replace(recipe, epsilon=None)
    if length and said["noise_multiplier"] is None:
        return replace(recipe, noise_multiplier=None)
    return recipe


def _features(kind: str, said: Mapping[str, Any], base: Recipe) -> FeatureMap:
    from sfumato.learning.features import FeatureMap

    own = base.features.to_dict() if base.features.kind == kind else {"kind": kind}
    options = own | named_values("feature-option", said["feature_option"])
    try:
        return FeatureMap.from_dict(options)
    except TypeError as error:
        raise ValueError(
            f"--feature-option NAME=VALUE must suit features {kind!r}: "
            f"{str(error).partition('() ')[2]}"
        ) from None


def _clip(kind: str | None, norm: float | None, base: Recipe) -> Clipping:
    from dataclasses import replace

    from sfumato.core import validation
    from sfumato.learning.dp_sgd import Adaptive, Automatic, Flat, PerLayer

    if kind is None:
        return replace(base.clip, clip=norm)  # type: ignore[call-arg, type-var]
    kinds: dict[str, Any] = {
        "flat": Flat, "per-layer": PerLayer, "automatic": Automatic, "adaptive": Adaptive,
    }  # fmt: skip
    if kind not in kinds:
        validation.fail("clipping", f"one of {', '.join(CLIPPINGS)}", kind)
    return kinds[kind](getattr(base.clip, "clip", 1.0) if norm is None else norm)


def _rate(said: Mapping[str, Any], base: Recipe) -> Rate:
    from dataclasses import replace

    from sfumato.learning.recipes import Rate

    start = base.rate.start if said["learning_rate"] is None else said["learning_rate"]
    if said["last_learning_rate"] is None:
        return replace(base.rate, start=start)
    return Rate(start, end=said["last_learning_rate"])


def _schedule(text: str) -> NoiseSchedule:
    from sfumato.learning.dp_sgd import NoiseSchedule

    first, colon, last = text.partition(":")
    try:
        factors = float(first), float(last)
    except ValueError:
        factors = None
    if not colon or factors is None:
        raise ValueError(f"noise-schedule must be FIRST:LAST, such as 1.5:0.8, got {text!r}")
    return NoiseSchedule.linear(*factors)
