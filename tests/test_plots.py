"""One word for every figure: the right one for each kind, and clear words for the rest."""

import math
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import sfumato as sf
from sfumato.attacks.exposure import exposure_from_scores
from sfumato.attacks.extraction.fidelity import Fidelity, FidelityCurve, Share
from sfumato.attacks.inversion.results import Inversion
from sfumato.attacks.inversion.scoring import ClassRecognition, Recognition
from sfumato.attacks.membership.reports import MembershipReport
from sfumato.core.events import GaussianEvent, LaplaceEvent, NotPrivateEvent
from sfumato.learning.pate import GaussianMax, LaplaceMax
from sfumato.learning.pate.privacy import TeachersEffect, curator_view, planned_cost
from sfumato.learning.recipes.observing import Point
from sfumato.learning.runs.folder import RunFolder
from sfumato.queries.base import Cell
from sfumato.reports.style import Drawing

PROMISE = sf.Guarantee(1.0, 1e-5, "add-remove")
GNMAX = GaussianMax(40.0)


def legend(figure, place=0):
    beside = figure.axes[place].get_legend() or figure.legends[0]  # or below the axes
    return [text.get_text() for text in beside.get_texts()]


def titled(figure):
    return figure.axes[0].get_title(loc="left")


def report(attack="an attack", shift=1.0):
    random = np.random.default_rng(1)
    scores = np.concatenate([random.normal(shift, 1, 300), random.normal(0, 1, 200)])
    return MembershipReport.from_scores(scores, np.arange(500) < 300, attack=attack)


def inversion(attack="with prior", bounds=(0.0, 1.0), labels=(0, 1)):
    images = np.full((len(labels), 5, 4), 0.5, np.float32)
    ones = np.ones(len(labels))
    return Inversion(attack, "net", np.array(labels), images, ones, ones.astype(int), 10, bounds)


def fidelity(attack="by equations"):
    results = tuple(Fidelity(Share(right, 100), None, None, None, None) for right in (50, 80, 100))
    return FidelityCurve(attack, "scores", (10, 20, 40), (10, 20, 40), results)


def finding(found=0.5, claim=PROMISE, method="one run"):
    return sf.Finding(found, 1e-5, 0.95, method, claim)


def answer(keys=("city",)):
    cells = tuple(Cell((f"k{n}",) * len(keys), n, n - 2.0, n + 2.0) for n in range(3))
    return sf.Answer({"query": "count"}, cells, keys, "rows", 0.95, PROMISE, 2.0, 3.0)


POINTS = (Point(5, 0.4, 0.6), Point(10, 0.7, 0.8))


def record(event=None, guarantee=PROMISE, **facts):
    known = {"data": {"name": "toy $x$"}} | facts
    return sf.Record("dp-sgd", {"recipe": {"model": "linear"}}, event or LaplaceEvent(1.0),
                     guarantee, facts=known)  # fmt: skip


def trained(made=None, points=POINTS, public=True):
    return sf.Trained(torch.nn.Linear(1, 2), made or record(), 0.8, public, points, None)


def run(made, folder="runs/none"):
    recipe = sf.Recipe("linear", 10, sf.Rate(0.5), noise_multiplier=1.0, steps=6)
    return sf.Run(made, recipe, torch.nn.Linear(1, 2), ("no", "yes"), RunFolder(folder))


@pytest.fixture
def ledger(sqlite_url):
    opened = sf.Ledger(sqlite_url)
    opened.create("census", sf.Budget(3.0, 1e-6))
    for analyst, scale in (("ann", 10.0), ("bob", 5.0), ("ann", 10.0)):
        with opened.spend("census", LaplaceEvent(scale), analyst=analyst):
            pass
    yield opened
    opened.close()


def exposures():
    return exposure_from_scores([1.0, 5.0], np.arange(1.0, 1025.0))


def view(aggregator=GNMAX, delta=1e-5):
    votes = np.tile([180, 40, 30], (20, 1))
    return curator_view(votes, aggregator, delta, points=5)


def planned(aggregator=GNMAX, delta=1e-5):
    return planned_cost(aggregator, 30, delta, points=4)


def effect(teachers=50, answers=100, epsilon=3.0):
    at = ((1.0, 0.5), (2.0, 0.8))
    return TeachersEffect(teachers, 0.9, 0.95, at, 20.0, epsilon, 2.0, answers, 0.02, 1e-5)


EVERYTHING = {
    "profile": lambda: sf.privacy_profile(GaussianEvent(2.0), [1e-5]),
    "guarantee": lambda: PROMISE,
    "event": lambda: GaussianEvent(2.0),
    "answer": answer,
    "table": lambda: answer(("city", "age")),
    "membership": report,
    "finding": finding,
    "trained": trained,
    "run": lambda: run(record(curve=[point.to_dict() for point in POINTS])),
    "inversion": inversion,
    "fidelity": fidelity,
    "exposure": lambda: exposures()[0],
    "exposures": exposures,
    "view": view,
    "planned": planned,
    "effect": effect,
}


@pytest.mark.parametrize("kind", EVERYTHING)
def test_everything_becomes_a_figure_that_is_written(kind, tmp_path):
    figure = sf.plot(EVERYTHING[kind]())
    assert isinstance(figure, Drawing)
    path = figure.save(tmp_path / "deep" / "figure.png")
    assert path.read_bytes().startswith(b"\x89PNG\r\n")
    assert path.stat().st_size > 4000
    assert figure._repr_png_().startswith(b"\x89PNG\r\n")


@pytest.mark.parametrize("kind", ["guarantee", "membership", "finding", "inversion", "fidelity"])
def test_one_thing_and_a_list_of_it_are_the_same_figure(kind):
    thing = EVERYTHING[kind]()
    pictures = [sf.plot(shown)._repr_png_() for shown in (thing, [thing], (thing,))]
    assert len(set(pictures)) == 1


# --- promises -------------------------------------------------------------------------------------


@given(st.floats(0.0, 12.0), st.floats(0.0, 0.5))
def test_a_guarantee_is_drawn_as_its_bound(epsilon, delta):
    axes = sf.plot(sf.Guarantee(epsilon, delta, "add-remove")).axes[0]
    alphas, betas = axes.lines[1].get_data()
    rates = np.linspace(0, 1, 301)
    steep = 1 - delta - math.exp(epsilon) * rates
    flat = math.exp(-epsilon) * (1 - delta - rates)
    expected = np.maximum(0, np.maximum(steep, flat))
    assert np.interp(rates, alphas, betas) == pytest.approx(expected, abs=1e-9)


def test_no_promise_is_no_bound():
    (_, curve) = sf.plot(sf.Guarantee(math.inf, 0.0, "add-remove")).axes[0].lines
    assert list(curve.get_ydata()) == [0, 0]
    (_, curve) = sf.plot(NotPrivateEvent()).axes[0].lines
    assert np.asarray(curve.get_ydata()).max() == 0


def test_an_event_is_drawn_by_its_profile_at_the_relation_asked_for():
    event = GaussianEvent(2.0)
    for relation in ("add-remove", "replace-one"):
        profile = sf.privacy_profile(event, [1e-6], neighbours=relation)
        figure = sf.plot(event, delta=1e-6, neighbours=relation)
        curve = figure.axes[0].lines[1]
        assert np.array_equal(curve.get_ydata(), profile.betas)
        assert legend(figure)[1].replace("\n", ", ") == str(profile.guarantees[0])


def test_promises_of_three_kinds_are_drawn_together():
    event = GaussianEvent(2.0)
    profile = sf.privacy_profile(event)
    figure = sf.plot({"event": event, "profile": profile, "claim": PROMISE}, title="All of $x$")
    _, *curves = figure.axes[0].lines
    assert len(curves) == 3
    assert len({curve.get_color() for curve in curves}) == 3
    assert np.array_equal(curves[0].get_ydata(), curves[1].get_ydata())
    assert legend(figure) == ["guessing", "event", "profile", "claim"]
    assert titled(figure) == r"All of \$x\$"
    (stated,) = legend(sf.plot(profile))[1:]
    (at,) = [one for one in profile.guarantees if one.delta == 1e-5]
    assert stated.replace("\n", ", ") == str(at)


def test_names_are_told_apart():
    assert legend(sf.plot([report(), report(), report("other")]))[1:] == [
        "an attack", "an attack (2)", "other",
    ]  # fmt: skip


def test_findings_are_bars_against_their_claims():
    figure = sf.plot({"safe": finding(0.5), "broken": finding(2.0), "lost": finding(math.inf)})
    (axes,) = figure.axes
    assert [tick.get_text() for tick in axes.get_yticklabels()] == ["lost", "broken", "safe"]
    assert [text.get_text() for text in axes.texts] == [
        "infinite of 1", "at least 2 of 1", "at least 0.5 of 1",
    ]  # fmt: skip
    widths = [bar.get_width() for bar in axes.patches if bar.get_width()]
    assert max(widths) == 4.0
    figure._repr_png_()


def test_a_finding_without_a_claim_is_given_one():
    bare = finding(claim=None)
    with pytest.raises(ValueError, match="got none: give claim"):
        sf.plot(bare)
    with pytest.raises(ValueError, match="promises nothing"):
        sf.plot(bare, claim=replace(PROMISE, epsilon=math.inf))
    with pytest.raises(ValueError, match="delta must be at least the claim's"):
        sf.plot(bare, claim=replace(PROMISE, delta=0.1))
    figure = sf.plot(bare, claim=replace(PROMISE, epsilon=7.0))
    assert figure.axes[0].texts[0].get_text() == "at least 0.5 of 7"


# --- releases -------------------------------------------------------------------------------------


def test_an_answer_is_drawn_as_it_draws_itself():
    axes = sf.plot(answer(), title="By city").axes[0]
    assert [bar.get_height() for bar in axes.patches] == [0, 1, 2]
    assert axes.get_title(loc="left") == "By city"
    assert len(sf.plot(answer(("city", "age"))).axes) == 2  # a heat map and its colours


def test_a_learning_curve():
    figure = sf.plot(trained())
    left, right = figure.axes
    assert left.lines[0].get_xydata().tolist() == [[5, 0.6], [10, 0.8]]
    assert list(right.lines[0].get_ydata()) == [0.4, 0.7]
    assert titled(figure) == r"toy \$x\$, linear: " + str(PROMISE)
    assert left.get_ylabel() == "accuracy, public test set"
    assert sf.plot(trained(public=False)).axes[0].get_ylabel() == "accuracy, for the curator"
    with pytest.raises(ValueError, match="never tested"):
        sf.plot(trained(points=()))


def test_a_run_without_privacy_has_no_epsilon_to_draw():
    nothing = sf.Guarantee(math.inf, 0.0, "add-remove")
    plain = record(NotPrivateEvent(), nothing)
    points = tuple(replace(point, epsilon=math.inf) for point in POINTS)
    figure = sf.plot(trained(plain, points, public=False))
    assert titled(sf.plot(trained(plain, points, public=False), title="my own")) == (
        "NOT PRIVATE. my own"
    )
    (axes,) = figure.axes
    assert list(axes.lines[0].get_ydata()) == [0.6, 0.8]
    assert titled(figure).startswith("NOT PRIVATE. ")
    figure._repr_png_()


def test_a_curator_s_curve_is_drawn_on_demand_alone(tmp_path):
    folder = RunFolder(tmp_path / "a")
    folder.begin({})
    kept = run(record(), folder.path)
    folder.write_curator("results.json", {"curve": [point.to_dict() for point in POINTS]})
    with pytest.raises(ValueError, match="no public learning curve: curator=True"):
        sf.plot(kept)
    figure = sf.plot(kept, curator=True)
    assert list(figure.axes[0].lines[0].get_ydata()) == [0.6, 0.8]
    assert figure.axes[0].get_ylabel() == "accuracy, for the curator"
    shown = sf.plot(run(record(curve=[point.to_dict() for point in POINTS])))
    assert shown.axes[0].get_ylabel() == "accuracy, public test set"


def test_a_budget_burns_down_by_analyst(ledger):
    figure = sf.plot(ledger)
    (axes,) = figure.axes
    assert axes.lines[0].get_ydata() == pytest.approx([0, 0.1, 0.3, 0.4, 0.4])
    assert {"ann", "bob", "cap 3: the guarantee"} <= set(legend(figure))
    tops = [area.get_paths()[0].vertices[:, 1].max() for area in axes.collections]
    assert tops == pytest.approx([0.2, 0.4])
    ledger.create("empty", sf.Budget(1.0))
    with pytest.raises(ValueError, match="dataset must be one of census, empty"):
        sf.plot(ledger)
    assert "empty" in titled(sf.plot(ledger, dataset="empty"))
    assert np.array_equal(sf.plot(ledger, dataset="census").axes[0].lines[0].get_ydata(),
                          axes.lines[0].get_ydata())  # fmt: skip


# --- attacks --------------------------------------------------------------------------------------


def test_reports_are_curves_with_the_claim_and_limits():
    found = {"strong": report(shift=2.0), "weak": report(shift=0.2)}
    figure = sf.plot(found, claim=PROMISE, limits=True)
    (axes,) = figure.axes
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
    assert "bound at epsilon 1, delta 1e-05" in legend(figure)
    lines = {line.get_label(): line for line in axes.lines}
    for name, one in found.items():
        rates, shares = lines[name].get_data()
        at = np.searchsorted(rates, 0.1)
        assert shares[at] == one.roc.power_at(rates[at])
    assert any("limits" in text for text in legend(figure))
    assert not any("limits" in text for text in legend(sf.plot(found)))
    free = sf.plot(found, claim=replace(PROMISE, epsilon=math.inf))
    assert not any("bound" in text for text in legend(free))


def test_inversions_are_rows_of_pictures():
    judged = Recognition({0: ClassRecognition(1, 1, 1, 0.9), 1: ClassRecognition(1, 0, 1, 0.3)})
    several = {"private": inversion(), "plain": inversion(bounds=(0.0, 0.5))}
    figure = sf.plot(several, classes=["cat", "d$g"], means=np.zeros((2, 5, 4)),
                     recognition=[judged, judged])  # fmt: skip
    assert len(figure.axes) == 6
    assert [axes.get_title() for axes in figure.axes[:2]] == ["cat", r"d\$g"]
    names = [figure.axes[place].get_ylabel() for place in (0, 2, 4)]
    assert names == ["mean of the class", "private", "plain"]
    framed, pale = (axes.spines["left"].get_edgecolor() for axes in figure.axes[2:4])
    assert framed != pale
    with pytest.raises(ValueError, match="the same classes"):
        sf.plot([inversion(), inversion(labels=(0, 2))])
    with pytest.raises(ValueError, match="recognition must be 2, one a row, got 1"):
        sf.plot(several, recognition=judged)
    with pytest.raises(ValueError, match="one image a class"):
        sf.plot(inversion(labels=(0, 5)), recognition=judged)


def test_copies_are_lines():
    figure = sf.plot([fidelity(), fidelity("by retraining")], unknowns=30, chance=0.1)
    first = figure.axes[0].lines[0]
    assert first.get_xydata().tolist() == [[10, 0.5], [20, 0.8], [40, 1.0]]
    assert {"by equations from scores", "by retraining from scores", "guessing"} <= set(
        legend(figure)
    )


def test_exposures_are_bits_or_a_histogram():
    found = dict(zip(["code 1", "code $2$"], exposures(), strict=True))
    (axes,) = sf.plot(found).axes
    assert [bar.get_height() for bar in axes.patches] == [one.bits for one in exposures()]
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["code 1", r"code \$2\$"]
    levels = [line.get_ydata()[0] for line in axes.lines[-2:]]
    assert levels == pytest.approx([10.0, 1.4427], abs=1e-4)
    asked = np.arange(1.0, 1025.0)
    upper, lower = sf.plot(found, candidates=asked, surprises=[1.0, 5.0]).axes
    assert [line.get_xdata()[0] for line in upper.lines] == [1.0, 5.0]
    assert [text.get_text() for text in lower.texts] == ["code 1", "code $2$"]
    with pytest.raises(ValueError, match="together, or neither"):
        sf.plot(found, candidates=asked)
    with pytest.raises(ValueError, match="surprises must be 2"):
        sf.plot(found, candidates=asked, surprises=[1.0])


# --- what cannot be drawn -------------------------------------------------------------------------


@pytest.mark.parametrize("thing", [3, "text", None, object(), np.zeros(3), sf.Budget(1.0)])
def test_what_has_no_figure_is_named_beside_what_has(thing):
    with pytest.raises(TypeError) as said:
        sf.plot(thing)
    assert str(said.value).startswith(f"{type(thing).__module__}.{type(thing).__qualname__} has no")
    assert "PrivacyProfile, Guarantee, Event, Answer, MembershipReport" in str(said.value)
    with pytest.raises(TypeError, match="has no figure"):
        sf.plot([PROMISE, thing])


@pytest.mark.parametrize("nothing", [[], {}, ()])
def test_nothing_is_no_figure(nothing):
    with pytest.raises(ValueError, match="something to draw, got an empty"):
        sf.plot(nothing)


def test_kinds_are_not_mixed_and_some_stand_alone(ledger):
    with pytest.raises(TypeError, match="of one kind, got Finding and Guarantee"):
        sf.plot([PROMISE, finding()])
    for thing in (answer(), trained(), ledger):
        with pytest.raises(ValueError, match="is drawn by itself, got 2: plot one at a time"):
            sf.plot([thing, thing])


def test_an_unknown_option_is_named_beside_the_known():
    with pytest.raises(TypeError, match="of Guarantee has no option 'colour', only title, delta"):
        sf.plot(PROMISE, colour="red")


def test_a_subclass_is_drawn_as_its_parent():
    class Special(sf.Guarantee):
        pass

    assert len(sf.plot(Special(1.0, 0.0, "add-remove")).axes[0].lines) == 2


def test_nothing_is_loaded_to_draw_something_else():
    code = (
        "import sys, sfumato as sf\n"
        "sf.plot\n"
        "assert not {'matplotlib', 'numpy'} & set(sys.modules)\n"
        "sf.plot(sf.Guarantee(1.0, 0.0, 'add-remove'))._repr_png_()\n"
        "rooms = 'accounting attacks audit data learning ledger mechanisms queries'.split()\n"
        "assert not {f'sfumato.{room}' for room in rooms} & set(sys.modules)\n"
        "assert not {'torch', 'matplotlib.pyplot', 'dp_accounting'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


# --- teachers -------------------------------------------------------------------------------------


def test_views_of_one_run_show_its_agreement_once_and_each_cost():
    figure = sf.plot({"by lnmax": view(LaplaceMax(0.05)), "by gnmax": view()})
    assert [bar.get_height() for bar in figure.axes[0].patches].count(20) == 1
    assert legend(figure, 1) == [
        f"by {name}, for {whose}"
        for name in ("lnmax", "gnmax")
        for whose in ("all data", "these votes")
    ]
    assert "for the curator" in figure.axes[0].texts[0].get_text()
    with pytest.raises(ValueError, match="at the same delta"):
        sf.plot([view(), view(delta=1e-6)])


def test_planned_costs_are_public_and_named_by_their_aggregator():
    costs = [planned(), planned(LaplaceMax(0.05))]
    axes = sf.plot(costs).axes[0]
    assert legend(axes.figure) == ["gnmax", "lnmax"]
    assert [tuple(line.get_ydata()) for line in axes.lines] == [one.epsilons for one in costs]
    assert not axes.texts
    with pytest.raises(ValueError, match="at the same delta"):
        sf.plot([planned(), planned(delta=1e-6)])


def test_effects_are_drawn_by_the_number_of_teachers():
    figure = sf.plot([effect(100, epsilon=1.0), effect(50)])
    assert "noisy answers, epsilon 2 for 100" in legend(figure)
    line = figure.axes[1].lines[0]
    assert (list(line.get_xdata()), list(line.get_ydata())) == ([50, 100], [3.0, 1.0])
    with pytest.raises(ValueError, match="of the same answers"):
        sf.plot([effect(), effect(100, answers=5)])
