"""What every rank of a world does; each function returns what a test is to look at."""

import contextlib
import itertools
import json
import warnings

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor
from torch.nn import functional as F

from sfumato.core.randomness import SeededCoins
from sfumato.learning.dp_sgd import (
    DPSGD,
    Adaptive,
    ChaChaNoise,
    Flat,
    PerLayer,
    PoissonLots,
    TrainingError,
    TrainingPlan,
)
from sfumato.learning.dp_sgd.distributed import Alone, find_ranks
from sfumato.learning.functions import standardised_conv2d

ROWS = 40


class NoNoise:
    name, private = "none", False

    def __init__(self):
        self.stds = []

    def normal(self, like, std):
        self.stds.append(std)
        return torch.zeros_like(like)


class Words(nn.Module):
    """A small transformer whose head is its embedding, transposed by hand."""

    def __init__(self, words=11, width=6):
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.norm = nn.LayerNorm(width)
        self.attend = nn.MultiheadAttention(width, 2, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(width, 7), nn.GELU(), nn.Linear(7, width))

    def forward(self, tokens):
        h = self.words(tokens)
        z = self.norm(h)
        h = h + self.attend(z, z, z, need_weights=False)[0]
        h = h + self.mlp(h)
        return (h @ self.words.weight.t()).mean(1)


def mlp():
    return nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 7), nn.Tanh(), nn.Linear(7, 3))


def cnn():
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1), nn.GroupNorm(2, 4), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(4, 5, 3), nn.ReLU(), nn.Flatten(), nn.Linear(20, 3),
    )  # fmt: skip


class Standard(nn.Module):
    """A standardised convolution, whose gradients need its weights after the backward pass."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(5, 1, 3, 3))
        self.gain = nn.Parameter(torch.ones(5))
        self.head = nn.Linear(5, 3)

    def forward(self, x):
        h = standardised_conv2d(x, self.weight, self.gain, None, 1, 1)
        return self.head(h.relu().mean((2, 3)))


class StandardChild(nn.Module):
    """The same without a head: sharded on its own, it is the last that holds its weights."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(5, 1, 3, 3))
        self.gain = nn.Parameter(torch.ones(5))

    def forward(self, x):
        return standardised_conv2d(x, self.weight, self.gain, None, 1, 1)


class Power(nn.Module):
    """A function without a rule, which is run again with its weights."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.full((4,), 1.3))

    def forward(self, x):
        return torch.pow(x.abs() + 0.5, self.weight)


def standard_child():
    return nn.Sequential(
        StandardChild(), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(5, 3)
    )


def without_rules():
    return nn.Sequential(nn.Linear(5, 4), nn.PReLU(4), Power(), nn.Linear(4, 3))


MODELS = {
    "standard child": (standard_child, lambda g: torch.randn(ROWS, 1, 8, 8, generator=g)),
    "without rules": (without_rules, lambda g: torch.randn(ROWS, 5, generator=g)),
    "standard": (Standard, lambda g: torch.randn(ROWS, 1, 8, 8, generator=g)),
    "mlp": (mlp, lambda g: torch.randn(ROWS, 5, generator=g)),
    "cnn": (cnn, lambda g: torch.randn(ROWS, 1, 8, 8, generator=g)),
    "words": (Words, lambda g: torch.randint(0, 9, (ROWS, 5), generator=g)),
}


def loss(model, x, y, *_):
    return F.cross_entropy(model(x), y, reduction="none")


def case(kind, seed=3):
    make, inputs = MODELS[kind]
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(seed)
    x = inputs(generator)
    return make(), (x, torch.randint(0, 3, (ROWS,), generator=generator), torch.arange(ROWS))


def plan(clipping=None, lot=9.0, steps=4, z=1.0, n=ROWS):
    return TrainingPlan(PoissonLots(lot, n), clipping or Flat(0.5), z, steps, 1e-5)


def trainer(model, data, made=None, ranks=None, optimizer=torch.optim.Adam, **more):
    settings = {"noise": NoNoise(), "coins": SeededCoins(1), "progress": False} | more
    return DPSGD(
        model, optimizer(model.parameters(), lr=0.1), data, plan=made or plan(), ranks=ranks,
        **settings,
    )  # fmt: skip


def shard(model, every=True):
    if every:  # an embedding that is also the head stays with the root
        for child in [model.mlp] if isinstance(model, Words) else model.children():
            if any(True for _ in child.parameters()):
                fully_shard(child)
    return fully_shard(model)


def weights(model):
    held = {n: p.detach() for n, p in model.named_parameters()}
    return {n: (p.full_tensor() if isinstance(p, DTensor) else p).clone() for n, p in held.items()}


def distance(one, two):
    return max(float((one[n] - two[n]).abs().max()) for n in two)


def moved(model, kind):
    """How far a trained model is from its beginning."""
    return distance(weights(model), weights(case(kind)[0]))


def apart(kind, sharded=False, run=None, data=None, **more):
    """How far two ranks' result is from one process's, and how far that has moved."""
    run = run or (lambda t: weights(t.fit(loss).model))
    model, own = case(kind)
    data = own if data is None else data
    one = run(trainer(model, data, ranks=Alone(), **more))
    other, _ = case(kind)
    other = shard(other, every=sharded != "whole") if sharded else other
    many = run(trainer(other, data, **more))
    return {"apart": distance(many, one), "moved": moved(model, kind)}


# --- the same result ------------------------------------------------------------------------------


def equality(home):
    found = {}
    for sharded in (False, True):
        for kind in MODELS:
            found[kind, sharded] = apart(kind, sharded, optimizer=torch.optim.SGD)
        found["adam", sharded] = apart("cnn", sharded)
        for clipping in (Adaptive(0.5, count_noise=3.0), PerLayer(0.5)):
            found[type(clipping).__name__, sharded] = apart("mlp", sharded, made=plan(clipping))
        found["parts", sharded] = apart("cnn", sharded, batch_size=2)
        owners = [i // 3 for i in range(ROWS)]
        made = TrainingPlan(PoissonLots(5, 14), Flat(0.5), 1.0, 4, 1e-5, unit="owner")
        found["owners", sharded] = apart(
            "mlp", sharded, made=made, owners=owners, rows_per_owner=2
        )  # fmt: skip
        found["small lots", sharded] = apart("mlp", sharded, made=plan(lot=0.7, steps=8))
        found["average", sharded] = apart("mlp", sharded, ema_decay=0.9, run=averaged)
    found["average", "whole"] = apart(  # whole copies of the root's weights outlive a look
        "mlp", "whole", ema_decay=0.9, run=averaged, made=plan(lot=2.0, steps=8)
    )
    found["words", "whole"] = apart("words", "whole", optimizer=torch.optim.SGD)
    return found


class Rows(torch.utils.data.Dataset):
    """Rows by their numbers, as a data set's own code gives them."""

    def __init__(self, data):
        self.data = data

    def __len__(self):
        return ROWS

    def __getitem__(self, i):
        return tuple(leaf[i] for leaf in self.data)


def workers(home):
    """Batches that are prepared ahead, by processes of their own; lots are drawn ahead, too."""
    data = Rows(case("mlp")[1])
    found = {}
    for sharded in (False, True):
        found[sharded] = apart("mlp", sharded, data=data, workers=1, batch_size=2)
    return found


def averaged(t):
    for batch in t:
        t.backward(loss(t.model, *batch))
        with torch.no_grad(), t.averaged() as model:  # looks at weights between steps
            model(batch[0])
    with t.averaged():
        return weights(t.model)


# --- noise, lots, normaliser ----------------------------------------------------------------------

WIDE = 30_001  # not even: padding has no noise


class Flat0(nn.Module):
    """Many weights whose gradient is 0: what a step leaves in them is noise."""

    def __init__(self):
        super().__init__()
        self.wide = nn.Parameter(torch.zeros(WIDE, 2))
        self.few = nn.Parameter(torch.zeros(3))

    def forward(self, x):
        return (x * self.wide[0]).sum(1) * 0 + (x * self.few[:2]).sum(1) * 0


def noise(home):
    """One step on nothing, with real noise: weights are -(noise / lot size)."""
    found = {}
    for sharded in (False, True):
        for source in ("coins", "chacha"):  # the second adds its noise in one pass, as on GPUs
            model = Flat0()
            model = fully_shard(model) if sharded else model
            made = TrainingPlan(PoissonLots(10, ROWS), Flat(2.0), 1.5, 1, 1e-5)
            DPSGD(
                model, torch.optim.SGD(model.parameters(), lr=1.0), torch.zeros(ROWS, 2),
                plan=made, progress=False, noise=ChaChaNoise() if source == "chacha" else None,
            ).fit(lambda m, x: m(x))  # fmt: skip
            found[sharded, source] = weights(model)["wide"]
    return found | {"std": 1.5 * 2.0 / 10}


def seeded_noise(home):
    """Seeded coins, for tests: even then two ranks' noise differs."""
    model = Flat0()
    made = TrainingPlan(PoissonLots(10, ROWS), Flat(2.0), 1.5, 1, 1e-5)
    run = DPSGD(
        model, torch.optim.SGD(model.parameters(), lr=1.0), torch.zeros(ROWS, 2), plan=made,
        progress=False, coins=SeededCoins(5),
    ).fit(lambda m, x: m(x))  # fmt: skip
    return {"weights": weights(model)["wide"], "private": run.record.private}


def adapting(home):
    """A clip norm that follows a noisy count, with real noise: one count, one answer."""
    found = {}
    for sharded in (False, True):
        model, data = case("mlp")
        model = shard(model) if sharded else model
        run = DPSGD(
            model, torch.optim.SGD(model.parameters(), lr=0.1), data,
            plan=plan(Adaptive(0.5, count_noise=3.0)), progress=False,
        ).fit(loss)  # fmt: skip
        found[sharded] = run._step.sum.clipping.clip, weights(model)
    return found


def rows_seen(home):
    """Which rows each rank was handed, in which step, and what they weighed."""
    model, data = case("mlp")
    run = trainer(model, data, plan(lot=6.0, steps=6), batch_size=2)
    seen = []
    for batch in run:
        if not run.rehearsing:
            part = run._part
            seen.append((part.step, batch[2].tolist(), part.weights.tolist(), part.present))
        run.backward(loss(model, *batch))
    sampler = run.plan.lots.sampler(ROWS, SeededCoins(1))
    return {"seen": seen, "lots": [next(sampler).tolist() for _ in range(6)]}


def normaliser(home):
    """One step of SGD, every gradient clipped hard: its length says what it was divided by."""
    model, data = case("mlp")
    made = TrainingPlan(PoissonLots(ROWS, ROWS), Flat(1e-3), 1.0, 1, 1e-5)
    start = weights(model)
    same = (data[0][:1].expand(ROWS, -1).clone(), data[1][:1].expand(ROWS).clone())
    trainer(model, same, made, optimizer=torch.optim.SGD).fit(loss)
    change = torch.cat([(weights(model)[n] - start[n]).flatten() for n in start])
    return {"length": float(change.norm()) / 0.1 / 1e-3}  # of the mean, over the clip norm


def facts(home):
    """What the operator is told: once, by rank 0, of all ranks' units."""
    told = {}
    for kind in ("one", "two", "sharded"):
        model, data = case("mlp")
        steps = []

        class Told:
            wanted = True

            def update(self, step, steps=steps):
                steps.append(step)

            def close(self):
                pass

        model = shard(model) if kind == "sharded" else model
        trainer(
            model, data, ranks=Alone() if kind == "one" else None, progress=Told()
        ).fit(loss)  # fmt: skip
        told[kind] = [(s.step, s.loss, s.clipped, s.signal_to_noise) for s in steps]
    return told


# --- checkpoints ----------------------------------------------------------------------------------


def stopped(run, after):
    for batch in run:
        run.backward(loss(run.model, *batch))
        if not run.rehearsing and run.steps_taken == after and run._part.last:
            break


def begin(home, kind, sharded, ranks=None):
    model, data = case(kind)
    model = shard(model) if sharded else model
    made = plan(Adaptive(0.5, count_noise=3.0), steps=6)
    return model, trainer(
        model, data, made, checkpoints=home, checkpoint_every=1, ema_decay=0.9, ranks=ranks
    )  # fmt: skip


def saved(home):
    """Three steps on these ranks, replicated and sharded; another number goes on."""
    found = {}
    for sharded in (False, True):
        for kind in ("cnn", "words"):
            _, run = begin(home / f"{kind}-{sharded}", kind, sharded)
            loop = iter(run)
            stopped(run, 3)
            loop.close()
            found[kind, sharded] = weights(run.model)
    return found


def resumed(home):
    """Goes on from what others saved; sharded if they were not, and the other way round."""
    found = {}
    for sharded in (False, True):
        for kind in ("cnn", "words"):
            folder = home.parent / "saved" / f"{kind}-{sharded}"
            model, run = begin(folder, kind, not sharded)
            run.resume()
            taken, at = run.steps_taken, weights(model)
            before = sum(len(s) for s in run.optimizer.state.values())
            run.fit(loss)
            found[kind, sharded] = {
                "at": at, "end": weights(model), "taken": taken, "state": before,
                "steps": run.steps_taken, "lost": run.record.facts["steps_lost"],
            }  # fmt: skip
    return found


def neighbours(home):
    """Two tables that differ in one row, a bad one; the same coins: all but weights is the same."""
    found = []
    for sharded in (False, True):
        for bad in (False, True):
            model, (x, *rest) = case("mlp")
            if bad:
                x[5] = torch.tensor([torch.nan, torch.inf, 1e38, -1e38, 0.0])
            folder = home / f"{sharded}-{bad}"
            model = shard(model) if sharded else model
            made = plan(lot=20.0)  # the row is in some lots
            run = trainer(model, (x, *rest), made, checkpoints=folder, batch_size=3)
            turns = []
            for batch in run:
                turns.append((run.rehearsing, len(batch[0])))
                run.backward(loss(model, *batch))
            finite = all(bool(w.isfinite().all()) for w in weights(model).values())
            written = (folder / "journal.jsonl").read_text().splitlines()
            journal = [json.loads(line).get("lots") for line in written]
            files = sorted(path.name for path in folder.iterdir())
            found.append((run.record.to_dict(), turns, journal, files, finite))
    return {"replicated": found[:2], "sharded": found[2:]}


# --- refusals -------------------------------------------------------------------------------------


def message(act, kind=TrainingError):
    """What an act says no with; nothing if it does not."""
    try:
        act()
    except kind as error:
        return f"{type(error).__name__}: {error}"
    return ""


def refusals(home):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor
    from torch.nn.parallel import DistributedDataParallel

    from sfumato.core.randomness import SYSTEM
    from sfumato.learning.dp_sgd import CoinNoise, TorchNoise
    from sfumato.learning.dp_sgd.deferred import Deferred

    rank, found = dist.get_rank(), {}
    model, data = case("mlp")

    def refused(name, act, kind=TrainingError):
        found[name] = message(act, kind)

    refused("ddp", lambda: trainer(DistributedDataParallel(case("mlp")[0]), data))
    refused("plan", lambda: trainer(model, data, plan(z=1.0 + rank)))
    fewer = tuple(leaf[: ROWS - rank] for leaf in data)
    refused("rows", lambda: trainer(model, fewer))
    refused("other model", lambda: trainer(case("cnn")[0] if rank else model, data))
    refused("batch size", lambda: trainer(model, data, batch_size=2 + rank))
    mixed = SYSTEM if rank else SeededCoins(1)
    refused("coins", lambda: trainer(model, data, coins=mixed, noise=None))
    alike = CoinNoise(SeededCoins(3))
    refused("same noise", lambda: trainer(model, data, noise=alike))
    generator = torch.Generator().manual_seed(4)
    refused("same generator", lambda: trainer(model, data, noise=TorchNoise(generator)))
    rates = torch.optim.SGD if rank else torch.optim.Adam
    refused("optimizer", lambda: trainer(model, data, optimizer=rates).fit(loss))
    other = (data[0] + rank, *data[1:])
    refused("other rows", lambda: trainer(model, other).fit(loss))
    later = Deferred(lambda: data, like=data, rows=ROWS)
    refused("deferred", lambda: trainer(model, later))
    refused("compiled shards", lambda: trainer(shard(mlp()), data).fit(loss, compile=True))
    parts = mlp()
    fully_shard(parts[0])
    refused("half sharded", lambda: trainer(parts, data))
    mesh = init_device_mesh("cpu", (1, 2), mesh_dim_names=("replicate", "shard"))
    hybrid = mlp()
    fully_shard(hybrid, mesh=mesh)
    refused("hybrid", lambda: trainer(hybrid, data))
    placed = mlp()
    line = init_device_mesh("cpu", (2,))
    for linear in (placed[0], placed[2], placed[4]):
        for name, p in list(linear.named_parameters()):
            layout = [Shard(0)] if name == "weight" else [Replicate()]
            setattr(linear, name, nn.Parameter(distribute_tensor(p.detach(), line, layout)))
    refused("tensor parallel", lambda: trainer(placed, data))
    refused("kept to itself", lambda: trainer(shard(mlp()), data, ranks=Alone()))
    both = nn.Sequential(nn.Linear(5, 3), Mixing() if rank else nn.Identity())
    refused("one rank mixes", lambda: trainer(both, data).fit(loss))
    refused("one rank's loss", lambda: trainer(mlp(), data).fit(one_loss if rank else loss))
    for held, used in ((torch.float64, torch.float32), (torch.float64, torch.bfloat16),
                       (torch.float32, torch.float64)):  # fmt: skip
        policy = MixedPrecisionPolicy(param_dtype=used, output_dtype=held)
        short = fully_shard(mlp().to(held), mp_policy=policy)
        run = trainer(short, (data[0].to(held), *data[1:]))
        refused((held, used), lambda run=run: run.fit(loss))
    for name, (fooling, its_loss) in FOOLERS.items():
        for sharded in (False, True):
            one = fooling()
            one = shard(one) if sharded else one
            run = trainer(one, data)
            refused((name, sharded), lambda run=run, its_loss=its_loss: run.fit(its_loss))
            found[name, sharded, "steps"] = run.steps_taken
    tokens = case("words")[1]
    refused("words across ranks", lambda: trainer(Words(), tokens).fit(gathering_loss))
    refused("drifting", lambda: drifting(home, rank))
    refused("after", lambda: trainer(mlp(), data).fit(loss, after=leaving(rank)), Exception)
    refused("unsendable", lambda: find_ranks().leading(lambda: lambda: 0), Exception)
    pictures, theirs = case("cnn")
    pictures = pictures.to(memory_format=torch.channels_last) if rank else pictures
    refused("other layout", lambda: trainer(pictures, theirs))
    refused("later steps", lambda: entered_again(rank, steps=1))
    refused("later clip norm", lambda: entered_again(rank, clip=0.1))
    found["initial"] = started(rank)
    found["initial average"] = started(rank, ema_decay=0.999)
    return found


def leaving(rank):
    """Goes wrong on one rank, after its second step."""

    def after(step):
        if rank and step == 2:
            raise ValueError("a secret of rank 1")

    return after


def entered_again(rank, steps=0, clip=0.0):
    """A loop is left, and one rank is elsewhere when it goes on."""
    model, data = case("mlp")
    run = trainer(model, data, plan(Adaptive(0.5, count_noise=3.0)))
    stopped(run, 1)
    if rank:
        run._steps_taken += steps
        run._step.set_clip(run._step.sum.clipping.clip + clip)
    run.fit(loss)


def drifting(home, rank):
    """One rank's weights are changed behind the trainer's back."""
    model, data = case("mlp")

    def after(step):
        if rank and step == 1:
            model[0].weight.data.add_(1.0)

    trainer(model, data, checkpoints=home / "drifting", checkpoint_every=2).fit(loss, after=after)


class Mixing(nn.Module):
    def forward(self, x):
        return x - x.mean(0)


class AcrossRanks(nn.Module):
    """Adds what other ranks have; nothing if they have the same."""

    def forward(self, h):
        other = h.detach().clone()
        dist.all_reduce(other)
        return h + 10 * (other - dist.get_world_size() * h.detach())


class SharedGradient(torch.autograd.Function):
    """The same number as ever; what goes back is all ranks' mean, as some layers of others do."""

    @staticmethod
    def forward(ctx, h):
        return h.clone()

    @staticmethod
    def backward(ctx, grad):
        grad = grad.clone()
        dist.all_reduce(grad)
        return grad / dist.get_world_size()


class BackAcrossRanks(nn.Module):
    def forward(self, h):
        return SharedGradient.apply(h)


def gathering_loss(model, x, y, *_):
    """A little more where other ranks' examples lose more than these."""
    losses = loss(model, x, y)
    everyone = losses.detach().clone()
    dist.all_reduce(everyone)
    return losses + 1e-3 * (everyone - dist.get_world_size() * losses.detach())


def across(between):
    return lambda: nn.Sequential(nn.Linear(5, 4), nn.Tanh(), between(), nn.Linear(4, 3))


FOOLERS = {
    "values across ranks": (across(AcrossRanks), loss),
    "gradients across ranks": (across(BackAcrossRanks), loss),
    "loss across ranks": (mlp, gathering_loss),
}


class AcrossTwo(nn.Module):
    """Two ranks of several share what they have, the others do not."""

    def __init__(self, pair):
        super().__init__()
        self.pair = pair

    def forward(self, h):
        inside = dist.get_rank() in self.pair
        other = h.detach().clone() if inside else torch.zeros_like(h)
        dist.all_reduce(other)
        return h + (other - 2 * h.detach()) if inside else h


def pairs(home):
    """Whichever two ranks share what they have, all of them hear of it."""
    found, count = {}, dist.get_world_size()
    for pair in itertools.combinations(range(count), 2):
        model = nn.Sequential(nn.Linear(5, 4), nn.Tanh(), AcrossTwo(pair), nn.Linear(4, 3))
        _, data = case("mlp")
        found[pair] = message(lambda model=model, data=data: trainer(model, data).fit(loss))
    model, data = case("mlp")
    found["usual"] = message(lambda: trainer(model, data).fit(loss))
    return found


def one_loss(model, x, y, *_):
    return F.cross_entropy(model(x), y)


def started(rank, **more):
    """Ranks whose first weights differ train rank 0's."""
    _, data = case("mlp")
    torch.manual_seed(rank)
    model = mlp()
    run = trainer(model, data, **more).fit(loss)
    with run.averaged() if more else contextlib.nullcontext():
        return weights(model)


def charged(home):
    """A budget with room for one run: the second is refused on every rank, by the same error."""
    from sfumato.ledger import Budget, BudgetExceeded, Ledger

    epsilon = plan().guarantee.epsilon
    path = home / "privacy.db"
    if dist.get_rank() == 0:
        Ledger(path).create("people", Budget(1.5 * epsilon, 1e-4))
    dist.barrier()
    mine = path if dist.get_rank() == 0 else home / "nowhere.db"  # only rank 0 opens it
    found = {}
    for name in ("first", "second"):
        model, data = case("mlp")
        run = trainer(model, data, ledger=mine, dataset="people")
        found[name] = message(lambda run=run: run.fit(loss), BudgetExceeded)
        found[f"{name} steps"] = run.steps_taken
        found[f"{name} record"] = run.record.to_dict()
    if dist.get_rank() == 0:
        ledger = Ledger(path, create=False)
        found["kinds"] = [entry.kind for entry in ledger.history("people")]
        found["left"] = ledger.status("people", declared=False).left / epsilon
    found["folder"] = message(lambda: refused_folder(home), ValueError)
    return found


def refused_folder(home):
    """A folder with something else in it, which only rank 0 looks at."""
    busy = home / "busy"
    busy.mkdir(exist_ok=True)
    (busy / "note").write_text("mine")
    model, data = case("mlp")
    trainer(model, data, checkpoints=busy)


def short(home):
    """More ranks than units in most lots, and empty lots."""
    return {sharded: apart("mlp", sharded, made=plan(lot=0.8, steps=8)) for sharded in (0, 1)}


def compiled(home):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the compiler's own
        return {"mlp": apart("mlp", run=lambda t: weights(t.fit(loss, compile=True).model))}


def mixed_precision(home):
    """Sharded parameters in bfloat16: near one process in float32."""
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, output_dtype=torch.float32)
    model, data = case("mlp")
    trainer(model, data, ranks=Alone(), optimizer=torch.optim.SGD).fit(loss)
    other, _ = case("mlp")
    for child in (other[0], other[2], other[4]):
        fully_shard(child, mp_policy=policy)
    fully_shard(other, mp_policy=policy)
    run = trainer(other, data, optimizer=torch.optim.SGD).fit(loss)
    kinds = {str(p.dtype) for p in other.parameters()}
    return {
        "apart": distance(weights(other), weights(model)), "moved": moved(model, "mlp"),
        "kinds": kinds, "eta": run._step.sum.eta,
    }  # fmt: skip


# --- ensembles ------------------------------------------------------------------------------------


def ensembles(home):
    """Shadow models and teachers, shared out; who trained what, and whether all is as alone."""
    import numpy as np

    from sfumato.learning.ensembles import Schedule, half_each, train_ensemble
    from sfumato.learning.pate.teachers import (
        TeacherRecipe,
        TeacherSchedule,
        assign_units,
        train_teachers,
    )

    _, (x, y, _) = case("mlp")
    ranks, rank = find_ranks(), dist.get_rank()
    subsets, how = half_each(6, ROWS, 1), Schedule(epochs=2, batch_size=8)
    told = []

    def shadows(**more):
        return train_ensemble(
            mlp, x, y, subsets, how, together=2, engine="stacked", seed=4, **more
        )  # fmt: skip

    found = {
        "shadows alone": shadows().weights,
        "shadows": shadows(
            ranks=ranks, folder=home / "shadows", progress=lambda done, _: told.append(done)
        ).weights,
        "epochs": told,
    }
    recipe = TeacherRecipe("small", mlp, 3, TeacherSchedule(steps=4, batch_size=5, rate=0.05))
    parts = assign_units(np.arange(ROWS), teachers=5, salt=b"0" * 32)

    def teachers(**more):
        return train_teachers(recipe, x, y, parts, engine="stacked", **more).weights

    found["teachers alone"] = teachers(together=3)
    found["teachers"] = teachers(ranks=ranks, folder=home / "teachers")
    found["no folder"] = message(lambda: shadows(ranks=ranks), ValueError)
    other = home / f"own-{rank}"
    found["own folders"] = message(lambda: shadows(ranks=ranks, folder=other), ValueError)

    def broken():
        if rank:
            raise ValueError("no such model")
        return mlp()

    found["broken"] = message(
        lambda: train_ensemble(
            broken, x, y, subsets, how, together=1, ranks=ranks, folder=home / "broken"
        ),
        (ValueError, TrainingError),
    )
    return found


def traffic(home):
    """Bytes that this rank sent in four steps, by its own count."""

    found = {}
    for kind in ("replicated", "sharded"):
        model, data = nn.Sequential(nn.Linear(5, 202), nn.Tanh(), nn.Linear(202, 4)), case("mlp")[1]
        found["parameters"] = sum(p.numel() for p in model.parameters())
        model = shard(model) if kind == "sharded" else model
        ranks, sent, parts = find_ranks(), [], 0
        run = trainer(model, data, plan(lot=12.0), ranks=ranks, batch_size=3)
        for batch in run:
            if not run.rehearsing:
                sent = sent or [ranks.sent]  # what it took to share first weights
                parts += 1
            run.backward(loss(model, *batch))
        found[kind], found["parts"] = (ranks.sent - sent[0]) / 4, parts / 4
    return found
