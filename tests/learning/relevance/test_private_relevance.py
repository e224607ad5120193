"""Private relevance: sensitivities met and never passed, noise, and where networks are from."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from sfumato.accounting import account
from sfumato.core.events import GaussianEvent, NotPrivateEvent
from sfumato.core.neighbours import Neighbours
from sfumato.core.randomness import SeededCoins
from sfumato.learning.features.base import FeatureMap
from sfumato.learning.recipes import Rate, Recipe
from sfumato.learning.relevance import (
    KnownModel,
    PrivateRelevance,
    feature_shares,
    private,
    rule_names,
    scaling,
)
from sfumato.learning.relevance.private import relevance_sum, scaled_relevance
from sfumato.learning.relevance.scaling import RelevanceScaling
from sfumato.learning.relevance.sources import PublicSource
from sfumato.mechanisms.sampling import add_laplace

LAYER = nn.Linear(4, 4, bias=False)
LAYER.weight.data = 5 * torch.eye(4)
KNOWN = KnownModel.public(nn.Sequential(LAYER), "written down")
PAIR = KnownModel.public(nn.Sequential(nn.Linear(2, 2)), "drawn at random")
ROWS = st.lists(st.floats(width=32), min_size=4, max_size=4)


def moved(before, after):
    sums = [relevance_sum(KNOWN, torch.tensor(rows).reshape(-1, 4)) for rows in (before, after)]
    return np.abs(sums[0] - sums[1]).sum()


@given(st.lists(ROWS, min_size=1, max_size=4), ROWS)
def test_one_record_moves_the_sum_by_the_sensitivity_at_most(rows, other):
    assert moved(rows, [other, *rows[1:]]) <= PrivateRelevance(1.0).sensitivity.bound
    assert moved(rows, rows[1:]) <= PrivateRelevance(1.0, "add-remove").sensitivity.bound


def test_and_may_move_it_that_far():
    first, second = [1.0, 0, 0, 0], [0, 1.0, 0, 0]
    assert moved([first], [second]) == pytest.approx(PrivateRelevance(1.0).sensitivity.bound)
    bound = PrivateRelevance(1.0, "add-remove").sensitivity.bound
    assert moved([first, second], [first]) == pytest.approx(bound)


@given(st.lists(ROWS, min_size=1, max_size=3))
def test_scaled_relevance_has_norm_one_at_most_exactly(rows):
    found = scaled_relevance(torch.tensor(rows))
    assert bool((found.abs().sum(1) <= 1).all())
    assert torch.equal(found, (found * 2**30).trunc() / 2**30)


def test_small_relevance_stays_as_it_is_and_large_is_shortened():
    found = scaled_relevance(torch.tensor([[0.1, -0.2], [6.0, -2.0]]))
    assert found.tolist() == [pytest.approx([0.1, -0.2]), pytest.approx([0.75, -0.25])]


def test_sums_have_no_rounding_and_no_overflow(monkeypatch):
    """As whole numbers they are exact; as floats they are held where every step is a float."""
    step = 2.0**-30
    batch = torch.full((3, 4), 0.2, dtype=torch.float64)
    assert private.step_sum(batch).tolist() == [3 * int(0.2 * (1 - 2**-30) * 2**30)] * 4
    for count, wanted in ((2**22, 2.0**22 - step), (2**34, 2.0**23), (2**63, 2.0**23)):
        large = np.array([count * 2**30 - 1, 1], dtype=object)
        monkeypatch.setattr(private, "step_sum", lambda part, large=large: large)
        found = relevance_sum(PAIR, torch.zeros(1, 2))
        assert found.tolist() == [wanted, step]


def test_more_inputs_than_lengths_are_exact_for_are_refused():
    layer = nn.Linear(1, 1, bias=False)
    known = KnownModel.public(nn.Sequential(layer), "drawn at random")
    with pytest.raises(ValueError, match="4194304 numbers a record at most"):
        relevance_sum(known, torch.zeros(0, 2**22 + 1))


@pytest.mark.parametrize(("neighbours", "bound"), [("replace-one", 2.0), ("add-remove", 1.0)])
def test_noise_has_the_scale_that_is_said(neighbours, bound):
    way = PrivateRelevance(0.5, neighbours, public_size=10)
    assert way.scale == pytest.approx(bound / 0.5)
    assert account(way.event, 0.0).epsilon == pytest.approx(0.5)
    wide = nn.Linear(20_000, 1, bias=False)
    wide.weight.data.zero_()
    known = KnownModel.public(nn.Sequential(wide), "zeros")
    found = way.release(known, torch.ones(3, 20_000), coins=SeededCoins(1))
    assert np.abs(found.total).mean() == pytest.approx(way.scale, rel=0.03)
    assert np.allclose(found.mean * 10, found.total)
    assert not found.private


def test_scale_on_the_mean_is_that_of_the_corrected_lemma():
    way = PrivateRelevance(0.075, public_size=60_000)
    assert way.scale / 60_000 == pytest.approx(4.444e-4, rel=1e-3)


def test_it_must_be_said_where_a_network_is_from():
    with pytest.raises(ValueError, match="say where it comes from"):
        PrivateRelevance(1.0).release(nn.Sequential(LAYER), torch.ones(1, 4))
    with pytest.raises(ValueError, match="training without privacy"):
        KnownModel.privately_trained(nn.Sequential(LAYER), NotPrivateEvent())
    with pytest.raises(ValueError, match="source"):
        KnownModel.public(nn.Sequential(LAYER), "")
    broken = nn.Linear(2, 1)
    broken.weight.data.fill_(float("nan"))
    with pytest.raises(ValueError, match="finite weights"):
        KnownModel.public(nn.Sequential(broken), "nowhere")


def test_a_private_training_is_part_of_what_is_promised():
    trained = GaussianEvent(2.0, Neighbours.REPLACE_ONE)
    known = KnownModel.privately_trained(nn.Sequential(LAYER), trained)
    way = PrivateRelevance(1.0)
    whole = account(way.event_with(known), 1e-5)
    assert whole.epsilon > account(trained, 1e-5).epsilon + 0.1
    assert whole.epsilon <= account(trained, 1e-5).epsilon + 1.0
    person = KnownModel.privately_trained(nn.Sequential(LAYER), GaussianEvent(2.0, unit="person"))
    with pytest.raises(ValueError, match="different units"):
        way.event_with(person)
    assert KnownModel.event_of(known.to_dict()) == trained


def test_the_noise_does_not_depend_on_the_rows():
    way, found = PrivateRelevance(1.0), []
    for rows in (torch.zeros(3, 4), torch.full((3, 4), float("nan")), torch.ones(0, 4)):
        found.append(way.release(KNOWN, rows, coins=SeededCoins(3)).total)
    assert np.array_equal(found[0], found[1])
    assert np.array_equal(found[0], found[2])


# --- shares ---------------------------------------------------------------------------------------


@given(st.lists(st.floats(), min_size=1, max_size=30), st.floats(0, 0.99))
def test_shares_add_up_to_the_number_of_inputs(relevance, floor):
    shares = feature_shares(relevance, floor)
    assert shares.sum() == pytest.approx(len(relevance))
    assert shares.min() >= floor * (1 - 1e-12)


def test_shares_by_hand():
    assert feature_shares([3.0, -1.0], floor=0.0).tolist() == [1.5, 0.5]
    assert feature_shares(np.zeros((2, 2))).tolist() == [[1, 1], [1, 1]]
    with pytest.raises(ValueError, match="floor"):
        feature_shares([1.0], floor=1.0)


# --- before DP-SGD --------------------------------------------------------------------------------


def test_relevance_and_dp_sgd_are_in_one_account():
    features = RelevanceScaling(noise_multiplier=4.0)
    common = {"lot_size": 100, "rate": Rate(0.5), "steps": 20, "noise_multiplier": 1.5}
    alone = Recipe("linear", **common).plan(1000).guarantee.epsilon
    both = Recipe("linear", features=features, **common).plan(1000).guarantee.epsilon
    assert alone + 0.05 < both <= alone + 0.25
    replaced = features.event(Neighbours.REPLACE_ONE, "record")
    assert account(replaced, 0.0).epsilon == pytest.approx(0.5)
    assert account(features.event("add-remove", "record"), 0.0).epsilon == pytest.approx(0.25)


def test_scaling_is_fitted_kept_and_read_back():
    features = RelevanceScaling(noise_multiplier=0.01, rule="z-plus", floor=0.1, power=0.5)
    assert FeatureMap.from_dict(features.to_dict()) == features
    module = features.build((4,))
    rows = torch.zeros(500, 4)
    rows[:, 1] = 1.0
    assert torch.equal(module(rows), rows)
    features.fit(module, rows, SeededCoins(1))
    wanted = feature_shares([0, 1.0, 0, 0], 0.1) ** 0.5
    assert module.scale.tolist() == pytest.approx(wanted.tolist(), rel=1e-2)
    assert torch.equal(module(rows), rows * module.scale)
    assert "seed 0" in features.provenance
    with pytest.raises(ValueError, match=r"build\(shape\)"):
        features.fit(nn.Identity(), rows, SeededCoins(1))


def test_scaling_draws_the_noise_that_its_event_says(monkeypatch):
    drawn = []

    def spy(values, scale, grid, coins):
        drawn.append((scale, np.abs(values).sum()))
        return add_laplace(values, scale, grid, coins)

    monkeypatch.setattr(scaling, "add_laplace", spy)
    features = RelevanceScaling(noise_multiplier=7.0)
    rows = torch.rand(30, 4, generator=torch.Generator().manual_seed(1))
    features.fit(features.build((4,)), rows, SeededCoins(1))
    assert drawn[0][0] == 7.0
    assert drawn[0][1] <= 30
    assert features.event("zero-out", "record").noise_multiplier == 7.0
    assert features.event("replace-one", "record").noise_multiplier == 3.5


@pytest.mark.parametrize("rule", rule_names())
def test_a_record_of_zeros_counts_for_nothing(rule):
    """So that blanking a record out is to remove it."""
    known = PublicSource("mlp", 3, options={"hidden": 8}).known((4,))
    assert not relevance_sum(known, torch.zeros(5, 4), rule).any()


def test_a_source_is_a_file_or_a_seed(tmp_path):
    from safetensors.torch import save_file

    drawn = PublicSource("linear", 3).known((4,))
    path = tmp_path / "w.safetensors"
    weights = {name: torch.ones_like(w) for name, w in drawn.module.state_dict().items()}
    save_file(weights, path)
    source = PublicSource("linear", 3, str(path), "made of ones")
    known = source.known((4,))
    assert "made of ones" in known.says
    assert bool((known.module(torch.ones(1, 4)) == 5).all())
    assert PublicSource.from_dict(source.to_dict()) == source
    save_file({name: 2 * w for name, w in weights.items()}, path)
    with pytest.raises(ValueError, match="SHA-256"):
        source.known((4,))
    with pytest.raises(ValueError, match="source"):
        PublicSource("linear", 3, str(path))
    with pytest.raises(ValueError, match="Tanh"):
        PublicSource("cnn").known((1, 8, 8))
