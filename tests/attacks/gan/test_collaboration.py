"""Collaborative learning in one process: how updates add up, and what the adversary gets to see."""

import json

import numpy as np
import pytest
import torch
from torch import nn

from sfumato.attacks.gan.adversary import GanAdversary, GanSettings
from sfumato.attacks.gan.collaboration import LocalTraining, Server, simulate_collaboration
from sfumato.attacks.inversion.likeness import cosine
from sfumato.attacks.inversion.scoring import recognition

SHAPE = (1, 8, 8)


def patterns():
    """A cross, a ring, a bar that lies and one that stands."""
    found = np.zeros((4, *SHAPE), dtype=np.float32)
    found[0, 0, range(8), range(8)] = found[0, 0, range(8), range(7, -1, -1)] = 1
    found[1, 0, 1:7, 1:7] = 1
    found[1, 0, 2:6, 2:6] = 0
    found[2, 0, 3:5] = 1
    found[3, 0, :, 3:5] = 1
    return found


def noisy(label, count=60):
    random = np.random.default_rng(label)
    noise = 0.2 * random.standard_normal((count, *SHAPE))
    return np.clip(patterns()[label] + noise, 0, 1).astype(np.float32), np.full(count, label)


def rows(*labels):
    inputs, classes = zip(*(noisy(label) for label in labels), strict=True)
    return np.concatenate(inputs), np.concatenate(classes)


def network(classes=5):
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.LeakyReLU(0.2), nn.Linear(32, classes))


def attacked(victims, seed=1, rounds=8, **options):
    adversary = GanAdversary(SHAPE, victim_class=0, fake_class=4, seed=seed)
    return simulate_collaboration(
        network, victims, adversary, rows(2, 3), rounds=rounds, seed=seed,
        **({"train": LocalTraining(20, 32, 0.2)} | options),
    )  # fmt: skip


def likeness(found):
    """Of the pictures of the last three rounds and the victim's pattern, on average."""
    images, labels = found.attack.last(3)
    return float(cosine(images, patterns()[labels]).mean())


def zero(changes):
    return {name: 0 * one for name, one in changes.items()}


# --- the attack ---------------------------------------------------------------------------------


@pytest.mark.parametrize("server", list(Server))
def test_the_generator_finds_what_only_the_victim_has(server):
    found = attacked([rows(0, 1)], server=server)
    control = attacked([rows(1)], server=server)
    assert likeness(found) > 0.5
    assert likeness(control) < 0.25


def test_it_finds_it_among_several_victims():
    assert likeness(attacked([rows(1), rows(0), rows(1)])) > 0.5


def test_it_sees_nothing_of_a_victim_who_hands_in_nothing():
    assert likeness(attacked([rows(0, 1)], update=zero)) < 0.25


@pytest.mark.slow
def test_digits_are_recognised_by_a_judge_who_knows_others():
    from sklearn.neighbors import KNeighborsClassifier

    from sfumato.data import load_dataset

    digits = load_dataset("digits")
    x, y = digits.train.inputs.transpose(0, 3, 1, 2) / np.float32(255), digits.train.labels
    known = KNeighborsClassifier(5, metric="cosine").fit(
        digits.test.inputs.reshape(-1, 64), digits.test.labels
    )

    def recognised(owned):
        """By the judge, if the victim owns these and the adversary all from 5 on."""
        adversary = GanAdversary(SHAPE, victim_class=0, fake_class=10, seed=1)
        found = simulate_collaboration(
            lambda: network(11), [(x[owned], y[owned])], adversary, (x[y >= 5], y[y >= 5]),
            rounds=10, train=LocalTraining(20, 64, 0.2), seed=1,
        )  # fmt: skip
        images, labels = found.attack.last(3)
        judged = recognition(images, labels, lambda x: known.predict_proba(x.reshape(-1, 64)))
        return judged.accuracy

    assert recognised(y < 5) > 0.8
    assert recognised((y > 0) & (y < 5)) < 0.5


# --- the protocol -------------------------------------------------------------------------------


def scripted(model, inputs, labels, random):
    """Adds the number of rows to every weight."""
    with torch.no_grad():
        for weight in model.parameters():
            weight += len(labels)


def tiny():
    layer = nn.Linear(64, 5, bias=False)
    layer.weight.data.fill_(1.0)
    return nn.Sequential(nn.Flatten(), layer)


def scripted_run(**options):
    settings = GanSettings(steps=1, fakes=2, share=0.5)
    adversary = GanAdversary(SHAPE, victim_class=0, fake_class=4, settings=settings)
    found = simulate_collaboration(
        tiny, [noisy(0, 10), noisy(1, 30)], adversary, noisy(2, 50),
        **({"train": scripted} | options),
    )  # fmt: skip
    weights = found.model[1].weight
    assert bool((weights == weights[0, 0]).all())
    return float(weights[0, 0].detach())


def test_in_turns_all_updates_add_up():
    assert scripted_run(rounds=3) == 1 + 3 * (4 + 10 + 30)


def test_averaged_updates_are_averaged():
    assert scripted_run(rounds=3, server="average") == pytest.approx(1 + 3 * (4 + 10 + 30) / 3)


def test_a_defence_changes_what_honest_participants_hand_in():
    def halved(changes):
        return {name: one / 2 for name, one in changes.items()}

    assert scripted_run(rounds=2, update=halved) == 1 + 2 * (4 + 5 + 15)


def test_honest_participants_may_train_otherwise():
    def idle(model, inputs, labels, random):
        pass

    assert scripted_run(rounds=2, honest=idle) == 1 + 2 * 4
    assert scripted_run(rounds=2, train=idle, honest=scripted) == 1 + 2 * 40


def test_in_turns_each_begins_where_the_one_before_ended():
    seen = []

    def watching(model, inputs, labels, random):
        seen.append(float(model[1].weight[0, 0].detach()))
        scripted(model, inputs, labels, random)

    scripted_run(rounds=2, train=watching)
    assert seen == [1, 5, 15, 45, 49, 59]
    seen.clear()
    scripted_run(rounds=2, train=watching, server="average")
    assert seen == pytest.approx([1] * 3 + [1 + 44 / 3] * 3)


def test_the_model_can_be_watched():
    told = []
    scripted_run(rounds=2, watch=lambda number, model: told.append((number, next(
        model.parameters())[0, 0].item())))  # fmt: skip
    assert told == [(1, 45.0), (2, 89.0)]


def test_the_same_seed_gives_the_same_and_torchs_coins_are_not_touched():
    before = torch.random.get_rng_state()
    one, two, three = (attacked([rows(0, 1)], seed=seed, rounds=2) for seed in (1, 1, 2))
    assert np.array_equal(one.attack.pictures, two.attack.pictures)
    for a, b in zip(one.model.parameters(), two.model.parameters(), strict=True):
        assert torch.equal(a, b)
    assert not np.allclose(one.attack.pictures, three.attack.pictures)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_results_say_themselves():
    found = attacked([rows(0), rows(1)], rounds=1, server="average")
    assert str(found).startswith("3 participants, 1 rounds with averaged updates. GAN attack on")
    told = json.loads(json.dumps(found.to_dict()))
    assert (told["channel"], told["participants"], told["server"]) == ("curator", 3, "average")
    assert told["attack"]["victim_class"] == 0


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"victims": []}, r"victims must be one or more participants, got \[\]"),
        ({"victims": [(np.zeros((2, 1, 8, 8)), [0])]}, r"victims must be .* got \(2, 1\)"),
        ({"victims": [(np.zeros((0, 1, 8, 8)), [])]}, r"victims must be .* got \(0, 0\)"),
        ({"own": ([], [])}, r"inputs must be rows of shape .* got \(0,\)"),
        ({"rounds": 0}, "rounds must be .* got 0"),
        ({"seed": -1}, "seed must be .* got -1"),
        ({"server": "median"}, "server must be .* got 'median'"),
        ({"update": lambda changes: {}}, r"update must be a change of each parameter.* got \[\]"),
        (
            {"make_model": lambda: nn.Sequential(nn.Flatten(), nn.BatchNorm1d(64))},
            r"make_model must be a model without running statistics.* got \['1.running_mean'",
        ),
    ],
)
def test_bad_parameters_are_refused(wrong, message):
    adversary = GanAdversary(SHAPE, victim_class=0, fake_class=4, settings=GanSettings(steps=1))
    good = {
        "make_model": network, "victims": [noisy(0)], "adversary": adversary, "own": noisy(2),
        "rounds": 1,
    }  # fmt: skip
    with pytest.raises(ValueError, match=message):
        simulate_collaboration(**(good | wrong))


@pytest.mark.parametrize("name", ["steps", "batch_size", "rate"])
def test_bad_training_is_refused(name):
    with pytest.raises(ValueError, match=f"{name} must be .* got -1"):
        LocalTraining(**{name: -1})
