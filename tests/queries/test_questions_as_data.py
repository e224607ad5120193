"""Questions as configurations: JSON and back, and what a group-by takes from its question."""

import inspect
import json

import pytest

from sfumato.queries import (
    ArgMax,
    Count,
    CountUnits,
    Crosstab,
    GroupBy,
    Histogram,
    Mean,
    Median,
    MostCommon,
    Quantile,
    Sum,
    Variance,
    kinds,
    query_from_dict,
)

P = {"epsilon": 0.1}
QUESTIONS = [
    Count(**P),
    CountUnits(delta=1e-6, **P),
    Sum("age", 0, 100, **P),
    Mean("age", 0, 100, default=5, **P),
    Variance("age", 0, 100, confidence=0.9, **P),
    Quantile("age", 0.9, 0, 100, **P),
    Median("age", 0, 100, candidates=4, interval=False, **P),
    Histogram("age", (0, 50, 100), **P),
    Crosstab(("city", "yes"), {"city": ["Rome"]}, **P),
    GroupBy(("city",), Mean("age", 0, 100, **P), {"city": ["Rome"]}),
    GroupBy(("city", "yes"), Median("age", 0, 100, **P)),
    GroupBy(("city",), Count(delta=1e-6, **P), private_keys=True, key_share=0.25),
    MostCommon("city", winners=2, **P),
    ArgMax("city", "age", 0, 100, ["Rome"], **P),
]


@pytest.mark.parametrize("query", QUESTIONS, ids=lambda query: query.describe())
def test_questions_survive_json(query):
    data = json.loads(json.dumps(query.to_dict()))
    assert query_from_dict(data).to_dict() == data


def test_a_group_by_has_the_price_of_its_question():
    of = Mean("age", 0, 100, epsilon=0.5, delta=1e-6, where="yes", confidence=0.9)
    query = GroupBy(("city",), of)
    assert (query.epsilon, query.delta, query.where, query.confidence) == (0.5, 1e-6, "yes", 0.9)
    other = query.about("age > 5")
    assert (other.where, other.of.where, query.where) == ("age > 5", "age > 5", "yes")
    assert query.describe() == "mean of age by city"
    assert not query.to_dict().keys() & {"epsilon", "delta", "where", "confidence"}
    with pytest.raises(TypeError, match="epsilon"):
        GroupBy(("city",), of, epsilon=0.5)


def test_a_price_in_json_may_stand_beside_the_grouped_question():
    """Older records repeat it."""
    of, price = {"query": "count", "epsilon": 0.5}, {"delta": 0.0, "confidence": 0.9, "where": "a"}
    query = query_from_dict({"query": "group-by", "columns": ["city"], "of": of} | price)
    assert query == GroupBy(["city"], Count(epsilon=0.5, confidence=0.9, where="a"))
    assert query == query_from_dict({"by": "city"} | of | price)
    with pytest.raises(ValueError, match="the epsilon of a group-by must be that of its question"):
        query_from_dict({"query": "group-by", "columns": ["city"], "of": of, "epsilon": 1})
    with pytest.raises(ValueError, match=r"Count is not well formed: .*epsilon"):
        query_from_dict({"query": "group-by", "columns": ["city"], "of": {"query": "count"}})


def test_the_median_is_the_quantile_at_a_half():
    assert Median("age", 0, 100, 4, False, epsilon=1.0).quantile == 0.5
    with pytest.raises(TypeError, match="quantile"):
        Median("age", 0, 100, quantile=0.9, epsilon=1.0)


def test_every_question_is_final_and_what_they_share_is_private():
    here = [
        c for c in vars(kinds).values() if inspect.isclass(c) and c.__module__ == kinds.__name__
    ]
    assert {c.__name__ for c in here if getattr(c, "__final__", False)} == set(kinds.__all__)
    assert all(c.__name__.startswith("_") for c in here if c.__name__ not in kinds.__all__)
