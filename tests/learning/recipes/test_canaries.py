"""Canaries: planted by coins alone, through the engine like any row, for the curator only."""

import json
import re

import numpy as np
import pytest
import torch
from scipy import stats

from sfumato.audit import audit_scores
from sfumato.core.gaussian_profile import gaussian_epsilon
from sfumato.core.neighbours import Neighbours
from sfumato.core.randomness import SYSTEM, SeededCoins
from sfumato.learning.dp_sgd import Automatic, Flat, PerLayer
from sfumato.learning.recipes import Recipe, train
from sfumato.learning.recipes.canaries import Canaries, CanaryKind, CanaryScores, Planted
from sfumato.learning.runs import RunFolder

KINDS = list(CanaryKind)


def planted(toy, kind="gradient", count=20, **more):
    return toy.recipe(canaries=Canaries(count, kind), **more)


# --- planting -----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_planted_canaries_survive_json(kind):
    found = Planted.draw(Canaries(30, kind), 100, 5, SeededCoins(1))
    again = Planted.from_dict(json.loads(json.dumps(found.to_dict())))
    assert again.canaries == found.canaries
    for name in ("included", "rows", "shifts"):
        assert np.array_equal(getattr(again, name), getattr(found, name))


@pytest.mark.parametrize("kind", KINDS)
def test_about_half_are_in_and_rows_are_spread(kind):
    found = Planted.draw(Canaries(1000, kind), 3000, 5, SeededCoins(1), population=3000)
    assert 400 < found.included.sum() < 600
    if kind is CanaryKind.GRADIENT:
        assert len(found.rows) == 0
        return
    assert len(set(found.rows.tolist())) == len(found.rows) == len(found.included)
    assert 900 < len(found.rows) < 1100
    assert 1350 < found.rows.mean() < 1650
    wrong = kind is CanaryKind.MISLABELLED
    assert (found.shifts > 0).all() == wrong
    assert set(found.shifts.tolist()) == ({1, 2, 3, 4} if wrong else {0})


def parts(kind, total, coins, population):
    """What becomes of each row: its shift if it is trained on, else -1."""
    found = Planted.draw(Canaries(2, kind), total, 3, coins, population=population)
    labels = found.relabelled(torch.zeros(total, dtype=torch.int64), 3).numpy()
    out = np.full(total, -1)
    kept = found.kept(total)
    out[kept] = labels[kept]
    return out


@pytest.mark.parametrize("population", [5, None])
@pytest.mark.parametrize("kind", ["mislabelled", "natural"])
def test_a_row_that_comes_changes_no_other_rows_part(kind, population):
    """The joint law of all rows' parts is a product, the same whatever rows there are."""
    share = 2 / 5 if population else 1 / 2
    kept = {"mislabelled": [1 - share, share / 4, share / 4], "natural": [1 - share / 2, 0, 0]}
    one = np.array([share / 2, *kept[kind]])
    draws, coins = 4_000, SeededCoins(2)
    for total in (3, 4):
        seen = np.zeros((4,) * total)
        for _ in range(draws):
            seen[tuple(parts(kind, total, coins, population) + 1)] += 1
        law = one
        for _ in range(total - 1):
            law = np.multiply.outer(law, one)
        at = law * draws >= 5
        assert seen[law == 0].sum() == 0
        expected = np.append(law[at] * draws, max(draws * (1 - law[at].sum()), 1e-9))
        counted = np.append(seen[at], draws - seen[at].sum())
        if expected[-1] < 5:
            expected[-2:], counted[-2:] = expected[-2:].sum() / 2, counted[-2:].sum() / 2
        assert stats.chisquare(counted, expected * counted.sum() / expected.sum()).pvalue > 1e-4


@pytest.mark.parametrize("noise", [1.0, 4.0])
def test_one_noisy_sum_with_canaries_costs_what_it_does_without(noise):
    """The exact hockey-stick divergence, against the worst row that may come.

    Rows there add C with their label and -C with another, the row that comes C with either. With
    two places among three rows or four, drawn without replacement, delta came out 600 times too
    large.
    """
    share, promise = 2 / 3, gaussian_epsilon(noise, 1e-5)
    row = {1: 1 - share, 0: share / 2, -1: share / 2}
    guest = {1: 1 - share / 2, 0: share / 2}

    def density(counts):
        law = {0: 1.0}
        for one in counts:
            grown = {}
            for a, p in law.items():
                for b, q in one.items():
                    grown[a + b] = grown.get(a + b, 0) + p * q
            law = grown
        return sum(p * stats.norm.pdf(x, at, noise) for at, p in law.items())

    x = np.linspace(-15 * noise - 4, 15 * noise + 4, 200_001)
    there, without = density([row] * 3 + [guest]), density([row] * 3)
    for p, q in ((there, without), (without, there)):
        assert np.trapezoid(np.clip(p - np.exp(promise) * q, 0, None), x) <= 1e-5
    seen = [parts("mislabelled", 4, SeededCoins(k), 3)[3] >= 0 for k in range(1000)]
    assert np.mean(seen) == pytest.approx(1 - share / 2, abs=0.05)


@pytest.mark.parametrize("kind", ["mislabelled", "natural"])
@pytest.mark.parametrize("total", [0, 1, 9, 10, 11])
def test_no_error_depends_on_how_many_rows_there_are(kind, total):
    for population in (10, None):
        found = Planted.draw(Canaries(10, kind), total, 2, SYSTEM, population=population)
        assert len(found.rows) <= total
        assert found.total(total) == total - int((~found.included).sum())
        if population:  # each of them is one
            assert len(found.rows) == total


def test_canaries_that_are_out_are_not_trained_on():
    found = Planted.draw(Canaries(40, "mislabelled"), 100, 3, SeededCoins(1))
    kept = found.kept(100)
    assert found.total(100) == len(kept) == 100 - (~found.included).sum()
    assert not set(kept) & set(found.rows[~found.included])
    assert set(found.rows[found.included]) <= set(kept)
    labels = torch.arange(100) % 3
    changed = found.relabelled(labels, 3)
    assert (changed[found.rows] != labels[found.rows]).all()
    others = np.setdiff1d(np.arange(100), found.rows)
    assert torch.equal(changed[others], labels[others])


def test_gradient_canaries_are_extra_rows():
    found = Planted.draw(Canaries(10), 4, 3, SeededCoins(1))
    inputs, labels, ids = found.extended(torch.ones(4, 2), torch.ones(4, dtype=torch.int64))
    expected = 3 * np.flatnonzero(found.included) + 2
    assert len(inputs) == len(labels) == len(ids) == found.total(4) == 4 + len(expected)
    assert ids.tolist() == [-1] * 4 + expected.tolist()
    assert inputs[4:].abs().sum() == 0


@pytest.mark.parametrize(("relation", "out"), [("replace-one", 0), ("zero-out", 1)])
def test_where_numbers_are_public_canaries_take_places(relation, out):
    found = Planted.draw(Canaries(10), 40, 3, SeededCoins(1), neighbours=Neighbours.parse(relation))
    assert found.total(40) == 40
    kept = found.kept(40)
    assert len(kept) == 30
    _, _, marks = found.extended(torch.ones(30, 2), torch.ones(30, dtype=torch.int64))
    assert marks[:30].tolist() == [-1] * 30
    assert (marks[30:] // 3).tolist() == list(range(10))
    assert np.array_equal((marks[30:] % 3).numpy(), np.where(found.included, 2, out))
    again = Planted.from_dict(json.loads(json.dumps(found.to_dict())))
    assert again.neighbours is found.neighbours


# --- training -----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_with_canaries(toy, tmp_path, kind):
    recipe = planted(toy, kind)
    trained = toy.train(recipe, out=tmp_path / "a")
    assert trained.canaries.kind is kind
    assert trained.canaries.scores.shape == trained.canaries.included.shape
    if kind == "gradient":
        assert trained.canaries.scores.shape == (20,)
    else:  # of 150 rows, each with probability 20 / 150
        assert 5 < len(trained.canaries.scores) < 45
    assert np.isfinite(trained.canaries.scores).all()
    stored = CanaryScores.from_dict(
        json.loads((tmp_path / "a" / "curator" / "canaries.json").read_text())
    )
    assert np.array_equal(stored.scores, trained.canaries.scores)
    assert np.array_equal(stored.included, trained.canaries.included)
    record = json.loads((tmp_path / "a" / "record.json").read_text())
    assert Recipe.from_dict(record["parameters"]["recipe"]) == recipe


def test_the_guarantee_and_the_released_model_are_as_without(toy, tmp_path):
    plain, audited = toy.train(), toy.train(planted(toy), out=tmp_path / "a")
    assert audited.record.guarantee == plain.record.guarantee
    assert audited.record.event == plain.record.event
    assert audited.model.state_dict().keys() == plain.model.state_dict().keys()
    public = (tmp_path / "a" / "record.json").read_text()
    assert not re.search(r'"included"|"scores"', public)
    assert (tmp_path / "a" / "curator" / "canaries.json").stat().st_mode & 0o077 == 0
    assert (tmp_path / "a" / "curator" / "planted.json").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    ("relation", "lots", "out"),
    [("replace-one", "poisson", -1.0), ("replace-one", "fixed-size", -1.0),
     ("zero-out", "poisson", 0.0), ("zero-out", "shuffled", 0.0)],
)  # fmt: skip
def test_what_out_means_under_other_relations(toy, relation, lots, out):
    data = toy.data(150)
    recipe = planted(
        toy, noise_multiplier=0.01, lot_size=150, momentum=0.0, steps=4, neighbours=relation,
        lots=lots,
    )  # fmt: skip
    found = toy.train(recipe, data).canaries
    expected = 4 * 0.5 / 150
    assert found.scores[found.included] == pytest.approx(expected, rel=0.05)
    assert found.scores[~found.included] == pytest.approx(out * expected, abs=0.05 * expected)


@pytest.mark.parametrize("clip", [Flat(0.5), Automatic(0.5)])
def test_a_gradient_canary_pushes_by_the_clip_norm(toy, clip):
    """Lots of everybody, almost no noise, plain SGD: steps times rate times C over the lot size."""
    recipe = planted(
        toy, noise_multiplier=0.01, lot_size=150, clip=clip, momentum=0.0, steps=4, delta=1e-3
    )
    found = toy.train(recipe).canaries
    expected = 4 * 0.5 * 0.5 / 150
    assert found.scores[found.included] == pytest.approx(expected, rel=0.03)
    assert np.abs(found.scores[~found.included]).max() < 0.03 * expected


def test_a_table_of_which_nothing_is_left_is_trained_on_like_any_other(toy, tmp_path):
    """One row, every row a canary: half of all runs have no row at all, and tell nobody."""
    for seed in range(4):
        data = toy.data(1)
        recipe = planted(toy, "natural", 2, lot_size=1, steps=2)
        out = tmp_path / str(seed)
        trained = train(recipe, data, out=out, coins=SeededCoins(seed), public_size=2)
        assert trained.canaries.scores.shape == (1,)


def test_canaries_do_not_disturb_the_model(toy):
    """With the same coins and almost no noise the model is the same, but for sampling."""
    quiet = {"noise_multiplier": 0.01, "lot_size": 150, "steps": 4}
    plain, audited = toy.train(toy.recipe(**quiet)), toy.train(planted(toy, **quiet))
    for name, weights in plain.model.state_dict().items():
        assert torch.allclose(weights, audited.model.state_dict()[name], atol=1e-3)


def test_mislabelled_canaries_that_were_in_fit_better(toy):
    recipe = planted(
        toy, "mislabelled", 30, noise_multiplier=0.01, lot_size=120, steps=150, model="mlp",
        model_options={"hidden": 200}, clip=Flat(10.0),
    )  # fmt: skip
    found = toy.train(recipe).canaries
    assert found.scores[found.included].mean() > found.scores[~found.included].mean()


def test_the_auditor_may_toss_the_coins(toy):
    included = np.arange(20) % 2 == 0
    found = toy.train(planted(toy), included=included).canaries
    assert np.array_equal(found.included, included)
    with pytest.raises(ValueError, match="included must be 20 booleans"):
        toy.train(planted(toy), included=included[:5])


@pytest.mark.parametrize("kind", KINDS)
def test_a_resumed_run_has_the_same_canaries(toy, tmp_path, kind):
    recipe = planted(toy, kind)
    toy.cut_off(tmp_path / "a", recipe, checkpoint_every=1)
    before = json.loads((tmp_path / "a" / "curator" / "planted.json").read_text())
    trained = toy.train(recipe, out=tmp_path / "a", resume=True, coins=SYSTEM)
    assert trained.canaries.included.tolist() == before["included"]


def test_an_audit_of_a_run_stays_below_its_claim(toy):
    recipe = planted(toy, count=400, steps=30, lot_size=50)
    trained = toy.train(recipe)
    finding = audit_scores(
        trained.canaries.scores, trained.canaries.included, claim=trained.record.guarantee,
        analysis="gaussian",
    )  # fmt: skip
    assert 0 < finding.epsilon < trained.record.guarantee.epsilon


def test_a_run_without_enough_noise_is_refuted(toy):
    """The same canaries, with a tenth of the noise that the plan promises."""

    class Faint(toy.Noted):
        def normal(self, like, std):
            return 0.1 * super().normal(like, std)

    recipe = planted(toy, count=2000, steps=30, lot_size=50, noise_multiplier=2.0)
    trained = toy.train(recipe, noise=Faint())
    finding = audit_scores(
        trained.canaries.scores, trained.canaries.included, claim=trained.record.guarantee,
        analysis="gaussian",
    )  # fmt: skip
    assert finding.refuted


# --- mistakes -----------------------------------------------------------------------------------


def test_mistakes(toy, tmp_path):
    with pytest.raises(ValueError, match="canaries must be a whole number, 2 or above"):
        Canaries(1)
    with pytest.raises(ValueError, match="kind must be"):
        Canaries(10, "golden")
    with pytest.raises(ValueError, match="clip as a whole"):
        planted(toy, clip=PerLayer(1.0))
    with pytest.raises(ValueError, match="plant fewer"):
        toy.train(planted(toy, "natural", 1000), out=tmp_path / "a")
    assert not (tmp_path / "a").exists()
    with pytest.raises(ValueError, match="included must be left out"):
        toy.train(planted(toy, "natural"), included=np.ones(20, bool))
    with pytest.raises(ValueError, match="plant gradients, or train for add-remove"):
        toy.train(planted(toy, "natural", neighbours="zero-out"))
    owned = toy.with_owners(np.arange(137))
    with pytest.raises(ValueError, match="records of their own"):
        toy.train(planted(toy), owned)


def test_a_run_killed_before_it_tossed_a_coin_tosses_them_when_it_goes_on(toy, tmp_path):
    known = planted(toy)
    RunFolder(tmp_path / "a").begin({"recipe": known.to_dict()})
    trained = toy.train(known, out=tmp_path / "a", resume=True)
    assert trained.canaries.included.shape == (20,)
    assert (tmp_path / "a" / "curator" / "planted.json").exists()


def test_coins_that_were_lost_are_not_tossed_again(toy, tmp_path):
    known = planted(toy)
    toy.cut_off(tmp_path / "a", known, checkpoint_every=1)
    (tmp_path / "a" / "curator" / "planted.json").unlink()
    with pytest.raises(ValueError, match="restore curator/ from a copy"):
        toy.train(known, out=tmp_path / "a", resume=True)
