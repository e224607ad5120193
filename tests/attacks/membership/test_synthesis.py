"""Records made up: classified as asked, at the price that the algorithm says."""

import json
import math

import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression

from sfumato.attacks.candidates import Candidates
from sfumato.attacks.membership.record_features import Binary, Marginal, Within
from sfumato.attacks.membership.shadow_attack import shadow_attack, train_shadows
from sfumato.attacks.membership.synthesis import hill_climb, independent, noisy
from sfumato.attacks.targets import NotSeen, Target


def constant(first):
    """A model that says the same of everything."""
    return Target.of_scores(lambda x: np.tile([first, 1 - first], (len(x), 1)))


def purchases(random, rows, rates):
    labels = random.integers(0, len(rates), rows)
    return (random.random((rows, rates.shape[1])) < rates[labels]).astype(float), labels


@pytest.fixture(scope="module")
def shop():
    """A model of five kinds of customers by 80 goods, and the goods' rates."""
    random = np.random.default_rng(1)
    rates = random.uniform(0.1, 0.9, (5, 80))
    x, y = purchases(random, 1500, rates)
    return LogisticRegression(max_iter=500).fit(x, y), rates


def test_records_are_classified_as_asked_with_the_probability_asked_for(shop):
    model, _ = shop
    target = Target.of_scores(model.predict_proba)
    wanted = np.arange(200) % 5
    made = hill_climb(
        target, wanted, Binary(80), least_probability=0.6, generator=np.random.default_rng(2)
    )
    assert made.found.all()
    inputs, labels = made.records
    again = model.predict_proba(inputs)
    assert np.array_equal(again.argmax(axis=1), wanted)
    assert np.array_equal(labels, wanted)
    assert again[np.arange(200), wanted] == pytest.approx(made.probabilities)
    assert made.probabilities.min() > 0.6
    assert set(np.unique(inputs)) == {0.0, 1.0}
    assert len(np.unique(inputs, axis=0)) > 190
    assert made.queries.sum() == target.queries
    assert made.queries_per_record == target.queries / 200


def test_numbers_within_bounds():
    target = Target.of_scores(
        lambda x: np.stack([1 / (1 + np.exp(x.sum(axis=1))), 1 / (1 + np.exp(-x.sum(axis=1)))], 1)
    )
    bounds = Within((-1.0, 0.0, 5.0), (1.0, 0.5, 6.0))
    made = hill_climb(
        target,
        [1] * 50,
        bounds,
        least_probability=0.9,
        most_changed=2,
        fewest_changed=1,
        generator=np.random.default_rng(3),
    )
    assert made.found.all()
    assert (made.inputs >= bounds.lower).all()
    assert (made.inputs <= bounds.upper).all()


@pytest.mark.parametrize("probability", [0.6, 0.9])
def test_a_good_record_is_taken_with_its_probability(probability):
    """Every question ends a climb with this probability: 1 / p questions, sd sqrt(1 - p) / p."""
    made = hill_climb(
        constant(probability), np.zeros(4000), Binary(5), generator=np.random.default_rng(4)
    )
    sd = math.sqrt(1 - probability) / probability
    assert made.queries.mean() == pytest.approx(1 / probability, abs=4 * sd / math.sqrt(4000))
    assert made.queries.std() == pytest.approx(sd, rel=0.1)


@pytest.mark.parametrize(
    ("first", "wanted", "least_probability"), [(0.6, 0, 0.6), (0.4, 0, 0.2), (0.7, 1, 0.2)]
)
def test_never_without_the_probability_nor_for_another_class(first, wanted, least_probability):
    made = hill_climb(
        constant(first),
        [wanted] * 20,
        Binary(5),
        least_probability=least_probability,
        most_queries=30,
        generator=np.random.default_rng(5),
    )
    assert not made.found.any()
    assert made.queries.tolist() == [30] * 20
    assert made.queries_per_record is None
    assert made.records[0].shape == (0, 5)


def test_ever_fewer_features_change_while_nothing_is_gained():
    """16 until more than 2 refusals in a row, then 8, 4 and at last 3."""
    asked = []

    def falling(inputs):
        asked.append(inputs[0].copy())
        told = 0.4 / len(asked)
        return np.array([[told, 1 - told]])

    hill_climb(
        Target.of_scores(falling),
        [0],
        Binary(64),
        most_changed=16,
        fewest_changed=3,
        most_refusals=2,
        most_queries=13,
        generator=np.random.default_rng(6),
    )
    changed = [int((row != asked[0]).sum()) for row in asked[1:]]
    assert changed == [16, 16, 16, 8, 8, 8, 4, 4, 4, 3, 3, 3]


def test_what_rises_is_kept_and_refusals_are_forgotten():
    asked, answers = [], [0.1, 0.05, 0.2, 0.1, 0.1, 0.3, 0.2]

    def scripted(inputs):
        asked.append(inputs[0].copy())
        told = answers[len(asked) - 1]
        return np.array([[told, 1 - told]])

    made = hill_climb(
        Target.of_scores(scripted),
        [0],
        Binary(64),
        most_changed=8,
        most_refusals=2,
        most_queries=7,
        generator=np.random.default_rng(7),
    )
    best = [0, 0, 2, 2, 2, 5]  # which record each later proposal started from
    distances = [int((asked[i + 1] != asked[start]).sum()) for i, start in enumerate(best)]
    assert distances == [8] * 6  # never three refusals in a row
    assert np.array_equal(made.inputs[0], asked[5])
    assert made.probabilities.tolist() == [0.3]


def test_a_limited_target_ends_the_climb_with_what_was_found():
    target = constant(0.6).limited(150)
    made = hill_climb(target, np.zeros(100), Binary(5), generator=np.random.default_rng(8))
    assert target.queries <= 150
    assert 0 < made.found.sum() < 100
    assert made.queries.sum() == target.queries
    assert made.queries.max() <= 2


def test_noise_changes_the_share_it_says(shop):
    random = np.random.default_rng(9)
    records, _ = purchases(random, 2000, shop[1])
    spoilt = noisy(records, Binary(80), 0.1, generator=random)
    assert ((spoilt != records).sum(axis=1) == 8).all()
    assert (spoilt != records).mean(axis=0) == pytest.approx(0.1, abs=4.5 * 0.3 / math.sqrt(2000))
    bounds = Within.alike(80, 0.0, 1.0)
    moved = noisy(records, bounds, 0.2, generator=random)
    assert ((moved != records).sum(axis=1) == 16).all()
    drawn = moved[moved != records]
    assert drawn.mean() == pytest.approx(0.5, abs=4 * math.sqrt(1 / 12 / len(drawn)))
    assert np.array_equal(noisy(records, Binary(80), 0.0, generator=random), records)


def test_independent_records_have_the_marginals_and_nothing_else():
    random = np.random.default_rng(10)
    marginals = [Marginal.binary(0.2), Marginal.histogram([0, 1], [1.0]), Marginal.binary(0.7)]
    made = independent(marginals, 20_000, generator=random)
    assert made.mean(axis=0) == pytest.approx([0.2, 0.5, 0.7], abs=4 * 0.5 / math.sqrt(20_000))
    assert np.corrcoef(made.T)[np.triu_indices(3, 1)] == pytest.approx(0, abs=0.03)


def test_an_attack_from_made_up_data_finds_members():
    """Shadows see noisy records, independent ones or climbed ones; the target's data never."""
    random = np.random.default_rng(11)
    rates = random.uniform(0.2, 0.8, (3, 40))

    def train(x, y):
        forest = RandomForestClassifier(20, random_state=0).fit(x, y)
        return Target.of_scores(forest.predict_proba)

    (inside, in_labels), (outside, out_labels) = (purchases(random, 200, rates) for _ in "ab")
    target = train(inside, in_labels)
    both = Candidates.of((inside, in_labels), (outside, out_labels))
    real, labels = purchases(random, 500, rates)
    noised = noisy(real, Binary(40), 0.1, generator=random)
    drawn = independent([Marginal.binary(r) for r in rates.mean(axis=0)], 500, generator=random)
    climbed = hill_climb(
        target, random.integers(0, 3, 500), Binary(40), most_changed=16, generator=random
    ).records
    for x, y in ((noised, labels), (drawn, target.labels(drawn)), climbed):
        outputs = train_shadows(train, x, y, shadows=2, size=200, generator=random)
        report = shadow_attack(target, both, outputs, generator=random)
        assert report.auc_interval[0] > 0.7


def test_the_result_is_for_the_curator():
    made = hill_climb(constant(0.9), [0, 0], Binary(3), generator=np.random.default_rng(12))
    data = json.loads(json.dumps(made.to_dict()))
    assert data["channel"] == "curator"
    assert (data["asked"], data["found"]) == (2, 2)
    assert str(made).startswith("2 of 2 records found with")


def test_bad_parameters_are_refused():
    random = np.random.default_rng(13)
    with pytest.raises(NotSeen, match="needs scores"):
        hill_climb(constant(0.9).showing("labels"), [0], Binary(3), generator=random)
    with pytest.raises(ValueError, match="classes of the target, 0 to 1"):
        hill_climb(constant(0.9), [2], Binary(3), generator=random)
    with pytest.raises(ValueError, match="labels must be"):
        hill_climb(constant(0.9), [-1], Binary(3), generator=random)
    for wrong in (
        {"most_changed": 0},
        {"fewest_changed": 0},
        {"least_probability": 1.0},
        {"most_refusals": -1},
    ):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            hill_climb(constant(0.9), [0], Binary(3), generator=random, **wrong)
    with pytest.raises(ValueError, match="number of labels"):
        hill_climb(constant(0.9), [], Binary(3), generator=random)
    with pytest.raises(ValueError, match="share must be"):
        noisy([[0, 1, 0]], Binary(3), 1.5, generator=random)
    with pytest.raises(ValueError, match="rows of 3 features"):
        noisy([[0, 1]], Binary(3), 0.5, generator=random)
    with pytest.raises(ValueError, match="marginals must be"):
        independent([], 3, generator=random)
