"""Noise and update in one pass: the same weights and state as by torch's own optimizers."""

import copy

import pytest
import torch
import torch.optim.optimizer as torch_optimizer
from torch import nn
from torch.optim import SGD, Adam, AdamW

from sfumato.core.randomness import SeededCoins
from sfumato.learning.dp_sgd import ChaChaNoise, CoinNoise, Flat, PerLayer, PoissonLots, updating
from sfumato.learning.dp_sgd import TrainingPlan as Plan
from sfumato.learning.dp_sgd.checkpoints import flatten_state, restore_state
from sfumato.learning.dp_sgd.kernels.updates import Descent, Moments
from sfumato.learning.dp_sgd.noise import PlacedNoise, UpdatingNoise
from sfumato.learning.dp_sgd.stepping import NoisyStep
from sfumato.learning.dp_sgd.updating import NoisyUpdates, brought_together

STEPS = 7


@pytest.fixture(autouse=True)
def twin(monkeypatch):
    """The twin stands in for the kernel; a list of what went through it."""
    done, run = [], ChaChaNoise.noisy_update

    def noted(self, by, total, std, size):
        done.append(by)
        run(self, by, total, std, size)

    monkeypatch.setattr(ChaChaNoise, "updates", lambda self, total: total.dtype == torch.float32)
    monkeypatch.setattr(ChaChaNoise, "noisy_update", noted)
    monkeypatch.setattr(updating, "LEAST_NUMBERS", 1)
    return done


def parameters():
    torch.manual_seed(0)
    kernel = torch.randn(8, 3, 3, 3).to(memory_format=torch.channels_last)
    held = {"kernel": kernel, "matrix": torch.randn(50, 41).T, "bias": torch.randn(7)}
    return {name: nn.Parameter(t) for name, t in held.items()}


class Run:
    """A run of steps whose clean sums are made up."""

    def __init__(self, make, seed=5, clipping=None, held=None, scheduler=None, noise=None):
        self.held = held or parameters()
        self.optimizer = make(list(self.held.values()))
        plan = Plan(PoissonLots(10, 100), clipping or Flat(1.0), 1.0, 50, 1e-5)
        schedule = scheduler(self.optimizer) if scheduler else None
        noise = noise or ChaChaNoise(SeededCoins(seed))
        self.step = NoisyStep(plan, self.held, self.optimizer, schedule, noise, 1.0)
        self.taken = 0

    def steps(self, count, least=1):
        """Takes so many steps, in one pass those parameters that have ``least`` numbers."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(updating, "LEAST_NUMBERS", least)
            for number in range(self.taken, self.taken + count):
                self.one(number)
        self.taken += count
        return self

    def one(self, number):
        torch.manual_seed(100 + number)
        sums = {name: 5 * torch.randn_like(p.detach()) for name, p in self.held.items()}
        self.step.sum.merge(sums, torch.ones(3, 1), torch.ones(3), whole=True)
        self.step.apply(number)
        assert all(p.grad is None for p in self.held.values())

    @property
    def state(self):
        return self.optimizer.state_dict()


NEVER = 1 << 40


@torch.no_grad()
def moved(run):
    """How far the parameters went from where they began."""
    pairs = zip(run.held.values(), parameters().values(), strict=True)
    return [float((p - q).abs().max()) for p, q in pairs]


def same(one, two, rtol=3e-6, atol=3e-6):
    for name, p in one.held.items():
        torch.testing.assert_close(p, two.held[name], rtol=rtol, atol=atol)
    assert one.state["param_groups"] == two.state["param_groups"]
    left, right = one.state["state"], two.state["state"]
    assert left.keys() == right.keys()
    for key, held in left.items():
        assert list(held) == list(right[key])
        for name, value in held.items():
            other = right[key][name]
            torch.testing.assert_close(value, other, rtol=rtol, atol=atol)
            assert value.stride() == other.stride()
            assert (type(value), value.requires_grad) == (torch.Tensor, False)
            assert not other.requires_grad


VARIANTS = {
    "plain": (SGD, {"lr": 0.1}),
    "decay": (SGD, {"lr": 0.1, "weight_decay": 0.3}),
    "momentum": (SGD, {"lr": 0.1, "momentum": 0.9}),
    "dampening": (SGD, {"lr": 0.1, "momentum": 0.8, "dampening": 0.4, "weight_decay": 0.1}),
    "nesterov": (SGD, {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.2}),
    "foreach": (SGD, {"lr": 1, "momentum": 0.5, "foreach": True}),
    "fused": (SGD, {"lr": 0.1, "momentum": 0.9, "fused": True}),
    "adam": (Adam, {"lr": 0.1}),
    "adam, decay": (Adam, {"lr": 0.1, "weight_decay": 0.3, "betas": (0.6, 0.9), "eps": 1e-2}),
    "adam, decoupled": (Adam, {"lr": 0.1, "weight_decay": 0.3, "decoupled_weight_decay": True}),
    "adam, no memory": (Adam, {"lr": 0.1, "betas": (0.0, 0.0), "eps": 0.1}),
    "adamw": (AdamW, {"lr": 0.1, "weight_decay": 0.3}),
    "adamw, foreach": (AdamW, {"lr": 0.1, "betas": (0.8, 0.99), "foreach": True}),
    "adamw, fused": (AdamW, {"lr": 0.1, "weight_decay": 0.1, "fused": True}),
}


def made(name):
    kind, options = VARIANTS[name]
    return lambda held: kind(held, **options)


every_variant = pytest.mark.parametrize("name", VARIANTS)


# --- the same as the ordinary way -----------------------------------------------------------------


@every_variant
def test_weights_and_state_are_those_of_the_ordinary_way(name, twin):
    ordinary = Run(made(name)).steps(STEPS, NEVER)
    assert not twin
    fused = Run(made(name)).steps(STEPS)
    assert len(twin) == 3 * STEPS
    same(fused, ordinary)
    assert min(moved(fused)) > 0.1


@pytest.mark.parametrize("least", [NEVER, 1])
@pytest.mark.parametrize("name", list(VARIANTS)[:1])
def test_a_gradient_that_lies_about_is_not_applied(name, least):
    clean, dirty = Run(made(name)).steps(2, least), Run(made(name)).steps(1, least)
    for p in dirty.held.values():
        p.grad = torch.full_like(p, 1e4)
    same(dirty.steps(1, least), clean)


@every_variant
@pytest.mark.parametrize("first", [NEVER, 1])
def test_a_switch_in_mid_run_changes_nothing(name, first, twin):
    ordinary = Run(made(name)).steps(STEPS, NEVER)
    mixed = Run(made(name)).steps(3, first).steps(2, NEVER + 1 - first).steps(STEPS - 5, first)
    assert 0 < len(twin) < 3 * STEPS
    same(mixed, ordinary)


@pytest.mark.parametrize("name", ["nesterov", "adam, decay", "adamw, fused"])
def test_a_checkpoint_goes_on_as_before(name):
    whole = Run(made(name)).steps(STEPS)
    broken = Run(made(name)).steps(3)
    tensors, facts = flatten_state(broken.state)
    resumed = Run(made(name), held={n: nn.Parameter(p.detach().clone())
                                    for n, p in broken.held.items()})  # fmt: skip
    resumed.optimizer.load_state_dict(restore_state(tensors, facts))
    resumed.step.noise._stream = broken.step.noise._stream  # a test may: the same noise goes on
    resumed.taken = 3
    same(resumed.steps(STEPS - 3), whole)


def test_some_in_one_pass_and_others_not(twin):
    """Small sums go first, then the large ones: each by its own blocks."""
    run = Run(made("momentum")).steps(2, least=100)
    assert [by.parameter.numel() for by in twin] == [216, 2050] * 2
    held, noise = parameters(), ChaChaNoise(SeededCoins(5))
    optimizer = made("momentum")(held.values())
    for number in range(2):
        torch.manual_seed(100 + number)
        sums = {name: 5 * torch.randn_like(p.detach()) for name, p in held.items()}
        for name in ("bias", "kernel", "matrix"):
            flat = sums[name].as_strided((sums[name].numel(),), (1,))
            noise.noisy_mean(flat, 1.0, 10.0, flat)
            held[name].grad = sums[name]
        optimizer.step()
    for name, p in run.held.items():
        torch.testing.assert_close(p, held[name], rtol=3e-6, atol=3e-6)


def test_groups_have_their_own_noise_and_learning_rates(twin):
    clipping = PerLayer({"kernel": 3.0, "": 0.25})

    def two(held):
        return AdamW([{"params": held[:1], "lr": 0.3}, {"params": held[1:], "weight_decay": 0.0}])

    ordinary = Run(two, clipping=clipping).steps(STEPS, NEVER)
    same(Run(two, clipping=clipping).steps(STEPS), ordinary)
    assert len(twin) == 3 * STEPS


@pytest.mark.parametrize("name", ["momentum", "adam"])
def test_a_scheduler_is_heard(name, twin):
    def falling(optimizer):
        return torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)

    ordinary = Run(made(name), scheduler=falling).steps(STEPS, NEVER)
    fused = Run(made(name), scheduler=falling).steps(STEPS)
    assert [by.lr for by in twin[::3]] == pytest.approx([0.1 * 0.5**n for n in range(STEPS)])
    same(fused, ordinary)


def test_momentum_that_comes_later():
    runs = [Run(made("plain")).steps(2, least) for least in (1, NEVER)]
    for run, least in zip(runs, (1, NEVER), strict=True):
        assert run.state["state"] == {}
        run.optimizer.param_groups[0]["momentum"] = 0.9
        run.steps(3, least)
    same(*runs)


def test_the_noise_is_the_mean_s(twin):
    """Without a learning rate's or a state's help: p = -(sum + noise) / size."""
    held = {"p": nn.Parameter(torch.zeros(40_000))}
    run = Run(lambda ps: SGD(ps, lr=1.0), held=held)
    run.step.apply(0)
    assert float(held["p"].detach().std()) == pytest.approx(0.1, rel=0.02)  # multiplier 1, size 10
    total = torch.ones(40_000)
    run.step.sum.merge({"p": total}, torch.ones(3, 1), torch.ones(3), whole=True)
    before = held["p"].detach().clone()
    run.step.apply(1)
    assert bool((total == 1).all())  # only read
    change = before - held["p"].detach()
    assert float(change.mean()) == pytest.approx(0.1, abs=4 * 0.1 / 200)
    assert float(torch.corrcoef(torch.stack([before, change]))[0, 1]) == pytest.approx(0, abs=0.025)
    assert len(twin) == 2


def test_the_signal_is_that_of_the_clean_sum():
    runs = [Run(made("adam")).steps(1, least).step for least in (1, 100, NEVER)]
    for run in runs[:2]:
        assert run._spread == pytest.approx(runs[2]._spread)
        found, exact = (torch.stack(r._signal).norm() for r in (run, runs[2]))
        assert float(found) == pytest.approx(float(exact), rel=1e-5)
    quiet = Run(made("adam"))
    quiet.step.watched = False
    quiet.steps(1)
    assert quiet.step._signal == []
    assert quiet.step._spread == pytest.approx(runs[2]._spread)


def test_a_change_is_seen_by_version_counters():
    run = Run(made("momentum"))
    before = [p._version for p in run.held.values()]
    run.steps(1)
    assert all(p._version > v for p, v in zip(run.held.values(), before, strict=True))


# --- what takes the ordinary way ------------------------------------------------------------------


class Subclass(SGD):
    pass


def hooked(held):
    optimizer = SGD(held, lr=0.1)
    optimizer.register_step_pre_hook(lambda *_: None)
    return optimizer


def listened(held):
    optimizer = SGD(held, lr=0.1)
    optimizer.register_step_post_hook(lambda *_: None)
    return optimizer


def replaced(held):
    optimizer = SGD(held, lr=0.1)
    step = optimizer.step
    optimizer.step = lambda: step()
    return optimizer


def scaled(held):
    optimizer = SGD(held, lr=0.1, fused=True)
    optimizer.grad_scale = torch.tensor(1.0)
    return optimizer


REFUSED = {
    "subclass": lambda held: Subclass(held, lr=0.1),
    "another": lambda held: torch.optim.RMSprop(held, lr=0.1),
    "pre hook": hooked,
    "post hook": listened,
    "another step": replaced,
    "scaled gradients": scaled,
    "maximize": lambda held: SGD(held, lr=0.1, maximize=True),
    "tensor lr": lambda held: SGD(held, lr=torch.tensor(0.1)),
    "amsgrad": lambda held: Adam(held, lr=0.1, amsgrad=True),
    "adam, tensor lr": lambda held: AdamW(held, lr=torch.tensor(0.1), foreach=False),
}


@pytest.mark.parametrize("make", REFUSED.values(), ids=REFUSED)
def test_refused_optimizers(make, twin):
    run = Run(make).steps(2)
    assert not twin
    assert min(moved(run)) > 0


@pytest.mark.parametrize("where", ["pre", "post"])
def test_global_hooks_see_every_gradient(where, twin):
    seen = []
    register = getattr(torch_optimizer, f"register_optimizer_step_{where}_hook")
    handle = register(lambda opt, *_: seen.extend(p.grad for p in opt.param_groups[0]["params"]))
    try:
        Run(made("plain")).steps(1)
    finally:
        handle.remove()
    assert not twin
    assert all(g is not None for g in seen)
    assert len(seen) == 3


def test_refused_parameters(twin):
    class Marked(nn.Parameter):
        pass

    def one(p, total=None):
        optimizer = Adam([p], lr=0.1)
        total = torch.ones_like(p).detach() if total is None else total
        return NoisyUpdates(optimizer, ChaChaNoise()).take(p, total, 1.0)

    assert one(nn.Parameter(torch.ones(4, 6)))
    assert one(nn.Parameter(torch.ones(4, 6).T))
    assert not one(nn.Parameter(torch.ones(4, 6, dtype=torch.float64)))
    assert not one(nn.Parameter(torch.ones(4, 6, dtype=torch.bfloat16)), torch.ones(4, 6))
    assert not one(nn.Parameter(torch.ones(4, 6, dtype=torch.complex64)), torch.ones(4, 6))
    assert not one(nn.Parameter(torch.ones(4, 6)), torch.ones(4, 6, dtype=torch.float64))
    assert not one(nn.Parameter(torch.ones(4, 6)), torch.ones(6, 4).T)
    assert not one(nn.Parameter(torch.ones(4, 12)[:, ::2]))
    assert not one(nn.Parameter(torch.ones(4, 12)[:, ::2]), torch.ones(4, 12)[:, ::2])
    assert not one(Marked(torch.ones(4, 6)))
    pointwise = torch.ones(4, 6, 1, 1)
    assert one(nn.Parameter(pointwise), pointwise.to(memory_format=torch.channels_last))
    p, q = nn.Parameter(torch.ones(4)), nn.Parameter(torch.ones(4))
    differentiable = SGD([p], lr=0.1, differentiable=True)
    assert not NoisyUpdates(differentiable, ChaChaNoise()).take(p, torch.ones(4), 1.0)
    assert not NoisyUpdates(SGD([p], lr=0.1), ChaChaNoise()).take(q, torch.ones(4), 1.0)


def test_refused_states(twin):
    def after(change, make=Adam):
        p = nn.Parameter(torch.ones(4, 6))
        optimizer = make([p])
        p.grad = torch.ones(4, 6)
        optimizer.step()
        change(optimizer.state[p])
        return NoisyUpdates(optimizer, ChaChaNoise()).take(p, torch.ones(4, 6), 1.0)

    def momentum(held):
        return SGD(held, momentum=0.9)

    assert after(lambda state: None)
    assert after(lambda state: None, momentum)
    assert after(lambda state: state.update(momentum_buffer=None), momentum)  # as not there
    assert not after(lambda state: state.update(exp_avg=torch.ones(6, 4).T))
    assert not after(lambda state: state.update(exp_avg_sq=torch.ones(4, 6).double()))
    assert not after(lambda state: state.pop("exp_avg"))
    assert not after(lambda state: state.update(step=3))
    assert not after(lambda state: state.update(step=torch.ones(2)))
    assert not after(lambda state: state.update(momentum_buffer=torch.ones(6, 4).T), momentum)


def test_refused_sources(monkeypatch, twin):
    monkeypatch.undo()
    monkeypatch.setattr(updating, "LEAST_NUMBERS", 1)
    for noise in (CoinNoise(), PlacedNoise(), ChaChaNoise()):  # on a CPU
        run = Run(made("plain"), noise=noise).steps(1)
        assert min(moved(run)) > 0
        assert not NoisyUpdates(run.optimizer, noise).take(
            run.held["bias"], torch.ones(7), 1.0)  # fmt: skip
    assert isinstance(ChaChaNoise(), UpdatingNoise)
    assert isinstance(PlacedNoise(), UpdatingNoise)
    assert not isinstance(CoinNoise(), UpdatingNoise)


def test_only_large_parameters(monkeypatch, twin):
    monkeypatch.undo()
    assert updating.LEAST_NUMBERS == 1 << 18
    monkeypatch.setattr(ChaChaNoise, "updates", lambda self, total: True)
    for size, taken in ((1 << 18, True), ((1 << 18) - 1, False)):
        p = nn.Parameter(torch.zeros(size))
        updates = NoisyUpdates(SGD([p], lr=1.0), ChaChaNoise())
        assert updates.take(p, torch.zeros(size), 1.0) == taken
        assert len(updates) == taken


# --- parts ----------------------------------------------------------------------------------------


def test_small_sums_that_lie_apart_are_brought_together(monkeypatch):
    monkeypatch.setattr(updating, "LEAST_NUMBERS", 100)
    held = parameters()
    sums = {name: torch.randn_like(p.detach()) for name, p in held.items()}
    sums["other"] = torch.randn(6)
    held["other"] = nn.Parameter(torch.zeros(6))
    found = brought_together(sums, held)
    assert all(torch.equal(found[name], sums[name]) for name in sums)
    assert found["kernel"] is sums["kernel"]
    assert found["matrix"] is sums["matrix"]
    apart = found["bias"].data_ptr(), found["other"].data_ptr()
    assert abs(apart[0] - apart[1]) in (4 * 6, 4 * 7)
    again = brought_together(found, held)
    assert again["bias"] is found["bias"]
    mixed = {"bias": sums["bias"], "other": sums["other"].double()}
    assert brought_together(mixed, held)["other"] is mixed["other"]
    assert brought_together({}, held) == {}


def test_bad_parameters():
    p = torch.zeros(4, 6)
    source = ChaChaNoise()
    with pytest.raises(ValueError, match="std must be"):
        source.noisy_update(Descent(p, None, 0.1), torch.zeros(4, 6), -1.0, 1.0)
    with pytest.raises(ValueError, match="std must be 0, or from 1e-30"):
        source.noisy_update(Descent(p, None, 0.1), torch.zeros(4, 6), 1e-31, 1.0)
    with pytest.raises(ValueError, match="size must be"):
        source.noisy_update(Descent(p, None, 0.1), torch.zeros(4, 6), 1.0, 0.0)
    with pytest.raises(ValueError, match="out must be"):
        source.noisy_update(Descent(p, None, 0.1), torch.zeros(6, 4), 1.0, 1.0)
    for total in (torch.zeros(6, 4).T, torch.zeros(4, 6).double(), torch.zeros(4, 12)[:, ::2]):
        with pytest.raises(ValueError, match="total must be float32, without gaps"):
            source.noisy_update(Descent(p, None, 0.1), total, 1.0, 1.0)
    by = Moments(p, torch.zeros(4, 6), torch.zeros(6, 4).T, torch.tensor(1.0), 0.1)
    with pytest.raises(ValueError, match="total must be"):
        source.noisy_update(by, torch.zeros(4, 6), 1.0, 1.0)
    assert not p.any()


def test_no_block_is_used_twice(monkeypatch):
    source = ChaChaNoise()
    taken, take = [], source._stream.take
    monkeypatch.setattr(source._stream, "take", lambda n: taken.append(take(n)) or taken[-1])
    Run(made("adam"), noise=source).steps(3).steps(2, NEVER).steps(2, least=100)
    blocks = [(s.words, b) for s in taken for b in range(s.counter, s.counter + s.blocks)]
    assert len(blocks) == len(set(blocks))
    assert len(taken) == 7 * 3


def test_empty_parameters_and_a_copy_of_the_state():
    held = {"none": nn.Parameter(torch.zeros(0, 3)), "some": nn.Parameter(torch.zeros(5))}
    run = Run(made("adam"), held=held).steps(2)
    assert float(held["some"].detach().abs().min()) > 0
    copied = copy.deepcopy(run.state)
    run.optimizer.load_state_dict(copied)
    run.steps(1)
    assert float(run.optimizer.state[held["some"]]["step"]) == 3
