"""An attack model that learns from known members: halves, overfit models, honest ones."""

import numpy as np
import pytest
import torch

from sfumato.attacks.candidates import Candidates
from sfumato.attacks.membership.learned_gradients import known_and_asked, learned_gradient_attack
from sfumato.attacks.targets import Target


def people(members=60, others=140):
    random = np.random.default_rng(1)
    total = members + others
    rows = random.normal(size=(total, 12)).astype(np.float32)
    return Candidates(rows, random.integers(0, 2, total), np.arange(total) < members)


def overfit(candidates):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(12, 40), torch.nn.ReLU(), torch.nn.Linear(40, 2))
    mine = candidates.members
    rows, labels = (torch.tensor(x[mine]) for x in (candidates.inputs, candidates.labels))
    optimizer = torch.optim.Adam(model.parameters(), 0.02)
    for _ in range(150):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(rows), labels).backward()
        optimizer.step()
    return model


def test_halves_hold_half_of_either_kind_and_nobody_twice():
    both = people(61, 140)
    known, asked = known_and_asked(both, np.random.default_rng(1))
    assert (known.members.sum(), len(known)) == (30, 100)
    assert (asked.members.sum(), len(asked)) == (31, 101)
    rows = np.concatenate([known.inputs, asked.inputs])
    assert len(np.unique(rows, axis=0)) == len(both)


def test_who_learnt_labels_by_heart_is_found_out():
    """Labels are coins: half of the others have the label that the model would give them."""
    both = people()
    known, asked = known_and_asked(both, np.random.default_rng(1))
    report = learned_gradient_attack(Target.of_module(overfit(both)), asked, known)
    assert report.auc > 0.65
    assert (report.attack, report.members.sum()) == ("learned from gradients", 30)


def test_who_learnt_nothing_tells_nothing():
    both = people(400, 400)
    known, asked = known_and_asked(both, np.random.default_rng(1))
    torch.manual_seed(0)
    report = learned_gradient_attack(Target.of_module(torch.nn.Linear(12, 2)), asked, known)
    assert 0.4 < report.auc < 0.6


def test_further_columns_are_read():
    both = people(400, 400)
    known, asked = known_and_asked(both, np.random.default_rng(1))
    told = [some.members[:, None] + np.zeros((len(some), 2)) for some in (asked, known)]
    target = Target.of_module(torch.nn.Linear(12, 2))
    assert learned_gradient_attack(target, asked, known, further=(told[0], told[1])).auc == 1.0


def test_too_few_to_learn_from():
    with pytest.raises(ValueError, match="at least two members and two others"):
        known_and_asked(people(1, 5), np.random.default_rng(1))
