"""Relevance, inputs and label of one record as one game; and a run's own noise."""

import math
from dataclasses import replace

import numpy as np
import pytest

from sfumato.cli.audit_games import audit_draws, audit_product
from sfumato.core.randomness import SeededCoins
from sfumato.learning.adaptive_laplace.games import RELEASES, told_game
from sfumato.learning.adaptive_laplace.labels import NoisyLabels
from sfumato.mechanisms.laplace import Laplace


@pytest.mark.parametrize("labels", ["response", "one-hot"])
@pytest.mark.parametrize("release", RELEASES)
def test_the_law_is_at_the_claim(release, labels):
    made = told_game(release, epsilon=2.0, labels=labels, classes=3)
    found = audit_product(made)
    assert not found.refuted
    assert found.epsilon > 0.9999 * made.claim.epsilon
    assert (made.claim.epsilon == 2.0) == (release == "whole")


@pytest.mark.parametrize("release", [name for name in RELEASES if name != "labels"])
def test_laplace_noise_that_is_a_tenth_too_small_is_refuted(release, monkeypatch):
    calibrate = Laplace.calibrate.__func__

    def less(cls, sensitivity, *, epsilon, grid=None):
        made = calibrate(cls, sensitivity, epsilon=epsilon, grid=grid)
        return replace(made, scale=0.9 * made.scale)

    monkeypatch.setattr(Laplace, "calibrate", classmethod(less))
    found = audit_product(told_game(release, epsilon=2.0, relevance_share=0.3, labels="one-hot"))
    assert found.refuted
    assert found.epsilon == pytest.approx(found.claim.epsilon / 0.9, rel=1e-6)


@pytest.mark.parametrize("release", ["labels", "record", "whole"])
def test_a_label_that_is_told_a_tenth_too_clearly_is_refuted(release):
    made = told_game(release, epsilon=2.0, classes=4)
    clearer = NoisyLabels(1.1 * made.labels.epsilon, 4)
    assert audit_product(replace(made, labels=clearer)).refuted


def test_shares_do_not_change_what_inputs_show():
    made = told_game("inputs", epsilon=2.0)
    for share in (0.2, 1.0, 1.7):
        scales = made.told((share, 2 - share)).scales
        assert (1 / scales).sum() == pytest.approx(made.log_ratios[0], rel=1e-9)


def test_the_records_relevance_is_as_far_apart_as_can_be():
    made = told_game("relevance", epsilon=2.0)
    assert made.relevance is not None
    moved = made.log_ratios[0] * made.relevance.scale
    assert 2 * (1 - 1e-8) < moved <= 2


@pytest.mark.parametrize("release", RELEASES)
def test_draws_show_no_more(release):
    made = told_game(release, epsilon=4.0, coins=SeededCoins(2))
    (found,) = audit_draws(made, 400, 1 - 1e-9)
    assert not found.refuted


def test_draws_have_the_stated_law():
    made = told_game("record", epsilon=4.0, classes=2, coins=SeededCoins(3))
    drawn = made(made.first, 20_000)
    scales = made.told((1.0, 1.0)).scales
    spread = np.abs(drawn[:, :2] - [1.0, 0.0]).mean(axis=0)
    assert spread == pytest.approx(scales, rel=0.05)
    kept = (drawn[:, 2] == 0).mean()
    assert math.log(kept / (1 - kept)) == pytest.approx(made.log_ratios[1], rel=0.1)


def test_without_relevance():
    made = told_game("whole", epsilon=1.0, relevance_share=0.0, coins=SeededCoins(1))
    assert made.log_ratios[0] == 0
    assert made(made.first, 5).shape == (5, 3)
    assert 0.9999 < audit_product(made).epsilon <= 1


@pytest.mark.parametrize(
    ("release", "options", "message"),
    [
        ("magic", {}, "release must be one of"),
        ("relevance", {"relevance_share": 0.0}, "relevance_share must be above 0"),
        ("whole", {"classes": 1}, "classes must be"),
        ("whole", {"rows": 0}, "rows must be"),
        ("whole", {"label_share": 1.0}, "label_share must be"),
        ("whole", {"labels": "loud"}, "labels must be"),
    ],
)
def test_mistakes(release, options, message):
    with pytest.raises(ValueError, match=message):
        told_game(release, epsilon=1.0, **options)
