"""The textbook examples as a user would run them: the noise each needs, and what comes out."""

import math

import numpy as np
import pandas as pd
import pytest

import sfumato as sf
from sfumato.attacks import averaging
from sfumato.core.randomness import SeededCoins
from sfumato.data import credit_ratings, load_table


@pytest.fixture
def ledger(tmp_path):
    return f"sqlite:///{tmp_path}/privacy.db"


def protect(table, ledger, seed=1, budget=1000.0, **options):
    return sf.protect(
        table,
        name="example",
        budget=sf.Budget(budget),
        ledger=ledger,
        coins=SeededCoins(seed),
        **options,
    )


def noise_of(table, query):
    """The mechanisms a question was calibrated to: discrete Laplace for all of these."""
    return query.plan(table.facts).noise.mechanisms


@pytest.mark.slow
def test_credit_ratings_with_noisy_counts_of_standard_deviation_2(ledger):
    people = protect(
        credit_ratings(),
        ledger,
        unit="person_id",
        max_rows_per_unit=1,
        domains={"rating": ["Bad", "Normal", "Good"]},
    )
    # Continuous Laplace noise of sd 2 costs 1/sqrt(2); whole noise of sd 2 costs ln 2.
    question = sf.Histogram("rating", epsilon=math.log(2))
    (noise,) = noise_of(people, question)
    assert noise.standard_deviation == pytest.approx(2)
    answers = [people.ask(question)[0].values for _ in range(120)]
    for rating, truth in (("Bad", 3), ("Normal", 1510), ("Good", 200)):
        found = np.array([answer[rating] for answer in answers])
        assert found.mean() == pytest.approx(truth, abs=5 * 2 / math.sqrt(120))
        assert found.std() == pytest.approx(2, rel=0.25)
    assert people.status.reading == pytest.approx(120 * math.log(2), rel=1e-9)


def test_the_budget_stops_the_averaging_attack(ledger):
    people = protect(credit_ratings(), ledger, unit="person_id", max_rows_per_unit=1, budget=3.5)
    bad = people.where("rating = 'Bad'")
    answers = [int(bad.count(epsilon=math.log(2))) for _ in range(5)]
    for _ in range(3):
        with pytest.raises(sf.BudgetExceeded):
            bad.count(epsilon=math.log(2))
    assert averaging.estimate(answers, noise_sd=2.0).half_width == pytest.approx(1.4712, abs=1e-4)


def test_people_in_a_meeting_and_a_group_who_may_have_stayed_away(ledger):
    meeting = pd.DataFrame({"person": range(41)})
    people = protect(meeting, ledger, unit="person", max_rows_per_unit=1)
    (noise,) = noise_of(people, sf.Count(epsilon=0.5))
    assert noise.scale == 2
    assert noise.sensitivity.bound == 1
    answer = people.count(epsilon=0.5)
    assert abs(answer.value - 41) <= 40
    assert answer.guarantee.for_group(3).epsilon == 1.5


@pytest.mark.slow
def test_heights_of_a_group_in_feet(ledger):
    heights = pd.DataFrame({"height": [5.5, 6.0, 7.9, 4.9, None]})
    people = protect(heights, ledger, unit_name="person")
    question = sf.Sum("height", 0, 7, epsilon=1.0)
    (noise,) = noise_of(people, question)
    grid = question.measure.grid
    assert grid.value(noise.sensitivity.bound) == 7
    found = [float(people.ask(question)[0]) for _ in range(150)]
    assert np.mean(found) == pytest.approx(5.5 + 6 + 7 + 4.9, abs=5 * 7 * math.sqrt(2 / 150))
    assert np.std(found) == pytest.approx(7 * math.sqrt(2), rel=0.25)


def test_salaries_of_groups_of_four(ledger):
    # A group is present or absent as a whole: up to four salaries of up to 50,000.
    staff = pd.DataFrame({"team_id": np.repeat(range(25), 4), "salary": [40_000.0] * 99 + [1e9]})
    teams = protect(staff, ledger, unit="team_id", max_rows_per_unit=4)
    question = sf.Sum("salary", 0, 50_000, epsilon=1.0)
    (noise,) = noise_of(teams, question)
    assert question.measure.grid.value(noise.sensitivity.bound) == 200_000
    assert teams.facts.unit == "team"
    assert float(teams.ask(question)[0]) == pytest.approx(99 * 40_000 + 50_000, abs=3e6)


def test_the_mean_of_values_in_0_1(ledger):
    values = pd.DataFrame({"x": np.linspace(0, 1, 2001)})
    known_size = protect(values, ledger, unit_name="person", neighbours="replace-one")
    answer = known_size.mean("x", 0, 1, epsilon=1.0)
    assert float(answer) == pytest.approx(0.5, abs=0.02)
    low, high = answer.interval
    assert low <= 0.5 <= high
    # Never calibrated to the private number of rows: the sum moves by half a range a row, twice.
    count, total = noise_of(known_size, sf.Mean("x", 0, 1, epsilon=1.0))
    assert count.sensitivity.bound == 2
    grid = sf.Mean("x", 0, 1, epsilon=1.0).measure.grid
    assert grid.value(total.sensitivity.bound) == 1


def test_a_histogram_of_education_and_a_contingency_table(ledger):
    census = load_table("census2000")
    people = protect(census, ledger, unit="person_id", max_rows_per_unit=1, budget=10)
    levels = people.histogram("educ", [0, 8, 12, 13, 16, 21], epsilon=1.0)
    exact, _ = np.histogram(census.educ, [0, 8, 12, 13, 16, 21])
    assert all(abs(a - b) < 30 for a, b in zip(levels.values.values(), exact, strict=True))
    assert levels.guarantee.epsilon == 1.0  # for all bins together: parts are disjoint
    states = ["Texas", "Ohio", "Alabama"]
    table = people.where("educ >= 0").crosstab(
        "state", "educ", keys={"state": states, "educ": [12, 13, 16]}, epsilon=1.0
    )
    exact_table = pd.crosstab(census.state, census.educ)
    for (state, educ), value in table.values.items():
        assert abs(value - exact_table.loc[state, educ]) < 30


def test_disease_incidence_by_population(ledger):
    rng = np.random.default_rng(5)
    visits = pd.DataFrame(
        {
            "patient_id": rng.integers(0, 3000, 6000),
            "population": rng.choice(["north", "south", "islands"], 6000),
            "ill": rng.random(6000) < 0.1,
        }
    )
    patients = protect(
        visits, ledger, unit="patient_id", max_rows_per_unit=3, max_groups_per_unit=1
    )
    places = patients.group_by("population", keys=["north", "south", "islands"])
    share = places.mean("ill", 0, 1, epsilon=2.0)
    ill = patients.where("ill").group_by("population", keys=["north", "south", "islands"])
    people = ill.count_units(epsilon=1.0)
    for place in ("north", "south", "islands"):
        assert share[place] == pytest.approx(0.1, abs=0.05)
        assert 50 < people[place] < 250


def test_the_best_date_for_a_meeting_and_the_most_popular_film(ledger):
    votes = pd.DataFrame(
        {
            "person": np.repeat(range(100), 2),
            "date": ["monday", "friday"] * 90 + ["tuesday", "friday"] * 10,
        }
    )
    people = protect(votes, ledger, unit="person", max_rows_per_unit=2)
    best = people.most_common("date", keys=["monday", "tuesday", "friday"], epsilon=3.0)
    assert best.value in ("monday", "friday")
    assert best.interval is None
