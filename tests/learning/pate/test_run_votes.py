"""A run's votes read back, for its curator."""

import json

import numpy as np
import pytest

from sfumato.core.randomness import SeededCoins
from sfumato.learning.pate import (
    Answering,
    AnswerPlan,
    Ballots,
    ConfidentMax,
    GaussianMax,
    InteractiveMax,
    LaplaceMax,
)
from sfumato.learning.pate.named import spread
from sfumato.learning.pate.privacy import curator_view
from sfumato.learning.pate.privacy.costs import passing
from sfumato.learning.pate.recipe import PateRecipe
from sfumato.learning.pate.run_votes import read_run_votes
from sfumato.learning.pate.students import make_student
from sfumato.learning.runs.folder import RunFolder

VOTES = np.random.default_rng(4).multinomial(50, [0.7, 0.2, 0.1], size=60)
OPINION = np.full(3, 1 / 3)


def folder_of(path, aggregator, results=None):
    """A run's folder as it is after its answers, and as at its end if there are results."""
    plan = AnswerPlan(aggregator, answers=40, questions=60)
    folder = RunFolder(path)
    folder.begin(
        {"pate": PateRecipe(plan, make_student("supervised"), teachers=50).to_dict()}
    )  # fmt: skip
    halves = [Ballots(VOTES[part], np.arange(60)[part]) for part in (slice(30), slice(30, 60))]
    for number, ballots in enumerate(halves):
        ballots.save(folder.curator / f"votes-{number}")
    asked = Answering(
        halves[0].and_those(halves[1]), plan, journal=folder.curator / "answers.jsonl",
        coins=SeededCoins(3),
    )  # fmt: skip
    for question in reversed(range(30, 60)):
        asked.ask(question, OPINION)
    if results is not None:
        folder.write_curator("results.json", results)
        folder.write_record({})
    return asked


@pytest.mark.parametrize(
    "aggregator", [LaplaceMax(0.2), GaussianMax(9.0), ConfidentMax(9.0, 30.0, 12.0)]
)
def test_votes_and_answers_are_those_of_the_run(tmp_path, aggregator) -> None:
    asked = folder_of(tmp_path / "a", aggregator)
    with (tmp_path / "a/curator/answers.jsonl").open("ab") as file:
        file.write(b'{"question": 1, "lab')  # torn
    read = read_run_votes(tmp_path / "a")
    assert read.answers == asked.answers
    assert read.counts.tolist() == VOTES[:29:-1].tolist()
    assert "private" in repr(read)
    views = read.views(points=7)
    assert set(views) == {"lnmax", "gnmax", "confident"}
    answered = [answer.by == "teachers" for answer in asked.answers]
    own = curator_view(VOTES[:29:-1], aggregator, 1e-5, answered=answered, points=7)
    assert views[aggregator.kind] == own


def test_others_have_equal_noise_and_expected_answers(tmp_path) -> None:
    folder_of(tmp_path / "a", GaussianMax(9.0))
    read = read_run_votes(tmp_path / "a")
    views = read.views()
    assert views["lnmax"].aggregator["gamma"] == pytest.approx(np.sqrt(2) / 9)
    confident = ConfidentMax(9.0, 30.0, 36.0)
    assert views["confident"].aggregator == confident.to_dict()
    expected = passing(confident, read.counts).sum()
    assert views["confident"].curve.answers[-1] == round(expected)
    assert 0.3 * 30 < expected < 0.8 * 30
    assert spread(read.plan.aggregator) == 9.0


def test_interactive_runs_show_what_was_kept_at_their_end(tmp_path) -> None:
    asks = InteractiveMax(9.0, 10.0, 12.0, 50)
    folder_of(tmp_path / "a", asks)
    with pytest.raises(ValueError, match="must have come to its end"):
        read_run_votes(tmp_path / "a").views()
    kept = curator_view(VOTES, asks, 1e-5, opinions=np.tile(OPINION, (60, 1)))
    folder_of(tmp_path / "b", asks, json.loads(json.dumps(kept.to_dict())))
    views = read_run_votes(tmp_path / "b").views(bins=4)
    assert views["interactive"].curve == kept.curve
    assert views["interactive"].agreement == views["gnmax"].agreement
    assert len(views["interactive"].agreement.counts) == 4


def test_what_is_no_run_of_teachers_is_named(tmp_path) -> None:
    with pytest.raises(ValueError, match="must hold a run"):
        read_run_votes(tmp_path)
    RunFolder(tmp_path / "sgd").begin({"recipe": {}})
    with pytest.raises(ValueError, match="sfumato train pate"):
        read_run_votes(tmp_path / "sgd")
    plan = AnswerPlan(GaussianMax(9.0), answers=40)
    recipe = PateRecipe(plan, make_student("supervised"))
    RunFolder(tmp_path / "early").begin({"pate": recipe.to_dict()})
    with pytest.raises(ValueError, match="no answers yet"):
        read_run_votes(tmp_path / "early")
