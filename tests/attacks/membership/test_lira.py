"""LiRA: on normal laws it is the likelihood ratio; by scipy, number for number."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import logsumexp, softmax
from scipy.stats import norm, spearmanr

from sfumato.attacks.candidates import Candidates
from sfumato.attacks.membership.lira import (
    lira_attack,
    lira_each,
    lira_scores,
    phi,
    phi_from_logits,
)
from sfumato.attacks.membership.reports import MembershipReport
from sfumato.attacks.roc import Roc
from sfumato.attacks.targets import NotSeen, Target


def halves(random, models, examples):
    """Each example in exactly half of the models."""
    marks = np.arange(models)[:, None] < models // 2
    return random.permuted(np.broadcast_to(marks, (models, examples)), axis=0)


def ideal(random, models, examples, *, gap=1.5, sd_in=1.0, sd_out=1.0, queries=None):
    """Phis of normal laws with centres of every example's own, and the centres."""
    included = halves(random, models, examples)
    centres = random.normal(0, 4, examples)
    where = centres + gap * included
    spread = np.where(included, sd_in, sd_out)
    if queries is not None:
        where, spread = where[..., None], spread[..., None]
    shape = (models, examples) if queries is None else (models, examples, queries)
    return random.normal(where, spread, shape), included, centres


def auc(scores, included):
    return Roc.from_scores(scores[included], scores[~included]).auc


# The statistic.


@given(st.lists(st.floats(-30, 30), min_size=2, max_size=6), st.data())
def test_phi_is_the_logit_of_the_label(logits, data):
    y = data.draw(st.integers(0, len(logits) - 1))
    z = np.array(logits)
    expected = z[y] - logsumexp(np.delete(z, y))
    assert phi_from_logits([z], [y])[0] == pytest.approx(expected)
    assert phi([softmax(z)], [y])[0] == pytest.approx(expected, abs=1e-9)


def test_phi_keeps_what_one_minus_p_loses():
    z = np.array([[60.0, 0.0, 1.0]])
    p = softmax(z, axis=1)
    assert 1 - p[0, 0] == 0
    exact = 60 - math.log(1 + math.e)
    assert phi(p, [0])[0] == pytest.approx(exact)
    assert phi(p.astype(np.float32), [0])[0] == pytest.approx(exact, rel=1e-6)
    assert phi_from_logits([[3000.0, 0.0, -np.inf]], [0])[0] == 3000
    assert phi_from_logits(z + 1e4, [1])[0] == pytest.approx(0 - logsumexp([60, 1]))


def test_a_probability_of_nought_is_the_smallest_of_its_type():
    certain = np.array([[1.0, 0.0]])
    assert phi(certain, [0])[0] == pytest.approx(-math.log(5e-324))
    assert phi(certain.astype(np.float32), [0])[0] == pytest.approx(103.28, abs=0.01)
    assert phi(certain, [0], least=0.0005)[0] == pytest.approx(math.log(2000))
    assert phi(certain, [1], least=0.0005)[0] == pytest.approx(-math.log(2000))


def test_labels_serve_many_models_and_many_queries():
    p = np.random.default_rng(1).dirichlet(
        np.ones(4), (5, 3)
    )  # (models, examples) or (examples, queries)
    assert phi(p, [0, 1, 2])[4] == pytest.approx(phi(p[4], [0, 1, 2]))
    labels = np.array([0, 1, 2, 3, 0])
    assert phi(p, labels[:, None])[:, 1] == pytest.approx(phi(p[:, 1], labels))


# The ideal case.


@pytest.mark.parametrize("fixed", [True, False])
def test_with_many_models_the_score_is_the_exact_likelihood_ratio(fixed):
    """Laws of different widths; a width in wrong by a tenth moves the mean score by 0.15."""
    random = np.random.default_rng(2)
    phis, included, centres = ideal(random, 4000, 40, gap=1.5, sd_in=1.0, sd_out=2.0)
    target = random.normal(centres + 0.7, 1.5)
    scores = lira_scores(target, phis, included, fixed_variance=fixed)
    exact = norm.logpdf(target, centres + 1.5, 1.0) - norm.logpdf(target, centres, 2.0)
    assert scores == pytest.approx(exact, abs=0.35, rel=0.12)
    assert np.abs(scores - exact).mean() < 0.06
    offline = lira_scores(target, phis, included, online=False, fixed_variance=fixed)
    assert offline == pytest.approx((target - centres) / 2.0, abs=0.2, rel=0.05)


def test_the_area_is_that_of_the_best_test():
    """Phi(gap / sqrt 2), for normal laws of one width: nothing can do better."""
    random = np.random.default_rng(3)
    phis, included, _ = ideal(random, 128, 1500, gap=1.5)
    best = norm.cdf(1.5 / math.sqrt(2))
    online = auc(lira_each(phis, included, fixed_variance=True), included)
    assert online == pytest.approx(best, abs=0.008)
    offline = auc(lira_each(phis, included, online=False, fixed_variance=True), included)
    assert offline == pytest.approx(best, abs=0.01)
    one_threshold = auc(phis, included)
    assert one_threshold < 0.62  # examples differ far more than members from others


def test_the_widths_of_in_and_out_are_kept_apart():
    """Equal centres, widths 1 and 3: all that tells is the width. One width for both knows nothing.

    |phi| separates with AUC P(|N(0, 1)| < |N(0, 3)|) = 1 - 2 arctan(1 / 3) / pi.
    """
    random = np.random.default_rng(4)
    phis, included, _ = ideal(random, 40, 1000, gap=0.0, sd_in=1.0, sd_out=3.0)
    found = auc(lira_each(phis, included), included)
    best = 1 - 2 * math.atan(1 / 3) / math.pi
    assert best == pytest.approx(0.795, abs=0.001)
    assert best - 0.02 < found < best + 0.005
    by_one = _direct(phis, included, sd_out_from_in=True)
    assert auc(by_one, included) < best - 0.2


def _direct(phis, included, sd_out_from_in=False):
    """Each model in turn, by plain loops and scipy, one variance for all."""
    scores = np.empty(phis.shape)
    for t in range(len(phis)):
        rest, marks = np.delete(phis, t, 0), np.delete(included, t, 0)
        laws = []
        for side in (marks, ~marks):
            mean = np.array([rest[side[:, p], p].mean() for p in range(phis.shape[1])])
            residuals = np.where(side, rest - mean, 0.0)
            free = side.sum() - phis.shape[1]
            laws.append((mean, math.sqrt((residuals**2).sum() / free)))
        (mean_in, sd_in), (mean_out, sd_out) = laws
        sd_out = sd_in if sd_out_from_in else sd_out
        scores[t] = norm.logpdf(phis[t], mean_in, sd_in) - norm.logpdf(phis[t], mean_out, sd_out)
    return scores


# Number for number.


def test_each_model_in_turn_by_scipy():
    random = np.random.default_rng(5)
    phis, included, _ = ideal(random, 12, 30, sd_out=1.4)
    scores = lira_each(phis, included)
    direct = _direct(phis, included)
    assert scores == pytest.approx(direct)
    assert (scores.ravel().argsort() == direct.ravel().argsort()).all()


@pytest.mark.parametrize("online", [True, False])
@pytest.mark.parametrize("fixed", [True, False])
@pytest.mark.parametrize("medians", [True, False])
@pytest.mark.parametrize("queries", [None, 3])
@pytest.mark.parametrize("models", [9, 10])
def test_leaving_one_out_is_attacking_it_with_the_others(online, fixed, medians, queries, models):
    random = np.random.default_rng(6)
    phis, included, _ = ideal(random, models, 25, queries=queries)
    phis = phis.round(1)  # with ties
    options = {"online": online, "fixed_variance": fixed, "medians": medians}
    each = lira_each(phis, included, **options)
    for t in range(models):
        rest, marks = np.delete(phis, t, 0), np.delete(included, t, 0)
        assert each[t] == pytest.approx(lira_scores(phis[t], rest, marks, **options))


def test_own_variances_and_medians_by_scipy():
    random = np.random.default_rng(7)
    phis, included, _ = ideal(random, 80, 20)
    target = random.normal(size=20)
    scores = lira_scores(target, phis, included, medians=True)  # 80 models: variances of their own
    offline = lira_scores(target, phis, included, online=False)
    for p in range(20):
        inside, outside = phis[included[:, p], p], phis[~included[:, p], p]
        ratio = norm.logpdf(target[p], np.median(inside), inside.std(ddof=1)) - norm.logpdf(
            target[p], np.median(outside), outside.std(ddof=1)
        )
        assert scores[p] == pytest.approx(ratio)
        assert offline[p] == pytest.approx((target[p] - outside.mean()) / outside.std(ddof=1))


def test_the_number_of_models_decides_on_variances():
    random = np.random.default_rng(8)
    for models, fixed in ((62, True), (64, False)):
        phis, included, _ = ideal(random, models, 10)
        target = random.normal(size=10)
        chosen = lira_scores(target, phis, included)
        assert chosen == pytest.approx(lira_scores(target, phis, included, fixed_variance=fixed))
        other = lira_scores(target, phis, included, fixed_variance=not fixed)
        assert np.abs(chosen - other).max() > 0.01
    phis, included, _ = ideal(random, 64, 10)  # 63 shadows each
    assert lira_each(phis, included) == pytest.approx(
        lira_each(phis, included, fixed_variance=True)
    )


def test_several_queries_are_one_spherical_law():
    random = np.random.default_rng(9)
    phis, included, centres = ideal(random, 3000, 15, gap=0.8, sd_out=1.3, queries=4)
    target = random.normal(centres[:, None] + 0.8, 1.0, (15, 4))
    scores = lira_scores(target, phis, included, fixed_variance=False)
    at = centres[:, None]
    exact = (norm.logpdf(target, at + 0.8, 1.0) - norm.logpdf(target, at, 1.3)).sum(axis=1)
    assert scores == pytest.approx(exact, abs=0.5)
    assert np.abs(scores - exact).mean() < 0.12
    z = lira_scores(target, phis, included, online=False)
    assert z == pytest.approx((target - at).sum(axis=1) / (1.3 * 2), abs=0.2)


def test_four_queries_tell_as_much_as_theory_says():
    """Independent queries add up: AUC Phi(gap sqrt 4 / sqrt 2)."""
    random = np.random.default_rng(10)
    phis, included, _ = ideal(random, 400, 120, gap=0.6, queries=4)
    for online in (True, False):
        found = auc(lira_each(phis, included, online=online, fixed_variance=True), included)
        assert found == pytest.approx(norm.cdf(1.2 / math.sqrt(2)), abs=0.01)


def test_one_query_may_have_its_axis_or_not():
    random = np.random.default_rng(11)
    phis, included, _ = ideal(random, 10, 8)
    plain = lira_scores(phis[0], phis[1:], included[1:])
    assert lira_scores(phis[0][:, None], phis[1:, :, None], included[1:]).tolist() == plain.tolist()


# Offline.


def test_offline_rises_with_phi_however_far_out():
    """The paper's 1 - Pr[Z > phi] rounds to 1; two-sided densities would fall on the left."""
    random = np.random.default_rng(12)
    phis, included, _ = ideal(random, 32, 1)
    values = np.linspace(-60, 60, 241)
    scores = np.array([lira_scores([v], phis, included, online=False)[0] for v in values.tolist()])
    assert (np.diff(scores) > 0).all()
    paper = 1 - norm.sf(scores)
    assert len(np.unique(paper)) < 150  # what it loses
    assert spearmanr(paper, scores).statistic > 0.9
    by_density = -norm.logpdf(scores)
    assert (np.diff(by_density) < 0).any()


def test_offline_needs_no_model_with_the_example():
    random = np.random.default_rng(13)
    phis = random.normal(size=(6, 20))
    scores = lira_scores(np.zeros(20), phis, np.zeros((6, 20), bool), online=False)
    pooled = math.sqrt(phis.var(axis=0, ddof=1).mean())
    assert scores == pytest.approx(-phis.mean(axis=0) / pooled)


def test_a_pooled_report():
    random = np.random.default_rng(14)
    phis, included, _ = ideal(random, 16, 400, gap=2.0)
    scores = lira_each(phis, included)
    report = MembershipReport.from_scores(scores.ravel(), included.ravel(), attack="LiRA, online")
    assert report.power[0].found > 0.1
    assert report.exceeds(1.0)
    assert (included.ravel()[report.most_exposed(5)]).all()


def test_real_models_of_real_digits():
    """Sixteen kernel machines, each with half of 500 digits: LiRA beats one threshold for all.

    Measured over five draws: AUC 0.94 against 0.72, and 45 % found at 1 % false alarms against 0.
    """
    datasets = pytest.importorskip("sklearn.datasets")
    pixels, labels = datasets.load_digits(return_X_y=True)
    random = np.random.default_rng(16)
    chosen = random.choice(len(labels), 500, replace=False)
    x, y = pixels[chosen] / 16, labels[chosen]
    included = halves(random, 16, 500)
    likeness = np.exp(-((x[:, None] - x[None]) ** 2).sum(axis=2) / 4)
    phis = []
    for mine in included:
        inner = likeness[np.ix_(mine, mine)] + 0.3 * np.eye(int(mine.sum()))
        weights = np.linalg.solve(inner, np.eye(10)[y[mine]])
        phis.append(phi_from_logits(6 * likeness[:, mine] @ weights, y))
    phis = np.array(phis)
    ours = lira_each(phis, included)
    best, plain = (Roc.from_scores(s[included], s[~included]) for s in (ours, phis))
    assert best.auc == pytest.approx(0.94, abs=0.02)
    assert plain.auc == pytest.approx(0.725, abs=0.02)
    assert best.power_at(0.01) == pytest.approx(0.45, abs=0.05)
    assert plain.power_at(0.01) < 0.01


# The attack on a target.


def asked(random, models, examples, *, queries=1, gap=3.0):
    """Models' probabilities of three classes for all queries; the first model is the target."""
    phis, included, _ = ideal(random, 1 + models, examples, gap=gap, queries=queries)
    labels = random.integers(0, 3, examples)
    own = 1 / (1 + np.exp(-phis))[..., None]
    rows = np.where(labels[:, None, None] == [0, 1, 2], own, (1 - own) / 2)
    # Asked about x + query, it answers as for that query of example x.
    target = Target.of_scores(
        lambda x: rows[0, np.floor(x[:, 0]).astype(int), np.rint(4 * (x[:, 0] % 1)).astype(int)]
    )
    people = Candidates(np.arange(float(examples))[:, None], labels, included[0])
    return target, people, rows[1:], included[1:], phis


@pytest.mark.parametrize("online", [True, False])
def test_the_attack_is_the_scores_of_what_it_asks(online):
    target, people, rows, included, phis = asked(np.random.default_rng(20), 8, 500)
    report = lira_attack(target, people, rows[:, :, 0], included, online=online, confidence=0.9)
    direct = lira_scores(phis[0], phis[1:], included, online=online)
    assert report.scores == pytest.approx(direct)
    assert report.members.tolist() == people.members.tolist()
    assert report.auc > 0.85
    assert (report.queries, target.queries, report.confidence) == (500, 500, 0.9)
    assert report.attack == f"LiRA, {'online' if online else 'offline'}"
    assert len(report.calls) == 4  # of all, and of three classes


def test_the_attack_asks_about_changed_examples_too():
    target, people, rows, included, phis = asked(
        np.random.default_rng(21), 8, 300, queries=3, gap=1.5
    )
    changes = [lambda x: x + 0.25, lambda x: x + 0.5]
    report = lira_attack(target, people, rows, included, changes=changes, medians=True)
    assert report.scores == pytest.approx(
        lira_scores(phis[0], phis[1:], included, medians=True), rel=1e-6
    )
    assert report.queries == 900
    alone = lira_attack(target, people, rows[:, :, 0], included, fixed_variance=True)
    assert report.auc > alone.auc + 0.02


def test_what_is_rounded_to_0_counts_as_half_a_digit_for_all():
    """Otherwise a target's 1.00 would be thousands of shadows' standard deviations away."""
    target, people, rows, included, _ = asked(np.random.default_rng(22), 8, 200)
    shadows = rows[:, :, 0].round(2)
    report = lira_attack(target.rounded(2), people, shadows, included)
    own = phi(target.rounded(2).probabilities(people.inputs), people.labels, least=0.005)
    direct = lira_scores(own, phi(shadows, people.labels, least=0.005), included)
    assert report.scores == pytest.approx(direct)


def test_shadows_in_float32_are_no_farther_from_0_than_the_target():
    target = Target.of_scores(lambda x: np.tile([1.0, 0.0], (len(x), 1)))
    people = Candidates(np.arange(4.0)[:, None], np.zeros(4, int), np.arange(4) < 2)
    shadows = np.tile(np.array([1.0, 0.0], np.float32), (4, 4, 1))
    included = np.arange(4)[:, None] % 2 == np.zeros(4)
    assert lira_attack(target, people, shadows, included).scores == pytest.approx(0.0)


def test_the_attack_refuses_before_it_asks():
    target, people, rows, included, _ = asked(np.random.default_rng(23), 4, 20)
    with pytest.raises(NotSeen):
        lira_attack(target.showing("labels"), people, rows, included)
    for shadows, options in (
        (rows[:, 1:], {}),
        (rows[0, :, 0], {}),
        (rows[:, :, 0], {"changes": [lambda x: x + 0.25]}),
    ):
        with pytest.raises(ValueError, match=r"shadow_answers must be of shape \(models, 20"):
            lira_attack(target, people, shadows, included, **options)
    assert target.queries == 0


# What is refused.


def test_examples_without_models_are_counted():
    random = np.random.default_rng(15)
    phis, included, _ = ideal(random, 8, 20)
    included[:, :3] = False
    with pytest.raises(ValueError, match="3 of 20 examples have fewer than 1 shadow models with"):
        lira_scores(phis[0], phis, included)
    included[:, 3:5] = True
    with pytest.raises(
        ValueError, match="2 of 20 examples have fewer than 1 shadow models without"
    ):
        lira_scores(phis[0], phis, included, online=False)
    included = halves(random, 8, 20)
    included[:, 0] = np.arange(8) == 0  # a single model with it: not when that one is the target
    assert np.isfinite(lira_scores(phis[0], phis, included)).all()
    with pytest.raises(ValueError, match="1 of 20 examples have fewer than 1"):
        lira_each(phis, included)
    with pytest.raises(ValueError, match="1 of 20 examples have fewer than 2"):
        lira_scores(phis[0], phis, included, fixed_variance=False)
    with pytest.raises(ValueError, match="no example has two shadow models with it"):
        lira_scores(phis[0], phis[:2], [[True] * 20, [False] * 20])


def test_values_that_do_not_vary_are_no_error():
    scores = lira_scores([1.0], np.zeros((4, 1)), [[True], [True], [False], [False]])
    assert np.isfinite(scores).all()


def test_bad_arrays_are_refused():
    good = np.zeros((4, 3))
    marks = np.arange(4)[:, None] % 2 == np.zeros(3)
    for call, message in (
        (lambda: lira_scores(np.zeros(2), good, marks), "target_phi must be of the shadows' shape"),
        (lambda: lira_scores(np.full(3, np.nan), good, marks), "target_phi must be finite"),
        (lambda: lira_scores(np.zeros(3), good + np.inf, marks), "12 that are not"),
        (lambda: lira_scores(np.zeros(3), good, marks[:2]), "included must be"),
        (lambda: lira_scores(np.zeros(3), good, marks * 2), "included must be"),
        (lambda: lira_each(np.zeros(3), marks), "shadow_phi must be of shape"),
        (lambda: phi([0.5, 0.5], [0]), "the last axis must be"),
        (lambda: phi([[0.5, 0.5]], [2]), "labels must be classes below 2"),
        (lambda: phi([[0.5, 0.5]], [0, 0, 0]), "labels must be one for each"),
        (lambda: phi([[0.5, 0.5]], [0], least=0.0), "least must be"),
    ):
        with pytest.raises(ValueError, match=message):
            call()
