"""Attacks on hard labels: the gap is the gap, and memory survives small changes."""

import numpy as np
import pytest

from sfumato.attacks.candidates import Candidates
from sfumato.attacks.membership.label_only import (
    bit_flips,
    gap_attack,
    gap_scores,
    gaussian_noise,
    robustness_attack,
    robustness_scores,
    shifts,
)
from sfumato.attacks.targets import BudgetSpent, NotSeen, Target


def nearest(inputs, labels):
    """A model that remembers: the label of the nearest example of its training data."""

    def answer(rows):
        flat, known = rows.reshape(len(rows), -1), inputs.reshape(len(inputs), -1)
        distances = (flat**2).sum(1)[:, None] - 2 * flat @ known.T + (known**2).sum(1)
        return labels[distances.argmin(axis=1)]

    return Target.of_labels(answer, "nearest neighbour")


@pytest.fixture(scope="module")
def remembered():
    """200 members and 200 others with labels by chance, four classes."""
    random = np.random.default_rng(1)
    inputs, labels = random.normal(size=(400, 6)), random.integers(0, 4, 400)
    candidates = Candidates.of((inputs[:200], labels[:200]), (inputs[200:], labels[200:]))
    return nearest(inputs[:200], labels[:200]), candidates


def test_the_gap_attack_has_the_gap_as_its_advantage(remembered):
    target, candidates = remembered
    report = gap_attack(target, candidates)
    right = target.labels(candidates.inputs) == candidates.labels
    inside, outside = (right[side].mean() for side in (candidates.members, ~candidates.members))
    assert inside == 1
    assert 0.1 < outside < 0.4
    assert report.roc.advantage == pytest.approx(inside - outside)
    assert report.auc == pytest.approx((1 + inside - outside) / 2)
    every = report.calls[0]
    assert (every.recall, every.false_alarms) == (1, int(right[200:].sum()))
    assert report.own_threshold
    assert report.queries == 400


def test_labels_of_members_survive_noise_longer(remembered):
    """Noise tells among those that are right, too, where the gap attack has nothing to say."""
    target, candidates = remembered
    changes = gaussian_noise(0.3, 25, generator=np.random.default_rng(2))
    report = robustness_attack(target, candidates, changes)
    assert report.auc > gap_attack(target, candidates).auc
    assert report.queries == 400 * 26
    right = gap_scores(target.labels(candidates.inputs), candidates.labels) == 1
    inside, outside = candidates.members & right, ~candidates.members & right
    assert report.scores[inside].mean() > report.scores[outside].mean() + 0.05
    assert report.scores * 26 == pytest.approx(np.rint(report.scores * 26))


def test_the_share_that_survives_is_that_of_the_noise():
    """At distance 1 from the boundary, noise of sd 1 leaves Phi(1) = 0.841 of the answers right."""
    target = Target.of_labels(lambda rows: (rows[:, 0] > 0).astype(int))
    scores = robustness_scores(
        target,
        np.ones((400, 1)),
        np.ones(400),
        gaussian_noise(1.0, 50, generator=np.random.default_rng(3)),
    )
    assert scores.mean() == pytest.approx((1 + 50 * 0.8413) / 51, abs=4 * 0.37 / np.sqrt(20_000))


def test_shifts_are_all_those_of_a_distance():
    picture = np.zeros((1, 5, 5))
    picture[0, 2, 2] = 1.0
    for distance in (1, 2):
        moved = [change(picture)[0] for change in shifts(distance)]
        places = {tuple(map(int, np.argwhere(one == 1)[0])) for one in moved}
        assert len(moved) == len(places) == 4 * distance
        assert {abs(i - 2) + abs(j - 2) for i, j in places} == {distance}
    assert picture.sum() == 1  # the pictures themselves stay


def test_shifts_repeat_the_border_and_know_where_channels_are():
    ramp = np.tile(np.arange(4.0), (1, 4, 1))
    rows = {tuple(change(ramp)[0, 0].tolist()) for change in shifts(1)}
    assert rows == {(0, 1, 2, 3), (0, 0, 1, 2), (1, 2, 3, 3)}
    last = np.repeat(ramp[..., None], 3, axis=3)
    for plain, coloured in zip(shifts(1), shifts(1, axes=(1, 2)), strict=True):
        assert (coloured(last)[..., 1] == plain(ramp)).all()


def test_pictures_learnt_by_heart_are_told_by_shifts():
    random = np.random.default_rng(4)
    smooth = random.normal(size=(200, 4, 4)).repeat(2, axis=1).repeat(2, axis=2)
    labels = random.integers(0, 3, 200)
    target = nearest(smooth[:100], labels[:100])
    candidates = Candidates.of((smooth[:100], labels[:100]), (smooth[100:], labels[100:]))
    report = robustness_attack(target, candidates, shifts(1))
    assert report.queries == 200 * 5
    assert report.auc > 0.8


def test_bits_flip_at_their_rate():
    rows = np.tile([0, 1], (500, 50))
    (change, again) = bit_flips(0.1, 2, generator=np.random.default_rng(5))
    changed = change(rows)
    assert np.isin(changed, (0, 1)).all()
    assert (changed != rows).mean() == pytest.approx(0.1, abs=4 * 0.3 / np.sqrt(50_000))
    assert (again(rows) != changed).any()


def test_a_limited_target_answers_so_far_and_no_further(remembered):
    target, candidates = remembered
    changes = gaussian_noise(0.1, 3, generator=np.random.default_rng(6))
    assert robustness_attack(target.limited(1600), candidates, changes).queries == 1600
    with pytest.raises(BudgetSpent):
        robustness_attack(target.limited(1599), candidates, changes)


def test_bad_parameters_are_refused(remembered):
    target, candidates = remembered
    losses = Target.of_losses(lambda inputs, labels: np.zeros(len(labels)))
    with pytest.raises(NotSeen, match="needs labels"):
        gap_attack(losses, candidates)
    with pytest.raises(NotSeen, match="needs labels"):
        robustness_attack(losses, candidates, [np.negative])
    with pytest.raises(ValueError, match="changes must be at least one"):
        robustness_attack(target, candidates, [])
    with pytest.raises(ValueError, match="one that keeps the shape"):
        robustness_attack(target, candidates, [lambda rows: rows[:1]])
    with pytest.raises(ValueError, match="same length"):
        gap_scores([1], [1, 2])
    for bad in (lambda: shifts(0), lambda: gaussian_noise(0.0, 1, generator=None)):
        with pytest.raises(ValueError, match="must be"):
            bad()
    with pytest.raises(ValueError, match="rate must be"):
        bit_flips(1.0, 1, generator=np.random.default_rng(7))
