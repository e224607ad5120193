"""``sfumato attack exposure``: was a planted secret learned by heart?"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Group
from rich.text import Text

from sfumato.cli.attacked_options import Seed
from sfumato.cli.options import AsJson, Plot
from sfumato.cli.output import plain_table, working
from sfumato.cli.score_files import numbers_and_names
from sfumato.cli.statistics_attacks import CURATOR, below, show
from sfumato.core import validation

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sfumato.attacks.exposure import Exposure, Secrets

__all__ = ["exposure"]

_LARGEST, _SAMPLES = 100_000, 10_000  # what is asked about if nothing is said
_MOST = 10**7
_MODEL, _FILES = "A model to ask", "Numbers of a model that lives elsewhere"
_DOUBTFUL = 0.01


def exposure(
    model: Annotated[
        str | None,
        typer.Option(
            help="FILE.py:FUNCTION, which returns a function from a list of texts to how "
            "surprising each is: -log of its probability, in any base.",
            rich_help_panel=_MODEL,
        ),
    ] = None,
    template: Annotated[
        str | None,
        typer.Option(
            "--format", help="A text with blanks: 'the code is ####'.", rich_help_panel=_MODEL
        ),
    ] = None,
    alphabet: Annotated[
        str, typer.Option(help="What may stand in a blank.", rich_help_panel=_MODEL)
    ] = "0123456789",
    blank: Annotated[
        str, typer.Option(help="The letter that marks a blank.", rich_help_panel=_MODEL)
    ] = "#",
    canary: Annotated[
        list[str] | None,
        typer.Option(
            help="A planted text of that format; several may be given.", rich_help_panel=_MODEL
        ),
    ] = None,
    scores: Annotated[
        Path | None,
        typer.Option(
            help="How surprising candidates are: .csv, .parquet, .npy or .npz.",
            rich_help_panel=_FILES,
        ),
    ] = None,
    canaries: Annotated[
        Path | None,
        typer.Option(
            help="The same of the canaries; a column 'canary' names them.", rich_help_panel=_FILES
        ),
    ] = None,
    column: Annotated[
        str | None,
        typer.Option(
            help="Where the numbers are. Default: 'surprise', or the only column.",
            rich_help_panel=_FILES,
        ),
    ] = None,
    size: Annotated[
        int | None,
        typer.Option(
            help="How many texts fit the format, if the candidates are a random sample of them.",
            rich_help_panel=_FILES,
        ),
    ] = None,
    exact: Annotated[
        bool, typer.Option("--exact", help="Rank among all texts of the format.")
    ] = False,
    samples: Annotated[
        int | None, typer.Option(help="Rank among so many, drawn at random.")
    ] = None,
    extrapolate: Annotated[
        bool,
        typer.Option(
            "--extrapolate", help="Fit a law to the sample, for ranks lower than it reaches."
        ),
    ] = False,
    confidence: Annotated[float, typer.Option(help="Of a sample's limits.")] = 0.95,
    seed: Seed = 0,
    plot: Plot = None,
    as_json: AsJson = False,
) -> None:
    """Ranks planted secrets among all they could have been, by how little they surprise a model.

    A secret that was never planted has b bits or more by chance: 2^-b. Formats
    that at most 100,000 texts fit are asked about in full, others by a sample.

    Examples:
    sfumato attack exposure --model my.py:load --format "pin ##" --canary "pin 42"

    sfumato attack exposure --model my.py:load --format "key ####" --canary
    "key fade" --alphabet abcdef --samples 500 --plot exposure.png

    sfumato attack exposure --scores all.csv --canaries canaries.csv --exact

    sfumato attack exposure --scores a.npy --canaries b.npy --size 1000000
    """
    if (model is None) == (scores is None):
        raise ValueError("either --model FILE.py:FUNCTION or --scores FILE must be given")
    if exact and (samples is not None or extrapolate):
        raise ValueError("--exact takes no sample: leave out --samples and --extrapolate")
    if model is not None:
        _refuse({"--canaries": canaries, "--column": column, "--size": size}, "--scores")
        how = _How(exact, samples, extrapolate, confidence, seed)
        with working("asking"):
            found = _from_model(model, template, alphabet, blank, canary or [], how)
    else:
        assert scores is not None
        given = {"--format": template, "--canary": canary or None, "--samples": samples}
        _refuse(given, "--model")
        found = _from_files(scores, canaries, column, size, exact, extrapolate, confidence)
    if plot is not None:
        _draw(found, plot)
    show(Group(_table(found), *below(*_notes(found))), found.to_dict(), as_json, {"plot": plot})


@dataclass(frozen=True)
class _How:
    """Which texts a model is asked about."""

    exact: bool
    samples: int | None
    extrapolate: bool
    confidence: float
    seed: int


@dataclass(frozen=True, eq=False)
class _Found:
    """What was asked about and what came out."""

    name: str
    labels: Sequence[str]
    surprises: NDArray[Any]
    candidates: NDArray[Any]
    exposures: tuple[Exposure, ...]
    facts: dict[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready, without the candidates."""
        told = zip(self.labels, self.surprises.tolist(), self.exposures, strict=True)
        listed = [
            {"canary": label, "surprise": value if math.isfinite(value) else str(value)}
            | one.to_dict()
            for label, value, one in told
        ]
        return {"asked": self.name, **self.facts, "canaries": listed}


def _refuse(given: dict[str, object], what: str) -> None:
    for option, value in given.items():
        if value is not None:
            raise ValueError(f"{option} goes with {what}: leave it out")


# --- a model that is asked ----------------------------------------------------------------------


def _from_model(
    model: str, template: str | None, alphabet: str, blank: str, planted: list[str], how: _How
) -> _Found:
    import numpy as np

    from sfumato.attacks.exposure import (
        Secrets,
        ask_everything,
        ask_sample,
        exposure_from_scores,
    )

    if template is None or not planted:
        raise ValueError("--format and one or more --canary must be given with --model")
    if len(blank) != 1:
        validation.fail("blank", "one letter", blank)
    validation.open_probability("confidence", how.confidence)
    secrets = Secrets(template, alphabet, blank)
    secrets.require(planted)
    everything = _asks_everything(secrets, how)
    surprise = _function(model)
    if everything:
        told = ask_everything(surprise, planted, secrets, largest=_MOST)
        exposures = exposure_from_scores(*told)
    else:
        generator, samples = np.random.default_rng(how.seed), how.samples or _SAMPLES
        told = ask_sample(surprise, planted, secrets, generator=generator, samples=samples)
        exposures = exposure_from_scores(
            *told, size=secrets.size, confidence=how.confidence, extrapolate=how.extrapolate
        )
    facts = {"format": template, "alphabet": alphabet, "size": secrets.size}
    return _Found(model, planted, *told, exposures, facts)


def _asks_everything(secrets: Secrets, how: _How) -> bool:
    if how.exact and secrets.size > _MOST:
        raise ValueError(
            f"--exact asks about at most {_MOST:,} texts, and {_many(math.log2(secrets.size))} fit "
            "the format: use --samples"
        )
    if how.samples is not None:
        validation.count("samples", how.samples)
    sampled = how.samples is not None or how.extrapolate
    return how.exact or (not sampled and secrets.size <= _LARGEST)


def _function(name: str) -> Callable[[Sequence[str]], Any]:
    """``my.py:load`` or ``package.my:load``: a function without arguments that returns it."""
    from sfumato.core.functions import function_named, names_function

    file, _, function = name.partition(":")
    module = file.removesuffix(".py").replace("/", ".")
    if not names_function(f"{module}:{function}"):
        validation.fail("model", "FILE.py:FUNCTION, such as my.py:load", name)
    made = function_named("model", f"{module}:{function}")()
    if not callable(made):
        validation.fail("model", "a function that returns a function of texts", made)
    return made


# --- numbers alone ------------------------------------------------------------------------------


def _from_files(
    scores: Path,
    canaries: Path | None,
    column: str | None,
    size: int | None,
    exact: bool,
    extrapolate: bool,
    confidence: float,
) -> _Found:
    from sfumato.attacks.exposure import exposure_from_scores

    if canaries is None:
        raise ValueError("--canaries FILE must be given with --scores")
    if exact == (size is not None):
        raise ValueError(
            "either --exact (the scores are of all texts of the format) or --size N (of a random "
            "sample of N) must be given with --scores"
        )
    candidates, _ = numbers_and_names("scores", scores, column)
    surprises, names = numbers_and_names("canaries", canaries, column, names="canary")
    exposures = exposure_from_scores(
        surprises, candidates, size=size, confidence=confidence, extrapolate=extrapolate
    )
    labels = names or [str(number + 1) for number in range(len(surprises))]
    facts = {"size": len(candidates) if size is None else size}
    return _Found(scores.name, labels, surprises, candidates, exposures, facts)


# --- what is shown ------------------------------------------------------------------------------


def _table(found: _Found) -> Any:
    """One line a canary."""
    first = found.exposures[0]
    space = _many(first.most)
    asked = f"all {space}" if first.method == "exact" else f"{first.samples:,} of {space}"
    table = plain_table(f"Learned by heart? {found.name}, {asked} ({first.method})")
    table.add_column("canary", overflow="fold")
    limits = first.confidence is not None
    for name in ("exposure", *(["limits"] * limits), "at most", "rank", "by chance"):
        table.add_column(name, no_wrap=True, justify="right")
    for label, one in zip(found.labels, found.exposures, strict=True):
        between = [] if one.interval is None else ["{:.2f}-{:.2f}".format(*one.interval)]
        table.add_row(
            Text(label), f"{one.bits:.2f}", *between, f"{one.most:.2f}",
            _place(one), f"{one.chance:.2g}",
        )  # fmt: skip
    return table


def _place(one: Exposure) -> str:
    if one.method == "exact":
        return f"{one.rank:,.10g}"
    return f"{one.rank:,.0f}" if one.rank < 1e6 else f"{one.rank:.2g}"


def _notes(found: _Found) -> list[str]:
    notes = ["Never planted: 1.44 bits on average, b bits or more with probability 2^-b."]
    law = found.exposures[0].law
    if law is not None:
        doubt = ": it does not fit, do not rely on it" if law.p_value < _DOUBTFUL else ""
        notes.append(f"Fitted law: p {law.p_value:.2g}{doubt}.")
    return [*notes, CURATOR]


def _many(bits: float) -> str:
    """2^bits in words."""
    return f"{2**bits:,.0f}" if bits < 40 else f"2^{bits:.1f}"


def _draw(found: _Found, path: Path) -> None:
    from sfumato.reports.exposure_figures import exposure_figure
    from sfumato.reports.style import save

    told = zip(found.labels, found.surprises.tolist(), found.exposures, strict=True)
    marked = [(label, surprise, one.bits) for label, surprise, one in told]
    save(exposure_figure(found.candidates, marked), path)
