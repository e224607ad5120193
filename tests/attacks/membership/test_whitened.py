"""Members' own gradients in the weights, where everybody's are much alike."""

import numpy as np
import pytest
import torch

from sfumato.attacks.candidates import Candidates
from sfumato.attacks.membership.white_box import alignment_scores
from sfumato.attacks.membership.whitened import whitened_attack, whitened_scores
from sfumato.attacks.roc import Roc
from sfumato.attacks.targets import Target

WIDTH, MEMBERS = 120, 30


@pytest.fixture(scope="module")
def game():
    """Inputs that share a few strong directions; a step on the first thirty of them."""
    random = np.random.default_rng(1)
    directions = 6 * random.normal(size=(4, WIDTH))
    rows = random.normal(size=(400, 4)) @ directions + random.normal(size=(400, WIDTH))
    rows, labels = rows.astype(np.float32), random.integers(0, 2, 400)
    model = torch.nn.Linear(WIDTH, 2)
    torch.nn.init.zeros_(model.weight)
    torch.nn.init.zeros_(model.bias)
    start = Target.of_module(model, view="gradients")
    update = -0.1 * start.gradients(rows[:MEMBERS], labels[:MEMBERS]).sum(axis=0)
    candidates = Candidates(rows[:200], labels[:200], np.arange(200) < MEMBERS)
    return start, candidates, update, (rows[200:], labels[200:])


def test_members_are_found_where_an_inner_product_finds_few(game):
    start, candidates, update, population = game
    report = whitened_attack(start, candidates, update, population)
    plain = alignment_scores(start, candidates.inputs, candidates.labels, update)
    inside = candidates.members
    assert Roc.from_scores(plain[inside], plain[~inside]).auc < 0.75
    assert report.auc > 0.9
    assert report.attack == "whitened weights"
    assert report.queries == 400


def test_the_score_is_what_it_says(game):
    """By F itself, in as many dimensions as there are weights."""
    start, candidates, update, population = game
    few = candidates.inputs[:5], candidates.labels[:5]
    shared, own = (start.gradients(*some).astype(np.float64) for some in (population, few))
    products = shared.T @ shared
    ridge = 1e-2 * np.trace(products) / len(shared)
    inverse = np.linalg.inv(products + ridge * np.eye(len(products)))
    wanted = own @ inverse @ -update / np.sqrt(np.einsum("ij,jk,ik->i", own, inverse, own))
    found = whitened_scores(start, *few, update, population, ridge=1e-2, numbers=500)
    assert found / found[0] == pytest.approx(wanted / wanted[0], rel=1e-3)


def test_who_was_not_in_is_not_found(game):
    """An update by others: members are told from nobody."""
    start, candidates, _, population = game
    random = np.random.default_rng(2)
    strangers = random.normal(size=(MEMBERS, WIDTH)).astype(np.float32)
    update = -start.gradients(strangers, random.integers(0, 2, MEMBERS)).sum(axis=0)
    report = whitened_attack(start, candidates, update, population)
    assert report.auc_interval[0] < 0.5 < report.auc_interval[1] + 0.05


def test_bad_parameters_are_refused(game):
    start, candidates, update, population = game
    asked = start, candidates.inputs, candidates.labels
    with pytest.raises(ValueError, match="a number for each of"):
        whitened_scores(*asked, update[:-1], population)
    with pytest.raises(ValueError, match="not all 0"):
        whitened_scores(*asked, 0 * update, population)
    with pytest.raises(ValueError, match="ridge must be"):
        whitened_scores(*asked, update, population, ridge=0.0)
    blind = Target.of_scores(lambda x: np.tile([0.5, 0.5], (len(x), 1)))
    with pytest.raises(ValueError, match="needs gradients"):
        whitened_scores(blind, *asked[1:], update, population)
