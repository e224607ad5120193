"""What notebooks show: the numbers that print shows, escaped, and stamped where it must be."""

import re
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest
import torch

import sfumato as sf
from sfumato.attacks.inversion.results import Inversion
from sfumato.attacks.inversion.scoring import ClassRecognition, Recognition
from sfumato.attacks.membership.reports import MembershipReport
from sfumato.core.events import LaplaceEvent, NotPrivateEvent
from sfumato.core.html import CURATOR
from sfumato.core.records import NOT_PRIVATE, UNPROTECTED
from sfumato.learning.recipes.canaries import CanaryKind, CanaryScores
from sfumato.learning.recipes.observing import Point
from sfumato.learning.runs.folder import RunFolder
from sfumato.queries.base import Cell
from sfumato.reports.figures import epsilon_curve_figure

NASTY = "<script>alert(1)</script>"
PROMISE = sf.Guarantee(0.94699, 1e-5, "add-remove", unit=NASTY, accountant="pld", note="by <hand>")
NOTHING = sf.Guarantee(float("inf"), 0.0, "add-remove")


def words(thing):
    """The text of its table; fails unless tags are closed and there is a single table."""
    opened, texts = [], []

    class Reader(HTMLParser):
        def handle_starttag(self, tag, attrs):
            assert tag in ("div", "p", "table", "caption", "thead", "tbody", "tr", "th", "td")
            opened.append(tag)

        def handle_endtag(self, tag):
            assert opened.pop() == tag

        def handle_data(self, data):
            texts.append(data)

    html = thing._repr_html_()
    assert html.count("<table") == 1
    assert not re.search(r"http|src=|url\(|<script|<style", html)
    Reader().feed(html)
    assert not opened
    return "\n".join(texts)


def numbers(text):
    return set(re.findall(r"\d+(?:,\d{3})*(?:\.\d+)?(?:e-\d+)?%?", text))


def release():
    return sf.Release(f"{NASTY} 1204", LaplaceEvent(10.0), PROMISE, 30.2, 0.95)


def record(event=None, guarantee=PROMISE, private=True):
    facts = {"data": {"name": NASTY}, "accuracy": 0.8912, "test_set": "public", "tuning": "none"}
    parameters = {"recipe": {"model": "linear"}, NASTY: 3}
    event = LaplaceEvent(1.0) if event is None else event
    made = sf.Record("dp-sgd", parameters, event, guarantee, private, facts)
    made.tell_curator("loss", 0.123456)
    return made


def membership():
    random = np.random.default_rng(1)
    scores = np.concatenate([random.normal(1, 1, 300), random.normal(0, 1, 200)])
    return MembershipReport.from_scores(scores, np.arange(500) < 300, attack=NASTY, queries=1500)


def inversion():
    images = np.zeros((2, 4, 4), np.float32)
    sure = np.array([0.9, 0.755])
    return Inversion(
        "with prior", NASTY, np.arange(2), images, sure, np.ones(2, int), 12_345, (0, 1)
    )


def recognition():
    return Recognition({0: ClassRecognition(3, 2, 3, 0.7), 1: ClassRecognition(1, 1, 1, 0.9)})


def finding(**more):
    facts = {"canaries": 1000, NASTY: [1, 2]}
    return sf.Finding(1.2345, 1e-5, 0.95, NASTY, replace(PROMISE, epsilon=3.0), facts, **more)


def answer(**more):
    cells = (Cell((NASTY,), 7655, 7625.0, 7685.0), Cell(("Rome",), 13.6142, 13.5, 13.7))
    own = {"query": {"query": "count"}, "left": 2.9, "budget": 3.0, "note": "one <of> 1001"}
    known = {"key_names": ("city",), "unit_of_value": "rows", "confidence": 0.95}
    return sf.Answer(**({"cells": cells, "guarantee": PROMISE} | own | known | more))


def trained(**more):
    own = {"model": torch.nn.Linear(1, 2), "record": record(), "accuracy": 0.8912}
    known = {"accuracy_is_public": True, "points": (Point(5, 0.9, 0.8912),), "folder": None}
    return sf.Trained(**(own | known | more))


def run(**more):
    recipe = sf.Recipe(
        "linear", 10, sf.Rate(0.5), noise_multiplier=1.0, steps=6, origin="a <guess>"
    )
    own = {"record": record(), "recipe": recipe, "model": torch.nn.Linear(1, 2)}
    return sf.Run(**(own | {"classes": (NASTY, "yes"), "folder": RunFolder("runs/a")} | more))


@pytest.fixture
def ledger(sqlite_url):
    opened = sf.Ledger(sqlite_url)
    opened.create("census", sf.Budget(3.0, 1e-6))
    opened.grant("census", NASTY, sf.Budget(1.25))
    with opened.spend("census", LaplaceEvent(10.0), analyst=NASTY, label="age"):
        pass
    yield opened
    opened.close()


# What print says in a line or two, the table says as well.
SAYING = [release, membership, inversion, recognition, finding, answer]


@pytest.mark.parametrize("make", SAYING)
def test_tables_have_the_numbers_that_print_shows(make):
    said, shown = numbers(str(make())), numbers(words(make()))
    assert said
    assert said <= shown


def test_a_guarantee():
    shown = words(PROMISE)
    assert numbers(str(PROMISE)) <= numbers(shown)
    assert "0.947\n" in shown
    assert f"add or remove one {NASTY}" in shown
    assert shown.endswith("by <hand>")
    assert "infinite" in words(NOTHING)


def test_status_and_preview(ledger):
    status = ledger.status("census", NASTY)
    assert numbers(str(status)) <= numbers(words(status))
    assert "the guarantee is the cap" in words(status)
    assert NASTY in words(status)
    preview = ledger.preview("census", [LaplaceEvent(10.0), LaplaceEvent(0.1)], analyst=NASTY)
    assert numbers(str(preview)) <= numbers(words(preview))
    assert "Nothing was spent. All of it together costs 10.1 and does not pass." in words(preview)
    passing = ledger.preview("census", [LaplaceEvent(10.0)], analyst=NASTY)
    assert "costs 0.1 and passes" in words(passing)


def test_a_profile():
    profile = sf.privacy_profile(sf.dp_sgd(4, 0.01, 10_000), deltas=[1e-5, 1e-6])
    shown = words(profile)
    for guarantee in profile.guarantees:
        assert numbers(str(guarantee)) <= numbers(shown)
    # Rounded up: these are bounds.
    bounds = [float(n) for n in re.findall(r"at most ([\d.]+)", shown)]
    exact = [profile.advantage, profile.power_at(0.01)]
    assert bounds == pytest.approx(exact, rel=1e-3)
    assert all(shown >= true for shown, true in zip(bounds, exact, strict=True))


def test_a_record_shows_what_is_public_and_nothing_else():
    shown = words(record())
    for known in ("0.8912", "0.947", NASTY, "linear", "laplace", "sfumato"):
        assert known in shown
    assert "0.123456" not in shown
    assert "NOT PRIVATE" not in shown


@pytest.mark.parametrize(
    "make", [membership, inversion, recognition, lambda: finding(private=True)]
)
def test_the_curator_s_say_so(make):
    assert words(make()).endswith(CURATOR)


def test_what_is_public_is_not_said_to_be_the_curator_s():
    for thing in (finding(), answer(), trained(), run(), record(), release(), PROMISE):
        assert "curator only" not in words(thing)


def test_stamps_come_first():
    assert words(replace(release(), private=False)).startswith(NOT_PRIVATE)
    assert words(record(private=False)).startswith(NOT_PRIVATE)
    assert words(record(NotPrivateEvent(), NOTHING)).startswith(UNPROTECTED)
    assert words(answer(private=False)).startswith(NOT_PRIVATE)
    assert words(trained(record=record(private=False))).startswith(NOT_PRIVATE)
    plain = record(NotPrivateEvent(), NOTHING)
    assert words(run(record=plain)).startswith(UNPROTECTED)


def test_a_refuted_claim_is_a_stamp():
    refuted = replace(finding(), claim=replace(PROMISE, epsilon=1.0))
    assert words(refuted).startswith("REFUTES the claimed epsilon 1\n")
    assert "REFUTES" not in words(finding())
    assert "claim" not in words(replace(finding(), claim=None))


def test_long_answers_are_cut_and_stored_ones_say_so():
    cells = tuple(Cell((f"key {n}",), n, n - 2.0, n + 2.0) for n in range(100))
    shown = words(answer(cells=cells, repeated=True))
    assert "key 59" in shown
    assert "key 60" not in shown
    assert "... and 40 more" in shown
    assert "stored answer, nothing charged" in shown
    assert "no group passed" in words(answer(cells=()))
    assert "epsilon 0.947, delta 1e-05" in shown


def test_a_trained_model():
    assert "89.12% (public test set)" in words(trained())
    private = words(trained(accuracy_is_public=False))
    assert "89.12% (not public)" in private
    assert private.endswith(CURATOR)
    assert "accuracy" not in words(trained(accuracy=None))
    scores = CanaryScores(CanaryKind.NATURAL, np.ones(7, bool), np.full(7, 0.4321))
    shown = words(trained(canaries=scores))
    assert "7; their coins and scores are the curator's" in shown
    assert "0.4321" not in shown


def test_a_run_that_was_read_back():
    shown = words(run())
    for known in ("89.12% (public test set)", NASTY, "runs/a", "a <guess>", "0.947"):
        assert known in shown


def test_figures_show_themselves():
    figure = epsilon_curve_figure([0, 10], [0, 1], 1e-5)
    assert figure._repr_png_().startswith(b"\x89PNG\r\n")


def test_notebooks_ask_for_them(ledger):
    formatters = pytest.importorskip("IPython.core.formatters")
    formatter = formatters.DisplayFormatter()
    shown, _ = formatter.format(epsilon_curve_figure([0, 10], [0, 1], 1e-5))
    assert shown["image/png"].startswith(b"\x89PNG\r\n")
    things = [make() for make in (*SAYING, record, trained, run)]
    for thing in (*things, PROMISE, ledger.status("census")):
        shown, _ = formatter.format(thing)
        assert shown["text/html"] == thing._repr_html_()
