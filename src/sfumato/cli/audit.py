"""``sfumato audit``: is it as private as it says?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sfumato.cli.audit_erm import audit_erm_run, erm
from sfumato.cli.audit_labels import audit_label_run, labels
from sfumato.cli.audit_mechanism import mechanism
from sfumato.cli.audit_network_runs import (
    audit_adaptive_laplace_run,
    audit_autoencoder_run,
    audit_functional_run,
)
from sfumato.cli.audit_networks import adaptive_laplace, autoencoder, functional
from sfumato.cli.audit_pate import audit_pate_run, pate, tell_noise
from sfumato.cli.options import AsJson, Plot
from sfumato.cli.output import console, plain_table, print_json, working
from sfumato.core.guarantee import round_down
from sfumato.core.json_files import as_written

if TYPE_CHECKING:
    from sfumato.audit.claims import Result
    from sfumato.audit.findings import Finding
    from sfumato.audit.label_noise import NoiseFinding
    from sfumato.learning.runs import RunFolder

__all__ = ["app"]

app = typer.Typer(help="Test guarantees by attack: lower bounds on epsilon, beside the proofs.")

app.command()(mechanism)
app.command()(pate)
app.command()(erm)
app.command()(labels)
app.command()(functional)
app.command("adaptive-laplace")(adaptive_laplace)
app.command()(autoencoder)

Confidence = Annotated[float, typer.Option(help="Of the whole procedure, searches included.")]
_AUDIT = "audit.json"


@app.callback(invoke_without_command=True)
def audit(
    context: typer.Context,
    run: Annotated[
        Path | None,
        typer.Option(
            help="A finished run with canaries (train ... --canaries), or of a method that needs "
            "none."
        ),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(help="Of a run of label-dp or adaptive-laplace begun in Python: its data."),
    ] = None,
    declared: Annotated[
        Path | None, typer.Option(help="What is public about data of your own.")
    ] = None,
    analysis: Annotated[
        str | None,
        typer.Option(
            help="Of canaries. guesses: for every (epsilon, delta); gaussian: tighter, for "
            "Gaussian noise. Default: guesses."
        ),
    ] = None,
    games: Annotated[
        int, typer.Option(help="Of a run of PATE: how often its answers are drawn anew.")
    ] = 400,
    confidence: Confidence = 0.95,
    as_json: AsJson = False,
) -> None:
    """Audits a finished run by its canaries, or whatever a subcommand names.

    Some kinds of runs need none. PATE: its votes are in the curator's folder; one vote is moved in
    every question, answers to both are drawn anew, and the noise is played by itself. Label-dp: its
    reports, which are there as well, are counted against the true labels. Adaptive-laplace: its
    records are subtracted from what was told of them, which is there, and the noise is left. Erm,
    functional, autoencoder: one release shows nothing of its noise; the same way at the same price
    is audited on a made-up table.

    Examples:
    sfumato audit --run runs/audited

    sfumato audit claims
    """
    if context.invoked_subcommand is not None:
        return
    if run is None:
        raise ValueError("run must be given (--run runs/a), or a subcommand: see --help")
    with working("auditing"):
        found = _audited_run(run, analysis, confidence, games, data, declared)
    if as_json:
        print_json(found.to_dict())
        return
    _tell(f"The run in {run}", found.finding)
    if found.noise:
        tell_noise(dict(found.noise))


@dataclass(frozen=True)
class _Audited:
    """What an audit of a run found; of PATE, also of its noise."""

    finding: Finding
    noise: Mapping[str, NoiseFinding] = field(default_factory=dict[str, "NoiseFinding"])

    def to_dict(self) -> dict[str, Any]:
        noise = {name: found.to_dict() for name, found in self.noise.items()}
        return (
            self.finding.to_dict()
            | ({"noise": noise} if noise else {})
            | ({"channel": "curator"} if self.finding.private else {})
        )


def _audited_run(
    run: Path,
    analysis: str | None,
    confidence: float,
    games: int,
    data: str | None,
    declared: Path | None,
) -> _Audited:
    from sfumato.learning.recipes.loading import (
        ADAPTIVE_LAPLACE,
        AUTOENCODER,
        ERM,
        FUNCTIONAL,
        LABEL_DP,
        PATE,
    )
    from sfumato.learning.runs import RunFolder

    folder = RunFolder(run)
    method = folder.record()["method"]
    if data is not None and method not in (LABEL_DP, ADAPTIVE_LAPLACE):
        raise ValueError(f"data must be left out for a run of {method}, whose audit reads none")
    if method == PATE:
        found = _Audited(*audit_pate_run(folder, games, confidence, analysis))
    elif method == LABEL_DP:
        found = _Audited(audit_label_run(folder, confidence, analysis, data, declared))
    elif method == ERM:
        found = _Audited(audit_erm_run(folder, confidence, analysis))
    elif method == FUNCTIONAL:
        found = _Audited(audit_functional_run(folder, confidence, analysis))
    elif method == ADAPTIVE_LAPLACE:
        found = _Audited(audit_adaptive_laplace_run(folder, confidence, analysis, data, declared))
    elif method == AUTOENCODER:
        found = _Audited(audit_autoencoder_run(folder, confidence, analysis))
    else:
        found = _Audited(_by_canaries(folder, analysis or "guesses", confidence))
    folder.write_curator(_AUDIT, found.to_dict())
    return found


def _by_canaries(folder: RunFolder, analysis: str, confidence: float) -> Finding:
    from dataclasses import replace

    from sfumato.audit import audit_scores
    from sfumato.core.guarantee import Guarantee
    from sfumato.learning.recipes.canaries import CanaryKind, CanaryScores
    from sfumato.learning.recipes.training import CANARIES

    run = folder.path
    with as_written(folder.record_file):
        claim = Guarantee.from_dict(folder.record()["guarantee"])
    if not (folder.curator / CANARIES).exists():
        raise ValueError(
            f"the run in {run} must have canaries to be audited: plant them in a new run (sfumato "
            "train ... --canaries 1000)"
        )
    with as_written(folder.curator / CANARIES):
        planted = CanaryScores.from_dict(folder.read_curator(CANARIES))
    finding = audit_scores(
        planted.scores, planted.included, claim=claim, confidence=confidence, analysis=analysis,
        neighbours=claim.neighbours,  # a run plants them for the relation that it promises
    )  # fmt: skip
    private = planted.kind is not CanaryKind.GRADIENT
    return replace(finding, private=private, facts={**finding.facts, "kind": planted.kind.value})


@app.command()
def step(
    noise_multiplier: Annotated[float, typer.Option(help="Of the step.")] = 1.0,
    steps: Annotated[int, typer.Option(help="In a row.")] = 2,
    games: Annotated[int, typer.Option(help="How often a canary is in or out.")] = 100_000,
    confidence: Confidence = 0.99,
    as_json: AsJson = False,
) -> None:
    """Audits the engine's own steps, on this machine: is the noise as large as it should be?

    Example: sfumato audit step --noise-multiplier 1.1
    """
    with working("taking steps"):
        from sfumato.audit import audit_step
        from sfumato.learning.dp_sgd.games import EngineSteps

        engine = EngineSteps(noise_multiplier, steps=steps)
        finding = audit_step(
            engine, multiplier=engine.multiplier, games=games, confidence=confidence
        )
    if as_json:
        print_json(finding.to_dict())
        return
    _tell(f"{steps} steps with noise multiplier {noise_multiplier:g}", finding)


@app.command()
def claims(
    names: Annotated[list[str] | None, typer.Argument(help="Which; all if left out.")] = None,
    plot: Plot = None,
    as_json: AsJson = False,
) -> None:
    """Audits privacy statements as printed, in lectures, papers and code; none of them holds.

    Beside each stands what does. Some five seconds for all of them.

    Examples:
    sfumato audit claims

    sfumato audit claims exponential-without-the-2

    sfumato audit claims --plot claims.png
    """
    with working("auditing"):
        from sfumato.audit.claims import run_claims

        results = run_claims(names or None)
    if plot is not None:
        _draw(results, plot)
    if as_json:
        print_json({"claims": [result.to_dict() for result in results]})
    elif len(results) == 1:
        _tell_claim(results[0])
    else:
        _tell_claims(results)


def _draw(results: tuple[Result, ...], path: Path) -> None:
    from sfumato.reports.audit_figures import claims_figure
    from sfumato.reports.style import save

    lines = [
        (r.claim.title, r.claim.claimed.epsilon, r.found.epsilon, r.claim.holds.epsilon)
        for r in results
    ]
    save(claims_figure(lines), path)


def _tell_claims(results: tuple[Result, ...]) -> None:
    table = plain_table("Printed, and audited")
    table.add_column("claim", overflow="fold")
    for name in ("claimed", "at least", "sure", "verdict", "holds"):
        table.add_column(name, no_wrap=True)
    for result in results:
        known = result.claim
        table.add_row(
            known.name, f"{known.claimed.epsilon:.4g}",
            f"{round_down(result.found.epsilon):.10g}",
            known.kind.value, "refuted" if result.refuted else "stands",
            f"{known.holds.epsilon:.4g}",
        )  # fmt: skip
    console().print(table)
    console().print("What each says, and what holds instead: sfumato audit claims NAME")


def _tell_claim(result: Result) -> None:
    known = result.claim
    table = plain_table(known.title)
    table.add_column("", no_wrap=True)
    table.add_column("")
    for name, text in (
        ("as printed", known.statement), ("where", known.source), ("claimed", str(known.claimed)),
        ("found", str(result.found)), ("instead", known.corrected), ("holds", str(known.holds)),
        ("its audit", str(result.corrected)),
    ):  # fmt: skip
        table.add_row(name, text)
    console().print(table)


def _tell(title: str, finding: Finding) -> None:
    table = plain_table(title)
    table.add_column("", no_wrap=True)
    table.add_column("")
    table.add_row("at least", finding.bound)
    if finding.claim is not None:
        table.add_row("claimed", str(finding.claim))
    table.add_row("verdict", _verdict(finding))
    if finding.reach and not finding.refuted:
        table.add_row("could be seen", finding.reach)
    table.add_row("confidence", "certain" if finding.confidence == 1 else f"{finding.confidence:g}")
    table.add_row("how", finding.method)
    for name, value in finding.facts.items():
        table.add_row(name.replace("_", " "), str(value))
    if finding.private:
        table.add_row("for you alone", "it was measured on rows of the data")
    console().print(table)


def _verdict(finding: Finding) -> str:
    if finding.claim is None:
        return "no claim to compare with"
    if finding.refuted:
        return "REFUTED: the claim does not hold"
    return "consistent: nothing found against the claim"
