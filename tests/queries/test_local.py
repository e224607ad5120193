"""Local mode: errors as theory says, intervals that cover, reports that tell of one person only."""

import json
import math

import numpy as np
import pytest
from scipy import stats

from sfumato.core import Guarantee, Neighbours, SeededCoins
from sfumato.core.events import compose, event_from_dict
from sfumato.queries.local import LocalCount, LocalFrequency, LocalMean
from sfumato.queries.local_estimates import count_intervals, laplace_sum_quantile

TEN = tuple("abcdefghij")


def ten_answers(n=10_000, share=0.3):
    """A share of "a"; the others evenly."""
    rest = [TEN[1 + place % 9] for place in range(n - round(share * n))]
    return ["a"] * round(share * n) + rest


# The errors of ten thousand people at epsilon 1: 141.4, 95.95 and 224.2. Of 800 rounds, three
# standard errors are 7.5 %: a constant off by a tenth fails.


def spread(estimates, truth, expected):
    values = np.array(estimates)
    rounds = len(values)
    assert values.std(ddof=1) == pytest.approx(expected, rel=3 * (2 * rounds) ** -0.5)
    assert values.mean() == pytest.approx(truth, abs=3 * expected / math.sqrt(rounds))


def test_error_of_a_sum():
    survey, coins = LocalMean(0, 1, epsilon=1.0), SeededCoins(1)
    bits = np.arange(10_000) % 2
    rounds = [survey.estimate(survey.perturb(bits, coins)) for _ in range(800)]
    spread([found.sum for found in rounds], 5_000, 141.4)
    covered = [found.sum_interval[0] <= 5_000 <= found.sum_interval[1] for found in rounds]
    assert np.mean(covered) == pytest.approx(0.95, abs=0.024)


def test_error_of_a_yes_or_no():
    survey, coins = LocalCount(epsilon=1.0), SeededCoins(2)
    yes = np.arange(10_000) < 3_000
    rounds = [survey.estimate(survey.perturb(yes, coins)) for _ in range(800)]
    spread([found.value for found in rounds], 3_000, 95.95)
    covered = [found.interval[0] <= 3_000 <= found.interval[1] for found in rounds]
    assert np.mean(covered) == pytest.approx(0.95, abs=0.024)


def test_error_of_one_category_in_ten():
    survey, coins = LocalFrequency(TEN, epsilon=1.0), SeededCoins(3)
    answers = ten_answers()
    codes = np.array([TEN.index(answer) for answer in answers])
    assert np.array_equal(  # the same coins on the categories' numbers: no need to look up again
        survey.perturb(answers, SeededCoins(4)),
        survey._response.perturb(codes, coins=SeededCoins(4)),
    )
    reports = [survey._response.perturb(codes, coins=coins) for _ in range(800)]
    rounds = [survey.estimate(report) for report in reports]
    spread([found.counts["a"] for found in rounds], 3_000, 224.2)
    truth = np.array([answers.count(category) for category in TEN])
    own = [np.array(found.interval) for found in rounds]
    joint = [np.array(found.simultaneous_interval) for found in rounds]
    covered = [(pairs[:, 0] <= truth) & (truth <= pairs[:, 1]) for pairs in own]
    assert np.mean(covered) == pytest.approx(0.95, abs=0.01)
    together = [((pairs[:, 0] <= truth) & (truth <= pairs[:, 1])).all() for pairs in joint]
    assert np.mean(together) >= 0.95 - 0.024
    separately = np.mean([row.all() for row in covered])
    assert separately < 0.75  # ten intervals at 95 % each are not 95 % together


# Intervals.


@pytest.mark.parametrize("n", [1, 3, 20, 1999])
def test_the_quantile_of_a_sum_of_laplace_noises(n):
    quantile = laplace_sum_quantile(n, 0.975)
    sums = np.random.default_rng(n).gamma(n, size=(2, 400_000))
    assert np.mean(sums[0] - sums[1] > quantile) == pytest.approx(0.025, abs=0.00075)
    if n == 1:
        assert quantile == pytest.approx(math.log(20))
    for level in (0.505, 0.9, 0.999999):
        assert laplace_sum_quantile(1, level) == pytest.approx(-math.log(2 * (1 - level)))


def test_many_noises_are_normal():
    normal = stats.norm.ppf(0.975) * math.sqrt(2 * 2000)
    assert laplace_sum_quantile(2000, 0.975) == pytest.approx(normal)
    assert laplace_sum_quantile(1999, 0.975) == pytest.approx(normal, rel=1e-3)


@pytest.mark.parametrize("n", [1, 4, 30])
@pytest.mark.slow
def test_means_of_few_people_are_covered(n):
    survey, coins = LocalMean(-2, 6, epsilon=0.7), SeededCoins(n)
    numbers = np.linspace(-2, 6, n) if n > 1 else np.array([5.0])
    reports = survey.perturb(np.tile(numbers, (4000, 1)), coins)
    found = [survey.estimate(row, 0.9) for row in reports]
    covered = [low <= numbers.mean() <= high for low, high in (each.interval for each in found)]
    assert np.mean(covered) == pytest.approx(0.9, abs=3 * math.sqrt(0.09 / 4000))


@pytest.mark.parametrize(
    ("epsilon", "k", "n", "held"),
    [(1.0, 2, 40, 0), (1.0, 2, 200, 100), (0.5, 5, 300, 60), (2.0, 10, 1000, 0), (4.0, 4, 60, 60)],
)
def test_counts_of_few_people_are_covered(epsilon, k, n, held):
    """By the exact law of c = Bin(m, p) + Bin(n - m, q): at least 95 %, and not all."""
    survey = LocalFrequency(range(k), epsilon)
    p, q = survey._response.keep, survey._response.switch
    law = np.convolve(
        stats.binom.pmf(np.arange(held + 1), held, p),
        stats.binom.pmf(np.arange(n - held + 1), n - held, q),
    )
    counts = (np.arange(n + 1) - n * q) / (p - q)
    ends = np.array(count_intervals(survey._response, n, counts, 0.95))
    inside = (ends[:, 0] <= held) & (held <= ends[:, 1])
    assert 0.94 <= law[inside].sum() < 0.9999
    assert (ends[:, 0] <= counts).all()
    assert (counts <= ends[:, 1]).all()


def test_the_interval_of_two_categories_by_hand():
    survey = LocalCount(math.log(3))  # p = 3/4, q = 1/4
    found = survey.estimate([1] * 60 + [0] * 40)
    assert found.value == pytest.approx(70)
    half = (stats.norm.ppf(0.975) * math.sqrt(100 * 3 / 16) + 0.5) / 0.5
    assert found.interval == pytest.approx((70 - half, 70 + half), abs=1e-6)
    assert (found.people, found.confidence) == (100, 0.95)


def test_the_ends_of_a_score_interval_solve_its_equation():
    """|c - n q - m (p - q)| - 1/2 is z standard deviations of c, were m people to hold it."""
    response, n = LocalFrequency(TEN, 1.5)._response, 400
    p, q = response.keep, response.switch
    for c in (30, 80, 250):
        count = (c - n * q) / (p - q)
        for m in count_intervals(response, n, [count], 0.9)[0]:
            sd = math.sqrt(m * p * (1 - p) + (n - m) * q * (1 - q))
            distance = abs(c - n * q - m * (p - q)) - 0.5
            assert distance == pytest.approx(stats.norm.ppf(0.95) * sd)


def test_more_confidence_is_wider():
    survey = LocalFrequency(TEN, 1.0)
    reports = survey.perturb(ten_answers(1000), SeededCoins(5))
    narrow, wide = survey.estimate(reports, 0.5), survey.estimate(reports, 0.99)
    for own, more, joint in zip(
        narrow.interval, wide.interval, narrow.simultaneous_interval, strict=True
    ):
        assert more[0] < own[0] < own[1] < more[1]
        assert joint[0] < own[0] < own[1] < joint[1]


# Privacy.


@pytest.mark.parametrize(
    ("survey", "answers", "other"),
    [
        (LocalFrequency(TEN, 1.0), ten_answers(500), "j"),
        (LocalFrequency(TEN, 1.0), ten_answers(500), object()),
        (LocalCount(1.0), [1, 0] * 250, 1),
        (LocalCount(1.0), [1, 0] * 250, "maybe"),
        (LocalMean(0, 24, 1.0), [3.0, 20.0] * 250, 0.0),
        (LocalMean(0, 24, 1.0), [3.0, 20.0] * 250, math.nan),
        (LocalMean(0, 24, 1.0), [3.0, 20.0] * 250, 10**400),
    ],
)
def test_only_the_report_of_the_changed_person_differs(survey, answers, other):
    changed = [*answers[:137], other, *answers[138:]]
    one, two = (survey.perturb(values, SeededCoins(6)) for values in (answers, changed))
    assert one.shape == two.shape == (500,)
    assert one.dtype == two.dtype
    assert np.array_equal(np.delete(one, 137), np.delete(two, 137))
    assert survey.guarantee() == Guarantee(
        1.0, 0.0, Neighbours.REPLACE_ONE, "person", survey.guarantee().accountant
    )


@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_reports_of_two_answers_differ_by_e_to_the_epsilon_and_no_more(epsilon):
    """Ten per cent more or less than epsilon fails."""
    n = 300_000
    survey = LocalFrequency(("a", "b", "c"), epsilon)
    shares = [
        np.bincount(survey.perturb([answer] * n, SeededCoins(7)), minlength=3) / n
        for answer in ("a", "b")
    ]
    losses = np.log(shares[0] / shares[1])
    assert losses[0] == pytest.approx(epsilon, rel=0.05)
    assert losses[1] == pytest.approx(-epsilon, rel=0.05)
    assert losses[2] == pytest.approx(0, abs=0.05 * epsilon)


def test_the_server_never_sees_the_data():
    """Equal reports give equal estimates, whoever made them."""
    survey = LocalFrequency(("no", "yes"), 1.0)
    reports = survey.perturb(["no"] * 20, SeededCoins(8))
    elsewhere = LocalFrequency(("no", "yes"), 1.0, default="yes").estimate(reports.tolist())
    assert survey.estimate(reports) == elsewhere


def test_epsilons_of_several_surveys_add():
    from sfumato.accounting import account

    both = compose(LocalCount(1.0).event, LocalFrequency(TEN, 0.5).event)
    assert account(both, 0.0).epsilon == pytest.approx(1.5)
    with_number = compose(LocalCount(1.0).event, LocalMean(0, 24, 0.5).event)
    assert account(with_number, 0.0).epsilon == pytest.approx(1.5)


@pytest.mark.parametrize(
    "survey", [LocalCount(1.5), LocalFrequency(TEN, 1.5), LocalMean(0, 24, 1.5)]
)
def test_events_and_guarantees(survey):
    assert event_from_dict(json.loads(json.dumps(survey.event.to_dict()))) == survey.event
    assert survey.event.relation is Neighbours.REPLACE_ONE
    assert survey.event.unit_name == "person"
    assert str(survey.guarantee()) == "epsilon 1.5, delta 0, replace one person"


# Values that are none, and parameters that are none.


def test_answers_that_are_none_count_as_the_default():
    survey = LocalFrequency(("a", "b", 3), 60.0, default="b")  # so large that nobody lies
    odd = ["a", 3, 3.0, np.int64(3), "A", None, math.nan, ["a"], {}, 10**400, object(), Hostile()]
    expected = [0, 2, 2, 2, *[1] * 8]
    assert survey.perturb(odd).tolist() == expected
    assert survey.perturb(iter(odd)).tolist() == expected
    assert survey.perturb(np.array(["a", "b", "z"])).tolist() == [0, 1, 1]
    assert survey.perturb([]).shape == (0,)
    assert LocalFrequency(("a", "b"), 60.0).perturb(["z"]).tolist() == [0]
    assert LocalFrequency(("a", None), 60.0).perturb(["z", "a"]).tolist() == [1, 0]
    assert LocalCount(60.0).perturb([True, 0, "yes", 2, math.nan]).tolist() == [1, 0, 0, 0, 0]
    assert LocalCount(60.0, default=True).perturb(["yes"]).tolist() == [1]
    numbers = LocalMean(0, 24, 1e6, default=7).perturb([3, 99, -1, "x", math.inf, None])
    assert np.allclose(numbers, [3, 24, 0, 7, 7, 7], atol=0.01)


class Hostile:
    def __hash__(self):
        return hash("a")

    def __eq__(self, other):
        raise RuntimeError


def test_answers_from_a_data_frame():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"smokes": ["never", None, "daily"], "age": [30, 40, None]})
    survey = LocalFrequency(["never", "daily"], 60.0)
    assert survey.perturb(frame["smokes"]).tolist() == [0, 0, 1]
    assert survey.perturb(frame["smokes"].astype("category")).tolist() == [0, 0, 1]
    assert np.allclose(LocalMean(0, 100, 1e7).perturb(frame["age"]), [30, 40, 0], atol=0.01)


def test_bad_parameters():
    for categories in (["a"], ["a", "a"], [["a"], ["b"]], [math.nan, 1], []):
        with pytest.raises(ValueError, match="categories must be two or more"):
            LocalFrequency(categories, 1.0)
    with pytest.raises(ValueError, match="not one text"):
        LocalFrequency("yes", 1.0)
    with pytest.raises(ValueError, match="default must be one of"):
        LocalFrequency(("a", "b"), 1.0, default="c")
    with pytest.raises(ValueError, match="default must be True or False"):
        LocalCount(1.0, default=1)  # pyright: ignore
    for epsilon in (0, -1, math.nan, math.inf, "1"):
        for make in (LocalCount, lambda e: LocalMean(0, 1, e), lambda e: LocalFrequency(TEN, e)):
            with pytest.raises(ValueError, match="epsilon must be"):
                make(epsilon)
    with pytest.raises(ValueError, match="range"):
        LocalMean(1, 1, 1.0)
    with pytest.raises(ValueError, match="default must be"):
        LocalMean(0, 1, 1.0, default=2)


def test_a_single_text_is_not_repeated_in_the_error():
    with pytest.raises(ValueError, match="values must be a list") as error:
        LocalFrequency(("a", "b"), 1.0).perturb("secret")
    assert "secret" not in str(error.value)


def test_bad_reports_are_refused():
    for reports in ([], [0.5], [2], [-1], ["yes"]):
        with pytest.raises(ValueError, match="reports must be"):
            LocalCount(1.0).estimate(reports)
    for reports in ([], [math.nan], [math.inf, 1.0], ["x"]):
        with pytest.raises(ValueError, match="reports must be"):
            LocalMean(0, 1, 1.0).estimate(reports)
    for survey, reports in ((LocalCount(1.0), [1]), (LocalMean(0, 1, 1.0), [0.2])):
        with pytest.raises(ValueError, match="confidence must be"):
            survey.estimate(reports, confidence=1.0)


# Results.


def test_results_are_plain_records():
    found = LocalMean(0, 24, 0.5).estimate([3.0, 5.0])
    data = json.loads(json.dumps(found.to_dict()))
    assert (data["value"], data["epsilon"], data["neighbours"], data["unit"]) == (
        4.0,
        0.5,
        "replace-one",
        "person",
    )
    assert found.sum == 8.0
    assert found.sum_interval[1] == pytest.approx(2 * found.interval[1])
    assert str(found).startswith("4 (")
    assert "replace one person" in str(found)
    counts = LocalFrequency(np.array([1, 2, 3]), 1.0).estimate([0, 1, 1, 2])
    assert [row["category"] for row in json.loads(json.dumps(counts.to_dict()))["counts"]] == [
        1,
        2,
        3,
    ]
    assert sum(counts.value) == pytest.approx(4)
    assert sum(counts.frequencies.values()) == pytest.approx(1)
    assert str(counts).startswith("1: 0.418023 (")


def test_results_as_data_frames():
    pytest.importorskip("pandas")
    counts = LocalFrequency(("a", "b"), 1.0).estimate([0, 1, 1])
    frame = counts.to_frame()
    assert frame["category"].tolist() == ["a", "b"]
    assert frame["count"].tolist() == pytest.approx(list(counts.value))
    assert (frame["simultaneous_lower"] < frame["lower"]).all()
    row = LocalCount(1.0).estimate([0, 1]).to_frame().iloc[0]
    assert row["lower"] < row["value"] < row["upper"]
    assert row["people"] == 2
