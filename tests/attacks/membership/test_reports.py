"""The report of an attack: what it counts, what it refuses, and what it does not pretend to see."""

import json
import math

import numpy as np
import pytest
from scipy.stats import norm

from sfumato.attacks.membership.reports import LOW_RATES, Calls, MembershipReport


def shifted(random, shift, size, **options):
    """A report on normal scores, members' moved up by ``shift``."""
    scores = np.concatenate([random.normal(shift, 1, size), random.normal(0, 1, size)])
    return MembershipReport.from_scores(scores, np.repeat([1, 0], size), **options)


def test_rates_are_those_of_theory_and_lie_within_their_limits():
    report = shifted(np.random.default_rng(1), 1.0, 20_000, confidence=0.999)
    low, high = report.auc_interval
    assert low < norm.cdf(1 / math.sqrt(2)) < high
    assert (low, high) == report.roc.auc_interval(0.999)
    assert [power.false_alarms for power in report.power] == list(LOW_RATES)
    for power in report.power:
        # Limits of the threshold's own false alarms, seen through the curve of theory.
        least, most = (norm.cdf(1 + norm.ppf(rate)) for rate in power.alarms_interval)
        assert least <= power.interval[1]
        assert power.interval[0] <= most
        assert power.measurable


def test_rates_that_cannot_be_seen_are_not_stated():
    report = shifted(np.random.default_rng(2), 1.0, 1000)
    assert [power.measurable for power in report.power] == [True, True, False]
    assert "0.01%" in str(report).split("too few non-members to measure ")[1]
    assert "at 0.1% false alarms" in str(report)
    few = shifted(np.random.default_rng(2), 1.0, 50)
    assert str(few).endswith("members found: too few non-members to measure 1%, 0.1%, 0.01%")


def test_an_attack_with_its_own_threshold_is_measured_on_all():
    scores, members = [0.9, 0.2, 0.7, 0.1, 0.8, 0.3], [1, 1, 1, 0, 0, 0]
    report = MembershipReport.from_scores(
        scores, members, labels=[0, 0, 1, 1, 1, 0], threshold=0.7, attack="own"
    )
    assert report.calls == (
        Calls(None, 3, 3, 2, 1),
        Calls(0, 2, 1, 1, 0),
        Calls(1, 1, 2, 1, 1),
    )
    every, first, second = report.calls
    assert (every.precision, every.recall) == (2 / 3, 2 / 3)
    assert (first.precision, first.recall, first.balanced_accuracy) == (1, 0.5, 0.75)
    assert (second.precision, second.balanced_accuracy) == (0.5, 0.75)
    assert report.own_threshold


def test_nobody_judges_the_threshold_they_helped_to_choose():
    """On pure noise the best threshold of all looks good, the other half shows it is not."""
    random = np.random.default_rng(3)
    honest, tempting = [], []
    for _ in range(300):
        report = shifted(random, 0.0, 40, generator=random)
        honest.append(report.calls[0].balanced_accuracy)
        tempting.append(report.roc.balanced_accuracy)
        assert report.calls[0].members == report.calls[0].others == 20
        assert not report.own_threshold
    assert np.mean(honest) == pytest.approx(0.5, abs=4 * 0.08 / math.sqrt(300))
    assert np.mean(tempting) > 0.55


def test_the_chosen_threshold_is_the_best_of_its_half():
    report = shifted(np.random.default_rng(4), 2.0, 20_000, generator=np.random.default_rng(5))
    assert report.threshold == pytest.approx(1.0, abs=0.15)
    assert report.calls[0].balanced_accuracy == pytest.approx(norm.cdf(1.0), abs=0.01)
    again = shifted(np.random.default_rng(4), 2.0, 20_000, generator=np.random.default_rng(5))
    assert again.threshold == report.threshold
    plain = shifted(np.random.default_rng(4), 2.0, 20_000)
    assert plain.threshold == shifted(np.random.default_rng(4), 2.0, 20_000).threshold


def test_without_a_generator_every_second_candidate_chooses():
    """Members 4 and 2 and others 1 and 3 choose; members 9 and 8 and others 0 and 7 are judged."""
    scores, members = [9.0, 4.0, 8.0, 2.0, 0.0, 1.0, 7.0, 3.0], np.repeat([1, 0], 4)
    report = MembershipReport.from_scores(scores, members)
    assert report.threshold == 4.0  # TPR 1/2, FPR 0: as good as 2.0, and first from above
    assert report.calls == (Calls(None, 2, 2, 2, 1),)


def test_the_most_exposed_are_members_only_the_highest_first():
    scores = np.array([5.0, 9.0, 7.0, 7.0, np.inf, -1.0])
    report = MembershipReport.from_scores(scores, [True, False, True, True, True, False])
    assert report.most_exposed(3).tolist() == [4, 2, 3]
    assert report.most_exposed(100).tolist() == [4, 2, 3, 0]
    with pytest.raises(ValueError, match="k must be"):
        report.most_exposed(0)


def test_claims_are_checked_on_the_curve():
    random = np.random.default_rng(6)
    scores = np.concatenate([random.laplace(1, 1, 50_000), random.laplace(0, 1, 50_000)])
    report = MembershipReport.from_scores(scores, np.repeat([1, 0], 50_000))
    assert report.exceeds(0.8)
    assert not report.exceeds(1.0)
    assert not report.exceeds(0.8, delta=0.0906)
    assert report.excess(0.8) == report.roc.excess(0.8, 0.0, 0.95)
    assert report.excess(0.8, confidence=0.99).margin < report.excess(0.8).margin
    with pytest.raises(ValueError, match="confidence must be"):
        report.exceeds(1.0, confidence=0.0)


def test_a_report_in_json_names_its_readers():
    report = MembershipReport.from_scores(
        [np.inf, 2.0, 1.0, 0.0], [1, 1, 0, 0], labels=[3, 3, 3, 5], attack="loss", queries=4
    )
    data = json.loads(json.dumps(report.to_dict(), allow_nan=False))
    assert data["channel"] == "curator"
    assert (data["attack"], data["queries"], data["auc"]) == ("loss", 4, 1.0)
    assert data["most_exposed"][0] == {"candidate": 0, "score": None}
    assert data["most_exposed"][1] == {"candidate": 1, "score": 2.0}
    assert data["power"][2]["measurable"] is False
    assert data["threshold_chosen_by"] == "half of the candidates"
    assert [calls["class"] for calls in data["calls"]] == [None, 3]
    assert "epsilon" not in json.dumps(data)
    assert str(report.calls[1]) == "class 3: precision 100.0%, recall 100.0%"
    assert str(Calls(None, 0, 2, 0, 0)) == "all classes: precision undefined, recall undefined"


def test_a_single_member_is_enough():
    report = MembershipReport.from_scores([3.0, 1.0, 2.0], [1, 0, 0])
    assert report.calls[0].found == 1
    assert report.auc_interval[0] < 0.5


@pytest.mark.parametrize(
    ("scores", "members", "options", "message"),
    [
        ([1.0, math.nan], [1, 0], {}, "scores must be numbers.*1 NaN"),
        ([1.0, 2.0, 3.0], [1, 0], {}, "two lists of the same length"),
        ([[1.0, 2.0]], [[1, 0]], {}, "two lists of the same length"),
        ([1.0, 2.0], [1, 1], {}, "2 members and 0 others"),
        ([1.0, 2.0], [0, 0], {}, "0 members and 2 others"),
        ([1.0, 2.0], [0, 2], {}, "True or False for every candidate"),
        ([1.0, 2.0], [0, 1], {"labels": [1]}, "labels must be one for each of 2 scores"),
        ([1.0, 2.0], [0, 1], {"confidence": 1}, "confidence must be"),
        ([1.0, 2.0], [0, 1], {"attack": ""}, "attack must be"),
        ([1.0, 2.0], [0, 1], {"threshold": math.nan}, "threshold must be"),
    ],
)
def test_what_makes_no_report(scores, members, options, message):
    with pytest.raises(ValueError, match=message):
        MembershipReport.from_scores(scores, members, **options)
