"""``sfumato audit --run`` of a functional network, noisy records, an auto-encoder."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sfumato.cli.audit_games import audit_draws, audit_product

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sfumato.audit.findings import Finding
    from sfumato.cli.audit_games import ReleaseGame
    from sfumato.learning.adaptive_laplace.run_told import ToldNoise
    from sfumato.learning.functional.games import RoundGame
    from sfumato.learning.runs import RunFolder

__all__ = ["audit_adaptive_laplace_run", "audit_autoencoder_run", "audit_functional_run"]

_SAMPLES = 4000  # of one round; of a run of many rounds as many fewer
_FEWEST = 200
_ROWS = 4
_SINGLE = "a single run cannot be audited from itself"
_ROUNDING = 1e-5  # relative, of what was told: single precision, and the grid of the noise


def audit_functional_run(folder: RunFolder, confidence: float, analysis: str | None) -> Finding:
    """As many rounds at the same price, on tables that are made up: no row of its data is read.

    Of sampled rounds with normal noise the law of one is computed, and shows less than all do.
    """
    from sfumato.learning.functional.games import round_game
    from sfumato.learning.functional.recipe import FunctionalRecipe

    _no_analysis(analysis, "functional")
    known = folder.record()["parameters"]
    recipe, rounds = FunctionalRecipe.from_dict(known["recipe"]), int(known["plan"]["steps"])
    game = round_game(
        epsilon=recipe.epsilon, delta=recipe.delta, neighbours=recipe.neighbours, rows=_ROWS,
        rounds=rounds, sample_rate=recipe.sample_rate, unit=recipe.unit,
    )  # fmt: skip
    sampled = recipe.sample_rate < 1 and recipe.delta > 0
    exact = _one_sampled_round(game) if sampled else audit_product(game)
    what = f"{rounds} rounds of a linear model on a table of {_ROWS} records: {_SINGLE}"
    if sampled:
        what += "; by law one round of them alone, since records are sampled"
    return _with_draws(exact, game, max(_FEWEST, _SAMPLES // rounds), confidence, what)


def audit_autoencoder_run(folder: RunFolder, confidence: float, analysis: str | None) -> Finding:
    """Its releases at the same price, on tables that are made up: no row of its data is read.

    By law with the run's own columns and codes, and in draws with few of them.

    Raises:
        ValueError: for a run by dp-sgd.
    """
    from sfumato.learning.autoencoder.games import run_game
    from sfumato.learning.autoencoder.recipe import AutoEncoderRecipe

    _no_analysis(analysis, "autoencoder")
    record = folder.record()
    recipe = AutoEncoderRecipe.from_dict(record["parameters"]["recipe"])
    if recipe.way != "functional":
        multiplier = record["parameters"]["plan"]["descent"]["noise_multiplier"]
        raise ValueError(
            f"the run in {folder.path} must be of the way functional to be audited, got "
            f"{recipe.way!r}, for which auto-encoders have no canaries: audit the steps that it "
            f"took (sfumato audit step --noise-multiplier {multiplier:.6g}), or train a classifier "
            "with canaries (sfumato train dp-sgd ... --canaries 1000)"
        )
    data, classes = record["facts"]["data"], max(len(record["facts"]["data"]["classes"]), 2)
    exact = audit_product(
        run_game(
            recipe, columns=int(np.prod(data["shape"])), rows=_ROWS,
            records=int(data["public_size"]), classes=classes,
        )
    )  # fmt: skip
    game = run_game(replace(recipe, widths=(2,) * len(recipe.widths)), rows=_ROWS, classes=classes)
    what = f"its releases on a table of {_ROWS} rows, with codes that are made up: {_SINGLE}"
    if recipe.head == "objective":
        what += "; by law without its classifier, which sfumato audit erm objective audits"
    if game.left_out:
        what += "; by law without layers after the first"
    return _with_draws(exact, game, _SAMPLES, confidence, what)


def audit_adaptive_laplace_run(
    folder: RunFolder,
    confidence: float,
    analysis: str | None,
    data: str | None = None,
    declared: Path | None = None,
) -> Finding:
    """A run's own noise: what it told of records, less the records. The curator's.

    Where what was told is gone, or nobody knows of which data, the same releases are played on
    records that are made up.
    """
    from sfumato.cli.attacked import attacked
    from sfumato.learning.adaptive_laplace.games import told_game
    from sfumato.learning.adaptive_laplace.recipe import AdaptiveLaplaceRecipe
    from sfumato.learning.adaptive_laplace.run_told import has_told, read_told_noise

    _no_analysis(analysis, "adaptive-laplace")
    record = folder.record()
    recipe = AdaptiveLaplaceRecipe.from_dict(record["parameters"]["recipe"])
    game = told_game(
        "whole", epsilon=recipe.epsilon, relevance_share=recipe.relevance_share,
        label_share=recipe.label_share, labels=recipe.labels, unit=recipe.unit,
        classes=len(record["facts"]["data"]["classes"]),
    )  # fmt: skip
    exact = audit_product(game)
    if has_told(folder) and (data is not None or "source" in folder.request()):
        loaded = attacked(folder.path, None, data, declared, None, False).data
        found = audit_told_noise(read_told_noise(folder, loaded), recipe.unit, confidence)
        law = {"epsilon_by_law": exact.epsilon, "of_a_claimed": recipe.epsilon}
        return replace(found, facts=dict(found.facts) | law)
    what = f"its releases on {_ROWS} records that are made up: what it told of its own is not here"
    if has_told(folder):
        what = f"its releases on {_ROWS} records that are made up: with --data also its own noise"
    return _with_draws(exact, game, _SAMPLES, confidence, what)


def audit_told_noise(noise: ToldNoise, unit: str, confidence: float) -> Finding:
    """What a run's own noise shows of one record, given the shares: inputs and label.

    The sum of |z| over all inputs, z the noise over its declared scale, has a Gamma law; if it is
    small, the scale was below the declared one by some factor, and the record's ratio is that much
    larger. The scale at most bounds epsilon from below, if the noise is Laplace's. Labels were kept
    so often, at least; others are taken to be reported alike. Where either is above its own part,
    that is the finding.

    Args:
        noise: of the run.
        unit: of the guarantee.
        confidence: of both together.
    """
    from sfumato.audit.findings import Finding
    from sfumato.core import validation
    from sfumato.core.guarantee import Guarantee
    from sfumato.core.neighbours import Neighbours

    alpha = (1 - validation.open_probability("confidence", confidence)) / 2
    shown = {"inputs": noise.parts.inputs / _factor_at_most(noise.inputs, alpha)}
    if noise.labels is None:
        shown["labels"] = _of_response(noise.kept, noise.classes, alpha)
    else:
        shown["labels"] = noise.parts.labels / _factor_at_most(noise.labels, alpha)
    claimed = {"inputs": noise.parts.inputs, "labels": noise.parts.labels}
    facts: dict[str, Any] = {
        "what": "its own noise, given the shares by relevance: what was told of records, less the "
        "records",
        "numbers_told": len(noise.inputs),
        "labels_kept": list(noise.kept),
        **{f"{name}_at_least": value for name, value in shown.items()},
        **{f"{name}_claimed": value for name, value in claimed.items()},
    }
    above = [name for name in shown if shown[name] > claimed[name]] or list(shown)
    claim = Guarantee(
        sum(claimed[name] for name in above), 0.0, Neighbours.REPLACE_ONE, unit, "exact"
    )
    epsilon = sum(shown[name] for name in above)
    facts["of"] = " and ".join(above)
    return Finding(epsilon, 0.0, confidence, "noise of the run", claim, facts, private=True)


def _factor_at_most(noise: NDArray[np.float64], alpha: float) -> float:
    """The noise's true scale over the declared one is below this, but for probability alpha.

    Of k numbers with density e^(-|z| / f) / 2 f, sum |z| / f has Gamma's law of shape k.
    """
    from scipy.special import gammaincinv

    if not len(noise):
        return np.inf
    least = float(gammaincinv(len(noise), alpha))
    return float(np.abs(noise).sum()) / least * (1 + _ROUNDING) if least > 0 else np.inf


def _of_response(kept: tuple[int, int], classes: int, alpha: float) -> float:
    """Randomised response that keeps a label with p has epsilon ln(p (k - 1) / (1 - p))."""
    from sfumato.core.rates import lower_rate

    rate = lower_rate(*kept, alpha) if kept[1] else 0.0
    if rate <= 1 / classes:
        return 0.0
    return float(np.inf) if rate == 1 else float(np.log(rate * (classes - 1) / (1 - rate)))


def _one_sampled_round(game: RoundGame) -> Finding:
    """Of one round that the record enters with probability q, along the line on which it moves."""
    from sfumato.audit.exact import audit_density

    rate, mu = game.plan.recipe.sample_rate, game.mus[0]

    def without(x: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.exp(-(x**2) / 2) / np.sqrt(2 * np.pi)

    def with_it(x: NDArray[np.float64]) -> NDArray[np.float64]:
        return (1 - rate) * without(x) + rate * without(x - mu)

    found = audit_density(with_it, without, (-12.0, 12.0 + mu), claim=game.claim)
    return replace(found, method="exact", facts={"mus": [mu]})


def _with_draws(
    exact: Finding, game: ReleaseGame, samples: int, confidence: float, what: str
) -> Finding:
    """The law's finding with what draws show beside it; or the draws', if they refute."""
    drawn = audit_draws(game, samples, confidence)
    said: dict[str, Any] = {"what": what, "epsilon_by_law": exact.epsilon}
    said |= {"epsilon_by_draws": drawn[0].epsilon, "confidence_of_draws": confidence}
    if len(drawn) > 1:
        said["noise_as_of_epsilon"] = drawn[1].epsilon
    shown = next((found for found in drawn if found.refuted), exact)
    long = ("tables", "log_ratios", "mus")  # a number for each round
    facts = {name: value for name, value in shown.facts.items() if name not in long}
    return replace(shown, facts=said | facts)


def _no_analysis(analysis: str | None, method: str) -> None:
    if analysis is not None:
        raise ValueError(f"analysis must be left out for a run of {method}, got {analysis!r}")
