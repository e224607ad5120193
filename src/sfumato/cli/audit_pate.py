"""``sfumato audit pate``: do released labels, and a student, keep what the plan promises?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from sfumato.cli.audit_pate_noise import FEWEST_GAMES, audit_noise, opposite
from sfumato.cli.options import AsJson
from sfumato.cli.output import console, plain_table, print_json, working
from sfumato.core.guarantee import round_down

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

    from sfumato.audit.findings import Finding
    from sfumato.audit.label_noise import NoiseFinding
    from sfumato.audit.labels import Law, Scores, Votes
    from sfumato.core.randomness import Coins
    from sfumato.learning.pate import AnswerPlan
    from sfumato.learning.pate.aggregators import Aggregator, Opinion
    from sfumato.learning.pate.students import Student
    from sfumato.learning.runs import RunFolder

__all__ = [
    "audit_answers",
    "audit_law",
    "audit_pate_run",
    "audit_student",
    "label_law_of",
    "pate",
    "tell_noise",
    "telling_votes",
    "worst_votes",
]

_STUDENT_STEPS = 12


def pate(
    aggregator: Annotated[
        str, typer.Option(help="lnmax, gnmax, confident or interactive.")
    ] = "gnmax",
    epsilon: Annotated[float, typer.Option(help="What is claimed.")] = 2.0,
    delta: Annotated[float, typer.Option(help="Of the claim.")] = 1e-5,
    answers: Annotated[int, typer.Option(help="At most so many answers.")] = 10,
    questions: Annotated[
        int | None, typer.Option(help="At most so many questions; as many as answers.")
    ] = None,
    teachers: Annotated[int, typer.Option(help="How many.")] = 250,
    games: Annotated[int, typer.Option(help="With the canary or without.")] = 10_000,
    student: Annotated[
        int, typer.Option(help="Also train a student in each of so many games; 0 for none.")
    ] = 0,
    confidence: Annotated[float, typer.Option(help="Of the whole procedure.")] = 0.99,
    as_json: AsJson = False,
) -> None:
    """Audits PATE's released labels on votes where one teacher matters most, and their noise.

    The adversary owns one teacher and moves its vote in every question; all labels are seen. By
    law: what labels tell at most, computed. Played: what the code's own answers tell, whatever
    their noise. Noise: with many votes moved, is it as large as declared?

    Examples:
    sfumato audit pate

    sfumato audit pate --aggregator confident --epsilon 4

    sfumato audit pate --epsilon 8 --student 200
    """
    plan = _plan(aggregator, epsilon, delta, answers, questions, teachers)
    if student:
        _public_digits(plan.most_questions)  # or says why not, before anything is played
    each = 1 - (1 - confidence) / (2 + plan.aggregator.asks_first + bool(student))
    with working("auditing"):
        tables = telling_votes(plan, teachers)
        found = {
            "labels, by law": audit_law(plan, worst_votes(plan, teachers)),
            "labels, played": audit_answers(plan, tables, games=games, confidence=each),
        }
        if student:
            found["student"] = audit_student(plan, tables, games=student, confidence=each)
        noise = audit_noise(plan, games=games, confidence=each)
    if as_json:
        audits = {**found, **noise}
        print_json({"plan": plan.to_dict(), "audits": {n: f.to_dict() for n, f in audits.items()}})
    else:
        _tell(plan, found, noise)


def _plan(
    name: str, epsilon: float, delta: float, answers: int, questions: int | None, teachers: int
) -> AnswerPlan:
    """The plan with the least noise that may claim epsilon."""
    from sfumato.core import validation
    from sfumato.learning.pate import AnswerPlan
    from sfumato.learning.pate.named import aggregator_called
    from sfumato.learning.pate.privacy import least_noise

    validation.at_least("teachers", teachers, 2)
    noise = least_noise(
        lambda x: aggregator_called(name, x, teachers), answers, epsilon, delta,
        questions=answers if questions is None else questions,
    )  # fmt: skip
    return AnswerPlan(aggregator_called(name, noise, teachers), answers, questions, delta)


# --- the votes ----------------------------------------------------------------------------------


def worst_votes(plan: AnswerPlan, teachers: int) -> tuple[Votes, Votes]:
    """Two tables of votes for two classes that differ by one vote a question.

    Of all splits from a tie to unanimity, the one whose labels show most at the plan's delta, by
    their law. What tells is often a label that is seldom given: nothing for few games.
    """
    from sfumato.audit.labels import audit_label_law

    law = label_law_of(plan.aggregator, opposite(plan))

    def shown(tables: tuple[Votes, Votes]) -> float:
        laws = (law(_sure_to_be_asked(plan, table)) for table in tables)
        return audit_label_law(*laws, delta=plan.delta).epsilon

    return max(_moved_splits(plan, teachers), key=shown)


def telling_votes(plan: AnswerPlan, teachers: int) -> tuple[Votes, Votes]:
    """The same, but the split on which a label tells most on average: for games."""
    from sfumato.audit.labels import log_ratios

    law = label_law_of(plan.aggregator, opposite(plan))

    def shown(tables: tuple[Votes, Votes]) -> float:
        p, q = (law(table[:1]) for table in tables)
        return float(((p - q) * log_ratios(p, q)).sum())

    return max(_moved_splits(plan, teachers), key=shown)


def _moved_splits(plan: AnswerPlan, teachers: int) -> list[tuple[Votes, Votes]]:
    import numpy as np

    from sfumato.audit.labels import moved_worst
    from sfumato.learning.pate.games import vote_splits

    law, found = label_law_of(plan.aggregator, opposite(plan)), []
    for split in vote_splits(teachers):
        first, second = moved_worst(np.array([split]), law)
        found.append(tuple(np.tile(row, (plan.most_questions, 1)) for row in (first, second)))
    return found


def _sure_to_be_asked(plan: AnswerPlan, votes: Votes) -> Votes:
    """The questions before which the plan's answers cannot be used up."""
    return votes[: plan.answers]


def label_law_of(aggregator: Aggregator, opinion: Opinion | None = None) -> Law:
    """The probabilities of what an aggregator releases, by its settings."""
    from sfumato.audit.labels import Check, label_law
    from sfumato.learning.pate import ConfidentMax, GaussianMax, InteractiveMax, LaplaceMax
    from sfumato.learning.pate.aggregators import expected_votes

    def law(votes: NDArray[np.int64]) -> NDArray[np.float64]:
        if isinstance(aggregator, LaplaceMax):
            return label_law(votes, "laplace", 1 / aggregator.gamma)
        assert isinstance(aggregator, GaussianMax | ConfidentMax | InteractiveMax)
        check = None
        if isinstance(aggregator, ConfidentMax | InteractiveMax):
            check = Check(aggregator.threshold, aggregator.sigma_check)
        if isinstance(aggregator, InteractiveMax):
            assert check is not None
            assert opinion is not None
            check = replace(check, expected=expected_votes(opinion, aggregator.teachers))
        return label_law(votes, "gaussian", aggregator.sigma, check)

    return law


# --- the audits ---------------------------------------------------------------------------------


def audit_law(plan: AnswerPlan, tables: tuple[Votes, Votes]) -> Finding:
    """What labels show if they follow their law; on the questions that are asked in any case."""
    from sfumato.audit.labels import audit_label_law

    law = label_law_of(plan.aggregator, opposite(plan))
    laws = (law(_sure_to_be_asked(plan, table)) for table in tables)
    known = {"votes": [table[0].tolist() for table in tables]}
    return audit_label_law(*laws, claim=plan.guarantee, facts=known)


def audit_answers(
    plan: AnswerPlan,
    tables: tuple[Votes, Votes],
    *,
    games: int,
    confidence: float = 0.99,
    claimed: AnswerPlan | None = None,
    coins: Coins | None = None,
    opinion: Opinion | None = None,
) -> Finding:
    """A lower bound from the answers that the code gives on either table, whatever their law.

    What the auditor goes by is chosen by the law that is promised, before anything is played.

    Args:
        plan: is played.
        tables: votes with the adversary's teacher, and without.
        games: how many in all.
        confidence: of the whole procedure.
        claimed: the plan whose guarantee and law is tested; by default the same.
        coins: who is in, and the noise; by default the system's.
        opinion: the student's, for an interactive aggregator; by default the opposite of the votes.
    """
    from sfumato.audit.labels import label_score, log_ratios, scores_by_law

    promised = claimed or plan
    thought = opposite(plan) if opinion is None else opinion
    law = label_law_of(promised.aggregator, thought)
    laws = law(tables[0]), law(tables[1])
    ratios = log_ratios(*laws)
    first, second = (scores_by_law(one, ratios, promised.answers) for one in laws)
    return _played(
        plan, tables, lambda labels: label_score(labels, ratios), promised, games, confidence,
        coins, thought, (first, second),
    )  # fmt: skip


def audit_student(
    plan: AnswerPlan,
    tables: tuple[Votes, Votes],
    *,
    games: int,
    confidence: float = 0.99,
    student: Student | None = None,
    coins: Coins | None = None,
) -> Finding:
    """The same by what a student says of the questions after it learnt from the answers.

    Its weights follow from the labels, so it shows no more than they do. What the auditor goes by,
    half of the games choose, and only the other half counts.
    """
    from sfumato.audit.labels import label_score, log_ratios
    from sfumato.learning.pate.games import student_probabilities
    from sfumato.learning.pate.students import make_student

    inputs = _public_digits(len(tables[0]))
    learns = student or make_student(
        "supervised", classes=tables[0].shape[1], features="scattering", steps=_STUDENT_STEPS,
        rate=0.05, smoothing=0.0, average=0.5, weight_decay=0.0,
    )  # fmt: skip
    thought = opposite(plan)
    law = label_law_of(plan.aggregator, thought)
    ratios = log_ratios(law(tables[0]), law(tables[1]))

    def score(labels: list[int | None]) -> float:
        said = student_probabilities(learns, inputs, labels)
        if said is None:  # no student at all: nothing was answered, and that is seen
            return label_score(labels, ratios)
        return float((said * ratios[:, :-1]).sum())

    return _played(plan, tables, score, plan, games, confidence, coins, thought)


def _public_digits(questions: int) -> Tensor:
    """So many inputs to ask about."""
    from sfumato.data import load_dataset
    from sfumato.learning.recipes.inputs import inputs_of

    digits = load_dataset("digits")
    if len(digits.test.labels) < questions:
        raise ValueError(
            f"questions must be at most {len(digits.test.labels)} where a student is audited, "
            f"which learns from scikit-learn's digits, got {questions}"
        )
    return inputs_of(digits.test.inputs[:questions], digits.bounds)


def _played(
    plan: AnswerPlan,
    tables: tuple[Votes, Votes],
    score: Callable[[list[int | None]], float],
    promised: AnswerPlan,
    games: int,
    confidence: float,
    coins: Coins | None,
    opinion: Opinion | None,
    likely: tuple[Scores, Scores] | None = None,
) -> Finding:
    """Games in which the canary is there or not."""
    import numpy as np

    from sfumato.audit.labels import audit_scored_games
    from sfumato.core import validation
    from sfumato.core.randomness import SYSTEM, fair_coins
    from sfumato.learning.pate.games import released_labels

    source = SYSTEM if coins is None else coins
    included = fair_coins(validation.at_least("games", games, FEWEST_GAMES), source)
    scores = np.array([
        score(released_labels(tables[0 if there else 1], plan, source, opinion))
        for there in included
    ])  # fmt: skip
    finding = audit_scored_games(
        scores[included], scores[~included], claim=promised.guarantee, confidence=confidence,
        likely=likely,
    )  # fmt: skip
    return replace(finding, facts={**finding.facts, "games": games})


# --- a finished run -----------------------------------------------------------------------------


def audit_pate_run(
    folder: RunFolder, games: int, confidence: float, analysis: str | None
) -> tuple[Finding, dict[str, NoiseFinding]]:
    """The same with a run's own votes, one of them moved in every question. The curator's.

    And the noise of its aggregator, on votes that are made up, as :func:`audit_noise` has it: that
    tells nothing of the run's votes. The confidence is that of all of it together.
    """
    import numpy as np

    if analysis not in (None, "guesses"):
        raise ValueError(
            f"analysis must be guesses for a run of PATE, got {analysis!r}: labels are not "
            "Gaussian, and a bound that takes them for such is not one on their epsilon"
        )

    from sfumato.audit.labels import audit_label_law, moved_worst
    from sfumato.learning.pate.run_votes import read_run_votes

    held = read_run_votes(folder.path)
    if folder.request()["pate"]["rounds"] > 1:
        raise ValueError(
            "rounds must be 1 for an audit: later rounds' questions depend on the student's own "
            "probabilities, which are not kept. Audit its plan instead (sfumato audit pate "
            "--aggregator interactive)"
        )
    plan, votes = replace(held.plan, sanitiser=None), held.counts
    same = np.full(votes.shape[1], 1 / votes.shape[1])  # nobody had learnt anything
    opinion = same if plan.aggregator.needs_opinion else None
    law = label_law_of(plan.aggregator, opinion)
    tables = moved_worst(votes, law)
    by_law = audit_label_law(
        *(law(_sure_to_be_asked(plan, table)) for table in tables), claim=plan.guarantee
    )
    each = 1 - (1 - confidence) / (2 + plan.aggregator.asks_first)
    found = audit_answers(plan, tables, games=games, confidence=each, opinion=opinion)
    facts = {**found.facts, "questions": len(tables[0]), "epsilon_by_law": by_law.epsilon}
    noise = audit_noise(plan, games=games, confidence=each)
    return replace(found, private=True, facts=facts), noise


# --- what is said -------------------------------------------------------------------------------


def _tell(plan: AnswerPlan, found: dict[str, Finding], noise: dict[str, NoiseFinding]) -> None:
    table = plain_table(f"{plan.answers} answers of {plan.aggregator.kind}: {plan.guarantee}")
    for name in ("audit", "epsilon at least", "of the claim", "sure", "verdict"):
        table.add_column(name, no_wrap=True)
    for name, finding in found.items():
        table.add_row(
            name, f"{round_down(finding.epsilon):.10g}",
            f"{finding.epsilon / plan.guarantee.epsilon:.0%}",
            "certain" if finding.confidence == 1 else f"{finding.confidence:.4g}",
            _word(finding),
        )  # fmt: skip
    console().print(table)
    tell_noise(noise)


def tell_noise(noise: dict[str, NoiseFinding]) -> None:
    """One line for each noise."""
    sure = ", ".join({f"{finding.game.confidence:.4g}" for finding in noise.values()})
    table = plain_table(f"Its noise, played with many votes moved ({sure} sure)")
    for name in ("noise of", "declared", "at most", "as of epsilon", "finds below", "verdict"):
        table.add_column(name, no_wrap=True)
    for finding in noise.values():
        game = finding.game
        table.add_row(
            game.name, f"{game.declared:.4g}", f"{finding.at_most:.4g}",
            f"{finding.as_of_epsilon:.4g}", f"{game.refutes_below * game.declared:.4g}",
            _word(finding),
        )  # fmt: skip
    console().print(table)


def _word(finding: Finding | NoiseFinding) -> str:
    return "REFUTED" if finding.refuted else "consistent"
