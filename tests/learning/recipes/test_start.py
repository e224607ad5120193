"""Runs that begin with public weights, in half precision, and in pieces of some minutes."""

import json
import math

import pytest
import torch
from safetensors.torch import save_file
from torch.nn import functional as F

from sfumato.learning.clock import Clock, OutOfTime
from sfumato.learning.dp_sgd import Flat
from sfumato.learning.models import make_model
from sfumato.learning.recipes import Rate, Recipe, training
from sfumato.learning.recipes.canaries import Canaries
from sfumato.learning.recipes.loading import initial_model
from sfumato.learning.recipes.start import PublicStart
from sfumato.learning.recipes.training import in_precision

SAID = "made up by a test"


def body(path, hidden=4):
    torch.manual_seed(11)
    model = make_model("mlp", (6,), 2, hidden=hidden)
    first = {n: w for n, w in model.state_dict().items() if not n.startswith("3.")}
    save_file(first, path)
    return first


@pytest.fixture
def start(tmp_path):
    body(tmp_path / "w.safetensors")
    return PublicStart(str(tmp_path / "w.safetensors"), SAID)


def recipe_with(toy, start, **more):
    return toy.recipe(model="mlp", model_options={"hidden": 4}, start=start, **more)


def test_a_run_begins_there_and_says_so(toy, tmp_path, start):
    recipe = recipe_with(toy, start)
    assert Recipe.from_dict(json.loads(json.dumps(recipe.to_dict()))) == recipe
    trained = toy.train(recipe, out=tmp_path / "a")
    assert SAID in trained.record.facts["public_start"]
    assert start.sha256 in trained.record.facts["public_start"]
    model = initial_model(recipe.changed(seed=3), (6,), 2)
    first = body(tmp_path / "again.safetensors")
    own = model.state_dict()
    assert all(torch.equal(own[name], value) for name, value in first.items())
    rest = [own[name] for name in own if name not in first]
    assert rest
    assert not any(value.any() for value in rest)  # the last layer begins at zero


def test_a_whole_file_keeps_its_last_layer(tmp_path):
    torch.manual_seed(5)
    whole = make_model("mlp", (6,), 2, hidden=4)
    save_file(whole.state_dict(), tmp_path / "w.safetensors")
    other = make_model("mlp", (6,), 2, hidden=4)
    PublicStart(str(tmp_path / "w.safetensors"), SAID).put_into(other)
    assert all(torch.equal(v, other.state_dict()[n]) for n, v in whole.state_dict().items())


def test_the_file_of_a_run_will_do(toy, tmp_path):
    """Its names begin with a part's number: features are 0 and the model is 1."""
    first = toy.train(toy.recipe(model="mlp", model_options={"hidden": 4}), out=tmp_path / "a")
    again = PublicStart(str(tmp_path / "a/model.safetensors"), SAID)
    model = make_model("mlp", (6,), 2, hidden=4)
    again.put_into(model)
    kept = {name.removeprefix("1."): w for name, w in first.model.state_dict().items()}
    assert all(torch.equal(w, kept[name]) for name, w in model.state_dict().items())
    (alike, rest) = (again.groups(model.named_parameters(), 0.1, rate) for rate in (1.0, 5.0))
    assert [group["lr"] for group in (*alike, *rest)] == [0.1, 0.1]
    with pytest.raises(ValueError, match="check options"):
        again.put_into(make_model("mlp", (6,), 2, hidden=5))


def test_a_model_that_is_one_layer_keeps_it(tmp_path):
    save_file({"weight": torch.ones(2, 3), "bias": torch.ones(2)}, tmp_path / "w.safetensors")
    layer = torch.nn.Linear(3, 2)
    PublicStart(str(tmp_path / "w.safetensors"), SAID).put_into(layer)
    assert layer.weight.eq(1).all()


def named_inner(shape, classes):
    """A model whose own part is called as the wrapper of canaries calls its model."""
    made = torch.nn.Module()
    made.inner, made.last = torch.nn.Linear(6, 4), torch.nn.Linear(4, classes)
    made.forward = lambda x: made.last(torch.tanh(made.inner(x.flatten(1))))
    return made


@pytest.mark.parametrize("canaries", [None, Canaries(4, "gradient")])
def test_names_of_parts_do_not_decide_whose_rate_it_is(toy, tmp_path, monkeypatch, canaries):
    own = named_inner((6,), 2)
    first = {n: w for n, w in own.state_dict().items() if n.startswith("inner.")}
    save_file(first, tmp_path / "w.safetensors")
    start = PublicStart(str(tmp_path / "w.safetensors"), SAID)
    groups = []
    real = PublicStart.groups
    monkeypatch.setattr(
        PublicStart, "groups", lambda *given: groups.append(real(*given)) or groups[-1]
    )
    recipe = toy.recipe(model=f"{__name__}:named_inner", start=start, head_rate=3.0)
    toy.train(recipe if canaries is None else recipe.changed(canaries=canaries))
    sizes = {group["lr"]: sum(p.numel() for p in group["params"]) for group in groups[0]}
    assert sizes[recipe.rate.start] == 6 * 4 + 4


class Numbered:
    """Noise that follows from how often it was asked for."""

    name, private = "numbered", False

    def __init__(self, asked=0):
        self.asked = asked

    def normal(self, like, std):
        coins = torch.Generator().manual_seed(self.asked)
        self.asked += 1
        return std * torch.randn(like.shape, generator=coins, dtype=like.dtype)


WAYS = {
    "descent": {"momentum": 0.0},
    "momentum": {"momentum": 0.9, "weight_decay": 0.05},
    "adam": {"optimizer": "adam", "momentum": 0.9},
    "falling": {"momentum": 0.9, "rate": Rate(0.3, end=0.01), "ema_decay": 0.9},
}


@pytest.mark.parametrize("way", WAYS)
def test_two_rates_in_pieces_are_the_same_run(toy, tmp_path, monkeypatch, start, way):
    """Cut off after every step, it ends with the weights of one piece, up to the order of rows."""
    recipe = recipe_with(toy, start, head_rate=3.0, lot_size=toy.declared, **WAYS[way])
    whole = toy.train(recipe, out=tmp_path / "whole", noise=Numbered())
    monkeypatch.setattr(training, "Clock", Short)
    asked, pieces, found = 0, 0, None
    while found is None:
        noise = Numbered(asked)
        given = {"out": tmp_path / "pieces", "noise": noise, "checkpoint_every": 100}
        try:
            found = toy.train(None if pieces else recipe, resume=pieces > 0, **given)
        except OutOfTime:
            asked, pieces = noise.asked, pieces + 1
    assert pieces > 3
    ends = whole.model.state_dict(), found.model.state_dict()
    for name, weights in ends[0].items():
        assert torch.allclose(weights, ends[1][name], rtol=1e-4, atol=1e-6), name


def test_one_rate_is_one_group_as_in_older_checkpoints(start):
    model = make_model("mlp", (6,), 2, hidden=4)
    named = list(model.named_parameters())
    assert [len(group["params"]) for group in start.groups(named, 0.1, 1.0)] == [len(named)]
    assert [group["lr"] for group in start.groups(named, 0.1, 2.0)] == [0.1, 0.2]
    plain = Recipe(model="linear", lot_size=1, rate=Rate(1.0))
    assert "head_rate" not in plain.to_dict()  # recipes of before read the same
    assert Recipe.from_dict(plain.to_dict()) == plain


def moved(trained, first):
    """How far what was held went, and the rest."""
    end = {n.removeprefix("1."): w for n, w in trained.model.state_dict().items()}
    changes = [(end[name] - value).flatten() for name, value in first.items()]
    rest = [end[name].flatten() for name in end if name not in first]
    return torch.cat(changes).std().item(), torch.cat(rest).std().item()


def test_what_it_does_not_hold_has_a_rate_of_its_own(toy, tmp_path, start):
    """Noise reaches all weights; how far they go by it follows from their rates."""
    first = body(tmp_path / "again.safetensors")
    noisy = {"epsilon": None, "noise_multiplier": 50.0, "momentum": 0.0}
    found = {}
    for times in (1.0, 100.0):
        trained = toy.train(recipe_with(toy, start, head_rate=times, **noisy))
        found[times] = moved(trained, first)
        assert trained.record.parameters["recipe"].get("head_rate", 1.0) == times
    held, rest = (found[100.0][i] / found[1.0][i] for i in (0, 1))
    assert 0.3 < held < 3
    assert 30 < rest < 300
    with pytest.raises(ValueError, match="head_rate"):
        recipe_with(toy, start, head_rate=0.0)


def test_noise_of_both_groups_is_what_the_plan_says(toy, tmp_path):
    """Released weights tell how much there was: r z C / L sqrt(T), for each group's own rate r."""
    first = body(tmp_path / "w.safetensors", hidden=2000)
    start = PublicStart(str(tmp_path / "w.safetensors"), SAID)
    recipe = toy.recipe(
        model="mlp", model_options={"hidden": 2000}, start=start, head_rate=3.0, momentum=0.0,
        epsilon=None, noise_multiplier=400.0, clip=Flat(0.5), rate=Rate(0.01), ema_decay=None,
    )  # fmt: skip
    trained = toy.train(recipe)
    plan = trained.record.parameters["plan"]
    a_step = plan["noise_multiplier"] * 0.5 / plan["lots"]["size"]
    expected = 0.01 * a_step * math.sqrt(plan["steps"])
    held, rest = moved(trained, first)
    assert held == pytest.approx(expected, rel=0.03)
    assert rest == pytest.approx(3 * expected, rel=0.06)


def test_canaries_do_not_change_whose_rate_it_is(toy, tmp_path, start):
    first = body(tmp_path / "again.safetensors")
    noisy = {"epsilon": None, "noise_multiplier": 50.0, "canaries": Canaries(4, "gradient")}
    held, rest = moved(toy.train(recipe_with(toy, start, head_rate=1e4, **noisy)), first)
    assert rest > 1e3 * held


def test_a_file_that_changed_is_refused_before_anything(toy, tmp_path, start):
    body(tmp_path / "w.safetensors", hidden=5)
    with pytest.raises(ValueError, match="SHA-256"):
        toy.train(recipe_with(toy, start), out=tmp_path / "a")
    assert not (tmp_path / "a").exists()


def test_weights_of_another_network_are_refused(toy, tmp_path):
    body(tmp_path / "w.safetensors", hidden=5)
    start = PublicStart(str(tmp_path / "w.safetensors"), SAID)
    with pytest.raises(ValueError, match="shape"):
        toy.train(recipe_with(toy, start), out=tmp_path / "a")
    save_file({"other": torch.zeros(2)}, tmp_path / "o.safetensors")
    other = PublicStart(str(tmp_path / "o.safetensors"), SAID)
    with pytest.raises(ValueError, match="none of them"):
        toy.train(recipe_with(toy, other), out=tmp_path / "a")


def test_where_weights_come_from_must_be_said(tmp_path):
    body(tmp_path / "w.safetensors")
    with pytest.raises(ValueError, match="source must say"):
        PublicStart(str(tmp_path / "w.safetensors"))
    with pytest.raises(FileNotFoundError):
        PublicStart(str(tmp_path / "none.safetensors"), SAID)


def test_half_precision_reaches_the_model_and_not_the_losses():
    seen = []

    def losses(model, inputs, labels):
        logits = model(inputs)
        seen.append(logits.dtype)
        return F.cross_entropy(logits, labels, reduction="none")

    model, x = torch.nn.Linear(3, 2), torch.randn(5, 3)
    labels = torch.zeros(5, dtype=torch.long)
    found = in_precision(losses, "bfloat16")(model, x, labels)
    assert seen == [torch.bfloat16]
    assert found.dtype == torch.float32
    assert in_precision(losses, "full") is losses
    with pytest.raises(ValueError, match="precision"):
        Recipe(model="linear", lot_size=1, rate=Rate(1.0), precision="float8")


def test_a_run_in_half_precision(toy, tmp_path):
    trained = toy.train(toy.recipe(precision="bfloat16"), out=tmp_path / "a")
    assert trained.record.parameters["recipe"]["precision"] == "bfloat16"
    assert next(trained.model.parameters()).dtype == torch.float32


class Short(Clock):
    """Over at once, at every look."""

    def __init__(self, minutes=None):
        super().__init__(0.0)


@pytest.mark.parametrize("small", [False, True])
def test_in_pieces_no_step_is_lost(toy, tmp_path, monkeypatch, small):
    """Each piece takes one step, saves it, and stops; all together are the whole run."""
    monkeypatch.setattr(training, "Clock", Short)
    recipe = toy.recipe(ema_decay=0.9)
    more = {"out": tmp_path / "a", "small_checkpoints": small, "checkpoint_every": 100}
    with pytest.raises(OutOfTime, match="stopped after 1 of 6 steps"):
        toy.train(recipe, **more)
    for done in range(2, 6):
        with pytest.raises(OutOfTime, match=f"stopped after {done} of 6 steps"):
            toy.train(None, resume=True, **more)
    trained = toy.train(None, resume=True, **more)
    assert trained.record.facts["steps_lost"] == 0


def test_minutes_need_a_folder(toy):
    with pytest.raises(ValueError, match="give out"):
        toy.train(toy.recipe(), minutes=1.0)
