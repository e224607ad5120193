"""Draws the figures of docs/concepts, each from what sfumato computes.

python docs/figures.py                       # all of them, into docs/concepts
python docs/figures.py budgets groups        # some
python docs/figures.py --out somewhere
"""

from __future__ import annotations

import argparse
import io
import math
from collections.abc import Callable
from functools import partial
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch
from matplotlib.ticker import FuncFormatter
from PIL import Image

import sfumato as sf
from sfumato import events
from sfumato.attacks import averaging, tracing
from sfumato.mechanisms import sensitivity as functions
from sfumato.mechanisms.crossover import crossover_curve

FOLDER = Path(__file__).parent / "concepts"
INK, PALE = "#1f2430", "#c9ced6"
BLUE, RED, GREEN, PINK, GOLD, SKY = (  # Okabe and Ito's: told apart by colour-blind readers, too
    "#0072b2",
    "#d55e00",
    "#009e73",
    "#cc79a7",
    "#e69f00",
    "#56b4e9",
)
STYLE = {
    "axes.axisbelow": True,
    "axes.edgecolor": PALE,
    "axes.grid": True,
    "axes.labelcolor": INK,
    "axes.labelsize": 12,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "font.size": 12,
    "grid.color": "#e6e8ec",
    "legend.frameon": False,
    "legend.fontsize": 11,
    "lines.linewidth": 2.2,
    "text.color": INK,
    "xtick.color": INK,
    "xtick.labelsize": 11,
    "ytick.color": INK,
    "ytick.labelsize": 11,
}
PERCENT = FuncFormatter(lambda share, _: f"{100 * share:.10g} %")
PLAIN = FuncFormatter(lambda value, _: f"{value:,.10g}")  # 0.1, 10, 1,000 on logarithmic axes


def new(height: float = 4.2, rows: int = 1, columns: int = 1, **options) -> tuple[Figure, Axes]:
    """A figure seven inches wide, with its axes."""
    figure = Figure(figsize=(7.0, height), dpi=110, layout="constrained")
    return figure, figure.subplots(rows, columns, **options)


def log_axes(axes: Axes, x: bool = True, y: bool = True) -> None:
    """Logarithmic axes with plain numbers."""
    for wanted, axis in ((x, axes.xaxis), (y, axes.yaxis)):
        if wanted:
            getattr(axes, f"set_{axis.axis_name}scale")("log")
            axis.set_major_formatter(PLAIN)
            axis.set_minor_formatter(FuncFormatter(lambda *_: ""))


def promise() -> Figure:
    """What any attacker finds against false alarms, by epsilon."""
    figure, axes = new()
    rates = np.geomspace(1e-3, 0.999, 300)
    shades = ((0.0, PALE), (0.5, SKY), (1.0, BLUE), (2.0, GREEN), (4.0, GOLD), (8.0, RED))
    for epsilon, colour in shades:
        profile = sf.privacy_profile(events.EpsilonDeltaEvent(epsilon, 0.0), [1e-5], rates=rates)
        found = [profile.power_at(rate) for rate in rates]
        label = f"ε = {epsilon:g}" if epsilon else "guessing (ε = 0)"
        axes.plot(rates, found, color=colour, label=label)
    log_axes(axes, y=False)
    axes.xaxis.set_major_formatter(PERCENT)
    axes.yaxis.set_major_formatter(PERCENT)
    axes.set_xlim(1e-3, 1)
    axes.set_ylim(0, 1.02)
    axes.set_xlabel("false alarms: share of those not in the data who are accused")
    axes.set_ylabel("most that are found:\nshare of those in the data")
    axes.legend(loc="upper left", bbox_to_anchor=(0.0, 0.98), handlelength=1.4)
    return figure


def sensitivity() -> Figure:
    """How far one more row moves two counts; what a bound on incomes costs when it is off."""
    figure, (left, right) = new(3.9, columns=2)
    rows = np.arange(0, 17)
    for function, colour, label in (
        (functions.RoundedCount(5), RED, "rounded up to fives"),
        (functions.Count(), BLUE, "count"),
    ):
        values = [function([1] * int(n)) for n in rows]
        left.step(rows, values, where="mid", color=colour, label=label)
    left.annotate("", (10.5, 15), (10.5, 10), arrowprops={"arrowstyle": "<->", "color": INK})
    left.text(10.2, 12.5, "moves by 5", ha="right", va="center", fontsize=11)
    left.set(xlabel="rows in the table", ylabel="answer", ylim=(0, 24))
    left.legend(loc="upper left", handlelength=1.2, borderaxespad=0.1)
    incomes = sf.load_table("labsup")["labinc"].to_numpy()  # public: a textbook's census
    bounds = np.geomspace(5, 5000, 60)
    sums = [functions.BoundedSum(0, bound) for bound in bounds]
    cut = np.array([incomes.sum() - float(one(incomes)) for one in sums]) / incomes.sum()
    bound_of = [one.sensitivity("add-remove") for one in sums]
    spread = [sf.Laplace.calibrate(one, epsilon=0.1).standard_deviation for one in bound_of]
    noise = np.array(spread) / incomes.sum()
    right.plot(bounds, np.hypot(cut, noise), color=PALE, lw=6, label="both")
    right.plot(bounds, cut, color=BLUE, label="cut off")
    right.plot(bounds, noise, color=RED, label="noise")
    log_axes(right, y=False)
    right.yaxis.set_major_formatter(PERCENT)
    right.set(xlabel="declared bound, $1,000", ylabel="error of the sum", ylim=(0, 0.4))
    right.legend(loc="upper right", handlelength=1.2, borderaxespad=0.1)
    return figure


def laplace_or_gaussian() -> Figure:
    """The expected error of each number, in two cases."""
    figure, axes = new()
    epsilon, delta = 1.0, 1e-5
    dimensions = np.unique(np.geomspace(1, 1000, 60).astype(int))
    both = crossover_curve(epsilon, delta, dimensions, criterion="l1")
    axes.plot(dimensions, both.laplace / dimensions, color=RED, label="Laplace, δ = 0")
    axes.plot(dimensions, both.gaussian / dimensions, color=BLUE, label="Gaussian, δ = 1e-5")
    one = sf.Sensitivity(1.0)
    exact = sf.Gaussian.calibrate(one, epsilon=epsilon, delta=delta)
    alone = sf.Laplace.calibrate(one, epsilon=epsilon), exact
    for noise, colour in zip(alone, (RED, BLUE), strict=True):
        axes.axhline(noise.expected_error, color=colour, ls="--", lw=1.6)
    cross = both.crossover
    axes.axvline(cross, ymax=0.8, color=PALE, lw=1.4, zorder=1)
    axes.text(cross * 1.3, 600, f"Gaussian is smaller\nfrom {cross} numbers on", va="center")
    axes.text(900, 17, "solid: one person moves all k", ha="right", fontsize=11)
    axes.text(900, 1.45, "dashed: one person moves one of the k", ha="right", fontsize=11)
    log_axes(axes)
    axes.set_xlim(1, 1000)
    axes.set_xlabel("k, how many numbers are released")
    axes.set_ylabel("expected error of each number")
    axes.legend(loc="upper left", handlelength=1.6)
    return figure


def budgets() -> Figure:
    """One count asked again and again: what the attacker knows, and what it cost."""
    figure, (above, below) = new(5.6, rows=2, sharex=True)
    asked = np.unique(np.geomspace(1, 500, 80).astype(int))
    noise = sf.Laplace(scale=2**0.5, sensitivity=sf.Sensitivity(1.0))
    answers = noise.perturb(np.full(500, 3.0), coins=sf.SeededCoins(1))
    known = averaging.attack(lambda k: answers[:k], asked.tolist(), noise_sd=2.0)
    above.fill_between(asked, *np.transpose([one.interval for one in known]), color=SKY, alpha=0.35)
    above.plot(asked, [one.mean for one in known], color=BLUE, label="mean so far, 90 % interval")
    above.axhline(3, color=INK, ls="--", lw=1.4, label="truth")
    above.set(ylabel="people with a\nbad rating", ylim=(-1, 10))
    above.legend(loc="upper right", handlelength=1.4)
    below.plot(asked, asked * noise.guarantee().epsilon, color=RED, label="δ = 0: ε adds up")
    exact = sf.epsilon_curve(noise.event, asked.tolist(), delta=1e-5)
    below.plot(asked, exact, color=BLUE, label="δ = 1e-5, accounted exactly")
    below.axhline(3, color=INK, ls="--", lw=1.4)
    allowed = math.floor(3 / noise.guarantee().epsilon)
    words = f"a budget of 3 allows {allowed} answers"
    below.text(490, 2.5, words, ha="right", va="top", fontsize=11)
    log_axes(below)
    below.set(ylabel="ε spent", xlim=(1, 500), xlabel="how often the question was asked")
    below.legend(loc="upper left", handlelength=1.4)
    return figure


def composition() -> Figure:
    """Epsilon of one training run as it goes on, by theorem."""
    figure, axes = new(4.4)
    steps = np.unique(np.geomspace(1, 10_000, 25).astype(int))
    named = {"basic": RED, "strong": GOLD, "moments": PINK, "rdp": GREEN, "pld": BLUE}
    words = {"rdp": "RDP", "pld": "PLD, exact", "strong": "strong, optimal"}
    for name, colour in named.items():
        runs = [sf.dp_sgd(noise_multiplier=4, sample_rate=0.01, steps=int(t)) for t in steps]
        spent = [sf.account(run, delta=1e-5, accountant=name).epsilon for run in runs]
        label = f"{words.get(name, name)}: {spent[-1]:.3g}"
        axes.plot(steps, spent, color=colour, label=label, lw=3 if name == "pld" else 2)
    log_axes(axes)
    axes.set(xlim=(1, 10_000), xlabel="steps", ylabel="ε at δ = 1e-5")
    axes.legend(title="after 10,000 steps", loc="upper left", handlelength=1.4)
    return figure


def groups() -> Figure:
    """Epsilon of a person with several records, from the pair alone and from the events."""
    figure, axes = new()
    training, sizes, delta = sf.dp_sgd(4, 0.01, 10_000), np.arange(1, 9), 1e-5
    pairs = sf.account_many(training, np.geomspace(1e-16, delta, 200))
    textbook = []
    for size in sizes:
        people = [pair.for_group(int(size)) for pair in pairs]
        textbook.append(min(each.epsilon for each in people if each.delta <= delta))
    grouped = [events.GroupedEvent(training, int(size), "person") for size in sizes]
    exact = [sf.account(event, delta).epsilon for event in grouped]
    axes.plot(sizes, textbook, "o-", color=RED, label="by group privacy's formula")
    axes.plot(sizes, exact, "o-", color=BLUE, label="accounted for the person")
    axes.axhline(exact[0], color=PALE, ls="--")
    axes.text(8, exact[0] + 0.15, "what one record has", ha="right", va="bottom", fontsize=11)
    axes.set(xlabel="records of one person", ylabel="ε at δ = 1e-5", xticks=sizes)
    axes.set_ylim(bottom=0)
    axes.legend(loc="upper left")
    return figure


def local_and_central() -> Figure:
    """The error of a count by how many take part and who adds the noise."""
    from sfumato.federated.integer_noise import DistributedSkellam

    figure, axes = new()
    epsilon, delta, people = 1.0, 1e-5, [10**k for k in range(2, 7)]
    local = [sf.RandomizedResponse(epsilon).standard_deviation(n, 0.5) for n in people]
    shares = [
        DistributedSkellam.calibrate(
            epsilon=epsilon,
            delta=delta,
            rounds=1,
            clip=1.0,
            dimension=1,
            bits=40,
            clients=n,
            n_min=n * 4 // 5,
        ).standard_deviation(survivors=n)
        for n in people
    ]
    curator = sf.Laplace.calibrate(sf.Sensitivity(1.0), epsilon=epsilon)
    gaussian = sf.Gaussian.calibrate(sf.Sensitivity(1.0), epsilon=epsilon, delta=delta)
    axes.plot(people, local, "o-", color=RED, label="at the source: randomised response")
    axes.plot(people, shares, "o-", color=GREEN, label="in shares, under a secure sum, δ = 1e-5")
    for noise, colour, words in ((gaussian, SKY, "Gaussian, δ = 1e-5"), (curator, BLUE, "Laplace")):
        level = [noise.standard_deviation] * len(people)
        axes.plot(people, level, "o-", color=colour, label=f"by a curator: {words}")
    log_axes(axes)
    axes.set(xlabel="people", ylabel="standard deviation of the count, people", ylim=(1, 20_000))
    axes.legend(loc="upper left", handlelength=1.6)
    return figure


def attacks() -> Figure:
    """Members found at 1 % false alarms: by tracing, by the best attacker, by the bound."""
    figure, axes = new()
    delta, rate, random = 1e-5, 0.01, np.random.default_rng(1)
    p = random.beta(2, 2, 1000)
    studies = [random.random((2, 100, 1000)) < p for _ in range(20)]
    means = [members.mean(axis=0) for members, _ in studies]
    moved = sf.Sensitivity(1000**0.5 / 100, "l2", "replace-one", "person", dimension=1000)

    def traced(perturb: Callable) -> float:
        seen = [(study, perturb(mean)) for study, mean in zip(studies, means, strict=True)]
        scores = [[tracing.inner_product(who, q, p) for who in study] for study, q in seen]
        return tracing.evaluate(*np.hstack(scores), 1000, rates=[rate]).power[0][1]

    fine = np.geomspace(0.1, 100, 61)
    noises = {e: sf.Gaussian.calibrate(moved, epsilon=float(e), delta=delta) for e in fine}
    best = [sf.privacy_profile(noises[e].event, [delta], rates=[rate]).power_at(rate) for e in fine]
    bound = np.minimum(1, np.exp(fine) * rate + delta)
    axes.plot(fine, bound, color=INK, ls="--", label="the bound, e^ε · 1 % + δ")
    axes.plot(fine, best, color=RED, label="the best attack on this noise")
    coins = sf.SeededCoins(1)  # so that the picture stays the same; never for a release
    found = [traced(partial(noises[e].perturb, coins=coins)) for e in fine[::5]]
    axes.plot(fine[::5], found, "o-", color=BLUE, label="tracing")
    bare = traced(lambda mean: mean)
    axes.axhline(bare, color=PALE, zorder=1)
    axes.text(0.1, bare + 0.02, "tracing, without noise", va="bottom")
    log_axes(axes, y=False)
    axes.yaxis.set_major_formatter(PERCENT)
    axes.set(xlabel="ε, at δ = 1e-5", ylabel="members found\nat 1 % false alarms", ylim=(0, 1.03))
    axes.legend(loc="upper left", bbox_to_anchor=(0, 0.7), handlelength=1.6)
    return figure


def threats() -> Figure:
    """Who sees what in collaborative training, and against whom which noise protects."""
    from sfumato.federated import CentralNoise, Federation, LocalNoise, MaskedSum, SharedNoise
    from sfumato.federated.works import ClientUpdates

    figure, axes = new(4.9)
    axes.set(xlim=(0, 10), ylim=(0, 7))
    axes.axis("off")
    for x, y, words in (
        (1.1, 6.3, "ward"), (1.1, 5.3, "clinic"), (1.1, 4.3, "lab"), (4.9, 5.3, "server"),
        (8.75, 6.0, "participants"), (8.75, 4.6, "the public"),
    ):  # fmt: skip
        box(axes, x, y, words, 2.3 if x > 8 else 1.8)
    for start, end, colour in (
        ((2.05, 6.3), (3.95, 5.5), RED), ((2.05, 5.3), (3.95, 5.3), RED),
        ((2.05, 4.3), (3.95, 5.1), RED), ((5.85, 5.4), (7.55, 6.0), BLUE),
        ((5.85, 5.2), (7.55, 4.6), BLUE),
    ):  # fmt: skip
        axes.annotate("", end, start, arrowprops={"arrowstyle": "-|>", "color": colour, "lw": 2})
    for x, y, words in (
        (4.9, 4.72, "inverts updates"), (8.75, 5.43, "train a GAN against others"),
        (8.75, 4.03, "copies it, looks for members"),
    ):  # fmt: skip
        axes.text(x, y, words, ha="center", va="center", fontsize=10.5, style="italic")
    axes.text(3.1, 6.35, "updates", color=RED)
    axes.text(6.15, 6.2, "models", color=BLUE)
    task = {"model": "linear", "shape": (64,), "classes": 10, "participants": 100, "rounds": 100}
    work = ClientUpdates(clip=1.0)
    everyone = round(math.sqrt(task["participants"]))
    kinds = (
        ("noise by the server", 5.85, GOLD, CentralNoise(20.0), {}),
        ("noise in shares, masked sum", 2.05, GREEN, SharedNoise(20.0, least=60),
         {"sums": MaskedSum(threshold=70)}),
        (f"noise by each participant: {everyone} times as much in the sum", 2.05, RED,
         LocalNoise(20.0, least=60), {}),
    )  # fmt: skip
    axes.text(0.05, 3.35, "ε (δ = 1e-5) against", fontsize=11)
    axes.text(4.9, 3.35, "the server", fontsize=11, ha="center")
    axes.text(8.75, 3.35, "who sees models", fontsize=11, ha="center")
    for row, (words, start, colour, noise, sums) in enumerate(kinds):
        views = Federation(**task, work=work, noise=noise, **sums)
        y = 2.35 - 1.0 * row
        axes.barh(y, 10 - start, left=start, height=0.36, color=colour, alpha=0.6)
        axes.text(0.05, y + 0.24, words, fontsize=11, va="bottom")
        for x, observer in ((4.9, "server"), (8.75, "released models")):
            epsilon = views.guarantee(observer).epsilon
            said = "no promise" if math.isinf(epsilon) else f"{math.ceil(epsilon * 100) / 100}"
            axes.text(x, y, said, ha="center", va="center", weight="bold")
    return figure


def box(axes: Axes, x: float, y: float, words: str, width: float) -> None:
    """A box with words in it, about (x, y)."""
    shape = FancyBboxPatch(
        (x - width / 2, y - 0.32), width, 0.64, "round,pad=0.05", fc="white", ec=INK, lw=1.4
    )
    axes.add_patch(shape)
    axes.text(x, y, words, ha="center", va="center")


FIGURES: dict[str, Callable[[], Figure]] = {
    draw.__name__.replace("_", "-"): draw
    for draw in (
        promise,
        sensitivity,
        laplace_or_gaussian,
        budgets,
        composition,
        groups,
        local_and_central,
        attacks,
        threats,
    )
}


def save(name: str, folder: Path = FOLDER) -> Path:
    """Draws one figure into a folder."""
    with mpl.rc_context(STYLE):
        figure = FIGURES[name]()
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{name}.png"
        drawn = io.BytesIO()
        figure.savefig(drawn)
    Image.open(drawn).convert("RGB").quantize(64).save(path, optimize=True)  # a third of the size
    return path


def main() -> None:
    """Draws the named figures, or all of them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(FIGURES))
    parser.add_argument("--out", type=Path, default=FOLDER, help="the folder to draw into")
    asked = parser.parse_args()
    unknown = sorted(set(asked.names) - set(FIGURES))
    if unknown:
        parser.error(f"no figure is called {unknown[0]}; there are {', '.join(FIGURES)}")
    for name in asked.names or FIGURES:
        print(save(name, asked.out))


if __name__ == "__main__":
    main()
