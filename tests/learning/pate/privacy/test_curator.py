from __future__ import annotations

import json
import math

import numpy as np
import pytest

from sfumato.learning.pate.aggregators import (
    ConfidentMax,
    GaussianMax,
    InteractiveMax,
    LaplaceMax,
)
from sfumato.learning.pate.privacy.curator import agreement, curator_view
from sfumato.learning.pate.privacy.planning import epsilon_after

RNG = np.random.default_rng(11)
VOTES = RNG.multinomial(250, [0.8] + [0.2 / 9] * 9, size=300)
CONFIDENT = ConfidentMax(sigma=40, threshold=150, sigma_check=100)


def test_histogram_counts_every_question() -> None:
    found = agreement([[10, 0], [5, 5], [0, 0], [9, 1], [math.nan, 3]], bins=10)
    assert found.counts == (1, 0, 0, 0, 0, 1, 0, 0, 0, 3)
    assert len(found.edges) == 11


@pytest.mark.parametrize("aggregator", [LaplaceMax(0.05), GaussianMax(40.0), CONFIDENT])
def test_curves_grow_and_the_independent_one_is_the_accountants(aggregator) -> None:
    answered = RNG.random(300) < 0.6
    view = curator_view(VOTES, aggregator, 1e-5, answered=answered, points=20)
    curve = view.curve
    assert curve.questions[0] == 1
    assert curve.questions[-1] == 300
    assert curve.answers[-1] == answered.sum()
    for line in (curve.independent, curve.dependent):
        assert (np.diff(line) >= -1e-9).all()
    assert all(d <= i + 1e-9 for d, i in zip(curve.dependent, curve.independent, strict=True))
    expected = epsilon_after(aggregator, int(answered.sum()), 1e-5, questions=300, accountant="rdp")
    assert curve.independent[-1] == pytest.approx(expected.epsilon, rel=1e-9)


def test_view_says_whom_it_is_for_and_survives_odd_votes() -> None:
    view = curator_view([[math.nan, 4, 2], [math.inf, -1, 9]], GaussianMax(4.0), 1e-5)
    data = json.loads(json.dumps(view.to_dict()))
    assert data["curator_only"] is True
    assert all(math.isfinite(epsilon) for epsilon in data["curve"]["dependent"])


def test_interactive_view_needs_opinions() -> None:
    asks = InteractiveMax(sigma=40, threshold=100, sigma_check=150, teachers=250)
    with pytest.raises(ValueError, match="opinions must be given"):
        curator_view(VOTES, asks, 1e-5)
    view = curator_view(VOTES, asks, 1e-5, opinions=np.full(VOTES.shape, 0.1))
    assert view.curve.dependent[-1] <= view.curve.independent[-1]


def test_many_questions_are_quick_enough_to_be_one_call() -> None:
    votes = RNG.multinomial(250, [0.6] + [0.4 / 9] * 9, size=5000)
    view = curator_view(votes, CONFIDENT, 1e-5, points=10)
    assert sum(view.agreement.counts) == 5000
    with pytest.raises(ValueError, match="answered must be"):
        curator_view(votes, CONFIDENT, 1e-5, answered=[True])
