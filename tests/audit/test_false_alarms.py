"""Right mechanisms of several kinds are left alone, and findings say what they rest on."""

import math

import numpy as np
import pytest
from scipy import stats

from sfumato.audit import Analysis, audit_games, audit_scores, audit_training, audit_two_runs
from sfumato.audit.mechanism import audit_mechanism
from sfumato.core.guarantee import Guarantee
from sfumato.core.neighbours import Neighbours
from sfumato.core.randomness import SeededCoins
from sfumato.core.sensitivity import Sensitivity
from sfumato.mechanisms.discrete_laplace import DiscreteLaplace
from sfumato.mechanisms.gaussian import Gaussian
from sfumato.mechanisms.laplace import Laplace
from sfumato.mechanisms.randomized_response import RandomizedResponse

ONE = Sensitivity(1.0)
PURE = Guarantee(1.0, 0.0, Neighbours.ADD_REMOVE)
AUDITS = 300


def response(values, coins):
    return RandomizedResponse(1.0, 2).perturb(values.astype(int), coins=coins)


def truncated(values, coins):
    """Tells the value with probability delta, and nothing otherwise: (0, 1e-2)-DP."""
    told = coins.words(len(values)).astype(float) < 0.01 * 2.0**64
    return np.where(told, values, 0.5)


def noisy(mechanism):
    return lambda values, coins: mechanism.perturb(values, coins=coins).astype(float)


MECHANISMS = {
    "laplace": (noisy(Laplace(1.0, ONE)), PURE),
    "laplace at a delta": (noisy(Laplace(1.0, ONE)), Laplace(1.0, ONE).guarantee(1e-3)),
    "discrete laplace": (noisy(DiscreteLaplace(1.0, ONE)), PURE),
    "randomised response": (response, PURE),
    "gaussian": (noisy(Gaussian(1.5, ONE)), Gaussian(1.5, ONE).guarantee(1e-2)),
    "tells all, rarely": (truncated, Guarantee(0.0, 1e-2, Neighbours.ADD_REMOVE)),
}


def most_alarms(confidence):
    """More than so many of AUDITS come by chance once in 10,000 times."""
    return int(stats.binom.isf(1e-4, AUDITS, 1 - confidence))


@pytest.mark.parametrize("confidence", [0.95, 0.8])
@pytest.mark.parametrize("name", list(MECHANISMS))
def test_games_of_right_mechanisms_refute_no_more_than_they_may(name, confidence):
    draw, claim = MECHANISMS[name]
    coins, ones, zeros = SeededCoins(1), np.ones(400), np.zeros(400)
    alarms = sum(
        audit_games(
            draw(ones, coins), draw(zeros, coins), claim=claim, confidence=confidence
        ).refuted
        for _ in range(AUDITS)
    )
    assert alarms <= most_alarms(confidence)


@pytest.mark.parametrize("name", list(MECHANISMS))
def test_one_run_of_right_mechanisms_refutes_no_more_than_it_may(name):
    draw, claim = MECHANISMS[name]
    coins, rng = SeededCoins(2), np.random.default_rng(2)
    alarms = 0
    for _ in range(AUDITS):
        included = rng.random(200) < 0.5
        scores = draw(included.astype(float), coins)
        alarms += audit_scores(scores, included, claim=claim, guesses=200).refuted
    assert alarms <= most_alarms(0.95)


def test_the_same_audits_do_refute_what_is_wrong():
    """Or the tests above would say nothing."""
    rng, coins = np.random.default_rng(3), SeededCoins(3)
    wrong = noisy(Laplace(0.4, ONE))
    assert audit_games(wrong(np.ones(400), coins), wrong(np.zeros(400), coins), claim=PURE).refuted
    included = rng.random(400) < 0.5
    scores = wrong(included.astype(float), coins)
    assert audit_scores(scores, included, claim=PURE, guesses=400).refuted


# --- what is taken for granted --------------------------------------------------------------------


def test_games_take_nothing_for_granted_by_default():
    rng = np.random.default_rng(1)
    finding = audit_games(rng.standard_normal(100), rng.standard_normal(100), delta=1e-5)
    assert finding.method == "repeated games, guesses"
    assert finding.assumption == finding.to_dict()["assumption"] == ""


def gaussian_findings():
    rng = np.random.default_rng(1)
    included = rng.random(400) < 0.5
    scores = included + rng.standard_normal(400)
    claim = Gaussian(1.0, ONE).guarantee(1e-5)
    each = {"claim": claim, "analysis": Analysis.GAUSSIAN}
    yield audit_games(scores[included], scores[~included], **each)
    yield audit_scores(scores, included, **each)
    yield audit_training(lambda bits: bits + rng.standard_normal(len(bits)), 200, **each)
    yield audit_mechanism(Gaussian(1.0, ONE), claim=claim, samples=2000, gaussian=True)


def test_what_is_taken_for_granted_is_in_every_verdict():
    for finding in gaussian_findings():
        assert "at delta 1e-05, if the noise is Gaussian (" in str(finding)
        assert "if the noise is Gaussian" in finding._repr_html_()
        assert finding.to_dict()["assumption"] == "the noise is Gaussian"


@pytest.mark.parametrize(
    "audit",
    [
        lambda: audit_games(np.ones(9), np.zeros(9), claim=PURE, analysis="gaussian"),
        lambda: audit_games(np.ones(9), np.zeros(9), delta=0.0, analysis="gaussian"),
        lambda: audit_scores(
            np.arange(4.0), np.array([True, False] * 2), claim=PURE, analysis="gaussian"
        ),
        lambda: audit_training(lambda bits: bits, 4, claim=PURE, analysis="gaussian"),
        lambda: audit_mechanism(lambda v, n: np.full(n, v), [(0, 1)], claim=PURE, gaussian=True),
        lambda: audit_two_runs(np.ones(9), np.zeros(9), sample_rate=0.1, delta=0.0),
    ],
)
def test_a_claim_that_the_analysis_cannot_be_about_is_refused(audit):
    with pytest.raises(ValueError, match=r"delta must be above 0 for an analysis .* got 0"):
        audit()


# --- thresholds, relations ------------------------------------------------------------------------


@pytest.mark.parametrize("threshold", [math.nan, math.inf, -math.inf])
def test_a_threshold_that_is_no_number_is_refused(threshold):
    with pytest.raises(ValueError, match="threshold must be a finite number"):
        audit_games(np.full(100, 9.0), np.zeros(100), claim=PURE, threshold=threshold)


@pytest.mark.parametrize("relation", [Neighbours.REPLACE_ONE, Neighbours.ZERO_OUT])
@pytest.mark.parametrize("canaries", [1, 50])
def test_a_claim_of_another_relation_is_refused(relation, canaries):
    """How many rows there are costs nothing under replace-one, and all under add/remove."""
    claim, calls = Guarantee(0.1, 0.0, relation), []

    def number_of_rows(included):
        calls.append(included)
        return np.full(len(included), 100.0 + included.sum())

    said = rf"claim must be for add-remove neighbours, .* got {relation.value}"
    with pytest.raises(ValueError, match=said):
        audit_training(number_of_rows, canaries, runs=50, claim=claim)
    assert not calls
    with pytest.raises(ValueError, match=said):
        audit_scores(np.zeros(4), np.array([True, False] * 2), claim=claim)
    found = audit_training(
        lambda bits: np.full(len(bits), 100.0), canaries, runs=50, claim=claim, neighbours=relation
    )
    assert not found.refuted


# --- scores that tell nothing ---------------------------------------------------------------------


def test_scores_that_are_all_equal_say_so():
    included = np.random.default_rng(1).random(1000) < 0.5
    for finding in (
        audit_scores(np.ones(1000), included, claim=PURE),
        audit_games(np.ones(100), np.ones(100), claim=PURE),
        audit_games(np.ones(100), np.ones(100), delta=0.0),
    ):
        assert finding.epsilon == 0
        assert finding.remark == "all scores are equal and tell nothing"
        assert "all scores are equal and tell nothing" in str(finding)
        assert finding.to_dict()["remark"] == finding.remark


def test_scores_the_wrong_way_round_say_so():
    included = np.random.default_rng(1).random(1000) < 0.5
    for finding in (
        audit_scores(-1.0 * included, included, claim=PURE),
        audit_scores(-1.0 * included, included, delta=1e-5),
        audit_games(np.zeros(100), np.ones(100), claim=PURE),
    ):
        assert finding.epsilon == 0
        assert "the scores point the wrong way" in str(finding)
        assert "the scores point the wrong way" in finding._repr_html_()
    right = audit_scores(1.0 * included, included, claim=PURE)
    assert right.refuted
    assert right.remark == ""


def test_scores_of_noise_say_neither():
    rng, remarks = np.random.default_rng(2), 0
    for _ in range(AUDITS):
        included = rng.random(200) < 0.5
        remarks += bool(audit_scores(rng.standard_normal(200), included, claim=PURE).remark)
    assert remarks <= most_alarms(0.95)


def test_a_finding_says_what_could_have_been_shown():
    two = audit_scores([1.0, 0.0], np.array([True, False]), claim=PURE)
    assert two.most == 0
    assert str(two).endswith(
        "consistent with the claimed epsilon 1; at most epsilon 0 could have been shown, so that "
        "no scores whatever could have refuted the claim"
    )
    included = np.random.default_rng(1).random(1000) < 0.5
    perfect = audit_scores(1.0 * included, included, claim=PURE)
    assert perfect.epsilon == perfect.most
    games = audit_games(np.ones(1000), np.zeros(1000), claim=PURE)
    assert games.epsilon == games.most == pytest.approx(math.log(0.9926 / 0.0074), abs=0.01)
    assert games.to_dict()["most_that_could_be_shown"] == games.most
    none = audit_games(np.zeros(1000), np.zeros(1000), claim=PURE)
    assert str(none).endswith("at most epsilon 4.905 could have been shown")


# --- whole numbers beyond 2^53 --------------------------------------------------------------------


def in_the_clear(value, count):
    return np.full(count, 2**60 + value)


@pytest.mark.parametrize(
    "draw",
    [
        in_the_clear,
        lambda value, count: in_the_clear(value, count).astype(np.uint64) + np.uint64(2**63),
        lambda value, count: in_the_clear(value, count).astype(object),
        lambda value, count: in_the_clear(value, count).tolist(),
        lambda value, count: [2**70 + value] * count,
        lambda value, count: [(2**60 + value, 3)] * count,
        lambda value, count: np.stack([in_the_clear(value, count), np.ones(count, int)], axis=1),
    ],
    ids=["int64", "uint64", "objects", "a list", "Python's own", "tuples", "rows"],
)
def test_whole_numbers_are_told_apart_whatever_their_size(draw):
    found = audit_mechanism(draw, [(0, 1)], claim=PURE, samples=2000)
    assert found.refuted
    assert found.epsilon > 4


def test_large_whole_numbers_with_the_right_noise_are_left_alone():
    noise = DiscreteLaplace(1.0, ONE)

    def draw(value, count):
        return 2**60 + 129 + noise.perturb(np.full(count, value))

    found = audit_mechanism(draw, [(0, 1)], claim=PURE, samples=20_000)
    assert not found.refuted
    assert found.epsilon > 0.8
    assert f"of outputs less {2**60}"[:24] in found.facts["event"]


def test_scores_that_doubles_do_not_tell_apart_are_refused():
    included = np.array([True, False] * 50)
    for scores in (2**60 + included, (2**60 + included).astype(object)):
        with pytest.raises(ValueError, match="scores must be numbers that doubles tell apart"):
            audit_scores(scores, included, claim=PURE)
        with pytest.raises(ValueError, match="inside must be numbers that doubles tell apart"):
            audit_games(scores, scores, claim=PURE)
